//! What does a vLLM server say? Its own page, one server a target, versions V0 and V1.
//!
//! TTFT counts at the first token, lengths and durations at a request's end, generated tokens as they come. ITL is observed per output event;
//! under speculative decoding an event carries several tokens, so the planner divides by tokens (facts: `time_per_output_token` is the older
//! name of the same values). The label `engine` is the data-parallel rank: ranks are separate series and add up. A prefill server
//! finishes every request with one token and has no ITL; the planner takes TTFT and prompt lengths from it and the rest from the decode servers.

use super::series::Reader;
use super::{Engine, Reading};
use crate::exposition::{Page, Sample as Line};
use crate::planner::input::{ItlBasis, Signal, Tally};

const TTFT: &str = "vllm:time_to_first_token_seconds";
const ITL: &[&str] = &["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"];
const PROMPT_TOKENS: &str = "vllm:request_prompt_tokens";
const OUTPUT_TOKENS: &str = "vllm:request_generation_tokens";
const REQUEST_DURATION: &str = "vllm:e2e_request_latency_seconds";
const GENERATED_TOKENS: &str = "vllm:generation_tokens";
const FINISHED: &str = "vllm:request_success";
const RUNNING: &str = "vllm:num_requests_running";
const PROCESS_START: &str = "process_start_time_seconds";

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "vllm",
    families: &[TTFT, ITL[0], ITL[1], PROMPT_TOKENS, OUTPUT_TOKENS, REQUEST_DURATION, GENERATED_TOKENS, FINISHED, RUNNING, PROCESS_START],
    counts_replicas: false,
    recognise: |page| [RUNNING, TTFT, FINISHED].iter().any(|name| page.family(name).is_some()),
    read,
};

fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, "model_name", |_: &Line<'_>| true);
    reader.histogram(Signal::Ttft, &[TTFT]);
    reader.histogram(Signal::Itl, ITL);
    reader.histogram(Signal::PromptTokens, &[PROMPT_TOKENS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_TOKENS]);
    reader.histogram(Signal::RequestDuration, &[REQUEST_DURATION]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    reader.tally(Tally::Finished, &[FINISHED]);
    reader.process_start(&[PROCESS_START]);
    reader.samples().for_each(|sample| sample.itl_basis = ItlBasis::PerEvent);
    reader.finish()
}
