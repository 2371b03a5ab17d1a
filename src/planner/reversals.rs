//! Which decreases had to be taken back? A count that was not enough at a load is not tried again at that load.
//!
//! At the boundary between two counts, loads of the moment fall on either side for as long as one looks. Waiting before a decrease makes the swings
//! slower and does not end them. So a decrease to k is remembered with the traffic at which it was made. If the load asks for more at k within the
//! hour, and it was not because more came, k is refuted for that traffic: it is tried again below nine tenths of it, or after six hours, when
//! lengths and caches may have become others.
//!
//! | what happens | remembered |
//! |---|---|
//! | 24.5 requests/s: 2 to 1 | tried 1 at 24.5 |
//! | 20 minutes later the load asks for 2 | refuted 1 at 24.5, in doubt |
//! | the window after that brings 24.7 | no more came: 1 is refuted at 24.5 until it falls below 22 |
//! | (it brings 40 instead) | more came: nothing is refuted |

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Moment, Replicas, RequestsPerSecond};

/// A rise later than this after a decrease is news, and no answer to it.
const ANSWER: Duration = Duration::from_secs(3600);
/// How long a refuted count is not tried.
const REMEMBERED: Duration = Duration::from_secs(6 * 3600);
/// Traffic by which a rise is explained, over that of the decrease.
const MORE: f64 = 1.1;
/// Traffic below which a refuted count is tried again, over that at which it was refuted.
const LESS: f64 = 0.9;
/// Refuted counts that are kept.
const MOST: usize = 8;

/// The decreases of one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reversals {
    tried: Option<Trial>,
    refuted: Vec<Trial>,
}

/// A count, and the traffic that it was to carry.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Trial {
    count: Replicas,
    traffic: RequestsPerSecond,
    at: Duration,
    /// Whether it is not known yet if more came.
    in_doubt: bool,
}

impl Reversals {
    /// Notes a decision that moved the pool from `before` to `after` for its load, at the traffic of the last window.
    pub(super) fn note(&mut self, before: Replicas, after: Replicas, traffic: Option<RequestsPerSecond>, now: Moment) {
        if after < before {
            self.tried = traffic.map(|traffic| Trial { count: after, traffic, at: now.monotonic, in_doubt: true });
        } else if after > before
            && let Some(trial) = self.tried.take().filter(|trial| trial.count == before && since(trial.at, now) <= ANSWER)
        {
            self.refuted.push(Trial { at: now.monotonic, ..trial });
            self.refuted.drain(..self.refuted.len().saturating_sub(MOST));
        }
    }

    /// Takes in the traffic of the last window, of length `window`: where one lies wholly after a rise, it says whether more came.
    pub(super) fn judge(&mut self, traffic: Option<RequestsPerSecond>, window: Duration, now: Moment) {
        let Some(traffic) = traffic else { return };
        let explained = |trial: &Trial| trial.in_doubt && since(trial.at, now) >= 2 * window && traffic.get() > MORE * trial.traffic.get();
        self.refuted.retain(|trial| since(trial.at, now) <= REMEMBERED && !explained(trial));
        self.refuted.iter_mut().filter(|trial| since(trial.at, now) >= 2 * window).for_each(|trial| trial.in_doubt = false);
    }

    /// Whether a decrease to `count` was refuted at this traffic.
    pub(super) fn refute(&self, count: Replicas, traffic: Option<RequestsPerSecond>) -> bool {
        let holds = |trial: &Trial| trial.count >= count && traffic.is_none_or(|now| now.get() >= LESS * trial.traffic.get());
        self.refuted.iter().any(holds)
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

    fn rate(rate: f64) -> Option<RequestsPerSecond> {
        Some(RequestsPerSecond(rate))
    }

    /// Down to one at 24.5 requests/s, and up again after `later` seconds.
    fn reversed(later: u64) -> Reversals {
        let mut reversals = Reversals::default();
        reversals.note(Replicas(2), Replicas(1), rate(24.5), at(0));
        reversals.note(Replicas(1), Replicas(2), rate(24.0), at(later));
        reversals
    }

    #[test]
    fn a_count_that_was_not_enough_is_not_tried_again_at_that_traffic() {
        let mut reversals = reversed(1200);
        reversals.judge(rate(24.7), WINDOW, at(1560));
        assert!(reversals.refute(Replicas(1), rate(24.0)) && reversals.refute(Replicas(1), None));
        assert!(!reversals.refute(Replicas(1), rate(22.0)), "a tenth less may fit");
        assert!(!reversals.refute(Replicas(2), rate(24.0)), "two were enough");
        reversals.judge(rate(24.7), WINDOW, at(1200 + 6 * 3600 + 1));
        assert!(!reversals.refute(Replicas(1), rate(24.0)), "the day after is another one");
    }

    #[test]
    fn a_rise_because_more_came_refutes_nothing() {
        let mut reversals = reversed(1200);
        reversals.judge(rate(40.0), WINDOW, at(1400));
        assert!(reversals.refute(Replicas(1), rate(24.0)), "not known yet: that window began before the rise");
        reversals.judge(rate(40.0), WINDOW, at(1560));
        assert!(!reversals.refute(Replicas(1), rate(24.0)));
    }

    #[test]
    fn a_rise_long_after_or_from_another_count_is_no_answer() {
        assert!(!reversed(3601).refute(Replicas(1), rate(24.0)));
        let mut reversals = Reversals::default();
        reversals.note(Replicas(3), Replicas(2), rate(24.5), at(0));
        reversals.note(Replicas(1), Replicas(2), rate(24.5), at(10));
        assert_eq!(reversals.refuted, []);
    }
}
