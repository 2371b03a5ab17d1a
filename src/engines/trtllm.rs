//! What does a TensorRT-LLM server say? `trtllm-serve` on `/prometheus/metrics`, and Triton with the TensorRT-LLM backend.
//!
//! `trtllm-serve` counts and observes everything at a request's end. ITL is the mean of each request with two tokens or more. Lengths have no
//! histogram: tokens and requests are counted together, so their quotient is the mean. Versions 1.0 and 1.1 write the five names they have without
//! a prefix, as NIM does; the label `engine_type` tells them apart. The page on `/metrics` is JSON and no exposition.
//!
//! Triton counts the requests of every step of an ensemble again; the model that the backend's own gauges name is the one that is read. Its name
//! is that of a repository entry and not of a served model, so its series belong to whichever model is asked for. It counts microseconds and
//! no tokens.

use super::series::{Combine, Labels, Reader};
use super::{Engine, Reading};
use crate::exposition::{Page, Sample as Line};
use crate::planner::input::{Gauge, Histogram, ItlBasis, SeriesKey, Signal, Tally};

/// The second name is the one that Dynamo's imitation has.
const ITL: &[&str] = &["trtllm_time_per_output_token_seconds", "trtllm_inter_token_latency_seconds"];
const TTFT: &str = "trtllm_time_to_first_token_seconds";
const REQUEST_DURATION: &str = "trtllm_e2e_request_latency_seconds";
const PROMPT_TOKENS: &str = "trtllm_prompt_tokens_total";
const GENERATED_TOKENS: &str = "trtllm_generation_tokens_total";
const CACHED_TOKENS: &str = "trtllm_prompt_cached_tokens_total";
const FINISHED: &[&str] = &["trtllm_num_requests_completed_total", "trtllm_request_success_total"];
const BY_REASON: &str = "trtllm_request_success_total";
/// Blocks.
const PREFIX_HITS: &str = "trtllm_kv_cache_reused_blocks_total";
const PREFIX_MISSES: &str = "trtllm_kv_cache_missed_blocks_total";
const DRAFTED_TOKENS: &str = "trtllm_spec_decode_num_draft_tokens_total";
const ACCEPTED_TOKENS: &str = "trtllm_spec_decode_num_accepted_tokens_total";
const PREFILL_TIME: &str = "trtllm_request_prefill_time_seconds";
const RUNNING: &str = "trtllm_num_requests_running";
const WAITING: &str = "trtllm_num_requests_waiting";
const MAX_RUNNING: &str = "trtllm_max_num_active_requests";
const KV_USAGE: &[&str] = &["trtllm_kv_cache_utilization", "trtllm_kv_cache_usage_perc", "trtllm_gpu_cache_usage_perc"];
const KV_BLOCKS: &str = "trtllm_kv_cache_max_blocks";
const KV_BLOCK_TOKENS: &str = "trtllm_kv_cache_tokens_per_block";

/// What versions 1.0 and 1.1 call every model.
const NO_NAME: &str = "undefined";

const OLD_TTFT: &str = "time_to_first_token_seconds";
const OLD_ITL: &str = "time_per_output_token_seconds";
const OLD_REQUEST_DURATION: &str = "e2e_request_latency_seconds";
const OLD_FINISHED: &str = "request_success_total";

const TRITON_SUCCESS: &str = "nv_inference_request_success";
const TRITON_FAILURE: &str = "nv_inference_request_failure";
const TRITON_DURATION: &str = "nv_inference_request_duration_us";
const TRITON_REQUESTS: &str = "nv_trt_llm_request_metrics";
const TRITON_KV: &str = "nv_trt_llm_kv_cache_block_metrics";

const PROCESS_START: &str = "process_start_time_seconds";

/// What `trtllm-serve` writes; Dynamo's workers pass it on.
#[rustfmt::skip]
pub const FAMILIES: &[&str] = &[
    TTFT, ITL[0], ITL[1], REQUEST_DURATION, PROMPT_TOKENS, GENERATED_TOKENS, CACHED_TOKENS, FINISHED[0], FINISHED[1],
    PREFIX_HITS, PREFIX_MISSES, DRAFTED_TOKENS, ACCEPTED_TOKENS, PREFILL_TIME, RUNNING, WAITING, MAX_RUNNING,
    KV_USAGE[0], KV_USAGE[1], KV_USAGE[2], KV_BLOCKS, KV_BLOCK_TOKENS, PROCESS_START,
];
const OLD_FAMILIES: &[&str] = &[OLD_TTFT, OLD_ITL, OLD_REQUEST_DURATION, OLD_FINISHED];
const TRITON_FAMILIES: &[&str] = &[TRITON_SUCCESS, TRITON_FAILURE, TRITON_DURATION, TRITON_REQUESTS, TRITON_KV];

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "trtllm",
    families: &[FAMILIES, OLD_FAMILIES, TRITON_FAMILIES],
    counts_replicas: false,
    gauges: &[Gauge::Running, Gauge::Waiting, Gauge::KvUsage, Gauge::KvCapacityTokens, Gauge::MaxRunning],
    recognise: |page| recognise(page) || is_old(page) || page.family(TRITON_REQUESTS).is_some(),
    read: |page| if page.family(TRITON_REQUESTS).is_some() { triton(page) } else { read(page) },
};

/// Whether the page has series of `trtllm-serve` since version 1.3.
pub fn recognise(page: &Page<'_>) -> bool {
    [RUNNING, TTFT, BY_REASON].iter().any(|name| page.family(name).is_some())
}

fn is_old(page: &Page<'_>) -> bool {
    let named = |line: &Line<'_>| line.label("engine_type").is_some();
    OLD_FAMILIES.iter().filter_map(|name| page.family(name)).any(|family| family.samples().any(|line| named(&line)))
}

/// The page of `trtllm-serve` in the planner's terms.
pub fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels::by_model("model_name"));
    reader.histogram(Signal::Ttft, &[TTFT, OLD_TTFT]);
    reader.histogram(Signal::Itl, &[ITL[0], ITL[1], OLD_ITL]);
    reader.histogram(Signal::RequestDuration, &[REQUEST_DURATION, OLD_REQUEST_DURATION]);
    reader.mean_of_counters(Signal::PromptTokens, &[PROMPT_TOKENS], FINISHED);
    reader.mean_of_counters(Signal::OutputTokens, &[GENERATED_TOKENS], FINISHED);
    reader.tally(Tally::Finished, &[FINISHED[0], FINISHED[1], OLD_FINISHED]);
    reader.tally_where(Tally::Aborted, &[BY_REASON, OLD_FINISHED], |line| line.label("finished_reason") == Some("cancelled"));
    reader.tally(Tally::PromptTokens, &[PROMPT_TOKENS]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    reader.tally(Tally::CachedTokens, &[CACHED_TOKENS]);
    reader.tally(Tally::PrefixHits, &[PREFIX_HITS]);
    reader.tally_of_two(Tally::PrefixQueries, PREFIX_HITS, PREFIX_MISSES);
    reader.tally(Tally::DraftedTokens, &[DRAFTED_TOKENS]);
    reader.tally(Tally::AcceptedTokens, &[ACCEPTED_TOKENS]);
    reader.tally_of_sum(Tally::PrefillSeconds, &[PREFILL_TIME], |_| true);
    reader.gauge(Gauge::Running, Combine::Sum, &[RUNNING]);
    reader.gauge(Gauge::Waiting, Combine::Sum, &[WAITING]);
    reader.gauge(Gauge::MaxRunning, Combine::Sum, &[MAX_RUNNING]);
    reader.gauge(Gauge::KvUsage, Combine::Max, KV_USAGE);
    let block = reader.gauges(Combine::Max, &[KV_BLOCK_TOKENS], |_| true);
    for (model, blocks) in reader.gauges(Combine::Sum, &[KV_BLOCKS], |_| true) {
        if let Some(tokens) = block.get(&model) {
            reader.sample(model).gauges.insert(Gauge::KvCapacityTokens, blocks * tokens);
        }
    }
    reader.process_start(&[PROCESS_START]);
    let mut reading = reader.finish(ItlBasis::PerRequest);
    if let Some(sample) = reading.models.remove(&Some(NO_NAME.to_owned())) {
        reading.models.insert(None, sample);
    }
    reading
}

fn triton(page: &Page<'_>) -> Reading {
    let backend = page.family(TRITON_REQUESTS).and_then(|family| family.samples().next()).and_then(|line| line.label("model"));
    let model = backend.unwrap_or_default();
    let ours = |line: &Line<'_>| line.label("model") == Some(model);
    let mut reader = Reader::new(page, Labels::by_model(""));
    reader.tally_where(Tally::Finished, &[TRITON_SUCCESS], ours);
    reader.tally_where(Tally::Finished, &[TRITON_FAILURE], ours);
    reader.tally_where(Tally::Aborted, &[TRITON_FAILURE], |line| ours(line) && line.label("reason") == Some("CANCELED"));
    let one = |names: &[&str]| reader.gauges(Combine::Sum, names, ours).remove(&None);
    if let (Some(micros), Some(count)) = (one(&[TRITON_DURATION]), one(&[TRITON_SUCCESS])) {
        let durations = Histogram { sum: micros / 1e6, count, ..Histogram::default() };
        let series = reader.sample(None).histograms.entry(Signal::RequestDuration).or_default();
        series.insert(SeriesKey::default(), durations);
    }
    let of = |label: &'static str, value: &'static str| move |line: &Line<'_>| line.label(label) == Some(value);
    for (gauge, kind) in [(Gauge::Running, "active"), (Gauge::Waiting, "waiting"), (Gauge::MaxRunning, "max")] {
        reader.gauge_where(gauge, &[TRITON_REQUESTS], of("request_type", kind));
    }
    let kv = "kv_cache_block_type";
    reader.gauge_where(Gauge::KvUsage, &[TRITON_KV], of(kv, "fraction"));
    let one = |kind| reader.gauges(Combine::Max, &[TRITON_KV], of(kv, kind)).remove(&None);
    if let (Some(blocks), Some(tokens)) = (one("max"), one("tokens_per")) {
        reader.sample(None).gauges.insert(Gauge::KvCapacityTokens, blocks * tokens);
    }
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerRequest)
}
