//! What time is it? Both clocks, read here and nowhere else in the exporter's loop.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::units::Moment;

/// How far the zero of the monotonic clock lies before the start: samples that a Prometheus took shortly before it have a time, too.
const HEAD_START: Duration = Duration::from_secs(3600);

/// The process's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Clocks whose monotonic time starts an hour ago; now, where the system's own began later.
    pub fn start() -> Self {
        let now = Instant::now();
        Self { origin: now.checked_sub(HEAD_START).unwrap_or(now) }
    }

    /// The zero of the monotonic clock.
    pub fn origin(self) -> Instant {
        self.origin
    }

    /// Both clocks. A wall clock before 1970 reads as 1970: it is wrong in any case, and the planner re-aligns when it is set.
    pub fn now(self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Moment { monotonic: self.origin.elapsed(), wall }
    }
}
