//! Which requests does a Dynamo request trace record?
//!
//! One event a line, at the top level or under `event`; `schema` is `dynamo.request.trace.v1`. Ends of requests count, other events are passed
//! over. A request came at `request.request_received_ms`, its prompt has `request.replay.input_length` tokens (`request.input_tokens` where the
//! replay part is absent), its answer `request.output_tokens`. Hashes of the prompt's blocks are under `request.replay`.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;

use super::mooncake::{MILLISECONDS, nanos, zero};
use super::problem::{Fault, MOST_PROBLEMS, Problem, Problems};
use super::{Prefixes, Trace, lines};
use crate::simulator::workload::Request;

const SCHEMA: &str = "dynamo.request.trace.v1";
const END: &str = "request_end";

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    event: Option<Event<'a>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    // Borrowed unless a character is escaped.
    #[serde(borrow)]
    schema: Cow<'a, str>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    request: Option<Ended>,
}

#[derive(Deserialize)]
struct Ended {
    request_received_ms: f64,
    input_tokens: Option<u32>,
    output_tokens: Option<u32>,
    replay: Option<Replay>,
}

#[derive(Deserialize)]
struct Replay {
    input_length: u32,
    trace_block_size: Option<u32>,
    #[serde(default)]
    input_sequence_hashes: Vec<u64>,
}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    rows: Vec<(i128, Request)>,
    prefixes: Prefixes,
    without_output: usize,
}

/// The event of a line; `None` if it is not the end of a request.
fn ended(line: &str) -> Result<Option<Ended>, Fault> {
    let refused = |error: serde_json::Error| Fault::Row { reason: lines::complaint(&error) };
    let event = match serde_json::from_str::<Envelope<'_>>(line).map_err(refused)?.event {
        Some(event) => event,
        None => serde_json::from_str::<Event<'_>>(line).map_err(refused)?,
    };
    if event.schema != SCHEMA {
        return Err(Fault::Value { name: "schema", found: event.schema.into_owned(), expected: SCHEMA });
    }
    match (event.event_type == END, event.request) {
        (false, _) => Ok(None),
        (true, Some(request)) => Ok(Some(request)),
        (true, None) => Err(Fault::Row { reason: format!("{END} without `request`") }),
    }
}

impl Reader {
    fn add(&mut self, ended: Ended) -> Result<(), Fault> {
        let Some(at) = nanos(ended.request_received_ms) else {
            let found = ended.request_received_ms.to_string();
            return Err(Fault::Value { name: "request_received_ms", found, expected: MILLISECONDS });
        };
        let input = ended.replay.as_ref().map(|replay| replay.input_length).or(ended.input_tokens);
        let Some(input) = input else {
            return Err(Fault::Row { reason: "neither `replay.input_length` nor `input_tokens`".to_owned() });
        };
        if input == 0 {
            return Err(zero("input_length"));
        }
        let prefix = match &ended.replay {
            Some(Replay { trace_block_size: Some(size), input_sequence_hashes, .. }) if !input_sequence_hashes.is_empty() => {
                self.check_block(*size)?;
                self.prefixes.add(input_sequence_hashes)
            }
            _ => None,
        };
        match ended.output_tokens {
            None | Some(0) => self.without_output += 1,
            Some(output) => self.rows.push((at, Request { at: Duration::ZERO, input, output, prefix })),
        }
        Ok(())
    }

    /// Blocks of different sizes cannot be compared.
    fn check_block(&mut self, size: u32) -> Result<(), Fault> {
        match (self.prefixes.block_tokens, size) {
            (_, 0) => Err(zero("trace_block_size")),
            (0, _) => {
                self.prefixes.block_tokens = size;
                Ok(())
            }
            (first, found) if first != found => Err(Fault::BlockSize { first, found }),
            _ => Ok(()),
        }
    }
}

/// The requests of the text.
pub(super) fn read(text: &str) -> Result<Trace, Problems> {
    let mut reader = Reader::default();
    let mut problems = Vec::new();
    for (number, line) in lines::filled(text) {
        if problems.len() >= MOST_PROBLEMS {
            break;
        }
        let added = ended(line).and_then(|ended| ended.map_or(Ok(()), |ended| reader.add(ended)));
        problems.extend(added.err().map(|fault| Problem::line(number, fault)));
    }
    Problems::unless(problems, ())?;
    Ok(Trace::recorded(reader.rows, reader.prefixes, reader.without_output))
}
