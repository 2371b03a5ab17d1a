//! Does the slow loop decide as the original does, from its windows and its model?

use serde_json::Value;

use super::*;
use crate::planner::model::capacity::{self, EngineLimits, Objectives, Prefer, Shape};
use crate::planner::tests::dynamo::{line, whole};
use crate::units::{Ratio, Role, Seconds, Tokens};

const CASES: &str = include_str!("../../../tests/fixtures/goldens/dynamo-capacity.json");

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap_or_else(|| panic!("a number in {of}"))
}

fn pool_of(case: &Value, role: Role) -> Pool {
    let (config, window) = (&case["config"], &case["window"]);
    // An aggregated pool is kept on the decode side.
    let (model, side) = match role {
        Role::Prefill => ("prefill", "prefill"),
        Role::Decode => ("decode", "decode"),
        Role::Aggregated => ("agg", "decode"),
    };
    let missing = case["prefill_or_agg_model_missing"] == true && role != Role::Decode;
    let milliseconds = |key: &str| Some(Seconds(number(&config[key]) / 1000.0));
    let objectives = Objectives {
        ttft: if role == Role::Decode { None } else { milliseconds("ttft_ms") },
        itl: if role == Role::Prefill { None } else { milliseconds("itl_ms") },
        duration: None,
    };
    let ratio = |key: &str| window[key].as_f64().map(Ratio);
    let shape = Shape {
        input: Tokens(number(&window["isl"])),
        output: Tokens(number(&window["osl"])),
        hit_rate: ratio("kv_hit_rate"),
        accept_length: capacity::accept_length(ratio("accept_length"), whole(&config["speculative_nextn"]).unwrap()),
    };
    let limit = |key: &str| whole(&case["limits"][key]).and_then(NonZeroU32::new);
    let limits = EngineLimits::or_assumed(limit("max_num_batched_tokens"), limit("max_num_seqs"), limit("max_kv_tokens"));
    let found = (!missing).then(|| capacity::capacity(role, &line(&case["model_ms"][model]), &limits, &shape, &objectives, Prefer::Rate));
    let found = found.flatten().map(|found| found.rate);
    if let (Some(found), Some(golden)) = (found, case["out"][format!("engine_rps_{side}")].as_f64()) {
        assert!((found.get() - golden).abs() <= 1e-9 * golden, "{}: {found:?}, expected {golden}", case["id"]);
    }
    Pool {
        current: Replicas(whole(&case["workers"][format!("ready_{side}")]).unwrap()),
        capacity: found,
        floor: Replicas(whole(&config["min_endpoint"]).unwrap()),
        gpus: whole(&case["gpus"][side]).and_then(NonZeroU32::new).unwrap(),
    }
}

fn rules_of(case: &Value) -> Rules {
    let config = &case["config"];
    Rules {
        largest_change: Replicas(whole(&config["max_throughput_scaling_replicas"]).unwrap()),
        band: GpuBand { min: whole(&config["min_gpu_budget"]), max: whole(&config["max_gpu_budget"]) },
        bounds_fast_loop: config["enable_load_scaling"] == true,
    }
}

/// The original's reason for a model, from ours for its pools.
fn reason(pools: &[Pool], decided: &[Decided]) -> &'static str {
    let any = |cause| decided.iter().any(|decided| decided.cause == cause);
    let moved = decided.iter().zip(pools).any(|(decided, pool)| decided.replicas != pool.current);
    match () {
        () if any(Cause::ModelUnknown) => "model_not_ready",
        () if any(Cause::LowerBound) => "set_lower_bound",
        () if any(Cause::BudgetHold) => "gpu_budget_guard_hold",
        () if moved => "scale",
        () => "no_change",
    }
}

#[test]
fn every_golden_decision_agrees() {
    let goldens: Value = serde_json::from_str(CASES).unwrap();
    let cases = goldens["replicas"].as_array().unwrap();
    assert_eq!(cases.len(), 25);
    for case in cases {
        let (id, rules, out) = (&case["id"], rules_of(case), &case["out"]);
        let demand = RequestsPerSecond(number(&case["window"]["num_req"]) / number(&case["window"]["duration_s"]));
        let (roles, sides): (&[Role], &[&str]) = match case["config"]["mode"].as_str().unwrap() {
            "disagg" => (&[Role::Prefill, Role::Decode], &["prefill", "decode"]),
            "prefill" => (&[Role::Prefill], &["prefill"]),
            "decode" => (&[Role::Decode], &["decode"]),
            "agg" => (&[Role::Aggregated], &["decode"]),
            other => panic!("{other}"),
        };
        let pools: Vec<Pool> = roles.iter().map(|role| pool_of(case, *role)).collect();
        let decided = match pools[..] {
            [pool] => vec![decide(demand, pool, &rules)],
            [prefill, decode] => decide_pair(demand, [prefill, decode], &rules).to_vec(),
            _ => panic!("{id}"),
        };
        assert_eq!(Some(reason(&pools, &decided)), out["reason"].as_str(), "{id}: {decided:?}");
        for ((side, pool), decided) in sides.iter().zip(&pools).zip(&decided) {
            let (count, bound) = (whole(&out["decision"][format!("num_{side}")]), whole(&out[format!("lower_bound_{side}")]));
            let expected = if rules.bounds_fast_loop { bound.unwrap() } else { count.unwrap_or(pool.current.0) };
            assert_eq!(decided.replicas.0, expected, "{id}: {side}");
            if out[format!("reason_{side}")] == "partner_not_ready" {
                assert_eq!(decided.cause, Cause::PartnerUnknown, "{id}: {side}");
            }
        }
    }
}

fn pool(current: u32, capacity: Option<f64>) -> Pool {
    Pool { current: Replicas(current), capacity: capacity.map(RequestsPerSecond), floor: Replicas(1), gpus: NonZeroU32::MIN }
}

fn rules(bounds_fast_loop: bool) -> Rules {
    Rules { largest_change: Replicas(8), band: GpuBand::default(), bounds_fast_loop }
}

#[test]
fn the_demand_over_the_capacity_is_rounded_up_within_the_largest_change() {
    let of = |requests: f64, current| decide(RequestsPerSecond(requests / 180.0), pool(current, Some(15.5622)), &rules(false)).replicas.0;
    assert_eq!([of(300.0, 1), of(5000.0, 1), of(56_000.0, 4), of(0.0, 3), of(1.0, 10)], [1, 2, 12, 1, 2]);
}

#[test]
fn an_unknown_capacity_keeps_the_count() {
    for capacity in [None, Some(0.0), Some(f64::NAN)] {
        let decided = decide(RequestsPerSecond(99.0), pool(3, capacity), &rules(false));
        assert_eq!(decided, Decided { replicas: Replicas(3), cause: Cause::ModelUnknown });
    }
    let [prefill, decode] = decide_pair(RequestsPerSecond(99.0), [pool(3, Some(1.0)), pool(2, None)], &rules(true));
    assert_eq!(prefill, Decided { replicas: Replicas(3), cause: Cause::PartnerUnknown });
    assert_eq!(decode, Decided { replicas: Replicas(2), cause: Cause::ModelUnknown });
}

#[test]
fn a_lower_bound_knows_the_ceiling_and_not_the_minimum() {
    let rules = Rules { band: GpuBand { min: Some(4), max: Some(6) }, ..rules(true) };
    assert_eq!(decide(RequestsPerSecond(0.0), pool(5, Some(1.0)), &rules), Decided { replicas: Replicas(1), cause: Cause::LowerBound });
    assert_eq!(decide(RequestsPerSecond(9.0), pool(5, Some(1.0)), &rules).replicas.0, 6);
}
