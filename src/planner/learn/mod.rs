//! What do the windows teach about a replica? The online estimator behind the queueing model (seed 001 section 4.2; planning.md 3), and beside it
//! what an iteration costs ([`iterations`], from the windows of [`scraped`]), for planners that simulate the next request.
//!
//! For the queueing model two estimators share the work, because neither is enough:
//!
//! - A [`filter`], the seed's extended Kalman filter: it follows slow change from one window to the next, and its gate says when a window does
//!   not fit what is believed.
//! - A joint [`fit`] over a [`points`] window of distinct operating points: TTFT and ITL of one load are two numbers, and cannot tell three
//!   parameters apart. Loads that differ can. While they do (condition number at most 1000), its result replaces the filter's.
//!
//! What the original does wrong and this does not (facts on the original's behaviour, planning.md 3):
//!
//! | fault | here |
//! |---|---|
//! | a filter whose gate rejects everything keeps its small covariance for ever | after three rejections the parameters are estimated anew from the points; where the last three windows contradict all older ones, whatever the parameters, those are dropped |
//! | one operating point is taken for knowledge | [`interval`]: every capacity that the points allow is published; nothing is given back on more than its lower end |
//! | a load beyond the model's maximum is an error | what is served is possible: work that would make it impossible is scaled down, then learned from |
//! | in overload TTFT holds a queue, and the filter explains it by parameters | completions and ITL teach, TTFT does not; a prefill replica without a pause teaches by its completions alone |
//! | the order of replicas decides | replicas are averaged first, weighted by their arrivals |
//! | a replica that has just started, or hardly serves, teaches | neither does |
//!
//! Rejected: the filter alone. It takes a step from the last estimate and so depends on the order of loads; on the same simulated windows it came
//! within 15 % of the capacity far less often than one fit of all points (`cargo bench --bench learning` prints how often both together do).

pub mod filter;
pub mod fit;
pub mod interval;
pub mod iterations;
pub mod points;
pub mod scraped;

use serde::{Deserialize, Serialize};

use super::model::queueing::{Lengths, Parameters};
use crate::units::{RequestsPerSecond, Role, Seconds, Tokens};
use filter::Filter;
use fit::{Fitted, Trust};
use points::{Point, Points};

/// Rejections in a row, or that many more than acceptances, after which the model is wrong and not the world (planning.md 3).
const REJECTIONS: u32 = 3;
/// Windows that are compared with all before them.
const RECENT: usize = 3;
/// Largest relative spread that the filter's gate allows for, whatever the points show: a gate that is wide open sees no change.
const LARGEST_NOISE: f64 = 0.06;
/// Largest condition number at which parameters count as told apart (planning.md 3).
pub const LARGEST_CONDITION: f64 = 1000.0;
/// Operating points that a joint fit needs.
const LEAST_POINTS: usize = 5;
/// Accepted updates before a learned model counts as converged (planning.md 3).
pub const LEAST_UPDATES: u32 = 5;
/// Largest load of one replica that is taken as possible where the model calls it impossible: rho. Close to 1 the closed form has no slope left
/// to learn from.
const LARGEST_UTILIZATION: f64 = 0.95;
/// Difference of the utilization from a full one, as a logarithm, that is none: the noise of a window's completions.
const NEARLY: f64 = 0.15;
/// Mean shift of the last points against the older ones, in logarithms of latency, from which the server has changed: well above the noise of
/// three averages of windows (5 % each: 3 %), below a slowdown that matters.
const SHIFT: f64 = 0.12;
/// Standard errors that the shift must exceed as well.
const SIGNIFICANT: f64 = 3.0;

/// What a server's latencies lie between, seconds: the fastest iteration of the bounds of the parameters, ten seconds an iteration, a prompt of ten
/// minutes. A sum of counters that overflowed, or was written in other units, is outside.
const TTFT: std::ops::RangeInclusive<f64> = 1e-4..=600.0;
const ITL: std::ops::RangeInclusive<f64> = 5e-5..=10.0;
/// Tokens of a request at most: five times the longest context that is sold.
const LONGEST: f64 = 1e7;
/// Requests a second of one replica at most.
const FASTEST: f64 = 1e5;

/// Share of a window in what is known of full batches.
const BATCH_STEP: f64 = 0.3;

/// Mean shift of a single window from which it is no point: latencies of e times what is believed, which no window after it confirmed.
const STRAY: f64 = 1.0;

/// One window of one pool, per replica: the mean of the busy ones, weighted by their arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Requests served a second by one replica. Completions, not arrivals: by Little's law T = alpha / (1 - rho) holds for what is in service,
    /// also while others wait.
    pub served: RequestsPerSecond,
    /// Mean lengths; the prompt without the tokens that a cache held.
    pub lengths: Lengths,
    /// Mean TTFT; `None` where it is not the server's own: a queue was growing, or the role has none.
    pub ttft: Option<Seconds>,
    /// Mean ITL; `None` where the role has none.
    pub itl: Option<Seconds>,
    /// Whether it worked without a pause, so that no more can be served.
    #[serde(default)]
    pub saturated: bool,
}

/// Whether a server can have these latencies, as far as they are known.
pub fn are_plausible(ttft: Option<Seconds>, itl: Option<Seconds>) -> bool {
    ttft.is_none_or(|ttft| TTFT.contains(&ttft.get())) && itl.is_none_or(|itl| ITL.contains(&itl.get()))
}

impl Lengths {
    /// Whether requests can have them.
    pub(super) fn are_plausible(&self) -> bool {
        [self.input, self.output].iter().all(|tokens| tokens.is_positive() && tokens.get() <= LONGEST)
    }
}

impl Seen {
    /// Whether a server can have done that.
    fn is_plausible(&self) -> bool {
        let serves = self.served.is_positive() && self.served.get() <= FASTEST;
        serves && self.lengths.are_plausible() && are_plausible(self.ttft, self.itl)
    }
}

/// What became of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Update {
    /// It fits what is believed, and refined it.
    Accepted,
    /// It does not fit and changed nothing yet.
    Rejected,
    /// It was one rejection too many: the parameters were estimated anew.
    Reset,
}

/// What has been learned of a pool's replicas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// The estimate and its covariance.
    pub filter: Filter,
    /// The recent operating points.
    pub points: Points,
    /// Accepted updates since the last time that the server changed.
    pub accepted: u32,
    /// The last windows, oldest first. They become points as they leave this list, when it is known that the server is still the same.
    pub recent: Vec<Seen>,
    /// Rejections less acceptances since the last reset.
    pub rejected: u32,
    /// Normalized innovation squared of the last window; `None` where the model could not explain it at all.
    pub nis: Option<f64>,
    /// How well the points tell the parameters apart; `None`: not at all.
    pub condition: Option<f64>,
    /// The parameters when points last told them apart. Their proportions are the server's kind and outlive its speed: where the loads since then
    /// are too few or too alike, they say what of a latency is alpha's and what the tokens'.
    #[serde(default)]
    pub shape: Option<Parameters>,
    /// KV tokens of the requests that were served at once while others waited for a place; more, where more were served since.
    #[serde(default)]
    pub full_batch: Option<Tokens>,
}

impl Learned {
    /// Starts from one window: the seed's bootstrap, else its defaults.
    pub fn new(role: Role, seen: &Seen) -> Self {
        let guess = seen.ttft.zip(seen.itl).and_then(|(ttft, itl)| Parameters::bootstrap(ttft, itl, seen.lengths));
        let mut learned = Self {
            filter: Filter::new(guess.unwrap_or(filter::DEFAULTS)),
            points: Points::default(),
            accepted: 0,
            recent: Vec::new(),
            rejected: 0,
            nis: None,
            condition: None,
            shape: None,
            full_batch: None,
        };
        learned.filter.allow(role, seen, LARGEST_UTILIZATION);
        if seen.ttft.is_some() || seen.itl.is_some() {
            // The bootstrap takes the server for idle, and a guess that was brought to what is possible explains nothing any more.
            learned.take(fit::joint(role, &[Point::of(seen)], learned.filter.parameters, Trust::Belief));
        }
        learned
    }

    /// Whether this can have been learned: what comes back from a file may have been written by anyone.
    pub fn is_sound(&self) -> bool {
        let fine = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value >= 0.0);
        self.filter.is_sound()
            && self.points.are_sound()
            && self.recent.len() <= RECENT
            && self.recent.iter().all(Seen::is_plausible)
            && fine(self.nis)
            && fine(self.condition)
            && self.shape.is_none_or(filter::are_within_bounds)
            && self.full_batch.is_none_or(|tokens| tokens.is_positive() && tokens.get().is_finite())
    }

    /// The estimate.
    pub fn parameters(&self) -> Parameters {
        self.filter.parameters
    }

    /// Takes in a window.
    pub fn learn(&mut self, role: Role, seen: &Seen) -> Update {
        if seen.ttft.is_none() && seen.itl.is_none() {
            return self.saturate(role, seen);
        }
        let update = self.refine(role, seen);
        self.note_batch(role, seen);
        update
    }

    /// Remembers what a full batch holds, in the closed form's own terms: n = lambda (o + 1) T requests.
    fn note_batch(&mut self, role: Role, seen: &Seen) {
        let Some(itl) = seen.itl else { return };
        let iteration = itl.get() - self.filter.parameters.token_work(seen.lengths);
        let held = seen.served.get() * seen.lengths.iterations(role) * iteration * seen.lengths.decoding_context();
        let known = self.full_batch.map(Tokens::get);
        let now = match known {
            Some(known) if seen.saturated => known + (held - known) * BATCH_STEP,
            None if seen.saturated => held,
            Some(known) => known.max(held),
            None => return,
        };
        if now > 0.0 && now.is_finite() {
            self.full_batch = Some(Tokens(now));
        }
    }

    fn refine(&mut self, role: Role, seen: &Seen) -> Update {
        self.filter.allow(role, seen, LARGEST_UTILIZATION);
        let judged = self.filter.update(role, seen, self.noise(role));
        self.nis = judged.nis;
        // One accepted window in three does not make a wrong model right.
        self.rejected = if judged.accepted { self.rejected.saturating_sub(1) } else { self.rejected + 1 };
        self.recent.push(*seen);
        if self.recent.len() > RECENT {
            let settled = self.recent.remove(0);
            // What neither the model nor the windows after it can explain was no load of this server.
            if !self.is_stray(role, &settled) {
                self.points.add(&settled);
            }
        }
        let before = self.contradicted(role);
        let changed = before.is_some();
        if let Some(before) = before {
            if self.is_told_apart() {
                self.shape = Some(before);
            }
            self.points.clear();
            self.full_batch = None;
            self.accepted = 0;
            // What the filter made of the first windows after the change is neither the old server nor the new one.
            self.filter.parameters = before;
        }
        let all = self.all_points();
        self.condition = all.condition(role, self.filter.parameters);
        if changed || self.rejected >= REJECTIONS {
            self.rejected = 0;
            self.take(fit::joint(role, all.as_slice(), self.shape.unwrap_or(self.filter.parameters), Trust::Belief));
            Update::Reset
        } else if judged.accepted {
            self.accepted = self.accepted.saturating_add(1);
            if self.is_told_apart() {
                self.take(fit::joint(role, all.as_slice(), self.filter.parameters, Trust::Points));
                self.shape = Some(self.filter.parameters);
            } else if let Some(shape) = self.shape {
                // The filter alone would make of each window's arrivals a new shape, near the maximum a wholly other one.
                self.take(fit::joint(role, all.as_slice(), shape, Trust::Belief));
            }
            Update::Accepted
        } else {
            Update::Rejected
        }
    }

    /// A replica that had no pause and shows no latency of its own, as a prefill server with a queue: its utilization is known, and with it the
    /// work of a request. The original learns nothing in just that moment.
    fn saturate(&mut self, role: Role, seen: &Seen) -> Update {
        self.nis = None;
        let before = seen.served.get() * self.filter.parameters.work(role, seen.lengths).get();
        if !seen.saturated || (before / LARGEST_UTILIZATION).ln().abs() < NEARLY {
            return Update::Accepted;
        }
        self.filter.scale(LARGEST_UTILIZATION / before);
        self.points.clear();
        self.recent.clear();
        self.accepted = 0;
        Update::Reset
    }

    /// Whether the operating points differ enough to tell the parameters apart.
    pub fn is_told_apart(&self) -> bool {
        self.all_points().len() >= LEAST_POINTS && self.condition.is_some_and(|condition| condition <= LARGEST_CONDITION)
    }

    /// The points, with the last windows among them.
    pub fn all_points(&self) -> Points {
        let mut all = self.points.clone();
        self.recent.iter().for_each(|seen| all.add(seen));
        all
    }

    /// Whether the last windows contradict the points before them whatever the parameters: then the server is another one now, and what it was
    /// before is history. Answers with the parameters that it had.
    fn contradicted(&self, role: Role) -> Option<Parameters> {
        if self.recent.len() < RECENT {
            return None;
        }
        let before = fit::joint(role, self.points.as_slice(), self.filter.parameters, Trust::Points)?;
        // Each of them says so: one window that means nothing is no other server. A load that is impossible for the old one says so as well.
        let of = |windows: &[Seen]| before.mean_shift(role, windows);
        let possible: Vec<Seen> = self.recent.iter().filter(|seen| of(&[**seen]).is_some()).copied().collect();
        let beyond = |sign: f64| possible.iter().all(|seen| of(&[*seen]).is_some_and(|(shift, _)| sign * shift > SHIFT / 2.0));
        let agree = beyond(1.0) || (possible.len() == RECENT && beyond(-1.0));
        // Near the maximum a window more or less loaded than it seems is no other server.
        let is_large = of(&possible).is_none_or(|(shift, error)| shift.abs() > SHIFT.max(SIGNIFICANT * error));
        (agree && is_large).then_some(before.parameters)
    }

    /// Whether a window is so far from what is believed that it is noise and no knowledge.
    fn is_stray(&self, role: Role, seen: &Seen) -> bool {
        let shift = fit::mean_shift(role, std::slice::from_ref(seen), self.filter.parameters);
        shift.is_some_and(|(shift, error)| shift.abs() > STRAY.max(2.0 * SIGNIFICANT * error))
    }

    fn take(&mut self, fitted: Option<Fitted>) {
        if let Some(fitted) = fitted {
            self.filter = Filter::with(fitted.parameters, &fitted.covariance);
        }
    }

    /// Relative spread of TTFT and ITL about the model: what the points show, not less than the seed assumes.
    fn noise(&self, role: Role) -> f64 {
        fit::spread(role, self.points.as_slice(), self.filter.parameters).clamp(filter::LEAST_NOISE, LARGEST_NOISE)
    }
}

#[cfg(test)]
mod tests;
