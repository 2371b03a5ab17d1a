//! What did the replicas' iterations cost lately, and what do requests reuse? What target sla learns from pages, round by round.
//!
//! From each replica's page a window of a few scrapes is cut, apart from the decision's window: long enough that its means are means, short
//! enough that loads differ between windows. It gives at most one sample (`learn/scraped.rs`) to the pool's regression (`learn/iterations.rs`).
//!
//! | not taken | because |
//! |---|---|
//! | a replica that began within the warm-up | its first iterations are slow, and would make its capacity collapse |
//! | a window in which it restarted, or was silent | there is no difference to take |
//! | a window in which a page lacked what another one had | what is not said is not zero |
//! | front ends | they do not know iterations |
//!
//! Hit rate and accepted length are last values (facts of seed 004): what was seen last holds until something else is seen. They describe servers
//! and prompts, and have no season.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::input::{Gauge, ItlBasis, ModelInput, Reading, Sample, Signal, SourceId, Tally};
use super::learn::iterations::Iterations;
use super::learn::scraped::{self, Window};
use super::memory::Memory;
use super::model::capacity::accept_length;
use super::observe::mean_of;
use super::policy::{ModelPolicy, PoolPolicy, RegressionPolicy};
use super::prompts::{self, Seen};
use super::sizing;
use super::window::{Delta, Stamped, between};
use crate::units::{Moment, Ratio, Requests, Role, Seconds, TargetId, Tokens};

/// Shortest window that gives a sample, and how many scrapes it spans at least.
const SHORTEST: Duration = Duration::from_secs(15);
const SCRAPES: u32 = 3;
/// A window that is longer than this many of the shortest holds a pause of our own and is dropped.
const LONGEST: u32 = 4;

/// What is known of a pool's iterations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// What was learned.
    pub iterations: Iterations,
    /// The windows that go on, by target.
    targets: BTreeMap<TargetId, Open>,
}

/// What requests reuse, as it was seen last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reuse {
    /// Share of the prompts that a cache held.
    pub hit_rate: Option<Ratio>,
    /// Tokens that a decoding step yields.
    pub accept_length: Option<Ratio>,
}

/// A window that goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Open {
    first: Stamped,
    /// The prompts that front ends had seen when it began.
    #[serde(default)]
    prompts: Seen,
    rounds: u32,
    running: f64,
    waiting: f64,
    least_waiting: f64,
    kv_usage: f64,
}

impl Watched {
    /// With what was learned before; the windows begin anew.
    pub fn of(iterations: Iterations) -> Self {
        Self { iterations, targets: BTreeMap::new() }
    }
}

/// Takes in a round.
pub(super) fn look(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, settings: &RegressionPolicy, now: Moment) {
    memory.watched.retain(|pool, _| policy.pools.iter().any(|known| known.pool == *pool));
    let shortest = SHORTEST.max(policy.scrape_interval.saturating_mul(SCRAPES));
    let mut reuse = memory.reuse;
    let (last_prompt, seen) = (prompt_length(memory), Seen::of(input));
    for pool in &policy.pools {
        let watched = memory.watched.entry(pool.pool.clone()).or_insert_with(|| Watched::of(Iterations::new(pool.role)));
        if watched.iterations.role() != pool.role {
            // The name stayed and the role did not: other replicas do other work.
            *watched = Watched::of(Iterations::new(pool.role));
        }
        let pages: BTreeMap<&TargetId, (Duration, &Sample)> = pages(input, pool).collect();
        watched.targets.retain(|target, _| pages.contains_key(target));
        for (target, (at, sample)) in pages {
            let fresh = sample.process_start.is_some_and(|start| now.wall.as_secs_f64() - start < policy.warm_up.as_secs_f64());
            if fresh || sample.is_of_a_router() {
                watched.targets.remove(target);
                continue;
            }
            let open = watched.targets.entry(target.clone()).or_insert_with(|| Open::new(at, sample, &seen));
            let delta = open.take(at, sample, pool.role, shortest);
            let Closing::Closed(delta) = delta else {
                if matches!(delta, Closing::Broken) {
                    *open = Open::new(at, sample, &seen);
                }
                continue;
            };
            reuse = reuse.seen(&delta, settings.drafted);
            let prompt = seen.mean_since(&open.prompts).or(last_prompt);
            if let Ok(observed) = scraped::sample(pool.role, &open.window(&delta, sample, (input, pool), (reuse, prompt))) {
                watched.iterations.learn(&observed, settings);
            }
            *open = Open::new(at, sample, &seen);
        }
    }
    memory.reuse = reuse;
}

/// Mean length of the prompts that came last, whoever saw them.
fn prompt_length(memory: &Memory) -> Option<Tokens> {
    let seen = || memory.decision.as_ref()?.observation.as_ref()?.input_tokens;
    seen().or_else(|| memory.arrivals.last_prompt())
}

/// The pages of the pool's own targets, else of traffic targets that serve.
pub(super) fn pages<'a>(input: &'a ModelInput, pool: &PoolPolicy) -> impl Iterator<Item = (&'a TargetId, (Duration, &'a Sample))> {
    let source = |id: &SourceId| input.sources.iter().find(|source| source.source == *id);
    let source = source(&SourceId::Pool(pool.pool.clone())).or_else(|| source(&SourceId::Traffic));
    source.into_iter().flat_map(|source| &source.targets).filter_map(|reading| match &reading.reading {
        Reading::Sample(sample) if !sample.is_empty() => Some((&reading.target, (reading.at, &**sample))),
        _ => None,
    })
}

/// What a round does to a window.
enum Closing {
    /// It goes on.
    Open,
    /// It is long enough.
    Closed(Box<Delta>),
    /// There is no difference to take.
    Broken,
}

impl Open {
    fn new(at: Duration, sample: &Sample, seen: &Seen) -> Self {
        let first = Stamped { at, sample: Arc::new(sample.without_buckets()) };
        Self { first, prompts: seen.clone(), rounds: 0, running: 0.0, waiting: 0.0, least_waiting: f64::MAX, kv_usage: 0.0 }
    }

    fn take(&mut self, at: Duration, sample: &Sample, role: Role, shortest: Duration) -> Closing {
        let gauge = |of| sample.gauges.get(&of).copied().unwrap_or(0.0);
        let waiting = prompts::waiting(sample, role).unwrap_or(0.0);
        self.rounds += 1;
        self.running += gauge(Gauge::Running);
        self.waiting += waiting;
        self.least_waiting = self.least_waiting.min(waiting);
        self.kv_usage += gauge(Gauge::KvUsage);
        if !has_the_same(&self.first.sample, sample) {
            return Closing::Broken;
        }
        let span = at.saturating_sub(self.first.at);
        if span < shortest {
            return Closing::Open;
        }
        let last = Stamped { at, sample: Arc::new(sample.without_buckets()) };
        let delta = between(&self.first, &last).filter(|_| span <= shortest.saturating_mul(LONGEST));
        delta.map_or(Closing::Broken, |delta| Closing::Closed(Box::new(delta)))
    }

    fn window(
        &self,
        delta: &Delta,
        sample: &Sample,
        (input, pool): (&ModelInput, &PoolPolicy),
        (reuse, prompt): (Reuse, Option<Tokens>),
    ) -> Window {
        let tally = |of| delta.tallies.get(&of).copied();
        let mean = |sum: f64| sum / f64::from(self.rounds.max(1));
        let shown = |of| sample.gauges.contains_key(&of);
        let queue = prompts::waiting(sample, pool.role).is_some();
        let first_tokens = prompts::first_tokens(&delta.histograms, pool.role);
        let told = |of| {
            let known = || sizing::limit(input, pool, of).map(|tokens| f64::from(tokens.get()));
            sample.gauges.get(&of).copied().filter(|value| *value > 0.0).or_else(known).map(Tokens)
        };
        let sum = |signal| delta.histograms.get(&signal).map(|growth| growth.sum);
        let itl = mean_of(delta.histograms.get(&Signal::Itl)).map(|itl| (Seconds(itl), delta.itl_basis));
        let count = |signal| delta.histograms.get(&signal).map(|growth| growth.count);
        // A server that counts no tokens computes prompts of the length that the front end sees, and each gap between tokens ends with one.
        let by_length = || Some(first_tokens?.count * prompt?.get());
        let prompt_tokens = tally(Tally::PromptTokens).or_else(|| sum(Signal::PromptTokens)).or_else(by_length);
        // A gap between events has the tokens of a step behind it.
        let a_gap = match delta.itl_basis {
            ItlBasis::PerEvent => Some(reuse.accept_length.map_or(1.0, Ratio::get)),
            ItlBasis::PerToken => Some(1.0),
            ItlBasis::PerRequest | ItlBasis::WholeRequest => None,
        };
        let by_gaps = || Some(count(Signal::Itl)? * a_gap? + count(Signal::Ttft)?);
        let cached = reuse_of(delta).map_or(0.0, |share| share.get());
        Window {
            elapsed: delta.elapsed.into(),
            iterations: tally(Tally::Iterations),
            iteration_tokens: tally(Tally::IterationTokens).map(Tokens),
            itl,
            accept_length: reuse.accept_length,
            ttft: mean_of(first_tokens).map(Seconds),
            prefill_seconds: tally(Tally::PrefillSeconds).map(Seconds),
            prompts: first_tokens.map(|growth| Requests(growth.count)),
            computed: prompt_tokens.map(|tokens| Tokens(tokens * (1.0 - cached))),
            generated: tally(Tally::GeneratedTokens).or_else(|| sum(Signal::OutputTokens)).or_else(by_gaps).map(Tokens),
            running: shown(Gauge::Running).then(|| Requests(mean(self.running))),
            waiting: queue.then(|| Requests(mean(self.waiting))),
            least_waiting: queue.then_some(Requests(self.least_waiting)),
            kv_usage: shown(Gauge::KvUsage).then(|| Ratio(mean(self.kv_usage))),
            kv_capacity: told(Gauge::KvCapacityTokens),
            batched_tokens: told(Gauge::MaxBatchedTokens),
        }
    }
}

/// Whether two pages say as much.
fn has_the_same(one: &Sample, other: &Sample) -> bool {
    one.histograms.keys().eq(other.histograms.keys())
        && one.tallies.keys().eq(other.tallies.keys())
        && one.gauges.keys().eq(other.gauges.keys())
}

impl Reuse {
    /// With what a window showed, where it showed anything.
    fn seen(self, delta: &Delta, drafted: u32) -> Self {
        let tally = |of| delta.tallies.get(&of).copied();
        let accepted = || {
            let (accepted, drafts) = (tally(Tally::AcceptedTokens)?, tally(Tally::Drafts).filter(|drafts| *drafts > 0.0)?);
            accept_length(Some(Ratio(1.0 + accepted / drafts)), drafted)
        };
        Self { hit_rate: reuse_of(delta).or(self.hit_rate), accept_length: accepted().or(self.accept_length) }
    }
}

/// Share of the prompts that a cache held; `None` where the engine does not say, or no prompt came.
pub(super) fn reuse_of(delta: &Delta) -> Option<Ratio> {
    let share = |part: Tally, whole: Tally| {
        let (part, whole) = (delta.tallies.get(&part)?, delta.tallies.get(&whole)?);
        (*whole > 0.0).then(|| part / whole)
    };
    let share = share(Tally::CachedTokens, Tally::PromptTokens).or_else(|| share(Tally::PrefixHits, Tally::PrefixQueries))?;
    // At least one token of a prompt is always computed.
    share.is_finite().then(|| Ratio(share.clamp(0.0, 0.999)))
}
