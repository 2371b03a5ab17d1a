//! What does an endpoint picker say? The Gateway API inference extension, and llm-d's router that came of it.
//!
//! Names of both generations may stand on one page: for each measurement the newer one is read. Requests are counted as they arrive, durations and
//! lengths as they end, failures apart. The TTFT of a reply that is not streamed is its whole duration, and left out. Time between tokens is, in
//! this order, the mean of each streamed request, the spacing of the chunks that carry it, or a request's duration over its tokens, which is no ITL.
//! Tokens of all replies do not fit latencies of the streamed ones, so generated tokens are not counted here.
//!
//! Queues, KV usage and ready endpoints are views of a pool, which every picker repeats. A pool does not say what its servers do.

use super::series::{Combine, Labels, Reader, whole};
use super::{Engine, Reading};
use crate::exposition::Page;
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};
use crate::units::Role;

const TTFT: &[&str] = &["llm_d_epp_request_ttft_seconds", "inference_objective_request_ttft_seconds"];
const TIME_PER_TOKEN: &[&str] = &["llm_d_epp_request_streaming_tpot_seconds"];
const CHUNK_SPACING: &[&str] = &["llm_d_epp_request_streaming_itl_seconds"];
const DURATION_PER_TOKEN: &[&str] = &[
    "llm_d_epp_request_ntpot_seconds",
    "inference_objective_normalized_time_per_output_token_seconds",
    "inference_model_normalized_time_per_output_token_seconds",
];
const REQUEST_DURATION: &[&str] =
    &["llm_d_epp_request_duration_seconds", "inference_objective_request_duration_seconds", "inference_model_request_duration_seconds"];
const PROMPT_LENGTHS: &[&str] = &["llm_d_epp_request_input_tokens", "inference_objective_input_tokens", "inference_model_input_tokens"];
const OUTPUT_LENGTHS: &[&str] = &["llm_d_epp_request_output_tokens", "inference_objective_output_tokens", "inference_model_output_tokens"];
const CACHED_TOKENS: &[&str] = &["llm_d_epp_request_cached_tokens"];
const STARTED: &[&str] = &["llm_d_epp_request_total", "inference_objective_request_total", "inference_model_request_total"];
const FAILED: &[&str] =
    &["llm_d_epp_request_error_total", "inference_objective_request_error_total", "inference_model_request_error_total"];
const IN_FLIGHT: &[&str] = &["llm_d_epp_request_running", "inference_objective_running_requests", "inference_model_running_requests"];
const KV_USAGE: &[&str] = &["llm_d_epp_average_kv_cache_utilization", "inference_pool_average_kv_cache_utilization"];
const QUEUES: &[&str] = &["llm_d_epp_per_endpoint_queue_size", "inference_pool_per_pod_queue_size"];
const MEAN_QUEUE: &[&str] = &["llm_d_epp_average_queue_size", "inference_pool_average_queue_size"];
const MEAN_RUNNING: &[&str] = &["llm_d_epp_average_running_requests"];
const READY: &[&str] = &["llm_d_epp_ready_endpoints", "inference_pool_ready_pods"];
const PROCESS_START: &[&str] = &["process_start_time_seconds"];

/// The dialect.
#[rustfmt::skip]
pub const ENGINE: Engine = Engine {
    name: "gateway",
    families: &[
        TTFT, TIME_PER_TOKEN, CHUNK_SPACING, DURATION_PER_TOKEN, REQUEST_DURATION, PROMPT_LENGTHS, OUTPUT_LENGTHS, CACHED_TOKENS,
        STARTED, FAILED, IN_FLIGHT, KV_USAGE, QUEUES, MEAN_QUEUE, MEAN_RUNNING, READY, PROCESS_START,
    ],
    counts_replicas: true,
    gauges: &[Gauge::Running, Gauge::Waiting, Gauge::InFlight, Gauge::KvUsage],
    recognise: |page| [STARTED, IN_FLIGHT, READY].into_iter().flatten().any(|name| page.family(name).is_some()),
    read,
};

fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels::by_model("model_name"));
    reader.histogram_where(Signal::Ttft, TTFT, |line| line.label("streaming") != Some("false"));
    let spacings =
        [(TIME_PER_TOKEN, ItlBasis::PerRequest), (CHUNK_SPACING, ItlBasis::PerEvent), (DURATION_PER_TOKEN, ItlBasis::WholeRequest)];
    let (itl, basis) = spacings.into_iter().find(|(names, _)| reader.first_of(names).is_some()).unwrap_or_default();
    reader.histogram(Signal::Itl, itl);
    reader.histogram(Signal::PromptTokens, PROMPT_LENGTHS);
    reader.histogram(Signal::OutputTokens, OUTPUT_LENGTHS);
    reader.histogram(Signal::RequestDuration, REQUEST_DURATION);
    // Their labels differ, so that both stay series of one tally.
    reader.tally(Tally::Finished, REQUEST_DURATION);
    reader.tally(Tally::Finished, FAILED);
    reader.tally(Tally::Started, STARTED);
    reader.tally_of_sum(Tally::PromptTokens, PROMPT_LENGTHS, |_| true);
    reader.tally_of_sum(Tally::CachedTokens, CACHED_TOKENS, |_| true);
    reader.gauge(Gauge::InFlight, Combine::Sum, IN_FLIGHT);
    reader.fleet(Gauge::KvUsage, Combine::Mean, KV_USAGE);
    let ready = reader.gauges(Combine::Sum, READY, |_| true).remove(&None);
    if let Some(ready) = ready {
        for (gauge, names) in [(Gauge::Waiting, MEAN_QUEUE), (Gauge::Running, MEAN_RUNNING)] {
            if let Some(mean) = reader.gauges(Combine::Mean, names, |_| true).remove(&None) {
                reader.sample(None).fleet.insert(gauge, mean * ready);
            }
        }
        reader.sample(None).workers.extend(whole(ready).map(|ready| (Role::Aggregated, ready)));
    }
    // The queues themselves say it exactly.
    reader.fleet(Gauge::Waiting, Combine::Sum, QUEUES);
    reader.process_start(PROCESS_START);
    reader.finish(basis)
}
