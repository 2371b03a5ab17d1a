//! What would have come of it? A policy in closed loop with simulated servers, and how it is judged.
//!
//! Each tick (a scrape interval) the policy sees what it may see, answers counts, and the fleet begins to follow them: new replicas are ready
//! after the start-up, those given up drain. The requests come from a trace and do not wait for answers.
//!
//! - `policy`: what a policy is, what it sees; a constant count.
//! - `planner`: the planner, unchanged.
//! - [`faults`]: what it sees where metrics are faulty.
//! - `autoscalers`: two autoscalers that are in use for such servers.
//! - `sizing`: how many replicas the profile says a load needs; where a run begins and a search ends.
//! - `judge`, [`outcome`]: what is counted, from the requests themselves and never from what a policy says.
//! - `search`: the best setting of a policy, in hindsight.
//! - [`hindsight`](mod@hindsight): the cheapest constant counts, the cheapest plan, and what anybody could do who does not know the future.
//! - [`world`]: the servers that a configuration describes.
//! - [`comparison`]: all of it for several configurations and other autoscalers.
//!
//! Nothing here knows a clock. The same scenario and policy give the same outcome to the last bit.

mod autoscalers;
pub mod comparison;
pub mod faults;
pub mod hindsight;
mod judge;
pub mod outcome;
mod planner;
mod policy;
mod search;
mod sizing;
pub mod world;

#[cfg(test)]
mod auto_tests;
#[cfg(test)]
mod faults_tests;
#[cfg(test)]
mod sla_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

pub use autoscalers::{HpaQueue, Kpa};
pub use outcome::Outcome;
pub use planner::Planner;
pub use policy::{Answer, Policy, PoolWhy, Scheduled, Static, View, Why};
pub use search::best_of;
pub use sizing::{Load, need, per_replica};

use super::Simulation;
use super::costs::Work;
use super::fleet::{Fleet, FleetSettings, Layout};
use super::workload::Request;
use crate::units::{Replicas, Role, Seconds};
use judge::Judge;

/// Share of requests within both objectives that counts as meeting them.
pub const GOAL: f64 = 0.99;

/// How long requests may go on after the end of the trace before they count as unfinished. Nothing is scaled and nothing is paid then.
pub const GRACE: Duration = Duration::from_secs(300);

/// Shorter ticks are taken as this, so that time goes on.
const SHORTEST_TICK: Duration = Duration::from_millis(1);

/// Ticks of a run at most, and windows: each leaves a point of some 300 bytes, so that one outcome stays below half a gigabyte.
pub const MOST_TICKS: u64 = 1_000_000;

/// A load and the servers under it: all that does not depend on the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario<'a> {
    /// In order of arrival.
    pub requests: &'a [Request],
    /// How long it lasts; later requests are offered all the same and judged with the last window.
    pub length: Duration,
    /// What happens before is not judged: requests that arrive in it, counts, cost.
    pub warm_up: Duration,
    /// The servers, with the counts at the start.
    pub fleet: FleetSettings,
    /// GPUs of one replica; a role that is not listed has one.
    pub gpus: BTreeMap<Role, u32>,
    /// Objective for the time to first token of each request.
    pub ttft: Seconds,
    /// Objective for the mean token spacing of each request.
    pub itl: Seconds,
    /// Time between two questions to the policy.
    pub tick: Duration,
}

impl Scenario<'_> {
    /// The longest trace that may be played with this tick.
    pub fn longest(tick: Duration) -> Duration {
        tick.clamp(SHORTEST_TICK, judge::WINDOW).saturating_mul(u32::try_from(MOST_TICKS).unwrap_or(u32::MAX))
    }

    /// The same with other counts at the start. Roles that are not listed, or that the fleet does not have, change nothing.
    #[must_use]
    pub fn starting_with(&self, counts: &BTreeMap<Role, Replicas>) -> Self {
        let mut scenario = self.clone();
        let set = |role, replicas: &mut Replicas| *replicas = counts.get(&role).copied().unwrap_or(*replicas);
        match &mut scenario.fleet.layout {
            Layout::Disaggregated { prefill, decode } => {
                set(Role::Prefill, &mut prefill.replicas);
                set(Role::Decode, &mut decode.replicas);
            }
            Layout::Aggregated(both) => set(Role::Aggregated, &mut both.replicas),
        }
        scenario
    }

    /// GPUs of one replica of a role.
    pub fn gpus_of(&self, role: Role) -> u32 {
        self.gpus.get(&role).copied().unwrap_or(1)
    }
}

/// Requests whose prompt alone takes longer than the objective on an idle replica: no count of replicas lets them meet it.
pub fn out_of_reach(scenario: &Scenario<'_>) -> u64 {
    let entry = match scenario.fleet.layout {
        Layout::Disaggregated { prefill, .. } => prefill.replica,
        Layout::Aggregated(both) => both.replica,
    };
    let alone = |request: &&Request| {
        // As the fleet counts what is in memory; `as` saturates.
        let cached = (f64::from(request.input) * scenario.fleet.prefix_hits.get()) as u32;
        entry.costs.of(&Work::prompt(request.input, cached, entry.max_batched_tokens)) > scenario.ttft
    };
    scenario.requests.iter().filter(|request| request.at >= scenario.warm_up).filter(alone).count() as u64
}

/// Plays the whole load to the fleet under the policy.
pub fn run(scenario: &Scenario<'_>, policy: &mut dyn Policy) -> Outcome {
    let mut simulation = Simulation::new(Fleet::new(scenario.fleet), scenario.requests.iter().copied());
    let mut judge = Judge::new(scenario, &simulation.fleet);
    let tick = scenario.tick.max(SHORTEST_TICK);
    let mut warm_up = Some(scenario.warm_up.min(scenario.length));
    let mut now = Duration::ZERO;
    while now < scenario.length {
        // The judgement begins at the same moment for every policy, whatever its tick.
        if let Some(end) = warm_up.take_if(|end| *end <= now) {
            simulation.advance_to(end);
            judge.begin(&simulation.fleet);
        }
        simulation.advance_to(now);
        let answer = policy.targets(&View::of(&simulation.fleet));
        let finished = simulation.fleet.take_finished();
        for (&role, &target) in &answer.targets {
            simulation.fleet.set_target(role, target);
        }
        judge.tick(now, &simulation.fleet, &finished, &answer);
        now += tick;
    }
    if let Some(end) = warm_up {
        simulation.advance_to(end);
        judge.begin(&simulation.fleet);
    }
    simulation.advance_to(scenario.length);
    judge.paid(&simulation.fleet);
    simulation.advance_to(scenario.length + GRACE);
    let finished = simulation.fleet.take_finished();
    judge.finish(policy.name(), &finished)
}
