//! How many replicas of each variant do the arrivals need, at lambda* each? Seed 001 section 4.3, and planning.md 3 for several variants.
//!
//! Variants are pools of one role that serve the same requests with other hardware, speed and cost. Supply is the sum of replicas times lambda*
//! over those that were recommended last: what they lack is added, what they have too much is taken away, and nothing is swapped, since a swap
//! costs a start-up. With one variant this is ceil(lambda / lambda*).
//!
//! - Short: a replica of the variant that would close the whole gap at the least cost by itself; then the rest of the gap in the same way.
//! - Spare: the replica with the most cost for its capacity, as long as the others still carry 1.05 times the demand at the lower end of what they
//!   may be able to do, and the demand with two standard deviations of what Poisson arrivals vary by in the window. Then the next.
//!
//! | demand | variants: cost, lambda*, lower end, replicas | becomes | because |
//! |---|---|---|---|
//! | 25 | A 5, 10, 9, 2 | 3 | 20 < 25 <= 30 |
//! | 22 | A 5, 10, 9, 2 and B 15, 10, 9, 2 | 2 and 1 | of 36 the rest is 27 >= 1.05 * 22 = 23.1; one more would leave 18 |
//! | 12 | A 5, 10, 9, 1 and B 15, 20, 18, 1 | the same | without B the rest would be 9 |
//!
//! A variant of unknown capacity keeps its count and carries nothing; its own arrivals are not asked of the others. Replicas that were recommended
//! and have not come within three start-ups carry nothing either, and no more are asked of their variant: 3 of 5 replicas of 10 for a demand of 50
//! are short by 20, and another variant closes that gap.

use std::collections::BTreeMap;

use super::Wish;
use crate::planner::observe::Demand;
use crate::planner::policy::Limits;
use crate::units::{PoolId, Positive, Replicas, RequestsPerSecond, Seconds};

/// What the rest must carry at least, over the demand, before a replica is given back.
pub(crate) const PADDING: f64 = 1.05;
/// Standard deviations of the arrivals in a window that the rest must carry as well: six requests a second are 180 in half a minute, give or take
/// 7.5 %, and a count that followed that would move twice a minute.
pub(crate) const DEVIATIONS: f64 = 2.0;

/// One variant of a role.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// Which pool.
    pub pool: PoolId,
    /// Replicas that were recommended last.
    pub standing: Replicas,
    /// How many of them are not coming.
    pub absent: Replicas,
    /// The operator's limits.
    pub limits: Limits,
    /// What one replica costs.
    pub cost: Positive,
    /// What one replica serves within the objective: the estimate, and the lower end. `None`: unknown.
    pub capacity: Option<(RequestsPerSecond, RequestsPerSecond)>,
}

/// The counts, by pool, for a demand that was seen in a window of that length.
pub fn allocate(demand: Demand, window: Seconds, variants: &[Variant]) -> BTreeMap<PoolId, Wish> {
    let mut counts: Vec<u32> = variants.iter().map(|variant| variant.standing.0).collect();
    if !grow(demand.supported.get(), variants, &mut counts) {
        shrink(padded(demand.cautious, window).get(), variants, &mut counts);
    }
    let wish = |count: u32| Wish { supported: Replicas(count), cautious: Replicas(count) };
    variants.iter().zip(counts).map(|(variant, count)| (variant.pool.clone(), wish(count))).collect()
}

/// The demand that the rest must carry before a replica is given back.
pub fn padded(demand: RequestsPerSecond, window: Seconds) -> RequestsPerSecond {
    let deviation = (demand.get() / window.get()).sqrt();
    let noise = if deviation.is_finite() { DEVIATIONS * deviation } else { 0.0 };
    RequestsPerSecond((demand.get() * PADDING).max(demand.get() + noise))
}

/// Adds what is short. Answers whether anything was.
fn grow(demand: f64, variants: &[Variant], counts: &mut [u32]) -> bool {
    let each = |index: usize| variants[index].capacity.map_or(0.0, |(estimate, _)| estimate.get());
    let cost = |index: usize| variants[index].cost.get();
    let mut grown = false;
    loop {
        let short = demand - present(variants, counts, each);
        if is_noise(short, demand) {
            return grown;
        }
        // Where replicas do not come, more of them would not either.
        let is_open = |index: usize| each(index) > 0.0 && counts[index] < variants[index].limits.max().0 && variants[index].absent.0 == 0;
        let open = (0..variants.len()).filter(|&index| is_open(index));
        // What the variant alone would cost for the whole gap; where that is the same, the larger replica leaves fewer to start.
        let alone = |index: usize| f64::from(Replicas::ceil(short / each(index)).0) * cost(index);
        let cheapest = open.min_by(|&a, &b| alone(a).total_cmp(&alone(b)).then(each(b).total_cmp(&each(a))));
        let Some(index) = cheapest else {
            // Every variant is at its maximum: ask for the rest all the same, so that the wish says what would be needed. What is awaited is asked
            // for already.
            let asked: f64 = counts.iter().enumerate().map(|(index, count)| f64::from(*count) * each(index)).sum();
            return ask_beyond(demand - asked, demand, variants, counts) || grown;
        };
        // Whole steps at once where one does not do, so that a large gap takes no thousand turns.
        let room = variants[index].limits.max().0 - counts[index];
        let steps = if each(index) >= short { 1 } else { ((short / each(index)).floor() as u32).clamp(1, room) };
        counts[index] += steps;
        grown = true;
    }
}

/// What the replicas carry that are there or still believed to come.
fn present(variants: &[Variant], counts: &[u32], each: impl Fn(usize) -> f64) -> f64 {
    let there = |(index, count): (usize, &u32)| f64::from(count.saturating_sub(variants[index].absent.0)) * each(index);
    counts.iter().enumerate().map(there).sum()
}

/// Noise of the sum is no reason to buy a replica; `Replicas::ceil` takes the same share for noise.
fn is_noise(short: f64, demand: f64) -> bool {
    short <= 1e-9 * demand.max(1.0)
}

fn ask_beyond(short: f64, demand: f64, variants: &[Variant], counts: &mut [u32]) -> bool {
    if is_noise(short, demand) {
        return false;
    }
    let known = variants.iter().enumerate().filter_map(|(index, variant)| Some((index, variant.capacity?.0.get(), variant.cost.get())));
    let best = known.filter(|(_, each, _)| *each > 0.0).min_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)));
    let Some((index, each, _)) = best else { return false };
    counts[index] = counts[index].saturating_add(Replicas::ceil(short / each).0);
    true
}

/// Takes away what the rest can do without; of a variant first those that are not coming, which carry nothing.
fn shrink(demand: f64, variants: &[Variant], counts: &mut [u32]) {
    let lower = |index: usize| variants[index].capacity.map_or(0.0, |(_, lower)| lower.get());
    let estimate = |index: usize| variants[index].capacity.map_or(0.0, |(estimate, _)| estimate.get());
    let dear = |index: usize| variants[index].cost.get() / estimate(index);
    let mut order: Vec<usize> = (0..variants.len()).filter(|&index| estimate(index) > 0.0).collect();
    order.sort_by(|&a, &b| dear(b).total_cmp(&dear(a)));
    let mut supply = present(variants, counts, lower);
    for index in order {
        let there = counts[index].saturating_sub(variants[index].absent.0);
        while counts[index] > variants[index].limits.min().0 && lower(index) > 0.0 {
            let carried = if counts[index] > there { 0.0 } else { lower(index) };
            if supply - carried < demand {
                break;
            }
            counts[index] -= 1;
            supply -= carried;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(name: &str, cost: f64, capacity: Option<(f64, f64)>, standing: u32) -> Variant {
        Variant {
            pool: PoolId::from(name),
            standing: Replicas(standing),
            absent: Replicas(0),
            limits: Limits::new(Replicas(0), Replicas(50)).unwrap(),
            cost: Positive::new(cost).unwrap(),
            capacity: capacity.map(|(estimate, lower)| (RequestsPerSecond(estimate), RequestsPerSecond(lower))),
        }
    }

    fn counts(demand: f64, variants: &[Variant]) -> Vec<u32> {
        let demand = RequestsPerSecond(demand);
        allocate(Demand { supported: demand, cautious: demand }, Seconds(1e6), variants).values().map(|wish| wish.supported.0).collect()
    }

    #[test]
    fn one_variant_is_the_demand_over_its_capacity_rounded_up() {
        for (demand, standing, expected) in [(25.0, 2, 3), (20.0, 1, 2), (1.0, 0, 1), (95.0, 1, 10), (30.000_000_000_1, 1, 3)] {
            assert_eq!(counts(demand, &[variant("a", 5.0, Some((10.0, 9.0)), standing)]), [expected], "{demand}");
        }
    }

    #[test]
    fn it_moves_in_both_directions_where_the_original_stands_still() {
        // Two replicas' worth of demand at 11.913 each: the original's supply never depends on the count.
        assert_eq!(counts(20.0, &[variant("a", 1.0, Some((11.913, 11.913)), 1)]), [2]);
        assert_eq!(counts(20.0, &[variant("a", 1.0, Some((11.913, 11.913)), 5)]), [2]);
    }

    #[test]
    fn a_needed_replica_of_the_dearer_variant_is_not_removed() {
        // Demand 11 at each of two variants of 10: 22 over 40 needs three, and the original took one of three and a bit.
        let variants = [variant("a", 5.0, Some((10.0, 10.0)), 2), variant("b", 15.0, Some((10.0, 10.0)), 2)];
        assert_eq!(counts(22.0, &variants), [2, 1]);
        let variants = [variant("a", 5.0, Some((10.0, 10.0)), 2), variant("b", 15.0, Some((10.0, 10.0)), 1)];
        assert_eq!(counts(22.0, &variants), [2, 1], "and then it stays");
    }

    #[test]
    fn the_gap_is_closed_by_the_cheapest_that_closes_it() {
        let variants = [variant("large", 18.0, Some((20.0, 18.0)), 1), variant("small", 10.0, Some((10.0, 9.0)), 0)];
        assert_eq!(counts(25.0, &variants), [1, 1], "a small one is enough for the rest");
        assert_eq!(counts(55.0, &variants), [3, 0], "the large one is cheaper for its capacity");
    }

    #[test]
    fn a_decrease_rests_on_the_lower_end_and_leaves_room() {
        let known = |lower, standing| counts(18.0, &[variant("a", 1.0, Some((10.0, lower)), standing)]);
        assert_eq!(known(10.0, 4), [2], "1.05 * 18 = 18.9 <= 20");
        assert_eq!(known(9.0, 4), [3]);
        assert_eq!(known(1.0, 4), [4], "nothing is given back on what is not known");
        assert_eq!(known(0.0, 4), [4]);
    }

    #[test]
    fn the_noise_of_arrivals_does_not_give_replicas_back() {
        let give = |demand: f64, window| {
            let demand = RequestsPerSecond(demand);
            let variants = [variant("a", 1.0, Some((7.0, 6.5)), 2)];
            allocate(Demand { supported: demand, cautious: demand }, Seconds(window), &variants).values().next().unwrap().supported.0
        };
        assert_eq!(give(6.0, 30.0), 2, "6 + 2 * sqrt(6 / 30) = 6.9 > 6.5");
        assert_eq!(give(6.0, 180.0), 1, "6 + 2 * sqrt(6 / 180) = 6.37 <= 6.5");
    }

    #[test]
    fn an_unknown_variant_keeps_its_count() {
        let variants = [variant("a", 1.0, Some((10.0, 9.0)), 1), variant("b", 1.0, None, 3)];
        assert_eq!(counts(25.0, &variants), [3, 3]);
        assert_eq!(counts(25.0, &[variant("b", 1.0, None, 3)]), [3]);
    }

    #[test]
    fn a_full_variant_leaves_the_rest_to_the_next_and_the_wish_may_exceed_all_maxima() {
        let mut full = variant("a", 1.0, Some((10.0, 9.0)), 1);
        full.limits = Limits::new(Replicas(1), Replicas(2)).unwrap();
        assert_eq!(counts(45.0, &[full.clone(), variant("b", 9.0, Some((10.0, 9.0)), 0)]), [2, 3]);
        assert_eq!(counts(45.0, &[full]), [5]);
    }

    #[test]
    fn replicas_that_do_not_come_carry_nothing_and_another_variant_steps_in() {
        let mut cheap = variant("cheap", 1.0, Some((10.0, 9.0)), 5);
        assert_eq!(counts(50.0, &[cheap.clone(), variant("dear", 9.0, Some((10.0, 9.0)), 1)]), [5, 1], "while they are believed");
        cheap.absent = Replicas(2);
        assert_eq!(counts(50.0, &[cheap.clone(), variant("dear", 9.0, Some((10.0, 9.0)), 1)]), [5, 2]);
        assert_eq!(counts(50.0, &[cheap.clone()]), [5], "alone it has asked for enough");
        assert_eq!(counts(65.0, &[cheap.clone()]), [7], "a need beyond that is shown");
        assert_eq!(counts(24.0, &[cheap.clone()]), [3], "and what is not needed is not asked for any more");
        assert_eq!(counts(24.0, &[cheap, variant("dear", 9.0, Some((10.0, 9.0)), 2)]), [3, 0]);
    }

    #[test]
    fn planning_again_on_its_own_result_changes_nothing() {
        for demand in 1..400 {
            let demand = f64::from(demand) * 0.37;
            let start = [variant("a", 3.0, Some((7.0, 6.3)), 2), variant("b", 5.0, Some((13.0, 11.0)), 3)];
            let first = counts(demand, &start);
            let mut again = start.clone();
            again.iter_mut().zip(&first).for_each(|(variant, count)| variant.standing = Replicas(*count));
            let second = counts(demand, &again);
            assert_eq!(second, first, "{demand}");
        }
    }
}
