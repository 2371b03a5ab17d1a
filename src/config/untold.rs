//! What will preset dynamo look for and not find? Warnings of capabilities that neither the configuration nor the servers' dialect gives.
//!
//! The planner says the same once it runs, as `missing_capability`; here it is said before anything runs, as far as it can be known: with
//! `engine: auto` a page has to be seen first, except for the tokens of a step, which no server's own page tells.

use super::ModelConfig;
use super::resolve::ModelDraft;
use crate::engines::Dialect;
use crate::planner::input::{Gauge, SourceId};
use crate::planner::policy::{CapacityModel, FastRule, LoadPolicy, PoolPolicy, Preset, QueueUnit};
use crate::units::Role;

/// The keys of a model and what is to be said of each.
pub(super) fn of(draft: &ModelDraft, model: &ModelConfig) -> Vec<(String, String)> {
    if model.policy.preset != Preset::Dynamo {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (pool, draft_pool) in model.policy.pools.iter().zip(&draft.pools) {
        let at = |name: &str| format!("{}.{name}", draft_pool.key);
        found.extend(model.policy.load.and_then(|load| context_length(load, pool)).map(|said| (at("capabilities.context_length"), said)));
        if is_sla(model) {
            found.extend(own_pages(model, pool).map(|said| (at("targets"), said)));
            found.extend(batched_tokens(model, pool).map(|said| (at("capabilities.max_num_batched_tokens"), said)));
            found.extend(kv_tokens(model, pool).map(|said| (at("capabilities.max_kv_tokens"), said)));
        }
        found.extend(unshown(model, pool).map(|said| (format!("{}.engine", draft.key), said)));
    }
    found
}

/// Whether objectives are planned for by what each replica holds, or what its iterations cost.
fn is_sla(model: &ModelConfig) -> bool {
    follows_objectives(model) || model.policy.capacity == CapacityModel::Iterations
}

fn follows_objectives(model: &ModelConfig) -> bool {
    model.policy.load.is_some_and(|load| matches!(load.rule, FastRule::Objectives { .. }))
}

/// Waiting prompts cannot be held against a context length.
fn context_length(load: LoadPolicy, pool: &PoolPolicy) -> Option<String> {
    let FastRule::Thresholds(bands) = load.rule else { return None };
    let blind = bands.prefill_unit == QueueUnit::ContextLengths && pool.role == Role::Prefill && pool.capabilities.context_length.is_none();
    blind.then(|| {
        "the servers do not export it, and target throughput and latency count waiting prompts in context lengths: without it the pool is \
         held with reason missing_capability"
            .to_owned()
    })
}

/// Front ends alone do not know what each replica holds.
fn own_pages(model: &ModelConfig, pool: &PoolPolicy) -> Option<String> {
    let has_own = model.sources.iter().any(|source| source.source == SourceId::Pool(pool.pool.clone()));
    (!has_own).then(|| {
        "target sla reads what each replica holds, and what its iterations cost, on the replica's own page, and no front end tells it: \
         without targets of its own the pool is held with reason missing_capability"
            .to_owned()
    })
}

/// No time to the first token can be told without the size of a step.
fn batched_tokens(model: &ModelConfig, pool: &PoolPolicy) -> Option<String> {
    if !follows_objectives(model) || pool.role == Role::Decode || pool.capabilities.max_num_batched_tokens.is_some() {
        return None;
    }
    let behind_a_front_end = model.sources.iter().any(|source| source.source == SourceId::Traffic);
    let told = match &model.engine {
        // Dynamo's servers know it by their front end alone.
        None => behind_a_front_end,
        Some(Dialect::Known(engine)) => engine.tells(Gauge::MaxBatchedTokens) && behind_a_front_end,
        Some(Dialect::Custom(custom)) => custom.tells(Gauge::MaxBatchedTokens),
    };
    let consequence = match pool.role {
        Role::Prefill => "the pool is held with reason missing_capability",
        Role::Aggregated | Role::Decode => "the pool grows by the time between tokens alone and gives nothing back",
    };
    (!told).then(|| {
        format!(
            "target sla reckons the time to the first token in steps of so many tokens, the servers' --max-num-batched-tokens, which only \
             Dynamo's front end exports: without it {consequence}"
        )
    })
}

/// What is in use cannot be told without the size of the KV memory.
fn kv_tokens(model: &ModelConfig, pool: &PoolPolicy) -> Option<String> {
    let engine = model.engine.as_ref().filter(|engine| !engine.tells(Gauge::KvCapacityTokens))?;
    let blind = follows_objectives(model) && pool.role != Role::Prefill && pool.capabilities.max_kv_tokens.is_none();
    blind.then(|| {
        format!(
            "servers of engine {} do not export it, and target sla reckons with the KV tokens in use: without it the pool is held with \
             reason missing_capability",
            engine.name()
        )
    })
}

/// What a known dialect never shows, and the pool is moved by.
fn unshown(model: &ModelConfig, pool: &PoolPolicy) -> Option<String> {
    let (engine, load) = (model.engine.as_ref()?, model.policy.load?);
    let needed: &[Gauge] = match (pool.role, load.rule) {
        (Role::Prefill, _) if engine.tells(Gauge::QueuedPromptTokens) => &[],
        (Role::Prefill, _) => &[Gauge::Waiting],
        (_, FastRule::Thresholds(_)) => &[Gauge::KvUsage, Gauge::Waiting],
        (_, FastRule::Objectives { .. }) => &[Gauge::KvUsage, Gauge::Running, Gauge::Waiting],
    };
    let lacking: Vec<&str> = needed.iter().filter(|gauge| !engine.tells(**gauge)).map(|gauge| gauge.as_str()).collect();
    (!lacking.is_empty()).then(|| {
        let (name, lacking, pool) = (engine.name(), lacking.join(", "), &pool.pool);
        format!("servers of engine {name} do not export what preset dynamo decides by ({lacking}): pool {pool} is held with reason missing_capability")
    })
}
