//! Which lines say the same as the bucket line before them, but for the bound and the value? Two comparisons tell, and no label is read again.

use std::ops::Range;

use super::number;
use super::page::Part;
use super::reader::part;
use super::wanted::Suffix;

/// Longest bound that is looked for: no number that an exporter prints is longer.
const LONGEST_BOUND: usize = 32;

/// A bucket line that was read, in UTF-8 and without repairs.
#[derive(Clone, Copy)]
pub(super) struct Bucket<'a> {
    /// The line up to the bound.
    head: &'a [u8],
    /// Where in it the name ends.
    name_end: usize,
    /// From the quote behind the bound up to the value.
    tail: &'a [u8],
    /// Its place in the directory.
    pub family: usize,
    /// The number of its labels.
    pub set: u32,
}

impl<'a> Bucket<'a> {
    /// The line with its name, its bound, which is free of escapes, and its value at these places.
    pub fn of(line: &'a [u8], name_end: usize, bound: Range<usize>, value_at: usize, family: usize, set: u32) -> Self {
        Self { head: &line[..bound.start], name_end, tail: &line[bound.end..value_at], family, set }
    }

    /// What stands between the name and the bound.
    pub fn labels(&self) -> &'a [u8] {
        &self.head[self.name_end..]
    }

    /// A bucket with the same labels, behind the name that `page` starts with.
    pub fn under(self, page: &'a [u8], name_end: usize, family: usize) -> Self {
        Self { head: &page[..name_end + self.labels().len()], name_end, family, ..self }
    }

    /// The part, the value and the length with the line end of the line that `page` starts with, if it is such a follower with a bound and a
    /// value that can be read and nothing behind them.
    #[inline]
    pub fn follower(&self, page: &[u8]) -> Option<(Part, f64, usize)> {
        // The quote alone tells most other lines apart.
        if page.get(self.head.len() - 1) != Some(&b'"') {
            return None;
        }
        let behind = page.strip_prefix(self.head)?;
        let (part, bound) = bound(behind)?;
        let (value, length) = number::ends_line(behind[bound..].strip_prefix(self.tail)?)?;
        Some((part, value, self.head.len() + bound + self.tail.len() + length))
    }
}

/// The bound up to the quote that closes it, and its length.
#[inline]
fn bound(text: &[u8]) -> Option<(Part, usize)> {
    match number::short(text) {
        Some((bound, length)) if text.get(length) == Some(&b'"') => return Some((Part::Bucket(bound), length)),
        _ => {}
    }
    let quote = text.iter().take(LONGEST_BOUND).position(|&byte| byte == b'"')?;
    // A number has no backslash in it, so the quote was not escaped.
    Some((part(Suffix::Bucket, Some(&text[..quote])).ok()?, quote))
}
