//! Which recommendation may be served at this moment? The snapshot says until when; the server keeps to it by itself.
//!
//! Expiry is judged by the monotonic time since the snapshot was made, so that neither a wedged loop nor a clock that steps back keeps
//! an old number alive.

use std::fmt;
use std::time::Duration;

use super::snapshot::{ModelSnapshot, Snapshot};
use crate::decisions::Decision;
use crate::planner::plan::{OverrideKind, Plan, PoolPlan, Reason};
use crate::units::{Moment, PoolId, Replicas};

/// Without a round for this long the process is unhealthy, however short the interval.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(30);
/// Rounds that may be missed before the process is unhealthy.
const MISSED_ROUNDS: u32 = 5;

/// How long there may be no round: beyond, the process is unhealthy, and nobody knows what was in between.
pub fn patience(scrape_interval: Duration) -> Duration {
    scrape_interval.saturating_mul(MISSED_ROUNDS).max(SHORTEST_PATIENCE)
}

/// Why a pool has no recommendation to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Shadow mode, or an override of that kind.
    Shadow,
    /// The value has outlived its validity.
    Expired,
    /// Nothing has been published yet, or it was dropped; the reason in force.
    Undecided(Reason),
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shadow => f.write_str("shadow: recommendations are computed but not published"),
            Self::Expired => f.write_str("expired: the last recommendation is no longer valid"),
            Self::Undecided(Reason::Frozen) => {
                f.write_str("no recommendation: frozen before anything was published, so there is nothing to keep")
            }
            Self::Undecided(reason) => write!(f, "no recommendation: {reason}: {}", reason.meaning()),
        }
    }
}

/// The integer that may be served for a pool at `now`, or why there is none.
pub fn served(snapshot: &Snapshot, pool: &PoolPlan, now: Moment) -> Result<Replicas, Absence> {
    if pool.overridden == Some(OverrideKind::Shadow) {
        return Err(Absence::Shadow);
    }
    let published = pool.published.ok_or(Absence::Undecided(pool.reason))?;
    let age = now.monotonic.saturating_sub(snapshot.at.monotonic);
    let lifetime = published.valid_until.saturating_sub(snapshot.at.wall);
    if age >= lifetime { Err(Absence::Expired) } else { Ok(published.replicas) }
}

/// The plan as it may be shown at `now`: without the recommendations that may not be served.
pub fn as_served(snapshot: &Snapshot, model: &ModelSnapshot, now: Moment) -> Plan {
    let mut plan = Plan::clone(&model.plan);
    for pool in &mut plan.pools {
        pool.recommended_replicas = served(snapshot, pool, now).ok();
    }
    plan
}

/// The decision as it may be shown at `now`: without the counts that may not be served.
pub fn decision_as_served(snapshot: &Snapshot, decision: &Decision, now: Moment) -> Decision {
    let mut decision = decision.clone();
    for pool in &mut decision.pools {
        let is_served = find_pool(snapshot, &pool.pool).is_some_and(|(_, plan)| served(snapshot, plan, now).is_ok());
        pool.after = pool.after.filter(|_| is_served);
    }
    decision
}

/// The model and plan of a pool, by the pool's name.
pub fn find_pool<'a>(snapshot: &'a Snapshot, pool: &PoolId) -> Option<(&'a ModelSnapshot, &'a PoolPlan)> {
    snapshot.models.iter().find_map(|model| Some((model, model.plan.pool(pool)?)))
}
