//! How is a page walked? Line by line, once: decide by the name whether a line is wanted, read it if so, and judge the page at its end.

use std::borrow::Cow;

use memchr::memchr;

use super::draft::Draft;
use super::follower::Bucket;
use super::line::{self, End, Fault, Rest};
use super::page::{Holder, Kind, Page, Part, Row};
use super::problems::{Problem, ProblemKind, Problems};
use super::refusal::{Refusal, sniff};
use super::wanted::{Directory, Suffix, Target, Wanted};
use super::{Format, is_blank, number, without_carriage_return};

/// Reads a page: the families that `wanted` names, or the reason why none of it may be used.
pub fn read<'a>(body: &'a [u8], format: Format, wanted: &Wanted) -> Result<Page<'a>, Refusal> {
    if let Some(refusal) = sniff(body) {
        return Err(refusal);
    }
    let mut reader = Reader::new(body, format, wanted);
    let mut lines = Lines::of(body);
    while !lines.rest.is_empty() {
        if let Some(length) = reader.unwanted(lines.rest).or_else(|| reader.follower(&lines)) {
            lines.pass(length);
        } else if let Some(line) = lines.next() {
            reader.line(line)?;
        }
    }
    reader.finish()
}

/// A line of the page without its line end.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub text: &'a [u8],
    /// Counted from 1.
    pub number: u32,
    /// Whether the line has a line end.
    pub ended: bool,
}

pub(super) struct Lines<'a> {
    rest: &'a [u8],
    number: u32,
}

impl<'a> Lines<'a> {
    pub fn of(body: &'a [u8]) -> Self {
        Self { rest: body, number: 0 }
    }

    /// Goes on behind a line of this length, line end included.
    fn pass(&mut self, length: usize) {
        self.rest = &self.rest[length..];
        self.number = self.number.saturating_add(1);
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    #[inline]
    fn next(&mut self) -> Option<Line<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(b'\n', self.rest);
        let text = without_carriage_return(&self.rest[..end.unwrap_or(self.rest.len())]);
        self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
        self.number = self.number.saturating_add(1);
        Some(Line { text, number: self.number, ended: end.is_some() })
    }
}

/// A name at the very start of a line, and where it belongs.
#[derive(Clone, Copy, Default)]
struct Memo<'a> {
    name: &'a [u8],
    target: Option<Target>,
}

struct Reader<'a, 'w> {
    format: Format,
    directory: Cow<'w, Directory>,
    all: bool,
    draft: Draft<'a>,
    /// The last bucket line, where the next one may be like it.
    bucket: Option<Bucket<'a>>,
    /// The latest names, the last one first. Lines of one name stand together, and with several engines in one process the bucket, sum
    /// and count lines of a histogram take turns, so one of these answers nearly always holds.
    memo: [Memo<'a>; 3],
    problems: Problems,
    lines: usize,
    samples: usize,
    /// Lines that are neither blank nor comments.
    texts: usize,
    has_metadata: bool,
    /// The line of `# EOF` was seen, in OpenMetrics.
    eof: bool,
    /// The last line, if it has no line end and cannot be read.
    cut: Option<u32>,
}

impl<'a, 'w> Reader<'a, 'w> {
    fn new(body: &'a [u8], format: Format, wanted: &'w Wanted) -> Self {
        let directory = if wanted.all { Cow::Owned(declared(body)) } else { Cow::Borrowed(&*wanted.families) };
        let draft = Draft::of(directory.len());
        Self {
            format,
            directory,
            all: wanted.all,
            draft,
            bucket: None,
            memo: Default::default(),
            problems: Problems::default(),
            lines: 0,
            samples: 0,
            texts: 0,
            has_metadata: false,
            eof: false,
            cut: None,
        }
    }

    #[inline]
    fn line(&mut self, line: Line<'a>) -> Result<(), Refusal> {
        self.lines += 1;
        // Most lines start with a letter; the others are looked at more closely.
        let first = match line.text.first() {
            Some(byte) if is_blank(*byte) => line.text.iter().copied().find(|&byte| !is_blank(byte)),
            first => first.copied(),
        };
        match first {
            None => return Ok(()),
            Some(_) if self.eof => return Err(Refusal::TextAfterEof { line: line.number }),
            Some(b'#') => self.comment(line),
            Some(_) => self.sample(line),
        }
        Ok(())
    }

    fn comment(&mut self, line: Line<'a>) {
        if self.format == Format::OpenMetrics && line.text.trim_ascii_end() == b"# EOF" {
            self.eof = true;
            // No line behind the end may pass for one like another.
            self.bucket = None;
            return;
        }
        let Some((name, kind)) = line::type_of(line.text) else { return };
        self.has_metadata = true;
        // `TYPE` of `x_created` or `x_sum` says nothing about `x`.
        let Some(Target { family, suffix: Suffix::None | Suffix::Total }) = self.directory.find(&name) else { return };
        let kind = Kind::from_word(kind);
        let declared = &mut self.draft.family(family).declared;
        match declared {
            None => *declared = Some((line::text_of(name), kind)),
            Some((_, first)) if *first != kind => {
                self.note(ProblemKind::ConflictingType, line.number, None, "the same type as in the first TYPE line of this family");
            }
            Some(_) => {}
        }
    }

    #[inline]
    fn sample(&mut self, line: Line<'a>) {
        self.texts += 1;
        let (target, name_end) = match self.route(line.text) {
            Ok(route) => route,
            Err(fault) => return self.unreadable(line, &fault, true),
        };
        // One sample that was read through proves that this is an exposition; unwanted lines behind it are taken on trust.
        // The last line is always read if it has no line end, since only that shows whether the body was cut short.
        if target.is_none() && self.samples > 0 && line.ended {
            self.samples += 1;
            return;
        }
        if let Some(target) = target
            && self.seen(line, target, name_end)
        {
            return;
        }
        let bound = target.and_then(|target| bound_label(target.suffix));
        match line::rest(line.text, name_end, bound, self.draft.sets.room()) {
            Err(fault) => self.unreadable(line, &fault, target.is_some()),
            Ok(rest) => {
                self.samples += 1;
                if let Some(target) = target {
                    self.keep(line, target, name_end, rest);
                }
            }
        }
    }

    /// Passes a line with the last name, if that is not wanted, and gives its length. It could be passed as any other.
    #[inline]
    fn unwanted(&mut self, rest: &[u8]) -> Option<usize> {
        let Memo { name, target: None } = self.memo[0] else { return None };
        if !matches!(rest.get(name.len()), Some(b'{' | b' ')) || self.samples == 0 || self.eof || name.is_empty() || !rest.starts_with(name)
        {
            return None;
        }
        let end = name.len() + memchr(b'\n', &rest[name.len()..])?;
        self.lines += 1;
        self.texts += 1;
        self.samples += 1;
        Some(end + 1)
    }

    /// Reads a line like the last bucket line, and gives its length. It could be read as any other; most lines that are wanted are such.
    #[inline]
    fn follower(&mut self, lines: &Lines<'a>) -> Option<usize> {
        let bucket = self.bucket.as_ref()?;
        let (part, value, length) = bucket.follower(lines.rest)?;
        self.lines += 1;
        self.texts += 1;
        self.samples += 1;
        self.draft.push(bucket.family, Row { part, set: bucket.set, line: lines.number.saturating_add(1) }, value);
        Some(length)
    }

    /// Reads a line whose labels stood on the page before, word for word, and which has nothing behind its value.
    #[inline]
    fn seen(&mut self, line: Line<'a>, target: Target, name_end: End) -> bool {
        if name_end.in_braces {
            return false;
        }
        let text = &line.text[name_end.at..];
        let Some((set, value_at)) = self.draft.sets.seen(text) else { return false };
        let (Ok(part), Some(value)) = (part(target.suffix, None), number::parse(&text[value_at..])) else { return false };
        if !value.is_finite() {
            return false;
        }
        self.samples += 1;
        self.draft.push(target.family, Row { part, set, line: line.number }, value);
        true
    }

    /// Where the line belongs, and where its name ends.
    #[inline]
    fn route(&mut self, text: &'a [u8]) -> Result<(Option<Target>, End), Fault> {
        for place in 0..self.memo.len() {
            let Memo { name, target } = self.memo[place];
            if matches!(text.get(name.len()), Some(b'{' | b' ' | b'\t')) && !name.is_empty() && text.starts_with(name) {
                if place > 0 {
                    self.memo[..=place].rotate_right(1);
                }
                return Ok((target, End { at: name.len(), in_braces: false }));
            }
        }
        let name = line::name(text)?;
        let target = self.find(name.text);
        if !name.end.in_braces && !is_blank(text[0]) {
            self.memo.rotate_right(1);
            self.memo[0] = Memo { name: &text[..name.end.at], target };
        }
        Ok((target, name.end))
    }

    fn find(&mut self, name: Cow<'a, [u8]>) -> Option<Target> {
        let mut found = self.directory.find(&name);
        if found.is_none() && self.all {
            let (stem, suffix) = Suffix::split(&name);
            let family = self.directory.to_mut().insert(&String::from_utf8_lossy(stem));
            self.draft.grow(self.directory.len());
            found = Some(Target { family, suffix });
        }
        let target = found?;
        self.draft.family(target.family).name.get_or_insert_with(|| target.suffix.cut_from(line::text_of(name)));
        found
    }

    fn unreadable(&mut self, line: Line<'a>, fault: &Fault, wanted: bool) {
        if !line.ended {
            self.cut = Some(line.number);
        } else if wanted {
            self.note(fault.kind, line.number, Some(fault.at), fault.expected);
        }
    }

    fn note(&mut self, kind: ProblemKind, line: u32, at: Option<usize>, expected: &'static str) {
        let column = at.map(|at| u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1));
        self.problems.note(Problem { kind, line, column, expected });
    }

    fn keep(&mut self, line: Line<'a>, target: Target, name_end: End, rest: Rest<'a>) {
        let Rest { bound, bound_at, value, value_at, repairs, is_text } = rest;
        if let Some(at) = repairs.unknown_escape {
            self.note(ProblemKind::UnknownEscape, line.number, Some(at), r#"one of the escapes `\\`, `\"` and `\n`"#);
        }
        if let Some(at) = repairs.invalid_utf8 {
            self.note(ProblemKind::InvalidUtf8, line.number, Some(at), "a label value in UTF-8");
        }
        if !self.draft.sets.sort() {
            return self.note(ProblemKind::RepeatedLabel, line.number, None, "every label name once");
        }
        let part = match part(target.suffix, bound.as_deref().map(str::as_bytes)) {
            Ok(part) => part,
            Err(expected) => return self.note(ProblemKind::BadBound, line.number, None, expected),
        };
        if !value.is_finite() {
            return self.note(ProblemKind::NotFinite, line.number, Some(value_at), "a finite number");
        }
        let depends = self.draft.sets.may_bound();
        let set = self.draft.sets.number();
        self.draft.push(target.family, Row { part, set, line: line.number }, value);
        // What was repaired must be noted at every line.
        if is_text && repairs.is_none() && !name_end.in_braces {
            match bound {
                None if !depends => self.draft.sets.remember(&line.text[name_end.at..value_at], set),
                Some(Cow::Borrowed(bound)) if target.suffix == Suffix::Bucket => {
                    self.bucket = Some(Bucket::of(line.text, bound_at, bound.len(), value_at, target.family, set));
                }
                _ => {}
            }
        }
    }

    fn finish(mut self) -> Result<Page<'a>, Refusal> {
        match self.cut {
            // With no sample to go by, metadata tells a page that ends early from a message that is no page.
            Some(line) if self.samples > 0 || self.has_metadata => return Err(Refusal::CutShort { line }),
            _ if self.texts == 0 => return Err(Refusal::Empty),
            _ if self.samples == 0 => return Err(Refusal::NotExposition),
            _ if self.format == Format::OpenMetrics && !self.eof => return Err(Refusal::MissingEof),
            _ => {}
        }
        let (outline, values) = self.draft.finish(&mut self.problems);
        let outline = Holder::Own(outline);
        Ok(Page { outline, values, problems: self.problems, lines_seen: self.lines, samples_seen: self.samples })
    }
}

/// The families that the page's `TYPE` lines declare. Read ahead, because metadata may stand behind the samples that it is about.
///
/// Text pages declare the creation times of `x` as a family `x_created` of their own; they belong to `x`.
fn declared(body: &[u8]) -> Directory {
    let comments = Lines::of(body).filter(|line| line.text.first() == Some(&b'#'));
    let names: Vec<_> = comments.filter_map(|line| line::type_of(line.text)).map(|(name, _)| name).collect();
    let (created, others): (Vec<_>, Vec<_>) = names.iter().partition(|name| Suffix::split(name).1 == Suffix::Created);
    let mut directory = Directory::default();
    for name in others {
        directory.insert(&line::text_of(Cow::Borrowed(name)));
    }
    for name in created {
        if directory.find(name).is_none() {
            directory.insert(&line::text_of(Cow::Borrowed(name)));
        }
    }
    directory
}

/// The label that holds the bound of a sample with this suffix.
fn bound_label(suffix: Suffix) -> Option<&'static str> {
    match suffix {
        Suffix::Bucket => Some("le"),
        Suffix::None | Suffix::Total => Some("quantile"),
        Suffix::Sum | Suffix::Count | Suffix::Created => None,
    }
}

/// What a sample with this suffix and this bound is; the error says what was expected.
pub(super) fn part(suffix: Suffix, bound: Option<&[u8]>) -> Result<Part, &'static str> {
    // Adding zero makes -0 and 0 one bound.
    let number = bound.map(|text| number::parse(text).unwrap_or(f64::NAN) + 0.0);
    match (suffix, number) {
        (Suffix::Bucket, Some(bound)) if bound.is_finite() || bound == f64::INFINITY => Ok(Part::Bucket(bound)),
        (Suffix::Bucket, _) => Err("a number or `+Inf` as the bucket's label `le`"),
        (Suffix::None | Suffix::Total, Some(share)) if share.is_finite() => Ok(Part::Quantile(share)),
        (Suffix::None | Suffix::Total, Some(_)) => Err("a finite number as `quantile`"),
        (Suffix::None, None) => Ok(Part::Value),
        (Suffix::Total, None) => Ok(Part::Total),
        (Suffix::Sum, _) => Ok(Part::Sum),
        (Suffix::Count, _) => Ok(Part::Count),
        (Suffix::Created, _) => Ok(Part::Created),
    }
}
