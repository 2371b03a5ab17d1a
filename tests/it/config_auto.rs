//! When does preset auto plan a model, which keys does it take, and do they read back?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use inference_planner_exporter::config::{self, Flags, Inputs, Loaded, Problem, SourceText};
use inference_planner_exporter::planner::policy::{
    AutoPolicy, CapacityModel, ChangeRule, GrowthRule, ModelPolicy, Preset, RegressionPolicy, ReplicasFrom,
};
use inference_planner_exporter::units::Ratio;

const PROFILE: &str = include_str!("../fixtures/config/profile.json");

fn load_inputs(inputs: Inputs) -> Result<Loaded, Vec<Problem>> {
    config::read(inputs).finish(&BTreeMap::from([(PathBuf::from("profile.json"), Ok(PROFILE.to_owned()))]))
}

fn load(text: &str) -> Result<Loaded, Vec<Problem>> {
    load_inputs(Inputs { file: Some(SourceText { path: "c.yaml".into(), text: text.to_owned() }), ..Inputs::default() })
}

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn good(result: Result<Loaded, Vec<Problem>>) -> Loaded {
    result.unwrap_or_else(|problems| panic!("{:#?}", lines(&problems)))
}

fn problems(text: &str) -> Vec<String> {
    lines(&load(text).expect_err("there are problems"))
}

/// A model with a pair of pools.
fn pair(slo: &str, planner: &str) -> String {
    format!(
        "models:
  - name: m
    slo: {slo}
    planner: {planner}
    traffic: {{ targets: {{ static: ['http://h:1'] }} }}
    pools:
      - {{ name: p, role: prefill, max_replicas: 4, targets: {{ static: ['http://p:1'] }} }}
      - {{ name: d, role: decode, max_replicas: 4, targets: {{ static: ['http://d:1'] }} }}
"
    )
}

fn policy(loaded: &Loaded) -> &ModelPolicy {
    &loaded.config.models[0].policy
}

fn preset(slo: &str, planner: &str) -> Preset {
    policy(&good(load(&pair(slo, planner)))).preset
}

#[test]
fn an_objective_asks_for_preset_auto_and_a_written_preset_is_taken() {
    assert_eq!(preset("{ ttft: 1s }", "{}"), Preset::Auto);
    assert_eq!(preset("{ itl: 30ms }", "{ profile: profile.json }"), Preset::Auto);
    assert_eq!(preset("{}", "{ profile: profile.json }"), Preset::Infera);
    assert_eq!(preset("{}", "{}"), Preset::Dynamo);
    assert_eq!(preset("{ ttft: 1s }", "{ preset: infera, profile: profile.json }"), Preset::Infera);
    assert_eq!(preset("{ ttft: 1s }", "{ preset: dynamo }"), Preset::Dynamo);
    assert_eq!(preset("{ attainment: 0.95 }", "{ preset: auto }"), Preset::Auto);
}

#[test]
fn flags_with_profile_results_keep_to_preset_infera() {
    let flags = |profile: Option<&str>| Flags {
        metrics_urls: vec!["http://10.0.0.1:8000".to_owned()],
        profile_results: profile.map(PathBuf::from),
        ttft: Some(Duration::from_secs(1)),
        ..Flags::default()
    };
    let of = |profile| policy(&good(load_inputs(Inputs { flags: flags(profile), ..Inputs::default() }))).preset;
    assert_eq!((of(Some("profile.json")), of(None)), (Preset::Infera, Preset::Auto));
}

#[test]
fn the_defaults_are_those_of_the_plan() {
    let loaded = good(load(&pair("{ ttft: 1s, itl: 40ms }", "{}")));
    let policy = policy(&loaded);
    assert_eq!(policy.auto, Some(AutoPolicy { attainment: Ratio(0.99), delay: Duration::from_secs(120) }));
    assert_eq!((policy.interval, policy.hold_for), (policy.scrape_interval, Duration::from_secs(600)));
    assert_eq!(policy.regression, Some(RegressionPolicy { samples: 64, buckets_a_side: 4, least: 5, drafted: 0 }));
    assert!(matches!(policy.growth, GrowthRule::Confirm(times) if times.get() == 4));
    assert_eq!((policy.capacity.clone(), policy.load, policy.step_down), (CapacityModel::Iterations, None, None));
    assert_eq!(policy.traffic_change, ChangeRule::Tolerate);
    assert!(policy.pools.iter().all(|pool| pool.replicas_from == ReplicasFrom::Targets || pool.replicas_from == ReplicasFrom::Observed));
    let interval = lines(&loaded.warnings).into_iter().find(|warning| warning.contains("a quarter"));
    assert_eq!(interval, None, "its slices are single scrapes");
}

#[test]
fn every_key_of_the_preset_is_taken_and_reads_back() {
    let keys = "{ preset: auto, profile: profile.json, scale_down_delay: 5m, growth: 3, load_samples: 128, load_sample_buckets: 9, \
                load_min_observations: 8, speculative_nextn: 3, adjustment_interval: 10s }";
    for (slo, shown) in [
        ("{ ttft: 700ms, itl: 35ms, attainment: 0.95 }", "slo: { ttft: 700ms, itl: 35ms, attainment: 0.95 }\n"),
        ("{ ttft: 700ms }", "slo: { ttft: 700ms, itl: 50ms, attainment: 0.99 }\n"),
        ("{ attainment: 0.9 }", "slo: { attainment: 0.9 }  # ttft: 500ms, itl: 50ms, not written; taken from preset auto\n"),
        ("{}", "slo: { attainment: 0.99 }"),
    ] {
        let first = good(load(&pair(slo, keys)));
        let found = policy(&first);
        assert_eq!(found.auto.map(|auto| auto.delay), Some(Duration::from_secs(300)));
        assert_eq!(found.regression, Some(RegressionPolicy { samples: 128, buckets_a_side: 3, least: 8, drafted: 3 }));
        assert!(first.effective.contains(shown), "{}", first.effective);
        assert!(first.effective.contains("scale_down_delay: 5m\n") && !first.effective.contains("load_scaling"), "{}", first.effective);
        let again = good(load(&first.effective));
        assert_eq!(policy(&again), found, "{}", first.effective);
        assert_eq!(again.effective, first.effective);
    }
}

#[test]
fn a_share_is_from_a_half_to_below_one_and_belongs_to_preset_auto() {
    for share in ["1", "0.49", "0"] {
        let found = problems(&pair(&format!("{{ ttft: 1s, attainment: {share} }}"), "{}"));
        assert_eq!(
            found,
            [format!("c.yaml:3:34: models[0].slo.attainment: expected a share of requests from 0.5 to below 1, such as 0.99, got {share}")]
        );
    }
    assert_eq!(problems(&pair("{ ttft: 1s, attainment: 1.5 }", "{}")).len(), 1);
    assert_eq!(
        problems(&pair("{ ttft: 1s, attainment: 0.99 }", "{ preset: dynamo }")),
        ["c.yaml:3:34: models[0].slo.attainment: belongs to preset auto, which plans for a share of the requests; leave it out"]
    );
}

#[test]
fn another_statistic_than_the_share_is_refused() {
    assert_eq!(
        problems(&pair("{ ttft: 1s, statistic: p99 }", "{}")),
        ["c.yaml:3:33: models[0].slo.statistic: preset auto judges each request, by slo.attainment; leave it out, got p99"]
    );
}

#[test]
fn keys_of_other_presets_are_refused() {
    for (key, told) in [
        ("correction: true", "preset auto corrects a profile by what it learns of the servers; leave it out"),
        ("predictor: arima", "preset auto forecasts from the slices of its own last minutes; leave it out"),
        ("kalman_r: 5", "preset auto forecasts from the slices of its own last minutes; leave it out"),
        ("target: sla", "belongs to preset dynamo; leave it out"),
        ("load_scaling: true", "belongs to preset dynamo with target sla; leave it out"),
        ("scale_down_sensitivity: 80", "belongs to preset dynamo with target sla; leave it out"),
        ("scale_down_step: 1", "belongs to preset dynamo; leave it out"),
        ("max_throughput_scaling_replicas: 8", "belongs to preset dynamo; leave it out"),
        ("transition_timeout: 10m", "belongs to preset dynamo; leave it out"),
        ("slo_multiplier: 3", "belongs to preset wva; leave it out"),
        ("learned_for: 1h", "belongs to preset wva; leave it out"),
    ] {
        let found = problems(&pair("{ ttft: 1s }", &format!("{{ {key} }}")));
        let name = key.split(':').next().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("c.yaml:4:") && found[0].ends_with(&format!(": models[0].planner.{name}: {told}")), "{found:?}");
    }
}

#[test]
fn aggregated_pools_take_no_profile_and_stand_alone() {
    let text = |planner: &str, more: &str| {
        format!(
            "models:\n  - name: m\n    slo: {{ ttft: 1s }}\n    planner: {planner}\n    pools:\n      - {{ name: a, role: aggregated, max_replicas: 4, targets: {{ static: ['http://a:1'] }} }}\n{more}"
        )
    };
    assert_eq!(policy(&good(load(&text("{}", "")))).preset, Preset::Auto);
    assert_eq!(
        problems(&text("{ profile: profile.json }", "")),
        [
            "c.yaml:4:25: models[0].planner.profile: a profile says nothing of aggregated replicas; leave it out: preset auto learns what they can do"
        ]
    );
    let beside = "      - { name: d, role: decode, max_replicas: 4, targets: { static: ['http://d:1'] } }\n";
    let found = problems(&text("{}", beside));
    assert!(
        found.len() == 1 && found[0].contains("preset auto takes one pool of role aggregated, or at most one of role prefill"),
        "{found:?}"
    );
}
