//! Which parameters explain all operating points at once? Nonlinear least squares over the logarithms of TTFT and ITL.
//!
//! Logarithms of the parameters are fitted, so that all stay above zero and a step means the same for each. The residual of a latency is the
//! logarithm of measured over modelled: 5 % off is 0.05 for a fast server and for a slow one. A point that is the average of n windows weighs
//! sqrt(n). Levenberg and Marquardt's damping, from several starts, since at loads near the maximum the surface has more than one valley.
//!
//! What the points leave open is decided by what was believed before ([`Trust`]). Weakly, where the points may speak; strongly but for a common
//! factor, where the server has become slower or faster as a whole and only a few windows of that are known: a slowdown by 30 % at one load is
//! explained by all three parameters times 1.3 and not by a new shape.

use nalgebra::{Matrix3, Vector3};

use super::filter::{BOUNDS, DEFAULTS, WAIT, array, clamp, vector};
use super::points::Point;
use super::{LARGEST_UTILIZATION, Seen};
use crate::planner::model::queueing::{Lengths, Parameters, State};
use crate::units::{Ratio, RequestsPerSecond, Role, Seconds, SecondsPerToken};

/// Relative standard deviation of a latency in one window, as it enters the fit.
pub(super) const NOISE: f64 = 0.05;
/// Relative standard deviation of a window's completions about the load that it stands for.
const ARRIVALS_NOISE: f64 = 0.04;
/// Standard deviation of the logarithm of the wait about the seed's 1, for what the points leave open.
const WAIT_DEVIATION: f64 = 1.0;
/// Factor from one candidate for the wait to the next, and candidates in each direction at one window.
const WAIT_STRIDE: f64 = 1.1;
const WAIT_STRIDES: usize = 4;
/// Iterations of one fit at most.
const ITERATIONS: usize = 40;
/// A step that gains less than this share of the cost ends a fit.
const GAIN: f64 = 1e-7;

/// What was believed before, against what the points say: standard deviations of the logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The points tell the parameters apart; the belief only keeps a fit from running off.
    Points,
    /// They do not: the shape stays near the belief, its scale is free.
    Belief,
}

impl Trust {
    /// Standard deviations of each parameter by itself, and of all by one factor.
    fn deviations(self) -> (f64, f64) {
        match self {
            Self::Points => (1.5, 1.5),
            Self::Belief => (0.3, 1.0),
        }
    }
}

/// The outcome of a fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fitted {
    /// The estimate.
    pub parameters: Parameters,
    /// Its covariance.
    pub covariance: [[f64; 3]; 3],
}

/// The parameters that explain the points best, given what was believed. `None` without points.
///
/// The wait is a matter of the server's and the prompts' kind and not of its speed: where the points tell parameters apart it is looked for, near the
/// one that was believed; elsewhere it stays.
pub fn joint(role: Role, points: &[Point], believed: Parameters, trust: Trust) -> Option<Fitted> {
    let with = |wait: f64| {
        let (fitted, cost) = with_wait(role, points, Parameters { wait: Ratio(wait), ..believed }, trust)?;
        Some((fitted, cost + (wait.ln() / WAIT_DEVIATION).powi(2)))
    };
    let mut best = with(believed.wait.get())?;
    // A pool of one phase has its wait and its alpha in one product, or none.
    if role == Role::Aggregated && trust == Trust::Points {
        for stride in [WAIT_STRIDE, 1.0 / WAIT_STRIDE] {
            for _ in 0..WAIT_STRIDES {
                let next = (best.0.parameters.wait.get() * stride).clamp(WAIT.0, WAIT.1);
                match with(next).filter(|(_, cost)| *cost < best.1) {
                    Some(better) => best = better,
                    None => break,
                }
            }
        }
    }
    Some(best.0)
}

/// The same with the wait as it is believed, and the cost.
fn with_wait(role: Role, points: &[Point], believed: Parameters, trust: Trust) -> Option<(Fitted, f64)> {
    if points.is_empty() {
        return None;
    }
    let wait = believed.wait;
    let center = vector(believed).map(f64::ln);
    let (own, common) = trust.deviations();
    // Residuals of the belief: each parameter about the common factor, and that factor.
    let prior = move |at: &Vector3<f64>| {
        let moved = at - center;
        let factor = moved.mean();
        [(moved[0] - factor) / own, (moved[1] - factor) / own, (moved[2] - factor) / own, factor / common]
    };
    let residuals = |at: &Vector3<f64>| {
        let mut all = residuals(role, points, exponential(at, wait))?;
        all.extend(prior(at));
        Some(all)
    };
    let starts = starts(role, points, believed);
    let fits = starts.iter().filter_map(|start| minimize(vector(*start).map(f64::ln), 3, &residuals));
    let best = fits.min_by(|one, other| one.cost.total_cmp(&other.cost))?;
    let parameters = exponential(&best.at, wait);
    let state = vector(parameters);
    let spread = (spread(role, points, parameters) / NOISE).powi(2);
    let information = best.normal + Matrix3::identity() * 1e-9;
    let relative = information.try_inverse()? * spread;
    let covariance = array(&Matrix3::from_fn(|i, j| relative[(i, j)] * state[i] * state[j]));
    Some((Fitted { parameters, covariance }, best.cost))
}

/// Where fits begin: the belief, the seed's bootstrap of the least and the most loaded point, and the defaults; each brought to where the points
/// are possible.
fn starts(role: Role, points: &[Point], believed: Parameters) -> Vec<Parameters> {
    let bootstrap = |point: &Point| {
        let seen = point.seen;
        Parameters::bootstrap(seen.ttft?, seen.itl?, seen.lengths)
    };
    let by_load = |one: &&Point, other: &&Point| one.seen.served.get().total_cmp(&other.seen.served.get());
    let ends = [points.iter().min_by(by_load), points.iter().max_by(by_load)];
    let guesses = ends.into_iter().flatten().filter_map(bootstrap);
    [believed, DEFAULTS].into_iter().chain(guesses).map(|start| possible(role, points, start)).collect()
}

/// The parameters with work that is small enough for all points.
fn possible(role: Role, points: &[Point], start: Parameters) -> Parameters {
    let utilization = |point: &Point| point.seen.served.get() * start.work(role, point.seen.lengths).get();
    let most = points.iter().map(utilization).fold(0.0, f64::max);
    let factor = (LARGEST_UTILIZATION / most).min(1.0);
    clamp(&vector(start).component_mul(&Vector3::new(1.0, factor, factor)), start.wait)
}

/// Residuals of all latencies of all points, in standard deviations of one window. `None` where a point is impossible.
pub(super) fn residuals(role: Role, points: &[Point], parameters: Parameters) -> Option<Vec<f64>> {
    let mut all = Vec::with_capacity(2 * points.len() + 4);
    for point in points {
        let seen = &point.seen;
        let expected = parameters.at(role, seen.served, seen.lengths)?;
        let of = |(found, expected): (f64, f64)| (found / expected).ln() / NOISE * point.weight();
        all.extend(seen.ttft.map(|ttft| of((ttft.get(), expected.ttft.get()))));
        all.extend(seen.itl.map(|itl| of((itl.get(), expected.itl.get()))));
    }
    Some(all)
}

/// Relative standard deviation of the latencies about the model. Four latencies with the usual noise are added, so that a perfect fit of few points
/// is not taken for perfect data.
pub fn spread(role: Role, points: &[Point], parameters: Parameters) -> f64 {
    const ADDED: f64 = 4.0;
    let Some(residuals) = residuals(role, points, parameters) else { return NOISE };
    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let free = (residuals.len() as f64 - 3.0).max(0.0);
    NOISE * ((squares + ADDED) / (free + ADDED)).sqrt()
}

/// Mean logarithm of measured over modelled latency, each weighted by how well the model can know it, and its standard error. `None` where nothing
/// can be compared.
pub fn mean_shift(role: Role, windows: &[Seen], parameters: Parameters) -> Option<(f64, f64)> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for seen in windows {
        for (latency, weight, _) in weighed(role, seen, parameters)? {
            sum += weight * latency;
            weights += weight;
        }
    }
    (weights > 0.0).then(|| (sum / weights, weights.powf(-0.5)))
}

/// The logarithms of measured over modelled latency of a window, with their weights and their slopes by the logarithms of the parameters.
fn weighed(role: Role, seen: &Seen, parameters: Parameters) -> Option<impl Iterator<Item = (f64, f64, Vector3<f64>)> + use<>> {
    let expected = parameters.at(role, seen.served, seen.lengths)?;
    let [ttft, itl] = slopes_of(role, seen.served, seen.lengths, parameters)?;
    let of = move |(found, modelled, slope): (Option<Seconds>, Seconds, Vector3<f64>)| {
        found.map(|found| ((found.get() / modelled.get()).ln(), doubt(&expected, modelled).powi(-2), slope))
    };
    Some([(seen.ttft, expected.ttft, ttft), (seen.itl, expected.itl, itl)].into_iter().filter_map(of))
}

impl Fitted {
    /// [`mean_shift`] against a fit: its standard error has in it that the parameters themselves are only estimated. Few points at low loads say
    /// little of a high one.
    pub fn mean_shift(&self, role: Role, windows: &[Seen]) -> Option<(f64, f64)> {
        let (shift, error) = mean_shift(role, windows, self.parameters)?;
        let (mut slope, mut weights) = (Vector3::zeros(), 0.0);
        for seen in windows {
            for (_, weight, own) in weighed(role, seen, self.parameters)? {
                slope += own * weight;
                weights += weight;
            }
        }
        let state = vector(self.parameters);
        let relative = Matrix3::from_fn(|i, j| self.covariance[i][j] / (state[i] * state[j]));
        let slope = slope / weights;
        Some((shift, error.hypot((slope.transpose() * relative * slope)[(0, 0)].max(0.0).sqrt())))
    }
}

/// Relative standard deviation of a latency about the model at one load: the window's noise, and what the noise of its arrivals does to it. Near
/// the maximum a few requests more make a far longer iteration: d ln(latency) / d ln(lambda) = T / latency * rho / (1 - rho).
pub(super) fn doubt(state: &State, latency: Seconds) -> f64 {
    let slope = state.iteration.get() / latency.get() * state.utilization.get() / (1.0 - state.utilization.get());
    NOISE.hypot(ARRIVALS_NOISE * slope)
}

/// The slopes of the latencies that a window has.
pub(super) fn slopes(role: Role, seen: &Seen, parameters: Parameters) -> Option<Vec<Vector3<f64>>> {
    let [ttft, itl] = slopes_of(role, seen.served, seen.lengths, parameters)?;
    Some(seen.ttft.map(|_| ttft).into_iter().chain(seen.itl.map(|_| itl)).collect())
}

/// d ln(TTFT) and d ln(ITL) by d ln of alpha, beta and gamma. `None` where rho is 1 or above.
pub(super) fn slopes_of(role: Role, served: RequestsPerSecond, lengths: Lengths, parameters: Parameters) -> Option<[Vector3<f64>; 2]> {
    let state = parameters.at(role, served, lengths)?;
    let only = |beta: f64, gamma: f64| Parameters { beta: SecondsPerToken(beta), gamma: SecondsPerToken(gamma), ..parameters };
    // Work is linear in beta and gamma, so each one's part is the work with the other at zero.
    let (of_beta, of_gamma) = (only(parameters.beta.get(), 0.0), only(0.0, parameters.gamma.get()));
    let iteration = state.iteration.get();
    let per_utilization = iteration / (1.0 - state.utilization.get());
    let part = |one: &Parameters| served.get() * one.work(role, lengths).get() * per_utilization;
    let (prompt, token) = (|one: &Parameters| one.prompt_work(lengths), |one: &Parameters| one.token_work(lengths));
    let wait = parameters.wait.get();
    let ttft = Vector3::new(wait * iteration, wait * part(&of_beta) + prompt(&of_beta), wait * part(&of_gamma) + prompt(&of_gamma));
    let itl = Vector3::new(iteration, part(&of_beta) + token(&of_beta), part(&of_gamma) + token(&of_gamma));
    Some([ttft / state.ttft.get(), itl / state.itl.get()])
}

fn exponential(at: &Vector3<f64>, wait: Ratio) -> Parameters {
    clamp(&at.map(f64::exp), wait)
}

/// A minimum.
pub(super) struct Minimum {
    pub at: Vector3<f64>,
    /// Sum of the squared residuals.
    pub cost: f64,
    /// J' J there; identity for what was not free.
    pub normal: Matrix3<f64>,
}

/// Levenberg and Marquardt's method over the first `free` coordinates. `None` where the start is impossible. Never leaves what is possible, and
/// never makes it worse.
pub(super) fn minimize(start: Vector3<f64>, free: usize, residuals: &impl Fn(&Vector3<f64>) -> Option<Vec<f64>>) -> Option<Minimum> {
    let squares = |all: &[f64]| all.iter().map(|one| one * one).sum::<f64>();
    let (mut at, mut current) = (start, residuals(&start)?);
    let mut cost = squares(&current);
    let mut damping = 1e-3_f64;
    let mut normal = Matrix3::identity();
    for _ in 0..ITERATIONS {
        let gradient;
        (normal, gradient) = slope(&at, free, &current, residuals);
        let mut gained = 0.0;
        while damping < 1e8 {
            let damped = normal + Matrix3::from_diagonal(&normal.diagonal().map(|own| damping * (own + 1e-9)));
            let step = damped.cholesky().map(|factors| factors.solve(&gradient));
            let next = step.map(|step| at - step.map(|one| one.clamp(-1.0, 1.0)));
            match next.and_then(|next| Some((next, residuals(&next)?))) {
                Some((next, there)) if squares(&there) < cost => {
                    gained = cost - squares(&there);
                    (at, cost, current) = (next, squares(&there), there);
                    damping = (damping * 0.2).max(1e-9);
                    break;
                }
                _ => damping *= 5.0,
            }
        }
        if gained <= GAIN * cost + 1e-12 {
            break;
        }
    }
    Some(Minimum { at, cost, normal })
}

/// J' J and J' r, by differences.
fn slope(
    at: &Vector3<f64>,
    free: usize,
    current: &[f64],
    residuals: &impl Fn(&Vector3<f64>) -> Option<Vec<f64>>,
) -> (Matrix3<f64>, Vector3<f64>) {
    const STEP: f64 = 1e-5;
    let mut slopes = vec![Vector3::zeros(); current.len()];
    for column in 0..free.min(3) {
        let mut moved = *at;
        // Downwards, where less work keeps the points possible.
        moved[column] -= STEP;
        let Some(there) = residuals(&moved) else { continue };
        for (slope, (here, there)) in slopes.iter_mut().zip(current.iter().zip(&there)) {
            slope[column] = (here - there) / STEP;
        }
    }
    let (mut normal, mut gradient) = (Matrix3::zeros(), Vector3::zeros());
    for (slope, residual) in slopes.iter().zip(current) {
        normal += slope * slope.transpose();
        gradient += slope * *residual;
    }
    for fixed in free.min(3)..3 {
        normal[(fixed, fixed)] = 1.0;
    }
    (normal, gradient)
}

/// Bounds of the logarithms: those of the parameters.
pub(super) fn log_bounds(default: f64) -> (f64, f64) {
    ((default * BOUNDS.0).ln(), (default * BOUNDS.1).ln())
}
