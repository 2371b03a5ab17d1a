//! Which lines say the same as the bucket line before them, but for the bound and the value? Two comparisons tell, and no label is read again.

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
    /// From the quote behind the bound up to the value.
    tail: &'a [u8],
    /// Its place in the directory.
    pub family: usize,
    /// The number of its labels.
    pub set: u32,
}

impl<'a> Bucket<'a> {
    /// The line with its bound at `bound_at`, so many bytes long and free of escapes, and its value at `value_at`.
    pub fn of(line: &'a [u8], bound_at: usize, bound: usize, value_at: usize, family: usize, set: u32) -> Self {
        Self { head: &line[..bound_at], tail: &line[bound_at + bound..value_at], family, set }
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
        let quote = behind.iter().take(LONGEST_BOUND).position(|&byte| byte == b'"')?;
        let (bound, behind) = behind.split_at(quote);
        let (value, length) = number::ends_line(behind.strip_prefix(self.tail)?)?;
        // A number has no backslash in it, so the quote was not escaped.
        let part = part(Suffix::Bucket, Some(bound)).ok()?;
        Some((part, value, self.head.len() + quote + self.tail.len() + length))
    }
}
