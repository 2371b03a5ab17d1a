//! What does `demo` show? A fleet and a load that make the planner's work visible within minutes.
//!
//! One prefill replica computes a prompt of I tokens in 20 ms + 0.12 ms * I, so 200 ms at the mean of 1500 tokens: 5 requests a second.
//! One iteration of a decode replica with n requests that occupy K tokens takes 14 ms + 0.3 ms * n + 0.4 us * K. At the mean context of
//! 1540 tokens the target of 40 ms is reached with n = 26 / 0.916 = 28.4 requests: 710 tokens a second.
//!
//! Preset infera plans replicas to the brim, knows no trend, and sees only what has completed. So the throughput in this profile is
//! [`PLANNED_SHARE`] of what a replica can do, which an operator who wants room for a rising load writes as well.
//!
//! A day lasts three minutes, so an hour 7.5 s. Answers have 80 tokens in the mean.
//!
//! | time of day | requests/s | prompt work | planned prefill | tokens/s | planned decode |
//! |---|---|---|---|---|---|
//! | night, 1 to 5 | 4 | 0.8 | 0.8 / 0.6 = 1.3, so 2 | 320 | 320 / (710 * 0.6) = 0.8, but at least 2 |
//! | late morning, 11:30 | 21 | 4.2 | 4.2 / 0.6 = 7.0, so 7 | 1680 | 1680 / (710 * 0.6) = 3.9, so 4 |
//! | lunch, 13 | 16 | 3.2 | 3.2 / 0.6 = 5.3, so 6 | 1280 | 1280 / (710 * 0.6) = 3.0, so 3 or 4 |
//! | afternoon peak, 15 to 16:30 | 25 | 5.0 | 5.0 / 0.6 = 8.3, so 9 | 2000 | 2000 / (710 * 0.6) = 4.7, so 5 |
//! | evening, 20:30 | 10 | 2.0 | 2.0 / 0.6 = 3.3, so 4 | 800 | 800 / (710 * 0.6) = 1.9, so 2 |
//!
//! A constant fleet sized by the same profile for the peak has 14 replicas. Who knows the day beforehand gets by with 6 and 3: at the peak
//! that is 5.0 of 6 prefill replicas and 2.8 of 3 decode replicas busy.
//!
//! The steepest rise, from 13 to 15 h, is 9 requests/s in 15 s. What a decision rests on is the middle of the last window (2 s ago) and what
//! was completed there (another 2 s old); its replicas are ready 2 s later, and as the window after a change of the fleet is skipped, the
//! next decision comes 8 s after it. So the fleet follows the load with a lag of up to 14 s, in which the load rises by 8 requests/s.
//! Above 16 that is a half more than planned for, and 1 / 0.6 allows two thirds.
//!
//! KV memory is twice what the target of 40 ms lets one use: a decode pool that is behind slows its requests down rather than letting them wait
//! for memory. That wait is part of a client's TTFT, and no prefill replica can see or shorten it.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::Simulation;
use super::fit::{Measurements, fit};
use super::fleet::{Fleet, FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use super::workload::{Lengths, Shape, Workload, WorkloadSettings};
use crate::planner::model::envelope::{DecodeProfile, PrefillProfile, ProfileDocument};
use crate::units::{Ratio, Replicas, RequestsPerSecond, Role, Seconds, Tokens};

/// Part of a replica's throughput that the profile promises. With less the fleet costs more than it must; with more it is behind while the load
/// rises: at 0.6 some 2.0 % of all requests miss an objective, at 0.7 some 2.9 % with 10 % fewer replicas, if nothing on the way is late.
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
/// Length of a day, unless asked otherwise.
pub const CYCLE: Duration = Duration::from_secs(180);
/// The hour at the start: the night is nearly over.
pub const START_HOUR: f64 = 4.0;
/// From the request for a replica to its readiness, unless asked otherwise.
pub const STARTUP: Duration = Duration::from_secs(2);
/// Replicas of each role at the start.
pub const START_REPLICAS: Replicas = Replicas(2);

/// Replicas of a constant fleet that is planned for the peak by the same profile.
pub const PLANNED_FOR_PEAK: Replicas = Replicas(14);

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

/// Requests a second by the hour: night valley, morning rise, lunch dip, afternoon peak, evening.
const DAY: [(Ratio, RequestsPerSecond); 10] = [
    at_hour(1.0, 4.0),
    at_hour(5.0, 4.0),
    at_hour(10.0, 20.0),
    at_hour(11.5, 21.0),
    at_hour(13.0, 16.0),
    at_hour(15.0, 25.0),
    at_hour(16.5, 25.0),
    at_hour(18.5, 12.0),
    at_hour(20.5, 10.0),
    at_hour(22.5, 5.0),
];

const fn at_hour(hour: f64, rate: f64) -> (Ratio, RequestsPerSecond) {
    (Ratio(hour / 24.0), RequestsPerSecond(rate))
}

/// The load: a day that begins at [`START_HOUR`].
pub fn workload(cycle: Duration, seed: u64) -> WorkloadSettings {
    WorkloadSettings {
        shape: Shape::Daily { points: &DAY, period: cycle, start: time_of_start(cycle) },
        input: Lengths { mean: Tokens(1500.0), variation: Ratio(0.3), min: 256, max: 6000 },
        output: Lengths { mean: Tokens(80.0), variation: Ratio(0.4), min: 8, max: 600 },
        seed,
    }
}

/// Where in the day the simulation starts.
fn time_of_start(cycle: Duration) -> Duration {
    cycle.mul_f64(START_HOUR / 24.0)
}

/// The time of day, as hours and minutes of 24 hours, at a time since the start.
pub fn time_of_day(cycle: Duration, at: Duration) -> (u32, u32) {
    let days = if cycle.is_zero() { 0.0 } else { (at + time_of_start(cycle)).as_secs_f64() / cycle.as_secs_f64() };
    // `as` drops what is begun of a minute, as clocks do; the nudge is for quotients such as 4 / 24 that fall just short of their minute.
    let minutes = (days.fract() * 1440.0 + 1e-6) as u32;
    (minutes / 60 % 24, minutes % 60)
}

/// The settings of the fleet, behind two routers that nobody scrapes. Each role's prices are fitted to the profile, which has the same form.
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
        let best = envelope.best_within(ITL_TARGET, Tokens(1540.0));
        assert!(best.fits);
        assert!((best.point.per_gpu.get() / (710.0 * PLANNED_SHARE) - 1.0).abs() < 0.02, "{best:?}");
    }

    #[test]
    fn the_constant_fleet_is_planned_for_the_peak() {
        let envelope = Envelope::unchecked(profile());
        let load = workload(CYCLE, 1);
        let peak = DAY.iter().map(|(_, rate)| rate.get()).fold(0.0, f64::max);
        let prefill = peak * load.input.mean.get() / envelope.prompt(load.input.mean).per_gpu.get();
        let context = Tokens(load.input.mean.get() + load.output.mean.get() / 2.0);
        let decode = peak * load.output.mean.get() / envelope.best_within(ITL_TARGET, context).point.per_gpu.get();
        assert_eq!(Replicas(Replicas::ceil(prefill).0 + Replicas::ceil(decode).0), PLANNED_FOR_PEAK, "{prefill} and {decode}");
    }

    #[test]
    fn the_day_has_the_documented_rates_and_hours() {
        let shape = workload(CYCLE, 1).shape;
        let at = |hour: f64| CYCLE.mul_f64((hour - START_HOUR) / 24.0);
        for (hour, rate) in [(11.5, 21.0), (13.0, 16.0), (15.5, 25.0), (20.5, 10.0), (26.0, 4.0)] {
            assert!((shape.rate_at(at(hour)).get() - rate).abs() < 1e-6, "{hour}: {:?}", shape.rate_at(at(hour)));
        }
        assert_eq!(time_of_day(CYCLE, Duration::ZERO), (4, 0));
        assert_eq!(time_of_day(CYCLE, at(13.5)), (13, 30));
        assert_eq!(time_of_day(CYCLE, CYCLE * 3), (4, 0));
        assert_eq!(time_of_day(CYCLE, at(24.0)), (0, 0));
        assert_eq!(time_of_day(Duration::ZERO, Duration::ZERO), (0, 0));
    }
}
