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

use super::input::{CapacityModel, Gauge, ModelInput, ModelPolicy, PoolPolicy, QueueingPolicy, SourceId};
use super::learn::interval::{self, CapacityInterval, Question};
use super::learn::{LEAST_UPDATES, Learned, Update};
use super::memory::{Decision, Learning, Memory, PoolDecision};
use super::model::queueing::{Lengths, Objective, SloMultiplier};
use super::observe::{Demand, Window};
use super::plan::{
    Estimates, Latencies, LatencyRatios, PhaseState, Prediction, Proposer, QueueingTrace, Reason, SloSource, StepReason, Warning,
};
use super::propose::queueing::{Variant, allocate};
use super::propose::{Wish, gpus_of};
use super::recent::{has_watched, with_recent};
use super::{bound, current_replicas, workload};
use crate::units::{Moment, PoolId, Positive, Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds};

/// Room over the lowest latencies while nothing is learned (`DefaultFallbackHeadroom`), and how high that may go.
pub(crate) const HEADROOM: f64 = 1.5;
pub(crate) const HIGHEST_TTFT: Seconds = Seconds(10.0);
pub(crate) const HIGHEST_ITL: Seconds = Seconds(0.5);
/// Share of the objectives below which a served load leaves room, and how much more load is then taken as possible. Near the maximum a tenth more
/// load can double an iteration; below eight tenths of the objectives it cannot, and the noise of arrivals must not buy a replica.
const USED: f64 = 0.8;
pub(crate) const ROOM: f64 = 1.1;
/// Distance of both ends of the interval from the estimate, at which a model has converged.
pub(crate) const CONVERGED: f64 = 0.2;

/// Teaches each pool's model what the window showed. Called once for each window that can be trusted.
pub(super) fn teach(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, queueing: &QueueingPolicy, now: Moment) {
    for pool in &policy.pools {
        let replicas = current_replicas(pool, memory, input);
        let mixed = memory.growth.get(&pool.pool).is_some_and(|growth| growth.rollout(now).is_some());
        // Two generations at once are no one server.
        let seen = workload::seen(memory, policy, pool, replicas, now).filter(|_| !mixed);
        let known = memory.pools.entry(pool.pool.clone()).or_default();
        known.learning = known.learning.take().filter(|learning| now.wall.saturating_sub(learning.at) <= queueing.learned_for);
        let Some(seen) = seen else {
            known.learning.iter_mut().for_each(|learning| learning.update = None);
            continue;
        };
        let learning = known.learning.get_or_insert_with(|| Learning {
            learned: Learned::new(pool.role, &seen),
            at: now.wall,
            update: None,
            lowest_ttft: None,
            lowest_itl: None,
        });
        learning.update = Some(learning.learned.learn(pool.role, &seen));
        learning.at = now.wall;
        let lower = |known: Option<Seconds>, seen: Option<Seconds>| match (known, seen) {
            (Some(known), Some(seen)) => Some(if seen < known { seen } else { known }),
            (known, seen) => known.or(seen),
        };
        learning.lowest_ttft = lower(learning.lowest_ttft, seen.ttft);
        learning.lowest_itl = lower(learning.lowest_itl, seen.itl);
    }
}

/// What is known of one pool at a decision.
struct Known<'a> {
    pool: &'a PoolPolicy,
    learning: Option<&'a Learning>,
    lengths: Lengths,
    max_batch: Requests,
    /// Requests a second that one of its replicas serves now; 0 where none does.
    served: RequestsPerSecond,
    demand: Demand,
    observed: Option<Replicas>,
    standing: Option<Replicas>,
}

impl Known<'_> {
    fn question(&self, objective: Objective) -> Question {
        Question { role: self.pool.role, lengths: self.lengths, objective, max_batch: Some(self.max_batch) }
    }

    fn sees(&self, role: Role) -> bool {
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
    let known: Vec<Known<'_>> =
        policy.pools.iter().map(|pool| known(memory, input, policy, queueing, pool, (window, &prediction), now)).collect();
    let (objective, source) = objective(policy, queueing, &known);
    let met = PhaseMet::of(window, objective);
    let capable: Vec<Option<Capable>> = known.iter().map(|one| capable(one, objective, queueing, met)).collect();

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
        let wishes = allocate(demand, window.observation.elapsed_seconds, &variants);
        let settled = source != SloSource::Observed;
        for &index in &members {
            let (one, capable) = (&known[index], capable[index].as_ref());
            let wish = wishes.get(&one.pool.pool).copied().filter(|_| capable.is_some());
            let part = part(memory, policy, one, wish, (window, whole, settled, met), now);
            unreachable |= capable.is_some_and(|capable| capable.interval.is_none());
            let trace = capable.and_then(|capable| trace(one, capable, objective, demand, queueing.multiplier));
            let coverage = decision.pools.get(&one.pool.pool).and_then(|part| part.coverage);
            decision.pools.insert(one.pool.pool.clone(), PoolDecision { queueing: trace, coverage: coverage.or(part.coverage), ..part });
        }
    }
    if decision.pools.values().all(|part| part.reason.is_some()) {
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
    (window, prediction): (&Window, &Prediction),
    now: Moment,
) -> Known<'a> {
    let observed = current_replicas(pool, memory, input);
    let seen = workload::seen(memory, policy, pool, observed, now);
    let source = memory.source(&SourceId::Pool(pool.pool.clone())).or_else(|| memory.source(&SourceId::Traffic));
    let gauge =
        source.and_then(|source| source.targets.values().filter_map(|target| target.last_gauge(Gauge::MaxRunning)).reduce(f64::max));
    let told = pool.capabilities.max_num_seqs.unwrap_or(queueing.max_batch);
    let demand = window.demand.get(&SourceId::Pool(pool.pool.clone())).or_else(|| window.demand.get(&SourceId::Traffic));
    Known {
        pool,
        learning: memory.pools.get(&pool.pool).and_then(|known| known.learning.as_ref()),
        // What the pool itself serves, else what the model serves as a whole.
        lengths: seen.map_or(Lengths { input: prediction.input_tokens, output: prediction.output_tokens }, |seen| seen.lengths),
        max_batch: Requests(gauge.filter(|most| *most >= 1.0).unwrap_or(f64::from(told.get()))),
        served: seen.map_or(RequestsPerSecond(0.0), |seen| seen.served),
        demand: demand.copied().unwrap_or_default(),
        observed,
        standing: super::standing(pool, memory, observed, now),
    }
}

/// Whether the objectives are met now; `None` where that is not known.
#[derive(Clone, Copy)]
struct PhaseMet {
    prompt: Option<bool>,
    generation: Option<bool>,
    /// Share of the objectives that is used, the larger of both phases that are known.
    used: f64,
}

impl PhaseMet {
    fn of(window: &Window, objective: Objective) -> Self {
        let within = |found: Option<Seconds>, objective: Seconds| found.map(|found| found <= objective);
        let (ttft, itl) = (window.observation.ttft_seconds, window.observation.itl_seconds);
        let share = |found: Option<Seconds>, objective: Seconds| found.map_or(1.0, |found| found.get() / objective.get());
        Self {
            prompt: within(ttft, objective.ttft),
            generation: within(itl, objective.itl),
            used: share(ttft, objective.ttft).max(share(itl, objective.itl)),
        }
    }

    /// Whether a tenth more load would hardly be felt.
    fn has_room(self, role: Role) -> bool {
        self.in_role(role) && self.used <= USED
    }

    /// Whether one that the role decides is missed.
    fn is_missed(self, role: Role) -> bool {
        let (prompt, generation) = (self.prompt == Some(false), self.generation == Some(false));
        match role {
            Role::Prefill => prompt,
            Role::Decode => generation,
            Role::Aggregated => prompt || generation,
        }
    }

    /// Those that the role decides.
    fn in_role(self, role: Role) -> bool {
        let (prompt, generation) = (self.prompt == Some(true), self.generation == Some(true));
        match role {
            Role::Prefill => prompt,
            Role::Decode => generation,
            Role::Aggregated => prompt && generation,
        }
    }
}

/// The objectives in the seed's order (section 3).
fn objective(policy: &ModelPolicy, queueing: &QueueingPolicy, known: &[Known<'_>]) -> (Objective, SloSource) {
    if policy.slo.explicit {
        return (Objective { ttft: Seconds(policy.slo.ttft.get()), itl: Seconds(policy.slo.itl.get()) }, SloSource::Explicit);
    }
    let learned = |one: &Known<'_>| {
        let learning = one.learning?;
        let wanted = learning.learned.parameters().at_multiple(queueing.multiplier, one.lengths);
        let interval = interval::capacity(&learning.learned, &one.question(wanted))?;
        (learning.learned.accepted >= LEAST_UPDATES && interval.is_within(CONVERGED)).then_some(wanted)
    };
    let wanted: Vec<(&Known<'_>, Objective)> = known.iter().filter_map(|one| Some((one, learned(one)?))).collect();
    let most = |role: Role, of: fn(&Objective) -> Seconds| {
        let all = wanted.iter().filter(|(one, _)| one.sees(role)).map(|(_, wanted)| of(wanted));
        all.reduce(|a, b| if b > a { b } else { a })
    };
    if let (Some(ttft), Some(itl)) = (most(Role::Prefill, |one| one.ttft), most(Role::Decode, |one| one.itl)) {
        return (Objective { ttft, itl }, SloSource::Learned);
    }
    let lowest = |of: fn(&Learning) -> Option<Seconds>, highest: Seconds| {
        let lowest = known.iter().filter_map(|one| of(one.learning?)).map(Seconds::get).reduce(f64::min);
        Seconds(lowest.map_or(highest.get(), |lowest| (HEADROOM * lowest).min(highest.get())))
    };
    let ttft = lowest(|learning| learning.lowest_ttft, HIGHEST_TTFT);
    let itl = lowest(|learning| learning.lowest_itl, HIGHEST_ITL);
    (Objective { ttft, itl }, SloSource::Observed)
}

fn capable(one: &Known<'_>, objective: Objective, queueing: &QueueingPolicy, met: PhaseMet) -> Option<Capable> {
    let learned = &one.learning?.learned;
    let interval = interval::capacity(learned, &one.question(objective));
    let converged = learned.accepted >= LEAST_UPDATES && interval.is_some_and(|interval| interval.is_within(CONVERGED));
    let Some(mut interval) = interval else {
        // No rate meets the objectives: sized for the wanted utilization, and nothing is given back on it.
        let work = learned.parameters().work(one.pool.role, one.lengths).get();
        let rate = RequestsPerSecond((1.0 - 1.0 / queueing.multiplier.get()) / work);
        return Some(Capable { interval: None, rate, lower: RequestsPerSecond(0.0), converged });
    };
    // What is served within the objectives now is possible, and a little more where they are not nearly used up.
    let possible = RequestsPerSecond(one.served.get() * if met.has_room(one.pool.role) { ROOM } else { 1.0 });
    if met.in_role(one.pool.role) && possible > interval.estimate {
        interval.estimate = possible;
        interval.upper = if interval.upper < possible { possible } else { interval.upper };
    }
    Some(Capable { interval: Some(interval), rate: interval.estimate, lower: interval.lower, converged })
}

/// Arrivals that the variants that could be analysed have to carry.
fn demand_of(role: Role, members: &[usize], known: &[Known<'_>], capable: &[Option<Capable>], window: &Window) -> Demand {
    if let Some(whole) = window.demand.get(&SourceId::Traffic) {
        return *whole;
    }
    debug_assert!(members.iter().all(|&index| known[index].pool.role == role), "members are of the role");
    let analysed = members.iter().filter(|&&index| capable[index].is_some());
    analysed.fold(Demand::default(), |sum, &index| Demand {
        supported: RequestsPerSecond(sum.supported.get() + known[index].demand.supported.get()),
        cautious: RequestsPerSecond(sum.cautious.get() + known[index].demand.cautious.get()),
    })
}

fn variant(one: &Known<'_>, capable: Option<&Capable>) -> Variant {
    let gpus = f64::from(gpus_of(one.pool, &CapacityModel::Unknown).max(1));
    Variant {
        pool: one.pool.pool.clone(),
        standing: one.standing.or(one.observed).unwrap_or_default(),
        limits: one.pool.limits,
        cost: one.pool.cost.or(Positive::new(gpus)).unwrap_or(Positive::ONE),
        capacity: capable.map(|capable| (capable.rate, capable.lower)).filter(|(rate, _)| rate.is_positive()),
    }
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
    let Some(wish) = wish else { return PoolDecision { reason: Some(Reason::NotConverged), ..PoolDecision::default() } };
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
        coverage: window.least_coverage(),
        complete_window_seen: (memory.complete_window_seen || whole) && has_watched(memory, one.pool.role, window, now),
        cautious: StepReason::SilentTargetsMayCarryLoad,
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
