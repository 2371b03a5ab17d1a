//! Does preset wva mean what its keys and llm-d's ConfigMap say, and is every mistake told with its file and key?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use inference_planner_exporter::config::{self, Config, Flags, Inputs, Loaded, ModelSelector, Problem, SourceText};
use inference_planner_exporter::planner::policy::{
    CapacityModel, ChangeRule, GrowthRule, ModelPolicy, Preset, QueueingPolicy, ReplicasFrom,
};
use inference_planner_exporter::units::Role;

/// A model with one pool, and nothing else written.
const PLAIN: &str = "queueing_config: map
models:
  - name: org/m
    target_namespace: prod
    pools: [{ name: m-agg, role: aggregated, max_replicas: 4, targets: { static: [\"http://10.0.0.1:8000\"] } }]
";

/// Files of a ConfigMap by name.
type Entries<'a> = &'a [(&'a str, &'a str)];

fn load_inputs(inputs: Inputs, entries: Entries<'_>) -> Result<Loaded, Vec<Problem>> {
    let draft = config::read(inputs);
    let mut files = BTreeMap::new();
    if let Some(folder) = draft.folder() {
        files.extend(entries.iter().map(|(name, text)| (folder.join(name), Ok((*text).to_owned()))));
    }
    draft.finish(&files)
}

fn load(text: &str, entries: Entries<'_>) -> Result<Loaded, Vec<Problem>> {
    load_inputs(Inputs { file: Some(SourceText { path: "c.yaml".into(), text: text.to_owned() }), ..Inputs::default() }, entries)
}

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn good(result: Result<Loaded, Vec<Problem>>) -> Loaded {
    result.unwrap_or_else(|problems| panic!("{:#?}", lines(&problems)))
}

fn problems(text: &str, entries: Entries<'_>) -> Vec<String> {
    lines(&load(text, entries).expect_err("there are problems"))
}

fn queueing(policy: &ModelPolicy) -> &QueueingPolicy {
    let CapacityModel::Queueing(queueing) = &policy.capacity else { panic!("preset wva") };
    queueing
}

/// TTFT and ITL in milliseconds where written, and k.
fn said(policy: &ModelPolicy) -> (Option<(f64, f64)>, f64) {
    let millis = |seconds: f64| (seconds * 1e6).round() / 1e3;
    let slo = &policy.slo;
    (slo.explicit.then(|| (millis(slo.ttft.get()), millis(slo.itl.get()))), queueing(policy).multiplier.get())
}

fn of_the_only_model(loaded: &Loaded) -> (Option<(f64, f64)>, f64) {
    said(&loaded.config.models[0].policy)
}

/// The same model without a ConfigMap.
fn alone(planner: &str) -> String {
    PLAIN.replace("queueing_config: map\n", "").replace("target_namespace", &format!("planner: {planner}\n    target_namespace"))
}

#[test]
fn the_defaults_of_the_preset_are_those_of_the_original() {
    let loaded = good(load(&alone("{ preset: wva }"), &[]));
    let policy = &loaded.config.models[0].policy;
    assert_eq!((policy.preset, policy.interval, policy.hold_for), (Preset::Wva, Duration::from_secs(30), Duration::from_secs(600)));
    let used = queueing(policy);
    assert_eq!((used.multiplier.get(), used.max_batch.get(), used.learned_for), (3.0, 256, Duration::from_secs(7 * 24 * 3600)));
    assert_eq!((policy.slo.explicit, policy.slo.ttft.get(), policy.slo.itl.get()), (false, 10.0, 0.5));
    assert!(matches!(policy.growth, GrowthRule::Confirm(_)) && policy.traffic_change == ChangeRule::Tolerate);
    let warnings = lines(&loaded.warnings);
    assert!(warnings.len() == 1 && warnings[0].contains("preset wva has no limit on steps down"), "{warnings:?}");
}

#[test]
fn every_key_of_the_preset_is_taken_and_reads_back() {
    let text = "models:
  - name: m
    slo: { ttft: 400ms, itl: 25ms }
    planner: { preset: wva, slo_multiplier: 2.5, max_batch_size: 128, learned_for: 1h, adjustment_interval: 1m, growth: 3 }
    pools:
      - { name: p, role: prefill, max_replicas: 4, targets: { static: [\"http://10.0.0.1:8000\"] } }
      - name: d-big
        role: decode
        gpus_per_replica: 8
        cost: 12.5
        accelerator: \"H100 \\\"SXM\\\"\"
        max_replicas: 4
        capabilities: { max_num_seqs: 512 }
        targets: { static: [\"http://10.0.0.2:8000\"] }
      - { name: d-small, role: decode, max_replicas: 9, targets: { static: [\"http://10.0.0.3:8000\"] } }
";
    let loaded = good(load(text, &[]));
    let policy = &loaded.config.models[0].policy;
    assert_eq!(said(policy), (Some((400.0, 25.0)), 2.5));
    let used = queueing(policy);
    assert_eq!((used.max_batch.get(), used.learned_for, policy.interval), (128, Duration::from_secs(3600), Duration::from_secs(60)));
    let pools: Vec<_> = policy.pools.iter().map(|pool| (pool.cost.map(|cost| cost.get()), pool.accelerator.as_deref())).collect();
    assert_eq!(pools, [(None, None), (Some(12.5), Some("H100 \"SXM\"")), (None, None)]);
    assert_eq!(policy.pools[1].capabilities.max_num_seqs.map(u32::from), Some(512));
    let again = good(load(&loaded.effective, &[]));
    assert_eq!(again.config.models[0].policy, *policy, "{}", loaded.effective);
    assert_eq!((again.effective, again.config.hash), (loaded.effective, loaded.config.hash));
}

#[test]
fn a_mounted_config_map_is_all_that_a_model_needs() {
    // The example of the original's documentation.
    let entries: Entries<'_> = &[
        ("default", "# for all\nsloMultiplier: 3.0\ntuningEnabled: true\n"),
        (
            "llama-prod",
            "model_id: \"org/m\"\nnamespace: \"prod\"\ntargetTTFT: 500.0    # ms\ntargetITL: 50.0      # ms\nsloMultiplier: 4.0\n",
        ),
        ("..data", "not an entry: ["),
    ];
    let loaded = good(load(PLAIN, entries));
    assert_eq!(loaded.config.models[0].policy.preset, Preset::Wva);
    assert_eq!(of_the_only_model(&loaded), (Some((500.0, 50.0)), 4.0));
    assert_eq!(loaded.config.files, ["c.yaml", "map", "map/default", "map/llama-prod"].map(PathBuf::from));
    assert_eq!(lines(&loaded.notes), Vec::<String>::new());
    let again = good(load(&loaded.effective, entries));
    let meaning = |config: &Config| format!("{:?}", Config { files: Vec::new(), ..config.clone() });
    assert_eq!(meaning(&again.config), meaning(&loaded.config), "{}", loaded.effective);
    assert_eq!(again.notes, [], "what it shows counts as unwritten");
}

#[test]
fn what_is_nearer_to_the_model_wins_group_by_group() {
    let default = ("default", "sloMultiplier: 5\ntargetTTFT: 900\ntargetITL: 90\n");
    let own = |keys: &str| format!("model_id: org/m\nnamespace: prod\n{keys}");
    let case = |config: &str, default: (&str, &str), entry: &str| of_the_only_model(&good(load(config, &[default, ("m", entry)])));
    assert_eq!(case(PLAIN, ("default", ""), &own("")), (None, 3.0), "nobody says anything");
    assert_eq!(case(PLAIN, ("default", "sloMultiplier: 0\ntargetTTFT: 0\n"), &own("targetTTFT: 0.0\ntargetITL: 0\n")), (None, 3.0));
    assert_eq!(case(PLAIN, default, &own("")), (Some((900.0, 90.0)), 5.0), "the default's targets count");
    assert_eq!(case(PLAIN, default, &own("sloMultiplier: 2\n")), (Some((900.0, 90.0)), 2.0));
    assert_eq!(case(PLAIN, default, &own("targetTTFT: 100\ntargetITL: 10\nsloMultiplier: 0\n")), (Some((100.0, 10.0)), 5.0));
    let with = |keys: &str| PLAIN.replace("    target_namespace", &format!("{keys}    target_namespace"));
    let slo = "    slo: { ttft: 1s, itl: 20ms }\n    planner: { preset: wva }\n";
    let entry = own("targetTTFT: 100\ntargetITL: 10\nsloMultiplier: 2\n");
    assert_eq!(case(&with(slo), default, &entry), (Some((1000.0, 20.0)), 2.0));
    assert_eq!(case(&with("    planner: { slo_multiplier: 7 }\n"), default, &entry), (Some((100.0, 10.0)), 7.0));
    assert_eq!(case(&with("    planner: { slo_multiplier: 0 }\n"), default, &entry), (Some((100.0, 10.0)), 2.0), "0 is not written");
}

#[test]
fn check_says_where_both_speak_and_what_nobody_reads() {
    let text = PLAIN.replace(
        "    target_namespace",
        "    slo: { ttft: 1s, itl: 20ms }\n    planner: { preset: wva, slo_multiplier: 2 }\n    target_namespace",
    );
    let entries: Entries<'_> = &[
        ("default", "sloMultiplier: 3\n"),
        ("elsewhere", "model_id: org/m\nnamespace: staging\n"),
        ("m", "model_id: org/m\nnamespace: prod\ntargetTTFT: 500\ntargetITL: 50\n"),
        ("other", "model_id: other\nnamespace: prod\n"),
    ];
    let notes = lines(&good(load(&text, entries)).notes);
    assert_eq!(
        notes,
        [
            "c.yaml:4:10: models[0].slo: counts for this model, and not targetTTFT and targetITL in map/m",
            "c.yaml:5:45: models[0].planner.slo_multiplier: counts for this model, and not sloMultiplier in map/default",
            "map/elsewhere: model_id: not read: no model \"org/m\" is configured with target_namespace \"staging\"; its target_namespace is \"prod\"",
            "map/other: model_id: not read: no model \"other\" is configured with target_namespace \"prod\"",
        ]
    );
    let dynamo = PLAIN.replace("    target_namespace", "    planner: { preset: dynamo }\n    target_namespace");
    assert_eq!(lines(&good(load(&dynamo, entries)).notes), ["c.yaml:1:18: queueing_config: not read: no model has preset wva"]);
}

#[test]
fn the_rules_of_the_original_hold_in_every_entry() {
    // What the original's own tests accept and refuse.
    for text in ["", "{}", "sloMultiplier: 3.0", "targetTTFT: 500\ntargetITL: 50", "tuningEnabled: true"] {
        good(load(PLAIN, &[("default", text)]));
    }
    let of_default = |text: &str| problems(PLAIN, &[("default", text)]);
    let above_one = "expected more than 1, or 0 for the default";
    let cases = [
        ("sloMultiplier: 1.0", format!("map/default:1:16: sloMultiplier: {above_one}, got 1: at 1 an idle replica would be full")),
        ("sloMultiplier: 0.5", format!("map/default:1:16: sloMultiplier: {above_one}, got 0.5: at 1 an idle replica would be full")),
        ("sloMultiplier: -2", "map/default:1:16: sloMultiplier: expected a number from 0 to 1000, got -2".to_owned()),
        ("sloMultiplier: .inf", "map/default:1:16: sloMultiplier: expected a number from 0 to 1000, got inf".to_owned()),
        ("targetTTFT: 500", "map/default:1:13: targetTTFT: expected targetITL as well: both are written or neither".to_owned()),
        (
            "targetITL: 50\ntargetTTFT: 0",
            "map/default:1:12: targetITL: expected targetTTFT as well: both are written or neither".to_owned(),
        ),
        (
            "targetTTFT: 0.5\ntargetITL: 50",
            "map/default:1:13: targetTTFT: expected at least 1 ms, or 0 for none, got 0.5; is it in milliseconds?".to_owned(),
        ),
        (
            "targetTTFT: fast\ntargetITL: 5",
            "map/default:1:13: targetTTFT: expected a number from 0 to 31622400000, got \"fast\"".to_owned(),
        ),
        (
            "tuningEnabled: false",
            "map/default:1:16: tuningEnabled: expected true: what replicas can do is learned or not known; leave it out".to_owned(),
        ),
        ("sloMultiplyer: 3", "map/default:1:1: sloMultiplyer: no such key; did you mean sloMultiplier?".to_owned()),
        ("model_id: m", "map/default:1:11: model_id: default is for all models; write an entry of its own for one".to_owned()),
        ("just words", "map/default:1:1: expected further keys below it, got \"just words\"".to_owned()),
    ];
    for (text, expected) in cases {
        assert_eq!(of_default(text), [expected], "{text}");
    }
}

#[test]
fn mistakes_of_all_entries_are_told_together() {
    let entries: Entries<'_> = &[
        ("a", "model_id: org/m\nnamespace: prod\n"),
        ("b", "model_id: org/m\nnamespace: prod\nsloMultiplier: 2\n"),
        ("c", "model_id: org/m\n"),
        ("d", "sloMultiplier: 2\n"),
        ("e", "model_id: [\n"),
        ("f", "sloMultiplier: 2\nsloMultiplier: 3\nmodel_id: x\nnamespace: prod\n"),
    ];
    let told = problems(PLAIN, entries);
    assert_eq!(told[0], "c.yaml:1:18: queueing_config: expected a file `default` in map, as llm-d's ConfigMap has one");
    assert_eq!(told[1], "map/b:1:11: model_id: map/a is for model \"org/m\" in namespace \"prod\" as well; keep one");
    assert_eq!(told[2], "map/c:1:1: namespace: required: expected a Kubernetes label value");
    assert!(told[3].starts_with("map/d:1:1: names no model: expected model_id and namespace"), "{}", told[3]);
    assert!(told[4].starts_with("map/e:") && told[4].contains("not readable as YAML"), "{}", told[4]);
    assert_eq!(told[5], "map/f:2:1: sloMultiplier: written twice, first in line 1; keep one");
    assert_eq!(told.len(), 6, "{told:#?}");
}

#[test]
fn a_folder_that_cannot_be_listed_is_told() {
    let draft = config::read(Inputs { file: Some(SourceText { path: "c.yaml".into(), text: PLAIN.to_owned() }), ..Inputs::default() });
    let files = BTreeMap::from([(PathBuf::from("map"), Err("permission denied".to_owned()))]);
    let told = lines(&draft.finish(&files).expect_err("nothing was read"));
    assert_eq!(told, ["c.yaml:1:18: queueing_config: map cannot be read: permission denied"]);
}

#[test]
fn the_hash_follows_the_config_map_and_recordings_carry_it() {
    let default = ("default", "sloMultiplier: 3\n");
    let loaded = good(load(PLAIN, &[default]));
    let other = good(load(PLAIN, &[default, ("m", "model_id: not/configured\nnamespace: prod\n")]));
    assert_ne!(loaded.config.hash, other.config.hash);
    let entry = ("m", "model_id: org/m\nnamespace: prod\ntargetTTFT: 500\ntargetITL: 50\n");
    let loaded = good(load(PLAIN, &[default, entry]));
    assert_eq!(loaded.portable.files["queueing-config/m"], entry.1);
    let inputs =
        Inputs { file: Some(SourceText { path: "elsewhere/config.yaml".into(), text: loaded.portable.config }), ..Inputs::default() };
    let again = good(load_inputs(inputs, &[default, entry]));
    assert_eq!(again.config.queueing_config, Some("elsewhere/queueing-config".into()));
    assert_eq!(again.config.models[0].policy, loaded.config.models[0].policy);
}

fn flags() -> Flags {
    Flags { metrics_urls: vec!["http://10.0.0.1:8000".into()], queueing_config: Some("map".into()), ..Flags::default() }
}

#[test]
fn flags_alone_take_the_config_map_and_find_entries_as_models_appear() {
    let entries: Entries<'_> = &[
        ("default", "targetTTFT: 900\ntargetITL: 90\n"),
        ("m", "model_id: org/m\nnamespace: prod\ntargetTTFT: 500\ntargetITL: 50\nsloMultiplier: 4\n"),
        ("n", "model_id: org/n\nnamespace: staging\ntargetTTFT: 1\ntargetITL: 1\n"),
    ];
    let inputs = |flags| Inputs { flags, own_namespace: Some("prod".to_owned()), ..Inputs::default() };
    let loaded = good(load_inputs(inputs(flags()), entries));
    let model = &loaded.config.models[0];
    assert_eq!((&model.selector, model.policy.preset), (&ModelSelector::Any, Preset::Wva));
    let pool = &model.policy.pools[0];
    assert_eq!((pool.role, pool.replicas_from), (Role::Aggregated, ReplicasFrom::Observed));
    let of = |name: &str| said(&model.policy_for(&name.into()).expect("a legal name"));
    assert_eq!(of("org/m"), (Some((500.0, 50.0)), 4.0));
    assert_eq!(of("org/n"), (Some((900.0, 90.0)), 3.0), "its entry is for another namespace");
    assert_eq!(lines(&loaded.notes).len(), 1, "{:?}", lines(&loaded.notes));
    let named = good(load_inputs(inputs(Flags { model: Some("org/m".into()), ..flags() }), entries));
    assert_eq!(of_the_only_model(&named), (Some((500.0, 50.0)), 4.0));
    let own = Flags { preset: Some("wva".into()), ttft: Some(Duration::from_secs(1)), itl: Some(Duration::from_millis(30)), ..flags() };
    let loaded = good(load_inputs(inputs(own.clone()), entries));
    let of = |name: &str| said(&loaded.config.models[0].policy_for(&name.into()).expect("a legal name"));
    assert_eq!(of("org/m"), (Some((1000.0, 30.0)), 4.0), "what the flags say counts for every model");
    let told = lines(&load_inputs(inputs(Flags { itl: None, ..own }), entries).expect_err("half a pair"));
    assert_eq!(told, ["--itl: required beside ttft: preset wva takes both objectives, or learns both"]);
    let missing = lines(&load_inputs(inputs(flags()), &[]).expect_err("no default"));
    assert_eq!(missing, ["--queueing-config: expected a file `default` in map, as llm-d's ConfigMap has one"]);
}

#[test]
fn the_flag_names_the_folder_beside_a_file_as_well() {
    let file = Some(SourceText { path: "c.yaml".into(), text: PLAIN.to_owned() });
    let flags = Flags { queueing_config: Some("mounted".into()), ..Flags::default() };
    let loaded = good(load_inputs(Inputs { file, flags, ..Inputs::default() }, &[("default", "sloMultiplier: 6")]));
    assert_eq!((of_the_only_model(&loaded).1, loaded.config.queueing_config), (6.0, Some("mounted".into())));
}

#[test]
fn keys_of_other_presets_are_refused_with_the_reason() {
    let told = |planner: &str| problems(&alone(planner), &[]);
    let key = |name: &str, reason: &str| format!("models[0].planner.{name}: {reason}");
    let cases = [
        ("{ preset: wva, correction: true }", key("correction", "preset wva learns from the latencies and has no profile to correct")),
        ("{ preset: wva, profile: p.json }", key("profile", "preset wva learns what replicas can do and reads no profile")),
        ("{ preset: wva, target: latency }", key("target", "belongs to preset dynamo")),
        ("{ preset: wva, slo_multiplier: 1 }", key("slo_multiplier", "expected more than 1, or 0 for the default, got 1")),
        ("{ preset: wva, max_batch_size: 0 }", key("max_batch_size", "expected a whole number from 1 to")),
        ("{ preset: dynamo, slo_multiplier: 3 }", key("slo_multiplier", "belongs to preset wva; leave it out")),
        ("{ preset: dynamo, learned_for: 1d }", key("learned_for", "belongs to preset wva; leave it out")),
    ];
    for (planner, expected) in cases {
        let told = told(planner);
        assert!(told.iter().any(|told| told.contains(&expected)), "{planner}: {told:#?}");
    }
    let pool = |keys: &str, planner: &str| problems(&alone(planner).replace("max_replicas: 4", &format!("max_replicas: 4, {keys}")), &[]);
    assert!(pool("cost: 2", "{ preset: dynamo }")[0].contains("cost: belongs to preset wva"));
    assert!(pool("cost: 0", "{ preset: wva }")[0].contains("cost: expected more than 0, got 0"));
    assert!(pool("min_replicas: 0", "{ preset: wva }")[0].contains("expected at least 1, for one of several pools of a role as well"));
    let slo = |slo: &str| problems(&alone(&format!("{{ preset: wva }}\n    slo: {slo}")), &[]);
    assert!(slo("{ ttft: 1s }")[0].contains("models[0].slo.itl: required beside ttft"), "{:?}", slo("{ ttft: 1s }"));
    assert!(slo("{ itl: 10ms }")[0].contains("models[0].slo.ttft: required beside itl"));
    assert!(slo("{ ttft: 1s, itl: 10ms, statistic: p99 }")[0].contains("preset wva honours statistic mean, got p99"));
}

fn pools(model: &str, pools: &[(&str, bool)]) -> Result<Loaded, Vec<Problem>> {
    let pool = |(index, (role, targets)): (usize, &(&str, bool))| {
        let name = if model == "*" { String::new() } else { format!("name: p{index}, ") };
        let targets = if *targets { format!(", targets: {{ static: [\"http://10.0.0.{index}:8000\"] }}") } else { String::new() };
        format!("      - {{ {name}role: {role}, max_replicas: 4{targets} }}\n")
    };
    let pools: String = pools.iter().enumerate().map(pool).collect();
    let text = format!(
        "models:\n  - name: \"{model}\"\n    planner: {{ preset: wva }}\n    traffic: {{ targets: {{ static: [\"http://10.0.1.1:8000\"] }} }}\n    pools:\n{pools}"
    );
    load(&text, &[])
}

#[test]
fn several_pools_of_a_role_are_variants_with_targets_of_their_own() {
    for fit in [
        &[("aggregated", false)][..],
        &[("aggregated", true), ("aggregated", true)],
        &[("prefill", false), ("decode", false)],
        &[("decode", true)],
        &[("prefill", false), ("decode", true), ("decode", true)],
    ] {
        good(pools("m", fit));
    }
    let told = |roles: &[(&str, bool)]| lines(&pools("m", roles).expect_err("they do not fit"));
    let mixed = told(&[("aggregated", true), ("decode", true)]);
    assert!(
        mixed[0].contains("models[0].pools: preset wva takes pools of role aggregated, or pools of roles prefill and decode"),
        "{mixed:?}"
    );
    let blind = told(&[("decode", true), ("decode", false), ("prefill", false)]);
    assert_eq!(blind.len(), 1);
    assert!(blind[0].contains("models[0].pools[1].targets: one of several pools of role decode: expected targets of its own"), "{blind:?}");
    let pattern = lines(&pools("*", &[("decode", false), ("decode", false)]).expect_err("they would have one name"));
    assert_eq!(pattern.len(), 1, "{pattern:?}");
    assert!(pattern[0].contains("with the model name \"*\" expected one pool of role decode"), "{pattern:?}");
}

#[test]
fn a_manifest_in_the_place_of_the_mounted_data_is_explained() {
    let manifest =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: wva-queueing-model-config }\ndata:\n  default: |\n    sloMultiplier: 3.0\n";
    let found = problems(PLAIN, &[("manifest.yaml", manifest)]);
    assert!(found.len() == 2 && found[0].contains("expected a file `default` in map"), "{found:?}");
    assert!(found[1].starts_with("map/manifest.yaml: a manifest of kind ConfigMap; expected the mounted data"), "{found:?}");
}

#[test]
fn with_flags_alone_an_entry_meets_the_namespace_that_they_say() {
    let entries: Entries<'_> =
        &[("default", "sloMultiplier: 3.0\n"), ("m", "model_id: org/m\nnamespace: prod\ntargetTTFT: 500.0\ntargetITL: 50.0\n")];
    let load_with = |target_namespace: Option<&str>| {
        let flags = Flags {
            metrics_urls: vec!["http://10.0.0.1:8000".to_owned()],
            model: Some("org/m".to_owned()),
            queueing_config: Some("map".into()),
            target_namespace: target_namespace.map(str::to_owned),
            ..Flags::default()
        };
        good(load_inputs(Inputs { flags, ..Inputs::default() }, entries))
    };
    let loaded = load_with(Some("prod"));
    assert_eq!((said(&loaded.config.models[0].policy).0, lines(&loaded.notes)), (Some((500.0, 50.0)), Vec::new()));
    assert_eq!(loaded.config.models[0].target_namespace, "prod");
    let loaded = load_with(None);
    assert_eq!(said(&loaded.config.models[0].policy).0, None);
    assert!(lines(&loaded.notes)[0].contains("its target_namespace is \"default\""), "{:?}", lines(&loaded.notes));
}

#[test]
fn that_steps_down_have_no_limit_is_told_once_for_all_models() {
    let two = format!(
        "{PLAIN}{}",
        PLAIN.lines().skip(2).map(|line| line.replace("org/m", "org/n").replace("m-agg", "n-agg") + "\n").collect::<String>()
    );
    let loaded = good(load(&two, &[("default", "")]));
    let told = lines(&loaded.warnings).into_iter().filter(|line| line.contains("no limit on steps down")).count();
    assert_eq!((loaded.config.models.len(), told), (2, 1));
}
