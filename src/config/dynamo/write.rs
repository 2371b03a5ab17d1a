//! How is the translated configuration written? Our keys, each with the field that it comes from, and a reason for every field without a key.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::fields::{Fate, Field};
use super::pools;
use super::read::Fields;
use super::roles;
use crate::config::effective::quoted;
use crate::config::resolve::text;
use crate::config::scalar::PLACEHOLDER;
use crate::units::Role;

/// The usual time between two rounds of scrapes, and its deadline, seconds.
const SCRAPE_INTERVAL: i64 = 5;
const SCRAPE_TIMEOUT: i64 = 4;

/// The configuration as it grows, and the fields that it has told so far.
pub(super) struct Page<'a> {
    pub fields: &'a Fields,
    text: String,
    told: BTreeSet<&'static str>,
}

impl Page<'_> {
    /// A line, with the fields that it comes from and a remark.
    pub(super) fn line(&mut self, depth: usize, line: &str, from: &[&'static str], remark: &str) {
        let (key, value) = line.trim_start_matches("- ").split_once(": ").unwrap_or((line, ""));
        let mut remarks: Vec<String> = from.iter().map(|name| self.fields.told(name, key, value.trim_matches('"'))).collect();
        self.told.extend(from);
        remarks.push(remark.to_owned());
        remarks.retain(|remark| !remark.is_empty());
        let comment = if remarks.is_empty() { String::new() } else { format!("  # {}", remarks.join("; ")) };
        self.text.push_str(&format!("{:width$}{line}{comment}\n", "", width = 2 * depth));
    }

    /// A key without a remark.
    pub(super) fn key(&mut self, depth: usize, key: &str, from: &[&'static str]) {
        self.line(depth, key, from, "");
    }

    /// A number under a name of ours.
    fn number(&mut self, key: &str, name: &'static str) {
        let value =
            self.fields.whole(name).map(|value| value.to_string()).or_else(|| self.fields.number(name).map(|value| value.to_string()));
        if let Some(value) = value {
            self.key(3, &format!("{key}: {value}"), &[name]);
        }
    }

    /// A whole number for which our range is the narrower one.
    fn within(&mut self, range: std::ops::RangeInclusive<i64>, key: &str, name: &'static str) {
        let Some(value) = self.fields.whole(name) else { return };
        let (least, most) = range.into_inner();
        let taken = value.clamp(least, most);
        let remark = if taken == value { String::new() } else { format!("{least} to {most} here") };
        self.line(3, &format!("{key}: {taken}"), &[name], &remark);
    }
}

/// A value that somebody must write: our own check refuses it, and says what belongs there.
pub(super) fn placeholder(what: &str) -> String {
    quoted(&format!("{PLACEHOLDER}: {what}"))
}

fn seconds(count: i64) -> String {
    text(Duration::from_secs(count.unsigned_abs()))
}

fn millis(count: f64) -> String {
    text(Duration::try_from_secs_f64(count / 1000.0).unwrap_or(Duration::MAX))
}

/// The whole configuration.
pub(super) fn configuration(fields: &Fields, file: &Path) -> String {
    let mut page = Page { fields, text: String::new(), told: BTreeSet::new() };
    let name = file.file_name().map_or_else(|| file.to_string_lossy(), |name| name.to_string_lossy());
    page.text.push_str(&format!(
        "# Translated from Dynamo's planner configuration {}.\n\
         # What begins with {PLACEHOLDER} does not stand in that file: `check` refuses this configuration until it is written.\n\
         # A remark names the field that a value comes from. At the end: the fields that became no key, and why.\n",
        quoted(&name)
    ));
    server(&mut page);
    scrape(&mut page);
    report(&mut page);
    page.key(0, "models:", &[]);
    model(&mut page);
    pools::traffic(&mut page);
    pools::pools(&mut page);
    rest(&mut page);
    page.text
}

fn server(page: &mut Page<'_>) {
    const PORT: &str = "metric_reporting_prometheus_port";
    if let Some(port) = page.fields.whole(PORT).filter(|port| *port > 0) {
        page.key(0, "server:", &[]);
        page.key(1, &format!("listen: \"0.0.0.0:{port}\""), &[PORT]);
    }
}

/// Rounds must be as frequent as the fastest loop, and end before the next begins.
fn scrape(page: &mut Page<'_>) {
    const TIMEOUT: &str = "metric_pulling_prometheus_request_timeout_seconds";
    let slow = page.fields.whole("throughput_adjustment_interval_seconds").unwrap_or(SCRAPE_INTERVAL);
    let fast = page.fields.whole("load_adjustment_interval_seconds").filter(|_| roles::load_scales(page.fields)).unwrap_or(slow);
    let interval = SCRAPE_INTERVAL.min(fast).min(slow);
    page.key(0, "scrape:", &[]);
    page.line(1, &format!("interval: {}", seconds(interval)), &[], "at most the shortest interval below");
    let written = page.fields.number(TIMEOUT).filter(|seconds| page.fields.is_written(TIMEOUT) && *seconds <= interval as f64);
    match written {
        Some(timeout) => page.key(1, &format!("timeout: {}", millis((timeout * 1000.0).max(10.0))), &[TIMEOUT]),
        None => page.line(1, &format!("timeout: {}", seconds(SCRAPE_TIMEOUT.min(interval))), &[], "at most the interval"),
    }
}

/// Reports are written only where the file says something of them: its defaults would make a folder that nobody asked for.
fn report(page: &mut Page<'_>) {
    const INTERVAL: &str = "report_interval_hours";
    const DIR: &str = "report_output_dir";
    let written = [INTERVAL, DIR].iter().any(|name| page.fields.is_written(name));
    let (Some(hours), Some(dir)) = (page.fields.number(INTERVAL).filter(|_| written), page.fields.text(DIR)) else { return };
    let dir = quoted(dir);
    page.key(0, "report:", &[]);
    page.line(1, &format!("dir: {dir}"), &[DIR], "a relative path starts at the folder of this file");
    let least = Duration::from_secs(60);
    let most = Duration::from_secs(366 * 24 * 3600);
    let interval = Duration::try_from_secs_f64(hours * 3600.0).unwrap_or(Duration::MAX);
    let taken = Duration::from_secs(interval.clamp(least, most).as_secs());
    let remark = if taken == interval { "" } else { "whole seconds from a minute to 366 days here" };
    page.line(1, &format!("interval: {}", text(taken)), &[INTERVAL], remark);
}

fn model(page: &mut Page<'_>) {
    name(page);
    let mode = if page.fields.switch("advisory") { "shadow" } else { "publish" };
    let remark = if mode == "shadow" { "computed and exported, not published" } else { "" };
    page.line(2, &format!("mode: {mode}"), &["advisory"], remark);
    page.line(2, "engine: auto", &["backend"], "servers are recognised page by page");
    if roles::is_sla(page.fields) {
        page.key(2, "slo:", &[]);
        for (key, name) in [("ttft", "ttft_ms"), ("itl", "itl_ms")] {
            let value = millis(page.fields.number(name).unwrap_or_default());
            page.key(3, &format!("{key}: {value}"), &[name]);
        }
        page.line(3, "statistic: mean", &[], "Dynamo plans by means as well");
    }
    page.key(2, "planner:", &[]);
    page.key(3, "preset: dynamo", &[]);
    let target = page.fields.text("optimization_target").unwrap_or("throughput");
    page.key(3, &format!("target: {target}"), &["optimization_target"]);
    loops(page);
    if target == "load" {
        thresholds(page);
    }
    if roles::is_sla(page.fields) {
        learning(page);
    }
    if roles::throughput_scales(page.fields) {
        prediction(page);
    }
    budgets(page);
}

/// The model's name, where the file says it.
pub(super) fn model_name(fields: &Fields) -> Option<&str> {
    fields.text("served_model_name").or_else(|| fields.text("model_name")).or(fields.model.as_deref())
}

fn name(page: &mut Page<'_>) {
    let from: &[&'static str] = match (page.fields.text("served_model_name"), page.fields.text("model_name")) {
        (Some(_), _) => &["served_model_name"],
        (None, Some(_)) => &["model_name"],
        _ => &[],
    };
    match model_name(page.fields).map(quoted) {
        Some(name) => {
            let remark = if from.is_empty() { "the request's model" } else { "" };
            page.line(1, &format!("- name: {name}"), from, remark);
        }
        None => {
            let name = placeholder("the model's name, as the servers' metrics are labelled with it");
            page.key(1, &format!("- name: {name}"), &["model_name"]);
        }
    }
}

fn loops(page: &mut Page<'_>) {
    if roles::is_sla(page.fields) {
        for (key, name) in [("throughput_scaling", "enable_throughput_scaling"), ("load_scaling", "enable_load_scaling")] {
            page.key(3, &format!("{key}: {}", page.fields.switch(name)), &[name]);
        }
    }
    let interval = "throughput_adjustment_interval_seconds";
    let slow = seconds(page.fields.whole(interval).unwrap_or_default());
    let remark = if roles::throughput_scales(page.fields) { "" } else { "here the window of what is observed" };
    page.line(3, &format!("adjustment_interval: {slow}"), &[interval], remark);
    if roles::load_scales(page.fields) {
        let interval = "load_adjustment_interval_seconds";
        let fast = seconds(page.fields.whole(interval).unwrap_or_default());
        page.key(3, &format!("load_adjustment_interval: {fast}"), &[interval]);
    }
}

fn thresholds(page: &mut Page<'_>) {
    let mode = roles::mode(page.fields);
    for side in mode.sides() {
        let [up, down] = side.thresholds;
        if side.role == Role::Prefill {
            page.number(up, up);
            page.number(down, down);
            continue;
        }
        // Whole percent, away from each other, so that one stays above the other.
        for (name, rounded) in [(up, page.fields.number(up).map(f64::ceil)), (down, page.fields.number(down).map(f64::floor))] {
            let Some(rounded) = rounded else { continue };
            let remark = if page.fields.number(name) == Some(rounded) { "" } else { "whole percent here" };
            page.line(3, &format!("{name}: {rounded}"), &[name], remark);
        }
    }
}

/// What the regression is made from.
fn learning(page: &mut Page<'_>) {
    page.within(5..=4096, "load_samples", "max_num_fpm_samples");
    page.within(1..=1024, "load_sample_buckets", "fpm_sample_bucket_size");
    page.within(2..=4096, "load_min_observations", "load_min_observations");
    page.within(0..=64, "speculative_nextn", "speculative_nextn");
    if page.fields.switch("enable_load_scaling") {
        page.within(0..=100, "scale_down_sensitivity", "load_scaling_down_sensitivity");
    }
}

/// What the slow loop predicts with and sizes by.
fn prediction(page: &mut Page<'_>) {
    const PREDICTOR: &str = "load_predictor";
    let predictor = page.fields.text(PREDICTOR).unwrap_or("arima");
    page.key(3, &format!("predictor: {predictor}"), &[PREDICTOR]);
    if predictor != "constant" {
        let log = page.fields.switch("load_predictor_log1p");
        page.key(3, &format!("predictor_log1p: {log}"), &["load_predictor_log1p"]);
    }
    match predictor {
        "prophet" => page.within(5..=10_000, "prophet_window", "prophet_window_size"),
        "kalman" => {
            ["kalman_q_level", "kalman_q_trend", "kalman_r"].iter().for_each(|name| page.number(name, name));
            page.within(1..=200, "kalman_min_points", "kalman_min_points");
        }
        _ => {}
    }
    let trace = page.fields.text("load_predictor_warmup_trace").filter(|_| predictor != "constant").map(quoted);
    if let Some(trace) = trace {
        page.key(3, &format!("warmup_trace: {trace}"), &["load_predictor_warmup_trace"]);
    }
    page.within(1..=100_000, "max_throughput_scaling_replicas", "max_throughput_scaling_replicas");
    page.line(
        3,
        "scale_down_step: 1",
        &[],
        "Dynamo takes away as many as it adds: what it stops is not drained, and a wrong decrease costs requests",
    );
    if page.fields.is_written("profile_results_dir")
        && !roles::mode(page.fields).aggregated
        && let Some(folder) = page.fields.text("profile_results_dir").map(quoted)
    {
        let remark = "Dynamo's profile data; a relative path starts at the folder of this file";
        page.line(3, &format!("profile: {folder}"), &["profile_results_dir"], remark);
    }
}

fn budgets(page: &mut Page<'_>) {
    let floor = page.fields.whole("min_endpoint").unwrap_or(1);
    let remark = if floor == 0 {
        "Dynamo would go down to none; here none is recommended only where arrivals are seen without any replica, which its front end cannot do"
    } else {
        ""
    };
    page.line(3, &format!("min_endpoint: {}", floor.max(1)), &["min_endpoint"], remark);
    let ceiling = page.fields.whole("max_gpu_budget").filter(|gpus| *gpus >= 0);
    if let Some(gpus) = ceiling {
        let remark = if page.fields.is_written("max_gpu_budget") { "" } else { "leave the key out for no ceiling" };
        page.line(3, &format!("max_gpu_budget: {gpus}"), &["max_gpu_budget"], remark);
    }
    if let Some(gpus) = page.fields.whole("min_gpu_budget").filter(|gpus| *gpus > 0) {
        page.key(3, &format!("min_gpu_budget: {gpus}"), &["min_gpu_budget"]);
    }
}

/// The fields that are written there and became no key.
fn rest(page: &mut Page<'_>) {
    let left: Vec<&Field> = page.fields.written().filter(|field| !page.told.contains(field.name)).collect();
    if !left.is_empty() {
        page.text.push_str("\n# Fields without a key here:\n");
    }
    for field in left {
        let reason = match field.fate {
            Fate::Nothing(reason) => reason.to_owned(),
            Fate::Key(key, _) if page.fields.is_null(field.name) => format!("would be {key}; nothing is said"),
            Fate::Key(key, unused) => format!("would be {key}; {unused}"),
        };
        page.text.push_str(&format!("# - {}. {reason}\n", page.fields.told(field.name, "", "")));
    }
    if !page.fields.beside.is_empty() {
        let beside = page.fields.beside.join(", ");
        page.text.push_str(&format!("# Not the planner's, and not read: {beside}\n"));
    }
}
