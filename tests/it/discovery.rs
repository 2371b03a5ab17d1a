//! Does each way find the targets that are there, and keep what it knew when it cannot look?

use std::path::Path;
use std::time::{Duration, Instant};

use inference_planner_exporter::config::{DiscoveryConfig, ScrapeConfig, Way};
use inference_planner_exporter::scrape::discover::{Discovery, Listing};

use crate::fake::{Behaviour, FakeServer};
use crate::nameserver::{NameServer, loopback};

fn search(way: Way) -> DiscoveryConfig {
    DiscoveryConfig {
        way,
        refresh: Duration::from_millis(50),
        scheme: "http".to_owned(),
        path: "/metrics".to_owned(),
        keep: Default::default(),
        drop: Default::default(),
    }
}

/// One search and what it knows.
struct Finder {
    discovery: Discovery,
    config: DiscoveryConfig,
}

impl Finder {
    async fn start(config: DiscoveryConfig) -> Self {
        let scrape = ScrapeConfig {
            interval: Duration::from_millis(50),
            timeout: Duration::from_secs(3),
            concurrency: 8,
            body_limit: 1 << 20,
            bytes_in_flight: 4 << 20,
            proxy: None,
        };
        let mut discovery = Discovery::new(&scrape).unwrap();
        discovery.adopt([&config]);
        discovery.settled().await;
        Self { discovery, config }
    }

    async fn of(way: Way) -> Self {
        Self::start(search(way)).await
    }

    fn listing(&self) -> Listing {
        self.discovery.listing(&self.config)
    }

    fn urls(&self) -> Vec<String> {
        self.listing().targets.into_iter().map(|target| target.url).collect()
    }

    /// Waits for the listing that this accepts.
    async fn until(&self, accepted: impl Fn(&Listing) -> bool) -> Listing {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let listing = self.listing();
            if accepted(&listing) {
                return listing;
            }
            assert!(Instant::now() < end, "{listing:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the search has failed, and says how.
    async fn problem(&self) -> String {
        self.until(|listing| listing.problem.is_some()).await.problem.unwrap()
    }

    async fn found(&self, count: usize) -> Listing {
        self.until(|listing| listing.targets.len() == count && listing.problem.is_none()).await
    }
}

fn file(path: &Path) -> Way {
    Way::File { pattern: path.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_file_in_json_or_yaml_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("a.json");
    let labels = r#"{ "__scheme__": "https", "__metrics_path__": "/prometheus/metrics", "zone": "a" }"#;
    std::fs::write(
        &json,
        format!(r#"[{{ "targets": ["10.0.0.1:8000", "10.0.0.2:8000"], "labels": {labels} }}, {{ "targets": ["b:1"] }}]"#),
    )
    .unwrap();
    let finder = Finder::of(file(&json)).await;
    let expected = ["https://10.0.0.1:8000/prometheus/metrics", "https://10.0.0.2:8000/prometheus/metrics", "http://b:1/metrics"];
    assert_eq!(finder.urls(), expected);
    std::fs::write(&json, "[]").unwrap();
    let empty = finder.found(0).await;
    assert!(!empty.is_stale());

    let yaml = folder.path().join("a.yaml");
    std::fs::write(&yaml, "# two\n- targets: [ 'a:1', \"b:1\" ]\n  labels: { weight: 3, zone: no }\n- targets:\n  - a:1\n").unwrap();
    assert_eq!(Finder::of(file(&yaml)).await.urls(), ["http://a:1/metrics", "http://b:1/metrics"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_file_that_is_bad_half_written_or_gone_keeps_its_list_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let good = r#"[{ "targets": ["a:1", "b:1"], "labels": { "token": "hunter2" } }]"#;
    std::fs::write(&path, good).unwrap();
    let finder = Finder::of(file(&path)).await;
    finder.found(2).await;
    for bad in ["", "{}", &good[..good.len() / 2], r#"[{ "targets": ["http://a:1/x"] }]"#, r#"[{ "targets": 3 }]"#] {
        std::fs::write(&path, bad).unwrap();
        let problem = finder.problem().await;
        assert!(problem.contains("expected") && problem.contains("a.json") && !problem.contains("hunter2"), "{problem}");
        assert_eq!(finder.listing().targets.len(), 2, "{bad}");
        std::fs::write(&path, good).unwrap();
        finder.found(2).await;
    }
    std::fs::remove_file(&path).unwrap();
    assert!(finder.problem().await.contains("found none"));
    assert_eq!(finder.listing().targets.len(), 2);
    let yaml = folder.path().join("b.yaml");
    std::fs::write(&yaml, "- targets: [a:1\n").unwrap();
    let never = Finder::of(file(&yaml)).await;
    assert!(never.listing().targets.is_empty() && never.listing().is_stale(), "{:?}", never.listing());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_file_of_several_costs_the_others_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("pool-a.json", r#"[{ "targets": ["a:1", "shared:1"] }]"#);
    write("pool-b.json", r#"[{ "targets": ["b:1", "shared:1"] }]"#);
    write("other.json", r#"[{ "targets": ["other:1"] }]"#);
    let finder = Finder::of(file(&folder.path().join("pool-*.json"))).await;
    finder.found(3).await;
    write("pool-a.json", "[");
    write("pool-b.json", r#"[{ "targets": ["b:1", "b:2"] }]"#);
    let listing = finder.until(|listing| listing.targets.len() == 4).await;
    assert!(listing.is_stale() || finder.problem().await.contains("pool-a.json"));
    std::fs::remove_file(folder.path().join("pool-a.json")).unwrap();
    finder.found(2).await;
    std::fs::remove_file(folder.path().join("pool-b.json")).unwrap();
    assert!(finder.problem().await.contains("no file matches"));
    assert_eq!(finder.listing().targets.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_and_drop_choose_by_label() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yaml");
    std::fs::write(&path, "- { targets: [a:1, b:2], labels: { role: decode } }\n- { targets: [c:1], labels: { role: prefill } }\n")
        .unwrap();
    let mut config = search(file(&path));
    config.keep.insert("role".to_owned(), "dec.*".to_owned());
    config.drop.insert("__address__".to_owned(), ".*:2".to_owned());
    assert_eq!(Finder::start(config).await.urls(), ["http://a:1/metrics"]);
}

fn dns(server: &NameServer) -> Way {
    Way::Dns { host: "pool.llm.svc".to_owned(), port: 8000, nameserver: Some(server.addr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_of_a_name_is_a_target() {
    let server = NameServer::start().await;
    server.set_addresses("pool.llm.svc", loopback(1));
    let finder = Finder::of(dns(&server)).await;
    assert_eq!(finder.urls(), ["http://127.0.1.1:8000/metrics"]);
    server.set_addresses("pool.llm.svc", loopback(50));
    finder.found(50).await;
    // More than a datagram holds.
    server.set_addresses("pool.llm.svc", loopback(200));
    finder.found(200).await;
    // Both families of two servers: two servers.
    server.set_addresses("pool.llm.svc", loopback(2).chain(["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()]));
    finder.found(2).await;
    server.set_addresses("pool.llm.svc", ["fd00::1".parse().unwrap()]);
    finder.found(1).await;
    assert_eq!(finder.urls(), ["http://[fd00::1]:8000/metrics"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_unknown_keeps_its_addresses_and_one_without_any_has_none() {
    let server = NameServer::start().await;
    server.set_addresses("pool.llm.svc", loopback(3));
    let finder = Finder::of(dns(&server)).await;
    finder.found(3).await;
    server.forget("pool.llm.svc");
    let problem = finder.problem().await;
    assert!(problem.contains("pool.llm.svc"), "{problem}");
    assert_eq!(finder.listing().targets.len(), 3);
    server.set_addresses("pool.llm.svc", loopback(0));
    finder.found(0).await;
    server.set_addresses("pool.llm.svc", loopback(3));
    finder.found(3).await;
    server.set_silent(true);
    finder.problem().await;
    assert_eq!(finder.listing().targets.len(), 3);
    server.set_silent(false);
    finder.found(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_systems_resolver_is_asked_where_no_name_server_is_written() {
    let finder = Finder::of(Way::Dns { host: "localhost".to_owned(), port: 9, nameserver: None }).await;
    assert_eq!(finder.listing().targets.len(), 1, "{:?}", finder.listing());
    let absent = Finder::of(Way::Dns { host: "no-such-name.invalid".to_owned(), port: 9, nameserver: None }).await;
    assert!(absent.listing().is_stale());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_srv_record_is_a_target_with_its_own_port() {
    let server = NameServer::start().await;
    let name = "_http._tcp.pool.llm.svc";
    server.set_services(name, &[("pod-0.pool.llm.svc", 8000), ("pod-1.pool.llm.svc", 8001)]);
    let finder = Finder::of(Way::Srv { name: name.to_owned(), nameserver: Some(server.addr) }).await;
    assert_eq!(finder.urls(), ["http://pod-0.pool.llm.svc:8000/metrics", "http://pod-1.pool.llm.svc:8001/metrics"]);
    server.set_services(name, &[("pod-1.pool.llm.svc", 8001)]);
    finder.found(1).await;
    server.forget(name);
    finder.problem().await;
    assert_eq!(finder.urls(), ["http://pod-1.pool.llm.svc:8001/metrics"]);
}

fn json(text: &str) -> Behaviour {
    Behaviour::Body { headers: "Content-Type: application/json; charset=utf-8".to_owned(), body: text.as_bytes().to_vec() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_lists_is_asked_and_its_failures_keep_the_list() {
    let server = FakeServer::start(json(r#"[{ "targets": ["a:1", "b:1"], "labels": { "__metrics_path__": "/m" } }]"#)).await;
    let finder = Finder::of(Way::Http { url: format!("http://{}/targets?token=hunter2", server.addr) }).await;
    assert_eq!(finder.urls(), ["http://a:1/m", "http://b:1/m"]);
    let request = server.last_request().to_ascii_lowercase();
    assert!(request.starts_with("get /targets?token=hunter2 ") && request.contains("accept: application/json\r\n"), "{request}");
    assert!(request.contains("x-prometheus-refresh-interval-seconds: 1\r\n"), "{request}");
    let html = Behaviour::Body { headers: "Content-Type: text/html".to_owned(), body: b"<html>".to_vec() };
    for bad in [Behaviour::Status(503), html, json("[{"), json(r#"{"targets": []}"#), Behaviour::CloseUnanswered] {
        server.set(bad.clone());
        let problem = finder.problem().await;
        assert!(!problem.contains("hunter2"), "{problem}");
        assert_eq!(finder.listing().targets.len(), 2, "{bad:?}");
        server.set(json(r#"[{ "targets": ["a:1", "b:1"] }]"#));
        finder.found(2).await;
    }
    server.set(json("[]"));
    finder.found(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_too_long_names_the_key_that_leads_to_it() {
    let server = FakeServer::start(json(&" ".repeat((16 << 20) + 1))).await;
    let finder = Finder::of(Way::Http { url: server.url() }).await;
    let problem = finder.problem().await;
    assert!(problem.contains("exceeds 16777216 bytes") && problem.contains("http_sd") && !problem.contains("body_limit"), "{problem}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_stays_keeps_its_list_when_others_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    std::fs::write(&path, r#"[{ "targets": ["a:1"] }]"#).unwrap();
    let mut finder = Finder::of(file(&path)).await;
    let before = finder.listing();
    let other = search(file(&folder.path().join("b.json")));
    let config = finder.config.clone();
    finder.discovery.adopt([&config, &other]);
    assert!(finder.listing().looked && finder.listing().succeeded >= before.succeeded);
    assert!(finder.discovery.listing(&other).is_stale());
    finder.discovery.adopt([&config]);
    assert_eq!((finder.discovery.listing(&other), finder.urls().len()), (Listing::default(), 1));
}

#[cfg(feature = "kubernetes")]
mod kubernetes {
    use std::sync::Arc;

    use inference_planner_exporter::config::{AccessConfig, KubernetesConfig, PodChoice};
    use inference_planner_exporter::planner::input::Lifecycle;

    use super::*;

    async fn finder(server: &FakeServer, pods: PodChoice, port: Option<&str>, folder: &Path) -> Finder {
        std::fs::write(folder.join("token"), "service-account\n").unwrap();
        let access = AccessConfig { bearer_token_file: Some(folder.join("token")), ..AccessConfig::default() };
        Finder::of(Way::Kubernetes(KubernetesConfig {
            namespace: "llm".to_owned(),
            pods,
            port: port.map(str::to_owned),
            api_server: format!("http://{}", server.addr),
            access: Arc::new(access),
        }))
        .await
    }

    fn slice(family: &str, endpoints: &[(&str, &str)]) -> String {
        let endpoint = |(address, conditions): &(&str, &str)| {
            format!(
                r#"{{ "addresses": ["{address}"], "conditions": {conditions}, "targetRef": {{ "kind": "Pod", "name": "p-{address}" }} }}"#
            )
        };
        let endpoints: Vec<String> = endpoints.iter().map(endpoint).collect();
        format!(
            r#"{{ "addressType": "{family}", "ports": [{{ "name": "http", "port": 8000, "protocol": "TCP" }}], "endpoints": [{}] }}"#,
            endpoints.join(", ")
        )
    }

    fn list(kind: &str, items: &[String]) -> Behaviour {
        json(&format!(r#"{{ "kind": "{kind}List", "metadata": {{ "resourceVersion": "7" }}, "items": [{}] }}"#, items.join(", ")))
    }

    const READY: &str = r#"{ "ready": true, "serving": true, "terminating": false }"#;
    const LOADING: &str = r#"{ "ready": false, "serving": false, "terminating": false }"#;
    const ENDING: &str = r#"{ "ready": false, "serving": true, "terminating": true }"#;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_ready_endpoints_of_a_service_are_targets_and_the_others_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let first = slice("IPv4", &[("10.0.0.1", READY), ("10.0.0.2", LOADING), ("10.0.0.3", ENDING), ("10.0.0.4", "{}")]);
        // Of two families one server is one; an endpoint on its way from one slice to another stands in both.
        let items = [first, slice("IPv6", &[("fd00::1", READY)]), slice("IPv4", &[("10.0.0.1", READY)])];
        let server = FakeServer::start(list("EndpointSlice", &items)).await;
        let finder = finder(&server, PodChoice::Service("decode".to_owned()), None, folder.path()).await;
        assert_eq!(finder.urls(), ["http://10.0.0.1:8000/metrics", "http://10.0.0.4:8000/metrics"], "{:?}", finder.listing());
        assert_eq!(finder.listing().replicas, Some(Lifecycle { ready: 2, starting: 1, terminating: 1, ..Lifecycle::default() }));
        let request = server.last_request();
        let path = "GET /apis/discovery.k8s.io/v1/namespaces/llm/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Ddecode\
                    &resourceVersion=0 ";
        assert!(request.starts_with(path) && request.contains("authorization: Bearer service-account\r\n"), "{request}");

        server.set(Behaviour::Status(403));
        let problem = finder.problem().await;
        assert!(problem.contains("the right to list endpointslices") && !problem.contains("service-account\n"), "{problem}");
        assert_eq!(finder.listing().targets.len(), 2);
        server.set(list("EndpointSlice", &[slice("IPv6", &[("fd00::1", READY)])]));
        finder.found(1).await;
        assert_eq!(finder.urls(), ["http://[fd00::1]:8000/metrics"]);
        server.set(list("EndpointSlice", &[]));
        finder.found(0).await;
    }

    fn pod(name: &str, ip: &str, ready: bool, more: &str) -> String {
        format!(
            r#"{{ "metadata": {{ "name": "{name}", "labels": {{ "app.kubernetes.io/name": "qwen3", "role": "decode" }} {more} }},
                  "spec": {{ "containers": [{{ "ports": [{{ "name": "http", "containerPort": 8000 }}, {{ "name": "debug", "containerPort": 1 }}] }},
                                            {{ "name": "sidecar" }}] }},
                  "status": {{ "phase": "Running", "podIP": "{ip}", "conditions": [{{ "type": "Ready", "status": "{}" }}] }} }}"#,
            if ready { "True" } else { "False" }
        )
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_ready_pods_of_a_selector_are_targets() {
        let folder = tempfile::tempdir().unwrap();
        let pending = r#"{ "metadata": { "name": "d" }, "spec": {}, "status": { "phase": "Pending" } }"#.to_owned();
        let done = r#"{ "metadata": { "name": "e" }, "spec": {}, "status": { "phase": "Succeeded", "podIP": "10.0.0.9" } }"#.to_owned();
        let items = [
            pod("a", "10.0.0.1", true, ""),
            pod("b", "10.0.0.2", false, ""),
            pod("c", "10.0.0.3", true, r#", "deletionTimestamp": "2026-01-31T18:00:00Z""#),
            pending,
            done,
        ];
        let server = FakeServer::start(list("Pod", &items)).await;
        let selector = || PodChoice::Selector("app=qwen3,role in (decode)".to_owned());
        let by_name = finder(&server, selector(), Some("http"), folder.path()).await;
        assert_eq!(by_name.urls(), ["http://10.0.0.1:8000/metrics"], "{:?}", by_name.listing());
        assert_eq!(by_name.listing().replicas, Some(Lifecycle { ready: 1, starting: 2, terminating: 1, complete: true, generations: 0 }));
        assert!(server.last_request().starts_with("GET /api/v1/namespaces/llm/pods?labelSelector=app%3Dqwen3%2Crole"));
        assert_eq!(finder(&server, selector(), Some("9090"), folder.path()).await.urls(), ["http://10.0.0.1:9090/metrics"]);
        let unclear = finder(&server, selector(), None, folder.path()).await.problem().await;
        assert!(unclear.contains("pod a declares 2 ports; write kubernetes.port"), "{unclear}");
        let mut by_label = by_name.config.clone();
        by_label.keep.insert("__meta_kubernetes_pod_label_role".to_owned(), "prefill".to_owned());
        let other_pool = Finder::start(by_label).await;
        assert!(other_pool.urls().is_empty());
        let nothing = Lifecycle { complete: true, ..Lifecycle::default() };
        assert_eq!(other_pool.listing().replicas, Some(nothing), "pods that start in another pool are not counted either");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_deployment_whose_pods_are_being_replaced_shows_two_generations() {
        let folder = tempfile::tempdir().unwrap();
        let of_template = |name: &str, ip: &str, ready: bool, hash: &str| {
            let owner = format!(r#", "ownerReferences": [{{ "kind": "ReplicaSet", "name": "decode-{hash}", "controller": true }}]"#);
            pod(name, ip, ready, &owner).replace(r#""role": "decode""#, &format!(r#""role": "decode", "pod-template-hash": "{hash}""#))
        };
        let items = [of_template("a", "10.0.0.1", true, "7d4b9c6f5"), of_template("b", "10.0.0.2", false, "5c6f9d8b4")];
        let server = FakeServer::start(list("Pod", &items)).await;
        let pods = finder(&server, PodChoice::Selector("app=qwen3".to_owned()), Some("http"), folder.path()).await;
        assert_eq!(pods.listing().replicas, Some(Lifecycle { ready: 1, starting: 1, generations: 2, complete: true, terminating: 0 }));

        // Slices hold no labels, but the names of the pods.
        let named = |hash: &str| slice("IPv4", &[("10.0.0.1", READY)]).replace("p-10.0.0.1", &format!("decode-{hash}-x2x9k"));
        let other = named("5c6f9d8b4").replace("10.0.0.1", "10.0.0.2");
        let server = FakeServer::start(list("EndpointSlice", &[named("7d4b9c6f5"), other])).await;
        let endpoints = finder(&server, PodChoice::Service("decode".to_owned()), None, folder.path()).await;
        assert_eq!(endpoints.listing().replicas, Some(Lifecycle { ready: 2, generations: 2, ..Lifecycle::default() }));
    }
}
