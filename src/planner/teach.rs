//! What does a pool's window teach its model? Preset wva's learning, once for each window that can be trusted.

use super::input::{ModelInput, ModelPolicy, QueueingPolicy};
use super::learn::Learned;
use super::memory::{Learning, Memory};
use super::observe::{COVERAGE_TO_RAISE, Window};
use super::{current_replicas, workload};
use crate::units::{Moment, Seconds};

/// Teaches each pool's model what the window showed. Called once for each window that can be trusted.
pub(super) fn teach(
    memory: &mut Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    queueing: &QueueingPolicy,
    window: &Window,
    now: Moment,
) {
    for pool in &policy.pools {
        let replicas = current_replicas(pool, memory, input);
        let mixed = memory.growth.get(&pool.pool).is_some_and(|growth| growth.rollout(now).is_some());
        let described = window.coverage_of(&pool.pool).get() >= COVERAGE_TO_RAISE;
        // Two generations at once are no one server, and less than half of a pool is not the pool.
        let seen = workload::seen(memory, policy, pool, replicas, now).filter(|_| described && !mixed);
        let known = memory.pools.entry(pool.pool.clone()).or_default();
        known.learning = known.learning.take().filter(|learning| now.wall.saturating_sub(learning.at) <= queueing.learned_for);
        let Some(seen) = seen else {
            known.learning.iter_mut().for_each(|learning| learning.update = None);
            continue;
        };
        let learning = known.learning.get_or_insert_with(|| Learning {
            learned: Learned::new(pool.role, &seen),
            at: now.wall,
            update: None,
            lowest_ttft: None,
            lowest_itl: None,
        });
        learning.update = Some(learning.learned.learn(pool.role, &seen));
        learning.at = now.wall;
        let lower = |known: Option<Seconds>, seen: Option<Seconds>| match (known, seen) {
            (Some(known), Some(seen)) => Some(if seen < known { seen } else { known }),
            (known, seen) => known.or(seen),
        };
        learning.lowest_ttft = lower(learning.lowest_ttft, seen.ttft);
        learning.lowest_itl = lower(learning.lowest_itl, seen.itl);
    }
}
