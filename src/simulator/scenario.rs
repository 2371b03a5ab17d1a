//! What does `demo` show? A fleet and a load that make the planner's work visible within minutes.
//!
//! One prefill replica computes a prompt of I tokens in 20 ms + 0.12 ms * I, so 200 ms at the mean of 1500 tokens: 5 requests a second.
//! One iteration of a decode replica with n requests that occupy K tokens takes 14 ms + 0.3 ms * n + 0.4 us * K. At the mean context of
//! 1555 tokens the target of 40 ms is reached with n = 26 / 0.922 = 28.2 requests: 705 tokens a second.
//!
//! Preset infera plans replicas to the brim, knows no trend, and sees only what has completed. So the throughput in this profile is
//! [`PLANNED_SHARE`] of what a replica can do, which an operator who wants room for a rising load writes as well.
//!
//! | load | requests/s | prompt work | planned prefill | tokens/s | planned decode |
//! |---|---|---|---|---|---|
//! | valley | 5 | 1.0 | 1.0 / 0.6 = 1.7, so 2 | 550 | 550 / (705 * 0.6) = 1.3, so 2 |
//! | peak | 23 | 4.6 | 4.6 / 0.6 = 7.7, so 8 | 2530 | 2530 / (705 * 0.6) = 6.0, so 6 or 7 |
//!
//! KV memory is twice what the target of 40 ms lets one use. With less, a decode pool that is behind makes requests wait for memory, a router
//! counts that wait as TTFT, and the policy of seed 000, which blames prefill for all of TTFT, adds prefill replicas that help nothing.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::Simulation;
use super::fit::{Measurements, fit};
use super::fleet::{Fleet, FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use super::workload::{Lengths, Shape, Workload, WorkloadSettings};
use crate::planner::model::envelope::{DecodeProfile, PrefillProfile, ProfileDocument};
use crate::units::{Ratio, Replicas, RequestsPerSecond, Role, Seconds, Tokens};

/// Part of a replica's throughput that the profile promises. With less the fleet costs more than it must at the peak; with more it is behind
/// while the load rises, since the traffic that a decision rests on is some 15 s old when its replicas are ready: at 0.7 a third of the
/// requests of a rise miss an objective.
pub const PLANNED_SHARE: f64 = 0.6;
/// Objective for the mean TTFT: the mean prompt needs 200 ms of it, the rest is room to wait.
pub const TTFT_TARGET: Seconds = Seconds(0.8);
/// Objective for the mean token spacing.
pub const ITL_TARGET: Seconds = Seconds(0.04);
/// KV tokens of one decode replica.
const MAX_KV_TOKENS: f64 = 131_072.0;
/// Tokens of the longest prompt that the profile measures; an iteration computes no more.
const LONGEST_PROMPT: u32 = 8192;
/// Requests in a decode replica's batch: more than its memory holds of this load, so that memory is the limit.
const MAX_REQUESTS: u32 = 256;
/// From valley to valley, unless asked otherwise.
pub const CYCLE: Duration = Duration::from_secs(180);
/// From the request for a replica to its readiness, unless asked otherwise.
pub const STARTUP: Duration = Duration::from_secs(3);
/// Replicas of each role at the start.
pub const START_REPLICAS: Replicas = Replicas(2);

/// The profile of the simulated replicas.
pub fn profile() -> ProfileDocument {
    let isl = vec![256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];
    let ttft_ms: Vec<f64> = isl.iter().map(|tokens| 20.0 + 0.12 * tokens).collect();
    let per_second = isl.iter().zip(&ttft_ms).map(|(tokens, ms)| (PLANNED_SHARE * tokens / ms * 1000.0).round()).collect();

    let kv_usage = vec![0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
    let context_length = vec![512.0, 1024.0, 1536.0, 2048.0, 4096.0, 8192.0];
    let requests = |kv: f64, context: f64| kv * MAX_KV_TOKENS / context;
    let itl = |kv: f64, context: f64| 14.0 + 0.3 * requests(kv, context) + 0.4e-3 * kv * MAX_KV_TOKENS;
    let grid = |cell: &dyn Fn(f64, f64) -> f64| -> Vec<Vec<f64>> {
        context_length.iter().map(|&context| kv_usage.iter().map(|&kv| cell(kv, context)).collect()).collect()
    };
    let itl_ms = grid(&|kv, context| (itl(kv, context) * 1000.0).round() / 1000.0);
    let thpt_per_gpu = grid(&|kv, context| (PLANNED_SHARE * requests(kv, context) / itl(kv, context) * 1000.0 * 10.0).round() / 10.0);
    ProfileDocument {
        prefill: PrefillProfile { isl, ttft_ms, thpt_per_gpu: per_second },
        decode: DecodeProfile { kv_usage, context_length, itl_ms, thpt_per_gpu, max_kv_tokens: MAX_KV_TOKENS },
        prefill_engine_num_gpu: 1,
        decode_engine_num_gpu: 1,
    }
}

/// The load: a wave that begins an eighth of a cycle after its valley, so that it rises at once.
pub fn workload(cycle: Duration, seed: u64) -> WorkloadSettings {
    WorkloadSettings {
        shape: Shape::Wave { low: RequestsPerSecond(5.0), high: RequestsPerSecond(23.0), period: cycle, start: cycle / 8 },
        input: Lengths { mean: Tokens(1500.0), variation: Ratio(0.3), min: 256, max: 6000 },
        output: Lengths { mean: Tokens(110.0), variation: Ratio(0.4), min: 8, max: 600 },
        seed,
    }
}

/// The settings of the fleet, behind two routers. Each role's prices are fitted to the profile, which has the same form.
pub fn fleet(startup: Duration, seed: u64) -> FleetSettings {
    let fit = fit(&Measurements::of_profile(&profile(), LONGEST_PROMPT));
    let pool = |role, max_requests| {
        // `as` is exact: the constant is whole.
        let kv_tokens = MAX_KV_TOKENS as u64;
        let replica = ReplicaSettings { costs: fit.costs(role), kv_tokens, max_requests, max_batched_tokens: LONGEST_PROMPT };
        PoolSettings { replicas: START_REPLICAS, replica }
    };
    FleetSettings {
        // One prompt at a time, as the profile measures them and as the arithmetic above has it.
        layout: Layout::Disaggregated { prefill: pool(Role::Prefill, 1), decode: pool(Role::Decode, MAX_REQUESTS) },
        routing: Routing::LeastWork,
        startup,
        hand_over: Duration::ZERO,
        prefix_hits: Ratio(0.0),
        routers: NonZeroUsize::MIN.saturating_add(1),
        seed,
    }
}

/// The fleet under that load.
pub fn simulation(cycle: Duration, startup: Duration, seed: u64) -> Simulation<Workload> {
    Simulation::new(Fleet::new(fleet(startup, seed)), Workload::new(workload(cycle, seed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::model::envelope::Envelope;

    #[test]
    fn the_profile_obeys_the_loaders_rules() {
        assert_eq!(Envelope::new(profile()).err(), None);
    }

    #[test]
    fn the_documented_arithmetic_holds() {
        let envelope = Envelope::unchecked(profile());
        assert!((envelope.prompt(Tokens(1500.0)).latency.get() - 0.2).abs() < 1e-9);
        let best = envelope.best_within(ITL_TARGET, Tokens(1555.0));
        assert!(best.fits);
        assert!((best.point.per_gpu.get() / (705.0 * PLANNED_SHARE) - 1.0).abs() < 0.02, "{best:?}");
    }
}
