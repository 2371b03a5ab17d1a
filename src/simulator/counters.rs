//! What is counted? What each router exports, as a real one does, and the truth that a real deployment does not know.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::planner::input::{Histogram, Signal};

/// What one router has seen. Everything about a request is counted when it ends, because a real router records only replies that succeeded.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct RouterCounters {
    /// Requests that have arrived and not ended.
    pub in_flight: u64,
    /// A histogram for each signal that has been observed.
    pub histograms: BTreeMap<Signal, Series>,
}

/// A histogram and its age.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// When the first observation made it, since the start of the simulation.
    pub created: Duration,
    /// The counts since then.
    pub histogram: Histogram,
}

impl RouterCounters {
    /// Counts one value. `edges` are the upper bounds of the finite buckets; the first call for a signal decides them.
    pub fn observe(&mut self, signal: Signal, edges: &[f64], value: f64, now: Duration) {
        let empty = || Histogram { buckets: edges.iter().map(|&edge| (edge, 0.0)).collect(), ..Histogram::default() };
        let series = self.histograms.entry(signal).or_insert_with(|| Series { created: now, histogram: empty() });
        let histogram = &mut series.histogram;
        histogram.sum += value;
        histogram.count += 1.0;
        for (_, count) in histogram.buckets.iter_mut().filter(|(edge, _)| value <= *edge) {
            *count += 1.0;
        }
    }
}

/// Everything that happened, over all routers.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Truth {
    /// Requests that arrived.
    pub offered: u64,
    /// Requests that got their last token.
    pub completed: u64,
    /// Requests that no replica could ever hold; turned away on arrival.
    pub refused: u64,
    /// Sum over completed requests, seconds.
    pub ttft_sum: f64,
    /// Sum of the mean token spacing of each completed request with at least two tokens, seconds.
    pub itl_sum: f64,
    /// Completed requests with at least two tokens.
    pub itl_count: u64,
    /// Sum over completed requests, from arrival to last token, seconds.
    pub duration_sum: f64,
    /// Prompt tokens of completed requests.
    pub input_tokens: u64,
    /// Tokens generated for completed requests.
    pub output_tokens: u64,
}

impl Truth {
    /// Requests that have arrived and not ended.
    pub fn in_flight(&self) -> u64 {
        self.offered - self.completed - self.refused
    }

    /// Mean TTFT of what completed since `earlier`, seconds; `None` if nothing did.
    pub fn mean_ttft_since(&self, earlier: &Self) -> Option<f64> {
        mean(self.ttft_sum - earlier.ttft_sum, self.completed - earlier.completed)
    }

    /// Mean token spacing of what completed since `earlier`, seconds; `None` if nothing with two tokens did.
    pub fn mean_itl_since(&self, earlier: &Self) -> Option<f64> {
        mean(self.itl_sum - earlier.itl_sum, self.itl_count - earlier.itl_count)
    }
}

fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}
