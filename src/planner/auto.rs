//! How many replicas let nearly every request meet its objectives, now and until another one could be there? Preset auto's decision, in every round.
//!
//! | step | from | to |
//! |---|---|---|
//! | what is coming | short slices of the last minutes (`arrivals.rs`, `predict/level.rs`, `lengths.rs`) | rate with its slope and noise, lengths with their spread |
//! | until when | the measured start-up and two rounds | the largest rate until then, and one standard error more |
//! | what a replica does | the profile, corrected where the servers differ from it; else the learned cost of iterations (`model/server.rs`) | prompt times, step times |
//! | how many | the smallest count that lets the wanted share of requests meet each objective (`model/needed.rs`) | need |
//! | what waits | the pool's queue, followed to the moment at which new replicas are ready (`followed.rs`); at decode also what prefill works off then | more, where need alone would leave it behind |
//! | giving back | need of a tenth more at the most noise of late, and the most that was asked for, or believed of silent replicas, within `scale_down_delay`, or within the pauses of a load that comes back in a rhythm (`rhythm.rs`) | the cautious wish |
//!
//! Each objective may be missed by half of what both may be missed by together.
//!
//! | where | then |
//! |---|---|
//! | nothing was asked for in five minutes, and all say that nothing runs or waits | down to the minimum, whatever is known of the pools |
//! | nothing comes and nothing ends, and something runs or may run | held (`no_requests`): servers that hang look like that |
//! | requests end and nobody says how long they were | held (`missing_capability`) |
//! | what a replica of some pool does is not known yet | held (`not_converged`), all pools; more where a queue stands, or tokens are too far apart (`unlearned.rs`) |
//! | no count lets a request meet an objective | the count that carries the load (`slo_unreachable`) |

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use super::arrivals::Coming;
use super::bound::{self, Context};
use super::followed::{self, Backlog, Queued};
use super::input::{Gauge, ModelInput};
use super::learn::iterations::Unfit;
use super::load::lengths_missing;
use super::memory::{Decision, Memory};
use super::model::attain::{Arrivals, Prompts};
use super::model::capacity::trusted_hit_rate;
use super::model::needed::{Answers, Demand};
use super::model::server::{Server, Slowness};
use super::observe::{COVERAGE_TO_RAISE, Window};
use super::plan::{AutoTrace, Latencies, PhaseState, Prediction, Proposer, Reason, StepReason, Warning};
use super::policy::{AutoPolicy, CapacityModel, ModelPolicy, PoolPolicy};
use super::prompts;
use super::propose::{Wish, gpus_of};
use super::shadows;
use super::sizing::limits;
use super::slow::{IDLE_AFTER, lacking};
use super::startup::Growth;
use super::unlearned::{self, Spacing};
use super::watching::pages;
use super::{current_replicas, standing};
use crate::units::{Moment, Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens};

/// The start-up that is assumed before one was measured.
const USUAL_STARTUP: Duration = Duration::from_secs(120);
/// Rounds between what happens and the replicas that were asked for because of it.
const LATE_ROUNDS: u32 = 2;
/// A decrease must carry this many times what is expected.
const PADDING: f64 = 1.1;
/// What of the noise of arrivals beyond 1 a queue of prompts feels, and what a batch does, which is the sum of a longer stay; and the most of either.
/// Found on recorded traffic (README.md, rejected).
const FELT_BY_QUEUE: f64 = 0.7;
const FELT_BY_BATCH: f64 = 0.3;
const MOST_FELT: f64 = 6.0;
/// Seconds that are watched before anything is decided.
const LEAST_WATCHED: f64 = 20.0;
/// Time between two decreases of a pool, and the part of it that one may take, and so many at least.
const STEP_EVERY: Duration = Duration::from_secs(120);
const STEP_PART: u32 = 4;
const STEP_LEAST: u32 = 2;

/// Takes a window in and decides.
pub(super) fn decide(
    memory: &mut Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    auto: &AutoPolicy,
    window: &Window,
    now: Moment,
) -> Decision {
    let mut arrivals = std::mem::take(&mut memory.arrivals);
    arrivals.take(window, memory, policy, now);
    memory.arrivals = arrivals;
    for pool in &policy.pools {
        let current = current_replicas(pool, memory, input);
        if let Some(stands) = standing(pool, memory, current, now) {
            // Whose replicas nobody counts has those that stand.
            memory.followed.entry(pool.pool.clone()).or_default().follow(stands, current.unwrap_or(stands), now);
        }
    }
    let held = |reason| Decision::held(reason, Some(window));
    if window.least_coverage().get() < COVERAGE_TO_RAISE {
        return held(Reason::CoverageLow);
    }
    if window.finished > 0.0 && !window.instrumented {
        return held(Reason::SlaMetricsDisabled);
    }
    let mut scene = Scene { input, policy, auto, window, now, partly_known: false };
    if memory.idle_since.is_some_and(|since| now.monotonic.saturating_sub(since) >= IDLE_AFTER) {
        return scene.rest(memory);
    }
    let Some(coming) = memory.arrivals.coming() else {
        let served = window.finished > 0.0 || window.observation.requests.is_some_and(|requests| requests.get() > 0.0);
        let lacks = if served { lengths_missing(&window.observation) } else { BTreeSet::new() };
        let reason = if lacks.is_empty() { Reason::NoRequests } else { Reason::MissingCapability };
        return lacking(held(reason), policy, lacks);
    };
    if coming.watched < LEAST_WATCHED {
        return held(Reason::Baseline);
    }
    // Nothing came and nothing ended while something runs, or might: servers that hang look like that.
    if coming.rate.value <= 0.0 && memory.idle_since.is_none() {
        return held(Reason::NoRequests);
    }
    let mut decision = held(Reason::None);
    let rate = coming.rate.value;
    decision.prediction = Some(Prediction {
        requests_per_second: RequestsPerSecond(rate * coming.supported),
        estimated_requests_per_second: RequestsPerSecond(rate),
        input_tokens: Tokens(coming.input),
        output_tokens: Tokens(coming.output),
    });
    let demands: Vec<Option<Demand<'_>>> = policy.pools.iter().map(|pool| demand(memory, input, policy, auto, pool, &coming)).collect();
    scene.partly_known = demands.iter().any(Option::is_none);
    if scene.partly_known {
        scene.decide_some(&mut decision, memory, &coming, &demands);
    } else {
        memory.backlogs.clear();
        scene.decide_all(&mut decision, memory, &coming, &demands);
    }
    let (prompt, generation) = attainable(&demands);
    if [prompt, generation].contains(&Some(false)) {
        decision.reason = Reason::SloUnreachable;
    }
    let met = |seen: Option<Seconds>, objective: f64| seen.map(|seen| seen.get() <= objective);
    let seen = &window.observation;
    decision.prompt = PhaseState { met: met(seen.ttft_seconds, policy.slo.ttft.get()), attainable: prompt };
    decision.generation = PhaseState { met: met(seen.itl_seconds, policy.slo.itl.get()), attainable: generation };
    decision
}

/// Whether any count could meet the objectives of first tokens, and of those after; `None` where no pool of the model is judged by them.
fn attainable(demands: &[Option<Demand<'_>>]) -> (Option<bool>, Option<bool>) {
    let all = |known: Vec<bool>| (!known.is_empty()).then(|| known.iter().all(|reachable| *reachable));
    (
        all(demands.iter().flatten().filter_map(Demand::first_tokens_reachable).collect()),
        all(demands.iter().flatten().filter_map(Demand::spacing_reachable).collect()),
    )
}

/// What all pools of a round have in common.
struct Scene<'a> {
    input: &'a ModelInput,
    policy: &'a ModelPolicy,
    auto: &'a AutoPolicy,
    window: &'a Window,
    now: Moment,
    /// Whether it is not known of some pool what its replicas do.
    partly_known: bool,
}

impl Scene<'_> {
    /// Decides where nothing was asked for and nobody works: what nobody needs may go, whatever is known of it.
    fn rest(&self, memory: &mut Memory) -> Decision {
        let mut decision = Decision::held(Reason::None, Some(self.window));
        for pool in &self.policy.pools {
            let observed = current_replicas(pool, memory, self.input);
            let stands = standing(pool, memory, observed, self.now);
            let known = memory.followed.entry(pool.pool.clone()).or_default();
            known.note(Replicas(0), Replicas(0), self.auto.delay, self.policy.scrape_interval, self.now);
            let wish = Wish { supported: Replicas(0), cautious: known.recently_needed() };
            let bounded = bound::bound(wish, &self.context(memory, pool, observed, stands, StepReason::RecentlyNeeded));
            let part = decision.pools.entry(pool.pool.clone()).or_default();
            part.proposed = BTreeMap::from([(Proposer::Auto, wish.supported)]);
            part.unbounded = Some(wish.supported);
            part.steps = bounded.steps;
            part.limits_active = bounded.limits;
        }
        decision
    }

    /// Decides where it is known what the replicas of all pools do.
    fn decide_all(&self, decision: &mut Decision, memory: &mut Memory, coming: &Coming, demands: &[Option<Demand<'_>>]) {
        // What waits for prefill comes to decode when it is worked off: the pools that see requests first are decided first.
        let pools = self.policy.pools.iter().zip(demands.iter().flatten());
        let (first, after): (Vec<_>, Vec<_>) = pools.partition(|(pool, _)| pool.role != Role::Decode);
        let mut wave = 0.0;
        for (pool, demand) in first.into_iter().chain(after) {
            let behind = if pool.role == Role::Decode { wave } else { 0.0 };
            wave += self.decide_pool(decision, memory, coming, pool, demand, behind);
        }
    }

    /// Decides where that is not known of some pool. Prefill that grows alone only moves the queue to decode, so it waits for its partner; decode may
    /// grow, and gives nothing back: less comes to it while prefill is full.
    fn decide_some(&self, decision: &mut Decision, memory: &mut Memory, coming: &Coming, demands: &[Option<Demand<'_>>]) {
        let (mut decided, mut signs) = (false, BTreeSet::new());
        for (pool, demand) in self.policy.pools.iter().zip(demands) {
            if let Some(demand) = demand.as_ref().filter(|_| pool.role == Role::Decode) {
                memory.backlogs.remove(&pool.pool);
                self.decide_pool(decision, memory, coming, pool, demand, 0.0);
                decided = true;
            } else if let Some(sign) = self.unlearned(decision, memory, coming, pool) {
                signs.insert(sign);
                decided = true;
            }
        }
        decision.warnings.extend(signs);
        if !decided {
            decision.reason = Reason::NotConverged;
        }
    }

    /// Decides one pool where what its replicas do is not known: what its pages ask for all the same, and on what that rests.
    fn unlearned(&self, decision: &mut Decision, memory: &mut Memory, coming: &Coming, pool: &PoolPolicy) -> Option<Warning> {
        let observed = current_replicas(pool, memory, self.input);
        let stands = standing(pool, memory, observed, self.now);
        let part = decision.pools.entry(pool.pool.clone()).or_default();
        part.reason = Some(Reason::NotConverged);
        let ready = observed?;
        let standing = stands.unwrap_or(ready);
        let backlog = memory.backlogs.entry(pool.pool.clone()).or_default();
        backlog.follow(self.input, pool, Requests(self.waiting(pool)), [ready, standing], self.now);
        let carrying = backlog.carrying(ready);
        let seen = self.spacing(memory, coming, pool);
        let known = memory.followed.entry(pool.pool.clone()).or_default();
        let spaced = known.spaced.follow(seen, ready, self.now);
        let (wanted, sign) = unlearned::wanted(carrying, spaced, ready, standing)?;
        let wish = Wish { supported: wanted, cautious: wanted };
        let bounded = bound::bound(wish, &self.context(memory, pool, observed, stands, StepReason::PaddedDemand));
        part.reason = None;
        part.proposed = BTreeMap::from([(Proposer::Auto, wanted)]);
        part.unbounded = Some(wanted);
        part.steps = bounded.steps;
        part.limits_active = bounded.limits;
        Some(sign)
    }

    /// The time between tokens of a pool whose steps are alike.
    fn spacing(&self, memory: &Memory, coming: &Coming, pool: &PoolPolicy) -> Option<Spacing> {
        let iterations = &memory.watched.get(&pool.pool)?.iterations;
        if pool.role == Role::Prefill || iterations.line(self.policy.regression?.least) != Err(Unfit::NoSlope) {
            return None;
        }
        let (itl, range) = (self.window.observation.itl_seconds?.get(), iterations.batches()?);
        let stay = Duration::try_from_secs_f64(itl * coming.output).ok()?;
        Some(Spacing { ratio: itl / self.policy.slo.itl.get(), stay, range })
    }

    /// Decides one pool, while `wave` more requests a second come from a queue before it. Answers with what its own queue sends on.
    fn decide_pool(
        &self,
        decision: &mut Decision,
        memory: &mut Memory,
        coming: &Coming,
        pool: &PoolPolicy,
        demand: &Demand<'_>,
        wave: f64,
    ) -> f64 {
        let now = self.now;
        let observed = current_replicas(pool, memory, self.input);
        let stands = standing(pool, memory, observed, now);
        let startup = memory.growth.get(&pool.pool).and_then(Growth::startup).unwrap_or(USUAL_STARTUP);
        let horizon = startup + self.policy.scrape_interval.saturating_mul(LATE_ROUNDS);
        let rate = coming.rate.value.max(coming.rate.at(horizon.as_secs_f64())) + coming.rate.error;
        let (need, believed) = needs(demand, rate, coming.supported);
        let known = memory.followed.entry(pool.pool.clone()).or_default();
        let backlog = match observed {
            Some(ready) => known.caught_up(demand, self.queued(coming, pool, ready), need, startup, now),
            None => Backlog { wanted: need, present: 0.0, left: 0.0 },
        };
        let swept = if wave > 0.0 { followed::at_most(demand.need((rate + wave) * coming.supported), need) } else { need };
        let wanted = backlog.wanted.max(swept);
        known.note(believed, wanted, self.auto.delay, self.policy.scrape_interval, now);
        let more = Arrivals { rate: rate * PADDING, noise: felt(coming.noisiest, pool.role) };
        let (padded, recent) = (demand.need_of(more), known.recently_needed());
        let load = Some(coming.rate.value / demand.capacity());
        let refuted = memory.reversals.get(&pool.pool).map_or(Replicas(0), |known| known.least(load));
        let caution = match () {
            () if refuted > recent.max(padded) => StepReason::Refuted,
            () if recent > padded => StepReason::RecentlyNeeded,
            () => StepReason::PaddedDemand,
        };
        let wish = Wish { supported: wanted, cautious: wanted.max(padded).max(recent).max(refuted) };
        let bounded = bound::bound(wish, &self.context(memory, pool, observed, stands, caution));
        if let Some(stands) = stands {
            // What a queue asks for says nothing of the count that the load needs.
            let after = bounded.planned.min(need.max(stands));
            memory.reversals.entry(pool.pool.clone()).or_default().follow(stands, after, load, now);
        }
        let mut asked = shadows::simpler(demand, coming.rate.value * coming.supported);
        asked.insert(Proposer::Auto, wanted);
        let known = memory.followed.entry(pool.pool.clone()).or_default();
        known.shadows.note(&asked, demand.need(coming.rate.value * coming.supported), horizon, now);
        let scores = known.shadows.scores();
        let part = decision.pools.entry(pool.pool.clone()).or_default();
        part.proposed = asked;
        part.unbounded = Some(wanted);
        let within = |count: u32| demand.within(count, rate * coming.supported).map(Ratio);
        part.auto = Some(AutoTrace {
            rate: RequestsPerSecond(coming.rate.value),
            slope: coming.rate.slope,
            over: Seconds(coming.rate.over),
            error: RequestsPerSecond(coming.rate.error),
            noise: Ratio(demand.noise),
            horizon: horizon.into(),
            planned_rate: RequestsPerSecond(rate),
            input_tokens: Tokens(coming.input),
            output_tokens: Tokens(coming.output),
            slower: Ratio(demand.server.slower()),
            replica_rate: RequestsPerSecond(demand.capacity()),
            share: Ratio(demand.share),
            need,
            within: within(need.0.max(1)),
            within_less: within(need.0.saturating_sub(1)).filter(|_| need.0 > 1),
            left: Requests(backlog.left),
            wave: RequestsPerSecond(wave),
            noisiest: Ratio(more.noise),
            padded,
            recent,
            refuted,
            scores,
        });
        part.steps = bounded.steps;
        part.limits_active = bounded.limits;
        if let Some(observed) = observed {
            include(&mut decision.estimated.current, demand.latencies(observed, coming.rate.value));
        }
        include(&mut decision.estimated.recommended, demand.latencies(bounded.planned, coming.rate.value));
        backlog.sent_on(observed.unwrap_or_default(), demand.capacity(), rate)
    }

    /// What the pool's pages say.
    fn queued(&self, coming: &Coming, pool: &PoolPolicy, ready: Replicas) -> Queued {
        let servers = pages(self.input, pool).map(|(_, (_, sample))| sample).filter(|sample| !sample.is_of_a_router());
        // What a router has under way is not one pool's.
        let running = servers.filter_map(|sample| sample.gauges.get(&Gauge::Running)).sum();
        Queued { rate: coming.rate.value * coming.supported, waiting: self.waiting(pool), running, ready }
    }

    /// Requests that wait before the pool. A router's queue is before the one that sees requests first.
    fn waiting(&self, pool: &PoolPolicy) -> f64 {
        let pages = pages(self.input, pool).map(|(_, (_, sample))| sample);
        let before = pages.filter(|sample| pool.role != Role::Decode || !sample.is_of_a_router());
        before.filter_map(|sample| prompts::waiting(sample, pool.role)).sum()
    }

    fn context(
        &self,
        memory: &Memory,
        pool: &PoolPolicy,
        observed: Option<Replicas>,
        stands: Option<Replicas>,
        caution: StepReason,
    ) -> Context {
        let known = memory.followed.get(&pool.pool);
        let stepped = known.is_some_and(|known| known.was_lowered(STEP_EVERY, self.now));
        let rollout = memory.growth.get(&pool.pool).and_then(|growth| growth.rollout(self.now));
        Context {
            observed,
            recommended: stands,
            previous_wish: memory.decision.as_ref().and_then(|last| last.pools.get(&pool.pool)?.unbounded),
            coverage: self.window.coverage_of(&pool.pool),
            complete_window_seen: known.is_some_and(|known| known.is_watched(self.auto.delay, self.now)),
            caution,
            keep: rollout.or(self.partly_known.then_some(StepReason::NotConverged)).or(stepped.then_some(StepReason::StepCapped)),
            growth: self.policy.growth,
            while_moving: None,
            step_down: NonZeroU32::new((stands.unwrap_or_default().0 / STEP_PART).max(STEP_LEAST)),
            limits: pool.limits,
        }
    }
}

/// The latencies of the model are those of the pools that see them.
fn include(model: &mut Latencies, found: Latencies) {
    model.ttft_seconds = model.ttft_seconds.or(found.ttft_seconds);
    model.itl_seconds = model.itl_seconds.or(found.itl_seconds);
}

/// What the load needs that is seen, and what it needs with that of silent replicas, as far as it is believed: nothing is raised for it, and it was
/// needed all the same when it comes to giving back.
fn needs(demand: &Demand<'_>, rate: f64, supported: f64) -> (Replicas, Replicas) {
    let need = demand.need(rate * supported);
    (need, if supported < 1.0 { demand.need(rate) } else { need })
}

/// The noise that a pool of that role feels.
fn felt(noise: f64, role: Role) -> f64 {
    let part = if role == Role::Decode { FELT_BY_BATCH } else { FELT_BY_QUEUE };
    1.0 + (part * (noise - 1.0)).min(MOST_FELT)
}

/// What the pool has to do, and what its replicas can; `None` where nobody knows that.
fn demand<'a>(
    memory: &Memory,
    input: &ModelInput,
    policy: &'a ModelPolicy,
    auto: &AutoPolicy,
    pool: &PoolPolicy,
    coming: &Coming,
) -> Option<Demand<'a>> {
    let iterations = || Some((&memory.watched.get(&pool.pool)?.iterations, policy.regression?.least));
    let server = match &policy.capacity {
        CapacityModel::Envelope(envelope) => {
            let line = iterations().and_then(|(iterations, least)| iterations.line(least).ok());
            let learned = line.map(|line| Server::Learned(line, limits(input, pool)));
            let plain = Server::Profile(envelope, f64::from(gpus_of(pool, &policy.capacity)), Slowness::default());
            let servers = pages(input, pool).filter(|(_, (_, sample))| !sample.is_of_a_router());
            let running = servers.filter_map(|(_, (_, sample))| sample.gauges.get(&Gauge::Running)).copied();
            let (sum, count) = running.fold((0.0, 0.0), |(sum, count), running| (sum + running, count + 1.0));
            let batch = Requests(if count > 0.0 { (sum / count).max(1.0) } else { 1.0 });
            let (prompt, context) = (Tokens(coming.input), Tokens(coming.context));
            learned.map_or(plain, |learned| plain.corrected(&learned, pool.role, prompt, batch, context))
        }
        _ => {
            let (iterations, least) = iterations()?;
            Server::Learned(iterations.estimate(least).ok()?, limits(input, pool))
        }
    };
    let hit = trusted_hit_rate(memory.reuse.hit_rate);
    let prompts = |&(tokens, share): &(f64, f64)| {
        let (alone, work) = server.prompt(Tokens(tokens), hit);
        Prompts { share, alone: alone.get(), work: work.get() }
    };
    Some(Demand {
        role: pool.role,
        mix: coming.mix.iter().map(prompts).collect(),
        server,
        input: coming.input,
        output: coming.output.max(1.0),
        context: coming.context,
        accepted: memory.reuse.accept_length.map_or(1.0, |accepted| accepted.get().max(1.0)),
        ttft: policy.slo.ttft.get(),
        itl: policy.slo.itl.get(),
        share: 1.0 - (1.0 - auto.attainment.get()) / 2.0,
        noise: felt(coming.rate.noise, pool.role),
        answers: Answers::default(),
    })
}
