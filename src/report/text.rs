//! How does a decision read in a terminal? The arithmetic of a plan line by line.

use std::fmt::Write;

use crate::planner::plan::{EnvelopeTrace, Plan, PoolPlan};
use crate::units::Replicas;

/// A foreign text in one line: control characters, which could move a terminal's cursor or change its title, are spelled out.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A plan for people.
pub fn plan(plan: &Plan) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _never = render(&mut text, plan);
    text
}

fn render(text: &mut String, plan: &Plan) -> std::fmt::Result {
    writeln!(text, "model {}: {} ({})", plan.model, plan.reason, plan.reason.meaning())?;
    if let Some(observation) = &plan.observation {
        let [ttft, itl] = super::explain::symbols(plan);
        let shown = |value: Option<f64>, unit: &str| value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.6}{unit}"));
        writeln!(
            text,
            "  window {:.3} s: C = {} requests, I = {} tokens, O = {} tokens, {ttft} = {}, {itl} = {}",
            observation.elapsed_seconds.get(),
            shown(observation.requests.map(|value| value.get()), ""),
            shown(observation.input_tokens.map(|value| value.get()), ""),
            shown(observation.output_tokens.map(|value| value.get()), ""),
            shown(observation.ttft_seconds.map(|value| value.get()), " s"),
            shown(observation.itl_seconds.map(|value| value.get()), " s"),
        )?;
    }
    text.push_str(&super::forecast::text(plan));
    if let (Some(trace), Some(prompt), Some(generation)) = (&plan.envelope, plan.latency_ratio.prompt, plan.latency_ratio.generation) {
        arithmetic(text, plan, trace, prompt.get(), generation.get())?;
    }
    text.push_str(&super::queueing::text(plan));
    for warning in &plan.warnings {
        writeln!(text, "  warning: {}", warning.meaning())?;
    }
    for note in super::notes::of(plan) {
        writeln!(text, "  note: {note}")?;
    }
    plan.pools.iter().try_for_each(|pool| render_pool(text, pool))
}

fn arithmetic(text: &mut String, plan: &Plan, trace: &EnvelopeTrace, prompt: f64, generation: f64) -> std::fmt::Result {
    let EnvelopeTrace { prefill_replicas, decode_replicas, .. } = trace;
    writeln!(text, "  prompt ratio      r = T / L = {:.6} with L = {:.6} s", prompt, trace.prompt_latency_seconds.get())?;
    writeln!(
        text,
        "  prefill work      C*I/H * min(1, r) = {:.3} * {:.6} tokens/s over {:.3} * {} GPUs: {} replicas",
        trace.prompt_tokens_per_second.get(),
        prompt.min(1.0),
        trace.prompt_tokens_per_second_per_gpu.get(),
        trace.prefill_gpus_per_replica,
        trace.prefill_throughput_budget,
    )?;
    writeln!(
        text,
        "  prefill queue     L*(r - 1) * max(1, p) / (target - L) with p = {prefill_replicas}, target {:.6} s: {} replicas",
        plan.slo.ttft.get(),
        trace.prefill_queue_budget,
    )?;
    writeln!(
        text,
        "  generation ratio  g = G / {:.6} s = {:.6} at KV {:.6} (n = C*D/H/d = {:.6} with D = {:.6} s, d = {decode_replicas}; context {:.3})",
        trace.generation_latency_seconds.get(),
        generation,
        trace.kv_fraction.get(),
        trace.in_flight_per_decode_replica.get(),
        trace.request_duration_seconds.get(),
        trace.mean_context_tokens.get(),
    )?;
    writeln!(
        text,
        "  decode point      fastest within target/g = {:.6} s: KV {:.6}, {:.6} s, {:.3} tokens/s on one GPU",
        trace.effective_itl_budget_seconds.get(),
        trace.capacity_kv_fraction.get(),
        trace.capacity_itl_seconds.get(),
        trace.capacity_tokens_per_second_per_gpu.get(),
    )?;
    writeln!(
        text,
        "  decode work       C*O/H = {:.3} tokens/s over that * {} GPUs: {} replicas",
        trace.generated_tokens_per_second.get(),
        trace.decode_gpus_per_replica,
        trace.decode_budget,
    )
}

fn render_pool(text: &mut String, pool: &PoolPlan) -> std::fmt::Result {
    let shown = |count: Option<Replicas>| count.map_or_else(|| "none".to_owned(), |count| count.to_string());
    writeln!(
        text,
        "  pool {} ({}): current {}, wish {}, planned {}, recommended {} ({})",
        pool.pool,
        pool.role,
        shown(pool.current_replicas),
        shown(pool.unbounded_replicas),
        shown(pool.planned_replicas),
        shown(pool.recommended_replicas),
        pool.reason,
    )?;
    if let Some(load) = &pool.load {
        writeln!(text, "    {}", super::explain::fullness(load))?;
    }
    for sentence in super::sla::sentences(pool).into_iter().chain(super::auto::sentences(pool)) {
        writeln!(text, "    {sentence}")?;
    }
    for sentence in super::explain::lacks(pool) {
        writeln!(text, "    {sentence}")?;
    }
    pool.steps
        .iter()
        .try_for_each(|step| writeln!(text, "    {:<10} {} -> {}  {}", step.stage.as_str(), step.before, step.after, step.reason.meaning()))
}
