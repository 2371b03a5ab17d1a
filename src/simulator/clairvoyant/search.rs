//! Which plan is cheap? A local search that starts from plans that meet the goal and lets go of replicas while they still do.
//!
//! It starts from the cheapest constant plan and from one that follows the work. Then it lowers counts by one over blocks of intervals, long
//! blocks first, because a long block saves whole start-ups; of the blocks that may be lowered, those first that cost the fewest missed
//! requests for the GPU time they save. Exchanges come next: one interval less, another one more. In the end the best plan is shaken, a
//! count raised here and there, and improved again.

use std::time::Duration;

use super::judge::{Counts, Judge, Score};
use super::{Effort, Plan, Solution, Task};
use crate::simulator::random::Random;

/// With as many intervals or fewer, nothing is left out to save time.
const FEW: usize = 12;
/// How far apart the intervals of an exchange are at most, if there are many.
const REACH: usize = 2;
/// Halvings of the range of a margin.
const HALVINGS: u32 = 7;
/// Widest margin over the work, in square roots of the work: far above what a queue needs.
const WIDEST: f64 = 8.0;

/// A candidate that meets the goal.
type Found = (Counts, Score);

/// A block of intervals of one role.
#[derive(Clone, Copy, Debug)]
struct Block {
    role: usize,
    from: usize,
    length: usize,
}

impl Task<'_> {
    /// The cheapest plan that a search finds. `None` if no constant plan meets the goal: then the maxima, or the objectives, forbid it.
    pub fn solve(&self, effort: &Effort) -> Option<Solution> {
        self.solve_from(effort, &[])
    }

    /// The same, starting from known plans as well, such as what a policy did; of any grid, taken by the most that they ask for in each
    /// interval. Those that do not meet the goal are ignored. The answer is not dearer than any of the others so taken.
    pub fn solve_from(&self, effort: &Effort, known: &[Plan]) -> Option<Solution> {
        // The starts must be known, whatever it takes.
        let mut search = Search { judge: Judge::new(self, u64::MAX), random: Random::stream(effort.seed, 5), ordered: true };
        let constant = search.constant()?;
        let few = search.judge.intervals <= FEW;
        let mut starts = vec![constant.clone()];
        starts.extend(search.following());
        for plan in known {
            let counts = search.taken(plan);
            starts.extend(search.judge.score(&counts, false).map(|score| (counts, score)));
        }
        search.judge.limit(effort.simulations);
        starts.sort_by_key(|(_, score)| *score);
        starts.truncate(if few { 2 } else { 1 });
        let longest = search.judge.intervals;
        // The constant plan is among the starts.
        let mut best = starts[0].clone();
        for start in starts {
            let found = search.improve(start, longest);
            if found.1 < best.1 {
                best = found;
            }
        }
        for restart in 0..effort.restarts {
            if search.judge.exhausted() {
                break;
            }
            search.ordered = restart % 2 == 0;
            let Some(shaken) = search.shake(&best) else { continue };
            let found = search.improve(shaken, if few { longest } else { 2 });
            if found.1 < best.1 {
                best = found;
            }
        }
        let (plan, constant) = (self.plan(&best.0), self.plan(&constant.0));
        let (verdict, constant_verdict) = (self.judge(&plan), self.judge(&constant));
        Some(Solution { plan, verdict, constant, constant_verdict, simulated: search.judge.simulated })
    }
}

struct Search<'a> {
    judge: Judge<'a>,
    random: Random,
    /// Whether blocks are lowered in the order of what they cost, or at random.
    ordered: bool,
}

impl Search<'_> {
    /// A plan on this grid and within these limits.
    fn taken(&self, plan: &Plan) -> Counts {
        let changes = plan.changes();
        let mut counts = Counts::new();
        let mut begin = Duration::ZERO;
        for interval in 0..self.judge.intervals {
            let end = self.judge.task.end_of(interval);
            let inside = changes.partition_point(|at| *at <= begin)..changes.partition_point(|at| *at < end);
            let times = || std::iter::once(begin).chain(changes.get(inside.clone()).unwrap_or_default().iter().copied());
            for (index, (role, _)) in self.judge.roles.iter().enumerate() {
                let (low, high) = self.limits(index);
                counts.push(times().map(|at| plan.target(*role, at).0).max().unwrap_or(low).clamp(low, high));
            }
            begin = end;
        }
        counts
    }

    fn always(&self, row: &[u32]) -> Counts {
        row.repeat(self.judge.intervals)
    }

    fn limits(&self, role: usize) -> (u32, u32) {
        let limits = self.judge.roles[role].1;
        (limits.min.0, limits.max.0)
    }

    fn try_row(&mut self, row: &[u32]) -> Option<Found> {
        let counts = self.always(row);
        let score = self.judge.score(&counts, false)?;
        Some((counts, score))
    }

    /// The cheapest constant plan: along the border of those that meet the goal, taking it that more replicas are not worse.
    fn constant(&mut self) -> Option<Found> {
        let (low, high) = self.limits(0);
        if self.judge.roles.len() == 1 {
            return (low..=high).find_map(|count| self.try_row(&[count]));
        }
        let (least, most) = self.limits(1);
        let first = (low..=high).find(|&count| self.try_row(&[count, most]).is_some())?;
        // Halving first, since the most may be far above what is needed.
        let (mut fails, mut meets) = (i64::from(least) - 1, i64::from(most));
        while meets - fails > 1 {
            let middle = fails + (meets - fails) / 2;
            // Within the limits, which are 32 bits wide.
            if self.try_row(&[first, middle as u32]).is_some() { meets = middle } else { fails = middle }
        }
        let mut second = meets as u32;
        let mut best: Option<Found> = None;
        for count in first..=high {
            while second > least && self.try_row(&[count, second - 1]).is_some() {
                second -= 1;
            }
            if let Some(found) = self.try_row(&[count, second])
                && best.as_ref().is_none_or(|best| found.1 < best.1)
            {
                best = Some(found);
            }
            if second == least {
                break;
            }
        }
        best
    }

    /// The plan that follows the work with a margin of as few square roots of it as meet the goal.
    fn following(&mut self) -> Option<Found> {
        let demand = self.judge.task.demand();
        let interval = self.judge.task.end_of(0).as_secs_f64();
        // `as` saturates; a start-up longer than the trace looks to its end.
        let ahead = (self.judge.task.fleet.startup.as_secs_f64() / interval.max(1e-9)).ceil() as usize;
        let roles = self.judge.roles.len();
        let plan = |search: &Self, margins: &[f64]| -> Counts {
            let count = |at: usize, role: usize| {
                let until = at.saturating_add(ahead).saturating_add(1).min(search.judge.intervals);
                let most = demand[at..until].iter().map(|row| row[role]).fold(0.0, f64::max);
                let (low, high) = search.limits(role);
                // `as` saturates, which the limits then cut.
                ((most + margins[role] * most.sqrt()).ceil() as u32).clamp(low, high)
            };
            (0..search.judge.intervals).flat_map(|at| (0..roles).map(move |role| (at, role))).map(|(at, role)| count(at, role)).collect()
        };
        let mut margins = vec![WIDEST; roles];
        let counts = plan(self, &margins);
        let mut best = (counts.clone(), self.judge.score(&counts, false)?);
        // All roles together, then each alone.
        for which in std::iter::once(None).chain((0..roles).map(Some)) {
            let chosen = |role| which.is_none_or(|which| which == role);
            let mut fails = 0.0;
            let mut meets = (0..roles).find(|&role| chosen(role)).map_or(WIDEST, |role| margins[role]);
            for _ in 0..HALVINGS {
                let middle = f64::midpoint(fails, meets);
                let tried: Vec<f64> = (0..roles).map(|role| if chosen(role) { middle } else { margins[role] }).collect();
                let counts = plan(self, &tried);
                match self.judge.score(&counts, false) {
                    Some(score) => {
                        (meets, margins) = (middle, tried);
                        if score < best.1 {
                            best = (counts, score);
                        }
                    }
                    None => fails = middle,
                }
            }
        }
        Some(best)
    }

    /// The candidate with the counts of a block moved by one, within the limits. `None` if that changes nothing.
    fn moved(&self, counts: &[u32], block: Block, up: bool) -> Option<Counts> {
        let (low, high) = self.limits(block.role);
        let roles = self.judge.roles.len();
        let mut moved = counts.to_vec();
        for at in block.from..(block.from + block.length).min(self.judge.intervals) {
            let count = &mut moved[at * roles + block.role];
            *count = if up { (*count + 1).min(high) } else { count.saturating_sub(1).max(low) };
        }
        (moved != counts).then_some(moved)
    }

    /// Lets go of replicas and exchanges intervals until neither helps.
    fn improve(&mut self, mut current: Found, longest: usize) -> Found {
        let mut longest = longest;
        loop {
            let mut length = longest.max(1);
            loop {
                while self.lower(&mut current, length) {}
                if length == 1 {
                    break;
                }
                length = length.div_ceil(2);
            }
            if self.judge.exhausted() || !self.exchange(&mut current) {
                return current;
            }
            longest = longest.min(2);
        }
    }

    /// Lowers blocks of that length where it can. Answers whether it could.
    fn lower(&mut self, current: &mut Found, length: usize) -> bool {
        let prune = self.judge.intervals > FEW;
        self.judge.stand_on(&current.0);
        let mut blocks: Vec<(f64, Block)> = Vec::new();
        for role in 0..self.judge.roles.len() {
            for from in (0..self.judge.intervals).step_by((length / 2).max(1)) {
                let block = Block { role, from, length };
                let Some(counts) = self.moved(&current.0, block, false) else { continue };
                let Some(score) = self.judge.score(&counts, prune).filter(|score| *score < current.1) else { continue };
                let saved = current.1.cost.saturating_sub(score.cost).max(1);
                // Half a request more, so that of blocks without a miss those that save most come first.
                let price = (score.missed.saturating_sub(current.1.missed) as f64 + 0.5) / saved as f64;
                blocks.push((if self.ordered { price } else { self.random.unit() }, block));
            }
        }
        blocks.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let blocks: Vec<Block> = blocks.into_iter().map(|(_, block)| block).collect();
        self.lower_all(current, &blocks)
    }

    /// Lowers as many blocks at a time as it can, the first ones first.
    fn lower_all(&mut self, current: &mut Found, blocks: &[Block]) -> bool {
        let prune = self.judge.intervals > FEW;
        let (mut rest, mut size, mut any) = (blocks, blocks.len(), false);
        while !rest.is_empty() {
            size = size.clamp(1, rest.len());
            let mut counts = current.0.clone();
            for block in &rest[..size] {
                counts = self.moved(&counts, *block, false).unwrap_or(counts);
            }
            match self.judge.score(&counts, prune).filter(|score| *score < current.1) {
                Some(score) => {
                    *current = (counts, score);
                    self.judge.stand_on(&current.0);
                    rest = &rest[size..];
                    any = true;
                }
                None if size == 1 => rest = &rest[1..],
                None => size /= 2,
            }
        }
        any
    }

    /// Takes a replica from one interval and gives it to another where that is cheaper, or as cheap with fewer misses.
    fn exchange(&mut self, current: &mut Found) -> bool {
        let intervals = self.judge.intervals;
        let reach = if intervals <= FEW { intervals } else { REACH };
        let mut any = false;
        for role in 0..self.judge.roles.len() {
            for from in 0..intervals {
                for to in from.saturating_sub(reach)..(from + reach + 1).min(intervals) {
                    let block = |from| Block { role, from, length: 1 };
                    let lowered = (from != to).then(|| self.moved(&current.0, block(from), false)).flatten();
                    let Some(counts) = lowered.and_then(|counts| self.moved(&counts, block(to), true)) else { continue };
                    if let Some(score) = self.judge.score(&counts, false).filter(|score| *score < current.1) {
                        *current = (counts, score);
                        self.judge.stand_on(&current.0);
                        any = true;
                    }
                }
            }
        }
        any
    }

    /// The plan with counts raised in one to three blocks. `None` if that does not meet the goal.
    fn shake(&mut self, best: &Found) -> Option<Found> {
        let mut counts = best.0.clone();
        for _ in 0..=self.random.below(3) {
            let role = self.random.below(self.judge.roles.len());
            let length = 1 + self.random.below(self.judge.intervals.div_ceil(3));
            let block = Block { role, from: self.random.below(self.judge.intervals), length };
            counts = self.moved(&counts, block, true).unwrap_or(counts);
        }
        let score = self.judge.score(&counts, false)?;
        Some((counts, score))
    }
}
