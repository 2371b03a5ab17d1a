//! Does preset auto do in closed loop what is promised of it? One fleet, nothing measured beforehand: what a replica serves is learned on the way.

use std::time::Duration;

use super::sla_tests::{AGGREGATED, PAIR, Unheard, changes, count_at, policy, scenario, trace};
use super::*;
use crate::planner::policy::{AutoPolicy, GrowthRule, ModelPolicy, Preset};
use crate::units::{Ratio, Role};

const STARTUP: Duration = Duration::from_secs(100);
const OBJECTIVES: (f64, f64) = (0.3, 0.03);

fn auto(roles: &[Role]) -> ModelPolicy {
    let sla = policy(roles, OBJECTIVES.0, OBJECTIVES.1);
    ModelPolicy {
        preset: Preset::Auto,
        interval: sla.scrape_interval,
        load: None,
        auto: Some(AutoPolicy { attainment: Ratio(0.99), delay: Duration::from_secs(120) }),
        predictor: None,
        growth: GrowthRule::Confirm(std::num::NonZeroU32::new(4).unwrap()),
        step_down: None,
        ..sla
    }
}

fn played(text: &str, roles: &[Role], replicas: u32) -> Outcome {
    let trace = trace(text);
    let mut scenario = scenario(&trace, roles, replicas, OBJECTIVES.0, OBJECTIVES.1);
    scenario.fleet.startup = STARTUP;
    run(&scenario, &mut Planner::new("auto", &auto(roles)))
}

fn most(changes: &[(u64, u32)], from: u64) -> u32 {
    changes.iter().filter(|(at, _)| *at >= from).map(|(_, count)| *count).max().unwrap_or(0)
}

#[test]
fn a_step_of_eight_times_is_answered_within_twenty_seconds_and_by_not_many_more_than_needed() {
    let steady = played("steady?rate=96&duration=40m", &PAIR, 4);
    let outcome = played("step?low=12&high=96&at=30m&until=45m&duration=46m", &PAIR, 1);
    let (mut asked, mut needed) = (0, 0);
    for role in PAIR {
        let (settled, found) = (changes(&steady, role), changes(&outcome, role));
        let need = settled.last().unwrap().1;
        assert_eq!(count_at(&found, 1799), 1, "{role} {found:?}");
        assert!(count_at(&found, 1820) >= need, "{role}: {need} are needed, {found:?}");
        asked += most(&found, 1800);
        needed += need;
    }
    // A quarter of three replicas is none: then it is one of each pool.
    assert!(asked <= needed + needed.div_ceil(4).max(2), "{asked} for {needed}");
    // Those of the first start-up miss, in whole minutes. Decode is made for the prompts that waited then and come on top of the new ones.
    assert!(outcome.violation.get() <= 180.0, "{:?}", outcome.violation);
}

#[test]
fn a_constant_load_at_a_boundary_between_counts_moves_nothing_after_settling() {
    for (rate, replicas) in [(23.5, 2), (47.0, 3), (71.0, 4)] {
        let outcome = played(&format!("steady?rate={rate}&duration=100m"), &AGGREGATED, replicas);
        let found = changes(&outcome, Role::Aggregated);
        assert!(found.iter().all(|(at, _)| *at <= 2400), "{rate}: {found:?}");
        assert!(outcome.attainment >= Ratio(0.99), "{rate}: {:?}", outcome.attainment);
    }
}

#[test]
fn demand_of_three_times_the_capacity_is_not_hidden_by_the_queue() {
    let settled = played("steady?rate=120&duration=30m", &PAIR, 5);
    // What a replica can do is learned at a load that it carries.
    let trace = trace("step?low=12&high=120&at=15m&duration=35m");
    let mut scenario = scenario(&trace, &PAIR, 1, OBJECTIVES.0, OBJECTIVES.1);
    scenario.fleet.startup = STARTUP;
    let mut unheard = Unheard::new(&auto(&PAIR));
    run(&scenario, &mut unheard);
    let need = changes(&settled, Role::Prefill).last().unwrap().1;
    for second in [960, 1200, 2000] {
        let found = unheard.at(second, Role::Prefill).unwrap();
        assert!((need..=need + need.div_ceil(4)).contains(&found), "at {second}: {found}, {need} are needed");
    }
}

#[test]
fn longer_prompts_change_prefill_first_and_longer_answers_change_decode() {
    let prompts = played("length-shift?rate=30&at=30m&isl_after=4000&duration=45m", &PAIR, 2);
    let (prefill, decode) = (changes(&prompts, Role::Prefill), changes(&prompts, Role::Decode));
    assert!(count_at(&prefill, 1815) > count_at(&prefill, 1799), "{prefill:?}");
    let first = |changes: &[(u64, u32)]| changes.iter().find(|(at, _)| *at >= 1800).map_or(u64::MAX, |(at, _)| *at);
    assert!(first(&prefill) <= first(&decode), "{prefill:?} {decode:?}");
    let settled = decode.last().unwrap().1;
    assert!(decode.iter().filter(|(at, _)| *at >= 1800).all(|(_, count)| count.abs_diff(settled) <= 1), "{decode:?}");

    let answers = played("length-shift?rate=60&at=30m&osl_after=800&duration=45m", &PAIR, 3);
    let decode = changes(&answers, Role::Decode);
    // The first of the longer answers end after some ten seconds.
    assert!(count_at(&decode, 1825) > count_at(&decode, 1799), "{decode:?}");
}
