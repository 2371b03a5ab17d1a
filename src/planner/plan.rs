//! What did the planner decide, and why? The plan, its verdict, and the steps from a wish to a number.
//!
//! What people, dashboards and alerts branch on is in `reason.rs`.
//! A value that is not known is `None`, also while a recommendation is held: unknown is not zero.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use super::reason::{
    Capability, HoldKind, LatencyCause, Limit, LoadRule, LoopDecision, Outcome, OverrideKind, Proposer, Reason, SloSource, Stage,
    StepReason, Warning,
};
pub use super::trace::{AutoTrace, CapacityTrace, EnvelopeTrace, LatencyTrace, LoadInputs, LoadTrace, QueueingTrace};
pub use super::workload::Untaught;

use super::input::SourceId;
use super::policy::{Mode, Preset, Slo, Statistic};
use super::predict::Method;
use super::predict::traffic::Outlook;
use crate::units::{ModelId, Moment, PoolId, Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds, TargetId, Tokens};

/// One stage's effect on one pool. Neighbouring steps join: the `after` of one is the `before` of the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Which stage.
    pub stage: Stage,
    /// The count that entered.
    pub before: Replicas,
    /// The count that left.
    pub after: Replicas,
    /// Why.
    pub reason: StepReason,
}

/// What one window says of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// H: the time that the window spans.
    pub elapsed_seconds: Seconds,
    /// C: requests completed.
    pub requests: Option<Requests>,
    /// Requests offered. Preset infera takes completions.
    pub offered_requests: Option<Requests>,
    /// C/H, from each target's own window.
    pub requests_per_second: Option<RequestsPerSecond>,
    /// Demand of the whole fleet, with silent targets at their last or the average load. Equals `requests_per_second` at full coverage.
    pub estimated_requests_per_second: Option<RequestsPerSecond>,
    /// I: mean prompt length.
    pub input_tokens: Option<Tokens>,
    /// O: mean generated length.
    pub output_tokens: Option<Tokens>,
    /// T: the objective's statistic of TTFT.
    pub ttft_seconds: Option<Seconds>,
    /// G: the objective's statistic of ITL.
    pub itl_seconds: Option<Seconds>,
    /// All statistics of TTFT that the window supports.
    pub ttft_statistics: BTreeMap<Statistic, Seconds>,
    /// All statistics of ITL that the window supports.
    pub itl_statistics: BTreeMap<Statistic, Seconds>,
    /// Share of requests within the TTFT objective.
    pub ttft_attainment: Option<Ratio>,
    /// Share of ITL observations within the ITL objective.
    pub itl_attainment: Option<Ratio>,
}

/// The next window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Demand that the data in hand support.
    pub requests_per_second: RequestsPerSecond,
    /// Demand with silent targets at their last or the average load; never below the former.
    pub estimated_requests_per_second: RequestsPerSecond,
    /// Mean prompt length.
    pub input_tokens: Tokens,
    /// Mean generated length.
    pub output_tokens: Tokens,
}

/// Latency estimates of the capacity model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Time to first token.
    pub ttft_seconds: Option<Seconds>,
    /// Time between tokens.
    pub itl_seconds: Option<Seconds>,
}

/// The model's estimates at two counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimates {
    /// At the observed count.
    pub current: Latencies,
    /// At the recommended count.
    pub recommended: Latencies,
}

/// Measured latency over the model's own, per phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyRatios {
    /// TTFT.
    pub prompt: Option<Ratio>,
    /// ITL.
    pub generation: Option<Ratio>,
}

/// Whether the objective of a phase is met now, and whether any count could meet it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseState {
    /// The observed statistic is within the objective.
    pub met: Option<bool>,
    /// Some count could meet it.
    pub attainable: Option<bool>,
}

/// Something that a decision was missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What.
    pub what: Capability,
    /// Whose page lacks it, the first of them; `None` where no single target is responsible.
    pub target: Option<TargetId>,
}

impl Missing {
    /// What is missing, where, and where it would come from.
    pub fn sentence(&self) -> String {
        format!("{self}: {}", self.what.meaning())
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => write!(f, "{} at {target}", self.what),
            None => write!(f, "{}", self.what),
        }
    }
}

/// A recommendation as it may be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The integer.
    pub replicas: Replicas,
    /// When it was computed or renewed, time since the Unix epoch.
    pub timestamp: Duration,
    /// Until when it may be served, time since the Unix epoch.
    pub valid_until: Duration,
}

/// The plan of one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolPlan {
    /// Which pool.
    pub pool: PoolId,
    /// Its role.
    pub role: Role,
    /// Observed ready replicas.
    pub current_replicas: Option<Replicas>,
    /// The integer to act on: what is published, `None` when nothing may be.
    pub recommended_replicas: Option<Replicas>,
    /// After limits, before override and mode.
    pub planned_replicas: Option<Replicas>,
    /// The reconciled wish before any limit.
    pub unbounded_replicas: Option<Replicas>,
    /// What each proposer asked for.
    pub proposed: BTreeMap<Proposer, Replicas>,
    /// From the wish to the plan.
    pub steps: Vec<Step>,
    /// Limits that changed the wish in the last decision, or the pin.
    pub limits_active: Vec<Limit>,
    /// 1 while the value is held rather than computed.
    pub held: bool,
    /// Why.
    pub reason: Reason,
    /// The operator's override in force.
    pub overridden: Option<OverrideKind>,
    /// What may be served.
    pub published: Option<Published>,
    /// What the slow loop did in this round.
    pub slow_loop: LoopDecision,
    /// What the fast loop did in this round; it always waits where there is none.
    pub fast_loop: LoopDecision,
    /// How full its replicas are, where the fast loop looks at that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadTrace>,
    /// What the next request would see, where the fast loop looks at that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyTrace>,
    /// What one replica serves within the objectives, where a forecast is sized for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityTrace>,
    /// How preset auto came to its wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoTrace>,
    /// What the decision was missing for this pool, also where it was made without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// What the queueing model knows of its replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<QueueingTrace>,
    /// Why the last window taught the queueing model nothing of its replicas, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untaught: Option<Untaught>,
    /// Measured time for a replica to become useful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<Seconds>,
    /// Whether replicas are awaited for much longer than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_unavailable: Option<bool>,
    /// Replicas that start and are believed to come; `None` where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coming_replicas: Option<Replicas>,
    /// Share of the known replicas that the window describes.
    pub coverage: Option<Ratio>,
    /// GPUs of one replica in force.
    pub gpus_per_replica: u32,
}

/// How a source's targets stand in this round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// Which source.
    pub source: SourceId,
    /// Targets that answered in this round.
    pub up: u32,
    /// Targets that failed in this round but answered in one of the last two.
    pub stale: u32,
    /// Targets that failed for longer.
    pub down: u32,
    /// Targets whose counters moved backwards in this round.
    pub resets: Vec<TargetId>,
}

/// The finished plan of one model in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use = "a plan that nobody reads decides nothing"]
pub struct Plan {
    /// Which model.
    pub model: ModelId,
    /// The preset in force.
    pub preset: Preset,
    /// The mode in force.
    pub mode: Mode,
    /// When it was planned.
    pub at: Moment,
    /// Whether a slow decision was due and made or skipped in this round.
    pub decided: bool,
    /// How that decision is counted.
    pub outcome: Option<Outcome>,
    /// Whether the values are held rather than computed.
    pub held: bool,
    /// Why.
    pub reason: Reason,
    /// The objectives in force.
    pub slo: Slo,
    /// Where they come from.
    #[serde(default)]
    pub slo_source: SloSource,
    /// The objectives' state by phase.
    pub prompt: PhaseState,
    /// The objectives' state by phase.
    pub generation: PhaseState,
    /// The last window, also one that was skipped.
    pub observation: Option<Observation>,
    /// The next window.
    pub prediction: Option<Prediction>,
    /// How it was forecast; `None` where it repeats the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<Outlook>,
    /// Recent one-step error of each predictor that runs, over the mean of what came.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub predictor_errors: BTreeMap<Method, Ratio>,
    /// Measured over modelled latency.
    pub latency_ratio: LatencyRatios,
    /// Estimates at the current and the recommended count.
    pub estimated: Estimates,
    /// The arithmetic of the last decision.
    pub envelope: Option<EnvelopeTrace>,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
    /// How the sources stand.
    pub sources: Vec<SourceState>,
    /// One plan a pool, in the order of the policy.
    pub pools: Vec<PoolPlan>,
}

impl Plan {
    /// Whether latency objectives are in force: written ones, or those that the preset has of its own. How full replicas are knows none.
    pub fn has_objectives(&self) -> bool {
        self.slo.explicit || self.preset == Preset::Infera || self.slo_source != SloSource::Explicit
    }

    /// The plan of one pool.
    pub fn pool(&self, pool: &PoolId) -> Option<&PoolPlan> {
        self.pools.iter().find(|plan| plan.pool == *pool)
    }
}
