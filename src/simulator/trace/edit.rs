//! What is left of a trace if it is cut, scaled and limited?
//!
//! In this order: cut in time, scale the number of requests, cap the lengths. Below 1 a factor thins: each request stays with that probability.
//! Above 1 it replicates: the original stays where it is, and each further copy is moved a little, so that copies do not arrive as one; the
//! fraction of the factor is a last copy that is thinned. Requests of a copy are drawn apart from other copies, so a higher factor keeps all
//! requests of a lower one.
//!
//! Thinning makes arrivals more like a Poisson process, replication keeps the bursts that are longer than the jitter. Whoever wants another rate with
//! the same regularity writes it into the shape or the table of rates.

use std::time::Duration;

use super::problem::{Fault, Problem, Problems};
use super::{Trace, check_count};
use crate::simulator::random::Random;
use crate::simulator::workload::Request;
use crate::units::{Ratio, Requests};

/// Purposes from here on are those of the copies, away from those of the other users of a seed: lots must not depend on the gaps that a
/// curve drew.
const COPIES: u64 = 1 << 32;

/// What to do with a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edits {
    /// Where the result begins.
    pub skip: Duration,
    /// How long it lasts; what arrives at its very end is out. `None`: to the end of the trace.
    pub limit: Option<Duration>,
    /// How many requests come of one; 1 leaves the trace alone.
    pub factor: Ratio,
    /// A copy arrives at most that much earlier or later than its original, and never outside of the trace.
    pub jitter: Duration,
    /// Longer prompts are cut to this, as a server's limit would refuse them. `None`: no cap.
    pub max_input: Option<u32>,
    /// Longer answers are cut to this, as `max_tokens` does. `None`: no cap.
    pub max_output: Option<u32>,
    /// The same seed gives the same requests.
    pub seed: u64,
}

impl Default for Edits {
    /// Changes nothing. The jitter is long against the gaps of busy traces and short against the intervals of planning.
    fn default() -> Self {
        let jitter = Duration::from_secs(5);
        Self { skip: Duration::ZERO, limit: None, factor: Ratio(1.0), jitter, max_input: None, max_output: None, seed: 0 }
    }
}

impl Edits {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if !(self.factor.get() >= 0.0 && self.factor.get().is_finite()) {
            let found = self.factor.get().to_string();
            problems.push(Problem::parameter("factor", Fault::Value { name: "", found, expected: "a finite number, 0 or more" }));
        }
        for (name, cap) in [("max_input", self.max_input), ("max_output", self.max_output)] {
            if cap == Some(0) {
                problems.push(Problem::parameter(name, Fault::Value { name: "", found: "0".to_owned(), expected: "1 token or more" }));
            }
        }
        problems
    }

    /// The edited trace. [`Trace::without_output`] stays a count of the whole recording.
    ///
    /// # Errors
    /// All edits that make no sense; if nothing is left; if more than [`super::MOST_REQUESTS`] are expected.
    pub fn apply(&self, mut trace: Trace) -> Result<Trace, Problems> {
        Problems::unless(self.problems(), ())?;
        self.cut(&mut trace);
        check_count(Requests(trace.requests.len() as f64 * self.factor.get()))?;
        if self.factor.get() != 1.0 {
            trace.requests = self.scaled(&trace);
        }
        for request in &mut trace.requests {
            request.input = self.max_input.map_or(request.input, |cap| request.input.min(cap));
            request.output = self.max_output.map_or(request.output, |cap| request.output.min(cap));
        }
        if trace.requests.is_empty() {
            return Err(Problem::whole(Fault::Empty).into());
        }
        Ok(trace)
    }

    fn cut(&self, trace: &mut Trace) {
        let end = self.limit.map(|limit| self.skip.saturating_add(limit));
        trace.requests.retain(|request| request.at >= self.skip && end.is_none_or(|end| request.at < end));
        for request in &mut trace.requests {
            request.at -= self.skip;
        }
        let rest = trace.length.saturating_sub(self.skip);
        trace.length = self.limit.map_or(rest, |limit| limit.min(rest));
    }

    fn scaled(&self, trace: &Trace) -> Vec<Request> {
        let factor = self.factor.get();
        let mut requests = Vec::with_capacity((trace.requests.len() as f64 * factor * 1.01) as usize);
        // The factor is finite and bounded by the check of the count, unless there is nothing to copy.
        let copies = if trace.requests.is_empty() { 0 } else { factor.ceil() as u64 };
        for copy in 0..copies {
            let stays = factor - copy as f64;
            let mut random = Random::stream(self.seed, COPIES + copy);
            for request in &trace.requests {
                // Both draws are made for every request, so that no draw depends on the factor.
                let (lot, shift) = (random.unit(), random.unit());
                if lot <= stays {
                    let at = if copy == 0 { request.at } else { self.moved(request.at, shift, trace.length) };
                    requests.push(Request { at, ..*request });
                }
            }
        }
        // Stable: copies of one moment are in the order of their numbers.
        requests.sort_by_key(|request| request.at);
        requests
    }

    /// A time moved by a share of the jitter, mirrored at the ends of the trace.
    fn moved(&self, at: Duration, share: f64, length: Duration) -> Duration {
        let shift = self.jitter.mul_f64((2.0 * share - 1.0).abs());
        if share < 0.5 {
            // Mirrored at the start, then at most at the end.
            at.abs_diff(shift).min(length)
        } else {
            let later = at.saturating_add(shift);
            if later <= length { later } else { (length + length).saturating_sub(later) }
        }
    }
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
