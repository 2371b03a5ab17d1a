//! Which numbers make a vector of residuals smallest? Levenberg and Marquardt's method with differences for derivatives.
//!
//! For problems of at most a dozen unknowns and some hundred residuals. The damping follows each unknown's own curvature, so that units do
//! not matter. A local minimum is all it promises; the caller starts it near the answer.
//!
//! Source: Marquardt, SIAM Journal 11 (1963) 431.

use nalgebra::{DMatrix, DVector};

/// Steps at most.
const STEPS: usize = 25;
/// A step that gains less than this share ends the search.
const GAIN: f64 = 1e-6;
/// Step of a difference; the unknowns are of the order of 1.
const DIFFERENCE: f64 = 1e-5;
/// Damping beyond which nothing is left to try.
const LARGEST_DAMPING: f64 = 1e4;
/// A mean square below this is zero: residuals, too, are of the order of 1.
const NOTHING: f64 = 1e-12;

/// A minimum near a start.
pub(super) struct Minimum {
    pub at: Vec<f64>,
    /// Sum of squares there.
    pub squares: f64,
}

fn squares(residuals: &[f64]) -> f64 {
    residuals.iter().map(|residual| residual * residual).sum()
}

/// The minimum near `start`. Residuals are always as many; an infinite one forbids the place.
pub(super) fn minimize(start: Vec<f64>, residuals: impl Fn(&[f64]) -> Vec<f64>) -> Minimum {
    let mut current = residuals(&start);
    let mut best = Minimum { squares: squares(&current), at: start };
    let unknowns = best.at.len();
    let mut damping = 1e-3;
    for _ in 0..STEPS {
        if best.squares <= NOTHING * current.len() as f64 {
            break;
        }
        let mut jacobian = DMatrix::zeros(current.len(), unknowns);
        for unknown in 0..unknowns {
            let mut moved = best.at.clone();
            moved[unknown] += DIFFERENCE;
            for (row, (there, here)) in residuals(&moved).iter().zip(&current).enumerate() {
                jacobian[(row, unknown)] = (there - here) / DIFFERENCE;
            }
        }
        let slope = jacobian.tr_mul(&DVector::from_column_slice(&current));
        let curvature = jacobian.tr_mul(&jacobian);
        let before = best.squares;
        while damping < LARGEST_DAMPING {
            if let Some(at) = step(&best.at, &curvature, &slope, damping) {
                let there = residuals(&at);
                let sum = squares(&there);
                if sum < best.squares {
                    (best, current) = (Minimum { at, squares: sum }, there);
                    damping = (damping / 5.0).max(1e-9);
                    break;
                }
            }
            damping *= 4.0;
        }
        if damping >= LARGEST_DAMPING || before - best.squares <= GAIN * before {
            break;
        }
    }
    best
}

fn step(at: &[f64], curvature: &DMatrix<f64>, slope: &DVector<f64>, damping: f64) -> Option<Vec<f64>> {
    let mut damped = curvature.clone();
    for i in 0..at.len() {
        damped[(i, i)] = curvature[(i, i)] * (1.0 + damping) + 1e-12 * (1.0 + damping);
    }
    let step = damped.cholesky()?.solve(slope);
    Some(at.iter().zip(step.iter()).map(|(value, change)| value - change).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottom_of_rosenbrocks_valley_is_found() {
        let found = minimize(vec![-1.2, 1.0], |x| vec![1.0 - x[0], 10.0 * (x[1] - x[0] * x[0])]);
        assert!(found.squares < 1e-9, "{:?}", found.at);
    }

    #[test]
    fn no_unknowns_are_no_search() {
        assert_eq!(minimize(Vec::new(), |_| vec![3.0, 4.0]).squares, 25.0);
    }
}
