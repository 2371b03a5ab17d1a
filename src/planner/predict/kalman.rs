//! What is the level now, and where is it heading? A local linear trend followed by a Kalman filter.
//!
//! State: level and trend. From window to window the level grows by the trend, and both drift by noise of variance `q_level` and `q_trend`;
//! a window shows the level with noise of variance `r`. With the defaults (1, 0.1, 10) the steady gain is 0.42 on the level and 0.08 on the
//! trend: of a jump the forecast has half after one window, all after three, and overshoots by up to a fifth; a new slope is met after ten.
//!
//! | step | value |
//! |---|---|
//! | first window z | level z, trend 0, covariance 1000 I left as it is |
//! | predict | level + trend; P = F P F' + Q, F = [[1, 1], [0, 1]] |
//! | update | K = P H' / (H P H' + r), H = [1, 0]; P = (I - K H) P (I - K H)' + K r K' |
//! | forecast | level + trend |
//!
//! Little data: the filter runs from the first window, but below `min_points` windows the last value is forecast, since the trend of two
//! windows is their noise.
//!
//! Known limits. The variances are absolute: noise of 10 requests squared is much for a small fleet and nothing for a large one, where the
//! filter follows every window. A jump overshoots, and a fall to zero is forecast below zero, which the caller cuts off.
//!
//! Source: the textbook filter (Harvey, Forecasting, Structural Time Series Models and the Kalman Filter, 1989, section 4.3); constants and
//! the start from NVIDIA Dynamo's planner, whose forecasts (1.6.1) it equals to 1e-9.

use nalgebra::{Matrix2, RowVector2, Vector2};
use serde::{Deserialize, Serialize};

/// Doubt about level and trend before the first window, as a variance.
const INITIAL_VARIANCE: f64 = 1000.0;

/// What is assumed about the noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Variance by which the level drifts in a window, in the unit of the series squared. Above zero.
    pub q_level: f64,
    /// Variance by which the trend drifts in a window. Above zero.
    pub q_trend: f64,
    /// Variance of what a window shows about the level. Above zero.
    pub r: f64,
    /// Windows before which the last value is forecast.
    pub min_points: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { q_level: 1.0, q_trend: 0.1, r: 10.0, min_points: 5 }
    }
}

/// What is believed after the windows so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// None before the first window.
    belief: Option<Belief>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Belief {
    level: f64,
    trend: f64,
    /// Variance of the level, covariance, variance of the trend.
    covariance: [f64; 3],
}

impl Filter {
    /// Takes in the next window.
    pub(super) fn observe(&mut self, value: f64, settings: &Settings) {
        let Some(belief) = self.belief else {
            self.belief = Some(Belief { level: value, trend: 0.0, covariance: [INITIAL_VARIANCE, 0.0, INITIAL_VARIANCE] });
            return;
        };
        let [level, both, trend] = belief.covariance;
        let step = Matrix2::new(1.0, 1.0, 0.0, 1.0);
        let drift = Matrix2::from_diagonal(&Vector2::new(settings.q_level.max(1e-12), settings.q_trend.max(1e-12)));
        let noise = settings.r.max(1e-9);
        let expected = step * Vector2::new(belief.level, belief.trend);
        let doubt = step * Matrix2::new(level, both, both, trend) * step.transpose() + drift;
        let gain = doubt.column(0) / (doubt[(0, 0)] + noise);
        let state = expected + gain * (value - expected[0]);
        let kept = Matrix2::identity() - gain * RowVector2::new(1.0, 0.0);
        let covariance = kept * doubt * kept.transpose() + gain * noise * gain.transpose();
        self.belief =
            Some(Belief { level: state[0], trend: state[1], covariance: [covariance[(0, 0)], covariance[(0, 1)], covariance[(1, 1)]] });
    }

    /// The next window, possibly below zero; `None` before the first one.
    pub(super) fn forecast(&self) -> Option<f64> {
        self.belief.map(|belief| belief.level + belief.trend)
    }
}
