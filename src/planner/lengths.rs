//! How long are requests? The lengths that were seen lately, as a histogram that forgets, and their shape: lengths over their mean, which changes
//! slowly while the mean may not.

use serde::{Deserialize, Serialize};

use super::predict::level::Noise;

/// Requests that the histogram remembers.
const REMEMBERED: f64 = 5000.0;
/// Lengths beyond its last bound are taken for this many times that bound.
const BEYOND: f64 = 1.5;
/// Parts of a bucket, by its lengths. A bucket taken for one length meets the TTFT objective as a whole or not at all.
const PARTS: u32 = 4;
/// Where no histogram says one: the shape of an exponential distribution in four equal parts, by their means over the mean.
const USUAL: [f64; 4] = [0.137, 0.477, 0.999, 2.387];
/// Lengths vary by this at least.
const LEAST_VARIANCE: f64 = 0.01;

/// Lengths that were seen, in tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// Upper bounds, and how many were below and above the one before.
    buckets: Vec<(f64, f64)>,
    /// How many were above the last of them.
    longer: f64,
}

/// Lengths over their mean, with their shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape(Vec<(f64, f64)>);

impl Lengths {
    /// Takes in requests by the upper bounds of their lengths, each count with those before it, and how many there were in all.
    pub fn remember(&mut self, cumulative: &[(f64, f64)], all: f64) {
        let mut below = 0.0;
        let fresh: Vec<(f64, f64)> =
            cumulative.iter().map(|&(bound, count)| (bound, (count - std::mem::replace(&mut below, count)).max(0.0))).collect();
        let same = self.buckets.len() == fresh.len() && self.buckets.iter().zip(&fresh).all(|(one, other)| one.0 == other.0);
        if !same {
            self.buckets = fresh.iter().map(|&(bound, _)| (bound, 0.0)).collect();
            self.longer = 0.0;
        }
        let brought = all.max(below);
        let keep = (1.0 - brought / REMEMBERED).max(0.0);
        self.buckets.iter_mut().zip(&fresh).for_each(|(known, (_, count))| known.1 = known.1 * keep + count);
        self.longer = self.longer * keep + brought - below;
    }

    /// Their shape; that of an exponential distribution before any were seen.
    pub fn shape(&self) -> Shape {
        let mut lower = 0.0;
        let mut points = Vec::new();
        for &(bound, count) in &self.buckets {
            let width = (bound - lower) / f64::from(PARTS);
            points.extend((0..PARTS).map(|part| (lower + (f64::from(part) + 0.5) * width, count / f64::from(PARTS))));
            lower = bound;
        }
        points.push((lower * BEYOND, self.longer));
        points.retain(|(_, count)| *count > 0.0);
        let all: f64 = points.iter().map(|(_, count)| count).sum();
        let mean = points.iter().map(|(middle, count)| middle * count).sum::<f64>() / all;
        if !(mean > 0.0 && mean.is_finite()) {
            return Shape(USUAL.map(|times| (times, 0.25)).to_vec());
        }
        Shape(points.into_iter().map(|(middle, count)| (middle / mean, count / all)).collect())
    }
}

impl Shape {
    /// How such lengths vary about their mean.
    pub fn spread(&self) -> Noise {
        let variation = self.variance().sqrt();
        Noise::Values { variation, skewness: self.moment(3) / variation.powi(3) }
    }

    /// Of lengths over their mean.
    fn variance(&self) -> f64 {
        self.moment(2).max(LEAST_VARIANCE)
    }

    fn moment(&self, power: i32) -> f64 {
        self.0.iter().map(|(times, share)| share * (times - 1.0_f64).powi(power)).sum()
    }

    /// What requests at work have of their length behind them on average, over its mean: `(1 + variance) / 2`, since long ones stay longer.
    pub fn behind(&self) -> f64 {
        (1.0 + self.variance()) / 2.0
    }

    /// Lengths of that mean, with their shares.
    pub fn of_mean(&self, mean: f64) -> Vec<(f64, f64)> {
        self.0.iter().map(|(times, share)| (times * mean, *share)).collect()
    }
}

#[cfg(test)]
#[path = "lengths_tests.rs"]
mod tests;
