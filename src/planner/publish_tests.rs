//! Does each hold, mode and override serve what the contract says, and no longer?

use std::time::Duration;

use super::*;
use crate::planner::policy::{Limits, Pin};
use crate::planner::tests::world::infera_policy;
use crate::units::Moment;

const START: Duration = Duration::from_secs(1_795_953_600);

fn at(seconds: u64) -> Moment {
    Moment { monotonic: Duration::from_secs(seconds), wall: START + Duration::from_secs(seconds) }
}

fn standing(reason: Reason, coverage_good: bool) -> Standing {
    Standing { reason, decided: None, coverage_good }
}

/// A pool whose value of 5 was computed at 0 s and may be served until 600 s.
fn served() -> PoolMemory {
    let published = Published { replicas: Replicas(5), timestamp: START, valid_until: START + Duration::from_secs(600) };
    PoolMemory {
        planned: Some(Replicas(5)),
        wanted: None,
        floor: None,
        published: Some(published),
        served: Some(Replicas(5)),
        frozen: None,
        baseline: false,
        learning: None,
    }
}

/// What is left at 300 s and at 600 s of a hold that began at 0 s.
fn held(reason: Reason, coverage_good: bool) -> [Option<u32>; 2] {
    let policy = infera_policy();
    let mut memory = served();
    [300, 600].map(|seconds| {
        let serving = publish(&mut memory, &policy.pools[0], &policy, standing(reason, coverage_good), at(seconds));
        assert_eq!(serving.reason, reason);
        serving.published.map(|published| published.replicas.0)
    })
}

#[test]
fn every_reason_holds_as_the_contract_says() {
    use Reason::*;
    let blind = [
        NoTargets,
        NoDecodeReplicas,
        NonpositiveProfileLatency,
        AllTargetsDown,
        CoverageLow,
        StaleWindow,
        DiscoveryFailed,
        LatencyAbsent,
        MissingCapability,
        SlaMetricsDisabled,
        LintViolation,
    ];
    let deliberate = [Transition, Rollout, NotConverged, NoRequests, MembershipChanged, CounterReset, Baseline];
    for reason in Reason::ALL.iter().copied() {
        let kind = match reason {
            Frozen | Pinned => Some(HoldKind::Decreed),
            None | SloUnreachable => Option::None,
            reason if blind.contains(&reason) => Some(HoldKind::Blind),
            reason if deliberate.contains(&reason) => Some(HoldKind::Deliberate),
            reason => panic!("{reason} is in no list"),
        };
        assert_eq!(reason.hold_kind(), kind, "{reason}");
    }
    for reason in blind {
        for coverage_good in [true, false] {
            assert_eq!(held(reason, coverage_good), [Some(5), Option::None], "{reason}");
        }
    }
    for reason in deliberate {
        assert_eq!(held(reason, true), [Some(5), Some(5)], "{reason}");
        assert_eq!(held(reason, false), [Some(5), Option::None], "{reason}");
    }
}

#[test]
fn a_value_between_two_decisions_is_neither_held_nor_renewed() {
    let policy = infera_policy();
    let mut memory = served();
    let serving = publish(&mut memory, &policy.pools[0], &policy, standing(Reason::None, true), at(100));
    assert_eq!((serving.held, serving.published), (false, served().published));
}

#[test]
fn an_unreachable_objective_is_no_hold() {
    let policy = infera_policy();
    let mut memory = served();
    let standing = Standing { reason: Reason::SloUnreachable, decided: Some(Replicas(9)), coverage_good: true };
    let serving = publish(&mut memory, &policy.pools[0], &policy, standing, at(100));
    assert_eq!(
        (serving.held, serving.published.unwrap().replicas, serving.published.unwrap().timestamp),
        (false, Replicas(9), at(100).wall)
    );
}

#[test]
fn a_value_expires_at_the_very_end_of_hold_for() {
    let policy = infera_policy();
    let mut memory = served();
    let blind = standing(Reason::AllTargetsDown, false);
    let last = Moment { wall: at(600).wall - Duration::from_nanos(1), ..at(600) };
    assert!(publish(&mut memory, &policy.pools[0], &policy, blind, last).published.is_some());
    assert!(publish(&mut memory, &policy.pools[0], &policy, blind, at(600)).published.is_none());
    assert_eq!(memory, PoolMemory { published: None, served: None, ..served() }, "the plan is not forgotten");
}

#[test]
fn a_pin_holds_to_its_end_and_no_longer() {
    let mut policy = infera_policy();
    policy.pools[0].pin = Some(Pin { replicas: Replicas(7), until: at(5000).wall, reason: "test".to_owned() });
    let mut memory = PoolMemory::default();
    let blind = standing(Reason::AllTargetsDown, false);
    let serving = publish(&mut memory, &policy.pools[0], &policy, blind, at(0));
    assert_eq!(serving.published, Some(Published { replicas: Replicas(7), timestamp: at(0).wall, valid_until: at(5000).wall }));
    assert_eq!((serving.held, serving.reason, serving.overridden), (true, Reason::Pinned, Some(OverrideKind::Pin)));
    let serving = publish(&mut memory, &policy.pools[0], &policy, blind, at(5000));
    assert_eq!((serving.published, serving.reason, serving.overridden), (None, Reason::AllTargetsDown, None));
}

#[test]
fn the_end_of_shadow_uncovers_the_plan_of_that_moment() {
    let mut policy = infera_policy();
    policy.mode = Mode::Shadow;
    let mut memory = served();
    let decided = Standing { reason: Reason::None, decided: Some(Replicas(9)), coverage_good: true };
    let serving = publish(&mut memory, &policy.pools[0], &policy, decided, at(100));
    assert_eq!((serving.published, serving.overridden), (None, Some(OverrideKind::Shadow)));
    policy.mode = Mode::Publish;
    let serving = publish(&mut memory, &policy.pools[0], &policy, standing(Reason::None, true), at(105));
    assert_eq!(serving.published.map(|published| published.replicas), Some(Replicas(9)));
}

#[test]
fn freeze_after_shadow_has_nothing_to_keep() {
    let mut policy = infera_policy();
    policy.mode = Mode::Shadow;
    let mut memory = served();
    let _hidden = publish(&mut memory, &policy.pools[0], &policy, standing(Reason::None, true), at(100));
    policy.mode = Mode::Freeze;
    let serving = publish(&mut memory, &policy.pools[0], &policy, standing(Reason::None, true), at(105));
    assert_eq!((serving.published, serving.reason), (None, Reason::Frozen));
}

#[test]
fn limits_bind_what_is_published_and_what_is_frozen() {
    let mut policy = infera_policy();
    policy.pools[0].limits = Limits::new(Replicas(1), Replicas(3)).unwrap();
    let mut memory = PoolMemory { frozen: Some(Replicas(5)), ..served() };
    policy.mode = Mode::Freeze;
    let serving = publish(&mut memory, &policy.pools[0], &policy, standing(Reason::Baseline, false), at(100));
    assert_eq!((serving.published.unwrap().replicas, memory.frozen), (Replicas(3), Some(Replicas(3))));
    policy.mode = Mode::Publish;
    let _ = publish(&mut memory, &policy.pools[0], &policy, standing(Reason::Baseline, false), at(101));
    assert_eq!(memory.frozen, None, "the end of freeze");
}

#[test]
fn following_a_clock_step_there_and_back_changes_nothing() {
    let mut memory = served();
    let step = Duration::new(12_345, 678_901_234);
    shift(&mut memory, ClockStep::Forward(step));
    assert_eq!(memory.published.unwrap().valid_until, START + Duration::from_secs(600) + step);
    shift(&mut memory, ClockStep::Back(step));
    assert_eq!(memory, served());
}
