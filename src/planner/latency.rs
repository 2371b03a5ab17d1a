//! What would the next request see at each replica right now? The fast decision of target sla, for one pool.
//!
//! The loads are those of this very round, the cost of an iteration is what was learned (`watching.rs`), and the rule is `propose/load.rs`. Here
//! pages become loads, and what is not known becomes a reason:
//!
//! | not known | then |
//! |---|---|
//! | no page of a replica, or half of them silent | held, as with thresholds |
//! | what waits, or the use of the KV memory | held, `missing_capability`: it says what and where |
//! | tokens of a step (`max_num_batched_tokens`) | TTFT cannot be told: a prefill pool is held, an aggregated one grows by ITL and gives nothing back |
//! | the cost of an iteration | held, `not_converged`, at the floor of the slow loop at least |

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use super::bound::{self, Context};
use super::fast::{Watch, keep};
use super::input::{Gauge, ModelInput, ModelPolicy, PoolPolicy, RegressionPolicy, Sample};
use super::load::Lengths;
use super::memory::{Memory, PoolDecision};
use super::model::iteration::Iteration;
use super::observe::COVERAGE_TO_RAISE;
use super::plan::{Capability, Latencies, LatencyCause, LatencyTrace, Missing, Proposer, Reason, StepReason};
use super::propose::Wish;
use super::propose::load::{Cause, Counts, Decision, Engine, Judge, Load, Outlook, Rules, decide};
use super::watching::{Watched, pages};
use super::{current_replicas, listed_targets, sizing, standing};
use crate::units::{Moment, Ratio, Replicas, Requests, Role, Seconds, TargetId, Tokens};

/// A pool's decision, and what a request would see at the current and at the recommended count.
pub(super) struct Decided {
    pub part: PoolDecision,
    /// The smallest count that would be enough now; `None` where that cannot be told.
    pub enough: Option<Replicas>,
    pub current: Latencies,
    pub recommended: Latencies,
}

impl Decided {
    fn held(reason: Reason, coverage: Ratio, missing: Vec<Missing>) -> Self {
        let part = PoolDecision { reason: Some(reason), coverage: Some(coverage), missing, ..PoolDecision::default() };
        Self { part, enough: None, current: Latencies::default(), recommended: Latencies::default() }
    }
}

/// Decides for one pool.
pub(super) fn decide_pool(
    memory: &Memory,
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
    let recommended = standing(pool, memory, Some(current), watch.now);
    let stands = recommended.unwrap_or(current);
    let floor = memory.pools.get(&pool.pool).and_then(|known| known.floor).filter(|_| watch.load.floor);
    let engine = policy.regression.and_then(|settings| engine(memory, input, pool, watch.lengths, &settings));
    if engine.as_ref().is_none_or(|engine| engine.batched_tokens.is_none()) && pool.role != Role::Decode && batched(input, pool).is_none() {
        missing.push(Missing { what: Capability::BatchedTokens, target: None });
    }
    let rules = Rules { ttft: Seconds(policy.slo.ttft.get()), itl: Seconds(policy.slo.itl.get()), sensitivity, judge: Judge::Spread };
    let loads: Vec<Load> = seen.loads.values().copied().collect();
    let at = |standing| {
        let counts = Counts { current, standing, floor: pool.limits.min(), lower_bound: floor };
        decide(pool.role, engine.as_ref(), &loads, &counts, &rules)
    };
    let decision = at(stands);
    let enough = (decision.cause != Cause::InsufficientData).then(|| {
        let mut count = stands;
        while count.0 > 1 && at(count).replicas < count {
            count = Replicas(count.0 - 1);
        }
        count
    });
    let wish = Wish { supported: decision.replicas, cautious: decision.replicas };
    let moving = memory.growth.get(&pool.pool).is_some_and(|growth| growth.is_moving(policy.transition_timeout, watch.now));
    let context = Context {
        observed: Some(current),
        recommended,
        previous_wish: None,
        coverage,
        complete_window_seen: watch.long_enough,
        cautious: StepReason::SilentTargetsMayCarryLoad,
        keep: keep(memory, pool, policy, watch.now)
            .or_else(|| recently_needed(memory, pool, stands, delay, watch.now).then_some(StepReason::RecentlyNeeded)),
        growth: policy.growth,
        while_moving: moving.then(|| floor.unwrap_or_default()),
        step_down: policy.step_down,
        limits: pool.limits,
    };
    let bounded = bound::bound(wish, &context);
    let unknown = decision.cause == Cause::InsufficientData && bounded.planned == stands;
    let reason = unknown.then_some(if missing.is_empty() { Reason::NotConverged } else { Reason::MissingCapability });
    let samples = memory.watched.get(&pool.pool).map_or(0, |watched| watched.iterations.samples());
    let slowest = slowest(&decision).and_then(|at| seen.loads.iter().nth(at)).map(|(target, load)| (target.clone(), *load));
    let trace = LatencyTrace { slowest, ..trace(&decision, engine.as_ref(), samples, [current, stands], floor) };
    let asked = by_load(&decision, stands);
    let proposed = floor.map(|floor| (sizing::proposer(policy, pool.role), floor)).into_iter().chain([(Proposer::Load, asked)]);
    let part = PoolDecision {
        reason,
        latency: Some(trace),
        missing,
        proposed: proposed.collect(),
        unbounded: Some(wish.supported).filter(|_| !unknown),
        steps: if unknown { Vec::new() } else { bounded.steps },
        limits_active: bounded.limits,
        coverage: Some(coverage),
        ..PoolDecision::default()
    };
    let recommended = latencies(&at(bounded.planned.max(Replicas(1))));
    Decided { part, enough, current: latencies(&at(current)), recommended }
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

/// The longest that any replica would give.
fn latencies(decision: &Decision) -> Latencies {
    let longest = |outlook: &Option<Outlook>| {
        let estimates = outlook.as_ref()?.estimates.iter().map(|estimate| estimate.get());
        estimates.reduce(f64::max).filter(|estimate| estimate.is_finite()).map(Seconds)
    };
    Latencies { ttft_seconds: longest(&decision.ttft), itl_seconds: longest(&decision.itl) }
}

fn trace(decision: &Decision, engine: Option<&Engine>, samples: usize, counts: [Replicas; 2], floor: Option<Replicas>) -> LatencyTrace {
    LatencyTrace {
        cause: match decision.cause {
            Cause::Up => LatencyCause::ScaleUp,
            Cause::Down => LatencyCause::ScaleDown,
            Cause::Stay => LatencyCause::NoChange,
            Cause::RefusedConsolidation => LatencyCause::RefusedConsolidation,
            Cause::CappedByThroughput => LatencyCause::CappedByThroughput,
            Cause::Unbalanced => LatencyCause::Unbalanced,
            Cause::InsufficientData => LatencyCause::InsufficientData,
        },
        costs: engine.map(|engine| engine.iteration.costs()),
        samples: u32::try_from(samples).unwrap_or(u32::MAX),
        estimated: latencies(decision),
        slowest: None,
        prefill_tokens: engine.map(|engine| engine.prefill),
        current: counts[0],
        recommended: counts[1],
        floor,
        batched_tokens: engine.and_then(|engine| engine.batched_tokens).map(NonZeroU32::get),
        input_tokens: engine.map(|engine| engine.input),
        context_tokens: engine.map(|engine| engine.context),
        hit_rate: engine.and_then(|engine| engine.hit_rate),
        accept_length: engine.and_then(|engine| engine.accept_length),
    }
}

fn batched(input: &ModelInput, pool: &PoolPolicy) -> Option<NonZeroU32> {
    sizing::exported(input, pool, Gauge::MaxBatchedTokens).or(pool.capabilities.max_num_batched_tokens)
}

/// What is known of the pool's engines; `None` while the cost of an iteration is not, or no length is.
fn engine(memory: &Memory, input: &ModelInput, pool: &PoolPolicy, lengths: Lengths, settings: &RegressionPolicy) -> Option<Engine> {
    let Watched { iterations, .. } = memory.watched.get(&pool.pool)?;
    let iteration: Iteration = iterations.line(settings.least).ok()?;
    let prompt = lengths.input.or(iterations.input())?;
    let context = iterations.context().or_else(|| Some(Tokens(prompt.get() + lengths.output?.get() / 2.0)));
    Some(Engine {
        iteration,
        batched_tokens: batched(input, pool),
        kv_tokens: sizing::exported(input, pool, Gauge::KvCapacityTokens).or(pool.capabilities.max_kv_tokens),
        input: prompt,
        context: context.unwrap_or(prompt),
        prefill: iterations.prefill().unwrap_or_default(),
        hit_rate: memory.reuse.hit_rate,
        accept_length: memory.reuse.accept_length,
    })
}

/// The loads of a pool's replicas in this round.
struct Seen {
    loads: BTreeMap<TargetId, Load>,
    answered: usize,
    known: usize,
    /// Whether only front ends are scraped, which do not know how full their servers are.
    front_ends: bool,
    missing: BTreeMap<Capability, Option<TargetId>>,
}

impl Seen {
    fn of(input: &ModelInput, pool: &PoolPolicy, policy: &ModelPolicy, lengths: Lengths) -> Self {
        let mut seen =
            Self { loads: BTreeMap::new(), answered: 0, known: listed_targets(pool, input), front_ends: false, missing: BTreeMap::new() };
        for (target, (_, sample)) in pages(input, pool) {
            if sample.is_of_a_router() {
                seen.known = seen.known.saturating_sub(1);
                seen.front_ends = true;
                continue;
            }
            seen.answered += 1;
            match load_of(sample, pool, policy, lengths) {
                Ok(load) => drop(seen.loads.insert(target.clone(), load)),
                Err(lacks) => drop(seen.missing.entry(lacks).or_insert_with(|| Some(target.clone()))),
            }
        }
        if seen.known == 0 && seen.front_ends {
            seen.missing.insert(Capability::ReplicaPages, None);
        }
        seen
    }

    fn coverage(&self) -> Ratio {
        Ratio(if self.known == 0 { 0.0 } else { (self.loads.len() as f64 / self.known as f64).min(1.0) })
    }

    fn missing(&self) -> Vec<Missing> {
        self.missing.iter().map(|(what, target)| Missing { what: *what, target: target.clone() }).collect()
    }
}

/// What one replica holds, or what is missing to tell it.
fn load_of(sample: &Sample, pool: &PoolPolicy, policy: &ModelPolicy, lengths: Lengths) -> Result<Load, Capability> {
    if pool.role == Role::Aggregated && sample.role.is_some_and(|role| role != Role::Aggregated) && policy.pools.len() == 1 {
        // What one of a pair says of itself is no load of replicas that do both.
        return Err(Capability::SeparatePools);
    }
    let gauge = |of| sample.gauges.get(&of).copied();
    let waiting = gauge(Gauge::Waiting);
    let prompts = match (gauge(Gauge::QueuedPromptTokens), waiting) {
        (Some(tokens), _) => Some(tokens),
        (None, Some(0.0)) => Some(0.0),
        (None, Some(waiting)) => lengths.input.map(|input| waiting * input.get()),
        (None, None) => None,
    };
    if pool.role == Role::Prefill {
        let queued = prompts.ok_or(if waiting.is_some() { Capability::PromptLengths } else { Capability::QueuedPrompts })?;
        return Ok(Load { queued_prefill: Tokens(queued), ..Load::default() });
    }
    let usage = gauge(Gauge::KvUsage).ok_or(Capability::KvUsage)?;
    let told = pool.capabilities.max_kv_tokens.map(|tokens| f64::from(tokens.get()));
    let capacity = gauge(Gauge::KvCapacityTokens).filter(|tokens| *tokens > 0.0).or(told).ok_or(Capability::KvCapacity)?;
    let running = gauge(Gauge::Running).ok_or(Capability::Running)?;
    let waiting = waiting.ok_or(Capability::Waiting)?;
    let base = Load { decoding: Requests(running), kv: Tokens(usage * capacity), ..Load::default() };
    if pool.role == Role::Aggregated {
        return Ok(Load { queued_prefill: Tokens(prompts.ok_or(Capability::PromptLengths)?), ..base });
    }
    // What waits at a decode replica brings its prompt with it, and half of its answer on average.
    let each = if waiting > 0.0 {
        let input = lengths.input.ok_or(Capability::PromptLengths)?.get();
        input + lengths.output.ok_or(Capability::OutputLengths)?.get() / 2.0
    } else {
        0.0
    };
    Ok(Load { queued_decoding: Requests(waiting), queued_kv: Tokens(waiting * each), ..base })
}
