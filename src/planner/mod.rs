//! How many replicas does each pool need? THE CORE. Pure.
//!
//! [`plan`] is a function of (input, memory, policy, now) that returns (plan, memory). It cannot fail, wait, log, or look at a clock.
//! Missing knowledge is a verdict, never an error and never a zero. README.md here explains each stage with numbers.
//!
//! Every round calls it. Between decisions it only brings the windows up to date and keeps the last decision; at a boundary (a wall-clock
//! multiple of the interval) it judges the window and decides anew.

pub mod bound;
pub mod input;
pub mod lint;
pub mod memory;
pub mod model;
pub mod observe;
pub mod plan;
pub mod predict;
pub mod propose;
pub mod publish;
pub mod quantile;
pub mod reconcile;
mod sample;
mod sum;
pub mod window;

use std::collections::BTreeMap;

use input::{CapacityModel, Mode, ModelInput, ModelPolicy, PoolPolicy, ReplicasFrom, SourceId};
use memory::{Decision, Memory, PoolDecision, PoolMemory};
use observe::{COVERAGE_TO_RAISE, Round, Window};
use plan::{Limit, LoopDecision, Outcome, OverrideKind, Plan, PoolPlan, Reason, Warning};
use propose::{Facts, Propose};
use publish::{Serving, Standing};

use crate::units::{Moment, PoolId, Ratio, Replicas, Role};

/// Plans one model for one round.
pub fn plan(input: &ModelInput, mut memory: Memory, policy: &ModelPolicy, now: Moment) -> (Plan, Memory) {
    let round = begin_round(&mut memory, input, policy, now);
    let before = planned_counts(&memory);
    let mut decided = None;
    if round.due {
        let (decision, next) = judge(&memory, input, policy, now, &round);
        decided = Some(decision.reason);
        conclude(&mut memory, policy, now, decision, next);
    }
    let plan = render(&mut memory, input, policy, now, &round, decided, &before);
    (plan, memory)
}

/// The last plan, held for a reason that lies outside the samples: nothing was scraped yet, or a finished plan broke a rule.
/// `memory` is the memory from before this round. Where a decision was due, the hold is the decision and stands until the next one.
pub fn hold(input: &ModelInput, mut memory: Memory, policy: &ModelPolicy, now: Moment, reason: Reason) -> (Plan, Memory) {
    let mut round = begin_round(&mut memory, input, policy, now);
    round.blind = Some(reason);
    let before = planned_counts(&memory);
    let decided = round.due.then_some(reason);
    if round.due {
        conclude(&mut memory, policy, now, Decision::held(reason, None), Next::Begin { whole: false });
    }
    let plan = render(&mut memory, input, policy, now, &round, decided, &before);
    (plan, memory)
}

/// What every round does first: forget pools that are gone, take in the samples, follow the wall clock.
fn begin_round(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> Round {
    memory.pools.retain(|pool, _| policy.pools.iter().any(|known| known.pool == *pool));
    let round = observe::take_in(memory, input, policy, now);
    if let Some(step) = round.clock_step {
        memory.pools.values_mut().for_each(|pool| publish::shift(pool, step));
    }
    round
}

fn planned_counts(memory: &Memory) -> BTreeMap<PoolId, Replicas> {
    memory.pools.iter().filter_map(|(pool, known)| Some((pool.clone(), known.planned?))).collect()
}

/// The last plan under a changed policy, between two rounds: new limits, pins and modes bind at once, what was observed stays.
/// Where memory has no decision any more, because the model of capacity changed, the plan waits for the next window.
pub fn reissue(last: &Plan, mut memory: Memory, policy: &ModelPolicy, interval_changed: bool, now: Moment) -> (Plan, Memory) {
    memory.pools.retain(|pool, _| policy.pools.iter().any(|known| known.pool == *pool));
    let reason = if memory.decision.is_some() || last.held { last.reason } else { Reason::Baseline };
    if let Some(window) = memory.window.as_mut().filter(|_| interval_changed) {
        // A new interval has its own boundaries: the next one is due, not this moment.
        window.slot = observe::slot_of(now, policy.interval);
    }
    let CapacityModel::Envelope(envelope) = &policy.capacity;
    let pools = policy.pools.iter().map(|pool| {
        let known = memory.pools.entry(pool.pool.clone()).or_default();
        let standing = Standing { reason, decided: None, coverage_good: false };
        let (planned_replicas, serving) = serve(known, pool, policy, standing, now);
        let last = last.pool(&pool.pool).filter(|last| last.role == pool.role);
        let steps = last.filter(|last| last.planned_replicas == planned_replicas).map(|last| last.steps.clone()).unwrap_or_default();
        PoolPlan {
            pool: pool.pool.clone(),
            role: pool.role,
            current_replicas: last.and_then(|last| last.current_replicas),
            recommended_replicas: serving.published.map(|published| published.replicas),
            planned_replicas,
            unbounded_replicas: last.and_then(|last| last.unbounded_replicas),
            proposed: last.map(|last| last.proposed.clone()).unwrap_or_default(),
            steps,
            limits_active: last.map(|last| with_pin(&last.limits_active, &serving)).unwrap_or_default(),
            held: serving.held,
            reason: serving.reason,
            overridden: serving.overridden,
            published: serving.published,
            slow_loop: LoopDecision::Wait,
            coverage: last.and_then(|last| last.coverage),
            gpus_per_replica: propose::envelope::gpus_of(pool, envelope),
        }
    });
    let plan = Plan {
        preset: policy.preset,
        mode: policy.mode,
        at: now,
        decided: false,
        outcome: None,
        held: reason.hold_kind().is_some(),
        reason,
        slo: policy.slo.clone(),
        pools: pools.collect(),
        ..last.clone()
    };
    (plan, memory)
}

/// Ready replicas of a pool (planning.md 1.9). `None` where nobody knows.
pub fn current_replicas(pool: &PoolPolicy, memory: &Memory, input: &ModelInput) -> Option<Replicas> {
    match pool.replicas_from {
        ReplicasFrom::Metric => memory.workers(pool.role),
        ReplicasFrom::Targets => {
            let source = input.sources.iter().find(|source| source.source == SourceId::Pool(pool.pool.clone()))?;
            let targets = u32::try_from(source.targets.len()).unwrap_or(u32::MAX);
            Some(Replicas(targets.div_ceil(pool.targets_per_replica.get())))
        }
    }
}

/// Share of the shortest first window below which a later window is too short to say anything.
const LEAST_OF_A_SHORT_WINDOW: f64 = 0.5;

/// What becomes of the window after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The next window begins; the flag says that this one was whole.
    Begin { whole: bool },
    /// This window goes on: it was too short, or nobody answered at its end and its baseline is still good.
    Extend,
}

/// Judges the window: the checks in the order of the seed's "Skipped windows", then the computation.
fn judge(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment, round: &Round) -> (Decision, Next) {
    let span = memory.window_elapsed(now);
    let begin = Next::Begin { whole: false };
    if let Some(reason) = round.blind {
        // A baseline older than two intervals would average over a world that is gone.
        let next = if span > observe::longest_window(policy) { begin } else { Next::Extend };
        return (Decision::held(reason, None), next);
    }
    if let Some(reason) = memory.window.and_then(|window| window.spoiled) {
        return (Decision::held(reason, None), begin);
    }
    // Two ticks are never exactly one interval apart; a window counts as whole from the same share on as a target's own.
    let whole_from = policy.interval.mul_f64(observe::WHOLE_SHARE);
    let realigned = memory.window.is_some_and(|window| window.realigned);
    let (unready, shortest) = if realigned {
        (Reason::StaleWindow, policy.shortest_first_window().min(whole_from))
    } else if memory.complete_window_seen {
        // A boundary that was noticed late, because a round overran, leaves the next window short; its rates are divided by its real time.
        (Reason::StaleWindow, policy.shortest_first_window().min(whole_from).mul_f64(LEAST_OF_A_SHORT_WINDOW))
    } else {
        (Reason::Baseline, policy.shortest_first_window().min(whole_from))
    };
    if span < shortest {
        return (Decision::held(unready, None), Next::Extend);
    }
    if span > observe::longest_window(policy) {
        return (Decision::held(Reason::StaleWindow, None), begin);
    }
    let Some(window) = observe::observe(memory, input, policy, now) else {
        // Targets answer, and none of them says what it served.
        let reason = if memory.complete_window_seen && !realigned { Reason::CoverageLow } else { unready };
        return (Decision::held(reason, None), Next::Extend);
    };
    let whole = span >= whole_from;
    (decide(memory, input, policy, &window, whole), Next::Begin { whole })
}

/// Computes a decision from a window that is not spoiled.
fn decide(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, window: &Window, whole: bool) -> Decision {
    let held = |reason| Decision::held(reason, Some(window));
    if window.least_coverage().get() < COVERAGE_TO_RAISE {
        return held(Reason::CoverageLow);
    }
    let Some(prediction) = predict::constant::predict(window) else {
        let uninstrumented = window.finished > 0.0 && !window.instrumented;
        return held(if uninstrumented { Reason::SlaMetricsDisabled } else { Reason::NoRequests });
    };
    let count = |role| policy.pools.iter().find(|pool| pool.role == role).and_then(|pool| current_replicas(pool, memory, input));
    let Some(decode) = count(Role::Decode) else { return held(Reason::NoDecodeReplicas) };
    // Requests were served, so somebody prefilled them: a count that is not listed is unknown and not zero.
    let Some(prefill) = count(Role::Prefill) else { return held(Reason::MissingCapability) };
    let facts = Facts { prediction, ttft: window.observation.ttft_seconds, itl: window.observation.itl_seconds, prefill, decode };
    let CapacityModel::Envelope(envelope) = &policy.capacity;
    let proposer = propose::envelope::EnvelopePolicy::new(envelope, policy);
    let proposal = match proposer.propose(&facts) {
        Ok(proposal) => proposal,
        Err(reason) => return held(reason),
    };

    let mut decision = Decision::held(Reason::None, Some(window));
    let coverage = window.least_coverage();
    let complete_window_seen = memory.complete_window_seen || whole;
    for pool in &policy.pools {
        let observed = current_replicas(pool, memory, input);
        let known = memory.pools.get(&pool.pool);
        let recommended = known.and_then(|known| known.planned.or(known.published.map(|published| published.replicas)));
        let (growth, limits) = (policy.growth, pool.limits);
        let context = bound::Context { observed, recommended, coverage, complete_window_seen, growth, limits };
        decide_pool(&mut decision, &proposal, pool, &context);
    }
    let planned = |role| {
        let pool = policy.pools.iter().find(|pool| pool.role == role);
        pool.and_then(|pool| decision.pools.get(&pool.pool)).and_then(PoolDecision::planned).unwrap_or_default()
    };
    decision.estimated = proposer.estimate(&facts, &proposal, planned(Role::Prefill), planned(Role::Decode));
    decision.prediction = Some(prediction);
    decision.latency_ratio = proposal.latency_ratio;
    decision.prompt = proposal.prompt;
    decision.generation = proposal.generation;
    decision.envelope = Some(proposal.trace);
    decision.warnings.extend(proposal.warnings);
    decision.warnings.sort_unstable();
    if [decision.prompt.attainable, decision.generation.attainable].contains(&Some(false)) {
        decision.reason = Reason::SloUnreachable;
    }
    decision
}

/// Bounds the wish for one pool and notes it in the decision.
fn decide_pool(decision: &mut Decision, proposal: &propose::Proposal, pool: &PoolPolicy, context: &bound::Context) {
    let Some(wish) = reconcile::reconcile(proposal, pool.role) else { return };
    let bounded = bound::bound(wish, context);
    if bounded.limits.contains(&Limit::Growth) {
        decision.warnings.push(if pool.role == Role::Prefill { Warning::PrefillGrowthCapped } else { Warning::DecodeGrowthCapped });
    }
    let proposed = proposal.wishes.iter().filter(|(_, (role, _))| *role == pool.role);
    let part = decision.pools.entry(pool.pool.clone()).or_default();
    part.proposed = proposed.map(|(proposer, (_, wish))| (*proposer, wish.supported)).collect();
    part.unbounded = Some(wish.supported);
    part.steps = bounded.steps;
    part.limits_active = bounded.limits;
}

/// Puts a decision into memory and moves the window on.
fn conclude(memory: &mut Memory, policy: &ModelPolicy, now: Moment, decision: Decision, next: Next) {
    for (pool, part) in &decision.pools {
        if let Some(planned) = part.planned() {
            memory.pools.entry(pool.clone()).or_default().planned = Some(planned);
        }
    }
    memory.decision = Some(decision);
    match next {
        Next::Begin { whole } => {
            memory.complete_window_seen |= whole;
            observe::remember_rates(memory, now);
            observe::begin_window(memory, policy, now, false);
        }
        Next::Extend => {
            let slot = observe::slot_of(now, policy.interval);
            if let Some(window) = &mut memory.window {
                window.slot = slot;
            }
        }
    }
}

impl Decision {
    /// A decision without a result. Called with [`Reason::None`] it is the frame that [`decide`] fills in.
    fn held(reason: Reason, window: Option<&Window>) -> Self {
        let coverage_of = |window: &Window| window.coverage.clone();
        let mut pools = BTreeMap::new();
        for (source, coverage) in window.map(coverage_of).unwrap_or_default() {
            if let SourceId::Pool(pool) = source {
                pools.insert(pool, PoolDecision { coverage: Some(coverage), ..PoolDecision::default() });
            }
        }
        Self {
            reason,
            observation: window.map(|window| window.observation.clone()),
            prediction: None,
            latency_ratio: plan::LatencyRatios::default(),
            estimated: plan::Estimates::default(),
            prompt: plan::PhaseState::default(),
            generation: plan::PhaseState::default(),
            envelope: None,
            warnings: window.map(|window| window.warnings.clone()).unwrap_or_default(),
            coverage: window.and_then(|window| window.coverage.get(&SourceId::Traffic).copied()),
            pools,
        }
    }
}

impl PoolDecision {
    fn planned(&self) -> Option<Replicas> {
        self.steps.last().map(|step| step.after)
    }
}

/// The plan that people, metrics and JSON show, from memory and what this round saw. `before` holds the plans from before this round.
fn render(
    memory: &mut Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    now: Moment,
    round: &Round,
    decided: Option<Reason>,
    before: &BTreeMap<PoolId, Replicas>,
) -> Plan {
    let decision = memory.decision.clone().unwrap_or_else(|| Decision::held(Reason::Baseline, None));
    // What is seen right now overrules an older verdict: a fleet that stopped answering is shown at once, not at the next boundary.
    let reason = round.blind.unwrap_or(decision.reason);
    let computed_now = decided.is_some() && reason.hold_kind().is_none();
    let mut changed = false;
    let mut pools = Vec::new();
    for pool in &policy.pools {
        let verdict = Verdict { reason, computed_now, decided: decided.is_some(), before: before.get(&pool.pool).copied() };
        let pool_plan = render_pool(memory, &decision, pool, policy, verdict, round, input, now);
        changed |= pool_plan.slow_loop == LoopDecision::Scale;
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
        slo: policy.slo.clone(),
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
    let known = memory.pools.entry(pool.pool.clone()).or_default();
    // Where the plan itself is not what is served, it is compared with the last plan.
    let before = if policy.mode == Mode::Publish { known.published.map(|published| published.replicas) } else { verdict.before };
    let decided_count = known.planned.filter(|_| verdict.computed_now);
    let standing = Standing { reason: verdict.reason, decided: decided_count, coverage_good: round.coverage_good };
    let (planned_replicas, serving) = serve(known, pool, policy, standing, now);
    let slow_loop = match (verdict.decided, verdict.computed_now) {
        (false, _) => LoopDecision::Wait,
        (true, false) => LoopDecision::Hold,
        (true, true) if decided_count != before => LoopDecision::Scale,
        (true, true) => LoopDecision::Stay,
    };
    // A reload may have moved the limits since the decision; its steps then no longer lead to the plan.
    let steps = if part.planned() == planned_replicas { part.steps } else { Vec::new() };
    let limits_active = with_pin(&part.limits_active, &serving);
    let CapacityModel::Envelope(envelope) = &policy.capacity;
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
        coverage: coverage_of(decision, &pool.pool),
        gpus_per_replica: propose::envelope::gpus_of(pool, envelope),
    }
}

/// The plan inside the limits in force, and what is served of it.
fn serve(known: &mut PoolMemory, pool: &PoolPolicy, policy: &ModelPolicy, standing: Standing, now: Moment) -> (Option<Replicas>, Serving) {
    known.planned = known.planned.map(|planned| pool.limits.clamp(planned));
    (known.planned, publish::publish(known, pool, policy, standing, now))
}

fn with_pin(limits: &[Limit], serving: &Serving) -> Vec<Limit> {
    let pin = (serving.overridden == Some(OverrideKind::Pin)).then_some(Limit::Pinned);
    limits.iter().copied().filter(|limit| *limit != Limit::Pinned).chain(pin).collect()
}

/// Coverage of the window of a pool: its own targets', else the traffic source's.
fn coverage_of(decision: &Decision, pool: &PoolId) -> Option<Ratio> {
    decision.pools.get(pool).and_then(|part| part.coverage).or(decision.coverage)
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
