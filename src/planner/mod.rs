//! How many replicas does each pool need? THE CORE. Pure.
//!
//! [`plan()`] is a function of (input, memory, policy, now) that returns (plan, memory). It cannot fail, wait, log, or look at a clock.
//! Missing knowledge is a verdict, never an error and never a zero. README.md here explains each stage with numbers.
//!
//! Every round calls it. Between decisions it only brings the windows up to date and keeps the last decision; at a boundary (a wall-clock
//! multiple of an interval) it decides anew: `slow` from the window and a model of what a replica can do, `fast` from the replicas'
//! loads in this very round. With preset auto the slow loop decides in every round (`auto`). All go through the same limits (`bound`), and
//! `render` shows what came of it.

pub mod allotment;
pub mod arrivals;
pub mod auto;
pub mod backlog;
mod batch;
pub mod bound;
pub mod budget;
mod fast;
mod few;
pub mod followed;
mod held;
pub mod input;
mod latency;
pub mod learn;
pub mod lengths;
pub mod lint;
mod load;
pub mod memory;
pub mod model;
mod next_request;
pub(crate) mod objectives;
pub mod observe;
pub mod plan;
pub mod policy;
pub mod predict;
mod prompts;
pub mod propose;
pub mod publish;
pub mod quantile;
pub mod ration;
pub mod reason;
mod recent;
pub mod reconcile;
mod render;
pub mod reversals;
pub mod rhythm;
mod sample;
pub mod shadows;
mod sizing;
mod slow;
pub mod startup;
mod sum;
mod teach;
mod trace;
pub mod unlearned;
pub(crate) mod variants;
pub mod watching;
pub mod window;
pub mod workload;

use std::collections::BTreeMap;

use input::{Lifecycle, ModelInput, SourceId};
use memory::{Decision, Memory};
use observe::Round;
use plan::{LoopDecision, Plan, PoolPlan, Reason, StepReason};
use policy::{ModelPolicy, PoolPolicy, ReplicasFrom};
use ration::Rationed;
use render::Served;

use crate::units::{Moment, PoolId, Replicas};

/// Plans one model for one round.
pub fn plan(input: &ModelInput, mut memory: Memory, policy: &ModelPolicy, now: Moment) -> (Plan, Memory) {
    let round = begin_round(&mut memory, input, policy, now);
    let before = planned_counts(&memory);
    memory.followed.retain(|pool, _| policy.pools.iter().any(|known| known.pool == *pool));
    if let Some(settings) = &policy.regression {
        watching::look(&mut memory, input, policy, settings, now);
    }
    let mut decided = slow::look(&mut memory, input, policy, now, &round);
    if let Some(load) = &policy.load
        && fast::look(&mut memory, input, policy, load, &round, now)
    {
        decided = memory.load.as_ref().map(|known| known.decision.reason);
    } else if policy.load.is_some() {
        // The slow loop only observes, or sets a floor.
        decided = None;
    }
    let plan = render::render(&mut memory, input, policy, now, &round, decided, &before);
    (plan, memory)
}

/// The last plan, held for a reason that lies outside the samples: nothing was scraped yet, or a finished plan broke a rule.
/// `memory` is the memory from before this round. Where a decision was due, the hold is the decision and stands until the next one.
pub fn hold(input: &ModelInput, mut memory: Memory, policy: &ModelPolicy, now: Moment, reason: Reason) -> (Plan, Memory) {
    let mut round = begin_round(&mut memory, input, policy, now);
    round.blind = Some(reason);
    let before = planned_counts(&memory);
    let mut decided = round.due.then_some(reason);
    if round.due {
        slow::hold(&mut memory, policy, now, reason);
    }
    if let Some(load) = &policy.load {
        let looked = fast::look(&mut memory, input, policy, load, &round, now);
        decided = looked.then_some(reason);
    }
    let plan = render::render(&mut memory, input, policy, now, &round, decided, &before);
    (plan, memory)
}

/// What every round does first: forget pools that are gone, take in the samples, follow the wall clock.
fn begin_round(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> Round {
    memory.pools.retain(|pool, _| policy.pools.iter().any(|known| known.pool == *pool));
    let round = observe::take_in(memory, input, policy, now);
    startup::look(memory, input, policy, now);
    if round.blind.is_none() {
        latch_baseline(memory, input, policy, now);
    }
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
    let reason = if acting(&memory, policy).is_some() || last.held { last.reason } else { Reason::Baseline };
    if let Some(window) = memory.window.as_mut().filter(|_| interval_changed) {
        // A new interval has its own boundaries: the next one is due, not this moment.
        window.slot = observe::slot_of(now, policy.interval);
    }
    let pools = policy.pools.iter().map(|pool| {
        let known = memory.pools.entry(pool.pool.clone()).or_default();
        // Budgets are followed in the next round, which knows what stands.
        let rationed = known.planned.filter(|planned| known.wanted.is_some_and(|wanted| wanted != *planned));
        let rationed = rationed.map(|replicas| Rationed { replicas, reason: StepReason::LoweredToBudget });
        let served = Served { reason, computed: false, coverage_good: false, rationed };
        let (planned_replicas, serving) = render::serve(known, pool, policy, served, now);
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
            limits_active: last.map(|last| render::with_pin(&last.limits_active, &serving)).unwrap_or_default(),
            held: serving.held,
            reason: serving.reason,
            overridden: serving.overridden,
            published: serving.published,
            slow_loop: LoopDecision::Wait,
            fast_loop: LoopDecision::Wait,
            load: last.and_then(|last| last.load.clone()),
            latency: last.and_then(|last| last.latency.clone()),
            capacity: last.and_then(|last| last.capacity),
            auto: last.and_then(|last| last.auto.clone()),
            queueing: last.and_then(|last| last.queueing.clone()),
            untaught: last.and_then(|last| last.untaught),
            missing: last.map(|last| last.missing.clone()).unwrap_or_default(),
            startup: last.and_then(|last| last.startup),
            capacity_unavailable: last.and_then(|last| last.capacity_unavailable),
            coming_replicas: last.and_then(|last| last.coming_replicas),
            coverage: last.and_then(|last| last.coverage),
            gpus_per_replica: propose::gpus_of(pool, &policy.capacity),
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
        ReplicasFrom::Kubernetes => lifecycle(pool, input).map(|told| replicas(told.ready, pool)),
        ReplicasFrom::Targets => listed(&SourceId::Pool(pool.pool.clone()), pool, input),
        ReplicasFrom::Observed => memory
            .workers(pool.role)
            .or_else(|| listed(&SourceId::Pool(pool.pool.clone()), pool, input))
            .or_else(|| listed(&SourceId::Traffic, pool, input)),
    }
}

/// Targets of the pool, else of the traffic source, save those that answer and do not know the model.
fn listed_targets(pool: &PoolPolicy, input: &ModelInput) -> usize {
    let source = |id: &SourceId| input.sources.iter().find(|source| source.source == *id);
    let source = source(&SourceId::Pool(pool.pool.clone())).or_else(|| source(&SourceId::Traffic));
    let knows = |reading: &&input::TargetReading| !matches!(&reading.reading, input::Reading::Sample(sample) if sample.is_empty());
    source.map_or(0, |source| source.targets.iter().filter(knows).count())
}

/// Replicas behind the targets of a source, without those that answer and do not know the model, and without routers.
fn listed(source: &SourceId, pool: &PoolPolicy, input: &ModelInput) -> Option<Replicas> {
    let source = input.sources.iter().find(|known| known.source == *source)?;
    let serves = |reading: &&input::TargetReading| match &reading.reading {
        input::Reading::Sample(sample) => source.source != SourceId::Traffic || !(sample.is_empty() || sample.is_of_a_router()),
        input::Reading::Failed(_) => true,
    };
    let targets = u32::try_from(source.targets.iter().filter(serves).count()).unwrap_or(u32::MAX);
    Some(replicas(targets, pool))
}

fn replicas(targets: u32, pool: &PoolPolicy) -> Replicas {
    Replicas(targets.div_ceil(pool.targets_per_replica.get()))
}

/// What an orchestrator says of a pool's replicas: at its own source, else at a traffic source whose targets are the replicas. Routers are
/// found in the same way, and are none.
fn lifecycle(pool: &PoolPolicy, input: &ModelInput) -> Option<Lifecycle> {
    let at = |id: &SourceId| input.sources.iter().find(|known| known.source == *id);
    if let Some(own) = at(&SourceId::Pool(pool.pool.clone())) {
        return own.lifecycle;
    }
    let traffic = at(&SourceId::Traffic).filter(|_| pool.replicas_from == ReplicasFrom::Observed)?;
    let mut samples = traffic.targets.iter().filter_map(|target| match &target.reading {
        input::Reading::Sample(sample) if !sample.is_empty() => Some(sample),
        _ => None,
    });
    let serves = samples.next().is_some_and(|sample| !sample.is_of_a_router()) && samples.all(|sample| !sample.is_of_a_router());
    traffic.lifecycle.filter(|_| serves)
}

/// What a wish is judged against: the last recommendation, else what is there and on its way, where an orchestrator says so.
fn standing(pool: &PoolPolicy, memory: &Memory, current: Option<Replicas>, now: Moment) -> Option<Replicas> {
    let known = memory.pools.get(&pool.pool);
    let coming = || memory.growth.get(&pool.pool)?.coming(now);
    known
        .and_then(|known| known.planned.or(known.published.map(|published| published.replicas)))
        .or_else(|| Some(Replicas(current?.0.saturating_add(coming()?.0))))
}

/// Publishes the count of pods of pools of which nothing was ever published, once (contract 5). Later counts are none of its business: an
/// autoscaler that follows them loses one replica with every lost pod.
fn latch_baseline(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) {
    for pool in &policy.pools {
        // A count that leaves out pods without an address yet would take them away.
        let Some(told) = lifecycle(pool, input).filter(|told| told.complete) else { continue };
        let pods = replicas(told.ready.saturating_add(told.starting), pool);
        let known = memory.pools.entry(pool.pool.clone()).or_default();
        let is_new = known.planned.is_none() && known.published.is_none() && known.frozen.is_none() && !known.baseline;
        if is_new && pods.0 > 0 {
            known.baseline = true;
            known.published = Some(publish::fresh(pool.limits.clamp(pods), policy, now));
        }
    }
}

/// The decision that the counts come from.
fn acting<'a>(memory: &'a Memory, policy: &ModelPolicy) -> Option<&'a Decision> {
    if policy.load.is_some() { memory.load.as_ref().map(|load| &load.decision) } else { memory.decision.as_ref() }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
