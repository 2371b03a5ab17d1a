//! What happens when targets fall silent? Coverage, hung targets, total loss and recovery.

use std::sync::Arc;

use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::{HoldKind, Plan, Reason, StepReason};
use crate::units::*;

fn demand(plan: &Plan) -> [f64; 2] {
    let observation = plan.observation.as_ref().unwrap();
    [observation.requests_per_second.unwrap().get(), observation.estimated_requests_per_second.unwrap().get()]
}

#[test]
fn one_hung_target_of_200_holds_nothing_and_hides_no_demand() {
    let mut world = World::new(infera_policy());
    let mut routers = Routers::new(200, &Router::new(2, 4));
    let each = [BUSY / 200.0];
    let _baseline = world.round(0.0, routers.readings());
    let plan = routers.drive(&mut world, 0.0, 180.0, &each);
    assert_eq!((counts(&plan), pool(&plan, "m-prefill").coverage), ([Some(5), Some(2)], Some(Ratio(1.0))));
    routers.hung = vec![17];
    for window in 1..6 {
        let at = f64::from(window) * 180.0;
        let plan = routers.drive(&mut world, at, at + 180.0, &each);
        assert_eq!((plan.reason, plan.held, counts(&plan)), (Reason::None, false, [Some(5), Some(2)]), "{at}");
        let [seen, estimated] = demand(&plan);
        assert!(seen < BUSY && estimated > BUSY - 1e-9 && estimated < BUSY * 1.001, "{seen} {estimated}");
    }
    let plan = routers.drive(&mut world, 1080.0, 1260.0, &[0.05]);
    assert_eq!((plan.reason, counts(&plan)), (Reason::None, [Some(3), Some(1)]), "a decrease goes on");
}

#[test]
fn one_hung_router_of_two_stops_decreases_and_doubles_nothing() {
    let mut world = World::new(infera_policy());
    let mut routers = Routers::new(2, &Router::new(2, 4));
    let _baseline = world.round(0.0, routers.readings());
    let _decided = routers.drive(&mut world, 0.0, 185.0, &[BUSY / 2.0]);
    routers.hung = vec![1];
    // The other one takes over its clients.
    for at in [185.0, 360.0, 540.0] {
        let end = if at == 185.0 { 360.0 } else { at + 180.0 };
        let plan = routers.drive(&mut world, at, end, &[BUSY, 0.0]);
        assert_eq!((plan.reason, counts(&plan)), (Reason::None, [Some(5), Some(2)]), "{end}");
        assert!(demand(&plan)[0] < BUSY * 1.02, "{:?}", demand(&plan));
    }
    let plan = routers.drive(&mut world, 720.0, 900.0, &[1.0, 0.0]);
    assert_eq!((plan.reason, counts(&plan)), (Reason::None, [Some(5), Some(2)]), "no decrease on half the fleet");
    assert!(pool(&plan, "m-prefill").steps.iter().any(|step| step.reason == StepReason::CoverageBelowLowering));
    let plan = routers.drive(&mut world, 900.0, 1080.0, &[2.0 * BUSY, 0.0]);
    assert_eq!(counts(&plan)[0], Some(8), "but a raise that the data support");
}

#[test]
fn the_few_seconds_before_a_target_fell_silent_do_not_stand_for_its_load() {
    let mut world = World::new(infera_policy());
    let mut routers = Routers::new(20, &Router::new(2, 4));
    // One router carries half of the load.
    let mut rates = vec![0.5; 20];
    rates[0] = 9.5;
    let _baseline = world.round(0.0, routers.readings());
    let _decided = routers.drive(&mut world, 0.0, 180.0, &rates);
    // It serves nothing in its last 5 s.
    rates[0] = 0.0;
    let _idle = routers.drive(&mut world, 180.0, 185.0, &rates);
    routers.hung = vec![0];
    let _first = routers.drive(&mut world, 185.0, 360.0, &rates);
    let plan = routers.drive(&mut world, 360.0, 540.0, &rates);
    let estimated = demand(&plan)[1];
    assert!((estimated - 19.0).abs() < 1e-9, "9.5 of the others and 9.5 of its last whole window, got {estimated}");
}

#[test]
fn less_than_half_of_the_fleet_decides_nothing() {
    let mut world = World::new(infera_policy());
    let mut routers = Routers::new(3, &Router::new(2, 4));
    let _baseline = world.round(0.0, routers.readings());
    let before = routers.drive(&mut world, 0.0, 180.0, &[BUSY / 3.0]);
    routers.hung = vec![0, 2];
    let plan = routers.drive(&mut world, 180.0, 360.0, &[100.0]);
    assert_eq!((plan.reason, plan.held, counts(&plan)), (Reason::CoverageLow, true, counts(&before)));
    assert_eq!(plan.reason.hold_kind(), Some(HoldKind::Blind));
}

#[test]
fn a_target_that_was_silent_for_more_than_an_interval_starts_over() {
    let mut world = World::new(infera_policy());
    let mut routers = Routers::new(4, &Router::new(2, 4));
    let _baseline = world.round(0.0, routers.readings());
    let _half = routers.drive(&mut world, 0.0, 100.0, &[BUSY / 4.0]);
    routers.hung = vec![3];
    let _silent = routers.drive(&mut world, 100.0, 395.0, &[BUSY / 4.0, BUSY / 4.0, BUSY / 4.0, 50.0]);
    routers.hung.clear();
    let plan = routers.drive(&mut world, 395.0, 540.0, &[BUSY / 4.0]);
    let [seen, estimated] = demand(&plan);
    assert!(seen < BUSY && (estimated - BUSY).abs() < 0.1, "what it did unseen is not spread over this window: {seen} {estimated}");
}

#[test]
fn total_loss_is_shown_at_once_expires_after_hold_for_and_recovers() {
    let (mut world, mut router) = decided();
    let plan = world.silent(180.0, 190.0);
    assert_eq!((plan.reason, plan.held, plan.decided, counts(&plan)), (Reason::AllTargetsDown, true, false, [Some(5), Some(2)]));
    assert_eq!(plan.sources[0].down, 1);
    let plan = world.silent(190.0, 775.0);
    let published = pool(&plan, "m-prefill").published.unwrap();
    assert_eq!((published.timestamp, published.valid_until), (world.moment(180.0).wall, world.moment(780.0).wall));
    let plan = world.silent(775.0, 780.0);
    assert_eq!((plan.reason, counts(&plan)), (Reason::AllTargetsDown, [None, None]));
    assert_eq!(pool(&plan, "m-prefill").planned_replicas, Some(Replicas(5)), "the plan is not forgotten");
    let _down = world.silent(780.0, 995.0);

    let plan = world.drive(&mut router, 995.0, 1080.0, 1.0);
    assert_eq!((plan.reason, counts(&plan)), (Reason::CoverageLow, [None, None]), "80 s of a window of 360 s");
    let plan = world.drive(&mut router, 1080.0, 1260.0, 1.0);
    assert_eq!((plan.reason, counts(&plan)), (Reason::None, [Some(2), Some(1)]));
}

#[test]
fn a_single_late_answer_is_not_a_loss() {
    let (mut world, mut router) = decided();
    let _quiet = world.drive(&mut router, 180.0, 250.0, BUSY);
    let plan = world.silent(250.0, 255.0);
    assert_eq!((plan.reason, plan.sources[0].stale, plan.sources[0].down), (Reason::None, 1, 0));
}

#[test]
fn everything_down_at_the_start_publishes_nothing_and_says_why() {
    let mut world = World::new(infera_policy());
    let plan = world.silent(0.0, 400.0);
    assert_eq!((plan.reason, plan.held, counts(&plan)), (Reason::AllTargetsDown, true, [None, None]));
    assert!(plan.observation.is_none());
}

#[test]
fn lost_replicas_do_not_ratchet_a_recommendation_down() {
    let mut world = World::new(infera_policy());
    let mut router = Router::new(4, 4);
    let _baseline = world.one(0.0, &router);
    let plan = world.drive(&mut router, 0.0, 180.0, 45.0);
    assert_eq!(counts(&plan)[0], Some(10));
    router.prefill = 1;
    let plan = world.drive(&mut router, 180.0, 360.0, 45.0);
    assert_eq!(counts(&plan)[0], Some(10), "the load is the same; four times one replica is no reason to shrink");
}

#[test]
fn a_router_that_answers_without_its_series_is_silent_and_not_idle() {
    // The label was renamed, a sum became unreadable, or the page is cut: the router works on, and nobody can see it.
    let losses: [fn(&mut Sample); 3] = [
        |sample| *sample = Sample::default(),
        |sample| drop(sample.histograms.remove(&Signal::OutputTokens)),
        |sample| {
            sample.histograms.clear();
        },
    ];
    for lose in losses {
        let mut world = World::new(infera_policy());
        let mut routers = [Router::new(2, 4), Router::new(2, 4)];
        let mut round = |at: f64, lost: bool| {
            for router in &mut routers {
                router.serve(Served::typical(if at == 0.0 { 0.0 } else { 5.0 * BUSY / 2.0 }));
            }
            let mut second = routers[1].sample();
            if lost {
                lose(&mut second);
            }
            world.round(at, vec![("a:8000/metrics", routers[0].reading()), ("b:8000/metrics", Reading::Sample(Arc::new(second)))])
        };
        let _baseline = round(0.0, false);
        let plans: Vec<_> = (1..=144).map(|tick| round(f64::from(tick) * 5.0, tick > 40)).collect();
        assert_eq!(counts(&plans[35]), [Some(5), Some(2)]);
        for plan in &plans[36..] {
            assert_eq!(counts(plan), [Some(5), Some(2)], "{} at {:?}", plan.reason, plan.at);
        }
        let last = plans.last().unwrap();
        assert!(pool(last, "m-decode").coverage.unwrap() <= Ratio(0.5), "{:?}", pool(last, "m-decode").coverage);
    }
}

#[test]
fn a_worker_count_that_is_missing_at_the_boundary_is_the_one_before() {
    let mut world = World::new(infera_policy());
    // A queue: prefill is sized by what three replicas could not keep up with.
    let mut router = Router::new(3, 4);
    let _baseline = world.one(0.0, &router);
    for tick in 1..36 {
        router.serve(Served { ttft: 0.9, ..Served::typical(5.0 * BUSY) });
        let _between = world.one(f64::from(tick) * 5.0, &router);
    }
    let mut sample = router.sample();
    sample.workers.remove(&Role::Prefill);
    let plan = world.round(180.0, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample)))]);
    // 0.215 * (0.9/0.215 - 1) * 3 / 0.285 = 7.2
    assert_eq!((plan.reason, plan.envelope.as_ref().unwrap().prefill_replicas, counts(&plan)[0]), (Reason::None, Replicas(3), Some(8)));
}
