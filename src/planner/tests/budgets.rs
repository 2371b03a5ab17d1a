//! Do GPU budgets bind in every round, whatever is seen, and let go when there is room?

use std::collections::BTreeMap;

use super::world::*;
use crate::planner::allotment::{Cause, Grant};
use crate::planner::input::*;
use crate::planner::memory::Memory;
use crate::planner::plan::{Limit, Plan, Stage, StepReason};
use crate::planner::policy::*;
use crate::planner::ration::claims;
use crate::units::*;

fn policy(max: u32) -> ModelPolicy {
    ModelPolicy { gpus: GpuBand { min: None, max: Some(max) }, ..infera_policy() }
}

fn total(plan: &Plan) -> u32 {
    plan.pools.iter().filter_map(|pool| pool.planned_replicas).map(|count| count.0).sum()
}

/// A world that has decided once under the policy: without a budget 5 prefill and 2 decode replicas are wanted.
fn decided_under(policy: ModelPolicy) -> (World, Router, Plan) {
    let (mut world, mut router) = (World::new(policy), Router::new(2, 1));
    let _baseline = world.one(0.0, &router);
    let plan = world.drive(&mut router, 0.0, 180.0, BUSY);
    (world, router, plan)
}

#[test]
fn a_budget_of_the_model_is_never_exceeded_and_says_so() {
    let (_, _, plan) = decided_under(policy(5));
    assert_eq!(total(&plan), 5, "{:?}", counts(&plan));
    let prefill = pool(&plan, "m-prefill");
    let last = prefill.steps.last().unwrap();
    assert_eq!((last.stage, last.reason, last.before), (Stage::GpuBudget, StepReason::LoweredToBudget, Replicas(5)));
    assert!(prefill.limits_active.contains(&Limit::GpuBudget));
    assert_eq!(prefill.unbounded_replicas, Some(Replicas(5)), "what is wanted stays visible");
    let (_, _, roomy) = decided_under(policy(7));
    assert_eq!(counts(&roomy), [Some(5), Some(2)]);
    assert!(roomy.pools.iter().all(|pool| pool.limits_active.is_empty()));
}

#[test]
fn a_budget_that_is_cut_binds_at_once_also_while_nothing_is_seen() {
    let (mut world, mut router, plan) = decided_under(policy(7));
    assert_eq!(total(&plan), 7);
    let _blind = world.silent(180.0, 300.0);
    world.policy = policy(4);
    let plan = world.silent(300.0, 305.0);
    assert!(total(&plan) <= 4 && plan.held, "{:?}", counts(&plan));
    world.policy = policy(7);
    let plan = world.silent(305.0, 310.0);
    assert!(total(&plan) <= 4, "nothing is seen: no reason to grow: {:?}", counts(&plan));
    let plan = world.drive(&mut router, 310.0, 540.0, BUSY);
    assert_eq!(counts(&plan), [Some(5), Some(2)], "and with data it does");
}

#[test]
fn what_other_models_hold_is_waited_for_between_decisions() {
    let (mut world, mut router, _) = decided_under(infera_policy());
    let grant = |replicas, cause| Grant { replicas: Replicas(replicas), cause };
    let prefill = PoolId::from("m-prefill");
    world.allowed = BTreeMap::from([(prefill.clone(), grant(3, Some(Cause::HeldByOthers)))]);
    let plan = world.drive(&mut router, 180.0, 185.0, BUSY);
    assert_eq!(counts(&plan), [Some(3), Some(2)]);
    assert_eq!(pool(&plan, "m-prefill").steps.last().unwrap().reason, StepReason::BudgetHeldByOthers);
    world.allowed = BTreeMap::from([(prefill.clone(), grant(5, None))]);
    let plan = world.drive(&mut router, 185.0, 190.0, BUSY);
    assert_eq!(counts(&plan), [Some(5), Some(2)], "the others let go, and no decision is due");
    assert!(pool(&plan, "m-prefill").recommended_replicas == Some(Replicas(5)));
}

#[test]
fn a_pool_that_was_never_decided_on_claims_what_it_has() {
    let mut world = World::new(infera_policy());
    let _baseline = world.one(0.0, &Router::new(3, 20));
    let input = ModelInput { sources: Vec::new(), allowed: BTreeMap::new() };
    let found = claims(&world.memory, &input, &world.policy, world.moment(5.0));
    let of = |name: &str| found.iter().find(|claim| claim.pool == PoolId::from(name)).unwrap();
    assert_eq!((of("m-prefill").wish, of("m-prefill").floor), (Replicas(3), Replicas(1)));
    let most = world.policy.pools[1].limits.max();
    assert_eq!((of("m-decode").wish, of("m-decode").stands), (Replicas(20).min(most), Replicas(20)));
    let unseen = claims(&Memory::default(), &input, &world.policy, world.moment(5.0));
    assert_eq!(unseen[0].wish, Replicas(1), "where nothing is seen, the minimum");
}

#[test]
fn a_minimum_budget_is_used_whatever_the_load() {
    let idle = ModelPolicy { gpus: GpuBand { min: Some(12), max: None }, ..infera_policy() };
    let (_, _, plan) = decided_under(idle);
    assert!(total(&plan) >= 12, "{:?}", counts(&plan));
    assert!(plan.pools.iter().any(|pool| pool.steps.last().is_some_and(|step| step.reason == StepReason::RaisedToBudget)));
}

#[test]
fn a_pin_is_stronger_than_the_budget_and_leaves_the_rest_to_the_others() {
    let mut pinned = policy(5);
    pinned.pools[1].pin =
        Some(Pin { replicas: Replicas(4), until: std::time::Duration::from_secs(MIDNIGHT + 86_400), reason: "test".to_owned() });
    let (mut world, mut router, _) = decided_under(pinned);
    let plan = world.drive(&mut router, 180.0, 185.0, BUSY);
    assert_eq!(counts(&plan), [Some(1), Some(4)]);
}
