//! When do requests come, and how long are they?
//!
//! Arrivals are a Poisson process whose rate is a function of time, drawn by thinning (Lewis and Shedler 1979): candidates come at the peak
//! rate and each is kept with probability rate/peak. This is exact for any shape, unlike steps of constant rate.
//! Lengths are log-normal, as lengths of prompts and answers roughly are: many short, few long, none negative.

use std::f64::consts::TAU;
use std::time::Duration;

use super::random::Random;
use crate::units::{Ratio, RequestsPerSecond, Tokens};

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it arrives, since the start of the simulation.
    pub at: Duration,
    /// Tokens of the prompt, at least 1.
    pub input: u32,
    /// Tokens to be generated, at least 1.
    pub output: u32,
    /// Which blocks its prompt is made of, in the prefix table of its trace. `None`: it shares nothing that is known.
    pub prefix: Option<PrefixId>,
}

/// An entry of the prefix table of one trace ([`super::trace::Prefixes`]); means nothing without that table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrefixId(pub u32);

/// How the arrival rate moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// Always the same.
    Steady(RequestsPerSecond),
    /// A cosine between two rates.
    Wave {
        /// The rate in the valley.
        low: RequestsPerSecond,
        /// The rate at the peak.
        high: RequestsPerSecond,
        /// From valley to valley.
        period: Duration,
        /// Where in the period, counted from a valley, the simulation starts.
        start: Duration,
    },
    /// A broken line that repeats itself, as the traffic of a day does.
    Daily {
        /// Part of the period, in 0..1 and rising, and the rate there. Between two points, and from the last one round to the first, the
        /// rate moves evenly. Without points it is 0.
        points: &'static [(Ratio, RequestsPerSecond)],
        /// Length of a day.
        period: Duration,
        /// Where in the day the simulation starts.
        start: Duration,
    },
}

impl Shape {
    /// The rate at a time since the start of the simulation.
    pub fn rate_at(&self, at: Duration) -> RequestsPerSecond {
        match *self {
            Self::Steady(rate) => rate,
            Self::Wave { low, high, period, start } => {
                // A period of zero has no valley and no peak; its middle is as good as any.
                let turns = if period.is_zero() { 0.25 } else { (at + start).as_secs_f64() / period.as_secs_f64() };
                let share = (1.0 - (TAU * turns).cos()) / 2.0;
                RequestsPerSecond(low.get() + (high.get() - low.get()) * share)
            }
            Self::Daily { points, period, start } => {
                let turns = if period.is_zero() { 0.0 } else { (at + start).as_secs_f64() / period.as_secs_f64() };
                RequestsPerSecond(on_closed_line(points, turns.fract()))
            }
        }
    }

    /// A rate that is never exceeded.
    fn ceiling(&self) -> f64 {
        match *self {
            Self::Steady(rate) => rate.get(),
            Self::Wave { low, high, .. } => low.get().max(high.get()),
            Self::Daily { points, .. } => points.iter().map(|(_, rate)| rate.get()).fold(0.0, f64::max),
        }
    }
}

/// The rate at a part of the period.
fn on_closed_line(points: &[(Ratio, RequestsPerSecond)], at: f64) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    let next = points.partition_point(|(part, _)| part.get() <= at);
    // The line goes on from the last point of the day before to the first of the day after.
    let (from, rate) = next.checked_sub(1).map_or((last.0.get() - 1.0, last.1), |before| (points[before].0.get(), points[before].1));
    let (to, later) = points.get(next).map_or((first.0.get() + 1.0, first.1), |&(part, rate)| (part.get(), rate));
    if to > from { rate.get() + (later.get() - rate.get()) * (at - from) / (to - from) } else { rate.get() }
}

/// A distribution of lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lengths {
    /// The mean before the limits cut the tails.
    pub mean: Tokens,
    /// Standard deviation over mean; 0 makes all lengths equal.
    pub variation: Ratio,
    /// The shortest.
    pub min: u32,
    /// The longest. If it is below `min`, `min` holds.
    pub max: u32,
}

impl Lengths {
    /// Always that many tokens.
    pub fn always(tokens: u32) -> Self {
        Self { mean: Tokens(f64::from(tokens)), variation: Ratio(0.0), min: tokens, max: tokens }
    }

    /// One length.
    pub fn draw(&self, random: &mut Random) -> u32 {
        // For a log-normal of mean m and variation v: sigma^2 = ln(1 + v^2), mu = ln(m) - sigma^2 / 2.
        let variance = self.variation.get().powi(2).ln_1p();
        let length = self.mean.get() * (variance.sqrt() * random.normal() - variance / 2.0).exp();
        // `as` saturates, which the limits then cut.
        (length.round() as u32).min(self.max).max(self.min).max(1)
    }
}

/// What a synthetic load looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkloadSettings {
    /// The arrival rate over time.
    pub shape: Shape,
    /// Prompt lengths.
    pub input: Lengths,
    /// Lengths of the answers.
    pub output: Lengths,
    /// The same seed gives the same requests.
    pub seed: u64,
}

/// An endless sequence of requests; it ends at once if the rate is never above zero.
#[derive(Clone, Debug)]
pub struct Workload {
    settings: WorkloadSettings,
    /// The last candidate, seconds since the start.
    at_seconds: f64,
    arrivals: Random,
    inputs: Random,
    outputs: Random,
}

impl Workload {
    /// The sequence from the start of the simulation on.
    pub fn new(settings: WorkloadSettings) -> Self {
        let stream = |purpose| Random::stream(settings.seed, purpose);
        Self { settings, at_seconds: 0.0, arrivals: stream(1), inputs: stream(2), outputs: stream(3) }
    }
}

impl Iterator for Workload {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let ceiling = self.settings.shape.ceiling();
        if !ceiling.is_finite() || ceiling <= 0.0 {
            return None;
        }
        loop {
            self.at_seconds += self.arrivals.exponential() / ceiling;
            // Ends after some 10^11 years, where a duration does.
            let at = Duration::try_from_secs_f64(self.at_seconds).ok()?;
            if self.arrivals.unit() * ceiling <= self.settings.shape.rate_at(at).get() {
                let input = self.settings.input.draw(&mut self.inputs);
                let output = self.settings.output.draw(&mut self.outputs);
                return Some(Request { at, input, output, prefix: None });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(shape: Shape) -> WorkloadSettings {
        let lengths = |mean: f64| Lengths { mean: Tokens(mean), variation: Ratio(0.4), min: 2, max: 100_000 };
        WorkloadSettings { shape, input: lengths(1500.0), output: lengths(100.0), seed: 3 }
    }

    fn wave(period: u64) -> Shape {
        let period = Duration::from_secs(period);
        Shape::Wave { low: RequestsPerSecond(4.0), high: RequestsPerSecond(20.0), period, start: Duration::ZERO }
    }

    #[test]
    fn a_wave_starts_in_its_valley_and_peaks_half_a_period_later() {
        let rate = |seconds| wave(180).rate_at(Duration::from_secs(seconds)).get();
        assert_eq!(rate(0), 4.0);
        assert!((rate(45) - 12.0).abs() < 1e-9);
        assert_eq!(rate(90), 20.0);
        assert!((rate(180) - 4.0).abs() < 1e-9);
        assert!(wave(0).rate_at(Duration::ZERO).get().is_finite());
    }

    #[test]
    fn a_day_joins_its_points_and_goes_round() {
        const POINTS: [(Ratio, RequestsPerSecond); 3] =
            [(Ratio(0.25), RequestsPerSecond(4.0)), (Ratio(0.5), RequestsPerSecond(20.0)), (Ratio(0.75), RequestsPerSecond(8.0))];
        let day = |points, start| Shape::Daily { points, period: Duration::from_secs(240), start: Duration::from_secs(start) };
        let rate = |start, seconds| day(&POINTS, start).rate_at(Duration::from_secs(seconds)).get();
        for (seconds, expected) in [(60, 4.0), (90, 12.0), (120, 20.0), (150, 14.0), (180, 8.0), (240, 6.0), (0, 6.0), (330, 12.0)] {
            assert!((rate(0, seconds) - expected).abs() < 1e-9, "{seconds}: {}", rate(0, seconds));
        }
        assert_eq!(rate(60, 60), 20.0);
        assert_eq!(day(&[], 0).rate_at(Duration::ZERO).get(), 0.0);
        assert_eq!(day(&POINTS[..1], 0).rate_at(Duration::from_secs(200)).get(), 4.0);
        let endless = Shape::Daily { points: &POINTS, period: Duration::ZERO, start: Duration::ZERO };
        assert!(endless.rate_at(Duration::from_secs(1)).get().is_finite());
    }

    #[test]
    fn arrivals_follow_the_rate() {
        // Ten cycles: each tenth of a cycle is compared with the integral of the rate over it, within four standard deviations.
        let shape = wave(200);
        let mut found = [0.0_f64; 10];
        for request in Workload::new(settings(shape)).take_while(|request| request.at < Duration::from_secs(2000)) {
            found[(request.at.as_secs() % 200 / 20) as usize] += 1.0;
        }
        for (tenth, found) in found.into_iter().enumerate() {
            let expected: f64 =
                (0..20).map(|s| 10.0 * shape.rate_at(Duration::from_millis(tenth as u64 * 20_000 + s * 1000 + 500)).get()).sum();
            assert!((found - expected).abs() < 4.0 * expected.sqrt(), "tenth {tenth}: {found} instead of {expected}");
        }
    }

    #[test]
    fn lengths_have_their_mean_and_spread() {
        let shape = Shape::Steady(RequestsPerSecond(10.0));
        let requests: Vec<Request> = Workload::new(settings(shape)).take(50_000).collect();
        let mean = requests.iter().map(|r| f64::from(r.input)).sum::<f64>() / 50_000.0;
        let variance = requests.iter().map(|r| (f64::from(r.input) - mean).powi(2)).sum::<f64>() / 50_000.0;
        assert!((mean / 1500.0 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() / mean - 0.4).abs() < 0.01, "{variance}");
        assert!(requests.iter().all(|r| r.output >= 2));
    }

    #[test]
    fn a_load_without_rate_ends_at_once() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Workload::new(settings(Shape::Steady(RequestsPerSecond(rate)))).next(), None, "{rate}");
        }
    }
}
