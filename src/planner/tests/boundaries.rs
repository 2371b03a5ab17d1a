//! Does a constant load at the boundary between two counts move preset auto? Two hours at each boundary from 1 to 10 replicas, and a hair beside it.

use super::auto::learned;
use super::fleet::*;

/// After this nothing of the load's beginning is remembered: slices reach back 640 s, and a decrease waits for 120 s.
const SETTLING: f64 = 900.0;
const WATCHED: f64 = 7200.0;
/// Boundaries are found to this part of their load.
const EXACT: f64 = 1e-4;

/// What the pool needs in the end, while its replicas stay as many as they are.
fn need(fleet: &Fleet, pool: usize, rate: f64) -> u32 {
    fleet.clone().last(SETTLING, rate).pools[pool].auto.as_ref().unwrap().need.0
}

/// The least load at which a pool of `count` replicas needs one more.
fn boundary(fleet: &Fleet, pool: usize, count: u32, from: f64) -> f64 {
    let (mut below, mut above) = (from, from);
    while need(fleet, pool, above) <= count {
        (below, above) = (above, above * 1.5);
    }
    while above - below > EXACT * above {
        let middle = (below + above) / 2.0;
        if need(fleet, pool, middle) <= count { below = middle } else { above = middle }
    }
    above
}

/// How many replicas of each pool a fleet has that follows the plan at that load, where they change after it has settled.
fn moved(mut fleet: Fleet, rate: f64) -> Vec<(f64, Vec<u32>)> {
    let mut counts = recommended(fleet.follow(SETTLING, rate).last().unwrap());
    let began = fleet.at;
    let mut moved = Vec::new();
    for (round, plan) in fleet.follow(WATCHED, rate).iter().enumerate() {
        let now = recommended(plan);
        if now != counts {
            moved.push((began + 5.0 * round as f64, now.clone()));
        }
        counts = now;
    }
    moved
}

/// At every boundary of the pool, and one percent beside it, with one replica too few at first and with one too many.
fn nothing_moves_at(boundaries: std::ops::RangeInclusive<u32>, pool: usize, of: impl Fn(usize) -> Fleet) {
    let mut rate = 0.1;
    for count in boundaries {
        rate = boundary(&of(count as usize), pool, count, rate);
        for beside in [0.99, 1.0, 1.01] {
            for begins in [count, count + 1] {
                let moved = moved(of(begins as usize), rate * beside);
                assert_eq!(moved, [], "{count} to {} at {rate} times {beside}, from {begins}", count + 1);
            }
        }
    }
}

#[test]
fn two_hours_at_every_boundary_of_prefill_move_nothing() {
    let began = std::time::Instant::now();
    nothing_moves_at(1..=2, 0, |count| Fleet::new(auto_policy(), &[count, 3]));
    println!("{:?}", began.elapsed());
}

#[test]
fn two_hours_at_every_boundary_of_an_aggregated_pool_move_nothing() {
    let began = std::time::Instant::now();
    let known = learned(aggregated_policy());
    nothing_moves_at(1..=2, 0, |count| {
        let mut fleet = known.clone();
        fleet.pools[0].resize(count, Replica { started: -3600.0, ..Replica::default() });
        fleet
    });
    println!("{:?}", began.elapsed());
}
