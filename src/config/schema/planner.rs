//! Which keys say how the number of replicas is found? The section `models[].planner`.

use super::Fallback::{Derived, Value};
use super::Kind::{Choice, Count, Number, Path, Span, Switch};
use super::{
    Key, MILLIS, MOST_GPUS, MOST_MULTIPLIER, MOST_NOISE, MOST_REPLICAS, MOST_REQUESTS, MOST_TOKENS, SECOND, key, later,
    optimization_targets, predictors, presets, section,
};

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    section("models[].planner", "How the number of replicas is found."),
    key("models[].planner.preset", Choice(presets, &[]), Derived("`auto` where an objective is written, except beside `--profile-results`; else `infera` where a profile is given, `wva` with `queueing_config`, and `dynamo`"), "The named set of planner values; single keys override it."),
    key("models[].planner.target", Choice(optimization_targets, &[]), Derived("with preset dynamo `sla` where an objective is written, else `throughput`; the other presets have no other target than their objectives"), "What preset dynamo aims at: `throughput` lets replicas fill up, `latency` keeps them nearly empty, `load` takes the thresholds below, `sla` the objectives."),
    key("models[].planner.throughput_scaling", Switch, Derived("`true` with target sla"), "With target sla: whether the slow loop sizes for the traffic that is forecast. Beside the fast loop its counts are a floor."),
    key("models[].planner.load_scaling", Switch, Derived("`true` with target sla"), "With target sla: whether the fast loop adds and removes single replicas by the latencies that it expects of the next request."),
    key("models[].planner.prefill_scale_up_queue_tokens", Count(0, MOST_TOKENS), Derived("required with target load and a prefill pool"), "One more from this many tokens that wait at one prefill replica."),
    key("models[].planner.prefill_scale_down_queue_tokens", Count(0, MOST_TOKENS), Derived("required with target load and a prefill pool"), "One less while no more wait at any; below the former."),
    key("models[].planner.decode_scale_up_kv_rate", Count(1, 1000), Derived("required with target load and a decode or aggregated pool"), "One more from this share of the KV memory of one replica in use or waited for, in percent."),
    key("models[].planner.decode_scale_down_kv_rate", Count(0, 1000), Derived("required with target load and a decode or aggregated pool"), "One less while no replica has more; below the former."),
    key("models[].planner.profile", Path, Derived("none; preset infera requires one"), "The capacity profile: profile.json, or the profile data of Dynamo, a folder or one JSON document. Preset auto reads it where there is one, preset dynamo with target sla, preset wva does not."),
    key("models[].planner.adjustment_interval", Span(SECOND), Derived("3m; 30s with preset wva, the scrape interval with preset auto"), "Time between two decisions of the slow loop, and the window of what is observed; at least `scrape.interval`."),
    key("models[].planner.load_adjustment_interval", Span(100 * MILLIS), Derived("`scrape.interval` with preset dynamo"), "Time between two decisions of the fast loop, which adds or removes one replica; at least `scrape.interval`."),
    key("models[].planner.hold_for", Span(SECOND), Derived("10m, or 3 adjustment intervals if that is longer"), "How long a recommendation is published without a new reason to; at least 3 adjustment intervals."),
    key("models[].planner.warm_up", Span(SECOND), Value("2m"), "How long a replica that has just started counts as fresh. While more than a quarter of a pool's own targets are fresh, the pool does not shrink."),
    key("models[].planner.slo_multiplier", Number(MOST_MULTIPLIER), Derived("3"), "With preset wva: k, above 1. Where no objective is written, an iteration may last k times that of an idle replica, which is a utilization of 1 - 1/k. 0 counts as not written."),
    key("models[].planner.max_batch_size", Count(1, MOST_REQUESTS), Value("256"), "With preset wva: requests that one replica computes at the same time at most, where neither the engine nor `max_num_seqs` says so."),
    key("models[].planner.learned_for", Span(SECOND), Value("7days"), "With preset wva: how long what was learned of a pool's replicas is good for without traffic, restarts included."),
    key("models[].planner.correction", Switch, Value("true"), "Whether measured latencies correct the profile. Preset wva has none to correct, preset auto corrects it by what it learns."),
    key("models[].planner.growth", Count(2, 1000), Derived("4 with presets infera, wva and auto"), "One decision grows a pool to at most this many times the observed replicas; with presets wva and auto further only if the decision before asked for it as well. Preset dynamo counts replicas instead."),
    key("models[].planner.scale_down_sensitivity", Count(0, 100), Derived("80 with target sla"), "With target sla: percent of the objectives that the fast loop may use up when it gives a replica back; 0 never gives one back."),
    key("models[].planner.scale_down_delay", Span(0), Derived("3m with target sla, 2m with preset auto"), "How long fewer replicas must have been enough, with target sla in every decision of the fast loop, before one is given back."),
    key("models[].planner.load_samples", Count(5, 4096), Derived("64 with target sla and preset auto"), "Observations of iterations that are kept, and over how many lengths are averaged."),
    key("models[].planner.load_sample_buckets", Count(1, 1024), Derived("16 with target sla and preset auto"), "Buckets of load over which the observations are spread, a square number: of a full one the oldest goes."),
    key("models[].planner.load_min_observations", Count(2, 4096), Derived("5 with target sla and preset auto"), "Observations below which nothing is concluded from them."),
    key("models[].planner.speculative_nextn", Count(0, 64), Derived("0 with target sla and preset auto"), "Tokens that speculative decoding drafts at most, where it is on: more than one more are not believed to be accepted."),
    key("models[].planner.max_throughput_scaling_replicas", Count(1, MOST_REPLICAS), Derived("8 with preset dynamo"), "Replicas by which one decision may move a pool away from the larger of what is there and what was recommended."),
    key("models[].planner.scale_down_step", Count(1, MOST_REPLICAS), Derived("1 with preset dynamo"), "Replicas that one decision may take away."),
    key("models[].planner.transition_timeout", Span(SECOND), Derived("3 measured start-up times, at most 30m"), "With preset dynamo: how long a pool whose replicas come one after the other is not grown further; a decrease is never held up."),
    key("models[].planner.min_endpoint", Count(1, MOST_REPLICAS), Derived("1"), "`min_replicas` of the pools that do not write it."),
    key("models[].planner.max_gpu_budget", Count(1, MOST_GPUS), Derived("none"), "GPUs of all pools of the model at most; at least what their minima take."),
    key("models[].planner.min_gpu_budget", Count(0, MOST_GPUS), Derived("none"), "GPUs of all pools of the model at least, whatever the load."),
    key("models[].planner.predictor", Choice(predictors, &[]), Derived("`constant`; `arima` with target sla"), "What the next window is expected to bring, from those before; preset auto has its own way: `constant` the last one, `kalman` a level with a trend, `arima` and `prophet` what they fit, `auto` the one that was closest lately."),
    key("models[].planner.predictor_log1p", Switch, Value("false"), "Whether predictors see ln(1 + value): for traffic that multiplies rather than adds."),
    key("models[].planner.prophet_window", Count(5, 10_000), Value("50"), "Windows that predictor prophet looks at."),
    key("models[].planner.kalman_q_level", Number(MOST_NOISE), Value("1"), "Of predictor kalman: variance by which the level drifts in a window, above 0."),
    key("models[].planner.kalman_q_trend", Number(MOST_NOISE), Value("0.1"), "Variance by which the trend drifts in a window, above 0."),
    key("models[].planner.kalman_r", Number(MOST_NOISE), Value("10"), "Variance of what a window shows about the level, above 0."),
    key("models[].planner.kalman_min_points", Count(1, 200), Value("5"), "Windows before which predictor kalman repeats the last one."),
    key("models[].planner.warmup_trace", Path, Derived("none"), "A recorded trace that predictors take in before the first live window: Azure (CSV), Mooncake, or Dynamo's request trace (JSON lines); also gzipped, unpacked at most 16 MiB."),
    later("models[].planner.idle_after"),
    later("models[].planner.hpa_tolerance"),
];
