//! What does everybody see of a decision? The plan of a round, put together from memory and what the round saw.

use std::collections::BTreeMap;

use super::input::{CapacityModel, Mode, ModelInput, ModelPolicy, PoolPolicy, Slo};
use super::memory::{Decision, Memory, PoolMemory};
use super::observe::Round;
use super::plan::{Limit, LoopDecision, Outcome, OverrideKind, Plan, PoolPlan, Reason, SloSource};
use super::publish::{self, Serving, Standing};
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
    let mut changed = false;
    let mut pools = Vec::new();
    for pool in &policy.pools {
        let own = decision.pools.get(&pool.pool).and_then(|part| part.reason);
        let seen_now = round.blind.or_else(|| round.blind_pools.get(&pool.pool).copied());
        let reason = seen_now.or(own).unwrap_or(reason);
        let computed_now = decided.is_some() && reason.hold_kind().is_none();
        let verdict = Verdict { reason, computed_now, decided: decided.is_some(), before: before.get(&pool.pool).copied() };
        let pool_plan = render_pool(memory, &decision, pool, policy, verdict, round, input, now);
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
    pool: &PoolPolicy,
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
    let decided_count = known.planned.filter(|_| verdict.computed_now);
    let coverage_good = round.coverage_good && !round.silent_pools.contains(&pool.pool);
    let standing = Standing { reason: verdict.reason, decided: decided_count, coverage_good };
    let (planned_replicas, serving) = serve(known, pool, policy, standing, now);
    let what = match (verdict.decided, verdict.computed_now) {
        (false, _) => LoopDecision::Wait,
        (true, false) => LoopDecision::Hold,
        (true, true) if decided_count != before => LoopDecision::Scale,
        (true, true) => LoopDecision::Stay,
    };
    let (slow_loop, fast_loop) = match policy.capacity {
        CapacityModel::Unknown => (LoopDecision::Wait, what),
        CapacityModel::Envelope(_) | CapacityModel::Queueing(_) => (what, LoopDecision::Wait),
    };
    // A reload may have moved the limits since the decision; its steps then no longer lead to the plan.
    let steps = if part.planned() == planned_replicas { part.steps } else { Vec::new() };
    let limits_active = with_pin(&part.limits_active, &serving);
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

/// The plan inside the limits in force, and what is served of it.
pub(super) fn serve(
    known: &mut PoolMemory,
    pool: &PoolPolicy,
    policy: &ModelPolicy,
    standing: Standing,
    now: Moment,
) -> (Option<Replicas>, Serving) {
    known.planned = known.planned.map(|planned| pool.limits.clamp(planned));
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
