//! What is a pool called that nobody named? With flags alone pools are named after the model.

use super::scalar;
use crate::units::{ModelId, PoolId, Role};

/// The name that stands for "every model that the targets show".
pub(super) const ANY: &str = "*";

/// The name of a model's pool: lower case, the part after the last `/`, illegal characters as `-`, then the role.
///
/// `Qwen/Qwen3-8B` gives `qwen3-8b-prefill`. An error where nothing legal remains or the name is too long.
pub fn pool_name(model: &ModelId, role: Role) -> Result<PoolId, String> {
    let last = model.as_str().rsplit('/').next().unwrap_or_default();
    let base: String =
        last.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' }).collect();
    let base = base.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let ending = ending(role);
    if base.is_empty() {
        return Err(format!("model {:?} gives no pool name; write a configuration file with names of your own", model.as_str()));
    }
    scalar::label_value(&format!("{base}-{ending}")).map(PoolId::from).map_err(|error| {
        format!("model {:?} gives no pool name: {error}; write a configuration file with names of your own", model.as_str())
    })
}

fn ending(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Aggregated => "agg",
    }
}

/// The name of a pattern's pool before the model is known. Not a legal pool name, so that it meets no real one.
pub(super) fn placeholder(role: Role) -> PoolId {
    PoolId::from(format!("{ANY}-{}", ending(role)))
}
