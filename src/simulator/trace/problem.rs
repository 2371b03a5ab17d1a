//! What can be wrong with a trace, and where?

use std::error::Error;
use std::fmt;

use super::MOST_REQUESTS;
use crate::units::Requests;

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The text as a whole.
    Whole,
    /// A line, counted from 1.
    Line(usize),
    /// A parameter of a shape or of an edit.
    Parameter(String),
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// No request at all.
    Empty,
    /// The first line is of no known format.
    UnknownFormat,
    /// The header lacks a column.
    NoColumn {
        /// Its name.
        column: &'static str,
    },
    /// A line ends before a column.
    NoField {
        /// The name of the column.
        column: &'static str,
    },
    /// A value cannot be used.
    Value {
        /// The column or field; empty where the place says it.
        name: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// A line of JSON is not what the format has.
    Row {
        /// The parser's words.
        reason: String,
    },
    /// Intervals must follow each other.
    TimeDoesNotGrow,
    /// One row of rates says when an interval begins, but nothing says when it ends.
    NoEnd,
    /// Blocks of prompts have several sizes.
    BlockSize {
        /// Tokens of the first block.
        first: u32,
        /// Tokens of this one.
        found: u32,
    },
    /// Not a shape.
    UnknownShape {
        /// The name that was given.
        found: String,
    },
    /// Not `name=value`.
    NotAPair {
        /// What was given.
        found: String,
    },
    /// The shape has no such parameter.
    UnknownParameter {
        /// Those that it has.
        known: Vec<&'static str>,
    },
    /// Given twice.
    Repeated,
    /// Has no default and was not given.
    Missing,
    /// Too many requests to hold.
    TooMany {
        /// How many there would be.
        expected: Requests,
    },
}

/// Problems that are kept; a file that is bad throughout has no more to say.
pub(super) const MOST_PROBLEMS: usize = 300;

/// Characters of a foreign text that a message shows.
const SHOWN: usize = 120;

/// The beginning of a text that may be of any length.
fn brief(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the trace holds no request"),
            Self::UnknownFormat => f.write_str(
                "unknown format: expected a header with TIMESTAMP,ContextTokens,GeneratedTokens or t,rate_per_s,isl,osl, \
                 or a json object of a mooncake or dynamo request trace",
            ),
            Self::NoColumn { column } => write!(f, "the header has no column {column}"),
            Self::NoField { column } => write!(f, "the line ends before column {column}"),
            Self::Value { name: "", found, expected } => write!(f, "expected {expected}, got {:?}", brief(found)),
            Self::Value { name, found, expected } => write!(f, "{name}: expected {expected}, got {:?}", brief(found)),
            Self::Row { reason } => write!(f, "unusable row: {}", brief(reason)),
            Self::TimeDoesNotGrow => f.write_str("t: expected a time after that of the row before"),
            Self::NoEnd => f.write_str("one row of rates has no end: expected a further row that says when its interval ends"),
            Self::BlockSize { first, found } => write!(f, "blocks of {found} tokens: expected {first} as in the rows before"),
            Self::UnknownShape { found } => {
                write!(f, "unknown shape {:?}: expected one of {}", brief(found), super::shape::NAMES.join(", "))
            }
            Self::NotAPair { found } => write!(f, "expected name=value, got {:?}", brief(found)),
            Self::UnknownParameter { known } => write!(f, "unknown parameter: expected one of {}", known.join(", ")),
            Self::Repeated => f.write_str("given twice: expected one value"),
            Self::Missing => f.write_str("missing: expected a value, since there is no default"),
            Self::TooMany { expected } if expected.get() < 1e15 => {
                write!(f, "{:.0} requests expected: at most {MOST_REQUESTS} can be held", expected.get())
            }
            Self::TooMany { expected } => write!(f, "{:.1e} requests expected: at most {MOST_REQUESTS} can be held", expected.get()),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What.
    pub fault: Fault,
}

impl Problem {
    pub(super) fn whole(fault: Fault) -> Self {
        Self { place: Place::Whole, fault }
    }

    pub(super) fn line(line: usize, fault: Fault) -> Self {
        Self { place: Place::Line(line), fault }
    }

    pub(super) fn parameter(name: &str, fault: Fault) -> Self {
        Self { place: Place::Parameter(name.to_owned()), fault }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Whole => self.fault.fmt(f),
            Place::Line(line) => write!(f, "line {line}: {}", self.fault),
            Place::Parameter(name) => write!(f, "parameter {}: {}", brief(name).escape_debug(), self.fault),
        }
    }
}

/// All that is wrong; never empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// One by one, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// `Ok` of the value if nothing was wrong.
    pub(super) fn unless<T>(found: Vec<Problem>, value: T) -> Result<T, Self> {
        if found.is_empty() { Ok(value) } else { Err(Self(found)) }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    /// One a line; a file that is bad throughout fills no screen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        for (i, problem) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl Error for Problems {}
