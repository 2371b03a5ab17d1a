//! What may be asked for of a pool of which nobody knows yet what its replicas do? What its pages say all the same.
//!
//! Iterations that are all alike teach no cost, and nothing makes them differ while the load and the count stay. Two signs need no cost:
//!
//! | sign | asked for |
//! |---|---|
//! | a queue of more than chance has stood for twenty seconds and grown (`backlog.rs`) | what carries what comes |
//! | the time between tokens, and a tenth, has been beyond its objective for that long, and for the stay of a request | more in proportion: 10 with 60 ms for 50 ms are to be 14 |
//!
//! Each is at most twice what is ready, since it may be that of a server that was not seen before. More replicas give each a smaller batch, and
//! the difference tells what a request costs: from then on the count is planned. Time that is no shorter at two thirds of the batch, or beside the
//! replicas that were asked for because of it, is not that of its load, and no count mends it: 16 replicas with 60 ms where 10 had 61 stay 16.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::Warning;
use crate::units::{Moment, Replicas};

/// What may be asked for over what is ready.
const TIMES: u32 = 2;
/// What an objective must leave, as a part of what is measured: of means, since each request is to meet it.
const ROOM: f64 = 1.1;
/// Batches whose largest is so many times the smallest would have shown what a request costs.
const TOLD: f64 = 1.5;
/// What of the replicas that came in must show in the time, as a power: where twice as many take a sixth of it away, load is not what makes it long.
const SHOWN: f64 = 0.25;
/// Where the time is so many times what it was, something else has come up since.
const ANEW: f64 = 1.25;
/// Time for which a sign must last, and that may pass unseen.
const LASTS: Duration = Duration::from_secs(20);

/// The time between tokens of a pool while nobody knows what its replicas do. Times are on the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spaced {
    /// The period that is watched, during which nothing else changed.
    period: Option<Period>,
    /// What more was asked for the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Period {
    since: Duration,
    /// Of the last round.
    until: Duration,
    ready: Replicas,
    /// Of the rounds' ratios.
    sum: f64,
    rounds: u32,
}

/// What was ready when more replicas were asked for, and the time between tokens, over its objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    ready: Replicas,
    ratio: f64,
}

/// The time between tokens of a pool, over its objective, and what bears on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spacing {
    /// What is measured, over the objective.
    pub ratio: f64,
    /// How long a request stays, which an answer that has ended tells of.
    pub stay: Duration,
    /// The largest batch that was seen, over the smallest.
    pub range: f64,
}

impl Asked {
    /// Whether this can have been asked for. A state file may hold anything.
    pub fn is_sound(&self) -> bool {
        self.ready.0 > 0 && self.ratio.is_finite() && self.ratio > 0.0
    }
}

impl Spaced {
    /// Nothing but what a former process asked for.
    pub fn having(asked: Asked) -> Self {
        Self { period: None, asked: Some(asked) }
    }

    /// Takes in a round, and at the end of a period answers with the count that it asks for.
    pub fn follow(&mut self, seen: Option<Spacing>, ready: Replicas, now: Moment) -> Option<Replicas> {
        let now = now.monotonic;
        let Some(seen) = seen.filter(|seen| seen.ratio.is_finite() && ready.0 > 0) else {
            self.period = None;
            return None;
        };
        let goes_on = |period: &Period| period.ready == ready && now.saturating_sub(period.until) < LASTS;
        let began = Period { since: now, until: now, ready, sum: 0.0, rounds: 0 };
        let known = self.period.filter(goes_on).unwrap_or(began);
        let period = Period { until: now, sum: known.sum + seen.ratio, rounds: known.rounds + 1, ..known };
        if now.saturating_sub(period.since) < LASTS + seen.stay {
            self.period = Some(period);
            return None;
        }
        self.period = None;
        self.judge(period.sum / f64::from(period.rounds), seen.range, ready)
    }

    fn judge(&mut self, ratio: f64, range: f64, ready: Replicas) -> Option<Replicas> {
        if ROOM * ratio <= 1.0 {
            self.asked = None;
            return None;
        }
        let in_vain = |asked: Asked| {
            let grown = ready.as_f64() / asked.ready.as_f64();
            grown > 1.0 && ratio > asked.ratio * grown.powf(-SHOWN) && ratio < asked.ratio * ANEW
        };
        if range >= TOLD || self.asked.is_some_and(in_vain) {
            return None;
        }
        self.asked = Some(Asked { ready, ratio });
        let more = ROOM * ratio * ready.as_f64();
        // Within the objective a part of a replica is not worth one; `as` saturates.
        Some(Replicas(if ratio > 1.0 { more.ceil() } else { more.floor() } as u32))
    }
}

/// The larger of what both signs ask for, beyond what stands, with what it rests on.
pub fn wanted(carrying: Option<Replicas>, spaced: Option<Replicas>, ready: Replicas, standing: Replicas) -> Option<(Replicas, Warning)> {
    let most = Replicas(ready.0.saturating_mul(TIMES));
    let queued = carrying.map(|count| (count.min(most), Warning::Outrun));
    let slow = spaced.map(|count| (count.min(most), Warning::SpacingUnlearned));
    queued.into_iter().chain(slow).filter(|(count, _)| *count > standing).max_by_key(|(count, _)| *count)
}

#[cfg(test)]
#[path = "unlearned_tests.rs"]
mod tests;
