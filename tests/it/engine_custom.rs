//! Do names and labels in the configuration read a server as well as an engine of its own would?

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use inference_planner_exporter::config::{self, Inputs, Loaded, Problem, SourceText};
use inference_planner_exporter::engines::{Dialect, by_name};
use inference_planner_exporter::planner::input::{Few, Gauge, ItlBasis, Sample, Signal, Tally};
use inference_planner_exporter::scrape::lower::lower;
use inference_planner_exporter::units::{ModelId, Replicas, Role};

const PROFILE: &str = include_str!("../fixtures/config/profile.json");

fn load(engine: &str) -> Result<Loaded, Vec<Problem>> {
    let text = format!(
        "models:\n  - name: m\n    planner: {{ profile: profile.json }}\n{engine}    traffic: {{ targets: {{ static: [\"http://h:1\"] }} }}\n    \
         pools:\n      - {{ name: p, role: prefill, max_replicas: 4 }}\n      - {{ name: d, role: decode, max_replicas: 4 }}\n"
    );
    let draft = config::read(Inputs { file: Some(SourceText { path: "c.yaml".into(), text }), ..Inputs::default() });
    let files: BTreeMap<_, _> = draft.files().iter().map(|path| (path.clone(), Ok(PROFILE.to_owned()))).collect();
    draft.finish(&files)
}

fn dialect(engine: &str) -> Dialect {
    let loaded = load(engine).unwrap_or_else(|problems| panic!("{:?}", told(&problems)));
    loaded.config.models[0].engine.clone().unwrap()
}

fn told(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// vLLM's page, in the operator's words. The first name of ITL is not on the page.
const VLLM: &str = r#"    engine: custom
    custom:
      model_label: model_name
      itl_basis: per_event
      metrics:
        - { role: ttft, name: "vllm:time_to_first_token_seconds" }
        - { role: itl, name: "vllm:time_between_tokens_seconds" }
        - { role: itl, name: "vllm:inter_token_latency_seconds" }
        - { role: itl, name: "vllm:time_per_output_token_seconds" }
        - { role: prompt_tokens, name: "vllm:request_prompt_tokens" }
        - { role: output_tokens, name: "vllm:request_generation_tokens" }
        - { role: finished, name: "vllm:request_success" }
        - { role: aborted, name: "vllm:request_success_total", labels: ["finished_reason=abort"] }
        - { role: generated_tokens, name: "vllm:generation_tokens" }
        - { role: iterations, name: "vllm:iteration_tokens_total" }
        - { role: iteration_tokens, name: "vllm:iteration_tokens_total" }
        - { role: prefill_seconds, name: "vllm:request_prefill_time_seconds" }
        - { role: running, name: "vllm:num_requests_running" }
        - { role: waiting, name: "vllm:num_requests_waiting" }
        - { role: kv_usage, name: "vllm:kv_cache_usage_perc" }
        - { role: ready_prefill, name: "vllm:num_requests_waiting", labels: ["engine=1"] }
        - { role: process_start, name: process_start_time_seconds }
"#;

#[test]
fn a_custom_dialect_reads_what_the_engine_itself_reads() {
    let custom = dialect(VLLM);
    assert!(custom.counts_replicas());
    let vllm = Dialect::Known(by_name("vllm").unwrap());
    let model = ModelId::from("meta-llama/Llama-3.1-8B-Instruct");
    for page in ["vllm-0.11.0-scrape2", "vllm-0.10.2-multiapi-dp2-scrape2"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/engines/vllm/{page}.prom"));
        let body = std::fs::read(path).unwrap();
        let sample = |dialect: &Dialect| -> Arc<Sample> {
            let scraped = lower(&body, None, Some(dialect.clone()), false).unwrap();
            assert_eq!(scraped.engine, dialect.name());
            scraped.reading.of_model(&model)
        };
        let (ours, theirs) = (sample(&custom), sample(&vllm));
        for signal in [Signal::Ttft, Signal::Itl, Signal::PromptTokens, Signal::OutputTokens] {
            assert_eq!(ours.histograms[&signal], theirs.histograms[&signal], "{page}");
        }
        for tally in [Tally::Finished, Tally::Aborted, Tally::GeneratedTokens, Tally::Iterations] {
            assert_eq!(ours.tallies.get(&tally), theirs.tallies.get(&tally), "{page} {tally:?}");
        }
        for tally in [Tally::IterationTokens, Tally::PrefillSeconds] {
            assert_eq!(ours.tallies[&tally], theirs.tallies[&tally], "{page} {tally:?}: the sum");
        }
        for gauge in [Gauge::Running, Gauge::Waiting, Gauge::KvUsage] {
            assert_eq!(ours.gauges[&gauge], theirs.gauges[&gauge], "{page}");
        }
        assert_eq!((ours.itl_basis, ours.process_start), (ItlBasis::PerEvent, theirs.process_start));
        let ready = (page.contains("dp2")).then_some(Replicas(1));
        assert_eq!(ours.workers.get(&Role::Prefill).copied(), ready, "only the series with that label");
    }
}

#[test]
fn repeated_ranks_of_a_custom_dialect_are_read_once() {
    let engine = "    engine: custom\n    custom: { model_label: model, repeated_labels: [tp], metrics: [{ role: running, name: busy }, \
                  { role: finished, name: done }, { role: ready_decode, name: fleet }, { role: ttft, name: t }, { role: itl, name: i }, \
                  { role: prompt_tokens, name: p }, { role: output_tokens, name: o }] }\n";
    let page = "busy{model=\"m\",tp=\"1\"} 9\nbusy{model=\"m\",tp=\"0\"} 3\nbusy{model=\"m\",tp=\"0\",dp=\"1\"} 4\ndone_total{tp=\"0\"} 5\nfleet 2\n";
    let reading = lower(page.as_bytes(), None, Some(dialect(engine)), false).unwrap().reading;
    let sample = reading.of_model(&ModelId::from("m"));
    assert_eq!(sample.gauges, Few::from([(Gauge::Running, 7.0)]));
    assert_eq!(sample.tallies[&Tally::Finished].values().sum::<f64>(), 5.0);
    assert_eq!(sample.workers, Few::from([(Role::Decode, Replicas(2))]));
    assert!(reading.missing.contains(&"ttft") && !reading.missing.contains(&"finished"));
}

#[test]
fn the_effective_configuration_gives_the_dialect_back() {
    let loaded = load(VLLM).unwrap();
    let effective = loaded.effective.clone();
    let draft = config::read(Inputs { file: Some(SourceText { path: "e.yaml".into(), text: effective }), ..Inputs::default() });
    let files: BTreeMap<_, _> = draft.files().iter().map(|path| (path.clone(), Ok(PROFILE.to_owned()))).collect();
    let again = draft.finish(&files).unwrap_or_else(|problems| panic!("{:?}", told(&problems)));
    assert_eq!(again.config.models[0].engine, loaded.config.models[0].engine);
    assert_ne!(load("").unwrap().config.hash, loaded.config.hash);
}

#[test]
fn a_custom_dialect_that_cannot_be_is_named() {
    let refused = |engine: &str| told(&load(engine).expect_err("it has a mistake"));
    let has = |engine: &str, words: &str| {
        let found = refused(engine);
        assert!(found.iter().any(|problem| problem.contains(words)), "{found:?}");
    };
    has("    engine: custom\n", "engine custom needs models[0].custom.metrics");
    has("    custom: { metrics: [{ role: ttft, name: a }] }\n", "write engine: custom");
    has("    engine: custom\n    custom: { metrics: [{ role: tfft, name: a }] }\n", "did you mean ttft?");
    has("    engine: custom\n    custom: { metrics: [{ role: ttft }] }\n", "models[0].custom.metrics[0].name: required");
    has("    engine: custom\n    custom: { metrics: [{ role: ttft, name: a, labels: [b] }] }\n", "expected LABEL=VALUE, got \"b\"");
    has(
        "    engine: custom\n    custom: { metrics: [{ role: running, name: a }] }\n",
        "custom servers do not say how many replicas there are",
    );
    has("    engine: sglan\n", "did you mean sglang?");
}
