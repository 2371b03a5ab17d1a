//! What is published while the plan is held, overridden, reloaded or restored?

use std::time::Duration;

use super::world::*;
use crate::planner::input::*;
use crate::planner::memory::{Lasting, Memory};
use crate::planner::plan::{Limit, LoopDecision, Outcome, OverrideKind, Reason, StepReason};
use crate::planner::policy::*;
use crate::planner::{hold, lint, reissue};
use crate::units::*;

fn pin(world: &World, replicas: u32, until: f64) -> Option<Pin> {
    Some(Pin { replicas: Replicas(replicas), until: world.moment(until).wall, reason: "load test".to_owned() })
}

fn nothing_scraped() -> ModelInput {
    ModelInput::of(Vec::new())
}

#[test]
fn a_deliberate_hold_renews_while_most_targets_answer_and_runs_out_otherwise() {
    let mut world = World::new(infera_policy());
    let mut routers = Routers::new(3, &Router::new(2, 4));
    let _baseline = world.round(0.0, routers.readings());
    let _decided = routers.drive(&mut world, 0.0, 180.0, &[BUSY / 3.0]);
    let plan = routers.drive(&mut world, 180.0, 3600.0, &[0.0]);
    assert_eq!((plan.reason, counts(&plan)), (Reason::NoRequests, [Some(5), Some(2)]));
    assert_eq!(pool(&plan, "m-prefill").published.unwrap().timestamp, world.moment(3600.0).wall);

    routers.hung = vec![0, 1];
    let plan = routers.drive(&mut world, 3600.0, 3700.0, &[0.0]);
    assert_eq!(plan.reason, Reason::NoRequests, "the verdict of the last window");
    assert_eq!(pool(&plan, "m-prefill").published.unwrap().timestamp, world.moment(3605.0).wall, "late at first, down from then on");
    let plan = routers.drive(&mut world, 3700.0, 4200.0, &[0.0]);
    assert_eq!((plan.reason, counts(&plan)), (Reason::CoverageLow, [Some(5), Some(2)]));
    assert_eq!(counts(&routers.drive(&mut world, 4200.0, 4205.0, &[0.0])), [None, None]);
}

#[test]
fn new_limits_bind_at_once_on_planned_published_held_and_frozen_values() {
    let small = Limits::new(Replicas(1), Replicas(3)).unwrap();
    let large = Limits::new(Replicas(8), Replicas(9)).unwrap();
    for (limits, expected) in [(small, 3), (large, 8)] {
        for mode in [Mode::Publish, Mode::Freeze] {
            let (mut world, mut router) = decided();
            world.policy.mode = mode;
            let _before = world.drive(&mut router, 180.0, 190.0, BUSY);
            world.policy.pools[0].limits = limits;
            let plan = world.drive(&mut router, 190.0, 195.0, BUSY);
            assert_eq!(counts(&plan), [Some(expected), Some(2)]);
            assert_eq!(pool(&plan, "m-prefill").planned_replicas, Some(Replicas(expected)));
            assert!(!plan.decided && pool(&plan, "m-prefill").steps.is_empty(), "its steps would not lead to the plan");
            if mode == Mode::Freeze {
                assert_eq!(world.memory.pools[&PoolId::from("m-prefill")].frozen, Some(Replicas(expected)));
            }
        }
        let (mut world, _) = decided();
        let _blind = world.silent(180.0, 200.0);
        world.policy.pools[0].limits = limits;
        let plan = world.silent(200.0, 205.0);
        assert_eq!((plan.reason, counts(&plan)), (Reason::AllTargetsDown, [Some(expected), Some(2)]));
    }
}

#[test]
fn a_reload_between_rounds_binds_without_deciding() {
    let (mut world, mut router) = decided();
    let last = world.drive(&mut router, 180.0, 185.0, BUSY);
    world.policy.pools[0].limits = Limits::new(Replicas(1), Replicas(3)).unwrap();
    world.policy.pools[1].pin = pin(&world, 9, 1000.0);
    let (plan, memory) = reissue(&last, world.memory.clone(), &world.policy, false, world.moment(186.0));
    assert_eq!(lint::lint(&plan, &world.policy, &world.memory), []);
    assert_eq!((counts(&plan), plan.decided, plan.reason), ([Some(3), Some(9)], false, Reason::None));
    world.memory = memory;
    assert_eq!(counts(&world.drive(&mut router, 185.0, 190.0, BUSY)), [Some(3), Some(9)]);
}

#[test]
fn a_reload_just_after_a_boundary_does_not_cost_its_decision() {
    let (mut world, mut router) = decided();
    let last = world.drive(&mut router, 180.0, 355.0, BUSY);
    let (_, memory) = reissue(&last, world.memory.clone(), &world.policy, false, world.moment(360.05));
    world.memory = memory;
    assert_eq!(world.drive(&mut router, 355.0, 360.1, BUSY).outcome, Some(Outcome::Unchanged));
}

#[test]
fn a_pin_is_published_from_the_first_tick_without_any_scrape() {
    let mut world = World::new(infera_policy());
    world.policy.pools[0].pin = pin(&world, 7, 5000.0);
    let (plan, memory) = hold(&nothing_scraped(), Memory::default(), &world.policy, world.moment(0.0), Reason::Baseline);
    assert_eq!((plan.reason, plan.held, counts(&plan)), (Reason::Baseline, true, [Some(7), None]));
    let prefill = pool(&plan, "m-prefill");
    assert_eq!((prefill.reason, prefill.overridden, prefill.held), (Reason::Pinned, Some(OverrideKind::Pin), true));
    assert!(prefill.limits_active.contains(&Limit::Pinned));
    assert_eq!(prefill.published.unwrap().valid_until, world.moment(5000.0).wall, "never before its end");
    world.memory = memory;
    let plan = world.silent(0.0, 4995.0);
    assert_eq!((plan.reason, counts(&plan)), (Reason::AllTargetsDown, [Some(7), None]));
    assert_eq!(counts(&world.silent(4995.0, 5000.0)), [None, None], "and not a round longer");
}

#[test]
fn the_end_of_a_pin_uncovers_the_plan_of_that_moment() {
    let (mut world, mut router) = decided();
    world.policy.pools[0].pin = pin(&world, 7, 1000.0);
    let plan = world.drive(&mut router, 180.0, 360.0, BUSY);
    assert_eq!((counts(&plan), pool(&plan, "m-prefill").planned_replicas), ([Some(7), Some(2)], Some(Replicas(5))));
    // The load falls below the pin; the plan follows it unseen.
    let plan = world.drive(&mut router, 360.0, 995.0, 10.0);
    assert_eq!((counts(&plan)[0], plan.reason), (Some(7), Reason::None));
    let plan = world.drive(&mut router, 995.0, 1000.0, 10.0);
    assert_eq!((counts(&plan)[0], plan.decided), (Some(3), false), "from the decision at 900 s");
}

#[test]
fn a_pin_outside_reloaded_limits_is_published_inside_them() {
    let (mut world, mut router) = decided();
    world.policy.pools[0].pin = pin(&world, 7, 1000.0);
    world.policy.pools[0].limits = Limits::new(Replicas(1), Replicas(6)).unwrap();
    assert_eq!(counts(&world.drive(&mut router, 180.0, 185.0, BUSY))[0], Some(6));
}

#[test]
fn a_pin_is_stronger_than_shadow_and_freeze() {
    for mode in [Mode::Shadow, Mode::Freeze] {
        let (mut world, mut router) = decided();
        world.policy.mode = mode;
        let _latched = world.drive(&mut router, 180.0, 185.0, BUSY);
        world.policy.pools[0].pin = pin(&world, 7, 300.0);
        let plan = world.drive(&mut router, 185.0, 190.0, BUSY);
        assert_eq!(counts(&plan), [Some(7), (mode == Mode::Freeze).then_some(2)]);
        let plan = world.drive(&mut router, 190.0, 300.0, BUSY);
        assert_eq!(counts(&plan), if mode == Mode::Freeze { [Some(5), Some(2)] } else { [None, None] });
    }
}

#[test]
fn freeze_under_a_pin_latches_the_pinned_count_since_it_is_what_was_published_last() {
    let (mut world, mut router) = decided();
    world.policy.pools[0].pin = pin(&world, 7, 300.0);
    let _pinned = world.drive(&mut router, 180.0, 190.0, BUSY);
    world.policy.mode = Mode::Freeze;
    assert_eq!(counts(&world.drive(&mut router, 190.0, 1000.0, 1.0)), [Some(7), Some(2)]);
}

#[test]
fn freeze_keeps_the_last_published_integer_without_expiry_and_across_a_restart() {
    let (mut world, mut router) = decided();
    world.policy.mode = Mode::Freeze;
    let plan = world.drive(&mut router, 180.0, 360.0, 1.0);
    assert_eq!((counts(&plan), pool(&plan, "m-prefill").planned_replicas), ([Some(5), Some(2)], Some(Replicas(2))));
    assert_eq!((pool(&plan, "m-prefill").reason, plan.reason, plan.outcome), (Reason::Frozen, Reason::None, Some(Outcome::Changed)));
    assert_eq!(world.drive(&mut router, 360.0, 540.0, 1.0).outcome, Some(Outcome::Unchanged), "the plan stayed, whatever is frozen");
    assert_eq!(counts(&world.silent(540.0, 2000.0)), [Some(5), Some(2)]);

    let mut restarted = World::new(world.policy.clone());
    let restored = Memory::restored(world.memory.lasting());
    let (plan, memory) = hold(&nothing_scraped(), restored, &restarted.policy, restarted.moment(90_000.0), Reason::Baseline);
    assert_eq!(counts(&plan), [Some(5), Some(2)]);
    restarted.memory = memory;
    assert_eq!(counts(&restarted.silent(90_000.0, 91_000.0)), [Some(5), Some(2)]);
}

#[test]
fn freeze_with_nothing_published_publishes_nothing() {
    let mut policy = infera_policy();
    policy.mode = Mode::Freeze;
    let (mut world, mut router) = (World::new(policy), Router::new(2, 4));
    let _baseline = world.one(0.0, &router);
    let plan = world.drive(&mut router, 0.0, 360.0, BUSY);
    assert_eq!((counts(&plan), plan.reason), ([None, None], Reason::None));
    assert_eq!(pool(&plan, "m-prefill").planned_replicas, Some(Replicas(5)));
}

#[test]
fn the_end_of_freeze_uncovers_the_plan_of_that_moment() {
    let (mut world, mut router) = decided();
    world.policy.mode = Mode::Freeze;
    let frozen = world.drive(&mut router, 180.0, 1000.0, 1.0);
    assert_eq!(counts(&frozen), [Some(5), Some(2)]);
    world.policy.mode = Mode::Publish;
    let plan = world.drive(&mut router, 1000.0, 1005.0, 1.0);
    assert_eq!((counts(&plan), pool(&plan, "m-prefill").overridden), ([Some(2), Some(1)], None));
}

#[test]
fn shadow_publishes_nothing_and_goes_on_computing() {
    let mut policy = infera_policy();
    policy.mode = Mode::Shadow;
    let (mut world, mut router) = (World::new(policy), Router::new(2, 4));
    let _baseline = world.one(0.0, &router);
    let plan = world.drive(&mut router, 0.0, 180.0, BUSY);
    assert_eq!((counts(&plan), plan.outcome), ([None, None], Some(Outcome::Changed)));
    assert_eq!(pool(&plan, "m-prefill").planned_replicas, Some(Replicas(5)));
    let plan = world.drive(&mut router, 180.0, 360.0, BUSY);
    assert_eq!((counts(&plan), plan.outcome), ([None, None], Some(Outcome::Unchanged)));
    assert_eq!(pool(&plan, "m-prefill").slow_loop, LoopDecision::Stay);
}

#[test]
fn a_restored_recommendation_is_published_at_once_and_not_shrunk_before_a_whole_window() {
    let (world, _) = decided();
    let mut restarted = World::new(infera_policy());
    let restored = Memory::restored(world.memory.lasting());
    let (plan, memory) = hold(&nothing_scraped(), restored, &restarted.policy, restarted.moment(250.0), Reason::Baseline);
    assert_eq!((counts(&plan), plan.reason), ([Some(5), Some(2)], Reason::Baseline));
    restarted.memory = memory;
    let mut router = Router::new(2, 4);
    let _baseline = restarted.one(255.0, &router);
    let plan = restarted.drive(&mut router, 255.0, 360.0, 1.0);
    assert_eq!((plan.reason, counts(&plan)), (Reason::None, [Some(5), Some(2)]));
    assert!(pool(&plan, "m-prefill").steps.iter().any(|step| step.reason == StepReason::FirstWindowIncomplete));
    assert_eq!(counts(&restarted.drive(&mut router, 360.0, 540.0, 1.0)), [Some(2), Some(1)]);
}

#[test]
fn a_restored_count_without_its_plan_is_not_shrunk_either() {
    let (world, _) = decided();
    let mut pools = world.memory.pools;
    pools.values_mut().for_each(|pool| pool.planned = None);
    let mut restarted = World { memory: Memory::restored(Lasting { pools, ..Lasting::default() }), ..World::new(infera_policy()) };
    let mut router = Router::new(2, 4);
    let _baseline = restarted.one(255.0, &router);
    assert_eq!(counts(&restarted.drive(&mut router, 255.0, 360.0, 1.0)), [Some(5), Some(2)]);
}

#[test]
fn a_violation_at_a_boundary_holds_until_the_next_decision() {
    let (mut world, mut router) = decided();
    let _quiet = world.drive(&mut router, 180.0, 355.0, 1.0);
    router.serve(Served::typical(5.0));
    let target = TargetReading { target: TargetId::from("a:8000/metrics"), at: Duration::from_secs(360), reading: router.reading() };
    let source = SourceInput { source: SourceId::Traffic, discovery_failed: false, targets: vec![target], lifecycle: None };
    let input = ModelInput::of(vec![source]);
    let (plan, memory) = hold(&input, world.memory.clone(), &world.policy, world.moment(360.0), Reason::LintViolation);
    assert_eq!((plan.reason, plan.decided, plan.outcome), (Reason::LintViolation, true, Some(Outcome::Held)));
    assert_eq!(lint::lint(&plan, &world.policy, &world.memory), []);
    world.memory = memory;
    let plan = world.drive(&mut router, 360.0, 535.0, 1.0);
    assert_eq!((plan.reason, plan.held, counts(&plan)), (Reason::LintViolation, true, [Some(5), Some(2)]));
    assert_eq!(counts(&world.drive(&mut router, 535.0, 540.0, 1.0)), [Some(2), Some(1)]);
}

#[test]
fn a_clock_step_during_a_violation_moves_what_is_published() {
    let (mut world, _) = decided();
    world.clock_error = 5000.0;
    let (plan, _) = hold(&nothing_scraped(), world.memory.clone(), &world.policy, world.moment(185.0), Reason::LintViolation);
    assert_eq!(counts(&plan), [Some(5), Some(2)]);
}
