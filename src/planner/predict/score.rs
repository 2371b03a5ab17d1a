//! How far off was a predictor lately? Discounted absolute one-step errors.
//!
//! Every forecast is held against the window that it was made for. An error counts 0.9 of itself a window later, so the last 10 windows
//! make up two thirds of the score: long enough that one burst does not decide, short enough that a change of regime does within half an
//! hour of 180 s windows.
//!
//! Little data: nothing before the first window that had a forecast. Known limit: errors are absolute, so the busy hours decide; those are
//! the ones in which an error costs replicas.

use serde::{Deserialize, Serialize};

/// What is left of an error a window later.
const MEMORY: f64 = 0.9;

/// Larger values count as this one, so that no sum leaves the number range.
const LARGEST: f64 = 1e300;

/// Discounted sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    error: f64,
    actual: f64,
    weight: f64,
}

impl Score {
    pub(super) fn observe(&mut self, forecast: f64, actual: f64) {
        self.error = MEMORY * self.error + (forecast - actual).abs().min(LARGEST);
        self.actual = MEMORY * self.actual + actual.abs().min(LARGEST);
        self.weight = MEMORY * self.weight + 1.0;
    }

    /// Mean absolute error in the unit of the series; `None` before the first forecast was tested.
    pub fn mean_error(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.error / self.weight)
    }

    /// Mean absolute error over the mean value; `None` as well where nothing but zeros, or next to nothing, came.
    pub fn ratio(&self) -> Option<f64> {
        let ratio = self.error / self.actual;
        (self.actual > 0.0 && ratio.is_finite()).then_some(ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_errors_fade() {
        let mut score = Score::default();
        assert_eq!((score.mean_error(), score.ratio()), (None, None));
        score.observe(100.0, 50.0);
        assert_eq!((score.mean_error(), score.ratio()), (Some(50.0), Some(1.0)));
        (0..100).for_each(|_| score.observe(50.0, 50.0));
        assert!(score.ratio().unwrap() < 0.01);
    }
}
