//! How is a page walked? Line by line, once: decide by the name whether a line is wanted, read it if so, and judge the page at its end.

use std::borrow::Cow;

use memchr::memchr;

use super::duplicates;
use super::line::{self, End, Fault, Rest};
use super::page::{Family, Kind, Page, Part, Sample};
use super::problems::{Problem, ProblemKind, Problems};
use super::refusal::{Refusal, sniff};
use super::wanted::{Directory, Suffix, Target, Wanted, plainly};
use super::{Format, is_blank, without_carriage_return};

/// Reads a page: the families that `wanted` names, or the reason why none of it may be used.
pub fn read<'a>(body: &'a [u8], format: Format, wanted: &Wanted) -> Result<Page<'a>, Refusal> {
    if let Some(refusal) = sniff(body) {
        return Err(refusal);
    }
    let mut reader = Reader::new(body, format, wanted);
    for line in Lines::of(body) {
        reader.line(line)?;
    }
    reader.finish()
}

/// A line of the page without its line end.
#[derive(Clone, Copy)]
struct Line<'a> {
    text: &'a [u8],
    /// Counted from 1.
    number: u32,
    /// Whether the line has a line end.
    ended: bool,
}

struct Lines<'a> {
    rest: &'a [u8],
    number: u32,
}

impl<'a> Lines<'a> {
    fn of(body: &'a [u8]) -> Self {
        Self { rest: body, number: 0 }
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

/// A family under construction.
#[derive(Default)]
struct Draft<'a> {
    name: Option<Cow<'a, str>>,
    declared: Option<(Cow<'a, str>, Kind)>,
    samples: Vec<Sample<'a>>,
    /// Of `samples`, in the same order.
    fingerprints: Vec<u64>,
}

/// A name at the very start of a line, and where it belongs. Lines of one name stand together, so the last answer mostly holds.
#[derive(Clone, Copy, Default)]
struct Memo<'a> {
    name: &'a [u8],
    target: Option<Target>,
}

struct Reader<'a, 'w> {
    format: Format,
    directory: Cow<'w, Directory>,
    all: bool,
    /// By place in the directory.
    drafts: Vec<Draft<'a>>,
    memo: Memo<'a>,
    /// Room for names in plain spelling.
    plain: String,
    /// How many labels the last sample had: the next one mostly has as many.
    labels: usize,
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
        let directory = if wanted.all { Cow::Owned(declared(body)) } else { Cow::Borrowed(&wanted.families) };
        let mut drafts = Vec::new();
        drafts.resize_with(directory.len(), Draft::default);
        Self {
            format,
            directory,
            all: wanted.all,
            drafts,
            memo: Memo::default(),
            plain: String::new(),
            labels: 0,
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
            return;
        }
        let Some((name, kind)) = line::type_of(line.text) else { return };
        self.has_metadata = true;
        plainly(&name, &mut self.plain);
        // `TYPE` of `x_created` or `x_sum` says nothing about `x`.
        let Some(Target { family, suffix: Suffix::None | Suffix::Total }) = self.directory.find(&self.plain) else { return };
        let kind = Kind::from_word(kind);
        match &self.drafts[family].declared {
            None => self.drafts[family].declared = Some((name, kind)),
            Some((_, first)) if *first != kind => {
                let expected = "the same type as in the first TYPE line of this family";
                self.problems.note(Problem { kind: ProblemKind::ConflictingType, line: line.number, column: None, expected });
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
        match line::rest(line.text, name_end, self.labels) {
            Err(fault) => self.unreadable(line, &fault, target.is_some()),
            Ok(rest) => {
                self.samples += 1;
                if let Some(target) = target {
                    self.keep(line, target, rest);
                }
            }
        }
    }

    /// Where the line belongs, and where its name ends.
    #[inline]
    fn route(&mut self, text: &'a [u8]) -> Result<(Option<Target>, End), Fault> {
        let Memo { name, target } = self.memo;
        if !name.is_empty() && text.starts_with(name) && matches!(text.get(name.len()), Some(b'{' | b' ' | b'\t')) {
            return Ok((target, End { at: name.len(), in_braces: false }));
        }
        let name = line::name(text)?;
        let target = self.find(name.text);
        if !name.end.in_braces && !is_blank(text[0]) {
            self.memo = Memo { name: &text[..name.end.at], target };
        }
        Ok((target, name.end))
    }

    fn find(&mut self, name: Cow<'a, str>) -> Option<Target> {
        plainly(&name, &mut self.plain);
        let mut found = self.directory.find(&self.plain);
        if found.is_none() && self.all {
            let (stem, suffix) = Suffix::split(&self.plain);
            let family = self.directory.to_mut().insert(stem);
            self.drafts.resize_with(self.directory.len(), Draft::default);
            found = Some(Target { family, suffix });
        }
        let target = found?;
        self.drafts[target.family].name.get_or_insert_with(|| target.suffix.cut_from(name));
        found
    }

    fn unreadable(&mut self, line: Line<'a>, fault: &Fault, wanted: bool) {
        if !line.ended {
            self.cut = Some(line.number);
        } else if wanted {
            self.note(fault.kind, line, fault.at, fault.expected);
        }
    }

    fn note(&mut self, kind: ProblemKind, line: Line<'a>, at: usize, expected: &'static str) {
        let column = u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1);
        self.problems.note(Problem { kind, line: line.number, column: Some(column), expected });
    }

    fn keep(&mut self, line: Line<'a>, target: Target, rest: Rest<'a>) {
        let Rest { mut labels, value, value_at, repairs } = rest;
        self.labels = labels.len();
        if let Some(at) = repairs.unknown_escape {
            self.note(ProblemKind::UnknownEscape, line, at, r#"one of the escapes `\\`, `\"` and `\n`"#);
        }
        if let Some(at) = repairs.invalid_utf8 {
            self.note(ProblemKind::InvalidUtf8, line, at, "a label value in UTF-8");
        }
        if !labels.is_sorted_by(|left, right| left.0 < right.0) {
            labels.sort_unstable_by(|left, right| left.0.cmp(&right.0));
            if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
                return self.note(ProblemKind::RepeatedLabel, line, 0, "every label name once");
            }
        }
        let part = match part(target.suffix, &mut labels) {
            Ok(part) => part,
            Err(expected) => return self.note(ProblemKind::BadBound, line, 0, expected),
        };
        if !value.is_finite() {
            return self.note(ProblemKind::NotFinite, line, value_at, "a finite number");
        }
        let draft = &mut self.drafts[target.family];
        let sample = Sample { part, labels, value, line: line.number };
        draft.fingerprints.push(duplicates::fingerprint(&sample));
        draft.samples.push(sample);
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
        let drafts = std::mem::take(&mut self.drafts);
        let mut families: Vec<Family<'a>> = drafts.into_iter().filter_map(|draft| self.complete(draft)).collect();
        families.sort_by_key(|family| family.samples.first().map(|sample| sample.line));
        Ok(Page { families, problems: self.problems, lines_seen: self.lines, samples_seen: self.samples })
    }

    /// The finished family without repeated series; `None` if it has no samples.
    fn complete(&mut self, mut draft: Draft<'a>) -> Option<Family<'a>> {
        let repeated = duplicates::repeated(&draft.samples, &draft.fingerprints);
        for &place in &repeated {
            let expected = "every series once";
            self.problems.note(Problem { kind: ProblemKind::DuplicateSeries, line: draft.samples[place].line, column: None, expected });
        }
        if !repeated.is_empty() {
            let mut repeated = repeated.into_iter().peekable();
            let mut place = 0..;
            draft.samples.retain(|_| repeated.next_if_eq(&place.next().unwrap_or_default()).is_none());
        }
        let (name, kind) = draft.declared.or(draft.name.map(|name| (name, Kind::Untyped)))?;
        (!draft.samples.is_empty()).then_some(Family { name, kind, samples: draft.samples })
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
        directory.insert(name);
    }
    let mut plain = String::new();
    for name in created {
        plainly(name, &mut plain);
        if directory.find(&plain).is_none() {
            directory.insert(name);
        }
    }
    directory
}

/// What a sample with this suffix is. Takes the bound out of the labels of a bucket or a quantile; the error says what was expected.
fn part(suffix: Suffix, labels: &mut Vec<(Cow<'_, str>, Cow<'_, str>)>) -> Result<Part, &'static str> {
    let mut bound = |name: &str| {
        let place = labels.binary_search_by(|(label, _)| label.as_ref().cmp(name)).ok()?;
        let number = super::number::parse(labels.remove(place).1.as_bytes()).unwrap_or(f64::NAN);
        // Adding zero makes -0 and 0 one bound.
        Some(number + 0.0)
    };
    match suffix {
        Suffix::None | Suffix::Total => match bound("quantile") {
            Some(share) if !share.is_finite() => Err("a finite number as `quantile`"),
            Some(share) => Ok(Part::Quantile(share)),
            None if suffix == Suffix::Total => Ok(Part::Total),
            None => Ok(Part::Value),
        },
        Suffix::Sum => Ok(Part::Sum),
        Suffix::Count => Ok(Part::Count),
        Suffix::Created => Ok(Part::Created),
        Suffix::Bucket => match bound("le") {
            Some(bound) if bound.is_finite() || bound == f64::INFINITY => Ok(Part::Bucket(bound)),
            Some(_) => Err("a number or `+Inf` as `le`"),
            None => Err("a bucket's label `le`"),
        },
    }
}
