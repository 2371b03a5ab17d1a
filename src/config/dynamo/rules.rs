//! Do the fields agree? Dynamo's own rules across fields, and the two that a budget needs to mean anything.

use super::read::Fields;
use super::roles::{self, DECODE, PREFILL, Side};
use crate::config::scalar;
use crate::config::tree::Value;

/// Intervals are compared to this share, as Dynamo does.
const TOLERANCE: f64 = 1e-9;

/// Adds a problem for every rule that is broken. A rule whose fields have problems of their own is silent.
pub(super) fn check(fields: &mut Fields) {
    floors_fit_the_mode(fields);
    samples_are_enough(fields);
    power_is_bounded(fields);
    delegation_has_a_goal(fields);
    thresholds_are_there(fields);
    something_scales(fields);
    intervals_fit(fields);
    performance_model_fits(fields);
    budget_holds_the_floors(fields);
    prometheus_can_be_asked(fields);
}

fn floors_fit_the_mode(fields: &mut Fields) {
    if !fields.are_right(&["mode"]) {
        return;
    }
    let mode = roles::mode(fields);
    for side in [PREFILL, DECODE] {
        let allowed = if mode.aggregated { false } else { mode.has(side) };
        if fields.whole(side.floor).is_some() && !allowed {
            let name = mode.name;
            fields.problem(side.floor, format!("not with mode {name}; write min_endpoint"));
        }
    }
}

fn samples_are_enough(fields: &mut Fields) {
    if let (Some(kept), Some(least)) = (fields.whole("max_num_fpm_samples"), fields.whole("load_min_observations"))
        && least > kept
    {
        fields.problem("load_min_observations", format!("expected at most max_num_fpm_samples ({kept}), got {least}"));
    }
    if let Some(buckets) = fields.whole("fpm_sample_bucket_size")
        && buckets.isqrt().pow(2) != buckets
    {
        fields.problem("fpm_sample_bucket_size", format!("expected the square of a whole number, got {buckets}"));
    }
}

fn power_is_bounded(fields: &mut Fields) {
    const SWITCH: &str = "enable_power_awareness";
    if !fields.switch(SWITCH) {
        return;
    }
    if fields.whole("total_gpu_power_limit").is_none() && fields.are_right(&["total_gpu_power_limit"]) {
        fields.problem(SWITCH, "needs total_gpu_power_limit");
    }
    if fields.text("environment") != Some("kubernetes") && fields.are_right(&["environment"]) {
        fields.problem(SWITCH, "needs environment kubernetes");
    }
    if fields.text("mode") == Some("agg") {
        fields.problem(SWITCH, "not with mode agg");
    }
}

fn delegation_has_a_goal(fields: &mut Fields) {
    let goal = fields.text("global_planner_namespace").is_some_and(|name| !name.is_empty());
    if fields.text("environment") == Some("global-planner") && !goal && fields.are_right(&["global_planner_namespace"]) {
        fields.problem("environment", "global-planner needs global_planner_namespace");
    }
}

fn thresholds_are_there(fields: &mut Fields) {
    if fields.text("optimization_target") != Some("load") || !fields.are_right(&["mode"]) {
        return;
    }
    let mode = roles::mode(fields);
    for side in [PREFILL, DECODE].into_iter().filter(|side| mode.has(*side)) {
        let [up, down] = side.thresholds;
        let value = |name| fields.whole(name).map(|tokens| tokens as f64).or_else(|| fields.number(name));
        match (value(up), value(down)) {
            (Some(above), Some(below)) if above <= below => {
                fields.problem(up, format!("expected more than {down} ({below}), got {above}"));
            }
            (above, below) => {
                for (name, value) in [(up, above), (down, below)] {
                    if value.is_none() && fields.are_right(&[name]) {
                        fields.problem(name, "required with optimization_target load");
                    }
                }
            }
        }
    }
}

fn something_scales(fields: &mut Fields) {
    let (throughput, load) = ("enable_throughput_scaling", "enable_load_scaling");
    if fields.are_right(&["optimization_target", throughput, load]) && !roles::throughput_scales(fields) && !roles::load_scales(fields) {
        fields.problem(throughput, "expected enable_throughput_scaling or enable_load_scaling, got neither");
    }
}

fn intervals_fit(fields: &mut Fields) {
    let names = ["throughput_adjustment_interval_seconds", "load_adjustment_interval_seconds"];
    if !fields.are_right(&names) || !fields.are_right(&["optimization_target", "enable_throughput_scaling", "enable_load_scaling"]) {
        return;
    }
    let (Some(slow), Some(fast)) = (fields.whole(names[0]), fields.whole(names[1])) else { return };
    let throughput = roles::throughput_scales(fields);
    if throughput && roles::load_scales(fields) && fast >= slow {
        fields.problem(names[1], format!("expected less than throughput_adjustment_interval_seconds ({slow}), got {fast}"));
    }
    let tick = "scheduling.scale_interval_seconds";
    if let Some(base) = fields.number(tick) {
        let uneven = |interval: i64| {
            let ratio = interval as f64 / base;
            (ratio - ratio.round()).abs() > TOLERANCE * ratio.max(1.0)
        };
        for (name, interval) in [(names[1], fast)].into_iter().chain(throughput.then_some((names[0], slow))) {
            if uneven(interval) {
                fields.problem(tick, format!("expected a number that divides {name} ({interval}), got {base}"));
            }
        }
    }
}

fn performance_model_fits(fields: &mut Fields) {
    const FIELD: &str = "aic_perf_model";
    if !fields.are_right(&["mode"]) {
        return;
    }
    let mode = roles::mode(fields);
    // The newer form of the field names its roles in a map.
    let Some((FIELD, node)) = fields.structure(FIELD) else { return };
    let lacks = |name: &str| node.entry(name).is_none_or(|(_, pick)| pick.value == Value::Null);
    let picks = [(PREFILL, "prefill_pick"), (DECODE, "decode_pick")];
    let missing: Vec<&str> = picks.into_iter().filter(|(side, pick)| mode.has(*side) && lacks(pick)).map(|(_, pick)| pick).collect();
    for pick in missing {
        fields.problem(FIELD, format!("needs {pick} in mode {}", mode.name));
    }
}

fn budget_holds_the_floors(fields: &mut Fields) {
    let (ceiling, floor) = ("max_gpu_budget", "min_gpu_budget");
    let (most, least) = (fields.whole(ceiling).filter(|gpus| *gpus >= 0), fields.whole(floor).filter(|gpus| *gpus >= 0));
    if let (Some(most), Some(least)) = (most, least)
        && least > most
    {
        fields.problem(floor, format!("expected at most max_gpu_budget ({most}), got {least}"));
    }
    if !fields.are_right(&["mode", "min_endpoint", PREFILL.floor, DECODE.floor, PREFILL.gpus, DECODE.gpus]) {
        return;
    }
    let mode = roles::mode(fields);
    let needed: i64 = mode.sides().map(|side: Side| roles::least_gpus(fields, side)).sum();
    if let Some(most) = most.filter(|most| *most < needed) {
        let message =
            format!("expected at least the {needed} GPUs of the smallest counts, got {most}: Dynamo would plan no replicas at all");
        fields.problem(ceiling, message);
    }
}

fn prometheus_can_be_asked(fields: &mut Fields) {
    const FIELD: &str = "metric_pulling_prometheus_endpoint";
    let Some(url) = fields.text(FIELD).map(ToOwned::to_owned) else { return };
    if let Err(message) = scalar::plain_url(&url) {
        fields.problem(FIELD, message);
    } else if url.contains(['?', '#']) {
        fields.problem(FIELD, "expected a URL without a query and without a fragment");
    }
}
