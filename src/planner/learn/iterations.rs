//! What does an iteration of a pool's engines cost? A line learned from what they do, window by window.
//!
//! Each window of each replica gives at most one sample (`scraped.rs`): the mean work of an iteration, and its time. From these the four costs of
//! `model/iteration.rs` are fitted anew whenever they are asked for: weighted least squares with no cost below zero.
//!
//! | question | answer |
//! |---|---|
//! | which samples are kept | 64 in 16 buckets of equal width over what was seen (4 by 4 where two kinds of work matter); the oldest of the fullest bucket goes first, so that a day at one load does not push out the hour at another |
//! | what is fitted | prefill: c0, cp; decode: c0, cn, ckv; aggregated: all four |
//! | how | relative errors count, large ones less than their square (Huber), since one slow window must not turn the line; every set of costs is tried with the others at zero, and the best without a negative one wins, so that the answer depends on the samples alone |
//! | collinear work (each request the same context) | the costs share what they cannot be told apart by, through a penalty of one part in a million |
//! | with fewer than 5 samples | no line |
//! | with samples at one load only | the last line that samples told, until three in a row are far off it; else none: the cost of work that explains nothing of the time is not known, and not zero |
//!
//! A sample more than three times off the line is not taken at first: a replica that compiles a kernel, or shares its GPU for a moment, is not the
//! server. Three in a row are: then everything before them is forgotten, the line is learned anew, and there is none until it has 5 samples again.
//! So one bad sample never makes the capacity collapse, and a server that really changed is followed within a few windows.
//!
//! The caller leaves out replicas in warm-up: their first iterations are slow, they come several at a time, and what they teach is forgotten again
//! only after three good samples.
//!
//! Beside the line there are moving averages of 64 observations: prompt length, context of a decoding request, prompt tokens of an iteration. Zeros
//! before the first request are not averaged. They need no time, so that a window without one still counts.
//!
//! Worked: prefill samples (1000 tokens, 12 ms), (2000, 22), (4000, 42), (6000, 62), (8000, 82) give c0 = 2 ms and cp = 10 us.
//!
//! Known limits: a window's mean hides how its iterations differ. A line is trusted between the loads that were seen and is a guess outside;
//! time is never taken to be below half of the shortest that was seen.

use nalgebra::{SMatrix, SVector};
use serde::{Deserialize, Serialize};

use crate::planner::model::iteration::{Costs, Iteration, Work};
use crate::planner::policy::RegressionPolicy;
use crate::units::{Requests, Role, Seconds, SecondsPerToken, Tokens};

/// Times that a sample may be off the line.
const FAR: f64 = 3.0;
/// Samples in a row that are too far off after which the server is another one.
const REJECTIONS: usize = 3;
/// Rounds of weighing the samples anew.
const ROUNDS: usize = 4;
/// Relative residuals in standard deviations up to which they count in full.
const HUBER: f64 = 1.5;
/// Smallest relative standard deviation that is believed.
const LEAST_SPREAD: f64 = 0.01;
/// Penalty of costs that the samples do not tell apart, as a share.
const PENALTY: f64 = 1e-6;
/// How many times better than a constant the line must explain the times, by degrees of freedom (F statistic).
const LEAST_EVIDENCE: f64 = 5.0;

/// What one replica did in one window, for each of its iterations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The work of an iteration.
    pub work: Work,
    /// Prompts that an iteration worked on.
    pub prompts: Requests,
    /// How long an iteration took; `None`: not known, only the averages learn.
    pub time: Option<Seconds>,
}

/// One retained sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Sample {
    work: Work,
    time: Seconds,
}

/// What became of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It has no time and taught the averages only.
    Averaged,
    /// It is a sample.
    Accepted,
    /// It is too far off the line.
    Rejected,
    /// It was one too many: the samples before it are forgotten.
    Restarted,
}

/// Why there is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Fewer samples than the settings ask for.
    FewSamples,
    /// The work explains nothing of the time: too little of it differs, or it is slower with less work.
    NoSlope,
}

/// A mean of the last values, from the first that is not zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Recent(Vec<f64>);

impl Recent {
    fn push(&mut self, value: f64, most: usize) {
        if !value.is_finite() || value < 0.0 || (self.0.is_empty() && value == 0.0) {
            return;
        }
        self.0.push(value);
        self.0.drain(..self.0.len().saturating_sub(most));
    }

    fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }
}

/// What has been learned of the iterations of a pool's engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Iterations {
    role: Role,
    /// Oldest first.
    samples: Vec<Sample>,
    /// Those in a row that were too far off.
    doubted: Vec<Sample>,
    /// The line through the samples, made when one comes and not when it is asked for; where they tell none, the last that they told. An hour at one
    /// load tells none, and contradicts none either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    told: Option<Iteration>,
    input: Recent,
    context: Recent,
    prefill: Recent,
}

impl Iterations {
    /// Nothing learned yet.
    pub fn new(role: Role) -> Self {
        let none = Recent::default;
        Self { role, samples: Vec::new(), doubted: Vec::new(), told: None, input: none(), context: none(), prefill: none() }
    }

    /// Whose iterations they are.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether this can have been learned. A state file may hold anything.
    pub fn is_sound(&self) -> bool {
        let known = |value: &f64| (0.0..f64::INFINITY).contains(value);
        let fine = |sample: &Sample| {
            let Work { prefill, decoding, kv } = sample.work;
            sample.time.is_positive() && [sample.time.get(), prefill.get(), decoding.get(), kv.get()].iter().all(known)
        };
        let means = [&self.input, &self.context, &self.prefill];
        self.samples.iter().chain(&self.doubted).all(fine) && means.iter().all(|mean| mean.0.iter().all(known))
    }

    /// Samples that the line rests on.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// Mean tokens of a prompt in an iteration, where any was seen.
    pub fn input(&self) -> Option<Tokens> {
        self.input.mean().map(Tokens)
    }

    /// Mean KV tokens of a decoding request, where any was seen.
    pub fn context(&self) -> Option<Tokens> {
        self.context.mean().map(Tokens)
    }

    /// Mean prompt tokens of an iteration, where any was seen.
    pub fn prefill(&self) -> Option<Tokens> {
        self.prefill.mean().map(Tokens)
    }

    /// Takes in one window of one replica that is not in warm-up.
    pub fn learn(&mut self, observed: &Observed, settings: &RegressionPolicy) -> Taken {
        let most = settings.samples;
        let Work { prefill, decoding, kv } = observed.work;
        self.input.push(if observed.prompts.is_positive() { prefill.get() / observed.prompts.get() } else { 0.0 }, most);
        if decoding.is_positive() {
            self.context.push(kv.get() / decoding.get(), most);
        }
        self.prefill.push(prefill.get(), most);
        let plausible = [prefill.get(), decoding.get(), kv.get()].iter().all(|amount| (0.0..f64::INFINITY).contains(amount));
        match observed.time.filter(|time| time.is_positive() && plausible) {
            Some(time) => self.take(Sample { work: observed.work, time }, settings),
            None => Taken::Averaged,
        }
    }

    fn take(&mut self, sample: Sample, settings: &RegressionPolicy) -> Taken {
        let expected = self.line(settings.least).ok().map(|line| line.time(sample.work).get());
        if expected.is_some_and(|expected| (sample.time.get() / expected).ln().abs() > FAR.ln()) {
            self.doubted.push(sample);
            if self.doubted.len() < REJECTIONS {
                return Taken::Rejected;
            }
            self.samples = std::mem::take(&mut self.doubted);
            self.told = self.fitted(settings.least).ok();
            return Taken::Restarted;
        }
        self.doubted.clear();
        self.samples.push(sample);
        while self.samples.len() > settings.samples.max(1) {
            self.samples.remove(self.oldest_of_the_fullest(settings.buckets_a_side));
        }
        self.told = self.fitted(settings.least).ok().or(self.told);
        Taken::Accepted
    }

    /// Index of the sample that is retired: buckets are laid anew over what there is, and of buckets as full the first one gives.
    fn oldest_of_the_fullest(&self, side: usize) -> usize {
        let axes: &[Feature] = match self.role {
            Role::Prefill => &[Feature::Prefill],
            Role::Decode => &[Feature::Requests, Feature::Kv],
            Role::Aggregated => &[Feature::Prefill, Feature::Kv],
        };
        // As many buckets along one axis as in a square of two.
        let parts = if axes.len() == 1 { side * side } else { side }.max(1);
        let mut buckets = vec![0_usize; self.samples.len()];
        for axis in axes {
            let values: Vec<f64> = self.samples.iter().map(|sample| axis.of(sample.work)).collect();
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(0.0, f64::max);
            for (bucket, value) in buckets.iter_mut().zip(&values) {
                let part = if high > low { (((value - low) / (high - low) * parts as f64) as usize).min(parts - 1) } else { 0 };
                *bucket = *bucket * parts + part;
            }
        }
        let mut sorted = buckets.clone();
        sorted.sort_unstable();
        let most = sorted.chunk_by(usize::eq).map(<[usize]>::len).max().unwrap_or(0);
        let fullest = sorted.chunk_by(usize::eq).find(|bucket| bucket.len() == most).map_or(0, |bucket| bucket[0]);
        buckets.iter().position(|bucket| *bucket == fullest).unwrap_or(0)
    }

    /// The largest batch of the samples over the smallest; `None` where none decodes.
    pub fn batches(&self) -> Option<f64> {
        let decoding = self.samples.iter().map(|sample| sample.work.decoding.get()).filter(|batch| *batch > 0.0);
        let (least, most) = decoding.fold((f64::INFINITY, 0.0_f64), |(least, most), batch| (least.min(batch), most.max(batch)));
        (most > 0.0).then(|| most / least)
    }

    /// The line through the samples, of which there must be `least`, or why there is none.
    pub fn line(&self, least: usize) -> Result<Iteration, Unfit> {
        self.told.map_or_else(|| self.fitted(least), Ok)
    }

    /// The line; at prefill also without one, where prompts were too alike to tell what others take: in proportion to their tokens. That is right for
    /// prompts as they were and says too much for longer ones, so that too little is never made of a queue.
    pub fn estimate(&self, least: usize) -> Result<Iteration, Unfit> {
        let line = self.line(least);
        if self.role != Role::Prefill || line != Err(Unfit::NoSlope) {
            return line;
        }
        let sum = |of: &dyn Fn(&Sample) -> f64| self.samples.iter().map(of).sum::<f64>();
        let each = sum(&|sample| sample.time.get()) / sum(&|sample| sample.work.prefill.get());
        let zero = Seconds(0.0);
        let costs = Costs { fixed: zero, prefill_token: SecondsPerToken(each), request: zero, kv_token: SecondsPerToken(0.0), least: zero };
        Iteration::new(costs).ok_or(Unfit::NoSlope)
    }

    fn fitted(&self, least: usize) -> Result<Iteration, Unfit> {
        if self.samples.len() < least {
            return Err(Unfit::FewSamples);
        }
        let fit = Fit::new(self.role, &self.samples);
        let (costs, weights) = fit.robust();
        if !fit.is_evident(&costs, &weights) {
            return Err(Unfit::NoSlope);
        }
        let cost = |feature: Feature| {
            let at = fit.features.iter().position(|known| *known == feature);
            at.map_or(0.0, |at| costs[at + 1] * fit.second / fit.scales[at])
        };
        let shortest = self.samples.iter().map(|sample| sample.time.get()).fold(f64::INFINITY, f64::min);
        let costs = Costs {
            fixed: Seconds(costs[0] * fit.second),
            prefill_token: SecondsPerToken(cost(Feature::Prefill)),
            request: Seconds(cost(Feature::Requests)),
            kv_token: SecondsPerToken(cost(Feature::Kv)),
            least: Seconds(shortest / 2.0),
        };
        // A phase that seems to cost nothing is one that was not seen at different loads.
        let prompts_cost = self.role == Role::Decode || costs.prefill_token.is_positive();
        let decoding_costs = self.role == Role::Prefill || costs.request.is_positive() || costs.kv_token.is_positive();
        Iteration::new(costs).filter(|_| prompts_cost && decoding_costs).ok_or(Unfit::NoSlope)
    }
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    Prefill,
    Requests,
    Kv,
}

impl Feature {
    fn of(self, work: Work) -> f64 {
        match self {
            Self::Prefill => work.prefill.get(),
            Self::Requests => work.decoding.get(),
            Self::Kv => work.kv.get(),
        }
    }

    /// What costs time in a pool of that role.
    fn all_of(role: Role) -> &'static [Self] {
        match role {
            Role::Prefill => &[Self::Prefill],
            Role::Decode => &[Self::Requests, Self::Kv],
            Role::Aggregated => &[Self::Prefill, Self::Requests, Self::Kv],
        }
    }
}

/// The most costs that a line has: of every iteration, and of each kind of work.
const MOST_COSTS: usize = 4;
/// Costs, or work in the order of the costs; 0 beyond those that there are.
type Terms = [f64; MOST_COSTS];

/// A weighted least squares problem in multiples of mean work and mean time.
struct Fit {
    features: Vec<Feature>,
    /// Mean of each kind of work.
    scales: Vec<f64>,
    /// Mean time, in seconds.
    second: f64,
    /// Of each sample: 1, and its work over the means.
    rows: Vec<Terms>,
    /// Of each sample: its time over the mean.
    times: Vec<f64>,
}

impl Fit {
    fn new(role: Role, samples: &[Sample]) -> Self {
        let mean = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / samples.len() as f64;
        // A kind of work that never occurred costs nothing that could be learned.
        let present = Feature::all_of(role).iter().filter(|feature| mean(&|sample| feature.of(sample.work)) > 0.0);
        let features: Vec<Feature> = present.copied().collect();
        let scales: Vec<f64> = features.iter().map(|feature| mean(&|sample| feature.of(sample.work))).collect();
        let second = mean(&|sample| sample.time.get());
        let row = |sample: &Sample| {
            let mut row: Terms = [1.0, 0.0, 0.0, 0.0];
            for ((term, feature), scale) in row[1..].iter_mut().zip(&features).zip(&scales) {
                *term = feature.of(sample.work) / scale;
            }
            row
        };
        let rows = samples.iter().map(row).collect();
        let times = samples.iter().map(|sample| sample.time.get() / second).collect();
        Self { features, scales, second, rows, times }
    }

    /// Costs by relative errors, those of strange samples weighed down; with the weights.
    fn robust(&self) -> (Terms, Vec<f64>) {
        let mut weights: Vec<f64> = self.times.iter().map(|time| time.powi(-2)).collect();
        let mut costs = self.solve(&weights);
        for _ in 0..ROUNDS {
            let residuals: Vec<f64> = self.rows.iter().zip(&self.times).map(|(row, time)| time / self.at(&costs, row) - 1.0).collect();
            let mut sizes: Vec<f64> = residuals.iter().map(|residual| residual.abs()).collect();
            let middle = sizes.len() / 2;
            let (_, median, _) = sizes.select_nth_unstable_by(middle, f64::total_cmp);
            // The median of absolute values is 0.6745 standard deviations of a normal distribution.
            let spread = (*median / 0.6745).max(LEAST_SPREAD);
            for ((weight, row), size) in weights.iter_mut().zip(&self.rows).zip(residuals.iter().map(|residual| residual.abs() / spread)) {
                *weight = self.at(&costs, row).powi(-2) * if size > HUBER { HUBER / size } else { 1.0 };
            }
            costs = self.solve(&weights);
        }
        (costs, weights)
    }

    fn at(&self, costs: &Terms, row: &Terms) -> f64 {
        // A hundredth of the mean time: a weight of its inverse square is large enough.
        costs.iter().zip(row).map(|(cost, of)| cost * of).sum::<f64>().max(0.01)
    }

    /// The costs without one below zero that leave the least error. All sets of costs are tried; the best of them solves the bounded problem, since
    /// there the costs that are not zero are not bounded.
    fn solve(&self, weights: &[f64]) -> Terms {
        let count = self.features.len() + 1;
        let mut normal = [Terms::default(); MOST_COSTS];
        let mut right = Terms::default();
        for ((row, time), weight) in self.rows.iter().zip(&self.times).zip(weights) {
            for i in 0..MOST_COSTS {
                right[i] += weight * row[i] * time;
                for j in 0..MOST_COSTS {
                    normal[i][j] += weight * row[i] * row[j];
                }
            }
        }
        let penalty = PENALTY * weights.iter().sum::<f64>();
        (1..count).for_each(|slope| normal[slope][slope] += penalty);
        let mut best = (0.0, Terms::default());
        for set in 1..1_usize << count {
            let is_used = |at: usize| set >> at & 1 == 1;
            // A cost that is not in the set is 0: its own equation says so, and it is in no other.
            let part = SMatrix::<f64, MOST_COSTS, MOST_COSTS>::from_fn(|i, j| match (is_used(i) && is_used(j), i == j) {
                (true, _) => normal[i][j],
                (false, same) => f64::from(u8::from(same)),
            });
            let wanted = SVector::<f64, MOST_COSTS>::from_fn(|i, _| if is_used(i) { right[i] } else { 0.0 });
            let Some(solved) = part.cholesky().map(|part| part.solve(&wanted)) else { continue };
            // The error falls by this much against costs of zero.
            let gain: f64 = solved.iter().zip(&right).map(|(cost, right)| right * cost).sum();
            if solved.iter().all(|cost| *cost >= 0.0) && gain > best.0 {
                best = (gain, solved.into());
            }
        }
        best.1
    }

    /// Whether the line explains the times much better than a constant does.
    fn is_evident(&self, costs: &Terms, weights: &[f64]) -> bool {
        let total: f64 = weights.iter().sum();
        let mean = self.times.iter().zip(weights).map(|(time, weight)| time * weight).sum::<f64>() / total;
        let error =
            |of: &dyn Fn(usize) -> f64| (0..self.times.len()).map(|at| weights[at] * (self.times[at] - of(at)).powi(2)).sum::<f64>();
        let (constant, line) = (error(&|_| mean), error(&|at| self.at(costs, &self.rows[at])));
        let slopes = costs[1..].iter().filter(|cost| **cost > 0.0).count().max(1) as f64;
        let free = (self.times.len() as f64 - slopes - 1.0).max(1.0);
        // Noise below the arithmetic's own is no evidence of anything.
        constant > 1e-12 * total && (constant - line) / slopes > LEAST_EVIDENCE * line / free
    }
}

#[cfg(test)]
#[path = "iterations_tests.rs"]
mod tests;
