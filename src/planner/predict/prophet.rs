//! Which line with few bends, and which daily and weekly curve, explain the last windows? Prophet's model at its most likely parameters.
//!
//! y(t) / largest y = k t + m + sum delta(j) max(0, t - s(j)) + Fourier terms + noise of deviation sigma; t runs from 0 to 1 over the
//! window of `window` points. The bends s(j) are 25, evenly over the first four fifths of the points.
//!
//! | parameter | prior |
//! |---|---|
//! | k, m | normal, deviation 5 |
//! | delta | Laplace, scale 0.05: most bends stay at exactly 0 |
//! | Fourier terms | normal, deviation 10; a day has 4 pairs from two days of history on, a week 3 from two weeks on |
//! | sigma | half-normal, deviation 0.5 |
//!
//! The Laplace prior has a corner at 0, where methods that follow a gradient stall. Here each parameter in turn is set to its exact optimum
//! with the others fixed (for a bend: soft thresholding), and sigma to its own, until nothing moves or 2000 rounds are over: coordinate
//! descent. Neighbouring bends exchange slowly; what 2000 rounds leave is below 0.01 in the logarithm of the posterior. Only sums of
//! products of the features are needed, so a sweep costs (features)^2.
//!
//! Little data: below five points the last value is forecast. Points of equal value forecast that value. A season is left out until two of
//! its periods are in the window: 50 points of 180 s are two and a half hours, and there the model is a bent line.
//!
//! Known limits. The line goes on with its last slope, so after a jump within the last fifth, where it cannot bend, it cuts through the
//! noise. Rates that swing by tens of percent within minutes are not what it was made for: on the Azure traces persistence is better at one
//! step ahead. Points are taken as evenly spaced; a window that nobody read moves the season by its length.
//!
//! When: refitted at every window, as the points that leave change the line as much as the one that comes; 1 ms.
//!
//! Source: Taylor and Letham, Forecasting at Scale, The American Statistician 72 (2018) 37; priors as in Prophet's documentation. Soft
//! thresholding: Friedman, Hastie and Tibshirani, Journal of Statistical Software 33 (2010) 1.

use std::time::Duration;

/// Points below which nothing is fitted.
pub(super) const MIN_POINTS: usize = 5;
/// Bends of the trend at most, and the share of the points in which they may be.
const BENDS: usize = 25;
const BENDING_SHARE: f64 = 0.8;
/// Standard deviations of the priors, and the scale of the Laplace prior.
const TREND_PRIOR: f64 = 5.0;
const SEASON_PRIOR: f64 = 10.0;
const NOISE_PRIOR: f64 = 0.5;
const BEND_PRIOR: f64 = 0.05;
/// Noise at least, as a share of the largest value: a perfect line would have none, and an infinite likelihood.
const LEAST_NOISE: f64 = 1e-3;
/// Periods of the seasons in seconds with their pairs of Fourier terms.
const SEASONS: [(f64, usize); 2] = [(86_400.0, 4), (604_800.0, 3)];
/// Sweeps at most, and the largest move after which they end.
const SWEEPS: usize = 2000;
const STILL: f64 = 1e-7;

/// The prior of one coefficient.
#[derive(Clone, Copy)]
enum Prior {
    /// Of this standard deviation.
    Normal(f64),
    Laplace,
}

/// Features as functions of the index of a point.
struct Basis {
    /// Points.
    count: usize,
    /// Places of the bends, by index.
    bends: Vec<f64>,
    /// Angle of one point for each Fourier pair.
    angles: Vec<f64>,
}

impl Basis {
    fn new(count: usize, interval: Duration) -> Self {
        let bending = (count as f64 * BENDING_SHARE).floor();
        let bends = BENDS.min((bending as usize).saturating_sub(1));
        let place = |bend: usize| (bend as f64 * (bending - 1.0) / bends as f64).round();
        let span = interval.as_secs_f64() * (count - 1) as f64;
        let long_enough = SEASONS.iter().filter(|(period, _)| span >= 2.0 * period && interval.as_secs_f64() < *period);
        let angles = long_enough.flat_map(|&(period, pairs)| {
            (1..=pairs).map(move |pair| std::f64::consts::TAU * pair as f64 * interval.as_secs_f64() / period)
        });
        Self { count, bends: (1..=bends).map(place).collect(), angles: angles.collect() }
    }

    fn priors(&self) -> Vec<Prior> {
        let mut priors = vec![Prior::Normal(TREND_PRIOR); 2];
        priors.resize(2 + self.bends.len(), Prior::Laplace);
        priors.resize(priors.len() + 2 * self.angles.len(), Prior::Normal(SEASON_PRIOR));
        priors
    }

    fn features(&self, index: usize) -> Vec<f64> {
        let (at, last) = (index as f64, (self.count - 1) as f64);
        let trend = [at / last, 1.0].into_iter().chain(self.bends.iter().map(|bend| (at - bend).max(0.0) / last));
        trend.chain(self.angles.iter().flat_map(|angle| [(angle * at).sin(), (angle * at).cos()])).collect()
    }
}

/// The window after the points; `None` below [`MIN_POINTS`] or where the result is no number.
pub(super) fn forecast(points: &[f64], interval: Duration) -> Option<f64> {
    let (first, scale) = (*points.first()?, points.iter().fold(0.0_f64, |largest, value| largest.max(value.abs())));
    if points.len() < MIN_POINTS {
        return None;
    }
    if points.iter().all(|value| *value == first) {
        return Some(first);
    }
    let basis = Basis::new(points.len(), interval);
    let rows: Vec<Vec<f64>> = (0..points.len()).map(|index| basis.features(index)).collect();
    let values: Vec<f64> = points.iter().map(|value| value / scale).collect();
    let coefficients = descend(&rows, &values, &basis.priors());
    let next: f64 = basis.features(points.len()).iter().zip(&coefficients).map(|(feature, weight)| feature * weight).sum();
    (next * scale).is_finite().then_some(next * scale)
}

/// The most likely coefficients.
fn descend(rows: &[Vec<f64>], values: &[f64], priors: &[Prior]) -> Vec<f64> {
    let width = priors.len();
    let gram: Vec<Vec<f64>> = (0..width).map(|i| (0..width).map(|j| rows.iter().map(|row| row[i] * row[j]).sum()).collect()).collect();
    let mut coefficients = start(values, width);
    // What each feature still has in common with the residuals.
    let residuals = |coefficients: &[f64]| -> Vec<f64> {
        rows.iter().zip(values).map(|(row, value)| value - row.iter().zip(coefficients).map(|(a, b)| a * b).sum::<f64>()).collect()
    };
    let mut rest = residuals(&coefficients);
    let mut variance = noise(&rest);
    let mut common: Vec<f64> = (0..width).map(|i| rows.iter().zip(&rest).map(|(row, left)| row[i] * left).sum()).collect();
    for _ in 0..SWEEPS {
        let mut moved: f64 = 0.0;
        for i in 0..width {
            let pull = common[i] + gram[i][i] * coefficients[i];
            let wanted = match priors[i] {
                Prior::Normal(deviation) => pull / (gram[i][i] + variance / (deviation * deviation)),
                Prior::Laplace => (pull.abs() - variance / BEND_PRIOR).max(0.0).copysign(pull) / gram[i][i],
            };
            let change = wanted - coefficients[i];
            if change != 0.0 {
                coefficients[i] = wanted;
                common.iter_mut().zip(&gram[i]).for_each(|(left, product)| *left -= change * product);
                moved = moved.max(change.abs());
            }
        }
        rest = residuals(&coefficients);
        variance = noise(&rest);
        if moved < STILL {
            break;
        }
    }
    coefficients
}

/// Prophet's start: the line from the first point to the last.
fn start(values: &[f64], width: usize) -> Vec<f64> {
    let mut coefficients = vec![0.0; width];
    if let (Some(first), Some(last)) = (values.first(), values.last()) {
        (coefficients[0], coefficients[1]) = (last - first, *first);
    }
    coefficients
}

/// The most likely variance of the noise: 4 v^2 + n v = sum of squares, for a half-normal prior of deviation 0.5.
fn noise(rest: &[f64]) -> f64 {
    let (n, squares) = (rest.len() as f64, rest.iter().map(|left| left * left).sum::<f64>());
    let weight = 1.0 / (NOISE_PRIOR * NOISE_PRIOR);
    (((n * n + 4.0 * weight * squares).sqrt() - n) / (2.0 * weight)).max(LEAST_NOISE * LEAST_NOISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The negative logarithm of the posterior, without constants.
    fn cost(rows: &[Vec<f64>], values: &[f64], priors: &[Prior], coefficients: &[f64]) -> f64 {
        let rest = rows.iter().zip(values).map(|(row, value)| value - row.iter().zip(coefficients).map(|(a, b)| a * b).sum::<f64>());
        let rest: Vec<f64> = rest.collect();
        let variance = noise(&rest);
        let squares: f64 = rest.iter().map(|left| left * left).sum();
        let penalties = priors.iter().zip(coefficients).map(|(prior, value)| match prior {
            Prior::Normal(deviation) => 0.5 * (value / deviation).powi(2),
            Prior::Laplace => value.abs() / BEND_PRIOR,
        });
        let of_noise = 0.5 * rest.len() as f64 * variance.ln() + 0.5 * variance / (NOISE_PRIOR * NOISE_PRIOR);
        of_noise + 0.5 * squares / variance + penalties.sum::<f64>()
    }

    #[test]
    fn no_move_of_one_or_two_coefficients_is_more_likely() {
        let points: Vec<f64> =
            (0..50).map(|i| 0.5 + 0.008 * f64::from(25 - i32::abs(i - 25)) + 0.01 * f64::from((i * 7919) % 13)).collect();
        let basis = Basis::new(points.len(), Duration::from_secs(180));
        let rows: Vec<Vec<f64>> = (0..points.len()).map(|index| basis.features(index)).collect();
        let priors = basis.priors();
        let found = descend(&rows, &points, &priors);
        let best = cost(&rows, &points, &priors, &found);
        for (i, j) in (0..found.len()).flat_map(|i| (0..=i).map(move |j| (i, j))) {
            for (first, second) in [(1e-3, 0.0), (-1e-3, 0.0), (1e-3, -1e-3), (-1e-3, 1e-3)] {
                let mut moved = found.clone();
                moved[i] += first;
                moved[j] += second;
                assert!(cost(&rows, &points, &priors, &moved) > best - 1e-3, "{i} {j}");
            }
        }
        assert!(found[2..].iter().filter(|bend| **bend == 0.0).count() > 15, "most bends are none: {found:?}");
    }

    #[test]
    fn bends_and_seasons_are_those_of_the_history() {
        let short = Basis::new(50, Duration::from_secs(180));
        assert_eq!((short.bends.len(), short.bends[24], short.angles.len()), (25, 39.0, 0));
        assert_eq!(Basis::new(6, Duration::from_secs(180)).bends, [1.0, 2.0, 3.0]);
        assert_eq!(Basis::new(50, Duration::from_secs(3600)).angles.len(), 4, "two days");
        assert_eq!(Basis::new(400, Duration::from_secs(3600)).angles.len(), 7, "two weeks");
    }
}
