//! What does each replica of a pool hold right now? Pages of one round as the loads that target sla judges.

use std::collections::BTreeMap;

use super::input::{Gauge, ModelInput, Sample};
use super::listed_targets;
use super::load::Lengths;
use super::plan::{Capability, Missing};
use super::policy::{ModelPolicy, PoolPolicy};
use super::prompts;
use super::propose::load::Load;
use super::sizing;
use super::watching::pages;
use crate::units::{Ratio, Requests, Role, TargetId, Tokens};

/// The loads of a pool's replicas in this round.
pub(super) struct Seen {
    pub loads: BTreeMap<TargetId, Load>,
    /// Replicas that answered.
    pub answered: usize,
    /// Those that are listed.
    pub known: usize,
    /// Whether only front ends are scraped, which do not know how full their servers are.
    pub front_ends: bool,
    missing: BTreeMap<Capability, Option<TargetId>>,
}

impl Seen {
    pub fn of(input: &ModelInput, pool: &PoolPolicy, policy: &ModelPolicy, lengths: Lengths) -> Self {
        let mut seen =
            Self { loads: BTreeMap::new(), answered: 0, known: listed_targets(pool, input), front_ends: false, missing: BTreeMap::new() };
        for (target, (_, sample)) in pages(input, pool) {
            if sample.is_of_a_router() {
                seen.known = seen.known.saturating_sub(1);
                seen.front_ends = true;
                continue;
            }
            seen.answered += 1;
            match load_of(sample, input, pool, policy, lengths) {
                Ok(load) => drop(seen.loads.insert(target.clone(), load)),
                Err(lacks) => drop(seen.missing.entry(lacks).or_insert_with(|| Some(target.clone()))),
            }
        }
        if seen.known == 0 && seen.front_ends {
            seen.missing.insert(Capability::ReplicaPages, None);
        }
        seen
    }

    pub fn coverage(&self) -> Ratio {
        Ratio(if self.known == 0 { 0.0 } else { (self.loads.len() as f64 / self.known as f64).min(1.0) })
    }

    pub fn missing(&self) -> Vec<Missing> {
        self.missing.iter().map(|(what, target)| Missing { what: *what, target: target.clone() }).collect()
    }
}

/// What one replica holds, or what is missing to tell it.
fn load_of(sample: &Sample, input: &ModelInput, pool: &PoolPolicy, policy: &ModelPolicy, lengths: Lengths) -> Result<Load, Capability> {
    if pool.role == Role::Aggregated && sample.role.is_some_and(|role| role != Role::Aggregated) && policy.pools.len() == 1 {
        // What one of a pair says of itself is no load of replicas that do both.
        return Err(Capability::SeparatePools);
    }
    let gauge = |of| sample.gauges.get(&of).copied();
    let waiting = prompts::waiting(sample, pool.role);
    let queued = match (gauge(Gauge::QueuedPromptTokens), waiting) {
        (Some(tokens), _) => Some(tokens),
        (None, Some(0.0)) => Some(0.0),
        (None, Some(waiting)) => lengths.input.map(|input| waiting * input.get()),
        (None, None) => None,
    };
    if pool.role == Role::Prefill {
        let queued = queued.ok_or(if waiting.is_some() { Capability::PromptLengths } else { Capability::QueuedPrompts })?;
        return Ok(Load { queued_prefill: Tokens(queued), ..Load::default() });
    }
    let usage = gauge(Gauge::KvUsage).ok_or(Capability::KvUsage)?;
    let told = || sizing::limit(input, pool, Gauge::KvCapacityTokens).map(|tokens| f64::from(tokens.get()));
    let capacity = gauge(Gauge::KvCapacityTokens).filter(|tokens| *tokens > 0.0).or_else(told).ok_or(Capability::KvCapacity)?;
    let running = gauge(Gauge::Running).ok_or(Capability::Running)?;
    let waiting = waiting.ok_or(Capability::Waiting)?;
    let base = Load { decoding: Requests(running), kv: Tokens(usage * capacity), ..Load::default() };
    if pool.role == Role::Aggregated {
        return Ok(Load { queued_prefill: Tokens(queued.ok_or(Capability::PromptLengths)?), ..base });
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

/// Requests that wait at all replicas: as the servers count them, else by their tokens.
pub(super) fn waiting(input: &ModelInput, pool: &PoolPolicy, seen: &Seen, lengths: Lengths) -> Requests {
    let counted: Option<f64> = pages(input, pool).map(|(_, (_, sample))| prompts::waiting(sample, pool.role)).sum();
    let tokens: f64 = seen.loads.values().map(|load| load.queued_prefill.get()).sum();
    let by_tokens = || tokens / lengths.input.map_or(1.0, Tokens::get).max(1.0);
    let queued = counted.unwrap_or_else(by_tokens);
    Requests(queued)
}
