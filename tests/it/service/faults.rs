//! Does a fault of a server ever lower, delay or spoil a published number? The fault table, up to the gauge that an autoscaler reads.

use std::io::Write;

use super::{Exporter, HALF_LOAD, Model, Router, Site, pools, until};
use crate::fake::{Behaviour, FakeServer};

/// A fault, whom it strikes, and what shows it.
struct Fault {
    name: &'static str,
    /// Both routers of the model, or one of two.
    both: bool,
    strike: fn(&Router),
    /// A value of `scrapes_total`'s label that must be counted.
    result: &'static str,
    /// Whether the struck target counts as up.
    up: bool,
    /// A reason of `windows_skipped_total` that must be counted.
    skipped: Option<&'static str>,
}

const fn silent(name: &'static str, strike: fn(&Router), result: &'static str) -> Fault {
    Fault { name, both: false, strike, result, up: false, skipped: None }
}

fn body(router: &Router, kind: &str, body: &[u8]) {
    router.server.set(Behaviour::Body { headers: format!("Content-Type: {kind}"), body: body.to_vec() });
}

fn without_latency(page: String) -> Vec<u8> {
    let lines = page.lines().map(|line| match line.rsplit_once(' ') {
        Some((series, _)) if series.starts_with("infera_time_to_first_token_seconds_sum") => format!("{series} NaN\n"),
        _ => format!("{line}\n"),
    });
    lines.collect::<String>().into_bytes()
}

fn with_garbage(mut page: String) -> Vec<u8> {
    page.push_str("infera_active_workers{disagg_mode=\"decode\",model=\"");
    let mut page = page.into_bytes();
    page.extend(b"\xff\xfe\"} 1\n\xff 3\n");
    page
}

const HTML: &[u8] = b"<!DOCTYPE html>\n<html><body>Welcome to nginx!</body></html>\n";

const FAULTS: &[Fault] = &[
    silent("hang", |router| router.server.set(Behaviour::Hang), "timeout"),
    silent("hang-in-body", |router| router.server.set(Behaviour::HangAfterHeaders), "timeout"),
    silent("refuse", |router| router.server.set(Behaviour::Refuse), "connect"),
    silent("status-500", |router| router.server.set(Behaviour::Status(500)), "status"),
    silent("truncated", |router| router.server.set(Behaviour::ResetInBody), "connect"),
    silent("html", |router| body(router, "text/html", HTML), "parse"),
    silent("json", |router| body(router, "application/json", b"{\"status\":\"ok\",\"requests\":0}"), "parse"),
    silent("empty", |router| body(router, "text/plain", b""), "empty"),
    Fault { up: true, ..silent("invalid-utf8", |router| router.spoil(with_garbage), "ok") },
    Fault { up: true, ..silent("nan", |router| router.spoil(without_latency), "ok") },
    Fault { up: true, skipped: Some("counter_reset"), ..silent("reset", Router::restart, "ok") },
    Fault { both: true, up: true, skipped: Some("counter_reset"), ..silent("all-reset", Router::restart, "ok") },
    Fault { both: true, skipped: Some("all_targets_down"), ..silent("all-hang", |router| router.server.set(Behaviour::Hang), "timeout") },
    Fault {
        both: true,
        skipped: Some("all_targets_down"),
        ..silent("all-refuse", |router| router.server.set(Behaviour::Refuse), "connect")
    },
    Fault { both: true, up: true, skipped: Some("latency_absent"), ..silent("all-nan", |router| router.spoil(without_latency), "ok") },
    Fault { both: true, up: true, skipped: Some("no_decode_replicas"), ..silent("no-workers", |router| router.set_workers(2, 0), "ok") },
];

/// Asserts that no pool's recommendation has moved from 3.
fn assert_steady(page: &super::Metrics, models: &[&str]) {
    for pool in models.iter().flat_map(|model| pools(model)) {
        assert_eq!(page.recommended(&pool), Some(3.0), "{pool}: {}", page.reason(&pool));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_of_a_server_moves_a_recommendation_and_each_shows_its_reason() {
    let mut routers = Vec::new();
    for fault in FAULTS {
        routers.push(Router::pair(fault.name).await);
    }
    let healthy = Router::pair("healthy").await;
    let mut models: Vec<Model> = FAULTS.iter().zip(&routers).map(|(fault, routers)| Model::of(fault.name, routers)).collect();
    models.push(Model::of("healthy", &healthy));
    let site = Site::new();
    let exporter = Exporter::start(&site.config("", &models));
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    exporter.settle(&names, 3.0);

    for (fault, routers) in FAULTS.iter().zip(&routers) {
        routers.iter().skip(usize::from(!fault.both)).for_each(fault.strike);
    }
    let decided = |page: &super::Metrics| page.sum("decisions_total", &[("model", "healthy")]);
    let before = decided(&exporter.metrics());
    exporter.watch(&names, 4.0, |page| assert_steady(page, &names));
    // The neighbour has been decided as often as all others, by computation.
    assert!(decided(&exporter.metrics()) >= before + 4.0);
    until("every fault is shown", || {
        let page = exporter.metrics();
        assert_steady(&page, &names);
        let shown = |(fault, routers): (&Fault, &Vec<Router>)| {
            let scrapes = page.sum("scrapes_total", &[("model", fault.name), ("result", fault.result)]);
            let up = page.value("target_up", &[("target", &routers[1].target())]);
            let skipped = |reason| page.value("windows_skipped_total", &[("model", fault.name), ("reason", reason)]).unwrap();
            scrapes >= 1.0 && up == Some(f64::from(u8::from(fault.up))) && fault.skipped.is_none_or(|reason| skipped(reason) >= 1.0)
        };
        (FAULTS.iter().zip(&routers).all(shown) && page.reason("healthy-prefill") == "none").then_some(())
    });

    // All is well again. The backlog of counts that piled up while a server was silent must not look like a burst.
    for router in routers.iter().flatten() {
        router.spoil(String::into_bytes);
        router.server.set(Behaviour::Page);
        router.set_workers(2, 5);
    }
    until("every model is computed again", || {
        let page = exporter.metrics();
        assert_steady(&page, &names);
        names.iter().all(|name| page.reason(&format!("{name}-decode")) == "none").then_some(())
    });
    exporter.watch(&names, 2.0, |page| assert_steady(page, &names));
}

#[tokio::test(flavor = "multi_thread")]
async fn huge_pages_and_gzip_bombs_cost_their_server_only() {
    let (huge, bomb) = (Router::pair("huge").await, Router::pair("bomb").await);
    let site = Site::new();
    let models = [Model::of("huge", &huge), Model::of("bomb", &bomb)].map(|model| Model { interval: "2s", ..model });
    let exporter = Exporter::start(&site.config("scrape: { interval: 500ms, timeout: 400ms }\n", &models));
    exporter.settle(&["huge", "bomb"], 3.0);
    huge[1].server.set(Behaviour::Huge { bytes: 200 << 20, announced: false });
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&vec![b'\n'; 200 << 20]).unwrap();
    bomb[1].server.set(Behaviour::Body { headers: "Content-Encoding: gzip".to_owned(), body: packed.finish().unwrap() });
    exporter.watch(&["huge", "bomb"], 2.0, |page| assert_steady(page, &["huge", "bomb"]));
    for (model, routers) in [("huge", &huge), ("bomb", &bomb)] {
        until("the failure is counted", || {
            let page = exporter.metrics();
            assert_steady(&page, &["huge", "bomb"]);
            assert_eq!(page.value("target_up", &[("target", &routers[0].target())]), Some(1.0));
            (page.sum("scrapes_total", &[("model", model), ("result", "too_large")]) >= 1.0).then_some(())
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_hung_server_of_200_holds_nothing_and_the_recommendation_can_still_fall() {
    let router = Router::start("m", 25.0 / 200.0).await;
    let hung = Router::start("m", 25.0 / 200.0).await;
    // One fake server stands for 199: each path is a target of its own.
    let urls = (1..200).map(|index| format!("http://{}/metrics/{index}", router.server.addr)).chain([hung.server.url()]);
    let site = Site::new();
    let model = Model { interval: "2s", ..Model::new("m", urls) };
    let exporter = Exporter::start(&site.config("scrape: { interval: 1s, timeout: 900ms }\n", &[model]));
    exporter.settle(&["m"], 3.0);
    hung.server.set(Behaviour::Hang);
    let before = exporter.metrics();
    exporter.watch(&["m"], 2.0, |page| assert_steady(page, &["m"]));
    assert_eq!(exporter.metrics().value("target_up", &[("target", &hung.target())]), Some(0.0));
    router.set_rate(15.0 / 200.0);
    exporter.settle(&["m"], 2.0);
    let page = exporter.metrics();
    for reason in ["all_targets_down", "coverage_low", "stale_window", "counter_reset", "membership_changed", "latency_absent"] {
        assert_eq!(page.value("windows_skipped_total", &[("model", "m"), ("reason", reason)]), Some(0.0), "{reason}");
    }
    let computed = |page: &super::Metrics| page.sum("decisions_total", &[("outcome", "unchanged")]);
    assert!(computed(&page) > computed(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_servers_down_at_the_start_show_no_recommendation_but_a_reason() {
    let down = FakeServer::start(Behaviour::Refuse).await;
    let hung = FakeServer::start(Behaviour::Hang).await;
    let site = Site::new();
    let exporter = Exporter::start(&site.config("", &[Model::new("m", [down.url(), hung.url()])]));
    until("the first round has ended", || (exporter.status("/-/ready") == 200).then_some(()));
    exporter.watch(&["m"], 0.0, |page| assert_eq!(page.recommended("m-decode"), None));
    let page = exporter.metrics();
    assert_eq!((page.recommended("m-prefill"), page.reason("m-prefill")), (None, "all_targets_down".to_owned()));
    assert_eq!(page.value("pool_targets", &[("pool", "m-decode"), ("state", "down")]), Some(2.0));
    assert_eq!(exporter.status("/metrics/pool/m-decode"), 503);
    assert_eq!(exporter.status("/metrics/pool/unknown"), 404);
    for path in ["/", "/api/v1/plans", "/-/healthy"] {
        assert_eq!(exporter.status(path), 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missed_round_does_not_double_the_demand_when_every_round_decides() {
    let routers = [Router::start("m", 2.0 * HALF_LOAD).await];
    let site = Site::new();
    let exporter = Exporter::start(&site.config("scrape: { interval: 1s, timeout: 500ms }\n", &[Model::of("m", &routers)]));
    exporter.settle(&["m"], 3.0);
    for _ in 0..2 {
        let failed = |page: &super::Metrics| page.sum("scrapes_total", &[("model", "m"), ("result", "status")]);
        let before = failed(&exporter.metrics());
        routers[0].server.set(Behaviour::Status(503));
        until("a round is missed", || {
            let page = exporter.metrics();
            assert_steady(&page, &["m"]);
            (failed(&page) > before).then_some(())
        });
        routers[0].server.set(Behaviour::Page);
        exporter.watch(&["m"], 3.0, |page| {
            assert_steady(page, &["m"]);
            assert!(page.value("unbounded_replicas", &[("pool", "m-decode")]).is_none_or(|wish| wish == 3.0), "{}", page.0);
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_targets_skip_one_window_and_the_next_is_computed() {
    let old = Router::pair("m").await;
    let new = Router::start("m", HALF_LOAD).await;
    let site = Site::new();
    let exporter = Exporter::start(&site.config("", &[Model::of("m", &old)]));
    exporter.settle(&["m"], 3.0);
    site.config("", &[Model::new("m", [old[0].server.url(), new.server.url()])]);
    exporter.process.signal("HUP");
    until("the window of the change is skipped", || {
        let page = exporter.metrics();
        assert_steady(&page, &["m"]);
        let skipped = page.value("windows_skipped_total", &[("model", "m"), ("reason", "membership_changed")]);
        (skipped == Some(1.0)).then_some(())
    });
    until("the next window is computed", || {
        let page = exporter.metrics();
        assert_steady(&page, &["m"]);
        (page.reason("m-decode") == "none").then_some(())
    });
    let page = exporter.metrics();
    assert_eq!(page.value("target_up", &[("target", &new.target())]), Some(1.0));
    assert_eq!(page.value("target_up", &[("target", &old[1].target())]), None);
}
