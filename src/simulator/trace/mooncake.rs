//! Which requests does a Mooncake trace record?
//!
//! One JSON object a line: `timestamp` in milliseconds, `input_length`, `output_length`, and optionally `hash_ids`, one id for each block of
//! 512 tokens of the prompt. Further fields are ignored.

use std::time::Duration;

use serde::Deserialize;

use super::problem::{Fault, MOST_PROBLEMS, Problem, Problems};
use super::{Prefixes, Trace, lines};
use crate::simulator::workload::Request;

/// Tokens of one block, fixed by the format.
const BLOCK_TOKENS: u32 = 512;

#[derive(Deserialize)]
struct Row {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u64>,
}

/// What the readers of milliseconds expect.
pub(super) const MILLISECONDS: &str = "milliseconds within 300 years of zero";

/// Nanoseconds from milliseconds. `None` unless finite and within some 300 years, which is above every real clock.
pub(super) fn nanos(milliseconds: f64) -> Option<i128> {
    const MOST: f64 = 1e13;
    // Whole milliseconds apart: a Unix time in nanoseconds has more digits than a double.
    let nanos = || milliseconds.trunc() as i128 * 1_000_000 + (milliseconds.fract() * 1e6).round() as i128;
    (milliseconds.is_finite() && milliseconds.abs() < MOST).then(nanos)
}

/// That a length is zero.
pub(super) fn zero(name: &'static str) -> Fault {
    Fault::Value { name, found: "0".to_owned(), expected: "1 token or more" }
}

impl Row {
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if nanos(self.timestamp).is_none() {
            let found = self.timestamp.to_string();
            faults.push(Fault::Value { name: "timestamp", found, expected: MILLISECONDS });
        }
        if self.input_length == 0 {
            faults.push(zero("input_length"));
        }
        if self.output_length == 0 {
            faults.push(zero("output_length"));
        }
        faults
    }
}

/// The requests of the text.
pub(super) fn read(text: &str) -> Result<Trace, Problems> {
    let mut prefixes = Prefixes::new(BLOCK_TOKENS);
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for (number, line) in lines::filled(text) {
        if problems.len() >= MOST_PROBLEMS {
            break;
        }
        let row: Row = match serde_json::from_str(line) {
            Ok(row) => row,
            Err(error) => {
                problems.push(Problem::line(number, Fault::Row { reason: lines::complaint(&error) }));
                continue;
            }
        };
        problems.extend(row.faults().into_iter().map(|fault| Problem::line(number, fault)));
        let prefix = prefixes.add(&row.hash_ids);
        let request = Request { at: Duration::ZERO, input: row.input_length, output: row.output_length, prefix };
        rows.push((nanos(row.timestamp).unwrap_or_default(), request));
    }
    Problems::unless(problems, ())?;
    Ok(Trace::recorded(rows, prefixes, 0))
}
