//! How does one window change what is believed? The extended Kalman filter of seed 001 section 4.2, with the seed's constants.
//!
//! State: alpha, beta, gamma. They stay as they are from window to window, but for 5 % of themselves that nobody knows. Observation: TTFT and
//! ITL by the closed form. An observation that is too far from what was expected, measured by what the filter itself calls likely (normalized
//! innovation squared), changes nothing.
//!
//! | what | value |
//! |---|---|
//! | predict | P + Q, Q = diag((0.05 x)^2) |
//! | innovation | y = z - h(x), S = H P H' + R, R = diag((noise z)^2), noise at least 0.05 / 1.96 |
//! | gate | y' S^-1 y below 7.378, the 97.5 % point of chi-square with two degrees of freedom; 5.024 where there is one |
//! | update | K = P H' S^-1, x + K y inside the bounds; P in Joseph's form (I - K H) P (I - K H)' + K R K', which stays symmetric and positive |
//!
//! Worked (`tests.rs`): a filter that has just started at the truth takes in TTFT and ITL that are both 5 % higher, and stops twice the truth.
//!
//! H is the exact derivative. The original takes differences of 1 %, which near rho = 1 step over the end of the model.

use nalgebra::{Matrix2, Matrix2x3, Matrix3, Vector2, Vector3};
use serde::{Deserialize, Serialize};

use super::{Seen, fit};
use crate::planner::model::queueing::Parameters;
use crate::units::{Ratio, Role, Seconds, SecondsPerToken};

/// Where the bootstrap fails (seed 001 section 8): 5 ms, 0.05 ms, 0.05 us.
pub const DEFAULTS: Parameters =
    Parameters { alpha: Seconds(0.005), beta: SecondsPerToken(5e-5), gamma: SecondsPerToken(5e-8), wait: Ratio(1.0) };
/// Bounds of the wait: one iteration as in the seed's form, and what the most uneven iterations would make of it.
pub(super) const WAIT: (f64, f64) = (1.0, 4.0);
/// Bounds of the parameters, as factors of the defaults.
pub(super) const BOUNDS: (f64, f64) = (0.01, 100.0);
/// Relative standard deviation of TTFT and ITL at least: an error of 5 % at the 97.5 % point of the normal distribution.
pub const LEAST_NOISE: f64 = 0.05 / 1.96;
/// Relative change of each parameter from window to window that nobody knows (`DefaultPercentChange`).
const DRIFT: f64 = 0.05;
/// 97.5 % points of chi-square with one and two degrees of freedom (`DefaultMaxNIS`; the seed calls it the 95 % point).
const GATE: [f64; 2] = [5.024, 7.378];
/// Relative standard deviation of a parameter at most: what the bounds would allow is no knowledge either.
const LARGEST_DOUBT: f64 = 1.0;
/// Doubt about work that was just found to be impossible.
const DOUBT_WHERE_IMPOSSIBLE: f64 = 0.5;

/// The estimate and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// x.
    pub parameters: Parameters,
    /// P, in the order alpha, beta, gamma; symmetric.
    pub covariance: [[f64; 3]; 3],
}

/// The filter's verdict on a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Whether it passed the gate and was taken in.
    pub accepted: bool,
    /// Normalized innovation squared; `None` where the model has no latency to compare with.
    pub nis: Option<f64>,
}

impl Filter {
    /// A first estimate, known to 5 % of itself (the seed's P).
    pub fn new(guess: Parameters) -> Self {
        let parameters = clamp(&vector(guess), guess.wait);
        Self { parameters, covariance: array(&relative(&parameters, DRIFT)) }
    }

    /// An estimate with a covariance of its own.
    pub(super) fn with(parameters: Parameters, covariance: &[[f64; 3]; 3]) -> Self {
        Self { parameters, covariance: array(&bounded(matrix(covariance), &parameters)) }
    }

    /// Whether it is an estimate: inside the bounds, with a covariance that is symmetric and positive.
    pub(super) fn is_sound(&self) -> bool {
        let state = vector(self.parameters);
        let covariance = matrix(&self.covariance);
        if !are_within_bounds(self.parameters) || !covariance.iter().all(|value| value.is_finite()) {
            return false;
        }
        // In shares of the parameters, which differ by five orders of magnitude.
        let relative = Matrix3::from_fn(|i, j| covariance[(i, j)] / (state[i] * state[j]));
        let is_symmetric = (relative - relative.transpose()).abs().max() <= 1e-9;
        // Rounding may leave a direction that is known exactly a little below zero.
        is_symmetric && relative.diagonal().min() > 0.0 && relative.symmetric_eigenvalues().min() >= -1e-9
    }

    /// Brings the estimate to where what was seen is possible: rho at most `largest`.
    pub fn allow(&mut self, role: Role, seen: &Seen, largest: f64) {
        let utilization = seen.served.get() * self.parameters.work(role, seen.lengths).get();
        if utilization <= largest {
            return;
        }
        self.scale(largest / utilization);
    }

    /// Multiplies the work of a request, and doubts it.
    pub(super) fn scale(&mut self, factor: f64) {
        let mut state = vector(self.parameters);
        state[1] *= factor;
        state[2] *= factor;
        self.parameters = clamp(&state, self.parameters.wait);
        let doubted = matrix(&self.covariance) + relative(&self.parameters, DOUBT_WHERE_IMPOSSIBLE);
        self.covariance = array(&bounded(doubted, &self.parameters));
    }

    /// Predicts, compares, and takes the window in if it passes the gate. `noise` is the relative standard deviation of TTFT and ITL.
    pub fn update(&mut self, role: Role, seen: &Seen, noise: f64) -> Judged {
        let state = vector(self.parameters);
        let predicted = bounded(matrix(&self.covariance) + relative(&self.parameters, DRIFT), &self.parameters);
        let Some(expected) = self.parameters.at(role, seen.served, seen.lengths) else { return Judged { accepted: false, nis: None } };
        let Some(slopes) = fit::slopes_of(role, seen.served, seen.lengths, self.parameters) else {
            return Judged { accepted: false, nis: None };
        };
        // A latency that is not there has an innovation of zero, a slope of zero and a variance of one: it weighs nothing.
        let (mut innovation, mut slope, mut variance) = (Vector2::zeros(), Matrix2x3::zeros(), Matrix2::identity());
        let mut observed = 0;
        for (row, (found, modelled)) in [(seen.ttft, expected.ttft), (seen.itl, expected.itl)].into_iter().enumerate() {
            let Some(found) = found else { continue };
            innovation[row] = found.get() - modelled.get();
            // Slopes are of logarithms: d latency / d x = slope * latency / x.
            slope.set_row(row, &(slopes[row].component_div(&state) * modelled.get()).transpose());
            let relative = noise.hypot(fit::doubt(&expected, modelled) - fit::NOISE);
            variance[(row, row)] = (relative * found.get()).powi(2);
            observed += 1;
        }
        let spread = slope * predicted * slope.transpose() + variance;
        let Some(inverse) = spread.try_inverse() else { return Judged { accepted: false, nis: None } };
        let nis = innovation.dot(&(inverse * innovation));
        let gate = match observed {
            0 => return Judged { accepted: false, nis: None },
            1 => GATE[0],
            _ => GATE[1],
        };
        if nis.is_nan() || nis >= gate {
            return Judged { accepted: false, nis: nis.is_finite().then_some(nis) };
        }
        let gain = predicted * slope.transpose() * inverse;
        let rest = Matrix3::identity() - gain * slope;
        let covariance = rest * predicted * rest.transpose() + gain * variance * gain.transpose();
        self.parameters = clamp(&(state + gain * innovation), self.parameters.wait);
        self.covariance = array(&bounded(covariance, &self.parameters));
        Judged { accepted: true, nis: Some(nis) }
    }
}

pub(super) fn vector(parameters: Parameters) -> Vector3<f64> {
    Vector3::new(parameters.alpha.get(), parameters.beta.get(), parameters.gamma.get())
}

/// The nearest parameters within the bounds; what is not a number becomes the default.
pub(super) fn clamp(state: &Vector3<f64>, wait: Ratio) -> Parameters {
    let within = |value: f64, default: f64| {
        if value.is_nan() { default } else { value.clamp(default * BOUNDS.0, default * BOUNDS.1) }
    };
    Parameters {
        alpha: Seconds(within(state[0], DEFAULTS.alpha.get())),
        beta: SecondsPerToken(within(state[1], DEFAULTS.beta.get())),
        gamma: SecondsPerToken(within(state[2], DEFAULTS.gamma.get())),
        wait,
    }
}

/// Whether parameters are such as are learned.
pub(super) fn are_within_bounds(parameters: Parameters) -> bool {
    (WAIT.0..=WAIT.1).contains(&parameters.wait.get()) && clamp(&vector(parameters), parameters.wait) == parameters
}

/// diag((share x)^2).
fn relative(parameters: &Parameters, share: f64) -> Matrix3<f64> {
    Matrix3::from_diagonal(&vector(*parameters).map(|value| (share * value).powi(2)))
}

/// The covariance with no variance above [`LARGEST_DOUBT`], scaled so that the correlations stay.
fn bounded(covariance: Matrix3<f64>, parameters: &Parameters) -> Matrix3<f64> {
    let largest = vector(*parameters) * LARGEST_DOUBT;
    let scale = Vector3::from_fn(|i, _| {
        let deviation = covariance[(i, i)].max(0.0).sqrt();
        if deviation > largest[i] { largest[i] / deviation } else { 1.0 }
    });
    let scaled = Matrix3::from_fn(|i, j| covariance[(i, j)] * scale[i] * scale[j]);
    let symmetric = (scaled + scaled.transpose()) * 0.5;
    // A covariance that left the number range says nothing: then everything is in doubt.
    if symmetric.iter().all(|value| value.is_finite()) { symmetric } else { relative(parameters, LARGEST_DOUBT) }
}

pub(super) fn matrix(covariance: &[[f64; 3]; 3]) -> Matrix3<f64> {
    Matrix3::from_fn(|i, j| covariance[i][j])
}

pub(super) fn array(covariance: &Matrix3<f64>) -> [[f64; 3]; 3] {
    std::array::from_fn(|i| std::array::from_fn(|j| covariance[(i, j)]))
}
