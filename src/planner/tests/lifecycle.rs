//! What does the planner make of pods that start, end or are replaced? Pools whose orchestrator is known.

use std::sync::Arc;

use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::{Plan, Reason, StepReason};
use crate::planner::policy::*;
use crate::planner::propose::threshold::Target;
use crate::units::*;

fn pool_id() -> SourceId {
    SourceId::Pool(PoolId::from("m-decode"))
}

/// One decode pool by target throughput, counted by its ready pods.
fn policy() -> ModelPolicy {
    let mut policy = infera_policy();
    policy.preset = Preset::Dynamo;
    policy.capacity = CapacityModel::Unknown;
    policy.load = Some(Target::Throughput.policy(std::time::Duration::from_secs(5)));
    policy.traffic_change = ChangeRule::Tolerate;
    policy.pools.remove(0);
    policy.pools[0].replicas_from = ReplicasFrom::Kubernetes;
    policy.pools[0].limits = Limits::new(Replicas(1), Replicas(16)).unwrap();
    policy
}

fn pods(ready: u32, starting: u32, terminating: u32) -> Lifecycle {
    Lifecycle { ready, starting, terminating, generations: 1, complete: true }
}

/// A round in which all ready pods have this share of their memory in use.
fn round(world: &mut World, at: f64, told: Lifecycle, usage: f64) -> Plan {
    world.lifecycle.insert(pool_id(), told);
    let names: Vec<String> = (0..told.ready).map(|index| format!("{index:03}:1/metrics")).collect();
    let sample = || {
        let gauges = [(Gauge::KvUsage, usage), (Gauge::Running, 9.0), (Gauge::Waiting, 0.0)].into_iter().collect();
        Reading::Sample(Arc::new(Sample { gauges, workers: Default::default(), ..Router::default().sample() }))
    };
    world.round_of(at, vec![(pool_id(), names.iter().map(|name| (name.as_str(), sample())).collect())])
}

/// Rounds every 5 s from `from` on; the last plan.
fn rounds(world: &mut World, from: f64, count: u32, told: Lifecycle, usage: f64) -> Plan {
    (0..count).map(|index| round(world, from + f64::from(index) * 5.0, told, usage)).last().unwrap()
}

fn recommended(plan: &Plan) -> Option<u32> {
    plan.pools[0].recommended_replicas.map(|count| count.0)
}

fn step_reasons(plan: &Plan) -> Vec<StepReason> {
    plan.pools[0].steps.iter().map(|step| step.reason).collect()
}

#[test]
fn the_first_ready_pods_of_a_fleet_that_still_starts_are_not_all_of_it() {
    for complete in [true, false] {
        let mut world = World::new(policy());
        let told = |ready, starting| Lifecycle { complete, ..pods(ready, starting, 0) };
        let plan = rounds(&mut world, 0.0, 3, told(1, 7), 0.7);
        assert_eq!((recommended(&plan), plan.pools[0].current_replicas), (Some(8), Some(Replicas(1))), "{complete}");
        assert_eq!(plan.pools[0].coming_replicas, Some(Replicas(7)));
    }
}

#[test]
fn terminating_pods_are_no_capacity_and_known_losses_do_not_hold_the_pool() {
    let mut world = World::new(policy());
    let _watched = rounds(&mut world, 0.0, 15, pods(8, 0, 0), 0.7);
    let plan = round(&mut world, 75.0, pods(7, 0, 1), 0.1);
    assert_eq!((plan.pools[0].current_replicas, plan.pools[0].coverage), (Some(Replicas(7)), Some(Ratio(1.0))));
    assert_eq!(recommended(&plan), Some(7), "one pod of eight that is being replaced does not stop a decrease");
    let gone = rounds(&mut world, 80.0, 1, pods(6, 0, 0), 0.1);
    assert_eq!((recommended(&gone), step_reasons(&gone)[1]), (Some(7), StepReason::ReplicasMissing));
}

#[test]
fn a_fleet_that_mostly_starts_again_does_not_shrink_on_what_the_last_pod_says() {
    let mut world = World::new(policy());
    let _watched = rounds(&mut world, 0.0, 15, pods(8, 0, 0), 0.7);
    let plan = rounds(&mut world, 75.0, 100, pods(1, 7, 0), 0.05);
    assert_eq!((recommended(&plan), step_reasons(&plan)[1]), (Some(8), StepReason::ManyFreshReplicas));
}

#[test]
fn a_pool_of_two_generations_grows_and_does_not_shrink_for_half_an_hour_at_most() {
    let mut world = World::new(policy());
    let _watched = rounds(&mut world, 0.0, 15, pods(4, 0, 0), 0.7);
    let two = Lifecycle { generations: 2, ..pods(4, 1, 0) };
    let plan = rounds(&mut world, 75.0, 20, two, 0.1);
    assert_eq!((recommended(&plan), step_reasons(&plan)[1]), (Some(4), StepReason::Rollout));
    assert_eq!(recommended(&round(&mut world, 175.0, two, 1.2)), Some(5), "increases pass");
    let late = rounds(&mut world, 1880.0, 1, two, 0.1);
    assert_eq!(recommended(&late), Some(4), "half an hour is over");
    let mut measured = World::new(policy());
    let _watched = rounds(&mut measured, 0.0, 15, pods(4, 0, 0), 0.7);
    let plan = round(&mut measured, 75.0, pods(4, 0, 0), 0.1);
    assert_eq!(recommended(&plan), Some(3), "one generation");
}

#[test]
fn a_pod_that_never_comes_is_told_and_keeps_nothing_from_shrinking() {
    let mut world = World::new(policy());
    let _watched = rounds(&mut world, 0.0, 15, pods(2, 0, 0), 0.7);
    let grown = round(&mut world, 75.0, pods(2, 0, 0), 1.2);
    assert_eq!(recommended(&grown), Some(3));
    let waiting = rounds(&mut world, 80.0, 20, pods(2, 1, 0), 1.0);
    assert_eq!((recommended(&waiting), waiting.pools[0].capacity_unavailable), (Some(3), Some(false)));
    assert_eq!(waiting.pools[0].coming_replicas, Some(Replicas(1)));
    let given_up = rounds(&mut world, 1885.0, 20, pods(2, 1, 0), 1.2);
    assert_eq!((recommended(&given_up), given_up.pools[0].capacity_unavailable), (Some(3), Some(true)), "no fourth one is asked for");
    assert_eq!(given_up.pools[0].coming_replicas, Some(Replicas(0)));
    let quiet = round(&mut world, 1990.0, pods(2, 1, 0), 0.1);
    assert_eq!(recommended(&quiet), Some(2));
}

/// The example's envelope, with decode pods found by Kubernetes beside a router.
fn slow_world() -> World {
    let mut policy = infera_policy();
    policy.pools[1].replicas_from = ReplicasFrom::Kubernetes;
    World::new(policy)
}

fn slow_round(world: &mut World, at: f64, router: &Router, told: Lifecycle) -> Plan {
    world.lifecycle.insert(pool_id(), told);
    let decode = (0..told.ready).map(|index| format!("{index:03}:1/metrics")).collect::<Vec<_>>();
    let decode = decode.iter().map(|name| (name.as_str(), Reading::Sample(Arc::default()))).collect();
    world.round_of(at, vec![(SourceId::Traffic, vec![("r:1/metrics", router.reading())]), (pool_id(), decode)])
}

#[test]
fn before_the_first_decision_the_pods_that_were_there_first_are_published_and_no_later_count() {
    let (mut world, mut router) = (slow_world(), Router::new(2, 4));
    let first = slow_round(&mut world, 0.0, &router, pods(3, 2, 1));
    assert_eq!((first.reason, counts(&first)), (Reason::Baseline, [None, Some(5)]));
    assert!(first.pools[1].held);
    let later = slow_round(&mut world, 5.0, &router, pods(1, 0, 0));
    assert_eq!(counts(&later), [None, Some(5)]);
    assert!(world.memory.growth[&PoolId::from("m-decode")].awaited_since.is_none(), "nobody wished for five");
    for at in 2..=36_u32 {
        router.serve(Served::typical(BUSY * 5.0));
        let plan = slow_round(&mut world, f64::from(at) * 5.0, &router, pods(5, 0, 0));
        assert_eq!(counts(&plan)[1], Some(if at < 36 { 5 } else { 2 }), "{at}");
    }
}

#[test]
fn a_baseline_that_has_run_out_does_not_come_back_with_another_count() {
    let mut world = slow_world();
    let router = Router::new(2, 4);
    let _first = slow_round(&mut world, 0.0, &router, pods(5, 0, 0));
    let mut silent = |at, told: Lifecycle| {
        world.lifecycle.insert(pool_id(), told);
        world.round_of(at, vec![(SourceId::Traffic, vec![("r:1/metrics", failed())]), (pool_id(), Vec::new())])
    };
    for at in 1..=120_u32 {
        let _held = silent(f64::from(at) * 5.0, pods(5, 0, 0));
    }
    let plan = silent(610.0, pods(1, 0, 0));
    assert_eq!((plan.reason, counts(&plan)), (Reason::AllTargetsDown, [None, None]));
    let back = slow_round(&mut world, 615.0, &router, pods(1, 0, 0));
    assert_eq!(counts(&back), [None, None]);
}

#[test]
fn what_is_known_from_before_a_restart_and_what_leaves_out_pending_pods_is_no_baseline() {
    let router = Router::new(2, 4);
    let mut partial = slow_world();
    let plan = slow_round(&mut partial, 0.0, &router, Lifecycle { complete: false, ..pods(3, 0, 0) });
    assert_eq!(counts(&plan), [None, None]);
    let mut known = slow_world();
    known.memory.pools.entry(PoolId::from("m-decode")).or_default().planned = Some(Replicas(7));
    assert_eq!(counts(&slow_round(&mut known, 0.0, &router, pods(3, 0, 0))), [None, None]);
}

#[test]
fn a_front_end_that_kubernetes_finds_is_no_pod_of_the_pool() {
    let mut policy = policy();
    policy.pools[0].role = Role::Aggregated;
    policy.pools[0].replicas_from = ReplicasFrom::Observed;
    let mut world = World::new(policy);
    world.lifecycle.insert(SourceId::Traffic, pods(1, 6, 0));
    let front_end =
        Sample { gauges: [(Gauge::InFlight, 7.0)].into_iter().collect(), workers: Default::default(), ..Router::default().sample() };
    let plan = world.round(0.0, vec![("f:1/metrics", Reading::Sample(Arc::new(front_end)))]);
    assert_eq!((plan.pools[0].coming_replicas, recommended(&plan)), (None, None));
}
