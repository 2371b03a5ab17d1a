//! How often must a series be differenced until its level stays? The test of Kwiatkowski, Phillips, Schmidt and Shin.
//!
//! The statistic is the sum of squared partial sums of the deviations from the mean, over n^2 times the long-run variance. A level that
//! wanders makes it large. The long-run variance is Bartlett's weighted sum of autocovariances up to lag floor(3 sqrt(n) / 13). Above 0.463
//! (the 5 % point) the series is differenced and tested again, twice at most.
//!
//! Little data: ten windows rarely reject anything, so a short history is taken as stationary unless it plainly trends.
//! Known limit: a single jump of the level looks like wandering. For one step ahead that is the safer of the two errors.
//!
//! Source: Journal of Econometrics 54 (1992), equations 11 to 13 and table 1.

/// The 5 % point for a series with a level and no trend.
const CRITICAL: f64 = 0.463;
/// Differences at most.
const MOST: usize = 2;

/// The series differenced once.
pub(super) fn difference(values: &[f64]) -> Vec<f64> {
    values.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// The series differenced as often as needed, and how often that was.
pub(super) fn stationary(values: &[f64]) -> (Vec<f64>, usize) {
    let mut series = values.to_vec();
    for order in 0..MOST {
        // Three points are the fewest whose partial sums say anything.
        if series.len() < 4 || statistic(&series) <= CRITICAL {
            return (series, order);
        }
        series = difference(&series);
    }
    (series, MOST)
}

/// The statistic; 0 where all values are equal.
pub(super) fn statistic(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let deviations: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let covariance = |lag: usize| deviations.iter().zip(&deviations[lag.min(deviations.len())..]).map(|(a, b)| a * b).sum::<f64>() / n;
    let lags = (3.0 * n.sqrt() / 13.0) as usize;
    let weighted: f64 = (1..=lags).map(|lag| 2.0 * (1.0 - lag as f64 / (lags as f64 + 1.0)) * covariance(lag)).sum();
    let variance = covariance(0) + weighted;
    if variance <= 1e-12 * mean.abs().max(1.0).powi(2) {
        return 0.0;
    }
    let mut sum = 0.0;
    let squares: f64 = deviations
        .iter()
        .map(|deviation| {
            sum += deviation;
            sum * sum
        })
        .sum();
    squares / (n * n * variance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_about_a_level_is_left_alone() {
        let series: Vec<f64> = (0..60).map(|i| 100.0 + f64::from((i * 7919) % 13)).collect();
        assert_eq!(stationary(&series).1, 0);
    }

    #[test]
    fn a_line_is_differenced_once_and_a_parabola_twice() {
        let line: Vec<f64> = (0..60).map(|i| 5.0 * f64::from(i) + f64::from((i * 7919) % 13)).collect();
        assert_eq!(stationary(&line).1, 1);
        let parabola: Vec<f64> = (0..60).map(|i| f64::from(i * i)).collect();
        assert_eq!(stationary(&parabola).1, 2);
    }

    #[test]
    fn the_statistic_of_a_worked_series() {
        // Deviations -1.5 -0.5 0.5 1.5, partial sums -1.5 -2 -1.5 0: 8.5 / (16 * 1.25).
        assert!((statistic(&[1.0, 2.0, 3.0, 4.0]) - 0.425).abs() < 1e-12);
    }

    #[test]
    fn equal_values_need_no_difference() {
        assert_eq!(stationary(&[3.0; 20]), (vec![3.0; 20], 0));
    }
}
