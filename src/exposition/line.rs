//! What does one sample line say? `name{label="value",...} number [timestamp] [# exemplar]`, scanned once from left to right.
//!
//! The scan knows where it is inside quotes, so braces, commas, blanks and `#` in label values are data. A search for the closing
//! brace from either end would be shorter and wrong.
//!
//! Accepted beyond the formats' grammars, because exporters write it: blanks around every token, a comma before the closing brace,
//! an exemplar in plain text, a fractional timestamp, unknown escapes, label values that are not UTF-8.

use std::borrow::Cow;

use memchr::memchr2;

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
    pub text: Cow<'a, str>,
    pub end: End,
}

/// Where a name ends.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub at: usize,
    /// Whether the name is the first item inside the braces, as UTF-8 names are: `{"a.b",label="value"}`.
    pub in_braces: bool,
}

/// What follows the name of a readable line.
pub(super) struct Rest<'a> {
    /// In the order of the line.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Not necessarily finite.
    pub value: f64,
    /// Index of the value.
    pub value_at: usize,
    pub repairs: Repairs,
}

/// Where label values were first repaired.
#[derive(Clone, Copy, Default)]
pub(super) struct Repairs {
    pub unknown_escape: Option<usize>,
    pub invalid_utf8: Option<usize>,
}

/// The metric name of `line`.
pub(super) fn name(line: &[u8]) -> Result<Name<'_>, Fault> {
    let mut cursor = Cursor { line, at: 0 };
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
        return Ok(Name { text, end: End { at: cursor.at, in_braces: true } });
    }
    let text = cursor.bare_name();
    if text.is_empty() {
        return Err(cursor.fault(ProblemKind::BadName, "a metric name, which starts with a letter, `_` or `:`"));
    }
    match cursor.peek() {
        None | Some(b'{' | b' ' | b'\t') => Ok(Name { text: Cow::Borrowed(text), end: End { at: cursor.at, in_braces: false } }),
        Some(_) => Err(cursor.fault(ProblemKind::BadName, "`{` or a blank after the metric name")),
    }
}

/// What follows the name that ends at `name_end`. `labels` is a guess of how many there are.
pub(super) fn rest(line: &[u8], name_end: End, labels: usize) -> Result<Rest<'_>, Fault> {
    let mut cursor = Cursor { line, at: name_end.at };
    let mut repairs = Repairs::default();
    let mut list = Vec::new();
    cursor.skip_blanks();
    if name_end.in_braces || cursor.take(b'{') {
        list.reserve_exact(labels);
        cursor.labels(&mut list, &mut repairs)?;
    }
    cursor.skip_blanks();
    let value_at = cursor.at;
    let value = number::parse(cursor.token()).ok_or(Fault { kind: ProblemKind::BadValue, at: value_at, expected: "a decimal number" })?;
    cursor.timestamp()?;
    Ok(Rest { labels: list, value, value_at, repairs })
}

/// The name and the kind of a `# TYPE name kind` line; `None` for every other comment.
pub(super) fn type_of(line: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    let mut cursor = Cursor { line, at: 0 };
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
        cursor.quoted_name(ProblemKind::BadName).ok()?
    } else {
        Cow::Borrowed(std::str::from_utf8(cursor.token()).ok()?)
    };
    cursor.skip_blanks();
    let kind = cursor.token();
    (!name.is_empty() && !kind.is_empty()).then_some((name, kind))
}

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.at += 1;
        }
    }

    fn fault(&self, kind: ProblemKind, expected: &'static str) -> Fault {
        Fault { kind, at: self.at, expected }
    }

    /// Everything up to the next blank.
    fn token(&mut self) -> &'a [u8] {
        let start = self.at;
        while self.peek().is_some_and(|byte| !is_blank(byte)) {
            self.at += 1;
        }
        &self.line[start..self.at]
    }

    /// Letters, digits, `_` and `:`, the first no digit; empty if there is none.
    fn bare_name(&mut self) -> &'a str {
        let start = self.at;
        while self
            .peek()
            .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':' || (self.at > start && byte.is_ascii_digit()))
        {
            self.at += 1;
        }
        std::str::from_utf8(&self.line[start..self.at]).unwrap_or_default()
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
        match std::str::from_utf8(raw) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(broken) => {
                repairs.invalid_utf8.get_or_insert(start + broken.valid_up_to());
                Ok(String::from_utf8_lossy(raw))
            }
        }
    }

    /// The labels up to and with the closing brace.
    fn labels(&mut self, list: &mut Vec<(Cow<'a, str>, Cow<'a, str>)>, repairs: &mut Repairs) -> Result<(), Fault> {
        const KIND: ProblemKind = ProblemKind::BadLabels;
        loop {
            self.skip_blanks();
            if self.take(b'}') {
                return Ok(());
            }
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
            let value = self.quoted(KIND, repairs)?;
            list.push((name, value));
            self.skip_blanks();
            if !self.take(b',') && self.peek() != Some(b'}') {
                return Err(self.fault(KIND, "`,` or `}` after the label value"));
            }
        }
    }

    /// The rest of the line: nothing, a timestamp, an exemplar, or both. Neither is used; a timestamp must be a number so that a line
    /// with two values is not taken for a good one.
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
