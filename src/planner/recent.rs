//! Which demand must a decrease carry? The largest of the last minutes, and none before those are known.

use std::time::Duration;

use super::memory::{Decision, Memory};
use super::observe::{Demand, Window};
use super::policy::ModelPolicy;
use crate::units::{Moment, RequestsPerSecond, Role};

/// How long a demand is remembered for decreases: a single window of half a minute is low by chance every few minutes, and what went up on one
/// would come down on the next.
const REMEMBERED: Duration = Duration::from_secs(180);

/// A decrease must carry the largest demand of the last few windows.
pub(super) fn with_recent(demand: Demand, recent: Option<&Vec<(Duration, RequestsPerSecond)>>, now: Moment) -> Demand {
    let recent = recent.into_iter().flatten().filter(|(at, _)| now.monotonic.saturating_sub(*at) < REMEMBERED);
    let most = recent.map(|(_, rate)| rate.get()).fold(demand.cautious.get(), f64::max);
    Demand { cautious: RequestsPerSecond(most), ..demand }
}

/// Whether the demands of the last minutes are known: after a restart they are not, and the first calm window is no reason to shrink.
pub(super) fn has_watched(memory: &Memory, role: Role, window: &Window, now: Moment) -> bool {
    let oldest = memory.demands.get(&role).and_then(|demands| demands.first());
    let known = oldest.map_or(0.0, |(at, _)| now.monotonic.saturating_sub(*at).as_secs_f64()) + window.observation.elapsed_seconds.get();
    known >= 0.9 * REMEMBERED.as_secs_f64()
}

/// Notes what arrived in the window, for the decisions to come.
pub(super) fn remember(memory: &mut Memory, decision: &Decision, policy: &ModelPolicy, now: Moment) {
    for role in Role::ALL {
        // A pool that is held shows an older decision's demand.
        let parts = policy.pools.iter().filter(|pool| pool.role == role).filter_map(|pool| decision.pools.get(&pool.pool));
        let trace = parts.filter(|part| part.reason.is_none()).find_map(|part| part.queueing.as_ref());
        let demands = memory.demands.entry(role).or_default();
        demands.retain(|(at, _)| now.monotonic.saturating_sub(*at) < REMEMBERED);
        demands.extend(trace.map(|trace| (now.monotonic, trace.demand)));
    }
    memory.demands.retain(|_, demands| !demands.is_empty());
}
