//! Do the smallest counts of the pools fit the GPU budgets? A budget that they exceed alone could never be kept.

use super::check::Values;
use super::{Config, ModelConfig};
use crate::planner::propose::gpus_of;

/// Tells the budgets that are smaller than what the minima take.
pub(super) fn fit(values: &mut Values, config: &Config) {
    for (index, model) in config.models.iter().enumerate() {
        check(values, &format!("models[{index}].planner.max_gpu_budget"), model.policy.gpus.max, least(model));
    }
    check(values, "max_gpu_budget", config.gpus.max, config.models.iter().map(least).sum());
}

/// GPUs that the minima take; of one model at least, where the configuration is a pattern for any number of them.
fn least(model: &ModelConfig) -> u64 {
    let of = |pool| u64::from(gpus_of(pool, &model.policy.capacity));
    model.policy.pools.iter().map(|pool| u64::from(pool.limits.min().0).saturating_mul(of(pool))).sum()
}

fn check(values: &mut Values, at: &str, most: Option<u32>, least: u64) {
    if let Some(most) = most.filter(|most| u64::from(*most) < least) {
        values.problem(at, format!("expected at least {least}, which the minima of the pools take, got {most}"));
    }
}
