//! Does anything stay open of targets that have gone? File descriptors and threads of the running program, and tasks of its scraper.

use std::time::{Duration, Instant};

use inference_planner_exporter::config::ScrapeConfig;
use inference_planner_exporter::scrape::{Job, Scraper};
use inference_planner_exporter::units::TargetId;
use tokio::runtime::Runtime;

use super::{Exporter, Model, Router, Site, until};
use crate::fake::{Behaviour, FakeServer};

const RELOADS: usize = 24;
const SERVERS: usize = 16;
/// Connections of the test itself, and what a runtime opens once.
const SLACK: usize = 6;

fn entries(pid: u32, folder: &str) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/{folder}")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_that_come_and_go_with_reloads_leave_no_descriptor_and_no_thread() {
    let mut fleets = Vec::new();
    for _ in 0..2 {
        let mut fleet = Vec::new();
        for place in 0..SERVERS {
            let router = Router::start("m", 25.0 / SERVERS as f64).await;
            // Some are asked when the reload comes, and never answer.
            if place % 4 == 3 {
                router.server.set(Behaviour::Hang);
            }
            fleet.push(router);
        }
        fleets.push(fleet);
    }
    let site = Site::new();
    let lifecycle = "server: { listen: \"127.0.0.1:0\", enable_lifecycle: true }\n";
    let configured = |fleet: &[Router]| site.config(lifecycle, &[Model::of("m", fleet)]);
    let exporter = Exporter::start(&configured(&fleets[0]));
    let pid = exporter.process.id();
    let answered = |fleet: &[Router]| fleet.iter().map(|router| router.server.requests()).sum::<usize>();
    until("the first fleet is read", || (answered(&fleets[0]) > 2 * SERVERS).then_some(()));
    let (files, threads) = (entries(pid, "fd"), entries(pid, "task"));
    for reload in 1..=RELOADS {
        let fleet = &fleets[reload % 2];
        let before = answered(fleet);
        configured(fleet);
        assert_eq!(exporter.ask("POST /-/reload").0, 200);
        until("the other fleet is read", || (answered(fleet) > before + SERVERS).then_some(()));
    }
    // Connections to the fleet that has just gone are kept for a while, and to none before it.
    until("what was open is closed", || (entries(pid, "fd") <= files + SERVERS + SLACK).then_some(()));
    // Threads that block end some seconds after their last work.
    until("threads end", || (entries(pid, "task") <= threads + SLACK).then_some(()));
}

#[test]
fn a_scraper_that_is_replaced_or_interrupted_leaves_no_task() {
    let (elsewhere, ours) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let servers: Vec<FakeServer> = (0..SERVERS)
        .map(|place| {
            let behaviour = match place % 4 {
                0 => Behaviour::Hang,
                1 => Behaviour::Trickle(Duration::from_millis(20)),
                _ => Behaviour::Page,
            };
            let server = elsewhere.block_on(FakeServer::start(behaviour));
            server.set_page(crate::scrape::PAGE);
            server
        })
        .collect();
    let job = |server: &FakeServer| Job {
        target: TargetId::from(server.url()),
        url: server.url(),
        engine: None,
        access: std::sync::Arc::default(),
    };
    let jobs: Vec<Job> = servers.iter().map(job).collect();
    let config = ScrapeConfig {
        interval: Duration::from_millis(100),
        timeout: Duration::from_millis(100),
        concurrency: 8,
        body_limit: 1 << 20,
        bytes_in_flight: 4 << 20,
        proxy: None,
    };
    for reload in 0..RELOADS {
        let scraper = Scraper::new(&config).unwrap();
        // Every other one is given up in the middle, as a reload or the end of the process does.
        let patience = Duration::from_millis(if reload % 2 == 0 { 30 } else { 10_000 });
        let done = ours.block_on(async { tokio::time::timeout(patience, scraper.round(&jobs, Instant::now(), false)).await });
        assert_eq!(done.is_ok(), reload % 2 != 0);
    }
    until("all tasks have ended", || (ours.metrics().num_alive_tasks() == 0).then_some(()));
}
