//! What does a pool's window teach its model? Preset wva's learning, once for each window that can be trusted.

use std::collections::BTreeMap;

use super::input::ModelInput;
use super::learn::{Learned, Seen};
use super::memory::{Learning, Memory};
use super::observe::{COVERAGE_TO_RAISE, Window};
use super::plan::Untaught;
use super::policy::{ModelPolicy, PoolPolicy, QueueingPolicy};
use super::{current_replicas, workload};
use crate::units::{Moment, PoolId, Seconds};

/// Teaches each pool's model what the window showed. Called once for each window that can be trusted. Answers why it taught nothing, by pool.
pub(super) fn teach(
    memory: &mut Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    queueing: &QueueingPolicy,
    window: &Window,
    now: Moment,
) -> BTreeMap<PoolId, Untaught> {
    let mut untaught = BTreeMap::new();
    for pool in &policy.pools {
        let taught = taught(memory, input, policy, pool, window, now);
        let known = memory.pools.entry(pool.pool.clone()).or_default();
        known.learning = known.learning.take().filter(|learning| now.wall.saturating_sub(learning.at) <= queueing.learned_for);
        let seen = match taught {
            Ok(seen) => seen,
            Err(reason) => {
                known.learning.iter_mut().for_each(|learning| learning.update = None);
                untaught.insert(pool.pool.clone(), reason);
                continue;
            }
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
    untaught
}

/// What one pool's window teaches.
fn taught(
    memory: &Memory,
    input: &ModelInput,
    policy: &ModelPolicy,
    pool: &PoolPolicy,
    window: &Window,
    now: Moment,
) -> Result<Seen, Untaught> {
    // Less than half of a pool is not the pool, and two generations at once are no one server.
    if window.coverage_of(&pool.pool).get() < COVERAGE_TO_RAISE {
        return Err(Untaught::CoverageLow);
    }
    if memory.growth.get(&pool.pool).is_some_and(|growth| growth.rollout(now).is_some()) {
        return Err(Untaught::Rollout);
    }
    workload::seen(memory, policy, pool, current_replicas(pool, memory, input), now)
}
