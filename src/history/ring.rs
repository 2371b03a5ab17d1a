//! How does an hours-long series stay small? Runs of equal values, and when they become too many, runs of one moment's length joined.

use std::sync::Arc;

/// Runs that are kept for each `STRETCH` of time at most.
pub const MOST_RUNS: usize = 512;
/// Seconds.
const STRETCH: u32 = 6 * 3600;
/// However long the time, no more than this many times [`MOST_RUNS`].
const MOST_STRETCHES: u32 = 4;

/// A value and how long it held, in whole seconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<T> {
    /// When it was first seen.
    pub from: u32,
    /// When another one took its place, or when it was last seen.
    pub until: u32,
    /// What it was.
    pub value: T,
}

/// A value that can stand for two of the same moment.
pub trait Joined: Copy + PartialEq {
    /// Of this one and a later one.
    #[must_use]
    fn join(self, later: Self) -> Self;
}

/// The runs of the last hours, oldest first. Copies share what is closed.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    closed: Arc<[Run<T>]>,
    open: Option<Run<T>>,
    /// Seconds of a moment: values of one moment are joined. Doubled when there are too many runs, halved when there are few.
    moment: u32,
    span: u32,
}

impl<T: Joined> Ring<T> {
    /// An empty one of so many seconds.
    pub fn new(span: u32) -> Self {
        Self { closed: Arc::new([]), open: None, moment: 1, span }
    }

    /// Keeps so many seconds from now on.
    pub fn set_span(&mut self, span: u32) {
        self.span = span;
    }

    /// All runs. Where one ends before the next begins, nothing is known in between.
    pub fn runs(&self) -> impl Iterator<Item = Run<T>> + '_ {
        self.closed.iter().copied().chain(self.open)
    }

    /// Notes that `value` holds at `at`. After a silence of more than `patience` seconds nobody knows what was in between.
    pub fn note(&mut self, at: u32, value: T, patience: u32) {
        let Some(open) = &mut self.open else {
            self.open = Some(Run { from: at, until: at, value });
            return;
        };
        let silent = at.saturating_sub(open.until) > patience;
        let same_moment = open.from / self.moment == at / self.moment;
        if !silent && (open.value == value || same_moment) {
            open.until = at;
            open.value = if open.value == value { value } else { open.value.join(value) };
            return;
        }
        let until = if silent { open.until } else { at };
        let ended = Run { until, ..*open };
        self.open = Some(Run { from: at, until: at, value });
        self.close(ended, at);
    }

    fn close(&mut self, ended: Run<T>, now: u32) {
        let oldest = now.saturating_sub(self.span);
        let mut runs: Vec<Run<T>> = self.closed.iter().copied().filter(|run| run.until >= oldest).chain([ended]).collect();
        // One more is open.
        let most = self.most() - 1;
        if runs.len() < most / 4 && self.moment > 1 {
            self.moment /= 2;
        }
        while runs.len() > most {
            self.moment = self.moment.saturating_mul(2);
            runs = self.thinned(&runs);
        }
        self.closed = runs.into();
    }

    fn thinned(&self, runs: &[Run<T>]) -> Vec<Run<T>> {
        let of_one_moment = runs.chunk_by(|one, other| one.from / self.moment == other.from / self.moment);
        let join = |one: Run<T>, later: &Run<T>| Run { until: later.until, value: one.value.join(later.value), ..one };
        of_one_moment.filter_map(|group| Some(group[1..].iter().fold(*group.first()?, join))).collect()
    }

    fn most(&self) -> usize {
        let stretches = self.span.div_ceil(STRETCH).clamp(1, MOST_STRETCHES);
        MOST_RUNS * stretches as usize
    }

    /// Bytes of memory that the runs take.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Peak(u32);

    impl Joined for Peak {
        fn join(self, later: Self) -> Self {
            Self(self.0.max(later.0))
        }
    }

    fn runs(ring: &Ring<Peak>) -> Vec<(u32, u32, u32)> {
        ring.runs().map(|run| (run.from, run.until, run.value.0)).collect()
    }

    #[test]
    fn equal_values_are_one_run_and_a_change_begins_the_next() {
        let mut ring = Ring::new(STRETCH);
        for (at, value) in [(10, 1), (15, 1), (20, 1), (25, 2), (30, 2)] {
            ring.note(at, Peak(value), 30);
        }
        assert_eq!(runs(&ring), [(10, 25, 1), (25, 30, 2)]);
    }

    #[test]
    fn a_silence_is_a_gap_also_between_equal_values() {
        let mut ring = Ring::new(STRETCH);
        for at in [10, 15, 100, 105] {
            ring.note(at, Peak(1), 30);
        }
        assert_eq!(runs(&ring), [(10, 15, 1), (100, 105, 1)]);
    }

    #[test]
    fn what_is_older_than_the_span_is_forgotten() {
        let mut ring = Ring::new(100);
        for at in 0..50 {
            ring.note(at * 10, Peak(at), 30);
        }
        assert!(runs(&ring).iter().all(|&(_, until, _)| until >= 390), "{:?}", runs(&ring));
        assert_eq!(runs(&ring).last(), Some(&(490, 490, 49)));
    }

    #[test]
    fn a_value_that_changes_every_second_stays_within_the_bound_and_keeps_its_peaks() {
        let mut ring = Ring::new(STRETCH);
        for at in 0..STRETCH {
            let value = if at == 7777 { 1_000_000 } else { at % 2 };
            ring.note(at, Peak(value), 30);
            assert!(ring.runs().count() <= MOST_RUNS, "{at}");
        }
        let all = runs(&ring);
        assert!(all.len() > MOST_RUNS / 2, "no more is lost than has to be: {}", all.len());
        assert_eq!((all[0].0, all.last().unwrap().1), (0, STRETCH - 1), "the whole time is there");
        assert!(all.windows(2).all(|pair| pair[0].1 == pair[1].0), "no gap appears");
        assert!(all.iter().any(|&(from, until, value)| value == 1_000_000 && from <= 7777 && until >= 7777));
        assert!(all.iter().all(|(from, until, _)| until - from <= 64));
    }

    #[test]
    fn gaps_alone_do_not_break_the_bound() {
        let mut ring = Ring::new(STRETCH);
        for at in (0..STRETCH).step_by(7) {
            ring.note(at, Peak(1), 5);
        }
        assert!(ring.runs().count() <= MOST_RUNS);
    }

    #[test]
    fn after_a_restless_time_the_resolution_comes_back() {
        let mut ring = Ring::new(STRETCH);
        (0..STRETCH).for_each(|at| ring.note(at, Peak(at), 30));
        let restless = ring.moment;
        (STRETCH..4 * STRETCH).for_each(|at| ring.note(at, Peak(at / 300), 30));
        assert!(restless > 16 && ring.moment == 1, "{restless} {}", ring.moment);
    }
}
