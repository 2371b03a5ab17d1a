//! How full are the replicas right now? The fast loop: the loads of the moment in, a count for each pool out.
//!
//! It looks at what replicas report of themselves in this very round, and at nothing older but the mean lengths of requests. Where the pools
//! are not scraped, a router's view of the fleet stands for the mean replica.
//!
//! | role | load of a target |
//! |---|---|
//! | decode, aggregated | KV usage + what the waiting requests will need of the KV memory |
//! | prefill | tokens of the waiting prompts, in context lengths or as they are |
//!
//! A waiting request needs I + O/2 tokens, as one that runs does on average (mean prompt and answer of the last window); where the KV capacity
//! or the lengths are not known, as much as each of those that run now. In an aggregated server a request waits once, for both: it is counted
//! once. A target whose load cannot be told is silent; it is never empty. Nothing shrinks while replicas are missing that nobody gave up, nor in
//! the first minute after a time in which nothing was seen.
//!
//! Known limits: a load of the moment says nothing of where it is going; one replica a decision is all that it may cost to be wrong.

use std::collections::BTreeMap;

use super::bound::{self, Context};
use super::current_replicas;
use super::input::{Band, Gauge, LoadPolicy, ModelInput, ModelPolicy, PoolPolicy, QueueUnit, Reading, Sample, SourceId, SourceInput};
use super::memory::{Decision, LoadMemory, Memory, PoolDecision};
use super::observe::{COVERAGE_TO_RAISE, Round, observe, slot_of};
use super::plan::{HoldKind, LoadTrace, Proposer, Reason, StepReason};
use super::propose::Wish;
use super::propose::threshold::wanted;
use crate::units::{Moment, Ratio, Replicas, Role, TargetId, Tokens};

/// Brings the fast loop's memory up to date. Answers whether it decided.
pub(super) fn look(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, load: &LoadPolicy, round: &Round, now: Moment) -> bool {
    let slot = slot_of(now, load.interval);
    let known = memory.load.as_ref().map(|known| (known.since, known.slot));
    let anything_seen = memory.window.is_some();
    let due = round.clock_step.is_some() || known.is_none_or(|(_, last)| last != slot);
    if !due || (known.is_none() && !anything_seen && round.blind.is_none()) {
        return false;
    }
    // Who saw nothing begins to watch anew: the first replica that is back is empty, and says nothing of the load before.
    let was_blind = memory.load.as_ref().is_some_and(|known| known.decision.is_blind());
    let since = known.filter(|_| !was_blind).map_or(now.monotonic, |(since, _)| since);
    let decision = match round.blind {
        Some(reason) => frame(memory, reason),
        None => decide(memory, input, policy, load, now),
    };
    for (pool, part) in &decision.pools {
        if let Some(planned) = part.planned() {
            memory.pools.entry(pool.clone()).or_default().planned = Some(planned);
        }
    }
    memory.load = Some(LoadMemory { since, slot, decision });
    true
}

impl Decision {
    /// Whether anything that it needed was not seen.
    fn is_blind(&self) -> bool {
        let reasons = std::iter::once(self.reason).chain(self.pools.values().filter_map(|part| part.reason));
        reasons.map(Reason::hold_kind).any(|kind| kind == Some(HoldKind::Blind))
    }
}

/// A decision that shows the last window and decides nothing.
fn frame(memory: &Memory, reason: Reason) -> Decision {
    let mut decision = Decision::held(reason, None);
    if let Some(slow) = &memory.decision {
        decision.observation.clone_from(&slow.observation);
        decision.prediction = slow.prediction;
        decision.warnings.clone_from(&slow.warnings);
    }
    decision
}

fn decide(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, load: &LoadPolicy, now: Moment) -> Decision {
    let mut decision = frame(memory, Reason::None);
    let lengths = Lengths::of(memory, input, policy, now);
    let long_enough = memory.load.as_ref().is_some_and(|known| now.monotonic.saturating_sub(known.since) >= policy.shortest_first_window());
    for pool in &policy.pools {
        let part =
            decide_pool(memory, input, pool, policy, Watch { load, lengths, long_enough, now }).unwrap_or_else(|(reason, coverage)| {
                PoolDecision { reason: Some(reason), coverage: Some(coverage), ..PoolDecision::default() }
            });
        decision.pools.insert(pool.pool.clone(), part);
    }
    // The model is held where every pool is; one pool's trouble does not speak for the others.
    let reasons: Vec<Option<Reason>> = decision.pools.values().map(|part| part.reason).collect();
    if let (Some(Some(first)), true) = (reasons.first(), reasons.iter().all(Option::is_some)) {
        decision.reason = *first;
    }
    decision
}

/// What all pools of a round have in common.
#[derive(Clone, Copy)]
struct Watch<'a> {
    load: &'a LoadPolicy,
    lengths: Lengths,
    /// Whether the fleet was watched for long enough to be made smaller.
    long_enough: bool,
    now: Moment,
}

/// The count of one pool, or why it has none, with the share of the targets whose load is known.
fn decide_pool(
    memory: &Memory,
    input: &ModelInput,
    pool: &PoolPolicy,
    policy: &ModelPolicy,
    watch: Watch<'_>,
) -> Result<PoolDecision, (Reason, Ratio)> {
    let Watch { load, lengths, long_enough, now } = watch;
    let seen = Seen::of(input, pool, load, lengths);
    let coverage = seen.coverage();
    let held = |reason| (reason, coverage);
    if seen.known == 0 {
        return Err(held(if seen.routers > 0 { Reason::MissingCapability } else { Reason::NoTargets }));
    }
    if coverage.get() < COVERAGE_TO_RAISE {
        return Err(held(if seen.answered > seen.loads.len() { Reason::MissingCapability } else { Reason::CoverageLow }));
    }
    let Some(current) = current_replicas(pool, memory, input) else { return Err(held(Reason::MissingCapability)) };
    let recommended = super::standing(pool, memory, Some(current), now);
    let standing = recommended.unwrap_or(current);
    let (band, loads): (Band, Vec<f64>) = (band_of(load, pool.role), seen.loads.values().copied().collect());
    let wish = wanted(&loads, band, current, standing);
    let context = Context {
        observed: Some(current),
        recommended,
        coverage,
        complete_window_seen: long_enough,
        keep: keep(memory, pool, policy, now),
        growth: policy.growth,
        limits: pool.limits,
    };
    let bounded = bound::bound(Wish { supported: wish, cautious: wish }, &context);
    Ok(PoolDecision {
        reason: None,
        load: seen.trace(band, current, standing),
        proposed: BTreeMap::from([(Proposer::Threshold, wish)]),
        unbounded: Some(wish),
        steps: bounded.steps,
        limits_active: bounded.limits,
        coverage: Some(coverage),
    })
}

/// Why the pool must not shrink, if so. Loads of the moment know nothing of replicas that are gone.
fn keep(memory: &Memory, pool: &PoolPolicy, policy: &ModelPolicy, now: Moment) -> Option<StepReason> {
    let growth = memory.growth.get(&pool.pool)?;
    growth.rollout(now).or_else(|| growth.is_short(policy.hold_for, now).then_some(StepReason::ReplicasMissing))
}

fn band_of(load: &LoadPolicy, role: Role) -> Band {
    if role == Role::Prefill { load.prefill } else { load.decode }
}

/// The load of a replica whose memory is used up.
const FULL: f64 = 1.0;

/// Mean lengths of requests, as far as a window tells them.
#[derive(Clone, Copy, Debug, Default)]
struct Lengths {
    input: Option<Tokens>,
    output: Option<Tokens>,
}

impl Lengths {
    /// Of the last whole window, else of the one that goes on.
    fn of(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> Self {
        let last = memory.decision.as_ref().and_then(|decision| decision.observation.as_ref());
        let last = last.map(|seen| Self { input: seen.input_tokens, output: seen.output_tokens }).unwrap_or_default();
        if last.input.is_some() && last.output.is_some() {
            return last;
        }
        let current = observe(memory, input, policy, now).map(|window| window.observation);
        let current = current.map(|seen| Self { input: seen.input_tokens, output: seen.output_tokens }).unwrap_or_default();
        Self { input: last.input.or(current.input), output: last.output.or(current.output) }
    }

    /// What a request holds on average while it decodes.
    fn context(self) -> Option<f64> {
        Some(self.input?.get() + self.output?.get() / 2.0)
    }
}

/// The loads of a pool's targets in this round.
struct Seen {
    loads: BTreeMap<TargetId, f64>,
    /// Targets that answered.
    answered: usize,
    known: usize,
    /// Routers among the traffic targets that say nothing of their fleet's load; they are no replicas.
    routers: usize,
}

impl Seen {
    /// From the pool's own targets where any are configured, also while there are none, else from the traffic targets: what they say of themselves, or of their fleet.
    fn of(input: &ModelInput, pool: &PoolPolicy, load: &LoadPolicy, lengths: Lengths) -> Self {
        let source = |id: &SourceId| input.sources.iter().find(|source| source.source == *id);
        let own = source(&SourceId::Pool(pool.pool.clone()));
        let source: Option<&SourceInput> = own.or_else(|| source(&SourceId::Traffic));
        let mut seen = Self { loads: BTreeMap::new(), answered: 0, known: 0, routers: 0 };
        for reading in source.into_iter().flat_map(|source| &source.targets) {
            seen.known += 1;
            let Reading::Sample(sample) = &reading.reading else { continue };
            if own.is_none() && sample.is_empty() {
                // It serves another model.
                seen.known -= 1;
                continue;
            }
            let load = load_of(sample, pool, load, lengths).filter(|load| load.is_finite() && *load >= 0.0);
            if load.is_none() && own.is_none() && sample.is_of_a_router() {
                seen.known -= 1;
                seen.routers += 1;
                continue;
            }
            seen.answered += 1;
            seen.loads.extend(load.map(|load| (reading.target.clone(), load)));
        }
        seen
    }

    fn coverage(&self) -> Ratio {
        Ratio(if self.known == 0 { 0.0 } else { self.loads.len() as f64 / self.known as f64 })
    }

    fn trace(&self, band: Band, current: Replicas, standing: Replicas) -> Option<LoadTrace> {
        let (fullest, load) = self.loads.iter().max_by(|one, other| one.1.total_cmp(other.1))?;
        let share = current.as_f64().max(1.0) / standing.as_f64().max(1.0);
        Some(LoadTrace {
            fullest: fullest.clone(),
            load: *load,
            projected: load * share,
            up: band.up.at,
            down: band.down.at,
            all_below: self.loads.values().all(|load| band.down.is_undercut_by(load * share.max(1.0))),
            // A fleet is far smaller than the range.
            described: self.loads.len() as u32,
            known: self.known as u32,
        })
    }
}

/// The load of one target; `None` where what it says is not enough.
fn load_of(sample: &Sample, pool: &PoolPolicy, load: &LoadPolicy, lengths: Lengths) -> Option<f64> {
    match pool.role {
        Role::Prefill => {
            let queued = queued_tokens(sample, lengths)?;
            match load.prefill_unit {
                QueueUnit::Tokens => Some(queued),
                QueueUnit::ContextLengths => Some(queued / f64::from(pool.capabilities.context_length?.get())),
            }
        }
        Role::Decode | Role::Aggregated => occupied(sample, pool, lengths),
    }
}

fn queued_tokens(sample: &Sample, lengths: Lengths) -> Option<f64> {
    let of = |gauge| sample.gauges.get(&gauge).or_else(|| sample.fleet.get(&gauge)).copied();
    of(Gauge::QueuedPromptTokens).or_else(|| match of(Gauge::Waiting)? {
        0.0 => Some(0.0),
        waiting => Some(waiting * lengths.input?.get()),
    })
}

fn occupied(sample: &Sample, pool: &PoolPolicy, lengths: Lengths) -> Option<f64> {
    if let Some(usage) = sample.gauges.get(&Gauge::KvUsage) {
        let waiting = sample.gauges.get(&Gauge::Waiting)?;
        return Some(with_waiting(*usage, *waiting, sample, 1.0, pool, lengths));
    }
    // A router counts for the whole fleet and knows the mean usage: what waits, in its own queue or at the replicas, is spread over them.
    let replicas = sample.workers.get(&pool.role).copied().filter(|workers| workers.0 > 0)?.as_f64();
    let waiting = sample.fleet.get(&Gauge::Waiting).or_else(|| sample.gauges.get(&Gauge::Waiting))? / replicas;
    Some(with_waiting(*sample.fleet.get(&Gauge::KvUsage)?, waiting, sample, replicas, pool, lengths))
}

/// Usage, and what the waiting requests of one replica will need. Where that cannot be told the replica is full: not empty, and no reason to
/// add one either.
fn with_waiting(usage: f64, waiting: f64, sample: &Sample, replicas: f64, pool: &PoolPolicy, lengths: Lengths) -> f64 {
    if waiting == 0.0 {
        return usage;
    }
    let of = |gauge| sample.gauges.get(&gauge).or_else(|| sample.fleet.get(&gauge)).copied().filter(|value| *value > 0.0);
    let told = pool.capabilities.max_kv_tokens.map(|tokens| f64::from(tokens.get()));
    if let (Some(capacity), Some(context)) = (of(Gauge::KvCapacityTokens).or(told), lengths.context()) {
        return usage + waiting * context / capacity;
    }
    match of(Gauge::Running) {
        Some(running) if usage > 0.0 => usage + usage * waiting / (running / replicas),
        _ => usage.max(FULL),
    }
}
