//! What does the queueing model decide? Preset wva's slow decision: objectives, what each variant can do, how many of each.
//!
//! | step | from | to |
//! |---|---|---|
//! | teach | the window of each pool (`workload`) | its parameters (`learn`) |
//! | objectives | written; else learned, the largest of the variants that have converged; else 1.5 times the lowest seen, at most 10 s and 500 ms | TTFT, ITL |
//! | capacity | parameters, lengths, objectives | lambda*, and the interval about it |
//! | counts | arrivals, lambda*, cost (`propose/queueing`) | wishes |
//!
//! A role that nobody has learned anything of is held, `not_converged`. A variant that cannot be analysed keeps its count while others are planned.
//!
//! An estimate may be wrong while the points do not tell the parameters apart. Two things keep it from moving GPUs: a load that is served within the
//! objectives now is possible, so the estimate is not below it; and nothing is given back on more than the lower end.

use std::collections::BTreeMap;

use super::input::{ModelInput, SourceId};
use super::learn::interval::{self, CapacityInterval, Question};
use super::learn::{LEAST_UPDATES, Seen, Update};
use super::memory::{Decision, Learning, Memory, PoolDecision};
use super::model::queueing::{Lengths, Objective, SloMultiplier};
use super::objectives::{PhaseMet, objective};
use super::observe::{COVERAGE_TO_RAISE, Demand, Window, blind_pools};
use super::plan::{
    Estimates, Latencies, LatencyRatios, PhaseState, Prediction, Proposer, QueueingTrace, Reason, SloSource, StepReason, Untaught, Warning,
};
use super::policy::{CapacityModel, ModelPolicy, PoolPolicy, QueueingPolicy};
use super::propose::queueing::{Variant, allocate};
use super::propose::{Wish, gpus_of};
use super::recent::{has_watched, with_recent};
use super::{batch, bound, current_replicas, workload};
use crate::units::{Moment, PoolId, Positive, Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds};

/// How much more load is taken as possible where the objectives are not nearly used up.
pub(crate) const ROOM: f64 = 1.1;
/// Distance of both ends of the interval from the estimate, at which a model has converged.
pub(crate) const CONVERGED: f64 = 0.2;

/// What is known of one pool at a decision.
pub(super) struct Known<'a> {
    pub pool: &'a PoolPolicy,
    pub learning: Option<&'a Learning>,
    pub lengths: Lengths,
    max_batch: Requests,
    /// Requests a second that one of its replicas serves now; 0 where none does.
    served: RequestsPerSecond,
    /// Whether requests waited for a place in it all the while: then it serves no more, however short its iterations are.
    is_full: bool,
    demand: Demand,
    observed: Option<Replicas>,
    standing: Option<Replicas>,
    /// Those of them that are not coming.
    absent: Replicas,
    /// Why nothing can be said of it now, while others of its role go on: it keeps its count, and carries nothing.
    held: Option<Reason>,
}

impl Known<'_> {
    pub fn question(&self, objective: Objective) -> Question {
        Question { role: self.pool.role, lengths: self.lengths, objective, max_batch: Some(self.max_batch) }
    }

    pub fn sees(&self, role: Role) -> bool {
        self.pool.role == role || self.pool.role == Role::Aggregated
    }
}

/// What one variant can do.
struct Capable {
    interval: Option<CapacityInterval>,
    /// What its count is computed with.
    rate: RequestsPerSecond,
    lower: RequestsPerSecond,
    converged: bool,
}

/// Decides from a window that can be trusted.
pub(super) fn decide(
    memory: &Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    queueing: &QueueingPolicy,
    (window, prediction): (&Window, Prediction),
    whole: bool,
    now: Moment,
) -> Decision {
    let blind = blind_pools(memory, input, policy);
    let known: Vec<Known<'_>> = policy
        .pools
        .iter()
        .map(|pool| {
            let held = blind.get(&pool.pool).copied();
            let held = held.or((window.coverage_of(&pool.pool).get() < COVERAGE_TO_RAISE).then_some(Reason::CoverageLow));
            known(memory, input, policy, queueing, pool, (window, &prediction, held), now)
        })
        .collect();
    let (objective, source) = objective(policy, queueing, &known);
    let met = PhaseMet::of(window, objective);
    let capable: Vec<Option<Capable>> =
        known.iter().map(|one| Some(confirmed(memory, one, capable(one, objective, queueing, met)?))).collect();

    let mut decision = Decision::held(Reason::None, Some(window));
    decision.prediction = Some(prediction);
    decision.slo = Some((objective, source));
    let mut unreachable = false;
    for role in Role::ALL {
        let members: Vec<usize> = (0..known.len()).filter(|&index| known[index].pool.role == role).collect();
        if members.is_empty() {
            continue;
        }
        let demand = with_recent(demand_of(role, &members, &known, &capable, window), memory.demands.get(&role), now);
        let variants: Vec<Variant> = members.iter().map(|&index| variant(&known[index], capable[index].as_ref())).collect();
        let span = window.observation.elapsed_seconds;
        let wishes = allocate(demand, span, &variants);
        // What would go if estimates that are not certain yet were: shown, and not followed.
        let believed = allocate(demand, span, &believed(&variants, members.iter().map(|&index| capable[index].as_ref())));
        let settled = source != SloSource::Observed;
        for &index in &members {
            let (one, capable) = (&known[index], capable[index].as_ref());
            let wish = wishes.get(&one.pool.pool).copied().zip(capable).map(|(wish, capable)| match believed.get(&one.pool.pool) {
                Some(believed) if !capable.converged => Wish { supported: wish.supported.min(believed.supported), ..wish },
                _ => wish,
            });
            let part = part(memory, policy, one, wish, (window, whole, settled, met), now);
            unreachable |= capable.is_some_and(|capable| capable.interval.is_none());
            let before = || Some(QueueingTrace { update: None, ..last_trace(memory, one)?.clone() });
            let trace = capable.and_then(|capable| trace(one, capable, objective, demand, queueing.multiplier)).or_else(before);
            let coverage = decision.pools.get(&one.pool.pool).and_then(|part| part.coverage);
            decision.pools.insert(one.pool.pool.clone(), PoolDecision { queueing: trace, coverage: coverage.or(part.coverage), ..part });
        }
    }
    if decision.pools.values().all(|part| part.reason.is_some()) {
        // Some pool can be seen, or nothing would be decided; of those nothing is known.
        decision.reason = Reason::NotConverged;
    } else if unreachable {
        decision.reason = Reason::SloUnreachable;
    }
    describe(&mut decision, &known, &capable, window, objective, met);
    decision
}

fn known<'a>(
    memory: &'a Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    queueing: &QueueingPolicy,
    pool: &'a PoolPolicy,
    (window, prediction, held): (&Window, &Prediction, Option<Reason>),
    now: Moment,
) -> Known<'a> {
    let observed = current_replicas(pool, memory, input);
    let seen = workload::seen(memory, policy, pool, observed, now);
    let lengths = lengths(memory, pool, prediction, seen);
    // Nobody can size for lengths that no request has.
    let held = held.or(lengths.is_none().then_some(Reason::NotConverged));
    let source = memory.source(&SourceId::Pool(pool.pool.clone())).or_else(|| memory.source(&SourceId::Traffic));
    let demand = window.demand.get(&SourceId::Pool(pool.pool.clone())).or_else(|| window.demand.get(&SourceId::Traffic));
    let standing = super::standing(pool, memory, observed, now);
    let absent = memory.growth.get(&pool.pool).zip(standing).map(|(growth, standing)| growth.absent(standing, now));
    let learning = memory.pools.get(&pool.pool).and_then(|known| known.learning.as_ref());
    let lengths = lengths.unwrap_or(Lengths { input: prediction.input_tokens, output: prediction.output_tokens });
    Known {
        pool,
        learning,
        lengths,
        max_batch: batch::largest(source, pool, queueing, learning.map(|learning| &learning.learned), lengths),
        served: seen.map_or(RequestsPerSecond(0.0), |seen| seen.served),
        is_full: seen.is_ok_and(|seen| seen.saturated),
        demand: demand.copied().unwrap_or_default(),
        observed,
        standing,
        absent: absent.unwrap_or_default(),
        held,
    }
}

/// What the pool itself serves, else what the model serves as a whole; where that cannot be, what the last decision was made for.
fn lengths(memory: &Memory, pool: &PoolPolicy, prediction: &Prediction, seen: Result<Seen, Untaught>) -> Option<Lengths> {
    let before = || Some(memory.decision.as_ref()?.pools.get(&pool.pool)?.queueing.as_ref()?.lengths);
    let whole = Some(Lengths { input: prediction.input_tokens, output: prediction.output_tokens }).filter(Lengths::are_plausible);
    match seen {
        Ok(seen) => Some(seen.lengths),
        Err(Untaught::ImplausibleLengths) => before().or(whole),
        Err(_) => whole.or_else(before),
    }
}

fn capable(one: &Known<'_>, objective: Objective, queueing: &QueueingPolicy, met: PhaseMet) -> Option<Capable> {
    let learned = &one.learning.filter(|_| one.held.is_none())?.learned;
    let interval = interval::capacity(learned, &one.question(objective));
    let converged = learned.accepted >= LEAST_UPDATES && interval.is_some_and(|interval| interval.is_within(CONVERGED));
    let Some(mut interval) = interval else {
        // No rate meets the objectives: sized for the wanted utilization, and nothing is given back on it.
        let work = learned.parameters().work(one.pool.role, one.lengths).get();
        let rate = RequestsPerSecond((1.0 - 1.0 / queueing.multiplier.get()) / work);
        return Some(Capable { interval: None, rate, lower: RequestsPerSecond(0.0), converged });
    };
    // What is served within the objectives now is possible, and a little more where they are not nearly used up.
    let possible = RequestsPerSecond(one.served.get() * if met.has_room(one.pool.role) && !one.is_full { ROOM } else { 1.0 });
    if met.in_role(one.pool.role) && possible > interval.estimate {
        interval.estimate = possible;
        interval.upper = if interval.upper < possible { possible } else { interval.upper };
    }
    Some(Capable { interval: Some(interval), rate: interval.estimate, lower: interval.lower, converged })
}

/// In a window in which the parameters were estimated anew, a capacity that is less than before buys nothing yet: the next window confirms it, or it
/// was nonsense.
fn confirmed(memory: &Memory, one: &Known<'_>, capable: Capable) -> Capable {
    let anew = one.learning.is_some_and(|learning| learning.update == Some(Update::Reset));
    let before = memory.decision.as_ref().and_then(|decision| Some(decision.pools.get(&one.pool.pool)?.queueing.as_ref()?.sized_with));
    let before = before.filter(|before| anew && *before > capable.rate);
    Capable { rate: before.unwrap_or(capable.rate), ..capable }
}

/// Arrivals that the variants that could be analysed have to carry.
fn demand_of(role: Role, members: &[usize], known: &[Known<'_>], capable: &[Option<Capable>], window: &Window) -> Demand {
    if let Some(whole) = window.demand.get(&SourceId::Traffic) {
        return *whole;
    }
    debug_assert!(members.iter().all(|&index| known[index].pool.role == role), "members are of the role");
    let mut sum = Demand::default();
    for &index in members {
        let (one, own) = (&known[index], known[index].demand);
        if capable[index].is_some() {
            sum.supported = RequestsPerSecond(sum.supported.get() + own.supported.get());
        }
        // Who asked a variant that is gone may ask the others next.
        if capable[index].is_some() || one.held.is_some() {
            sum.cautious = RequestsPerSecond(sum.cautious.get() + own.cautious.get());
        }
    }
    sum
}

fn variant(one: &Known<'_>, capable: Option<&Capable>) -> Variant {
    let gpus = f64::from(gpus_of(one.pool, &CapacityModel::Unknown).max(1));
    Variant {
        pool: one.pool.pool.clone(),
        standing: one.standing.or(one.observed).unwrap_or_default(),
        absent: one.absent,
        limits: one.pool.limits,
        cost: one.pool.cost.or(Positive::new(gpus)).unwrap_or(Positive::ONE),
        capacity: capable.map(|capable| (capable.rate, capable.lower)).filter(|(rate, _)| rate.is_positive()),
    }
}

/// The variants with their estimates in the place of lower ends that are far below, where the model has not converged.
fn believed<'a>(variants: &[Variant], capable: impl Iterator<Item = Option<&'a Capable>>) -> Vec<Variant> {
    let of = |(variant, capable): (&Variant, Option<&Capable>)| {
        let uncertain = capable.is_some_and(|capable| !capable.converged && capable.interval.is_some());
        let capacity = variant.capacity.map(|(rate, lower)| (rate, if uncertain { rate } else { lower }));
        Variant { capacity, ..variant.clone() }
    };
    variants.iter().zip(capable).map(of).collect()
}

/// Bounds the wish for one pool.
fn part(
    memory: &Memory,
    policy: &ModelPolicy,
    one: &Known<'_>,
    wish: Option<Wish>,
    (window, whole, settled, met): (&Window, bool, bool, PhaseMet),
    now: Moment,
) -> PoolDecision {
    let Some(wish) = wish else {
        return PoolDecision { reason: Some(one.held.unwrap_or(Reason::NotConverged)), ..PoolDecision::default() };
    };
    let rollout = memory.growth.get(&one.pool.pool).and_then(|growth| growth.rollout(now));
    // Parameters that were estimated anew in this window have yet to be confirmed.
    let anew = one.learning.is_some_and(|learning| learning.update == Some(Update::Reset));
    let unsettled = (!settled || anew).then_some(StepReason::NotConverged);
    let missed = met.is_missed(one.pool.role).then_some(StepReason::ObjectiveMissed);
    let censored = (window.censored && !met.in_role(one.pool.role)).then_some(StepReason::DemandCensored);
    let previous = memory.decision.as_ref().and_then(|decision| decision.pools.get(&one.pool.pool)?.unbounded);
    let context = bound::Context {
        observed: one.observed,
        recommended: one.standing,
        previous_wish: previous,
        coverage: window.coverage_of(&one.pool.pool),
        complete_window_seen: (memory.complete_window_seen || whole) && has_watched(memory, one.pool.role, window, now),
        // What an uncertain estimate would give back stays.
        caution: StepReason::NotConverged,
        keep: rollout.or(unsettled).or(missed).or(censored),
        growth: policy.growth,
        while_moving: None,
        step_down: policy.step_down,
        limits: one.pool.limits,
    };
    let bounded = bound::bound(wish, &context);
    PoolDecision {
        proposed: BTreeMap::from([(Proposer::Queueing, wish.supported)]),
        unbounded: Some(wish.supported),
        steps: bounded.steps,
        limits_active: bounded.limits,
        ..PoolDecision::default()
    }
}

/// What was known of a pool that is held now.
fn last_trace<'a>(memory: &'a Memory, one: &Known<'_>) -> Option<&'a QueueingTrace> {
    one.held.and(memory.decision.as_ref())?.pools.get(&one.pool.pool)?.queueing.as_ref()
}

fn trace(one: &Known<'_>, capable: &Capable, objective: Objective, demand: Demand, multiplier: SloMultiplier) -> Option<QueueingTrace> {
    let learning = one.learning?;
    let learned = &learning.learned;
    let state = learned.parameters().at(one.pool.role, one.served, one.lengths).filter(|_| one.served.is_positive());
    Some(QueueingTrace {
        parameters: learned.parameters(),
        nis: learned.nis,
        condition: learned.condition,
        points: u32::try_from(learned.all_points().len()).unwrap_or(u32::MAX),
        accepted: learned.accepted,
        update: learning.update,
        utilization: state.map(|state| state.utilization),
        lengths: one.lengths,
        objective,
        max_batch: one.max_batch,
        capacity: capable.interval,
        sized_with: capable.rate,
        converged: capable.converged,
        demand: demand.supported,
        cautious_demand: demand.cautious,
        standing: variant(one, None).standing,
        absent: one.absent,
        multiplier,
        cost: variant(one, None).cost.get(),
    })
}

/// Ratios, estimates, the state of the objectives and warnings.
fn describe(
    decision: &mut Decision,
    known: &[Known<'_>],
    capable: &[Option<Capable>],
    window: &Window,
    objective: Objective,
    met: PhaseMet,
) {
    let attainable = |role: Role| {
        let seeing: Vec<&Capable> =
            known.iter().zip(capable).filter(|(one, _)| one.sees(role)).filter_map(|(_, capable)| capable.as_ref()).collect();
        (!seeing.is_empty()).then(|| seeing.iter().any(|capable| capable.interval.is_some()))
    };
    decision.prompt = PhaseState { met: met.prompt, attainable: attainable(Role::Prefill) };
    decision.generation = PhaseState { met: met.generation, attainable: attainable(Role::Decode) };
    let counts = |of: &dyn Fn(&Known<'_>) -> Option<Replicas>| -> BTreeMap<PoolId, Replicas> {
        known.iter().filter_map(|one| Some((one.pool.pool.clone(), of(one)?))).collect()
    };
    let planned = |one: &Known<'_>| decision.pools.get(&one.pool.pool).and_then(PoolDecision::planned).or(one.standing);
    let (now, then) = (counts(&|one| one.observed), counts(&planned));
    decision.estimated =
        Estimates { current: latencies(known, capable, window, &now), recommended: latencies(known, capable, window, &then) };
    let ratio = |measured: Option<Seconds>, modelled: Option<Seconds>| {
        let ratio = measured?.get() / modelled?.get();
        (ratio.is_finite() && ratio > 0.0).then_some(Ratio(ratio))
    };
    decision.latency_ratio = LatencyRatios {
        prompt: ratio(window.observation.ttft_seconds, decision.estimated.current.ttft_seconds),
        generation: ratio(window.observation.itl_seconds, decision.estimated.current.itl_seconds),
    };
    let out_of_reach = |role: Role| attainable(role) == Some(false);
    if out_of_reach(Role::Prefill) || out_of_reach(Role::Decode) {
        decision.warnings.push(Warning::ObjectiveBelowModel);
        decision.warnings.sort_unstable();
    }
    debug_assert!(objective.ttft.is_positive() && objective.itl.is_positive(), "objectives are above zero");
}

/// The closed form at these counts: each variant carries its share of the demand by capacity, so that all are equally loaded. `None` where a replica
/// could not serve its share.
fn latencies(known: &[Known<'_>], capable: &[Option<Capable>], window: &Window, counts: &BTreeMap<PoolId, Replicas>) -> Latencies {
    let of = |role: Role, latency: fn(&super::model::queueing::State) -> Seconds| {
        let seeing: Vec<(&Known<'_>, &Capable, f64)> = known
            .iter()
            .zip(capable)
            .filter(|(one, _)| one.sees(role))
            .filter_map(|(one, capable)| Some((one, capable.as_ref()?, counts.get(&one.pool.pool)?.as_f64())))
            .collect();
        let supply: f64 = seeing.iter().map(|(_, capable, count)| capable.rate.get() * count).sum();
        let demand = match window.demand.get(&SourceId::Traffic) {
            Some(whole) => whole.supported.get(),
            None => seeing.iter().map(|(one, _, _)| one.demand.supported.get()).sum(),
        };
        let mut mean = 0.0;
        for (one, capable, count) in seeing.iter().filter(|(_, _, count)| *count > 0.0) {
            let share = capable.rate.get() / supply;
            let state = one.learning?.learned.parameters().at(one.pool.role, RequestsPerSecond(demand * share), one.lengths)?;
            mean += latency(&state).get() * share * count;
        }
        (mean.is_finite() && mean > 0.0).then_some(Seconds(mean))
    };
    Latencies { ttft_seconds: of(Role::Prefill, |state| state.ttft), itl_seconds: of(Role::Decode, |state| state.itl) }
}
