//! How is a page walked? Line by line, once: decide by the name whether a line is wanted, read it if so, and judge the page at its end.

use std::borrow::Cow;

use super::draft::Draft;
use super::follower::Bucket;
use super::line::{self, End, Fault, Rest};
use super::lines::{Line, Lines};
use super::page::{Holder, Kind, Page, Part};
use super::problems::{Problem, ProblemKind, Problems};
use super::recent::Recent;
use super::refusal::{Refusal, sniff};
use super::wanted::{Directory, Suffix, Target, Wanted};
use super::{Format, is_blank, number};

/// Reads a page: the families that `wanted` names, or the reason why none of it may be used.
pub fn read<'a>(body: &'a [u8], format: Format, wanted: &Wanted) -> Result<Page<'a>, Refusal> {
    if let Some(refusal) = sniff(body) {
        return Err(refusal);
    }
    let mut reader = Reader::new(body, format, wanted);
    let mut lines = Lines::of(body);
    loop {
        reader.ahead(&mut lines);
        let Some(line) = lines.next() else { break };
        reader.line(line)?;
    }
    reader.finish(lines.number)
}

/// A name at the very start of a line, and where it belongs.
#[derive(Clone, Copy, Default)]
struct Memo<'a> {
    name: &'a [u8],
    target: Option<Target>,
}

pub(super) struct Reader<'a, 'w> {
    format: Format,
    directory: Cow<'w, Directory>,
    all: bool,
    pub draft: Draft<'a>,
    /// The last bucket line, where the next one may be like it.
    pub bucket: Option<Bucket<'a>>,
    /// A bucket line of each label list.
    pub buckets: Recent<Bucket<'a>>,
    /// The latest names, the last one first. Lines of one name stand together, and with several engines in one process the bucket, sum
    /// and count lines of a histogram take turns, so one of these answers nearly always holds.
    memo: [Memo<'a>; 3],
    problems: Problems,
    pub samples: usize,
    /// Whether a line that is neither blank nor a comment could not be read.
    has_unreadable: bool,
    has_metadata: bool,
    /// The line of `# EOF` was seen, in OpenMetrics.
    pub eof: bool,
    /// The last line, if it has no line end and cannot be read.
    cut: Option<u32>,
}

impl<'a, 'w> Reader<'a, 'w> {
    fn new(body: &'a [u8], format: Format, wanted: &'w Wanted) -> Self {
        let directory = if wanted.all { Cow::Owned(declared(body)) } else { Cow::Borrowed(&*wanted.families) };
        let draft = Draft::of(directory.len(), body.len());
        Self {
            format,
            directory,
            all: wanted.all,
            draft,
            bucket: None,
            buckets: Recent::default(),
            memo: Default::default(),
            problems: Problems::default(),
            samples: 0,
            has_unreadable: false,
            has_metadata: false,
            eof: false,
            cut: None,
        }
    }

    #[inline]
    fn line(&mut self, line: Line<'a>) -> Result<(), Refusal> {
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
        } else if let Some((name, kind)) = line::type_of(line.text) {
            self.declare(name, kind, line.number);
        }
    }

    /// Takes note of a `TYPE` line.
    pub(super) fn declare(&mut self, name: Cow<'a, [u8]>, kind: &[u8], line: u32) -> Option<Target> {
        self.has_metadata = true;
        let found = self.directory.find(&name);
        // `TYPE` of `x_created` or `x_sum` says nothing about `x`.
        if let Some(Target { family, suffix: Suffix::None | Suffix::Total }) = found {
            let kind = Kind::from_word(kind);
            let declared = &mut self.draft.family(family).declared;
            match declared {
                None => *declared = Some((line::text_of(name), kind)),
                Some((_, first)) if *first != kind => {
                    self.note(ProblemKind::ConflictingType, line, None, "the same type as in the first TYPE line of this family");
                }
                Some(_) => {}
            }
        }
        found
    }

    #[inline]
    fn sample(&mut self, line: Line<'a>) {
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

    /// Where the line belongs, and where its name ends.
    fn route(&mut self, text: &'a [u8]) -> Result<(Option<Target>, End), Fault> {
        if let Some((target, at)) = self.route_bare(text) {
            return Ok((target, End { at, in_braces: false }));
        }
        let name = line::name(text)?;
        Ok((self.find(name.text), name.end))
    }

    /// The same for a line that starts with a bare name and has more behind it; `text` may go on behind the line.
    #[inline]
    pub(super) fn route_bare(&mut self, text: &'a [u8]) -> Option<(Option<Target>, usize)> {
        let ends_at = |at: usize| matches!(text.get(at), Some(b'{' | b' ' | b'\t'));
        for place in 0..self.memo.len() {
            let Memo { name, target } = self.memo[place];
            if ends_at(name.len()) && !name.is_empty() && text.starts_with(name) {
                self.memo[..=place].rotate_right(1);
                return Some((target, name.len()));
            }
        }
        let name = line::bare(text);
        if name.is_empty() || !ends_at(name.len()) {
            return None;
        }
        let target = self.find(Cow::Borrowed(name));
        self.remember(Memo { name, target });
        Some((target, name.len()))
    }

    /// Takes the name of a `TYPE` line, a bare one, for one of a sample line.
    pub(super) fn expect(&mut self, name: &'a [u8], target: Option<Target>) {
        // Where looking it up there would add to the directory or name the family, that must be done.
        if target.map_or(!self.all, |target| self.draft.family(target.family).has_name()) {
            self.remember(Memo { name, target });
        }
    }

    fn remember(&mut self, memo: Memo<'a>) {
        self.memo.rotate_right(1);
        self.memo[0] = memo;
    }

    fn find(&mut self, name: Cow<'a, [u8]>) -> Option<Target> {
        let mut found = self.directory.find(&name);
        if found.is_none() && self.all {
            let (stem, suffix) = Suffix::split(&name);
            let family = self.directory.to_mut().insert(&String::from_utf8_lossy(stem));
            self.draft.grow(self.directory.len());
            // With a family more, names that were looked up before it may belong elsewhere.
            self.memo = Default::default();
            self.bucket = None;
            found = Some(Target { family, suffix });
        }
        let target = found?;
        self.draft.family(target.family).name.get_or_insert_with(|| target.suffix.cut_from(line::text_of(name)));
        found
    }

    fn unreadable(&mut self, line: Line<'a>, fault: &Fault, wanted: bool) {
        self.has_unreadable = true;
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
        let set = self.draft.sets.number();
        let depends = self.draft.sets.may_bound(set);
        self.draft.push(target.family, part, set, line.number, value);
        // What was repaired must be noted at every line.
        if is_text && repairs.is_none() && !name_end.in_braces {
            match bound {
                None if !depends => self.draft.sets.remember(&line.text[name_end.at..value_at], set),
                Some(Cow::Borrowed(bound)) if target.suffix == Suffix::Bucket => {
                    let bucket = Bucket::of(line.text, name_end.at, bound_at..bound_at + bound.len(), value_at, target.family, set);
                    self.bucket = Some(bucket);
                    self.buckets.keep(bucket);
                }
                _ => {}
            }
        }
    }

    fn finish(mut self, lines: u32) -> Result<Page<'a>, Refusal> {
        match self.cut {
            // With no sample to go by, metadata tells a page that ends early from a message that is no page.
            Some(line) if self.samples > 0 || self.has_metadata => return Err(Refusal::CutShort { line }),
            _ if self.samples == 0 && !self.has_unreadable => return Err(Refusal::Empty),
            _ if self.samples == 0 => return Err(Refusal::NotExposition),
            _ if self.format == Format::OpenMetrics && !self.eof => return Err(Refusal::MissingEof),
            _ => {}
        }
        let (outline, values) = self.draft.finish(&mut self.problems);
        let outline = Holder::Own(outline);
        Ok(Page { outline, values, problems: self.problems, lines_seen: lines as usize, samples_seen: self.samples })
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
