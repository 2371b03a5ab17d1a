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
/// What a run may attain less than the one without faults.
const POINT: f64 = 0.01;

fn auto() -> ModelPolicy {
    let model = model();
    ModelPolicy {
        preset: Preset::Auto,
        interval: model.scrape_interval,
        auto: Some(AutoPolicy { attainment: Ratio(0.99), delay: Duration::from_secs(120) }),
        regression: Some(RegressionPolicy { samples: 64, buckets_a_side: 4, least: 5, drafted: 0 }),
        correction: false,
        growth: GrowthRule::Confirm(NonZeroU32::new(4).unwrap()),
        traffic_change: ChangeRule::Tolerate,
        ..model
    }
}

/// Each kind, and all of them.
fn kinds() -> Vec<Vec<MetricFault>> {
    MetricFault::ALL.into_iter().map(|kind| vec![kind]).chain([MetricFault::ALL.to_vec()]).collect()
}

/// What a trace brings without faults and with each kind: what fell from that second on, and the attainment.
fn played(shape: &str, from: u64, kinds: &[MetricFault], seed: u64) -> (Vec<(Role, u64, u32)>, Ratio) {
    let trace = trace(&format!("{shape}&{LENGTHS}"));
    let scenario = scenario_of(&trace);
    let faults = MetricFaults { kinds: kinds.iter().copied().collect(), seed };
    let outcome = run(&scenario, &mut Planner::new("auto", &auto()).seeing(&faults));
    let fell = |role| {
        let changes = changes(&outcome, role);
        let fell = changes.windows(2).filter(|pair| pair[1].1 < pair[0].1 && pair[1].0 >= from);
        fell.map(|pair| (role, pair[1].0, pair[1].1)).collect::<Vec<_>>()
    };
    (PAIR.into_iter().flat_map(fell).collect(), outcome.attainment)
}

fn nothing_falls(shape: &str, from: u64) {
    let (fell, attained) = played(shape, from, &[], 0);
    assert_eq!(fell, [], "without faults");
    for kinds in kinds() {
        let (fell, attainment) = played(shape, from, &kinds, 1);
        assert_eq!(fell, [], "{kinds:?}");
        assert!(attainment.get() >= attained.get() - POINT, "{kinds:?}: {attainment:?} for {attained:?}");
    }
}

#[test]
fn no_fault_of_the_metrics_takes_a_replica_away_under_a_steady_load() {
    nothing_falls("steady?rate=14&duration=45m", 900);
}

#[test]
fn no_fault_of_the_metrics_takes_a_replica_away_while_the_load_rises() {
    nothing_falls("ramp?low=5&high=20&at=10m&over=30m&duration=42m", 600);
}
