//! Which family does a line belong to?
//!
//! A family `f` has samples named `f`, `f_total`, `f_sum`, `f_count`, `f_bucket` and `f_created`. Names are compared whole: a family
//! whose name merely starts with another's is a different family. If a name can be read in two ways, the whole name wins over a
//! suffix, so a histogram called `tokens_total` keeps its `tokens_total_bucket` although `tokens` may be wanted as well.
//!
//! Two spellings of one name count as one. Exporters, proxies and a widespread client library's OpenMetrics turn `a:b` into `a_b`,
//! sometimes within one page; and a counter is called `x` by its source and `x_total` on the page.

use std::borrow::Cow;

use memchr::memchr;

use super::duplicates::mix_text;

/// The families that a caller asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub(super) families: Directory,
    pub(super) all: bool,
}

impl Wanted {
    /// The families with these names. `:` and `_` count as the same character, and a counter may be named with or without `_total`.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut families = Directory::default();
        for name in names {
            families.insert(name);
        }
        Self { families, all: false }
    }

    /// Every family of the page, told apart by its `TYPE` lines and by suffixes.
    pub fn all() -> Self {
        Self { families: Directory::default(), all: true }
    }
}

/// What a sample's name says beyond its family's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suffix {
    None,
    Total,
    Sum,
    Count,
    Bucket,
    Created,
}

impl Suffix {
    const ALL: [(Self, &'static str); 5] =
        [(Self::Bucket, "_bucket"), (Self::Sum, "_sum"), (Self::Count, "_count"), (Self::Total, TOTAL), (Self::Created, "_created")];

    /// `name` without its suffix, and the suffix.
    pub(super) fn split(name: &str) -> (&str, Self) {
        Self::ALL
            .into_iter()
            .find_map(|(suffix, text)| name.strip_suffix(text).filter(|stem| !stem.is_empty()).map(|stem| (stem, suffix)))
            .unwrap_or((name, Self::None))
    }

    /// What remains of `name` without this suffix.
    pub(super) fn cut_from(self, name: Cow<'_, str>) -> Cow<'_, str> {
        let (stem, suffix) = Self::split(&name);
        let length = if suffix == self { stem.len() } else { name.len() };
        match name {
            Cow::Borrowed(name) => Cow::Borrowed(&name[..length]),
            Cow::Owned(mut name) => {
                name.truncate(length);
                Cow::Owned(name)
            }
        }
    }
}

const TOTAL: &str = "_total";

/// The place of a family in a [`Directory`], and what the sample is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub family: usize,
    pub suffix: Suffix,
}

/// Families by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    names: Table,
    /// The families whose name ends in `_total`, by what stands before it.
    stems: Table,
}

impl Directory {
    /// How many families there are; their places count from 0.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The place of the family `name`, which is added if it is new.
    pub(super) fn insert(&mut self, name: &str) -> usize {
        let next = self.names.len();
        let mut plain = String::new();
        plainly(name, &mut plain);
        if let Some(found) = self.names.get(&plain) {
            return found;
        }
        if let Some(stem) = plain.strip_suffix(TOTAL).filter(|stem| !stem.is_empty()) {
            self.stems.insert(stem, next);
        }
        self.names.insert(&plain, next);
        next
    }

    /// Where a sample or `TYPE` line with this name, in plain spelling, belongs.
    pub(super) fn find(&self, plain: &str) -> Option<Target> {
        let (stem, suffix) = Suffix::split(plain);
        if let Some(family) = self.names.get(plain) {
            let suffix = if suffix == Suffix::Total { suffix } else { Suffix::None };
            return Some(Target { family, suffix });
        }
        if suffix != Suffix::None
            && let Some(family) = self.names.get(stem)
        {
            return Some(Target { family, suffix });
        }
        if suffix == Suffix::Created
            && let Some(family) = self.stems.get(stem)
        {
            return Some(Target { family, suffix });
        }
        self.stems.get(plain).map(|family| Target { family, suffix: Suffix::None })
    }
}

/// Names with their places. A page asks for hundreds of names of which most are not there, and a hash tells that with one look.
#[derive(Clone, Debug, Default)]
struct Table {
    /// In the order in which they were added.
    names: Vec<(String, usize)>,
    /// Indices into `names` plus one, at the place that the hash gives or behind it; 0 is free. A power of two, at least twice the names.
    slots: Vec<u32>,
}

impl Table {
    fn len(&self) -> usize {
        self.names.len()
    }

    fn get(&self, name: &str) -> Option<usize> {
        self.slot(name).ok().map(|index| self.names[index].1)
    }

    /// The index of the name, or the free slot where it would stand; `usize::MAX` where there is no slot yet.
    fn slot(&self, name: &str) -> Result<usize, usize> {
        let mask = self.slots.len().wrapping_sub(1);
        if self.slots.is_empty() {
            return Err(usize::MAX);
        }
        let mut slot = mix_text(0, name.as_bytes()) as usize & mask;
        while let Some(index) = (self.slots[slot] as usize).checked_sub(1) {
            if self.names[index].0 == name {
                return Ok(index);
            }
            slot = (slot + 1) & mask;
        }
        Err(slot)
    }

    /// Adds a name, or gives one that is there another place.
    fn insert(&mut self, name: &str, place: usize) {
        match self.slot(name) {
            Ok(index) => self.names[index].1 = place,
            Err(_) => {
                self.names.push((name.to_owned(), place));
                if self.names.len() * 2 > self.slots.len() {
                    self.slots = vec![0; (self.names.len() * 4).next_power_of_two()];
                    (0..self.names.len()).for_each(|index| self.enter(index));
                } else {
                    self.enter(self.names.len() - 1);
                }
            }
        }
    }

    fn enter(&mut self, index: usize) {
        if let Err(slot) = self.slot(&self.names[index].0) {
            self.slots[slot] = u32::try_from(index + 1).unwrap_or(u32::MAX);
        }
    }
}

/// Writes `name` into `plain` with `_` for every `:`.
pub(super) fn plainly(name: &str, plain: &mut String) {
    plain.clear();
    let mut rest = name;
    while let Some(colon) = memchr(b':', rest.as_bytes()) {
        plain.push_str(&rest[..colon]);
        plain.push('_');
        rest = &rest[colon + 1..];
    }
    plain.push_str(rest);
}

/// Whether two names are one in plain spelling.
pub(super) fn same_name(left: &str, right: &str) -> bool {
    let plain = |byte: u8| if byte == b':' { b'_' } else { byte };
    left.len() == right.len() && left.bytes().zip(right.bytes()).all(|(left, right)| plain(left) == plain(right))
}

/// `name` with `_total` taken away, or put behind it if it is not there.
pub(super) fn other_spelling(name: &str) -> Cow<'_, str> {
    match name.strip_suffix(TOTAL) {
        Some(stem) if !stem.is_empty() => Cow::Borrowed(stem),
        _ => Cow::Owned(format!("{name}{TOTAL}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(wanted: &[&str], name: &str) -> Option<(usize, Suffix)> {
        let mut plain = String::new();
        plainly(name, &mut plain);
        Wanted::new(wanted.iter().copied()).families.find(&plain).map(|target| (target.family, target.suffix))
    }

    #[test]
    fn every_name_of_many_is_found_at_its_place_and_no_other() {
        let mut table = Table::default();
        assert_eq!(table.get("a0"), None);
        (0..1000).for_each(|place| table.insert(&format!("a{place}"), place));
        table.insert("a7", 7000);
        assert_eq!(table.len(), 1000);
        for place in 0..1000 {
            let expected = if place == 7 { 7000 } else { place };
            assert_eq!(table.get(&format!("a{place}")), Some(expected));
            assert_eq!(table.get(&format!("b{place}")), None);
        }
    }

    #[test]
    fn a_suffix_belongs_to_the_family_before_it() {
        let suffixes = [
            ("_total", Suffix::Total),
            ("_sum", Suffix::Sum),
            ("_count", Suffix::Count),
            ("_bucket", Suffix::Bucket),
            ("_created", Suffix::Created),
        ];
        for (text, suffix) in suffixes {
            assert_eq!(find(&["a", "f"], &format!("f{text}")), Some((1, suffix)));
        }
        assert_eq!(find(&["a", "f"], "f"), Some((1, Suffix::None)));
    }

    #[test]
    fn a_whole_name_wins_over_a_suffix() {
        assert_eq!(find(&["tokens", "tokens_total"], "tokens_total"), Some((1, Suffix::Total)));
        assert_eq!(find(&["tokens", "tokens_total"], "tokens_total_bucket"), Some((1, Suffix::Bucket)));
        assert_eq!(find(&["tokens", "tokens_total"], "tokens_bucket"), Some((0, Suffix::Bucket)));
        assert_eq!(find(&["tokens", "tokens_total"], "tokens_created"), Some((0, Suffix::Created)));
        assert_eq!(find(&["tokens", "tokens_count"], "tokens_count"), Some((1, Suffix::None)));
    }

    #[test]
    fn a_longer_name_is_another_family() {
        for name in ["f_by_reason", "f_totals", "ff", "f_sum_sum", "e_f", "f_total_sum", ""] {
            assert_eq!(find(&["f"], name), None, "{name}");
        }
    }

    #[test]
    fn a_counter_is_found_by_either_name() {
        assert_eq!(find(&["f"], "f_total"), Some((0, Suffix::Total)));
        assert_eq!(find(&["f_total"], "f_total"), Some((0, Suffix::Total)));
        assert_eq!(find(&["f_total"], "f"), Some((0, Suffix::None)));
        assert_eq!(find(&["f_total"], "f_created"), Some((0, Suffix::Created)));
        assert_eq!(find(&["f_total"], "f_sum"), None);
    }

    #[test]
    fn colon_and_underscore_are_one() {
        assert_eq!(find(&["a:b"], "a_b_total"), Some((0, Suffix::Total)));
        assert_eq!(find(&["a_b"], "a:b"), Some((0, Suffix::None)));
        assert_eq!(find(&["x", "a_b", "a:b"], "a:b"), Some((1, Suffix::None)));
    }

    #[test]
    fn a_bare_suffix_is_a_name() {
        assert_eq!(Suffix::split("_total"), ("_total", Suffix::None));
        assert_eq!(find(&["_total"], "_total"), Some((0, Suffix::None)));
    }
}
