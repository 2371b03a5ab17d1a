//! What does everybody see of a decision? The plan of a round, put together from memory and what the round saw.

use std::collections::BTreeMap;

use super::input::ModelInput;
use super::memory::{Decision, Memory, PoolMemory};
use super::observe::Round;
use super::plan::{HoldKind, Limit, LoopDecision, Outcome, OverrideKind, Plan, PoolPlan, Reason, SloSource};
use super::policy::{Mode, ModelPolicy, PoolPolicy, Slo};
use super::publish::{self, Serving, Standing};
use super::ration::{Rationed, ration};
use super::{acting, current_replicas, propose};
use crate::units::{Moment, PoolId, Positive, Ratio, Replicas, Seconds};

/// The plan that people, metrics and JSON show, from memory and what this round saw. `before` holds the plans from before this round.
pub(super) fn render(
    memory: &mut Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    now: Moment,
    round: &Round,
    decided: Option<Reason>,
    before: &BTreeMap<PoolId, Replicas>,
) -> Plan {
    let decision = acting(memory, policy).cloned().unwrap_or_else(|| Decision::held(Reason::Baseline, None));
    // What is seen right now overrules an older verdict: a fleet that stopped answering is shown at once, not at the next boundary.
    let reason = round.blind.unwrap_or(decision.reason);
    let computed_now = decided.is_some() && reason.hold_kind().is_none();
    let rations = ration(memory, input, policy, now);
    let mut changed = false;
    let mut pools = Vec::new();
    for pool in &policy.pools {
        let own = decision.pools.get(&pool.pool).and_then(|part| part.reason);
        let seen_now = round.blind.or_else(|| round.blind_pools.get(&pool.pool).copied());
        let reason = seen_now.or(own).unwrap_or(reason);
        let computed_now = decided.is_some() && reason.hold_kind().is_none();
        let verdict = Verdict { reason, computed_now, decided: decided.is_some(), before: before.get(&pool.pool).copied() };
        let rationed = rations.get(&pool.pool).copied();
        let pool_plan = render_pool(memory, &decision, (pool, rationed), policy, verdict, round, input, now);
        changed |= [pool_plan.slow_loop, pool_plan.fast_loop].contains(&LoopDecision::Scale);
        pools.push(pool_plan);
    }
    let outcome = decided.map(|_| match (computed_now, changed) {
        (false, _) => Outcome::Held,
        (true, true) => Outcome::Changed,
        (true, false) => Outcome::Unchanged,
    });
    Plan {
        model: policy.model.clone(),
        preset: policy.preset,
        mode: policy.mode,
        at: now,
        decided: decided.is_some(),
        outcome,
        held: reason.hold_kind().is_some(),
        reason,
        slo: slo_in_force(policy, &decision),
        slo_source: decision.slo.map_or(SloSource::Explicit, |(_, source)| source),
        prompt: decision.prompt,
        generation: decision.generation,
        observation: decision.observation,
        prediction: decision.prediction,
        outlook: decision.outlook,
        predictor_errors: memory.predictor_errors(),
        latency_ratio: decision.latency_ratio,
        estimated: decision.estimated,
        envelope: decision.envelope,
        warnings: decision.warnings,
        sources: round.sources.clone(),
        pools,
    }
}

/// The objectives of the decision, else the policy's.
fn slo_in_force(policy: &ModelPolicy, decision: &Decision) -> Slo {
    let positive = |seconds: Seconds| Positive::new(seconds.get());
    let learned = decision.slo.and_then(|(objective, _)| Some((positive(objective.ttft)?, positive(objective.itl)?)));
    match learned {
        Some((ttft, itl)) => Slo { ttft, itl, ..policy.slo.clone() },
        None => policy.slo.clone(),
    }
}

/// The verdict of a round.
#[derive(Clone, Copy, Debug)]
struct Verdict {
    reason: Reason,
    computed_now: bool,
    decided: bool,
    /// The pool's plan from before this round.
    before: Option<Replicas>,
}

#[expect(
    clippy::too_many_arguments,
    reason = "one pool of one round: every argument is a different fact, and a struct would only rename them"
)]
fn render_pool(
    memory: &mut Memory,
    decision: &Decision,
    (pool, rationed): (&PoolPolicy, Option<Rationed>),
    policy: &ModelPolicy,
    verdict: Verdict,
    round: &Round,
    input: &ModelInput,
    now: Moment,
) -> PoolPlan {
    let current_replicas = current_replicas(pool, memory, input);
    let part = decision.pools.get(&pool.pool).cloned().unwrap_or_default();
    let growth = memory.growth.get(&pool.pool).cloned().unwrap_or_default();
    let known = memory.pools.entry(pool.pool.clone()).or_default();
    // Where the plan itself is not what is served, it is compared with the last plan.
    let before = if policy.mode == Mode::Publish { known.published.map(|published| published.replicas) } else { verdict.before };
    let coverage_good = round.coverage_good && !round.silent_pools.contains(&pool.pool);
    let served = Served { reason: verdict.reason, computed: verdict.computed_now, coverage_good, rationed };
    let (planned_replicas, serving) = serve(known, pool, policy, served, now);
    let decided_count = planned_replicas.filter(|_| verdict.computed_now);
    let what = match (verdict.decided, verdict.computed_now) {
        (false, _) => LoopDecision::Wait,
        (true, false) => LoopDecision::Hold,
        (true, true) if decided_count != before => LoopDecision::Scale,
        (true, true) => LoopDecision::Stay,
    };
    let (slow_loop, fast_loop) = if policy.load.is_some() { (LoopDecision::Wait, what) } else { (what, LoopDecision::Wait) };
    // A reload may have moved the limits since the decision; its steps then no longer lead to the plan.
    let rationed = rationed.filter(|rationed| Some(rationed.replicas) == planned_replicas).zip(part.planned());
    let (mut steps, mut limits_active) = (part.steps, with_pin(&part.limits_active, &serving));
    if let Some((step, limit)) = rationed.map(|(rationed, before)| rationed.step(before)) {
        steps.push(step);
        limits_active.push(limit);
    }
    if steps.last().is_some_and(|step| Some(step.after) != planned_replicas) {
        steps = Vec::new();
    }
    PoolPlan {
        pool: pool.pool.clone(),
        role: pool.role,
        current_replicas,
        recommended_replicas: serving.published.map(|published| published.replicas),
        planned_replicas,
        unbounded_replicas: part.unbounded,
        proposed: part.proposed,
        steps,
        limits_active,
        held: serving.held,
        reason: serving.reason,
        overridden: serving.overridden,
        published: serving.published,
        slow_loop,
        fast_loop,
        load: part.load,
        latency: part.latency,
        capacity: part.capacity,
        auto: part.auto,
        queueing: part.queueing,
        untaught: part.untaught,
        missing: part.missing,
        startup: growth.startup().map(Into::into),
        capacity_unavailable: growth.capacity_unavailable(now),
        coming_replicas: growth.coming(now),
        coverage: coverage_of(decision, &pool.pool),
        gpus_per_replica: propose::gpus_of(pool, &policy.capacity),
    }
}

/// What a served count rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub reason: Reason,
    /// Whether a decision was made in this round.
    pub computed: bool,
    /// Whether most targets answer.
    pub coverage_good: bool,
    /// What the GPU budgets make of what is wanted, where that is something else.
    pub rationed: Option<Rationed>,
}

/// The plan inside the limits and budgets in force, and what is served of it.
pub(super) fn serve(
    known: &mut PoolMemory,
    pool: &PoolPolicy,
    policy: &ModelPolicy,
    served: Served,
    now: Moment,
) -> (Option<Replicas>, Serving) {
    let clamped = |count: Option<Replicas>| count.map(|count| pool.limits.clamp(count));
    let before = clamped(known.planned);
    known.wanted = clamped(known.wanted.or(known.planned));
    let left = served.rationed.map(|rationed| rationed.replicas).or(known.wanted);
    let blind = served.reason.hold_kind() == Some(HoldKind::Blind);
    // GPUs that become free are no reason to grow while nothing is seen.
    known.planned = if blind && !served.computed && left > before { before } else { left };
    let moved = known.planned != before;
    if let (true, true, Some(published), Some(planned)) = (moved, blind, &mut known.published, known.planned) {
        published.replicas = planned;
    }
    let decided = known.planned.filter(|_| served.computed || (moved && !blind));
    let standing = Standing { reason: served.reason, decided, coverage_good: served.coverage_good };
    (known.planned, publish::publish(known, pool, policy, standing, now))
}

pub(super) fn with_pin(limits: &[Limit], serving: &Serving) -> Vec<Limit> {
    let pin = (serving.overridden == Some(OverrideKind::Pin)).then_some(Limit::Pinned);
    limits.iter().copied().filter(|limit| *limit != Limit::Pinned).chain(pin).collect()
}

/// Coverage of the window of a pool: its own targets', else the traffic source's.
fn coverage_of(decision: &Decision, pool: &PoolId) -> Option<Ratio> {
    decision.pools.get(pool).and_then(|part| part.coverage).or(decision.coverage)
}
