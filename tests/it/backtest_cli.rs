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
fn faults_of_the_metrics_are_told_and_leave_the_traffic_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    let all = ["--trace", TRACE, "--metric-faults", "late,silent,resets,partial"];
    let text = String::from_utf8(backtest(&[&all[..], &["--html", file.to_str().unwrap()]].concat()).stdout).unwrap();
    let told = "targets that do not answer, counters that begin anew, pages without some families, rounds that come late or are lost";
    assert!(text.contains(told), "{text}");
    assert!(std::fs::read_to_string(&file).unwrap().contains(told));
    let document =
        |arguments: &[&str]| -> Value { serde_json::from_slice(&backtest(&[arguments, &["--format", "json"]].concat()).stdout).unwrap() };
    let (faulty, whole) = (document(&all), document(&["--trace", TRACE]));
    assert_eq!(faulty["metric_faults"], serde_json::json!(["silent", "resets", "partial", "late"]));
    assert_eq!((&whole["metric_faults"], &whole["trace"]), (&serde_json::json!([]), &faulty["trace"]));
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

fn exporter(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.args(arguments).env("NO_COLOR", "1");
    command
}

/// The exit code and standard error of a run that is refused.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = backtest(arguments);
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_use_is_code_64_and_says_what_is_wrong() {
    for (arguments, message) in [
        (&["--trace", "diurnal?low=1&high=2"][..], "for the shape write shape:diurnal?low=1&high=2"),
        (&["--trace", "shape:steady?rate=0"], "expected requests, got none"),
        (&["--trace", TRACE, "--scale", "NaN"], "--scale"),
        (&["--trace", TRACE, "--scale", "-1"], "expected a finite number above zero"),
        (&["--trace", TRACE, "--scale", "0"], "expected a finite number above zero"),
        (&["--trace", TRACE, "--scale", "1e300"], "--scale 1e300"),
        (&["--trace", TRACE, "--scale", "1e-9"], "--scale 1e-9, of"),
        (&["--trace", TRACE, "--warm-up", "5m"], "--warm-up: expected less than the length of the trace, 5m"),
        (&["--trace", "shape:step?low=1&high=0&at=2m&duration=5m", "--warm-up", "3m"], "--warm-up: expected requests after it"),
        (&["--trace", "shape:steady?rate=0.0001&duration=3650days"], "intervals; one mistyped time"),
        (&["--trace", TRACE, "--metric-faults", "silent,noisy"], "possible values: silent, resets, partial, late"),
        (&["--trace", TRACE, "--model", "other"], "--model: expected one of"),
        (&["--trace", "/dev/zero"], "expected a file, got something else"),
        (&["--trace", TRACE, "--html", "/dev/null"], "expected a file, got something else"),
        (&["--trace", "no\u{1b}[2Jsuch"], "no\\u{1b}[2Jsuch"),
    ] {
        let (code, text) = refused(arguments);
        assert!(code == Some(64) && text.contains(message) && !text.contains('\u{1b}'), "{arguments:?}: {code:?} {text}");
    }
}

#[test]
fn mistyped_times_are_refused_before_anything_is_made_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace");
    let path = file.to_str().unwrap();
    let azure = |year: &str| format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{year}-11-16 18:15:46,10,10\n2023-11-16 18:15:47,10,10\n");
    for text in [azure("0001"), azure("9998"), "t,rate_per_s,isl,osl\n0,0.000001,9,9\n1e10,1,9,9\n".to_owned()] {
        std::fs::write(&file, &text).unwrap();
        let (code, message) = refused(&["--trace", path]);
        assert!(code == Some(64) && message.contains("one mistyped time"), "{text}: {message}");
    }
    std::fs::write(&file, azure("2023").replace(":47", ":46")).unwrap();
    let (_, message) = refused(&["--trace", path]);
    assert!(message.contains("at the same moment") && !message.contains("warm-up"), "{message}");
}

/// The example with parts replaced, in a folder with its profile.
fn changed(folder: &Path, name: &str, parts: &[(&str, &str)]) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/example");
    std::fs::copy(example.join("profile.json"), folder.join("profile.json")).unwrap();
    let mut text = std::fs::read_to_string(example.join("config.yaml")).unwrap();
    for (old, new) in parts {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    std::fs::write(folder.join(name), text).unwrap();
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn an_input_is_no_report_and_a_report_that_cannot_be_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = changed(folder.path(), "c.yaml", &[]);
    let before = std::fs::read(&config).unwrap();
    for input in ["c.yaml", "profile.json"] {
        let file = folder.path().join(input);
        let output = exporter(&["backtest", "--config", &config, "--trace", TRACE, "--html"]).arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(64));
        assert!(String::from_utf8_lossy(&output.stderr).contains("expected another file"));
    }
    assert_eq!(std::fs::read(&config).unwrap(), before);
    let missing = folder.path().join("none").join("report.html");
    let output = exporter(&["backtest", "--config", &config, "--trace", TRACE, "--html"]).arg(&missing).output().unwrap();
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("write the report"));
}

#[test]
fn closed_streams_are_no_panic() {
    for (arguments, code) in [
        (&["backtest", "--config", "none.yaml", "--trace", TRACE][..], Some(64)),
        (&["demo", "--run-for", "1s", "--status-interval", "50ms"], Some(0)),
        (&["check", "none.yaml"], Some(64)),
    ] {
        let program = env!("CARGO_BIN_EXE_inference-planner-exporter");
        // Both ends of a pipe whose reader has gone.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 2>&1", "sh", program])
            .args(arguments)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), code, "{arguments:?}");
    }
}

#[test]
fn what_has_no_effect_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let first = changed(folder.path(), "a.yaml", &[]);
    let second = changed(
        folder.path(),
        "b.yaml",
        &[("mode: publish", "mode: freeze"), ("role: decode\n        gpus_per_replica: 1", "role: decode\n        gpus_per_replica: 8")],
    );
    let output = exporter(&["backtest", "--config", &first, "--config", &second, "--trace", TRACE]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    for words in ["no limit on steps down", "mode freeze", "gpus_per_replica of its decode pool is 8"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_end_of_the_warm_up_is_the_same_whatever_the_tick() {
    let folder = tempfile::tempdir().unwrap();
    let first = changed(folder.path(), "a.yaml", &[]);
    let second = changed(folder.path(), "b.yaml", &[("interval: 5s", "interval: 47s")]);
    let arguments = ["--trace", "shape:steady?rate=2&duration=10m&cv=0&isl_cv=0&osl_cv=0", "--warm-up", "5m", "--format", "json"];
    let output = exporter(&["backtest", "--config", &first, "--config", &second]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let least = |index: usize| {
        let outcome = &document["configurations"][index];
        // One replica of each role at least, and each of one GPU or more.
        assert!(outcome["gpu_hours"].as_f64().unwrap() >= 2.0 * 300.0 / 3600.0 - 1e-9, "{outcome}");
        outcome["tick"].as_f64().unwrap()
    };
    assert_eq!([least(0), least(1)], [5.0, 47.0]);
}

/// A configuration of preset wva with these pools.
fn learning(folder: &Path, roles: &[&str]) -> String {
    let pool = |(index, role): (usize, &&str)| {
        format!("      - {{ name: w{index}, role: {role}, max_replicas: 16, targets: {{ static: [\"http://10.0.0.{index}:8000\"] }} }}\n")
    };
    let pools: String = roles.iter().enumerate().map(pool).collect();
    let name = roles.join("-");
    let file = folder.join(format!("{name}.yaml"));
    std::fs::write(&file, format!("models:\n  - name: m\n    planner: {{ preset: wva }}\n    pools:\n{pools}")).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn what_plans_without_a_profile_is_played_on_the_servers_of_one_that_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let measured = changed(folder.path(), "a.yaml", &[]);
    let wva = learning(folder.path(), &["prefill", "decode"]);
    let output = exporter(&["backtest", "--config", &wva, "--config", &measured, "--trace", TRACE, "--format", "json"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("its objectives are learned; it is judged by those of"), "{told}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = document["configurations"].as_array().unwrap().iter().map(|outcome| outcome["policy"].as_str().unwrap()).collect();
    assert_eq!(names, [wva.as_str(), measured.as_str()], "the order is that of the flags");
    let series = document["configurations"][0]["series"].as_array().unwrap();
    assert!(series.iter().any(|point| point["reason"] == "none"), "it decides: {:?}", series.last());

    let refused = |arguments: &[&str], expected: &str| {
        let output = exporter(&["backtest", "--trace", TRACE]).args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(64) && told.contains(expected), "{told}");
    };
    refused(&["--config", &wva], "expected one configuration with a profile");
    let both = learning(folder.path(), &["aggregated"]);
    refused(&["--config", &measured, "--config", &both], "expected pools of the roles of");
    let variants = learning(folder.path(), &["prefill", "decode", "decode"]);
    refused(&["--config", &measured, "--config", &variants], "expected one pool of each role");
}
