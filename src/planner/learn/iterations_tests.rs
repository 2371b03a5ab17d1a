//! Is the line that is learned the server's, whatever single samples say?

use serde_json::Value;

use super::*;
use crate::planner::tests::dynamo::SETTINGS;

const CASES: &str = include_str!("../../../tests/fixtures/goldens/dynamo-regression.json");

fn observed(prefill: f64, decoding: f64, kv: f64, ms: f64) -> Observed {
    Observed {
        work: Work { prefill: Tokens(prefill), decoding: Requests(decoding), kv: Tokens(kv) },
        prompts: Requests(if prefill > 0.0 { 1.0 } else { 0.0 }),
        time: (ms > 0.0).then_some(Seconds(ms / 1000.0)),
    }
}

/// 2 ms and 10 us a token.
fn prompt(tokens: f64) -> Observed {
    observed(tokens, 0.0, 0.0, 2.0 + 0.01 * tokens)
}

fn learned(role: Role, all: impl IntoIterator<Item = Observed>) -> Iterations {
    let mut iterations = Iterations::new(role);
    for one in all {
        iterations.learn(&one, &SETTINGS);
    }
    iterations
}

fn near(what: &str, ours: f64, expected: f64, share: f64) {
    assert!((ours - expected).abs() <= share * expected.abs(), "{what}: {ours}, expected {expected}");
}

/// Noise that is the same in every run: a multiplicative generator, between -1 and 1.
fn noise(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

#[test]
fn the_line_of_exact_samples_is_found() {
    let line = learned(Role::Prefill, [1000.0, 2000.0, 4000.0, 6000.0, 8000.0].map(prompt)).line(SETTINGS.least).unwrap().costs();
    near("c0", line.fixed.get(), 0.002, 1e-4);
    near("cp", line.prefill_token.get(), 10e-6, 1e-4);
    let loads = [(4.0, 4000.0), (16.0, 40_000.0), (32.0, 20_000.0), (64.0, 130_000.0), (100.0, 90_000.0)];
    let decode = loads.map(|(requests, kv)| observed(0.0, requests, kv, 5.0 + 0.05 * requests + 0.0001 * kv));
    let line = learned(Role::Decode, decode).line(SETTINGS.least).unwrap().costs();
    near("c0", line.fixed.get(), 0.005, 1e-3);
    near("cn", line.request.get(), 50e-6, 1e-3);
    near("ckv", line.kv_token.get(), 0.1e-6, 1e-3);
}

#[test]
fn prompts_that_are_alike_tell_what_such_prompts_take() {
    // 12 ms for prompts of about 1000 tokens, give or take as much as their lengths differ.
    let alike = [(990.0, 12.1), (1010.0, 11.9), (1000.0, 12.0), (995.0, 11.95), (1005.0, 12.05)];
    let samples = |role| learned(role, alike.map(|(tokens, ms)| observed(tokens, 0.0, 0.0, ms)));
    assert_eq!(samples(Role::Prefill).line(SETTINGS.least), Err(Unfit::NoSlope));
    let estimate = samples(Role::Prefill).estimate(SETTINGS.least).unwrap();
    let time = |tokens: f64| estimate.time(Work { prefill: Tokens(tokens), ..Work::default() }).get();
    near("such a prompt", time(1000.0), 0.012, 1e-9);
    near("one that is three times as long", time(3000.0), 0.036, 1e-9);
    assert_eq!(learned(Role::Prefill, [prompt(1000.0)]).estimate(SETTINGS.least), Err(Unfit::FewSamples));
    let all = [1000.0, 2000.0, 4000.0, 6000.0, 8000.0].map(prompt);
    let evident = learned(Role::Prefill, all);
    assert_eq!(evident.estimate(SETTINGS.least), evident.line(SETTINGS.least));
    let batches = learned(Role::Decode, [4.0; 6].map(|requests| observed(0.0, requests, 4000.0, 6.0)));
    assert_eq!(batches.estimate(SETTINGS.least), Err(Unfit::NoSlope), "a step is not in proportion to its batch");
}

#[test]
fn four_samples_are_no_line() {
    let mut iterations = learned(Role::Prefill, [1000.0, 2000.0, 4000.0, 6000.0].map(prompt));
    assert_eq!(iterations.line(SETTINGS.least), Err(Unfit::FewSamples));
    assert_eq!(iterations.learn(&prompt(8000.0), &SETTINGS), Taken::Accepted);
    assert!(iterations.line(SETTINGS.least).is_ok());
}

#[test]
fn samples_at_one_load_tell_no_cost() {
    let mut state = 7;
    let one_load = (0..40).map(|_| observed(0.0, 32.0, 40_000.0, 10.0 * (1.0 + 0.05 * noise(&mut state))));
    assert_eq!(learned(Role::Decode, one_load).line(SETTINGS.least), Err(Unfit::NoSlope));
    let same = (0..10).map(|_| observed(0.0, 32.0, 40_000.0, 10.0));
    assert_eq!(learned(Role::Decode, same).line(SETTINGS.least), Err(Unfit::NoSlope));
}

#[test]
fn prompts_that_were_never_seen_are_not_free() {
    let decoding = [4.0, 16.0, 32.0, 64.0, 100.0].map(|requests| observed(0.0, requests, 900.0 * requests, 5.0 + 0.1 * requests));
    assert!(learned(Role::Decode, decoding).line(SETTINGS.least).is_ok());
    assert_eq!(learned(Role::Aggregated, decoding).line(SETTINGS.least), Err(Unfit::NoSlope));
    let prompts = [500.0, 1000.0, 3000.0, 5000.0, 8000.0].map(|tokens| observed(tokens, 8.0, 8000.0, 5.0 + 0.01 * tokens));
    assert_eq!(
        learned(Role::Aggregated, prompts).line(SETTINGS.least),
        Err(Unfit::NoSlope),
        "always the same batch: nobody knows what a larger one costs"
    );
}

#[test]
fn an_iteration_that_is_slower_with_less_work_is_no_line() {
    let inverted = [1000.0, 2000.0, 4000.0, 6000.0, 8000.0].map(|tokens| observed(tokens, 0.0, 0.0, 200.0 - 0.01 * tokens));
    assert_eq!(learned(Role::Prefill, inverted).line(SETTINGS.least), Err(Unfit::NoSlope));
}

#[test]
fn a_nearly_flat_server_is_never_free_work() {
    // The original's worst case: two loads that hardly differ, and almost all time in the fixed cost or none of it.
    let flat =
        (0..20).map(|at| observed(0.0, 20.0 + f64::from(at % 3), 20_000.0 + f64::from(at % 3) * 1000.0, 10.0 + 0.001 * f64::from(at % 3)));
    let line = learned(Role::Decode, flat).line(SETTINGS.least).unwrap();
    assert!(line.time(Work::default()) >= Seconds(0.005), "{line:?}");
    assert!(line.time(Work { decoding: Requests(512.0), kv: Tokens(512_000.0), prefill: Tokens(0.0) }) > Seconds(0.01));
}

#[test]
fn collinear_work_shares_its_cost() {
    let collinear = [5.0, 20.0, 40.0, 60.0, 100.0].map(|requests| observed(0.0, requests, 1000.0 * requests, 5.0 + 0.2 * requests));
    let line = learned(Role::Decode, collinear).line(SETTINGS.least).unwrap();
    near("cn", line.costs().request.get(), 100e-6, 0.01);
    near("ckv", line.costs().kv_token.get(), 0.1e-6, 0.01);
    near("time", line.time(Work { prefill: Tokens(0.0), decoding: Requests(80.0), kv: Tokens(80_000.0) }).get(), 0.021, 1e-3);
}

#[test]
fn one_strange_sample_does_not_turn_the_line() {
    let mut iterations = learned(Role::Prefill, [1000.0, 2000.0, 4000.0, 6000.0, 8000.0].map(prompt));
    assert_eq!(iterations.learn(&observed(2000.0, 0.0, 0.0, 500.0), &SETTINGS), Taken::Rejected);
    assert_eq!(
        iterations.learn(&observed(2000.0, 0.0, 0.0, 60.0), &SETTINGS),
        Taken::Accepted,
        "2.7 times too slow: taken, and weighed down"
    );
    for tokens in [1500.0, 3000.0, 5000.0, 7000.0] {
        iterations.learn(&prompt(tokens), &SETTINGS);
    }
    near("cp", iterations.line(SETTINGS.least).unwrap().costs().prefill_token.get(), 10e-6, 0.03);
}

#[test]
fn a_cold_replica_among_the_first_samples_is_outlived() {
    let mut iterations = learned(Role::Prefill, [observed(1000.0, 0.0, 0.0, 900.0), observed(2000.0, 0.0, 0.0, 30.0)]);
    for tokens in [1000.0, 3000.0, 5000.0, 2000.0, 7000.0, 4000.0, 6000.0, 8000.0, 1500.0, 2500.0] {
        iterations.learn(&prompt(tokens), &SETTINGS);
    }
    near("cp", iterations.line(SETTINGS.least).unwrap().costs().prefill_token.get(), 10e-6, 0.1);
}

/// The original adds many decode replicas after every start: what it learns of cold ones makes the capacity of all collapse.
#[test]
fn capacity_does_not_collapse_by_what_cold_replicas_teach() {
    use crate::planner::model::capacity::{EngineLimits, Objectives, Prefer, Shape, capacity};
    let requests = Shape { input: Tokens(1000.0), output: Tokens(200.0), hit_rate: None, accept_length: None };
    let objectives = Objectives { itl: Some(Seconds(0.02)), ..Objectives::default() };
    let rate = |learned: &Iterations| {
        let found = capacity(
            Role::Decode,
            &learned.line(SETTINGS.least).unwrap(),
            &EngineLimits::or_assumed(None, None, None),
            &requests,
            &objectives,
            Prefer::Rate,
        );
        found.unwrap().rate.get()
    };
    let mut state = 5;
    let mut warm = || {
        let (requests, context) = (60.0 + 55.0 * noise(&mut state), 1000.0 + 400.0 * noise(&mut state));
        let ms = 5.0 + 0.02 * requests + 0.0001 * requests * context;
        observed(0.0, requests, requests * context, ms * (1.0 + 0.03 * noise(&mut state)))
    };
    let mut learned = learned(Role::Decode, (0..30).map(|_| warm()));
    let before = rate(&learned);
    for slower in [2.5, 40.0, 8.0, 2.0, 100.0, 5.0, 2.9] {
        let one = warm();
        learned.learn(&Observed { time: one.time.map(|time| Seconds(time.get() * slower)), ..one }, &SETTINGS);
        near("after a cold sample", rate(&learned), before, 0.05);
        learned.learn(&warm(), &SETTINGS);
    }
}

#[test]
fn a_server_that_changed_is_followed_after_three_samples() {
    let mut iterations = learned(Role::Prefill, [1000.0, 2000.0, 4000.0, 6000.0, 8000.0].map(prompt));
    let slow = |tokens: f64| observed(tokens, 0.0, 0.0, 8.0 + 0.04 * tokens);
    assert_eq!(iterations.learn(&slow(1000.0), &SETTINGS), Taken::Rejected);
    assert_eq!(iterations.learn(&prompt(3000.0), &SETTINGS), Taken::Accepted, "in between it is the old one: not in a row");
    assert_eq!(
        [1000.0, 4000.0, 6000.0].map(|tokens| iterations.learn(&slow(tokens), &SETTINGS)),
        [Taken::Rejected, Taken::Rejected, Taken::Restarted]
    );
    assert_eq!((iterations.samples(), iterations.line(SETTINGS.least)), (3, Err(Unfit::FewSamples)));
    assert_eq!([2000.0, 8000.0].map(|tokens| iterations.learn(&slow(tokens), &SETTINGS)), [Taken::Accepted; 2]);
    near("cp", iterations.line(SETTINGS.least).unwrap().costs().prefill_token.get(), 40e-6, 1e-3);
}

#[test]
fn an_hour_at_another_load_is_not_pushed_out_by_a_day_at_one() {
    let mut iterations = learned(Role::Prefill, [7000.0, 7500.0, 8000.0].map(prompt));
    let mut state = 3;
    for _ in 0..500 {
        iterations.learn(&prompt(500.0 + 20.0 * noise(&mut state)), &SETTINGS);
    }
    assert_eq!(iterations.samples(), 64);
    assert_eq!(iterations.samples.iter().filter(|sample| sample.work.prefill.get() > 6000.0).count(), 3);
    near("cp", iterations.line(SETTINGS.least).unwrap().costs().prefill_token.get(), 10e-6, 1e-3);
}

#[test]
fn the_line_depends_on_the_samples_and_not_on_their_order() {
    let mut state = 11;
    let mut all: Vec<Observed> = (0..50)
        .map(|_| {
            let (tokens, requests) = (2000.0 + 1900.0 * noise(&mut state), 50.0 + 45.0 * noise(&mut state));
            let kv = requests * (1000.0 + 600.0 * noise(&mut state));
            observed(tokens, requests, kv, (4.0 + 0.01 * tokens + 0.02 * requests + 0.0002 * kv) * (1.0 + 0.05 * noise(&mut state)))
        })
        .collect();
    let line = learned(Role::Aggregated, all.clone()).line(SETTINGS.least).unwrap().costs();
    near("cp", line.prefill_token.get(), 10e-6, 0.1);
    near("ckv", line.kv_token.get(), 0.2e-6, 0.15);
    all.reverse();
    let reversed = learned(Role::Aggregated, all).line(SETTINGS.least).unwrap().costs();
    near("cp", reversed.prefill_token.get(), line.prefill_token.get(), 1e-9);
    near("c0", reversed.fixed.get(), line.fixed.get(), 1e-9);
}

#[test]
fn averages_skip_the_time_before_the_first_request() {
    let kv = |requests: f64, kv: f64| observed(0.0, requests, kv, 0.0);
    let iterations = learned(Role::Decode, [kv(0.0, 0.0), kv(2.0, 200.0), kv(1.0, 200.0), kv(1.0, 300.0)]);
    assert_eq!((iterations.context(), iterations.input(), iterations.prefill()), (Some(Tokens(200.0)), None, None));
    let iterations = learned(Role::Prefill, [observed(0.0, 0.0, 0.0, 0.0), observed(900.0, 0.0, 0.0, 0.0), observed(0.0, 0.0, 0.0, 0.0)]);
    assert_eq!((iterations.input(), iterations.prefill()), (Some(Tokens(450.0)), Some(Tokens(450.0))));
    assert_eq!(iterations.samples(), 0);
}

#[test]
fn what_is_no_number_teaches_nothing() {
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        let mut iterations = Iterations::new(Role::Aggregated);
        assert_eq!(iterations.learn(&observed(bad, 5.0, 100.0, 10.0), &SETTINGS), Taken::Averaged);
        assert_eq!((iterations.samples(), iterations.input()), (0, None), "{bad}");
    }
}

#[test]
fn what_was_learned_survives_being_stored() {
    let iterations = learned(Role::Prefill, [1000.0, 2000.0, 4000.0, 6000.0, 8000.0].map(prompt));
    let stored: Iterations = serde_json::from_str(&serde_json::to_string(&iterations).unwrap()).unwrap();
    assert_eq!(stored, iterations);
}

fn golden(case: &Value) -> Iterations {
    let role = match case["kind"].as_str().unwrap() {
        "prefill" => Role::Prefill,
        "decode" => Role::Decode,
        _ => Role::Aggregated,
    };
    let of = |sample: &Value, key: &str| sample[key].as_f64().unwrap();
    let samples = case["samples"].as_array().unwrap().iter().map(|sample| Observed {
        prompts: Requests(of(sample, "snp")),
        ..observed(of(sample, "sp"), of(sample, "sn"), of(sample, "skv"), of(sample, "wall_ms"))
    });
    learned(role, samples)
}

/// The original's averages, where it keeps as many values as we do.
#[test]
fn golden_averages_agree() {
    let goldens: Value = serde_json::from_str(CASES).unwrap();
    let mut checked = 0;
    for case in goldens["cases"].as_array().unwrap().iter().filter(|case| case["max_num_fpm_samples"] == 64) {
        let (iterations, out) = (golden(case), &case["out_python"]);
        let averages =
            [("avg_isl", iterations.input()), ("avg_decode_length", iterations.context()), ("avg_prefill_tokens", iterations.prefill())];
        for (key, ours) in averages {
            if let Some(expected) = out[key].as_f64() {
                near(&format!("{}: {key}", case["id"]), ours.unwrap().get(), expected, 1e-9);
                checked += 1;
            }
        }
    }
    assert!(checked > 10);
}

/// Servers whose iterations are linear: the line is within 20 % of the truth, and of the original's plain regression, at loads between the samples.
#[test]
fn golden_linear_servers_are_predicted() {
    let goldens: Value = serde_json::from_str(CASES).unwrap();
    let linear = |case: &&Value| case["style"] == "linear" && case["samples"].as_array().unwrap().len() > SETTINGS.least;
    let mut checked = 0;
    for case in goldens["cases"].as_array().unwrap().iter().filter(linear) {
        let line = golden(case).line(SETTINGS.least).unwrap_or_else(|why| panic!("{}: {why:?}", case["id"]));
        let truth = |work: Work| {
            let cost = |key: &str| case["true_model_ms"][key].as_f64().unwrap() / 1000.0;
            cost("c0") + cost("cp") * work.prefill.get() + cost("cn") * work.decoding.get() + cost("ckv") * work.kv.get()
        };
        for load in [0.3, 0.5, 0.7] {
            let work = match case["kind"].as_str().unwrap() {
                "prefill" => Work { prefill: Tokens(8000.0 * load), ..Work::default() },
                "decode" => Work { decoding: Requests(120.0 * load), kv: Tokens(300_000.0 * load), prefill: Tokens(0.0) },
                _ => Work { prefill: Tokens(4000.0 * load), decoding: Requests(100.0 * load), kv: Tokens(250_000.0 * load) },
            };
            near(&format!("{} at {load}", case["id"]), line.time(work).get(), truth(work), 0.2);
            checked += 1;
        }
    }
    assert!(checked >= 15, "{checked}");
}

#[test]
fn golden_servers_that_are_slower_with_less_work_have_no_line() {
    let goldens: Value = serde_json::from_str(CASES).unwrap();
    for case in goldens["cases"].as_array().unwrap().iter().filter(|case| case["style"] == "inverted" && case["kind"] == "prefill") {
        assert!(golden(case).line(SETTINGS.least).is_err(), "{}", case["id"]);
    }
}
