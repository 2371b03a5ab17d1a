//! Which decreases had to be taken back? A count that was not enough at a load is not tried again at that load.
//!
//! At the boundary between two counts, loads of the moment fall on either side for as long as one looks. Waiting before a decrease makes the swings
//! slower and does not end them. So a decrease to k is remembered with the load at which it was made. If more than k are asked for within the
//! hour, and it was not because more came, k is refuted for that load: it is tried again below nine tenths of it, or after six hours, when
//! lengths and caches may have become others.
//!
//! Load is what grows with the work: target sla takes requests a second, preset auto the replicas that they keep busy, which know lengths as well.
//!
//! | what happens | remembered |
//! |---|---|
//! | 24.5 requests/s: 2 to 1 | tried 1 at 24.5 |
//! | 20 minutes later the load asks for 2 | refuted 1 at 24.5, in doubt |
//! | the window after that brings 24.7 | no more came: 1 is refuted at 24.5 until it falls below 22 |
//! | (it brings 40 instead) | more came: nothing is refuted |

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Moment, Replicas};

/// A rise later than this after a decrease is news, and no answer to it.
const ANSWER: Duration = Duration::from_secs(3600);
/// How long a refuted count is not tried.
const REMEMBERED: Duration = Duration::from_secs(6 * 3600);
/// Load by which a rise is explained, over that of the decrease.
const MORE: f64 = 1.1;
/// Load below which a refuted count is tried again, over that at which it was refuted.
const LESS: f64 = 0.9;
/// Refuted counts that are kept.
const MOST: usize = 8;

/// The decreases of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reversals {
    tried: Option<Trial>,
    refuted: Vec<Trial>,
}

/// A count, and the load that it was to carry.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Trial {
    count: Replicas,
    #[serde(alias = "traffic")]
    load: f64,
    at: Duration,
    /// Whether it is not known yet if more came.
    in_doubt: bool,
}

impl Reversals {
    /// Notes a decision that moved the pool from `before` to `after` at this load, if that is known.
    pub(super) fn note(&mut self, before: Replicas, after: Replicas, load: Option<f64>, now: Moment) {
        if after < before {
            self.tried = load.map(|load| Trial { count: after, load, at: now.monotonic, in_doubt: true });
        } else if after > before
            && let Some(trial) = self.tried.take().filter(|trial| trial.count == before && since(trial.at, now) <= ANSWER)
        {
            self.refuted.push(Trial { at: now.monotonic, ..trial });
            self.refuted.drain(..self.refuted.len().saturating_sub(MOST));
        }
    }

    /// Notes a decision and judges it at once, where the load is that of the moment.
    pub(super) fn follow(&mut self, before: Replicas, after: Replicas, load: Option<f64>, now: Moment) {
        self.note(before, after, load, now);
        self.judge(load, Duration::ZERO, now);
    }

    /// Takes in the load of the last window, of length `window`: where one lies wholly after a rise, it says whether more came.
    pub(super) fn judge(&mut self, load: Option<f64>, window: Duration, now: Moment) {
        let Some(load) = load else { return };
        let explained = |trial: &Trial| trial.in_doubt && since(trial.at, now) >= 2 * window && load > MORE * trial.load;
        self.refuted.retain(|trial| since(trial.at, now) <= REMEMBERED && !explained(trial));
        self.refuted.iter_mut().filter(|trial| since(trial.at, now) >= 2 * window).for_each(|trial| trial.in_doubt = false);
    }

    /// The smallest count that was not refuted at this load, so far as counts were tried; 0 where none was refuted.
    pub(super) fn least(&self, load: Option<f64>) -> Replicas {
        let holds = |trial: &&Trial| load.is_none_or(|now| now >= LESS * trial.load);
        Replicas(self.refuted.iter().filter(holds).map(|trial| trial.count.0 + 1).max().unwrap_or(0))
    }
}

fn since(at: Duration, now: Moment) -> Duration {
    now.monotonic.saturating_sub(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(180);

    fn at(seconds: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(1_800_000_000 + seconds) }
    }

    /// Down to one at 24.5 requests/s, and up again after `later` seconds.
    fn reversed(later: u64) -> Reversals {
        let mut reversals = Reversals::default();
        reversals.note(Replicas(2), Replicas(1), Some(24.5), at(0));
        reversals.note(Replicas(1), Replicas(2), Some(24.0), at(later));
        reversals
    }

    #[test]
    fn a_count_that_was_not_enough_is_not_tried_again_at_that_traffic() {
        let mut reversals = reversed(1200);
        reversals.judge(Some(24.7), WINDOW, at(1560));
        assert!(reversals.least(Some(24.0)) == Replicas(2) && reversals.least(None) == Replicas(2));
        assert_eq!(reversals.least(Some(22.0)), Replicas(0), "a tenth less may fit");
        reversals.judge(Some(24.7), WINDOW, at(1200 + 6 * 3600 + 1));
        assert_eq!(reversals.least(Some(24.0)), Replicas(0), "the day after is another one");
    }

    #[test]
    fn a_rise_because_more_came_refutes_nothing() {
        let mut reversals = reversed(1200);
        reversals.judge(Some(40.0), WINDOW, at(1400));
        assert_eq!(reversals.least(Some(24.0)), Replicas(2), "not known yet: that window began before the rise");
        reversals.judge(Some(40.0), WINDOW, at(1560));
        assert_eq!(reversals.least(Some(24.0)), Replicas(0));
    }

    #[test]
    fn a_rise_long_after_or_from_another_count_is_no_answer() {
        assert_eq!(reversed(3601).least(Some(24.0)), Replicas(0));
        let mut reversals = Reversals::default();
        reversals.note(Replicas(3), Replicas(2), Some(24.5), at(0));
        reversals.note(Replicas(1), Replicas(2), Some(24.5), at(10));
        assert_eq!(reversals.refuted, []);
    }
}
