//! Does each rule fire on a plan that breaks it, and on no other?

use super::*;
use crate::planner::plan::{LoopDecision, Published, Reason, Stage, Step, StepReason};
use crate::planner::policy::{Limits, Statistic};
use crate::planner::tests::world::{BUSY, Router, World, infera_policy};
use crate::units::{Ratio, Role, Seconds};

/// A good plan that lowers both pools, its policy, and the memory from before it.
fn good() -> (Plan, ModelPolicy, Memory) {
    let (mut world, mut router) = (World::new(infera_policy()), Router::new(2, 4));
    let _baseline = world.one(0.0, &router);
    let _busy = world.drive(&mut router, 0.0, 180.0, BUSY);
    let _less = world.drive(&mut router, 180.0, 355.0, BUSY / 3.0);
    let before = world.memory.clone();
    (world.drive(&mut router, 355.0, 360.0, BUSY / 3.0), world.policy, before)
}

fn rules(tamper: impl Fn(&mut Plan)) -> Vec<&'static str> {
    let (mut plan, policy, before) = good();
    tamper(&mut plan);
    lint(&plan, &policy, &before).into_iter().map(|violation| violation.rule).collect()
}

#[test]
fn a_good_plan_breaks_nothing() {
    let (plan, policy, before) = good();
    assert!(plan.decided && plan.reason == Reason::None);
    assert_eq!(lint(&plan, &policy, &before), []);
}

#[test]
fn a_pool_is_missing() {
    assert!(rules(|plan| drop(plan.pools.pop())).contains(&"every pool has exactly one plan"));
}

#[test]
fn pools_are_swapped() {
    assert!(rules(|plan| plan.pools.swap(0, 1)).contains(&"plans are in the order of the policy"));
    assert_eq!(rules(|plan| plan.pools[0].role = Role::Aggregated), ["plans are in the order of the policy"]);
}

#[test]
fn a_number_is_not_finite_or_negative() {
    let rule = ["every number is finite and not negative"];
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(rules(|plan| plan.latency_ratio.prompt = Some(Ratio(bad))), rule);
        assert_eq!(rules(|plan| plan.latency_ratio.generation = Some(Ratio(bad))), rule);
        assert_eq!(rules(|plan| plan.estimated.current.ttft_seconds = Some(Seconds(bad))), rule);
        assert_eq!(rules(|plan| plan.estimated.recommended.itl_seconds = Some(Seconds(bad))), rule);
        assert_eq!(rules(|plan| plan.observation.as_mut().unwrap().elapsed_seconds = Seconds(bad)), rule);
        assert_eq!(rules(|plan| plan.observation.as_mut().unwrap().ttft_seconds = Some(Seconds(bad))), rule);
        assert_eq!(rules(|plan| plan.observation.as_mut().unwrap().itl_statistics.extend([(Statistic::P99, Seconds(bad))])), rule);
        assert_eq!(rules(|plan| plan.observation.as_mut().unwrap().ttft_attainment = Some(Ratio(bad))), rule);
        assert_eq!(rules(|plan| plan.prediction.as_mut().unwrap().requests_per_second.0 = bad), rule);
        assert_eq!(rules(|plan| plan.prediction.as_mut().unwrap().input_tokens.0 = bad), rule);
        assert!(rules(|plan| plan.pools[0].coverage = Some(Ratio(bad))).contains(&rule[0]));
    }
}

#[test]
fn a_count_is_outside_the_limits() {
    let (plan, mut policy, before) = good();
    policy.pools[0].limits = Limits::new(Replicas(50), Replicas(60)).unwrap();
    let found = lint(&plan, &policy, &before);
    assert!(found.contains(&Violation { pool: Some(PoolId::from("m-prefill")), rule: "counts are inside the limits" }), "{found:?}");
    assert!(found.iter().all(|violation| violation.pool == Some(PoolId::from("m-prefill"))), "the other pool is in order");
}

#[test]
fn a_served_value_has_no_time_to_live() {
    let rule = ["a served value has time to live"];
    let tamper = |plan: &mut Plan| {
        let published: &mut Published = plan.pools[1].published.as_mut().unwrap();
        published.valid_until = published.timestamp;
    };
    assert_eq!(rules(tamper), rule);
}

#[test]
fn what_is_recommended_is_not_what_is_served() {
    let rule = ["what is recommended is what is served"];
    assert_eq!(rules(|plan| plan.pools[0].recommended_replicas = Some(Replicas(3))), rule);
    assert_eq!(rules(|plan| plan.pools[0].published = None), rule);
}

#[test]
fn steps_do_not_join() {
    let rule = ["steps lead from the wish to the plan"];
    assert_eq!(rules(|plan| plan.pools[0].unbounded_replicas = Some(Replicas(77))), rule);
    assert_eq!(rules(|plan| plan.pools[0].steps[0].after = Replicas(77)), rule);
    let step = Step { stage: Stage::Limits, before: Replicas(77), after: Replicas(78), reason: StepReason::WithinLimit };
    assert_eq!(rules(|plan| plan.pools[0].steps.push(step.clone())), rule);
}

#[test]
fn a_plan_changes_without_a_decision() {
    let rule = "a plan that was not computed in this round is the last one";
    assert!(rules(|plan| plan.decided = false).contains(&rule));
    assert!(rules(|plan| plan.reason = Reason::CounterReset).contains(&rule));
}

#[test]
fn a_plan_falls_on_a_window_that_does_not_describe_the_fleet() {
    let rule = ["a plan falls only on a window that describes the fleet"];
    for coverage in [None, Some(Ratio(0.89))] {
        assert_eq!(rules(|plan| plan.pools.iter_mut().for_each(|pool| pool.coverage = coverage)), [rule, rule].concat());
    }
    let (plan, _, before) = good();
    let planned = |name: &str| before.pools[&PoolId::from(name)].planned;
    assert!(plan.pools.iter().all(|pool| pool.planned_replicas < planned(pool.pool.as_str())));
    assert!(plan.pools.iter().all(|pool| pool.slow_loop == LoopDecision::Scale));
}
