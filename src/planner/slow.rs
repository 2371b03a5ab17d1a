//! How many replicas does the load of a whole window need? The slow loop: at a boundary it judges the window and decides from it with the
//! capacity model. Where there is no model it only observes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::input::{ModelInput, Reading, SourceId};
use super::memory::{Decision, Memory, PoolDecision};
use super::model::envelope::Envelope;
use super::observe::{self, COVERAGE_TO_RAISE, Round, Window};
use super::plan::{Capability, Limit, Missing, Prediction, Proposer, QueueingTrace, Reason, StepReason, Warning};
use super::policy::{CapacityModel, ModelPolicy, PoolPolicy, Preset};
use super::propose::{self, Facts, Propose, Wish};
use super::{auto, bound, current_replicas, load, predict, recent, reconcile, sizing, teach, variants};
use crate::units::{Moment, Replicas, Role};

/// Decides if a boundary was passed. Answers with what reason.
pub(super) fn look(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment, round: &Round) -> Option<Reason> {
    if !round.due {
        return None;
    }
    let (decision, next) = match judge(memory, input, policy, now, round) {
        Err(held) => *held,
        Ok(trusted) => {
            let idle = observe::is_idle(memory, input, policy, &trusted.window);
            let began = now.monotonic.saturating_sub(memory.window_elapsed(now));
            memory.idle_since = if idle { memory.idle_since.or(Some(began)) } else { None };
            let untaught = match &policy.capacity {
                CapacityModel::Queueing(queueing) => teach::teach(memory, input, policy, queueing, &trusted.window, now),
                CapacityModel::Envelope(_) | CapacityModel::Iterations | CapacityModel::Unknown => BTreeMap::new(),
            };
            let next = predict::next::next(memory, policy, &trusted.window, trusted.whole, now);
            let mut decision = if let Some(auto) = &policy.auto {
                auto::decide(memory, input, policy, auto, &trusted.window, now)
            } else {
                decide(memory, input, policy, &trusted.window.clone().moved_on(next.factor), (next.prediction, trusted.whole), now)
            };
            decision.outlook = next.outlook;
            for (pool, reason) in untaught {
                decision.pools.entry(pool).or_default().untaught = Some(reason);
            }
            if matches!(policy.capacity, CapacityModel::Queueing(_)) {
                recent::remember(memory, &decision, policy, now);
            }
            (decision, Next::Begin { whole: trusted.whole })
        }
    };
    let decision = still_knowing(decision, memory.decision.as_ref());
    let reason = decision.reason;
    conclude(memory, policy, now, decision, next);
    Some(reason)
}

/// A decision that was not computed forgets nothing that was learned: what the model knows is shown as it was.
fn still_knowing(mut decision: Decision, last: Option<&Decision>) -> Decision {
    let Some(last) = last.filter(|_| decision.slo.is_none()) else { return decision };
    decision.slo = last.slo;
    for (pool, known) in &last.pools {
        if let Some(trace) = &known.queueing {
            // The last window taught nothing.
            let trace = QueueingTrace { update: None, ..trace.clone() };
            decision.pools.entry(pool.clone()).or_default().queueing.get_or_insert(trace);
        }
    }
    decision
}

/// Concludes a boundary at which nothing may be decided.
pub(super) fn hold(memory: &mut Memory, policy: &ModelPolicy, now: Moment, reason: Reason) {
    conclude(memory, policy, now, Decision::held(reason, None), Next::Begin { whole: false });
}

/// Share of the shortest first window below which a later window is too short to say anything.
const LEAST_OF_A_SHORT_WINDOW: f64 = 0.5;

/// How long nothing must have been asked for before a pool goes to its minimum: longer than the pause of a batch job between two calls.
pub(super) const IDLE_AFTER: Duration = Duration::from_secs(300);

/// What becomes of the window after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The next window begins; the flag says that this one was whole.
    Begin { whole: bool },
    /// This window goes on: it was too short, or nobody answered at its end and its baseline is still good.
    Extend,
}

/// A window that a decision may rest on.
struct Trusted {
    window: Window,
    /// Whether it spans an interval.
    whole: bool,
}

/// Judges the window: the checks in the order of the seed's "Skipped windows". Where it may not be trusted: the hold, and what becomes of it.
fn judge(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment, round: &Round) -> Result<Trusted, Box<(Decision, Next)>> {
    let span = memory.window_elapsed(now);
    let begin = Next::Begin { whole: false };
    if let Some(reason) = round.blind {
        // A baseline older than two intervals would average over a world that is gone.
        let next = if span > observe::longest_window(policy) { begin } else { Next::Extend };
        return Err(Box::new((Decision::held(reason, None), next)));
    }
    if let Some(reason) = memory.window.and_then(|window| window.spoiled) {
        return Err(Box::new((Decision::held(reason, None), begin)));
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
        return Err(Box::new((Decision::held(unready, None), Next::Extend)));
    }
    if span > observe::longest_window(policy) {
        return Err(Box::new((Decision::held(Reason::StaleWindow, None), begin)));
    }
    let Some(window) = observe::observe(memory, input, policy, now) else {
        // Targets answer, and none of them says what it served.
        let reason = if memory.complete_window_seen && !realigned { Reason::CoverageLow } else { unready };
        return Err(Box::new((Decision::held(reason, None), Next::Extend)));
    };
    let whole = span >= whole_from;
    Ok(Trusted { window, whole })
}

/// Computes a decision from a window that is not spoiled.
fn decide(
    memory: &Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    window: &Window,
    (prediction, whole): (Option<Prediction>, bool),
    now: Moment,
) -> Decision {
    let held = |reason| Decision::held(reason, Some(window));
    if window.least_coverage().get() < COVERAGE_TO_RAISE {
        return held(Reason::CoverageLow);
    }
    // An idle window says nothing of latencies: who decides by those decides nothing, whatever is forecast.
    let sized_by_forecast = policy.regression.is_some();
    let idle = !window.observation.requests.is_some_and(|requests| requests.get() > 0.0) || window.cautious.get() <= 0.0;
    let Some(prediction) = prediction.filter(|_| sized_by_forecast || !idle) else {
        let idle_for = memory.idle_since.map(|since| now.monotonic.saturating_sub(since));
        let minds_idleness = sized_by_forecast || matches!(policy.capacity, CapacityModel::Queueing(_));
        if minds_idleness && idle_for.is_some_and(|span| span >= IDLE_AFTER) {
            return rest(memory, input, policy, window, whole, now);
        }
        let served = window.finished > 0.0 || window.observation.requests.is_some_and(|requests| requests.get() > 0.0);
        let reason = if window.finished > 0.0 && !window.instrumented { Reason::SlaMetricsDisabled } else { Reason::NoRequests };
        // Where nothing was served there is nothing whose length could be missing.
        let lacks = load::lengths_missing(&window.observation).into_iter().filter(|_| served);
        return lacking(held(reason), policy, lacks);
    };
    if sized_by_forecast && policy.load.is_none_or(|load| load.floor) {
        return sizing::decide(memory, input, policy, (window, prediction), whole, now);
    }
    match &policy.capacity {
        CapacityModel::Envelope(envelope) if policy.preset == Preset::Infera => {
            decide_by_envelope(memory, input, policy, envelope, (window, prediction), whole, now)
        }
        CapacityModel::Queueing(queueing) => variants::decide(memory, input, policy, queueing, (window, prediction), whole, now),
        CapacityModel::Envelope(_) | CapacityModel::Iterations | CapacityModel::Unknown => {
            let mut observed = held(Reason::None);
            observed.prediction = Some(prediction);
            observed
        }
    }
}

/// Decides where nothing was asked for and nobody works: what nobody needs may go, down to the minimum, whatever is known of it.
fn rest(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, window: &Window, whole: bool, now: Moment) -> Decision {
    let mut decision = Decision::held(Reason::None, Some(window));
    for pool in &policy.pools {
        let observed = current_replicas(pool, memory, input);
        let context = bound::Context {
            observed,
            recommended: super::standing(pool, memory, observed, now),
            previous_wish: None,
            coverage: window.coverage_of(&pool.pool),
            complete_window_seen: memory.complete_window_seen || whole,
            caution: StepReason::SilentTargetsMayCarryLoad,
            keep: memory.growth.get(&pool.pool).and_then(|growth| growth.rollout(now)),
            growth: policy.growth,
            while_moving: None,
            step_down: policy.step_down.filter(|_| policy.load.is_none()),
            limits: pool.limits,
        };
        let none = Wish { supported: Replicas(0), cautious: Replicas(0) };
        let bounded = bound::bound(none, &context);
        let who =
            if matches!(policy.capacity, CapacityModel::Queueing(_)) { Proposer::Queueing } else { sizing::proposer(policy, pool.role) };
        let part = decision.pools.entry(pool.pool.clone()).or_default();
        part.proposed = [(who, none.supported)].into();
        part.unbounded = Some(none.supported);
        part.steps = bounded.steps;
        part.limits_active = bounded.limits;
    }
    decision
}

/// Preset infera's decision.
fn decide_by_envelope(
    memory: &Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    envelope: &Envelope,
    (window, prediction): (&Window, Prediction),
    whole: bool,
    now: Moment,
) -> Decision {
    let held = |reason| Decision::held(reason, Some(window));
    let count = |role| policy.pools.iter().find(|pool| pool.role == role).and_then(|pool| current_replicas(pool, memory, input));
    let uncounted = |reason, role| {
        let mut decision = held(reason);
        for pool in policy.pools.iter().filter(|pool| pool.role == role) {
            decision.pools.entry(pool.pool.clone()).or_default().missing = vec![not_counted(input)];
        }
        decision
    };
    let Some(decode) = count(Role::Decode) else { return uncounted(Reason::NoDecodeReplicas, Role::Decode) };
    // Requests were served, so somebody prefilled them: a count that is not listed is unknown and not zero.
    let Some(prefill) = count(Role::Prefill) else { return uncounted(Reason::MissingCapability, Role::Prefill) };
    let facts = Facts { prediction, ttft: window.observation.ttft_seconds, itl: window.observation.itl_seconds, prefill, decode };
    let proposer = propose::envelope::EnvelopePolicy::new(envelope, policy);
    let proposal = match proposer.propose(&facts) {
        Ok(proposal) => proposal,
        Err(reason) => {
            let latencies = [(Capability::Ttft, facts.ttft.is_none()), (Capability::Itl, facts.itl.is_none())];
            return lacking(held(reason), policy, latencies.into_iter().filter_map(|(what, absent)| absent.then_some(what)));
        }
    };

    let mut decision = Decision::held(Reason::None, Some(window));
    let coverage = window.least_coverage();
    let complete_window_seen = memory.complete_window_seen || whole;
    for pool in &policy.pools {
        let observed = current_replicas(pool, memory, input);
        let recommended = super::standing(pool, memory, observed, now);
        let (growth, limits) = (policy.growth, pool.limits);
        let keep = memory.growth.get(&pool.pool).and_then(|growth| growth.rollout(now));
        let context = bound::Context {
            observed,
            recommended,
            previous_wish: None,
            coverage,
            complete_window_seen,
            caution: StepReason::SilentTargetsMayCarryLoad,
            keep,
            growth,
            while_moving: None,
            step_down: policy.step_down,
            limits,
        };
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

/// Why replicas are not counted: servers of one role among the traffic targets are replicas themselves, in a place where routers are expected.
fn not_counted(input: &ModelInput) -> Missing {
    let traffic = input.sources.iter().filter(|source| source.source == SourceId::Traffic).flat_map(|source| &source.targets);
    let of_a_pair = |reading: &Reading| matches!(reading, Reading::Sample(sample) if sample.role.is_some());
    match traffic.filter(|target| of_a_pair(&target.reading)).map(|target| target.target.clone()).next() {
        Some(target) => Missing { what: Capability::SeparatePools, target: Some(target) },
        None => Missing { what: Capability::WorkerCount, target: None },
    }
}

/// A decision that misses these for every pool.
pub(super) fn lacking(mut decision: Decision, policy: &ModelPolicy, lacks: impl IntoIterator<Item = Capability>) -> Decision {
    let missing: Vec<Missing> = lacks.into_iter().map(|what| Missing { what, target: None }).collect();
    for pool in policy.pools.iter().filter(|_| !missing.is_empty()) {
        decision.pools.entry(pool.pool.clone()).or_default().missing.clone_from(&missing);
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
    if policy.load.is_some() {
        sizing::set_floors(memory, &decision);
    } else {
        for (pool, part) in &decision.pools {
            if let Some(planned) = part.planned() {
                memory.pools.entry(pool.clone()).or_default().decided(planned);
            }
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
