//! How do samples that come line by line become a page's families? Collected in the order of the page, put in order at its end.

use std::borrow::Cow;

use super::duplicates;
use super::page::{Heading, Kind, Outline, Part, Row};
use super::problems::{Problem, ProblemKind, Problems};
use super::sets::Sets;

/// The families of a page under construction.
pub(super) struct Draft<'a> {
    /// By place in the directory.
    families: Vec<Declared<'a>>,
    /// The places of those that have samples, in the order of their first ones.
    ranks: Vec<usize>,
    /// Samples in the order of the page, without their values.
    rows: Vec<Row>,
    values: Vec<f64>,
    /// The rank of a family, and from which row on its samples stand. As a rule those of a family stand together.
    runs: Vec<(u32, usize)>,
    /// The family of the last run.
    last: Option<usize>,
    pub sets: Sets<'a>,
}

/// What is known of a family beside its samples.
#[derive(Default)]
pub(super) struct Declared<'a> {
    /// Of its first sample, without the suffix.
    pub name: Option<Cow<'a, str>>,
    pub declared: Option<(Cow<'a, str>, Kind)>,
    /// Its place among the families that have samples.
    rank: Option<u32>,
}

impl Declared<'_> {
    /// Whether the family has the name that it is shown with, and further ones change nothing.
    pub fn has_name(&self) -> bool {
        self.declared.is_some() || self.name.is_some()
    }
}

/// Room for so many rows is taken at most before they are there.
const MOST_ROOM: usize = 1024;
/// A row takes so many bytes of a page of which a third is wanted.
const BYTES_A_ROW: usize = 256;

impl<'a> Draft<'a> {
    /// A draft of so many families, from a page of so many bytes.
    pub fn of(families: usize, bytes: usize) -> Self {
        let room = (bytes / BYTES_A_ROW).min(MOST_ROOM);
        let mut draft = Self {
            families: Vec::new(),
            ranks: Vec::new(),
            rows: Vec::with_capacity(room),
            values: Vec::with_capacity(room),
            runs: Vec::new(),
            last: None,
            sets: Sets::default(),
        };
        draft.grow(families);
        draft
    }

    /// Makes room for so many families.
    pub fn grow(&mut self, families: usize) {
        self.families.resize_with(families, Declared::default);
    }

    pub fn family(&mut self, place: usize) -> &mut Declared<'a> {
        &mut self.families[place]
    }

    /// Adds a sample. Its row is given in parts, which stay in registers: a row that is written and read again at once costs a stall.
    #[inline]
    pub fn push(&mut self, family: usize, part: Part, set: u32, line: u32, value: f64) {
        if self.last != Some(family) {
            self.turn_to(family);
        }
        self.rows.push(Row { part, set, line });
        self.values.push(value);
    }

    /// Begins a run.
    fn turn_to(&mut self, family: usize) {
        let rank = *self.families[family].rank.get_or_insert_with(|| {
            self.ranks.push(family);
            u32::try_from(self.ranks.len() - 1).unwrap_or(u32::MAX)
        });
        self.runs.push((rank, self.rows.len()));
        self.last = Some(family);
    }

    /// The families without repeated series, and the values of their rows.
    pub fn finish(mut self, problems: &mut Problems) -> (Outline<'a>, Vec<f64>) {
        let mut spans = self.put_in_order();
        let repeated = self.repeated(&spans, problems);
        if !repeated.is_empty() {
            let kept = |place: usize| repeated.binary_search(&place).is_err();
            let mut place = 0..;
            self.rows.retain(|_| kept(place.next().unwrap_or_default()));
            let mut place = 0..;
            self.values.retain(|_| kept(place.next().unwrap_or_default()));
            let moved = |place: usize| place - repeated.partition_point(|gone| *gone < place);
            spans.iter_mut().for_each(|span| *span = (moved(span.0), moved(span.1)));
        }
        let mut families = Vec::with_capacity(spans.len());
        for (place, rows) in self.ranks.iter().zip(spans) {
            let family = std::mem::take(&mut self.families[*place]);
            let heading = family.declared.or(family.name.map(|name| (name, Kind::Untyped)));
            families.extend(heading.map(|(name, kind)| Heading { name, kind, rows }));
        }
        (Outline { families, rows: self.rows, sets: self.sets.into_lists() }, self.values)
    }

    /// Puts the samples of each family together, in the order of the ranks, and gives from which row to which each family reaches. None is
    /// empty: of equal series the first one stays.
    fn put_in_order(&mut self) -> Vec<(usize, usize)> {
        let ends = self.runs.iter().skip(1).map(|(_, start)| *start).chain([self.rows.len()]);
        let mut runs: Vec<(u32, usize, usize)> = self.runs.iter().zip(ends).map(|(&(rank, from), to)| (rank, from, to)).collect();
        if runs.len() > self.ranks.len() {
            runs.sort_by_key(|(rank, ..)| *rank);
            self.rows = runs.iter().flat_map(|&(_, from, to)| &self.rows[from..to]).copied().collect();
            self.values = runs.iter().flat_map(|&(_, from, to)| &self.values[from..to]).copied().collect();
        }
        let mut to = 0;
        let length = |runs: &[(u32, usize, usize)]| runs.iter().map(|(_, from, to)| to - from).sum::<usize>();
        let span = |runs| {
            let from = to;
            to += length(runs);
            (from, to)
        };
        runs.chunk_by(|one, next| one.0 == next.0).map(span).collect()
    }

    /// The rows that repeat a series, in rising order; each is noted, family by family in the order of the directory.
    fn repeated(&self, spans: &[(usize, usize)], problems: &mut Problems) -> Vec<usize> {
        let (mut found, mut room) = (Vec::new(), Vec::new());
        for (from, to) in self.families.iter().filter_map(|family| family.rank).map(|rank| spans[rank as usize]) {
            for place in duplicates::repeated(&self.rows[from..to], &mut room) {
                let line = self.rows[from + place].line;
                problems.note(Problem { kind: ProblemKind::DuplicateSeries, line, column: None, expected: "every series once" });
                found.push(from + place);
            }
        }
        found.sort_unstable();
        found
    }
}
