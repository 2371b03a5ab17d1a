//! What was decided beforehand? The policy that a decision follows: objectives, limits, models and loops of one model, all options resolved.
//!
//! `config` lowers the user's file into [`ModelPolicy`].

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::envelope::Envelope;
use super::model::queueing::SloMultiplier;
use super::predict;
use super::predict::traffic::Traffic;
use crate::units::{ModelId, PoolId, Positive, Ratio, Replicas, Role};

/// Which number of a latency distribution is held against the objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// Sum over count.
    Mean,
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
}

impl Statistic {
    /// All statistics.
    pub const ALL: [Self; 5] = [Self::Mean, Self::P50, Self::P90, Self::P95, Self::P99];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
        }
    }

    /// The quantile, `None` for the mean.
    pub fn quantile(self) -> Option<f64> {
        match self {
            Self::Mean => None,
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P95 => Some(0.95),
            Self::P99 => Some(0.99),
        }
    }
}

/// The latency objectives of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// Time to first token, seconds.
    pub ttft: Positive,
    /// Time between tokens, seconds.
    pub itl: Positive,
    /// Of which statistic.
    pub statistic: Statistic,
    /// Whether the user wrote it; otherwise it is the preset's.
    pub explicit: bool,
}

/// A named set of values for the planner's stages (planning.md 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Infera's SLA planner.
    Infera,
    /// NVIDIA Dynamo's planner.
    Dynamo,
    /// llm-d's queueing model analyzer.
    Wva,
    /// What none of the three has: per-request attainment, start-up, backlog.
    Auto,
}

impl Preset {
    /// All presets that exist.
    pub const ALL: [Self; 4] = [Self::Infera, Self::Dynamo, Self::Wva, Self::Auto];

    /// The name in configuration and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Infera => "infera",
            Self::Dynamo => "dynamo",
            Self::Wva => "wva",
            Self::Auto => "auto",
        }
    }
}

/// Whether recommendations are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Compute and publish.
    #[default]
    Publish,
    /// Compute and export everything except the recommendation.
    Shadow,
    /// Keep the last published integer, without expiry.
    Freeze,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Publish, Self::Shadow, Self::Freeze];

    /// The name in configuration and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Shadow => "shadow",
            Self::Freeze => "freeze",
        }
    }
}

/// Limits of a pool's replicas. Invariant: `min <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(Replicas, Replicas)", into = "(Replicas, Replicas)")]
pub struct Limits {
    min: Replicas,
    max: Replicas,
}

impl Limits {
    /// `None` unless `min <= max`.
    pub fn new(min: Replicas, max: Replicas) -> Option<Self> {
        (min <= max).then_some(Self { min, max })
    }

    /// The smallest count allowed.
    pub fn min(self) -> Replicas {
        self.min
    }

    /// The largest count allowed.
    pub fn max(self) -> Replicas {
        self.max
    }

    /// The nearest allowed count.
    pub fn clamp(self, wanted: Replicas) -> Replicas {
        wanted.clamp(self.min, self.max)
    }
}

impl TryFrom<(Replicas, Replicas)> for Limits {
    type Error = String;
    fn try_from((min, max): (Replicas, Replicas)) -> Result<Self, String> {
        Self::new(min, max).ok_or_else(|| format!("expected min <= max, got {min} and {max}"))
    }
}

impl From<Limits> for (Replicas, Replicas) {
    fn from(limits: Limits) -> Self {
        (limits.min, limits.max)
    }
}

/// A count that the operator decreed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pin {
    /// The count to publish, inside the pool's limits.
    pub replicas: Replicas,
    /// Until when, as time since the Unix epoch.
    pub until: Duration,
    /// Why, in the operator's words.
    pub reason: String,
}

/// Where the number of ready replicas comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicasFrom {
    /// A router's count metric; the largest of all routers' views.
    Metric,
    /// The pods of the pool that Kubernetes calls ready, divided by [`PoolPolicy::targets_per_replica`].
    Kubernetes,
    /// The known targets of the pool, divided by [`PoolPolicy::targets_per_replica`]. A silent one counts until discovery drops it.
    Targets,
    /// A router's count where one lists the role, else the known targets: the pool's own, or the traffic targets that serve the model.
    Observed,
}

/// What the operator decided about one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolPolicy {
    /// Its name.
    pub pool: PoolId,
    /// What its replicas do.
    pub role: Role,
    /// GPUs of one replica. `None`: what the profile says.
    pub gpus_per_replica: Option<NonZeroU32>,
    /// What one replica costs, in any unit that all pools of the model share. `None`: its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Positive>,
    /// What its replicas compute on, in the operator's words. Nothing is decided by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Smallest and largest count.
    pub limits: Limits,
    /// How ready replicas are counted.
    pub replicas_from: ReplicasFrom,
    /// Scraped endpoints of one replica.
    pub targets_per_replica: NonZeroU32,
    /// What one replica can do, as far as the operator says so. What the engine exports comes first.
    #[serde(default, skip_serializing_if = "Capabilities::is_unknown")]
    pub capabilities: Capabilities,
    /// A decreed count, if there is one.
    pub pin: Option<Pin>,
}

/// What one replica can do, where the engine does not export it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Tokens of the longest request.
    pub context_length: Option<NonZeroU32>,
    /// Tokens that the KV memory holds.
    pub max_kv_tokens: Option<NonZeroU32>,
    /// Requests in a batch at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_num_seqs: Option<NonZeroU32>,
    /// Tokens of a step at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_num_batched_tokens: Option<NonZeroU32>,
}

impl Capabilities {
    /// Whether the operator said nothing.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// How far one decision may grow a pool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowthRule {
    /// At most this many times the observed count, where 0 observed counts as 1.
    TimesObserved(NonZeroU32),
    /// Beyond this many times the observed count, and beyond two replicas more, only as far as the decision before wanted as well.
    Confirm(NonZeroU32),
    /// At most this many replicas above the larger of the observed count and the last recommendation.
    Within(NonZeroU32),
}

/// GPUs that may be used, at least and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuBand {
    /// At least so many, whatever the load.
    pub min: Option<u32>,
    /// At most so many, whatever the load.
    pub max: Option<u32>,
}

impl GpuBand {
    /// Whether nothing is asked.
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }
}

/// What happens to a window in which the list of traffic targets changed or one of them restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeRule {
    /// The window is skipped.
    SkipWindow,
    /// The window counts what is known on both sides of the change.
    Tolerate,
}

/// The model of what one replica can do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapacityModel {
    /// A measured profile.
    Envelope(Box<Envelope>),
    /// The queueing model, whose parameters are learned from what the replicas do.
    Queueing(QueueingPolicy),
    /// How long iterations take, learned from what the replicas do ([`ModelPolicy::regression`]).
    Iterations,
    /// Nobody measured it: how full the replicas are decides.
    Unknown,
}

/// How the queueing model is used (planning.md 3, seed 001).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueingPolicy {
    /// k: an iteration may last k times alpha where no objective is written; that is a utilization of 1 - 1/k.
    pub multiplier: SloMultiplier,
    /// Requests in a batch at most, where neither the engine nor the pool's capabilities say so.
    pub max_batch: NonZeroU32,
    /// How long learned parameters are good for after their last window.
    pub learned_for: Duration,
}

/// How the next window is forecast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictorPolicy {
    /// Which predictor, with its numbers.
    pub settings: predict::Settings,
    /// Windows of a recorded trace that it starts with, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Traffic>,
}

/// What the fast loop does, which looks at the replicas of the moment and adds or takes away one at a time (planning.md 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPolicy {
    /// Time between two decisions; not zero.
    pub interval: Duration,
    /// When there is one too few, or one too many.
    pub rule: FastRule,
    /// Whether the counts of the slow loop are a floor; otherwise it only observes.
    #[serde(default)]
    pub floor: bool,
}

/// When a replica is added or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FastRule {
    /// By how full they are (seed 002).
    Thresholds(Thresholds),
    /// By the latencies that are expected of the next request (seeds 003 and 004).
    Objectives {
        /// Share of the objectives that may be used when a replica is given back, in 0..=1; 0 gives none back.
        sensitivity: Ratio,
        /// How long fewer replicas must have been enough, in every decision, before one is given back.
        delay: Duration,
    },
}

/// How full replicas may be: a replica is added when one is too full, and taken away when all are nearly empty and the others can carry its
/// load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// For prompts that wait at a prefill replica.
    pub prefill: Band,
    /// What the prefill band counts.
    pub prefill_unit: QueueUnit,
    /// For the share of a replica's KV memory that its requests use or wait for.
    pub decode: Band,
}

/// How preset auto decides (`planner/auto.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoPolicy {
    /// Share of requests that are to meet both objectives, in 0..1.
    pub attainment: Ratio,
    /// How long fewer replicas must have been enough before one is given back.
    pub delay: Duration,
}

/// How the time of an iteration is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegressionPolicy {
    /// Observations that are kept, and over how many lengths are averaged.
    pub samples: usize,
    /// Buckets along each dimension of load over which they are spread. At least 1.
    pub buckets_a_side: usize,
    /// Observations below which nothing is concluded.
    pub least: usize,
    /// Tokens that speculative decoding drafts at most; 0 where it is off.
    pub drafted: u32,
}

/// In what waiting prompts are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueUnit {
    /// Shares of the context length.
    ContextLengths,
    /// Tokens.
    Tokens,
}

/// Two thresholds with room between them, in which nothing happens. Invariant: `down` lies below `up`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// From here on a replica is too full.
    pub up: Threshold,
    /// Down to here a replica is nearly empty.
    pub down: Threshold,
}

/// A number that a load is held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// The number.
    pub at: f64,
    /// Whether the number itself counts as beyond it.
    pub inclusive: bool,
}

impl Threshold {
    /// Whether a load is at or over it.
    pub fn is_reached_by(self, load: f64) -> bool {
        load > self.at || self.inclusive && load == self.at
    }

    /// Whether a load is at or under it.
    pub fn is_undercut_by(self, load: f64) -> bool {
        load < self.at || self.inclusive && load == self.at
    }
}

/// Everything decided beforehand about one model. All options are resolved.
///
/// Invariant, checked by `config`: exactly one pool of role prefill and one of role decode while the capacity model is an envelope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelPolicy {
    /// Which model.
    pub model: ModelId,
    /// The preset that the values came from.
    pub preset: Preset,
    /// Whether recommendations are published.
    pub mode: Mode,
    /// The objectives.
    pub slo: Slo,
    /// Time between slow decisions; not zero.
    pub interval: Duration,
    /// Time between scrape rounds; not zero.
    pub scrape_interval: Duration,
    /// How long a recommendation is published without a new reason to.
    pub hold_for: Duration,
    /// What one replica can do.
    pub capacity: CapacityModel,
    /// What the fast loop does, where there is one. Invariant, checked by `config`: given where the capacity model is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadPolicy>,
    /// How the time of iterations is learned, where that is wanted: by the fast loop with objectives, and by [`CapacityModel::Iterations`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regression: Option<RegressionPolicy>,
    /// How preset auto decides; `None` for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoPolicy>,
    /// How long a replica that has just started counts as fresh.
    pub warm_up: Duration,
    /// How the next window is forecast; `None` repeats the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictor: Option<PredictorPolicy>,
    /// Whether measured latencies correct the capacity model.
    pub correction: bool,
    /// How far one decision may grow a pool.
    pub growth: GrowthRule,
    /// Replicas that one decision may take away; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_down: Option<NonZeroU32>,
    /// How long a pool whose replicas come one after the other is not grown further; `None` for three start-ups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition_timeout: Option<Duration>,
    /// GPUs of all its pools together, at least and at most.
    #[serde(default, skip_serializing_if = "GpuBand::is_open")]
    pub gpus: GpuBand,
    /// Under a budget of all models: larger comes first.
    #[serde(default)]
    pub priority: u32,
    /// What a changed list or a restart does to a window.
    pub traffic_change: ChangeRule,
    /// Its pools, in the order of the configuration.
    pub pools: Vec<PoolPolicy>,
}

impl ModelPolicy {
    /// Shortest window that the first decision may rest on: 60 s, or one interval if that is shorter (contract 5).
    pub fn shortest_first_window(&self) -> Duration {
        self.interval.min(Duration::from_secs(60))
    }
}
