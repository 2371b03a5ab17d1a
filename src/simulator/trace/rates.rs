//! Which curve does a table of rates describe?
//!
//! A row says from when (`t`, seconds) what rate (`rate_per_s`) and which mean lengths (`isl`, `osl`) hold, until the next row. The last row
//! only says when the one before it ends. Optional columns: `cv`, variation of the gaps between arrivals (1 without it, a Poisson process);
//! `isl_cv` and `osl_cv`, spread of the lengths (1 and 0.8 without them). The first `t` is where time begins.

use std::time::Duration;

use super::Generation;
use super::columns::{self, Column, Row};
use super::curve::{Curve, Piece};
use super::problem::{Fault, Problem, Problems};
use super::shape::{MOST_RATE, MOST_TOKENS, MOST_VARIATION, lengths};
use crate::units::{Ratio, RequestsPerSecond, Tokens};

/// The column by which the format is known.
pub(super) const RATE: &str = "rate_per_s";
const COLUMNS: [Column; 7] = [
    Column { name: "t", required: true },
    Column { name: RATE, required: true },
    Column { name: "isl", required: true },
    Column { name: "osl", required: true },
    Column { name: "cv", required: false },
    Column { name: "isl_cv", required: false },
    Column { name: "osl_cv", required: false },
];
const TIME: &str = "seconds, within 300 years";
const MOST_SECONDS: f64 = 1e10;
const RATE_RANGE: &str = "requests a second, from 0 to 1000000";
const TOKEN_RANGE: &str = "mean tokens, from 1 to 10000000";
const VARIATION_RANGE: &str = "a standard deviation over its mean, from 0 to 100";

/// The start of a row in seconds, and its piece with a length still to be found.
fn piece(row: &Row<'_, 7>, generation: &Generation) -> Result<(f64, Piece), Vec<Fault>> {
    let mut faults = Vec::new();
    let mut number = |column, default, expected, low: f64, high: f64| {
        row.value(column, default, expected, |value: &f64| (low..=high).contains(value)).unwrap_or_else(|fault| {
            faults.push(fault);
            default
        })
    };
    let start = number(0, 0.0, TIME, -MOST_SECONDS, MOST_SECONDS);
    let rate = RequestsPerSecond(number(1, 0.0, RATE_RANGE, 0.0, MOST_RATE));
    let input = Tokens(number(2, 1.0, TOKEN_RANGE, 1.0, MOST_TOKENS));
    let output = Tokens(number(3, 1.0, TOKEN_RANGE, 1.0, MOST_TOKENS));
    let variation = Ratio(number(4, 1.0, VARIATION_RANGE, 0.0, MOST_VARIATION));
    let input_variation = Ratio(number(5, generation.input_variation.get(), VARIATION_RANGE, 0.0, MOST_VARIATION));
    let output_variation = Ratio(number(6, generation.output_variation.get(), VARIATION_RANGE, 0.0, MOST_VARIATION));
    if !faults.is_empty() {
        return Err(faults);
    }
    let (input, output) = (lengths(input, input_variation), lengths(output, output_variation));
    Ok((start, Piece { length: Duration::ZERO, from: rate, to: rate, input, output, variation }))
}

/// The curve of the text.
pub(super) fn read(text: &str, generation: &Generation) -> Result<Curve, Problems> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut begun: Option<f64> = None;
    columns::read(text, &COLUMNS, |_, row| {
        let (start, piece) = piece(row, generation)?;
        if let (Some(begun), Some(before)) = (begun, pieces.last_mut()) {
            if start <= begun {
                return Err(vec![Fault::TimeDoesNotGrow]);
            }
            before.length = Duration::from_secs_f64(start - begun);
        }
        begun = Some(start);
        pieces.push(piece);
        Ok(())
    })?;
    // What the last row would begin has no end.
    match (pieces.pop(), pieces.is_empty()) {
        (None, _) => Err(Problem::whole(Fault::Empty).into()),
        (Some(_), true) => Err(Problem::whole(Fault::NoEnd).into()),
        (Some(_), false) => Ok(Curve { pieces }),
    }
}
