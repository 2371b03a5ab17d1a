//! What did an iteration of one replica do, going by what its page counted over a window? One sample of work and time, or why there is none.
//!
//! Dynamo's engines publish every iteration on an event plane; pages only publish sums. But the mean work and the mean time of a window's iterations
//! lie on the same line as the single ones, as long as all belong to the same line. What is needed is how long an iteration took, and how many there
//! were:
//!
//! | role | time of an iteration | how many |
//! |---|---|---|
//! | decode, aggregated | the time between a request's tokens, times the tokens that a step yields | counted (vLLM), else the window over that time, if the replica was busy throughout |
//! | prefill that is never idle | the window over the number of iterations; where they are not counted, of the largest step at the measured rate | counted, else from the size of a step |
//! | prefill whose page says how long prompts took from their first step on | that, over the chunks of a prompt | one prompt, in its chunks; where steps are counted and shared, as many prompts as a step has |
//! | prefill where nothing waits | TTFT over the chunks of a prompt | one prompt, in its chunks |
//!
//! Then the work: computed prompt tokens and generated tokens over the iterations, and the KV memory in use.
//!
//! Worked, aggregated: 10 s, 500 iterations, mean ITL 16 ms, 100 000 computed prompt tokens, 15 000 generated, KV memory half full of 200 000:
//! (200 prompt tokens, 30 requests, 100 000 KV tokens) -> 16 ms. The 500 iterations took 8 s; for 2 s nothing was there, and no gauge had to say so.
//!
//! Limits, honestly:
//!
//! - Only vLLM and llama.cpp count iterations. Elsewhere a decode replica must have had at least 3 running requests on average, so that it hardly ever paused.
//! - Most engines but vLLM count generated tokens at a request's end. In windows shorter than a few requests that is noise; the running requests are
//!   taken instead where they are known.
//! - A window in which the load moved is a mean of unequal iterations. On a line that is still a point of it.
//! - What a prompt takes without its wait only a page with that time tells (vLLM, SGLang, TensorRT-LLM). Without one TTFT at a prefill replica holds the wait for the
//!   step that is under way, on average half of one while it is busy. Windows in which prompts overlap for more than two thirds of the time are not
//!   used, which is every one of a replica that is at work for more than half of its time. Below that it is the service with some waiting: a replica
//!   is taken for slower than it is, by a fifth or so at most, until a quieter hour.
//! - Steps that several prompts share are seen by more of them, so that the mean prompt's step is larger than the mean step: a busy replica that shares
//!   them is taken for slower by as much, a fifth where every second step is shared.
//! - A prompt of several chunks that shares its steps with others is slower than its own chunks. The same bound keeps that small.
//! - A page that adds up several ranks counts the iterations of all of them. Where they would take longer than the window there is no sample.

use crate::planner::learn::iterations::Observed;
use crate::planner::model::iteration::Work;
use crate::planner::sample::ItlBasis;
use crate::units::{Ratio, Requests, Role, Seconds, Tokens};

/// Running requests from which on a replica counts as busy throughout: by Poisson's law it is without any for 5 % of the time.
const BUSY: f64 = 3.0;
/// Share of the time for which prompts may overlap where TTFT stands for the service of one.
const MOST_OVERLAP: f64 = 2.0 / 3.0;
/// Windows that the iterations may seem to take: gauges and counters are not read in the same instant.
const MOST_WINDOWS: f64 = 1.2;

/// What one replica's page says of one window. Sums and counts are differences over the window; gauges are means of its scrapes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// The time between the two scrapes.
    pub elapsed: Seconds,
    /// Steps of the engine's loop, where it counts them.
    pub iterations: Option<f64>,
    /// Tokens that those steps worked on. Where the computed prompt tokens are not known, what is not generated of these stands for them; it holds what a
    /// cache held as well.
    pub iteration_tokens: Option<Tokens>,
    /// Mean time between tokens, and of what.
    pub itl: Option<(Seconds, ItlBasis)>,
    /// Tokens that a decoding step yields; `None`: 1, without speculation.
    pub accept_length: Option<Ratio>,
    /// Mean time to the first token.
    pub ttft: Option<Seconds>,
    /// What those requests took from their first steps to their first tokens, together.
    pub prefill_seconds: Option<Seconds>,
    /// Prompts that got their first token.
    pub prompts: Option<Requests>,
    /// Prompt tokens that were computed: without those that a cache held or another replica sent.
    pub computed: Option<Tokens>,
    /// Generated tokens.
    pub generated: Option<Tokens>,
    /// Requests in the batch.
    pub running: Option<Requests>,
    /// Requests that wait for a place in it.
    pub waiting: Option<Requests>,
    /// The least of them at any scrape of the window: above zero, the replica had no pause.
    pub least_waiting: Option<Requests>,
    /// Share of the KV memory in use.
    pub kv_usage: Option<Ratio>,
    /// Tokens that the KV memory holds.
    pub kv_capacity: Option<Tokens>,
    /// Most tokens in a step.
    pub batched_tokens: Option<Tokens>,
}

/// Why a window gives no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unusable {
    /// Nothing was served.
    Idle,
    /// The iterations are not counted, and the replica may have paused.
    MayHavePaused,
    /// The time between tokens was not measured, or holds the time to the first one.
    NoItl,
    /// The time to the first token was not measured.
    NoTtft,
    /// The use or the size of the KV memory is not known.
    NoKvUsage,
    /// The prompt tokens or generated tokens of the window are not known.
    NoTokens,
    /// How many requests wait is not known.
    NoQueue,
    /// Prompts overlapped or waited, so that TTFT is not the service of one.
    Overlap,
    /// The numbers contradict each other.
    Implausible,
}

/// The sample of one replica in one window.
pub fn sample(role: Role, window: &Window) -> Result<Observed, Unusable> {
    let observed = match role {
        Role::Prefill => prefill(window)?,
        Role::Decode => decoding(window, Some(Tokens(0.0)))?,
        Role::Aggregated => decoding(window, computed(window))?,
    };
    let Work { prefill, decoding, kv } = observed.work;
    let amounts = [prefill.get(), decoding.get(), kv.get(), observed.prompts.get()];
    let plausible = amounts.iter().all(|amount| (0.0..f64::INFINITY).contains(amount)) && observed.time.is_some_and(Seconds::is_positive);
    if plausible { Ok(observed) } else { Err(Unusable::Implausible) }
}

/// Prompt tokens of the window.
fn computed(window: &Window) -> Option<Tokens> {
    let worked_on = || Some(Tokens(window.iteration_tokens?.get() - window.generated?.get()));
    window.computed.or_else(worked_on)
}

/// Of a replica that generates; `computed` prompt tokens came in beside.
fn decoding(window: &Window, computed: Option<Tokens>) -> Result<Observed, Unusable> {
    let accepted = window.accept_length.map_or(1.0, |accepted| accepted.get().max(1.0));
    if window.generated.is_some_and(|generated| generated.get() <= 0.0) {
        return Err(Unusable::Idle);
    }
    let time = match window.itl.filter(|(itl, _)| itl.is_positive()) {
        Some((itl, ItlBasis::PerEvent)) => itl.get(),
        Some((itl, ItlBasis::PerRequest | ItlBasis::PerToken)) => itl.get() * accepted,
        Some((_, ItlBasis::WholeRequest)) | None => return Err(Unusable::NoItl),
    };
    let computed = computed.ok_or(Unusable::NoTokens)?;
    let elapsed = window.elapsed.get();
    let (iterations, requests) = match window.iterations {
        Some(iterations) if iterations > 0.0 => {
            if iterations * time > MOST_WINDOWS * elapsed {
                return Err(Unusable::Implausible);
            }
            let generated = window.generated.ok_or(Unusable::NoTokens)?;
            (iterations, generated.get() / accepted / iterations)
        }
        Some(_) => return Err(Unusable::Idle),
        None => {
            let iterations = elapsed / time;
            let by_tokens = || window.generated.map(|generated| generated.get() / accepted / iterations);
            let requests = window.running.map(Requests::get).or_else(by_tokens).ok_or(Unusable::NoTokens)?;
            if requests < BUSY {
                return Err(Unusable::MayHavePaused);
            }
            (iterations, requests)
        }
    };
    let kv = window.kv_usage.zip(window.kv_capacity).map(|(usage, capacity)| usage.get() * capacity.get()).ok_or(Unusable::NoKvUsage)?;
    Ok(Observed {
        work: Work { prefill: Tokens(computed.get() / iterations), decoding: Requests(requests), kv: Tokens(kv) },
        prompts: Requests(window.prompts.map_or(0.0, |prompts| prompts.get() / iterations)),
        time: Some(Seconds(time)),
    })
}

/// Of a replica that only computes prompts.
fn prefill(window: &Window) -> Result<Observed, Unusable> {
    let computed = computed(window).ok_or(Unusable::NoTokens)?.get();
    let prompts = window.prompts.ok_or(Unusable::NoTokens)?.get();
    if computed <= 0.0 || prompts <= 0.0 {
        return Err(Unusable::Idle);
    }
    let waiting = window.waiting.ok_or(Unusable::NoQueue)?;
    let elapsed = window.elapsed.get();
    if window.least_waiting.is_some_and(|least| least.get() > 0.0) {
        // Without a pause: as many iterations as were counted, else as many as full steps would be.
        let full_steps = || window.batched_tokens.map(|step| computed / step.get());
        let iterations = window.iterations.filter(|iterations| *iterations > 0.0).or_else(full_steps).ok_or(Unusable::MayHavePaused)?;
        return Ok(of_prompts(computed / iterations, prompts / iterations, elapsed / iterations));
    }
    let each = computed / prompts;
    let chunks = window.batched_tokens.map_or(1.0, |step| (each / step.get()).ceil()).max(1.0);
    // Prompts that came during a step share the next one.
    let together = window.iterations.map_or(1.0, |iterations| prompts / iterations * chunks).max(1.0);
    let took = window.prefill_seconds.map(|took| took.get()).filter(|took| *took > 0.0 && *took <= together * elapsed);
    if let Some(took) = took {
        return Ok(of_prompts(together * each / chunks, together / chunks, took / prompts / chunks));
    }
    let ttft = window.ttft.filter(|ttft| ttft.is_positive()).ok_or(Unusable::NoTtft)?.get();
    if waiting.get() > 0.0 || ttft * prompts > MOST_OVERLAP * elapsed {
        return Err(Unusable::Overlap);
    }
    Ok(of_prompts(each / chunks, 1.0 / chunks, ttft / chunks))
}

fn of_prompts(tokens: f64, prompts: f64, time: f64) -> Observed {
    let work = Work { prefill: Tokens(tokens), ..Work::default() };
    Observed { work, prompts: Requests(prompts), time: Some(Seconds(time)) }
}

#[cfg(test)]
#[path = "scraped_tests.rs"]
mod tests;
