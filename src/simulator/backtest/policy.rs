//! What is a policy, and what may it see?

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::planner::input::Sample;
use crate::planner::plan::{Proposer, Reason, Step, Warning};
use crate::simulator::clairvoyant::Plan;
use crate::simulator::fleet::{Fleet, ReplicaId};
use crate::units::{Replicas, RequestsPerSecond, Role};

/// What a policy wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Ready and starting replicas by role; a role that is not listed stays as it is.
    pub targets: BTreeMap<Role, Replicas>,
    /// Why, where the policy is the planner.
    pub why: Option<Why>,
}

/// How the planner came to an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Why {
    /// Of the model as a whole.
    pub reason: Reason,
    /// Completions a second in its last window; `None` before the first.
    pub observed: Option<RequestsPerSecond>,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
    /// By role.
    pub pools: BTreeMap<Role, PoolWhy>,
}

/// From proposals to the count of one pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolWhy {
    /// What each proposer asked for.
    pub proposed: BTreeMap<Proposer, Replicas>,
    /// What the limits made of it.
    pub steps: Vec<Step>,
}

/// Decides how many replicas there are.
pub trait Policy {
    /// Its name in reports.
    fn name(&self) -> String;

    /// What it wants now. Asked once each tick, in order of time.
    fn targets(&mut self, view: &View<'_>) -> Answer;
}

/// What can be seen of a fleet from outside: pages and counts, not the requests to come nor how those that ended fared.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    fleet: &'a Fleet,
}

impl<'a> View<'a> {
    pub(super) fn of(fleet: &'a Fleet) -> Self {
        Self { fleet }
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        self.fleet.now()
    }

    /// The roles of the fleet.
    pub fn roles(&self) -> impl Iterator<Item = Role> {
        self.fleet.roles()
    }

    /// Replicas that take requests.
    pub fn ready(&self, role: Role) -> Replicas {
        self.fleet.ready(role)
    }

    /// Replicas that take requests or will.
    pub fn target(&self, role: Role) -> Replicas {
        Replicas(self.fleet.ready(role).0 + self.fleet.starting(role).0)
    }

    /// Requests that wait for a role.
    pub fn waiting(&self, role: Role) -> u64 {
        self.fleet.waiting(role)
    }

    /// Requests that a role works on or that wait for it.
    pub fn concurrency(&self, role: Role) -> u64 {
        self.fleet.waiting(role) + self.fleet.batch_sizes(role).sum::<u64>()
    }

    /// What a scrape of each router gives. `epoch` is the wall time of the start.
    pub fn router_samples(&self, model: &str, epoch: Duration) -> Vec<Sample> {
        let page = |router| self.fleet.infera_page(router, model, epoch);
        (0..self.fleet.routers().len()).filter_map(page).map(|page| page.sample()).collect()
    }

    /// What a scrape of each replica that takes requests gives, as a vLLM server says it, with the replica's number.
    pub fn server_samples(&self, role: Role, model: &str, epoch: Duration) -> Vec<(u32, Sample)> {
        let page = |id: ReplicaId| Some((id.number(), self.fleet.vllm_page(role, id, model, epoch)?.sample()));
        self.fleet.taking_requests(role).filter_map(page).collect()
    }
}

/// Always the same counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Static(pub BTreeMap<Role, Replicas>);

impl Policy for Static {
    fn name(&self) -> String {
        let counts: Vec<String> = self.0.values().map(Replicas::to_string).collect();
        format!("static {}", counts.join("+"))
    }

    fn targets(&mut self, _view: &View<'_>) -> Answer {
        Answer { targets: self.0.clone(), why: None }
    }
}

/// Counts that are known beforehand. Changes between two ticks wait for the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    /// Its name in reports.
    pub name: String,
    /// The counts over time.
    pub plan: Plan,
}

impl Policy for Scheduled {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn targets(&mut self, view: &View<'_>) -> Answer {
        let target = |role: &Role| (*role, self.plan.target(*role, view.now()));
        Answer { targets: self.plan.counts.keys().map(target).collect(), why: None }
    }
}
