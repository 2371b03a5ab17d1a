//! What does a scrape of our own page read? One immutable snapshot, swapped whole after each round.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::decisions::Standing;
use crate::history::ModelHistory;
use crate::planner::input::{FailureKind, Lifecycle};
use crate::planner::learn::Update;
use crate::planner::plan::{Limit, Outcome, Plan, Reason};
use crate::planner::policy::{GpuBand, ModelPolicy};
use crate::units::{Moment, PoolId, Role, TargetId};

/// Everything that our pages show.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When the round that it describes was planned. Health and expiry are judged by the monotonic time since.
    pub at: Moment,
    /// Whether the first scrape round has ended.
    pub ready: bool,
    /// One entry a model, in the order of the configuration.
    pub models: Vec<ModelSnapshot>,
    /// The decisions that stand.
    pub decisions: Standing,
    /// Every scraped target once, sorted by name.
    pub targets: Vec<TargetStatus>,
    /// Above this many targets the per-target families are left out.
    pub max_target_series: usize,
    /// The GPU budget of all models.
    pub gpus: GpuBand,
    /// What has been counted since the process started.
    pub counters: Counters,
    /// The last attempt to load the configuration.
    pub reload: ReloadState,
    /// Time between scrape rounds.
    pub scrape_interval: Duration,
    /// Hash of the configuration in force.
    pub config_hash: String,
    /// When the process started, since the Unix epoch.
    pub process_start: Duration,
}

/// One model's last plan with what is needed to label it.
#[derive(Clone, Debug)]
pub struct ModelSnapshot {
    /// Label of the exported series.
    pub target_namespace: String,
    /// The policy in force.
    pub policy: Arc<ModelPolicy>,
    /// The last plan.
    pub plan: Arc<Plan>,
    /// The dialect seen at each pool's targets, or at the traffic source for pools without targets; empty before the first answer.
    pub engines: BTreeMap<PoolId, String>,
    /// Replicas that start and that end, of the pools whose discovery tells them. The ready ones are the plan's.
    pub replicas: BTreeMap<PoolId, Lifecycle>,
    /// Its last hours.
    pub history: ModelHistory,
    /// What people should know beside the plan: lists of targets that could not be read again, a name that no target knows. Sentences.
    pub remarks: Vec<String>,
}

/// One target in the last round.
#[derive(Clone, Debug)]
pub struct TargetStatus {
    /// `host:port/path`.
    pub target: TargetId,
    /// The pool it belongs to; `None` for traffic.
    pub pool: Option<PoolId>,
    /// The pool's role; `None` for traffic.
    pub role: Option<Role>,
    /// The dialect; empty before the first answer.
    pub engine: String,
    /// Whether it answered.
    pub up: bool,
    /// How long the answer took.
    pub duration: Duration,
    /// Measurements that the planner can use and the page lacks.
    pub missing: Vec<&'static str>,
    /// Why it did not answer, or the first line that could not be read.
    pub problem: Option<String>,
}

/// A source of targets, for counters: a pool, or a model's traffic source (`pool` and `role` are `None`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLabels {
    /// Model.
    pub model: String,
    /// Its namespace label.
    pub target_namespace: String,
    /// Pool, if any.
    pub pool: Option<PoolId>,
    /// Its role.
    pub role: Option<Role>,
}

/// Counts since the process started. A child that is absent here counts 0; the exporter lists the children of closed sets itself.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// By model, namespace and outcome.
    pub decisions: BTreeMap<(String, String, Outcome), u64>,
    /// By model, namespace and reason.
    pub windows_skipped: BTreeMap<(String, String, Reason), u64>,
    /// By pool and limit.
    pub limits_applied: BTreeMap<(SourceLabels, Limit), u64>,
    /// By pool and what became of a window that its queueing model learned from.
    pub queueing_updates: BTreeMap<(SourceLabels, Update), u64>,
    /// By source and result; `None` is `ok`.
    pub scrapes: BTreeMap<(SourceLabels, Option<FailureKind>), u64>,
    /// By source.
    pub target_resets: BTreeMap<SourceLabels, u64>,
    /// By source whose targets are found: looks for them that succeeded, and that did not.
    pub discovery_refreshes: BTreeMap<SourceLabels, (u64, u64)>,
    /// Plans that broke a rule of the planner's own check.
    pub lint_violations: u64,
    /// Attempts to write the state file that the disk refused; `None` without one.
    pub state_write_failures: Option<u64>,
    /// Writes of reports and of the log of decisions that the disk refused, and lines that were dropped; `None` where there are none.
    pub report_write_failures: Option<u64>,
}

/// The last attempt to load the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadState {
    /// Whether it succeeded.
    pub successful: bool,
    /// When one last succeeded, since the Unix epoch.
    pub last_success: Duration,
}
