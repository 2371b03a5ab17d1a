//! What did one target do during the window? The difference between its first and its last good sample, series by series.
//!
//! Differences are taken per series and added afterwards. Adding first would turn a departed worker's series, or a rank that appears late,
//! into negative or doubled work. Every round is compared with the one before, so that a counter that falls and climbs back above its
//! baseline within one long window is still seen as a restart.
//!
//! Rules (planning.md 1.2, 1.3): a series that is new on a target that was already known counts from 0; a new target sets its baseline only,
//! unless its process started inside the window; a series that vanished contributes up to its last sight. The time of a window is the time
//! between the two samples, never the configured interval: a missed round lengthens the window and changes no rate.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::input::{Few, Gauge, Histogram, ItlBasis, Sample, SeriesKey, Signal, Tally};
use super::policy::ChangeRule;
use crate::units::{Replicas, RequestsPerSecond, Role};

/// Difference between two process start times that is taken for clock noise, seconds.
const START_TIME_NOISE: f64 = 1.0;

/// Process starts that are remembered, to tell a restart from a load balancer that alternates between processes.
const REMEMBERED_STARTS: usize = 4;

/// A good sample and when it was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stamped {
    /// On the monotonic clock.
    pub at: Duration,
    /// What the target said. Shared: it is most of what is remembered, and memories are copied in every round.
    #[serde(with = "super::sample::shared")]
    pub sample: Arc<Sample>,
}

/// One target within the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetWindow {
    /// The baseline.
    pub first: Option<Stamped>,
    /// The last good sample.
    pub last: Option<Stamped>,
    /// Series and worker counts of this window that the last page no longer had, with their last values.
    #[serde(default)]
    pub gone: Sample,
    /// Whether the target's process has counted requests so far. A page without that count says nothing of the work since: a label was
    /// renamed, a value became unreadable, the page was cut.
    #[serde(default)]
    pub counts_requests: bool,
    /// Whether it is a router, as far as its pages said so. One page that lacks what routers say of their fleets does not make it a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<bool>,
    /// What was counted before a restart within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Box<Delta>>,
    /// When it came onto the list, on the monotonic clock; `None`: before this window began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_from: Option<Duration>,
    /// Failed rounds in a row, up to now.
    pub failures: u32,
    /// Completed requests a second in the last window that described it.
    pub last_rate: Option<RequestsPerSecond>,
    /// Start times of the processes that answered, oldest first.
    #[serde(default)]
    pub starts: Vec<f64>,
    /// Whether, in this window, a process that had been replaced answered again.
    #[serde(default)]
    pub alternates: bool,
}

/// What a target did in the window before it left the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Departed {
    /// Up to its last good sample.
    pub delta: Delta,
    /// How long it was listed in the window.
    pub listed: Duration,
    /// Whether it was a router.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub router: bool,
}

/// What a target did between two samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// Time between the samples.
    pub elapsed: Duration,
    /// Growth of the histograms, all series added.
    pub histograms: Few<Signal, Growth>,
    /// Growth of the counters, all series added.
    pub tallies: Few<Tally, f64>,
    /// What the ITL histogram counts.
    pub itl_basis: ItlBasis,
}

/// Growth of a histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Of the sum.
    pub sum: f64,
    /// Of the count.
    pub count: f64,
    /// Of the buckets, cumulative.
    pub buckets: Buckets,
}

/// Bucket growth, as far as the bounds of all series and both samples agree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buckets {
    /// Nothing added yet.
    #[default]
    Unknown,
    /// Upper bound and cumulative growth.
    Known(Vec<(f64, f64)>),
    /// Bounds differ, or cumulative counts fall towards higher bounds: no quantile can be taken.
    Unusable,
}

impl TargetWindow {
    /// Takes in a good sample. Answers whether the target restarted since its last one.
    ///
    /// `born_inside` is the process's age at `at`, where it started inside the window.
    pub fn record(&mut self, at: Duration, sample: &Arc<Sample>, rule: ChangeRule, born_inside: Option<Duration>) -> bool {
        self.failures = 0;
        let again = self.last.as_ref().is_some_and(|last| restarted(&last.sample, sample) || restarted(&self.gone, sample));
        let counts = sample.histograms.get(&Signal::OutputTokens).is_some_and(|series| !series.is_empty());
        if !again && self.counts_requests && !counts {
            // Absent is not zero: the target is as silent as one that failed, and its window ends at its last whole page.
            return false;
        }
        self.counts_requests = counts;
        self.router = says_router(sample).or(self.router).or((!sample.is_empty()).then_some(false));
        let taken = Arc::clone(sample);
        match &mut self.last {
            Some(last) if !again => {
                part(&mut self.gone, &last.sample, sample);
                *last = Stamped { at, sample: taken };
                return false;
            }
            Some(last) if rule == ChangeRule::Tolerate => {
                let before = last.at;
                self.carried = self.delta().filter(Delta::is_finite).map(Box::new);
                self.first = Some(Stamped { at: before, sample: Arc::default() });
            }
            _ => {
                self.first = Some(match born_inside.filter(|_| !again) {
                    Some(age) => Stamped { at: at.saturating_sub(age), sample: Arc::default() },
                    None => Stamped { at, sample: Arc::clone(&taken) },
                });
            }
        }
        self.gone = Sample::default();
        self.last = Some(Stamped { at, sample: taken });
        self.note_start(sample);
        again
    }

    /// What is left of a target that is no longer listed, if anything was seen of it. `began` is when the window began.
    pub fn departs(self, began: Duration, now: Duration) -> Option<Departed> {
        let delta = self.delta().filter(Delta::is_finite)?;
        let router = self.is_router() == Some(true);
        Some(Departed { delta, listed: now.saturating_sub(self.known_from.unwrap_or(began).max(began)), router })
    }

    /// Whether it is a router; `None` where it never said.
    pub fn is_router(&self) -> Option<bool> {
        self.router
    }

    /// Takes in a failed round.
    pub fn miss(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// Starts the next window at the last good sample; a target silent for longer than `oldest` starts without a baseline, and loses its count of
    /// the fleet with it.
    pub fn restart(&mut self, now: Duration, oldest: Duration) {
        self.carried = None;
        self.known_from = None;
        self.alternates = false;
        self.gone = Sample::default();
        if self.last.as_ref().is_some_and(|last| now.saturating_sub(last.at) > oldest) {
            self.last = None;
        }
        self.first.clone_from(&self.last);
    }

    /// What the target did in the window; `None` without two samples.
    pub fn delta(&self) -> Option<Delta> {
        self.delta_of(&Signal::ALL, &Tally::ALL)
    }

    /// Of that, only these measurements.
    pub fn delta_of(&self, signals: &[Signal], tallies: &[Tally]) -> Option<Delta> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let mut delta = difference(first, last, &self.gone, signals, tallies);
        if let Some(carried) = &self.carried {
            delta.add(carried.of(signals, tallies));
            delta.elapsed += carried.elapsed;
        }
        (!delta.elapsed.is_zero()).then_some(delta)
    }

    /// A gauge as the target last showed it, its own or its fleet's.
    pub fn last_gauge(&self, gauge: Gauge) -> Option<f64> {
        gauge_of(&self.last.as_ref()?.sample, gauge)
    }

    /// By how much a gauge grew in the window; `None` where it was not shown at both ends, or the target restarted between.
    pub fn growth_of(&self, gauge: Gauge) -> Option<f64> {
        if self.carried.is_some() {
            return None;
        }
        Some(self.last_gauge(gauge)? - gauge_of(&self.first.as_ref()?.sample, gauge)?)
    }

    /// Requests that arrived in the window, and whether that was seen (planning.md 1.5): those that the server says started, else those that ended
    /// and the growth of those that are there. Otherwise what was completed, which hides what waits.
    pub fn arrived(&self, delta: &Delta) -> (f64, bool) {
        if let Some(started) = delta.tallies.get(&Tally::Started) {
            return (*started, true);
        }
        let held = match (self.growth_of(Gauge::Running), self.growth_of(Gauge::Waiting)) {
            (Some(running), Some(waiting)) => Some(running + waiting),
            _ => self.growth_of(Gauge::InFlight),
        };
        let ended = delta.tallies.get(&Tally::Finished).copied().unwrap_or(0.0).max(delta.completed());
        match held {
            Some(held) => ((ended + held).max(0.0), true),
            None => (delta.completed(), false),
        }
    }

    /// Ready replicas of a role as the target last saw them in this window. `None` where it lists none: that is not known to be zero.
    pub fn workers(&self, role: Role) -> Option<Replicas> {
        let last = self.last.as_ref()?;
        last.sample.workers.get(&role).or_else(|| self.gone.workers.get(&role)).copied()
    }

    fn note_start(&mut self, sample: &Sample) {
        let Some(start) = began(sample) else { return };
        let is = |seen: f64| (seen - start).abs() <= START_TIME_NOISE;
        if self.starts.last().is_some_and(|&last| is(last)) {
            // The same process as before: a counter fell, and nothing answers in turn.
            return;
        }
        self.alternates |= self.starts.iter().any(|&seen| is(seen));
        self.starts.push(start);
        if self.starts.len() > REMEMBERED_STARTS {
            self.starts.remove(0);
        }
    }
}

impl Delta {
    /// Adds another target's work; the elapsed time stays.
    pub fn add(&mut self, other: Self) {
        for (signal, growth) in other.histograms {
            self.histograms.entry(signal).or_default().add(growth);
        }
        for (tally, growth) in other.tallies {
            *self.tallies.entry(tally).or_default() += growth;
        }
        self.itl_basis = self.itl_basis.max(other.itl_basis);
    }

    /// Only these measurements of it.
    fn of(&self, signals: &[Signal], tallies: &[Tally]) -> Self {
        let histograms = self.histograms.iter().filter(|(signal, _)| signals.contains(signal));
        let tallies = self.tallies.iter().filter(|(tally, _)| tallies.contains(tally));
        Self {
            elapsed: self.elapsed,
            histograms: histograms.map(|(signal, growth)| (*signal, growth.clone())).collect(),
            tallies: tallies.map(|(tally, growth)| (*tally, *growth)).collect(),
            itl_basis: self.itl_basis,
        }
    }

    /// Whether adding the series up did not overflow.
    fn is_finite(&self) -> bool {
        let sums = self.histograms.values().flat_map(|growth| [growth.sum, growth.count]);
        let buckets = self.histograms.values().flat_map(|growth| match &growth.buckets {
            Buckets::Known(buckets) => buckets.as_slice(),
            Buckets::Unknown | Buckets::Unusable => &[],
        });
        sums.chain(buckets.map(|bucket| bucket.1)).chain(self.tallies.values().copied()).all(f64::is_finite)
    }

    /// Growth of a histogram's count; 0 where it is absent.
    pub fn count(&self, signal: Signal) -> f64 {
        self.histograms.get(&signal).map_or(0.0, |growth| growth.count)
    }

    /// Completed requests: the output-token histogram's count, else the finished counter (planning.md 1.5).
    pub fn completed(&self) -> f64 {
        match self.histograms.get(&Signal::OutputTokens) {
            Some(growth) => growth.count,
            None => self.tallies.get(&Tally::Finished).copied().unwrap_or(0.0),
        }
    }
}

impl Growth {
    /// Both together.
    pub fn with(mut self, other: Self) -> Self {
        self.add(other);
        self
    }

    /// Adds another target's, or another series'.
    pub fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
        self.buckets.add(other.buckets);
    }
}

impl Buckets {
    fn add(&mut self, other: Self) {
        *self = match (std::mem::take(self), other) {
            (Self::Unknown, other) => other,
            (known, Self::Unknown) => known,
            (Self::Known(mut mine), Self::Known(theirs)) if same_bounds(&mine, &theirs) => {
                for (mine, theirs) in mine.iter_mut().zip(&theirs) {
                    mine.1 += theirs.1;
                }
                Self::Known(mine)
            }
            _ => Self::Unusable,
        };
    }
}

/// Whether a page is a router's or a server's own; `None` where it has nothing that only one of them says.
fn says_router(page: &Sample) -> Option<bool> {
    let of_a_server = [Gauge::Running, Gauge::KvUsage, Gauge::KvCapacityTokens].iter().any(|gauge| page.gauges.contains_key(gauge));
    let router = page.is_of_a_router();
    (router || page.role.is_some() || of_a_server).then_some(router)
}

fn gauge_of(sample: &Sample, gauge: Gauge) -> Option<f64> {
    sample.gauges.get(&gauge).or_else(|| sample.fleet.get(&gauge)).copied()
}

/// When the process began: its own word, else the oldest of its series (Infera's pages have no process start).
fn began(sample: &Sample) -> Option<f64> {
    let created = sample.histograms.values().flat_map(|series| series.values()).filter_map(|histogram| histogram.created);
    sample.process_start.or_else(|| created.reduce(f64::min))
}

fn same_bounds(a: &[(f64, f64)], b: &[(f64, f64)]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0)
}

/// Whether the server restarted between two samples: a start time changed, or something cumulative fell.
fn restarted(before: &Sample, after: &Sample) -> bool {
    if let (Some(before), Some(after)) = (before.process_start, after.process_start)
        && (before - after).abs() > START_TIME_NOISE
    {
        return true;
    }
    let histogram_fell = after.histograms.iter().any(|(signal, series)| {
        let Some(earlier) = before.histograms.get(signal) else { return false };
        series.iter().any(|(key, now)| {
            earlier.get(key).is_some_and(|then| {
                now.count < then.count
                    || now.sum < then.sum
                    || (then.created.is_some() && now.created.is_some() && then.created != now.created)
            })
        })
    });
    histogram_fell
        || after.tallies.iter().any(|(tally, series)| {
            let Some(earlier) = before.tallies.get(tally) else { return false };
            series.iter().any(|(key, now)| earlier.get(key).is_some_and(|then| now < then))
        })
}

/// Brings `gone` up to date when `after` follows on `before`: what vanished comes to it, what is back leaves it.
fn part(gone: &mut Sample, before: &Sample, after: &Sample) {
    for (signal, series) in &before.histograms {
        let now = after.histograms.get(signal);
        let vanished = series.iter().filter(|(key, _)| now.is_none_or(|now| !now.contains_key(*key)));
        let vanished: Vec<_> = vanished.map(|(key, histogram)| (key.clone(), histogram.clone())).collect();
        if !vanished.is_empty() {
            gone.histograms.entry(*signal).or_default().extend(vanished);
        }
    }
    for (tally, series) in &before.tallies {
        let now = after.tallies.get(tally);
        let vanished = series.iter().filter(|(key, _)| now.is_none_or(|now| !now.contains_key(*key)));
        let vanished: Vec<_> = vanished.map(|(key, value)| (key.clone(), *value)).collect();
        if !vanished.is_empty() {
            gone.tallies.entry(*tally).or_default().extend(vanished);
        }
    }
    for (signal, series) in &after.histograms {
        if let Some(gone) = gone.histograms.get_mut(signal) {
            gone.retain(|key, _| !series.contains_key(key));
        }
    }
    for (tally, series) in &after.tallies {
        if let Some(gone) = gone.tallies.get_mut(tally) {
            gone.retain(|key, _| !series.contains_key(key));
        }
    }
    for (role, workers) in &before.workers {
        gone.workers.insert(*role, *workers);
    }
    gone.workers.retain(|role, _| !after.workers.contains_key(role));
}

/// What a target did between two good samples of one process; `None` where it restarted between them.
pub fn between(first: &Stamped, last: &Stamped) -> Option<Delta> {
    let delta = difference(first, last, &Sample::default(), &Signal::ALL, &Tally::ALL);
    (!restarted(&first.sample, &last.sample) && !delta.elapsed.is_zero() && delta.is_finite()).then_some(delta)
}

/// Growth of these measurements from `first` to `last`; series in `gone` grew up to their last sight.
fn difference(first: &Stamped, last: &Stamped, gone: &Sample, signals: &[Signal], tallies: &[Tally]) -> Delta {
    Delta {
        elapsed: last.at.saturating_sub(first.at),
        histograms: signals.iter().filter_map(|signal| Some((*signal, growth_between(*signal, first, last, gone)?))).collect(),
        tallies: tallies.iter().filter_map(|tally| Some((*tally, tally_between(*tally, first, last, gone)?))).collect(),
        itl_basis: last.sample.itl_basis,
    }
}

/// Growth of one histogram, all its series added; `None` where neither `last` nor `gone` has it.
fn growth_between(signal: Signal, first: &Stamped, last: &Stamped, gone: &Sample) -> Option<Growth> {
    let baseline = first.sample.histograms.get(&signal);
    let parts = [&*last.sample, gone].into_iter().filter_map(|sample| sample.histograms.get(&signal));
    parts.fold(None, |sum, part| {
        let mut sum: Growth = sum.unwrap_or_default();
        for (key, now) in part {
            sum.add(histogram_growth(baseline.and_then(|series| series.get(key)), now));
        }
        Some(sum)
    })
}

/// Growth of one counter, likewise.
fn tally_between(tally: Tally, first: &Stamped, last: &Stamped, gone: &Sample) -> Option<f64> {
    let baseline = first.sample.tallies.get(&tally);
    let then = |key: &SeriesKey| baseline.and_then(|series| series.get(key)).copied().unwrap_or(0.0);
    let parts = [&*last.sample, gone].into_iter().filter_map(|sample| sample.tallies.get(&tally));
    parts.map(|part| part.iter().map(|(key, now)| now - then(key)).sum::<f64>()).reduce(|one, other| one + other)
}

fn histogram_growth(then: Option<&Histogram>, now: &Histogram) -> Growth {
    let Some(then) = then else {
        return Growth { sum: now.sum, count: now.count, buckets: bucket_growth(None, &now.buckets) };
    };
    Growth { sum: now.sum - then.sum, count: now.count - then.count, buckets: bucket_growth(Some(then.buckets.as_slice()), &now.buckets) }
}

fn bucket_growth(then: Option<&[(f64, f64)]>, now: &[(f64, f64)]) -> Buckets {
    if now.is_empty() {
        return Buckets::Unusable;
    }
    let grown: Vec<_> = match then {
        None => now.to_vec(),
        // Between two scrapes with different bounds only sum and count mean something.
        Some(then) if !same_bounds(then, now) => return Buckets::Unusable,
        Some(then) => now.iter().zip(then).map(|(now, then)| (now.0, now.1 - then.1)).collect(),
    };
    let rises = grown.iter().all(|bucket| bucket.1 >= 0.0) && grown.windows(2).all(|pair| pair[0].1 <= pair[1].1);
    if rises { Buckets::Known(grown) } else { Buckets::Unusable }
}
