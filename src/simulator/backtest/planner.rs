//! How does the planner do? It is the one that the exporter runs, called as the exporter calls it.
//!
//! It scrapes the simulated routers each tick, and the replicas as vLLM servers where it looks at how full they are or
//! learns from them. Its plan is checked, and
//! what it publishes becomes the target at once. Three things of the configuration have no place in a backtest and are replaced: pins belong to
//! today and not to the trace; a shadow or frozen mode would publish nothing to judge; replicas are counted by the router's metric, or are those
//! that take requests, because the simulated ones have no addresses to be discovered.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::faults::{Between, MetricFaults};
use super::policy::{Answer, Policy, PoolWhy, View, Why};
use crate::planner::input::{ModelInput, Reading, Sample, SourceId, SourceInput, TargetReading};
use crate::planner::lint::lint;
use crate::planner::memory::Memory;
use crate::planner::plan::{Plan, PoolPlan, Reason};
use crate::planner::policy::{CapacityModel, Mode, ModelPolicy, PoolPolicy, ReplicasFrom};
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
    between: Between,
    /// What it publishes.
    answer: Answer,
}

impl Planner {
    /// A planner that has seen nothing yet.
    pub fn new(name: &str, policy: &ModelPolicy) -> Self {
        let mut policy = policy.clone();
        policy.mode = Mode::Publish;
        let reads_servers = reads_servers(&policy);
        for pool in &mut policy.pools {
            pool.pin = None;
            pool.replicas_from = if reads_servers { ReplicasFrom::Targets } else { ReplicasFrom::Metric };
            pool.targets_per_replica = NonZeroU32::MIN;
        }
        Self { name: name.to_owned(), policy, memory: Memory::default(), between: Between::default(), answer: Answer::default() }
    }

    /// The same where metrics are faulty.
    #[must_use]
    pub fn seeing(self, faults: &MetricFaults) -> Self {
        Self { between: Between::of(faults), ..self }
    }

    fn input(&self, view: &View<'_>) -> ModelInput {
        let model = self.policy.model.as_str();
        let source = |source, name: &str, samples: Vec<(u32, Sample)>| {
            let target = |(number, sample)| TargetReading {
                // Eight digits, so that names sort as numbers do.
                target: TargetId::from(format!("{name}-{number:08}")),
                at: view.now(),
                reading: Reading::Sample(Arc::new(sample)),
            };
            SourceInput { source, discovery_failed: false, targets: samples.into_iter().map(target).collect(), lifecycle: None }
        };
        let mut sources = vec![source(SourceId::Traffic, "router", (0..).zip(view.router_samples(model, EPOCH)).collect())];
        if reads_servers(&self.policy) {
            let servers = |pool: &PoolPolicy| {
                let samples = view.server_samples(pool.role, model, EPOCH);
                source(SourceId::Pool(pool.pool.clone()), pool.role.as_str(), samples)
            };
            sources.extend(self.policy.pools.iter().map(servers));
        }
        ModelInput::of(sources)
    }
}

/// Whether it looks at the replicas themselves: at how full they are, or at what they teach.
fn reads_servers(policy: &ModelPolicy) -> bool {
    policy.load.is_some()
        || matches!(policy.capacity, CapacityModel::Queueing(_) | CapacityModel::Iterations)
        || policy.regression.is_some()
}

impl Policy for Planner {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn targets(&mut self, view: &View<'_>) -> Answer {
        let now = Moment { monotonic: view.now(), wall: EPOCH + view.now() };
        // What was published stays while a round is under way.
        let Some(input) = self.between.pass(self.input(view), now) else { return self.answer.clone() };
        let before = std::mem::take(&mut self.memory);
        let (mut next, mut memory) = plan(&input, before.clone(), &self.policy, now);
        if !lint(&next, &self.policy, &before).is_empty() {
            (next, memory) = hold(&input, before, &self.policy, now, Reason::LintViolation);
        }
        self.memory = memory;
        let targets = next.pools.iter().filter_map(|pool| Some((pool.role, pool.recommended_replicas?)));
        self.answer = Answer { targets: targets.collect(), why: Some(why(&next)) };
        self.answer.clone()
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
