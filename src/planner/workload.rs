//! What did one replica of a pool do in the window? The mean of its busy replicas, weighted by their arrivals (seed 001 section 4.1).
//!
//! What teaches the queueing model must be a steady state, and the server's own:
//!
//! | seen | then |
//! |---|---|
//! | a replica that began within the warm-up, or within the window | its latencies do not count |
//! | a batch that grew or shrank by more than a tenth of the completions | the window teaches nothing: T = alpha / (1 - rho) holds in balance |
//! | requests that wait, for more than half of TTFT by Little's law | TTFT is the queue's and not the server's: only ITL teaches |
//! | requests that wait so at both ends of the window | the replicas had no pause: what they completed is all that they can do |
//! | fewer than 20 completions | the window teaches nothing |
//! | prompts of which a cache held a part | their computed tokens count: what is not computed costs nothing |
//! | a replica with numbers that no server has: more cached than asked for, an iteration of a minute | it is left out; where there is no other, the window teaches nothing |

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::input::{Gauge, Signal, SourceId, Tally};
use super::learn::{Seen, are_plausible};
use super::memory::Memory;
use super::model::queueing::Lengths;
use super::observe::{self, mean_itl, mean_of};
use super::policy::{ModelPolicy, PoolPolicy};
use super::reason::closed_set;
use super::window::{Delta, TargetWindow};
use crate::units::{Moment, Replicas, RequestsPerSecond, Role, Seconds, Tokens};

/// Completions of a pool below which a window teaches nothing: its means would be guesses.
const LEAST_REQUESTS: f64 = 20.0;
/// Change of the batch, over the completions, from which a window is no steady state.
const LARGEST_CHANGE: f64 = 0.1;
/// Share of TTFT that may be the wait in a queue; in decode, of the time that an answer takes.
const LARGEST_WAIT: f64 = 0.5;

closed_set! {
    /// Why a window taught nothing.
    Untaught {
        CoverageLow = "coverage_low", "less than half of the pool is described";
        Rollout = "rollout", "the pool shows two generations, or many of its replicas are fresh";
        NoTraffic = "no_traffic", "no replica past its warm-up completed a request whose lengths were recorded";
        TooFewRequests = "too_few_requests", "fewer than 20 requests were completed";
        ChangingBatch = "changing_batch", "the batches grew or shrank by more than a tenth of what was completed: no steady state";
        UnknownReplicas = "unknown_replicas", "nobody says how many replicas served";
        NoLatency = "no_latency", "no latency of the servers' own was measured: none was recorded, or it is the wait in a queue";
        ImplausibleLengths = "implausible_lengths", "the lengths cannot be: more prompt tokens cached than asked for, or a request of millions of tokens";
        ImplausibleLatency = "implausible_latency", "the latencies cannot be a server's: TTFT outside 0.1 ms to 10 min, or ITL outside 0.05 ms to 10 s";
    }
}

/// One replica's window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaWindow {
    /// Requests a second.
    pub rate: RequestsPerSecond,
    /// Mean lengths.
    pub lengths: Lengths,
    /// Mean TTFT, where it is known.
    pub ttft: Option<Seconds>,
    /// Mean ITL, where it is known.
    pub itl: Option<Seconds>,
}

/// The busy replicas of a pool together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// Requests a second, all together.
    pub rate: RequestsPerSecond,
    /// How many are busy.
    pub replicas: Replicas,
    /// Mean lengths, weighted by rate, as the other means.
    pub lengths: Lengths,
    /// Mean TTFT; `None` where a busy replica has none.
    pub ttft: Option<Seconds>,
    /// Mean ITL; `None` where a busy replica has none.
    pub itl: Option<Seconds>,
}

/// The arrival-weighted means over the replicas that have traffic; `None` where none has.
pub fn aggregate(replicas: &[ReplicaWindow]) -> Option<Busy> {
    let busy: Vec<&ReplicaWindow> = replicas.iter().filter(|one| one.rate.is_positive()).collect();
    let rate: f64 = busy.iter().map(|one| one.rate.get()).sum();
    let mean = |of: &dyn Fn(&ReplicaWindow) -> Option<f64>| {
        let weighted: Option<f64> = busy.iter().map(|one| Some(one.rate.get() * of(one)?)).sum();
        weighted.map(|sum| sum / rate).filter(|mean| mean.is_finite())
    };
    let input = mean(&|one| Some(one.lengths.input.get())).filter(|_| rate > 0.0)?;
    let output = mean(&|one| Some(one.lengths.output.get()))?;
    Some(Busy {
        rate: RequestsPerSecond(rate),
        // A fleet is far smaller than the range.
        replicas: Replicas(busy.len() as u32),
        lengths: Lengths { input: Tokens(input), output: Tokens(output) },
        ttft: mean(&|one| one.ttft.map(Seconds::get)).map(Seconds),
        itl: mean(&|one| one.itl.map(Seconds::get)).map(Seconds),
    })
}

/// What a pool's window teaches of one replica, or why it teaches nothing.
pub fn seen(memory: &Memory, policy: &ModelPolicy, pool: &PoolPolicy, replicas: Option<Replicas>, now: Moment) -> Result<Seen, Untaught> {
    let own = memory.source(&SourceId::Pool(pool.pool.clone()));
    let source = own.or_else(|| memory.source(&SourceId::Traffic)).ok_or(Untaught::NoTraffic)?;
    let longest = observe::longest_window(policy);
    let (mut windows, mut refused) = (Vec::new(), None);
    let mut balance = Balance::default();
    for target in source.targets.values() {
        let Some(delta) = target.delta().filter(|delta| delta.elapsed <= longest) else { continue };
        if is_fresh(target, policy.warm_up, now) || target.known_from.is_some() {
            continue;
        }
        match window(&delta, pool) {
            Ok(window) => {
                balance.add(target, &delta);
                windows.extend(window);
            }
            // One replica's nonsense is not the others'.
            Err(reason) => refused = Some(reason),
        }
    }
    let busy = aggregate(&windows).ok_or(refused.unwrap_or(Untaught::NoTraffic))?;
    if balance.completed < LEAST_REQUESTS {
        return Err(refused.unwrap_or(Untaught::TooFewRequests));
    }
    if balance.is_changing() {
        return Err(Untaught::ChangingBatch);
    }
    // A front end speaks for all replicas of the pool, a target of the pool for itself.
    let count = if own.is_some() {
        f64::from(busy.replicas.0) / f64::from(pool.targets_per_replica.get())
    } else {
        replicas.filter(|count| count.0 > 0).ok_or(Untaught::UnknownReplicas)?.as_f64()
    };
    let has = |other: Role| pool.role != other;
    // In decode what a request waits for is a place, and those become free as answers end.
    let answer = busy.itl.map(|itl| Seconds(itl.get() * busy.lengths.output.get()));
    let service = if pool.role == Role::Decode { answer } else { busy.ttft };
    let waits = |waiting: f64| service.is_some_and(|service| waiting / busy.rate.get() > LARGEST_WAIT * service.get());
    let seen = Seen {
        served: RequestsPerSecond(busy.rate.get() / count.max(1.0)),
        lengths: busy.lengths,
        ttft: busy.ttft.filter(|ttft| has(Role::Decode) && !waits(balance.waiting) && ttft.is_positive()),
        itl: busy.itl.filter(|itl| has(Role::Prefill) && itl.is_positive()),
        saturated: balance.waiting >= 1.0 && balance.waited >= 1.0 && waits(balance.waiting),
    };
    if seen.ttft.is_some() || seen.itl.is_some() || seen.saturated { Ok(seen) } else { Err(Untaught::NoLatency) }
}

/// Mean lengths of a pool's or of all traffic's requests in the window, prompts without their cached part. `None` where they were not recorded.
fn lengths(delta: &Delta, role: Role) -> Result<Option<Lengths>, Untaught> {
    let mean = |signal, tally| {
        let by_tally = || delta.tallies.get(&tally).map(|tokens| tokens / delta.completed());
        mean_of(delta.histograms.get(&signal)).or_else(by_tally).filter(|mean| mean.is_finite() && *mean > 0.0)
    };
    // A prefill server's requests end with their first token.
    let output = mean(Signal::OutputTokens, Tally::GeneratedTokens).or((role == Role::Prefill).then_some(1.0));
    let Some((input, output)) = mean(Signal::PromptTokens, Tally::PromptTokens).zip(output) else { return Ok(None) };
    let computed = Lengths { input: Tokens(input * (1.0 - cached(delta)?)), output: Tokens(output) };
    if computed.are_plausible() { Ok(Some(computed)) } else { Err(Untaught::ImplausibleLengths) }
}

/// Share of the prompts that a cache held, in 0..1; 0 where the engine does not say.
fn cached(delta: &Delta) -> Result<f64, Untaught> {
    let share = |part: Tally, whole: Tally| {
        let (part, whole) = (delta.tallies.get(&part)?, delta.tallies.get(&whole)?);
        (*whole > 0.0).then(|| part / whole)
    };
    let share = share(Tally::CachedTokens, Tally::PromptTokens).or_else(|| share(Tally::PrefixHits, Tally::PrefixQueries)).unwrap_or(0.0);
    if !(0.0..=1.0).contains(&share) {
        return Err(Untaught::ImplausibleLengths);
    }
    // At least one token of a prompt is always computed.
    Ok(share.min(0.999))
}

fn window(delta: &Delta, pool: &PoolPolicy) -> Result<Option<ReplicaWindow>, Untaught> {
    let rate = delta.completed() / delta.elapsed.as_secs_f64();
    if rate <= 0.0 {
        return Ok(None);
    }
    let ttft = mean_of(delta.histograms.get(&Signal::Ttft)).map(Seconds);
    let itl = mean_itl(delta).map(Seconds);
    // Of a latency of zero nothing is said: a server that records none has it.
    if !are_plausible(ttft.filter(|ttft| ttft.is_positive()), itl.filter(|itl| itl.is_positive())) {
        return Err(Untaught::ImplausibleLatency);
    }
    Ok(lengths(delta, pool.role)?.map(|lengths| ReplicaWindow { rate: RequestsPerSecond(rate), lengths, ttft, itl }))
}

fn is_fresh(target: &TargetWindow, warm_up: Duration, now: Moment) -> bool {
    let start = target.last.as_ref().and_then(|last| last.sample.process_start);
    start.is_some_and(|start| now.wall.as_secs_f64() - start < warm_up.as_secs_f64())
}

/// Whether what came and what went are about the same.
#[derive(Debug, Default)]
struct Balance {
    completed: f64,
    /// Growth of the batches.
    grown: f64,
    /// Requests that wait at the end.
    waiting: f64,
    /// Requests that waited at the beginning.
    waited: f64,
}

impl Balance {
    fn add(&mut self, target: &TargetWindow, delta: &Delta) {
        self.completed += delta.completed();
        self.grown += target.growth_of(Gauge::Running).or_else(|| target.growth_of(Gauge::InFlight)).unwrap_or(0.0);
        let waiting = target.last_gauge(Gauge::Waiting).unwrap_or(0.0);
        self.waiting += waiting;
        self.waited += target.growth_of(Gauge::Waiting).map_or(0.0, |grown| waiting - grown);
    }

    fn is_changing(&self) -> bool {
        self.grown.abs() > LARGEST_CHANGE * self.completed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const GOLDENS: &str = include_str!("../../tests/fixtures/goldens/queueing.json");

    #[test]
    fn the_aggregation_goldens_agree() {
        let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
        let cases = goldens["aggregate"].as_array().unwrap();
        assert_eq!(cases.len(), 30);
        for case in cases {
            let number = |of: &Value, key: &str| of[key].as_f64().unwrap();
            let replica = |one: &Value| ReplicaWindow {
                rate: RequestsPerSecond(number(one, "rate_per_s")),
                lengths: Lengths { input: Tokens(number(one, "input_tokens")), output: Tokens(number(one, "output_tokens")) },
                ttft: Some(Seconds(number(one, "ttft_ms") / 1000.0)),
                itl: Some(Seconds(number(one, "itl_ms") / 1000.0)),
            };
            let replicas: Vec<ReplicaWindow> = case["replicas"].as_array().unwrap().iter().map(replica).collect();
            let found = aggregate(&replicas);
            let expect = &case["expect"];
            if expect.is_null() {
                assert_eq!(found, None, "{case}");
                continue;
            }
            let found = found.unwrap();
            for (ours, golden) in [
                (found.rate.get(), number(expect, "rate_per_s")),
                (found.lengths.input.get(), number(expect, "input_tokens")),
                (found.lengths.output.get(), number(expect, "output_tokens")),
                (found.ttft.unwrap().get(), number(expect, "ttft_ms") / 1000.0),
                (found.itl.unwrap().get(), number(expect, "itl_ms") / 1000.0),
            ] {
                assert!((ours - golden).abs() <= 1e-9 * golden, "{ours}, expected {golden} in {case}");
            }
        }
    }

    #[test]
    fn the_order_of_replicas_does_not_matter() {
        let one = |rate: f64, ttft: f64| ReplicaWindow {
            rate: RequestsPerSecond(rate),
            lengths: Lengths { input: Tokens(100.0 * rate), output: Tokens(50.0) },
            ttft: Some(Seconds(ttft)),
            itl: None,
        };
        let mut replicas = vec![one(1.0, 0.1), one(2.0, 0.3), one(4.0, 0.2)];
        let before = aggregate(&replicas).unwrap();
        replicas.reverse();
        let after = aggregate(&replicas).unwrap();
        assert_eq!((before.ttft, before.lengths, before.itl), (after.ttft, after.lengths, None));
    }
}
