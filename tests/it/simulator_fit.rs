//! How far is the simulator's form of an iteration from measured hardware? The errors of the fits to published profiles.
//!
//! The errors are asserted from both sides: a fit that became better without a reason would be as suspicious as one that became worse.

use std::path::Path;

use inference_planner_exporter::planner::model::envelope::Envelope;
use inference_planner_exporter::simulator::costs::Work;
use inference_planner_exporter::simulator::fit::{Fit, FitError, Measurements, fit};
use inference_planner_exporter::simulator::scenario;
use inference_planner_exporter::units::{Ratio, Requests, Seconds, Tokens};

/// The default of vLLM's server on these devices.
const CHUNK: u32 = 8192;

/// The measurements of a recorded sweep with that many GPUs a replica, and the fit to them.
fn sweep(file: &str, gpus: u64) -> (Measurements, Fit) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/profiles").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: serde_json::Value = serde_json::from_str(&text).expect("json");
    let config = file["configs"].as_array().expect("configs").iter().find(|config| config["tp"] == gpus).expect("measured");
    let number = |cell: &serde_json::Value| cell.as_f64().expect("a number");
    let mut measured = Measurements::default();
    for point in config["prefill"].as_array().expect("points") {
        measured.prompt(Tokens(number(&point["isl"])), Seconds(number(&point["ttft_ms"]) / 1000.0), CHUNK);
    }
    for point in config["decode"].as_array().expect("points") {
        let kv_tokens = number(&point["kv_usage"]) * number(&config["max_kv_tokens"]);
        let decoding = Requests(kv_tokens / number(&point["context_length"]));
        measured.decode(decoding, Tokens(kv_tokens), Seconds(number(&point["itl_ms"]) / 1000.0));
    }
    let fit = fit(&measured);
    (measured, fit)
}

/// In percent, so that a table of them can be read.
fn percent(error: FitError) -> [f64; 2] {
    [error.mean, error.max].map(|share: Ratio| (share.get() * 1000.0).round() / 10.0)
}

#[test]
fn the_errors_on_published_sweeps_are_as_reported() {
    let mut found = Vec::new();
    for (file, gpus) in [
        ("dynamo_h200_vllm_llama31_8b_fp8.json", 1),
        ("dynamo_h100_vllm_llama33_70b_fp8.json", 8),
        ("dynamo_h100_vllm_llama33_70b_fp8.json", 4),
        ("dynamo_h100_vllm_llama33_70b_fp8.json", 2),
    ] {
        let (_, fit) = sweep(file, gpus);
        for costs in [fit.prefill, fit.decode, fit.aggregated] {
            let prices = [costs.iteration, costs.prompt_token, costs.decoding, costs.kv_token, costs.prompt_pair];
            assert!(prices.iter().all(|price| price.get().is_finite() && price.get() >= 0.0), "{costs:?}");
            assert!(costs.iteration.get() > 0.0, "{costs:?}");
        }
        found.push([fit.prefill_error, fit.decode_error, fit.aggregated_prefill_error, fit.aggregated_decode_error].map(percent));
    }
    // [mean, max] in percent: prefill, decode, and the same two under one set of prices. The worst cells are the shortest prompt, batches of
    // hundreds of short requests (the H200's scheduler capped them), and one outlier among the prompts of eight H100.
    let expected = [
        [[3.0, 9.1], [6.5, 33.5], [9.5, 65.3], [7.4, 33.0]],
        [[9.1, 48.7], [4.6, 23.9], [12.1, 47.8], [5.9, 24.5]],
        [[1.4, 3.7], [7.2, 32.0], [4.9, 24.2], [7.6, 32.3]],
        [[0.8, 3.1], [9.8, 39.4], [4.3, 22.3], [10.0, 39.3]],
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_unloaded_ttft_is_the_measured_one_within_the_reported_error() {
    for (file, gpus) in [("dynamo_h200_vllm_llama31_8b_fp8.json", 1), ("dynamo_h100_vllm_llama33_70b_fp8.json", 4)] {
        let (measured, fit) = sweep(file, gpus);
        for point in &measured.prompts {
            let off = fit.prefill.of(&point.work).get() / point.took.get() - 1.0;
            assert!(off.abs() <= fit.prefill_error.max.get() + 1e-12, "{point:?}: {off}");
        }
    }
}

#[test]
fn a_profile_of_the_same_form_is_found_again() {
    let profile = scenario::profile();
    let fit = fit(&Measurements::of_profile(&profile, CHUNK));
    assert!(fit.prefill_error.max.get() < 1e-9 && fit.decode_error.max.get() < 1e-4, "{fit:?}");
    let envelope = Envelope::new(profile).expect("legal");
    let found = fit.prefill.of(&Work::prompt(2048, 0, CHUNK)).get();
    assert!((found - envelope.prompt(Tokens(2048.0)).latency.get()).abs() < 1e-9, "{found}");
}
