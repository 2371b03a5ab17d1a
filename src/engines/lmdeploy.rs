//! What does an LMDeploy server say? vLLM's names under a prefix of its own, one server a target.
//!
//! The label `engine` is the data-parallel rank; ranks add up. Time per token is observed once an output event, already divided by the event's
//! tokens. Finished requests carry the names of an enumeration as reasons, errors and cancellations among them. Every request that is in a step
//! observes the step's tokens again, so that their histogram says nothing of iterations. Requests that wait at the server's door are not yet in
//! the engine's queue; they are added to it.

use super::series::{Combine, Labels, Reader};
use super::{Engine, Reading};
use crate::exposition::Page;
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};

const TTFT: &str = "lmdeploy:time_to_first_token_seconds";
const TIME_PER_TOKEN: &str = "lmdeploy:time_per_output_token_seconds";
const PROMPT_LENGTHS: &str = "lmdeploy:request_prompt_tokens";
const OUTPUT_LENGTHS: &str = "lmdeploy:request_generation_tokens";
const REQUEST_DURATION: &str = "lmdeploy:e2e_request_latency_seconds";
const PROMPT_TOKENS: &str = "lmdeploy:prompt_tokens_total";
const GENERATED_TOKENS: &str = "lmdeploy:generation_tokens_total";
const CACHED_TOKENS: &str = "lmdeploy:cached_tokens_total";
const FINISHED: &str = "lmdeploy:request_success_total";
const DRAFTS: &str = "lmdeploy:spec_decode_num_drafts_total";
const DRAFTED_TOKENS: &str = "lmdeploy:spec_decode_num_draft_tokens_total";
const ACCEPTED_TOKENS: &str = "lmdeploy:spec_decode_num_accepted_tokens_total";
const RUNNING: &str = "lmdeploy:num_requests_running";
const WAITING: &str = "lmdeploy:num_requests_waiting";
const AT_THE_DOOR: &str = "lmdeploy:num_api_requests_waiting";
const KV_USAGE: &str = "lmdeploy:gpu_cache_usage_perc";
const PROCESS_START: &str = "process_start_time_seconds";

#[rustfmt::skip]
const FAMILIES: &[&str] = &[
    TTFT, TIME_PER_TOKEN, PROMPT_LENGTHS, OUTPUT_LENGTHS, REQUEST_DURATION, PROMPT_TOKENS, GENERATED_TOKENS, CACHED_TOKENS, FINISHED,
    DRAFTS, DRAFTED_TOKENS, ACCEPTED_TOKENS, RUNNING, WAITING, AT_THE_DOOR, KV_USAGE, PROCESS_START,
];

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "lmdeploy",
    families: &[FAMILIES],
    counts_replicas: false,
    gauges: &[Gauge::Running, Gauge::Waiting, Gauge::KvUsage],
    recognise: |page| [RUNNING, TTFT, FINISHED].iter().any(|name| page.family(name).is_some()),
    read,
};

fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels::by_model("model_name"));
    reader.histogram(Signal::Ttft, &[TTFT]);
    reader.histogram(Signal::Itl, &[TIME_PER_TOKEN]);
    reader.histogram(Signal::PromptTokens, &[PROMPT_LENGTHS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_LENGTHS]);
    reader.histogram(Signal::RequestDuration, &[REQUEST_DURATION]);
    reader.tally(Tally::Finished, &[FINISHED]);
    reader.tally_where(Tally::Aborted, &[FINISHED], |line| line.label("finished_reason").is_some_and(|reason| reason.ends_with("CANCEL")));
    reader.tally(Tally::PromptTokens, &[PROMPT_TOKENS]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    if reader.first_of(&[CACHED_TOKENS]).is_some() {
        // Every prompt is looked up.
        for (tally, name) in
            [(Tally::CachedTokens, CACHED_TOKENS), (Tally::PrefixHits, CACHED_TOKENS), (Tally::PrefixQueries, PROMPT_TOKENS)]
        {
            reader.tally(tally, &[name]);
        }
    }
    reader.tally(Tally::Drafts, &[DRAFTS]);
    reader.tally(Tally::DraftedTokens, &[DRAFTED_TOKENS]);
    reader.tally(Tally::AcceptedTokens, &[ACCEPTED_TOKENS]);
    reader.gauge(Gauge::Running, Combine::Sum, &[RUNNING]);
    reader.gauge(Gauge::Waiting, Combine::Sum, &[WAITING]);
    reader.gauge_plus(Gauge::Waiting, &[AT_THE_DOOR]);
    reader.gauge(Gauge::KvUsage, Combine::Max, &[KV_USAGE]);
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerToken)
}
