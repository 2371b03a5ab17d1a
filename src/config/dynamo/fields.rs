//! Which fields does Dynamo's planner configuration have, and what becomes of each here? The one table.
//!
//! From it come the checks of names and values, the hints for misspelt names, Dynamo's defaults, the reasons for what has no counterpart, and
//! the table of fields in `src/config/README.md`.

/// What a field may hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A whole number in a range, both ends included.
    Whole(i64, i64),
    /// A number above zero.
    Positive,
    /// A number in a range, both ends included.
    Range(f64, f64),
    /// Yes or no.
    Switch,
    /// Any text.
    Text,
    /// A text that is never shown.
    Secret,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Anything with fields of its own, which are neither checked nor shown.
    Structure,
    /// Fields that have rows of their own.
    Section,
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It becomes this key of ours. Where it says nothing (another mode, target or predictor), the sentence tells why.
    Key(&'static str, &'static str),
    /// It has no counterpart, for this reason.
    Nothing(&'static str),
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub name: &'static str,
    /// Names that other versions have for it.
    pub aliases: &'static [&'static str],
    pub kind: Kind,
    /// Whether `null` may be written.
    pub nullable: bool,
    /// Dynamo's default, as it would be written; `null` for none.
    pub default: &'static str,
    pub fate: Fate,
}

impl Field {
    /// All its names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

const fn field(name: &'static str, kind: Kind, default: &'static str, fate: Fate) -> Field {
    Field { name, aliases: &[], kind, nullable: matches!(default.as_bytes(), b"null"), default, fate }
}

const fn also(aliases: &'static [&'static str], field: Field) -> Field {
    Field { aliases, ..field }
}

const fn or_null(field: Field) -> Field {
    Field { nullable: true, ..field }
}

use Fate::{Key, Nothing};
use Kind::{Choice, Positive, Range, Secret, Section, Structure, Switch, Text, Whole};

/// The largest whole number that is taken anywhere: far above every sensible count of seconds, tokens or GPUs, and products of two can be
/// added.
const MOST: i64 = 1 << 30;
/// No limit below, where a negative number switches something off.
const ANY: i64 = -MOST;

const ONLY_SLA: &str = "read only with optimization_target sla, in Dynamo as well";
const ONLY_THROUGHPUT: &str = "read only where throughput scaling predicts (optimization_target sla), in Dynamo as well";
const ONLY_LOAD: &str = "read only with optimization_target load and in modes with that role, in Dynamo as well";
const NO_ROLE: &str = "the mode has no such role";
const NO_DATABASE: &str = "there is no database of GPUs here: `profile` measures, `planner.profile` reads Dynamo's profile data, and without either the model is learned from live windows";
const PLUGINS: &str = "stages are part of one process here; a second protocol for them would buy nothing";
const POWER: &str = "watts are not planned; `max_gpu_budget` bounds the GPUs";
const GLOBAL: &str = "several models share one exporter and one GPU budget; nobody delegates";
const DROPPED: &str = "Dynamo itself no longer reads it";

/// Every field, in the order of Dynamo's reference.
#[rustfmt::skip]
pub(super) const FIELDS: &[Field] = &[
    field("optimization_target", Choice(&["throughput", "latency", "load", "sla"]), "throughput", Key("planner.target", "")),
    field("mode", Choice(&["disagg", "prefill", "decode", "agg"]), "disagg", Key("pools[].role", "")),
    field("model_name", Text, "null", Key("name", "served_model_name is what the metrics are labelled with")),
    field("served_model_name", Text, "null", Key("name", "")),
    also(&["no_operation"], field("advisory", Switch, "false", Key("mode", ""))),
    field("backend", Choice(&["vllm", "sglang", "trtllm", "mocker", "megatron"]), "vllm", Key("engine", "")),
    field("environment", Choice(&["kubernetes", "virtual", "global-planner"]), "kubernetes", Nothing("nothing is scaled from here: KEDA, an HPA or whoever reads `/api/v1/decisions` acts on the published counts")),
    field("namespace", Text, "dynamo", Nothing("targets are chosen by selectors or discovery: put Dynamo's namespace (label `dynamo_namespace`) into the selectors below")),
    field("global_planner_namespace", Text, "null", Nothing(GLOBAL)),
    field("log_dir", Text, "null", Nothing("the log goes to standard error")),

    field("enable_throughput_scaling", Switch, "true", Key("planner.throughput_scaling", ONLY_SLA)),
    field("enable_load_scaling", Switch, "false", Key("planner.load_scaling", "always on unless optimization_target is sla, in Dynamo as well")),
    also(&["throughput_adjustment_interval", "adjustment_interval"], field("throughput_adjustment_interval_seconds", Whole(1, MOST), "180", Key("planner.adjustment_interval", ""))),
    also(&["load_adjustment_interval"], field("load_adjustment_interval_seconds", Whole(1, MOST), "5", Key("planner.load_adjustment_interval", "load scaling is off"))),
    also(&["ttft"], field("ttft_ms", Positive, "500", Key("slo.ttft", ONLY_SLA))),
    also(&["itl"], field("itl_ms", Positive, "50", Key("slo.itl", ONLY_SLA))),
    field("max_throughput_scaling_replicas", Whole(1, MOST), "8", Key("planner.max_throughput_scaling_replicas", ONLY_THROUGHPUT)),
    field("load_scaling_down_sensitivity", Whole(ANY, MOST), "80", Key("planner.scale_down_sensitivity", "read only with load scaling and optimization_target sla, in Dynamo as well")),
    field("load_min_observations", Whole(1, MOST), "5", Key("planner.load_min_observations", ONLY_SLA)),
    field("max_num_fpm_samples", Whole(1, MOST), "64", Key("planner.load_samples", ONLY_SLA)),
    field("fpm_sample_bucket_size", Whole(1, MOST), "16", Key("planner.load_sample_buckets", ONLY_SLA)),
    field("speculative_nextn", Whole(0, MOST), "0", Key("planner.speculative_nextn", ONLY_SLA)),
    field("prefill_scale_up_queue_tokens", Whole(0, MOST), "null", Key("planner.prefill_scale_up_queue_tokens", ONLY_LOAD)),
    field("prefill_scale_down_queue_tokens", Whole(0, MOST), "null", Key("planner.prefill_scale_down_queue_tokens", ONLY_LOAD)),
    field("decode_scale_up_kv_rate", Range(0.0, 100.0), "null", Key("planner.decode_scale_up_kv_rate", ONLY_LOAD)),
    field("decode_scale_down_kv_rate", Range(0.0, 100.0), "null", Key("planner.decode_scale_down_kv_rate", ONLY_LOAD)),

    field("max_gpu_budget", Whole(ANY, MOST), "8", Key("planner.max_gpu_budget", "below 0 there is no ceiling, which is the default here")),
    field("min_gpu_budget", Whole(ANY, MOST), "-1", Key("planner.min_gpu_budget", "0 or less is no floor, which is the default here")),
    field("min_endpoint", Whole(0, MOST), "1", Key("planner.min_endpoint", "")),
    field("prefill_min_endpoint", Whole(1, MOST), "null", Key("pools[].min_replicas", "null: min_endpoint holds")),
    field("decode_min_endpoint", Whole(1, MOST), "null", Key("pools[].min_replicas", "null: min_endpoint holds")),
    field("prefill_engine_num_gpu", Whole(1, MOST), "null", Key("pools[].gpus_per_replica", NO_ROLE)),
    field("decode_engine_num_gpu", Whole(1, MOST), "null", Key("pools[].gpus_per_replica", NO_ROLE)),
    field("control_api_port", Whole(0, 65_535), "9086", Nothing("limits change with the file, which is read again when it changes; a count is decreed in the `overrides_file`")),

    field("load_predictor", Choice(&["constant", "arima", "kalman", "prophet"]), "arima", Key("planner.predictor", ONLY_THROUGHPUT)),
    field("load_predictor_log1p", Switch, "false", Key("planner.predictor_log1p", "read only by predictors arima, kalman and prophet, where throughput scaling predicts")),
    field("prophet_window_size", Whole(1, MOST), "50", Key("planner.prophet_window", "read only by predictor prophet, where throughput scaling predicts")),
    field("kalman_q_level", Positive, "1.0", Key("planner.kalman_q_level", "read only by predictor kalman, where throughput scaling predicts")),
    field("kalman_q_trend", Positive, "0.1", Key("planner.kalman_q_trend", "read only by predictor kalman, where throughput scaling predicts")),
    field("kalman_r", Positive, "10.0", Key("planner.kalman_r", "read only by predictor kalman, where throughput scaling predicts")),
    field("kalman_min_points", Whole(1, MOST), "5", Key("planner.kalman_min_points", "read only by predictor kalman, where throughput scaling predicts")),
    field("load_predictor_warmup_trace", Text, "null", Key("planner.warmup_trace", "read only by predictors arima, kalman and prophet, where throughput scaling predicts")),

    field("profile_results_dir", Text, "profiling_results", Key("planner.profile", "read only where throughput scaling sizes prefill and decode apart (optimization_target sla); of aggregated replicas it says nothing")),
    or_null(field("pre_deployment_sweeping_mode", Choice(&["none", "rapid", "thorough"]), "rapid", Nothing(NO_DATABASE))),
    field("aic_interpolation", Structure, "null", Nothing(NO_DATABASE)),
    also(&["ais_perf_model"], field("aic_perf_model", Structure, "null", Nothing(NO_DATABASE))),

    field("metric_pulling_prometheus_endpoint", Text, "http://prometheus-kube-prometheus-prometheus.monitoring.svc.cluster.local:9090", Key("targets.prometheus.url", "")),
    field("metric_pulling_prometheus_token", Secret, "null", Key("targets.bearer_token_file", "metric_pulling_prometheus_token_file says where the token is")),
    field("metric_pulling_prometheus_token_file", Text, "null", Key("targets.bearer_token_file", "")),
    field("metric_pulling_prometheus_ssl_verify", Switch, "false", Key("targets.tls.insecure_skip_verify", "without https, or with a ca_bundle, it says nothing")),
    field("metric_pulling_prometheus_ca_bundle", Text, "null", Key("targets.tls.ca_file", "")),
    field("metric_pulling_prometheus_extra_query_params", Structure, "null", Nothing("queries carry no parameters of one's own: what a proxy selects by, it takes from `headers`, or from the path of `prometheus.url`")),
    field("metric_pulling_prometheus_request_timeout_seconds", Positive, "10.0", Key("scrape.timeout", "longer than a scrape interval: one round must end before the next begins")),
    field("metric_reporting_prometheus_port", Whole(0, 65_535), "0", Key("server.listen", "0 switches Dynamo's metrics off; the counts here are published as metrics")),
    field("throughput_metrics_source", Choice(&["frontend", "router"]), "frontend", Key("traffic.targets", "this target and mode plan without whole requests")),

    field("enable_power_awareness", Switch, "false", Nothing(POWER)),
    field("total_gpu_power_limit", Whole(1, MOST), "null", Nothing(POWER)),
    or_null(field("report_interval_hours", Positive, "24.0", Key("report.interval", "null: no reports, as here without the section `report`"))),
    field("report_output_dir", Text, "./planner_reports", Key("report.dir", "without report_interval_hours there are none")),
    field("report_filename", Text, "null", Nothing("each report's name says until when it is")),
    field("report_write_gzip_log", Switch, "true", Nothing("where reports are written, the log of every decision is")),
    field("live_dashboard_port", Whole(0, 65_535), "8080", Nothing("the page at `/` of `server.listen` is always there")),
    field("scheduling", Section, "{}", Nothing("")),
    field("scheduling.scale_interval_seconds", Positive, "the greatest common divisor of the intervals in use", Nothing("rounds come with every scrape; each loop decides at multiples of its own interval")),
    field("scheduling.tick_max_duration_seconds", Positive, "30.0", Nothing("a round ends by `scrape.timeout`")),
    field("scheduling.external_plugins", Structure, "[]", Nothing(PLUGINS)),
    field("scheduling.gateway", Structure, "{}", Nothing(PLUGINS)),
    field("plugin_registration", Structure, "{}", Nothing(PLUGINS)),

    or_null(field("no_correction", Switch, "true", Nothing("Dynamo itself no longer reads it: measured latencies correct nothing here either with preset dynamo"))),
    or_null(field("load_metric_samples", Whole(1, MOST), "10", Nothing(DROPPED))),
    or_null(field("load_learning_window", Whole(1, MOST), "50", Nothing("Dynamo itself no longer reads it; max_num_fpm_samples bounds what is learned from"))),
    field("load_router_metrics_url", Text, "null", Nothing("Dynamo itself no longer reads it; a router's page belongs under `traffic.targets`")),
];

/// The row of a name, whichever version it is from.
pub(super) fn find(name: &str) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.names().any(|known| known == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_listed_once_and_every_field_says_what_becomes_of_it() {
        let names: Vec<&str> = FIELDS.iter().flat_map(Field::names).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} is listed twice");
        }
        for field in FIELDS {
            let told = match field.fate {
                Fate::Key(key, _) => key,
                Fate::Nothing(reason) => reason,
            };
            assert!(!told.is_empty() || matches!(field.kind, Kind::Section), "{} says nothing", field.name);
        }
    }
}
