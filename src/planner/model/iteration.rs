//! How long does one step of an engine's loop take? A straight line in the work of the step, with no coefficient below zero.
//!
//! An engine works in iterations: each computes some prompt tokens, one token (or one draft) for each request that is being decoded, and reads
//! the KV memory of those. So the time of an iteration is taken as
//!
//! ```text
//! time = c0 + cp * prompt tokens + cn * decoding requests + ckv * KV tokens read
//! ```
//!
//! Why a line: four numbers can be learned from a few scrapes, they mean something (launch cost, compute, batch overhead, memory traffic), and a
//! line inside the range of the samples is within a few percent of what servers do. Why none below zero: work never makes an iteration shorter; a
//! fit that says so has mistaken noise for cause, and a search over loads would run to the end of that slope.
//!
//! An iteration is never believed to be shorter than a floor: at least [`LEAST_ITERATION`], and where the line was learned half of the shortest
//! iteration that was seen. A fit of degenerate samples can have next to no cost anywhere; without a floor it reads as free work, and one replica
//! seems to serve millions of requests a second.
//!
//! Known limits: attention over a long prompt grows with its square, so that a line learned from short prompts is too low for long ones; kernels
//! step with the batch size. Both are small inside the range of the samples, and neither is known outside.
//!
//! | c0 5 ms, cp 10 us, cn 20 us, ckv 0.1 us | prompt tokens | requests | KV tokens | time |
//! |---|---|---|---|---|
//! | a chunk of a prompt | 2048 | 0 | 0 | 5 + 20.48 = 25.48 ms |
//! | 64 requests of 1100 tokens | 0 | 64 | 70 400 | 5 + 1.28 + 7.04 = 13.32 ms |
//! | both in one iteration | 2048 | 64 | 70 400 | 33.80 ms |

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::units::{Requests, Seconds, SecondsPerToken, Tokens};

/// No iteration of a language model is shorter: launching its kernels alone takes longer.
pub const LEAST_ITERATION: Seconds = Seconds(1e-4);

/// What one iteration has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Tokens of prompts that it computes, without those that a cache held.
    pub prefill: Tokens,
    /// Requests that it generates for.
    pub decoding: Requests,
    /// Tokens of the KV memory of those requests.
    pub kv: Tokens,
}

/// The four costs of an iteration and the shortest that is believed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// c0: of every iteration.
    pub fixed: Seconds,
    /// cp: of a prompt token that is computed.
    pub prefill_token: SecondsPerToken,
    /// cn: of a request that is being decoded.
    pub request: Seconds,
    /// ckv: of a KV token that is read.
    pub kv_token: SecondsPerToken,
    /// No iteration is believed to be shorter; values below [`LEAST_ITERATION`] mean that.
    pub least: Seconds,
}

/// The time of an iteration as a function of its work. Invariant: all costs are finite and not below zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Costs", into = "Costs")]
pub struct Iteration(Costs);

impl Iteration {
    /// `None` unless all costs are finite and not below zero.
    pub fn new(costs: Costs) -> Option<Self> {
        let Costs { fixed, prefill_token, request, kv_token, least } = costs;
        let fine = [fixed.get(), prefill_token.get(), request.get(), kv_token.get(), least.get()]
            .iter()
            .all(|cost| (0.0..f64::INFINITY).contains(cost));
        fine.then(|| Self(Costs { least: Seconds(least.get().max(LEAST_ITERATION.get())), ..costs }))
    }

    /// Its costs.
    pub fn costs(&self) -> Costs {
        self.0
    }

    /// The time of one iteration. Work that is not a number above zero counts as none.
    pub fn time(&self, work: Work) -> Seconds {
        let amount = |of: f64| of.max(0.0);
        let Costs { fixed, prefill_token, request, kv_token, least } = self.0;
        let time = fixed.get()
            + prefill_token.get() * amount(work.prefill.get())
            + request.get() * amount(work.decoding.get())
            + kv_token.get() * amount(work.kv.get());
        Seconds(time.max(least.get()))
    }

    /// The time until the last of `tokens` prompt tokens is computed: whole chunks of the largest size, and the rest. Each chunk carries the decoding of
    /// `beside`, whose own prompt tokens do not count. No tokens take no time.
    ///
    /// 4500 tokens in chunks of 2048 with c0 2 ms and cp 10 us: 22.48 + 22.48 + 6.04 = 51.0 ms.
    pub fn prompt_time(&self, tokens: u64, chunk: NonZeroU32, beside: Work) -> Seconds {
        let chunk = u64::from(chunk.get());
        let (whole, rest) = (tokens / chunk, tokens % chunk);
        let time = |tokens: u64| self.time(Work { prefill: Tokens(tokens as f64), ..beside }).get();
        Seconds(whole as f64 * time(chunk) + if rest > 0 { time(rest) } else { 0.0 })
    }
}

impl TryFrom<Costs> for Iteration {
    type Error = String;
    fn try_from(costs: Costs) -> Result<Self, String> {
        Self::new(costs).ok_or_else(|| format!("expected finite costs that are not below zero, got {costs:?}"))
    }
}

impl From<Iteration> for Costs {
    fn from(iteration: Iteration) -> Self {
        iteration.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        Costs {
            fixed: Seconds(0.005),
            prefill_token: SecondsPerToken(10e-6),
            request: Seconds(20e-6),
            kv_token: SecondsPerToken(0.1e-6),
            least: Seconds(0.0),
        }
    }

    fn work(prefill: f64, decoding: f64, kv: f64) -> Work {
        Work { prefill: Tokens(prefill), decoding: Requests(decoding), kv: Tokens(kv) }
    }

    fn close(ours: Seconds, expected: f64) {
        assert!((ours.get() - expected).abs() <= 1e-12 * expected, "{ours:?}, expected {expected}");
    }

    #[test]
    fn time_is_linear_in_the_work() {
        let iteration = Iteration::new(costs()).unwrap();
        for (of, expected) in [
            (work(0.0, 0.0, 0.0), 0.005),
            (work(2048.0, 0.0, 0.0), 0.025_48),
            (work(0.0, 64.0, 70_400.0), 0.013_32),
            (work(2048.0, 64.0, 70_400.0), 0.0338),
        ] {
            close(iteration.time(of), expected);
        }
    }

    #[test]
    fn costs_below_zero_or_not_finite_are_refused() {
        for bad in [-1e-9, f64::NAN, f64::INFINITY] {
            assert_eq!(Iteration::new(Costs { fixed: Seconds(bad), ..costs() }), None, "{bad}");
            assert_eq!(Iteration::new(Costs { prefill_token: SecondsPerToken(bad), ..costs() }), None, "{bad}");
            assert_eq!(Iteration::new(Costs { request: Seconds(bad), ..costs() }), None, "{bad}");
            assert_eq!(Iteration::new(Costs { kv_token: SecondsPerToken(bad), ..costs() }), None, "{bad}");
            assert_eq!(Iteration::new(Costs { least: Seconds(bad), ..costs() }), None, "{bad}");
        }
    }

    #[test]
    fn no_costs_are_not_free_work() {
        let free = Costs {
            fixed: Seconds(0.0),
            prefill_token: SecondsPerToken(0.0),
            request: Seconds(0.0),
            kv_token: SecondsPerToken(0.0),
            least: Seconds(0.0),
        };
        close(Iteration::new(free).unwrap().time(work(8192.0, 512.0, 1e6)), 1e-4);
        close(Iteration::new(Costs { least: Seconds(0.004), ..free }).unwrap().time(Work::default()), 0.004);
    }

    #[test]
    fn work_that_is_no_number_does_not_poison_the_time() {
        let iteration = Iteration::new(costs()).unwrap();
        close(iteration.time(work(f64::NAN, -5.0, f64::NAN)), 0.005);
    }

    #[test]
    fn a_long_prompt_is_computed_in_chunks() {
        let iteration = Iteration::new(Costs { fixed: Seconds(0.002), ..costs() }).unwrap();
        let chunk = NonZeroU32::new(2048).unwrap();
        close(iteration.prompt_time(4500, chunk, Work::default()), 0.051_0);
        close(iteration.prompt_time(4096, chunk, Work::default()), 2.0 * 0.022_48);
        assert_eq!(iteration.prompt_time(0, chunk, Work::default()), Seconds(0.0));
        // Each chunk carries the ten requests beside it.
        close(iteration.prompt_time(4096, chunk, work(999.0, 10.0, 10_000.0)), 2.0 * (0.022_48 + 0.0002 + 0.001));
    }

    #[test]
    fn a_stored_line_is_checked_when_it_is_read() {
        let text = serde_json::to_string(&Iteration::new(costs()).unwrap()).unwrap();
        assert_eq!(serde_json::from_str::<Iteration>(&text).unwrap().costs().request, costs().request);
        let bad = text.replace("0.005", "-0.005");
        assert!(serde_json::from_str::<Iteration>(&bad).unwrap_err().to_string().contains("not below zero"));
    }
}
