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
/// Time for which a sign must last.
const LASTS: Duration = Duration::from_secs(20);

/// Since when a pool whose count did not change has been beyond its objective, on the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beyond {
    since: Duration,
    ready: Replicas,
    /// What was ready when more were asked for, and what the time was then, over the objective.
    asked: Option<(Replicas, f64)>,
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

/// Follows the time between tokens of a pool and answers with the count that it asks for.
pub fn spaced(beyond: &mut Option<Beyond>, seen: Option<Spacing>, ready: Replicas, now: Moment) -> Option<Replicas> {
    let Some(seen) = seen.filter(|seen| ROOM * seen.ratio > 1.0 && seen.range < TOLD && ready.0 > 0) else {
        *beyond = None;
        return None;
    };
    let asked = beyond.and_then(|known| known.asked);
    let known = beyond.filter(|known| known.ready == ready).unwrap_or(Beyond { since: now.monotonic, ready, asked });
    let lasted = now.monotonic.saturating_sub(known.since);
    let in_vain =
        asked.is_some_and(|(before, ratio)| before < ready && ratio < seen.ratio * (ready.as_f64() / before.as_f64()).powf(SHOWN));
    let asks = lasted >= LASTS + seen.stay && !in_vain;
    *beyond = Some(Beyond { asked: if asks { Some((ready, seen.ratio)) } else { asked }, ..known });
    // `as` saturates.
    asks.then(|| Replicas((ROOM * seen.ratio * ready.as_f64()).ceil() as u32))
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
