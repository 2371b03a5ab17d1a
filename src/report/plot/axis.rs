//! Where on an axis does a value lie, and which values are labelled? Scales that several plots share, so that they can be compared.

use crate::report::html::brief;
use crate::units::{Replicas, RequestsPerSecond, Seconds, Tokens, TokensPerSecond};

/// Intervals between labels of the vertical axes at most.
const MOST_ROWS: f64 = 4.0;
/// Spans of time that people count in, seconds.
const SPANS: [f64; 20] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 14_400.0, 21_600.0, 43_200.0,
    86_400.0, 172_800.0,
];
/// From this many labels on, a logarithmic axis labels whole decades only.
const CROWDED: usize = 6;

/// A scale from one end of a plot to the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    scale: Scale,
    from: f64,
    to: f64,
    ticks: Vec<Tick>,
}

/// A labelled value.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// In the unit of the axis.
    pub value: f64,
    /// With its unit, where it needs one.
    pub label: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
}

impl Axis {
    /// Time since the start, in seconds, with labels for at most so many intervals.
    pub fn elapsed(length: Seconds, intervals: f64) -> Self {
        let to = if length.is_positive() { length.get() } else { 1.0 };
        let days = to / intervals / 86_400.0;
        let step = SPANS.into_iter().find(|span| to / span <= intervals).unwrap_or(days.ceil() * 86_400.0);
        let label = |at: f64| match step {
            step if step < 60.0 => format!("{at:.0} s"),
            _ if to < 2.0 * 3600.0 => format!("{:.0} min", at / 60.0),
            step if step < 86_400.0 => format!("{:.0}:{:02.0}", (at / 3600.0).floor(), at % 3600.0 / 60.0),
            _ => format!("{:.0} d", at / 86_400.0),
        };
        Self { scale: Scale::Linear, from: 0.0, to, ticks: linear(to, step, label) }
    }

    /// The time of day (UTC) between two moments since the Unix epoch, with labels for at most so many intervals.
    pub fn time_of_day(from: Seconds, to: Seconds, intervals: f64) -> Self {
        let (from, to) = (from.get(), to.get().max(from.get() + 1.0));
        let step = SPANS.into_iter().find(|span| (to - from) / span <= intervals).unwrap_or(172_800.0);
        let first = (from / step).ceil();
        // `as` saturates; there are at most some ten intervals.
        let count = (to / step - first).max(0.0) as u32;
        let moments = (0..=count).map(|at| (first + f64::from(at)) * step).filter(|at| *at <= to);
        let label = |at: f64| if step < 60.0 { time_of_day(Seconds(at)) } else { time_of_day(Seconds(at))[..5].to_owned() };
        Self { scale: Scale::Linear, from, to, ticks: moments.map(|value| Tick { value, label: label(value) }).collect() }
    }

    /// Numbers of replicas, from 0.
    pub fn counts(most: Replicas) -> Self {
        Self::from_zero(most.as_f64(), 1.0)
    }

    /// Requests a second, from 0.
    pub fn rates(most: RequestsPerSecond) -> Self {
        Self::from_zero(most.get(), f64::MIN_POSITIVE)
    }

    /// Numbers of tokens, from 0.
    pub fn tokens(most: Tokens) -> Self {
        Self::from_zero(most.get(), f64::MIN_POSITIVE)
    }

    /// Tokens a second, from 0.
    pub fn token_rates(most: TokensPerSecond) -> Self {
        Self::from_zero(most.get(), f64::MIN_POSITIVE)
    }

    /// Shares in percent, from 0 to 1.
    pub fn shares() -> Self {
        Self { scale: Scale::Linear, from: 0.0, to: 1.0, ticks: linear(1.0, 0.2, |share| format!("{:.0} %", 100.0 * share)) }
    }

    /// Latencies from 0, where their growth is to be seen.
    pub fn spans(most: Seconds) -> Self {
        let axis = Self::from_zero(most.get(), f64::MIN_POSITIVE);
        let ticks = axis.ticks.iter().map(|tick| Tick { value: tick.value, label: latency(Seconds(tick.value)) }).collect();
        Self { ticks, ..axis }
    }

    /// Latencies in seconds, logarithmic: in an overload they reach a hundred times their objective, and both are to be read.
    pub fn latencies(values: impl Iterator<Item = Seconds>) -> Self {
        let ends = values.filter(|value| value.is_positive()).fold(None, |ends: Option<(f64, f64)>, value| {
            let (low, high) = ends.unwrap_or((value.get(), value.get()));
            Some((low.min(value.get()), high.max(value.get())))
        });
        let (low, high) = ends.unwrap_or((0.1, 1.0));
        // Above the highest value is room for its label, also where it is round.
        let (from, to) = (round_down(low), round_up(high * 1.1));
        let mut ticks: Vec<f64> = round_numbers(from, to).collect();
        if ticks.len() > CROWDED {
            ticks.retain(|value| (value.log10() - value.log10().round()).abs() < 1e-6);
        }
        let ticks = ticks.into_iter().map(|value| Tick { value, label: latency(Seconds(value)) }).collect();
        Self { scale: Scale::Logarithmic, from, to, ticks }
    }

    fn from_zero(most: f64, least_step: f64) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let step = round_up(most / MOST_ROWS).max(least_step);
        let to = (most / step).ceil() * step;
        Self { scale: Scale::Linear, from: 0.0, to, ticks: linear(to, step, brief) }
    }

    /// Of the way from one end to the other, 0 to 1; values beyond an end lie on it. `None` of what is not finite.
    pub fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Logarithmic => (value.max(self.from) / self.from).log10() / (self.to / self.from).log10(),
        };
        (value.is_finite() && share.is_finite()).then(|| share.clamp(0.0, 1.0))
    }

    /// The labelled values, upwards.
    pub fn ticks(&self) -> &[Tick] {
        &self.ticks
    }
}

/// A latency as people say it: milliseconds below a second.
pub fn latency(value: Seconds) -> String {
    if value.get() < 0.9995 { format!("{} ms", brief(1000.0 * value.get())) } else { format!("{} s", brief(value.get())) }
}

/// The time of day (UTC) of a moment since the Unix epoch: hours, minutes and seconds, two digits each.
pub fn time_of_day(at: Seconds) -> String {
    // `as` saturates and makes 0 of what is no number.
    let seconds = at.get().round() as u64 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A time since the start: hours, minutes and seconds.
pub fn clock(at: Seconds) -> String {
    // `as` saturates and makes 0 of what is no number.
    let seconds = at.get().round() as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn linear(to: f64, step: f64, label: impl Fn(f64) -> String) -> Vec<Tick> {
    // `as` saturates; there are at most some ten intervals.
    let count = (to / step + 1e-9) as u32;
    (0..=count).map(|at| f64::from(at) * step).map(|value| Tick { value, label: label(value) }).collect()
}

/// 1, 2 or 5 times a power of ten.
fn round_numbers(from: f64, to: f64) -> impl Iterator<Item = f64> {
    // Powers of finite numbers above zero are far inside i32.
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let numbers = decades.flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10_f64.powi(power)));
    numbers.filter(move |number| (from * (1.0 - 1e-9)..=to * (1.0 + 1e-9)).contains(number))
}

fn round_up(value: f64) -> f64 {
    round_numbers(value, value * 10.0).next().unwrap_or(value)
}

fn round_down(value: f64) -> f64 {
    round_numbers(value / 10.0, value).last().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks().iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn times_are_labelled_in_the_unit_that_people_use() {
        for (length, expected) in [
            (45.0, vec!["0 s", "10 s", "20 s", "30 s", "40 s"]),
            (2400.0, vec!["0 min", "10 min", "20 min", "30 min", "40 min"]),
            (9000.0, vec!["0:00", "0:30", "1:00", "1:30", "2:00", "2:30"]),
            (604_800.0, vec!["0 d", "2 d", "4 d", "6 d"]),
        ] {
            assert_eq!(labels(&Axis::elapsed(Seconds(length), 5.0)), expected);
        }
        assert!(labels(&Axis::elapsed(Seconds(3e7), 5.0)).len() <= 7);
    }

    #[test]
    fn times_of_day_are_labelled_at_round_moments_inside_the_axis() {
        let day = 19_675.0 * 86_400.0;
        let labelled = |from: f64, to: f64| {
            let axis = Axis::time_of_day(Seconds(day + from), Seconds(day + to), 5.0);
            assert!(axis.ticks().iter().all(|tick| axis.place(tick.value).is_some_and(|place| (0.0..=1.0).contains(&place))));
            labels(&axis).join(" ")
        };
        assert_eq!(labelled(3.0 * 3600.0 + 100.0, 9.0 * 3600.0 + 100.0), "04:00 06:00 08:00");
        assert_eq!(labelled(82_800.0, 90_000.0), "23:00 23:30 00:00 00:30 01:00");
        assert_eq!(labelled(5.0, 65.0), "00:00:15 00:00:30 00:00:45 00:01:00");
        assert_eq!(labelled(61.0, 61.0), "00:01:01 00:01:02");
    }

    #[test]
    fn counts_are_whole_and_the_largest_fits() {
        assert_eq!(labels(&Axis::counts(Replicas(3))), ["0", "1", "2", "3"]);
        assert_eq!(labels(&Axis::counts(Replicas(17))), ["0", "5", "10", "15", "20"]);
        assert_eq!(labels(&Axis::counts(Replicas(0))), ["0", "1"]);
    }

    #[test]
    fn latencies_far_apart_get_decades_and_near_ones_get_steps() {
        let axis = |values: &[f64]| Axis::latencies(values.iter().map(|&value| Seconds(value)));
        assert_eq!(labels(&axis(&[0.012, 0.05])), ["10 ms", "20 ms", "50 ms", "100 ms"]);
        assert_eq!(labels(&axis(&[0.12, 40.0, f64::NAN, 0.0])), ["100 ms", "1 s", "10 s"]);
        assert_eq!(axis(&[0.1, 9.0]).place(1.0), Some(0.5));
    }

    #[test]
    fn every_place_is_inside_the_plot_or_unknown() {
        for axis in [Axis::elapsed(Seconds(0.0), 5.0), Axis::latencies(std::iter::empty()), Axis::rates(RequestsPerSecond(f64::NAN))] {
            for value in [-1.0, 0.0, 0.5, 1e300] {
                assert!(axis.place(value).is_some_and(|place| (0.0..=1.0).contains(&place)), "{axis:?} {value}");
            }
            assert_eq!(axis.place(f64::NAN), None);
            assert_eq!(axis.place(f64::INFINITY), None);
        }
        // One value only, on a round number: the axis still has a height.
        assert!(Axis::latencies([Seconds(0.05)].into_iter()).place(0.05).is_some());
    }
}
