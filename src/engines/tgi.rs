//! What does a Hugging Face TGI server say? One router process a page, without model labels.
//!
//! There is no TTFT. The time per token is a request's inference time over its tokens, prefill included, so it is no ITL. Failures are counted
//! apart and only after the first. Arrivals include what validation refuses.

use super::series::{Combine, Labels, Reader};
use super::{Engine, Reading};
use crate::exposition::Page;
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};

const TIME_PER_TOKEN: &str = "tgi_request_mean_time_per_token_duration";
const PROMPT_LENGTHS: &str = "tgi_request_input_length";
const OUTPUT_LENGTHS: &str = "tgi_request_generated_tokens";
const REQUEST_DURATION: &str = "tgi_request_duration";
const SUCCEEDED: &str = "tgi_request_success";
const FAILED: &str = "tgi_request_failure";
const STARTED: &str = "tgi_request_count";
const RUNNING: &str = "tgi_batch_current_size";
const WAITING: &str = "tgi_queue_size";
const PROCESS_START: &str = "process_start_time_seconds";

#[rustfmt::skip]
const FAMILIES: &[&str] = &[
    TIME_PER_TOKEN, PROMPT_LENGTHS, OUTPUT_LENGTHS, REQUEST_DURATION, SUCCEEDED, FAILED, STARTED, RUNNING, WAITING, PROCESS_START,
];

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "tgi",
    families: &[FAMILIES],
    counts_replicas: false,
    gauges: &[Gauge::Running, Gauge::Waiting],
    recognise: |page| [STARTED, WAITING, RUNNING].iter().any(|name| page.family(name).is_some()),
    read,
};

fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels::by_model(""));
    reader.histogram(Signal::Itl, &[TIME_PER_TOKEN]);
    reader.histogram(Signal::PromptTokens, &[PROMPT_LENGTHS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_LENGTHS]);
    reader.histogram(Signal::RequestDuration, &[REQUEST_DURATION]);
    // Their labels differ, so that both stay series of one tally.
    reader.tally(Tally::Finished, &[SUCCEEDED]);
    reader.tally(Tally::Finished, &[FAILED]);
    reader.tally(Tally::Started, &[STARTED]);
    reader.tally_of_sum(Tally::PromptTokens, &[PROMPT_LENGTHS], |_| true);
    reader.tally_of_sum(Tally::GeneratedTokens, &[OUTPUT_LENGTHS], |_| true);
    reader.gauge(Gauge::Running, Combine::Sum, &[RUNNING]);
    reader.gauge(Gauge::Waiting, Combine::Sum, &[WAITING]);
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::WholeRequest)
}
