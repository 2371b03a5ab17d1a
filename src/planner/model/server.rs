//! How long does one replica take for a prompt, and for a step of its batch? One question to two sources: a measured profile, or the cost of
//! iterations that was learned.
//!
//! | | from a profile | from iterations |
//! |---|---|---|
//! | a prompt alone | the curve's TTFT | its chunks |
//! | what it takes of a replica | its computed tokens over the curve's throughput | its chunks |
//! | a step of b requests | the surface at b * context / KV memory | c0 + cn b + ckv b context |
//! | requests that fit | KV memory / context | that, and the engine's own limit |

use super::capacity::EngineLimits;
use super::envelope::Envelope;
use super::iteration::{Iteration, Work};
use crate::units::{Ratio, Requests, Seconds, Tokens};

/// What is known of one replica.
#[derive(Clone, Copy, Debug)]
pub enum Server<'a> {
    /// A measured profile, and the GPUs of one replica.
    Profile(&'a Envelope, f64),
    /// The learned line, and what the engine holds.
    Learned(Iteration, EngineLimits),
}

impl Server<'_> {
    /// Seconds to the first token of a prompt on an idle replica, and seconds of the replica that it takes. `hit` of its tokens are cached.
    pub fn prompt(&self, tokens: Tokens, hit: Ratio) -> (Seconds, Seconds) {
        let computed = (tokens.get() * (1.0 - hit.get())).max(1.0);
        match self {
            Self::Profile(envelope, gpus) => {
                let point = envelope.prompt(Tokens(computed));
                let alone = point.latency.get();
                // A throughput is never below that of prompts one after the other; a curve that says so says it of other conditions.
                (Seconds(alone), Seconds((computed / (point.per_gpu.get() * gpus)).min(alone)))
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
            Self::Profile(envelope, _) => envelope.generation(envelope.kv_fraction(batch, context), context).latency,
            Self::Learned(iteration, _) => {
                let kv = Tokens(batch.get() * context.get());
                iteration.time(Work { prefill: Tokens(0.0), decoding: batch, kv })
            }
        }
    }

    /// Requests of mean length `whole` at their ends that fit.
    pub fn most(&self, whole: Tokens) -> Requests {
        let (kv, sequences) = match self {
            Self::Profile(envelope, _) => (envelope.document().decode.max_kv_tokens, f64::INFINITY),
            Self::Learned(_, limits) => (f64::from(limits.kv_tokens.get()), f64::from(limits.sequences.get())),
        };
        Requests((kv / whole.get().max(1.0)).min(sequences).max(1.0))
    }
}
