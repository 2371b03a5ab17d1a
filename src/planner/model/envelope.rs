//! What can one replica do, as measured beforehand? The capacity envelope of profile.json.
//!
//! The envelope has two parts (seed 000, "Profile document"): a curve of prompt latency and throughput over prompt length, and a surface of
//! token spacing and throughput over mean context and KV occupancy. Between measured points it is linear; outside an axis it takes the
//! nearest edge and never extrapolates, because unmeasured capacity must not be promised. Latency and throughput are interpolated
//! separately: the profile measured both, and one derived from the other would hide a fault of the measurement.
//!
//! | question, seed profile | answer |
//! |---|---|
//! | prompt latency at 2048 tokens | 215 ms |
//! | prompt latency at 1536 tokens | 110 + (215 - 110) * 512/1024 = 162.5 ms |
//! | token spacing at KV 0.1, context 2176 | 11 + (13 - 11) * 1152/3072 = 11.75 ms |
//! | best point within 48.5 ms at context 2176 | KV 0.69798, 3035.86 tokens/s |
//!
//! Rejected: the measured columns as further candidates of the search. Near a peak they would find a little more throughput (3300 instead
//! of 3298 on the seed profile at context 1024), but preset infera promises the original's answer, and the difference errs towards more replicas.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::units::{Ratio, Requests, Seconds, Tokens, TokensPerSecond};

/// Points of the search for the best operating point, both ends included: the original's grid.
const SEARCH_POINTS: usize = 100;

/// The interchange document, as written by `profile`. Nothing is checked yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileDocument {
    /// The prompt curve.
    pub prefill: PrefillProfile,
    /// The generation surface.
    pub decode: DecodeProfile,
    /// GPUs of the prefill replica that was measured.
    pub prefill_engine_num_gpu: u32,
    /// GPUs of the decode replica that was measured.
    pub decode_engine_num_gpu: u32,
}

/// Prompt latency and throughput over prompt length; three series of equal length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrefillProfile {
    /// Prompt lengths, tokens.
    pub isl: Vec<f64>,
    /// Time to first token, milliseconds.
    pub ttft_ms: Vec<f64>,
    /// Prompt tokens a second on one GPU.
    pub thpt_per_gpu: Vec<f64>,
}

/// Token spacing and throughput over context (rows) and KV occupancy (columns).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecodeProfile {
    /// Columns: share of the KV cache in use, in (0, 1].
    pub kv_usage: Vec<f64>,
    /// Rows: mean context, tokens.
    pub context_length: Vec<f64>,
    /// Time between tokens, milliseconds.
    pub itl_ms: Vec<Vec<f64>>,
    /// Generated tokens a second on one GPU.
    pub thpt_per_gpu: Vec<Vec<f64>>,
    /// Tokens that the KV cache of one replica holds.
    pub max_kv_tokens: f64,
}

/// A rule that a profile breaks, and the cell that breaks it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileProblem {
    /// The cell, as a path into the document: `decode.itl_ms[1][3]`.
    pub cell: String,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for ProfileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cell, self.message)
    }
}

/// A checked profile. Invariants: every series is complete and positive, axes strictly increase, the surface is a full rectangle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ProfileDocument", into = "ProfileDocument")]
pub struct Envelope(ProfileDocument);

/// One point of the prompt curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromptPoint {
    /// Service time of one prompt.
    pub latency: Seconds,
    /// Throughput of one GPU.
    pub per_gpu: TokensPerSecond,
}

/// One point of the generation surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GenerationPoint {
    /// Share of the KV cache in use.
    pub kv_fraction: Ratio,
    /// Time between tokens.
    pub latency: Seconds,
    /// Throughput of one GPU.
    pub per_gpu: TokensPerSecond,
}

/// The chosen operating point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperatingPoint {
    /// Where.
    pub point: GenerationPoint,
    /// Whether its latency fits the budget; otherwise it is the least occupied point.
    pub fits: bool,
}

impl Envelope {
    /// Checks a document; all broken rules are reported at once, each with its cell.
    pub fn new(document: ProfileDocument) -> Result<Self, Vec<ProfileProblem>> {
        let problems = check(&document);
        if problems.is_empty() { Ok(Self(document)) } else { Err(problems) }
    }

    /// An envelope that no check has seen, to show that the planner survives what the loader refuses.
    #[doc(hidden)]
    pub fn unchecked(document: ProfileDocument) -> Self {
        Self(document)
    }

    /// The document behind it.
    pub fn document(&self) -> &ProfileDocument {
        &self.0
    }

    /// GPUs of the measured prefill replica.
    pub fn prefill_gpus(&self) -> NonZeroU32 {
        NonZeroU32::new(self.0.prefill_engine_num_gpu).unwrap_or(NonZeroU32::MIN)
    }

    /// GPUs of the measured decode replica.
    pub fn decode_gpus(&self) -> NonZeroU32 {
        NonZeroU32::new(self.0.decode_engine_num_gpu).unwrap_or(NonZeroU32::MIN)
    }

    /// The prompt curve at a mean prompt length.
    pub fn prompt(&self, input: Tokens) -> PromptPoint {
        let curve = &self.0.prefill;
        let at = Position::on(&curve.isl, input.get());
        PromptPoint { latency: millis(at.read(&curve.ttft_ms)), per_gpu: TokensPerSecond(at.read(&curve.thpt_per_gpu)) }
    }

    /// The share of a replica's KV cache that `in_flight` requests of mean context `context` take, clamped to the measured axis.
    pub fn kv_fraction(&self, in_flight: Requests, context: Tokens) -> Ratio {
        let surface = &self.0.decode;
        Ratio(clamp_to(&surface.kv_usage, in_flight.get() * context.get() / surface.max_kv_tokens))
    }

    /// The generation surface at an occupancy and a mean context.
    pub fn generation(&self, kv_fraction: Ratio, context: Tokens) -> GenerationPoint {
        let surface = &self.0.decode;
        let row = Position::on(&surface.context_length, context.get());
        let column = Position::on(&surface.kv_usage, kv_fraction.get());
        GenerationPoint {
            kv_fraction: Ratio(clamp_to(&surface.kv_usage, kv_fraction.get())),
            latency: millis(column.read_grid(&row, &surface.itl_ms)),
            per_gpu: TokensPerSecond(column.read_grid(&row, &surface.thpt_per_gpu)),
        }
    }

    /// Of that, only the time between tokens: what a batch is searched by.
    pub fn spacing(&self, kv_fraction: Ratio, context: Tokens) -> Seconds {
        let surface = &self.0.decode;
        let row = Position::on(&surface.context_length, context.get());
        millis(Position::on(&surface.kv_usage, kv_fraction.get()).read_grid(&row, &surface.itl_ms))
    }

    /// The sampled operating point with the best throughput whose latency fits `budget`; a tie goes to the lowest occupancy.
    /// Every sample is examined, because neither latency nor throughput need be monotonic. Where none fits: the lowest occupancy.
    pub fn best_within(&self, budget: Seconds, context: Tokens) -> OperatingPoint {
        let mut best: Option<GenerationPoint> = None;
        for kv_fraction in self.sampled_occupancies() {
            let point = self.generation(kv_fraction, context);
            if point.latency <= budget && best.is_none_or(|best| point.per_gpu > best.per_gpu) {
                best = Some(point);
            }
        }
        match best {
            Some(point) => OperatingPoint { point, fits: true },
            None => OperatingPoint { point: self.generation(Ratio(first(&self.0.decode.kv_usage)), context), fits: false },
        }
    }

    /// Evenly spaced occupancies from the first to the last measured one, the last exactly.
    fn sampled_occupancies(&self) -> impl Iterator<Item = Ratio> {
        let (low, high) = (first(&self.0.decode.kv_usage), last(&self.0.decode.kv_usage));
        let step = (high - low) / (SEARCH_POINTS - 1) as f64;
        (0..SEARCH_POINTS).map(move |i| Ratio(if i == SEARCH_POINTS - 1 { high } else { low + i as f64 * step }))
    }
}

impl TryFrom<ProfileDocument> for Envelope {
    type Error = String;
    fn try_from(document: ProfileDocument) -> Result<Self, String> {
        Self::new(document).map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }
}

impl From<Envelope> for ProfileDocument {
    fn from(envelope: Envelope) -> Self {
        envelope.0
    }
}

fn millis(latency_ms: f64) -> Seconds {
    Seconds(latency_ms / 1000.0)
}

fn first(axis: &[f64]) -> f64 {
    axis.first().copied().unwrap_or(0.0)
}

fn last(axis: &[f64]) -> f64 {
    axis.last().copied().unwrap_or(0.0)
}

fn clamp_to(axis: &[f64], value: f64) -> f64 {
    // f64::clamp would panic on an axis that runs backwards, which only an unchecked document has.
    value.max(first(axis)).min(last(axis))
}

/// A place on an axis: a segment and the distance from its left end. One lookup serves several series.
struct Position {
    left: usize,
    /// Distance from the left end over the segment's width; 0 on a one-point axis.
    weight: Option<(f64, f64)>,
}

impl Position {
    fn on(axis: &[f64], value: f64) -> Self {
        let value = clamp_to(axis, value);
        // The segment whose right end is the first point not below the value; the first and last segments catch the edges.
        let right = axis.partition_point(|&point| point < value).clamp(1, axis.len().max(2) - 1);
        let left = right - 1;
        let weight = (axis.len() > 1).then(|| (value - axis[left], axis[right] - axis[left]));
        Self { left, weight }
    }

    fn between(&self, left: f64, right: f64) -> f64 {
        match self.weight {
            // The slope form of linear interpolation, in this order of operations, agrees with the original to the last bit.
            Some((distance, width)) => (right - left) / width * distance + left,
            None => left,
        }
    }

    fn read(&self, series: &[f64]) -> f64 {
        let left = series.get(self.left).copied().unwrap_or(0.0);
        self.between(left, series.get(self.left + 1).copied().unwrap_or(left))
    }

    /// The place of a grid at this column, between the two neighbouring rows.
    fn read_grid(&self, row: &Self, rows: &[Vec<f64>]) -> f64 {
        let cell = |of: usize, column: usize| rows.get(of).and_then(|row| row.get(column)).copied();
        let between_rows = |column: usize| {
            let left = cell(row.left, column)?;
            Some(row.between(left, cell(row.left + 1, column).unwrap_or(left)))
        };
        let left = between_rows(self.left).unwrap_or(0.0);
        self.between(left, between_rows(self.left + 1).unwrap_or(left))
    }
}

fn check(document: &ProfileDocument) -> Vec<ProfileProblem> {
    let mut checker = Checker(Vec::new());
    let ProfileDocument { prefill, decode, prefill_engine_num_gpu, decode_engine_num_gpu } = document;
    checker.axis("prefill.isl", &prefill.isl);
    for (name, series) in [("prefill.ttft_ms", &prefill.ttft_ms), ("prefill.thpt_per_gpu", &prefill.thpt_per_gpu)] {
        checker.length(name, series.len(), prefill.isl.len(), "one value for each prefill.isl");
        checker.positive(name, series);
    }
    checker.axis("decode.kv_usage", &decode.kv_usage);
    for (i, &share) in decode.kv_usage.iter().enumerate() {
        checker.ensure(share <= 1.0, format!("decode.kv_usage[{i}]"), || format!("expected a share in (0, 1], got {share}"));
    }
    checker.axis("decode.context_length", &decode.context_length);
    for (name, grid) in [("decode.itl_ms", &decode.itl_ms), ("decode.thpt_per_gpu", &decode.thpt_per_gpu)] {
        checker.length(name, grid.len(), decode.context_length.len(), "one row for each decode.context_length");
        for (i, row) in grid.iter().enumerate() {
            let name = format!("{name}[{i}]");
            checker.length(&name, row.len(), decode.kv_usage.len(), "one value for each decode.kv_usage");
            checker.positive(&name, row);
        }
    }
    checker.positive_cell("decode.max_kv_tokens".to_owned(), decode.max_kv_tokens);
    for (name, gpus) in [("prefill_engine_num_gpu", *prefill_engine_num_gpu), ("decode_engine_num_gpu", *decode_engine_num_gpu)] {
        checker.ensure(gpus > 0, name.to_owned(), || "expected at least 1".to_owned());
    }
    checker.0
}

struct Checker(Vec<ProfileProblem>);

impl Checker {
    fn ensure(&mut self, holds: bool, cell: String, message: impl FnOnce() -> String) {
        if !holds {
            self.0.push(ProfileProblem { cell, message: message() });
        }
    }

    fn positive_cell(&mut self, cell: String, value: f64) {
        self.ensure(value.is_finite() && value > 0.0, cell, || format!("expected a finite number above zero, got {value}"));
    }

    fn positive(&mut self, name: &str, series: &[f64]) {
        for (i, &value) in series.iter().enumerate() {
            self.positive_cell(format!("{name}[{i}]"), value);
        }
    }

    fn axis(&mut self, name: &str, axis: &[f64]) {
        self.ensure(!axis.is_empty(), name.to_owned(), || "expected at least one value".to_owned());
        self.positive(name, axis);
        for (i, pair) in axis.windows(2).enumerate() {
            self.ensure(pair[0] < pair[1], format!("{name}[{}]", i + 1), || {
                format!("expected a value above the one before it ({}), got {}", pair[0], pair[1])
            });
        }
    }

    fn length(&mut self, name: &str, found: usize, expected: usize, rule: &str) {
        self.ensure(found == expected, name.to_owned(), || format!("expected {rule} ({expected}), got {found}"));
    }
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
