//! How many replicas carry the predicted demand, at what one can serve within the objectives? The slow loop of a target of latencies.
//!
//! The predicted requests a second over the capacity of one replica (`model/capacity.rs`), rounded up. One decision moves a pool by at most a
//! bounded number of replicas in either direction, so that one wild prediction costs no more than that; the smallest count and the GPU budget come
//! after it.
//!
//! Where a fast loop runs beside it the answer is only a lower bound for that loop: what will be needed soon, while the fast loop says what is needed now.
//! A lower bound respects the ceiling of the budget and not its minimum, which must not look like demand.
//!
//! Prefill and decode serve the same requests. While the model of one is not known both keep their counts: a pool that grows alone only moves the
//! queue to the other one.
//!
//! | decode replica at 15.5622 requests/s | demand | current | answer |
//! |---|---|---|---|
//! | 300 requests in 180 s | 1.67/s | 1 | 1 |
//! | 5000 in 180 s | 27.8/s | 1 | 2 |
//! | 56 000 in 180 s | 311/s | 4 | 12: of 20 wanted, 8 more than now |
//! | none | 0 | 3 | the smallest count |
//!
//! Known limits: a mean rate over a mean capacity. How requests bunch, and how long a replica takes to start, is not in it.

use std::num::NonZeroU32;

use crate::planner::budget::{BudgetStep, Pair, Single};
use crate::planner::policy::GpuBand;
use crate::units::{Replicas, RequestsPerSecond};

/// One pool before the decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// Replicas that the change is counted from.
    pub current: Replicas,
    /// What one replica serves within the objectives. `None`: the model is not known yet.
    pub capacity: Option<RequestsPerSecond>,
    /// The smallest count.
    pub floor: Replicas,
    /// GPUs of one replica.
    pub gpus: NonZeroU32,
}

/// What bounds the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Replicas that one decision may add to a pool or take from it.
    pub largest_change: Replicas,
    /// GPUs of all pools together.
    pub band: GpuBand,
    /// Whether a fast loop decides, and this is its lower bound.
    pub bounds_fast_loop: bool,
}

/// Why a count is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The demand asks for it.
    Scale,
    /// The demand asks for what is there.
    Stay,
    /// It is the lower bound of the fast loop.
    LowerBound,
    /// The capacity of a replica is not known: the count stays.
    ModelUnknown,
    /// The capacity of the other pool's replicas is not known: both counts stay.
    PartnerUnknown,
    /// The budget cannot follow.
    BudgetHold,
}

/// The count of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The count.
    pub replicas: Replicas,
    /// Why.
    pub cause: Cause,
}

/// Replicas that carry a demand; `None` where the capacity is not above zero.
pub fn needed(demand: RequestsPerSecond, capacity: RequestsPerSecond) -> Option<Replicas> {
    capacity.is_positive().then(|| Replicas::ceil(demand.get() / capacity.get()))
}

/// Decides for a pool that serves requests alone.
pub fn decide(demand: RequestsPerSecond, pool: Pool, rules: &Rules) -> Decided {
    let wanted = wanted(demand, &pool, rules);
    let proposed = wanted.unwrap_or(pool.current);
    let single = |band| Single { gpus: pool.gpus, floor: pool.floor, band };
    let (replicas, step) = if rules.bounds_fast_loop {
        (single(ceiling_of(rules)).clamp(proposed), None)
    } else {
        let guarded = single(rules.band).guard(pool.current, proposed);
        (guarded.counts, guarded.step)
    };
    let unknown = wanted.is_none().then_some(Cause::ModelUnknown);
    Decided { replicas, cause: cause(&pool, replicas, step, unknown, rules) }
}

/// Decides for a prefill and a decode pool, in this order, that serve requests together.
pub fn decide_pair(demand: RequestsPerSecond, pools: [Pool; 2], rules: &Rules) -> [Decided; 2] {
    let wanted = pools.map(|pool| wanted(demand, &pool, rules));
    let current = pools.map(|pool| pool.current);
    let proposed = match wanted {
        [Some(prefill), Some(decode)] => [prefill, decode],
        _ => current,
    };
    let pair = |band| Pair { gpus: pools.map(|pool| pool.gpus), floors: pools.map(|pool| pool.floor), band };
    let (counts, step) = if rules.bounds_fast_loop {
        (pair(ceiling_of(rules)).clamp(proposed), None)
    } else {
        let guarded = pair(rules.band).guard(current, proposed);
        (guarded.counts, guarded.step)
    };
    [0, 1].map(|at| {
        let unknown = match (wanted[at], wanted[1 - at]) {
            (None, _) => Some(Cause::ModelUnknown),
            (Some(_), None) => Some(Cause::PartnerUnknown),
            (Some(_), Some(_)) => None,
        };
        Decided { replicas: counts[at], cause: cause(&pools[at], counts[at], step, unknown, rules) }
    })
}

/// The count that the demand asks for, as near as one decision may go.
fn wanted(demand: RequestsPerSecond, pool: &Pool, rules: &Rules) -> Option<Replicas> {
    let needed = needed(demand, pool.capacity?)?.max(pool.floor);
    let (now, change) = (pool.current.0, rules.largest_change.0);
    let reachable = needed.clamp(Replicas(now.saturating_sub(change)), Replicas(now.saturating_add(change)));
    Some(reachable.max(pool.floor))
}

fn ceiling_of(rules: &Rules) -> GpuBand {
    GpuBand { min: None, max: rules.band.max }
}

fn cause(pool: &Pool, replicas: Replicas, step: Option<BudgetStep>, unknown: Option<Cause>, rules: &Rules) -> Cause {
    if let Some(unknown) = unknown {
        unknown
    } else if rules.bounds_fast_loop {
        Cause::LowerBound
    } else if step == Some(BudgetStep::Hold) {
        Cause::BudgetHold
    } else if replicas == pool.current {
        Cause::Stay
    } else {
        Cause::Scale
    }
}

#[cfg(test)]
#[path = "throughput_tests.rs"]
mod tests;
