//! Which plan is the cheapest of all? Tries every one; for tiny tasks, to know how good a search is.
//!
//! Plans with a common beginning share its simulation. A branch is cut when it has missed too many requests, or when it costs more than the
//! best plan even if all that follows is at its minimum; neither can hide the best.

use super::judge::{Counts, Score, State};
use super::{Plan, RoleLimits, Task, Verdict};
use crate::units::{Replicas, Role};

/// The best so far, and what does not change.
struct Walk<'a> {
    task: &'a Task<'a>,
    roles: Vec<(Role, RoleLimits)>,
    /// Every row of counts that the limits allow.
    rows: Vec<Counts>,
    intervals: usize,
    allowed: u64,
    offered: u64,
    best: Option<(Score, Counts)>,
}

impl Task<'_> {
    /// The cheapest of all plans, and its simulation. `None` if none meets the goal. Takes as long as there are plans: the number of rows of
    /// counts to the power of the number of intervals.
    pub fn exhaustive(&self) -> Option<(Plan, Verdict)> {
        let roles = self.roles();
        let mut rows = vec![Counts::new()];
        for (_, limits) in &roles {
            let longer = |row: Counts| (limits.min.0..=limits.max.0).map(move |count| [row.as_slice(), &[count]].concat());
            rows = rows.into_iter().flat_map(longer).collect();
        }
        let (allowed, offered, intervals) = (self.allowed(), self.offered(), self.intervals());
        let mut walk = Walk { task: self, roles, rows, intervals, allowed, offered, best: None };
        walk.from(None, &mut Counts::new());
        let plan = self.plan(&walk.best?.1);
        let verdict = self.judge(&plan);
        Some((plan, verdict))
    }
}

impl Walk<'_> {
    /// Tries all that may follow `counts`, which led to `state`; `None` at the start.
    fn from(&mut self, state: Option<&State>, counts: &mut Counts) {
        let interval = counts.len() / self.roles.len();
        for row in self.rows.clone() {
            let count = |role| self.roles.iter().position(|(known, _)| *known == role).map_or(0, |index| row[index]);
            let mut state = state.cloned().unwrap_or_else(|| self.task.begin(count));
            self.task.go_on(&mut state, |role| Replicas(count(role)), self.task.end_of(interval));
            if state.missed() > self.allowed {
                continue;
            }
            let cost = self.task.cost(&state);
            if self.best.as_ref().is_some_and(|(best, _)| cost + self.least_after(interval) > best.cost) {
                continue;
            }
            counts.extend_from_slice(&row);
            if interval + 1 < self.intervals {
                self.from(Some(&state), counts);
            } else {
                self.task.close(&mut state);
                let score = Score { cost, missed: self.offered - state.within() };
                if score.missed <= self.allowed && self.best.as_ref().is_none_or(|(best, _)| score < *best) {
                    self.best = Some((score, counts.clone()));
                }
            }
            counts.truncate(counts.len() - row.len());
        }
    }

    /// GPU time in nanoseconds that any plan costs after that interval.
    fn least_after(&self, interval: usize) -> u128 {
        let rest = self.task.horizon.saturating_sub(self.task.end_of(interval).max(self.task.judged_from));
        let gpus = |(_, limits): &(Role, RoleLimits)| u128::from(limits.min.0) * u128::from(limits.gpus);
        rest.as_nanos() * self.roles.iter().map(gpus).sum::<u128>()
    }
}
