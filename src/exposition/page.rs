//! What does a page hold? Families of samples, in the order of the page.

use std::borrow::Cow;

use super::problems::Problems;
use super::wanted::{other_spelling, same_name};

/// The wanted families of one page.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<'a> {
    /// In the order of their first samples.
    pub(super) families: Vec<Family<'a>>,
    /// What was repaired or lost.
    pub problems: Problems,
    /// Lines of the page, comments and blank ones included.
    pub lines_seen: usize,
    /// Samples of the page, wanted or not, finite or not. Above zero. Unwanted ones after the first are counted without being read.
    pub samples_seen: usize,
}

impl<'a> Page<'a> {
    /// The family called `name`, with `:` and `_` as the same character, and else the one called so with or without `_total`.
    pub fn family(&self, name: &str) -> Option<&Family<'a>> {
        let called = |name: &str| self.families.iter().find(|family| same_name(&family.name, name));
        called(name).or_else(|| called(&other_spelling(name)))
    }

    /// The families in the order of their first samples. A family that is only declared is not among them: absent is not zero.
    pub fn families(&self) -> impl ExactSizeIterator<Item = &Family<'a>> {
        self.families.iter()
    }
}

/// The samples with one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family<'a> {
    /// As the page's `TYPE` line spells it; without one, as the first sample does without its suffix.
    pub name: Cow<'a, str>,
    /// What the page's first `TYPE` line says; a hint only.
    pub kind: Kind,
    /// In the order of the page, at least one, no series twice.
    pub samples: Vec<Sample<'a>>,
}

/// What a `TYPE` line says about a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Only rises, until a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets with sum and count.
    Histogram,
    /// Quantiles with sum and count.
    Summary,
    /// Not declared, or declared as something else.
    Untyped,
}

impl Kind {
    pub(super) fn from_word(word: &[u8]) -> Self {
        match word {
            b"counter" => Self::Counter,
            b"gauge" => Self::Gauge,
            b"histogram" => Self::Histogram,
            b"summary" => Self::Summary,
            _ => Self::Untyped,
        }
    }
}

/// One readable line with a finite value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// What the value is in its family.
    pub part: Part,
    /// Names with unescaped values, sorted by name, no name twice; without the `le` or `quantile` that `part` holds.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Finite.
    pub value: f64,
    /// The line of the page, counted from 1.
    pub line: u32,
}

impl Sample<'_> {
    /// The value of the label called `name`.
    pub fn label(&self, name: &str) -> Option<&str> {
        let place = self.labels.binary_search_by(|(label, _)| label.as_ref().cmp(name)).ok()?;
        Some(&self.labels[place].1)
    }
}

/// What a sample is in its family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// The family's own name: a gauge, or a counter without `_total`.
    Value,
    /// `_total`: a counter.
    Total,
    /// `_sum`: the sum of all observations.
    Sum,
    /// `_count`: the number of observations.
    Count,
    /// `_bucket`: the number of observations up to this bound, which is a number or plus infinity.
    Bucket(f64),
    /// `_created`: when counting started, in seconds of Unix time.
    Created,
    /// The value that this share of the observations does not exceed; the share is finite.
    Quantile(f64),
}

impl Part {
    /// A number that differs between parts that differ. Bounds are never NaN or -0.
    pub(super) fn key(self) -> (u8, u64) {
        match self {
            Self::Value => (0, 0),
            Self::Total => (1, 0),
            Self::Sum => (2, 0),
            Self::Count => (3, 0),
            Self::Bucket(bound) => (4, bound.to_bits()),
            Self::Created => (5, 0),
            Self::Quantile(share) => (6, share.to_bits()),
        }
    }
}
