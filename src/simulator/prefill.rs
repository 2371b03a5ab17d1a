//! What does a prefill replica do? One prompt after another, each for as long as the profile's curve says.
//!
//! The curve was measured with one prompt at a time, so this is the only discipline that it describes; batches of prompts need a model of
//! the iteration. Since service is first come, first served and its length is known beforehand, the end of a prompt is known when it arrives.

use std::time::Duration;

use super::pool::Server;

/// One prefill replica.
#[derive(Debug, Default)]
pub struct PrefillReplica {
    /// When the last accepted prompt will be done.
    free_at: Duration,
    in_flight: u32,
}

impl PrefillReplica {
    /// Work that is waiting or being done.
    pub fn backlog(&self, now: Duration) -> Duration {
        self.free_at.saturating_sub(now)
    }

    /// Accepts a prompt; returns when it will be done.
    pub fn accept(&mut self, service: Duration, now: Duration) -> Duration {
        self.free_at = self.free_at.max(now) + service;
        self.in_flight += 1;
        self.free_at
    }

    /// A prompt is done.
    pub fn finish(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

impl Server for PrefillReplica {
    fn is_idle(&self) -> bool {
        self.in_flight == 0
    }
}
