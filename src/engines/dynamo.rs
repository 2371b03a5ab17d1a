//! What does a part of NVIDIA Dynamo say? Its front end, its router where that stands alone, and its workers.
//!
//! The front end sees whole requests of each model; it also carries the router's families, which count the two legs of a disaggregated request
//! twice and are therefore not read there. TTFT, ITL (per token) and lengths are of all replies but streamed text completions, which older builds
//! count only when they end. Unknown models are refused under a name of their own. Workers are those whose load the router knows.
//!
//! A router alone: only what tells the legs apart is read while it serves two, everything otherwise.
//!
//! A worker passes its engine's page on and counts its own requests beside it; a prefill worker may have these counts alone. Other endpoints than
//! `generate` serve the router and no user. Its component says what it does where that is `prefill`; `backend` may be either.
//!
//! What waits for prefill servers the front end knows best: the prompts in its router's queue and those that the router gave to them and that are
//! not computed yet. Where the router does not look at load, it is all requests without a first token.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::series::{Combine, Labels, Reader};
use super::{Engine, Reading, series, sglang, trtllm, vllm};
use crate::exposition::{Page, Sample as Line};
use crate::planner::input::{Gauge, ItlBasis, Sample, Signal, Tally};
use crate::units::{Replicas, Role};

const TTFT: &str = "dynamo_frontend_time_to_first_token_seconds";
const ITL: &str = "dynamo_frontend_inter_token_latency_seconds";
const PROMPT_LENGTHS: &str = "dynamo_frontend_input_sequence_tokens";
const OUTPUT_LENGTHS: &str = "dynamo_frontend_output_sequence_tokens";
const REQUEST_DURATION: &str = "dynamo_frontend_request_duration_seconds";
const FINISHED: &str = "dynamo_frontend_requests_total";
const STARTED: &str = "dynamo_frontend_requests_started_total";
const GENERATED_TOKENS: &str = "dynamo_frontend_output_tokens_total";
const CACHED_TOKENS: &str = "dynamo_frontend_cached_tokens";
const REJECTED: &str = "dynamo_frontend_router_admission_rejected_total";
const IN_FLIGHT: &str = "dynamo_frontend_inflight_requests";
const WAITING: &str = "dynamo_frontend_queued_requests";
const QUEUED_TOKENS: &str = "dynamo_frontend_router_queue_pending_isl_tokens";
const QUEUED: &str = "dynamo_frontend_router_queue_pending_requests";
const BLOCKS: &str = "dynamo_frontend_model_total_kv_blocks";
const BLOCK_TOKENS: &str = "dynamo_frontend_model_kv_cache_block_size";
const MAX_RUNNING: &str = "dynamo_frontend_model_max_num_seqs";
const MAX_BATCHED: &str = "dynamo_frontend_model_max_num_batched_tokens";
const USED_BLOCKS: &str = "dynamo_frontend_worker_active_decode_blocks";
const PREFILLING: &str = "dynamo_frontend_worker_active_prefill_tokens";
const STAGES: &str = "dynamo_frontend_stage_requests";

const ROUTER_TTFT: &str = "dynamo_component_router_time_to_first_token_seconds";
const ROUTER_ITL: &str = "dynamo_component_router_inter_token_latency_seconds";
const ROUTER_PROMPT_LENGTHS: &str = "dynamo_component_router_input_sequence_tokens";
const ROUTER_OUTPUT_LENGTHS: &str = "dynamo_component_router_output_sequence_tokens";
const ROUTER_FINISHED: &str = "dynamo_component_router_requests_total";
const ROUTER_STARTED: &str = "dynamo_component_router_requests_started_total";

const WORKER_FINISHED: &str = "dynamo_component_requests_total";
const WORKER_IN_FLIGHT: &str = "dynamo_component_inflight_requests";
const WORKER_DURATION: &str = "dynamo_component_request_duration_seconds";

const PROCESS_START: &str = "process_start_time_seconds";

#[rustfmt::skip]
const FRONT_END: &[&str] = &[
    TTFT, ITL, PROMPT_LENGTHS, OUTPUT_LENGTHS, REQUEST_DURATION, FINISHED, STARTED, GENERATED_TOKENS, CACHED_TOKENS, REJECTED,
    IN_FLIGHT, WAITING, QUEUED_TOKENS, QUEUED, BLOCKS, BLOCK_TOKENS, MAX_RUNNING, MAX_BATCHED, USED_BLOCKS, PREFILLING, STAGES,
];
const ROUTER: &[&str] = &[ROUTER_TTFT, ROUTER_ITL, ROUTER_PROMPT_LENGTHS, ROUTER_OUTPUT_LENGTHS, ROUTER_FINISHED, ROUTER_STARTED];
const WORKER: &[&str] = &[WORKER_FINISHED, WORKER_IN_FLIGHT, WORKER_DURATION, PROCESS_START];

/// The dialect.
pub const ENGINE: Engine = Engine {
    name: "dynamo",
    families: &[FRONT_END, ROUTER, WORKER, vllm::FAMILIES, sglang::FAMILIES, trtllm::FAMILIES],
    counts_replicas: true,
    gauges: &Gauge::ALL,
    recognise: |page| {
        let has = |names: &[&str]| names.iter().any(|name| page.family(name).is_some());
        has(&[FINISHED, STARTED, IN_FLIGHT, ROUTER_FINISHED, WORKER_FINISHED])
    },
    read: |page| {
        let has = |names: &[&str]| names.iter().any(|name| page.family(name).is_some());
        if has(&[FINISHED, STARTED, IN_FLIGHT]) {
            front_end(page)
        } else if has(&[ROUTER_FINISHED]) {
            router(page)
        } else {
            worker(page)
        }
    },
};

fn front_end(page: &Page<'_>) -> Reading {
    let of_a_model = |line: &Line<'_>| line.label("model") != Some("unknown_model");
    let mut reader = Reader::new(page, Labels { keep: of_a_model, ..Labels::by_model("model") });
    reader.histogram(Signal::Ttft, &[TTFT]);
    reader.histogram(Signal::Itl, &[ITL]);
    reader.histogram(Signal::PromptTokens, &[PROMPT_LENGTHS]);
    reader.histogram(Signal::OutputTokens, &[OUTPUT_LENGTHS]);
    reader.histogram(Signal::RequestDuration, &[REQUEST_DURATION]);
    reader.tally(Tally::Finished, &[FINISHED]);
    reader.tally(Tally::Started, &[STARTED]);
    reader.tally(Tally::Rejected, &[REJECTED]);
    reader.tally(Tally::GeneratedTokens, &[GENERATED_TOKENS]);
    // Lengths are observed of what the router looked up, so that they stand for the queries as well.
    for (tally, names) in [(Tally::PromptTokens, PROMPT_LENGTHS), (Tally::PrefixQueries, PROMPT_LENGTHS)] {
        reader.tally_of_sum(tally, &[names], |_| true);
    }
    for tally in [Tally::CachedTokens, Tally::PrefixHits] {
        reader.tally_of_sum(tally, &[CACHED_TOKENS], |_| true);
    }
    reader.gauge(Gauge::InFlight, Combine::Sum, &[IN_FLIGHT]);
    reader.gauge(Gauge::Waiting, Combine::Sum, &[WAITING]);
    reader.gauge(Gauge::QueuedPromptTokens, Combine::Sum, &[QUEUED_TOKENS]);
    reader.fleet(Gauge::MaxRunning, Combine::Max, &[MAX_RUNNING]);
    reader.fleet(Gauge::MaxBatchedTokens, Combine::Max, &[MAX_BATCHED]);
    memory(&mut reader);
    prefill_view(&mut reader);
    workers(&mut reader);
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerToken)
}

/// KV memory: of one worker, by model. Which model a worker's use belongs to is known where there is only one.
fn memory(reader: &mut Reader<'_, '_>) {
    let blocks = reader.gauges(Combine::Max, &[BLOCKS], |_| true);
    let tokens = reader.gauges(Combine::Max, &[BLOCK_TOKENS], |_| true);
    let used = reader.gauges(Combine::Mean, &[USED_BLOCKS], |line| line.label("worker_type") != Some("prefill")).remove(&None);
    let alone = blocks.len() == 1;
    for (model, blocks) in blocks {
        let Some(tokens) = tokens.get(&model).filter(|_| blocks > 0.0) else { continue };
        let fleet = &mut reader.sample(model).fleet;
        fleet.insert(Gauge::KvCapacityTokens, blocks * tokens);
        if let Some(used) = used.filter(|_| alone) {
            // Blocks of requests to come are promised before they are there.
            fleet.insert(Gauge::KvUsage, (used / blocks).min(1.0));
        }
    }
}

/// Whether requests have two legs.
fn has_legs(reader: &Reader<'_, '_>) -> bool {
    reader.first_of(&[STAGES]).is_some_and(|family| family.samples().any(|line| line.label("phase") == Some("prefill")))
}

/// What waits for all prefill workers together. Which model the tokens at a worker belong to is known where there is only one.
fn prefill_view(reader: &mut Reader<'_, '_>) {
    let of_prefill = |line: &Line<'_>| line.label("worker_type") == Some("prefill");
    let at_workers = reader.gauges(Combine::Sum, &[PREFILLING], of_prefill).remove(&None);
    let queued_tokens = reader.gauges(Combine::Sum, &[QUEUED_TOKENS], of_prefill);
    let queued = reader.gauges(Combine::Sum, &[QUEUED], of_prefill);
    let without_token = if has_legs(reader) { reader.gauges(Combine::Sum, &[WAITING], |_| true) } else { BTreeMap::new() };
    let models: BTreeSet<_> = queued_tokens.keys().chain(queued.keys()).chain(without_token.keys()).cloned().collect();
    let alone = models.len() == 1;
    for model in models {
        let tokens = at_workers.filter(|_| alone).map(|tokens| tokens + queued_tokens.get(&model).unwrap_or(&0.0));
        let requests = without_token.get(&model).or_else(|| queued.get(&model)).copied();
        let view = &mut reader.sample(model).prefill;
        view.extend(tokens.map(|tokens| (Gauge::QueuedPromptTokens, tokens)));
        view.extend(requests.map(|requests| (Gauge::Waiting, requests)));
    }
}

/// The workers whose load the router knows. One that decodes is called so as well where it does both.
fn workers(reader: &mut Reader<'_, '_>) {
    let has_legs = has_legs(reader);
    let mut seen: BTreeMap<Role, BTreeSet<&str>> = BTreeMap::new();
    for line in [USED_BLOCKS, PREFILLING].iter().filter_map(|name| reader.first_of(&[name])).flat_map(|family| family.samples()) {
        let role = match line.label("worker_type") {
            Some("prefill") => Role::Prefill,
            Some("decode") if has_legs => Role::Decode,
            Some("decode" | "aggregated") => Role::Aggregated,
            _ => continue,
        };
        seen.entry(role).or_default().extend(line.label("worker_id"));
    }
    if !seen.is_empty() {
        let counted = seen.into_iter().map(|(role, ids)| (role, Replicas(u32::try_from(ids.len()).unwrap_or(u32::MAX))));
        reader.sample(None).workers = counted.collect();
    }
}

fn router(page: &Page<'_>) -> Reading {
    let mut reader = Reader::new(page, Labels::by_model("model"));
    let phase = |line: &Line<'_>, phase: &str| line.label("phase") == Some(phase);
    let lengths = reader.first_of(&[ROUTER_PROMPT_LENGTHS]);
    let has_legs = lengths.is_some_and(|family| family.samples().any(|line| phase(&line, "prefill")));
    reader.histogram(Signal::Itl, &[ROUTER_ITL]);
    // Both legs see the prompt; each request has one that is not a prefill.
    reader.histogram_where(Signal::PromptTokens, &[ROUTER_PROMPT_LENGTHS], |line| !phase(line, "prefill"));
    reader.tally_of_sum(Tally::PromptTokens, &[ROUTER_PROMPT_LENGTHS], |line| !phase(line, "prefill"));
    if !has_legs {
        reader.histogram(Signal::Ttft, &[ROUTER_TTFT]);
        reader.histogram(Signal::OutputTokens, &[ROUTER_OUTPUT_LENGTHS]);
        reader.tally_of_sum(Tally::GeneratedTokens, &[ROUTER_OUTPUT_LENGTHS], |_| true);
        reader.tally(Tally::Finished, &[ROUTER_FINISHED]);
        reader.tally(Tally::Started, &[ROUTER_STARTED]);
    }
    reader.process_start(&[PROCESS_START]);
    reader.finish(ItlBasis::PerRequest)
}

fn worker(page: &Page<'_>) -> Reading {
    let passed_on = [
        (vllm::recognise(page), vllm::read as fn(&Page<'_>) -> Reading),
        (sglang::recognise(page), sglang::read),
        (trtllm::recognise(page), trtllm::read),
    ];
    let inner = passed_on.into_iter().find(|(found, _)| *found).map(|(_, read)| read(page)).unwrap_or_default();
    let generates = |line: &Line<'_>| line.label("dynamo_endpoint") == Some("generate");
    let mut reader = Reader::new(page, Labels { keep: generates, ..Labels::by_model("model") });
    reader.histogram(Signal::RequestDuration, &[WORKER_DURATION]);
    reader.tally(Tally::Finished, &[WORKER_FINISHED]);
    reader.gauge(Gauge::InFlight, Combine::Sum, &[WORKER_IN_FLIGHT]);
    let component = reader.first_of(&[WORKER_FINISHED]).and_then(|family| family.samples().find(generates));
    let role = component.and_then(|line| line.label("dynamo_component")).and_then(series::role_named);
    reader.samples().for_each(|sample| sample.role = role);
    reader.process_start(&[PROCESS_START]);
    let outer = reader.finish(ItlBasis::PerRequest);
    if inner.models.is_empty() {
        return outer;
    }
    // A worker serves one model; its engine names it, and knows best what both of them count.
    let own = outer.models.into_values().next().unwrap_or_default();
    let whole = inner.models.into_iter().map(|(model, sample)| (model, with(Arc::unwrap_or_clone(sample), &own)));
    Reading::new(whole.collect())
}

/// A sample with what it lacks taken from another.
fn with(mut sample: Sample, other: &Sample) -> Sample {
    for (signal, series) in &other.histograms {
        sample.histograms.entry(*signal).or_insert_with(|| series.clone());
    }
    for (tally, series) in &other.tallies {
        sample.tallies.entry(*tally).or_insert_with(|| series.clone());
    }
    for (gauge, value) in &other.gauges {
        sample.gauges.entry(*gauge).or_insert(*value);
    }
    sample.process_start = sample.process_start.or(other.process_start);
    sample.role = sample.role.or(other.role);
    sample
}
