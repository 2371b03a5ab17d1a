//! Which facts may a decision use? Everything the planner is told in one round, with its invariants.
//!
//! Engines lower a server's page into [`Sample`]; `app` groups the samples of one round into [`ModelInput`]. All targets are listed, also those that failed, each with its cause: "12 replicas, 3 silent" must be expressible.
//!
//! Invariants: every number in a sample is finite and not negative (non-finite text never becomes a sample); histograms and counters are
//! cumulative since the series began; a map key names one series by all labels that make it distinct, so that differences are taken
//! series by series and added afterwards, never the other way round.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::allotment::Grant;
pub use super::few::Few;
pub use super::sample::{Gauge, Histogram, ItlBasis, NEEDED, Sample, SeriesKey, Signal, Tally};
use crate::units::{PoolId, TargetId};

/// Why a target gave no sample. The names are label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The host name has no address.
    Resolve,
    /// No connection, or it broke.
    Connect,
    /// No complete answer before the deadline.
    Timeout,
    /// An answer other than 200.
    Status,
    /// Not an exposition page (HTML, JSON, cut short).
    Parse,
    /// The body exceeds the limit, before or after inflating.
    TooLarge,
    /// A page without any sample that the engine knows.
    Empty,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [Self::Resolve, Self::Connect, Self::Timeout, Self::Status, Self::Parse, Self::TooLarge, Self::Empty];

    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Timeout => "timeout",
            Self::Status => "status",
            Self::Parse => "parse",
            Self::TooLarge => "too_large",
            Self::Empty => "empty",
        }
    }
}

/// How one target answered in this round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// A page was read. The sample is empty where the page says nothing of this model.
    ///
    /// Shared: the page of one round is also the last page that memory holds.
    #[serde(with = "super::sample::shared")]
    Sample(Arc<Sample>),
    /// No page.
    Failed(FailureKind),
}

/// One known target in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReading {
    /// Which target.
    pub target: TargetId,
    /// When the answer was complete, on the monotonic clock.
    pub at: Duration,
    /// What came of it.
    pub reading: Reading,
}

/// Where a group of targets belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceId {
    /// Routers or front ends that see whole requests of the model.
    Traffic,
    /// The replicas of a pool.
    Pool(PoolId),
}

/// What an orchestrator says of a source's replicas. Counts are of targets, as the list is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// They serve, and are targets.
    pub ready: u32,
    /// They will serve.
    pub starting: u32,
    /// They serve no longer.
    pub terminating: u32,
    /// Generations of one workload among those that stay; two are a rollout. 0 where they cannot be told apart.
    pub generations: u32,
    /// Whether those that have no address yet are among the starting ones. Only then is `ready + starting` what the workload asks for.
    pub complete: bool,
}

/// One traffic source or pool in one round: all its known targets, also those that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceInput {
    /// Which source.
    pub source: SourceId,
    /// Whether the list of targets could not be refreshed; the last known list is used then.
    pub discovery_failed: bool,
    /// The known targets, sorted by name, each once.
    pub targets: Vec<TargetReading>,
    /// What becomes of its replicas, where discovery tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
}

/// All facts of one round about one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelInput {
    /// The sources that have targets configured.
    pub sources: Vec<SourceInput>,
    /// What a budget of all models leaves to the pools, from what they wanted in the round before; empty where there is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allowed: BTreeMap<PoolId, Grant>,
}

impl ModelInput {
    /// The facts where no budget of several models binds.
    pub fn of(sources: Vec<SourceInput>) -> Self {
        Self { sources, allowed: BTreeMap::new() }
    }
}
