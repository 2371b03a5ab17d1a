//! What arrived lately, and of what length? Preset auto's memory of short slices of time: one for each window, ten minutes of them.
//!
//! Lengths come from the pool that sees them first: prompts from where they are computed, answers from where they are generated; where pools are
//! not scraped, from whoever sees whole requests. The shape of the prompts' lengths changes slowly and is kept as a histogram that forgets;
//! its mean is the level of the moment.

use serde::{Deserialize, Serialize};

use super::input::{Signal, SourceId};
use super::memory::Memory;
use super::observe::{Window, longest_window};
use super::policy::ModelPolicy;
use super::predict::level::{LONGEST, Level, Noise, Slice, level};
use super::sum::Sum;
use super::window::{Buckets, Growth};
use crate::units::{Moment, Role, Tokens};

/// Requests that the histogram of lengths remembers.
const REMEMBERED: f64 = 5000.0;
/// Lengths beyond the last bound of the histogram are taken for this many times that bound.
const BEYOND: f64 = 1.5;
/// Parts of a bucket of the histogram, by its lengths. A bucket taken for one length meets the TTFT objective as a whole or not at all.
const PARTS: u32 = 4;
/// Slices from which on the noise of arrivals is remembered: of fewer it is chance.
const LEAST_OF_NOISE: usize = 32;
/// Seconds in which what is remembered of it falls by half.
const NOISE_FORGOTTEN: f64 = 1200.0;
/// How answers vary: those of an exponential distribution.
const USUAL_SPREAD: Noise = Noise::Values { variation: 1.0, skewness: 2.0 };
/// Where no histogram says one: the shape of an exponential distribution in four equal parts, by their means over the mean.
const USUAL_SHAPE: [f64; 4] = [0.137, 0.477, 0.999, 2.387];

/// What the windows brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arrivals {
    slices: Vec<Arrived>,
    /// Upper bounds of prompt lengths, and how many were below and above the one before.
    lengths: Vec<(f64, f64)>,
    /// How many were above the last of them.
    #[serde(default)]
    longer: f64,
    /// The most noise of arrivals lately; what it had beyond 1 is forgotten by and by.
    #[serde(default)]
    noisiest: f64,
    /// Mean lengths in the last slice that had any: what is expected after a pause that is longer than all slices.
    #[serde(default)]
    last_prompts: Option<f64>,
    #[serde(default)]
    last_answers: Option<f64>,
}

/// One window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Arrived {
    /// When it ended, on the monotonic clock.
    at: f64,
    seconds: f64,
    /// Requests, with silent targets at their last or the average load.
    requests: f64,
    /// That the data in hand support.
    supported: f64,
    prompts: (f64, f64),
    answers: (f64, f64),
}

/// What is coming.
#[derive(Clone, Debug, PartialEq)]
pub struct Coming {
    /// Requests a second, with silent targets at their last or the average load.
    pub rate: Level,
    /// Share of that which the data in hand support.
    pub supported: f64,
    /// Mean tokens of a prompt.
    pub input: f64,
    /// Mean tokens of an answer.
    pub output: f64,
    /// Prompt lengths and their shares.
    pub mix: Vec<(f64, f64)>,
    /// The most noise lately, beside that of the rate.
    pub noisiest: f64,
    /// Seconds that were watched.
    pub watched: f64,
}

impl Arrivals {
    /// Takes in a window.
    pub fn take(&mut self, window: &Window, memory: &Memory, policy: &ModelPolicy, now: Moment) {
        let seconds = window.observation.elapsed_seconds.get();
        let rates = [window.cautious.get(), window.supported.get()];
        if !(seconds > 0.0 && rates.iter().all(|rate| rate.is_finite())) {
            return;
        }
        let growth = |roles: [Role; 2], signal| growth(memory, policy, roles, signal);
        let prompts = growth([Role::Prefill, Role::Aggregated], Signal::PromptTokens);
        let answers = growth([Role::Decode, Role::Aggregated], Signal::OutputTokens);
        let told = |growth: &Option<Growth>, mean: Option<f64>| match (growth, mean, window.observation.requests) {
            (Some(growth), ..) if growth.count > 0.0 => (growth.count, growth.sum),
            (_, Some(mean), Some(requests)) => (requests.get(), requests.get() * mean),
            _ => (0.0, 0.0),
        };
        let seen = &window.observation;
        let slice = Arrived {
            at: now.monotonic.as_secs_f64(),
            seconds,
            requests: rates[0] * seconds,
            supported: rates[1] * seconds,
            prompts: told(&prompts, seen.input_tokens.map(|tokens| tokens.get())),
            answers: told(&answers, seen.output_tokens.map(|tokens| tokens.get())),
        };
        let mean = |(count, sum): (f64, f64)| Some(sum / count).filter(|mean| *mean > 0.0 && mean.is_finite());
        self.last_prompts = mean(slice.prompts).or(self.last_prompts);
        self.last_answers = mean(slice.answers).or(self.last_answers);
        self.slices.push(slice);
        self.slices.drain(..self.slices.len().saturating_sub(LONGEST));
        if let Some(Growth { buckets: Buckets::Known(buckets), count, .. }) = &prompts {
            self.remember(buckets, *count);
        }
    }

    /// Mean tokens of the last prompts.
    pub fn last_prompt(&self) -> Option<Tokens> {
        self.last_prompts.map(Tokens)
    }

    fn remember(&mut self, cumulative: &[(f64, f64)], all: f64) {
        let mut below = 0.0;
        let fresh: Vec<(f64, f64)> =
            cumulative.iter().map(|&(bound, count)| (bound, (count - std::mem::replace(&mut below, count)).max(0.0))).collect();
        let same = self.lengths.len() == fresh.len() && self.lengths.iter().zip(&fresh).all(|(one, other)| one.0 == other.0);
        if !same {
            self.lengths = fresh.iter().map(|&(bound, _)| (bound, 0.0)).collect();
            self.longer = 0.0;
        }
        let brought = all.max(below);
        let keep = (1.0 - brought / REMEMBERED).max(0.0);
        self.lengths.iter_mut().zip(&fresh).for_each(|(known, (_, count))| known.1 = known.1 * keep + count);
        self.longer = self.longer * keep + brought - below;
    }

    /// What is coming, asked once a round. `None` before requests of known lengths were seen.
    pub fn coming(&mut self) -> Option<Coming> {
        let of = |of: &dyn Fn(&Arrived) -> (f64, f64)| -> Vec<Slice> {
            let slice = |arrived: &Arrived| {
                let (weight, sum) = of(arrived);
                Slice { at: arrived.at, weight, sum }
            };
            self.slices.iter().map(slice).collect()
        };
        let rate = level(&of(&|arrived| (arrived.seconds, arrived.requests)), Noise::Counts)?;
        // Counters near the end of the number range say nothing.
        if ![rate.value, rate.slope, rate.error].iter().all(|number| number.is_finite()) {
            return None;
        }
        if self.slices.len() >= LEAST_OF_NOISE {
            let passed = self.slices.last().map_or(0.0, |last| last.seconds);
            self.noisiest = rate.noise.max(1.0 + (self.noisiest - 1.0).max(0.0) * 0.5_f64.powf(passed / NOISE_FORGOTTEN));
        }
        let shape = self.shape();
        let mean = |lengths: Option<Level>, last: Option<f64>| {
            lengths.map(|level| level.value).filter(|mean| *mean > 0.0 && mean.is_finite()).or(last)
        };
        let input = mean(level(&of(&|arrived| arrived.prompts), spread(&shape)), self.last_prompts)?;
        let output = mean(level(&of(&|arrived| arrived.answers), USUAL_SPREAD), self.last_answers)?;
        let recent = self.slices.iter().rev().take_while(|arrived| arrived.at >= self.slices[self.slices.len() - 1].at - rate.over);
        let (seen, all) = recent.fold((0.0, 0.0), |(seen, all), arrived| (seen + arrived.supported, all + arrived.requests));
        Some(Coming {
            rate,
            supported: if all > 0.0 { (seen / all).min(1.0) } else { 1.0 },
            input,
            output,
            mix: shape.into_iter().map(|(times, share)| (times * input, share)).collect(),
            noisiest: self.noisiest.max(rate.noise),
            watched: self.slices.iter().map(|arrived| arrived.seconds).sum(),
        })
    }

    /// Lengths over their mean, with their shares.
    fn shape(&self) -> Vec<(f64, f64)> {
        let mut lower = 0.0;
        let mut points = Vec::new();
        for &(bound, count) in &self.lengths {
            let width = (bound - lower) / f64::from(PARTS);
            points.extend((0..PARTS).map(|part| (lower + (f64::from(part) + 0.5) * width, count / f64::from(PARTS))));
            lower = bound;
        }
        points.push((lower * BEYOND, self.longer));
        points.retain(|(_, count)| *count > 0.0);
        let all: f64 = points.iter().map(|(_, count)| count).sum();
        let mean = points.iter().map(|(middle, count)| middle * count).sum::<f64>() / all;
        if !(mean > 0.0 && mean.is_finite()) {
            return USUAL_SHAPE.iter().map(|times| (*times, 0.25)).collect();
        }
        points.into_iter().map(|(middle, count)| (middle / mean, count / all)).collect()
    }
}

/// How lengths of that shape vary.
fn spread(shape: &[(f64, f64)]) -> Noise {
    let moment = |power| shape.iter().map(|(times, share)| share * (times - 1.0_f64).powi(power)).sum::<f64>();
    let variation = moment(2).max(0.01).sqrt();
    Noise::Values { variation, skewness: moment(3) / variation.powi(3) }
}

/// Growth of a histogram at the pools of the first of the roles that shows any.
fn growth(memory: &Memory, policy: &ModelPolicy, roles: [Role; 2], signal: Signal) -> Option<Growth> {
    let pools = policy.pools.iter().filter(|pool| roles.contains(&pool.role));
    let sources = pools.filter_map(|pool| memory.source(&SourceId::Pool(pool.pool.clone())));
    sources.filter_map(|source| Sum::growth(source, signal, longest_window(policy))).reduce(Growth::with)
}

#[cfg(test)]
#[path = "arrivals_tests.rs"]
mod tests;
