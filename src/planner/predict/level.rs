//! How much is coming right now, and where is it going? The level and the slope of a series of short slices, over as long a time as one line explains.
//!
//! Slices are a scrape interval long, so each is mostly chance: 30 requests a second are 150 in five seconds, give or take 12. A long mean is
//! steadier and late; a short one is in time and noisy. So the longest span is taken on which one line agrees with everything in it, also with
//! its most recent part: while nothing changes that is ten minutes, two scrapes after a jump it is the two scrapes.
//!
//! ```text
//! spans: the last 2 slices, and twice as long again and again, up to 128 slices
//! a span holds if its last and its first 2, 4, 8, ... slices are within 4 standard deviations of what its line says of them
//! standard deviation of a mean over weight W: sqrt(noise * level / W) for counts, noise being their variance over their mean
//! line: weighted least squares from 32 slices on, where its slope is 3 standard errors from zero; else the mean
//! ```
//!
//! Four deviations: the test is made every few seconds against several spans, and at three it would jump by chance every few minutes.
//! Lengths are skewed: the mean of ten values with a skewness of 1.5 is 5.2 deviations above as seldom as a normal one is four.
//! The noise is measured from the differences between neighbouring parts of 20 seconds, which neither a slope nor a jump changes much; it is at least
//! 1, that of independent arrivals. Bursts of real users outlast a scrape interval, and between neighbouring scrapes half of them are not seen.
//!
//! | last slices of 5 s, requests a second | level | slope | over |
//! |---|---|---|---|
//! | 30 for ten minutes, give or take chance | 30 | 0 | 640 s |
//! | 10 to 50 in 640 s, steadily | 50 | 3.75 a minute | 640 s |
//! | 30 for ten minutes, then 60 twice | 60 | 0 | 10 s |
//!
//! Known limits: a slope is a guess that things go on as they did, so [`Level::at`] believes it for no longer than half of the span that showed it.

use serde::{Deserialize, Serialize};

/// Slices of the shortest span.
const SHORTEST: usize = 2;
/// Slices of the longest.
pub const LONGEST: usize = 128;
/// Slices from which on a slope is looked for.
const LEAST_OF_A_LINE: usize = 32;
/// Seconds over which the noise of arrivals is measured: about the time in which a queue builds and is worked off.
const NOISE_OVER: f64 = 20.0;
/// Standard deviations beyond which a recent part contradicts a span.
const CONTRADICTION: f64 = 4.0;
/// Standard errors from which on a slope is one.
const EVIDENT: f64 = 3.0;

/// A part of the series: `value` per unit of `weight`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// When it ended, seconds.
    pub at: f64,
    /// What it is a mean over: seconds for rates, requests for lengths.
    pub weight: f64,
    /// The sum: requests, or tokens.
    pub sum: f64,
}

/// The level of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Now.
    pub value: f64,
    /// Its change a second; 0 where none is evident.
    pub slope: f64,
    /// Standard error of the value.
    pub error: f64,
    /// Seconds that it rests on.
    pub over: f64,
    /// Variance of counts over their mean; 1 for other series.
    pub noise: f64,
}

impl Level {
    /// The level in `seconds` from now, not below zero.
    pub fn at(&self, seconds: f64) -> f64 {
        (self.value + self.slope * seconds.min(self.over / 2.0)).max(0.0)
    }
}

/// How a series varies by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// Counts: the variance of a sum is its mean times a factor that is measured, at least 1.
    Counts,
    /// Means of single values.
    Values {
        /// Their standard deviation over their mean.
        variation: f64,
        /// Their skewness: above 0 where a few are much above the others.
        skewness: f64,
    },
}

impl Noise {
    /// Standard deviations by which the upper tail of a mean over `weight` values lies further out than that of a normal distribution (the first
    /// term of the expansion by Cornish and Fisher). Counts are taken for normal: a rise of what comes is to be followed at once.
    fn tail(self, weight: f64) -> f64 {
        match self {
            Self::Counts => 0.0,
            Self::Values { skewness, .. } => (CONTRADICTION.powi(2) - 1.0) / 6.0 * skewness.max(0.0) / weight.sqrt(),
        }
    }
}

/// The level at the end of the slices, oldest first. `None` where there is no weight.
pub fn level(slices: &[Slice], noise: Noise) -> Option<Level> {
    let mut known = Vec::with_capacity(slices.len());
    known.extend(slices.iter().copied().filter(|slice| slice.weight > 0.0));
    let slices = &known[known.len().saturating_sub(LONGEST)..];
    let last = slices.last()?;
    let factor = match noise {
        Noise::Counts => burstiness(slices),
        Noise::Values { .. } => 1.0,
    };
    // Variance of a mean over weight 1.
    let variance = |mean: f64| match noise {
        Noise::Counts => factor * mean.max(f64::MIN_POSITIVE),
        Noise::Values { variation, .. } => (variation * mean).powi(2).max(f64::MIN_POSITIVE),
    };
    let mut found: Option<Level> = None;
    // The spans so far, which are also the most recent parts of the next one.
    let mut smaller: Vec<(usize, Total)> = Vec::new();
    for size in spans(slices.len()) {
        let span = &slices[slices.len() - size..];
        // Its oldest parts, each of which begins with the one before.
        let (mut whole, mut added) = (Total::default(), 0);
        let mut oldest: Vec<Total> = Vec::with_capacity(smaller.len());
        for (size, _) in &smaller {
            whole.add(&span[added..*size], last.at);
            added = *size;
            oldest.push(whole);
        }
        whole.add(&span[added..], last.at);
        let Some(line) = line_of(span, whole, last.at, &variance, noise == Noise::Counts) else { continue };
        let agrees = |part: &Total| {
            let expected = line.value * part.weight + line.slope * part.lag;
            // Of the part's own noise, that which the span shares with it is no difference.
            let shared = (1.0 - part.weight / whole.weight).max(0.0);
            let deviation = (variance(expected.max(0.0) / part.weight) * part.weight * shared).sqrt();
            let most = if part.sum > expected { CONTRADICTION + noise.tail(part.weight) } else { CONTRADICTION };
            (part.sum - expected).abs() <= most * deviation.max(f64::MIN_POSITIVE)
        };
        let agrees = oldest.iter().chain(smaller.iter().map(|(_, newest)| newest)).all(agrees);
        if found.is_some() && !agrees {
            break;
        }
        found = Some(Level { noise: factor, ..line });
        smaller.push((size, whole));
    }
    found
}

/// What slices have together.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    weight: f64,
    sum: f64,
    /// Of the weights times how much later than now they are: what a slope makes of them.
    lag: f64,
}

impl Total {
    fn add(&mut self, slices: &[Slice], now: f64) {
        for slice in slices {
            self.weight += slice.weight;
            self.sum += slice.sum;
            self.lag += slice.weight * (slice.at - now);
        }
    }
}

/// The spans, in slices: each twice the one before, the last with all.
fn spans(all: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(SHORTEST.min(all)), move |size| (*size < all).then(|| (size * 2).min(all)))
}

fn total(slices: &[Slice]) -> (f64, f64) {
    slices.iter().fold((0.0, 0.0), |(weight, sum), slice| (weight + slice.weight, sum + slice.sum))
}

/// Variance of counts over their mean, from the differences between neighbouring parts; at least 1, at most 20.
fn burstiness(slices: &[Slice]) -> f64 {
    let seconds: f64 = slices.iter().map(|slice| slice.weight).sum();
    let usual = seconds / slices.len() as f64;
    // `as` saturates. Fewer where few are known: a jump may be in half of the parts, and not in more.
    let part = ((NOISE_OVER / usual).ceil() as usize).clamp(1, (slices.len() / 8).max(1));
    let square = |both: &[Slice]| {
        let ((before, one), (after, other)) = (total(&both[..part]), total(&both[part..]));
        let mean = (one + other) / (before + after);
        (other / after - one / before).powi(2) / (mean / before + mean / after)
    };
    let mut squares: Vec<f64> = slices.windows(2 * part).map(square).filter(|square| square.is_finite()).collect();
    if squares.is_empty() {
        return 1.0;
    }
    let middle = squares.len() / 2;
    let (_, median, _) = squares.select_nth_unstable_by(middle, f64::total_cmp);
    // The median of the square of a standard normal variable is 0.455.
    (*median / 0.455).clamp(1.0, 20.0)
}

/// The line through a span, at `now`: with a slope where one is evident.
fn line_of(span: &[Slice], whole: Total, now: f64, variance: &dyn Fn(f64) -> f64, sloped: bool) -> Option<Level> {
    let Total { weight, sum, .. } = whole;
    let mean = sum / weight;
    let first = span.first()?;
    let width = if span.len() > 1 { (first.at - span[1].at).abs() } else { 0.0 };
    let over = now - first.at + width;
    let flat = Level { value: mean, slope: 0.0, error: (variance(mean) / weight).sqrt(), over, noise: 1.0 };
    if !sloped || span.len() < LEAST_OF_A_LINE {
        return Some(flat);
    }
    let center = span.iter().map(|slice| slice.weight * slice.at).sum::<f64>() / weight;
    let spread = span.iter().map(|slice| slice.weight * (slice.at - center).powi(2)).sum::<f64>();
    let slope = span.iter().map(|slice| (slice.at - center) * slice.sum).sum::<f64>() / spread;
    let error = (variance(mean) / spread).sqrt();
    if !slope.is_finite() || slope.abs() < EVIDENT * error {
        return Some(flat);
    }
    let at_now = (mean + slope * (now - center)).max(0.0);
    Some(Level { value: at_now, slope, error: (variance(mean) / weight + (error * (now - center)).powi(2)).sqrt(), over, noise: 1.0 })
}

#[cfg(test)]
#[path = "level_tests.rs"]
mod tests;
