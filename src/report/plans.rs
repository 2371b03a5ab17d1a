//! How does a plan read as JSON? The one rendering that the API and the command `plan` share.
//!
//! Numbers are unrounded; a value that is not known, or is not finite, is null. Keys may be added, these stay.

use crate::planner::predict::traffic::Outlook;
use crate::planner::predict::{Fallback, Forecast};
use serde_json::{Map, Value, json};

use crate::planner::plan::{
    EnvelopeTrace, Estimates, Latencies, LoadInputs, LoadTrace, Missing, Observation, PhaseState, Plan, PoolPlan, Prediction, QueueingTrace,
};
use crate::units::{Replicas, TargetId, Tokens};

/// `{"models": [...]}`, in the order given.
pub fn document<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Value {
    json!({ "models": plans.into_iter().map(model).collect::<Vec<_>>() })
}

/// One model.
pub fn model(plan: &Plan) -> Value {
    json!({
        "model": plan.model.as_str(),
        "preset": plan.preset.as_str(),
        "mode": plan.mode.as_str(),
        "planned_at_seconds": plan.at.wall.as_secs_f64(),
        "decided": plan.decided,
        "outcome": plan.outcome.map(|outcome| outcome.as_str()),
        "held": plan.held,
        "reason": plan.reason.as_str(),
        "slo": {
            "ttft_seconds": plan.slo.ttft.get(),
            "itl_seconds": plan.slo.itl.get(),
            "statistic": plan.slo.statistic.as_str(),
            "source": plan.slo_source.as_str(),
            "explicit": plan.slo.explicit,
            "prompt": phase(plan.prompt),
            "generation": phase(plan.generation),
        },
        "observation": observation(plan.observation.as_ref()),
        "prediction": plan.prediction.as_ref().map(prediction),
        "forecasts": plan.outlook.as_ref().map(forecasts),
        "predictor_error_ratios": by_name(plan.predictor_errors.iter().map(|(method, error)| (method.name(), error.get()))),
        "latency_ratio": {
            "prompt": plan.latency_ratio.prompt.map(|ratio| ratio.get()),
            "generation": plan.latency_ratio.generation.map(|ratio| ratio.get()),
        },
        "estimated": estimated(&plan.estimated),
        "envelope": plan.envelope.as_ref().map(envelope),
        "warnings": plan.warnings.iter().map(|warning| warning.as_str()).collect::<Vec<_>>(),
        "notes": super::notes::of(plan),
        "pools": plan.pools.iter().map(pool).collect::<Vec<_>>(),
    })
}

fn phase(state: PhaseState) -> Value {
    json!({ "met": state.met, "attainable": state.attainable })
}

/// All keys are present also where there is no window yet, so that readers need not branch on the object.
fn observation(seen: Option<&Observation>) -> Value {
    let statistics = |of: fn(&Observation) -> Value| seen.map(of).unwrap_or_default();
    json!({
        "elapsed_seconds": seen.map(|seen| seen.elapsed_seconds.get()),
        "requests": seen.and_then(|seen| seen.requests).map(|requests| requests.get()),
        "offered_requests": seen.and_then(|seen| seen.offered_requests).map(|requests| requests.get()),
        "requests_per_second": seen.and_then(|seen| seen.requests_per_second).map(|rate| rate.get()),
        "estimated_requests_per_second": seen.and_then(|seen| seen.estimated_requests_per_second).map(|rate| rate.get()),
        "input_tokens": seen.and_then(|seen| seen.input_tokens).map(|tokens| tokens.get()),
        "output_tokens": seen.and_then(|seen| seen.output_tokens).map(|tokens| tokens.get()),
        "ttft_seconds": seen.and_then(|seen| seen.ttft_seconds).map(|latency| latency.get()),
        "itl_seconds": seen.and_then(|seen| seen.itl_seconds).map(|latency| latency.get()),
        "ttft_statistics_seconds": statistics(|seen| by_name(seen.ttft_statistics.iter().map(|(of, at)| (of.as_str(), at.get())))),
        "itl_statistics_seconds": statistics(|seen| by_name(seen.itl_statistics.iter().map(|(of, at)| (of.as_str(), at.get())))),
        "ttft_attainment": seen.and_then(|seen| seen.ttft_attainment).map(|share| share.get()),
        "itl_attainment": seen.and_then(|seen| seen.itl_attainment).map(|share| share.get()),
    })
}

fn by_name(values: impl Iterator<Item = (&'static str, f64)>) -> Value {
    Value::Object(values.map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>())
}

fn prediction(next: &Prediction) -> Value {
    json!({
        "requests_per_second": next.requests_per_second.get(),
        "estimated_requests_per_second": next.estimated_requests_per_second.get(),
        "input_tokens": next.input_tokens.get(),
        "output_tokens": next.output_tokens.get(),
    })
}

/// Of a window of nominal length.
fn forecasts(outlook: &Outlook) -> Value {
    let one = |forecast: &Forecast| json!({ "value": forecast.value, "predictor": forecast.method.name(), "fallback": forecast.fallback.map(Fallback::name) });
    json!({ "requests": one(&outlook.requests), "input_tokens": one(&outlook.input_tokens), "output_tokens": one(&outlook.output_tokens) })
}

fn estimated(estimates: &Estimates) -> Value {
    let at = |latencies: &Latencies| {
        json!({
            "ttft_seconds": latencies.ttft_seconds.map(|latency| latency.get()),
            "itl_seconds": latencies.itl_seconds.map(|latency| latency.get()),
        })
    };
    json!({ "current": at(&estimates.current), "recommended": at(&estimates.recommended) })
}

fn envelope(trace: &EnvelopeTrace) -> Value {
    json!({
        "prefill_gpus_per_replica": trace.prefill_gpus_per_replica,
        "decode_gpus_per_replica": trace.decode_gpus_per_replica,
        "request_duration_seconds": trace.request_duration_seconds.get(),
        "prompt_latency_seconds": trace.prompt_latency_seconds.get(),
        "prompt_tokens_per_second_per_gpu": trace.prompt_tokens_per_second_per_gpu.get(),
        "mean_context_tokens": trace.mean_context_tokens.get(),
        "in_flight_per_decode_replica": trace.in_flight_per_decode_replica.get(),
        "kv_fraction": trace.kv_fraction.get(),
        "generation_latency_seconds": trace.generation_latency_seconds.get(),
        "generation_tokens_per_second_per_gpu": trace.generation_tokens_per_second_per_gpu.get(),
        "prompt_tokens_per_second": trace.prompt_tokens_per_second.get(),
        "generated_tokens_per_second": trace.generated_tokens_per_second.get(),
        "prefill_throughput_budget": trace.prefill_throughput_budget.0,
        "prefill_queue_budget": trace.prefill_queue_budget.0,
        "effective_itl_budget_seconds": trace.effective_itl_budget_seconds.get(),
        "capacity_kv_fraction": trace.capacity_kv_fraction.get(),
        "capacity_itl_seconds": trace.capacity_itl_seconds.get(),
        "capacity_tokens_per_second_per_gpu": trace.capacity_tokens_per_second_per_gpu.get(),
        "decode_budget": trace.decode_budget.0,
    })
}

fn load(trace: &LoadTrace) -> Value {
    json!({
        "fullest": trace.fullest.as_str(),
        "load": trace.load,
        "inputs": trace.inputs.as_ref().map(load_inputs),
        "current_replicas": trace.current.map(|replicas| replicas.0),
        "recommended_replicas": trace.recommended.map(|replicas| replicas.0),
        "projected": trace.projected,
        "up": trace.up,
        "down": trace.down,
        "all_below": trace.all_below,
        "described": trace.described,
        "known": trace.known,
    })
}

fn load_inputs(inputs: &LoadInputs) -> Value {
    let tokens = |tokens: Option<Tokens>| tokens.map(Tokens::get);
    json!({
        "rule": inputs.rule.as_str(),
        "formula": inputs.rule.meaning(),
        "kv_usage": inputs.kv_usage,
        "waiting": inputs.waiting,
        "running": inputs.running,
        "queued_prompt_tokens": inputs.queued_prompt_tokens,
        "input_tokens": tokens(inputs.input_tokens),
        "output_tokens": tokens(inputs.output_tokens),
        "kv_capacity_tokens": tokens(inputs.kv_capacity_tokens),
        "context_length": tokens(inputs.context_length),
        "replicas": inputs.replicas.map(|replicas| replicas.0),
    })
}

/// Seconds, and requests a second.
fn queueing(trace: &QueueingTrace) -> Value {
    json!({
        "parameters": {
            "alpha_seconds": trace.parameters.alpha.get(),
            "beta_seconds_per_token": trace.parameters.beta.get(),
            "gamma_seconds_per_token": trace.parameters.gamma.get(),
            "wait_iterations": trace.parameters.wait.get(),
        },
        "nis": trace.nis,
        "condition_number": trace.condition,
        "points": trace.points,
        "accepted": trace.accepted,
        "update": trace.update,
        "utilization": trace.utilization.map(|utilization| utilization.get()),
        "lengths": { "input_tokens": trace.lengths.input.get(), "output_tokens": trace.lengths.output.get() },
        "objective": { "ttft_seconds": trace.objective.ttft.get(), "itl_seconds": trace.objective.itl.get() },
        "multiplier": trace.multiplier.get(),
        "max_batch": trace.max_batch.get(),
        "capacity": trace.capacity.map(|capacity| {
            json!({ "lower": capacity.lower.get(), "estimate": capacity.estimate.get(), "upper": capacity.upper.get() })
        }),
        "sized_with": trace.sized_with.get(),
        "converged": trace.converged,
        "demand": trace.demand.get(),
        "cautious_demand": trace.cautious_demand.get(),
        "standing_replicas": trace.standing.0,
        "absent_replicas": trace.absent.0,
        "cost": trace.cost,
    })
}

fn missing(missing: &Missing) -> Value {
    json!({ "what": missing.what.as_str(), "target": missing.target.as_ref().map(TargetId::as_str), "meaning": missing.what.meaning() })
}

fn pool(pool: &PoolPlan) -> Value {
    let count = |replicas: Option<Replicas>| replicas.map(|replicas| replicas.0);
    let proposed = pool.proposed.iter().map(|(proposer, replicas)| (proposer.as_str().to_owned(), json!(replicas.0)));
    let step = |step: &crate::planner::plan::Step| json!({ "stage": step.stage.as_str(), "before": step.before.0, "after": step.after.0, "reason": step.reason.as_str() });
    json!({
        "pool": pool.pool.as_str(),
        "role": pool.role.as_str(),
        "current_replicas": count(pool.current_replicas),
        "recommended_replicas": count(pool.recommended_replicas),
        "planned_replicas": count(pool.planned_replicas),
        "unbounded_replicas": count(pool.unbounded_replicas),
        "proposed": Value::Object(proposed.collect()),
        "steps": pool.steps.iter().map(step).collect::<Vec<_>>(),
        "limits_active": pool.limits_active.iter().map(|limit| limit.as_str()).collect::<Vec<_>>(),
        "held": pool.held,
        "reason": pool.reason.as_str(),
        "overridden": pool.overridden.map(|kind| kind.as_str()),
        "slow_loop": pool.slow_loop.as_str(),
        "fast_loop": pool.fast_loop.as_str(),
        "load": pool.load.as_ref().map(load),
        "latency": pool.latency.as_ref().map(super::sla::latency),
        "capacity": pool.capacity.as_ref().map(super::sla::capacity),
        "auto": pool.auto.as_ref().map(super::auto::value),
        "queueing": pool.queueing.as_ref().map(queueing),
        "untaught": pool.untaught.map(|reason| json!({ "reason": reason.as_str(), "meaning": reason.meaning() })),
        "missing": pool.missing.iter().map(missing).collect::<Vec<_>>(),
        "startup_seconds": pool.startup.map(|startup| startup.get()),
        "capacity_unavailable": pool.capacity_unavailable,
        "coming_replicas": count(pool.coming_replicas),
        "coverage": pool.coverage.map(|share| share.get()),
        "gpus_per_replica": pool.gpus_per_replica,
        "timestamp_seconds": pool.published.map(|published| published.timestamp.as_secs_f64()),
        "valid_until_seconds": pool.published.map(|published| published.valid_until.as_secs_f64()),
    })
}
