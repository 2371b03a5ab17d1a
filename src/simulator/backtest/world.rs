//! Which servers does a configuration describe? The simulated fleet, its prices, and the counts that a load may need.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use super::faults::MetricFaults;
use super::sizing::need_of_both;
use super::{Load, Scenario, need};
use crate::planner::model::envelope::Envelope;
use crate::planner::policy::{CapacityModel, Limits, ModelPolicy};
use crate::planner::propose::envelope::gpus_of;
use crate::simulator::fit::{Fit, Measurements, fit};
use crate::simulator::fleet::{FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use crate::simulator::trace::Trace;
use crate::simulator::workload::Request;
use crate::units::{Ratio, Replicas, RequestsPerSecond, Role, Seconds, Tokens};

/// Requests in the batch of a decode replica: vLLM's default on large GPUs is more than any measured profile reaches.
const MAX_REQUESTS: u32 = 1024;
/// Span over which the load at the start and at the peak is averaged.
const MINUTE: Duration = Duration::from_secs(60);

/// What neither the configuration nor the trace says of the servers.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldSettings {
    /// From the request for a replica to its readiness.
    pub startup: Duration,
    /// From the end of prefill to the arrival of the KV cache at a decode replica.
    pub hand_over: Duration,
    /// Share of each prompt that is in memory already, in 0..1.
    pub prefix_hits: Ratio,
    /// What happens before is not judged.
    pub warm_up: Duration,
    /// How routers choose.
    pub routing: Routing,
    /// Whether each replica does both: with the GPUs and the limits of the decode pool, and the prices of both parts of the profile.
    pub aggregated: bool,
    /// What is wrong with what planners see.
    pub metric_faults: MetricFaults,
    /// The same seed gives the same result.
    pub seed: u64,
}

/// The simulated servers and their traffic.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// What every policy is judged on.
    pub scenario: Scenario<'a>,
    /// What one replica can do.
    pub envelope: &'a Envelope,
    /// How far the simulated replicas are from that.
    pub fit: Fit,
    /// What is wrong with what planners see.
    pub metric_faults: MetricFaults,
    /// The mean load.
    pub mean: Load,
    /// The operator's limits.
    pub limits: BTreeMap<Role, Limits>,
    /// The limits of a search: at most the counts for twice the arrivals of any minute, of that minute's lengths, since more are never needed.
    pub search: BTreeMap<Role, Limits>,
}

impl<'a> World<'a> {
    /// The servers of that policy's profile under that traffic. They begin with the counts for the first minute. `None` for a policy without
    /// a profile.
    pub fn new(policy: &'a ModelPolicy, trace: &'a Trace, settings: &WorldSettings) -> Option<Self> {
        let CapacityModel::Envelope(envelope) = &policy.capacity else { return None };
        let profile = envelope.document();
        // The longest measured prompt was computed in one piece as far as anyone knows; `as` saturates.
        let chunk = profile.prefill.isl.last().map_or(1, |tokens| tokens.round() as u32).max(1);
        let fit = fit(&Measurements::of_profile(profile, chunk));
        let apart: BTreeMap<Role, u32> = policy.pools.iter().map(|pool| (pool.role, gpus_of(pool, envelope))).collect();
        let is_there = |role| if settings.aggregated { role == Role::Decode } else { true };
        let called = |role| if settings.aggregated { Role::Aggregated } else { role };
        let pools = || policy.pools.iter().filter(|pool| is_there(pool.role));
        let gpus: BTreeMap<Role, u32> = pools().map(|pool| (called(pool.role), gpus_of(pool, envelope))).collect();
        let limits: BTreeMap<Role, Limits> = pools().map(|pool| (called(pool.role), pool.limits)).collect();
        let (ttft, itl) = (Seconds(policy.slo.ttft.get()), Seconds(policy.slo.itl.get()));
        let mean = load_of(&trace.requests, trace.length);
        let minutes = minutes(&trace.requests);
        let first = minutes.first().map_or(mean, |requests| load_of(requests, MINUTE.min(trace.length)));
        let counts = |load| {
            let within = |(role, count)| (role, limits.get(&role).map_or(count, |limits: &Limits| limits.clamp(count)));
            let counts = if settings.aggregated { need_of_both(envelope, &apart, itl, load) } else { need(envelope, &apart, itl, load) };
            counts.into_iter().map(within).collect::<BTreeMap<Role, Replicas>>()
        };
        let start = counts(Load { rate: first.rate, ..mean });
        let mut most = start.clone();
        for minute in &minutes {
            let load = load_of(minute, MINUTE);
            for (role, count) in counts(Load { rate: RequestsPerSecond(2.0 * load.rate.get()), ..load }) {
                let known = most.entry(role).or_insert(count);
                *known = count.max(*known);
            }
        }
        let search = limits.iter().filter_map(|(&role, limits)| Some((role, Limits::new(limits.min(), *most.get(&role)?)?))).collect();
        let pool = |role, max_requests| {
            let kv_tokens = profile.decode.max_kv_tokens as u64;
            let replica = ReplicaSettings { costs: fit.costs(role), kv_tokens, max_requests, max_batched_tokens: chunk };
            PoolSettings { replicas: start.get(&role).copied().unwrap_or(Replicas(1)), replica }
        };
        let layout = if settings.aggregated {
            Layout::Aggregated(pool(Role::Aggregated, MAX_REQUESTS))
        } else {
            // One prompt at a time, as profiles measure them.
            Layout::Disaggregated { prefill: pool(Role::Prefill, 1), decode: pool(Role::Decode, MAX_REQUESTS) }
        };
        let fleet = FleetSettings {
            layout,
            routing: settings.routing,
            startup: settings.startup,
            hand_over: settings.hand_over,
            prefix_hits: settings.prefix_hits,
            routers: NonZeroUsize::MIN,
            seed: settings.seed,
        };
        let (length, warm_up, tick) = (trace.length, settings.warm_up, policy.scrape_interval);
        let scenario = Scenario { requests: &trace.requests, length, warm_up, fleet, gpus, ttft, itl, tick };
        let metric_faults = settings.metric_faults.clone();
        Some(Self { scenario, envelope, fit, metric_faults, mean, limits, search })
    }
}

/// The requests of each minute, up to the last one that has some.
fn minutes(requests: &[Request]) -> Vec<&[Request]> {
    let minute = |request: &Request| request.at.as_secs() / MINUTE.as_secs();
    let mut parts: Vec<&[Request]> = requests.chunk_by(|a, b| minute(a) == minute(b)).collect();
    if requests.first().is_some_and(|first| minute(first) > 0) {
        parts.insert(0, &[]);
    }
    parts
}

/// The mean load over a span; that of nothing is nothing.
fn load_of(requests: &[Request], span: Duration) -> Load {
    let mean = |length: fn(&Request) -> u32| {
        let sum: u64 = requests.iter().map(|request| u64::from(length(request))).sum();
        Tokens(sum as f64 / requests.len().max(1) as f64)
    };
    let seconds = span.as_secs_f64();
    let rate = RequestsPerSecond(if seconds > 0.0 { requests.len() as f64 / seconds } else { 0.0 });
    Load { rate, input: mean(|request| request.input), output: mean(|request| request.output) }
}
