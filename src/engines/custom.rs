//! What does a server say whose dialect nobody has written down here? Names and labels from the configuration, role by role.
//!
//! The units are the planner's: seconds, tokens, requests, shares of 1. Several names for one role are tried in their order, as every engine does
//! with the names of its versions.

use super::Reading;
use super::series::{Combine, Labels, Reader, whole};
use crate::exposition::{Page, Sample as Line};
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};
use crate::units::Role;

/// What a configured family means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meaning {
    /// A histogram.
    Signal(Signal),
    /// A counter, or a histogram whose count is meant.
    Tally(Tally),
    /// A gauge of the target.
    Gauge(Gauge),
    /// A gauge: the ready replicas of a role, as a router sees the fleet.
    Ready(Role),
    /// When the process started, seconds since the Unix epoch.
    ProcessStart,
}

impl Meaning {
    /// All of them, in the order of the reference.
    pub fn all() -> impl Iterator<Item = Self> {
        let signals = Signal::ALL.map(Self::Signal).into_iter();
        let rest = Tally::ALL.map(Self::Tally).into_iter().chain(Gauge::ALL.map(Self::Gauge));
        signals.chain(rest).chain(Role::ALL.map(Self::Ready)).chain([Self::ProcessStart])
    }

    /// The name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signal(signal) => signal.as_str(),
            Self::Tally(tally) => tally.as_str(),
            Self::Gauge(gauge) => gauge.as_str(),
            Self::Ready(Role::Prefill) => "ready_prefill",
            Self::Ready(Role::Decode) => "ready_decode",
            Self::Ready(Role::Aggregated) => "ready_aggregated",
            Self::ProcessStart => "process_start",
        }
    }
}

/// One family that means something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// What it means.
    pub meaning: Meaning,
    /// Its name; `:` counts as `_`, and a counter's `_total` may be left out.
    pub name: String,
    /// Labels that a series must have with just these values.
    pub labels: Vec<(String, String)>,
}

/// A configured dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custom {
    /// The label that names the model; a page without it belongs to whichever model is asked for.
    pub model_label: String,
    /// Labels of ranks that repeat each other: the lowest is read.
    pub repeated_labels: Vec<String>,
    /// What the ITL histogram counts.
    pub itl_basis: ItlBasis,
    /// The families; the first that a page has counts for each meaning.
    pub metrics: Vec<Metric>,
}

impl Custom {
    /// The name in labels.
    pub const NAME: &str = "custom";

    /// Whether a family means the gauge.
    pub fn tells(&self, gauge: Gauge) -> bool {
        self.metrics.iter().any(|metric| metric.meaning == Meaning::Gauge(gauge))
    }

    /// Whether it says how many replicas are ready.
    pub fn counts_replicas(&self) -> bool {
        self.metrics.iter().any(|metric| matches!(metric.meaning, Meaning::Ready(_)))
    }

    /// The page in the planner's terms.
    pub fn read(&self, page: &Page<'_>) -> Reading {
        let repeated: Vec<&str> = self.repeated_labels.iter().map(String::as_str).collect();
        let mut reader = Reader::new(page, Labels { repeated: &repeated, ..Labels::by_model(&self.model_label) });
        for meaning in Meaning::all() {
            let mut named = self.metrics.iter().filter(|metric| metric.meaning == meaning);
            if let Some(metric) = named.find(|metric| page.family(&metric.name).is_some()) {
                metric.read(&mut reader);
            }
        }
        reader.finish(self.itl_basis)
    }
}

impl Metric {
    fn read(&self, reader: &mut Reader<'_, '_>) {
        let names = [self.name.as_str()];
        let which = |line: &Line<'_>| self.labels.iter().all(|(name, value)| line.label(name) == Some(value));
        match self.meaning {
            Meaning::Signal(signal) => reader.histogram_where(signal, &names, which),
            Meaning::Tally(tally @ (Tally::IterationTokens | Tally::PrefillSeconds)) => reader.tally_of_sum(tally, &names, which),
            Meaning::Tally(tally) => reader.tally_where(tally, &names, which),
            Meaning::Gauge(gauge) => {
                let combine = if gauge == Gauge::KvUsage { Combine::Max } else { Combine::Sum };
                for (model, value) in reader.gauges(combine, &names, which) {
                    reader.sample(model).gauges.insert(gauge, value);
                }
            }
            Meaning::Ready(role) => {
                for (model, value) in reader.gauges(Combine::Max, &names, which) {
                    reader.sample(model).workers.extend(whole(value).map(|ready| (role, ready)));
                }
            }
            Meaning::ProcessStart => reader.process_start(&names),
        }
    }
}
