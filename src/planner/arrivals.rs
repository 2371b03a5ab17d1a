//! What arrived lately, and of what length? Preset auto's memory of short slices of time: one for each window, ten minutes of them.
//!
//! Lengths come from the pool that sees them first: prompts from where they are computed, answers from where they are generated; where pools are
//! not scraped, from whoever sees whole requests. Their shape changes slowly (`lengths.rs`); their mean is the level of the moment.

use serde::{Deserialize, Serialize};

use super::input::{Signal, SourceId};
use super::lengths::Lengths;
use super::memory::Memory;
use super::observe::{Window, longest_window};
use super::policy::ModelPolicy;
use super::predict::level::{LONGEST, Level, Noise, Slice, level};
use super::sum::Sum;
use super::window::{Buckets, Growth};
use crate::units::{Moment, Role, Tokens};

/// Slices from which on the noise of arrivals is remembered: of fewer it is chance.
const LEAST_OF_NOISE: usize = 32;
/// Seconds in which what is remembered of it falls by half.
const NOISE_FORGOTTEN: f64 = 1200.0;

/// What the windows brought.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arrivals {
    slices: Vec<Arrived>,
    #[serde(default)]
    prompt_lengths: Lengths,
    #[serde(default)]
    answer_lengths: Lengths,
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
    /// Mean tokens of the context of a request that is being answered.
    pub context: f64,
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
        for (growth, lengths) in [(&prompts, &mut self.prompt_lengths), (&answers, &mut self.answer_lengths)] {
            if let Some(Growth { buckets: Buckets::Known(buckets), count, .. }) = growth {
                lengths.remember(buckets, *count);
            }
        }
    }

    /// Mean tokens of the last prompts.
    pub fn last_prompt(&self) -> Option<Tokens> {
        self.last_prompts.map(Tokens)
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
        let (prompts, answers) = (self.prompt_lengths.shape(), self.answer_lengths.shape());
        let mean = |lengths: Option<Level>, last: Option<f64>| {
            lengths.map(|level| level.value).filter(|mean| *mean > 0.0 && mean.is_finite()).or(last)
        };
        let input = mean(level(&of(&|arrived| arrived.prompts), prompts.spread()), self.last_prompts)?;
        let output = mean(level(&of(&|arrived| arrived.answers), answers.spread()), self.last_answers)?;
        let recent = self.slices.iter().rev().take_while(|arrived| arrived.at >= self.slices[self.slices.len() - 1].at - rate.over);
        let (seen, all) = recent.fold((0.0, 0.0), |(seen, all), arrived| (seen + arrived.supported, all + arrived.requests));
        Some(Coming {
            rate,
            supported: if all > 0.0 { (seen / all).min(1.0) } else { 1.0 },
            input,
            output,
            context: input + output * answers.behind(),
            mix: prompts.of_mean(input),
            noisiest: self.noisiest.max(rate.noise),
            watched: self.slices.iter().map(|arrived| arrived.seconds).sum(),
        })
    }
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
