//! How does a person redo the decisions of target sla? What one replica serves, and what the next request would see, as JSON and in sentences.

use serde_json::{Value, json};

use super::html::{known, millis, number};
use crate::planner::model::iteration::Costs;
use crate::planner::plan::{CapacityTrace, Latencies, LatencyTrace, PoolPlan};
use crate::planner::propose::load::Load;
use crate::units::{Ratio, Seconds, Tokens};

/// What the next request would see.
pub(super) fn latency(trace: &LatencyTrace) -> Value {
    let costs = |costs: &Costs| {
        json!({
            "fixed_seconds": costs.fixed.get(),
            "seconds_per_prompt_token": costs.prefill_token.get(),
            "seconds_per_request": costs.request.get(),
            "seconds_per_kv_token": costs.kv_token.get(),
            "least_seconds": costs.least.get(),
        })
    };
    let load = |load: &Load| {
        json!({
            "queued_prompt_tokens": load.queued_prefill.get(),
            "running": load.decoding.get(),
            "kv_tokens": load.kv.get(),
            "waiting": load.queued_decoding.get(),
            "waiting_kv_tokens": load.queued_kv.get(),
        })
    };
    json!({
        "cause": trace.cause.as_str(),
        "iteration": trace.costs.as_ref().map(costs),
        "samples": trace.samples,
        "estimated": seconds(trace.estimated),
        "slowest": trace.slowest.as_ref().map(|(target, _)| target.as_str()),
        "still_waiting": trace.still_waiting.get(),
        "load": trace.slowest.as_ref().map(|(_, held)| load(held)),
        "current_replicas": trace.current.0,
        "recommended_replicas": trace.recommended.0,
        "floor": trace.floor.map(|floor| floor.0),
        "max_num_batched_tokens": trace.batched_tokens,
        "input_tokens": trace.input_tokens.map(Tokens::get),
        "context_tokens": trace.context_tokens.map(Tokens::get),
        "prefill_tokens": trace.prefill_tokens.map(Tokens::get),
        "hit_rate": trace.hit_rate.map(Ratio::get),
        "accept_length": trace.accept_length.map(Ratio::get),
    })
}

/// What one replica serves.
pub(super) fn capacity(trace: &CapacityTrace) -> Value {
    let Latencies { ttft_seconds, itl_seconds } = latencies(trace);
    json!({
        "requests_per_second": trace.requests_per_second.get(),
        "ttft_seconds": ttft_seconds.map(Seconds::get),
        "itl_seconds": itl_seconds.map(Seconds::get),
        "batch": trace.batch,
        "eligible": trace.eligible,
        "hit_rate": trace.hit_rate.map(Ratio::get),
        "accept_length": trace.accept_length.map(Ratio::get),
    })
}

fn seconds(latencies: Latencies) -> Value {
    json!({ "ttft_seconds": latencies.ttft_seconds.map(Seconds::get), "itl_seconds": latencies.itl_seconds.map(Seconds::get) })
}

fn latencies(trace: &CapacityTrace) -> Latencies {
    Latencies { ttft_seconds: trace.ttft_seconds, itl_seconds: trace.itl_seconds }
}

/// What is to be said of a pool.
pub(super) fn sentences(pool: &PoolPlan) -> Vec<String> {
    let mut sentences: Vec<String> = pool.capacity.iter().map(of_capacity).collect();
    if let Some(trace) = &pool.latency {
        sentences.extend(trace.costs.as_ref().map(|costs| of_costs(costs, trace.samples)));
        sentences.push(of_latency(trace));
    }
    sentences
}

fn of_capacity(trace: &CapacityTrace) -> String {
    let batch = trace.batch.map(|batch| format!(" in batches of {batch}")).unwrap_or_default();
    let verdict = if trace.eligible { "within the objectives" } else { "the objectives cannot be met by any count" };
    format!(
        "One replica serves {} requests/s{batch}, at {}: {verdict}. Hit rate {}, accepted length {}.",
        number(trace.requests_per_second.get()),
        shown(latencies(trace)),
        known(trace.hit_rate.map(|rate| number(rate.get()))),
        known(trace.accept_length.map(|length| number(length.get()))),
    )
}

fn of_costs(costs: &Costs, samples: u32) -> String {
    format!(
        "An iteration takes {} s + {} s a prompt token + {} s a request + {} s a KV token, at least {} s, by {samples} samples.",
        number(costs.fixed.get()),
        number(costs.prefill_token.get()),
        number(costs.request.get()),
        number(costs.kv_token.get()),
        number(costs.least.get()),
    )
}

fn of_latency(trace: &LatencyTrace) -> String {
    let slowest = trace.slowest.as_ref().map(|(target, load)| {
        format!(
            " The slowest is {target} with {} queued prompt tokens, of which {} would still wait, {} running and {} waiting requests on {} and {} KV tokens, all times {} / {}.",
            number(load.queued_prefill.get()),
            number(trace.still_waiting.get()),
            number(load.decoding.get()),
            number(load.queued_decoding.get()),
            number(load.kv.get()),
            number(load.queued_kv.get()),
            trace.current,
            trace.recommended,
        )
    });
    let floor = trace.floor.map(|floor| format!(" The slow loop wants {floor} at least.")).unwrap_or_default();
    format!(
        "The next request would see {}: {}.{}{floor} A prompt has {} tokens, a context {}, a step carries {} prompt tokens and {} at most.",
        shown(trace.estimated),
        trace.cause.meaning().trim_end_matches('.'),
        slowest.unwrap_or_default(),
        known(trace.input_tokens.map(|tokens| number(tokens.get()))),
        known(trace.context_tokens.map(|tokens| number(tokens.get()))),
        known(trace.prefill_tokens.map(|tokens| number(tokens.get()))),
        known(trace.batched_tokens),
    )
}

fn shown(latencies: Latencies) -> String {
    let shown = |latency: Option<Seconds>| known(latency.map(|latency| millis(latency.get())));
    format!("TTFT {}, ITL {}", shown(latencies.ttft_seconds), shown(latencies.itl_seconds))
}
