//! How do samples that come line by line become a page's families? Collected in the order of the page, put in order at its end.

use std::borrow::Cow;

use super::duplicates;
use super::page::{Heading, Kind, Outline, Row};
use super::problems::{Problem, ProblemKind, Problems};
use super::sets::Sets;

/// The families of a page under construction.
pub(super) struct Draft<'a> {
    /// By place in the directory.
    families: Vec<Declared<'a>>,
    /// How many families have samples.
    ranks: u32,
    entries: Vec<Entry>,
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

/// A sample, with the rank of its family.
struct Entry {
    rank: u32,
    row: Row,
    value: f64,
}

impl<'a> Draft<'a> {
    /// A draft of so many families.
    pub fn of(families: usize) -> Self {
        let mut draft = Self { families: Vec::new(), ranks: 0, entries: Vec::new(), sets: Sets::default() };
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

    #[inline]
    pub fn push(&mut self, family: usize, row: Row, value: f64) {
        let rank = *self.families[family].rank.get_or_insert_with(|| {
            self.ranks += 1;
            self.ranks - 1
        });
        self.entries.push(Entry { rank, row, value });
    }

    /// The families without repeated series, and the values of their rows.
    pub fn finish(mut self, problems: &mut Problems) -> (Outline<'a>, Vec<f64>) {
        if !self.entries.is_sorted_by_key(|entry| entry.rank) {
            self.entries.sort_by_key(|entry| entry.rank);
        }
        let mut values: Vec<f64> = self.entries.iter().map(|entry| entry.value).collect();
        let mut rows: Vec<Row> = self.entries.iter().map(|entry| entry.row).collect();
        let mut spans = self.spans();
        let repeated = self.repeated(&rows, &spans, problems);
        if !repeated.is_empty() {
            let kept = |place: usize| repeated.binary_search(&place).is_err();
            let mut place = 0..;
            rows.retain(|_| kept(place.next().unwrap_or_default()));
            let mut place = 0..;
            values.retain(|_| kept(place.next().unwrap_or_default()));
            self.entries =
                std::mem::take(&mut self.entries).into_iter().zip(0..).filter(|(_, place)| kept(*place)).map(|(entry, _)| entry).collect();
            spans = self.spans();
        }
        let mut families: Vec<Option<Heading<'a>>> = spans.iter().map(|_| None).collect();
        for family in self.families {
            let Some(rank) = family.rank else { continue };
            let heading = family.declared.or(family.name.map(|name| (name, Kind::Untyped)));
            families[rank as usize] = heading.map(|(name, kind)| Heading { name, kind, rows: spans[rank as usize] });
        }
        (Outline { families: families.into_iter().flatten().collect(), rows, sets: self.sets.into_lists() }, values)
    }

    /// From which entry to which each family reaches, by rank. None is empty: of equal series the first one stays.
    fn spans(&self) -> Vec<(usize, usize)> {
        let mut spans = Vec::with_capacity(self.ranks as usize);
        let mut from = 0;
        for family in self.entries.chunk_by(|one, next| one.rank == next.rank) {
            spans.push((from, from + family.len()));
            from += family.len();
        }
        spans
    }

    /// The rows that repeat a series, in rising order; each is noted, family by family in the order of the directory.
    fn repeated(&self, rows: &[Row], spans: &[(usize, usize)], problems: &mut Problems) -> Vec<usize> {
        let (mut found, mut room) = (Vec::new(), Vec::new());
        for (from, to) in self.families.iter().filter_map(|family| family.rank).map(|rank| spans[rank as usize]) {
            for place in duplicates::repeated(&rows[from..to], &mut room) {
                let line = rows[from + place].line;
                problems.note(Problem { kind: ProblemKind::DuplicateSeries, line, column: None, expected: "every series once" });
                found.push(from + place);
            }
        }
        found.sort_unstable();
        found
    }
}
