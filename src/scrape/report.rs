//! What came of scraping one target? A reading or a typed failure, never an abort.

use std::time::Duration;

use crate::engines::Reading;
use crate::planner::input::FailureKind;
use crate::units::TargetId;

/// One target in one round.
#[derive(Clone, Debug)]
pub struct TargetReport {
    /// Which target.
    pub target: TargetId,
    /// When the answer was complete or given up, on the process's monotonic clock; where a Prometheus was asked instead, when it had scraped
    /// the target.
    pub at: Duration,
    /// How long it took.
    pub duration: Duration,
    /// What came of it.
    pub outcome: Result<Scraped, Failure>,
}

/// A page that was read.
#[derive(Clone, Debug)]
pub struct Scraped {
    /// The dialect, configured or recognised.
    pub engine: &'static str,
    /// What the page says.
    pub reading: Reading,
    /// Lines that could not be read, or were repaired.
    pub problems: usize,
    /// The first of them, in words.
    pub first_problem: Option<String>,
    /// The lines of the requested families, only while recording.
    pub page: Option<String>,
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The closed kind: a label value.
    pub kind: FailureKind,
    /// For people: what was expected and what came. Holds no secret.
    pub message: String,
}
