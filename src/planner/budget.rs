//! How many replicas does a GPU budget leave to one pool, or to a pair of prefill and decode pools of one model?
//!
//! A budget is a band of GPUs: a ceiling that is never exceeded, and a floor that keeps reserved GPUs in use. Two questions are answered.
//!
//! - `clamp`: which counts lie in the band, as near in proportion to the given ones as whole replicas allow?
//! - `guard`: may this change be made? A budget dampens and never invents: a pool ends between its current and its proposed count, or stays.
//!   Only where the present itself is out of the band it is moved back, whatever was proposed.
//!
//! Whole replicas seldom meet a floor exactly. So, where both bounds are given, a total may lie under the floor by less than one replica of the
//! larger kind; the ceiling has no such tolerance.
//!
//! | current, GPUs each, band | proposed | answer | because |
//! |---|---|---|---|
//! | (28, 36), 1 and 1, 64..64 | (27, 37) | (27, 37) | a swap, and both legs move |
//! | (28, 36), 1 and 1, 64..64 | (27, 36) | stays | the floor is reached: nothing may only shrink |
//! | (24, 40), 1 and 1, ..64 | (32, 48) | stays | the ceiling is reached, and no donor is invented |
//! | (24, 36), 1 and 1, ..64 | (32, 44) | (26, 38) | the four GPUs that are free, in the proportion of the proposal |
//! | (70), 1, ..64 | (69) | 64 | the present is over the ceiling |
//!
//! Known limits. Where the smallest counts alone cost more than the ceiling the answer is none at all, as in the original; configurations like that
//! are refused before they get here. The decode pool takes what rounding leaves over, so that it can end above its proposal when a pair is clamped.
//! The original lets a floor push a single pool over the ceiling (one replica of 2 GPUs in the band 5..5 becomes three, 6 GPUs); here the ceiling
//! wins and it becomes two.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use super::policy::GpuBand;
use crate::units::Replicas;

/// What a budget did to a proposal, where it did anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetStep {
    /// The proposal cannot be followed inside the band: the current counts stay.
    Hold,
    /// The current counts are outside the band, or below their own minimum, and were moved to it.
    Reconcile,
}

/// Counts with what the budget did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarded<T> {
    /// The counts.
    pub counts: T,
    /// `None`: the proposal, as far as the band allows it.
    pub step: Option<BudgetStep>,
}

impl GpuBand {
    fn exceeds(self, gpus: u64) -> bool {
        self.max.is_some_and(|max| gpus > u64::from(max))
    }

    /// The least total that counts as inside: the floor, less one replica of the larger kind where there is a ceiling as well.
    fn least(self, largest: NonZeroU32) -> u64 {
        let tolerance = if self.max.is_some() { largest.get() } else { 0 };
        u64::from(self.min.unwrap_or(0).saturating_sub(tolerance))
    }

    fn contains(self, gpus: u64, largest: NonZeroU32) -> bool {
        !self.exceeds(gpus) && gpus >= self.least(largest)
    }

    fn is_at_min(self, gpus: u64) -> bool {
        self.min.is_some_and(|min| gpus <= u64::from(min))
    }

    fn is_at_max(self, gpus: u64) -> bool {
        self.max.is_some_and(|max| gpus >= u64::from(max))
    }
}

/// One pool under a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single {
    /// GPUs of one replica.
    pub gpus: NonZeroU32,
    /// The smallest count.
    pub floor: Replicas,
    /// The budget.
    pub band: GpuBand,
}

impl Single {
    /// The nearest count in the band.
    pub fn clamp(&self, wanted: Replicas) -> Replicas {
        let Self { gpus, floor, band } = *self;
        let total = self.cost(wanted);
        if band.contains(total, gpus) {
            return wanted;
        }
        let most = || if band.exceeds(self.cost(floor)) { Replicas(0) } else { floor.max(Replicas(band.max.unwrap_or(u32::MAX) / gpus)) };
        if band.exceeds(total) {
            return most();
        }
        let raised = floor.max(Replicas(band.min.unwrap_or(0).div_ceil(gpus.get())));
        if band.exceeds(self.cost(raised)) { most() } else { raised }
    }

    /// The change that the band allows.
    pub fn guard(&self, current: Replicas, proposed: Replicas) -> Guarded<Replicas> {
        let band = self.band;
        let total = self.cost(current);
        if band.is_open() {
            return Guarded { counts: proposed, step: None };
        }
        if !band.contains(total, self.gpus) {
            return Guarded { counts: self.clamp(current), step: Some(BudgetStep::Reconcile) };
        }
        let hold = Guarded { counts: current, step: Some(BudgetStep::Hold) };
        if (band.is_at_min(total) && proposed < current) || (band.is_at_max(total) && proposed > current) {
            return hold;
        }
        let fits = self.clamp(proposed);
        if between(current, proposed).contains(&fits) { Guarded { counts: fits, step: None } } else { hold }
    }

    /// The same, where the pool may also be below its own minimum now: then that is mended first.
    pub fn guard_with_floor(&self, current: Replicas, proposed: Replicas) -> Guarded<Replicas> {
        let raised = proposed.max(self.floor);
        if current >= self.floor {
            return self.guard(current, raised);
        }
        let counts = self.clamp(raised);
        Guarded { counts, step: (counts != raised).then_some(BudgetStep::Reconcile) }
    }

    fn cost(&self, replicas: Replicas) -> u64 {
        u64::from(replicas.0) * u64::from(self.gpus.get())
    }
}

/// A prefill and a decode pool under one budget, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// GPUs of one replica.
    pub gpus: [NonZeroU32; 2],
    /// The smallest counts.
    pub floors: [Replicas; 2],
    /// The budget of both together.
    pub band: GpuBand,
}

impl Pair {
    /// Counts in the band, in the proportion of those wanted.
    pub fn clamp(&self, wanted: [Replicas; 2]) -> [Replicas; 2] {
        let total = self.cost(wanted);
        if self.band.contains(total, self.largest()) {
            return wanted;
        }
        if self.band.exceeds(total) { self.shrunk(wanted, total) } else { self.grown(wanted, total) }
    }

    /// The change that the band allows.
    pub fn guard(&self, current: [Replicas; 2], proposed: [Replicas; 2]) -> Guarded<[Replicas; 2]> {
        let band = self.band;
        let total = self.cost(current);
        if band.is_open() {
            return Guarded { counts: proposed, step: None };
        }
        if !band.contains(total, self.largest()) {
            return Guarded { counts: self.clamp(current), step: Some(BudgetStep::Reconcile) };
        }
        let hold = Guarded { counts: current, step: Some(BudgetStep::Hold) };
        let (up, down) = ((0..2).any(|at| proposed[at] > current[at]), (0..2).any(|at| proposed[at] < current[at]));
        let (at_min, at_max) = (band.is_at_min(total), band.is_at_max(total));
        if up && down && (at_min || at_max) {
            let fits = self.fit(current, proposed);
            return if fits == current { hold } else { Guarded { counts: fits, step: None } };
        }
        if (at_min && down) || (at_max && up) {
            return hold;
        }
        let fits = self.clamp(proposed);
        let keeps_direction = (0..2).all(|at| between(current[at], proposed[at]).contains(&fits[at]));
        let allowed = keeps_direction && band.contains(self.cost(fits), self.largest());
        if allowed { Guarded { counts: fits, step: None } } else { hold }
    }

    /// The same, where a pool may also be below its own minimum now: then that is mended first, even if the other has to give.
    pub fn guard_with_floors(&self, current: [Replicas; 2], proposed: [Replicas; 2]) -> Guarded<[Replicas; 2]> {
        let raised = [proposed[0].max(self.floors[0]), proposed[1].max(self.floors[1])];
        if (0..2).all(|at| current[at] >= self.floors[at]) {
            return self.guard(current, raised);
        }
        let counts = self.clamp(raised);
        Guarded { counts, step: (counts != raised).then_some(BudgetStep::Reconcile) }
    }

    /// The pair in the band that is nearest to the proposal while each pool stays between its current and its proposed count; of two that are as
    /// near, the one that skews the proposal's proportion less, then the larger move, then fewer prefill replicas. Where one rises and the other
    /// falls, both move or neither does. The current counts where there is none.
    pub fn fit(&self, current: [Replicas; 2], proposed: [Replicas; 2]) -> [Replicas; 2] {
        let asked = [asked(current[0], proposed[0]), asked(current[1], proposed[1])];
        let swap = asked[0].signum() * asked[1].signum() < 0;
        let most = self.band.max.map_or(u32::MAX, |max| max / self.gpus[0]);
        let prefills = between(current[0], proposed[0]);
        let mut best = None;
        for prefill in prefills.start().0.max(self.floors[0].0)..=prefills.end().0.min(most) {
            let Some(decode) = self.nearest_decode(prefill, current, proposed, swap) else { continue };
            let moved = [i64::from(prefill) - i64::from(current[0].0), i64::from(decode) - i64::from(current[1].0)];
            let distance = (asked[0] - moved[0]).abs() + (asked[1] - moved[1]).abs();
            let skew = (i128::from(moved[0]) * i128::from(asked[1]) - i128::from(moved[1]) * i128::from(asked[0])).abs();
            let key = (distance, skew, -(moved[0].abs() + moved[1].abs()), prefill, decode);
            if best.is_none_or(|best| key < best) {
                best = Some(key);
            }
        }
        best.map_or(current, |(_, _, _, prefill, decode)| [Replicas(prefill), Replicas(decode)])
    }

    /// The decode count nearest to the proposed one that is in the band beside `prefill`.
    fn nearest_decode(&self, prefill: u32, current: [Replicas; 2], proposed: [Replicas; 2], swap: bool) -> Option<u32> {
        let taken = u64::from(prefill) * u64::from(self.gpus[0].get());
        let each = u64::from(self.gpus[1].get());
        let most = match self.band.max {
            None => u32::MAX,
            Some(max) => u32::try_from(u64::from(max).checked_sub(taken)? / each).unwrap_or(u32::MAX),
        };
        let least = u32::try_from(self.band.least(self.largest()).saturating_sub(taken).div_ceil(each)).unwrap_or(u32::MAX);
        let allowed = between(current[1], proposed[1]);
        let (mut low, mut high) = (allowed.start().0.max(self.floors[1].0).max(least), allowed.end().0.min(most));
        if swap {
            // Both legs or neither.
            if prefill == current[0].0 {
                (low, high) = (low.max(current[1].0), high.min(current[1].0));
            } else if proposed[1] > current[1] {
                low = low.max(current[1].0.saturating_add(1));
            } else {
                high = high.min(current[1].0.checked_sub(1)?);
            }
        }
        (low <= high).then(|| proposed[1].0.clamp(low, high))
    }

    fn shrunk(&self, wanted: [Replicas; 2], total: u64) -> [Replicas; 2] {
        let max = u64::from(self.band.max.unwrap_or(u32::MAX));
        if self.band.exceeds(self.cost(self.floors)) {
            return [Replicas(0); 2];
        }
        let room = (max - self.cost([Replicas(0), self.floors[1]])) / self.each(0);
        let share = scaled(wanted[0], max, total, false);
        let prefill = self.floors[0].max(count(room.min(share)));
        let decode = (max - self.cost([prefill, Replicas(0)])) / self.each(1);
        [prefill, self.floors[1].max(count(decode))]
    }

    fn grown(&self, wanted: [Replicas; 2], total: u64) -> [Replicas; 2] {
        let min = u64::from(self.band.min.unwrap_or(0));
        let share = if total == 0 { min.div_ceil(2 * self.each(0)) } else { scaled(wanted[0], min, total, true) };
        let prefill = self.floors[0].max(count(share));
        let decode = min.saturating_sub(self.cost([prefill, Replicas(0)])).div_ceil(self.each(1));
        let grown = [prefill, self.floors[1].max(count(decode))];
        if self.band.exceeds(self.cost(grown)) { wanted } else { grown }
    }

    fn each(&self, at: usize) -> u64 {
        u64::from(self.gpus[at].get())
    }

    fn largest(&self) -> NonZeroU32 {
        self.gpus[0].max(self.gpus[1])
    }

    fn cost(&self, counts: [Replicas; 2]) -> u64 {
        // Two products of 32 bits may need 65.
        (u64::from(counts[0].0) * self.each(0)).saturating_add(u64::from(counts[1].0) * self.each(1))
    }
}

/// `replicas * to / from` in whole replicas; exact, where the quotient of doubles would lose or buy one by its noise.
fn scaled(replicas: Replicas, to: u64, from: u64, up: bool) -> u64 {
    let (product, from) = (u128::from(replicas.0) * u128::from(to), u128::from(from.max(1)));
    let scaled = if up { product.div_ceil(from) } else { product / from };
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

fn count(replicas: u64) -> Replicas {
    Replicas(u32::try_from(replicas).unwrap_or(u32::MAX))
}

fn between(one: Replicas, other: Replicas) -> RangeInclusive<Replicas> {
    one.min(other)..=one.max(other)
}

fn asked(current: Replicas, proposed: Replicas) -> i64 {
    i64::from(proposed.0) - i64::from(current.0)
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
