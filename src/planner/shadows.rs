//! What would simpler rules have asked for, and how far was each from what was needed in the end? Preset auto's shadow proposers, which decide nothing.
//!
//! | proposer | asks for |
//! |---|---|
//! | `auto` | what is decided |
//! | `mean_capacity` | the traffic of the moment over what one replica serves with its objective met on average, rounded up |
//! | `mean_latency` | the smallest count whose mean latencies meet the objectives |
//!
//! A count is asked for so that it can serve after a start-up. Then it is held against what the traffic that really came needs:
//!
//! ```text
//! error = sum |asked - needed| / sum needed        short = sum max(0, needed - asked) / sum needed
//! ```
//!
//! with sums that forget half in an hour. `short` is what requests pay for, the rest of `error` what the bill pays for: a rule that is never short and
//! far off is as good as a constant count.
//!
//! | needed | `auto` asked | others asked | |
//! |---|---|---|---|
//! | 10, 10, 10 | 11, 11, 11 | 9, 9, 9 | error 0.1 both; short 0 and 0.1 |

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::needed::{Demand, MOST, smallest};
use super::plan::Proposer;
use crate::units::{Moment, Ratio, Replicas};

/// The time in which a score forgets half, seconds.
const HALF_LIFE: f64 = 3600.0;
/// Wishes that are remembered at most: a start-up of an hour in rounds of 5 s.
const MOST_REMEMBERED: usize = 720;

/// Who proposes.
const PROPOSERS: [Proposer; 3] = [Proposer::MeanCapacity, Proposer::MeanLatency, Proposer::Auto];

/// A count by each proposer.
type Asked = BTreeMap<Proposer, Replicas>;

/// What is remembered of one pool's proposers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shadows {
    /// When it can serve, on the monotonic clock, and what was asked for; oldest first.
    open: VecDeque<(Duration, Open)>,
    scores: BTreeMap<Proposer, Sums>,
    /// When they were brought up to date.
    at: Option<Duration>,
}

/// What was asked for once, of the proposers of this preset. Plain numbers, since memories hold hundreds of them and are copied in every round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Asked", into = "Asked")]
struct Open([Option<Replicas>; PROPOSERS.len()]);

impl From<Asked> for Open {
    fn from(asked: Asked) -> Self {
        Self::of(&asked)
    }
}

impl From<Open> for Asked {
    fn from(open: Open) -> Self {
        open.counts().collect()
    }
}

impl Open {
    fn of(asked: &Asked) -> Self {
        Self(PROPOSERS.map(|proposer| asked.get(&proposer).copied()))
    }

    fn counts(self) -> impl Iterator<Item = (Proposer, Replicas)> {
        PROPOSERS.into_iter().zip(self.0).filter_map(|(proposer, count)| Some((proposer, count?)))
    }
}

/// Of one proposer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    off: f64,
    short: f64,
    needed: f64,
}

/// How far a proposer was from what was needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Mean distance over what was needed.
    pub error: Ratio,
    /// What was lacking, likewise.
    pub short: Ratio,
}

/// What the simpler rules ask for at `rate` requests a second.
pub fn simpler(demand: &Demand<'_>, rate: f64) -> Asked {
    // `as` saturates.
    let carried = (rate / demand.capacity()).ceil();
    let capacity = if carried < f64::from(MOST) { Replicas(carried as u32) } else { Replicas(MOST) };
    let meets = |count: u32| {
        let seen = demand.latencies(Replicas(count), rate);
        let within = |latency: Option<f64>, objective: f64| latency.is_some_and(|latency| latency <= objective);
        demand.first_tokens_reachable().is_none_or(|_| within(seen.ttft_seconds.map(|ttft| ttft.get()), demand.ttft))
            && demand.spacing_reachable().is_none_or(|_| within(seen.itl_seconds.map(|itl| itl.get()), demand.itl))
    };
    let latency = match (rate > 0.0, smallest(capacity.0.saturating_sub(1), meets)) {
        (false, _) => Replicas(0),
        // No count meets the objective.
        (true, MOST) => capacity,
        (true, count) => Replicas(count),
    };
    BTreeMap::from([(Proposer::MeanCapacity, capacity), (Proposer::MeanLatency, latency)])
}

impl Shadows {
    /// Scores what can serve by now against what is needed now, and notes what is asked for, to serve after `startup`.
    pub fn note(&mut self, asked: &Asked, needed: Replicas, startup: Duration, now: Moment) {
        let elapsed = self.at.replace(now.monotonic).map_or(0.0, |at| now.monotonic.saturating_sub(at).as_secs_f64());
        let keep = 0.5_f64.powf(elapsed / HALF_LIFE);
        for sums in self.scores.values_mut() {
            *sums = Sums { off: sums.off * keep, short: sums.short * keep, needed: sums.needed * keep };
        }
        // Of several that are due the last one stands: it replaced the others before they could serve.
        let due = self.open.iter().take_while(|(at, _)| *at <= now.monotonic).count();
        if let Some((_, stands)) = self.open.drain(..due).next_back() {
            for (proposer, count) in stands.counts() {
                let sums = self.scores.entry(proposer).or_default();
                sums.off += (count.as_f64() - needed.as_f64()).abs();
                sums.short += (needed.as_f64() - count.as_f64()).max(0.0);
                sums.needed += needed.as_f64();
            }
        }
        // A start-up that turns out shorter does not overtake what was asked for before.
        let at = now.monotonic.saturating_add(startup).max(self.open.back().map_or(Duration::ZERO, |(at, _)| *at));
        self.open.push_back((at, Open::of(asked)));
        self.open.drain(..self.open.len().saturating_sub(MOST_REMEMBERED));
    }

    /// The scores so far; empty before the first start-up is over, and where nothing was needed.
    pub fn scores(&self) -> BTreeMap<Proposer, Score> {
        let known = self.scores.iter().filter(|(_, sums)| sums.needed > 0.0);
        let score = |sums: &Sums| Score { error: Ratio(sums.off / sums.needed), short: Ratio(sums.short / sums.needed) };
        known.map(|(proposer, sums)| (*proposer, score(sums))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_795_953_600 + seconds) }
    }

    fn asked(auto: u32, other: u32) -> Asked {
        BTreeMap::from([(Proposer::Auto, Replicas(auto)), (Proposer::MeanCapacity, Replicas(other))])
    }

    fn rounded(scores: &BTreeMap<Proposer, Score>) -> Vec<(Proposer, f64, f64)> {
        let percent = |ratio: Ratio| (ratio.get() * 1000.0).round() / 1000.0;
        scores.iter().map(|(proposer, score)| (*proposer, percent(score.error), percent(score.short))).collect()
    }

    #[test]
    fn the_table_of_the_documentation() {
        let mut shadows = Shadows::default();
        for round in 0..3 {
            shadows.note(&asked(11, 9), Replicas(10), Duration::from_secs(100), at(round * 5));
        }
        assert!(shadows.scores().is_empty(), "nothing that was asked for could serve yet");
        for round in 0..3 {
            shadows.note(&asked(50, 50), Replicas(10), Duration::from_secs(100), at(100 + round * 5));
        }
        assert_eq!(rounded(&shadows.scores()), [(Proposer::MeanCapacity, 0.1, 0.1), (Proposer::Auto, 0.1, 0.0)]);
    }

    #[test]
    fn what_was_asked_for_is_held_against_what_is_needed_when_it_can_serve() {
        let mut shadows = Shadows::default();
        shadows.note(&asked(4, 8), Replicas(4), Duration::from_secs(60), at(0));
        shadows.note(&asked(8, 8), Replicas(8), Duration::from_secs(60), at(60));
        // The load doubled within the start-up: who asked for today's need is short by half.
        assert_eq!(rounded(&shadows.scores()), [(Proposer::MeanCapacity, 0.0, 0.0), (Proposer::Auto, 0.5, 0.5)]);
    }

    #[test]
    fn a_pause_scores_only_what_stood_and_half_is_forgotten_in_an_hour() {
        let mut shadows = Shadows::default();
        for round in 0..10 {
            shadows.note(&asked(20, 10), Replicas(10), Duration::from_secs(50), at(round * 5));
        }
        shadows.note(&asked(10, 10), Replicas(10), Duration::from_secs(50), at(1000));
        assert_eq!(shadows.scores[&Proposer::Auto], Sums { off: 10.0, short: 0.0, needed: 10.0 });
        shadows.note(&asked(10, 10), Replicas(10), Duration::from_secs(50), at(4600));
        assert_eq!(shadows.scores[&Proposer::Auto], Sums { off: 5.0, short: 0.0, needed: 15.0 });
    }

    #[test]
    fn an_idle_pool_has_no_score_and_memory_is_bounded() {
        let mut shadows = Shadows::default();
        for round in 0..2000 {
            shadows.note(&asked(0, 0), Replicas(0), Duration::from_secs(7200), at(round * 5));
        }
        assert!(shadows.scores().is_empty());
        assert_eq!(shadows.open.len(), MOST_REMEMBERED);
    }
}
