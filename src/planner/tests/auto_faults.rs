//! Does preset auto keep what stands when servers fall silent, hang, restart, rest, or do not say enough?

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::fleet::*;
use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::{Capability, Plan, Reason, StepReason};
use crate::planner::policy::*;

/// Ten minutes at 20 requests a second, and what stands then.
fn settled() -> (Fleet, Vec<u32>) {
    let mut fleet = Fleet::new(auto_policy(), &[8, 4]);
    let stood = recommended(&fleet.last(600.0, 20.0));
    assert!(stood.iter().all(|count| *count >= 1));
    (fleet, stood)
}

fn not_lowered(plans: &[Plan], stood: &[u32]) {
    for plan in plans {
        assert!(recommended(plan).iter().zip(stood).all(|(now, before)| now >= before), "{:?} after {stood:?}", recommended(plan));
    }
}

#[test]
fn half_of_the_targets_silent_lowers_nothing() {
    let (mut fleet, stood) = settled();
    for pool in &mut fleet.pools {
        pool.iter_mut().for_each(|replica| replica.waiting = 0.0);
    }
    fleet.silent = 2;
    let plans = fleet.run(300.0, 5.0);
    not_lowered(&plans, &stood);
    let prefill = pool(plans.last().unwrap(), "m-prefill");
    assert!(prefill.steps.iter().any(|step| step.reason == StepReason::CoverageBelowLowering), "{prefill:?}");
    fleet.silent = 4;
    not_lowered(&fleet.run(300.0, 5.0), &stood);
    fleet.silent = 8;
    let blind = fleet.run(200.0, 5.0);
    not_lowered(&blind, &stood);
    assert_eq!(blind.last().unwrap().reason, Reason::AllTargetsDown);
}

#[test]
fn what_silent_servers_were_believed_to_do_was_needed_when_they_are_heard_again() {
    let (mut fleet, stood) = settled();
    fleet.silent = 2;
    not_lowered(&fleet.run(200.0, 20.0), &stood);
    fleet.silent = 0;
    not_lowered(&fleet.run(100.0, 3.0), &stood);
    let later = fleet.last(100.0, 3.0);
    assert!(recommended(&later).iter().zip(&stood).any(|(now, before)| now < before), "{:?} after {stood:?}", recommended(&later));
}

#[test]
fn a_counter_that_begins_anew_lowers_nothing() {
    let (mut fleet, stood) = settled();
    for round in 0..24 {
        if round % 6 == 0 {
            let at = fleet.at;
            let pool = &mut fleet.pools[round % 2];
            pool[round / 6] = Replica { started: at, ..Replica::default() };
        }
        not_lowered(&[fleet.round(20.0)], &stood);
    }
}

#[test]
fn servers_that_hang_are_not_idle() {
    let (mut fleet, stood) = settled();
    // Nothing arrives and nothing ends, and everything that runs goes on to run.
    for _ in 0..240 {
        fleet.at += 5.0;
        not_lowered(&[fleet.look()], &stood);
    }
    assert_eq!(fleet.look().reason, Reason::NoRequests);
}

#[test]
fn an_idle_fleet_goes_to_its_minimum_after_the_delay() {
    let (mut fleet, stood) = settled();
    not_lowered(&fleet.follow(115.0, 0.0), &stood);
    let plans = fleet.follow(2400.0, 0.0);
    assert_eq!(recommended(plans.last().unwrap()), [1, 1]);
    assert_eq!(plans.last().unwrap().reason, Reason::None);
    let woken = fleet.follow(30.0, 20.0);
    assert!(recommended(woken.last().unwrap())[0] >= 5, "{:?}", recommended(woken.last().unwrap()));
}

#[test]
fn a_fleet_of_which_nothing_was_ever_learned_rests_as_well() {
    let mut fleet = Fleet::new(aggregated_policy(), &[6]);
    let plans = fleet.follow(1500.0, 0.0);
    assert_eq!(recommended(plans.last().unwrap()), [1]);
    let first = plans.iter().position(|plan| recommended(plan)[0] > 0).unwrap();
    assert!(first >= 59, "idle for five minutes first: {first}");
}

#[test]
fn what_nobody_says_is_not_known_to_be_idle() {
    let (mut fleet, stood) = settled();
    fleet.edit = |sample| {
        sample.gauges.retain(|gauge, _| ![Gauge::Running, Gauge::Waiting, Gauge::InFlight].contains(gauge));
    };
    let plans = fleet.run(1800.0, 0.0);
    not_lowered(&plans, &stood);
    assert_eq!(plans.last().unwrap().reason, Reason::NoRequests);
}

#[test]
fn without_lengths_it_is_said_what_is_missing() {
    let mut fleet = Fleet::new(auto_policy(), &[4, 2]);
    fleet.edit = |sample| {
        sample.histograms.remove(&Signal::PromptTokens);
    };
    let plan = fleet.last(120.0, 10.0);
    assert_eq!(plan.reason, Reason::MissingCapability);
    let missing: Vec<Capability> = plan.pools[0].missing.iter().map(|missing| missing.what).collect();
    assert_eq!(missing, [Capability::PromptLengths]);
    assert_eq!(recommended(&plan), [0, 0]);
}

/// One router that counts replicas, says what waits before it, and nothing of servers.
fn routed(rate: f64, waiting: f64) -> Plan {
    let policy = auto_policy();
    let pools = policy.pools.iter().map(|pool| PoolPolicy { replicas_from: ReplicasFrom::Observed, ..pool.clone() }).collect();
    let mut world = World::new(ModelPolicy { pools, ..policy });
    let mut router = Router::new(8, 3);
    let mut last = None;
    for round in 0..60 {
        router.serve(Served::typical(rate * 5.0));
        let mut sample = router.sample();
        sample.gauges = Few::from([(Gauge::InFlight, 30.0 + waiting), (Gauge::Waiting, waiting)]);
        last = Some(world.round(f64::from(round) * 5.0, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample)))]));
    }
    last.unwrap()
}

#[test]
fn a_router_alone_is_enough_with_a_profile() {
    let plan = routed(20.0, 0.0);
    assert_eq!(plan.reason, Reason::None);
    assert!((6..=8).contains(&recommended(&plan)[0]) && (1..=3).contains(&recommended(&plan)[1]), "{:?}", recommended(&plan));
}

#[test]
fn what_waits_before_a_router_waits_for_prefill() {
    let (calm, queued) = (routed(20.0, 0.0), routed(20.0, 5000.0));
    let left = |plan: &Plan, name: &str| pool(plan, name).auto.as_ref().unwrap().left.get();
    assert!(left(&queued, "m-prefill") > 100.0 && left(&calm, "m-prefill") == 0.0);
    assert_eq!(left(&queued, "m-decode"), 0.0);
}

#[test]
fn a_router_alone_without_a_profile_waits() {
    let mut policy = auto_policy();
    policy.capacity = CapacityModel::Iterations;
    policy.pools.iter_mut().for_each(|pool| pool.replicas_from = ReplicasFrom::Observed);
    let (mut world, mut router) = (World::new(policy), Router::new(8, 3));
    let plan = world.drive(&mut router, 0.0, 120.0, 20.0);
    assert_eq!((plan.reason, recommended(&plan)), (Reason::NotConverged, vec![0, 0]));
}

/// What a page lacks.
const EDITS: [fn(&mut Sample); 5] = [
    |_| (),
    |sample| sample.gauges.clear(),
    |sample| sample.histograms.clear(),
    |sample| *sample = Sample::default(),
    |sample| sample.gauges.values_mut().for_each(|value| *value = 1e300),
];

fn rounds() -> impl Strategy<Value = Vec<(f64, usize, usize)>> {
    let rate = prop_oneof![6 => 0.1..80.0_f64, 2 => Just(0.0), 1 => prop_oneof![Just(1e-300), Just(1e12), Just(1e290)]];
    let silent = prop_oneof![6 => Just(0_usize), 2 => 0..9_usize];
    let edit = prop_oneof![9 => Just(0_usize), 1 => 0..EDITS.len()];
    proptest::collection::vec((rate, silent, edit), 10..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5eed), ..ProptestConfig::default() })]

    /// `round_of` holds every plan against the independent check: finite numbers, inside the limits, steps that join.
    #[test]
    fn no_history_gives_a_plan_that_breaks_a_rule(rounds in rounds(), aggregated in any::<bool>(), input in prop_oneof![Just(2048.0), Just(0.0), Just(1e9)]) {
        let mut fleet = if aggregated { Fleet::new(aggregated_policy(), &[8]) } else { Fleet::new(auto_policy(), &[8, 4]) };
        fleet.input = input;
        for (rate, silent, edit) in rounds {
            (fleet.silent, fleet.edit) = (silent, EDITS[edit]);
            let plan = fleet.round(rate);
            for trace in plan.pools.iter().filter_map(|pool| pool.auto.as_ref()) {
                let numbers = [trace.rate.get(), trace.slope, trace.error.get(), trace.planned_rate.get(), trace.replica_rate.get(), trace.left.get()];
                prop_assert!(numbers.iter().all(|number| number.is_finite()), "{trace:?}");
            }
        }
    }
}
