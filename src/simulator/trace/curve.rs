//! When do requests come if their rate moves along a broken line, and come more or less regularly than chance?
//!
//! Arrivals are a renewal process in the time in which one request a unit is expected: gaps are gamma draws with mean 1 and the wanted
//! coefficient of variation, and the integral of the rate maps them to seconds. A variation of 1 is a Poisson process, 0 a clock, above 1
//! bursts. The first gap is the rest of one that began before the curve, so that the expected number of requests is the integral of the rate,
//! whatever the variation.

use std::time::Duration;

use crate::simulator::random::Random;
use crate::simulator::workload::{Lengths, Request};
use crate::units::{Ratio, Requests, RequestsPerSecond};

/// One stretch of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// How long it lasts.
    pub length: Duration,
    /// The rate at its start. A rate that is negative or not finite counts as 0.
    pub from: RequestsPerSecond,
    /// The rate at its end; between them it moves evenly.
    pub to: RequestsPerSecond,
    /// Prompt lengths of the requests that arrive in it.
    pub input: Lengths,
    /// Lengths of their answers.
    pub output: Lengths,
    /// Standard deviation of the gaps that begin in it, over their mean; below 0 counts as 0.
    pub variation: Ratio,
}

impl Piece {
    fn rate(rate: RequestsPerSecond) -> f64 {
        if rate.is_positive() { rate.get() } else { 0.0 }
    }

    /// The rate `seconds` after the start, and its change in a second.
    fn rate_after(&self, seconds: f64) -> (f64, f64) {
        let (from, to) = (Self::rate(self.from), Self::rate(self.to));
        let length = self.length.as_secs_f64();
        let slope = if length > 0.0 { (to - from) / length } else { 0.0 };
        ((from + slope * seconds).max(0.0), slope)
    }

    /// Requests expected from `seconds` after the start to the end.
    fn expected_after(&self, seconds: f64) -> f64 {
        let (rate, _) = self.rate_after(seconds);
        (self.length.as_secs_f64() - seconds).max(0.0) * (rate + Self::rate(self.to)) / 2.0
    }

    /// How many seconds after `seconds` so many requests are expected to have come; no more than the piece expects.
    fn wait(&self, seconds: f64, requests: f64) -> f64 {
        if requests <= 0.0 {
            return 0.0;
        }
        // The positive root of slope/2 x^2 + rate x = requests, in the form that loses no digits when the slope is small.
        let (rate, slope) = self.rate_after(seconds);
        2.0 * requests / (rate + (rate * rate + 2.0 * slope * requests).max(0.0).sqrt())
    }
}

/// A rate over time, with lengths and regularity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// In order of time, without holes.
    pub pieces: Vec<Piece>,
}

impl Curve {
    /// From the start of the first to the end of the last piece.
    pub fn length(&self) -> Duration {
        self.pieces.iter().map(|piece| piece.length).sum()
    }

    /// The integral of the rate.
    pub fn expected(&self) -> Requests {
        Requests(self.pieces.iter().map(|piece| piece.expected_after(0.0)).sum())
    }

    /// The highest rate.
    pub fn peak(&self) -> RequestsPerSecond {
        RequestsPerSecond(self.pieces.iter().flat_map(|piece| [piece.from, piece.to]).map(Piece::rate).fold(0.0, f64::max))
    }

    /// The rate at a time since the start; 0 after the end. Where the rate jumps, the later one.
    pub fn rate_at(&self, at: Duration) -> RequestsPerSecond {
        let mut start = Duration::ZERO;
        for piece in &self.pieces {
            let end = start + piece.length;
            if at < end {
                return RequestsPerSecond(piece.rate_after((at - start).as_secs_f64()).0);
            }
            start = end;
        }
        RequestsPerSecond(0.0)
    }

    /// The requests, in order of arrival. The same seed gives the same requests; other lengths move no arrival.
    pub fn requests(&self, seed: u64) -> Arrivals<'_> {
        let stream = |purpose| Random::stream(seed, purpose);
        let mut gaps = stream(1);
        let first = self.pieces.first().map_or(0.0, |piece| rest_of_gap(piece.variation, &mut gaps));
        Arrivals { pieces: &self.pieces, start: Duration::ZERO, seconds: 0.0, wanted: first, gaps, inputs: stream(2), outputs: stream(3) }
    }
}

/// Below this the gaps are taken as equal: the gamma distribution would need a shape of a million.
const REGULAR: f64 = 1e-3;

/// A gap with mean 1.
fn gap(variation: Ratio, random: &mut Random) -> f64 {
    let variation = variation.get();
    if variation.is_nan() || variation <= REGULAR {
        return 1.0;
    }
    if variation == 1.0 {
        return random.exponential();
    }
    let shape = variation.powi(-2);
    random.gamma(shape) / shape
}

/// What is left at a random moment of the gap that covers it: long gaps cover more moments, so the gap is drawn with its length as weight,
/// which for a gamma distribution adds 1 to the shape.
fn rest_of_gap(variation: Ratio, random: &mut Random) -> f64 {
    let variation = variation.get();
    let part = random.unit();
    if variation.is_nan() || variation <= REGULAR {
        return part;
    }
    let shape = variation.powi(-2);
    part * random.gamma(shape + 1.0) / shape
}

/// The requests that follow a curve.
#[derive(Clone, Debug)]
pub struct Arrivals<'a> {
    /// The present piece and those after it.
    pieces: &'a [Piece],
    /// When the present piece began.
    start: Duration,
    /// How far into it the last arrival was.
    seconds: f64,
    /// Requests that must be expected from there to the next arrival.
    wanted: f64,
    gaps: Random,
    inputs: Random,
    outputs: Random,
}

impl Iterator for Arrivals<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            let (piece, later) = self.pieces.split_first()?;
            let expected = piece.expected_after(self.seconds);
            if expected <= self.wanted {
                self.wanted -= expected;
                self.start += piece.length;
                self.seconds = 0.0;
                self.pieces = later;
                continue;
            }
            self.seconds += piece.wait(self.seconds, self.wanted);
            self.wanted = gap(piece.variation, &mut self.gaps);
            let input = piece.input.draw(&mut self.inputs);
            let output = piece.output.draw(&mut self.outputs);
            // Rounding must not carry an arrival over the end of its piece. A time beyond what a duration holds ends the sequence.
            let at = self.start + Duration::try_from_secs_f64(self.seconds).ok()?.min(piece.length);
            return Some(Request { at, input, output, prefix: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tokens;

    fn piece(seconds: u64, from: f64, to: f64, variation: f64) -> Piece {
        let lengths = |mean| Lengths { mean: Tokens(mean), variation: Ratio(0.5), min: 1, max: 100_000 };
        Piece {
            length: Duration::from_secs(seconds),
            from: RequestsPerSecond(from),
            to: RequestsPerSecond(to),
            input: lengths(1000.0),
            output: lengths(200.0),
            variation: Ratio(variation),
        }
    }

    #[test]
    fn gaps_have_the_wanted_variation() {
        for wanted in [0.0, 0.3, 1.0, 1.5, 3.0] {
            let curve = Curve { pieces: vec![piece(20_000, 10.0, 10.0, wanted)] };
            let times: Vec<f64> = curve.requests(11).map(|request| request.at.as_secs_f64()).collect();
            let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            let found = variance.sqrt() / mean;
            assert!((found - wanted).abs() <= 0.02 * wanted + 1e-6, "{found} instead of {wanted}");
        }
    }

    #[test]
    fn the_count_is_the_integral_on_average_whatever_the_variation() {
        // Short curves, so that a first gap that is drawn wrongly would show: with a variation of 2 it would add 1.5 requests to 20.
        const RUNS: u64 = 4000;
        for variation in [0.0, 0.5, 1.0, 2.0] {
            let curve = Curve { pieces: vec![piece(4, 0.0, 5.0, variation), piece(2, 5.0, 5.0, variation)] };
            let counts = (0..RUNS).map(|seed| curve.requests(seed).count() as f64);
            let mean = counts.sum::<f64>() / RUNS as f64;
            // The variance of a count is about variation^2 times its mean.
            let bound = 4.0 * (variation * variation * 20.0 + 1.0).sqrt() / (RUNS as f64).sqrt();
            assert!((mean - 20.0).abs() < bound, "{mean} at {variation}");
        }
    }

    #[test]
    fn arrivals_follow_a_line_that_falls_to_zero_and_comes_back() {
        let curve = Curve { pieces: vec![piece(1000, 20.0, 0.0, 1.0), piece(1000, 0.0, 0.0, 1.0), piece(1000, 0.0, 20.0, 1.0)] };
        assert_eq!(curve.expected(), Requests(20_000.0));
        let mut found = [0.0_f64; 6];
        let mut last = Duration::ZERO;
        for request in curve.requests(5) {
            assert!(request.at >= last);
            last = request.at;
            found[(request.at.as_secs() / 500) as usize] += 1.0;
        }
        for (found, expected) in found.into_iter().zip([7500.0_f64, 2500.0, 0.0, 0.0, 2500.0, 7500.0]) {
            assert!((found - expected).abs() <= 4.0 * expected.sqrt(), "{found} instead of {expected}");
        }
    }

    #[test]
    fn a_curve_without_rate_gives_nothing() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Curve { pieces: vec![piece(10, rate, rate, 1.0)] }.requests(1).next(), None, "{rate}");
        }
        assert_eq!(Curve::default().requests(1).next(), None);
    }

    #[test]
    fn lengths_spread_as_wanted_and_move_no_arrival() {
        let narrow = Curve { pieces: vec![piece(2000, 10.0, 10.0, 1.0)] };
        let mut wide = narrow.clone();
        wide.pieces[0].input.variation = Ratio(1.0);
        let moments = |curve: &Curve| {
            let lengths: Vec<f64> = curve.requests(2).map(|request| f64::from(request.input)).collect();
            let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
            let variance = lengths.iter().map(|length| (length - mean).powi(2)).sum::<f64>() / lengths.len() as f64;
            (mean / 1000.0, variance.sqrt() / mean)
        };
        let ((mean, spread), (wide_mean, wide_spread)) = (moments(&narrow), moments(&wide));
        assert!((mean - 1.0).abs() < 0.02 && (spread - 0.5).abs() < 0.02, "{mean} {spread}");
        assert!((wide_mean - 1.0).abs() < 0.03 && (wide_spread - 1.0).abs() < 0.1, "{wide_mean} {wide_spread}");
        assert!(narrow.requests(2).zip(wide.requests(2)).all(|(a, b)| a.at == b.at && a.output == b.output));
    }
}
