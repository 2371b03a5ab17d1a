//! How does a server of some dialect write its page? For the simulator, whose servers speak as real ones do.
//!
//! Reading and writing a dialect stand in one room, so that its spelling occurs nowhere else. A page is rendered as the Python client library
//! writes it: counts as floats, a `_created` gauge beside each histogram. An Infera router has no series before its first observation; a
//! vLLM server has all of them from its start.

pub mod sample;
pub mod vllm;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::planner::input::{Histogram, Signal};
use crate::units::{Replicas, Role};

/// What a page of an Infera router tells.
#[derive(Clone, Debug, PartialEq)]
pub struct InferaPage {
    /// The model label.
    pub model: String,
    /// When the router started, since the Unix epoch.
    pub process_start: Duration,
    /// Requests that have arrived and not ended.
    pub in_flight: u64,
    /// A histogram for each signal that has been observed.
    pub histograms: BTreeMap<Signal, InferaSeries>,
    /// Active workers; the router sees the whole fleet.
    pub workers: BTreeMap<Role, Replicas>,
}

/// A histogram and its age.
#[derive(Clone, Debug, PartialEq)]
pub struct InferaSeries {
    /// When the first observation made it, since the Unix epoch.
    pub created: Duration,
    /// The counts since then.
    pub histogram: Histogram,
}

/// The upper bounds of the finite buckets: seconds or tokens.
pub fn infera_edges(signal: Signal) -> &'static [f64] {
    infera_family(signal).edges
}

struct Family {
    name: &'static str,
    help: &'static str,
    edges: &'static [f64],
    /// Whether its series carry the model label; the others carry the outcome.
    by_model: bool,
}

fn infera_family(signal: Signal) -> Family {
    let (name, help, edges): (_, _, &[f64]) = match signal {
        Signal::Ttft => (
            "infera_time_to_first_token_seconds",
            "From dispatch to the first token of the reply.",
            &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0],
        ),
        Signal::Itl => (
            "infera_inter_token_latency_seconds",
            "Mean spacing of a reply's tokens after the first.",
            &[0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.0],
        ),
        Signal::PromptTokens => (
            "infera_input_sequence_tokens",
            "Tokens of the prompt.",
            &[64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0],
        ),
        Signal::OutputTokens => {
            ("infera_output_sequence_tokens", "Tokens of the reply.", &[4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0])
        }
        Signal::RequestDuration => (
            "infera_request_duration_seconds",
            "From the arrival of a request to the end of its reply.",
            &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0],
        ),
    };
    Family { name, help, edges, by_model: signal != Signal::RequestDuration }
}

/// The page as text format 0.0.4.
pub fn infera(page: &InferaPage) -> String {
    let mut text = String::new();
    let model = format!("model=\"{}\"", escaped(&page.model));
    // Writing to a string cannot fail.
    let _ = write_infera(&mut text, page, &model);
    text
}

fn write_infera(text: &mut String, page: &InferaPage, model: &str) -> std::fmt::Result {
    for signal in [Signal::RequestDuration, Signal::Ttft, Signal::Itl, Signal::PromptTokens, Signal::OutputTokens] {
        let family = infera_family(signal);
        let labels = if family.by_model { format!("{model},router=\"disagg\"") } else { "outcome=\"ok\",router=\"disagg\"".to_owned() };
        write_histogram(text, &family, &labels, page.histograms.get(&signal))?;
    }
    header(text, "infera_request_inflight", "Requests that have arrived and not ended.", "gauge")?;
    writeln!(text, "infera_request_inflight{{router=\"disagg\"}} {}", number(page.in_flight as f64))?;
    header(text, "infera_active_workers", "Workers that take requests.", "gauge")?;
    for (role, replicas) in &page.workers {
        let mode = match role {
            Role::Prefill => "prefill",
            Role::Decode => "decode",
            Role::Aggregated => "mixed",
        };
        writeln!(text, "infera_active_workers{{disagg_mode=\"{mode}\",{model}}} {}", number(replicas.as_f64()))?;
    }
    header(text, "process_start_time_seconds", "Start of the process since the Unix epoch.", "gauge")?;
    writeln!(text, "process_start_time_seconds {}", number(page.process_start.as_secs_f64()))
}

/// A family that has no series yet still has its header.
fn write_histogram(text: &mut String, family: &Family, labels: &str, series: Option<&InferaSeries>) -> std::fmt::Result {
    let Family { name, help, .. } = family;
    header(text, name, help, "histogram")?;
    let Some(InferaSeries { created, histogram }) = series else { return Ok(()) };
    for (edge, count) in &histogram.buckets {
        writeln!(text, "{name}_bucket{{le=\"{}\",{labels}}} {}", number(*edge), number(*count))?;
    }
    writeln!(text, "{name}_bucket{{le=\"+Inf\",{labels}}} {}", number(histogram.count))?;
    writeln!(text, "{name}_count{{{labels}}} {}", number(histogram.count))?;
    writeln!(text, "{name}_sum{{{labels}}} {}", number(histogram.sum))?;
    header(text, &format!("{name}_created"), help, "gauge")?;
    writeln!(text, "{name}_created{{{labels}}} {}", number(created.as_secs_f64()))
}

fn header(text: &mut String, name: &str, help: &str, kind: &str) -> std::fmt::Result {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")
}

/// Shortest text that reads back as the same number; from a million on with an exponent, as the Python client writes it.
fn number(value: f64) -> String {
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) if value.abs() >= 1e6 => format!("{digits}e+{exponent:0>2}"),
        _ => format!("{value:?}"),
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> InferaPage {
        let histogram = Histogram {
            sum: 3.25,
            count: 2.0,
            buckets: infera_edges(Signal::Ttft).iter().map(|&edge| (edge, 1.0)).collect(),
            created: None,
        };
        let series = InferaSeries { created: Duration::from_millis(1_795_955_180_500), histogram };
        InferaPage {
            model: "a\"b".to_owned(),
            process_start: Duration::from_secs(1_795_955_000),
            in_flight: 3,
            histograms: BTreeMap::from([(Signal::Ttft, series)]),
            workers: BTreeMap::from([(Role::Prefill, Replicas(2)), (Role::Decode, Replicas(3))]),
        }
    }

    #[test]
    fn writes_names_and_labels_as_the_router_does() {
        let text = infera(&page());
        let labels = r#"model="a\"b",router="disagg""#;
        for line in [
            format!("infera_time_to_first_token_seconds_bucket{{le=\"0.01\",{labels}}} 1.0"),
            format!("infera_time_to_first_token_seconds_bucket{{le=\"30.0\",{labels}}} 1.0"),
            format!("infera_time_to_first_token_seconds_bucket{{le=\"+Inf\",{labels}}} 2.0"),
            format!("infera_time_to_first_token_seconds_count{{{labels}}} 2.0"),
            format!("infera_time_to_first_token_seconds_sum{{{labels}}} 3.25"),
            format!("infera_time_to_first_token_seconds_created{{{labels}}} 1.7959551805e+09"),
            "infera_active_workers{disagg_mode=\"decode\",model=\"a\\\"b\"} 3.0".to_owned(),
            "infera_request_inflight{router=\"disagg\"} 3.0".to_owned(),
            "process_start_time_seconds 1.795955e+09".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn a_signal_without_observations_has_a_header_and_no_series() {
        let text = infera(&page());
        assert!(text.contains("# TYPE infera_inter_token_latency_seconds histogram\n"));
        assert!(!text.lines().any(|line| line.starts_with("infera_inter_token_latency_seconds")));
    }

    #[test]
    fn numbers_read_back_as_themselves() {
        for (value, text) in
            [(64.0, "64.0"), (1_048_576.0, "1.048576e+06"), (0.0025, "0.0025"), (0.0, "0.0"), (1e6, "1e+06"), (1e12, "1e+12")]
        {
            assert_eq!(number(value), text);
            assert_eq!(text.parse::<f64>(), Ok(value));
        }
    }
}
