//! Is every decision in the log on disk, across kills and restarts, and does a bad disk cost the log alone?

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

use super::{Exporter, Model, Router, Site, until};

/// The lines of all files of the log that can be read, whatever became of their ends.
fn decisions(dir: &Path) -> Vec<Value> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("decisions-") && name.ends_with(".jsonl.gz"), "{name}");
        let mut text = String::new();
        // A member that is being written ends early.
        let _whole = MultiGzDecoder::new(File::open(file).unwrap()).read_to_string(&mut text);
        lines.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
    }
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_every_decision_as_the_api_gave_it_and_a_restart_appends() {
    let (site, routers) = (Site::new(), Router::pair("m").await);
    let config = site.config("report: { dir: reports }\n", &[Model::of("m", &routers)]);
    let dir = site.path("reports");
    let mut exporter = Exporter::start(&config);
    exporter.settle(&["m"], 3.0);
    let plan = until("a decision in the log that the API shows", || {
        let plans: Value = serde_json::from_str(&exporter.ask("GET /api/v1/plans").2).unwrap();
        let plan = &plans["models"][0];
        decisions(&dir).into_iter().find(|line| line["planned_at_seconds"] == plan["planned_at_seconds"]).map(|line| (line, plan.clone()))
    });
    assert_eq!(plan.0, plan.1);
    let counted = until("three decisions", || Some(decisions(&dir)).filter(|lines| lines.len() >= 3));
    assert!(counted.iter().all(|line| line["decided"] == true && line["model"] == "m"));
    exporter.process.kill();

    let before = decisions(&dir).len();
    let again = Exporter::start(&config);
    until("the restarted process appends", || (decisions(&dir).len() > before).then_some(()));
    again.process.signal("TERM");
    let mut process = again.process;
    assert_eq!(process.ended(), Some(0));
    let lines = decisions(&dir);
    let moments: Vec<f64> = lines.iter().map(|line| line["planned_at_seconds"].as_f64().unwrap()).collect();
    assert!(moments.is_sorted_by(|one, other| one < other), "each once, in order: {moments:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_refuses_costs_the_log_alone_and_is_told_once() {
    let (site, routers) = (Site::new(), Router::pair("m").await);
    // A file stands where the folder should be.
    site.write("taken", "");
    let config = site.config("report: { dir: taken/reports }\n", &[Model::of("m", &routers)]);
    let exporter = Exporter::start(&config);
    exporter.settle(&["m"], 3.0);
    exporter.watch(&["m"], 2.0, |page| assert!(page.recommended("m-prefill").is_some()));
    let told = |what: &str| exporter.process.log().matches(what).count();
    assert_eq!(told("the log of decisions cannot be written"), 1, "{}", exporter.process.log());

    let refused = exporter.metrics().value("report_write_failures_total", &[]).unwrap();
    assert!(refused > 0.0);
    assert_eq!(exporter.metrics().value("state_write_failures_total", &[]), None, "no state is kept");

    std::fs::remove_file(site.path("taken")).unwrap();
    until("the log is written once it can be", || (told("the log of decisions is written again") == 1).then_some(()));
    assert!(!decisions(&site.path("taken/reports")).is_empty());
}
