//! What do the replicas' loads of this very moment ask for? The fast loop: loads in, a count for each pool out.
//!
//! It looks at what replicas report of themselves in this very round, and at nothing older but the mean lengths of requests. Where the pools
//! are not scraped, a router's view of the fleet stands for the mean replica.
//!
//! With thresholds, `load.rs` says what a load is; with objectives, `latency.rs` asks what the next request would see. Here is when they are asked and
//! what the next decision looks back to. Nothing shrinks while replicas are missing that nobody gave up, nor in the first minute after a time in which
//! nothing was seen.
//!
//! Known limits: a load of the moment says nothing of where it is going; one replica a decision is all that it may cost to be wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bound::{self, Context};
use super::current_replicas;
use super::input::ModelInput;
use super::latency;
use super::load::{Lengths, Seen};
use super::memory::{Decision, LoadMemory, Memory, PoolDecision};
use super::observe::{COVERAGE_TO_RAISE, Round, slot_of};
use super::plan::{Capability, CapacityTrace, HoldKind, Latencies, Missing, Proposer, Reason, StepReason};
use super::policy::{Band, FastRule, LoadPolicy, ModelPolicy, PoolPolicy, Thresholds};
use super::propose::Wish;
use super::propose::threshold::wanted;
use crate::units::{Moment, PoolId, Replicas, RequestsPerSecond, Role};

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
    let mut enough = memory.load.as_mut().map(|known| std::mem::take(&mut known.enough)).unwrap_or_default();
    let asking = memory.load.as_ref().map(|known| known.asking.clone()).unwrap_or_default();
    let (decision, found) = match round.blind {
        Some(reason) => (frame(memory, reason), Found::default()),
        None => {
            memory.load.iter_mut().for_each(|known| known.enough.clone_from(&enough));
            decide(memory, input, policy, load, now)
        }
    };
    remember(&mut enough, found.enough, load, now);
    let asking = found.asks.into_iter().map(|pool| (pool.clone(), asking.get(&pool).copied().unwrap_or(now.monotonic))).collect();
    for (pool, part) in &decision.pools {
        if matches!(load.rule, FastRule::Objectives { .. }) {
            look_back(memory, pool, part, policy, now);
        }
        if let Some(planned) = part.planned() {
            memory.pools.entry(pool.clone()).or_default().decided(planned);
        }
    }
    memory.load = Some(LoadMemory { since, slot, decision, enough, asking });
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
        decision.outlook = slow.outlook;
        (decision.prompt, decision.generation) = (slow.prompt, slow.generation);
        if slow.reason == Reason::SloUnreachable && reason == Reason::None {
            decision.reason = Reason::SloUnreachable;
        }
        decision.warnings.clone_from(&slow.warnings);
    }
    decision
}

/// Follows which decreases had to be taken back.
fn look_back(memory: &mut Memory, pool: &PoolId, part: &PoolDecision, policy: &ModelPolicy, now: Moment) {
    let load = latency::traffic(memory).map(RequestsPerSecond::get);
    let before = memory.pools.get(pool).and_then(|known| known.planned);
    let reversals = memory.reversals.entry(pool.clone()).or_default();
    reversals.judge(load, policy.interval, now);
    if let (Some(before), Some(after)) = (before, part.planned()) {
        reversals.note(before, after, load, now);
    }
}

/// What decisions to come look back to.
#[derive(Debug, Default)]
struct Found {
    /// The smallest counts that would be enough.
    enough: BTreeMap<PoolId, Replicas>,
    /// The pools whose load asks for more.
    asks: Vec<PoolId>,
}

/// The decision, and what the next ones look back to.
fn decide(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, load: &LoadPolicy, now: Moment) -> (Decision, Found) {
    let mut found = Found::default();
    let mut decision = frame(memory, Reason::None);
    let lengths = Lengths::of(memory, input, policy, now);
    let long_enough = memory.load.as_ref().is_some_and(|known| now.monotonic.saturating_sub(known.since) >= policy.shortest_first_window());
    let watch = Watch { load, lengths, long_enough, now };
    for pool in &policy.pools {
        let part = match &load.rule {
            FastRule::Thresholds(bands) => decide_pool(memory, input, pool, policy, watch, bands),
            FastRule::Objectives { sensitivity, delay } => {
                let decided = latency::decide_pool(memory, input, pool, policy, watch, (*sensitivity, *delay));
                found.enough.extend(decided.enough.map(|count| (pool.pool.clone(), count)));
                found.asks.extend(decided.asks.then(|| pool.pool.clone()));
                include(&mut decision.estimated.current, decided.current);
                include(&mut decision.estimated.recommended, decided.recommended);
                PoolDecision { capacity: sized(memory, pool), ..decided.part }
            }
        };
        decision.pools.insert(pool.pool.clone(), part);
    }
    // The model is held where every pool is; one pool's trouble does not speak for the others.
    let reasons: Vec<Option<Reason>> = decision.pools.values().map(|part| part.reason).collect();
    if let (Some(Some(first)), true) = (reasons.first(), reasons.iter().all(Option::is_some)) {
        decision.reason = *first;
    }
    (decision, found)
}

/// Notes which counts would have been enough, and forgets those that are older than a decrease looks back.
fn remember(enough: &mut BTreeMap<PoolId, Vec<(Duration, Replicas)>>, found: BTreeMap<PoolId, Replicas>, load: &LoadPolicy, now: Moment) {
    let FastRule::Objectives { delay, .. } = load.rule else { return enough.clear() };
    for (pool, count) in found {
        enough.entry(pool).or_default().push((now.monotonic, count));
    }
    for known in enough.values_mut() {
        known.retain(|(at, _)| now.monotonic.saturating_sub(*at) <= delay);
    }
    enough.retain(|_, known| !known.is_empty());
}

/// The latencies of the model are those of the pools that see them.
fn include(model: &mut Latencies, pool: Latencies) {
    model.ttft_seconds = model.ttft_seconds.or(pool.ttft_seconds);
    model.itl_seconds = model.itl_seconds.or(pool.itl_seconds);
}

/// What the slow loop knows of the pool's replicas.
fn sized(memory: &Memory, pool: &PoolPolicy) -> Option<CapacityTrace> {
    memory.decision.as_ref()?.pools.get(&pool.pool)?.capacity
}

/// What all pools of a round have in common.
#[derive(Clone, Copy)]
pub(super) struct Watch<'a> {
    pub load: &'a LoadPolicy,
    pub lengths: Lengths,
    /// Whether the fleet was watched for long enough to be made smaller.
    pub long_enough: bool,
    pub now: Moment,
}

/// The count of one pool, or why it has none, with the share of the targets whose load is known.
fn decide_pool(
    memory: &Memory,
    input: &ModelInput,
    pool: &PoolPolicy,
    policy: &ModelPolicy,
    watch: Watch<'_>,
    bands: &Thresholds,
) -> PoolDecision {
    let Watch { lengths, long_enough, now, .. } = watch;
    let counted = current_replicas(pool, memory, input);
    let seen = Seen::of(input, pool, bands.prefill_unit, lengths, counted);
    let (coverage, mut missing) = (seen.coverage(), seen.missing());
    let held = |reason, missing| PoolDecision { reason: Some(reason), coverage: Some(coverage), missing, ..PoolDecision::default() };
    if missing.iter().any(|missing| missing.what == Capability::SeparatePools) {
        return held(Reason::MissingCapability, missing);
    }
    if seen.known == 0 {
        return held(if seen.routers > 0 { Reason::MissingCapability } else { Reason::NoTargets }, missing);
    }
    if coverage.get() < COVERAGE_TO_RAISE {
        return held(if seen.answered > seen.described() { Reason::MissingCapability } else { Reason::CoverageLow }, missing);
    }
    let Some(current) = counted else {
        missing.push(Missing { what: Capability::WorkerCount, target: None });
        return held(Reason::MissingCapability, missing);
    };
    let recommended = super::standing(pool, memory, Some(current), now);
    let standing = recommended.unwrap_or(current);
    let (band, loads) = (band_of(bands, pool.role), seen.loads());
    let wish = wanted(&loads, band, current, standing);
    let moving = memory.growth.get(&pool.pool).is_some_and(|growth| growth.is_moving(policy.transition_timeout, now));
    let context = Context {
        observed: Some(current),
        recommended,
        previous_wish: None,
        coverage,
        complete_window_seen: long_enough,
        caution: StepReason::SilentTargetsMayCarryLoad,
        keep: keep(memory, pool, policy, now),
        growth: policy.growth,
        while_moving: moving.then_some(Replicas(0)),
        step_down: policy.step_down,
        limits: pool.limits,
    };
    let bounded = bound::bound(Wish { supported: wish, cautious: wish }, &context);
    PoolDecision {
        load: seen.trace(band, current, standing),
        missing,
        proposed: BTreeMap::from([(Proposer::Threshold, wish)]),
        unbounded: Some(wish),
        steps: bounded.steps,
        limits_active: bounded.limits,
        coverage: Some(coverage),
        ..PoolDecision::default()
    }
}

/// Why the pool must not shrink, if so. Loads of the moment know nothing of replicas that are gone.
pub(super) fn keep(memory: &Memory, pool: &PoolPolicy, policy: &ModelPolicy, now: Moment) -> Option<StepReason> {
    let growth = memory.growth.get(&pool.pool)?;
    growth.rollout(now).or_else(|| growth.is_short(policy.hold_for, now).then_some(StepReason::ReplicasMissing))
}

fn band_of(bands: &Thresholds, role: Role) -> Band {
    if role == Role::Prefill { bands.prefill } else { bands.decode }
}
