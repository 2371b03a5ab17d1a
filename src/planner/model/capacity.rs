//! How many requests a second can one replica serve within its objectives? A search over batch sizes, given the time of an iteration.
//!
//! A batch of B requests is held steady, and the latencies and the rate at that B follow from the time f of the iterations (`iteration.rs`). The
//! answer is the batch with the highest rate among those that meet the objectives. Where none does, it is the highest rate of all and says that it
//! is not eligible: no number of replicas makes a single request faster, but traffic has to be carried all the same.
//!
//! With I prompt tokens, O generated tokens, h the share of the prompt that a cache holds and a tokens accepted by a decoding step (1 without
//! speculation): E = ceil(I * (1 - h)) tokens are computed, and a request holds c = I + floor(O / 2) tokens of KV memory on average.
//!
//! | role | largest batch | TTFT | ITL | requests a second |
//! |---|---|---|---|---|
//! | prefill | tokens of a step / E, at least 1 | chunks of E * B tokens | - | B / TTFT |
//! | decode | KV tokens / c | - | f(B requests, B c KV tokens) / a | B / (O * ITL) |
//! | aggregated | as decode, below the tokens of a step | chunks of p + E tokens, each beside B requests | f(p, B, B c) / a | B / (O * ITL) |
//!
//! In an aggregated server p = ceil(B a E / O) prompt tokens enter with each iteration, as many as leave with the B a / O requests that finish; a batch
//! whose p leaves no room in a step of the largest size is not steady and is skipped. All are bounded by the largest number of requests in a batch.
//!
//! Up to 128 batch sizes are tried, all where there are no more, else evenly spaced with both ends. Ties keep the smaller batch.
//!
//! A cache discounts the prompt's computing and not its memory, and at most 95 %: a share that was seen yesterday must not make tomorrow's prompts
//! free. Missing, it is 0.
//!
//! Worked, decode: f = 5 ms + 50 us B + 0.1 us KV, I 1000, O 200, so c = 1100; 100 000 KV tokens hold 90. An ITL of 10 ms allows B = 31
//! (5 + 1.55 + 3.41 = 9.96 ms), which is 31 / (200 * 0.00996) = 15.56 requests/s. With a = 2 all 90 fit (9.7 ms): 46.39 requests/s.
//!
//! Known limits: mean lengths stand for all; a server is busy in each moment, so that bursts that wait are not in it; the ranks of data parallel
//! attention are not modelled, a replica is one engine.

use std::num::NonZeroU32;

use super::iteration::{Iteration, Work};
use crate::units::{Ratio, Requests, RequestsPerSecond, Role, Seconds, Tokens};

/// Batch sizes that are tried at most.
const MOST_CANDIDATES: u32 = 128;
/// Largest share of a prompt that a cache is trusted to hold.
const LARGEST_HIT_RATE: f64 = 0.95;
/// Share by which a latency may exceed its objective, or a rate must exceed another: the noise of double precision.
const NOISE: f64 = 1e-9;

/// What one engine can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Tokens in one iteration.
    pub batched_tokens: NonZeroU32,
    /// Requests in one batch.
    pub sequences: NonZeroU32,
    /// Tokens in the KV memory.
    pub kv_tokens: NonZeroU32,
}

impl EngineLimits {
    /// What the original takes for what an engine does not say: 8192 tokens a step, 512 requests, 2 000 000 KV tokens.
    pub fn or_assumed(batched_tokens: Option<NonZeroU32>, sequences: Option<NonZeroU32>, kv_tokens: Option<NonZeroU32>) -> Self {
        const fn assumed(count: u32) -> NonZeroU32 {
            NonZeroU32::MIN.saturating_add(count - 1)
        }
        Self {
            batched_tokens: batched_tokens.unwrap_or(assumed(8192)),
            sequences: sequences.unwrap_or(assumed(512)),
            kv_tokens: kv_tokens.unwrap_or(assumed(2_000_000)),
        }
    }
}

/// What requests look like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// I: mean tokens of a prompt.
    pub input: Tokens,
    /// O: mean generated tokens; a prefill replica does not look at it.
    pub output: Tokens,
    /// h: share of the prompts that a cache held.
    pub hit_rate: Option<Ratio>,
    /// a: tokens of a decoding step; see [`accept_length`].
    pub accept_length: Option<Ratio>,
}

/// Latencies that are asked for. A role that has no such latency cannot meet it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objectives {
    /// Time to first token.
    pub ttft: Option<Seconds>,
    /// Time between tokens.
    pub itl: Option<Seconds>,
    /// Time of the whole request.
    pub duration: Option<Seconds>,
}

/// What is best among the batches that meet the objectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefer {
    /// The highest rate.
    Rate,
    /// The shortest duration, then TTFT, then ITL.
    Latency,
}

/// A batch size with what it means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Requests that one replica serves.
    pub rate: RequestsPerSecond,
    /// Time to first token; `None` for role decode.
    pub ttft: Option<Seconds>,
    /// Time between tokens; `None` for role prefill.
    pub itl: Option<Seconds>,
    /// Time of the whole request; `None` for role decode.
    pub duration: Option<Seconds>,
    /// B.
    pub batch: u32,
    /// Whether the objectives are met.
    pub eligible: bool,
}

/// The share of a prompt that need not be computed, as far as it is trusted.
pub fn trusted_hit_rate(seen: Option<Ratio>) -> Ratio {
    let seen = seen.map(Ratio::get).filter(|seen| seen.is_finite());
    Ratio(seen.map_or(0.0, |seen| seen.clamp(0.0, LARGEST_HIT_RATE)))
}

/// The tokens that a decoding step yields, of which `drafted` are drafts: between 1 and all of them. `None` where what was seen is no number; then the
/// last value that was one still holds.
pub fn accept_length(seen: Option<Ratio>, drafted: u32) -> Option<Ratio> {
    let seen = seen.map(Ratio::get).filter(|seen| seen.is_finite())?;
    Some(Ratio(seen.clamp(1.0, f64::from(drafted) + 1.0)))
}

/// The batch sizes that are tried: all up to `largest`, or 128 of them with both ends.
pub fn candidates(largest: u32) -> impl Iterator<Item = u32> {
    let count = largest.min(MOST_CANDIDATES);
    let all = largest <= MOST_CANDIDATES;
    (0..count).map(move |index| {
        if all {
            return 1 + index;
        }
        let step = u64::from(index) * u64::from(largest - 1) / u64::from(MOST_CANDIDATES - 1);
        1 + u32::try_from(step).unwrap_or(u32::MAX - 1)
    })
}

/// The best batch of one replica. `None` where the lengths are not known (not finite, or not above zero), or not one request fits.
pub fn capacity(
    role: Role,
    iteration: &Iteration,
    limits: &EngineLimits,
    shape: &Shape,
    objectives: &Objectives,
    prefer: Prefer,
) -> Option<Capacity> {
    let search = Search::new(role, iteration, limits, shape, objectives)?;
    let mut best: Option<Capacity> = None;
    for batch in candidates(search.largest_batch()) {
        let Some(candidate) = search.at(batch) else { continue };
        if best.is_none_or(|best| is_better(&candidate, &best, prefer)) {
            best = Some(candidate);
        }
    }
    best
}

/// Whether `one` beats `other`: what meets the objectives beats what does not.
fn is_better(one: &Capacity, other: &Capacity, prefer: Prefer) -> bool {
    if one.eligible != other.eligible {
        return one.eligible;
    }
    match prefer {
        Prefer::Rate => one.rate.get() > other.rate.get() * (1.0 + NOISE),
        Prefer::Latency => {
            let key = |of: &Capacity| [of.duration, of.ttft, of.itl].map(|latency| latency.map_or(f64::INFINITY, Seconds::get));
            key(one) < key(other)
        }
    }
}

/// All that the batches have in common.
struct Search<'a> {
    role: Role,
    iteration: &'a Iteration,
    limits: &'a EngineLimits,
    objectives: &'a Objectives,
    /// E, at least 1.
    computed: u64,
    /// O, whole and at least 1.
    output: f64,
    /// c, at least 1.
    context: u64,
    /// a, at least 1.
    accepted: f64,
}

impl<'a> Search<'a> {
    fn new(role: Role, iteration: &'a Iteration, limits: &'a EngineLimits, shape: &Shape, objectives: &'a Objectives) -> Option<Self> {
        if !shape.input.is_positive() || (role != Role::Prefill && !shape.output.is_positive()) {
            return None;
        }
        // `as` saturates: lengths beyond the number range fit nowhere.
        let input = shape.input.get().ceil();
        let output = if shape.output.is_positive() { shape.output.get().ceil() } else { 1.0 };
        let computed = (input * (1.0 - trusted_hit_rate(shape.hit_rate).get())).ceil().max(1.0) as u64;
        let accepted =
            shape.accept_length.map(Ratio::get).filter(|accepted| accepted.is_finite()).map_or(1.0, |accepted| accepted.max(1.0));
        let context = (input as u64).saturating_add((output / 2.0).floor() as u64);
        Some(Self { role, iteration, limits, objectives, computed, output, context, accepted })
    }

    fn largest_batch(&self) -> u32 {
        let sequences = self.limits.sequences.get();
        let times = |budget: u32, each: u64| u32::try_from(u64::from(budget) / each).unwrap_or(u32::MAX);
        let batched = self.limits.batched_tokens.get();
        let kept = sequences.min(times(self.limits.kv_tokens.get(), self.context));
        match self.role {
            Role::Prefill => sequences.min(times(batched, self.computed)).max(1),
            Role::Decode => kept,
            Role::Aggregated => kept.min(batched - 1),
        }
    }

    fn at(&self, batch: u32) -> Option<Capacity> {
        let requests = f64::from(batch);
        if self.role == Role::Prefill {
            let ttft = self.chunks(self.computed.saturating_mul(u64::from(batch)), Work::default());
            return Some(self.judged(batch, requests / ttft, Some(ttft), None, Some(ttft)));
        }
        let beside = Work { prefill: Tokens(0.0), decoding: Requests(requests), kv: Tokens(requests * self.context as f64) };
        let (entering, ttft) = match self.role {
            Role::Aggregated => {
                let entering = (requests * self.accepted * self.computed as f64 / self.output).ceil();
                if entering > f64::from(self.limits.batched_tokens.get()) - requests {
                    return None;
                }
                (entering, Some(self.chunks((entering as u64).saturating_add(self.computed), beside)))
            }
            Role::Prefill | Role::Decode => (0.0, None),
        };
        let itl = self.iteration.time(Work { prefill: Tokens(entering), ..beside }).get() / self.accepted;
        let duration = ttft.map(|ttft| ttft + itl * (self.output - 1.0));
        Some(self.judged(batch, requests / (self.output * itl), ttft, Some(itl), duration))
    }

    fn chunks(&self, tokens: u64, beside: Work) -> f64 {
        self.iteration.prompt_time(tokens, self.limits.batched_tokens, beside).get()
    }

    fn judged(&self, batch: u32, rate: f64, ttft: Option<f64>, itl: Option<f64>, duration: Option<f64>) -> Capacity {
        let meets = |latency: Option<f64>, objective: Option<Seconds>| {
            objective.is_none_or(|objective| latency.is_some_and(|latency| latency <= objective.get() * (1.0 + NOISE)))
        };
        let Objectives { ttft: most_ttft, itl: most_itl, duration: longest } = *self.objectives;
        let eligible = meets(ttft, most_ttft) && meets(itl, most_itl) && meets(duration, longest);
        let seconds = |latency: Option<f64>| latency.map(Seconds);
        Capacity { rate: RequestsPerSecond(rate), ttft: seconds(ttft), itl: seconds(itl), duration: seconds(duration), batch, eligible }
    }
}

#[cfg(test)]
#[path = "capacity_tests.rs"]
mod tests;
