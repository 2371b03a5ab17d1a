//! Which lines are like ones before them? They are read, or passed, without a search for their end and without taking them apart.
//!
//! Every short cut reads a line exactly as the plain way in `reader` would, or leaves it to the plain way. What they look for is what exporters
//! write: comments, then lines with one name, label lists that the page had before, whole numbers, and nothing behind the value.

use memchr::memchr;

use super::line;
use super::lines::Lines;
use super::number;
use super::reader::{Reader, part};
use super::wanted::{Suffix, Target};

impl<'a> Reader<'a, '_> {
    /// Goes on over all lines up to one that has to be read in the plain way.
    pub(super) fn ahead(&mut self, lines: &mut Lines<'a>) {
        // Behind the end no line is like one before it.
        if self.eof {
            return;
        }
        while let Some(first) = lines.rest.first() {
            let passed = if *first == b'#' { self.comment_ahead(lines) } else { self.sample_ahead(lines) };
            if !passed {
                return;
            }
        }
    }

    fn comment_ahead(&mut self, lines: &mut Lines<'a>) -> bool {
        if lines.rest.starts_with(line::HELP) {
            let Some(end) = memchr(b'\n', lines.rest) else { return false };
            lines.pass(end + 1);
            return true;
        }
        let Some((name, kind, length)) = line::plain_type_of(lines.rest) else { return false };
        lines.pass(length);
        let target = self.declare(name.into(), kind, lines.number);
        // The lines behind it have this name as a rule.
        self.expect(name, target);
        true
    }

    #[inline]
    fn sample_ahead(&mut self, lines: &mut Lines<'a>) -> bool {
        if self.followers(lines) {
            return true;
        }
        match self.route_bare(lines.rest) {
            // The first sample must prove that this is an exposition.
            Some((None, name_end)) => self.samples > 0 && self.unwanted(lines, name_end),
            Some((Some(target), name_end)) if target.suffix == Suffix::Bucket => self.run(lines, target, name_end),
            Some((Some(target), name_end)) => self.seen(lines, target, name_end),
            None => false,
        }
    }

    /// Passes the lines with the name that ends at `name_end`, which nobody wants.
    fn unwanted(&mut self, lines: &mut Lines<'a>, name_end: usize) -> bool {
        let (name, mut passed) = (&lines.rest[..name_end], 0);
        while matches!(lines.rest.get(name_end), Some(b'{' | b' ' | b'\t'))
            && lines.rest.starts_with(name)
            && let Some(end) = memchr(b'\n', &lines.rest[name_end..])
        {
            lines.pass(name_end + end + 1);
            passed += 1;
        }
        self.samples += passed;
        passed > 0
    }

    /// Reads the lines that are like the last bucket line.
    #[inline]
    fn followers(&mut self, lines: &mut Lines<'a>) -> bool {
        let Some(bucket) = self.bucket else { return false };
        let before = lines.number;
        while let Some((part, value, length)) = bucket.follower(lines.rest) {
            lines.pass(length);
            self.draft.push(bucket.family, part, bucket.set, lines.number, value);
        }
        let read = lines.number - before;
        self.samples += read as usize;
        read > 0
    }

    /// Reads bucket lines that differ from those of an earlier run in their name.
    fn run(&mut self, lines: &mut Lines<'a>, target: Target, name_end: usize) -> bool {
        let behind = &lines.rest[name_end..];
        let Some(bucket) = self.buckets.find(|bucket| behind.starts_with(bucket.labels())) else { return false };
        self.bucket = Some(bucket.under(lines.rest, name_end, target.family));
        self.followers(lines)
    }

    /// Reads a line whose labels stood on the page before, word for word, and which has nothing behind its value.
    fn seen(&mut self, lines: &mut Lines<'a>, target: Target, name_end: usize) -> bool {
        let behind = &lines.rest[name_end..];
        let Some((set, value_at)) = self.draft.sets.seen(behind) else { return false };
        let (Ok(part), Some((value, length))) = (part(target.suffix, None), number::ends_line(&behind[value_at..])) else { return false };
        lines.pass(name_end + value_at + length);
        self.samples += 1;
        self.draft.push(target.family, part, set, lines.number, value);
        true
    }
}
