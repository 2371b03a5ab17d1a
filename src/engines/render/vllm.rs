//! How does a vLLM server write its page? One server a page; every series is there from the start, at zero.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::{escaped, header, number};
use crate::planner::input::{Histogram, Signal};

/// What a page of a vLLM server tells.
#[derive(Clone, Debug, PartialEq)]
pub struct VllmPage {
    /// The model label.
    pub model: String,
    /// When the server started, since the Unix epoch.
    pub process_start: Duration,
    /// A histogram for each signal, over [`vllm_edges`].
    pub histograms: BTreeMap<Signal, Histogram>,
    /// Requests in the batch.
    pub running: u64,
    /// Requests that are not admitted.
    pub waiting: u64,
    /// Share of the KV memory in use, in 0..=1.
    pub kv_usage: f64,
    /// Tokens generated, as they come.
    pub generated_tokens: u64,
    /// Tokens of the prompts that were computed.
    pub prompt_tokens: u64,
    /// Iterations of the engine's loop.
    pub iterations: u64,
    /// Tokens that those worked on.
    pub iteration_tokens: u64,
    /// Prompts that were computed, and the seconds from their first steps to their first tokens.
    pub prefilled: (u64, f64),
    /// Tokens that the KV memory holds.
    pub kv_tokens: u64,
    /// Requests that ended well.
    pub finished: u64,
}

/// The upper bounds of the finite buckets of version 0.33: seconds or tokens.
pub fn vllm_edges(signal: Signal) -> &'static [f64] {
    family(signal).edges
}

struct Family {
    name: &'static str,
    help: &'static str,
    edges: &'static [f64],
}

/// Bounds of lengths, as the server makes them for a model of some 32 thousand tokens.
const LENGTHS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0];

fn family(signal: Signal) -> Family {
    let (name, help, edges): (_, _, &[f64]) = match signal {
        Signal::Ttft => (
            "vllm:time_to_first_token_seconds",
            "From the arrival of a request to its first token.",
            &[
                0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
                2560.0,
            ],
        ),
        Signal::Itl => (
            "vllm:inter_token_latency_seconds",
            "From one token of a request to the next.",
            &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0],
        ),
        Signal::PromptTokens => ("vllm:request_prompt_tokens", "Tokens of a prompt.", LENGTHS),
        Signal::OutputTokens => ("vllm:request_generation_tokens", "Tokens generated for a request.", LENGTHS),
        Signal::RequestDuration => (
            "vllm:e2e_request_latency_seconds",
            "From the arrival of a request to its end.",
            &[0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0],
        ),
    };
    Family { name, help, edges }
}

/// The page as text format 0.0.4.
pub fn vllm(page: &VllmPage) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_vllm(&mut text, page);
    text
}

fn write_vllm(text: &mut String, page: &VllmPage) -> std::fmt::Result {
    let model = escaped(&page.model);
    let start = number(page.process_start.as_secs_f64());
    header(text, "process_start_time_seconds", "Start of the process since the Unix epoch.", "gauge")?;
    writeln!(text, "process_start_time_seconds {start}")?;
    for (name, help, value) in [
        ("vllm:num_requests_running", "Requests in the batch.", page.running as f64),
        ("vllm:num_requests_waiting", "Requests that wait to be admitted.", page.waiting as f64),
        ("vllm:kv_cache_usage_perc", "Share of the KV cache in use; 1 is all of it.", page.kv_usage),
    ] {
        header(text, name, help, "gauge")?;
        writeln!(text, "{name}{{engine=\"0\",model_name=\"{model}\"}} {}", number(value))?;
    }
    for (name, help, reason, value) in [
        ("vllm:prompt_tokens", "Tokens of computed prompts.", "", page.prompt_tokens),
        ("vllm:generation_tokens", "Tokens generated.", "", page.generated_tokens),
        ("vllm:request_success", "Requests that ended, by how.", "finished_reason=\"stop\",", page.finished),
    ] {
        let labels = format!("engine=\"0\",{reason}model_name=\"{model}\"");
        header(text, &format!("{name}_total"), help, "counter")?;
        writeln!(text, "{name}_total{{{labels}}} {}", number(value as f64))?;
        header(text, &format!("{name}_created"), help, "gauge")?;
        writeln!(text, "{name}_created{{{labels}}} {start}")?;
    }
    header(text, "vllm:cache_config_info", "Settings of the KV cache.", "gauge")?;
    writeln!(text, "vllm:cache_config_info{{engine=\"0\",kv_cache_size_tokens=\"{}\"}} 1.0", page.kv_tokens)?;
    // The buckets of this one are nobody's business here.
    let labels = format!("engine=\"0\",model_name=\"{model}\"");
    header(text, "vllm:iteration_tokens_total", "Tokens of an iteration.", "histogram")?;
    writeln!(
        text,
        "vllm:iteration_tokens_total_bucket{{engine=\"0\",le=\"+Inf\",model_name=\"{model}\"}} {}",
        number(page.iterations as f64)
    )?;
    writeln!(text, "vllm:iteration_tokens_total_count{{{labels}}} {}", number(page.iterations as f64))?;
    writeln!(text, "vllm:iteration_tokens_total_sum{{{labels}}} {}", number(page.iteration_tokens as f64))?;
    let (prompts, seconds) = page.prefilled;
    header(text, "vllm:request_prefill_time_seconds", "From the first step of a request to its first token.", "histogram")?;
    writeln!(
        text,
        "vllm:request_prefill_time_seconds_bucket{{engine=\"0\",le=\"+Inf\",model_name=\"{model}\"}} {}",
        number(prompts as f64)
    )?;
    writeln!(text, "vllm:request_prefill_time_seconds_count{{{labels}}} {}", number(prompts as f64))?;
    writeln!(text, "vllm:request_prefill_time_seconds_sum{{{labels}}} {}", number(seconds))?;
    header(text, "vllm:iteration_tokens_total_created", "Tokens of an iteration.", "gauge")?;
    writeln!(text, "vllm:iteration_tokens_total_created{{{labels}}} {start}")?;
    let labels = format!("model_name=\"{model}\"");
    for signal in Signal::ALL {
        write_histogram(text, signal, &labels, page.histograms.get(&signal), &start)?;
    }
    Ok(())
}

fn write_histogram(text: &mut String, signal: Signal, model: &str, found: Option<&Histogram>, created: &str) -> std::fmt::Result {
    let Family { name, help, edges } = family(signal);
    header(text, name, help, "histogram")?;
    let line =
        |text: &mut String, edge: &str, count: f64| writeln!(text, "{name}_bucket{{engine=\"0\",le=\"{edge}\",{model}}} {}", number(count));
    for (i, edge) in edges.iter().enumerate() {
        let count = found.and_then(|histogram| histogram.buckets.get(i)).map_or(0.0, |bucket| bucket.1);
        line(text, &number(*edge), count)?;
    }
    let (sum, count) = found.map_or((0.0, 0.0), |histogram| (histogram.sum, histogram.count));
    line(text, "+Inf", count)?;
    writeln!(text, "{name}_count{{engine=\"0\",{model}}} {}", number(count))?;
    writeln!(text, "{name}_sum{{engine=\"0\",{model}}} {}", number(sum))?;
    header(text, &format!("{name}_created"), help, "gauge")?;
    writeln!(text, "{name}_created{{engine=\"0\",{model}}} {created}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_names_and_labels_as_the_server_does() {
        let histogram = Histogram {
            sum: 0.5,
            count: 2.0,
            buckets: vllm_edges(Signal::Ttft).iter().map(|&edge| (edge, if edge < 0.25 { 0.0 } else { 2.0 })).collect(),
            created: None,
        };
        let text = vllm(&VllmPage {
            model: "a\"b".to_owned(),
            process_start: Duration::from_secs(1_795_955_000),
            histograms: BTreeMap::from([(Signal::Ttft, histogram)]),
            running: 3,
            waiting: 1,
            kv_usage: 0.25,
            generated_tokens: 20,
            prompt_tokens: 4_000_000,
            iterations: 12,
            iteration_tokens: 345,
            prefilled: (2, 0.125),
            kv_tokens: 131_072,
            finished: 1,
        });
        for line in [
            "vllm:iteration_tokens_total_count{engine=\"0\",model_name=\"a\\\"b\"} 12.0",
            "vllm:request_prefill_time_seconds_sum{engine=\"0\",model_name=\"a\\\"b\"} 0.125",
            "vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"131072\"} 1.0",
            "vllm:num_requests_running{engine=\"0\",model_name=\"a\\\"b\"} 3.0",
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a\\\"b\"} 0.25",
            "vllm:prompt_tokens_total{engine=\"0\",model_name=\"a\\\"b\"} 4e+06",
            "vllm:request_success_total{engine=\"0\",finished_reason=\"stop\",model_name=\"a\\\"b\"} 1.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.1\",model_name=\"a\\\"b\"} 0.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.25\",model_name=\"a\\\"b\"} 2.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\",model_name=\"a\\\"b\"} 2.0",
            "vllm:time_to_first_token_seconds_sum{engine=\"0\",model_name=\"a\\\"b\"} 0.5",
            // Not observed yet, and there all the same.
            "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"a\\\"b\"} 0.0",
            "process_start_time_seconds 1.795955e+09",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
        }
    }
}
