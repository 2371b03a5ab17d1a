//! What is told where names do not fit: of models that no target shows, of targets before they answer, of sources that share a target?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use inference_planner_exporter::app::exporter::{Exporter as Core, StateKey};
use inference_planner_exporter::app::fleet::Fleet;
use inference_planner_exporter::config::{self, Flags, Inputs};
use inference_planner_exporter::decisions::Ledger;
use inference_planner_exporter::planner::input::FailureKind;
use inference_planner_exporter::planner::memory::{Lasting, PoolMemory};
use inference_planner_exporter::planner::plan::Published;
use inference_planner_exporter::scrape::discover::Listing;
use inference_planner_exporter::scrape::lower::lower;
use inference_planner_exporter::scrape::report::{Failure, TargetReport};
use inference_planner_exporter::units::{ModelId, Moment, PoolId, Replicas};

use super::{Exporter, Site, text, until};
use crate::fake::{Behaviour, FakeServer};

/// A recorded page of a replica.
const PAGE: &str = include_str!("../../fixtures/engines/vllm/vllm-0.11.0-scrape1.prom");
const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";
const QUICK: &[(&str, &str)] = &[("INFERENCE_PLANNER__SCRAPE__INTERVAL", "100ms"), ("INFERENCE_PLANNER__SCRAPE__TIMEOUT", "100ms")];

fn start(server: &FakeServer, more: &[&str]) -> Exporter {
    let url = server.url();
    let mut args = vec!["run", "--metrics-url", &url, "--listen", "127.0.0.1:0"];
    args.extend(more);
    Exporter::start_with(&args, QUICK)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_no_target_shows_is_told_with_those_they_do() {
    let server = FakeServer::with_page(PAGE).await;
    tokio::task::block_in_place(|| {
        let exporter = start(&server, &["--model", "Llama-3.1-8B"]);
        let sentence = format!("No target shows model Llama-3.1-8B; they show {MODEL}. Is the name right?");
        until("the log tells it", || exporter.process.log().contains(&sentence).then_some(()));
        let page = exporter.ask("GET /").2;
        assert!(page.contains(&sentence), "{page}");
        // Once, and not at every round.
        until("more rounds", || (server.requests() > 5).then_some(()));
        assert_eq!(exporter.process.log().matches(&sentence).count(), 1);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn why_nothing_is_planned_is_exported_before_any_target_has_answered() {
    let server = FakeServer::start(Behaviour::Status(503)).await;
    let page = PAGE.to_owned();
    tokio::task::block_in_place(|| {
        let exporter = start(&server, &[]);
        let reason = |page: &super::Metrics| page.sum("hold_reason", &[("model", "default"), ("pool", "default-agg")]);
        until("a reason", || (reason(&exporter.metrics()) == 1.0).then_some(()));
        until("the reason that fits", || (exporter.metrics().reason("default-agg") == "all_targets_down").then_some(()));
        assert_eq!(exporter.recommended("default-agg"), None);
        server.set_page(&page);
        server.set(Behaviour::Page);
        let pool = "llama-3.1-8b-instruct-agg";
        until("the model that is served", || (exporter.metrics().sum("hold_reason", &[("pool", pool)]) == 1.0).then_some(()));
        assert!(!exporter.metrics().0.contains("model=\"default\""), "it stood for this one");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_given_by_its_url_carries_its_pool_and_keeps_it_while_it_is_silent() {
    let server = FakeServer::with_page(PAGE).await;
    let target = format!("{}/metrics", server.addr);
    tokio::task::block_in_place(|| {
        let exporter = start(&server, &[]);
        let known = [("target", target.as_str()), ("pool", "llama-3.1-8b-instruct-agg"), ("role", "aggregated")];
        until("its pool", || exporter.metrics().value("target_info", &[known.as_slice(), &[("engine", "vllm")]].concat()));
        server.set(Behaviour::Status(503));
        until("its silence", || (exporter.metrics().value("target_up", &[("target", &target)]) == Some(0.0)).then_some(()));
        assert_eq!(exporter.metrics().value("target_info", &known), Some(1.0));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_given_by_its_url_is_no_replica_of_a_pool() {
    let router = super::Router::start("m", 25.0).await;
    tokio::task::block_in_place(|| {
        let exporter = start(&router.server, &[]);
        let info = || exporter.metrics().value("target_info", &[("target", &router.target()), ("engine", "infera"), ("pool", "")]);
        until("what is known of it", info);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn found_targets_that_two_sources_ask_in_two_ways_are_told_once() {
    let server = FakeServer::with_page(PAGE).await;
    let site = Site::new();
    site.write("list.json", &format!(r#"[{{ "targets": ["{}"] }}]"#, server.addr));
    let model = |name: &str, more: &str| {
        format!(
            "  - name: {name}\n    planner: {{ preset: dynamo }}\n    pools:\n      \
             - {{ name: {name}, role: aggregated, max_replicas: 4, targets: {{ file_sd: list.json{more} }} }}\n"
        )
    };
    let models = model("a", "") + &model("b", ", headers: { X-Key: hunter2 }");
    let head = "server: { listen: \"127.0.0.1:0\" }\nscrape: { interval: 100ms, timeout: 100ms }\nmodels:\n";
    let config = site.write("config.yaml", &format!("{head}{models}"));
    tokio::task::block_in_place(|| {
        let exporter = Exporter::start_with(&["run", "--config", text(&config)], &[]);
        let sentence = "targets that pool b shares with pool a are asked with the credentials, certificates and headers of the latter";
        until("the log tells it", || exporter.process.log().contains(sentence).then_some(()));
        until("more rounds", || (server.requests() > 5).then_some(()));
        let log = exporter.process.log();
        assert!(log.matches(sentence).count() == 1 && !log.contains("hunter2"), "{log}");
    });
}

#[test]
fn what_was_published_for_a_model_without_a_name_survives_that_another_stands_for_it() {
    let flags = Flags { metrics_urls: vec!["http://a:1".to_owned()], ..Flags::default() };
    let loaded = config::read(Inputs { flags, ..Inputs::default() }).finish(&BTreeMap::new()).unwrap();
    let config = Arc::new(loaded.config);
    let at = |seconds| Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_800_000_000 + seconds) };
    let until = at(600).wall;
    let published = Published { replicas: Replicas(5), timestamp: at(0).wall, valid_until: until };
    let memory = PoolMemory { published: Some(published), ..PoolMemory::default() };
    let key = StateKey { model: ModelId::from("default"), target_namespace: "default".to_owned() };
    let pool = PoolId::from("default-agg");
    let restored = BTreeMap::from([(key.clone(), Lasting { pools: BTreeMap::from([(pool.clone(), memory)]), ..Lasting::default() })]);
    let mut core = Core::new(Arc::clone(&config), restored, Ledger::default(), at(0));
    let fleet = Fleet::of(&config, |_| Listing::default());
    let target = fleet.sources(0)[0].targets[0].target.clone();
    let report = |outcome, now: Moment| TargetReport { target: target.clone(), at: now.monotonic, duration: Duration::ZERO, outcome };
    let published = |core: &Core| {
        let snapshot = core.snapshot(at(5));
        let found = snapshot.models.iter().find_map(|model| model.plan.pool(&pool));
        found.and_then(|plan| plan.recommended_replicas)
    };
    let kept = |core: &Core| core.persistent()[&key].pools[&pool].published.map(|published| published.replicas);
    let failed = Err(Failure { kind: FailureKind::Connect, message: String::new() });
    core.round(&[report(failed, at(5))], &fleet, at(5));
    assert_eq!((kept(&core), published(&core)), (Some(Replicas(5)), Some(Replicas(5))));
    let page = lower(PAGE.as_bytes(), None, None, false).map_err(|failure| failure.message).unwrap();
    core.round(&[report(Ok(page), at(10))], &fleet, at(10));
    assert_eq!((kept(&core), published(&core)), (Some(Replicas(5)), None), "kept, and no longer said");
}
