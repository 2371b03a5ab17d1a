//! Does `backtest` compare configurations and autoscalers, and say the same twice?

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn backtest(arguments: &[&str]) -> Output {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/example/config.yaml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.arg("backtest").arg("--config").arg(config).args(arguments).env("NO_COLOR", "1");
    command.output().unwrap()
}

const TRACE: &str = "shape:steady?rate=6&duration=5m&isl_cv=0.3";

#[test]
fn the_table_has_a_line_for_the_configuration_and_each_baseline() {
    let output = backtest(&["--trace", TRACE, "--baselines"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    let names =
        ["hpa queue", "tuned hpa", "kpa concurrency", "tuned kpa", "best static", "clairvoyant", "clairvoyant, late", "no plan within"];
    for (line, name) in lines[2..].iter().zip(names) {
        assert!(line.starts_with(name), "{text}");
    }
    assert!(lines[2 + names.len()].starts_with("pairs such as"), "{text}");
    assert!(lines[0].contains("within SLO") && lines[1].contains("config.yaml"), "{text}");
}

#[test]
fn the_document_is_the_same_to_the_byte_and_counts_every_request() {
    let arguments = ["--trace", TRACE, "--scale", "0.5", "--startup", "20s", "--seed", "3", "--format", "json"];
    let first = backtest(&arguments).stdout;
    assert_eq!(first, backtest(&arguments).stdout);
    let document: Value = serde_json::from_slice(&first).unwrap();
    let outcome = &document["configurations"][0];
    let count = |name: &str| outcome[name].as_u64().unwrap();
    assert_eq!(Some(count("offered")), document["trace"]["requests"].as_u64());
    assert_eq!(count("offered"), count("completed") + count("refused") + count("unfinished"));
    assert!((700..1100).contains(&count("offered")), "{}", count("offered"));
    assert_eq!(outcome["series"].as_array().unwrap().len(), 60);
}

#[test]
fn an_unknown_shape_is_named() {
    let output = backtest(&["--trace", "shape:stair?rate=2"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown shape \"stair\""));
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_gives_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let trace = "shape:step?low=2&high=12&at=4m&duration=12m&isl_cv=0.3";
    let output = backtest(&["--trace", trace, "--html", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(&file).unwrap();
    for outside in ["http://", "https://", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("shape:step?low=2&amp;high=12&amp;at=4m"), "the trace is named");
    assert!(page.contains("1 configuration<") && page.matches("<figure>").count() == 5, "two roles, rates, TTFT and ITL");
    for words in ["baseline: No complete window yet", "none: The value was computed", "envelope_queue", "growth_capped"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("NaN"));
}
