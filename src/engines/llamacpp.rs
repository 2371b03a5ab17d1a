//! What does a llama.cpp server say? A page without labels and histograms, one model a server.
//!
//! Requests are not counted, nor is the time to their first token. Time and tokens of the generation are, and their quotient is the mean time
//! per token. Gauges of throughput start anew with every scrape, whoever scrapes, and are not read. Before the first step some values are
//! `-nan`, which is absent.

use super::series::{Combine, Labels, Reader};
use super::{Engine, Reading};
use crate::exposition::Page;
use crate::planner::input::{Gauge, ItlBasis, Signal, Tally};

const PROMPT_TOKENS: &str = "llamacpp:prompt_tokens_total";
const GENERATED_TOKENS: &str = "llamacpp:tokens_predicted_total";
const GENERATION_TIME: &str = "llamacpp:tokens_predicted_seconds_total";
const ITERATIONS: &str = "llamacpp:n_decode_total";
const RUNNING: &str = "llamacpp:requests_processing";
const WAITING: &str = "llamacpp:requests_deferred";
const KV_USAGE: &str = "llamacpp:kv_cache_usage_ratio";
const PROCESS_START: &str = "process_start_time_seconds";

const FAMILIES: &[&str] = &[PROMPT_TOKENS, GENERATED_TOKENS, GENERATION_TIME, ITERATIONS, RUNNING, WAITING, KV_USAGE, PROCESS_START];

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "llamacpp",
    families: &[FAMILIES],
    counts_replicas: false,
    gauges: &[Gauge::Running, Gauge::Waiting, Gauge::KvUsage],
    recognise: |page| [RUNNING, PROMPT_TOKENS].iter().any(|name| page.family(name).is_some()),
    read,
};

fn read(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels::by_model(""));
    reader.mean_of_counters(Signal::Itl, &[GENERATION_TIME], &[GENERATED_TOKENS]);
    reader.tally(Tally::PromptTokens, &[PROMPT_TOKENS]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    reader.tally(Tally::Iterations, &[ITERATIONS]);
    reader.gauge(Gauge::Running, Combine::Sum, &[RUNNING]);
    reader.gauge(Gauge::Waiting, Combine::Sum, &[WAITING]);
    reader.gauge(Gauge::KvUsage, Combine::Max, &[KV_USAGE]);
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerToken)
}
