//! Who gets the GPUs when several models share one budget? The clamp of a pair (`budget.rs`), one level up: any number of pools, with priorities.
//!
//! Three steps, each in whole replicas and exact arithmetic; pools of one priority stand in the order of their names, so that the order of the
//! configuration decides nothing.
//!
//! 1. Under the ceiling. Every pool keeps its floor. What is left goes to the priorities from the highest down. In one priority pools first keep what
//!    they have and still want, then share what they want more; where it is not enough for all, each gets its share in proportion to what it wants
//!    beyond, and the GPUs that rounding leaves over go to the largest remainders. So no pool is taken from for another one of its own priority,
//!    but it is for a higher one.
//! 2. Up to the minimum. Below it, pools first keep what they wanted to give back, then those of the highest priority grow beyond their wishes, in
//!    proportion. As in a pair, a total may lie under the minimum by less than the largest replica where there is a ceiling as well.
//! 3. What others still hold. A pool rises only into the budget less the sum of what the other pools hold: replicas that end use their GPUs to
//!    the end, and replicas that are recommended but not there yet will use them. A rise to a pool's floor does not wait.
//!
//! | budget 8, 1 GPU each | stands | wants | equal priority | B has the higher one |
//! |---|---|---|---|---|
//! | A, floor 1 | 6 | 6 | 6 | 1 |
//! | B, floor 1 | 2 | 10 | 2 | 2 now, and 7 when five of A's have gone |
//!
//! Why not the priority as a weight: an operator who writes that one model is more important means that it comes first, and can tell what happens.
//!
//! Known limits: GPUs that a higher priority cannot use in whole replicas go to a lower one. A pool that is pending for ever holds its GPUs here;
//! who knows that it will not come (`startup.rs`) leaves it out of what stands. Where the floors alone exceed the ceiling each pool gets its floor;
//! configurations like that are refused before they get here.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::policy::GpuBand;
use crate::units::{PoolId, Replicas};

/// What one pool asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which pool; each once.
    pub pool: PoolId,
    /// Of its model: the larger comes first.
    pub priority: i32,
    /// GPUs of one replica.
    pub gpus: NonZeroU32,
    /// What it wants after all limits of its own. Below its floor it is the floor.
    pub wish: Replicas,
    /// Its smallest count.
    pub floor: Replicas,
    /// What it holds of the budget: the larger of what is recommended and what is ready, starting or ending.
    pub stands: Replicas,
}

/// What a pool gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The count.
    pub replicas: Replicas,
    /// Why it is not the wish, if it is not.
    pub cause: Option<Cause>,
}

/// What moved a count away from the wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The wish is below the pool's own floor.
    Floor,
    /// The ceiling is not enough for all wishes.
    Ceiling,
    /// The minimum has to be used.
    Minimum,
    /// It rises when others have let go of their GPUs.
    HeldByOthers,
}

/// The counts of all pools under one budget.
pub fn allot(claims: &[Claim], band: GpuBand) -> BTreeMap<PoolId, Grant> {
    let mut ordered: Vec<&Claim> = claims.iter().collect();
    ordered.sort_by(|one, other| other.priority.cmp(&one.priority).then_with(|| one.pool.cmp(&other.pool)));
    let wanted: Vec<u32> = ordered.iter().map(|claim| claim.wish.max(claim.floor).0).collect();
    let under = under_ceiling(&ordered, &wanted, band);
    let reached = up_to_minimum(&ordered, &under, band);
    let counts = held_back(&ordered, &reached, band);
    let grants = ordered.iter().enumerate().map(|(at, claim)| {
        let cause = match counts[at].cmp(&claim.wish.0) {
            Ordering::Equal => None,
            Ordering::Less if counts[at] < reached[at] => Some(Cause::HeldByOthers),
            Ordering::Less => Some(Cause::Ceiling),
            Ordering::Greater if counts[at] == claim.floor.0 => Some(Cause::Floor),
            Ordering::Greater => Some(Cause::Minimum),
        };
        (claim.pool.clone(), Grant { replicas: Replicas(counts[at]), cause })
    });
    grants.collect()
}

/// Step 1.
fn under_ceiling(claims: &[&Claim], wanted: &[u32], band: GpuBand) -> Vec<u32> {
    let Some(max) = band.max.map(u64::from).filter(|max| total(claims, wanted) > *max) else { return wanted.to_vec() };
    let mut counts: Vec<u32> = claims.iter().map(|claim| claim.floor.0).collect();
    let mut free = max.saturating_sub(total(claims, &counts));
    for class in classes(claims) {
        let keeps: Vec<u32> = class.clone().map(|at| wanted[at].min(claims[at].stands.0).max(counts[at])).collect();
        share(&claims[class.clone()], &mut counts[class.clone()], &keeps, &mut free);
        share(&claims[class.clone()], &mut counts[class.clone()], &wanted[class], &mut free);
    }
    counts
}

/// Step 2.
fn up_to_minimum(claims: &[&Claim], counts: &[u32], band: GpuBand) -> Vec<u32> {
    let mut counts = counts.to_vec();
    let Some(min) = band.min.map(u64::from) else { return counts };
    let ceiling = band.max.map_or(u64::MAX, u64::from);
    let largest = claims.iter().map(|claim| u64::from(claim.gpus.get())).max().unwrap_or(0);
    let tolerance = if band.max.is_some() { largest } else { 0 };
    if total(claims, &counts) >= min.saturating_sub(tolerance) {
        return counts;
    }
    let goal = min.min(ceiling);
    let kept: Vec<u32> = claims.iter().zip(&counts).map(|(claim, count)| claim.stands.0.max(*count)).collect();
    for class in classes(claims) {
        let weights: Vec<u64> = class.clone().map(|at| u64::from(kept[at] - counts[at])).collect();
        top_up(claims, &mut counts, class, &TopUp { weights, most: &kept, goal, ceiling });
    }
    let endless = vec![u32::MAX; claims.len()];
    for class in classes(claims) {
        let weights = class.clone().map(|at| u64::from(counts[at].max(1))).collect();
        top_up(claims, &mut counts, class, &TopUp { weights, most: &endless, goal, ceiling });
    }
    counts
}

/// How far counts are raised.
struct TopUp<'a> {
    /// In what proportion those of the class rise.
    weights: Vec<u64>,
    /// The largest counts, of all pools.
    most: &'a [u32],
    /// GPUs that are to be used.
    goal: u64,
    /// GPUs that may be used.
    ceiling: u64,
}

/// Raises the counts of one class until the goal is reached, or no replica more fits under the ceiling.
fn top_up(claims: &[&Claim], counts: &mut [u32], class: Range<usize>, to: &TopUp<'_>) {
    let missing = to.goal.saturating_sub(total(claims, counts));
    let weighed: u128 = class.clone().zip(&to.weights).map(|(at, weight)| u128::from(*weight) * u128::from(claims[at].gpus.get())).sum();
    if missing == 0 || weighed == 0 {
        return;
    }
    for (at, weight) in class.clone().zip(&to.weights) {
        let part = u128::from(*weight) * u128::from(missing) / weighed;
        counts[at] = counts[at].saturating_add(u32::try_from(part).unwrap_or(u32::MAX)).min(to.most[at]);
    }
    // What rounding left over, one replica at a time, to the pool that is farthest behind its weight.
    loop {
        let used = total(claims, counts);
        let fits = |at: &usize| counts[*at] < to.most[*at] && used.saturating_add(u64::from(claims[*at].gpus.get())) <= to.ceiling;
        let behind = |at: &usize| u128::from(counts[*at]) * weighed / u128::from(to.weights[*at - class.start].max(1));
        let next = class.clone().filter(fits).min_by_key(behind);
        match next {
            Some(at) if used < to.goal => counts[at] += 1,
            _ => return,
        }
    }
}

/// Step 3.
fn held_back(claims: &[&Claim], counts: &[u32], band: GpuBand) -> Vec<u32> {
    let Some(max) = band.max.map(u64::from) else { return counts.to_vec() };
    let mut allowed: Vec<u32> = claims.iter().zip(counts).map(|(claim, count)| (*count).min(claim.stands.0.max(claim.floor.0))).collect();
    let holds: Vec<u32> = claims.iter().zip(&allowed).map(|(claim, allowed)| claim.stands.0.max(*allowed)).collect();
    let mut free = max.saturating_sub(total(claims, &holds));
    for class in classes(claims) {
        share(&claims[class.clone()], &mut allowed[class.clone()], &counts[class], &mut free);
    }
    allowed
}

/// Raises the counts of one class to the targets; where what is free is not enough for all, in proportion to what is missing, and what rounding leaves
/// over to the largest remainders.
fn share(class: &[&Claim], counts: &mut [u32], targets: &[u32], free: &mut u64) {
    let gaps: Vec<u32> = counts.iter().zip(targets).map(|(count, target)| target.saturating_sub(*count)).collect();
    let need = total(class, &gaps);
    if need <= *free {
        counts.iter_mut().zip(&gaps).for_each(|(count, gap)| *count += gap);
        *free -= need;
        return;
    }
    let products: Vec<u128> = gaps.iter().map(|gap| u128::from(*gap) * u128::from(*free)).collect();
    let parts: Vec<u32> = products.iter().map(|product| u32::try_from(product / u128::from(need)).unwrap_or(u32::MAX)).collect();
    counts.iter_mut().zip(&parts).for_each(|(count, part)| *count += part);
    *free -= total(class, &parts);
    let mut order: Vec<usize> = (0..class.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(products[*at] % u128::from(need)));
    loop {
        let before = *free;
        for at in &order {
            let each = u64::from(class[*at].gpus.get());
            if counts[*at] < targets[*at] && each <= *free {
                counts[*at] += 1;
                *free -= each;
            }
        }
        if *free == before {
            return;
        }
    }
}

/// The pools of each priority, from the highest down.
fn classes(claims: &[&Claim]) -> Vec<Range<usize>> {
    let mut classes: Vec<Range<usize>> = Vec::new();
    for (at, claim) in claims.iter().enumerate() {
        match classes.last_mut() {
            Some(last) if claims[last.start].priority == claim.priority => last.end = at + 1,
            _ => classes.push(at..at + 1),
        }
    }
    classes
}

fn total(claims: &[&Claim], counts: &[u32]) -> u64 {
    let costs = claims.iter().zip(counts).map(|(claim, count)| u64::from(claim.gpus.get()) * u64::from(*count));
    costs.fold(0, u64::saturating_add)
}

#[cfg(test)]
#[path = "allotment_tests.rs"]
mod tests;
