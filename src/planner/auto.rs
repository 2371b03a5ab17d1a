//! How many replicas let nearly every request meet its objectives, now and until another one could be there? Preset auto's decision, in every round.
//!
//! | step | from | to |
//! |---|---|---|
//! | what is coming | ten minutes of short slices (`arrivals.rs`, `predict/level.rs`) | rate with slope, lengths with their spread |
//! | when | the measured start-up and two rounds | the largest rate until then, and one standard error more |
//! | what a replica does | the profile, else the learned cost of iterations (`model/server.rs`) | prompt times, step times |
//! | how many | the smallest count that lets the wanted share of requests meet each objective (`model/attain.rs`) | need |
//! | what already waits | the pool's queue, followed to the moment at which new replicas are ready | more, where need alone would not catch up |
//! | giving back | need of a tenth more, and what was needed in the last `scale_down_delay` | the cautious wish |

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arrivals::Coming;
use super::bound::{self, Context};
use super::input::{AutoPolicy, CapacityModel, Gauge, ModelInput, ModelPolicy, PoolPolicy};
use super::memory::{Decision, Memory};
use super::model::attain::{Decoder, Prompts, queue, within_ttft};
use super::model::capacity::trusted_hit_rate;
use super::model::server::Server;
use super::observe::{COVERAGE_TO_RAISE, Window};
use super::plan::{Latencies, PhaseState, Prediction, Proposer, Reason, StepReason};
use super::propose::{Wish, gpus_of};
use super::sizing::limits;
use super::watching::pages;
use super::{current_replicas, standing};
use crate::units::{Moment, Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens};

/// The start-up that is assumed before one was measured.
const USUAL_STARTUP: Duration = Duration::from_secs(120);
/// Rounds between what happens and the replicas that were asked for because of it.
const LATE_ROUNDS: u32 = 2;
/// A decrease must carry this many times what is expected.
const PADDING: f64 = 1.1;
/// Time that is watched before anything is decided.
const LEAST_WATCHED: f64 = 20.0;
/// Time within which new replicas are to have worked off what waits.
const CATCH_UP: f64 = 45.0;
/// Time between two decreases of a pool, and the share of it that one may take.
const STEP_EVERY: Duration = Duration::from_secs(60);
const STEP_SHARE: u32 = 10;
/// Replicas beyond which no search goes.
const MOST: u32 = 100_000;

/// What is remembered of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// What was needed lately, and when, on the monotonic clock.
    needs: Vec<(Duration, Replicas)>,
    /// Since when it is watched.
    since: Option<Duration>,
    /// What stood in the last round.
    stood: Option<Replicas>,
    /// Replicas that were asked for and are not there yet, and when.
    asked: Vec<(Duration, u32)>,
    /// When it was last made smaller.
    lowered_at: Option<Duration>,
}

impl Followed {
    /// Follows what stands and what is ready.
    fn follow(&mut self, stands: Replicas, ready: Replicas, now: Moment) {
        let before = self.stood.replace(stands).unwrap_or(stands);
        if stands > before {
            self.asked.push((now.monotonic, stands.0 - before.0));
        }
        if stands < before {
            self.lowered_at = Some(now.monotonic);
        }
        // The oldest arrive first.
        let mut open = stands.0.saturating_sub(ready.0);
        for (_, count) in self.asked.iter_mut().rev() {
            *count = (*count).min(open);
            open -= *count;
        }
        self.asked.retain(|(_, count)| *count > 0);
        self.since.get_or_insert(now.monotonic);
    }

    fn need(&mut self, need: Replicas, delay: Duration, now: Moment) {
        self.needs.retain(|(at, _)| now.monotonic.saturating_sub(*at) <= delay);
        self.needs.push((now.monotonic, need));
    }

    /// The most that was needed lately.
    fn most(&self) -> Replicas {
        self.needs.iter().map(|(_, need)| *need).max().unwrap_or_default()
    }
}

/// Requests of a pool, as it sees them.
struct Demand<'a> {
    role: Role,
    server: Server<'a>,
    mix: Vec<Prompts>,
    input: f64,
    output: f64,
    steps: f64,
    ttft: f64,
    itl: f64,
    share: f64,
}

impl Demand<'_> {
    fn step(&self, batch: f64) -> f64 {
        self.server.step(Requests(batch), Tokens(self.input + self.output / 2.0)).get()
    }

    /// Share of the requests that meet the pool's objective; `None` where none can.
    fn within(&self, replicas: u32, rate: f64) -> Option<f64> {
        match self.role {
            Role::Prefill => within_ttft(replicas, rate, &self.mix, self.ttft),
            Role::Decode | Role::Aggregated => {
                let step = |batch: f64| self.step(batch);
                let decoder = self.decoder(&step);
                (decoder.largest_batch() > 0.0).then(|| decoder.within(replicas, rate))
            }
        }
    }

    fn decoder<'s>(&self, step: &'s dyn Fn(f64) -> f64) -> Decoder<'s> {
        Decoder { step, most: self.server.most(Tokens(self.input + self.output)).get(), steps: self.steps, objective: self.itl }
    }

    /// The smallest count that is enough.
    fn need(&self, rate: f64) -> Replicas {
        if rate <= 0.0 {
            return Replicas(0);
        }
        let first = (rate / self.capacity()).floor().max(1.0);
        let mut count = if first < f64::from(MOST) { first as u32 } else { MOST };
        while count < MOST && self.within(count, rate).is_some_and(|share| share < self.share) {
            count += 1;
        }
        Replicas(count)
    }

    /// Requests a second that one replica serves at most.
    fn capacity(&self) -> f64 {
        match self.role {
            Role::Prefill => 1.0 / self.mix.iter().map(|prompts| prompts.share * prompts.work).sum::<f64>(),
            Role::Decode | Role::Aggregated => {
                let step = |batch: f64| self.step(batch);
                let decoder = self.decoder(&step);
                let largest = decoder.largest_batch();
                decoder.rate(if largest > 0.0 { largest } else { decoder.most })
            }
        }
    }

    /// Requests beyond what the ready replicas hold in order.
    fn excess(&self, waiting: f64, running: f64, ready: Replicas) -> f64 {
        match self.role {
            Role::Prefill => waiting,
            Role::Decode | Role::Aggregated => {
                let step = |batch: f64| self.step(batch);
                waiting + (running - self.decoder(&step).largest_batch() * ready.as_f64()).max(0.0)
            }
        }
    }

    fn latencies(&self, replicas: Replicas, rate: f64) -> Latencies {
        match self.role {
            Role::Prefill => {
                let alone: f64 = self.mix.iter().map(|prompts| prompts.share * prompts.alone).sum();
                let ttft = queue(replicas.0, rate, &self.mix).map(|queue| Seconds(alone + queue.mean_wait()));
                Latencies { ttft_seconds: ttft, itl_seconds: None }
            }
            Role::Decode | Role::Aggregated => {
                let step = |batch: f64| self.step(batch);
                let decoder = self.decoder(&step);
                let batch = decoder.batch(replicas.0, rate, decoder.most);
                Latencies { ttft_seconds: None, itl_seconds: batch.map(|batch| Seconds(self.step(batch) * self.steps / self.output)) }
            }
        }
    }
}

/// Decides.
pub(super) fn decide(
    memory: &mut Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    auto: &AutoPolicy,
    window: &Window,
    now: Moment,
) -> Decision {
    let held = |reason| Decision::held(reason, Some(window));
    for pool in &policy.pools {
        let current = current_replicas(pool, memory, input);
        let stands = standing(pool, memory, current, now);
        if let (Some(current), Some(stands)) = (current, stands) {
            memory.followed.entry(pool.pool.clone()).or_default().follow(stands, current, now);
        }
    }
    if window.least_coverage().get() < COVERAGE_TO_RAISE {
        return held(Reason::CoverageLow);
    }
    if window.finished > 0.0 && !window.instrumented {
        return held(Reason::SlaMetricsDisabled);
    }
    let Some(coming) = memory.arrivals.coming() else { return held(Reason::NoRequests) };
    if coming.watched < LEAST_WATCHED {
        return held(Reason::Baseline);
    }
    let mut decision = held(Reason::None);
    let demands: Vec<Option<Demand<'_>>> = policy.pools.iter().map(|pool| demand(memory, input, policy, auto, pool, &coming)).collect();
    let rate = coming.rate.value;
    decision.prediction = Some(Prediction {
        requests_per_second: RequestsPerSecond(rate * coming.supported),
        estimated_requests_per_second: RequestsPerSecond(rate),
        input_tokens: Tokens(coming.input),
        output_tokens: Tokens(coming.output),
    });
    if demands.iter().any(Option::is_none) {
        decision.reason = Reason::NotConverged;
        return decision;
    }
    for (pool, demand) in policy.pools.iter().zip(demands.iter().flatten()) {
        decide_pool(&mut decision, memory, input, policy, auto, (pool, demand), &coming, window, now);
        if demand.within(1, 0.0).is_none() {
            decision.reason = Reason::SloUnreachable;
        }
    }
    let met = |seen: Option<Seconds>, objective: f64| seen.map(|seen| seen.get() <= objective);
    decision.prompt = PhaseState { met: met(window.observation.ttft_seconds, policy.slo.ttft.get()), attainable: None };
    decision.generation = PhaseState { met: met(window.observation.itl_seconds, policy.slo.itl.get()), attainable: None };
    decision
}

#[expect(clippy::too_many_arguments)]
fn decide_pool(
    decision: &mut Decision,
    memory: &mut Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    auto: &AutoPolicy,
    (pool, demand): (&PoolPolicy, &Demand<'_>),
    coming: &Coming,
    window: &Window,
    now: Moment,
) {
    let observed = current_replicas(pool, memory, input);
    let startup = memory.growth.get(&pool.pool).and_then(super::startup::Growth::startup).unwrap_or(USUAL_STARTUP);
    let horizon = (startup + policy.scrape_interval.saturating_mul(LATE_ROUNDS)).as_secs_f64();
    let rate = coming.rate.value.max(coming.rate.at(horizon)) + coming.rate.error;
    let need = demand.need(rate * coming.supported);
    let known = memory.followed.entry(pool.pool.clone()).or_default();
    let wanted = match observed {
        Some(ready) => need.max(caught_up(demand, known, input, pool, (coming.rate.value * coming.supported, need, ready), startup, now)),
        None => need,
    };
    known.need(need, auto.delay, now);
    let padded = demand.need(rate * PADDING);
    let recent = known.most();
    let cautious = wanted.max(padded).max(recent);
    let stands = standing(pool, memory, observed, now);
    let known = &memory.followed[&pool.pool];
    let watched = known.since.is_some_and(|since| now.monotonic.saturating_sub(since) >= auto.delay);
    let stepped = known.lowered_at.is_some_and(|at| now.monotonic.saturating_sub(at) < STEP_EVERY);
    let context = Context {
        observed,
        recommended: stands,
        previous_wish: memory.decision.as_ref().and_then(|last| last.pools.get(&pool.pool)?.unbounded),
        coverage: window.coverage_of(&pool.pool),
        complete_window_seen: watched,
        caution: if recent > padded { StepReason::RecentlyNeeded } else { StepReason::PaddedDemand },
        keep: memory.growth.get(&pool.pool).and_then(|growth| growth.rollout(now)).or(stepped.then_some(StepReason::StepCapped)),
        growth: policy.growth,
        while_moving: None,
        step_down: std::num::NonZeroU32::new((stands.unwrap_or_default().0 / STEP_SHARE).max(1)),
        limits: pool.limits,
    };
    let bounded = bound::bound(Wish { supported: wanted, cautious }, &context);
    let part = decision.pools.entry(pool.pool.clone()).or_default();
    part.proposed = BTreeMap::from([(Proposer::Auto, wanted)]);
    part.unbounded = Some(wanted);
    let include = |model: &mut Latencies, found: Latencies| {
        model.ttft_seconds = model.ttft_seconds.or(found.ttft_seconds);
        model.itl_seconds = model.itl_seconds.or(found.itl_seconds);
    };
    if let Some(observed) = observed {
        include(&mut decision.estimated.current, demand.latencies(observed, coming.rate.value));
    }
    include(&mut decision.estimated.recommended, demand.latencies(bounded.planned, coming.rate.value));
    part.steps = bounded.steps;
    part.limits_active = bounded.limits;
}

/// The count that also works off what waits, soon after it is there.
fn caught_up(
    demand: &Demand<'_>,
    known: &Followed,
    input: &ModelInput,
    pool: &PoolPolicy,
    (rate, need, ready): (f64, Replicas, Replicas),
    startup: Duration,
    now: Moment,
) -> Replicas {
    let sum = |gauge| pages(input, pool).filter_map(|(_, (_, sample))| sample.gauges.get(&gauge).copied()).sum::<f64>();
    let each = demand.capacity();
    let mut excess = demand.excess(sum(Gauge::Waiting), sum(Gauge::Running), ready);
    // Followed to the moment at which what is asked for now is ready.
    let (mut at, end, mut count) = (0.0, startup.as_secs_f64(), ready.as_f64());
    for (asked, more) in &known.asked {
        let ready_in = (*asked + startup).saturating_sub(now.monotonic).as_secs_f64().min(end);
        excess = (excess + (rate - each * count) * (ready_in - at)).max(0.0);
        (at, count) = (ready_in, count + f64::from(*more));
    }
    excess = (excess + (rate - each * count) * (end - at)).max(0.0);
    // What an even pool has waiting anyway.
    if excess <= count {
        return need;
    }
    let beside = need.0.saturating_add(ready.0);
    let through = ((rate + excess / CATCH_UP) / each).ceil();
    need.max(Replicas(beside.min(if through < f64::from(MOST) { through as u32 } else { MOST })))
}

fn demand<'a>(
    memory: &Memory,
    input: &ModelInput,
    policy: &'a ModelPolicy,
    auto: &AutoPolicy,
    pool: &PoolPolicy,
    coming: &Coming,
) -> Option<Demand<'a>> {
    let server = match &policy.capacity {
        CapacityModel::Envelope(envelope) => Server::Profile(envelope, f64::from(gpus_of(pool, &policy.capacity))),
        _ => Server::Learned(memory.watched.get(&pool.pool)?.iterations.line(policy.regression?.least).ok()?, limits(input, pool)),
    };
    let hit = trusted_hit_rate(memory.reuse.hit_rate);
    let prompts = |&(tokens, share): &(f64, f64)| {
        let (alone, work) = server.prompt(Tokens(tokens), hit);
        Prompts { share, alone: alone.get(), work: work.get() }
    };
    let accepted = memory.reuse.accept_length.map_or(1.0, |accepted| accepted.get().max(1.0));
    Some(Demand {
        role: pool.role,
        mix: coming.mix.iter().map(prompts).collect(),
        server,
        input: coming.input,
        output: coming.output.max(1.0),
        steps: (coming.output / accepted).max(1.0),
        ttft: policy.slo.ttft.get(),
        itl: policy.slo.itl.get() * accepted,
        // Each objective may be missed by its half.
        share: 1.0 - (1.0 - auto.attainment.get()) / 2.0,
    })
}
