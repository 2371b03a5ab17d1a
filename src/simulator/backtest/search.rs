//! Which constant count, or which setting of a policy, would have been the best? Known only in hindsight.
//!
//! More replicas of a role never hurt, nearly: so the fewest of each role beside plenty of the other are found by halving, and no answer has
//! fewer. From there the pairs are tried in the order of their price. The search is for fleets of a prefill and a decode pool.
//!
//! Where even the largest counts miss the goal, because of prompts that take too long on an idle replica, the search asks for that share of
//! what the largest counts attain: otherwise there would be nothing to compare with.

use std::collections::BTreeMap;

use super::{GOAL, Outcome, Policy, Scenario, Static, run};
use crate::units::{Ratio, Replicas, Role};

/// The result of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct BestStatic {
    /// The counts.
    pub counts: BTreeMap<Role, Replicas>,
    /// What came of them.
    pub outcome: Outcome,
    /// The attainment that was asked for: [`GOAL`], or less where the largest counts miss that.
    pub goal: Ratio,
    /// How many runs the search took.
    pub runs: u32,
}

/// The fewest GPUs that meet the goal over the whole trace, with counts from 1 to `most` of each role.
pub fn best_static(scenario: &Scenario<'_>, most: &BTreeMap<Role, Replicas>) -> BestStatic {
    let most_of = |role| most.get(&role).map_or(1, |count| count.0.max(1));
    let (most_prefill, most_decode) = (most_of(Role::Prefill), most_of(Role::Decode));
    let mut runs = 0;
    let mut play = |prefill: u32, decode: u32| {
        runs += 1;
        let counts = BTreeMap::from([(Role::Prefill, Replicas(prefill)), (Role::Decode, Replicas(decode))]);
        let outcome = run(&scenario.starting_with(&counts), &mut Static(counts.clone()));
        (counts, outcome)
    };
    let largest = play(most_prefill, most_decode);
    let goal = if largest.1.meets_goal() { GOAL } else { GOAL * largest.1.attainment.get() };
    let enough = |outcome: &Outcome| outcome.attainment.get() >= goal;
    let prefill = least(most_prefill, |count| enough(&play(count, most_decode).1));
    let decode = least(most_decode, |count| enough(&play(most_prefill, count).1));
    let price = |&(p, d): &(u32, u32)| {
        let of = |role, count: u32| u64::from(count) * u64::from(scenario.gpus_of(role));
        of(Role::Prefill, p) + of(Role::Decode, d)
    };
    let mut pairs: Vec<(u32, u32)> = (prefill..=most_prefill).flat_map(|p| (decode..=most_decode).map(move |d| (p, d))).collect();
    pairs.sort_by_key(|pair| (price(pair), *pair));
    let found = pairs.into_iter().map(|(p, d)| play(p, d)).find(|(_, outcome)| enough(outcome));
    // The last pair is the largest, which is enough.
    let (counts, outcome) = found.unwrap_or(largest);
    BestStatic { counts, outcome, goal: Ratio(goal), runs }
}

/// The outcome of the best candidate: the cheapest of those that attain `goal`, else the one that attains most; the first among equals.
/// `None` without candidates.
pub fn best_of<P: Policy>(scenario: &Scenario<'_>, candidates: impl IntoIterator<Item = P>, goal: Ratio) -> Option<Outcome> {
    let outcomes = candidates.into_iter().map(|mut policy| run(scenario, &mut policy));
    outcomes.reduce(|best, next| {
        let better = match (best.attainment >= goal, next.attainment >= goal) {
            (true, true) => next.gpu_hours < best.gpu_hours,
            (false, false) => next.attainment > best.attainment,
            (_, reached) => reached,
        };
        if better { next } else { best }
    })
}

/// The smallest of 1..=most for which `enough` holds, which is known of `most`.
fn least(most: u32, mut enough: impl FnMut(u32) -> bool) -> u32 {
    let (mut low, mut high) = (1, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
