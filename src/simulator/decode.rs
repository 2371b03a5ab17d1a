//! What does a decode replica do? Iterations: each gives every running request one token and lasts as long as the profile's surface says at
//! the occupancy and the mean context of that moment.
//!
//! Requests join between iterations (continuous batching), so one that arrives during an iteration waits for its end.
//! KV cache is promised for the whole answer when a request is admitted, and is occupied token by token. An engine that admits by the prompt
//! alone packs tighter and must evict at times; a profile knows no cost of eviction, so the simulator has none.
//!
//! An iteration costs the same however many requests run: those that end in iteration k wait in slot k, and all contexts grow by one
//! together, so only sums are touched.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fleet::Sequence;
use super::pool::Server;
use crate::planner::model::envelope::Envelope;
use crate::units::{Ratio, Seconds, Tokens};

/// One decode replica.
#[derive(Debug, Default)]
pub struct DecodeReplica {
    /// KV tokens promised to the admitted requests.
    promised: u64,
    /// KV tokens that the running requests occupy.
    occupied: u64,
    running: u64,
    /// Admitted, waiting for the next iteration.
    joining: Vec<Sequence>,
    /// By the iteration that gives them their last token.
    ending: BTreeMap<u64, Vec<Sequence>>,
    /// Iterations done.
    iterations: u64,
    iterating: bool,
}

impl DecodeReplica {
    /// KV tokens that admitted requests may come to occupy.
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// KV tokens occupied now.
    pub fn occupied(&self) -> u64 {
        self.occupied
    }

    /// Admits a request. The caller has seen that there is room.
    pub fn admit(&mut self, sequence: Sequence) {
        self.promised += sequence.kv_tokens();
        self.joining.push(sequence);
    }

    /// Begins an iteration unless one is running or there is nothing to do. Returns how long it lasts.
    pub fn begin(&mut self, envelope: &Envelope) -> Option<Duration> {
        if self.iterating || self.is_idle() {
            return None;
        }
        for sequence in self.joining.drain(..) {
            self.running += 1;
            // The prompt and the first token, which came with it.
            self.occupied += u64::from(sequence.input) + 1;
            // The first token came from prefill, so output - 1 iterations are left, counting this one.
            self.ending.entry(self.iterations + u64::from(sequence.output) - 1).or_default().push(sequence);
        }
        self.iterating = true;
        let (occupied, running) = (self.occupied as f64, self.running as f64);
        let point = envelope.generation(Ratio(occupied / envelope.document().decode.max_kv_tokens), Tokens(occupied / running));
        Some(span(point.latency))
    }

    /// Ends the iteration. Returns the requests that got their last token.
    pub fn end(&mut self) -> Vec<Sequence> {
        self.iterating = false;
        self.iterations += 1;
        self.occupied += self.running;
        let ended = self.ending.remove(&self.iterations).unwrap_or_default();
        for sequence in &ended {
            self.running -= 1;
            self.occupied -= sequence.kv_tokens();
            self.promised -= sequence.kv_tokens();
        }
        ended
    }
}

impl Server for DecodeReplica {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.joining.is_empty()
    }
}

/// A latency of the profile as virtual time. A checked profile has no latency that a `Duration` cannot hold; one of an unchecked profile
/// becomes a nanosecond, which still lets time go on.
pub fn span(latency: Seconds) -> Duration {
    Duration::try_from_secs_f64(latency.get()).unwrap_or_default().max(Duration::from_nanos(1))
}
