//! Does the queueing model learn what simulated replicas can do, and does preset wva then plan as it must? A few seeds; the bench has a hundred.

mod claims;
mod fleet;
mod harness;

use std::time::Duration;

use claims::{Case, constant, followed, varied};
use fleet::{Decided, Variant, play, policy};
use harness::{EIGHT_B, Server, UNIFORM, scaled};
use inference_planner_exporter::planner::plan::{Reason, SloSource};
use inference_planner_exporter::simulator::workload::Shape;
use inference_planner_exporter::units::RequestsPerSecond;

const SEEDS: u64 = 5;
/// Objective of the closed loops, milliseconds, and what one uniform replica serves within it (`Case::new` finds the same).
const OBJECTIVE: (f64, f64) = (500.0, 50.0);

fn uniform() -> Case {
    Case::new(UNIFORM, OBJECTIVE.0, OBJECTIVE.1)
}

#[test]
fn a_load_that_varies_threefold_teaches_the_capacity() {
    for case in [uniform(), Case::new(EIGHT_B, 500.0, 30.0)] {
        assert_eq!(varied(&case, 0.9, 20, SEEDS), SEEDS, "{}", case.name());
    }
}

#[test]
fn a_constant_load_gives_an_interval_that_holds_the_capacity_and_a_start_from_which_it_learns() {
    let case = uniform();
    for utilization in [0.05, 0.24, 0.6, 1.2] {
        let found = constant(&case, 19.5, utilization, SEEDS);
        assert_eq!((found.contained, found.promised_too_much, found.learned), (SEEDS, 0, SEEDS), "rho {utilization}: {found:?}");
    }
}

#[test]
fn a_server_that_becomes_slower_is_followed_within_ten_windows() {
    let case = uniform();
    for slower in [1.3, 0.75] {
        assert_eq!(followed(&case, slower, 0.5, SEEDS), SEEDS, "{slower}");
    }
}

/// One variant of uniform servers.
fn one(capacity: f64, replicas: u32) -> Variant {
    Variant { name: "a", server: UNIFORM, cost: 1.0, capacity, replicas, min: 1 }
}

fn wave(low: f64, high: f64) -> Shape {
    Shape::Wave { low: RequestsPerSecond(low), high: RequestsPerSecond(high), period: Duration::from_secs(7200), start: Duration::ZERO }
}

/// Changes of any count after the first twenty minutes.
fn moves(decided: &[Decided]) -> usize {
    let settled: Vec<&Decided> = decided.iter().filter(|one| one.at > 1200).collect();
    settled.windows(2).filter(|pair| pair[0].counts != pair[1].counts).count()
}

#[test]
fn nothing_moves_under_a_constant_load() {
    let capacity = uniform().capacity;
    for (share, replicas) in [(0.6, 1), (1.5, 2), (2.5, 3)] {
        let variants = [one(capacity, replicas)];
        let rows = play(&variants, &policy(&variants, Some(OBJECTIVE)), Shape::Steady(RequestsPerSecond(capacity * share)), 5400, 3);
        assert_eq!(moves(&rows), 0, "{share}: {:?}", rows.iter().map(|row| row.counts[0]).collect::<Vec<_>>());
        let last = rows.last().expect("decisions").counts[0];
        let sufficient = share.ceil() as u32;
        assert!(last >= sufficient && last <= sufficient + 1, "{share}: {last}");
    }
}

#[test]
fn a_rising_and_falling_load_is_followed_within_one_replica() {
    let capacity = uniform().capacity;
    let variants = [one(capacity, 1)];
    let rows = play(&variants, &policy(&variants, Some(OBJECTIVE)), wave(capacity * 0.7, capacity * 4.5), 10_800, 1);
    judged(&rows, &variants, 3600);
    assert!(rows.iter().any(|row| row.counts[0] >= 5) && rows.iter().skip(120).any(|row| row.counts[0] <= 2), "it moved");
}

#[test]
fn two_variants_cost_within_one_replica_of_the_best_split() {
    let capacity = uniform().capacity;
    let fast = Server { name: "fast", costs: scaled(UNIFORM.costs, 0.6), ..UNIFORM };
    let faster = Case::new(fast, OBJECTIVE.0, OBJECTIVE.1).capacity;
    let variants = [one(capacity, 1), Variant { name: "b", server: fast, cost: 2.0, capacity: faster, replicas: 1, min: 1 }];
    let rows = play(&variants, &policy(&variants, Some(OBJECTIVE)), wave(capacity * 1.2, capacity * 6.0), 9000, 2);
    judged(&rows, &variants, 3600);
}

/// After learning: no count below what was needed, and no more than one replica above the cheapest split.
fn judged(rows: &[Decided], variants: &[Variant], from: u64) {
    let cost = |counts: &[u32]| counts.iter().zip(variants).map(|(count, variant)| f64::from(*count) * variant.cost).sum::<f64>();
    let supply = |counts: &[u32]| counts.iter().zip(variants).map(|(count, variant)| f64::from(*count) * variant.capacity).sum::<f64>();
    let dearest = variants.iter().map(|variant| variant.cost).fold(0.0, f64::max);
    let rows: Vec<&Decided> = rows.iter().filter(|row| row.at > from).collect();
    for pair in rows.windows(2) {
        let (before, row) = (pair[0], pair[1]);
        let best = cheapest(row.rate, variants);
        let over = cost(&row.counts) - best;
        // The load falls by up to a tenth of a replica between two decisions, and is the mean of the time between them.
        assert!(over <= dearest + 1e-9, "at {}: {:?} for {:.1}/s costs {over} more than the best", row.at, row.counts, row.rate);
        if cost(&row.counts) < cost(&before.counts) {
            assert!(supply(&row.counts) >= row.rate, "at {}: {:?} is less than {:.1}/s need", row.at, row.counts, row.rate);
        }
    }
}

/// Least cost of counts that carry the rate.
fn cheapest(rate: f64, variants: &[Variant]) -> f64 {
    let (first, rest) = variants.split_first().expect("a variant");
    (first.min..=60)
        .map(|count| {
            let left = rate - f64::from(count) * first.capacity;
            let others = match rest {
                [] if left > 0.0 => f64::INFINITY,
                [] => 0.0,
                rest => cheapest(left.max(0.0), rest),
            };
            f64::from(count) * first.cost + others
        })
        .fold(f64::INFINITY, f64::min)
}

#[test]
fn without_an_objective_it_learns_one_and_holds_before() {
    let capacity = uniform().capacity;
    let variants = [one(capacity, 2)];
    let rows = play(&variants, &policy(&variants, None), wave(capacity * 0.5, capacity * 1.8), 7200, 4);
    let sources: Vec<SloSource> = rows.iter().map(|row| row.plan.slo_source).collect();
    assert_eq!(rows[0].plan.reason, Reason::NotConverged, "the first window sets the pace");
    assert!(sources.contains(&SloSource::Observed) && sources.last() == Some(&SloSource::Learned), "{sources:?}");
    for pair in rows.windows(2).filter(|pair| pair[1].plan.slo_source == SloSource::Observed) {
        assert!(pair[1].counts >= pair[0].counts, "nothing is given back before the objective is learned");
    }
    // k = 3: two thirds of the replica's work, and the objective is the latencies there.
    let last = rows.last().expect("decisions");
    let trace = last.plan.pools[0].queueing.as_ref().expect("it was learned");
    let rate = trace.capacity.expect("within reach").estimate.get();
    let work = trace.parameters.work(UNIFORM.role, trace.lengths).get();
    assert!((rate * work - 2.0 / 3.0).abs() < 0.02, "rho at lambda* is {}", rate * work);
}
