//! What would the next request see at each replica right now? The fast decision of target sla, for one pool.
//!
//! The loads are those of this very round (`held.rs`), the cost of an iteration is what was learned (`watching.rs`), the projection to other counts is
//! `next_request.rs`, and the rule is `propose/load.rs`. Here what they say is confirmed, held back or followed, and what is not known becomes a
//! reason:
//!
//! | not known | then |
//! |---|---|
//! | no page of a replica, or half of them silent | held, as with thresholds |
//! | what waits, or the use of the KV memory | held, `missing_capability`: it says what and where |
//! | tokens of a step (`max_num_batched_tokens`) | TTFT cannot be told: a prefill pool is held, an aggregated one grows by ITL and gives nothing back |
//! | the cost of an iteration | held, `not_converged`, at the floor of the slow loop at least; of a pool without a count the first is the larger of the floor and what is ready |

use std::num::NonZeroU32;
use std::time::Duration;

use super::bound::{self, Context};
use super::fast::{Watch, keep};
use super::held::{Seen, waiting};
use super::input::ModelInput;
use super::memory::{Memory, PoolDecision};
use super::next_request::{Scene, batched, engine, latencies};
use super::observe::COVERAGE_TO_RAISE;
use super::plan::{Capability, Latencies, LatencyCause, LatencyTrace, Missing, Proposer, Reason, StepReason};
use super::policy::{ModelPolicy, PoolPolicy};
use super::propose::Wish;
use super::propose::load::{Cause, Decision, Judge, Load, Outlook, Rules};
use super::slow::IDLE_AFTER;
use super::startup::Growth;
use super::{current_replicas, sizing, standing};
use crate::units::{Moment, Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens};

/// Decisions after the first that must ask for more as well: while something waits, and while nothing does, when a batch may just be large by chance.
const CONFIRMATIONS: u32 = 2;
const CONFIRMATIONS_AT_REST: u32 = 6;
/// Replicas that arrive one after the other look as if they started within seconds.
const SHORTEST_HORIZON: Duration = Duration::from_secs(60);
/// The start-up that is assumed before one was measured.
const USUAL_STARTUP: Duration = Duration::from_secs(120);

/// A pool's decision, and what a request would see at the current and at the recommended count.
pub(super) struct Decided {
    pub part: PoolDecision,
    /// The smallest count that would be enough now; `None` where that cannot be told.
    pub enough: Option<Replicas>,
    /// Whether the load asks for one more.
    pub asks: bool,
    pub current: Latencies,
    pub recommended: Latencies,
}

impl Decided {
    fn held(reason: Reason, coverage: Ratio, missing: Vec<Missing>) -> Self {
        let part = PoolDecision { reason: Some(reason), coverage: Some(coverage), missing, ..PoolDecision::default() };
        Self { part, enough: None, asks: false, current: Latencies::default(), recommended: Latencies::default() }
    }
}

/// Decides for one pool.
pub(super) fn decide_pool(
    memory: &mut Memory,
    input: &ModelInput,
    pool: &PoolPolicy,
    policy: &ModelPolicy,
    watch: Watch<'_>,
    (sensitivity, delay): (Ratio, Duration),
) -> Decided {
    let seen = Seen::of(input, pool, policy, watch.lengths);
    let (coverage, mut missing) = (seen.coverage(), seen.missing());
    if seen.known == 0 {
        let reason = if seen.front_ends { Reason::MissingCapability } else { Reason::NoTargets };
        return Decided::held(reason, coverage, missing);
    }
    if coverage.get() < COVERAGE_TO_RAISE {
        let reason = if seen.answered > seen.loads.len() { Reason::MissingCapability } else { Reason::CoverageLow };
        return Decided::held(reason, coverage, missing);
    }
    let Some(current) = current_replicas(pool, memory, input) else {
        missing.push(Missing { what: Capability::WorkerCount, target: None });
        return Decided::held(Reason::MissingCapability, coverage, missing);
    };
    if pool.role != Role::Decode && batched(input, pool).is_none() {
        missing.push(Missing { what: Capability::BatchedTokens, target: None });
    }
    let recommended = standing(pool, memory, Some(current), watch.now);
    let stands = recommended.unwrap_or(current);
    let queued = waiting(input, pool, &seen, watch.lengths);
    memory.backlogs.entry(pool.pool.clone()).or_default().follow(input, pool, queued, [current, stands], watch.now);
    let memory = &*memory;
    let backlog = &memory.backlogs[&pool.pool];
    let still = backlog.share();
    let scene = Scene {
        role: pool.role,
        engine: policy.regression.and_then(|settings| engine(memory, input, pool, watch.lengths, &settings)),
        loads: seen.loads.values().map(|load| still_waiting(load, still)).collect(),
        backlog,
        rules: Rules { ttft: Seconds(policy.slo.ttft.get()), itl: Seconds(policy.slo.itl.get()), sensitivity, judge: Judge::Spread },
        current,
        least: pool.limits.min(),
        floor: memory.pools.get(&pool.pool).and_then(|known| known.floor).filter(|_| watch.load.floor),
    };
    let verdict = Verdict::of(&scene, memory, pool, watch, stands);
    let wish = Wish { supported: verdict.replicas, cautious: verdict.replicas };
    let context = Context {
        observed: Some(current),
        recommended,
        previous_wish: None,
        coverage,
        complete_window_seen: watch.long_enough,
        caution: StepReason::SilentTargetsMayCarryLoad,
        keep: keep(memory, pool, policy, watch.now).or_else(|| not_yet(memory, pool, stands, delay, watch.now)),
        growth: policy.growth,
        while_moving: is_moving(memory, pool, policy, watch.now).then(|| scene.floor.unwrap_or_default()),
        step_down: policy.step_down,
        limits: pool.limits,
    };
    let bounded = bound::bound(wish, &context);
    // The slow loop's floor is a number without anything learned, also where what is ready meets it already.
    let first = scene.floor.is_some() && memory.pools.get(&pool.pool).is_none_or(|known| known.planned.is_none());
    let unknown = verdict.cause == LatencyCause::InsufficientData && bounded.planned == stands && !first;
    let proposed = scene.floor.map(|floor| (sizing::proposer(policy, pool.role), floor)).into_iter();
    let part = PoolDecision {
        reason: unknown.then_some(if missing.is_empty() { Reason::NotConverged } else { Reason::MissingCapability }),
        latency: Some(trace(&scene, &verdict, memory, (pool, &seen), stands)),
        missing,
        proposed: proposed.chain([(Proposer::Load, verdict.asked)]).collect(),
        unbounded: Some(wish.supported).filter(|_| !unknown),
        steps: if unknown { Vec::new() } else { bounded.steps },
        limits_active: bounded.limits,
        coverage: Some(coverage),
        ..PoolDecision::default()
    };
    let recommended = latencies(&scene.at(bounded.planned.max(Replicas(1))));
    Decided { part, enough: verdict.enough, asks: verdict.asks, current: latencies(&scene.at(current)), recommended }
}

/// The load with the share of its queue that would still wait.
fn still_waiting(load: &Load, share: f64) -> Load {
    Load {
        queued_prefill: Tokens(load.queued_prefill.get() * share),
        queued_decoding: Requests(load.queued_decoding.get() * share),
        queued_kv: Tokens(load.queued_kv.get() * share),
        ..*load
    }
}

/// What the load asks for, and whether it is followed now.
struct Verdict {
    decision: Decision,
    cause: LatencyCause,
    /// The count, not below the slow loop's floor.
    replicas: Replicas,
    /// What the load alone asks for.
    asked: Replicas,
    /// Whether it asks for more, followed or not.
    asks: bool,
    enough: Option<Replicas>,
}

impl Verdict {
    fn of(scene: &Scene<'_>, memory: &Memory, pool: &PoolPolicy, watch: Watch<'_>, stands: Replicas) -> Self {
        let decision = scene.at(stands);
        let (backlog, floor) = (scene.backlog, scene.floor.unwrap_or_default());
        let (more, less) = (Replicas(stands.0.saturating_add(1)), Replicas(stands.0.saturating_sub(1)));
        let asked = by_load(&decision, stands);
        let asks = asked > stands;
        let startup = memory.growth.get(&pool.pool).and_then(Growth::startup).unwrap_or(USUAL_STARTUP).max(SHORTEST_HORIZON);
        // Requests stay where they were sent. Where the next one would be served in time elsewhere, a queue that falls is over by itself.
        let drains = backlog.drains_within(startup, stands) || (backlog.is_falling() && scene.any_in_time(&decision));
        let looks = if backlog.is_empty() { CONFIRMATIONS_AT_REST } else { CONFIRMATIONS };
        let unknown = decision.cause == Cause::InsufficientData;
        let (cause, asked, replicas) = match () {
            () if asks && drains => (LatencyCause::Draining, stands, stands),
            () if asks && !confirmed(memory, pool, watch, looks) => (LatencyCause::NotConfirmed, stands, stands),
            // Nothing needs to be known of iterations where a queue stood for half a minute: what was served then is all that there is.
            () if unknown && !backlog.carried_by(stands) => (LatencyCause::Outrun, more, more),
            () if unknown && rests(memory, watch.now) => (LatencyCause::ScaleDown, less, less),
            () => (cause_of(decision.cause), asked, decision.replicas),
        };
        let enough = scene.enough(&decision, stands);
        Self { cause, replicas: replicas.max(floor), asked, asks, enough, decision }
    }
}

fn cause_of(cause: Cause) -> LatencyCause {
    match cause {
        Cause::Up => LatencyCause::ScaleUp,
        Cause::Down => LatencyCause::ScaleDown,
        Cause::Stay => LatencyCause::NoChange,
        Cause::RefusedConsolidation => LatencyCause::RefusedConsolidation,
        Cause::CappedByThroughput => LatencyCause::CappedByThroughput,
        Cause::Unbalanced => LatencyCause::Unbalanced,
        Cause::InsufficientData => LatencyCause::InsufficientData,
    }
}

/// Why a decrease that the load allows is not made yet.
fn not_yet(memory: &Memory, pool: &PoolPolicy, stands: Replicas, delay: Duration, now: Moment) -> Option<StepReason> {
    let less = Replicas(stands.0.saturating_sub(1));
    let refuted = memory.reversals.get(&pool.pool).is_some_and(|known| less < known.least(traffic(memory).map(RequestsPerSecond::get)));
    let recent = || recently_needed(memory, pool, stands, delay, now);
    if refuted { Some(StepReason::Refuted) } else { recent().then_some(StepReason::RecentlyNeeded) }
}

fn is_moving(memory: &Memory, pool: &PoolPolicy, policy: &ModelPolicy, now: Moment) -> bool {
    memory.growth.get(&pool.pool).is_some_and(|growth| growth.is_moving(policy.transition_timeout, now))
}

/// Requests a second of the last window.
pub(super) fn traffic(memory: &Memory) -> Option<RequestsPerSecond> {
    memory.decision.as_ref()?.observation.as_ref()?.estimated_requests_per_second
}

/// Whether the load has asked for more in every decision of the last while: a batch that is large by chance is smaller at the next look.
fn confirmed(memory: &Memory, pool: &PoolPolicy, watch: Watch<'_>, looks: u32) -> bool {
    let since = memory.load.as_ref().and_then(|known| known.asking.get(&pool.pool));
    since.is_some_and(|since| watch.now.monotonic.saturating_sub(*since) >= watch.load.interval.saturating_mul(looks))
}

/// Whether nobody has asked for anything for so long that nothing needs to be known of the load.
fn rests(memory: &Memory, now: Moment) -> bool {
    memory.idle_since.is_some_and(|since| now.monotonic.saturating_sub(since) >= IDLE_AFTER)
}

/// Whether fewer were not enough at some decision of the last while, or that is not known: loads of the moment swing, and what went on one would
/// come back on the next.
fn recently_needed(memory: &Memory, pool: &PoolPolicy, stands: Replicas, delay: Duration, now: Moment) -> bool {
    let Some(known) = memory.load.as_ref() else { return true };
    let since = |at: Duration| now.monotonic.saturating_sub(at);
    let recent = known.enough.get(&pool.pool).into_iter().flatten().filter(|(at, _)| since(*at) <= delay);
    since(known.since) < delay || recent.map(|(_, count)| *count).max().is_some_and(|most| most >= stands)
}

/// What the load alone asks for: without the slow loop's floor.
fn by_load(decision: &Decision, stands: Replicas) -> Replicas {
    let wish = |outlook: &Option<Outlook>| outlook.as_ref().and_then(|outlook| outlook.wish);
    match decision.cause {
        Cause::CappedByThroughput => wish(&decision.ttft).max(wish(&decision.itl)).unwrap_or(stands),
        Cause::Up => wish(&decision.ttft).max(wish(&decision.itl)).map_or(stands, |wish| wish.max(stands)),
        _ => decision.replicas.min(stands),
    }
}

/// The replica, by its place, whose next request would wait longest for its first token, or for each where it has none.
fn slowest(decision: &Decision) -> Option<usize> {
    let estimates = &decision.ttft.as_ref().or(decision.itl.as_ref())?.estimates;
    let longest = estimates.iter().enumerate().max_by(|one, other| one.1.get().total_cmp(&other.1.get()).then(other.0.cmp(&one.0)));
    longest.map(|(at, _)| at)
}

fn trace(scene: &Scene<'_>, verdict: &Verdict, memory: &Memory, (pool, seen): (&PoolPolicy, &Seen), recommended: Replicas) -> LatencyTrace {
    let slowest = slowest(&verdict.decision).and_then(|at| seen.loads.iter().nth(at));
    let samples = memory.watched.get(&pool.pool).map_or(0, |watched| watched.iterations.samples());
    let engine = scene.engine.as_ref();
    LatencyTrace {
        cause: verdict.cause,
        costs: engine.map(|engine| engine.iteration.costs()),
        samples: u32::try_from(samples).unwrap_or(u32::MAX),
        estimated: latencies(&verdict.decision),
        slowest: slowest.map(|(target, load)| (target.clone(), *load)),
        still_waiting: Ratio(scene.backlog.share()),
        prefill_tokens: engine.map(|engine| engine.prefill),
        current: scene.current,
        recommended,
        floor: scene.floor,
        batched_tokens: engine.and_then(|engine| engine.batched_tokens).map(NonZeroU32::get),
        input_tokens: engine.map(|engine| engine.input),
        context_tokens: engine.map(|engine| engine.context),
        hit_rate: engine.and_then(|engine| engine.hit_rate),
        accept_length: engine.and_then(|engine| engine.accept_length),
    }
}
