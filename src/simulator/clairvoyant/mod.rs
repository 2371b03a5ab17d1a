//! What would a planner that knows the future do? The plan with the fewest GPU-hours that still meets the goal on a given trace.
//!
//! A [`Plan`] gives a count for each role and interval. The replicas that it asks for obey the same rules as anyone's: they start up, they
//! drain, they have maxima. Only the count of the first interval is ready at time zero, since who knows the future has asked before.
//!
//! | question | answer |
//! |---|---|
//! | what does a plan cost, and does it meet the goal? | [`Task::judge`], by simulation |
//! | which plan is the cheapest? | [`Task::solve`]: a local search, each candidate simulated; [`Task::exhaustive`] for tiny tasks |
//! | how cheap could any plan be? | [`Task::fluid_lower_bound`]: work over capacity |
//! | how good could a policy be that sees only the past? | the plan [`Plan::delayed`] by start-up and one tick, judged |
//!
//! The goal counts all offered requests; one that is unfinished at the end of the grace after the horizon, or was refused, has missed.
//!
//! - `judge`: simulates candidates, and only the part that differs from the last one.
//! - `search`: the local search.
//! - `exhaustive`: all plans, with branches cut that cannot be the best.
//! - `fluid`: work and capacity.

mod exhaustive;
mod fluid;
mod judge;
mod search;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::fleet::FleetSettings;
use super::workload::Request;
use crate::units::{Ratio, Replicas, Role, Seconds};

/// What a request must meet, and how many requests must.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Longest time to the first token.
    pub ttft: Seconds,
    /// Longest mean spacing of the tokens after the first.
    pub itl: Seconds,
    /// Share of all offered requests that must meet both, in 0..1.
    pub attainment: Ratio,
}

/// Which counts a role may have, and what each replica costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleLimits {
    /// The fewest.
    pub min: Replicas,
    /// The most; if it is below `min`, `min` holds.
    pub max: Replicas,
    /// GPUs of one replica.
    pub gpus: u32,
}

/// What to plan for.
#[derive(Clone, Debug)]
pub struct Task<'a> {
    /// In order of arrival.
    pub requests: &'a [Request],
    /// When scaling and paying end. What comes later is not offered.
    pub horizon: Duration,
    /// When counting and paying begin; requests that arrive before are served and not judged.
    pub judged_from: Duration,
    /// How long requests may go on after the horizon. With none, the last ones have missed whatever the plan.
    pub grace: Duration,
    /// Counts may change at its multiples. Zero counts as the whole horizon.
    pub interval: Duration,
    /// The servers. Their numbers at the start are those of the plan.
    pub fleet: FleetSettings,
    /// What must be met.
    pub goal: Goal,
    /// For each role of the fleet. A role without limits stays as the fleet's settings have it, at one GPU for each replica.
    pub limits: BTreeMap<Role, RoleLimits>,
}

/// Counts over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Each count holds for that long.
    pub interval: Duration,
    /// The whole plan is late by that much; the first count holds until then as well.
    pub delay: Duration,
    /// For each role, the counts of the intervals. The last one holds for ever.
    pub counts: BTreeMap<Role, Vec<Replicas>>,
}

impl Plan {
    /// The same plan, later. By start-up and one tick, it is what a policy could do at best that asks for a replica when the need for it is
    /// there, and not before.
    #[must_use]
    pub fn delayed(&self, by: Duration) -> Self {
        Self { delay: self.delay + by, ..self.clone() }
    }

    /// The count asked for at a time; 0 for a role that the plan does not have.
    pub fn target(&self, role: Role, at: Duration) -> Replicas {
        let Some(counts) = self.counts.get(&role) else { return Replicas(0) };
        let since = at.saturating_sub(self.delay).as_nanos();
        let index = since.checked_div(self.interval.as_nanos()).unwrap_or(0);
        usize::try_from(index).ok().and_then(|index| counts.get(index)).or(counts.last()).copied().unwrap_or_default()
    }

    /// When the counts change, with time zero, in order.
    fn changes(&self) -> Vec<Duration> {
        let longest = self.counts.values().map(Vec::len).max().unwrap_or(0);
        let later = (1..longest).map(|index| self.delay + self.interval.saturating_mul(u32::try_from(index).unwrap_or(u32::MAX)));
        std::iter::once(Duration::ZERO).chain(later).collect()
    }
}

/// What the simulation of a plan found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Requests that arrived from the beginning of the judgement to the horizon.
    pub offered: u64,
    /// Requests that met both objectives.
    pub within: u64,
    /// GPU time from the request for each replica to its release, in the time that is judged.
    pub gpu_time: Duration,
    /// Whether the goal is met.
    pub met: bool,
}

impl Verdict {
    /// Requests within over requests offered; 1 if none was offered.
    pub fn attainment(&self) -> Ratio {
        Ratio(if self.offered == 0 { 1.0 } else { self.within as f64 / self.offered as f64 })
    }

    /// The GPU time in hours.
    pub fn gpu_hours(&self) -> f64 {
        self.gpu_time.as_secs_f64() / 3600.0
    }
}

/// How long to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Simulations of the whole trace, or as much of parts of it, before the search ends with what it has; those that find where to start
    /// are not counted.
    pub simulations: u64,
    /// Times that the best plan is shaken and improved again.
    pub restarts: u32,
    /// Decides how it is shaken.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { simulations: 150, restarts: 12, seed: 0 }
    }
}

/// A plan that meets the goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The cheapest that was found.
    pub plan: Plan,
    /// Its simulation.
    pub verdict: Verdict,
    /// The cheapest plan of constant counts.
    pub constant: Plan,
    /// Its simulation.
    pub constant_verdict: Verdict,
    /// Candidates that were simulated, most of them in part.
    pub simulated: u64,
}
