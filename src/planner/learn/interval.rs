//! Which capacities do the observations allow? The interval about lambda*, by profile likelihood.
//!
//! A capacity is possible if some parameters have it and still explain the points about as well as the best ones do. For each candidate the
//! parameters are fitted again under the condition that lambda* is just that; alpha follows from it, so one unknown less is left:
//! alpha = T (1 - lambda* W), where T is what the objective leaves for an iteration. Candidates go up and down from the estimate until the sum of
//! squares has grown by 4 standard variances of the points (95 %).
//!
//! At one constant load the interval is wide, and that is the truth: TTFT 17 ms and ITL 8.6 ms at rho 0.05 fit capacities from 7 to 81 requests/s.
//! It always holds what was seen: a load that was served within the objective is below the upper end.
//!
//! Rejected: the filter's covariance. It is a straight line through a curve, and knows nothing of how far the parameters may really go.

use nalgebra::Vector3;
use serde::{Deserialize, Serialize};

use super::Learned;
use super::filter::{DEFAULTS, LEAST_NOISE};
use super::fit::{self, minimize};
use super::points::Point;
use crate::planner::model::queueing::{Lengths, Objective, Parameters};
use crate::units::{Ratio, Requests, RequestsPerSecond, Role, SecondsPerToken};

/// Growth of the sum of squares at the ends, in variances of the points.
const GROWTH: f64 = 4.0;
/// Error of the closed form itself, as a factor, by which the ends are moved out: against the simulator its capacity was up to 11 % too high
/// where TTFT binds, since prompts wait for each other, and 5 % too low where ITL does. No number of windows makes it smaller.
const FORM_ERROR: f64 = 1.05;
/// The same for the upper end, on which nothing rests but what people read.
const FORM_ERROR_UP: f64 = 1.1;
/// Factor from one candidate to the next.
const STRIDE: f64 = 1.15;
/// Candidates in each direction: a factor of 270.
const STRIDES: usize = 40;
/// Halvings of the last stride.
const HALVINGS: usize = 4;

/// What one replica can serve within the objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityInterval {
    /// At least this, as far as the points say. Zero where nothing is certain.
    pub lower: RequestsPerSecond,
    /// By the estimated parameters, inside the interval.
    pub estimate: RequestsPerSecond,
    /// At most this.
    pub upper: RequestsPerSecond,
}

impl CapacityInterval {
    /// Whether both ends are within `share` of the estimate.
    pub fn is_within(&self, share: f64) -> bool {
        self.lower.get() >= self.estimate.get() * (1.0 - share) && self.upper.get() <= self.estimate.get() * (1.0 + share)
    }
}

/// What a question about capacity is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// The pool's role.
    pub role: Role,
    /// Lengths of the requests to come.
    pub lengths: Lengths,
    /// The objective.
    pub objective: Objective,
    /// Requests in a batch at most.
    pub max_batch: Option<Requests>,
}

impl Question {
    /// lambda* with these parameters; `None` where the objective is out of reach.
    pub fn capacity(&self, parameters: Parameters) -> Option<RequestsPerSecond> {
        parameters.capacity(self.role, self.lengths, self.objective, self.max_batch).rate()
    }

    /// The parameters with that lambda* and with this beta, gamma and wait. `None` where none have it.
    fn with_capacity(&self, capacity: f64, beta: f64, gamma: f64, wait: Ratio) -> Option<Parameters> {
        // The work and what an objective leaves do not depend on alpha.
        let any = Parameters::new(DEFAULTS.alpha.get(), beta, gamma)?;
        let free = 1.0 - capacity * any.work(self.role, self.lengths).get();
        let ttft = if self.role == Role::Decode {
            f64::INFINITY
        } else {
            (self.objective.ttft.get() - any.prompt_work(self.lengths)) / wait.get()
        };
        let itl = if self.role == Role::Prefill { f64::INFINITY } else { self.objective.itl.get() - any.token_work(self.lengths) };
        let by_objective = ttft.min(itl) * free;
        let by_batch = self.max_batch.map_or(f64::INFINITY, |batch| batch.get() * free / (capacity * self.lengths.iterations(self.role)));
        Parameters::new(by_objective.min(by_batch), beta, gamma).map(|found| Parameters { wait, ..found })
    }
}

/// The interval; `None` where the estimated parameters cannot meet the objective at any rate.
pub fn capacity(learned: &Learned, question: &Question) -> Option<CapacityInterval> {
    let parameters = learned.parameters();
    let estimate = question.capacity(parameters)?.get();
    // Each point weighs as one window: averages have less noise, but the form's own error stays.
    let all = learned.all_points();
    let windows: Vec<Point> = all.as_slice().iter().map(|point| Point::of(&point.seen)).collect();
    let Some(residuals) = fit::residuals(question.role, &windows, parameters) else {
        // The estimate calls impossible what was seen: then nothing is certain.
        return Some(CapacityInterval {
            lower: RequestsPerSecond(0.0),
            estimate: RequestsPerSecond(estimate),
            upper: RequestsPerSecond(estimate * STRIDE.powi(STRIDES as i32)),
        });
    };
    let walk = Walk { question, points: &windows };
    let cost = residuals.iter().map(|one| one * one).sum::<f64>();
    let here = walk.cost(estimate, parameters).map_or(cost, |(least, _)| least.min(cost));
    let variance = (fit::spread(question.role, &windows, parameters).max(LEAST_NOISE) / fit::NOISE).powi(2);
    let limit = here + GROWTH * variance;
    let lower = walk.end(estimate, parameters, 1.0 / STRIDE, limit) / FORM_ERROR;
    let upper = walk.end(estimate, parameters, STRIDE, limit) * FORM_ERROR_UP;
    let rate = RequestsPerSecond;
    Some(CapacityInterval { lower: rate(lower.min(estimate)), estimate: rate(estimate), upper: rate(upper.max(estimate)) })
}

struct Walk<'a> {
    question: &'a Question,
    points: &'a [Point],
}

impl Walk<'_> {
    /// The least sum of squares with that capacity, near those parameters.
    fn cost(&self, capacity: f64, near: Parameters) -> Option<(f64, Parameters)> {
        // Of both phases the logarithms of beta and gamma are free; one phase alone sees them only together, as one factor.
        let both = self.question.role == Role::Aggregated;
        let (beta, gamma) = (near.beta.get(), near.gamma.get());
        let of = |at: &Vector3<f64>| {
            let (of_beta, of_gamma) = if both { (at[0], at[1]) } else { (at[0], at[0]) };
            self.question.with_capacity(capacity, beta * of_beta.exp(), gamma * of_gamma.exp(), near.wait)
        };
        let residuals = |at: &Vector3<f64>| fit::residuals(self.question.role, self.points, within(of(at)?)?);
        let found = minimize(Vector3::zeros(), if both { 2 } else { 1 }, &residuals)?;
        Some((found.cost, of(&found.at)?))
    }

    /// Goes from the estimate as far as the points allow; the last stride is halved a few times.
    fn end(&self, estimate: f64, parameters: Parameters, stride: f64, limit: f64) -> f64 {
        let (mut good, mut near) = (estimate, parameters);
        for _ in 0..STRIDES {
            let next = good * stride;
            match self.feasible(next, near, limit) {
                Some(found) => (good, near) = (next, found),
                None => {
                    let mut bad = next;
                    for _ in 0..HALVINGS {
                        let middle = (good * bad).sqrt();
                        match self.feasible(middle, near, limit) {
                            Some(found) => (good, near) = (middle, found),
                            None => bad = middle,
                        }
                    }
                    // The outer bracket: the end is not beyond it.
                    return bad;
                }
            }
        }
        good
    }

    fn feasible(&self, capacity: f64, near: Parameters, limit: f64) -> Option<Parameters> {
        // A smaller work makes room where the last one would be more than the whole replica.
        let shrunk = |factor: f64| Parameters {
            beta: SecondsPerToken(near.beta.get() * factor),
            gamma: SecondsPerToken(near.gamma.get() * factor),
            ..near
        };
        let starts = [near, shrunk(0.8), shrunk(0.4), shrunk(1.25)];
        let found = starts.into_iter().filter_map(|start| self.cost(capacity, start));
        found.filter(|(cost, _)| *cost <= limit).map(|(_, parameters)| parameters).next()
    }
}

/// Parameters inside the bounds, else none: the interval does not lean on a bound as the estimate may.
fn within(parameters: Parameters) -> Option<Parameters> {
    let inside = |value: f64, default: f64| {
        let (least, most) = fit::log_bounds(default);
        (least..=most).contains(&value.ln())
    };
    let all = inside(parameters.alpha.get(), DEFAULTS.alpha.get())
        && inside(parameters.beta.get(), DEFAULTS.beta.get())
        && inside(parameters.gamma.get(), DEFAULTS.gamma.get());
    all.then_some(parameters)
}
