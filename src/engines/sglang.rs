//! What does an SGLang server say? Its own page, versions 0.4 to 0.5, also of the prefill and decode servers of a pair.
//!
//! Two kinds of series. The scheduler's carry ranks: tensor, pipeline, expert and context parallel ranks may all export and then repeat each
//! other; `dp_rank` shares the work. With priorities the empty one is the total of the others. The tokenizer's (latencies, lengths, requests)
//! count once. ITL is observed per token: an interval of k tokens counts k times. Token counters move at a request's end.
//!
//! The queues between prefill and decode are not in the queue gauge; they are added to it. Requests whose prompt is done and whose KV is being
//! sent away still hold memory, and count as running. A prefill server has neither TTFT nor ITL; what its
//! prompts take is that of two stages, the last chunk of each and the ones before. `engine_type` says which of a pair a server is;
//! early versions call all of them `unified`. Request counters are absent until the first
//! request ends: beside the running gauge that means none. `cache_hit_rate` is one batch's value and not read.
//!
//! TTFT is of all requests: where `is_streaming` tells the others apart, the scheduler has stamped their first token; before, no label does.

use super::series::{Combine, Labels, Reader};
use super::{Engine, Reading, series};
use crate::exposition::{Page, Sample as Line};
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};

const TTFT: &str = "sglang:time_to_first_token_seconds";
const ITL: &[&str] = &["sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"];
const PROMPT_LENGTHS: &str = "sglang:prompt_tokens_histogram";
const OUTPUT_LENGTHS: &str = "sglang:generation_tokens_histogram";
const REQUEST_DURATION: &str = "sglang:e2e_request_latency_seconds";
const PROMPT_TOKENS: &str = "sglang:prompt_tokens_total";
const GENERATED_TOKENS: &str = "sglang:generation_tokens_total";
const CACHED_TOKENS: &str = "sglang:cached_tokens_total";
/// What the scheduler looked up; before there was such a counter, what the requests that ended had cached.
const LOOKED_UP: &str = "sglang:prefill_effective_tokens_total";
const FINISHED: &str = "sglang:num_requests_total";
const ABORTED: &str = "sglang:num_aborted_requests_total";
const DRAFTS: &str = "sglang:spec_verify_calls_total";
/// Of each stage that a request goes through.
const STAGES: &str = "sglang:per_stage_req_latency_seconds";
const PREFILL_STAGES: [&str; 2] = ["prefill_forward", "chunked_prefill"];
const RUNNING: &str = "sglang:num_running_reqs";
const WAITING: &str = "sglang:num_queue_reqs";
/// Further queues, each with its older names.
const QUEUES: [&[&str]; 5] = [
    &["sglang:num_grammar_queue_reqs"],
    &["sglang:num_prefill_bootstrap_queue_reqs", "sglang:num_prefill_prealloc_queue_reqs"],
    &["sglang:num_decode_prealloc_queue_reqs"],
    &["sglang:num_decode_transfer_queue_reqs"],
    &["sglang:num_decode_host_receive_queue_reqs"],
];
const LEAVING: &[&str] = &["sglang:num_prefill_inflight_queue_reqs", "sglang:num_prefill_infight_queue_reqs"];
const KV_USAGE: &str = "sglang:token_usage";
const KV_CAPACITY: &str = "sglang:max_total_num_tokens";
const PROCESS_START: &str = "process_start_time_seconds";

/// What the dialect reads; Dynamo's workers pass it on.
#[rustfmt::skip]
pub const FAMILIES: &[&str] = &[
    TTFT, ITL[0], ITL[1], PROMPT_LENGTHS, OUTPUT_LENGTHS, REQUEST_DURATION,
    PROMPT_TOKENS, GENERATED_TOKENS, CACHED_TOKENS, LOOKED_UP, FINISHED, ABORTED, DRAFTS,
    STAGES, RUNNING, WAITING, QUEUES[0][0], QUEUES[1][0], QUEUES[1][1], QUEUES[2][0], QUEUES[3][0], QUEUES[4][0], LEAVING[0], LEAVING[1],
    KV_USAGE, KV_CAPACITY, PROCESS_START,
];

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "sglang",
    families: &[FAMILIES],
    counts_replicas: false,
    gauges: &[Gauge::Running, Gauge::Waiting, Gauge::KvUsage, Gauge::KvCapacityTokens],
    recognise,
    read,
};

/// Whether the page has series of this dialect.
pub fn recognise(page: &Page<'_>) -> bool {
    [RUNNING, TTFT, REQUEST_DURATION, KV_USAGE].iter().any(|name| page.family(name).is_some())
}

/// The page in the planner's terms.
pub fn read(page: &Page<'_>) -> Reading {
    let labels = Labels {
        repeated: &["tp_rank", "pp_rank", "moe_ep_rank", "cp_rank", "attn_cp_rank"],
        total: Some("priority"),
        ..Labels::by_model("model_name")
    };
    let mut reader = Reader::new(page, labels);
    reader.histogram(Signal::Ttft, &[TTFT]);
    reader.histogram(Signal::Itl, ITL);
    reader.histogram(Signal::PromptTokens, &[PROMPT_LENGTHS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_LENGTHS]);
    reader.histogram(Signal::RequestDuration, &[REQUEST_DURATION]);
    // Older versions have length histograms only on demand; requests and tokens are counted at the same moment.
    reader.mean_of_counters(Signal::PromptTokens, &[PROMPT_TOKENS], &[FINISHED, REQUEST_DURATION]);
    reader.mean_of_counters(Signal::OutputTokens, &[GENERATED_TOKENS], &[FINISHED, REQUEST_DURATION]);
    reader.tally(Tally::Finished, &[FINISHED, REQUEST_DURATION]);
    reader.tally(Tally::Aborted, &[ABORTED]);
    reader.tally(Tally::PromptTokens, &[PROMPT_TOKENS]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    let sources = reader.first_of(&[CACHED_TOKENS]);
    let is_total = |line: &Line<'_>| line.label("cache_source") == Some("total");
    let has_total = sources.is_some_and(|family| family.samples().any(|line| is_total(&line)));
    let cached = |line: &Line<'_>| !has_total || is_total(line);
    reader.tally_where(Tally::CachedTokens, &[CACHED_TOKENS], cached);
    if reader.first_of(&[LOOKED_UP]).is_some() {
        reader.tally(Tally::PrefixQueries, &[LOOKED_UP]);
        reader.tally_where(Tally::PrefixHits, &[LOOKED_UP], |line| line.label("mode").is_some_and(|mode| mode.ends_with("_hit")));
    } else if sources.is_some() {
        reader.tally(Tally::PrefixQueries, &[PROMPT_TOKENS]);
        reader.tally_where(Tally::PrefixHits, &[CACHED_TOKENS], cached);
    }
    reader.tally(Tally::Drafts, &[DRAFTS]);
    reader.tally_of_sum(Tally::PrefillSeconds, &[STAGES], |line| line.label("stage").is_some_and(|stage| PREFILL_STAGES.contains(&stage)));
    reader.gauge(Gauge::Running, Combine::Sum, &[RUNNING]);
    reader.gauge_plus(Gauge::Running, LEAVING);
    reader.gauge(Gauge::Waiting, Combine::Sum, &[WAITING]);
    QUEUES.iter().for_each(|queue| reader.gauge_plus(Gauge::Waiting, queue));
    reader.gauge(Gauge::KvUsage, Combine::Max, &[KV_USAGE]);
    reader.gauge(Gauge::KvCapacityTokens, Combine::Sum, &[KV_CAPACITY]);
    reader.zero_before(&[REQUEST_DURATION], Gauge::Running, &[Tally::Finished, Tally::PromptTokens, Tally::GeneratedTokens]);
    let role = reader.first_of(&[RUNNING]).and_then(|family| family.samples().next()).and_then(|line| line.label("engine_type"));
    let role = role.and_then(series::role_named);
    reader.samples().for_each(|sample| sample.role = role);
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerToken)
}
