//! How many replicas does the forecast traffic need within the objectives? The slow decision of target sla.
//!
//! What one replica serves comes from the measured profile where there is one, else from the cost of iterations that was learned
//! (`model/capacity.rs`). I and O are the forecast lengths, h the hit rate, a the accepted length, g the GPUs of a replica.
//!
//! | | from a profile | from iterations |
//! |---|---|---|
//! | prefill, requests/s | curve throughput at I * g / max(1, I * (1 - h)) | the best batch whose chunks meet TTFT |
//! | decode, requests/s | best throughput at ITL <= objective * a and context I + O/2, * g * a / O | the best batch that meets ITL |
//! | aggregated | a profile says nothing of it | the best batch that meets both |
//! | unreachable | the curve's latency is above the objective; no point meets it | no batch meets it |
//!
//! Unreachable: no count makes one request faster. It is said (`slo_unreachable`), and the traffic is carried all the same.
//!
//! A profile needs no traffic to be known. Iterations that nobody has seen enough of hold the pool, `not_converged`, and its partner with it: a
//! prefill pool that grows alone only moves the queue to decode.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::bound::{self, Context};
use super::input::{Gauge, ModelInput, Reading, SourceId};
use super::memory::{Decision, Memory, PoolDecision};
use super::model::capacity::{Capacity, EngineLimits, Objectives, Prefer, Shape, capacity, trusted_hit_rate};
use super::model::envelope::Envelope;
use super::observe::Window;
use super::plan::{CapacityTrace, PhaseState, Prediction, Proposer, Reason, StepReason};
use super::policy::{CapacityModel, GpuBand, ModelPolicy, PoolPolicy};
use super::propose::throughput::{Cause, Decided, Pool, Rules, decide as decide_one, decide_pair};
use super::propose::{Wish, gpus_of};
use super::watching::pages;
use super::{current_replicas, standing};
use crate::units::{Moment, Replicas, RequestsPerSecond, Role, Seconds, Tokens};

/// A decrease must carry this many times the demand that is expected: at the boundary between two counts forecasts fall on either side.
const PADDING: f64 = 1.1;

/// Decides from a forecast.
pub(super) fn decide(
    memory: &Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    (window, prediction): (&Window, Prediction),
    whole: bool,
    now: Moment,
) -> Decision {
    let mut decision = Decision::held(Reason::None, Some(window));
    decision.prediction = Some(prediction);
    let shape = Shape {
        input: prediction.input_tokens,
        output: prediction.output_tokens,
        hit_rate: memory.reuse.hit_rate,
        accept_length: memory.reuse.accept_length,
    };
    let capacities: Vec<Option<Capacity>> = policy.pools.iter().map(|pool| one_replica(memory, input, policy, pool, &shape)).collect();
    let needs = |demand| wanted(demand, memory, input, policy, &capacities, now);
    let padded = RequestsPerSecond(prediction.estimated_requests_per_second.get() * PADDING);
    let (supported, cautious) = (needs(prediction.requests_per_second), needs(padded));
    for (index, pool) in policy.pools.iter().enumerate() {
        let part = decision.pools.entry(pool.pool.clone()).or_default();
        part.capacity = capacities[index].map(|capacity| trace(&capacity, &shape, policy));
        if [Cause::ModelUnknown, Cause::PartnerUnknown].contains(&supported[index].cause) {
            part.reason = Some(Reason::NotConverged);
            continue;
        }
        let wish = Wish { supported: supported[index].replicas, cautious: cautious[index].replicas };
        let observed = current_replicas(pool, memory, input);
        let context = context(memory, policy, pool, observed, (window, whole), now);
        let bounded = bound::bound(wish, &context);
        part.proposed = BTreeMap::from([(proposer(policy, pool.role), wish.supported)]);
        part.unbounded = Some(wish.supported);
        part.steps = bounded.steps;
        part.limits_active = bounded.limits;
    }
    if decision.pools.values().all(|part| part.reason.is_some()) {
        decision.reason = Reason::NotConverged;
    } else if capacities.iter().flatten().any(|capacity| !capacity.eligible) {
        decision.reason = Reason::SloUnreachable;
    }
    (decision.prompt, decision.generation) = phases(window, policy, &capacities);
    decision
}

/// Who sizes a pool.
pub(super) fn proposer(policy: &ModelPolicy, role: Role) -> Proposer {
    match (&policy.capacity, role) {
        (CapacityModel::Envelope(_), Role::Prefill) => Proposer::EnvelopeThroughput,
        (CapacityModel::Envelope(_), _) => Proposer::EnvelopeDecode,
        _ => Proposer::Regression,
    }
}

fn context(
    memory: &Memory,
    policy: &ModelPolicy,
    pool: &PoolPolicy,
    observed: Option<Replicas>,
    (window, whole): (&Window, bool),
    now: Moment,
) -> Context {
    // A floor may fall at once: the fast loop gives replicas back one by one.
    let is_floor = policy.load.is_some();
    Context {
        observed,
        recommended: if is_floor {
            memory.pools.get(&pool.pool).and_then(|known| known.floor)
        } else {
            standing(pool, memory, observed, now)
        },
        previous_wish: None,
        coverage: window.least_coverage(),
        complete_window_seen: memory.complete_window_seen || whole,
        caution: StepReason::PaddedDemand,
        keep: memory.growth.get(&pool.pool).and_then(|growth| growth.rollout(now)),
        growth: policy.growth,
        while_moving: None,
        step_down: policy.step_down.filter(|_| !is_floor),
        limits: pool.limits,
    }
}

/// The counts that carry a demand, before any bound.
fn wanted(
    demand: RequestsPerSecond,
    memory: &Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    capacities: &[Option<Capacity>],
    now: Moment,
) -> Vec<Decided> {
    let pool = |(pool, capacity): (&PoolPolicy, &Option<Capacity>)| Pool {
        current: standing(pool, memory, current_replicas(pool, memory, input), now).unwrap_or_default(),
        capacity: capacity.map(|capacity| capacity.rate),
        floor: Replicas(0),
        gpus: NonZeroU32::new(gpus_of(pool, &policy.capacity)).unwrap_or(NonZeroU32::MIN),
    };
    let pools: Vec<Pool> = policy.pools.iter().zip(capacities).map(pool).collect();
    // Bounds and budgets come after it, where they leave their steps.
    let rules = Rules { largest_change: Replicas(u32::MAX), band: GpuBand::default(), bounds_fast_loop: policy.load.is_some() };
    match pools.as_slice() {
        [one, other] => decide_pair(demand, [*one, *other], &rules).to_vec(),
        pools => pools.iter().map(|pool| decide_one(demand, *pool, &rules)).collect(),
    }
}

/// What one replica of a pool serves within the objectives; `None` where that is not known.
fn one_replica(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, pool: &PoolPolicy, shape: &Shape) -> Option<Capacity> {
    match &policy.capacity {
        CapacityModel::Envelope(envelope) => of_profile(envelope, policy, pool, shape),
        CapacityModel::Iterations => {
            let line = memory.watched.get(&pool.pool)?.iterations.line(policy.regression?.least).ok()?;
            let (ttft, itl) = (Seconds(policy.slo.ttft.get()), Seconds(policy.slo.itl.get()));
            let objectives = Objectives {
                ttft: (pool.role != Role::Decode).then_some(ttft),
                itl: (pool.role != Role::Prefill).then_some(itl),
                duration: None,
            };
            capacity(pool.role, &line, &limits(input, pool), shape, &objectives, Prefer::Rate)
        }
        CapacityModel::Queueing(_) | CapacityModel::Unknown => None,
    }
}

/// What an engine holds: as [`limit`] has it, else what is usual.
pub(super) fn limits(input: &ModelInput, pool: &PoolPolicy) -> EngineLimits {
    let known = |gauge| limit(input, pool, gauge);
    EngineLimits::or_assumed(known(Gauge::MaxBatchedTokens), known(Gauge::MaxRunning), known(Gauge::KvCapacityTokens))
}

/// A limit of the pool's engines: what their own pages show, else what the operator says, else what a front end says of a server behind it. Of
/// several the largest.
pub(super) fn limit(input: &ModelInput, pool: &PoolPolicy, gauge: Gauge) -> Option<NonZeroU32> {
    let own = pages(input, pool).filter_map(|(_, (_, sample))| counted(sample.gauges.get(&gauge))).max();
    own.or_else(|| told(pool, gauge)).or_else(|| by_front_ends(input, pool, gauge))
}

/// A limit that the operator says.
fn told(pool: &PoolPolicy, gauge: Gauge) -> Option<NonZeroU32> {
    match gauge {
        Gauge::MaxBatchedTokens => pool.capabilities.max_num_batched_tokens,
        Gauge::MaxRunning => pool.capabilities.max_num_seqs,
        Gauge::KvCapacityTokens => pool.capabilities.max_kv_tokens,
        Gauge::Running | Gauge::Waiting | Gauge::InFlight | Gauge::QueuedPromptTokens | Gauge::KvUsage => None,
    }
}

/// A limit as front ends know it of their servers, whether they stand among the pool's own targets or those of the traffic.
fn by_front_ends(input: &ModelInput, pool: &PoolPolicy, gauge: Gauge) -> Option<NonZeroU32> {
    let concerned = |id: &SourceId| match id {
        SourceId::Traffic => true,
        SourceId::Pool(of) => *of == pool.pool,
    };
    let targets = input.sources.iter().filter(|source| concerned(&source.source)).flat_map(|source| &source.targets);
    let limits = targets.filter_map(|target| match &target.reading {
        Reading::Sample(sample) => counted(sample.fleet.get(&gauge)),
        Reading::Failed(_) => None,
    });
    limits.max()
}

/// A gauge that can be a limit.
fn counted(value: Option<&f64>) -> Option<NonZeroU32> {
    let value = value.copied().filter(|value| *value >= 1.0 && *value <= f64::from(u32::MAX))?;
    NonZeroU32::new(value as u32)
}

fn of_profile(envelope: &Envelope, policy: &ModelPolicy, pool: &PoolPolicy, shape: &Shape) -> Option<Capacity> {
    let gpus = f64::from(gpus_of(pool, &policy.capacity));
    let (input, output) = (shape.input.get(), shape.output.get());
    match pool.role {
        Role::Prefill => {
            let point = envelope.prompt(shape.input);
            let computed = (input * (1.0 - trusted_hit_rate(shape.hit_rate).get())).max(1.0);
            Some(Capacity {
                rate: RequestsPerSecond(point.per_gpu.get() * gpus / computed),
                ttft: Some(point.latency),
                itl: None,
                duration: None,
                batch: 1,
                eligible: point.latency.get() <= policy.slo.ttft.get(),
            })
        }
        Role::Decode => {
            let accepted = shape.accept_length.map_or(1.0, |accepted| accepted.get().max(1.0));
            let context = Tokens(input + output / 2.0);
            let best = envelope.best_within(Seconds(policy.slo.itl.get() * accepted), context);
            Some(Capacity {
                rate: RequestsPerSecond(best.point.per_gpu.get() * gpus * accepted / output.max(1.0)),
                ttft: None,
                itl: Some(Seconds(best.point.latency.get() / accepted)),
                duration: None,
                batch: 1,
                eligible: best.fits,
            })
        }
        Role::Aggregated => None,
    }
}

fn trace(capacity: &Capacity, shape: &Shape, policy: &ModelPolicy) -> CapacityTrace {
    CapacityTrace {
        requests_per_second: capacity.rate,
        ttft_seconds: capacity.ttft,
        itl_seconds: capacity.itl,
        // A profile knows no batches.
        batch: (policy.capacity == CapacityModel::Iterations).then_some(capacity.batch),
        eligible: capacity.eligible,
        hit_rate: shape.hit_rate,
        accept_length: shape.accept_length,
    }
}

/// Whether the objectives are met now, and whether any count could meet them.
fn phases(window: &Window, policy: &ModelPolicy, capacities: &[Option<Capacity>]) -> (PhaseState, PhaseState) {
    let met = |seen: Option<Seconds>, objective: f64| seen.map(|seen| seen.get() <= objective);
    let reach = |of: fn(&Capacity) -> Option<Seconds>, objective: f64| {
        let known = capacities.iter().flatten().filter_map(of);
        known.map(|latency| latency.get() <= objective * (1.0 + 1e-9)).reduce(|one, other| one && other)
    };
    let (ttft, itl) = (policy.slo.ttft.get(), policy.slo.itl.get());
    let seen = &window.observation;
    (
        PhaseState { met: met(seen.ttft_seconds, ttft), attainable: reach(|capacity| capacity.ttft, ttft) },
        PhaseState { met: met(seen.itl_seconds, itl), attainable: reach(|capacity| capacity.itl, itl) },
    )
}

/// The floors that a decision sets for the fast loop.
pub(super) fn set_floors(memory: &mut Memory, decision: &Decision) {
    for (pool, part) in &decision.pools {
        if let Some(floor) = PoolDecision::planned(part) {
            memory.pools.entry(pool.clone()).or_default().floor = Some(floor);
        }
    }
}
