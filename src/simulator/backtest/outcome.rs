//! How good was a policy, and at what price?

use std::collections::BTreeMap;

use serde::Serialize;

use super::policy::Why;
use crate::planner::plan::Reason;
use crate::units::{Ratio, Replicas, RequestsPerSecond, Role, Seconds};

/// What came of a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy's name.
    pub policy: String,
    /// Requests that arrived after the warm-up; all that follows is of these.
    pub offered: u64,
    /// Requests that got their last token.
    pub completed: u64,
    /// Requests that no replica could ever hold.
    pub refused: u64,
    /// Requests that had not ended [`super::GRACE`] after the end of the trace.
    pub unfinished: u64,
    /// Requests that met both objectives.
    pub within: u64,
    /// `within` over `offered`; 1 if nothing was offered.
    pub attainment: Ratio,
    /// Times to the first token of completed requests; `None` if there were none.
    pub ttft: Option<Spread>,
    /// Mean token spacings of completed requests; `None` if none had a second token.
    pub itl: Option<Spread>,
    /// GPU time from the request for each replica to its release, from the end of the warm-up to the end of the trace, hours.
    pub gpu_hours: f64,
    /// Length of the trace after the warm-up, hours.
    pub hours: f64,
    /// What was scaled.
    pub roles: BTreeMap<Role, Scaling>,
    /// Time in windows of 60 s of whose requests less than [`super::GOAL`] met both objectives.
    pub violation: Seconds,
    /// The longest time without a good window between bad ones. A window without requests is good.
    pub longest_violation: Seconds,
    /// Whether its settings were chosen on the very trace, as no operator could.
    pub chosen_in_hindsight: bool,
    /// Time between two points of the series.
    pub tick: Seconds,
    /// The counts at the start, and each change of a count or of the planner's reason.
    pub decisions: Vec<Decision>,
    /// One point a tick, from the start on.
    pub series: Vec<Point>,
}

impl Outcome {
    /// Whether [`super::GOAL`] is met.
    pub fn meets_goal(&self) -> bool {
        self.attainment.get() >= super::GOAL
    }
}

/// Quantiles of what was measured exactly; each is a measured value, the smallest that is not below that share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: Seconds,
    /// 95th percentile.
    pub p95: Seconds,
    /// 99th percentile.
    pub p99: Seconds,
}

impl Spread {
    /// `None` of nothing.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        // `as` is exact far beyond any number of requests.
        let rank = |share: f64| ((share * values.len() as f64).ceil() as usize).max(1) - 1;
        let at = |share| values.get(rank(share)).map(|&value| Seconds(value));
        Some(Self { p50: at(0.5)?, p95: at(0.95)?, p99: at(0.99)? })
    }
}

/// How the count of a role moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scaling {
    /// Raises.
    pub ups: u32,
    /// Cuts.
    pub downs: u32,
    /// Changes in the other direction than the last one, at most 10 minutes after it.
    pub reversals: u32,
    /// Most replicas at a time that were paid for, those that start or drain included.
    pub peak: Replicas,
    /// GPU time, hours.
    pub gpu_hours: f64,
}

/// What happened in a tick.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its end, since the start.
    pub at: Seconds,
    /// The counts after the policy was asked.
    pub replicas: BTreeMap<Role, Counts>,
    /// Requests that arrived in it.
    pub offered: RequestsPerSecond,
    /// Requests that got their last token in it.
    pub completed: RequestsPerSecond,
    /// Mean over those; `None` if there were none.
    pub ttft: Option<Seconds>,
    /// Mean over those that had a second token; `None` if there were none.
    pub itl: Option<Seconds>,
    /// Completions a second as the planner saw them in its last window; `None` for other policies and before its first window.
    pub observed: Option<RequestsPerSecond>,
    /// What the planner said.
    pub reason: Option<Reason>,
}

/// A moment at which something changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// When, since the start.
    pub at: Seconds,
    /// Ready and starting replicas from then on.
    pub replicas: BTreeMap<Role, Replicas>,
    /// Why, where the policy is the planner.
    pub why: Option<Why>,
}

/// The counts of a role.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Counts {
    /// What the policy wants: ready and starting.
    pub recommended: Replicas,
    /// Those that take requests.
    pub ready: Replicas,
}
