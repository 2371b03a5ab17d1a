//! How long does one replica take for a prompt, and for a step of its batch? One question to two sources: a measured profile, or the cost of
//! iterations that was learned.
//!
//! | | from a profile | from iterations |
//! |---|---|---|
//! | a prompt alone | the curve's TTFT; beyond its end in proportion | its chunks |
//! | what it takes of a replica | its computed tokens over the curve's throughput | its chunks |
//! | a step of b requests | the surface at b * context / KV memory | c0 + cn b + ckv b context |
//! | requests that fit | KV memory / context | that, and the engine's own limit |

use super::capacity::EngineLimits;
use super::envelope::Envelope;
use super::iteration::{Iteration, Work};
use crate::units::{Ratio, Requests, Role, Seconds, Tokens};

/// What is known of one replica.
#[derive(Clone, Copy, Debug)]
pub enum Server<'a> {
    /// A measured profile, the GPUs of one replica, and how much slower the servers are than it says.
    Profile(&'a Envelope, f64, Slowness),
    /// The learned line, and what the engine holds.
    Learned(Iteration, EngineLimits),
}

/// How many times as long as a profile says servers take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slowness(f64);

impl Default for Slowness {
    fn default() -> Self {
        Self(1.0)
    }
}

/// Up to here a difference between what was measured before and what was learned now is taken for the latter's error.
const UNNOTICED: f64 = 0.15;
/// From here on it is believed as a whole. Between the two it is by and by, so that a line that swings about the first does not move a count.
const BELIEVED: f64 = 0.3;
/// Larger ones are no property of servers.
const LARGEST: f64 = 4.0;

impl Server<'_> {
    /// A profile of servers that turned out to take longer, or shorter, than it says, at the load of the moment.
    #[must_use]
    pub fn corrected(self, learned: &Server<'_>, role: Role, prompt: Tokens, batch: Requests, context: Tokens) -> Self {
        let time = |server: &Server<'_>| match role {
            Role::Prefill => server.prompt(prompt, Ratio(0.0)).1.get(),
            Role::Decode | Role::Aggregated => server.step(batch, context).get(),
        };
        let more = time(learned) / time(&self) - 1.0;
        match self {
            Self::Profile(envelope, gpus, _) if more.is_finite() && more.abs() > UNNOTICED => {
                let part = ((more.abs() - UNNOTICED) / (BELIEVED - UNNOTICED)).min(1.0);
                Self::Profile(envelope, gpus, Slowness((1.0 + more * part).clamp(1.0 / LARGEST, LARGEST)))
            }
            other => other,
        }
    }

    /// How many times as long as the profile says; 1 where there is none.
    pub fn slower(&self) -> f64 {
        if let Self::Profile(_, _, Slowness(slower)) = self { *slower } else { 1.0 }
    }

    /// Seconds to the first token of a prompt on an idle replica, and seconds of the replica that it takes. `hit` of its tokens are cached.
    pub fn prompt(&self, tokens: Tokens, hit: Ratio) -> (Seconds, Seconds) {
        let computed = (tokens.get() * (1.0 - hit.get())).max(1.0);
        match self {
            Self::Profile(envelope, gpus, Slowness(slower)) => {
                let point = envelope.prompt(Tokens(computed));
                // A prompt beyond the longest that was measured takes longer in proportion, and not as long.
                let longest = envelope.document().prefill.isl.last().copied().unwrap_or(computed);
                let alone = point.latency.get() * slower * (computed / longest).max(1.0);
                // A throughput is never below that of prompts one after the other; a curve that says so says it of other conditions.
                (Seconds(alone), Seconds((slower * computed / (point.per_gpu.get() * gpus)).min(alone)))
            }
            Self::Learned(iteration, limits) => {
                // `as` saturates.
                let alone = iteration.prompt_time(computed.ceil() as u64, limits.batched_tokens, Work::default());
                (alone, alone)
            }
        }
    }

    /// Seconds of a step in which `batch` requests of mean `context` get a token.
    pub fn step(&self, batch: Requests, context: Tokens) -> Seconds {
        match self {
            Self::Profile(envelope, _, Slowness(slower)) => {
                Seconds(slower * envelope.spacing(envelope.kv_fraction(batch, context), context).get())
            }
            Self::Learned(iteration, _) => {
                let kv = Tokens(batch.get() * context.get());
                iteration.time(Work { prefill: Tokens(0.0), decoding: batch, kv })
            }
        }
    }

    /// Requests of mean length `whole` at their ends that fit.
    pub fn most(&self, whole: Tokens) -> Requests {
        let (kv, sequences) = match self {
            Self::Profile(envelope, ..) => (envelope.document().decode.max_kv_tokens, f64::INFINITY),
            Self::Learned(_, limits) => (f64::from(limits.kv_tokens.get()), f64::from(limits.sequences.get())),
        };
        Requests((kv / whole.get().max(1.0)).min(sequences).max(1.0))
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
