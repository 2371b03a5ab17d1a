//! How long does a replica take to become useful, and are many of them new? What the planner learns from watching its recommendations being
//! followed.
//!
//! The clock of a pool runs from the round in which it was to grow to the one in which it has grown: it holds the autoscaler's own delay, the
//! scheduling, the start of the container and the loading of the model, since all of these pass before a recommendation helps. While more than
//! one replica is awaited, it starts again with each that arrives.
//!
//! | round | planned | ready | clock | start-up |
//! |---|---|---|---|---|
//! | 0 s | 4 | 4 | - | - |
//! | 5 s | 6 | 4 | from 5 s | - |
//! | 105 s | 6 | 5 | from 105 s | 100 s |
//! | 110 s | 6 | 6 | - | the longer of the last ones: 100 s |
//!
//! Replicas that arrive together do not halve the estimate: of the last few the longest counts, since a plan that trusts too short a start-up
//! is late. What has been awaited for three start-ups is not coming (`capacity_unavailable`).
//!
//! A fleet of which more than a quarter is fresh is being rolled out, or has just been restarted: its loads say nothing about what it needs, so
//! it does not shrink. That ends after half an hour and two start-ups whatever is seen, or a pool that restarts for ever would never shrink.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::current_replicas;
use super::input::{ModelInput, ModelPolicy, PoolPolicy, Reading, SourceId};
use super::memory::Memory;
use crate::units::{Moment, Replicas};

/// From this share of fresh replicas on a pool does not shrink.
const MANY_FRESH: f64 = 0.25;
/// How long that may last beyond two start-ups.
const LONGEST_ROLLOUT: Duration = Duration::from_secs(1800);
/// Start-ups after which a replica is not coming any more.
const PATIENCE: u32 = 3;
/// Measured start-ups of which the longest counts.
const REMEMBERED: usize = 5;

/// What is known of a pool's growth. Times are on the monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Since when a replica is awaited.
    pub awaited_since: Option<Duration>,
    /// Ready replicas in the last round.
    pub ready: Option<Replicas>,
    /// The last start-ups, oldest first.
    pub startups: Vec<Duration>,
    /// Since when many replicas are fresh.
    pub fresh_since: Option<Duration>,
    /// When replicas went away that nobody had asked to go, while some of them are still missing.
    pub lost_at: Option<Duration>,
}

impl Growth {
    /// The measured start-up; `None` before a replica was seen to arrive.
    pub fn startup(&self) -> Option<Duration> {
        self.startups.iter().copied().max()
    }

    /// Whether replicas are awaited for longer than they ever took; `None` while nobody knows how long they take.
    pub fn capacity_unavailable(&self, now: Moment) -> Option<bool> {
        let patience = self.startup()?.saturating_mul(PATIENCE);
        Some(self.awaited_since.is_some_and(|since| now.monotonic.saturating_sub(since) > patience))
    }

    /// Whether replicas were lost within the last `span`, and have not been replaced.
    pub fn is_short(&self, span: Duration, now: Moment) -> bool {
        self.lost_at.is_some_and(|at| now.monotonic.saturating_sub(at) <= span)
    }

    /// Whether so many replicas are fresh that the pool must not shrink.
    pub fn is_rolling_out(&self, now: Moment) -> bool {
        let longest = LONGEST_ROLLOUT + self.startup().unwrap_or_default().saturating_mul(2);
        self.fresh_since.is_some_and(|since| now.monotonic.saturating_sub(since) <= longest)
    }
}

/// Brings the pools' growth up to date, before anything is decided in this round.
pub(super) fn look(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) {
    memory.growth.retain(|pool, _| policy.pools.iter().any(|known| known.pool == *pool));
    for pool in &policy.pools {
        let ready = current_replicas(pool, memory, input);
        let planned = memory.pools.get(&pool.pool).and_then(|known| known.published.map(|published| published.replicas));
        let fresh = many_fresh(pool, policy.warm_up, input, now);
        let growth = memory.growth.entry(pool.pool.clone()).or_default();
        growth.fresh_since = if fresh { growth.fresh_since.or(Some(now.monotonic)) } else { None };
        growth.follow(ready, planned, now);
    }
}

impl Growth {
    fn follow(&mut self, ready: Option<Replicas>, planned: Option<Replicas>, now: Moment) {
        let Some(ready) = ready else { return };
        let arrived = self.ready.is_some_and(|before| ready > before);
        let missing = planned.is_some_and(|planned| planned > ready);
        if missing && self.ready.is_some_and(|before| ready < before) {
            self.lost_at = Some(now.monotonic);
        }
        self.lost_at = self.lost_at.filter(|_| missing);
        self.ready = Some(ready);
        if let (true, Some(since)) = (arrived, self.awaited_since) {
            self.startups.push(now.monotonic.saturating_sub(since));
            if self.startups.len() > REMEMBERED {
                self.startups.remove(0);
            }
            self.awaited_since = None;
        }
        self.awaited_since = if missing { self.awaited_since.or(Some(now.monotonic)) } else { None };
    }
}

/// Whether more than a quarter of the pool's own targets began within the warm-up, by their own word. With a single target this would be said of
/// every start.
fn many_fresh(pool: &PoolPolicy, warm_up: Duration, input: &ModelInput, now: Moment) -> bool {
    let Some(source) = input.sources.iter().find(|source| source.source == SourceId::Pool(pool.pool.clone())) else { return false };
    let starts = source.targets.iter().filter_map(|target| match &target.reading {
        Reading::Sample(sample) => sample.process_start,
        Reading::Failed(_) => None,
    });
    let fresh = starts.filter(|start| now.wall.as_secs_f64() - start < warm_up.as_secs_f64()).count();
    source.targets.len() > 1 && fresh as f64 > MANY_FRESH * source.targets.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_800_000_000 + seconds) }
    }

    #[test]
    fn the_clock_runs_from_the_wish_to_the_arrival() {
        let mut growth = Growth::default();
        for (at, ready, planned) in [(0, 4, 4), (5, 4, 6), (50, 4, 6), (105, 5, 6), (110, 6, 6), (200, 6, 6)] {
            growth.follow(Some(Replicas(ready)), Some(Replicas(planned)), moment(at));
        }
        assert_eq!(growth.startups, [Duration::from_secs(100), Duration::from_secs(5)]);
        assert_eq!((growth.startup(), growth.awaited_since), (Some(Duration::from_secs(100)), None));
    }

    #[test]
    fn what_is_awaited_for_three_start_ups_is_not_coming() {
        let mut growth = Growth { startups: vec![Duration::from_secs(100)], ..Growth::default() };
        growth.follow(Some(Replicas(2)), Some(Replicas(3)), moment(0));
        assert_eq!(growth.capacity_unavailable(moment(300)), Some(false));
        assert_eq!(growth.capacity_unavailable(moment(301)), Some(true));
        growth.follow(Some(Replicas(2)), Some(Replicas(2)), moment(310));
        assert_eq!(growth.capacity_unavailable(moment(700)), Some(false), "nobody waits any more");
        assert_eq!(Growth::default().capacity_unavailable(moment(0)), None);
    }

    #[test]
    fn replicas_that_go_unasked_are_missed_until_they_are_back_or_given_up() {
        let mut growth = Growth::default();
        let missed = |growth: &Growth, at| growth.is_short(Duration::from_secs(600), moment(at));
        growth.follow(Some(Replicas(8)), Some(Replicas(8)), moment(0));
        growth.follow(Some(Replicas(7)), Some(Replicas(7)), moment(5));
        assert!(!missed(&growth, 5), "it was asked to go");
        growth.follow(Some(Replicas(1)), Some(Replicas(7)), moment(10));
        assert!(missed(&growth, 10) && missed(&growth, 610) && !missed(&growth, 611));
        growth.follow(Some(Replicas(7)), Some(Replicas(7)), moment(100));
        assert!(!missed(&growth, 100));
    }

    #[test]
    fn an_unknown_count_moves_nothing() {
        let mut growth = Growth::default();
        growth.follow(Some(Replicas(2)), Some(Replicas(3)), moment(0));
        let before = growth.clone();
        growth.follow(None, Some(Replicas(3)), moment(10));
        assert_eq!(growth, before);
    }

    #[test]
    fn a_rollout_ends_by_itself() {
        let growth = Growth { fresh_since: Some(Duration::from_secs(0)), startups: vec![Duration::from_secs(100)], ..Growth::default() };
        assert!(growth.is_rolling_out(moment(2000)) && !growth.is_rolling_out(moment(2001)));
    }
}
