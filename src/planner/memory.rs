//! What does the planner remember from one round to the next? Nothing else carries state.
//!
//! Memory is plain data: it is recorded beside each decision, so that the decision can be made again elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arrivals::Arrivals;
use super::backlog::Backlog;
use super::followed::Followed;
use super::input::SourceId;
use super::learn::iterations::Iterations;
use super::learn::{Learned, Update, are_plausible};
use super::model::queueing::Objective;
use super::observe::Window;
use super::plan::{
    AutoTrace, CapacityTrace, EnvelopeTrace, Estimates, LatencyRatios, LatencyTrace, Limit, LoadTrace, Missing, Observation, PhaseState,
    Prediction, Proposer, Published, QueueingTrace, Reason, SloSource, Step, Untaught, Warning,
};
use super::predict::Method;
use super::predict::traffic::{Outlook, Predictor};
use super::reversals::Reversals;
use super::startup::Growth;
use super::unlearned::Asked;
use super::watching::{Reuse, Watched};
use super::window::{Departed, TargetWindow};
use crate::units::{Moment, PoolId, Ratio, Replicas, RequestsPerSecond, Role, Seconds, TargetId};

/// What is remembered of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The clocks of the last round.
    pub last_round: Option<Moment>,
    /// The window that is being observed; `None` before the first answer.
    pub window: Option<WindowMemory>,
    /// The targets of each source, in the order of the input.
    pub sources: Vec<SourceMemory>,
    /// The last slow decision, kept until the next one.
    pub decision: Option<Decision>,
    /// What the fast loop knows; `None` before its first round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadMemory>,
    /// Since when nothing was asked for and nobody worked, on the monotonic clock; `None` while that is not so, or not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Duration>,
    /// Arrivals of the last windows by role, oldest first, with when each was decided on, on the monotonic clock: what a decrease must carry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub demands: BTreeMap<Role, Vec<(Duration, RequestsPerSecond)>>,
    /// What is remembered of past windows, to forecast the next; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Predictor>,
    /// What target sla knows of each pool's iterations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub watched: BTreeMap<PoolId, Watched>,
    /// The queues that target sla follows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backlogs: BTreeMap<PoolId, Backlog>,
    /// The decreases of target sla that had to be taken back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reversals: BTreeMap<PoolId, Reversals>,
    /// What target sla knows of caches and speculation.
    #[serde(default)]
    pub reuse: Reuse,
    /// When that last took in a window, since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_at: Option<Duration>,
    /// What arrived lately; fed by preset auto only.
    #[serde(default)]
    pub arrivals: Arrivals,
    /// What preset auto follows of each pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub followed: BTreeMap<PoolId, Followed>,
    /// Whether a window of a whole interval has been seen since the process started.
    pub complete_window_seen: bool,
    /// How each pool grows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub growth: BTreeMap<PoolId, Growth>,
    /// What was recommended and published, by pool.
    pub pools: BTreeMap<PoolId, PoolMemory>,
}

/// The window that is being observed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowMemory {
    /// When it began.
    pub started: Moment,
    /// Number of the interval in which it began or was last extended: wall time over the interval.
    pub slot: u64,
    /// Why it will be skipped, if it will.
    pub spoiled: Option<Reason>,
    /// Whether it follows a clock step, so that a short one is stale and not a first one.
    pub realigned: bool,
}

/// The targets of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceMemory {
    /// Which source.
    pub source: SourceId,
    /// Its targets.
    pub targets: BTreeMap<TargetId, TargetWindow>,
    /// What targets did in this window that have left the list since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departed: Vec<Departed>,
}

/// What the fast loop remembers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadMemory {
    /// When it began, on the monotonic clock.
    pub since: Duration,
    /// Number of the interval of its last decision: wall time over the interval.
    pub slot: u64,
    /// That decision, kept until the next one.
    pub decision: Decision,
    /// The smallest counts that would have been enough at the last decisions, with when that was, oldest first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub enough: BTreeMap<PoolId, Vec<(Duration, Replicas)>>,
    /// Since when the load has asked for more without a break.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asking: BTreeMap<PoolId, Duration>,
}

/// The outcome of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// `none` or `slo_unreachable` where it was computed, else why it is held.
    pub reason: Reason,
    /// The window it rests on.
    pub observation: Option<Observation>,
    /// The next window.
    pub prediction: Option<Prediction>,
    /// How it was forecast; `None` where it repeats the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outlook: Option<Outlook>,
    /// Measured over modelled latency.
    pub latency_ratio: LatencyRatios,
    /// Estimates at the current and the recommended count.
    pub estimated: Estimates,
    /// The objectives, where they are not the policy's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<(Objective, SloSource)>,
    /// State of the TTFT objective.
    pub prompt: PhaseState,
    /// State of the ITL objective.
    pub generation: PhaseState,
    /// The arithmetic.
    pub envelope: Option<EnvelopeTrace>,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
    /// Share of the traffic targets that the window describes; `None` where the pools themselves are measured.
    pub coverage: Option<Ratio>,
    /// By pool.
    pub pools: BTreeMap<PoolId, PoolDecision>,
}

/// One pool's part of a decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolDecision {
    /// Why this pool is held while others are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// How full its replicas are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadTrace>,
    /// What the next request would see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyTrace>,
    /// What one replica serves within the objectives, for a forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityTrace>,
    /// How preset auto came to its wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoTrace>,
    /// What was missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// What the queueing model knows of its replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<QueueingTrace>,
    /// Why the last window taught nothing of them, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untaught: Option<Untaught>,
    /// What each proposer asked for.
    pub proposed: BTreeMap<Proposer, Replicas>,
    /// The reconciled wish.
    pub unbounded: Option<Replicas>,
    /// From the wish to the plan.
    pub steps: Vec<Step>,
    /// Limits that changed the wish.
    pub limits_active: Vec<Limit>,
    /// Share of the known replicas that the window describes.
    pub coverage: Option<Ratio>,
}

/// What is remembered of one pool beyond a decision; the part that survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolMemory {
    /// The last plan after limits.
    #[serde(default)]
    pub planned: Option<Replicas>,
    /// What the last decision wants, where a GPU budget may leave less; `None` is what is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<Replicas>,
    /// What the slow loop wants at least, where the fast one decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Replicas>,
    /// The value that the plan stands for; published unless an override covers it.
    #[serde(default)]
    pub published: Option<Published>,
    /// What was really published in the last round, whoever decided it.
    #[serde(default)]
    pub served: Option<Replicas>,
    /// What the queueing model has learned of its replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning: Option<Learning>,
    /// The integer that freeze latched.
    #[serde(default)]
    pub frozen: Option<Replicas>,
    /// Whether the count of its pods was published before the first decision: that happens once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub baseline: bool,
}

/// What the queueing model has learned, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learning {
    /// The estimators.
    pub learned: Learned,
    /// Time since the Unix epoch at the last window that taught anything.
    pub at: Duration,
    /// What became of the last window; `None` where it taught nothing.
    pub update: Option<Update>,
    /// The lowest mean TTFT of a window so far.
    pub lowest_ttft: Option<Seconds>,
    /// The lowest mean ITL of a window so far.
    pub lowest_itl: Option<Seconds>,
}

impl Learning {
    /// Whether windows can have led to it: what comes back from a file may have been written by anyone.
    pub fn is_sound(&self) -> bool {
        self.learned.is_sound() && are_plausible(self.lowest_ttft, None) && are_plausible(None, self.lowest_itl)
    }
}

/// The part of a model's memory that is good for another process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lasting {
    /// What was recommended and published.
    pub pools: BTreeMap<PoolId, PoolMemory>,
    /// The windows so far, with the forecasts' models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Predictor>,
    /// When the last of them ended, since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_at: Option<Duration>,
    /// What iterations cost.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub iterations: BTreeMap<PoolId, Iterations>,
    /// What preset auto asked for where it did not know them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub asked: BTreeMap<PoolId, Asked>,
}

impl Memory {
    /// The memory of a process that starts with what a former one left.
    pub fn restored(lasting: Lasting) -> Self {
        let Lasting { pools, traffic, traffic_at, iterations, asked } = lasting;
        let watched = iterations.into_iter().map(|(pool, learned)| (pool, Watched::of(learned))).collect();
        let followed = asked.into_iter().map(|(pool, asked)| (pool, Followed::having(asked))).collect();
        Self { pools, traffic, traffic_at, watched, followed, ..Self::default() }
    }

    /// What a later process may build on.
    pub fn lasting(&self) -> Lasting {
        let iterations = self.watched.iter().map(|(pool, watched)| (pool.clone(), watched.iterations.clone()));
        let asked = self.followed.iter().filter_map(|(pool, known)| Some((pool.clone(), known.spaced.asked?)));
        Lasting {
            pools: self.pools.clone(),
            traffic: self.traffic.clone(),
            traffic_at: self.traffic_at,
            iterations: iterations.collect(),
            asked: asked.collect(),
        }
    }

    /// The memory after the policy's model of capacity changed: what was derived from it is gone, what was seen and published stays.
    #[must_use]
    pub fn without_decision(mut self) -> Self {
        self.decision = None;
        self.load = None;
        self
    }

    /// The largest view of the fleet that the routers of any source gave last, for one role. `None` where none lists the role.
    pub fn workers(&self, role: Role) -> Option<Replicas> {
        self.sources.iter().flat_map(|source| source.targets.values()).filter_map(|target| target.workers(role)).max()
    }

    /// Recent one-step error of the predictors over the mean of what came, as far as they were tested.
    pub fn predictor_errors(&self) -> BTreeMap<Method, Ratio> {
        let errors = self.traffic.as_ref().map(Predictor::errors).unwrap_or_default();
        errors.into_iter().map(|(method, error)| (method, Ratio(error))).collect()
    }

    /// The targets of a source.
    pub fn source(&self, source: &SourceId) -> Option<&SourceMemory> {
        self.sources.iter().find(|memory| memory.source == *source)
    }

    /// Time of the window so far.
    pub fn window_elapsed(&self, now: Moment) -> Duration {
        self.window.map_or(Duration::ZERO, |window| now.monotonic.saturating_sub(window.started.monotonic))
    }
}

impl Decision {
    /// A decision without a result. Called with [`Reason::None`] it is the frame that the loops fill in.
    pub(super) fn held(reason: Reason, window: Option<&Window>) -> Self {
        let coverage_of = |window: &Window| window.coverage.clone();
        let mut pools = BTreeMap::new();
        for (source, coverage) in window.map(coverage_of).unwrap_or_default() {
            if let SourceId::Pool(pool) = source {
                pools.insert(pool, PoolDecision { coverage: Some(coverage), ..PoolDecision::default() });
            }
        }
        Self {
            reason,
            observation: window.map(|window| window.observation.clone()),
            prediction: None,
            outlook: None,
            latency_ratio: LatencyRatios::default(),
            estimated: Estimates::default(),
            slo: None,
            prompt: PhaseState::default(),
            generation: PhaseState::default(),
            envelope: None,
            warnings: window.map(|window| window.warnings.clone()).unwrap_or_default(),
            coverage: window.and_then(|window| window.coverage.get(&SourceId::Traffic).copied()),
            pools,
        }
    }
}

impl PoolMemory {
    /// Notes a decision. What is planned already stands between a budget and what was wanted before; it follows in this very round.
    pub(super) fn decided(&mut self, count: Replicas) {
        self.wanted = Some(count);
        self.planned = self.planned.or(Some(count));
    }
}

impl PoolDecision {
    pub(super) fn planned(&self) -> Option<Replicas> {
        self.steps.last().map(|step| step.after)
    }
}
