//! Does the search give the original's capacities, and what planners need where it has none?

use serde_json::Value;

use super::*;
use crate::planner::model::iteration::Costs;
use crate::planner::tests::dynamo::line;
use crate::units::SecondsPerToken;

const CASES: &str = include_str!("../../../tests/fixtures/goldens/dynamo-capacity.json");

fn limits(of: &Value) -> EngineLimits {
    let limit = |key: &str| of[key].as_u64().and_then(|count| NonZeroU32::new(u32::try_from(count).ok()?));
    EngineLimits::or_assumed(limit("max_num_batched_tokens"), limit("max_num_seqs"), limit("max_kv_tokens"))
}

fn role(of: &Value) -> Role {
    Role::ALL.into_iter().find(|role| of["worker_type"] == role.as_str()).unwrap()
}

/// "nan" stands for what is no number.
fn ratio(of: &Value) -> Option<Ratio> {
    if of == "nan" { Some(Ratio(f64::NAN)) } else { of.as_f64().map(Ratio) }
}

fn shape(query: &Value) -> Shape {
    Shape {
        input: Tokens(query["isl"].as_f64().unwrap()),
        output: Tokens(query["osl"].as_f64().unwrap()),
        hit_rate: ratio(&query["kv_hit_rate"]),
        accept_length: ratio(&query["accept_length"]),
    }
}

fn check(case: &Value, ours: Option<Capacity>, expected: &Value, latencies: [&str; 3], scale: f64) {
    let id = &case["id"];
    let Some(ours) = ours else { return assert!(expected.is_null(), "{id}: none, expected {expected}") };
    let close = |what: &str, ours: Option<f64>| match (ours, expected[what].as_f64()) {
        (Some(ours), Some(golden)) => assert!((ours - golden).abs() <= 1e-9 * golden.abs(), "{id}: {what} is {ours}, expected {golden}"),
        (ours, golden) => assert_eq!(ours, golden, "{id}: {what}"),
    };
    close("rps", Some(ours.rate.get()));
    for (key, latency) in latencies.into_iter().zip([ours.ttft, ours.itl, ours.duration]) {
        close(key, latency.map(|latency| latency.get() * scale));
    }
    assert_eq!(Some(ours.eligible), expected["eligible"].as_bool(), "{id}");
    if let Some(batch) = expected["derived_batch"].as_f64() {
        assert!((f64::from(ours.batch) - batch).abs() < 1e-6, "{id}: batch {}, expected {batch}", ours.batch);
    }
}

#[test]
fn every_golden_capacity_agrees() {
    let goldens: Value = serde_json::from_str(CASES).unwrap();
    let cases = goldens["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 40);
    for case in cases {
        let milliseconds = |key: &str| case["query"][key].as_f64().map(|ms| Seconds(ms / 1000.0));
        let objectives =
            Objectives { ttft: milliseconds("ttft_sla_ms"), itl: milliseconds("itl_sla_ms"), duration: milliseconds("e2e_latency_sla_ms") };
        let iteration = line(&case["model_ms"]);
        let ours = capacity(role(case), &iteration, &limits(&case["limits"]), &shape(&case["query"]), &objectives, Prefer::Rate);
        check(case, ours, &case["out"], ["ttft_ms", "itl_ms", "e2e_latency_ms"], 1000.0);
    }
}

/// Several ranks of data parallel attention are not modelled: those cases are left out.
#[test]
fn every_golden_query_for_the_least_latency_agrees() {
    let goldens: Value = serde_json::from_str(CASES).unwrap();
    let one_rank = |case: &&Value| case["attention_dp_size"] == 1;
    let cases: Vec<&Value> = goldens["direct"].as_array().unwrap().iter().filter(one_rank).collect();
    assert!(!cases.is_empty());
    for case in cases {
        let query = &case["request"];
        let seconds = |key: &str| query[key].as_f64().map(Seconds);
        let objectives = Objectives { ttft: seconds("ttft_sla_s"), itl: seconds("itl_sla_s"), duration: seconds("e2e_latency_sla_s") };
        let prefer = if query["optimization_target"] == "latency" { Prefer::Latency } else { Prefer::Rate };
        let ours = capacity(role(case), &line(&case["model_ms"]), &limits(&case["limits"]), &shape(query), &objectives, prefer);
        check(case, ours, &case["out"], ["ttft_s", "itl_s", "e2e_latency_s"], 1.0);
    }
}

#[test]
fn the_golden_batch_sizes_are_tried() {
    let goldens: Value = serde_json::from_str(CASES).unwrap();
    for case in goldens["batch_grid"].as_array().unwrap() {
        let largest = u32::try_from(case["max_batch"].as_u64().unwrap()).unwrap();
        let expected: Vec<u32> = serde_json::from_value(case["out"].clone()).unwrap();
        assert_eq!(candidates(largest).collect::<Vec<_>>(), expected, "{largest}");
    }
    let huge: Vec<u32> = candidates(u32::MAX).collect();
    assert_eq!((huge.len(), huge[0], huge[127]), (128, 1, u32::MAX));
    assert!(huge.windows(2).all(|pair| pair[0] < pair[1]));
}

fn costs(fixed_ms: f64, prefill_us: f64, request_us: f64, kv_us: f64) -> Iteration {
    let costs = Costs {
        fixed: Seconds(fixed_ms * 1e-3),
        prefill_token: SecondsPerToken(prefill_us * 1e-6),
        request: Seconds(request_us * 1e-6),
        kv_token: SecondsPerToken(kv_us * 1e-6),
        least: Seconds(0.0),
    };
    Iteration::new(costs).unwrap()
}

fn requests(input: f64, output: f64) -> Shape {
    Shape { input: Tokens(input), output: Tokens(output), hit_rate: None, accept_length: None }
}

fn held(batched: u32, sequences: u32, kv: u32) -> EngineLimits {
    EngineLimits::or_assumed(NonZeroU32::new(batched), NonZeroU32::new(sequences), NonZeroU32::new(kv))
}

fn answer(found: Option<Capacity>) -> (u32, f64, bool) {
    let found = found.unwrap();
    (found.batch, (found.rate.get() * 1e4).round() / 1e4, found.eligible)
}

#[test]
fn a_prefill_replica_batches_prompts_as_long_as_they_are_fast_enough() {
    let iteration = costs(2.0, 10.0, 0.0, 0.0);
    let of = |input, ttft: f64, hit| {
        let objectives = Objectives { ttft: Some(Seconds(ttft)), ..Objectives::default() };
        let shape = Shape { hit_rate: Some(Ratio(hit)), ..requests(input, 1.0) };
        answer(capacity(Role::Prefill, &iteration, &held(8192, 512, 2_000_000), &shape, &objectives, Prefer::Rate))
    };
    assert_eq!(of(1000.0, 0.05, 0.0), (4, 95.2381, true));
    assert_eq!(of(1000.0, 0.5, 0.0), (8, 97.561, true));
    assert_eq!(of(1000.0, 0.01, 0.0), (8, 97.561, false), "out of reach: the highest rate of all");
    assert_eq!(of(1000.0, 0.05, 0.5), (9, 191.4894, true));
    assert_eq!(of(10_000.0, 0.5, 0.0), (1, 9.6154, true), "two chunks");
}

#[test]
fn a_decode_replica_is_bounded_by_its_objective_or_its_memory() {
    let iteration = costs(5.0, 0.0, 50.0, 0.1);
    let of = |itl: f64, accepted, kv| {
        let objectives = Objectives { itl: Some(Seconds(itl)), ..Objectives::default() };
        let shape = Shape { accept_length: Some(Ratio(accepted)), ..requests(1000.0, 200.0) };
        capacity(Role::Decode, &iteration, &held(8192, 512, kv), &shape, &objectives, Prefer::Rate)
    };
    assert_eq!(answer(of(0.01, 1.0, 100_000)), (31, 15.5622, true));
    assert_eq!(answer(of(0.01, 2.0, 100_000)), (90, 46.3918, true));
    assert_eq!(answer(of(0.003, 1.0, 100_000)), (90, 23.1959, false));
    assert_eq!(of(0.01, 1.0, 1000), None, "not one request fits");
}

#[test]
fn an_aggregated_replica_meets_both_objectives() {
    let iteration = costs(2.0, 10.0, 20.0, 0.1);
    let of = |itl: f64, hit| {
        let objectives = Objectives { ttft: Some(Seconds(0.2)), itl: Some(Seconds(itl)), duration: None };
        let shape = Shape { hit_rate: Some(Ratio(hit)), ..requests(1000.0, 100.0) };
        capacity(Role::Aggregated, &iteration, &held(2048, 64, 200_000), &shape, &objectives, Prefer::Rate)
    };
    assert_eq!(answer(of(0.02, 0.0)), (64, 39.0244, true));
    assert_eq!(answer(of(0.02, 0.5)), (64, 48.4848, true));
    assert_eq!(answer(of(0.005, 0.0)), (13, 26.3959, true));
}

#[test]
fn unknown_lengths_have_no_capacity() {
    let iteration = costs(2.0, 10.0, 20.0, 0.1);
    for role in Role::ALL {
        for (input, output) in [(0.0, 100.0), (f64::NAN, 100.0), (-1.0, 100.0), (f64::INFINITY, 100.0)] {
            let found =
                capacity(role, &iteration, &held(2048, 64, 200_000), &requests(input, output), &Objectives::default(), Prefer::Rate);
            assert_eq!(found, None, "{role} {input} {output}");
        }
        let found = capacity(role, &iteration, &held(2048, 64, 200_000), &requests(100.0, 0.0), &Objectives::default(), Prefer::Rate);
        assert_eq!(found.is_some(), role == Role::Prefill, "{role}");
    }
}

#[test]
fn a_role_without_a_latency_cannot_meet_it() {
    let both = Objectives { ttft: Some(Seconds(9.0)), itl: Some(Seconds(9.0)), duration: None };
    for role in [Role::Prefill, Role::Decode] {
        let found = capacity(role, &costs(2.0, 10.0, 20.0, 0.1), &held(2048, 64, 200_000), &requests(100.0, 10.0), &both, Prefer::Rate);
        assert!(!found.unwrap().eligible, "{role}");
    }
}

#[test]
fn what_a_step_accepts_lies_between_one_and_all_drafts() {
    for (seen, drafted, expected) in
        [(5.2, 3, Some(4.0)), (0.5, 3, Some(1.0)), (f64::NAN, 3, None), (5.2, 0, Some(1.0)), (2.5, 3, Some(2.5))]
    {
        assert_eq!(accept_length(Some(Ratio(seen)), drafted).map(Ratio::get), expected, "{seen} of {drafted}");
    }
    assert_eq!(accept_length(None, 3), None);
}

#[test]
fn a_cache_is_trusted_for_at_most_nineteen_twentieths() {
    for (seen, expected) in
        [(None, 0.0), (Some(f64::NAN), 0.0), (Some(f64::INFINITY), 0.0), (Some(-0.2), 0.0), (Some(0.4), 0.4), (Some(1.5), 0.95)]
    {
        assert_eq!(trusted_hit_rate(seen.map(Ratio)).get(), expected, "{seen:?}");
    }
}
