//! Does `plan` answer "why does it recommend this?" with the contract's document, and does a recorded decision come out again?

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inference_planner_exporter::engines::render::{self, InferaPage, InferaSeries, infera_edges};
use inference_planner_exporter::planner::input::{Histogram, Signal};
use inference_planner_exporter::units::{Replicas, Role};
use serde_json::Value;

use crate::service::{Exporter, Model, Router, Site, run, text};

/// The profile of the contract's example.
const PROFILE: &str = r#"{
  "prefill": { "isl": [512, 1024, 2048, 4096], "ttft_ms": [60, 110, 215, 430], "thpt_per_gpu": [8500, 9300, 9500, 9500] },
  "decode": { "kv_usage": [0.1, 0.3, 0.5, 0.7, 0.9], "context_length": [1024, 4096, 16384],
    "itl_ms": [[11, 13, 16, 21, 30], [13, 16, 20, 27, 39], [18, 23, 30, 41, 60]],
    "thpt_per_gpu": [[900, 2300, 3100, 3300, 3000], [750, 1900, 2500, 2600, 2300], [520, 1300, 1700, 1750, 1500]],
    "max_kv_tokens": 262144 },
  "prefill_engine_num_gpu": 1, "decode_engine_num_gpu": 1 }"#;

/// A router's page after so many of the example's requests.
fn page(requests: f64) -> String {
    let means = [
        (Signal::Ttft, 0.396),
        (Signal::Itl, 0.0121),
        (Signal::PromptTokens, 2048.0),
        (Signal::OutputTokens, 256.0),
        (Signal::RequestDuration, 3.5),
    ];
    let created = Duration::from_secs(1_795_000_000);
    let series = means.map(|(signal, mean)| {
        let buckets = infera_edges(signal).iter().map(|&edge| (edge, if edge >= mean { requests } else { 0.0 })).collect();
        let histogram = Histogram { sum: requests * mean, count: requests, buckets, created: None };
        (signal, InferaSeries { created, histogram })
    });
    render::infera(&InferaPage {
        model: "M".to_owned(),
        process_start: created,
        in_flight: 0,
        histograms: BTreeMap::from(series),
        workers: BTreeMap::from([(Role::Prefill, Replicas(2)), (Role::Decode, Replicas(4))]),
    })
}

struct Pages {
    folder: tempfile::TempDir,
}

impl Pages {
    fn new() -> Self {
        let pages = Self { folder: tempfile::tempdir().unwrap() };
        pages.write("profile.json", PROFILE);
        pages.write("a.prom", &page(1000.0));
        pages.write("b.prom", &page(1612.0));
        pages
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `plan` with these pairs of pages and more flags.
    fn plan(&self, pairs: &[(&str, &str)], more: &[&str]) -> (Option<i32>, String, String) {
        let mut args: Vec<String> = vec!["plan".to_owned()];
        for (before, after) in pairs {
            for (flag, name) in [("--before", before), ("--after", after)] {
                args.extend([flag.to_owned(), text(&self.path(name)).to_owned()]);
            }
        }
        args.extend(
            ["--model", "M", "--profile-results", text(&self.path("profile.json")), "--ttft", "500", "--itl", "50"].map(str::to_owned),
        );
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn near(value: &Value, expected: f64) {
    let found = value.as_f64().unwrap_or(f64::NAN);
    assert!((found - expected).abs() <= 1e-9 * expected, "{found} is not {expected}");
}

#[test]
fn packed_pages_say_what_they_say_unpacked() {
    let pages = Pages::new();
    for name in ["a.prom", "b.prom"] {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&std::fs::read(pages.path(name)).unwrap()).unwrap();
        std::fs::write(pages.path(&format!("{name}.gz")), packed.finish().unwrap()).unwrap();
    }
    let plain = pages.plan(&[("a.prom", "b.prom")], &["--elapsed", "180", "--format", "text"]);
    assert_eq!((plain.0, plain.1.contains("612")), (Some(0), true), "{plain:?}");
    let packed = pages.plan(&[("a.prom.gz", "b.prom.gz")], &["--elapsed", "180", "--format", "text"]);
    assert_eq!((packed.0, &packed.1), (plain.0, &plain.1), "{}", packed.2);
    let (code, _, told) = pages.plan(&[("a.prom", ".")], &["--elapsed", "180"]);
    assert!(code == Some(1) && told.contains("expected a file, got something else"), "{code:?}: {told}");
}

#[test]
fn two_pages_give_the_contracts_example_with_all_its_keys() {
    let pages = Pages::new();
    let (code, stdout, stderr) = pages.plan(&[("a.prom", "b.prom")], &["--elapsed", "180"]);
    assert_eq!(code, Some(0), "{stderr}");
    let model = &json(&stdout)["models"][0];
    assert_eq!((&model["model"], &model["held"], &model["reason"]), (&"M".into(), &false.into(), &"none".into()));
    let seen = &model["observation"];
    for (key, expected) in [
        ("elapsed_seconds", 180.0),
        ("requests", 612.0),
        ("offered_requests", 612.0),
        ("input_tokens", 2048.0),
        ("output_tokens", 256.0),
        ("ttft_seconds", 0.396),
        ("itl_seconds", 0.0121),
    ] {
        near(&seen[key], expected);
    }
    // Unrounded: 396 ms over the profile's 215 ms, and 12.1 ms over 11.75 ms.
    near(&model["latency_ratio"]["prompt"], 0.396 / 0.215);
    near(&model["latency_ratio"]["generation"], 0.0121 / 0.01175);
    near(&model["estimated"]["current"]["ttft_seconds"], 0.396);
    near(&model["estimated"]["current"]["itl_seconds"], 0.0121);
    assert!(model["estimated"]["recommended"]["ttft_seconds"].is_f64() && model["estimated"]["recommended"]["itl_seconds"].is_f64());
    let pools = model["pools"].as_array().unwrap();
    let counts = |pool: &Value| ["current_replicas", "recommended_replicas", "unbounded_replicas"].map(|key| pool[key].as_u64());
    assert_eq!((&pools[0]["pool"], &pools[0]["role"]), (&"m-prefill".into(), &"prefill".into()));
    assert_eq!((&pools[1]["pool"], &pools[1]["role"]), (&"m-decode".into(), &"decode".into()));
    assert_eq!((counts(&pools[0]), counts(&pools[1])), ([Some(2), Some(2), Some(2)], [Some(4), Some(1), Some(1)]));
    assert_eq!(pools[0]["proposed"], serde_json::json!({ "envelope_throughput": 1, "envelope_queue": 2 }));
    assert_eq!(pools[0]["steps"][0], serde_json::json!({ "stage": "growth", "before": 2, "after": 2, "reason": "within_limit" }));
}

#[test]
fn several_pairs_add_up_and_other_flags_of_run_count() {
    let pages = Pages::new();
    let (code, stdout, stderr) =
        pages.plan(&[("a.prom", "b.prom"), ("a.prom", "b.prom")], &["--elapsed", "3m", "--min-replicas", "2", "--engine", "infera"]);
    assert_eq!(code, Some(0), "{stderr}");
    let model = &json(&stdout)["models"][0];
    near(&model["observation"]["requests"], 1224.0);
    near(&model["observation"]["elapsed_seconds"], 180.0);
    assert_eq!(model["pools"][1]["recommended_replicas"], 2);
    let (code, stdout, _) = pages.plan(&[("a.prom", "b.prom")], &["--elapsed", "180", "--format", "text"]);
    assert!(code == Some(0) && stdout.contains("m-decode"), "{stdout}");
}

#[test]
fn a_held_decision_is_an_answer_whose_unknown_values_are_null() {
    let pages = Pages::new();
    let (code, stdout, _) = pages.plan(&[("a.prom", "a.prom")], &["--elapsed", "180"]);
    assert_eq!(code, Some(0));
    let model = &json(&stdout)["models"][0];
    assert_eq!((&model["held"], &model["reason"]), (&true.into(), &"no_requests".into()));
    for (section, key) in [("observation", "ttft_seconds"), ("latency_ratio", "prompt"), ("latency_ratio", "generation")] {
        let value = model[section].get(key);
        assert!(value.is_some_and(Value::is_null), "{section}.{key}: {value:?}");
    }
    for pool in model["pools"].as_array().unwrap() {
        for key in ["recommended_replicas", "unbounded_replicas"] {
            assert!(pool.get(key).is_some_and(Value::is_null), "{pool:#}");
        }
    }
    // A page that cannot be read is a server that did not answer.
    pages.write("html.prom", "<!DOCTYPE html><html></html>");
    let (code, stdout, stderr) = pages.plan(&[("html.prom", "html.prom")], &["--elapsed", "180"]);
    assert_eq!((code, &json(&stdout)["models"][0]["reason"]), (Some(0), &"all_targets_down".into()), "{stderr}");
    assert!(stderr.contains("html.prom"), "{stderr}");
}

#[test]
fn bad_usage_ends_with_64_and_a_missing_page_with_1() {
    let pages = Pages::new();
    let (a, b) = (pages.path("a.prom"), pages.path("b.prom"));
    let (a, b) = (text(&a), text(&b));
    let cases: &[(&[&str], &str)] = &[
        (&["plan"], "--before"),
        (&["plan", "--before", a, "--elapsed", "180"], "--after"),
        (&["plan", "--before", a, "--after", b], "--elapsed"),
        (&["plan", "--replay", a, "--before", a, "--after", b, "--elapsed", "180"], "--replay"),
    ];
    for (args, words) in cases {
        let (code, stdout, stderr) = run(args);
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{args:?}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
    for (elapsed, words) in [("0", "above zero"), ("fast", "--elapsed")] {
        let (code, _, stderr) = pages.plan(&[("a.prom", "b.prom")], &["--elapsed", elapsed]);
        assert!(code == Some(64) && stderr.contains(words), "{stderr}");
    }
    let (code, _, stderr) = pages.plan(&[("a.prom", "b.prom")], &["--elapsed", "180", "--before", a]);
    assert!(code == Some(64) && stderr.contains("as many"), "{stderr}");
    let (code, stdout, stderr) = pages.plan(&[("a.prom", "missing.prom")], &["--elapsed", "180"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("missing.prom"), "{stderr}");
    std::fs::write(pages.path("profile.json"), PROFILE.replace("110", "0")).unwrap();
    let (code, _, stderr) = pages.plan(&[("a.prom", "b.prom")], &["--elapsed", "180"]);
    assert!(code == Some(64) && stderr.contains("ttft_ms"), "{stderr}");
}

#[test]
fn targets_that_are_found_only_while_running_are_refused_in_words() {
    let site = Site::new();
    let config = site.write(
        "config.yaml",
        "models:\n  - name: M\n    planner: { preset: infera, profile: profile.json }\n    traffic: { targets: { dns: \"routers:8000\" } }\n    \
         pools: [{ name: p, role: prefill, max_replicas: 4 }, { name: d, role: decode, max_replicas: 4 }]\n",
    );
    let folder = text(config.parent().unwrap());
    let (code, _, told) = run(&["plan", "--config", text(&config), "--before", folder, "--after", folder, "--elapsed", "180"]);
    assert_eq!(code, Some(1));
    assert!(told.contains("expected targets that are written down"), "{told}");
}

fn decisions(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.')).collect();
    found.sort();
    found
}

fn integers(model: &Value) -> Vec<(String, Value, Value)> {
    let pools = model["pools"].as_array().unwrap();
    let pool = |pool: &Value| (pool["pool"].as_str().unwrap().to_owned(), pool["unbounded_replicas"].clone(), pool["proposed"].clone());
    pools.iter().map(pool).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_replays_to_the_byte_and_says_where_it_was_tampered_with() {
    let (m, n) = (Router::pair("m").await, Router::pair("n").await);
    let site = Site::new();
    let recorded = site.path("recorded");
    let config = site.config("", &[Model::of("m", &m), Model::of("n", &n)]);
    let mut exporter = Exporter::start_with(&["run", "--config", text(&config), "--record", text(&recorded)], &[]);
    exporter.settle(&["m", "n"], 3.0);
    m[1].server.set(crate::fake::Behaviour::Hang);
    n.iter().for_each(|router| router.server.set(crate::fake::Behaviour::Refuse));
    exporter.watch(&["m", "n"], 2.0, |_| ());
    exporter.process.signal("TERM");
    assert_eq!(exporter.process.ended(), Some(0));

    let found = decisions(&recorded);
    let (code, stdout, stderr) = run(&["plan", "--replay", text(&recorded)]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stderr.lines().filter(|line| line.ends_with("identical")).count(), found.len(), "{stderr}");
    let plans = json(&stdout)["models"].as_array().unwrap().clone();
    assert_eq!(plans.len(), found.len());
    let reasons: Vec<&str> = plans.iter().filter_map(|plan| plan["reason"].as_str()).collect();
    assert!(reasons.contains(&"none") && reasons.contains(&"all_targets_down"), "{reasons:?}");

    // The same decision from its pages, through the recorded configuration: without the memory, so the wish alone is the same.
    let index = plans.iter().rposition(|plan| plan["model"] == "n" && plan["reason"] == "none").unwrap();
    let (plan, folder) = (&plans[index], &found[index]);
    let elapsed = plan["observation"]["elapsed_seconds"].to_string();
    let [config, before, after] = ["config.yaml", "before", "after"].map(|part| folder.join(part));
    let (code, stdout, stderr) =
        run(&["plan", "--config", text(&config), "--before", text(&before), "--after", text(&after), "--elapsed", &elapsed]);
    assert_eq!(code, Some(0), "{stderr}");
    let answer = json(&stdout);
    let again = answer["models"].as_array().unwrap().iter().find(|model| model["model"] == "n").unwrap();
    assert_eq!(integers(again), integers(plan));

    let tampered = folder.join("plan.json");
    let text_of_plan = std::fs::read_to_string(&tampered).unwrap();
    std::fs::write(&tampered, text_of_plan.replace("\"recommended_replicas\":3", "\"recommended_replicas\":4")).unwrap();
    let (code, _, stderr) = run(&["plan", "--replay", text(folder)]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("plan.pools[0].recommended_replicas"), "{stderr}");
    std::fs::write(&tampered, "{").unwrap();
    let (code, _, stderr) = run(&["plan", "--replay", text(folder)]);
    assert!(code == Some(1) && stderr.contains("plan.json"), "{stderr}");
}

/// Infera's page under other names, in the operator's words.
const CUSTOM: &str = r#"engine: custom
    custom:
      model_label: model
      metrics:
        - { role: ttft, name: acme_time_to_first_token_seconds }
        - { role: itl, name: acme_inter_token_latency_seconds }
        - { role: prompt_tokens, name: acme_input_sequence_tokens }
        - { role: output_tokens, name: acme_output_sequence_tokens }
        - { role: finished, name: acme_request_duration_seconds }
        - { role: ready_prefill, name: acme_active_workers, labels: ["disagg_mode=prefill"] }
        - { role: ready_decode, name: acme_active_workers, labels: ["disagg_mode=decode"] }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_custom_engine_is_planned_named_and_replayed() {
    let routers = Router::pair("m").await;
    routers.iter().for_each(|router| router.spoil(|page| page.replace("infera_", "acme_").into_bytes()));
    let site = Site::new();
    let recorded = site.path("recorded");
    let config = site.config("", &[Model::of("m", &routers)]);
    let written = std::fs::read_to_string(&config).unwrap().replace("mode: publish\n", &format!("mode: publish\n    {CUSTOM}"));
    std::fs::write(&config, written).unwrap();
    let mut exporter = Exporter::start_with(&["run", "--config", text(&config), "--record", text(&recorded)], &[]);
    exporter.settle(&["m"], 3.0);
    let target = routers[0].target();
    assert_eq!(exporter.metrics().value("target_info", &[("target", &target), ("engine", "custom")]), Some(1.0));
    assert_eq!(exporter.metrics().value("target_missing_roles", &[("target", &target)]), Some(0.0));
    exporter.process.signal("TERM");
    assert_eq!(exporter.process.ended(), Some(0));
    let (code, _, stderr) = run(&["plan", "--replay", text(&recorded)]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.lines().all(|line| line.ends_with("identical")), "{stderr}");
}

/// A vLLM page after so many requests: prefill finishes each with one token, decode with the others.
fn vllm(requests: f64, decode: bool) -> String {
    let output = if decode { 256.0 } else { 1.0 };
    let mut page = String::new();
    let mut histogram = |name: &str, mean: f64, count: f64| {
        let sum = mean * count;
        page.push_str(&format!(
            "# TYPE vllm:{name} histogram\nvllm:{name}_bucket{{le=\"1e9\",model_name=\"M\",engine=\"0\"}} {count}\n\
             vllm:{name}_bucket{{le=\"+Inf\",model_name=\"M\",engine=\"0\"}} {count}\n\
             vllm:{name}_count{{model_name=\"M\",engine=\"0\"}} {count}\nvllm:{name}_sum{{model_name=\"M\",engine=\"0\"}} {sum}\n"
        ));
    };
    histogram("time_to_first_token_seconds", if decode { 0.002 } else { 0.396 }, requests);
    histogram("request_prompt_tokens", 2048.0, requests);
    histogram("request_generation_tokens", output, requests);
    if decode {
        histogram("inter_token_latency_seconds", 0.0121, requests * 255.0);
    }
    page
}

#[test]
fn vllm_takes_ttft_from_prefill_and_the_rest_from_decode() {
    let pages = Pages::new();
    pages.write(
        "config.yaml",
        "models:\n  - name: M\n    engine: vllm\n    slo: { ttft: 500ms, itl: 50ms }\n    planner: { preset: infera, profile: profile.json }\n    \
         pools:\n      \
         - { name: p, role: prefill, max_replicas: 8, targets: { static: [\"http://p1:8000/metrics\", \"http://p2:8000/metrics\"] } }\n      \
         - { name: d, role: decode, max_replicas: 8, targets: { static: [\"http://d1:8000/metrics\"] } }\n",
    );
    for (folder, requests) in [("before", 0.0), ("after", 306.0)] {
        std::fs::create_dir(pages.path(folder)).unwrap();
        for (target, share, decode) in [("p1", 1.0, false), ("p2", 1.0, false), ("d1", 2.0, true)] {
            pages.write(&format!("{folder}/{target}_8000_metrics.prom"), &vllm((1000.0 + requests) * share, decode));
        }
    }
    let [config, before, after] = ["config.yaml", "before", "after"].map(|name| pages.path(name));
    let args = ["plan", "--config", text(&config), "--before", text(&before), "--after", text(&after), "--elapsed", "180s"];
    let (code, stdout, stderr) = run(&args);
    assert_eq!(code, Some(0), "{stderr}");
    let model = &json(&stdout)["models"][0];
    assert_eq!(model["reason"], "none", "{model:#}");
    for (key, expected) in
        [("requests", 612.0), ("input_tokens", 2048.0), ("output_tokens", 256.0), ("ttft_seconds", 0.396), ("itl_seconds", 0.0121)]
    {
        near(&model["observation"][key], expected);
    }
    let counts: Vec<_> =
        model["pools"].as_array().unwrap().iter().map(|pool| (&pool["current_replicas"], &pool["recommended_replicas"])).collect();
    assert_eq!(counts, [(&2.into(), &2.into()), (&1.into(), &1.into())]);
    // A silent decode server leaves the window without its half.
    std::fs::remove_file(pages.path("after/d1_8000_metrics.prom")).unwrap();
    let (code, stdout, _) = run(&args);
    let model = &json(&stdout)["models"][0];
    assert_eq!((code, &model["held"]), (Some(0), &true.into()));
    // A folder without a page of any target is a mistake of the caller.
    let (code, _, stderr) =
        run(&["plan", "--config", text(&config), "--before", text(&before), "--after", text(pages.folder.path()), "--elapsed", "180s"]);
    assert!(code == Some(1) && stderr.contains("d1_8000_metrics.prom"), "{stderr}");
}

#[test]
fn preset_wva_is_planned_from_pages_with_the_config_map_it_is_given() {
    let pages = Pages::new();
    std::fs::create_dir(pages.path("map")).unwrap();
    pages.write("map/default", "sloMultiplier: 3.0\n");
    pages.write("map/m", "model_id: M\nnamespace: default\ntargetTTFT: 500\ntargetITL: 50\n");
    let [before, after, map] = ["a.prom", "b.prom", "map"].map(|name| pages.path(name));
    let plan = |more: &[&str]| {
        let pair = ["plan", "--before", text(&before), "--after", text(&after), "--elapsed", "180", "--model", "M"];
        run(&[&pair, more].concat())
    };
    let (code, stdout, stderr) = plan(&["--queueing-config", text(&map)]);
    assert_eq!(code, Some(0), "{stderr}");
    let model = &json(&stdout)["models"][0];
    assert_eq!((&model["preset"], &model["pools"][0]["role"]), (&"wva".into(), &"aggregated".into()));
    near(&model["slo"]["ttft_seconds"], 0.5);
    assert_eq!(plan(&["--preset", "wva"]).0, Some(0), "objectives may be learned");
    let (code, _, stderr) = plan(&["--queueing-config", text(&map), "--target-namespace", "prod"]);
    assert!(code == Some(0) && stderr.contains("note: ") && stderr.contains("its target_namespace is \"prod\""), "{stderr}");
    pages.write("map/m", "model_id: M\n");
    let (code, _, stderr) = plan(&["--queueing-config", text(&map)]);
    assert!(code == Some(64) && stderr.contains("map/m:1:1: namespace: required"), "{stderr}");
}

#[test]
fn preset_wva_says_that_one_window_cannot_identify_its_model_and_what_to_do() {
    let pages = Pages::new();
    let [before, after] = ["a.prom", "b.prom"].map(|name| pages.path(name));
    let plan = |more: &[&str]| {
        let pair = ["plan", "--before", text(&before), "--after", text(&after), "--elapsed", "180", "--model", "M", "--preset", "wva"];
        run(&[&pair, more].concat()).1
    };
    let said = json(&plan(&[]));
    let notes: Vec<&str> = said["models"][0]["notes"].as_array().unwrap().iter().filter_map(|note| note.as_str()).collect();
    assert!(notes.iter().any(|note| note.contains("one window cannot identify the model") && note.contains("run --record")), "{notes:?}");
    let text = plan(&["--format", "text"]);
    assert!(text.contains("note: two pages are one window") && text.contains("plan --replay"), "{text}");
}
