//! Does the operator's word hold? Pins, freeze and shadow, and what becomes of a value that is held.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Exporter, Model, Router, Site, until};
use crate::fake::{Behaviour, FakeServer};

fn pin(pool: &str, replicas: u32) -> String {
    format!("- {{ pool: {pool}, replicas: {replicas}, until: \"2100-01-01T00:00:00Z\", reason: incident }}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_is_published_before_any_scrape_has_ended() {
    let hung = FakeServer::start(Behaviour::Hang).await;
    let site = Site::new();
    site.write("overrides.yaml", &pin("m-decode", 7));
    // The first round lasts a minute, and no later one can have begun.
    let settings = "scrape: { interval: 60s, timeout: 60s }\noverrides_file: overrides.yaml\n";
    let model = Model { interval: "60s", hold_for: "10m", ..Model::new("m", [hung.url()]) };
    let exporter = Exporter::start(&site.config(settings, &[model]));
    let page = exporter.metrics();
    assert_eq!((page.recommended("m-decode"), page.recommended("m-prefill")), (Some(7.0), None));
    assert_eq!(page.value("override_active", &[("pool", "m-decode"), ("kind", "pin")]), Some(1.0));
    assert_eq!(page.reason("m-decode"), "pinned");
    assert_eq!(exporter.status("/-/ready"), 503);
    let (status, body) = exporter.pool_page("m-decode");
    assert!(status == 200 && body.lines().any(|line| line == "inference_planner_recommended_replicas 7"), "{status} {body}");
    // Nor does a changed pin wait for the round to end.
    site.write("overrides.yaml", &pin("m-decode", 5));
    until("the changed pin is published", || (exporter.recommended("m-decode") == Some(5.0)).then_some(()));
    assert_eq!(exporter.status("/-/ready"), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_come_and_go_with_their_file_and_one_outside_the_limits_is_refused() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let exporter = Exporter::start(&site.config("overrides_file: overrides.yaml\n", &[Model::of("m", &routers)]));
    exporter.settle(&["m"], 3.0);
    site.write("overrides.yaml", &pin("m-decode", 9));
    until("the new file is picked up", || (exporter.recommended("m-decode") == Some(9.0)).then_some(()));
    assert_eq!(exporter.recommended("m-prefill"), Some(3.0));

    site.write("overrides.yaml", &pin("m-decode", 17));
    until("the pin above the maximum is refused", || {
        let page = exporter.metrics();
        assert_eq!(page.recommended("m-decode"), Some(9.0));
        (page.value("config_last_reload_successful", &[]) == Some(0.0)).then_some(())
    });
    until("the refusal is logged", || {
        let log = exporter.process.log();
        let line = log.lines().find(|line| line.contains("ERROR") && line.contains("overrides.yaml"))?;
        (line.contains("17") && line.contains("1 to 16")).then_some(())
    });

    std::fs::remove_file(site.path("overrides.yaml")).unwrap();
    exporter.settle(&["m"], 3.0);
    let soon = humantime::format_rfc3339_millis(SystemTime::now() + Duration::from_secs(5)).to_string();
    site.write("overrides.yaml", &pin("m-decode", 8).replace("2100-01-01T00:00:00Z", &soon));
    until("the short pin is published", || (exporter.recommended("m-decode") == Some(8.0)).then_some(()));
    exporter.settle(&["m"], 3.0);
    assert!(humantime::format_rfc3339_millis(SystemTime::now()).to_string() >= soon, "the pin ends at its time and not before");
    assert_eq!(exporter.metrics().value("config_last_reload_successful", &[]), Some(1.0));
    let log = exporter.process.log();
    for change in ["before=\"3\" after=\"9\"", "before=\"9\" after=\"3\""] {
        assert!(log.lines().any(|line| line.contains("pool=m-decode") && line.contains(change)), "{change} in\n{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn freeze_keeps_its_number_over_restarts_of_both_kinds() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let state = "state_file: state.json\n";
    let model = Model { hold_for: "3s", ..Model::of("m", &routers) };
    let mut exporter = Exporter::start(&site.config(state, std::slice::from_ref(&model)));
    exporter.settle(&["m"], 3.0);
    let down = FakeServer::start(Behaviour::Refuse).await;
    let frozen = Model { mode: "freeze", urls: vec![down.url()], ..model };
    site.config(state, &[frozen]);
    exporter.process.signal("HUP");
    until("both pools are frozen on disk", || {
        let text = std::fs::read_to_string(site.path("state.json")).ok()?;
        (text.matches("\"frozen\":3").count() == 2).then_some(())
    });
    for signal in ["KILL", "TERM", "KILL"] {
        exporter.process.signal(signal);
        exporter.process.ended();
        // Longer than an ordinary recommendation lives.
        std::thread::sleep(Duration::from_millis(3200));
        exporter = Exporter::start(&site.path("config.yaml"));
        let page = exporter.metrics();
        assert_eq!((page.recommended("m-prefill"), page.recommended("m-decode")), (Some(3.0), Some(3.0)), "after {signal}");
        assert_eq!(page.value("override_active", &[("pool", "m-decode"), ("kind", "freeze")]), Some(1.0));
        assert_eq!(page.reason("m-decode"), "frozen");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_publishes_nothing_while_blind_holds_expire_and_deliberate_ones_renew() {
    let (shadow, blind, idle) = (Router::pair("shadow").await, Router::pair("blind").await, Router::pair("idle").await);
    let site = Site::new();
    let short = |name, routers: &[Router]| Model { hold_for: "3s", ..Model::of(name, routers) };
    let models = [Model { mode: "shadow", ..Model::of("shadow", &shadow) }, short("blind", &blind), short("idle", &idle)];
    let exporter = Exporter::start(&site.config("", &models));
    exporter.settle(&["blind", "idle"], 3.0);
    until("shadow plans", || {
        let page = exporter.metrics();
        assert_eq!(page.recommended("shadow-decode"), None);
        (page.value("planned_replicas", &[("pool", "shadow-decode")]) == Some(3.0)).then_some(())
    });
    let (status, body) = exporter.pool_page("shadow-decode");
    assert!(status == 503 && body.contains("shadow"), "{status} {body}");
    assert_eq!(exporter.metrics().value("override_active", &[("pool", "shadow-decode"), ("kind", "shadow")]), Some(1.0));
    // An autoscaler must find the value nowhere, the pages for people included.
    let (_, _, plans) = exporter.ask("GET /api/v1/plans");
    let plans: serde_json::Value = serde_json::from_str(&plans).unwrap();
    let plan = plans["models"].as_array().unwrap().iter().find(|plan| plan["model"] == "shadow").unwrap();
    assert!(plan["pools"].as_array().unwrap().iter().all(|pool| pool["recommended_replicas"].is_null()), "{plan:#}");

    blind.iter().for_each(|router| router.server.set(Behaviour::Hang));
    idle.iter().for_each(|router| router.set_rate(0.0));
    until("the blind hold expires", || {
        let page = exporter.metrics();
        match page.recommended("blind-decode") {
            Some(replicas) => assert_eq!(replicas, 3.0),
            None => return Some(()),
        }
        None
    });
    let page = exporter.metrics();
    assert_eq!((page.reason("blind-decode"), page.held("blind-decode")), ("all_targets_down".to_owned(), Some(1.0)));
    // The server ends the value by itself; the next round says why.
    until("the pool's page tells the reason", || {
        let (status, body) = exporter.pool_page("blind-decode");
        assert_eq!(status, 503, "{body}");
        body.contains("all_targets_down").then_some(())
    });
    let stamp = |page: &super::Metrics| page.value("recommendation_timestamp_seconds", &[("pool", "idle-decode")]).unwrap();
    let renewed_from = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    // The window in which the load ended asks for less; the idle ones after it ask for nothing and keep that.
    let kept = until("the idle model is held", || {
        let page = exporter.metrics();
        (page.reason("idle-decode") == "no_requests").then(|| page.recommended("idle-decode").unwrap())
    });
    until("the deliberate hold is renewed beyond its first life", || {
        let page = exporter.metrics();
        assert_eq!(page.recommended("idle-decode"), Some(kept));
        (page.reason("idle-decode") == "no_requests" && stamp(&page) > renewed_from + 3.0).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_gets_the_text_format_whatever_it_accepts() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let exporter = Exporter::start(&site.config("", &[Model::of("m", &routers)]));
    exporter.settle(&["m"], 3.0);
    // `metrics` sends no Accept header, as KEDA does, and asserts the content type.
    let plain = exporter.metrics();
    for accept in ["application/openmetrics-text;version=1.0.0", "application/json", "application/vnd.google.protobuf"] {
        let (status, head, body) = exporter.ask_with("GET /metrics", &format!("Accept: {accept}\r\n"));
        assert_eq!(status, 200);
        assert!(head.to_ascii_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
        assert_eq!(
            body.lines().filter(|line| line.starts_with("# TYPE")).count(),
            plain.0.lines().filter(|line| line.starts_with("# TYPE")).count()
        );
    }
    let (status, body) = exporter.pool_page("m-decode");
    assert_eq!((status, body.lines().last()), (200, Some("inference_planner_recommended_replicas 3")));
}
