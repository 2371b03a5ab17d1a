//! What does each kind of window lead to? Time walks of preset infera with explicit moments: 5 s scrapes, 180 s windows.

use std::sync::Arc;
use std::time::Duration;

use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::{Outcome, Plan, Reason, StepReason, Warning};
use crate::units::*;

fn elapsed(plan: &Plan) -> f64 {
    plan.observation.as_ref().unwrap().elapsed_seconds.get()
}

fn rate(plan: &Plan) -> f64 {
    plan.observation.as_ref().unwrap().requests_per_second.unwrap().get()
}

fn last_step(plan: &Plan, name: &str) -> StepReason {
    pool(plan, name).steps.iter().rev().map(|step| step.reason).find(|reason| *reason != StepReason::WithinLimit).unwrap()
}

/// The decision at 360 s after a window in which `spoil` changed what the router says at 300 s.
fn decision_after(spoil: impl Fn(&mut Sample)) -> Plan {
    let (mut world, mut router) = decided();
    let _quiet = world.drive(&mut router, 180.0, 295.0, BUSY);
    let mut sample = router.sample();
    spoil(&mut sample);
    let _spoilt = world.round(300.0, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample.clone())))]);
    for round in 61..=72 {
        // Everything keeps growing from where the spoilt page left it.
        for series in sample.histograms.values_mut().flat_map(|series| series.values_mut()) {
            series.count += 100.0;
            series.sum += 39.6;
        }
        let plan = world.round(f64::from(round) * 5.0, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample.clone())))]);
        if round == 72 {
            return plan;
        }
    }
    unreachable!()
}

#[test]
fn the_first_scrape_is_a_baseline_and_the_first_decision_comes_at_a_wall_clock_multiple() {
    let (mut world, mut router) = (World::new(infera_policy()), Router::new(2, 4));
    let plan = world.one(0.0, &router);
    assert_eq!((plan.reason, plan.held, plan.decided, counts(&plan)), (Reason::Baseline, true, false, [None, None]));
    let plan = world.drive(&mut router, 0.0, 175.0, BUSY);
    assert_eq!((plan.reason, plan.decided, counts(&plan)), (Reason::Baseline, false, [None, None]));
    let plan = world.drive(&mut router, 175.0, 180.0, BUSY);
    assert_eq!((plan.reason, plan.held, plan.decided, plan.outcome), (Reason::None, false, true, Some(Outcome::Changed)));
    assert_eq!((counts(&plan), elapsed(&plan)), ([Some(5), Some(2)], 180.0));
    let plan = world.drive(&mut router, 180.0, 355.0, BUSY);
    assert_eq!((plan.reason, plan.decided, plan.outcome, counts(&plan)), (Reason::None, false, None, [Some(5), Some(2)]));
    assert_eq!(world.drive(&mut router, 355.0, 360.0, BUSY).outcome, Some(Outcome::Unchanged));
}

#[test]
fn a_first_window_of_100_seconds_decides_but_does_not_shrink() {
    let (mut world, mut router) = (World::new(infera_policy()), Router::new(2, 4));
    let _baseline = world.one(80.0, &router);
    let plan = world.drive(&mut router, 80.0, 180.0, BUSY);
    assert_eq!((counts(&plan), elapsed(&plan)), ([Some(5), Some(4)], 100.0));
    assert_eq!(last_step(&plan, "m-decode"), StepReason::FirstWindowIncomplete);
    assert_eq!(counts(&world.drive(&mut router, 180.0, 360.0, BUSY)), [Some(5), Some(2)]);
}

#[test]
fn a_first_window_of_10_seconds_waits_for_the_next_boundary() {
    let (mut world, mut router) = (World::new(infera_policy()), Router::new(2, 4));
    let _baseline = world.one(170.0, &router);
    let plan = world.drive(&mut router, 170.0, 180.0, BUSY);
    assert_eq!((plan.reason, plan.decided, plan.outcome, counts(&plan)), (Reason::Baseline, true, Some(Outcome::Held), [None, None]));
    let plan = world.drive(&mut router, 180.0, 360.0, BUSY);
    assert_eq!((counts(&plan), elapsed(&plan)), ([Some(5), Some(2)], 190.0));
}

#[test]
fn a_list_that_grows_or_shrinks_spoils_its_window_and_only_that_one() {
    for grows in [true, false] {
        let mut world = World::new(infera_policy());
        let mut both = Routers::new(2, &Router::new(2, 4));
        let all = both.clone();
        if grows {
            both.routers.truncate(1);
        }
        let _baseline = world.round(0.0, both.readings());
        let before = both.drive(&mut world, 0.0, 180.0, &[BUSY]);
        if grows {
            both.routers.push(all.routers[1].clone());
        } else {
            both.routers.pop();
        }
        let plan = both.drive(&mut world, 180.0, 360.0, &[1.0]);
        assert_eq!((plan.reason, plan.outcome), (Reason::MembershipChanged, Some(Outcome::Held)), "grows: {grows}");
        assert_eq!(counts(&plan), counts(&before));
        assert!(both.drive(&mut world, 360.0, 540.0, &[1.0]).reason == Reason::None);
    }
}

#[test]
fn a_restart_is_seen_by_a_falling_counter_a_start_time_or_a_creation_time() {
    let started = |created: f64| {
        move |sample: &mut Sample| {
            let series = sample.histograms.get_mut(&Signal::Ttft).unwrap().values_mut().next().unwrap();
            series.created = Some(created);
        }
    };
    let mut policy_free = World::new(infera_policy());
    let mut router = Router { start: Some(MIDNIGHT as f64 - 100.0), ..Router::new(2, 4) };
    let _baseline = policy_free.one(0.0, &router);
    let _decided = policy_free.drive(&mut router, 0.0, 300.0, BUSY);
    router.start = Some(MIDNIGHT as f64 + 290.0);
    assert_eq!(policy_free.drive(&mut router, 300.0, 360.0, BUSY).reason, Reason::CounterReset, "process start");

    let mut world = World::new(infera_policy());
    let mut router = Router::new(2, 4);
    for at in 0..=72 {
        let mut sample = router.sample();
        started(if at < 50 { 1.0 } else { 2.0 })(&mut sample);
        let plan = world.round(f64::from(at) * 5.0, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample)))]);
        router.serve(Served::typical(100.0));
        if at == 72 {
            assert_eq!(plan.reason, Reason::CounterReset, "creation time");
        }
    }

    let (mut world, mut router) = decided();
    let _half = world.drive(&mut router, 180.0, 300.0, BUSY);
    let mut fresh = Router::new(2, 4);
    fresh.serve(Served::typical(1.0));
    let plan = world.drive(&mut fresh, 300.0, 360.0, BUSY);
    assert_eq!((plan.reason, plan.outcome, counts(&plan)), (Reason::CounterReset, Some(Outcome::Held), [Some(5), Some(2)]));
    assert_eq!(world.drive(&mut fresh, 360.0, 540.0, BUSY).reason, Reason::None);
}

#[test]
fn a_counter_that_climbs_back_over_its_baseline_is_still_seen_as_a_restart() {
    let (mut world, mut router) = decided();
    let _half = world.drive(&mut router, 180.0, 200.0, BUSY);
    let mut fresh = Router::new(2, 4);
    let _fell = world.drive(&mut fresh, 200.0, 205.0, 0.0);
    let plan = world.drive(&mut fresh, 205.0, 360.0, 100.0);
    assert!(fresh.requests > router.requests);
    assert_eq!(plan.reason, Reason::CounterReset);
}

#[test]
fn a_clock_step_discards_the_window_and_a_short_rest_of_it_is_stale() {
    for step in [40.0, -140.0] {
        let (mut world, mut router) = decided();
        let _half = world.drive(&mut router, 180.0, 295.0, BUSY);
        world.clock_error = step;
        // Both steps put the next boundary at 320 s: 360 and 180 of the stepped clock.
        let plan = world.drive(&mut router, 295.0, 320.0, BUSY);
        assert_eq!((plan.reason, plan.outcome, counts(&plan)), (Reason::StaleWindow, Some(Outcome::Held), [Some(5), Some(2)]), "{step}");
        let plan = world.drive(&mut router, 320.0, 500.0, BUSY);
        assert_eq!((plan.reason, elapsed(&plan), rate(&plan)), (Reason::None, 200.0, BUSY), "{step}");
    }
}

#[test]
fn a_clock_step_neither_ends_nor_prolongs_what_is_published() {
    for step in [1.5, 1000.0, -1000.0, 86_400.0] {
        let (mut world, _) = decided();
        world.clock_error = step;
        let plan = world.silent(180.0, 775.0);
        assert_eq!(counts(&plan), [Some(5), Some(2)], "{step}");
        world.clock_error = 0.0;
        assert_eq!(counts(&world.round(779.5, vec![("a:8000/metrics", failed())])), [Some(5), Some(2)], "{step}");
        assert_eq!(counts(&world.round(780.0, vec![("a:8000/metrics", failed())])), [None, None], "{step}");
    }
}

#[test]
fn a_clock_that_drifts_by_less_than_a_second_is_nothing() {
    let (mut world, mut router) = decided();
    let mut plan = None;
    for round in 37..=72 {
        world.clock_error += 0.02;
        plan = Some(world.drive(&mut router, f64::from(round - 1) * 5.0, f64::from(round) * 5.0, BUSY));
    }
    let plan = plan.unwrap();
    assert_eq!((plan.reason, plan.decided, elapsed(&plan)), (Reason::None, true, 180.0));
    world.clock_error += 0.9;
    assert_eq!(world.drive(&mut router, 360.0, 540.0, BUSY).reason, Reason::None);
}

#[test]
fn a_quiet_window_holds_deliberately_and_is_not_zero_demand() {
    let (mut world, mut router) = decided();
    let plan = world.drive(&mut router, 180.0, 360.0, 0.0);
    assert_eq!((plan.reason, counts(&plan)), (Reason::NoRequests, [Some(5), Some(2)]));
    assert!(pool(&plan, "m-prefill").unbounded_replicas.is_none(), "nothing was computed");
}

#[test]
fn requests_without_sla_histograms_are_told_from_no_requests() {
    for absent in [true, false] {
        let (mut world, mut router) = (World::new(infera_policy()), Router::new(2, 4));
        let mut plan = None;
        for round in 0..=36 {
            let mut sample = router.sample();
            for series in sample.histograms.values_mut().flat_map(|series| series.values_mut()) {
                *series = Histogram::default();
            }
            if absent {
                sample.histograms.clear();
            }
            plan = Some(world.round(f64::from(round) * 5.0, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample)))]));
            router.serve(Served::typical(100.0));
        }
        assert_eq!(plan.unwrap().reason, Reason::SlaMetricsDisabled, "families absent: {absent}");
    }
}

#[test]
fn latency_that_is_absent_or_below_a_tenth_of_a_millisecond_holds() {
    let cases: [fn(&mut Served); 4] =
        [|served| served.ttft = 0.0, |served| served.ttft = 0.000_09, |served| served.itl = 0.0, |served| served.ttft = f64::MIN_POSITIVE];
    for (index, spoil) in cases.into_iter().enumerate() {
        let (mut world, mut router) = decided();
        let mut served = Served::typical(3600.0);
        spoil(&mut served);
        router.serve(served);
        let plan = world.one(360.0, &router);
        assert_eq!((plan.reason, counts(&plan)), (Reason::LatencyAbsent, [Some(5), Some(2)]), "case {index}");
    }
    let plan = decision_after(|sample| drop(sample.histograms.remove(&Signal::Itl)));
    // Requests before the loss still carry their latency.
    assert_eq!(plan.reason, Reason::None);
}

#[test]
fn no_decode_replica_or_an_unknown_number_of_them_holds() {
    let (mut world, mut router) = decided();
    router.decode = 0;
    let plan = world.drive(&mut router, 180.0, 360.0, BUSY);
    assert_eq!((plan.reason, counts(&plan)), (Reason::NoDecodeReplicas, [Some(5), Some(2)]));
    assert_eq!(pool(&plan, "m-decode").current_replicas, Some(Replicas(0)));

    // A count that one page lacks is the one before; a count that a whole window lacks is not known, and not zero.
    for (role, reason) in [(Role::Decode, Reason::NoDecodeReplicas), (Role::Prefill, Reason::MissingCapability)] {
        let (mut world, mut router) = decided();
        let mut round = |at| {
            router.serve(Served::typical(3600.0));
            let mut sample = router.sample();
            sample.workers.remove(&role);
            world.round(at, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample)))])
        };
        assert_eq!((round(360.0).reason, round(540.0).reason), (Reason::None, reason));
        let plan = round(720.0);
        assert_eq!((plan.reason, counts(&plan)), (reason, [Some(5), Some(2)]));
    }
}

#[test]
fn an_objective_below_the_hardware_is_named_beside_a_computed_value() {
    let mut policy = infera_policy();
    policy.slo.itl = Positive::new(0.005).unwrap();
    let (mut world, mut router) = (World::new(policy), Router::new(2, 4));
    let _baseline = world.one(0.0, &router);
    let plan = world.drive(&mut router, 0.0, 180.0, BUSY);
    assert_eq!((plan.reason, plan.held, plan.outcome), (Reason::SloUnreachable, false, Some(Outcome::Changed)));
    assert_eq!((plan.generation.attainable, plan.prompt.attainable), (Some(false), Some(true)));
    assert!(plan.warnings.contains(&Warning::ItlBelowFloor));
    // The least occupied point: 11.75 ms of the profile, (900 - 150 * 1152/3072) = 843.75 tokens/s; 5120 / 843.75 = 6.07.
    assert_eq!(counts(&plan), [Some(5), Some(7)]);
}

#[test]
fn a_missed_round_does_not_double_the_demand_where_every_round_is_a_decision() {
    let (mut world, mut router) = (World::new(infera_policy()), Router::new(2, 4));
    let _baseline = world.one(0.0, &router);
    router.serve(Served::typical(3600.0));
    assert_eq!(counts(&world.one(180.0, &router)), [Some(5), Some(2)]);
    router.serve(Served::typical(3600.0));
    let plan = world.round(360.0, vec![("a:8000/metrics", failed())]);
    assert_eq!((plan.reason, plan.held, counts(&plan)), (Reason::AllTargetsDown, true, [Some(5), Some(2)]));
    router.serve(Served::typical(3600.0));
    let plan = world.one(540.0, &router);
    assert_eq!((counts(&plan), elapsed(&plan), rate(&plan)), ([Some(5), Some(2)], 360.0, BUSY));
}

#[test]
fn a_missed_round_at_a_boundary_shortens_the_window_and_changes_no_rate() {
    let (mut world, mut router) = decided();
    let _quiet = world.drive(&mut router, 180.0, 355.0, BUSY);
    router.serve(Served::typical(100.0));
    let plan = world.round(360.0, vec![("a:8000/metrics", failed())]);
    assert_eq!((plan.reason, counts(&plan), elapsed(&plan), rate(&plan)), (Reason::None, [Some(5), Some(2)], 175.0, BUSY));
    let plan = world.drive(&mut router, 360.0, 540.0, BUSY);
    assert_eq!((elapsed(&plan), rate(&plan)), (185.0, BUSY), "what was done while nobody looked counts once");
}

#[test]
fn a_late_round_lengthens_its_window_and_a_rest_of_half_a_minute_still_counts() {
    let (mut world, mut router) = decided();
    let _quiet = world.drive(&mut router, 180.0, 355.0, BUSY);
    router.serve(Served::typical(145.0 * BUSY));
    assert_eq!(elapsed(&world.one(500.0, &router)), 320.0);
    let plan = world.drive(&mut router, 500.0, 540.0, BUSY);
    assert_eq!((plan.reason, counts(&plan), elapsed(&plan), rate(&plan)), (Reason::None, [Some(5), Some(2)], 40.0, BUSY));
}

#[test]
fn a_late_round_lengthens_its_window_and_a_rest_of_seconds_is_stale() {
    let (mut world, mut router) = decided();
    let _quiet = world.drive(&mut router, 180.0, 355.0, BUSY);
    router.serve(Served::typical(165.0 * BUSY));
    let plan = world.one(520.0, &router);
    assert_eq!((plan.reason, counts(&plan), elapsed(&plan), rate(&plan)), (Reason::None, [Some(5), Some(2)], 340.0, BUSY));
    let plan = world.drive(&mut router, 520.0, 540.0, BUSY);
    assert_eq!((plan.reason, counts(&plan)), (Reason::StaleWindow, [Some(5), Some(2)]));
    let plan = world.drive(&mut router, 540.0, 720.0, BUSY);
    assert_eq!((plan.reason, elapsed(&plan), rate(&plan)), (Reason::None, 200.0, BUSY));
}

#[test]
fn a_window_of_more_than_two_intervals_is_not_averaged() {
    // The loop stood still from 355 s to 720 s: three intervals since the last decision.
    let (mut world, mut router) = decided();
    let _quiet = world.drive(&mut router, 180.0, 355.0, BUSY);
    let plan = world.one(720.0, &router);
    assert_eq!((plan.reason, counts(&plan)), (Reason::StaleWindow, [Some(5), Some(2)]));
    assert_eq!(rate(&world.drive(&mut router, 720.0, 900.0, BUSY)), BUSY);

    // Two rounds of an interval each were missed.
    let (mut world, mut router) = decided();
    for at in [360.0, 540.0] {
        let _missed = world.round(at, vec![("a:8000/metrics", failed())]);
    }
    router.serve(Served::typical(10_800.0));
    assert_eq!(world.one(720.0, &router).reason, Reason::StaleWindow);
    router.serve(Served::typical(3600.0));
    let plan = world.one(900.0, &router);
    assert_eq!((elapsed(&plan), rate(&plan)), (180.0, BUSY));
}

#[test]
fn a_new_series_of_a_known_target_counts_from_zero_and_a_vanished_one_up_to_its_last_sight() {
    let (mut world, mut router) = decided();
    let key = |text: &str| SeriesKey::from(text);
    let mut other = Router::new(2, 4);
    let mut plan = None;
    for round in 37..=72 {
        router.serve(Served::typical(50.0));
        let mut sample = router.sample();
        // A second worker's series, seen from 200 s to 300 s; it serves 10 requests a second.
        if (40..=60).contains(&round) {
            other.serve(Served::typical(50.0));
            for (signal, series) in other.sample().histograms {
                sample.histograms.get_mut(&signal).unwrap().insert(key("worker=\"b\""), series.into_values().next().unwrap());
            }
        }
        plan = Some(world.round(f64::from(round) * 5.0, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample)))]));
    }
    let plan = plan.unwrap();
    assert_eq!((plan.reason, plan.observation.unwrap().requests), (Reason::None, Some(Requests(36.0 * 50.0 + 21.0 * 50.0))));
    assert_eq!(world.drive(&mut router, 360.0, 540.0, BUSY).observation.unwrap().requests, Some(Requests(3600.0)), "and not again");
}

#[test]
fn a_target_that_answers_from_several_processes_in_turn_is_named() {
    for by_creation in [false, true] {
        let mut world = World::new(infera_policy());
        let mut routers = [Router::new(2, 4), Router::new(2, 4)];
        let mut plan = None;
        for round in 0..8_u8 {
            let at = usize::from(round % 2);
            routers[at].serve(Served::typical(100.0));
            let mut sample = routers[at].sample();
            let born = 1000.0 * (at as f64 + 1.0);
            if by_creation {
                sample.histograms.values_mut().flat_map(|series| series.values_mut()).for_each(|series| series.created = Some(born));
            } else {
                sample.process_start = Some(born);
            }
            plan = Some(world.round(f64::from(round) * 45.0, vec![("a:8000/metrics", Reading::Sample(Arc::new(sample)))]));
        }
        assert_eq!(plan.unwrap().reason, Reason::CounterReset);
        let target = world.memory.sources[0].targets.values().next().unwrap();
        assert!(target.alternates, "by creation: {by_creation}");
    }
}

#[test]
fn no_targets_and_a_failed_discovery_have_their_own_reasons() {
    for (failed, reason) in [(false, Reason::NoTargets), (true, Reason::DiscoveryFailed)] {
        let (mut world, _) = decided();
        let sources = vec![SourceInput { source: SourceId::Traffic, discovery_failed: failed, targets: Vec::new(), lifecycle: None }];
        let moment = world.moment(360.0);
        let (plan, memory) = crate::planner::plan(&ModelInput::of(sources), world.memory.clone(), &world.policy, moment);
        assert_eq!((plan.reason, plan.decided, counts(&plan)), (reason, true, [Some(5), Some(2)]));
        world.memory = memory;
        assert_eq!(counts(&world.round(780.0, Vec::new())), [None, None], "blind holds expire");
    }
}

#[test]
fn a_failed_discovery_that_keeps_the_old_list_changes_nothing() {
    let (world, mut router) = decided();
    router.serve(Served::typical(3600.0));
    let targets = vec![TargetReading { target: TargetId::from("a:8000/metrics"), at: Duration::from_secs(360), reading: router.reading() }];
    let sources = vec![SourceInput { source: SourceId::Traffic, discovery_failed: true, targets, lifecycle: None }];
    let (plan, _) = crate::planner::plan(&ModelInput::of(sources), world.memory.clone(), &world.policy, world.moment(360.0));
    assert_eq!((plan.reason, rate(&plan)), (Reason::None, BUSY));
}

#[test]
fn the_worked_example_of_the_readme() {
    let (mut world, mut router) = (World::new(infera_policy()), Router::new(2, 4));
    router.serve(Served::typical(5000.0));
    let _baseline = world.one(0.0, &router);
    router.serve(Served::typical(612.0));
    let plan = world.one(180.0, &router);
    let trace = plan.envelope.as_ref().unwrap();
    for (what, ours, digits, written) in [
        ("request duration", trace.request_duration_seconds.get(), 3, "3.485"),
        ("prompt ratio", plan.latency_ratio.prompt.unwrap().get(), 3, "1.842"),
        ("in flight", trace.in_flight_per_decode_replica.get(), 3, "2.962"),
        ("KV share", trace.kv_fraction.get(), 1, "0.1"),
        ("generation ratio", plan.latency_ratio.generation.unwrap().get(), 3, "1.031"),
        ("ITL budget", trace.effective_itl_budget_seconds.get() * 1000.0, 1, "48.5"),
        ("decode point", trace.capacity_tokens_per_second_per_gpu.get(), 2, "3035.86"),
        ("decode occupancy", trace.capacity_kv_fraction.get(), 3, "0.698"),
        ("estimated TTFT", plan.estimated.recommended.ttft_seconds.unwrap().get(), 3, "0.396"),
        ("estimated ITL", plan.estimated.recommended.itl_seconds.unwrap().get(), 4, "0.0121"),
    ] {
        assert_eq!(format!("{ours:.digits$}"), written, "{what}");
    }
    let budgets = [trace.prefill_throughput_budget, trace.prefill_queue_budget, trace.decode_budget];
    assert_eq!((budgets.map(|budget| budget.0), counts(&plan)), ([1, 2, 1], [Some(2), Some(1)]));
    let _missed = world.round(360.0, vec![("a:8000/metrics", failed())]);
    router.serve(Served::typical(1224.0));
    assert!((rate(&world.one(540.0, &router)) - 3.4).abs() < 1e-12);
}
