//! How does the planner do? It is the one that the exporter runs, called as the exporter calls it.
//!
//! It scrapes the simulated routers each tick, its plan is checked, and what it publishes becomes the target at once. Three things of the configuration have no
//! place in a backtest and are replaced: pins belong to today and not to the trace; a shadow or frozen mode would publish nothing to judge;
//! replicas are counted by the router's metric, because the simulated ones have no addresses to be discovered.

use std::time::Duration;

use super::policy::{Answer, Policy, PoolWhy, View, Why};
use crate::planner::input::{Mode, ModelInput, ModelPolicy, Reading, ReplicasFrom, SourceId, SourceInput, TargetReading};
use crate::planner::lint::lint;
use crate::planner::memory::Memory;
use crate::planner::plan::{Plan, PoolPlan, Reason};
use crate::planner::{hold, plan};
use crate::units::{Moment, TargetId};

/// Wall time of the start: a midnight, so that intervals begin with the trace.
const EPOCH: Duration = Duration::from_secs(1_795_953_600);

/// The planner with its memory.
#[derive(Clone, Debug)]
pub struct Planner {
    name: String,
    policy: ModelPolicy,
    memory: Memory,
}

impl Planner {
    /// A planner that has seen nothing yet.
    pub fn new(name: &str, policy: &ModelPolicy) -> Self {
        let mut policy = policy.clone();
        policy.mode = Mode::Publish;
        for pool in &mut policy.pools {
            pool.pin = None;
            pool.replicas_from = ReplicasFrom::Metric;
        }
        Self { name: name.to_owned(), policy, memory: Memory::default() }
    }

    fn input(&self, view: &View<'_>) -> ModelInput {
        let samples = view.router_samples(self.policy.model.as_str(), EPOCH);
        let target = |(router, sample): (usize, _)| TargetReading {
            target: TargetId(format!("router-{router:04}")),
            at: view.now(),
            reading: Reading::Sample(Box::new(sample)),
        };
        let targets = samples.into_iter().enumerate().map(target).collect();
        ModelInput { sources: vec![SourceInput { source: SourceId::Traffic, discovery_failed: false, targets }] }
    }
}

impl Policy for Planner {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn targets(&mut self, view: &View<'_>) -> Answer {
        let now = Moment { monotonic: view.now(), wall: EPOCH + view.now() };
        let input = self.input(view);
        let before = std::mem::take(&mut self.memory);
        let (mut next, mut memory) = plan(&input, before.clone(), &self.policy, now);
        if !lint(&next, &self.policy, &before).is_empty() {
            (next, memory) = hold(&input, before, &self.policy, now, Reason::LintViolation);
        }
        self.memory = memory;
        let targets = next.pools.iter().filter_map(|pool| Some((pool.role, pool.recommended_replicas?)));
        Answer { targets: targets.collect(), why: Some(why(&next)) }
    }
}

fn why(plan: &Plan) -> Why {
    let pool = |pool: &PoolPlan| (pool.role, PoolWhy { proposed: pool.proposed.clone(), steps: pool.steps.clone() });
    Why {
        reason: plan.reason,
        observed: plan.observation.as_ref().and_then(|observation| observation.requests_per_second),
        warnings: plan.warnings.clone(),
        pools: plan.pools.iter().map(pool).collect(),
    }
}
