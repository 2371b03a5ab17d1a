//! Does preset auto size, hold, grow and give back as its page says, and does it settle?

use std::time::Duration;

use super::fleet::*;
use super::world::pool;
use crate::planner::input::*;
use crate::planner::memory::Memory;
use crate::planner::plan::{Limit, Plan, PoolPlan, Reason, StepReason, Warning};
use crate::planner::policy::*;
use crate::units::*;

fn limited(mut policy: ModelPolicy, min: u32, max: u32) -> ModelPolicy {
    policy.pools.iter_mut().for_each(|pool| pool.limits = Limits::new(Replicas(min), Replicas(max)).unwrap());
    policy
}

/// Ten minutes in which two aggregated servers see loads that differ, so that their iterations are learned.
pub(super) fn learned(policy: ModelPolicy) -> Fleet {
    let mut fleet = Fleet::new(policy, &[2]);
    for tick in 0..120_usize {
        let window = tick / 3;
        fleet.input = [1200.0, 2048.0, 3000.0][window % 3];
        let _plan = fleet.round(4.0 + 8.0 * (window % 4) as f64 / 3.0);
    }
    fleet.input = INPUT;
    fleet
}

fn needs_no_fewer(pool: &PoolPlan) {
    let trace = pool.auto.as_ref().unwrap();
    assert!(trace.within.unwrap() >= trace.share, "{trace:?}");
    assert!(trace.within_less.is_none_or(|less| less < trace.share), "{trace:?}");
}

/// Percent with one digit.
fn percent(share: Option<Ratio>) -> String {
    share.map_or_else(String::new, |share| format!("{:.1}", share.get() * 100.0))
}

#[test]
fn the_worked_example_of_the_readme() {
    let mut fleet = Fleet::new(auto_policy(), &[8, 4]);
    let plan = fleet.last(120.0, 20.0);
    plan.pools.iter().for_each(needs_no_fewer);
    let of = |name: &str| {
        let trace = pool(&plan, name).auto.as_ref().unwrap();
        let shares = [trace.within_less, trace.within].map(percent);
        (format!("{:.2}", trace.replica_rate.get()), shares, trace.need.0, trace.padded.0)
    };
    let prefill = pool(&plan, "m-prefill").auto.as_ref().unwrap();
    assert_eq!((prefill.rate.get(), prefill.slope, prefill.noise, prefill.over.get()), (20.0, 0.0, Ratio(1.0), 115.0));
    assert_eq!((format!("{:.3}", prefill.error.get()), format!("{:.2}", prefill.planned_rate.get())), ("0.417".into(), "20.42".into()));
    assert_eq!((prefill.horizon.get(), prefill.share.get()), (130.0, 0.995));
    assert_eq!(of("m-prefill"), ("4.62".into(), ["98.0".into(), "99.8".into()], 7, 8));
    assert_eq!(of("m-decode"), ("13.21".into(), ["0.0".into(), "100.0".into()], 2, 2));
    assert_eq!(plan.reason, Reason::None);
}

#[test]
fn an_aggregated_pool_is_sized_by_what_was_learned_of_its_iterations() {
    let mut fleet = learned(aggregated_policy());
    // What was learned came from loads that changed all the time. Their noise is forgotten with them.
    let plan = fleet.last(700.0, 40.0);
    needs_no_fewer(pool(&plan, "p"));
    // A request takes 41 ms of prompt and 256 tokens of 85 us: 63 ms.
    assert!((3..=5).contains(&pool(&plan, "p").auto.as_ref().unwrap().need.0), "{plan:?}");
}

#[test]
fn a_constant_load_settles_and_stays_at_every_boundary() {
    for rate in [0.3, 4.6, 9.3, 20.0, 33.0] {
        let mut fleet = Fleet::new(auto_policy(), &[3, 3]);
        let _settling = fleet.follow(600.0, rate);
        let plans = fleet.follow(600.0, rate);
        let first = recommended(&plans[0]);
        assert!(plans.iter().all(|plan| recommended(plan) == first), "{rate}: from {first:?}");
    }
}

#[test]
fn planning_again_at_the_same_moment_on_its_own_result_changes_nothing() {
    let mut fleet = Fleet::new(auto_policy(), &[3, 3]);
    let plan = fleet.last(300.0, 20.0);
    let again = fleet.look();
    assert_eq!(recommended(&plan), recommended(&again));
    for (one, other) in plan.pools.iter().zip(&again.pools) {
        assert_eq!((&one.auto, &one.steps, one.planned_replicas), (&other.auto, &other.steps, other.planned_replicas));
    }
}

#[test]
fn a_pool_is_planned_alone_as_it_is_beside_its_partner() {
    let of = |policy: ModelPolicy, replicas: &[usize]| recommended(&Fleet::new(policy, replicas).last(400.0, 20.0));
    let pair = of(auto_policy(), &[4, 4]);
    assert_eq!(pair, [7, 2]);
    for (index, count) in pair.into_iter().enumerate() {
        let policy = auto_policy();
        let alone = ModelPolicy { pools: vec![policy.pools[index].clone()], ..policy };
        assert_eq!(of(alone, &[4]), [count]);
    }
}

#[test]
fn scaling_demand_never_plans_fewer() {
    let mut before = vec![0, 0];
    for step in 0..30 {
        let rate = 0.5 * 1.2_f64.powi(step);
        let mut fleet = Fleet::new(auto_policy(), &[10, 10]);
        let plan = fleet.last(60.0, rate);
        let needs: Vec<u32> = plan.pools.iter().map(|pool| pool.auto.as_ref().unwrap().need.0).collect();
        assert!(needs.iter().zip(&before).all(|(now, before)| now >= before), "{rate}: {needs:?} after {before:?}");
        before = needs;
    }
    assert!(before[0] > 20, "{before:?}");
}

#[test]
fn prefill_waits_for_a_partner_that_is_not_learned_and_decode_does_not() {
    fn taught(edit: fn(&mut Sample)) -> (Fleet, Plan) {
        let policy = ModelPolicy { capacity: CapacityModel::Iterations, ..auto_policy() };
        let mut fleet = Fleet::new(policy, &[2, 2]);
        fleet.edit = edit;
        for tick in 0..120_usize {
            let _plan = fleet.round(2.0 + (tick / 3 % 4) as f64 * 4.0);
        }
        let plan = fleet.last(10.0, 10.0);
        (fleet, plan)
    }
    let known = |fleet: &Fleet, name: &str| fleet.world.memory.watched[&PoolId::from(name)].iterations.line(5).is_ok();
    let (fleet, plan) = taught(|sample| {
        if sample.role == Some(Role::Prefill) {
            sample.histograms.remove(&Signal::Ttft);
        }
    });
    assert_eq!(["m-prefill", "m-decode"].map(|name| known(&fleet, name)), [false, true]);
    assert_eq!(["m-prefill", "m-decode"].map(|name| pool(&plan, name).reason), [Reason::NotConverged, Reason::None]);
    assert_eq!(recommended(&plan), [0, 2], "nothing is given back while prefill may hold up what comes");
    let decode = pool(&plan, "m-decode");
    assert_eq!(decode.unbounded_replicas, Some(Replicas(1)));
    assert!(decode.steps.iter().any(|step| step.reason == StepReason::NotConverged), "{:?}", decode.steps);
    assert_eq!(recommended(&fleet.clone().last(30.0, 50.0)), [0, 5]);
    let (fleet, plan) = taught(|sample| match sample.role {
        Some(Role::Decode) => sample.gauges.retain(|gauge, _| *gauge == Gauge::Running),
        _ => _ = sample.tallies.insert(Tally::PrefillSeconds, Few::from([(SeriesKey::default(), 0.1)])),
    });
    assert_eq!(["m-prefill", "m-decode"].map(|name| known(&fleet, name)), [false, false]);
    assert_eq!(recommended(&plan), [0, 0]);
    assert_eq!(plan.reason, Reason::NotConverged);
}

/// Four decode replicas at one load, 14.2 ms a step.
fn steadily_beyond(itl: f64, edit: fn(&mut Sample)) -> Vec<Plan> {
    let mut policy = ModelPolicy { capacity: CapacityModel::Iterations, ..auto_policy() };
    policy.slo.itl = Positive::new(itl).unwrap();
    let mut fleet = Fleet::new(policy, &[2, 4]);
    fleet.edit = edit;
    fleet.follow(900.0, 80.0)
}

fn decode_counts(plans: &[Plan]) -> Vec<u32> {
    let mut counts: Vec<u32> = plans.iter().filter_map(|plan| pool(plan, "m-decode").recommended_replicas).map(|count| count.0).collect();
    counts.dedup();
    counts
}

#[test]
fn steps_that_are_alike_and_too_long_ask_for_more_replicas_and_are_learned_by_that() {
    let plans = steadily_beyond(0.012, |sample| {
        if sample.role == Some(Role::Prefill) {
            let took = sample.histograms[&Signal::Ttft].values().map(|histogram| histogram.count * 0.01).sum();
            sample.tallies.insert(Tally::PrefillSeconds, Few::from([(SeriesKey::default(), took)]));
        }
    });
    let first = plans.iter().position(|plan| plan.warnings.contains(&Warning::SpacingUnlearned)).unwrap();
    assert!((8..=12).contains(&first), "{first}: five windows of 10 s, of which none tells what a request costs");
    assert_eq!(pool(&plans[first], "m-decode").recommended_replicas, Some(Replicas(6)), "1.1 * 4 * 14.2 / 12");
    let last = pool(plans.last().unwrap(), "m-decode");
    assert!(last.auto.as_ref().unwrap().within.unwrap().get() > 0.99, "{last:?}");
    assert_eq!(decode_counts(&plans).last(), Some(&7), "80 / 14.46, and nearly every request");
}

#[test]
fn steps_that_no_count_makes_shorter_do_not_ask_again_and_again() {
    let same = |sample: &mut Sample| {
        let slow = |histogram: &mut Histogram| histogram.sum = histogram.count * 0.0142;
        sample.histograms.get_mut(&Signal::Itl).into_iter().flat_map(|series| series.values_mut()).for_each(slow);
    };
    assert_eq!(decode_counts(&steadily_beyond(0.012, same)), [6], "whatever its iterations say");
    assert_eq!(decode_counts(&steadily_beyond(0.016, |_| ())), [] as [u32; 0], "a tenth is left");
}

#[test]
fn a_queue_that_stands_before_replicas_that_nobody_knows_asks_for_what_carries_it() {
    // Each serves 5 requests a second, at one load, which teaches nothing, and more come to it.
    let saturated = |queue: f64| {
        let mut fleet = Fleet::new(aggregated_policy(), &[2]);
        let round = |_| {
            fleet.pools[0].iter_mut().for_each(|replica| replica.waiting += 5.0 * queue);
            fleet.round(10.0)
        };
        let plans: Vec<Plan> = (0..36).map(round).collect();
        assert_eq!(fleet.world.memory.watched[&PoolId::from("p")].iterations.line(5).ok(), None);
        plans
    };
    let plans = saturated(1.0);
    let first = plans.iter().position(|plan| plan.warnings.contains(&Warning::Outrun)).unwrap();
    assert!(first <= 9, "{first}: twenty seconds of a queue after the first twenty of sight");
    assert_eq!((plans[first].reason, recommended(&plans[first])[0]), (Reason::None, 3), "1.1 * 12 / 5");
    assert!(
        plans[first + 1..].iter().all(|plan| recommended(plan)[0] == 3 && plan.reason == Reason::NotConverged),
        "they are to come first"
    );
    assert_eq!(recommended(saturated(1000.0).last().unwrap())[0], 4, "twice what is ready, however long the queue");
    assert_eq!(recommended(saturated(f64::INFINITY).last().unwrap())[0], 0);
    let without = saturated(0.0);
    assert!(without.iter().all(|plan| recommended(plan)[0] == 0 && !plan.warnings.contains(&Warning::Outrun)), "nothing waits");
}

#[test]
fn a_rise_above_fourfold_waits_for_a_second_round_that_agrees() {
    let mut fleet = Fleet::new(auto_policy(), &[1, 1]);
    let _settled = fleet.last(120.0, 1.0);
    let plans = fleet.run(20.0, 80.0);
    let first = pool(&plans[0], "m-prefill");
    assert_eq!(first.unbounded_replicas, Some(Replicas(15)));
    assert_eq!(first.planned_replicas, Some(Replicas(4)));
    assert!(first.limits_active.contains(&Limit::Confirm));
    let second = pool(&plans[1], "m-prefill");
    assert_eq!(second.planned_replicas, first.unbounded_replicas, "as far as both rounds go");
    assert!(pool(&plans[2], "m-prefill").planned_replicas > second.planned_replicas);
}

#[test]
fn a_sufficient_count_is_recommended_two_scrapes_and_a_tick_after_a_jump() {
    let mut fleet = Fleet::new(auto_policy(), &[4, 2]);
    let _settled = fleet.last(300.0, 5.0);
    let plan = fleet.last(20.0, 40.0);
    let found = pool(&plan, "m-prefill");
    let trace = found.auto.as_ref().unwrap();
    assert!((trace.rate.get() - 40.0).abs() < 4.0, "{trace:?}");
    assert!(found.recommended_replicas.unwrap() >= trace.need);
}

#[test]
fn replicas_are_given_back_after_the_delay_in_steps_of_a_quarter_every_two_minutes() {
    let mut fleet = Fleet::new(auto_policy(), &[30, 2]);
    let _settled = fleet.last(300.0, 100.0);
    let stood = recommended(&fleet.look())[0];
    assert!(stood >= 24, "{stood}");
    let lowered: Vec<(usize, u32, u32)> = {
        let counts: Vec<u32> = fleet.follow(600.0, 2.0).iter().map(|plan| recommended(plan)[0]).collect();
        counts.windows(2).enumerate().filter(|(_, pair)| pair[1] != pair[0]).map(|(round, pair)| (round + 1, pair[0], pair[1])).collect()
    };
    let seconds = |round: usize| (round + 1) * 5;
    assert!(seconds(lowered[0].0) >= 120, "{lowered:?}");
    for (_, before, after) in &lowered {
        assert_eq!(before - after, (before / 4).max(2), "{lowered:?}");
    }
    for pair in lowered.windows(2) {
        assert!((120..=135).contains(&(seconds(pair[1].0) - seconds(pair[0].0))), "{lowered:?}");
    }
    assert!(lowered.len() >= 4);
}

/// So many minutes of 20 requests a second, evenly or in bursts of 20 s.
fn twenty(fleet: &mut Fleet, minutes: u32, burst: f64) -> Vec<Plan> {
    let halves = (0..minutes * 60).step_by(40).map(|_| [20.0 + burst, 20.0 - burst]);
    halves.flatten().flat_map(|rate| fleet.follow(20.0, rate)).collect()
}

#[test]
fn what_was_given_back_and_needed_again_at_the_same_load_stays() {
    let mut fleet = Fleet::new(auto_policy(), &[7, 4]);
    let prefill = |plan: &Plan| recommended(plan)[0];
    let _settled = twenty(&mut fleet, 30, 0.0);
    let bursts = twenty(&mut fleet, 15, 1.5);
    let risen = prefill(bursts.last().unwrap());
    let calm = prefill(twenty(&mut fleet, 75, 0.0).last().unwrap());
    assert!(calm < risen, "{calm} of {risen}: once is no proof");
    let again = prefill(twenty(&mut fleet, 15, 1.5).last().unwrap());
    let kept = twenty(&mut fleet, 120, 0.0).pop().unwrap();
    assert!(again > calm && prefill(&kept) > calm, "{calm}, {again}, {}", prefill(&kept));
    let trace = pool(&kept, "m-prefill").auto.as_ref().unwrap();
    assert!(trace.refuted > trace.padded.max(trace.recent), "{trace:?}");
    assert!(pool(&kept, "m-prefill").steps.iter().any(|step| step.reason == StepReason::Refuted), "{:?}", kept.pools[0].steps);
    let less = fleet.follow(600.0, 15.0).pop().unwrap();
    assert!(prefill(&less) < prefill(&kept), "at a lower load it may be tried");
}

#[test]
fn a_longer_delay_gives_back_later() {
    let mut policy = auto_policy();
    policy.auto = Some(AutoPolicy { attainment: Ratio(0.99), delay: Duration::from_secs(300) });
    let mut fleet = Fleet::new(policy, &[8, 4]);
    let _settled = fleet.last(600.0, 20.0);
    let stood = recommended(&fleet.look());
    let plan = fleet.last(290.0, 2.0);
    assert_eq!(recommended(&plan), stood);
    assert!(pool(&plan, "m-prefill").steps.iter().any(|step| step.reason == StepReason::RecentlyNeeded), "{:?}", plan.pools[0].steps);
    assert!(recommended(&fleet.last(60.0, 2.0))[0] < stood[0]);
}

#[test]
fn the_configured_limits_bind_last() {
    let mut fleet = Fleet::new(limited(auto_policy(), 3, 5), &[4, 4]);
    let plan = fleet.last(300.0, 60.0);
    assert_eq!(recommended(&plan)[0], 5);
    assert!(pool(&plan, "m-prefill").limits_active.contains(&Limit::Max));
    let plan = fleet.last(900.0, 0.1);
    assert_eq!(recommended(&plan), [3, 3]);
    assert!(pool(&plan, "m-prefill").limits_active.contains(&Limit::Min));
}

#[test]
fn a_fresh_process_does_not_shrink_before_the_delay_has_passed() {
    let mut fleet = Fleet::new(auto_policy(), &[20, 8]);
    let _settled = fleet.last(600.0, 60.0);
    let stood = recommended(&fleet.look());
    fleet.world.memory = Memory::restored(fleet.world.memory.lasting());
    for plan in fleet.run(120.0, 1.0) {
        assert_eq!(recommended(&plan), stood);
    }
    assert!(recommended(&fleet.last(60.0, 1.0))[0] < stood[0]);
    let mut unheard = Fleet::new(auto_policy(), &[20, 8]);
    assert!(unheard.run(120.0, 1.0).iter().all(|plan| [0, 20].contains(&recommended(plan)[0])), "nor one that remembers nothing");
}

#[test]
fn objectives_out_of_reach_are_told_by_phase_and_the_load_is_carried() {
    let mut policy = auto_policy();
    policy.slo.ttft = Positive::new(0.05).unwrap();
    let mut fleet = Fleet::new(policy, &[1, 1]);
    let plan = fleet.last(120.0, 10.0);
    assert_eq!(plan.reason, Reason::SloUnreachable);
    assert_eq!((plan.prompt.attainable, plan.generation.attainable), (Some(false), Some(true)));
    // 2.15 replicas are busy, and the standard error of the rate.
    assert_eq!(pool(&plan, "m-prefill").auto.as_ref().unwrap().need, Replicas(3));
    assert_eq!(pool(&plan, "m-prefill").auto.as_ref().unwrap().within, None);

    let mut aggregated = learned(aggregated_policy());
    aggregated.world.policy.slo.itl = Positive::new(0.001).unwrap();
    let plan = aggregated.last(60.0, 40.0);
    assert_eq!((plan.reason, plan.prompt.attainable, plan.generation.attainable), (Reason::SloUnreachable, Some(true), Some(false)));
    assert!(pool(&plan, "p").auto.as_ref().unwrap().need <= Replicas(6));
}

#[test]
fn longer_prompts_raise_prefill_within_two_ticks_and_leave_decode() {
    let mut fleet = Fleet::new(auto_policy(), &[6, 4]);
    fleet.input = 1024.0;
    let before = recommended(&fleet.last(300.0, 10.0));
    fleet.input = 4096.0;
    let plan = fleet.last(10.0, 10.0);
    assert!((pool(&plan, "m-prefill").auto.as_ref().unwrap().input_tokens.get() - 4096.0).abs() < 1.0);
    assert!(recommended(&plan)[0] > before[0], "{before:?} {:?}", recommended(&plan));
}

#[test]
fn a_fleet_of_thousands_is_planned_in_little_time() {
    let policy = limited(auto_policy(), 1, 20_000);
    let mut fleet = Fleet::new(policy, &[3, 3]);
    // One replica's counters stand for all: what is measured is the search.
    let began = std::time::Instant::now();
    let plan = fleet.last(60.0, 40_000.0);
    let need = pool(&plan, "m-prefill").auto.as_ref().unwrap().need;
    assert!(need > Replicas(8000), "{need}");
    assert!(began.elapsed() < Duration::from_secs(20), "12 rounds took {:?}", began.elapsed());
}
