//! How much of what waits would still wait if the recommended replicas were there? The queue that the fast loop projects.
//!
//! A queue before too few replicas grows for as long as they are too few. Divided by the replicas that are recommended it grows as well, and each
//! look at it would ask for one more, without end, while the first ones are still being started. But a part of it is there only because those are
//! missing: with S recommended and n present, the missing ones would have computed (S - n) / n of what the present ones computed meanwhile.
//!
//! So the queue is followed beside the real one: it takes what comes, and gives what the missing replicas would have done.
//!
//! | | present | recommended | queued | computed since | would wait |
//! |---|---|---|---|---|---|
//! | t | 1 | 1 | 100 | - | 100 |
//! | t + 5 s | 1 | 2 | 130 | 200 | 100 + 30 - 200, so 0 |
//! | t + 10 s | 1 | 2 | 160 | 200 | 0: two are enough |
//! | the second is there | 2 | 2 | 450 | | 450: what is really there counts |
//!
//! Prompts are counted and not their tokens: the mean length is that of the last window, and a step of it would read as a jump of a long queue.
//!
//! If the recommended ones are still too few it grows, more slowly, and asks for the next one: the advice runs ahead of reality, and stops where a
//! fleet that follows would stop.
//!
//! What is left of it and drains before a further replica could be ready (a start-up) asks for none: that one would come to an empty queue.
//!
//! Known limit: the missing replicas are credited from the moment at which they are recommended, not from when they could have been ready; what
//! piled up while they started is seen when they are there. An engine that does not count first tokens gives no credit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::input::{ModelInput, Sample, Signal};
use super::policy::PoolPolicy;
use super::prompts;
use super::watching::pages;
use crate::units::{Moment, Replicas, Requests, Role, TargetId};

/// How far back rates are taken from.
const WATCHED: Duration = Duration::from_secs(30);
/// The part of it that is enough for a count: rounds need not divide it.
const MOST_OF_IT: f64 = 0.6;
/// Requests that tell how many are served: of fewer it is chance.
const LEAST_SERVED: f64 = 10.0;
/// Requests that wait at a busy replica which is not too few, by chance alone.
const USUAL_QUEUE: f64 = 5.0;
/// What must be carried before a replica is given back, over what comes.
const ROOM: f64 = 1.1;

/// The queue of a pool, as it is and as it would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backlog {
    /// Requests that waited in the last round.
    queued: Requests,
    /// Those that would have waited.
    projected: Requests,
    /// Requests that each target has served since it began.
    computed: BTreeMap<TargetId, f64>,
    /// The last rounds, oldest first.
    rounds: Vec<Round>,
}

/// What happened up to one round since the one before.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Round {
    at: Duration,
    /// Requests that wait.
    queued: Requests,
    /// Requests that were served.
    served: Requests,
    /// Seconds times replicas.
    worked: f64,
}

/// Requests a second while the pool had no pause.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    arriving: f64,
    /// Of one replica.
    served: f64,
}

impl Backlog {
    /// Follows the queue by one round.
    pub(super) fn follow(&mut self, input: &ModelInput, pool: &PoolPolicy, queued: Requests, counts: [Replicas; 2], now: Moment) {
        let [current, standing] = counts;
        let computed: BTreeMap<TargetId, f64> =
            pages(input, pool).filter_map(|(target, (_, sample))| Some((target.clone(), served(sample, pool.role)?))).collect();
        let served: f64 = computed.iter().filter_map(|(target, now)| Some((now - self.computed.get(target)?).max(0.0))).sum();
        self.computed = computed;
        let missing = standing.as_f64() - current.as_f64();
        self.projected = if missing <= 0.0 || current.0 == 0 {
            queued
        } else {
            let credit = served * missing / current.as_f64();
            Requests((self.projected.get() + queued.get() - self.queued.get() - credit).clamp(0.0, queued.get()))
        };
        self.queued = queued;
        let elapsed = self.rounds.last().map_or(0.0, |last| now.monotonic.saturating_sub(last.at).as_secs_f64());
        self.rounds.retain(|round| now.monotonic.saturating_sub(round.at) <= WATCHED);
        self.rounds.push(Round { at: now.monotonic, queued, served: Requests(served), worked: elapsed * current.as_f64() });
    }

    /// What came and what one replica did in the last while; `None` where the queue was empty in between, or that is not known.
    fn rates(&self) -> Option<Rates> {
        let (first, rest) = self.rounds.split_first()?;
        let last = rest.last()?;
        let elapsed = last.at.saturating_sub(first.at).as_secs_f64();
        let served: f64 = rest.iter().map(|round| round.served.get()).sum();
        let worked: f64 = rest.iter().map(|round| round.worked).sum();
        let saturated = self.rounds.iter().all(|round| round.queued.is_positive()) && served > 0.0 && worked > 0.0 && elapsed > 0.0;
        saturated.then(|| Rates { arriving: (served + last.queued.get() - first.queued.get()) / elapsed, served: served / worked })
    }

    /// Whether so many replicas would have done away with what waits within `horizon`.
    pub(super) fn drains_within(&self, horizon: Duration, standing: Replicas) -> bool {
        let Some(rates) = self.rates() else { return false };
        let pace = rates.served * standing.as_f64() - rates.arriving;
        pace > 0.0 && self.projected.get() / pace <= horizon.as_secs_f64()
    }

    /// The smallest count that carries what comes to `ready` replicas, and a little more. `None` where no queue has stood, and grown, for most of the
    /// time that is looked at, or next to nothing was served meanwhile.
    pub(super) fn carrying(&self, ready: Replicas) -> Option<Replicas> {
        let (first, last) = (self.rounds.first()?, self.rounds.last()?);
        if self.rounds.iter().any(|round| round.queued.get() < USUAL_QUEUE * ready.as_f64()) || last.queued.get() <= first.queued.get() {
            return None;
        }
        let served: f64 = self.rounds[1..].iter().map(|round| round.served.get()).sum();
        let told = served >= LEAST_SERVED && last.at.saturating_sub(first.at) >= WATCHED.mul_f64(MOST_OF_IT);
        let rates = self.rates().filter(|_| told)?;
        // `as` saturates.
        Some(Replicas((ROOM * rates.arriving / rates.served).ceil() as u32))
    }

    /// Whether so many replicas carry what comes, and a little more. Without a queue that is not known here, and their loads say it.
    pub(super) fn carried_by(&self, count: Replicas) -> bool {
        self.rates().is_none_or(|rates| rates.served * count.as_f64() >= ROOM * rates.arriving)
    }

    /// How much of the prompts that a replica computes now each of `count` would compute: less, if they are more, and at least as many as come.
    pub(super) fn relief(&self, count: Replicas) -> f64 {
        self.rates().map_or(1.0, |rates| (rates.arriving / count.as_f64().max(1.0) / rates.served).clamp(0.0, 1.0))
    }

    /// Whether less waits than a while ago.
    pub(super) fn is_falling(&self) -> bool {
        let ends = self.rounds.first().zip(self.rounds.last());
        ends.is_some_and(|(first, last)| last.queued.get() < first.queued.get())
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        !self.queued.is_positive()
    }

    /// The share of the queue that would still be there, in 0..=1.
    pub(super) fn share(&self) -> f64 {
        if self.queued.is_positive() { (self.projected.get() / self.queued.get()).clamp(0.0, 1.0) } else { 1.0 }
    }
}

/// Requests that a server has taken from its queue and is done with: prompts that gave their first token, at a decode replica answers that ended.
/// `None` where it does not count them.
fn served(sample: &Sample, role: Role) -> Option<f64> {
    let answers = || sample.histograms.get(&Signal::OutputTokens);
    let series = if role == Role::Decode { answers() } else { prompts::first_tokens(&sample.histograms, role) };
    Some(series?.values().map(|histogram| histogram.count).sum())
}
