//! What does a replica count? What a real server of its kind exports: histograms and counters since its process began.
//!
//! Sums and counts are whole numbers (nanoseconds, tokens), so that they do not depend on the order or the grouping of what is counted. A run
//! of decode iterations is counted in one step.

use crate::engines::render::vllm::vllm_edges;
use crate::planner::input::{Histogram, Signal};

/// A histogram of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Number of values in each bucket, not cumulative; the last one is for values above every edge. Empty before the first value.
    buckets: Vec<u64>,
    sum: u64,
    count: u64,
}

impl Counts {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values: nanoseconds or tokens.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    fn add(&mut self, edges: usize, bucket: usize, times: u64) {
        if self.buckets.is_empty() {
            self.buckets = vec![0; edges + 1];
        }
        self.buckets[bucket] += times;
        self.count += times;
    }
}

/// What one replica has counted since it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReplicaCounters {
    /// By [`Signal`], in the order of [`Signal::ALL`].
    signals: [Counts; 5],
    /// Tokens generated, as they come.
    pub generated_tokens: u64,
    /// Prompt tokens of the requests whose prompts were computed here.
    pub prompt_tokens: u64,
    /// Iterations that did anything.
    pub iterations: u64,
    /// Tokens that those worked on: computed ones of prompts, and generated ones.
    pub iteration_tokens: u64,
    /// Prompts that were computed, and the nanoseconds from their first steps to their first tokens.
    pub prefilled: (u64, u64),
    /// Requests that ended here.
    pub finished: u64,
}

const NANOS: f64 = 1e9;

impl ReplicaCounters {
    /// The values of a signal.
    pub fn signal(&self, signal: Signal) -> &Counts {
        &self.signals[signal as usize]
    }

    /// A signal as a page has it: seconds or tokens, buckets cumulative.
    pub fn histogram(&self, signal: Signal) -> Histogram {
        let counts = self.signal(signal);
        let mut below = 0;
        let buckets = vllm_edges(signal).iter().enumerate().map(|(i, &edge)| {
            below += counts.buckets.get(i).copied().unwrap_or(0);
            (edge, below as f64)
        });
        let unit = if matches!(signal, Signal::PromptTokens | Signal::OutputTokens) { 1.0 } else { NANOS };
        Histogram { buckets: buckets.collect(), sum: counts.sum as f64 / unit, count: counts.count as f64, created: None }
    }

    pub(super) fn observe_prefill(&mut self, nanos: u64) {
        let (count, sum) = self.prefilled;
        self.prefilled = (count + 1, sum.saturating_add(nanos));
    }

    pub(super) fn observe_tokens(&mut self, signal: Signal, tokens: u32) {
        let edges = vllm_edges(signal);
        let bucket = edges.partition_point(|&edge| edge < f64::from(tokens));
        let counts = &mut self.signals[signal as usize];
        counts.add(edges.len(), bucket, 1);
        counts.sum += u64::from(tokens);
    }

    pub(super) fn observe_span(&mut self, signal: Signal, nanos: u64) {
        self.observe_spans(signal, nanos, 0, 1, 1);
    }

    /// Counts `first`, `first + growth`, ..., `values` of them, each `times` times.
    pub(super) fn observe_spans(&mut self, signal: Signal, first: u64, growth: u64, values: u64, times: u64) {
        if values == 0 || times == 0 {
            return;
        }
        let edges = vllm_edges(signal);
        let bucket_of = |nanos: u64| edges.partition_point(|&edge| edge < nanos as f64 / NANOS);
        let value = |index: u64| first + index * growth;
        let counts = &mut self.signals[signal as usize];
        let last_bucket = bucket_of(value(values - 1));
        let mut from = 0;
        while from < values {
            let bucket = bucket_of(value(from));
            // The first value beyond this bucket; they grow, so bisection finds it.
            let (mut inside, mut outside) = (from, values);
            if bucket == last_bucket {
                inside = values - 1;
            }
            while outside - inside > 1 {
                let middle = inside + (outside - inside) / 2;
                if bucket_of(value(middle)) == bucket { inside = middle } else { outside = middle }
            }
            counts.add(edges.len(), bucket, (inside + 1 - from) * times);
            from = inside + 1;
        }
        // Out of range only where an iteration lasts hours; a sum that stands still is then the least of all worries.
        let sum = (values.saturating_mul(first)).saturating_add(growth.saturating_mul(values * (values - 1) / 2));
        counts.sum = counts.sum.saturating_add(sum.saturating_mul(times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_as_its_values_do_one_by_one() {
        let (first, growth, values, times) = (9_000_000, 137_000, 500, 7);
        let (mut run, mut single) = (ReplicaCounters::default(), ReplicaCounters::default());
        run.observe_spans(Signal::Itl, first, growth, values, times);
        for index in 0..values {
            for _ in 0..times {
                single.observe_span(Signal::Itl, first + index * growth);
            }
        }
        assert_eq!(run, single);
        let histogram = run.histogram(Signal::Itl);
        // 9 ms + i * 0.137 ms: up to 10 ms for i <= 7, up to 25 ms for i <= 116.
        assert_eq!(histogram.buckets[..2], [(0.01, 8.0 * 7.0), (0.025, 117.0 * 7.0)]);
        assert_eq!(histogram.count, 3500.0);
    }

    #[test]
    fn signals_are_in_the_order_of_their_list() {
        for (place, signal) in Signal::ALL.into_iter().enumerate() {
            assert_eq!(signal as usize, place);
        }
    }
}
