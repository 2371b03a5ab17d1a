//! What does one sample line say? `name{label="value",...} number [timestamp] [# exemplar]`, scanned once from left to right.
//!
//! The scan knows where it is inside quotes, so braces, commas, blanks and `#` in label values are data. A search for the closing
//! brace from either end would be shorter and wrong.
//!
//! Accepted beyond the formats' grammars, because exporters write it: blanks around every token, a comma before the closing brace,
//! an exemplar in plain text, a fractional timestamp, unknown escapes, label values that are not UTF-8.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use super::page::Label;
use super::problems::ProblemKind;
use super::{is_blank, number};

/// Why a line cannot be read.
pub(super) struct Fault {
    pub kind: ProblemKind,
    /// Index of the byte where reading stopped.
    pub at: usize,
    pub expected: &'static str,
}

/// The metric name of a line, and where the rest begins.
pub(super) struct Name<'a> {
    /// In UTF-8. Most names are looked up and never shown, so that they stay bytes.
    pub text: Cow<'a, [u8]>,
    pub end: End,
}

/// Where a name ends.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub at: usize,
    /// Whether the name is the first item inside the braces, as UTF-8 names are: `{"a.b",label="value"}`.
    pub in_braces: bool,
}

/// What follows the name of a readable line, beside its labels.
pub(super) struct Rest<'a> {
    /// The value of the label that holds a bound, if the line has it.
    pub bound: Option<Cow<'a, str>>,
    /// Index of that value, behind its opening quote.
    pub bound_at: usize,
    /// Not necessarily finite.
    pub value: f64,
    /// Index of the value.
    pub value_at: usize,
    pub repairs: Repairs,
    /// Whether the line is UTF-8 throughout.
    pub is_text: bool,
}

/// Where label values were first repaired.
#[derive(Clone, Copy, Default)]
pub(super) struct Repairs {
    pub unknown_escape: Option<usize>,
    pub invalid_utf8: Option<usize>,
}

impl Repairs {
    pub fn is_none(self) -> bool {
        self.unknown_escape.is_none() && self.invalid_utf8.is_none()
    }
}

/// The metric name of `line`.
pub(super) fn name(line: &[u8]) -> Result<Name<'_>, Fault> {
    let mut cursor = Cursor::at(line, 0);
    cursor.skip_blanks();
    if cursor.take(b'{') {
        cursor.skip_blanks();
        if cursor.peek() != Some(b'"') {
            return Err(cursor.fault(ProblemKind::BadName, "a metric name before the labels, or quoted as the first of them"));
        }
        let text = cursor.quoted_name(ProblemKind::BadName)?;
        cursor.skip_blanks();
        if !cursor.take(b',') && cursor.peek() != Some(b'}') {
            return Err(cursor.fault(ProblemKind::BadName, "`,` or `}` after the quoted metric name"));
        }
        return Ok(Name { text: bytes_of(text), end: End { at: cursor.at, in_braces: true } });
    }
    let text = cursor.bare_bytes();
    if text.is_empty() {
        return Err(cursor.fault(ProblemKind::BadName, "a metric name, which starts with a letter, `_` or `:`"));
    }
    match cursor.peek() {
        None | Some(b'{' | b' ' | b'\t') => Ok(Name { text: Cow::Borrowed(text), end: End { at: cursor.at, in_braces: false } }),
        Some(_) => Err(cursor.fault(ProblemKind::BadName, "`{` or a blank after the metric name")),
    }
}

/// What follows the name that ends at `name_end`. The label called `bound` is kept apart, the others are put behind `labels`,
/// in the order of the line.
pub(super) fn rest<'a>(line: &'a [u8], name_end: End, bound: Option<&str>, labels: &mut Vec<Label<'a>>) -> Result<Rest<'a>, Fault> {
    let mut cursor = Cursor::at(line, name_end.at);
    // One check of the whole line is cheaper than one of every label.
    cursor.text = std::str::from_utf8(line).ok();
    let mut rest = Rest { bound: None, bound_at: 0, value: 0.0, value_at: 0, repairs: Repairs::default(), is_text: cursor.text.is_some() };
    cursor.skip_blanks();
    if name_end.in_braces || cursor.take(b'{') {
        cursor.labels(bound, &mut rest, labels)?;
    }
    cursor.skip_blanks();
    rest.value_at = cursor.at;
    rest.value = value(line, cursor.at)?;
    Ok(rest)
}

/// The value that starts at `at`, where what follows it can be read as well. Not necessarily finite.
pub(super) fn value(line: &[u8], at: usize) -> Result<f64, Fault> {
    let mut cursor = Cursor::at(line, at);
    let Some(value) = number::parse(cursor.token()) else {
        return Err(Fault { kind: ProblemKind::BadValue, at, expected: "a decimal number" });
    };
    cursor.timestamp()?;
    Ok(value)
}

/// A name as text.
pub(super) fn text_of(name: Cow<'_, [u8]>) -> Cow<'_, str> {
    match name {
        // Names are text as a rule, which the check alone finds out in less time.
        Cow::Borrowed(name) => std::str::from_utf8(name).map_or_else(|_| String::from_utf8_lossy(name), Cow::Borrowed),
        Cow::Owned(name) => Cow::Owned(String::from_utf8_lossy(&name).into_owned()),
    }
}

fn bytes_of(name: Cow<'_, str>) -> Cow<'_, [u8]> {
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(name.as_bytes()),
        Cow::Owned(name) => Cow::Owned(name.into_bytes()),
    }
}

/// How a comment starts that is for people.
pub(super) const HELP: &[u8] = b"# HELP ";

/// The name, the kind and the length with the line end of the `TYPE` line that `page` starts with, if it is written as exporters write it.
pub(super) fn plain_type_of(page: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    const START: &[u8] = b"# TYPE ";
    let name = bare(page.strip_prefix(START)?);
    let kind_at = START.len() + name.len() + 1;
    let kind = page.get(kind_at..)?;
    let kind = &kind[..kind.iter().position(|byte| !byte.is_ascii_lowercase())?];
    let end = kind_at + kind.len();
    let is_plain = !name.is_empty() && !kind.is_empty() && page[kind_at - 1] == b' ' && page[end] == b'\n';
    is_plain.then_some((name, kind, end + 1))
}

/// The name, in UTF-8, and the kind of a `# TYPE name kind` line; `None` for every other comment.
pub(super) fn type_of(line: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    if line.starts_with(HELP) {
        return None;
    }
    let mut cursor = Cursor::at(line, 0);
    cursor.skip_blanks();
    if !cursor.take(b'#') || !cursor.peek().is_some_and(is_blank) {
        return None;
    }
    cursor.skip_blanks();
    if cursor.token() != b"TYPE" {
        return None;
    }
    cursor.skip_blanks();
    let name = if cursor.peek() == Some(b'"') {
        bytes_of(cursor.quoted_name(ProblemKind::BadName).ok()?)
    } else {
        let name = cursor.token();
        if !name.is_ascii() && std::str::from_utf8(name).is_err() {
            return None;
        }
        Cow::Borrowed(name)
    };
    cursor.skip_blanks();
    let kind = cursor.token();
    (!name.is_empty() && !kind.is_empty()).then_some((name, kind))
}

/// The bytes that bare names consist of.
const IN_NAMES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        let character = byte as u8;
        table[byte] = character.is_ascii_alphanumeric() || character == b'_' || character == b':';
        byte += 1;
    }
    table
};

/// The letters, digits, `_` and `:` that `text` starts with; none if the first is a digit.
#[inline]
pub(super) fn bare(text: &[u8]) -> &[u8] {
    if text.first().is_some_and(u8::is_ascii_digit) {
        return &[];
    }
    // Sixteen at a time without a branch for each: names are some forty characters long. `:` stands behind `9`.
    let is_in_names = |byte: u8| ((byte | 0x20).wrapping_sub(b'a') < 26) | (byte.wrapping_sub(b'0') < 11) | (byte == b'_');
    let whole = |chunk: &&[u8; 16]| chunk.iter().fold(true, |all, &byte| all & is_in_names(byte));
    let sure = text.as_chunks().0.iter().take_while(whole).count() * 16;
    let rest = &text[sure..];
    let length = sure + rest.iter().position(|&byte| !IN_NAMES[usize::from(byte)]).unwrap_or(rest.len());
    &text[..length]
}

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
    /// The line as text, if it was checked and is UTF-8.
    text: Option<&'a str>,
}

impl<'a> Cursor<'a> {
    fn at(line: &'a [u8], at: usize) -> Self {
        Self { line, at, text: None }
    }

    /// This part of the line as text; the error is the first byte that is not UTF-8.
    #[inline]
    fn text(&self, part: Range<usize>) -> Result<&'a str, usize> {
        match self.text.and_then(|text| text.get(part.clone())) {
            Some(text) => Ok(text),
            None => std::str::from_utf8(&self.line[part.clone()]).map_err(|broken| part.start + broken.valid_up_to()),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    #[inline]
    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.at += 1;
        }
    }

    fn fault(&self, kind: ProblemKind, expected: &'static str) -> Fault {
        Fault { kind, at: self.at, expected }
    }

    /// Everything up to the next blank.
    #[inline]
    fn token(&mut self) -> &'a [u8] {
        let rest = &self.line[self.at..];
        let length = memchr2(b' ', b'\t', rest).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Letters, digits, `_` and `:`, the first no digit; empty if there is none.
    #[inline]
    fn bare_bytes(&mut self) -> &'a [u8] {
        let name = bare(&self.line[self.at..]);
        self.at += name.len();
        name
    }

    /// The same as text.
    #[inline]
    fn bare_name(&mut self) -> &'a str {
        let start = self.at;
        self.bare_bytes();
        self.text(start..self.at).unwrap_or_default()
    }

    /// A quoted metric or label name. Names are keys, so unlike values they are not repaired.
    fn quoted_name(&mut self, kind: ProblemKind) -> Result<Cow<'a, str>, Fault> {
        let at = self.at;
        let mut repairs = Repairs::default();
        let name = self.quoted(kind, &mut repairs)?;
        if name.is_empty() || repairs.invalid_utf8.is_some() {
            return Err(Fault { kind, at, expected: "a name of at least one character in UTF-8" });
        }
        Ok(name)
    }

    /// The text between this quote and the one that closes it, unescaped.
    fn quoted(&mut self, kind: ProblemKind, repairs: &mut Repairs) -> Result<Cow<'a, str>, Fault> {
        let quote = self.at;
        let start = quote + 1;
        let mut at = start;
        let mut escapes = false;
        // Stepping over the character behind a backslash keeps `\"` open and lets `\\"` close.
        let end = loop {
            match memchr2(b'"', b'\\', self.line.get(at..).unwrap_or_default()) {
                None => return Err(Fault { kind, at: quote, expected: "a closing quote" }),
                Some(found) if self.line[at + found] == b'"' => break at + found,
                Some(found) => {
                    escapes = true;
                    at += found + 2;
                }
            }
        };
        self.at = end + 1;
        let raw = &self.line[start..end];
        if escapes {
            let (bytes, unknown) = unescape(raw);
            if let Some(offset) = unknown {
                repairs.unknown_escape.get_or_insert(start + offset);
            }
            return Ok(Cow::Owned(String::from_utf8(bytes).unwrap_or_else(|broken| {
                repairs.invalid_utf8.get_or_insert(start);
                String::from_utf8_lossy(broken.as_bytes()).into_owned()
            })));
        }
        match self.text(start..end) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(at) => {
                repairs.invalid_utf8.get_or_insert(at);
                Ok(String::from_utf8_lossy(raw))
            }
        }
    }

    /// The labels up to and with the closing brace.
    fn labels(&mut self, bound: Option<&str>, rest: &mut Rest<'a>, labels: &mut Vec<Label<'a>>) -> Result<(), Fault> {
        loop {
            self.skip_blanks();
            if self.take(b'}') {
                return Ok(());
            }
            let (name, value_at, value) = match self.plain_label() {
                Some((name, value_at, value)) => (Cow::Borrowed(name), value_at, Cow::Borrowed(value)),
                None => self.label(&mut rest.repairs)?,
            };
            if bound != Some(&*name) {
                labels.push((name, value));
            } else {
                rest.bound_at = value_at;
                if let Some(earlier) = rest.bound.replace(value.clone()) {
                    // Two bounds go among the labels, where the caller finds them as it finds every repeated name.
                    labels.extend([(name.clone(), earlier), (name, value)]);
                }
            }
            self.skip_blanks();
            if !self.take(b',') && self.peek() != Some(b'}') {
                return Err(self.fault(ProblemKind::BadLabels, "`,` or `}` after the label value"));
            }
        }
    }

    /// A label without blanks and with nothing to be undone, as nearly all are: its name, where its value stands, and its value.
    #[inline]
    fn plain_label(&mut self) -> Option<(&'a str, usize, &'a str)> {
        let (text, start) = (self.text?, self.at);
        let rest = &self.line[start..];
        let length = rest.iter().position(|&byte| !IN_NAMES[usize::from(byte)])?;
        if length == 0 || rest[0].is_ascii_digit() || !rest[length..].starts_with(b"=\"") {
            return None;
        }
        let (name_end, value_at) = (start + length, start + length + 2);
        let end = value_at + memchr2(b'"', b'\\', &self.line[value_at..])?;
        if self.line[end] != b'"' {
            return None;
        }
        let label = (text.get(start..name_end)?, value_at, text.get(value_at..end)?);
        self.at = end + 1;
        Some(label)
    }

    /// The same for every label.
    fn label(&mut self, repairs: &mut Repairs) -> Result<(Cow<'a, str>, usize, Cow<'a, str>), Fault> {
        const KIND: ProblemKind = ProblemKind::BadLabels;
        let name = if self.peek() == Some(b'"') { self.quoted_name(KIND)? } else { Cow::Borrowed(self.bare_name()) };
        if name.is_empty() {
            return Err(self.fault(KIND, "a label name or `}`"));
        }
        self.skip_blanks();
        if !self.take(b'=') {
            return Err(self.fault(KIND, "`=` after the label name"));
        }
        self.skip_blanks();
        if self.peek() != Some(b'"') {
            return Err(self.fault(KIND, "a label value in quotes"));
        }
        let value_at = self.at + 1;
        Ok((name, value_at, self.quoted(KIND, repairs)?))
    }

    /// The rest of the line: nothing, a timestamp, an exemplar, or both. Neither is used; a timestamp must be a number so that a line
    /// with two values is not taken for a good one.
    #[inline]
    fn timestamp(&mut self) -> Result<(), Fault> {
        self.skip_blanks();
        if self.at_the_end() {
            return Ok(());
        }
        let at = self.at;
        if !number::parse(self.token()).is_some_and(f64::is_finite) {
            return Err(Fault { kind: ProblemKind::BadTimestamp, at, expected: "the end of the line, a timestamp or an exemplar" });
        }
        self.skip_blanks();
        if self.at_the_end() {
            Ok(())
        } else {
            Err(self.fault(ProblemKind::BadTimestamp, "the end of the line or an exemplar after the timestamp"))
        }
    }

    fn at_the_end(&self) -> bool {
        matches!(self.peek(), None | Some(b'#'))
    }
}

/// `raw` with `\\`, `\"` and `\n` replaced by what they stand for, and the place of the first other escape, which is kept as it is.
fn unescape(raw: &[u8]) -> (Vec<u8>, Option<usize>) {
    let mut text = Vec::with_capacity(raw.len());
    let mut unknown = None;
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        let (plain, length) = match (byte, raw.get(at + 1)) {
            (b'\\', Some(&escaped @ (b'\\' | b'"'))) => (escaped, 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', _) => {
                unknown.get_or_insert(at);
                (byte, 1)
            }
            _ => (byte, 1),
        };
        text.push(plain);
        at += length;
    }
    (text, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_ends_at_the_first_other_byte_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for place in 1..40 {
                let mut text = *b"abcdefghijklmnopqrstuvwxyz_:ABCXYZ0123456789";
                text[place] = byte;
                let expected = if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':' { text.len() } else { place };
                assert_eq!(bare(&text), &text[..expected], "{byte} at {place}");
            }
        }
        assert_eq!(bare(b"0a"), b"");
        assert_eq!(bare(b""), b"");
    }

    #[test]
    fn a_plain_type_line_is_one_that_the_general_way_reads_alike() {
        let lines = [
            ("# TYPE a:b_c gauge\n", true),
            ("# TYPE a histogram\nb 1\n", true),
            ("# TYPE a gauge", false),
            ("# TYPE a gauge \n", false),
            ("# TYPE a gauge\r\n", false),
            ("# TYPE a\n", false),
            ("# TYPE a \n", false),
            ("# TYPE  a gauge\n", false),
            ("# TYPE 1a gauge\n", false),
            ("# TYPE a.b gauge\n", false),
            ("# TYPE \"a\" gauge\n", false),
            ("# TYPES a gauge\n", false),
            ("# HELP a gauge\n", false),
        ];
        for (page, is_plain) in lines {
            let found = plain_type_of(page.as_bytes());
            assert_eq!(found.is_some(), is_plain, "{page:?}");
            if let Some((name, kind, length)) = found {
                let line = &page.as_bytes()[..length - 1];
                assert_eq!(type_of(line), Some((Cow::Borrowed(name), kind)));
                assert!(line.iter().all(|&byte| byte != b'\n'));
            }
        }
    }
}
