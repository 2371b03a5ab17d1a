//! Does a constant load at the boundary between two counts move preset auto? `cargo bench --bench auto -- --boundaries` has all of them.

use super::fleet::*;
use super::world::pool;

/// What a fleet that follows the plan has from a quarter of an hour on, and what prefill needs then.
fn settled(replicas: usize, rate: f64) -> (Vec<Vec<u32>>, u32) {
    let mut fleet = Fleet::new(auto_policy(), &[replicas, 3]);
    let _settling = fleet.follow(900.0, rate);
    let plans = fleet.follow(900.0, rate);
    let mut counts: Vec<Vec<u32>> = plans.iter().map(recommended).collect();
    counts.dedup();
    (counts, pool(plans.last().unwrap(), "m-prefill").auto.as_ref().unwrap().need.0)
}

#[test]
fn a_load_beside_a_boundary_moves_nothing_whether_one_too_few_or_one_too_many_are_there() {
    for (count, rate) in [(4, 9.43), (10, 35.42)] {
        for (beside, need, replicas) in [(0.99, count, count + 1), (1.01, count + 1, count)] {
            let (counts, needed) = settled(replicas as usize, rate * beside);
            assert_eq!((needed, counts.len()), (need, 1), "{counts:?} at {rate} times {beside}, from {replicas}");
        }
    }
}
