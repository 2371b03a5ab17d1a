//! Does a finished plan keep the rules, judged only by its input and its policy? An independent check that also runs in production.
//!
//! It shares no arithmetic with the stages: a fault there must not hide itself here. A violation makes `app` keep the last good plan.

use super::memory::{Memory, PoolMemory};
use super::observe::COVERAGE_TO_LOWER;
use super::plan::{Limit, Plan, PoolPlan};
use super::policy::ModelPolicy;
use crate::units::{PoolId, Replicas};

/// A rule that a plan broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where; `None` for the model as a whole.
    pub pool: Option<PoolId>,
    /// Which rule, in words.
    pub rule: &'static str,
}

/// All broken rules of `plan`, given the memory from before it was made.
pub fn lint(plan: &Plan, policy: &ModelPolicy, before: &Memory) -> Vec<Violation> {
    let mut violations = Vec::new();
    if plan.pools.len() != policy.pools.len() {
        violations.push(Violation { pool: None, rule: "every pool has exactly one plan" });
    }
    if !finite(plan) {
        violations.push(Violation { pool: None, rule: "every number is finite and not negative" });
    }
    for (pool_plan, pool) in plan.pools.iter().zip(&policy.pools) {
        let mut ensure = |holds: bool, rule: &'static str| {
            if !holds {
                violations.push(Violation { pool: Some(pool.pool.clone()), rule });
            }
        };
        let within = |count: Option<Replicas>| count.is_none_or(|count| count >= pool.limits.min() && count <= pool.limits.max());
        ensure(pool_plan.pool == pool.pool && pool_plan.role == pool.role, "plans are in the order of the policy");
        ensure(within(pool_plan.planned_replicas) && within(pool_plan.recommended_replicas), "counts are inside the limits");
        ensure(pool_plan.published.is_none_or(|published| published.timestamp < published.valid_until), "a served value has time to live");
        ensure(
            pool_plan.recommended_replicas == pool_plan.published.map(|published| published.replicas),
            "what is recommended is what is served",
        );
        ensure(joined(pool_plan), "steps lead from the wish to the plan");
        let last = before.pools.get(&pool.pool).and_then(|memory| memory.planned).map(|last| pool.limits.clamp(last));
        let computed = plan.decided && plan.reason.hold_kind().is_none();
        let is_rationed = |known: &PoolMemory| known.wanted.is_some_and(|wanted| Some(wanted) != known.planned);
        let rationed = pool_plan.limits_active.contains(&Limit::GpuBudget) || before.pools.get(&pool.pool).is_some_and(is_rationed);
        ensure(computed || rationed || pool_plan.planned_replicas == last, "a plan that was not computed in this round is the last one");
        let fell = matches!((pool_plan.planned_replicas, last), (Some(planned), Some(last)) if planned < last);
        let covered = pool_plan.coverage.is_some_and(|coverage| coverage.get() >= COVERAGE_TO_LOWER);
        ensure(!fell || covered || rationed, "a plan falls only on a window that describes the fleet");
    }
    violations
}

fn joined(plan: &PoolPlan) -> bool {
    let (Some(first), Some(last)) = (plan.steps.first(), plan.steps.last()) else { return true };
    plan.steps.windows(2).all(|pair| pair[0].after == pair[1].before)
        && plan.unbounded_replicas == Some(first.before)
        && plan.planned_replicas == Some(last.after)
}

fn finite(plan: &Plan) -> bool {
    let fine = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value >= 0.0);
    let observed = plan.observation.as_ref().is_none_or(|observation| {
        [
            Some(observation.elapsed_seconds.get()),
            observation.requests.map(|value| value.get()),
            observation.requests_per_second.map(|value| value.get()),
            observation.estimated_requests_per_second.map(|value| value.get()),
            observation.input_tokens.map(|value| value.get()),
            observation.output_tokens.map(|value| value.get()),
            observation.ttft_seconds.map(|value| value.get()),
            observation.itl_seconds.map(|value| value.get()),
            observation.ttft_attainment.map(|value| value.get()),
            observation.itl_attainment.map(|value| value.get()),
        ]
        .into_iter()
        .all(fine)
            && observation.ttft_statistics.values().chain(observation.itl_statistics.values()).all(|value| fine(Some(value.get())))
    });
    let predicted = plan.prediction.is_none_or(|prediction| {
        let rates = [prediction.requests_per_second, prediction.estimated_requests_per_second].map(|rate| rate.get());
        let lengths = [prediction.input_tokens, prediction.output_tokens].map(|tokens| tokens.get());
        rates.into_iter().chain(lengths).all(|value| fine(Some(value)))
    });
    let estimates = [plan.estimated.current, plan.estimated.recommended];
    observed
        && predicted
        && plan.pools.iter().all(|pool| fine(pool.coverage.map(|coverage| coverage.get())))
        && fine(plan.latency_ratio.prompt.map(|ratio| ratio.get()))
        && fine(plan.latency_ratio.generation.map(|ratio| ratio.get()))
        && estimates.iter().all(|at| fine(at.ttft_seconds.map(|value| value.get())) && fine(at.itl_seconds.map(|value| value.get())))
}

#[cfg(test)]
#[path = "lint_tests.rs"]
mod tests;
