//! How does a window depend on the ones before? ARIMA(p, d, q) whose order the history chooses.
//!
//! | step | how |
//! |---|---|
//! | d | differenced until the KPSS test has nothing to say, twice at most (`kpss.rs`) |
//! | p, q and a constant | up to 5 each, by the smallest AICc: from (2, 2), (0, 0), (1, 0) and (0, 1) to neighbours that differ by one, while something gains |
//! | coefficients | the largest exact likelihood (`arma.rs`), by least squares over scaled innovations (`least_squares.rs`) |
//! | forecast | the filter's next value, summed up d times; at most one width of the history outside of what the history holds |
//!
//! When. The order and the coefficients are chosen anew when the history has grown by a twentieth since, and at every window up to twenty:
//! from five windows an order cannot be told, and one that is never revised (Dynamo's is not) follows a jump from 50 to 200 only as a
//! running mean does. In between only the filter runs. The last 200 windows count; once there are so many, the choice is made anew where the
//! number of the window since the Unix epoch passes a multiple of ten. So exporters that started at different times, and have all seen the last 200
//! windows, come to the same model within ten more.
//!
//! | refitted at a growth of | every window | 5 % | 10 % | 20 % | a third |
//! |---|---|---|---|---|---|
//! | mean absolute error, Azure code at 60 s (Dynamo 127.5) | 134.9 | 136.1 | 147.7 | 146.2 | 160.8 |
//! | the same, conversation (Dynamo 62.5) | 29.0 | 29.4 | 30.1 | 32.0 | 40.9 |
//!
//! Little data: below five windows the last value is forecast (`few_points`). AICc allows one or two coefficients up to ten windows. A
//! history of equal values forecasts that value.
//!
//! Time: 5 to 35 ms for up to 200 windows in a release build, most of it where smooth curves call for many coefficients.
//!
//! Known limits. No seasons: a day has 480 windows of 180 s, for which `prophet` has its Fourier terms. One outlier moves the
//! coefficients until it leaves the history. The choice is stepwise, so a better order further away can be missed.
//!
//! Sources: the walk and its start, Hyndman and Khandakar, Journal of Statistical Software 27 (2008) 3, section 3.2; AICc, Hurvich and
//! Tsai, Biometrika 76 (1989) 297.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::arma::{self, Coefficients};
use super::{kpss, least_squares};

/// Windows below which nothing is fitted.
pub(super) const MIN_POINTS: usize = 5;
/// Up to this many windows every one of them leads to a new fit.
const EAGER_POINTS: usize = 20;
/// Afterwards, growth of the history from fit to fit: one window in this many.
const GROWTH: usize = 20;
/// Models looked at in one walk at most.
const MODELS: usize = 40;
/// A walk ends with a model that leaves less than this share of the variance: a better one changes no forecast by more than a hundredth of
/// the spread.
const EXPLAINED: f64 = 1e-4;

/// What was chosen, and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arima {
    model: Option<Model>,
    /// Number of the window at which it was chosen.
    #[serde(default)]
    chosen: u64,
}

/// An order with its coefficients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Model {
    differences: usize,
    coefficients: Coefficients,
    /// Mean of the differenced series.
    mean: f64,
}

/// p, q, and whether the differenced series has a mean.
type Order = (usize, usize, bool);

struct Candidate {
    coefficients: Coefficients,
    mean: f64,
    aicc: f64,
    /// Share of the variance that it leaves.
    left: f64,
}

impl Arima {
    /// Takes in that window number `window` was added to a history of at most `most`.
    pub(super) fn observe(&mut self, history: &[f64], window: u64, most: usize) {
        if history.len() >= MIN_POINTS && (self.model.is_none() || self.is_due(history.len(), window, most)) {
            self.model = choose(history);
            self.chosen = window;
        }
    }

    /// Whether it is time to choose anew. A full history grows no more: then the number of the window decides, and not when this process began.
    fn is_due(&self, length: usize, window: u64, most: usize) -> bool {
        let period = (length / GROWTH).max(1) as u64;
        let grown = || window.abs_diff(self.chosen) * GROWTH as u64 >= length as u64;
        if length < most { length <= EAGER_POINTS || grown() } else { window / period != self.chosen / period }
    }

    /// The next window; `None` where no model could be fitted.
    pub(super) fn forecast(&self, history: &[f64]) -> Option<f64> {
        let model = self.model.as_ref()?;
        // Of each difference the last value, since a sum continues from there.
        let (mut series, mut base) = (history.to_vec(), 0.0);
        for _ in 0..model.differences {
            base += series.last()?;
            series = kpss::difference(&series);
        }
        let next = base + model.mean + model.coefficients.filter(series.iter().map(|value| value - model.mean)).next;
        let (least, most) = history.iter().fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(*value), most.max(*value)));
        // Twice differenced series run away along a line that two windows drew.
        next.is_finite().then(|| next.clamp(least - (most - least), most + (most - least)))
    }

    /// p, d and q, once chosen.
    pub fn order(&self) -> Option<(usize, usize, usize)> {
        self.model.as_ref().map(|model| (model.coefficients.ar.len(), model.differences, model.coefficients.ma.len()))
    }
}

/// The best model of a history.
fn choose(history: &[f64]) -> Option<Model> {
    let (series, differences) = kpss::stationary(history);
    let mean = series.iter().sum::<f64>() / series.len() as f64;
    let spread = (series.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / series.len() as f64).sqrt();
    let largest = history.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    if spread <= 1e-9 * largest {
        return Some(Model { differences, coefficients: Coefficients::default(), mean });
    }
    let candidate = walk(&series, differences, mean, spread)?;
    Some(Model { differences, coefficients: candidate.coefficients, mean: candidate.mean })
}

/// From the usual starts to the neighbour that gains most, until none does.
fn walk(series: &[f64], differences: usize, mean: f64, spread: f64) -> Option<Candidate> {
    // A mean of second differences would be a parabola.
    let may_have_mean = differences < 2;
    let mut seen: BTreeSet<Order> = BTreeSet::new();
    let mut best: Option<(Order, Candidate)> = None;
    let mut queue: Vec<Order> = [(2, 2), (0, 0), (1, 0), (0, 1)].into_iter().map(|(p, q)| (p, q, may_have_mean)).collect();
    queue.push((0, 0, false));
    loop {
        let mut gained = false;
        for order in queue.drain(..) {
            if seen.len() >= MODELS || best.as_ref().is_some_and(|(_, found)| found.left < EXPLAINED) || !seen.insert(order) {
                continue;
            }
            if let Some(candidate) = fit(series, order, mean, spread)
                && best.as_ref().is_none_or(|(_, known)| candidate.aicc < known.aicc)
            {
                best = Some((order, candidate));
                gained = true;
            }
        }
        let (order, found) = best.as_ref()?;
        if !gained || found.left < EXPLAINED {
            return best.map(|(_, candidate)| candidate);
        }
        queue = neighbours(*order, may_have_mean);
    }
}

fn neighbours((p, q, with_mean): Order, may_have_mean: bool) -> Vec<Order> {
    const STEPS: [(isize, isize); 8] = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (1, 1), (-1, 1), (1, -1)];
    let within = |value: usize, step: isize| value.checked_add_signed(step).filter(|value| *value <= arma::MOST);
    let mut found: Vec<Order> = STEPS.iter().filter_map(|&(dp, dq)| Some((within(p, dp)?, within(q, dq)?, with_mean))).collect();
    if may_have_mean {
        found.push((p, q, !with_mean));
    }
    found
}

/// One order's best coefficients; `None` where the history is too short for it.
fn fit(series: &[f64], (p, q, with_mean): Order, mean: f64, spread: f64) -> Option<Candidate> {
    let n = series.len() as f64;
    let parameters = (p + q + usize::from(with_mean) + 1) as f64;
    if n - parameters - 1.0 < 1.0 {
        return None;
    }
    let center = if with_mean { mean } else { 0.0 };
    let mut start = arma::unbounded_start(series, center, p);
    start.resize(p + q, 0.0);
    start.extend(with_mean.then_some(0.0));
    let mean_of = |numbers: &[f64]| if with_mean { mean + spread * numbers[p + q] } else { 0.0 };
    let found = least_squares::minimize(start, |numbers| {
        let center = mean_of(numbers);
        let model = Coefficients::from_unbounded(&numbers[..p + q], p);
        model.filter(series.iter().map(|value| (value - center) / spread)).residuals
    });
    let deviance = n * ((2.0 * std::f64::consts::PI * (found.squares / n).max(1e-12)).ln() + 1.0);
    let aicc = deviance + 2.0 * parameters * n / (n - parameters - 1.0);
    let coefficients = Coefficients::from_unbounded(&found.at[..p + q], p);
    aicc.is_finite().then(|| Candidate { coefficients, mean: mean_of(&found.at), aicc, left: found.squares / n })
}
