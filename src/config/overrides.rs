//! What did the operator decree? The overrides file as pins by pool.

use std::collections::BTreeMap;

use super::check::Values;
use super::layers;
use super::problem::Problem;
use super::schema::{self, OVERRIDE_KEYS};
use super::tree::{self, SourceText, Value};
use crate::planner::policy::{Limits, Pin};
use crate::units::{PoolId, Replicas};

/// The pools that a pin may name.
pub(super) struct Pools<'a> {
    /// The limits of each pool; `None` where they have problems of their own.
    pub known: BTreeMap<&'a PoolId, Option<Limits>>,
    /// The limits that pools named after a model will have, where the configuration plans every model.
    pub pattern: Option<Limits>,
}

/// Reads the file. All problems are reported at once.
pub(super) fn parse(source: &SourceText, pools: &Pools<'_>) -> (BTreeMap<PoolId, Pin>, Vec<Problem>) {
    let (root, mut problems) = tree::read(source);
    let mut pins = BTreeMap::new();
    let Some(root) = root else { return (pins, problems) };
    if root.value == Value::Null {
        return (pins, problems);
    }
    let mut values = Values::of_file(OVERRIDE_KEYS, &layers::layered(OVERRIDE_KEYS, &root, ""), &source.path, &root);
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    for index in 0..values.len("") {
        let at = |name: &str| format!("[{index}].{name}");
        if values.is_wrong(&format!("[{index}]")) {
            continue;
        }
        let (pool, replicas) = (values.text(&at("pool")), values.count(&at("replicas")));
        let (until, reason) = (values.moment(&at("until")), values.text(&at("reason")));
        let Some(pool) = pool else { continue };
        if let Some(first) = first.insert(pool.clone(), index) {
            values.problem(&at("pool"), format!("pool {pool:?} is pinned twice, first in [{first}]; keep one"));
            continue;
        }
        let id = PoolId::from(pool);
        let limits = match (pools.known.get(&id), pools.pattern) {
            (Some(limits), _) => *limits,
            (None, Some(limits)) => Some(limits),
            (None, None) => {
                let hint = schema::hint(id.as_str(), pools.known.keys().map(|pool| pool.as_str()));
                values.problem(&at("pool"), format!("no pool is called {:?}{hint}", id.as_str()));
                continue;
            }
        };
        let replicas = replicas.and_then(|replicas| u32::try_from(replicas).ok()).map(Replicas);
        if let (Some(limits), Some(replicas)) = (limits, replicas)
            && limits.clamp(replicas) != replicas
        {
            let (min, max) = (limits.min(), limits.max());
            values.problem(&at("replicas"), format!("expected {min} to {max}, the limits of pool {:?}, got {replicas}", id.as_str()));
        }
        if let (Some(replicas), Some(until), Some(reason)) = (replicas, until, reason) {
            pins.insert(id, Pin { replicas, until, reason });
        }
    }
    problems.extend(values.take_problems());
    (pins, problems)
}
