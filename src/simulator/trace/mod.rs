//! Which requests did a real service get, or would a service get under a given curve of rates?
//!
//! Text comes in, requests in order of arrival or all problems come out. Files are opened, and unpacked, by the caller.
//!
//! | format | recognised by | one line is |
//! |---|---|---|
//! | Azure | columns `TIMESTAMP`, `ContextTokens`, `GeneratedTokens` | a request |
//! | rates | columns `t`, `rate_per_s`, `isl`, `osl` | from when a rate holds |
//! | Mooncake | JSON with `timestamp`, `input_length`, `output_length` | a request |
//! | Dynamo | JSON with `schema` or `event` | an event; ends of requests count |
//!
//! Recorded times are kept relative to the earliest request, so every recording starts at zero.
//!
//! - `columns`, `lines`: what the readers share.
//! - `azure`, `mooncake`, `dynamo`, `rates`: one format each.
//! - [`curve`]: a rate that moves along a broken line, and the requests that follow it.
//! - [`shape`]: such curves by name, from a line of text.
//! - [`edit`]: cut, scale and limit any trace.
//! - [`problem`]: what can be wrong, and where.

mod azure;
mod columns;
pub mod curve;
mod dynamo;
pub mod edit;
mod lines;
mod mooncake;
pub mod problem;
mod rates;
pub mod shape;

#[cfg(test)]
mod formats_tests;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::workload::{PrefixId, Request};
use crate::units::{Ratio, Requests, RequestsPerSecond, Tokens};
use curve::Curve;
use problem::{Fault, Problem, Problems};

/// Requests in order of arrival, and what is known of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// In order of arrival; requests of one moment are in the order of the text.
    pub requests: Vec<Request>,
    /// How long the trace observes: for a recording up to its last arrival, for a curve its whole length.
    pub length: Duration,
    /// The blocks of the prompts, where the format tells them.
    pub prefixes: Prefixes,
    /// Requests that the recording holds but that generated no token (cancelled or failed). They are not among `requests`.
    pub without_output: usize,
}

impl Trace {
    /// Sums over all requests. With no request, or with a length of zero, the means and the rate are 0.
    pub fn summary(&self) -> Summary {
        let mean = |total: u64| Tokens(if self.requests.is_empty() { 0.0 } else { total as f64 / self.requests.len() as f64 });
        let total = |length: fn(&Request) -> u32| self.requests.iter().map(|request| u64::from(length(request))).sum::<u64>();
        let seconds = self.length.as_secs_f64();
        let count = self.requests.len() as f64;
        Summary {
            requests: self.requests.len(),
            input: total(|request| request.input),
            output: total(|request| request.output),
            mean_input: mean(total(|request| request.input)),
            mean_output: mean(total(|request| request.output)),
            rate: RequestsPerSecond(if seconds > 0.0 { count / seconds } else { 0.0 }),
        }
    }

    /// Of requests in the order of the text, at nanoseconds of any clock: sorts them and lets the earliest be zero.
    fn recorded(mut rows: Vec<(i128, Request)>, prefixes: Prefixes, without_output: usize) -> Self {
        rows.sort_by_key(|(nanos, _)| *nanos);
        let origin = rows.first().map_or(0, |(nanos, _)| *nanos);
        // Not negative, since the origin is the least; the readers' clocks end within what seconds of 64 bits hold.
        let at = |nanos: i128| {
            const SECOND: i128 = 1_000_000_000;
            let since = nanos - origin;
            Duration::new((since / SECOND) as u64, (since % SECOND) as u32)
        };
        let requests: Vec<Request> = rows.into_iter().map(|(nanos, request)| Request { at: at(nanos), ..request }).collect();
        let length = requests.last().map_or(Duration::ZERO, |request| request.at);
        Self { requests, length, prefixes, without_output }
    }

    /// The requests that follow a curve.
    ///
    /// # Errors
    /// If the curve is expected to give more than [`MOST_REQUESTS`].
    pub fn following(curve: &Curve, seed: u64) -> Result<Self, Problems> {
        check_count(curve.expected())?;
        let requests = curve.requests(seed).collect();
        Ok(Self { requests, length: curve.length(), ..Self::default() })
    }
}

/// Totals of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Number of requests.
    pub requests: usize,
    /// All prompt tokens.
    pub input: u64,
    /// All generated tokens.
    pub output: u64,
    /// Prompt tokens of the mean request.
    pub mean_input: Tokens,
    /// Generated tokens of the mean request.
    pub mean_output: Tokens,
    /// Requests over length.
    pub rate: RequestsPerSecond,
}

/// More requests than this are refused: at some 32 bytes each they would take a gigabyte.
pub const MOST_REQUESTS: usize = 30_000_000;

fn check_count(expected: Requests) -> Result<(), Problems> {
    if expected.get() <= MOST_REQUESTS as f64 {
        return Ok(());
    }
    Err(Problem::whole(Fault::TooMany { expected }).into())
}

/// The blocks of prompts. A block is `block_tokens` tokens; equal ids stand for equal blocks after equal predecessors, so two prompts share
/// as many tokens as their lists have a common beginning. The last block of a prompt may be shorter than the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    block_tokens: u32,
    blocks: Vec<u64>,
    entries: Vec<Range<usize>>,
}

impl Prefixes {
    fn new(block_tokens: u32) -> Self {
        Self { block_tokens, ..Self::default() }
    }

    /// Tokens of one block; 0 if the trace tells no blocks.
    pub fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// The ids of the blocks of a prompt, from its beginning. Empty for an entry of another table.
    pub fn blocks(&self, prefix: PrefixId) -> &[u64] {
        self.entries.get(prefix.0 as usize).and_then(|range| self.blocks.get(range.clone())).unwrap_or(&[])
    }

    /// `None` for a prompt without blocks, or when the table is full.
    fn add(&mut self, blocks: &[u64]) -> Option<PrefixId> {
        if blocks.is_empty() {
            return None;
        }
        let id = u32::try_from(self.entries.len()).ok()?;
        let start = self.blocks.len();
        self.blocks.extend_from_slice(blocks);
        self.entries.push(start..self.blocks.len());
        Some(PrefixId(id))
    }
}

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Azure LLM inference traces.
    Azure,
    /// Arrival rates and lengths over time.
    Rates,
    /// Mooncake traces.
    Mooncake,
    /// Dynamo request traces, `dynamo.request.trace.v1`.
    Dynamo,
}

impl Format {
    /// By the first line that holds something. `None` if no format begins like that.
    pub fn of(text: &str) -> Option<Self> {
        let (_, first) = lines::filled(text).next()?;
        if first.trim_start().starts_with('{') {
            // A whole parse of one line is cheap, and names in nested objects do not mislead it. Values are the readers' business.
            let row: BTreeMap<String, serde::de::IgnoredAny> = serde_json::from_str(first).ok()?;
            return match (row.contains_key("schema") || row.contains_key("event"), row.contains_key("input_length")) {
                (true, _) => Some(Self::Dynamo),
                (false, true) => Some(Self::Mooncake),
                (false, false) => None,
            };
        }
        let has = |name: &str| first.split(',').any(|column| column.trim().eq_ignore_ascii_case(name));
        match (has(azure::TIME), has(rates::RATE)) {
            (true, _) => Some(Self::Azure),
            (false, true) => Some(Self::Rates),
            (false, false) => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Azure => "azure csv",
            Self::Rates => "csv of rates",
            Self::Mooncake => "mooncake jsonl",
            Self::Dynamo => "dynamo request trace",
        })
    }
}

/// What a reader has to know beyond the text. Only curves of rates use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Generation {
    /// The same seed gives the same requests.
    pub seed: u64,
    /// Spread of prompt lengths where the text gives only their mean.
    pub input_variation: Ratio,
    /// Spread of answer lengths where the text gives only their mean.
    pub output_variation: Ratio,
}

impl Default for Generation {
    /// Spreads of the Azure conversation trace of 2023, to one digit.
    fn default() -> Self {
        Self { seed: 0, input_variation: Ratio(1.0), output_variation: Ratio(0.8) }
    }
}

/// The trace in a text whose format its first line tells.
///
/// # Errors
/// All problems, in the order of the text, or the first some hundred.
pub fn read(text: &str, generation: &Generation) -> Result<Trace, Problems> {
    match Format::of(text) {
        Some(format) => read_as(format, text, generation),
        None if lines::filled(text).next().is_none() => Err(Problem::whole(Fault::Empty).into()),
        None => Err(Problem::whole(Fault::UnknownFormat).into()),
    }
}

/// The trace in a text of a known format.
///
/// # Errors
/// All problems, in the order of the text, or the first some hundred.
pub fn read_as(format: Format, text: &str, generation: &Generation) -> Result<Trace, Problems> {
    let trace = match format {
        Format::Azure => azure::read(text),
        Format::Rates => rates::read(text, generation).and_then(|curve| Trace::following(&curve, generation.seed)),
        Format::Mooncake => mooncake::read(text),
        Format::Dynamo => dynamo::read(text),
    }?;
    if trace.requests.is_empty() && format != Format::Rates {
        return Err(Problem::whole(Fault::Empty).into());
    }
    Ok(trace)
}
