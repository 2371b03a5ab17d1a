//! What survives a restart? The state file, whatever ends the process and whatever lies in its place.

use std::time::Duration;

use super::{Exporter, Model, Process, Router, Site, text, until};
use crate::fake::{Behaviour, FakeServer};

const STATE: &str = "state_file: state.json\n";

/// A site whose state file holds a recommendation of 3 for both pools, made by a process that has ended.
async fn with_state() -> Site {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let mut exporter = Exporter::start(&site.config(STATE, &[Model::of("m", &routers)]));
    exporter.settle(&["m"], 3.0);
    exporter.process.signal("TERM");
    assert_eq!(exporter.process.ended(), Some(0), "{}", exporter.process.log());
    site
}

/// A configuration whose first round does not end within a test.
fn unanswered(site: &Site, server: &FakeServer) -> Exporter {
    let model = Model { interval: "60s", hold_for: "10m", ..Model::new("m", [server.url()]) };
    Exporter::start(&site.config(&format!("scrape: {{ interval: 60s, timeout: 60s }}\n{STATE}"), &[model]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recommendation_is_there_again_before_the_first_scrape_ends_and_a_bad_state_is_ignored_aloud() {
    let site = with_state().await;
    let hung = FakeServer::start(Behaviour::Hang).await;
    let good = std::fs::read_to_string(site.path("state.json")).unwrap();
    let restored = |text: &str| {
        site.write("state.json", text);
        let exporter = unanswered(&site, &hung);
        assert_eq!(exporter.status("/-/ready"), 503);
        let page = exporter.metrics();
        let replicas = [page.recommended("m-prefill"), page.recommended("m-decode")];
        assert_eq!(replicas[0], replicas[1]);
        let warned = exporter.process.log().lines().any(|line| line.contains("WARN") && line.contains("state ignored"));
        (replicas[0], warned)
    };
    assert_eq!(restored(&good), (Some(3.0), false));
    let bad = [
        String::new(),
        good[..good.len() / 2].to_owned(),
        "\0\u{1}garbage".to_owned(),
        "{\"some\": \"other program's file\"}".to_owned(),
        good.replace("\"version\":1", "\"version\":99"),
        good.replace("\"replicas\":3", "\"replicas\":9"),
    ];
    for text in &bad {
        assert_ne!(*text, good);
        assert_eq!(restored(text), (None, true), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recommendation_that_outlived_its_time_is_not_served_again() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let mut exporter = Exporter::start(&site.config(STATE, &[Model { hold_for: "3s", ..Model::of("m", &routers) }]));
    exporter.settle(&["m"], 3.0);
    exporter.process.signal("TERM");
    exporter.process.ended();
    std::thread::sleep(Duration::from_millis(3200));
    let hung = FakeServer::start(Behaviour::Hang).await;
    let exporter = unanswered(&site, &hung);
    assert_eq!(exporter.recommended("m-decode"), None);
    assert!(exporter.process.log().contains("state too old"), "{}", exporter.process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_moment_leaves_a_state_that_can_be_read() {
    let site = with_state().await;
    let hung = FakeServer::start(Behaviour::Refuse).await;
    let mut seed: u64 = 0x5eed;
    for round in 0..12 {
        // Limits that alternate change what is held, so that each start has something to write.
        let limits = if round % 2 == 0 { (1, 2) } else { (3, 8) };
        let config = site.config(STATE, &[Model { limits, ..Model::new("m", [hung.url()]) }]);
        let mut process = Process::spawn(&["run", "--config", text(&config)], &[]);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis((seed >> 33) % 150));
        process.kill();
        assert!(!process.log().contains("state ignored"), "{}", process.log());
    }
    let hung = FakeServer::start(Behaviour::Hang).await;
    let exporter = unanswered(&site, &hung);
    let replicas = exporter.recommended("m-decode");
    assert!(replicas == Some(2.0) || replicas == Some(3.0), "{replicas:?}: {}", exporter.process.log());
    assert!(!exporter.process.log().contains("state ignored"), "{}", exporter.process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_reads_the_state_publishes_and_writes_once_the_first_has_gone() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let config = site.config(STATE, &[Model::of("m", &routers)]);
    let mut first = Exporter::start(&config);
    first.settle(&["m"], 3.0);
    until("the state is written", || {
        let text = std::fs::read_to_string(site.path("state.json")).ok()?;
        (text.matches("\"replicas\":3").count() == 2).then_some(())
    });
    let second = Exporter::start(&config);
    // Restored, not computed: its own first window has not ended.
    assert_eq!(second.recommended("m-decode"), Some(3.0));
    assert!(second.process.log().contains("another process keeps this state file"), "{}", second.process.log());
    second.settle(&["m"], 3.0);
    first.process.signal("TERM");
    assert_eq!(first.process.ended(), Some(0));
    routers.iter().for_each(|router| router.set_rate(2.5));
    second.settle(&["m"], 1.0);
    until("the second process keeps the state now", || {
        let text = std::fs::read_to_string(site.path("state.json")).ok()?;
        (text.matches("\"replicas\":1").count() == 2).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_cannot_be_kept_costs_nothing_else_and_the_log_says_why() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let exporter = Exporter::start(&site.config("state_file: missing/state.json\n", &[Model::of("m", &routers)]));
    exporter.settle(&["m"], 3.0);
    let log = exporter.process.log();
    let line = log.lines().find(|line| line.contains("ERROR") && line.contains("state cannot be kept")).unwrap();
    assert!(line.contains("missing/state.json.lock") && line.contains("No such file"), "{line}");
    assert!(!log.contains("another process"), "{log}");
    let refused = || exporter.metrics().value("state_write_failures_total", &[]).unwrap();
    until("the refusals are counted", || (refused() > 0.0).then_some(()));
    let told = |what: &str| exporter.process.log().matches(what).count();
    assert_eq!(told("state not written"), 1, "{}", exporter.process.log());
    std::fs::create_dir(site.path("missing")).unwrap();
    until("the state is written once it can be", || (told("the state file is written again") == 1).then_some(()));
    let before = refused();
    assert!(site.path("missing/state.json").exists());
    assert_eq!(refused(), before);
    assert_eq!(exporter.metrics().value("report_write_failures_total", &[]), None, "no reports are configured");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_the_new_state_alone_and_leaves_the_old_one_whole() {
    let site = with_state().await;
    let old = std::fs::read_to_string(site.path("state.json")).unwrap();
    let routers = Router::pair("m").await;
    let config = site.config(STATE, &[Model { limits: (4, 8), ..Model::of("m", &routers) }]);
    let mut exporter = Exporter::of(Process::spawn_on_a_full_disk(&["run", "--config", text(&config)]));
    exporter.settle(&["m"], 4.0);
    until("the refusal is counted", || (exporter.metrics().value("state_write_failures_total", &[]).unwrap() > 0.0).then_some(()));
    let log = exporter.process.log();
    assert!(log.lines().any(|line| line.contains("state not written") && line.contains("state.json.tmp")), "{log}");
    exporter.process.signal("TERM");
    assert_eq!(exporter.process.ended(), Some(0), "{}", exporter.process.log());
    assert_eq!(std::fs::read_to_string(site.path("state.json")).unwrap(), old);
    assert!(!site.path("state.json.tmp").exists(), "half a file keeps a full disk full");
    let hung = FakeServer::start(Behaviour::Hang).await;
    assert_eq!(unanswered(&site, &hung).recommended("m-decode"), Some(3.0), "the old state is read again");
}
