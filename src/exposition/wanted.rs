//! Which family does a line belong to?
//!
//! A family `f` has samples named `f`, `f_total`, `f_sum`, `f_count`, `f_bucket` and `f_created`. Names are compared whole: a family
//! whose name merely starts with another's is a different family. If a name can be read in two ways, the whole name wins over a
//! suffix, so a histogram called `tokens_total` keeps its `tokens_total_bucket` although `tokens` may be wanted as well.
//!
//! Two spellings of one name count as one. Exporters, proxies and a widespread client library's OpenMetrics turn `a:b` into `a_b`,
//! sometimes within one page; and a counter is called `x` by its source and `x_total` on the page.

use std::borrow::Cow;
use std::sync::Arc;

use super::table::Table;

/// The families that a caller asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub(super) families: Arc<Directory>,
    pub(super) all: bool,
}

impl Wanted {
    /// The families with these names. `:` and `_` count as the same character, and a counter may be named with or without `_total`.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut families = Directory::default();
        for name in names {
            families.insert(name);
        }
        Self { families: Arc::new(families), all: false }
    }

    /// Every family of the page, told apart by its `TYPE` lines and by suffixes.
    pub fn all() -> Self {
        Self { families: Arc::default(), all: true }
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
    /// `name` without its suffix, and the suffix.
    #[inline]
    pub(super) fn split(name: &[u8]) -> (&[u8], Self) {
        let cut = |suffix, text: &str| name.strip_suffix(text.as_bytes()).filter(|stem| !stem.is_empty()).map(|stem| (stem, suffix));
        // The last letter leaves two suffixes at most to compare with.
        let found = match name.last() {
            Some(b't') => cut(Self::Bucket, "_bucket").or_else(|| cut(Self::Count, "_count")),
            Some(b'm') => cut(Self::Sum, "_sum"),
            Some(b'l') => cut(Self::Total, TOTAL),
            Some(b'd') => cut(Self::Created, "_created"),
            _ => None,
        };
        found.unwrap_or((name, Self::None))
    }

    /// What remains of `name` without this suffix.
    pub(super) fn cut_from(self, name: Cow<'_, str>) -> Cow<'_, str> {
        let (stem, suffix) = Self::split(name.as_bytes());
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        if let Some(found) = self.names.get(name.as_bytes()) {
            return found;
        }
        if let Some(stem) = name.strip_suffix(TOTAL).filter(|stem| !stem.is_empty()) {
            self.stems.insert(stem, next);
        }
        self.names.insert(name, next);
        next
    }

    /// Where a sample or `TYPE` line with this name belongs.
    pub(super) fn find(&self, name: &[u8]) -> Option<Target> {
        let (stem, suffix) = Suffix::split(name);
        if let Some(family) = self.names.get(name) {
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
        self.stems.get(name).map(|family| Target { family, suffix: Suffix::None })
    }
}

/// Whether two names are one in plain spelling.
pub(super) fn same_name(left: &[u8], right: &[u8]) -> bool {
    let plain = |byte: u8| if byte == b':' { b'_' } else { byte };
    left.len() == right.len() && (left == right || left.iter().zip(right).all(|(&left, &right)| plain(left) == plain(right)))
}

/// Whether `known` is `asked` with `_total` taken away, or put behind it if it is not there.
pub(super) fn other_spelling(known: &[u8], asked: &[u8]) -> bool {
    match asked.strip_suffix(TOTAL.as_bytes()) {
        Some(stem) if !stem.is_empty() => same_name(known, stem),
        _ => known.split_at_checked(asked.len()).is_some_and(|(stem, end)| same_name(stem, asked) && same_name(end, TOTAL.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(wanted: &[&str], name: &str) -> Option<(usize, Suffix)> {
        Wanted::new(wanted.iter().copied()).families.find(name.as_bytes()).map(|target| (target.family, target.suffix))
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
        assert_eq!(Suffix::split(b"_total"), (&b"_total"[..], Suffix::None));
        assert_eq!(find(&["_total"], "_total"), Some((0, Suffix::None)));
    }
}
