//! Does what comes from Dynamo work here: its planner's configuration through our own `check`, its profile data under a running exporter?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inference_planner_exporter::config::{self, Inputs, Loaded, Problem, SourceText};
use inference_planner_exporter::planner::policy::{CapacityModel, Mode, Preset};
use inference_planner_exporter::units::Role;

use crate::service::{Exporter, Router, Site, run, text, until};

/// A configuration as Dynamo's profiler writes it: with every field, whether it matters or not.
const WHOLE: &str = include_str!("../fixtures/dynamo/planner_config.json");
const PROFILE: &str = "tests/fixtures/dynamo/profile-json";

fn translated(text: &str) -> String {
    config::from_dynamo(&SourceText { path: "d.yaml".into(), text: text.to_owned() }).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn load(text: &str) -> Result<Loaded, Vec<Problem>> {
    let draft = config::read(Inputs { file: Some(SourceText { path: "c.yaml".into(), text: text.to_owned() }), ..Inputs::default() });
    let mut files: BTreeMap<PathBuf, Result<String, String>> = BTreeMap::new();
    for path in draft.files().iter().filter(|path| draft.may_be_folder(path)) {
        for (file, name) in config::profile_files(path).zip(["", "prefill_raw_data.json", "", "decode_raw_data.json"]) {
            if let Ok(text) = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(PROFILE).join(name)) {
                files.insert(file, Ok(text));
            }
        }
    }
    let trace = "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 10}\n".to_owned();
    draft.files().iter().filter(|path| path.ends_with("trace.jsonl")).for_each(|path| drop(files.insert(path.clone(), Ok(trace.clone()))));
    draft.finish(&files)
}

/// The translation with a value at every placeholder, as its reader would write them.
fn filled_in(translation: &str) -> String {
    let mut filled = String::new();
    for line in translation.lines() {
        match line.split_once("\"FILL_IN") {
            None => filled.push_str(line),
            Some((key, _)) if key.contains("selector") => filled.push_str(&format!("{key}'{{job=\"x\"}}'")),
            Some((key, _)) if key.contains("name") => filled.push_str(&format!("{key}\"a/model\"")),
            Some((key, _)) if key.contains("context_length") => filled.push_str(&format!("{key}32768")),
            Some((key, _)) if key.contains("token_file") => filled.push_str(&format!("{key}token")),
            Some((key, _)) => filled.push_str(&format!("{key}2")),
        }
        filled.push('\n');
    }
    filled
}

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn a_translation_is_refused_until_it_is_filled_in_and_taken_afterwards() {
    let thresholds = "prefill_scale_up_queue_tokens: 4000\nprefill_scale_down_queue_tokens: 10\ndecode_scale_up_kv_rate: 72.5\ndecode_scale_down_kv_rate: 20\n";
    let objectives = "optimization_target: sla\nttft: 700\nitl: 33.5\n";
    let mut tried = 0;
    for mode in ["disagg", "prefill", "decode", "agg"] {
        for body in [
            "",
            "optimization_target: latency\nadvisory: true\n",
            &format!("optimization_target: load\n{thresholds}"),
            objectives,
            &format!("{objectives}enable_load_scaling: true\nload_predictor: kalman\nkalman_r: 4\nload_predictor_log1p: true\n"),
            &format!("{objectives}enable_load_scaling: true\nenable_throughput_scaling: false\nload_scaling_down_sensitivity: 0\n"),
            &format!("{objectives}load_predictor: prophet\nprophet_window_size: 3\nload_predictor_warmup_trace: trace.jsonl\n"),
            &format!("{objectives}load_predictor: constant\nload_predictor_warmup_trace: trace.jsonl\nprofile_results_dir: data\n"),
            "report_interval_hours: 0.5\nreport_output_dir: reports\n",
            "report_interval_hours: 1e30\n",
            "max_gpu_budget: -1\nmin_endpoint: 0\nmetric_pulling_prometheus_endpoint: https://p:9090\nmetric_pulling_prometheus_token: t\n",
            "min_gpu_budget: 4\nload_adjustment_interval: 1\nmetric_reporting_prometheus_port: 9085\nmax_gpu_budget: 16\n",
        ] {
            let translation = translated(&format!("mode: {mode}\n{body}"));
            let told = lines(&load(&translation).expect_err("placeholders"));
            let open: Vec<&String> = told.iter().filter(|problem| problem.contains(": still to be filled in: ")).collect();
            assert_eq!(open.len(), translation.matches("\"FILL_IN").count(), "{mode}, {body}: {told:#?}\n{translation}");
            assert_eq!(open.len(), told.len(), "{mode}, {body}: nothing else is wrong: {told:#?}\n{translation}");

            let filled = filled_in(&translation);
            let loaded = load(&filled).unwrap_or_else(|problems| panic!("{mode}, {body}: {:#?}\n{filled}", lines(&problems)));
            let policy = &loaded.config.models[0].policy;
            assert_eq!((policy.preset, policy.interval), (Preset::Dynamo, Duration::from_secs(180)));
            let roles: Vec<Role> = policy.pools.iter().map(|pool| pool.role).collect();
            let expected: &[Role] = match mode {
                "disagg" => &[Role::Prefill, Role::Decode],
                "prefill" => &[Role::Prefill],
                "decode" => &[Role::Decode],
                _ => &[Role::Aggregated],
            };
            assert_eq!(roles, expected);
            assert_eq!(policy.mode, if body.contains("advisory") { Mode::Shadow } else { Mode::Publish });
            if body.contains("ttft: 700") {
                assert_eq!((policy.slo.ttft.get(), policy.slo.itl.get()), (0.7, 0.0335));
            }
            if body.contains("profile_results_dir") && mode != "agg" {
                assert!(matches!(policy.capacity, CapacityModel::Envelope(_)), "the data that Dynamo's own field names");
            }
            tried += 1;
        }
    }
    assert_eq!(tried, 48);
}

#[test]
fn a_configuration_with_every_field_is_translated() {
    let translation = config::from_dynamo(&SourceText { path: "planner_config.json".into(), text: WHOLE.to_owned() });
    let translation = translation.unwrap_or_else(|problems| panic!("{:#?}", lines(&problems)));
    let root: BTreeMap<String, serde_json::Value> = serde_json::from_str(WHOLE).expect("JSON");
    for name in root.keys().filter(|name| name.as_str() != "scheduling") {
        assert!(translation.contains(name), "{name}\n{translation}");
    }
    let loaded = load(&filled_in(&translation)).unwrap_or_else(|problems| panic!("{:#?}\n{translation}", lines(&problems)));
    let model = &loaded.config.models[0];
    assert_eq!(model.policy.pools.iter().map(|pool| pool.limits.max().0).collect::<Vec<_>>(), [22, 11]);
    assert_eq!(model.policy.pools.iter().map(|pool| pool.limits.min().0).collect::<Vec<_>>(), [2, 1]);
    let query = model.sources[0].query.as_ref().expect("Prometheus is asked");
    assert_eq!(query.url, "https://thanos.monitoring:9091");
    assert_eq!(model.sources[0].access.bearer_token_file.as_deref(), Some(Path::new("/var/run/secrets/token")));
}

#[test]
fn check_prints_a_translation_and_tells_mistakes_with_exit_64() {
    let site = Site::new();
    let good = site.write("good.yaml", "optimization_target: sla\n");
    let (code, shown, said) = run(&["check", "--from-dynamo", text(&good)]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let (code, refused, said) = run(&["check", text(&site.write("ours.yaml", &shown))]);
    assert_eq!((code, refused.as_str()), (Some(64), ""));
    assert!(said.contains("ours.yaml:") && said.contains("models[0].name: still to be filled in: the model's name"), "{said}");
    site.write("token", "t");
    let (code, shown, said) = run(&["check", text(&site.write("ours.yaml", &filled_in(&shown)))]);
    assert_eq!(code, Some(0), "{said}");
    assert!(shown.starts_with("ok: models 1, pools 2"), "{shown}");

    let bad = site.write("bad.json", "{\"mode\": \"aggregated\",\n \"itl\": 0}\n");
    let (code, shown, said) = run(&["check", "--from-dynamo", text(&bad)]);
    assert_eq!((code, shown.as_str()), (Some(64), ""));
    assert!(said.contains("bad.json:1:10: mode: expected disagg, prefill, decode or agg, got aggregated"), "{said}");
    assert!(said.contains("bad.json:2:9: itl: expected a number above 0, got 0"), "{said}");
    let (code, _, said) = run(&["check", "--from-dynamo", "nowhere.yaml"]);
    assert!(code == Some(64) && said.contains("nowhere.yaml: cannot be read"), "{said}");
    assert_eq!(run(&["check", "--from-dynamo", text(&good), text(&good)]).0, Some(64), "one or the other");
    assert_eq!(run(&["check"]).0, Some(64));
}

/// Copies a folder of the fixtures.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let (path, name) = (entry.as_ref().expect("an entry").path(), entry.as_ref().expect("an entry").file_name());
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            std::fs::copy(&path, to.join(name)).expect("a copy");
        }
    }
}

fn with_profile(profile: &str, url: &str) -> String {
    format!(
        "server: {{ listen: \"127.0.0.1:0\" }}\nscrape: {{ interval: 100ms, timeout: 100ms }}\nmodels:\n  - name: m\n    \
         planner: {{ preset: infera, profile: {profile}, adjustment_interval: 1s, hold_for: 60s }}\n    \
         traffic: {{ targets: {{ static: [\"{url}\"] }} }}\n    \
         pools:\n      - {{ name: m-prefill, role: prefill, max_replicas: 16 }}\n      - {{ name: m-decode, role: decode, max_replicas: 16 }}\n"
    )
}

#[test]
fn check_takes_both_layouts_of_profile_data_and_names_what_is_wrong() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dynamo");
    let site = Site::new();
    let folder = site.write("here", "").parent().expect("a folder").to_owned();
    let mut hashes = Vec::new();
    for layout in ["profile-json", "profile-npz"] {
        copy(&fixtures.join(layout), &folder.join("data"));
        let config = site.write("c.yaml", &with_profile("data", "http://h:1"));
        let (code, shown, said) = run(&["check", text(&config)]);
        assert_eq!(code, Some(0), "{layout}: {said}");
        hashes.push(shown);
    }
    assert_eq!(hashes[0], hashes[1], "the same measurements are the same configuration");

    std::fs::write(folder.join("data/selected_decode_interpolation/raw_data.npz"), "no archive").expect("written");
    let (code, _, said) = run(&["check", text(&site.write("c.yaml", &with_profile("data", "http://h:1")))]);
    assert_eq!(code, Some(64));
    let place = "data/selected_decode_interpolation/raw_data.npz: cannot be read: expected an .npz";
    assert!(said.contains(place), "{said}");

    std::fs::create_dir(folder.join("empty")).expect("a folder");
    let (code, _, said) = run(&["check", text(&site.write("c.yaml", &with_profile("empty", "http://h:1")))]);
    assert!(code == Some(64) && said.contains("empty cannot be read: expected a profile.json, or a folder with Dynamo's"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn profile_data_are_planned_by_and_read_again_when_they_change() {
    let router = Router::start("m", 25.0).await;
    let site = Site::new();
    let config = site.write("c.yaml", &with_profile("data", &router.server.url()));
    let folder = config.parent().expect("a folder").join("data");
    tokio::task::block_in_place(|| {
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dynamo/profile-npz"), &folder);
        let exporter = Exporter::start(&config);
        until("the first decision", || exporter.recommended("m-prefill"));
        // An archive is replaced in its folder, where the change of a file alone tells of it.
        std::fs::write(folder.join("selected_prefill_interpolation/raw_data.npz"), "half").expect("written");
        until("the change is told", || exporter.process.log().contains("expected an .npz").then_some(()));
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dynamo/profile-npz"), &folder);
        until("and mended", || exporter.metrics().0.contains("inference_planner_config_last_reload_successful 1").then_some(()));
    });
}
