//! What does a vLLM server say? Its own page, one server a target, versions V0 and V1; llm-d's simulator speaks the same.
//!
//! TTFT counts at the first token, lengths and durations at a request's end, generated tokens as they come. ITL is observed per output event;
//! under speculative decoding an event carries several tokens, so the planner divides by tokens (facts: `time_per_output_token` is the older
//! name of the same values). The label `engine` is the data-parallel rank: ranks are separate series and add up. A prefill server
//! finishes every request with one token and has no ITL; the planner takes TTFT and prompt lengths from it and the rest from the decode servers.
//!
//! Several API servers behind one page repeat some gauges by `pid`, all but one of them at zero. The external cache is asked for what the local
//! one missed, so its counters are not added to the local pair. The simulator has no counters before the first event.

use super::series::{Combine, Labels, Reader};
use super::{Engine, Reading};
use crate::exposition::Page;
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};

const TTFT: &str = "vllm:time_to_first_token_seconds";
const ITL: &[&str] = &["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"];
const PROMPT_LENGTHS: &str = "vllm:request_prompt_tokens";
const OUTPUT_LENGTHS: &str = "vllm:request_generation_tokens";
const REQUEST_DURATION: &str = "vllm:e2e_request_latency_seconds";
const GENERATED_TOKENS: &str = "vllm:generation_tokens";
const PROMPT_TOKENS: &str = "vllm:prompt_tokens";
const CACHED_TOKENS: &str = "vllm:prompt_tokens_cached";
const PREFIX_QUERIES: &[&str] = &["vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"];
/// Tokens, so that the hits stand for the cached tokens where these have no counter.
const PREFIX_HITS: &[&str] = &["vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"];
const FINISHED: &str = "vllm:request_success";
const REJECTED: &str = "vllm:admission_rejections";
const DRAFTS: &str = "vllm:spec_decode_num_drafts";
const DRAFTED_TOKENS: &str = "vllm:spec_decode_num_draft_tokens";
const ACCEPTED_TOKENS: &str = "vllm:spec_decode_num_accepted_tokens";
/// A histogram in spite of its name.
const ITERATION_TOKENS: &str = "vllm:iteration_tokens_total";
/// At a request's end, which on a prefill server is its first token.
const PREFILL_TIME: &str = "vllm:request_prefill_time_seconds";
const RUNNING: &str = "vllm:num_requests_running";
const WAITING: &str = "vllm:num_requests_waiting";
/// Fractions in spite of their names.
const KV_USAGE: &[&str] = &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"];
const CACHE_CONFIG: &str = "vllm:cache_config_info";
const PROCESS_START: &str = "process_start_time_seconds";

/// What the dialect reads; Dynamo's workers pass it on.
pub const FAMILIES: &[&str] = &[
    TTFT,
    ITL[0],
    ITL[1],
    PROMPT_LENGTHS,
    OUTPUT_LENGTHS,
    REQUEST_DURATION,
    GENERATED_TOKENS,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    PREFIX_QUERIES[0],
    PREFIX_QUERIES[1],
    PREFIX_HITS[0],
    PREFIX_HITS[1],
    FINISHED,
    REJECTED,
    DRAFTS,
    DRAFTED_TOKENS,
    ACCEPTED_TOKENS,
    ITERATION_TOKENS,
    PREFILL_TIME,
    RUNNING,
    WAITING,
    KV_USAGE[0],
    KV_USAGE[1],
    CACHE_CONFIG,
    PROCESS_START,
];

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "vllm",
    families: &[FAMILIES],
    counts_replicas: false,
    gauges: &[Gauge::Running, Gauge::Waiting, Gauge::KvUsage, Gauge::KvCapacityTokens],
    recognise,
    read,
};

/// Whether the page has series of this dialect.
pub fn recognise(page: &Page<'_>) -> bool {
    [RUNNING, TTFT, FINISHED, KV_USAGE[0], PREFIX_HITS[0]].iter().any(|name| page.family(name).is_some())
}

/// The page in the planner's terms.
pub fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels::by_model("model_name"));
    reader.histogram(Signal::Ttft, &[TTFT]);
    reader.histogram(Signal::Itl, ITL);
    reader.histogram(Signal::PromptTokens, &[PROMPT_LENGTHS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_LENGTHS]);
    reader.histogram(Signal::RequestDuration, &[REQUEST_DURATION]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    reader.tally(Tally::PromptTokens, &[PROMPT_TOKENS]);
    reader.tally(Tally::CachedTokens, &[CACHED_TOKENS, PREFIX_HITS[0], PREFIX_HITS[1]]);
    reader.tally(Tally::PrefixQueries, PREFIX_QUERIES);
    reader.tally(Tally::PrefixHits, PREFIX_HITS);
    reader.tally(Tally::Finished, &[FINISHED]);
    reader.tally_where(Tally::Aborted, &[FINISHED], |line| line.label("finished_reason") == Some("abort"));
    reader.tally(Tally::Rejected, &[REJECTED]);
    reader.tally(Tally::Drafts, &[DRAFTS]);
    reader.tally(Tally::DraftedTokens, &[DRAFTED_TOKENS]);
    reader.tally(Tally::AcceptedTokens, &[ACCEPTED_TOKENS]);
    reader.tally(Tally::Iterations, &[ITERATION_TOKENS]);
    reader.tally_of_sum(Tally::IterationTokens, &[ITERATION_TOKENS], |_| true);
    reader.tally_of_sum(Tally::PrefillSeconds, &[PREFILL_TIME], |_| true);
    reader.gauge(Gauge::Running, Combine::Sum, &[RUNNING]);
    reader.gauge(Gauge::Waiting, Combine::Sum, &[WAITING]);
    reader.gauge(Gauge::KvUsage, Combine::Max, KV_USAGE);
    reader.zero_before(&[TTFT], Gauge::Running, &[Tally::Finished, Tally::GeneratedTokens, Tally::PromptTokens]);
    let capacity = kv_capacity(&reader);
    reader.samples().for_each(|sample| sample.gauges.extend(capacity.map(|tokens| (Gauge::KvCapacityTokens, tokens))));
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerEvent)
}

/// Tokens that the KV memory of all ranks holds. The facts stand in labels, one line a rank, and name no model.
fn kv_capacity(reader: &Reader<'_, '_>) -> Option<f64> {
    let family = reader.first_of(&[CACHE_CONFIG])?;
    let mut ranks = std::collections::BTreeMap::new();
    for line in family.samples() {
        let number = |label| line.label(label).and_then(|text| text.parse::<f64>().ok()).filter(|number| *number >= 0.0);
        let blocks = || Some(number("num_gpu_blocks")? * number("block_size")?);
        if let Some(tokens) = number("kv_cache_size_tokens").or_else(blocks).filter(|tokens| tokens.is_finite()) {
            ranks.insert(line.label("engine"), tokens);
        }
    }
    (!ranks.is_empty()).then(|| ranks.values().sum())
}
