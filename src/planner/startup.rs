//! How long does a replica take to become useful, and are many of them new? What the planner learns from watching its recommendations being
//! followed.
//!
//! Each replica has a clock. It runs from the round in which the pool was to grow by it to the one in which it is there: it holds the
//! autoscaler's own delay, the scheduling, the start of the container and the loading of the model, since all of these pass before a
//! recommendation helps. Replicas bear no names here, so the one that arrives is taken to be the one that was asked for first, and where fewer
//! are wanted those that were asked for last are given up.
//!
//! | round | planned | ready | asked for and not there | start-up |
//! |---|---|---|---|---|
//! | 0 s | 4 | 4 | - | - |
//! | 5 s | 6 | 4 | 2 at 5 s | - |
//! | 65 s | 7 | 4 | 2 at 5 s, 1 at 65 s | - |
//! | 105 s | 7 | 5 | 1 at 5 s, 1 at 65 s | 100 s |
//! | 110 s | 7 | 6 | 1 at 65 s | 105 s |
//! | 165 s | 7 | 7 | - | 100 s, and the longest of the last ones is 105 s |
//!
//! Of the last few the longest counts, since a plan that trusts too short a start-up is late. What has been awaited for three start-ups since
//! the last arrival is not coming (`capacity_unavailable`). It neither makes the plan larger, since a fourth pod would not be scheduled where
//! the third is not, nor keeps it from becoming smaller.
//!
//! A fleet of which more than a quarter is fresh is being rolled out, or has just been restarted: its loads say nothing about what it needs, so
//! it does not shrink. That ends after half an hour and two start-ups whatever is seen, or a pool that restarts for ever would never shrink.
//! The same holds while it shows two generations.
//!
//! Replicas that an orchestrator knows to start or to end are not missing: their work has gone to the others, whose loads show it. But where
//! most of a fleet starts again at once, the few that are left show nothing: those that served and start again count as fresh. Pods that
//! never served are none of these; a pod that waits for a node blocks no decrease.
//!
//! | eight replicas recommended | missing | fresh | may shrink |
//! |---|---|---|---|
//! | 7 ready | 1 | - | after `hold_for` |
//! | 7 ready, 1 starts again | - | 1 of 8 | yes |
//! | 1 ready, 7 start again | - | 7 of 8 | after half an hour |
//! | 6 ready, 2 never were | - | - | yes |

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::input::{ModelInput, Reading, SourceId};
use super::memory::Memory;
use super::plan::StepReason;
use super::policy::{ModelPolicy, PoolPolicy, ReplicasFrom};
use super::{current_replicas, lifecycle, replicas};
use crate::units::{Moment, Replicas};

/// From this share of fresh replicas on a pool does not shrink.
const MANY_FRESH: f64 = 0.25;
/// How long that may last beyond two start-ups.
const LONGEST_ROLLOUT: Duration = Duration::from_secs(1800);
/// Start-ups after which a replica is not coming any more.
const PATIENCE: u32 = 3;
/// The start-up that is assumed of pods that start while none was seen to arrive: weights of the largest models load within it.
const LONGEST_STARTUP: Duration = Duration::from_secs(600);
/// How long replicas may arrive one after the other before a pool may grow further.
const LONGEST_TRANSITION: Duration = Duration::from_secs(1800);
/// Measured start-ups of which the longest counts.
const REMEMBERED: usize = 5;

/// What is known of a pool's growth. Times are on the monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Since when replicas are awaited and none has arrived.
    pub awaited_since: Option<Duration>,
    /// Replicas that were asked for and are not there, by when they were asked for, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Asked>,
    /// Ready replicas in the last round.
    pub ready: Option<Replicas>,
    /// The last start-ups, oldest first.
    pub startups: Vec<Duration>,
    /// Since when many replicas are fresh.
    pub fresh_since: Option<Duration>,
    /// When replicas went away that nobody had asked to go, while some of them are still missing.
    pub lost_at: Option<Duration>,
    /// Replicas that were there in the last round: ready ones, and those that were known to start or to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounted: Option<Replicas>,
    /// Those of them that start; `None` where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starting: Option<Replicas>,
    /// Those of them that served, were not asked to go, and start again or end.
    #[serde(default)]
    pub restarting: Replicas,
    /// Whether it shows two generations.
    #[serde(default)]
    pub two_generations: bool,
    /// When a replica last arrived, while others are still awaited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arriving_since: Option<Duration>,
}

/// Replicas that were asked for in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// When, on the monotonic clock.
    pub at: Duration,
    /// How many of them are not there yet.
    pub replicas: Replicas,
}

impl Growth {
    /// The measured start-up; `None` before a replica was seen to arrive.
    pub fn startup(&self) -> Option<Duration> {
        self.startups.iter().copied().max()
    }

    /// Whether replicas are awaited for longer than they ever took; `None` while nobody knows how long they take.
    pub fn capacity_unavailable(&self, now: Moment) -> Option<bool> {
        let startup = self.startup().or_else(|| self.starting.map(|_| LONGEST_STARTUP))?;
        let patience = startup.saturating_mul(PATIENCE);
        Some(self.awaited_since.is_some_and(|since| now.monotonic.saturating_sub(since) > patience))
    }

    /// How many replicas of `planned` are not coming any more: those that are not ready although one was awaited for three start-ups. Where none was
    /// seen to arrive, the longest start-up is assumed.
    pub fn absent(&self, planned: Replicas, now: Moment) -> Replicas {
        let patience = self.startup().unwrap_or(LONGEST_STARTUP).saturating_mul(PATIENCE);
        let in_vain = self.awaited_since.is_some_and(|since| now.monotonic.saturating_sub(since) > patience);
        let ready = self.ready.filter(|_| in_vain).unwrap_or(planned);
        Replicas(planned.0.saturating_sub(ready.0))
    }

    /// Whether replicas were lost within the last `span`, and have not been replaced.
    pub fn is_short(&self, span: Duration, now: Moment) -> bool {
        self.lost_at.is_some_and(|at| now.monotonic.saturating_sub(at) <= span)
    }

    /// Replicas on their way, as long as they are believed to come; `None` where nobody says.
    pub fn coming(&self, now: Moment) -> Option<Replicas> {
        let starting = self.starting?;
        Some(if self.capacity_unavailable(now) == Some(true) { Replicas(0) } else { starting })
    }

    /// Whether replicas arrive one after the other: one came within the timeout, or within three start-ups, and others are awaited. It ends when
    /// they are there, and when none comes any more.
    pub fn is_moving(&self, timeout: Option<Duration>, now: Moment) -> bool {
        let usual = || self.startup().map_or(LONGEST_TRANSITION, |startup| startup.saturating_mul(PATIENCE).min(LONGEST_TRANSITION));
        let longest = timeout.unwrap_or_else(usual);
        self.arriving_since.is_some_and(|at| now.monotonic.saturating_sub(at) <= longest)
    }

    /// Why the pool must not shrink while it is being replaced, if so.
    pub fn rollout(&self, now: Moment) -> Option<StepReason> {
        let longest = LONGEST_ROLLOUT + self.startup().unwrap_or_default().saturating_mul(2);
        let goes_on = self.fresh_since.is_some_and(|since| now.monotonic.saturating_sub(since) <= longest);
        goes_on.then_some(if self.two_generations { StepReason::Rollout } else { StepReason::ManyFreshReplicas })
    }
}

/// Brings the pools' growth up to date, before anything is decided in this round.
pub(super) fn look(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) {
    memory.growth.retain(|pool, _| policy.pools.iter().any(|known| known.pool == *pool));
    for pool in &policy.pools {
        let ready = current_replicas(pool, memory, input);
        // A count of pods that was published before the first decision is nobody's wish: no clock starts at it.
        let wished = memory.pools.get(&pool.pool).filter(|known| known.planned.is_some() || !known.baseline);
        let planned = wished.and_then(|known| known.published.map(|published| published.replicas));
        let told = lifecycle(pool, input);
        // A router's count and an orchestrator's are two views of a fleet, and are never mixed.
        let counted_there = match pool.replicas_from {
            ReplicasFrom::Metric => false,
            ReplicasFrom::Observed => memory.workers(pool.role).is_none(),
            ReplicasFrom::Kubernetes | ReplicasFrom::Targets => true,
        };
        let beside = told.filter(|_| counted_there);
        let beside = beside.map(|told| Beside { starting: replicas(told.starting, pool), terminating: replicas(told.terminating, pool) });
        let growth = memory.growth.entry(pool.pool.clone()).or_default();
        growth.follow(ready, beside, planned, now);
        let again = growth.restarting.0.saturating_mul(pool.targets_per_replica.get());
        growth.two_generations = told.is_some_and(|told| told.generations > 1);
        let replaced = growth.two_generations || many_fresh(pool, policy.warm_up, input, again, now);
        growth.fresh_since = if replaced { growth.fresh_since.or(Some(now.monotonic)) } else { None };
    }
}

/// Replicas beside the ready ones.
#[derive(Clone, Copy, Debug)]
struct Beside {
    starting: Replicas,
    terminating: Replicas,
}

impl Growth {
    fn follow(&mut self, ready: Option<Replicas>, beside: Option<Beside>, planned: Option<Replicas>, now: Moment) {
        let Some(ready) = ready else { return };
        let before = self.ready;
        let arrived = before.is_some_and(|before| ready > before);
        let missing = planned.is_some_and(|planned| planned > ready);
        let accounted =
            beside.map_or(ready, |beside| Replicas(ready.0.saturating_add(beside.starting.0).saturating_add(beside.terminating.0)));
        let unaccounted = planned.is_some_and(|planned| planned > accounted);
        if unaccounted && self.accounted.or(before).is_some_and(|before| accounted < before) {
            self.lost_at = Some(now.monotonic);
        }
        self.lost_at = self.lost_at.filter(|_| unaccounted);
        self.restarting = match before {
            Some(before) if ready < before && missing => Replicas(self.restarting.0.saturating_add(before.0 - ready.0)),
            Some(before) => Replicas(self.restarting.0.saturating_sub(ready.0.saturating_sub(before.0))),
            None => Replicas(0),
        }
        .min(Replicas(accounted.0 - ready.0));
        (self.ready, self.accounted, self.starting) = (Some(ready), Some(accounted), beside.map(|beside| beside.starting));
        if let Some(since) = self.take_asked(before.map_or(0, |before| ready.0.saturating_sub(before.0))) {
            self.startups.push(now.monotonic.saturating_sub(since));
            if self.startups.len() > REMEMBERED {
                self.startups.remove(0);
            }
        }
        self.ask_for(planned.map_or(0, |planned| planned.0.saturating_sub(ready.0)), now);
        self.arriving_since = if arrived { Some(now.monotonic) } else { self.arriving_since }.filter(|_| missing);
        let awaited = self.awaited_since.filter(|_| !arrived).unwrap_or(now.monotonic);
        self.awaited_since = missing.then_some(awaited);
    }

    /// Takes so many replicas off the oldest askings: they have arrived. Says when the first of them was asked for, since of those that arrive
    /// together the longest start-up counts.
    fn take_asked(&mut self, mut arrived: u32) -> Option<Duration> {
        let first = self.asked.first().filter(|_| arrived > 0).map(|asked| asked.at);
        self.asked.retain_mut(|asked| {
            let taken = asked.replicas.0.min(arrived);
            (asked.replicas.0, arrived) = (asked.replicas.0 - taken, arrived - taken);
            asked.replicas.0 > 0
        });
        first
    }

    /// Brings the askings to so many missing replicas: what is new is asked for now, what is no longer wanted is taken off the newest.
    fn ask_for(&mut self, missing: u32, now: Moment) {
        let mut kept = 0;
        for asked in &mut self.asked {
            asked.replicas.0 = asked.replicas.0.min(missing - kept);
            kept += asked.replicas.0;
        }
        self.asked.retain(|asked| asked.replicas.0 > 0);
        if kept < missing {
            self.asked.push(Asked { at: now.monotonic, replicas: Replicas(missing - kept) });
        }
    }
}

/// Whether more than a quarter of the pool's own targets began within the warm-up, by their own word, or start `again`. With a single target this
/// would be said of every start.
fn many_fresh(pool: &PoolPolicy, warm_up: Duration, input: &ModelInput, again: u32, now: Moment) -> bool {
    let Some(source) = input.sources.iter().find(|source| source.source == SourceId::Pool(pool.pool.clone())) else { return false };
    let starts = source.targets.iter().filter_map(|target| match &target.reading {
        Reading::Sample(sample) => sample.process_start,
        Reading::Failed(_) => None,
    });
    let fresh = starts.filter(|start| now.wall.as_secs_f64() - start < warm_up.as_secs_f64()).count();
    let (fresh, all) = (fresh + again as usize, source.targets.len() + again as usize);
    all > 1 && fresh as f64 > MANY_FRESH * all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(seconds: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_800_000_000 + seconds) }
    }

    /// The start-ups in seconds after rounds of `(second, ready, planned)`.
    fn measured(rounds: &[(u64, u32, u32)]) -> (Vec<u64>, Growth) {
        let mut growth = Growth::default();
        for (at, ready, planned) in rounds {
            growth.follow(Some(Replicas(*ready)), None, Some(Replicas(*planned)), moment(*at));
        }
        (growth.startups.iter().map(Duration::as_secs).collect(), growth)
    }

    #[test]
    fn the_clock_of_each_replica_runs_from_the_wish_to_the_arrival() {
        let (startups, growth) = measured(&[(0, 4, 4), (5, 4, 6), (65, 4, 7), (105, 5, 7), (110, 6, 7), (165, 7, 7), (200, 7, 7)]);
        assert_eq!(startups, [100, 105, 100]);
        assert_eq!((growth.startup(), growth.awaited_since, growth.asked), (Some(Duration::from_secs(105)), None, vec![]));
    }

    #[test]
    fn replicas_that_arrive_one_after_the_other_do_not_shorten_the_start_up() {
        let mut rounds = vec![(0, 1, 1), (5, 1, 9)];
        rounds.extend((0..8).map(|nth| (105 + 5 * nth, 2 + nth as u32, 9)));
        let (startups, growth) = measured(&rounds);
        assert_eq!(startups, [115, 120, 125, 130, 135]);
        assert_eq!(growth.asked, []);
    }

    #[test]
    fn replicas_that_arrive_together_count_as_long_as_the_first_asked_for() {
        assert_eq!(measured(&[(0, 1, 1), (5, 1, 2), (35, 1, 3), (105, 3, 3)]).0, [100]);
    }

    #[test]
    fn a_wish_that_was_taken_back_is_awaited_from_its_renewal_on() {
        assert_eq!(measured(&[(0, 1, 2), (10, 1, 4), (20, 1, 2), (30, 1, 3), (100, 2, 3), (130, 3, 3)]).0, [100, 100]);
        assert_eq!(measured(&[(0, 1, 2), (50, 1, 1), (60, 1, 2), (90, 2, 2)]).0, [30]);
    }

    #[test]
    fn a_replica_that_is_lost_is_awaited_from_its_loss_on() {
        assert_eq!(measured(&[(0, 3, 3), (100, 2, 3), (160, 3, 3)]).0, [60]);
        assert_eq!(measured(&[(0, 3, 3), (100, 4, 3), (105, 4, 3)]).0, [0; 0], "nobody asked for the fourth");
    }

    #[test]
    fn what_is_awaited_for_three_start_ups_is_not_coming() {
        let mut growth = Growth { startups: vec![Duration::from_secs(100)], ..Growth::default() };
        growth.follow(Some(Replicas(2)), None, Some(Replicas(3)), moment(0));
        assert_eq!(growth.capacity_unavailable(moment(300)), Some(false));
        assert_eq!(growth.capacity_unavailable(moment(301)), Some(true));
        growth.follow(Some(Replicas(2)), None, Some(Replicas(2)), moment(310));
        assert_eq!(growth.capacity_unavailable(moment(700)), Some(false), "nobody waits any more");
        assert_eq!(Growth::default().capacity_unavailable(moment(0)), None);
    }

    #[test]
    fn what_is_not_coming_is_absent_also_where_nobody_knows_how_long_a_start_takes() {
        let mut growth = Growth::default();
        growth.follow(Some(Replicas(2)), None, Some(Replicas(5)), moment(0));
        let absent = |growth: &Growth, at| growth.absent(Replicas(5), moment(at)).0;
        assert_eq!((absent(&growth, 1800), absent(&growth, 1801)), (0, 3));
        growth.startups.push(Duration::from_secs(100));
        assert_eq!((absent(&growth, 300), absent(&growth, 301)), (0, 3));
        growth.follow(Some(Replicas(3)), None, Some(Replicas(5)), moment(310));
        assert_eq!(absent(&growth, 600), 0, "one has arrived, so the others are believed again");
        assert_eq!(Growth::default().absent(Replicas(5), moment(9999)), Replicas(0));
    }

    #[test]
    fn replicas_that_go_unasked_are_missed_until_they_are_back_or_given_up() {
        let mut growth = Growth::default();
        let missed = |growth: &Growth, at| growth.is_short(Duration::from_secs(600), moment(at));
        growth.follow(Some(Replicas(8)), None, Some(Replicas(8)), moment(0));
        growth.follow(Some(Replicas(7)), None, Some(Replicas(7)), moment(5));
        assert!(!missed(&growth, 5), "it was asked to go");
        growth.follow(Some(Replicas(1)), None, Some(Replicas(7)), moment(10));
        assert!(missed(&growth, 10) && missed(&growth, 610) && !missed(&growth, 611));
        growth.follow(Some(Replicas(7)), None, Some(Replicas(7)), moment(100));
        assert!(!missed(&growth, 100));
    }

    #[test]
    fn replicas_that_are_known_to_start_or_to_end_are_not_missing_and_those_that_served_are_fresh() {
        let mut growth = Growth::default();
        let mut follow = |at, ready, starting, terminating| {
            let beside = Beside { starting: Replicas(starting), terminating: Replicas(terminating) };
            growth.follow(Some(Replicas(ready)), Some(beside), Some(Replicas(8)), moment(at));
            (growth.lost_at.is_some(), growth.restarting.0)
        };
        assert_eq!(follow(0, 6, 2, 0), (false, 0), "two that never served");
        assert_eq!(follow(5, 8, 0, 0), (false, 0));
        assert_eq!(follow(10, 7, 0, 1), (false, 1), "one is evicted");
        assert_eq!(follow(15, 7, 1, 0), (false, 1), "and replaced");
        assert_eq!(follow(20, 7, 0, 0), (true, 0), "and the other one is gone");
        assert_eq!(follow(25, 8, 0, 0), (false, 0));
        assert_eq!(follow(30, 1, 7, 0), (false, 7));
    }

    #[test]
    fn pods_that_start_are_believed_for_three_start_ups_also_where_none_was_ever_measured() {
        let beside = Beside { starting: Replicas(1), terminating: Replicas(0) };
        let mut growth = Growth::default();
        growth.follow(Some(Replicas(2)), Some(beside), Some(Replicas(3)), moment(0));
        let told = |growth: &Growth, at| (growth.coming(moment(at)), growth.capacity_unavailable(moment(at)));
        assert_eq!(told(&growth, 1800), (Some(Replicas(1)), Some(false)));
        assert_eq!(told(&growth, 1801), (Some(Replicas(0)), Some(true)));
        growth.startups.push(Duration::from_secs(60));
        assert_eq!(told(&growth, 181), (Some(Replicas(0)), Some(true)));
    }

    #[test]
    fn a_pool_moves_while_replicas_arrive_and_others_are_awaited() {
        let mut growth = Growth { startups: vec![Duration::from_secs(60)], ..Growth::default() };
        for (at, ready, planned, moving) in [
            (0, 2, 4, false),
            (60, 3, 4, true),
            (120, 3, 4, true),
            (240, 3, 4, true),
            (241, 3, 4, false),
            (250, 4, 4, false),
            (255, 4, 5, false),
        ] {
            growth.follow(Some(Replicas(ready)), None, Some(Replicas(planned)), moment(at));
            assert_eq!(growth.is_moving(None, moment(at)), moving, "{at}");
        }
        growth.follow(Some(Replicas(3)), None, Some(Replicas(5)), moment(260));
        assert!(!growth.is_moving(None, moment(260)), "a replica that is lost is no arrival");
    }

    #[test]
    fn an_unknown_count_moves_nothing() {
        let mut growth = Growth::default();
        growth.follow(Some(Replicas(2)), None, Some(Replicas(3)), moment(0));
        let before = growth.clone();
        growth.follow(None, None, Some(Replicas(3)), moment(10));
        assert_eq!(growth, before);
    }

    #[test]
    fn a_rollout_ends_by_itself() {
        let growth = Growth { fresh_since: Some(Duration::from_secs(0)), startups: vec![Duration::from_secs(100)], ..Growth::default() };
        assert_eq!(growth.rollout(moment(2000)), Some(StepReason::ManyFreshReplicas));
        assert_eq!(growth.rollout(moment(2001)), None);
    }
}
