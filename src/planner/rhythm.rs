//! Does a need that falls come back in a rhythm, so that giving replicas back is not worth their start-ups? Preset auto's memory of one pool's swings.
//!
//! Load that is on for five minutes and off for five costs the same whether it is followed or not: what a pause saves, draining and starting take
//! again. But who follows it is late with each return. So where the need came back at least twice within half an hour, each time from a third of
//! the most or less, within ten minutes, and after pauses that are alike, the most is remembered for a quarter longer than such a pause.
//!
//! | need | returns | remembered for |
//! |---|---|---|
//! | 9 for 300 s, 1 for 300 s, again and again | 300 s, 300 s | 375 s |
//! | 9, 1 for 100 s, 9, 1 for 400 s, 9 | 100 s, 400 s: no rhythm | 0 |
//! | 9, 4, 9, 4, 9 | none: nearly half stays anyway | 0 |
//! | 7, 1 for 300 s, 5 for 300 s, 1 for 300 s, 5 | 300 s, 300 s: two of three make it back, since small counts are 7 or 5 by chance | 375 s |
//! | 9 by day, 2 by night | none: longer than ten minutes | 0 |
//!
//! What is remembered is held, and while it is held the need itself is still watched, so a rhythm that ends is forgotten after half an hour.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Moment, Replicas};

/// How far back the most is looked for, and for how long a return counts.
const REMEMBERED: Duration = Duration::from_secs(1800);
/// Returns from which on another one is expected.
const LEAST_RETURNS: usize = 2;
/// The longest pause that is not worth following.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Share of the most from which on it is back, and up to which it was away.
const HIGH: f64 = 2.0 / 3.0;
const LOW: f64 = 1.0 / 3.0;
/// What the longest of the pauses may be over the shortest, and what is remembered over it.
const ALIKE: f64 = 1.25;

/// How a need goes up and down. Times are on the monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rhythm {
    /// What was needed, and when: falling, since what was less than a later need is never the most again.
    needs: VecDeque<(Duration, Replicas)>,
    /// When it was near the most last.
    high_at: Option<Duration>,
    /// Whether it has been low since.
    is_low: bool,
    /// When it came back, and after how long.
    returns: Vec<(Duration, Duration)>,
}

impl Rhythm {
    /// Takes in what is needed now, and tells for how long the most is to be remembered because it is expected back; zero where it is not.
    pub fn note(&mut self, need: Replicas, now: Moment) -> Duration {
        let now = now.monotonic;
        let is_recent = |at: &Duration| now.saturating_sub(*at) <= REMEMBERED;
        self.needs.retain(|(at, known)| is_recent(at) && *known > need);
        self.needs.push_back((now, need));
        self.returns.retain(|(at, _)| is_recent(at));
        let most = self.needs.front().map_or(need, |(_, most)| *most).as_f64();
        if need.as_f64() >= HIGH * most {
            let pause = self.high_at.map(|at| now.saturating_sub(at)).filter(|pause| self.is_low && *pause <= LONGEST_PAUSE);
            self.returns.extend(pause.map(|pause| (now, pause)));
            (self.high_at, self.is_low) = (Some(now), false);
        } else if need.as_f64() <= LOW * most {
            self.is_low = true;
        }
        self.pause()
    }

    fn pause(&self) -> Duration {
        let pauses = || self.returns.iter().map(|(_, pause)| *pause);
        let (shortest, longest) = (pauses().min().unwrap_or_default(), pauses().max().unwrap_or_default());
        let padded = shortest.mul_f64(ALIKE);
        if self.returns.len() >= LEAST_RETURNS && longest <= padded { padded } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(seconds) }
    }

    /// What is remembered after needs of so many replicas for so many seconds, noted every five.
    fn after(needs: &[(u32, u64)]) -> (Rhythm, u64, Duration) {
        let (mut rhythm, mut now, mut told) = (Rhythm::default(), 0, Duration::ZERO);
        for &(need, seconds) in needs {
            for _ in 0..seconds / 5 {
                told = rhythm.note(Replicas(need), at(now));
                now += 5;
            }
        }
        (rhythm, now, told)
    }

    #[test]
    fn the_table_is_what_the_code_says() {
        let (_, _, told) = after(&[(9, 300), (1, 300), (9, 300), (1, 300), (9, 5)]);
        // Five seconds pass between the last of a high and the first of a low.
        assert_eq!(told, Duration::from_secs(305).mul_f64(ALIKE));
        assert_eq!(after(&[(9, 300), (1, 100), (9, 300), (1, 400), (9, 5)]).2, Duration::ZERO);
        assert_eq!(after(&[(9, 300), (4, 300), (9, 300), (4, 300), (9, 5)]).2, Duration::ZERO);
        assert_eq!(after(&[(7, 300), (1, 300), (5, 300), (1, 300), (5, 5)]).2, Duration::from_secs(305).mul_f64(ALIKE));
        assert_eq!(after(&[(9, 3600), (2, 3600), (9, 3600), (2, 3600), (9, 5)]).2, Duration::ZERO);
    }

    #[test]
    fn one_return_is_no_rhythm() {
        assert_eq!(after(&[(9, 300), (1, 300), (9, 300)]).2, Duration::ZERO);
    }

    #[test]
    fn a_rhythm_that_ends_is_forgotten_after_half_an_hour() {
        let (mut rhythm, end, told) = after(&[(9, 300), (1, 300), (9, 300), (1, 300), (9, 5), (1, 1200)]);
        assert!(told > Duration::ZERO);
        assert_eq!(rhythm.note(Replicas(1), at(end + 600)), Duration::ZERO);
    }

    #[test]
    fn what_is_kept_is_bounded_by_the_counts_and_the_time() {
        let needs: Vec<(u32, u64)> = (0..20_000).map(|index| (1 + index % 9, 5)).collect();
        let (rhythm, ..) = after(&needs);
        assert!(rhythm.needs.len() <= 9, "{}", rhythm.needs.len());
        assert!(rhythm.returns.len() <= 1800 / 10, "{}", rhythm.returns.len());
    }
}
