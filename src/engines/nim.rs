//! What does a NIM for LLMs 1.x server say? The early names of vLLM without their prefix.
//!
//! Later NIMs are vLLM inside and are recognised as such. The names are so plain that anything may have them: this dialect is tried last. Prompts
//! have no cache counters and drafts none either.

use super::series::{Combine, Labels, Reader};
use super::{Engine, Reading};
use crate::exposition::Page;
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};

const TTFT: &str = "time_to_first_token_seconds";
const ITL: &str = "time_per_output_token_seconds";
const PROMPT_LENGTHS: &str = "request_prompt_tokens";
const OUTPUT_LENGTHS: &str = "request_generation_tokens";
const REQUEST_DURATION: &str = "e2e_request_latency_seconds";
const PROMPT_TOKENS: &str = "prompt_tokens_total";
const GENERATED_TOKENS: &str = "generation_tokens_total";
/// All reasons, failures included.
const FINISHED: &str = "request_finish_total";
const SUCCEEDED: &str = "request_success_total";
const RUNNING: &str = "num_requests_running";
const WAITING: &str = "num_requests_waiting";
const MAX_RUNNING: &str = "num_request_max";
const KV_USAGE: &str = "gpu_cache_usage_perc";
const PROCESS_START: &str = "process_start_time_seconds";

#[rustfmt::skip]
const FAMILIES: &[&str] = &[
    TTFT, ITL, PROMPT_LENGTHS, OUTPUT_LENGTHS, REQUEST_DURATION, PROMPT_TOKENS, GENERATED_TOKENS, FINISHED, SUCCEEDED,
    RUNNING, WAITING, MAX_RUNNING, KV_USAGE, PROCESS_START,
];

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "nim",
    families: &[FAMILIES],
    counts_replicas: false,
    gauges: &[Gauge::Running, Gauge::Waiting, Gauge::KvUsage, Gauge::MaxRunning],
    recognise: |page| [RUNNING, TTFT].iter().all(|name| page.family(name).is_some()),
    read,
};

fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels::by_model("model_name"));
    reader.histogram(Signal::Ttft, &[TTFT]);
    reader.histogram(Signal::Itl, &[ITL]);
    reader.histogram(Signal::PromptTokens, &[PROMPT_LENGTHS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_LENGTHS]);
    reader.histogram(Signal::RequestDuration, &[REQUEST_DURATION]);
    reader.tally(Tally::Finished, &[FINISHED, SUCCEEDED]);
    reader.tally_where(Tally::Aborted, &[FINISHED], |line| line.label("finished_reason") == Some("abort"));
    reader.tally(Tally::PromptTokens, &[PROMPT_TOKENS]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    reader.gauge(Gauge::Running, Combine::Sum, &[RUNNING]);
    reader.gauge(Gauge::Waiting, Combine::Sum, &[WAITING]);
    reader.gauge(Gauge::MaxRunning, Combine::Sum, &[MAX_RUNNING]);
    reader.gauge(Gauge::KvUsage, Combine::Max, &[KV_USAGE]);
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerEvent)
}
