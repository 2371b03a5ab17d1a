//! How many prefill and decode replicas does the measured envelope ask for? Preset infera's capacity policy (seed 000, "Capacity policy").
//!
//! Symbols: C requests, H the window, I mean prompt, O mean output, T measured TTFT, G measured ITL, p and d observed replicas,
//! L the curve's latency at I.
//!
//! The measured latencies correct the envelope through two ratios, prompt r = T/L and generation g = G/(surface latency). Prefill gets the
//! larger of two budgets, because its overload has two faces: work that exceeds capacity, and a queue that has already formed.
//!
//! | step | formula | seed profile, C 612, H 180, I 2048, O 256, T 0.396, G 0.01211425, p 2, d 4 |
//! |---|---|---|
//! | request duration | D = T + G * max(0, O - 1) | 3.485 s |
//! | prompt ratio | r = T / L | 0.396 / 0.215 = 1.842 |
//! | in flight | n = C * D / H / d | 2.962 per decode replica |
//! | KV share | n * (I + O/2) / max_kv_tokens, clamped | 0.0246, clamped to 0.1 |
//! | generation ratio | g = G / surface(0.1, 2176) | 12.114 / 11.75 = 1.031 |
//! | throughput budget | ceil(C * I / H * min(1, r) / (curve throughput * GPUs)) | ceil(6963.2 / 9500) = 1 |
//! | queue budget | ceil(L * (r - 1) * max(1, p) / (target - L)) | ceil(0.215 * 0.842 * 2 / 0.285) = 2 |
//! | decode point | fastest throughput with latency <= target / g | 3035.86 tokens/s at KV 0.698 |
//! | decode budget | ceil(C * O / H / (point * GPUs)) | ceil(870.4 / 3035.86) = 1 |
//!
//! A ratio below 1 (prefix cache hits) reduces the work; one above 1 must not inflate it, since its queueing part is the queue budget's.
//! The queue budget is off where the target leaves less than 20 % of L for waiting: near a zero denominator noise would buy GPUs.
//!
//! Where some targets are silent there are two demands (`observe.rs`). The ratios come from the cautious one, since d counts all replicas and
//! load per replica must be the fleet's; then both budgets are taken at fixed ratios, so that the cautious wish is never the smaller.

use std::collections::BTreeMap;

use super::{Facts, Proposal, Propose, Wish};
use crate::planner::model::envelope::{Envelope, OperatingPoint, PromptPoint};
use crate::planner::plan::{EnvelopeTrace, Estimates, Latencies, LatencyRatios, PhaseState, Proposer, Reason, Warning};
use crate::planner::policy::{ModelPolicy, PoolPolicy};
use crate::units::{Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens, TokensPerSecond};

/// Share of the prompt's service time that the TTFT target must leave for waiting, else the queue budget is off (seed 000, "Safety limits").
const LEAST_HEADROOM: f64 = 0.2;

/// Smallest generation ratio that the ITL target is divided by: the original's guard against a division by almost nothing.
const LEAST_GENERATION_RATIO: f64 = 1e-6;

/// The envelope with the settings that its formulas need.
#[derive(Debug)]
pub struct EnvelopePolicy<'a> {
    envelope: &'a Envelope,
    policy: &'a ModelPolicy,
    prefill_gpus: f64,
    decode_gpus: f64,
}

impl<'a> EnvelopePolicy<'a> {
    /// The policy's envelope; the GPU counts are the pool's where it gives them, else the profile's.
    pub fn new(envelope: &'a Envelope, policy: &'a ModelPolicy) -> Self {
        Self {
            envelope,
            policy,
            prefill_gpus: f64::from(gpus(policy, Role::Prefill, envelope)),
            decode_gpus: f64::from(gpus(policy, Role::Decode, envelope)),
        }
    }

    fn prefill_throughput(&self, demand: RequestsPerSecond, input: Tokens, ratio: Ratio, point: PromptPoint) -> Replicas {
        let discounted = demand.get() * input.get() * ratio.get().min(1.0);
        Replicas::ceil(discounted / (point.per_gpu.get() * self.prefill_gpus))
    }

    /// Copies that fit the observed wait into the target's remaining allowance, and why not where that is off.
    fn prefill_queue(&self, service: Seconds, ratio: Ratio, observed: Replicas) -> (Replicas, Option<Warning>) {
        let (service, ratio) = (service.get(), ratio.get());
        if ratio <= 1.0 {
            return (Replicas(0), None);
        }
        let room = self.policy.slo.ttft.get() - service;
        if room <= 0.0 {
            return (Replicas(0), Some(Warning::TtftBelowFloor));
        }
        if room < LEAST_HEADROOM * service {
            return (Replicas(0), Some(Warning::HeadroomBelowFifth));
        }
        let waiting = service * (ratio - 1.0);
        (Replicas::ceil(waiting * observed.as_f64().max(1.0) / room), None)
    }

    /// No number of copies makes one prompt's service faster.
    fn prompt_state(&self, ttft: Seconds, service: Seconds, ratio: Ratio, queue_warning: Option<Warning>) -> PhaseState {
        let target = self.policy.slo.ttft.get();
        let alone = service.get() * ratio.get().min(1.0);
        let attainable = queue_warning != Some(Warning::TtftBelowFloor) && alone <= target;
        PhaseState { met: Some(ttft.get() <= target), attainable: Some(attainable) }
    }

    fn decode(&self, demand: RequestsPerSecond, output: Tokens, point: OperatingPoint) -> Replicas {
        Replicas::ceil(demand.get() * output.get() / (point.point.per_gpu.get() * self.decode_gpus))
    }

    /// Requests that one of `replicas` decode replicas holds on average: Little's law over D.
    fn in_flight(demand: RequestsPerSecond, duration: Seconds, replicas: Replicas) -> Requests {
        Requests(demand.get() * duration.get() / replicas.as_f64())
    }
}

impl Propose for EnvelopePolicy<'_> {
    fn propose(&self, facts: &Facts) -> Result<Proposal, Reason> {
        if facts.decode == Replicas(0) {
            return Err(Reason::NoDecodeReplicas);
        }
        let measured = |latency: Option<Seconds>| latency.filter(|latency| latency.is_positive()).ok_or(Reason::LatencyAbsent);
        let (ttft, itl) = (measured(facts.ttft)?, measured(facts.itl)?);
        let prediction = &facts.prediction;
        let (input, output) = (prediction.input_tokens, prediction.output_tokens);
        let demand = prediction.estimated_requests_per_second;

        let duration = Seconds(ttft.get() + itl.get() * (output.get() - 1.0).max(0.0));
        let context = Tokens(input.get() + output.get() / 2.0);
        let in_flight = Self::in_flight(demand, duration, facts.decode);
        let prompt_point = self.envelope.prompt(input);
        let generation_point = self.envelope.generation(self.envelope.kv_fraction(in_flight, context), context);
        if !prompt_point.latency.is_positive() || !generation_point.latency.is_positive() {
            return Err(Reason::NonpositiveProfileLatency);
        }
        let prompt_ratio = Ratio(ttft.get() / prompt_point.latency.get());
        let generation_ratio = Ratio(itl.get() / generation_point.latency.get());
        let (used_prompt_ratio, used_generation_ratio) =
            if self.policy.correction { (prompt_ratio, generation_ratio) } else { (Ratio(1.0), Ratio(1.0)) };

        let (queue, queue_warning) = self.prefill_queue(prompt_point.latency, used_prompt_ratio, facts.prefill);
        let budget = Seconds(self.policy.slo.itl.get() / used_generation_ratio.get().max(LEAST_GENERATION_RATIO));
        let point = self.envelope.best_within(budget, context);
        let throughput = |demand| self.prefill_throughput(demand, input, used_prompt_ratio, prompt_point);
        let decode = |demand| self.decode(demand, output, point);
        let supported = prediction.requests_per_second;

        let warnings = queue_warning.into_iter().chain((!point.fits).then_some(Warning::ItlBelowFloor)).collect();
        let trace = EnvelopeTrace {
            prefill_replicas: facts.prefill,
            decode_replicas: facts.decode,
            prefill_gpus_per_replica: self.prefill_gpus as u32,
            decode_gpus_per_replica: self.decode_gpus as u32,
            request_duration_seconds: duration,
            prompt_latency_seconds: prompt_point.latency,
            prompt_tokens_per_second_per_gpu: prompt_point.per_gpu,
            mean_context_tokens: context,
            in_flight_per_decode_replica: in_flight,
            kv_fraction: generation_point.kv_fraction,
            generation_latency_seconds: generation_point.latency,
            generation_tokens_per_second_per_gpu: generation_point.per_gpu,
            prompt_tokens_per_second: TokensPerSecond(supported.get() * input.get()),
            generated_tokens_per_second: TokensPerSecond(supported.get() * output.get()),
            prefill_throughput_budget: throughput(supported),
            prefill_queue_budget: queue,
            effective_itl_budget_seconds: budget,
            capacity_kv_fraction: point.point.kv_fraction,
            capacity_itl_seconds: point.point.latency,
            capacity_tokens_per_second_per_gpu: point.point.per_gpu,
            decode_budget: decode(supported),
        };
        if !in_range(&trace, &[prompt_ratio, generation_ratio]) {
            return Err(Reason::LatencyAbsent);
        }
        let wishes = BTreeMap::from([
            (Proposer::EnvelopeThroughput, (Role::Prefill, Wish { supported: throughput(supported), cautious: throughput(demand) })),
            (Proposer::EnvelopeQueue, (Role::Prefill, Wish { supported: queue, cautious: queue })),
            (Proposer::EnvelopeDecode, (Role::Decode, Wish { supported: decode(supported), cautious: decode(demand) })),
        ]);
        Ok(Proposal {
            wishes,
            latency_ratio: LatencyRatios { prompt: Some(prompt_ratio), generation: Some(generation_ratio) },
            prompt: self.prompt_state(ttft, prompt_point.latency, prompt_ratio, queue_warning),
            generation: PhaseState { met: Some(itl.get() <= self.policy.slo.itl.get()), attainable: Some(point.fits) },
            warnings,
            trace,
        })
    }

    /// ttft(N) = L * min(1, r) + L * max(0, r - 1) * p / N; itl(N) = g * surface at in-flight C * D / H / N and context I + O/2 (planning.md 6).
    fn estimate(&self, facts: &Facts, proposal: &Proposal, prefill: Replicas, decode: Replicas) -> Estimates {
        let (Some(prompt_ratio), Some(generation_ratio)) = (proposal.latency_ratio.prompt, proposal.latency_ratio.generation) else {
            return Estimates::default();
        };
        let trace = &proposal.trace;
        let demand = facts.prediction.estimated_requests_per_second;
        let at = |prefill: Replicas, decode: Replicas| {
            let service = trace.prompt_latency_seconds.get();
            let copies = prefill.as_f64().max(1.0);
            let waiting = service * (prompt_ratio.get() - 1.0).max(0.0) * facts.prefill.as_f64().max(1.0) / copies;
            let ttft = Seconds(service * prompt_ratio.get().min(1.0) + waiting);
            let in_flight = Self::in_flight(demand, trace.request_duration_seconds, Replicas(decode.0.max(1)));
            let fraction = self.envelope.kv_fraction(in_flight, trace.mean_context_tokens);
            let spacing = self.envelope.generation(fraction, trace.mean_context_tokens).latency;
            Latencies { ttft_seconds: Some(ttft), itl_seconds: Some(Seconds(generation_ratio.get() * spacing.get())) }
        };
        Estimates { current: at(facts.prefill, facts.decode), recommended: at(prefill, decode) }
    }
}

/// Whether the arithmetic stayed in the number range; a latency or length that drives it out was not measured but made up.
fn in_range(trace: &EnvelopeTrace, ratios: &[Ratio]) -> bool {
    let spans = [trace.request_duration_seconds, trace.effective_itl_budget_seconds].map(Seconds::get);
    let rates = [trace.prompt_tokens_per_second, trace.generated_tokens_per_second].map(TokensPerSecond::get);
    let loads = [trace.mean_context_tokens.get(), trace.in_flight_per_decode_replica.get()];
    let ratios = ratios.iter().map(|ratio| ratio.get());
    spans.into_iter().chain(rates).chain(loads).chain(ratios).all(f64::is_finite)
}

/// GPUs of one replica of a role: the pool's setting, else the profile's.
fn gpus(policy: &ModelPolicy, role: Role, envelope: &Envelope) -> u32 {
    policy.pools.iter().find(|pool| pool.role == role).map_or(1, |pool| gpus_of(pool, envelope))
}

/// GPUs of one replica of a pool: its setting, else the profile's.
pub fn gpus_of(pool: &PoolPolicy, envelope: &Envelope) -> u32 {
    let measured = if pool.role == Role::Prefill { envelope.prefill_gpus() } else { envelope.decode_gpus() };
    pool.gpus_per_replica.unwrap_or(measured).get()
}
