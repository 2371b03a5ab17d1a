//! What does an Infera server say? The dialect of its Python router, in four generations, and of its Rust router.
//!
//! TTFT spans dispatch, prefill, KV transfer and the first decode step. ITL is the mean of each request after its first token. Token counts are
//! exact where the engine reports usage. All cover successful requests only; request duration covers every outcome and needs no SLA
//! metrics, so it is the live counter that tells "no requests" from "not instrumented". The newest generation counts requests, tokens and
//! cached blocks by themselves. The worker gauge is a view of the fleet that every router repeats: the largest counts, never the sum. Families
//! appear only after the first event. The first generation has the request duration and nothing of latencies; the Rust router only a count of
//! workers, of which it does not say what they do.

use super::series::{Combine, Labels, Reader, whole};
use super::{Engine, Reading};
use crate::exposition::{Page, Part, Sample as Line};
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};
use crate::units::Role;

const TTFT: &str = "infera_time_to_first_token_seconds";
const ITL: &str = "infera_inter_token_latency_seconds";
const INPUT_TOKENS: &str = "infera_input_sequence_tokens";
const OUTPUT_TOKENS: &str = "infera_output_sequence_tokens";
const REQUEST_DURATION: &str = "infera_request_duration_seconds";
const REQUESTS: &str = "infera_requests_total";
const PROMPT_TOKENS: &str = "infera_prompt_tokens_total";
const GENERATED_TOKENS: &str = "infera_generation_tokens_total";
/// Blocks; the older generations observe them at each pick.
const PREFIX_QUERIES: &[&str] = &["infera_prefix_cache_blocks_total", "infera_router_pick_request_blocks"];
const PREFIX_HITS: &[&str] = &["infera_prefix_cache_blocks_hit_total", "infera_router_pick_cache_hits"];
const IN_FLIGHT: &str = "infera_request_inflight";
const KV_USAGE: &str = "infera_engine_kv_cache_usage";
const ACTIVE_WORKERS: &str = "infera_active_workers";
const ALL_WORKERS: &str = "infera_router_active_workers";
const PROCESS_START: &str = "process_start_time_seconds";

/// Label value of the router that serves prefill and decode apart; the SLA planner reads no other.
const DISAGGREGATED: &str = "disagg";

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "infera",
    families: &[
        &[TTFT, ITL, INPUT_TOKENS, OUTPUT_TOKENS, REQUEST_DURATION, REQUESTS, PROMPT_TOKENS, GENERATED_TOKENS],
        &[PREFIX_QUERIES[0], PREFIX_QUERIES[1], PREFIX_HITS[0], PREFIX_HITS[1], IN_FLIGHT, KV_USAGE],
        &[ACTIVE_WORKERS, ALL_WORKERS, PROCESS_START],
    ],
    counts_replicas: true,
    gauges: &[Gauge::InFlight, Gauge::KvUsage],
    recognise: |page| [TTFT, REQUEST_DURATION, ACTIVE_WORKERS, ALL_WORKERS].iter().any(|name| page.family(name).is_some()),
    read,
};

fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels { keep: from_disaggregated_router, ..Labels::by_model("model") });
    reader.histogram(Signal::Ttft, &[TTFT]);
    reader.histogram(Signal::Itl, &[ITL]);
    reader.histogram(Signal::PromptTokens, &[INPUT_TOKENS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_TOKENS]);
    reader.tally(Tally::Finished, &[REQUESTS, REQUEST_DURATION]);
    reader.tally(Tally::PromptTokens, &[PROMPT_TOKENS]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    if reader.first_of(&PREFIX_HITS[..1]).is_some() {
        reader.tally(Tally::PrefixQueries, &PREFIX_QUERIES[..1]);
        reader.tally(Tally::PrefixHits, &PREFIX_HITS[..1]);
    } else {
        // The pick of a decode server looks the same blocks up again, and saves no work.
        reader.tally_of_sum(Tally::PrefixQueries, &PREFIX_QUERIES[1..], saves_work);
        reader.tally_of_sum(Tally::PrefixHits, &PREFIX_HITS[1..], saves_work);
    }
    reader.gauge(Gauge::InFlight, Combine::Sum, &[IN_FLIGHT]);
    reader.fleet(Gauge::KvUsage, Combine::Mean, &[KV_USAGE]);
    workers(&mut reader);
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerRequest)
}

fn saves_work(line: &Line<'_>) -> bool {
    line.label("role") != Some("decode")
}

/// A line without the label comes from a router that only knows one way.
fn from_disaggregated_router(line: &Line<'_>) -> bool {
    line.label("router").is_none_or(|router| router == DISAGGREGATED)
}

fn workers(reader: &mut Reader<'_, '_>) {
    for name in [ACTIVE_WORKERS, ALL_WORKERS] {
        let Some(family) = reader.first_of(&[name]) else { continue };
        for line in family.samples().filter(|line| line.part == Part::Value) {
            let role = match line.label("disagg_mode") {
                Some("prefill") => Role::Prefill,
                Some("decode") => Role::Decode,
                None if name == ALL_WORKERS => Role::Aggregated,
                // `mixed` and modes to come are no pool of this planner.
                _ => continue,
            };
            let Some(seen) = whole(line.value) else { continue };
            let known = reader.sample(line.label("model").map(str::to_owned)).workers.entry(role).or_default();
            *known = seen.max(*known);
        }
    }
}
