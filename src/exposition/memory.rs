//! What of a page stays the same until the next scrape? As a rule everything but the values: names, labels, comments and their order.
//!
//! A page that differs from the remembered one in its values alone is compared with it from end to end, and only the values are read. One byte
//! that differs elsewhere, a value that cannot be read or is not finite, or a line more or less, and the memory has nothing to say: the page is
//! then read as if there were none. So a memory makes no page read differently, whichever page it is of.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memchr;

use super::page::{Heading, Holder, Label, Outline, Page};
use super::problems::Problems;
use super::refusal::sniff;
use super::wanted::{Directory, Wanted};
use super::{Format, is_blank, line, number, without_carriage_return};

/// A page without its values.
#[derive(Debug)]
pub struct Memory {
    format: Format,
    families: Arc<Directory>,
    all: bool,
    /// What does not change, line ends included, one part behind the other; the last part is behind the last value.
    fixed: Vec<u8>,
    /// What stands between the parts.
    gaps: Vec<Gap>,
    outline: Arc<Outline<'static>>,
    lines_seen: usize,
    samples_seen: usize,
}

/// The rest of a line, from its value on.
#[derive(Debug)]
struct Gap {
    /// Length of the part before it.
    fixed: u32,
    ending: Ending,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    /// The value of this row.
    Row(u32),
    /// Nobody wants it, but it must be a sample.
    Sample,
    /// Nobody reads it.
    Unread,
}

impl Memory {
    /// A memory of `page`, which was read from `body` in this way. `None` if there was any problem, since problems are noted at each reading,
    /// and if the last line has no end.
    pub fn of(body: &[u8], format: Format, wanted: &Wanted, page: &Page<'_>) -> Option<Self> {
        if !page.problems.is_empty() || body.last() != Some(&b'\n') {
            return None;
        }
        let outline = page.outline();
        let mut rows: Vec<(u32, u32)> = outline.rows.iter().map(|row| row.line).zip(0..).collect();
        rows.sort_unstable();
        let mut rows = rows.into_iter().peekable();
        let (mut fixed, mut gaps) = (Vec::with_capacity(body.len()), Vec::new());
        let mut part = 0;
        for (number, line) in (1..).zip(body.split_inclusive(|&byte| byte == b'\n')) {
            let row = rows.next_if(|(line, _)| *line == number).map(|(_, row)| row);
            let Some((value_at, ending)) = gap(line, row, gaps.is_empty())? else {
                fixed.extend_from_slice(line);
                continue;
            };
            fixed.extend_from_slice(&line[..value_at]);
            gaps.push(Gap { fixed: u32::try_from(fixed.len() - part).ok()?, ending });
            part = fixed.len();
        }
        fixed.shrink_to_fit();
        gaps.shrink_to_fit();
        Some(Self {
            format,
            families: Arc::clone(&wanted.families),
            all: wanted.all,
            fixed,
            gaps,
            outline: Arc::new(lasting(outline)),
            lines_seen: page.lines_seen,
            samples_seen: page.samples_seen,
        })
    }

    /// The page, exactly as [`read`](super::read) gives it, if it differs from the remembered one in nothing but values and is read in the
    /// same way; otherwise `None`.
    pub fn read(&self, body: &[u8], format: Format, wanted: &Wanted) -> Option<Page<'static>> {
        let same_families = Arc::ptr_eq(&self.families, &wanted.families) || self.families == wanted.families;
        if !same_families || (format, wanted.all) != (self.format, self.all) || sniff(body).is_some() {
            return None;
        }
        let mut values = vec![0.0; self.outline.rows.len()];
        let (mut fixed, mut rest) = (&self.fixed[..], body);
        for gap in &self.gaps {
            let (part, others) = fixed.split_at(gap.fixed as usize);
            fixed = others;
            rest = rest.strip_prefix(part)?;
            let length = match gap.ending {
                Ending::Unread => memchr(b'\n', rest)? + 1,
                Ending::Sample => sample(rest)?.1,
                Ending::Row(row) => {
                    let (value, length) = number::ends_line(rest).or_else(|| sample(rest).filter(|(value, _)| value.is_finite()))?;
                    values[row as usize] = value;
                    length
                }
            };
            rest = &rest[length..];
        }
        (rest == fixed).then(|| Page {
            outline: Holder::Kept(Arc::clone(&self.outline)),
            values,
            problems: Problems::default(),
            lines_seen: self.lines_seen,
            samples_seen: self.samples_seen,
        })
    }

    /// About as many bytes as the memory takes.
    pub fn size(&self) -> usize {
        let label = |(name, value): &Label<'_>| size_of::<Label<'_>>() + name.len() + value.len();
        let sets: usize = self.outline.sets.labels().iter().map(label).sum();
        let rows =
            size_of_val(&self.outline.rows[..]) + size_of_val(&self.outline.families[..]) + self.outline.sets.len() * size_of::<usize>();
        size_of::<Self>() + self.fixed.len() + size_of_val(&self.gaps[..]) + sets + rows
    }
}

/// Where the part of the line that may change begins, and what it is. The inner `None` is a line without such a part; the outer one, that the
/// page cannot be remembered.
fn gap(line: &[u8], row: Option<u32>, is_first: bool) -> Option<Option<(usize, Ending)>> {
    let text = without_carriage_return(line.strip_suffix(b"\n").unwrap_or(line));
    if text.iter().find(|&&byte| !is_blank(byte)).is_none_or(|&first| first == b'#') {
        return Some(None);
    }
    let name = line::name(text).ok()?;
    match (line::rest(text, name.end, None, &mut Vec::new()), row) {
        (Ok(rest), Some(row)) => Some(Some((rest.value_at, Ending::Row(row)))),
        // The first line must prove that this is an exposition.
        (Ok(rest), None) => Some(Some((rest.value_at, if is_first { Ending::Sample } else { Ending::Unread }))),
        // A line that nobody reads may say what it likes.
        (Err(_), None) if !is_first => Some(None),
        (Err(_), _) => None,
    }
}

/// The value that a line ends with, and its length with the line end; it may have a timestamp or an exemplar.
fn sample(rest: &[u8]) -> Option<(f64, usize)> {
    let end = memchr(b'\n', rest)?;
    let value = line::value(without_carriage_return(&rest[..end]), 0).ok()?;
    Some((value, end + 1))
}

/// The outline by itself, without the page.
fn lasting(outline: &Outline<'_>) -> Outline<'static> {
    let owned = |text: &Cow<'_, str>| Cow::Owned(text.as_ref().to_owned());
    Outline {
        families: outline
            .families
            .iter()
            .map(|family| Heading { name: owned(&family.name), kind: family.kind, rows: family.rows })
            .collect(),
        rows: outline.rows.clone(),
        sets: outline.sets.lasting(),
    }
}
