//! What should a person know before believing the numbers of a learned model? Notes beside a plan of preset wva, where there is something to know.

use crate::planner::learn::LEAST_UPDATES;
use crate::planner::plan::{Plan, PoolPlan, Reason};
use crate::planner::policy::Preset;

/// What is added where a plan was made from two pages.
pub const ONE_WINDOW: &str = "two pages are one window, and one window cannot identify the model: it is one load, which many parameters explain. \
    A running exporter learns from window to window and keeps that in its state_file; record its decisions with `run --record DIR`, and look at \
    them with `plan --replay DIR`";

/// All notes, in the order in which they are printed.
pub fn of(plan: &Plan) -> Vec<String> {
    if plan.preset != Preset::Wva {
        return Vec::new();
    }
    plan.pools.iter().filter_map(of_pool).chain(estimates(plan)).collect()
}

/// Whether the learned model of any pool is not certain yet.
pub fn is_uncertain(plan: &Plan) -> bool {
    plan.preset == Preset::Wva && plan.pools.iter().any(|pool| pool.queueing.as_ref().is_none_or(|trace| !trace.converged))
}

fn of_pool(pool: &PoolPlan) -> Option<String> {
    let name = &pool.pool;
    let untaught = || pool.untaught.map_or_else(String::new, |reason| format!("; the last window taught nothing: {}", reason.meaning()));
    match &pool.queueing {
        None if pool.reason == Reason::NotConverged => Some(format!("pool {name}: nothing is known of its replicas yet{}", untaught())),
        Some(trace) if !trace.converged => Some(format!(
            "pool {name}: the model is not certain yet, with {} of at least {LEAST_UPDATES} windows accepted and {} distinct loads seen; its \
             estimate may add replicas, and only the lower end of what the loads allow gives any back{}",
            trace.accepted,
            trace.points,
            untaught()
        )),
        _ => None,
    }
}

/// Why there are no estimates, where a plan was computed.
fn estimates(plan: &Plan) -> Option<String> {
    let missing = |latencies: &crate::planner::plan::Latencies| latencies.ttft_seconds.is_none() && latencies.itl_seconds.is_none();
    let which = match (missing(&plan.estimated.current), missing(&plan.estimated.recommended)) {
        (false, false) => return None,
        (true, true) => "the current and the recommended counts",
        (true, false) => "the current counts",
        (false, true) => "the recommended counts",
    };
    let why =
        "nothing arrived, no pool is known well enough, or by the learned parameters a replica would have to serve more than it ever can";
    (!plan.held).then(|| format!("no estimated latencies at {which}: {why}"))
}
