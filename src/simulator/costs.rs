//! How long does an iteration last? A sum of what it does, each thing at its price.
//!
//! An engine works in iterations: each computes some tokens of prompts and one token of each request that decodes. The closed form of
//! planning.md 3 prices it as alpha + beta * tokens + gamma * KV tokens. Two things are priced apart here, because measurements do so:
//! a token of a prompt and a token of an answer (a prompt's tokens are computed side by side and fill the arithmetic units; the answers of a
//! batch do not), and the pairs of prompt tokens that attend to each other, which bend the curve of long prompts upwards. With
//! [`IterationCosts::uniform`] the form is exactly that of three numbers.
//!
//! | what | H200, 8B model in FP8, fitted |
//! |---|---|
//! | an iteration | 4.5 ms where it only decodes, 18.5 ms where it computes a prompt alone |
//! | a token of a prompt | 14 us, and 0.7 ns for each pair |
//! | a request that decodes | 22 us |
//! | a KV token that is read | 32 ns |

use std::ops::AddAssign;

use crate::units::Seconds;

/// What iterations do. Sums of work are work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Iterations.
    pub iterations: f64,
    /// Tokens of prompts that are computed.
    pub prompt_tokens: f64,
    /// Requests that get a token of their answer.
    pub decoding: f64,
    /// KV tokens read: the context of each request that decodes, and what a chunk of a prompt has before and in it.
    pub kv_tokens: f64,
    /// Pairs of a computed prompt token and a token that it attends to.
    pub prompt_pairs: f64,
}

impl Work {
    /// A chunk of `tokens` of a prompt of which `before` are in memory already; without the iteration that computes it.
    pub fn chunk(before: u32, tokens: u32) -> Self {
        let (before, tokens) = (f64::from(before), f64::from(tokens));
        Self {
            prompt_tokens: tokens,
            kv_tokens: before + tokens,
            prompt_pairs: tokens * before + tokens * (tokens + 1.0) / 2.0,
            ..Self::default()
        }
    }

    /// A prompt alone, of which `cached` tokens need not be computed, in chunks of at most `chunk` tokens.
    pub fn prompt(tokens: u32, cached: u32, chunk: u32) -> Self {
        let mut work = Self::default();
        let mut before = cached.min(tokens);
        while before < tokens {
            let size = chunk.max(1).min(tokens - before);
            work += Self::chunk(before, size);
            work.iterations += 1.0;
            before += size;
        }
        work
    }

    /// One iteration that gives a token to each of `decoding` requests, which occupy `kv_tokens` together.
    pub fn decode(decoding: f64, kv_tokens: f64) -> Self {
        Self { iterations: 1.0, decoding, kv_tokens, ..Self::default() }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        self.iterations += other.iterations;
        self.prompt_tokens += other.prompt_tokens;
        self.decoding += other.decoding;
        self.kv_tokens += other.kv_tokens;
        self.prompt_pairs += other.prompt_pairs;
    }
}

/// The prices. Expected to be finite and not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IterationCosts {
    /// Of an iteration, whatever it does: alpha.
    pub iteration: Seconds,
    /// Of a token of a prompt: beta.
    pub prompt_token: Seconds,
    /// Of a request that decodes: beta again.
    pub decoding: Seconds,
    /// Of a KV token that is read: gamma.
    pub kv_token: Seconds,
    /// Of a pair of prompt tokens, one of which attends to the other.
    pub prompt_pair: Seconds,
}

impl IterationCosts {
    /// The form of three numbers: alpha + beta * tokens computed + gamma * KV tokens read.
    pub fn uniform(alpha: Seconds, beta: Seconds, gamma: Seconds) -> Self {
        Self { iteration: alpha, prompt_token: beta, decoding: beta, kv_token: gamma, prompt_pair: Seconds(0.0) }
    }

    /// How long the work lasts.
    pub fn of(&self, work: &Work) -> Seconds {
        Seconds(
            self.iteration.get() * work.iterations
                + self.prompt_token.get() * work.prompt_tokens
                + self.decoding.get() * work.decoding
                + self.kv_token.get() * work.kv_tokens
                + self.prompt_pair.get() * work.prompt_pairs,
        )
    }
}

/// Whole nanoseconds in which the simulator counts time. At least one, so that time goes on; at most 2.7 hours, so that sums stay in range.
/// What is not a number becomes one nanosecond.
pub(super) fn nanos(span: Seconds) -> u64 {
    const LONGEST: u64 = 10_000_000_000_000;
    // `as` saturates and turns what is not a number into 0.
    ((span.get() * 1e9).round() as u64).clamp(1, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunks_of_a_prompt_have_all_its_tokens_and_pairs() {
        let whole = Work::prompt(1000, 0, 1000);
        let parts = Work::prompt(1000, 0, 300);
        assert_eq!((whole.iterations, parts.iterations), (1.0, 4.0));
        assert_eq!((whole.prompt_tokens, parts.prompt_tokens), (1000.0, 1000.0));
        assert_eq!((whole.prompt_pairs, parts.prompt_pairs), (500_500.0, 500_500.0));
        // Each chunk reads what is before it again.
        assert_eq!((whole.kv_tokens, parts.kv_tokens), (1000.0, 300.0 + 600.0 + 900.0 + 1000.0));
    }

    #[test]
    fn cached_tokens_are_attended_and_not_computed() {
        let work = Work::prompt(1000, 600, 8192);
        assert_eq!((work.prompt_tokens, work.kv_tokens), (400.0, 1000.0));
        assert_eq!(work.prompt_pairs, Work::prompt(1000, 0, 8192).prompt_pairs - Work::prompt(600, 0, 8192).prompt_pairs);
    }

    #[test]
    fn three_numbers_give_the_closed_form() {
        let costs = IterationCosts::uniform(Seconds(0.01), Seconds(1e-5), Seconds(1e-8));
        let mut work = Work::decode(20.0, 30_000.0);
        work += Work::chunk(500, 1000);
        assert!((costs.of(&work).get() - (0.01 + 1e-5 * 1020.0 + 1e-8 * 31_500.0)).abs() < 1e-15);
    }

    #[test]
    fn a_span_that_is_no_time_still_lets_time_go_on() {
        assert_eq!([0.0, -1.0, f64::NAN, 1e-9, f64::INFINITY].map(|span| nanos(Seconds(span))), [1, 1, 1, 1, 10_000_000_000_000]);
    }
}
