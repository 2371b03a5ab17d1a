//! Does a fleet that grows and shrinks cost anything but the windows in which it changed? A fleet of 1, 50 and 5 servers under a load that
//! stays the same, found through a target file and through a name server.

use std::net::SocketAddr;

use super::{Exporter, Metrics, Router, Site, until};
use crate::nameserver::{NameServer, loopback};

/// 2.5 replicas' worth: 3 are recommended, and twice as many if the load were counted twice.
const LOAD: f64 = 25.0;

fn config(targets: &str) -> String {
    format!(
        "server: {{ listen: \"127.0.0.1:0\" }}\nscrape: {{ interval: 200ms, timeout: 200ms }}\nmodels:\n  - name: m\n    \
         slo: {{ ttft: 500ms, itl: 50ms }}\n    \
         planner: {{ preset: infera, profile: profile.json, adjustment_interval: 2s, hold_for: 60s }}\n    \
         traffic:\n      targets: {{ {targets}, refresh_interval: 1s }}\n    pools:\n      \
         - {{ name: m-prefill, role: prefill, max_replicas: 16 }}\n      \
         - {{ name: m-decode, role: decode, max_replicas: 16, targets: {{ {targets}, refresh_interval: 1s }} }}\n"
    )
}

/// Spreads the load over some of the routers.
fn spread(routers: &[Router], count: usize) {
    for (index, router) in routers.iter().enumerate() {
        router.set_rate(if index < count { LOAD / count as f64 } else { 0.0 });
    }
}

/// Nothing moves.
fn steady(exporter: &Exporter, page: &Metrics) {
    for pool in super::pools("m") {
        assert_eq!(page.recommended(&pool), Some(3.0), "{pool}: {}\n{}", page.reason(&pool), exporter.process.log());
    }
}

/// Waits for a fleet of this size, then for a decision that is computed again; the recommendation stays where it is all the while.
fn follows(exporter: &Exporter, size: f64) {
    until(&format!("{size} targets"), || {
        let page = exporter.metrics();
        steady(exporter, &page);
        (page.sum("pool_targets", &[("pool", "m-decode")]) == size).then_some(())
    });
    exporter.watch(&["m"], 2.0, |page| steady(exporter, page));
    until("a decision that is computed", || {
        let page = exporter.metrics();
        steady(exporter, &page);
        let fresh = page.held("m-decode") == Some(0.0) && page.value("current_replicas", &[("pool", "m-decode")]) == Some(size);
        if fresh {
            // Neither lost nor counted twice.
            let seen = page.value("observed_requests_per_second", &[("model", "m")]).unwrap();
            assert!((0.75 * LOAD..1.25 * LOAD).contains(&seen), "{seen} requests a second");
        }
        fresh.then_some(())
    });
}

/// Of all decisions only those were skipped in whose window the fleet changed or was mostly silent.
fn only_changes_cost_windows(page: &Metrics) {
    let skipped = |reason: &str| page.sum("windows_skipped_total", &[("model", "m"), ("reason", reason)]);
    let by_rule: f64 = ["membership_changed", "coverage_low", "all_targets_down", "baseline"].into_iter().map(skipped).sum();
    assert_eq!(page.sum("windows_skipped_total", &[("model", "m")]), by_rule, "{}", page.0);
    assert_eq!(page.sum("target_resets_total", &[]), 0.0);
    assert_eq!(page.sum("lint_violations_total", &[]), 0.0);
}

/// Plays 1, 50, 5 with `list` as the way by which the exporter hears of it.
fn play(exporter: &Exporter, mut routers: Vec<Router>, list: impl Fn(&[Router])) {
    exporter.settle(&["m"], 3.0);
    // New servers are found before they get requests.
    list(&routers);
    follows(exporter, 50.0);
    spread(&routers, 50);
    follows(exporter, 50.0);
    // Those that leave get no requests any more, and are gone before anyone says so.
    spread(&routers, 5);
    let gone = routers.split_off(5);
    drop(gone);
    exporter.watch(&["m"], 2.0, |page| steady(exporter, page));
    list(&routers);
    follows(exporter, 5.0);
    only_changes_cost_windows(&exporter.metrics());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_1_then_50_then_5_is_followed_through_a_target_file() {
    let mut routers = vec![Router::start("m", LOAD).await];
    let site = Site::new();
    let list = {
        let path = site.path("targets.json");
        move |routers: &[Router]| {
            let names: Vec<String> = routers.iter().map(|router| format!("\"{}\"", router.server.addr)).collect();
            // As a careful writer does it.
            let text = format!("[{{ \"targets\": [{}], \"labels\": {{ \"job\": \"m\" }} }}]", names.join(", "));
            std::fs::write(path.with_extension("new"), text).unwrap();
            std::fs::rename(path.with_extension("new"), &path).unwrap();
        }
    };
    list(&routers);
    let config = site.write("config.yaml", &config("file_sd: targets.json"));
    for _ in 1..50 {
        routers.push(Router::start("m", 0.0).await);
    }
    tokio::task::block_in_place(|| {
        let exporter = Exporter::start(&config);
        play(&exporter, routers, list);
        let page = exporter.metrics();
        assert!(page.sum("discovery_refreshes_total", &[("pool", "m-decode"), ("result", "ok")]) > 0.0);
        assert_eq!(page.sum("discovery_refreshes_total", &[("result", "failed")]), 0.0);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_1_then_50_then_5_is_followed_through_a_name_server() {
    let addresses: Vec<_> = loopback(50).collect();
    let first = Router::start_at(SocketAddr::new(addresses[0], 0), "m", LOAD).await;
    let port = first.server.addr.port();
    let mut routers = vec![first];
    for address in &addresses[1..] {
        routers.push(Router::start_at(SocketAddr::new(*address, port), "m", 0.0).await);
    }
    let names = NameServer::start().await;
    names.set_addresses("router.llm.svc", [addresses[0]]);
    let site = Site::new();
    let targets = format!("dns: \"router.llm.svc:{port}\", nameserver: \"{}\"", names.addr);
    let config = site.write("config.yaml", &config(&targets));
    tokio::task::block_in_place(|| {
        let exporter = Exporter::start(&config);
        play(&exporter, routers, |routers| names.set_addresses("router.llm.svc", routers.iter().map(|router| router.server.addr.ip())));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_cannot_be_read_keeps_the_last_one_and_planning_goes_on() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let list: String = routers.iter().map(|router| format!("- targets: [\"{}\"]\n", router.server.addr)).collect();
    let config = site.write("config.yaml", &config("file_sd: targets.yaml"));
    tokio::task::block_in_place(|| {
        let exporter = Exporter::start(&config);
        until("nothing is known", || (exporter.metrics().reason("m-decode") == "discovery_failed").then_some(()));
        assert_eq!(exporter.status("/-/ready"), 200);
        site.write("targets.yaml", &list);
        exporter.settle(&["m"], 3.0);
        site.write("targets.yaml", &list[..list.len() - 3]);
        let failed = [("pool", "m-decode"), ("result", "failed")];
        until("the failure is counted", || (exporter.metrics().sum("discovery_refreshes_total", &failed) > 1.0).then_some(()));
        exporter.watch(&["m"], 2.0, |page| {
            steady(&exporter, page);
            assert_eq!(page.sum("pool_targets", &[("pool", "m-decode")]), 2.0);
        });
        assert!(exporter.ask("GET /").2.contains("The last list (2 targets) stays in use."));
        assert!(exporter.process.log().contains("the last list of targets stays in use"), "{}", exporter.process.log());
        // Nobody serves any more, and the list says so: that is no failure.
        site.write("targets.yaml", "[]\n");
        until("the empty list is taken", || (exporter.metrics().reason("m-decode") == "no_targets").then_some(()));
        steady(&exporter, &exporter.metrics());
        site.write("targets.yaml", &list);
        exporter.settle(&["m"], 3.0);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_changes_how_targets_are_found_costs_no_window() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let list: String = routers.iter().map(|router| format!("- targets: [\"{}\"]\n", router.server.addr)).collect();
    site.write("targets.yaml", &list);
    let path = site.write("config.yaml", &config("file_sd: targets.yaml"));
    tokio::task::block_in_place(|| {
        let exporter = Exporter::start(&path);
        exporter.settle(&["m"], 3.0);
        site.write("config.yaml", &config("file_sd: targets.yaml, keep: { __address__: '127.*' }"));
        exporter.process.signal("HUP");
        until("the reload", || exporter.process.log().contains("configuration reloaded").then_some(()));
        exporter.watch(&["m"], 2.0, |page| {
            steady(&exporter, page);
            assert_eq!(page.reason("m-decode"), "none");
        });
        assert_eq!(exporter.metrics().sum("windows_skipped_total", &[("reason", "membership_changed")]), 0.0);
    });
}

#[cfg(feature = "kubernetes")]
#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_service_are_planned_and_those_that_start_or_end_are_counted() {
    use crate::fake::{Behaviour, FakeServer};
    let routers = Router::pair("m").await;
    let port = |index: usize| routers[index].server.addr.port();
    // Two slices, since both servers share an address here; further endpoints that load and end.
    let slice = |port: u16, more: &str| {
        format!(
            r#"{{ "addressType": "IPv4", "ports": [{{ "port": {port} }}], "endpoints": [
                {{ "addresses": ["127.0.0.1"], "conditions": {{ "ready": true }} }} {more} ] }}"#
        )
    };
    let others = r#", { "addresses": ["127.0.0.8"], "conditions": { "ready": false } },
                    { "addresses": ["127.0.0.9"], "conditions": { "ready": true, "terminating": true } }"#;
    let api = |items: &str| Behaviour::Body {
        headers: "Content-Type: application/json".to_owned(),
        body: format!(r#"{{ "kind": "EndpointSliceList", "items": [{items}] }}"#).into_bytes(),
    };
    let (first, second) = (FakeServer::start(api(&slice(port(0), others))).await, FakeServer::start(api(&slice(port(1), ""))).await);
    let site = Site::new();
    let targets = |server: &FakeServer| format!("kubernetes: {{ service: m, api_server: \"http://{}\" }}", server.addr);
    let path = site.write("config.yaml", &config(&targets(&first)));
    tokio::task::block_in_place(|| {
        let exporter = Exporter::start(&path);
        let states = |page: &Metrics| {
            ["ready", "starting", "terminating"].map(|state| page.value("current_replicas", &[("pool", "m-decode"), ("state", state)]))
        };
        until("states are known", || (states(&exporter.metrics()) == [Some(1.0), Some(1.0), Some(1.0)]).then_some(()));
        assert!(first.last_request().starts_with("GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices?"));
        let server = routers[0].target();
        assert_eq!(exporter.metrics().value("target_up", &[("target", &server)]), Some(1.0));
        // Another API server, so another list: the old one's target goes.
        site.write("config.yaml", &config(&targets(&second)));
        let server = routers[1].target();
        until("the other list is read", || exporter.metrics().value("target_up", &[("target", &server)]));
        assert_eq!(exporter.metrics().value("target_up", &[("target", &routers[0].target())]), None);
    });
}

#[cfg(feature = "kubernetes")]
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_still_start_are_published_until_the_first_decision_and_recorded_with_it() {
    use crate::fake::{Behaviour, FakeServer};
    let router = Router::start("m", LOAD).await;
    let pod = |name: &str, status: &str| {
        format!(
            r#"{{ "metadata": {{ "name": "{name}", "labels": {{ "pod-template-hash": "{name}" }}, "ownerReferences": [{{ "name": "d-{name}" }}] }},
                  "status": {{ "phase": "Running", {status} }} }}"#
        )
    };
    let ready = r#""podIP": "127.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }]"#;
    let pending = r#""conditions": []"#;
    let items = [pod("old", ready), pod("new", pending), pod("new", pending), pod("new", pending), pod("new", pending)].join(", ");
    let body = format!(r#"{{ "kind": "PodList", "items": [{items}] }}"#).into_bytes();
    let api = FakeServer::start(Behaviour::Body { headers: "Content-Type: application/json".to_owned(), body }).await;
    let site = Site::new();
    let selected = format!("kubernetes: {{ selector: app=m, port: {}, api_server: \"http://{}\" }}", router.server.addr.port(), api.addr);
    let text = config(&selected).replace("adjustment_interval: 2s", "adjustment_interval: 4s");
    let text = text.replace("role: decode,", "role: decode, replicas_from: kubernetes,");
    // Only the pool's servers are found by Kubernetes; the router is written down.
    let text =
        text.replacen(&format!("{{ {selected}, refresh_interval: 100ms }}"), &format!("{{ static: [\"http://{}\"] }}", router.target()), 1);
    let (path, recorded) = (site.write("config.yaml", &text), site.path("recorded"));
    tokio::task::block_in_place(|| {
        let exporter = Exporter::start_with(&["run", "--config", super::text(&path), "--record", super::text(&recorded)], &[]);
        until("the pods are published", || {
            let page = exporter.metrics();
            let count = page.recommended("m-decode")?;
            assert_eq!((count, page.recommended("m-prefill")), (5.0, None), "{}", exporter.process.log());
            assert_eq!((page.held("m-decode"), page.reason("m-decode").as_str()), (Some(1.0), "baseline"));
            Some(())
        });
        until("a decision is computed", || (exporter.metrics().held("m-decode") == Some(0.0)).then_some(()));
        let page = exporter.metrics();
        assert_eq!(page.value("current_replicas", &[("pool", "m-decode"), ("state", "starting")]), Some(4.0));
        // Three would do; a pool that is being replaced does not shrink.
        assert_eq!(page.recommended("m-decode"), Some(5.0), "{}", exporter.process.log());
        // The first window may be too short to shrink on anyway.
        let why = until("the step that kept it says why", || {
            let (_, _, plans) = exporter.ask("GET /api/v1/plans");
            plans.contains("\"reason\": \"rollout\"").then_some(plans)
        });
        assert!(why.contains("\"coming_replicas\": 4"), "{why}");
        assert_eq!(exporter.metrics().recommended("m-decode"), Some(5.0));
        drop(exporter);
        let (code, _, stderr) = super::run(&["plan", "--replay", super::text(&recorded)]);
        assert_eq!(code, Some(0), "{stderr}");
    });
}
