//! Which requests does an Azure LLM inference trace record?
//!
//! One request a line: when it came, tokens of its prompt, tokens generated. Times have up to nine decimals and are UTC unless an offset
//! follows, as in the traces of 2024.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::columns::{self, Column, Row};
use super::problem::{Fault, Problems};
use super::{Prefixes, Trace};
use crate::simulator::workload::Request;

/// The column by which the format is known.
pub(super) const TIME: &str = "TIMESTAMP";
const COLUMNS: [Column; 3] = [
    Column { name: TIME, required: true },
    Column { name: "ContextTokens", required: true },
    Column { name: "GeneratedTokens", required: true },
];
const TOKENS: &str = "a whole number of tokens, 1 or more";

/// Nanoseconds since the epoch.
fn time(text: &str) -> Option<i128> {
    const DATE: usize = "2023-11-16".len();
    // After the date, a sign or a letter can only belong to an offset.
    let has_offset = text.get(DATE + 1..)?.contains(['+', '-', 'Z', 'z']);
    let timestamp =
        if has_offset { text.parse::<Timestamp>().ok()? } else { text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp() };
    Some(timestamp.as_nanosecond())
}

fn request(row: &Row<'_, 3>) -> Result<(i128, Request), Vec<Fault>> {
    let at = row.text(0).and_then(time).ok_or_else(|| row.refused(0, "a time such as 2023-11-16 18:15:46.6805900"));
    let input = row.value(1, 0, TOKENS, |tokens| *tokens > 0);
    let output = row.value(2, 0, TOKENS, |tokens| *tokens > 0);
    match (at, input, output) {
        (Ok(at), Ok(input), Ok(output)) => Ok((at, Request { at: Duration::ZERO, input, output, prefix: None })),
        (at, input, output) => Err([at.err(), input.err(), output.err()].into_iter().flatten().collect()),
    }
}

/// The requests of the text.
pub(super) fn read(text: &str) -> Result<Trace, Problems> {
    let mut rows = Vec::new();
    columns::read(text, &COLUMNS, |_, row| {
        rows.push(request(row)?);
        Ok(())
    })?;
    Ok(Trace::recorded(rows, Prefixes::default(), 0))
}
