//! Raw data of Dynamo's profiler, in all its layouts and with mistakes.

use std::collections::BTreeMap;

use super::*;
use crate::config::profile::parse;

const PREFILL: &str = include_str!("../../../tests/fixtures/dynamo/profile-json/prefill_raw_data.json");
const DECODE: &str = include_str!("../../../tests/fixtures/dynamo/profile-json/decode_raw_data.json");

fn folder(files: &[(&str, Result<&str, &str>)]) -> Option<Result<Envelope, Vec<String>>> {
    let own = |text: &Result<&str, &str>| text.map(ToOwned::to_owned).map_err(ToOwned::to_owned);
    let files: BTreeMap<PathBuf, _> = files.iter().map(|(name, text)| (Path::new("p").join(name), own(text))).collect();
    of_folder(Path::new("p"), &files).map(|read| read.map_err(|problems| problems.iter().map(ToString::to_string).collect()))
}

fn both(prefill: &str, decode: &str) -> Vec<String> {
    folder(&[("prefill_raw_data.json", Ok(prefill)), ("decode_raw_data.json", Ok(decode))]).expect("a folder").expect_err("mistakes")
}

#[test]
fn every_layout_gives_the_same_envelope() {
    let from_json =
        folder(&[("prefill_raw_data.json", Ok(PREFILL)), ("decode_raw_data.json", Ok(DECODE))]).expect("a folder").expect("good");
    let document = from_json.document();
    assert_eq!(document.prefill.isl, [100.0, 800.0, 1600.0, 3000.0, 6000.0]);
    // 59.6 and 60 ms, measured twice.
    assert!((document.prefill.ttft_ms[1] - 59.8).abs() < 1e-9);
    assert_eq!(document.decode.context_length, [1100.0, 4200.0, 8300.0]);
    assert_eq!((document.decode.kv_usage.len(), document.decode.max_kv_tokens), (13, 220_000.0));
    assert_eq!((document.prefill_engine_num_gpu, document.decode_engine_num_gpu), (1, 1));

    let npz = |name: &str, bytes: &[u8]| profile_text(Path::new(name), bytes.to_vec()).expect("an archive");
    let prefill = npz("a.npz", include_bytes!("../../../tests/fixtures/dynamo/profile-npz/selected_prefill_interpolation/raw_data.npz"));
    let decode = npz("b.npz", include_bytes!("../../../tests/fixtures/dynamo/profile-npz/selected_decode_interpolation/raw_data.npz"));
    let from_npz = folder(&[(PREFILL_FILES[0], Ok(&prefill)), (DECODE_FILES[0], Ok(&decode)), (PREFILL_FILES[1], Ok("{}"))]);
    assert_eq!(from_npz.expect("a folder").expect("the archive comes first").document(), document);

    let nested = format!("{{\"prefill\": {PREFILL}, \"decode\": {DECODE}}}");
    let flat = format!("{},{}", PREFILL.trim_end().trim_end_matches('}'), DECODE.trim_start().trim_start_matches('{'));
    for text in [nested, flat] {
        assert_eq!(parse(Path::new("raw.json"), &text).expect("good").document(), document, "{text}");
    }
}

#[test]
fn the_envelope_agrees_with_every_point_that_was_measured_once() {
    use crate::units::{Ratio, Tokens};
    let raw: Value = serde_json::from_str(DECODE).expect("JSON");
    let envelope =
        folder(&[("prefill_raw_data.json", Ok(PREFILL)), ("decode_raw_data.json", Ok(DECODE))]).expect("a folder").expect("good");
    let cell = |name: &str, index: usize| raw[name][index].as_f64().expect("a number");
    for index in 0..raw[DECODE_MARK].as_array().expect("a list").len() {
        let point = envelope.generation(Ratio(cell(DECODE_MARK, index)), Tokens(cell("y_context_length", index)));
        assert!((point.latency.get() * 1000.0 / cell("z_itl", index) - 1.0).abs() < 1e-9, "{index}");
        assert!((point.per_gpu.get() / cell("z_thpt_per_gpu", index) - 1.0).abs() < 1e-9, "{index}");
    }
}

#[test]
fn every_bad_cell_is_told_with_file_array_and_index() {
    assert_eq!(
        both(
            r#"{"prefill_isl": [100, "x", 300], "prefill_ttft": [1, -2, 3], "prefill_thpt_per_gpu": [1, 2]}"#,
            r#"{"x_kv_usage": [0.1, 1.5], "y_context_length": [1000, null], "z_itl": [], "z_thpt_per_gpu": {"a": 1}, "max_kv_tokens": [1, 2]}"#
        ),
        [
            "p/prefill_raw_data.json: prefill_isl[1]: expected a finite number above zero, got \"x\"",
            "p/prefill_raw_data.json: prefill_ttft[1]: expected a finite number above zero, got -2",
            "p/decode_raw_data.json: x_kv_usage[1]: expected a share above 0 and at most 1, got 1.5",
            "p/decode_raw_data.json: y_context_length[1]: expected a finite number above zero, got null",
            "p/decode_raw_data.json: z_itl: expected at least one number, got none",
            "p/decode_raw_data.json: z_thpt_per_gpu: expected a list of numbers, got something else",
            "p/decode_raw_data.json: max_kv_tokens: expected a finite number above zero, or a list of one, got a list",
        ]
    );
    assert_eq!(
        both(
            r#"{"prefill_isl": [100], "prefill_ttft": [1, 2], "prefill_thpt_per_gpu": [1]}"#,
            r#"{"x_kv_usage": [0.1, 0.2], "y_context_length": [1000, 2000], "z_itl": [1, 2], "z_thpt_per_gpu": [1, 2], "max_kv_tokens": 0}"#
        ),
        [
            "p/prefill_raw_data.json: prefill_ttft: expected one value for each prefill_isl (1), got 2",
            "p/decode_raw_data.json: max_kv_tokens: expected a finite number above zero, or a list of one, got 0",
        ]
    );
    let diagonal =
        r#"{"x_kv_usage": [0.1, 0.2], "y_context_length": [1000, 2000], "z_itl": [1, 2], "z_thpt_per_gpu": [1, 2], "max_kv_tokens": 9}"#;
    assert_eq!(
        both(PREFILL, diagonal),
        [
            "p/decode_raw_data.json: y_context_length: expected points at two KV usages of one context at least, got 2 contexts with one each"
        ]
    );
    let nested = format!("{{\"prefill\": {PREFILL}, \"decode\": {{\"x_kv_usage\": []}}}}");
    let told: Vec<String> = parse(Path::new("raw.json"), &nested).expect_err("mistakes").iter().map(ToString::to_string).collect();
    assert_eq!(told[0], "raw.json: decode.x_kv_usage: expected at least one number, got none");
    assert_eq!(told.len(), 5, "{told:?}");
}

#[test]
fn a_folder_with_one_half_or_a_broken_file_says_so() {
    assert!(folder(&[]).is_none());
    assert_eq!(
        folder(&[("prefill_raw_data.json", Ok("[1]"))]).expect("a folder").expect_err("mistakes"),
        [
            "p/prefill_raw_data.json: expected an object with arrays, got something else",
            "p: expected selected_decode_interpolation/raw_data.npz or decode_raw_data.json beside the other half, got neither",
        ]
    );
    let broken = folder(&[("prefill_raw_data.json", Ok("{")), (DECODE_FILES[0], Err("permission denied"))]);
    let told = broken.expect("a folder").expect_err("mistakes");
    assert!(told[0].starts_with("p/prefill_raw_data.json: not readable as JSON: EOF"), "{told:?}");
    assert_eq!(told[1], "p/selected_decode_interpolation/raw_data.npz: cannot be read: permission denied");
}
