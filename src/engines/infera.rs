//! What does an Infera server say? The dialect of its Python router with SLA metrics enabled.
//!
//! TTFT spans dispatch, prefill, KV transfer and the first decode step. ITL is the mean of each request after its first token. Token counts are
//! exact where the engine reports usage. All cover successful requests only; request duration covers every outcome and needs no SLA
//! metrics, so it is the live counter that tells "no requests" from "not instrumented". The worker gauge is a view of the fleet that every
//! router repeats: the largest counts, never the sum. Families appear only after the first event.

use super::series::Reader;
use super::{Engine, Reading};
use crate::exposition::{Page, Part, Sample as Line};
use crate::planner::input::{ItlBasis, Signal, Tally};
use crate::units::{Replicas, Role};

const TTFT: &str = "infera_time_to_first_token_seconds";
const ITL: &str = "infera_inter_token_latency_seconds";
const INPUT_TOKENS: &str = "infera_input_sequence_tokens";
const OUTPUT_TOKENS: &str = "infera_output_sequence_tokens";
const REQUEST_DURATION: &str = "infera_request_duration_seconds";
const ACTIVE_WORKERS: &str = "infera_active_workers";
const PROCESS_START: &str = "process_start_time_seconds";

/// Label value of the router that serves prefill and decode apart; the SLA planner reads no other.
const DISAGGREGATED: &str = "disagg";

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "infera",
    families: &[TTFT, ITL, INPUT_TOKENS, OUTPUT_TOKENS, REQUEST_DURATION, ACTIVE_WORKERS, PROCESS_START],
    counts_replicas: true,
    recognise: |page| [TTFT, REQUEST_DURATION, ACTIVE_WORKERS].iter().any(|name| page.family(name).is_some()),
    read,
};

fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, "model", from_disaggregated_router);
    reader.histogram(Signal::Ttft, &[TTFT]);
    reader.histogram(Signal::Itl, &[ITL]);
    reader.histogram(Signal::PromptTokens, &[INPUT_TOKENS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_TOKENS]);
    reader.tally(Tally::Finished, &[REQUEST_DURATION]);
    workers(&mut reader);
    reader.process_start(&[PROCESS_START]);
    reader.samples().for_each(|sample| sample.itl_basis = ItlBasis::PerRequest);
    reader.finish()
}

/// A line without the label comes from a router that only knows one way.
fn from_disaggregated_router(line: &Line<'_>) -> bool {
    line.label("router").is_none_or(|router| router == DISAGGREGATED)
}

fn workers(reader: &mut Reader<'_, '_>) {
    let Some(family) = reader.first_of(&[ACTIVE_WORKERS]) else { return };
    for line in family.samples.iter().filter(|line| line.part == Part::Value) {
        let role = match line.label("disagg_mode") {
            Some("prefill") => Role::Prefill,
            Some("decode") => Role::Decode,
            // `mixed` and modes to come are no pool of this planner.
            _ => continue,
        };
        // A count is whole and not negative; anything else is no count, and unknown is not zero.
        if line.value < 0.0 || line.value.fract() != 0.0 || line.value > f64::from(u32::MAX) {
            continue;
        }
        let seen = Replicas(line.value as u32);
        let known = reader.sample(line.label("model").map(str::to_owned)).workers.entry(role).or_default();
        *known = seen.max(*known);
    }
}
