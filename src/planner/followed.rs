//! What was needed and asked for lately, what is on its way, and what still waits? Preset auto's memory of one pool.
//!
//! A queue before too few replicas grows until the next ones are ready. It is followed to that moment, replica by replica as they arrive, and
//! where need alone would leave a queue behind, a few more are asked for, at most a quarter above what is needed:
//!
//! | need 8, one ready, 8x the arrivals since now; start-up 100 s | |
//! |---|---|
//! | left at 100 s | (8 - 1) replicas' work of 100 s |
//! | the eight new ones alone | carry what arrives; the old one works off what it has |
//! | asked for | 9 |
//!
//! They are kept until what waits is gone, so that a queue that is followed to nothing and seen again does not make the count swing.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::needed::{Demand, MOST};
use super::rhythm::Rhythm;
use super::shadows::Shadows;
use super::unlearned::{Asked, Spaced};
use crate::units::{Moment, Replicas};

/// Time within which new replicas are to have worked off what waits, seconds.
const CATCH_UP: f64 = 45.0;
/// What may be asked for above what is needed, as a part of it.
const ABOVE: u32 = 4;
/// What may pass unseen: this part of the delay of a decrease, and so many rounds where those are long.
const GAP: u32 = 4;
const GAP_ROUNDS: u32 = 3;

/// Requests a second beyond those that arrive, while so many that wait are worked off.
pub fn drained(left: f64) -> f64 {
    left / CATCH_UP
}

/// A wish for what waits, at most a quarter, and one replica at least, above need.
pub fn at_most(wish: Replicas, need: Replicas) -> Replicas {
    wish.min(Replicas(need.0.saturating_add((need.0 / ABOVE).max(1))))
}

/// What is remembered of one pool. Times are on the monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Followed {
    /// What was needed lately.
    needs: Lately,
    /// What was asked for lately, which is more while a queue is worked off.
    #[serde(default)]
    wishes: Lately,
    /// Since when it is watched without a gap.
    since: Option<Duration>,
    /// How its need goes up and down.
    #[serde(default)]
    rhythm: Rhythm,
    /// When its need was noted last.
    #[serde(default)]
    noted: Option<Duration>,
    /// What stood in the last round.
    stood: Option<Replicas>,
    /// Replicas that were asked for and are not there yet, and when.
    asked: Vec<(Duration, u32)>,
    /// When it was last made smaller.
    lowered_at: Option<Duration>,
    /// The count that works off what waits; 0 where nothing does.
    catching: Replicas,
    /// Its time between tokens while nobody knows what its replicas do.
    #[serde(default)]
    pub spaced: Spaced,
    /// What simpler rules would have asked for.
    #[serde(default)]
    pub shadows: Shadows,
}

/// Counts and when they were: falling, since what was less than a later one is never the most again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Lately(Vec<(Duration, Replicas)>);

impl Lately {
    /// Takes in a count, and forgets what is older than `keep`.
    fn note(&mut self, count: Replicas, keep: Duration, now: Moment) {
        self.0.retain(|(at, known)| now.monotonic.saturating_sub(*at) <= keep && *known > count);
        self.0.push((now.monotonic, count));
    }

    fn most(&self) -> Replicas {
        self.0.first().map(|(_, count)| *count).unwrap_or_default()
    }
}

/// What a pool has to do in this moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queued {
    /// Requests a second.
    pub rate: f64,
    /// Requests that wait.
    pub waiting: f64,
    /// Requests that run.
    pub running: f64,
    /// Replicas that serve.
    pub ready: Replicas,
}

/// What waits beyond order at a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backlog {
    /// The count that works it off.
    pub wanted: Replicas,
    /// Requests that wait now.
    pub present: f64,
    /// Requests that would wait when replicas that are asked for now are ready.
    pub left: f64,
}

impl Backlog {
    /// Requests a second beyond those that arrive, that a pool of `ready` replicas sends on while it works that off: now, and when what is wanted
    /// is there. Routers do not move requests, so one replica's queue may last for long after the others are idle.
    pub fn sent_on(&self, ready: Replicas, each: f64, rate: f64) -> f64 {
        let waits = self.present.max(self.left);
        // An even pool has one at each replica anyway.
        if waits <= ready.as_f64() {
            return 0.0;
        }
        let spare = (self.wanted.max(ready).as_f64() * each - rate).max(0.0);
        drained(waits).min(spare)
    }
}

impl Followed {
    /// Nothing but what a former process asked for.
    pub fn having(asked: Asked) -> Self {
        Self { spaced: Spaced::having(asked), ..Self::default() }
    }

    /// Takes in what stands and what is ready.
    pub fn follow(&mut self, stands: Replicas, ready: Replicas, now: Moment) {
        let before = self.stood.replace(stands).unwrap_or(stands);
        if stands > before {
            self.asked.push((now.monotonic, stands.0 - before.0));
        }
        if stands < before {
            self.lowered_at = Some(now.monotonic);
        }
        // The oldest arrive first.
        let mut open = stands.0.saturating_sub(ready.0);
        for (_, count) in self.asked.iter_mut().rev() {
            *count = (*count).min(open);
            open -= *count;
        }
        self.asked.retain(|(_, count)| *count > 0);
        self.since.get_or_insert(now.monotonic);
    }

    /// Notes what is needed now and what is asked for, in rounds that are `interval` apart, and forgets what is older than `delay`; a need that comes
    /// back in a rhythm is remembered for as long as its pauses. After a gap in which nothing could be noted it is watched anew: what was needed in
    /// the dark is not known, and less than that must not be given back.
    pub fn note(&mut self, need: Replicas, wanted: Replicas, delay: Duration, interval: Duration, now: Moment) {
        let gap = self.noted.map_or(Duration::ZERO, |noted| now.monotonic.saturating_sub(noted));
        if gap > (delay / GAP).max(interval.saturating_mul(GAP_ROUNDS)) {
            self.since = Some(now.monotonic);
        }
        self.noted = Some(now.monotonic);
        // What was asked for before it was known is settled.
        self.spaced = Spaced::default();
        self.needs.note(need, self.rhythm.note(need, now).max(delay), now);
        self.wishes.note(wanted, delay, now);
    }

    /// The most that was asked for lately.
    pub fn recently_needed(&self) -> Replicas {
        self.needs.most().max(self.wishes.most())
    }

    /// Whether it has been watched for so long.
    pub fn is_watched(&self, delay: Duration, now: Moment) -> bool {
        self.since.is_some_and(|since| now.monotonic.saturating_sub(since) >= delay)
    }

    /// Whether it was made smaller within that time.
    pub fn was_lowered(&self, within: Duration, now: Moment) -> bool {
        self.lowered_at.is_some_and(|at| now.monotonic.saturating_sub(at) < within)
    }

    /// The count that also works off what waits soon after it is there, and what waits now and then.
    pub fn caught_up(&mut self, demand: &Demand<'_>, queued: Queued, need: Replicas, startup: Duration, now: Moment) -> Backlog {
        let Queued { rate, ready, .. } = queued;
        let each = demand.capacity();
        let present = demand.excess(queued.waiting, queued.running, ready);
        let (mut excess, mut at, mut count) = (present, 0.0, ready.as_f64());
        let end = startup.as_secs_f64();
        for (asked, more) in &self.asked {
            let ready_in = (*asked + startup).saturating_sub(now.monotonic).as_secs_f64().min(end);
            excess = (excess + (rate - each * count) * (ready_in - at)).max(0.0);
            (at, count) = (ready_in, count + f64::from(*more));
        }
        excess = (excess + (rate - each * count) * (end - at)).max(0.0);
        // An even pool has one at each replica anyway.
        if excess > count {
            let through = ((rate + drained(excess)) / each).ceil();
            // `as` saturates.
            let through = Replicas(if through < f64::from(MOST) { through as u32 } else { MOST });
            let above = Replicas(need.0.saturating_add(ready.0)).min(at_most(Replicas(MOST), need));
            self.catching = self.catching.max(through).min(above);
        } else if present <= ready.as_f64() {
            self.catching = Replicas(0);
        }
        Backlog { wanted: self.catching.max(need), present, left: excess }
    }
}

#[cfg(test)]
#[path = "followed_tests.rs"]
mod tests;
