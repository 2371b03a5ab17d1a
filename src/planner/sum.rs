//! What did a source's targets do together? Their windows, added up, with what is missing from them.
//!
//! Demand is what all targets completed over the time of the window, also those that were listed for a part of it: when a pool grows from two
//! replicas to four, the new ones take over requests that the old ones would have served, and each request is counted once, where it ended.
//!
//! | window 180 s | completed | listed | described | coverage |
//! |---|---|---|---|---|
//! | a replica of the whole window | 360 | 180 s | 180 s | |
//! | one that came after 120 s | 120 | 60 s | 60 s | |
//! | one that left after 90 s, last scraped at 85 s | 170 | 90 s | 85 s | |
//! | together: 650 / 180 s = 3.6 requests/s | 650 | 330 s | 325 s | 1, since each is described for nine tenths |
//!
//! Where routers and the servers behind them stand in one list of traffic targets, each request is on two pages: that of the router counts, which
//! sees the whole of it. A target that never said what it is counts as silent.

use std::time::Duration;

use super::input::{Sample, Signal, SourceId, Tally};
use super::memory::SourceMemory;
use super::observe::WHOLE_SHARE;
use super::window::{Delta, Departed, Growth, TargetWindow};
use crate::units::{Ratio, RequestsPerSecond, Seconds};

/// A stretch of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub began: Duration,
    pub ended: Duration,
}

impl Span {
    fn seconds(self) -> f64 {
        self.ended.saturating_sub(self.began).as_secs_f64()
    }
}

/// The windows of one source's targets, added up.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub source: SourceId,
    pub total: Delta,
    spans: Vec<f64>,
    /// Targets of the present list that have a window.
    pub described: usize,
    pub coverage: Ratio,
    /// Requests a second that the data in hand support.
    pub supported: f64,
    /// The same with silent targets at their last or the average rate.
    pub cautious: f64,
    /// Arrivals a second that the data in hand support.
    pub offered: f64,
    /// The same with silent targets at their last or the average rate of completions.
    pub offered_cautious: f64,
    /// Whether a target does not say what arrives, so that its completions stand for it.
    pub censored: bool,
}

impl Sum {
    fn nothing(source: SourceId) -> Self {
        Self {
            source,
            total: Delta::default(),
            spans: Vec::new(),
            described: 0,
            coverage: Ratio(0.0),
            supported: 0.0,
            cautious: 0.0,
            offered: 0.0,
            offered_cautious: 0.0,
            censored: false,
        }
    }

    pub fn over(source: &SourceMemory, window: Span, longest: Duration) -> Self {
        let mut sum = Self::nothing(source.source.clone());
        let whole = window.seconds();
        let (mut described_time, mut listed_time) = (0.0, 0.0);
        let mut seen_rates = 0.0;
        let mut silent: Vec<(f64, f64, &TargetWindow)> = Vec::new();
        for target in counted(source) {
            let listed = Span { began: target.known_from.unwrap_or(window.began).max(window.began), ..window }.seconds();
            listed_time += listed;
            let Some(delta) = known(target, &Signal::ALL, &Tally::ALL).filter(|delta| delta.elapsed <= longest) else {
                silent.push((0.0, listed, target));
                continue;
            };
            sum.described += 1;
            let elapsed = delta.elapsed.as_secs_f64();
            let rate = delta.completed() / elapsed;
            seen_rates += rate;
            let is_described = elapsed >= WHOLE_SHARE * listed;
            described_time += if is_described { listed } else { elapsed };
            // A target of the whole window keeps its own time, which differs from the window's by the rhythm of its scrapes.
            let share = if is_described && target.known_from.is_none() { 1.0 } else { (elapsed / whole).min(1.0) };
            sum.spans.push(if share < 1.0 && is_described { whole } else { elapsed });
            sum.supported += rate * share;
            let (arrived, said) = target.arrived(&delta);
            let offered = arrived / elapsed * share;
            sum.total.add(delta);
            sum.censored |= !said;
            sum.offered += offered;
            if is_described {
                let last = before_its_restart(target) * share;
                sum.cautious += (rate * share).max(last);
                sum.offered_cautious += offered.max(last);
            } else {
                silent.push((rate, listed, target));
            }
        }
        for departed in counted_departed(source) {
            let (listed, elapsed) = (departed.listed.as_secs_f64(), departed.delta.elapsed.as_secs_f64());
            sum.total.add(departed.delta.clone());
            listed_time += listed;
            described_time += if elapsed >= WHOLE_SHARE * listed { listed } else { elapsed };
            let rate = departed.delta.completed() / whole.max(elapsed);
            for total in [&mut sum.supported, &mut sum.cautious, &mut sum.offered, &mut sum.offered_cautious] {
                *total += rate;
            }
        }
        if listed_time > 0.0 {
            sum.coverage = Ratio(described_time / listed_time);
        }
        let average = if sum.described > 0 { seen_rates / sum.described as f64 } else { 0.0 };
        for (rate, listed, target) in silent {
            let last = target.last_rate.map_or(0.0, RequestsPerSecond::get);
            let share = if whole > 0.0 { listed / whole } else { 1.0 };
            let assumed = rate.max(last).max(average) * share;
            sum.cautious += assumed;
            sum.offered_cautious += assumed;
        }
        // Adding in another order may differ in the last bit; the cautious number is the larger one by definition.
        sum.cautious = sum.cautious.max(sum.supported);
        sum.offered_cautious = sum.offered_cautious.max(sum.offered);
        sum
    }

    /// Growth of one histogram in windows of at most `longest`, all targets added: what `total` says of it.
    pub fn growth(source: &SourceMemory, signal: Signal, longest: Duration) -> Option<Growth> {
        let deltas = counted(source).filter_map(|target| known(target, &[signal], &[]).filter(|delta| delta.elapsed <= longest));
        let listed = deltas.filter_map(|mut delta| delta.histograms.remove(&signal));
        let departed = counted_departed(source).filter_map(|left| left.delta.histograms.get(&signal)).cloned();
        listed.chain(departed).reduce(Growth::with)
    }

    /// Two sources of one role as one: variants that serve the same requests.
    pub fn with(mut self, other: &Self) -> Self {
        self.total.add(other.total.clone());
        self.spans.extend(&other.spans);
        self.described += other.described;
        self.coverage = if other.coverage < self.coverage { other.coverage } else { self.coverage };
        self.supported += other.supported;
        self.cautious += other.cautious;
        self.offered += other.offered;
        self.offered_cautious += other.offered_cautious;
        self.censored |= other.censored;
        self
    }

    /// H such that requests over H is the rate: the common span where all targets share one, else the requests over the summed rates.
    pub fn elapsed(&self) -> Seconds {
        let longest = self.spans.iter().copied().fold(0.0, f64::max);
        let requests = self.total.completed();
        let quotient = requests / self.supported;
        if !quotient.is_finite() || self.spans.iter().all(|&span| span == longest) && self.coverage == Ratio(1.0) {
            return Seconds(longest);
        }
        Seconds(quotient)
    }
}

/// The targets that count.
fn counted(source: &SourceMemory) -> impl Iterator<Item = &TargetWindow> {
    let routers = routers_count(source);
    source.targets.values().filter(move |target| !routers || target.is_router() != Some(false))
}

/// Those of them that left.
fn counted_departed(source: &SourceMemory) -> impl Iterator<Item = &Departed> {
    let routers = routers_count(source);
    source.departed.iter().filter(move |left| !routers || left.router)
}

/// Whether routers stand in a list of traffic targets: they count alone.
fn routers_count(source: &SourceMemory) -> bool {
    source.source == SourceId::Traffic
        && (source.targets.values().any(|target| target.is_router() == Some(true)) || source.departed.iter().any(|left| left.router))
}

/// What a target did by these measurements, without the counters that its first page lacked although it counted requests: from where they went on is
/// not known, and not from zero. Servers whose counters appear with the first event have counted no request before it.
fn known(target: &TargetWindow, signals: &[Signal], tallies: &[Tally]) -> Option<Delta> {
    let mut delta = target.delta_of(signals, tallies)?;
    let first = target.first.as_ref().map(|first| &*first.sample);
    if let Some(first) = first.filter(|first| counts_requests(first)) {
        delta.histograms.retain(|signal, _| first.histograms.contains_key(signal));
        delta.tallies.retain(|tally, _| first.tallies.contains_key(tally));
    }
    Some(delta)
}

fn counts_requests(page: &Sample) -> bool {
    page.histograms.get(&Signal::OutputTokens).is_some_and(|series| series.values().any(|histogram| histogram.count > 0.0))
}

/// Requests a second that a target which restarted in the window served before it: what it counted after its last page is lost.
fn before_its_restart(target: &TargetWindow) -> f64 {
    let restarted = target.first.as_ref().is_some_and(|first| first.sample.is_empty());
    let last = target.last_rate.filter(|_| restarted);
    last.map_or(0.0, RequestsPerSecond::get)
}
