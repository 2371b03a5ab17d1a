//! What is a pool? `models[].pools[]`, as far as it can be built without reading another file.

use std::num::NonZeroU32;

use super::SourceConfig;
use super::check::Values;
use super::names;
use super::resolve::{non_zero, source};
use super::targets::{self, TargetsDraft};
use crate::planner::input::SourceId;
use crate::planner::policy::{Capabilities, Limits, Preset, ReplicasFrom};
use crate::units::{PoolId, Positive, Replicas, Role};

/// One pool before its model's profile is read.
pub(super) struct PoolDraft {
    /// `models[0].pools[1]`.
    pub key: String,
    pub pool: Option<PoolId>,
    pub role: Option<Role>,
    pub gpus_per_replica: Option<NonZeroU32>,
    pub cost: Option<Positive>,
    pub accelerator: Option<String>,
    /// Whether it has targets of its own, rightly or wrongly written.
    pub has_targets: bool,
    pub limits: Option<Limits>,
    pub replicas_from: ReplicasFrom,
    pub targets_per_replica: NonZeroU32,
    pub capabilities: Capabilities,
}

/// Reads the pool at `key`; its targets go to `sources`. `any`: the model's name is `*`; `traffic`: it has traffic targets.
pub(super) fn read(
    values: &mut Values,
    key: &str,
    any: bool,
    traffic: bool,
    preset: Option<Preset>,
    own: TargetsDraft,
    sources: &mut Vec<SourceConfig>,
) -> PoolDraft {
    let at = |name: &str| format!("{key}.{name}");
    let model = key.split_once(".pools").map_or(key, |(model, _)| model);
    let role = values.text(&at("role")).and_then(|name| Role::ALL.into_iter().find(|role| role.as_str() == name));
    let name = if any {
        if values.is_written(&at("name")) {
            values.problem(&at("name"), "with the model name \"*\" pools are called after the model; leave the name out");
        }
        role.map(names::placeholder)
    } else {
        values.text(&at("name")).map(PoolId::from)
    };
    let has_targets = targets::is_written(values, &at("targets"));
    if any && has_targets {
        values.problem(&at("targets"), "with the model name \"*\" the targets belong under traffic.targets");
    }
    let asks_kubernetes = values.is_written(&at("targets.kubernetes"));
    if let (Some(name), true) = (&name, own.is_source()) {
        sources.push(source(SourceId::Pool(name.clone()), own));
    }
    let from = values.text(&at("replicas_from"));
    match from.as_deref() {
        Some("targets") if !has_targets => {
            values.problem(&at("replicas_from"), "targets counts the pool's own targets, and it has none; write metric, or targets");
        }
        Some("kubernetes") if !asks_kubernetes => {
            values.problem(&at("replicas_from"), "kubernetes counts the ready pods that targets.kubernetes finds; write that, or targets");
        }
        Some("metric") if !traffic => {
            values.problem(&at("replicas_from"), "metric takes the count of the traffic targets, and there are none; write targets");
        }
        _ => {}
    }
    let replicas_from = match from.as_deref() {
        Some("targets") => ReplicasFrom::Targets,
        Some("kubernetes") => ReplicasFrom::Kubernetes,
        Some("observed") => ReplicasFrom::Observed,
        None if has_targets => ReplicasFrom::Targets,
        None if matches!(preset, Some(Preset::Dynamo | Preset::Wva | Preset::Auto)) => ReplicasFrom::Observed,
        _ => ReplicasFrom::Metric,
    };
    PoolDraft {
        key: key.to_owned(),
        pool: name,
        role,
        gpus_per_replica: values.count(&at("gpus_per_replica")).and_then(non_zero),
        cost: cost(values, &at("cost"), preset),
        accelerator: values.text(&at("accelerator")),
        has_targets,
        limits: limits(values, key, model),
        replicas_from,
        targets_per_replica: values.count(&at("targets_per_replica")).and_then(non_zero).unwrap_or(NonZeroU32::MIN),
        capabilities: Capabilities {
            context_length: values.count(&at("capabilities.context_length")).and_then(non_zero),
            max_num_seqs: values.count(&at("capabilities.max_num_seqs")).and_then(non_zero),
            max_num_batched_tokens: values.count(&at("capabilities.max_num_batched_tokens")).and_then(non_zero),
            max_kv_tokens: values.count(&at("capabilities.max_kv_tokens")).and_then(non_zero),
        },
    }
}

fn cost(values: &mut Values, at: &str, preset: Option<Preset>) -> Option<Positive> {
    let cost = values.number(at)?;
    match preset {
        Some(Preset::Infera | Preset::Dynamo | Preset::Auto) => {
            values.problem(at, "belongs to preset wva, which chooses among several pools of one role; leave it out");
        }
        _ if cost <= 0.0 => values.problem(at, format!("expected more than 0, got {cost}")),
        _ => {}
    }
    Positive::new(cost)
}

/// `model`: `models[0]`, whose `min_endpoint` stands for a minimum that is not written.
fn limits(values: &mut Values, key: &str, model: &str) -> Option<Limits> {
    let (low, high) = (format!("{key}.min_replicas"), format!("{key}.max_replicas"));
    let usual = values.count(&format!("{model}.planner.min_endpoint")).filter(|_| !values.is_written(&low));
    let (min, max) = (usual.or(values.count(&low)), values.count(&high));
    let (min, max) = (min?, max?);
    if min == 0 {
        values.problem(&low, "expected at least 1, for one of several pools of a role as well; zero needs a policy that observes idleness, which is not there yet");
        return None;
    }
    let limits = Limits::new(Replicas(u32::try_from(min).ok()?), Replicas(u32::try_from(max).ok()?));
    if limits.is_none() {
        values.problem(&high, format!("expected at least min_replicas ({min}), got {max}"));
    }
    limits
}
