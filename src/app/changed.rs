//! What does a new configuration change? The parts that differ, for one line of the log.

use std::collections::BTreeMap;

use crate::config::{Config, ModelConfig, ModelSelector};
use crate::planner::policy::PoolPolicy;
use crate::units::PoolId;

/// The parts that differ, joined for people; what a part now says stands in the file.
pub(super) fn between(before: &Config, after: &Config) -> String {
    let mut parts = Vec::new();
    let mut part = |name: &str, differs: bool| parts.extend(differs.then(|| name.to_owned()));
    part("server", before.server != after.server);
    part("scrape", before.scrape != after.scrape);
    part("state_file", before.state_file != after.state_file);
    part("overrides_file", before.overrides_file != after.overrides_file);
    part("queueing_config", before.queueing_config != after.queueing_config);
    part("max_target_series", before.max_target_series != after.max_target_series);
    let (old, new) = (models(before), models(after));
    parts.extend(old.keys().filter(|name| !new.contains_key(*name)).map(|name| format!("model {name} removed")));
    for (name, model) in &new {
        match old.get(name) {
            None => parts.push(format!("model {name} added")),
            Some(known) => parts.extend(of_model(known, model).into_iter().map(|what| format!("model {name}: {what}"))),
        }
    }
    // A file that a key names may have changed and the settings not: a profile with other spaces, an entry that nobody reads.
    if parts.is_empty() { "nothing that is planned with".to_owned() } else { parts.join("; ") }
}

fn models(config: &Config) -> BTreeMap<String, &ModelConfig> {
    let name = |model: &ModelConfig| match &model.selector {
        ModelSelector::Named(name) => name.to_string(),
        ModelSelector::Any => "*".to_owned(),
    };
    config.models.iter().map(|model| (format!("{} in {}", name(model), model.target_namespace), model)).collect()
}

fn of_model(before: &ModelConfig, after: &ModelConfig) -> Vec<String> {
    let (old, new) = (&before.policy, &after.policy);
    let planner = old.preset != new.preset
        || (old.interval, old.hold_for, old.warm_up, old.correction) != (new.interval, new.hold_for, new.warm_up, new.correction)
        || (&old.capacity, &old.load, old.growth) != (&new.capacity, &new.load, new.growth);
    let pinned = before.pins != after.pins || old.pools.iter().zip(&new.pools).any(|(old, new)| old.pool == new.pool && old.pin != new.pin);
    let parts = [
        ("slo", old.slo != new.slo || before.objectives != after.objectives),
        ("mode", old.mode != new.mode),
        ("planner", planner),
        ("targets", before.sources != after.sources || before.engine != after.engine),
        ("overrides", pinned),
    ];
    let parts = parts.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned());
    parts.chain(pools(&old.pools, &new.pools)).collect()
}

fn pools(before: &[PoolPolicy], after: &[PoolPolicy]) -> Vec<String> {
    let by_name = |pools: &[PoolPolicy]| -> BTreeMap<PoolId, PoolPolicy> {
        pools.iter().map(|pool| (pool.pool.clone(), PoolPolicy { pin: None, ..pool.clone() })).collect()
    };
    let (old, new) = (by_name(before), by_name(after));
    let removed = old.keys().filter(|name| !new.contains_key(*name)).map(|name| format!("pool {name} removed"));
    let others = new.iter().filter_map(|(name, pool)| match old.get(name) {
        None => Some(format!("pool {name} added")),
        Some(known) if known.limits != pool.limits => Some(format!("pool {name} limits {} to {}", pool.limits.min(), pool.limits.max())),
        Some(known) => (known != pool).then(|| format!("pool {name}")),
    });
    removed.chain(others).collect()
}
