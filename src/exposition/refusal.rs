//! Why is a whole page refused?

use std::fmt;

use super::is_blank;

/// Why nothing of a page may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No line but blank ones and comments.
    Empty,
    /// The body is a web page, most often an error page or a login form.
    Html,
    /// The body is a JSON array or object.
    Json,
    /// The body is one JSON string that holds the page with its line ends escaped.
    JsonString,
    /// There is text, but no line of it is a sample.
    NotExposition,
    /// OpenMetrics without `# EOF`: the end of the body is missing.
    MissingEof,
    /// OpenMetrics that goes on after `# EOF`: two pages glued together, or one written twice.
    TextAfterEof {
        /// The first line after the end.
        line: u32,
    },
    /// The last line has no line end and cannot be read: the body was cut off there.
    CutShort {
        /// The unfinished line.
        line: u32,
    },
}

impl Refusal {
    /// The refusal's name as a label value.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Html => "html",
            Self::Json => "json",
            Self::JsonString => "json_string",
            Self::NotExposition => "not_exposition",
            Self::MissingEof => "missing_eof",
            Self::TextAfterEof { .. } => "text_after_eof",
            Self::CutShort { .. } => "cut_short",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the page has no sample; expected at least one, as a server that is up has"),
            Self::Html => {
                f.write_str("the page is HTML; expected Prometheus text (is the path right, and is no login or proxy in between?)")
            }
            Self::Json => f.write_str("the page is JSON; expected Prometheus text (TensorRT-LLM: try /prometheus/metrics)"),
            Self::JsonString => f.write_str("the page is one JSON string; expected Prometheus text with real line ends"),
            Self::NotExposition => f.write_str("no line of the page is a sample; expected lines such as `name{label=\"value\"} 1`"),
            Self::MissingEof => f.write_str("the OpenMetrics page has no `# EOF`; expected it as the last line, so the body was cut short"),
            Self::TextAfterEof { line } => write!(f, "line {line}: text after `# EOF`; expected the OpenMetrics page to end there"),
            Self::CutShort { line } => {
                write!(f, "line {line}: the page ends inside this line; expected a whole sample, so the body was cut short")
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// The refusal that the first characters of `body` make certain, if any.
///
/// Only characters that no exposition starts with are judged. `{` is one that it may start with, as `{"a.b",le="1"} 3`.
pub(super) fn sniff(body: &[u8]) -> Option<Refusal> {
    let text = trimmed(body);
    match text.first()? {
        b'<' => Some(Refusal::Html),
        b'[' => Some(Refusal::Json),
        b'"' => Some(Refusal::JsonString),
        b'{' if is_json_object(&text[1..]) => Some(Refusal::Json),
        _ => None,
    }
}

/// Whether what follows an opening brace is an empty object or a first key with its colon.
fn is_json_object(inside: &[u8]) -> bool {
    let inside = trimmed(inside);
    match inside.first() {
        Some(b'}') => trimmed(&inside[1..]).is_empty(),
        Some(b'"') => {
            let Some(quote) = memchr::memchr(b'"', &inside[1..]) else { return false };
            // An escaped quote does not end the key; a page that starts with such a key is left to be refused as no exposition.
            inside[quote] != b'\\' && trimmed(&inside[quote + 2..]).first() == Some(&b':')
        }
        _ => false,
    }
}

fn trimmed(text: &[u8]) -> &[u8] {
    let blanks = text.iter().take_while(|&&byte| is_blank(byte) || byte == b'\n' || byte == b'\r').count();
    &text[blanks..]
}
