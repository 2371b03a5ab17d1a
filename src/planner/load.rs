//! How full is each replica right now, by which numbers? One target's page in; its load with the inputs, or what the page lacks.
//!
//! | role | load of a target |
//! |---|---|
//! | decode, aggregated | KV usage + what the waiting requests will need of the KV memory |
//! | prefill | tokens of the waiting prompts, in context lengths or as they are |
//!
//! A waiting request needs I + O/2 tokens, as one that runs does on average (mean prompt and answer of the last window); where the KV capacity
//! or the lengths are not known, as much as each of those that run now. In an aggregated server a request waits once, for both: it is counted
//! once. A target whose load cannot be told is silent; it is never empty.
//!
//! A router speaks of the mean replica: its counts are spread over the replicas. Some prefill workers export no queue at all; then the front end's
//! view of the prefill servers stands for each of them. It holds the prompts that are being computed as well, so that it is rather too much.
//!
//! The load and its trace come from the same numbers: whoever reads the trace can redo the sum.

use std::collections::{BTreeMap, BTreeSet};

use super::input::{Gauge, ModelInput, Reading, Sample, SourceId, SourceInput};
use super::memory::Memory;
use super::observe::observe;
use super::plan::{Capability, LoadInputs, LoadRule, LoadTrace, Missing};
use super::policy::{Band, ModelPolicy, PoolPolicy, QueueUnit};
use crate::units::{Moment, Ratio, Replicas, Role, TargetId, Tokens};

/// The load of a replica whose memory is used up.
const FULL: f64 = 1.0;

/// Mean lengths of requests, as far as a window tells them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lengths {
    pub input: Option<Tokens>,
    pub output: Option<Tokens>,
}

impl Lengths {
    /// Of the last whole window, else of the one that goes on.
    pub fn of(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> Self {
        let last = memory.decision.as_ref().and_then(|decision| decision.observation.as_ref());
        let last = last.map(|seen| Self { input: seen.input_tokens, output: seen.output_tokens }).unwrap_or_default();
        if last.input.is_some() && last.output.is_some() {
            return last;
        }
        let current = observe(memory, input, policy, now).map(|window| window.observation);
        let current = current.map(|seen| Self { input: seen.input_tokens, output: seen.output_tokens }).unwrap_or_default();
        Self { input: last.input.or(current.input), output: last.output.or(current.output) }
    }
}

/// A load with the numbers that it comes from.
#[derive(Clone, Debug)]
struct Load {
    value: f64,
    inputs: LoadInputs,
}

/// The loads of a pool's targets in this round.
pub(super) struct Seen {
    loads: BTreeMap<TargetId, Load>,
    /// Targets that answered.
    pub answered: usize,
    pub known: usize,
    /// Routers among the traffic targets that say nothing of their fleet's load; they are no replicas.
    pub routers: usize,
    /// What loads could not be told for, each with the first target that lacked it.
    missing: BTreeMap<Capability, Option<TargetId>>,
}

impl Seen {
    /// From the pool's own targets where any are configured, also while there are none, else from the traffic targets: what they say of themselves,
    /// or of their fleet. `current` replicas share what a front end says of a pool that does not say it itself.
    pub fn of(input: &ModelInput, pool: &PoolPolicy, unit: QueueUnit, lengths: Lengths, current: Option<Replicas>) -> Self {
        let source = |id: &SourceId| input.sources.iter().find(|source| source.source == *id);
        let own = source(&SourceId::Pool(pool.pool.clone()));
        let traffic = source(&SourceId::Traffic);
        let mut seen = Self { loads: BTreeMap::new(), answered: 0, known: 0, routers: 0, missing: BTreeMap::new() };
        let view = own.and(traffic).zip(current).and_then(|(traffic, current)| front_ends_view(traffic, pool, unit, lengths, current));
        for reading in own.or(traffic).into_iter().flat_map(|source: &SourceInput| &source.targets) {
            seen.known += 1;
            let Reading::Sample(sample) = &reading.reading else { continue };
            if own.is_none() && sample.is_empty() {
                // It serves another model.
                seen.known -= 1;
                continue;
            }
            let told = load_of(sample, pool, unit, lengths).or_else(|lacks| view.clone().ok_or(lacks));
            if told.is_err() && own.is_none() && sample.is_of_a_router() {
                seen.known -= 1;
                seen.routers += 1;
                continue;
            }
            seen.answered += 1;
            match told {
                Ok(load) => drop(seen.loads.insert(reading.target.clone(), load)),
                Err(lacks) => drop(seen.missing.entry(lacks).or_insert_with(|| Some(reading.target.clone()))),
            }
        }
        if seen.known == 0 && seen.routers > 0 {
            seen.missing.insert(Capability::ReplicaPages, None);
        }
        seen
    }

    pub fn loads(&self) -> Vec<f64> {
        self.loads.values().map(|load| load.value).collect()
    }

    /// Targets whose load is known.
    pub fn described(&self) -> usize {
        self.loads.len()
    }

    pub fn coverage(&self) -> Ratio {
        Ratio(if self.known == 0 { 0.0 } else { self.loads.len() as f64 / self.known as f64 })
    }

    pub fn missing(&self) -> Vec<Missing> {
        self.missing.iter().map(|(what, target)| Missing { what: *what, target: target.clone() }).collect()
    }

    pub fn trace(&self, band: Band, current: Replicas, standing: Replicas) -> Option<LoadTrace> {
        let (fullest, load) = self.loads.iter().max_by(|one, other| one.1.value.total_cmp(&other.1.value))?;
        let share = current.as_f64().max(1.0) / standing.as_f64().max(1.0);
        Some(LoadTrace {
            fullest: fullest.clone(),
            load: load.value,
            inputs: Some(load.inputs.clone()),
            current: Some(current),
            recommended: Some(standing),
            projected: load.value * share,
            up: band.up.at,
            down: band.down.at,
            all_below: self.loads.values().all(|load| band.down.is_undercut_by(load.value * share.max(1.0))),
            // A fleet is far smaller than the range.
            described: self.loads.len() as u32,
            known: self.known as u32,
        })
    }
}

/// The load of one target, or what is missing for it.
fn load_of(sample: &Sample, pool: &PoolPolicy, unit: QueueUnit, lengths: Lengths) -> Result<Load, Capability> {
    let load = match pool.role {
        // What one server says of itself is no load of replicas that do something else.
        Role::Aggregated if matches!(sample.role, Some(Role::Prefill | Role::Decode)) => return Err(Capability::SeparatePools),
        Role::Prefill => queued(sample, pool, unit, lengths)?,
        Role::Decode | Role::Aggregated => occupied(sample, pool, lengths)?,
    };
    let plausible = load.value.is_finite() && load.value >= 0.0;
    plausible.then_some(load).ok_or(if pool.role == Role::Prefill { Capability::QueuedPrompts } else { Capability::KvUsage })
}

/// A gauge of the server itself, or of its fleet.
fn gauge(sample: &Sample, gauge: Gauge) -> Option<f64> {
    sample.gauges.get(&gauge).or_else(|| sample.fleet.get(&gauge)).copied()
}

/// What waits at a prefill server. A router's prompts are spread over its prefill servers.
fn queued(sample: &Sample, pool: &PoolPolicy, unit: QueueUnit, lengths: Lengths) -> Result<Load, Capability> {
    let (tokens, waiting) = match sample.prefill.get(&Gauge::QueuedPromptTokens) {
        Some(&tokens) => (Some(tokens), None),
        None => (gauge(sample, Gauge::QueuedPromptTokens), gauge(sample, Gauge::Waiting)),
    };
    let spread = sample.workers.get(&Role::Prefill).copied().filter(|workers| workers.0 > 0);
    prompts(tokens, waiting, spread, pool, unit, lengths)
}

/// What the front ends say of prefill servers whose own pages lack a queue: every front end repeats the router's view, and has a queue of its own.
fn front_ends_view(traffic: &SourceInput, pool: &PoolPolicy, unit: QueueUnit, lengths: Lengths, current: Replicas) -> Option<Load> {
    let samples = traffic.targets.iter().filter_map(|target| match &target.reading {
        Reading::Sample(sample) if pool.role == Role::Prefill => Some(&sample.prefill),
        _ => None,
    });
    let (mut tokens, mut waiting) = (None, None);
    for view in samples {
        tokens = tokens.into_iter().chain(view.get(&Gauge::QueuedPromptTokens).copied()).reduce(f64::max);
        waiting = view.get(&Gauge::Waiting).map(|more| waiting.unwrap_or(0.0) + more).or(waiting);
    }
    prompts(tokens, waiting, Some(Replicas(current.0.max(1))), pool, unit, lengths).ok()
}

fn prompts(
    tokens: Option<f64>,
    waiting: Option<f64>,
    spread: Option<Replicas>,
    pool: &PoolPolicy,
    unit: QueueUnit,
    lengths: Lengths,
) -> Result<Load, Capability> {
    let replicas = spread.map_or(1.0, Replicas::as_f64);
    let mut inputs = LoadInputs { replicas: spread, ..LoadInputs::default() };
    let queued = match (tokens, waiting) {
        (Some(tokens), _) => {
            inputs.queued_prompt_tokens = Some(tokens);
            tokens / replicas
        }
        (None, Some(waiting)) => {
            inputs.waiting = Some(waiting);
            inputs.input_tokens = lengths.input;
            if waiting > 0.0 { waiting * lengths.input.ok_or(Capability::PromptLengths)?.get() / replicas } else { 0.0 }
        }
        (None, None) => return Err(Capability::QueuedPrompts),
    };
    let value = match unit {
        QueueUnit::Tokens => queued,
        QueueUnit::ContextLengths => {
            let context = f64::from(pool.capabilities.context_length.ok_or(Capability::ContextLength)?.get());
            inputs.context_length = Some(Tokens(context));
            queued / context
        }
    };
    inputs.rule = match (tokens.is_some(), unit) {
        (true, QueueUnit::Tokens) => LoadRule::QueuedTokens,
        (true, QueueUnit::ContextLengths) => LoadRule::QueuedContexts,
        (false, QueueUnit::Tokens) => LoadRule::WaitingTokens,
        (false, QueueUnit::ContextLengths) => LoadRule::WaitingContexts,
    };
    Ok(Load { value, inputs })
}

fn occupied(sample: &Sample, pool: &PoolPolicy, lengths: Lengths) -> Result<Load, Capability> {
    if let Some(usage) = sample.gauges.get(&Gauge::KvUsage) {
        let waiting = sample.gauges.get(&Gauge::Waiting).ok_or(Capability::Waiting)?;
        return Ok(with_waiting(*usage, *waiting, sample, None, pool, lengths));
    }
    // A router counts for the whole fleet and knows the mean usage: what waits, in its own queue or at the replicas, is spread over them.
    let usage = sample.fleet.get(&Gauge::KvUsage).ok_or(Capability::KvUsage)?;
    let replicas = sample.workers.get(&pool.role).copied().filter(|workers| workers.0 > 0).ok_or(Capability::WorkerCount)?;
    let waiting = sample.fleet.get(&Gauge::Waiting).or_else(|| sample.gauges.get(&Gauge::Waiting)).ok_or(Capability::Waiting)?;
    Ok(with_waiting(*usage, *waiting, sample, Some(replicas), pool, lengths))
}

/// Usage, and what the waiting requests of one replica will need. Where that cannot be told the replica is full: not empty, and no reason to
/// add one either.
fn with_waiting(usage: f64, waiting: f64, sample: &Sample, spread: Option<Replicas>, pool: &PoolPolicy, lengths: Lengths) -> Load {
    let replicas = spread.map_or(1.0, Replicas::as_f64);
    let inputs = LoadInputs { kv_usage: Some(usage), waiting: Some(waiting), replicas: spread, ..LoadInputs::default() };
    if waiting == 0.0 {
        return Load { value: usage, inputs };
    }
    let of = |wanted| gauge(sample, wanted).filter(|value| *value > 0.0);
    let told = pool.capabilities.max_kv_tokens.map(|tokens| f64::from(tokens.get()));
    let capacity = of(Gauge::KvCapacityTokens).or(told);
    if let (Some(capacity), Some(input), Some(output)) = (capacity, lengths.input, lengths.output) {
        let value = usage + waiting / replicas * (input.get() + output.get() / 2.0) / capacity;
        let kv_capacity_tokens = Some(Tokens(capacity));
        let inputs = LoadInputs {
            rule: LoadRule::Lengths,
            kv_capacity_tokens,
            input_tokens: lengths.input,
            output_tokens: lengths.output,
            ..inputs
        };
        return Load { value, inputs };
    }
    match of(Gauge::Running) {
        Some(running) if usage > 0.0 => {
            let value = usage + usage * (waiting / replicas) / (running / replicas);
            Load { value, inputs: LoadInputs { rule: LoadRule::Running, running: Some(running), ..inputs } }
        }
        _ => Load { value: usage.max(FULL), inputs: LoadInputs { rule: LoadRule::Full, ..inputs } },
    }
}

/// What requests that were completed lack for a decision of the slow loop.
pub(super) fn lengths_missing(seen: &super::plan::Observation) -> BTreeSet<Capability> {
    let usable = |tokens: Option<Tokens>| tokens.is_some_and(|tokens| tokens.get() > 0.0);
    let lengths = [(Capability::PromptLengths, seen.input_tokens), (Capability::OutputLengths, seen.output_tokens)];
    lengths.into_iter().filter(|(_, tokens)| !usable(*tokens)).map(|(what, _)| what).collect()
}
