//! What does a page hold? Families of samples, in the order of the page.

use std::borrow::Cow;
use std::sync::Arc;

use super::problems::Problems;
use super::sets::Lists;
use super::wanted::{other_spelling, same_name};

/// The name and the unescaped value of a label.
pub type Label<'a> = (Cow<'a, str>, Cow<'a, str>);

/// The wanted families of one page.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    pub(super) outline: Holder<'a>,
    /// Of the outline's rows, in the same order. Finite.
    pub(super) values: Vec<f64>,
    /// What was repaired or lost.
    pub problems: Problems,
    /// Lines of the page, comments and blank ones included.
    pub lines_seen: usize,
    /// Samples of the page, wanted or not, finite or not. Above zero. Unwanted ones after the first are counted without being read.
    pub samples_seen: usize,
}

/// Whose outline a page has: its own, or that of an earlier page with the same series.
#[derive(Clone, Debug)]
pub(super) enum Holder<'a> {
    Own(Outline<'a>),
    Kept(Arc<Outline<'static>>),
}

/// All that a page says but its values.
#[derive(Clone, Debug, Default)]
pub(super) struct Outline<'a> {
    /// In the order of their first samples.
    pub families: Vec<Heading<'a>>,
    /// Family by family, each in the order of the page.
    pub rows: Vec<Row>,
    /// The label lists of the rows, each once, sorted by name.
    pub sets: Lists<'a>,
}

/// A family and its rows.
#[derive(Clone, Debug)]
pub(super) struct Heading<'a> {
    pub name: Cow<'a, str>,
    pub kind: Kind,
    /// From which row on, and up to which.
    pub rows: (usize, usize),
}

/// A sample without its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub part: Part,
    /// The place of its labels among the outline's.
    pub set: u32,
    pub line: u32,
}

impl<'a> Page<'a> {
    pub(super) fn outline(&self) -> &Outline<'_> {
        match &self.outline {
            Holder::Own(outline) => outline,
            Holder::Kept(outline) => outline,
        }
    }

    /// The family called `name`, with `:` and `_` as the same character, and else the one called so with or without `_total`.
    pub fn family(&self, name: &str) -> Option<Family<'_>> {
        let outline = self.outline();
        let called =
            |is_it: fn(&[u8], &[u8]) -> bool| outline.families.iter().find(|family| is_it(family.name.as_bytes(), name.as_bytes()));
        called(same_name).or_else(|| called(other_spelling)).map(|heading| self.with_rows(outline, heading))
    }

    /// The families in the order of their first samples. A family that is only declared is not among them: absent is not zero.
    pub fn families(&self) -> impl ExactSizeIterator<Item = Family<'_>> {
        let outline = self.outline();
        outline.families.iter().map(|heading| self.with_rows(outline, heading))
    }

    /// How many different label lists the samples have; [`Sample::set`] is below that.
    pub fn sets(&self) -> usize {
        self.outline().sets.len()
    }

    fn with_rows<'p>(&'p self, outline: &'p Outline<'p>, heading: &'p Heading<'p>) -> Family<'p> {
        let (from, to) = heading.rows;
        Family {
            name: &heading.name,
            kind: heading.kind,
            rows: &outline.rows[from..to],
            values: &self.values[from..to],
            sets: &outline.sets,
        }
    }
}

impl PartialEq for Page<'_> {
    fn eq(&self, other: &Self) -> bool {
        let counts = |page: &Self| (page.lines_seen, page.samples_seen);
        counts(self) == counts(other) && self.problems == other.problems && self.families().eq(other.families())
    }
}

/// The samples with one name.
#[derive(Clone, Copy, Debug)]
pub struct Family<'p> {
    /// As the page's `TYPE` line spells it; without one, as the first sample does without its suffix.
    pub name: &'p str,
    /// What the page's first `TYPE` line says; a hint only.
    pub kind: Kind,
    rows: &'p [Row],
    values: &'p [f64],
    sets: &'p Lists<'p>,
}

impl<'p> Family<'p> {
    /// In the order of the page, at least one, no series twice.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Sample<'p>> + Clone + use<'p> {
        let sets = self.sets;
        self.rows.iter().zip(self.values).map(move |(row, &value)| Sample {
            part: row.part,
            labels: sets.get(row.set),
            value,
            line: row.line,
            set: row.set,
        })
    }
}

impl PartialEq for Family<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.kind) == (other.name, other.kind) && self.samples().eq(other.samples())
    }
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
#[derive(Clone, Copy, Debug)]
pub struct Sample<'p> {
    /// What the value is in its family.
    pub part: Part,
    /// Names with unescaped values, sorted by name, no name twice; without the `le` or `quantile` that `part` holds.
    pub labels: &'p [Label<'p>],
    /// Finite.
    pub value: f64,
    /// The line of the page, counted from 1.
    pub line: u32,
    set: u32,
}

impl<'p> Sample<'p> {
    /// The value of the label called `name`.
    pub fn label(&self, name: &str) -> Option<&'p str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| &**value)
    }

    /// A number that is the same for all samples of the page with the same labels, and differs between others.
    pub fn set(&self) -> usize {
        self.set as usize
    }
}

impl PartialEq for Sample<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.part, self.labels, self.value, self.line) == (other.part, other.labels, other.value, other.line)
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
