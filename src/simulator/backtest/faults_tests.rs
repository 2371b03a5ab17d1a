//! Does a fault of the metrics take replicas away, or requests out of their objectives? Each kind and all together, with the fleet following.

use std::num::NonZeroU32;
use std::time::Duration;

use super::faults::{MetricFault, MetricFaults};
use super::sla_tests::{PAIR, changes};
use super::tests::{model, scenario_of, trace};
use super::*;
use crate::planner::policy::{AutoPolicy, ChangeRule, GrowthRule, ModelPolicy, Preset, RegressionPolicy};
use crate::units::Ratio;

const LENGTHS: &str = "isl=1500&isl_cv=0.3&osl=110&osl_cv=0.4";
/// Long rounds are fewer, and as many are spoilt.
const ROUND: Duration = Duration::from_secs(10);

fn auto() -> ModelPolicy {
    ModelPolicy {
        preset: Preset::Auto,
        interval: ROUND,
        scrape_interval: ROUND,
        auto: Some(AutoPolicy { attainment: Ratio(0.99), delay: Duration::from_secs(120) }),
        regression: Some(RegressionPolicy { samples: 64, buckets_a_side: 4, least: 5, drafted: 0 }),
        correction: false,
        growth: GrowthRule::Confirm(NonZeroU32::new(4).unwrap()),
        traffic_change: ChangeRule::Tolerate,
        ..model()
    }
}

/// Plays a load through faults of those kinds; nothing falls from that second on, and the objectives are met as without faults, or nearly so where
/// nobody sees for minutes that the load rises.
fn nothing_falls(shape: &str, from: u64, kinds: &[MetricFault]) {
    let trace = trace(&format!("{shape}&{LENGTHS}"));
    let scenario = Scenario { tick: ROUND, warm_up: Duration::from_secs(from), ..scenario_of(&trace) };
    let faults = MetricFaults { kinds: kinds.iter().copied().collect(), seed: 1 };
    let outcome = run(&scenario, &mut Planner::new("auto", &auto()).seeing(&faults));
    for role in PAIR {
        let changes = changes(&outcome, role);
        assert!(changes.windows(2).all(|pair| pair[1].1 > pair[0].1 || pair[1].0 < from), "{kinds:?}, {role}: {changes:?}");
    }
    let least = if kinds.len() > 1 { 0.98 } else { 0.99 };
    assert!(outcome.attainment >= Ratio(least), "{kinds:?}: {:?}", outcome.attainment);
}

fn steady(kinds: &[MetricFault]) {
    nothing_falls("steady?rate=14&duration=40m", 900, kinds);
}

fn rising(kinds: &[MetricFault]) {
    nothing_falls("ramp?low=5&high=20&at=8m&over=32m&duration=40m", 480, kinds);
}

#[test]
fn silent_targets_take_nothing_away() {
    steady(&[MetricFault::Silent]);
    rising(&[MetricFault::Silent]);
}

#[test]
fn counters_that_begin_anew_take_nothing_away() {
    steady(&[MetricFault::Resets]);
    rising(&[MetricFault::Resets]);
}

#[test]
fn partial_pages_take_nothing_away() {
    steady(&[MetricFault::Partial]);
    rising(&[MetricFault::Partial]);
}

#[test]
fn late_and_lost_rounds_take_nothing_away() {
    steady(&[MetricFault::Late]);
    rising(&[MetricFault::Late]);
}

#[test]
fn all_faults_together_take_nothing_away() {
    steady(&MetricFault::ALL);
    rising(&MetricFault::ALL);
}

#[test]
fn without_faults_nothing_falls_either() {
    steady(&[]);
    rising(&[]);
}
