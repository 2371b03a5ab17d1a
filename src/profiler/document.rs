//! What is written? The profile of the seed's form, of points and cells that were measured and nothing else, and where it comes from. Pure.
//!
//! Fields of the planner stand first and as other profilers write them; `provenance` beside them is for people, and readers skip it. The
//! surface must be a full rectangle, so a cell that could not be run costs its row or its column; what was measured in it stays readable in
//! the provenance.

use serde_json::Value;

use super::contact::Endpoint;
use super::plan::{Cell, rectangle};
use super::record::{BatchTrial, Point, Record};
use crate::planner::model::envelope::{DecodeProfile, PrefillProfile, ProfileDocument};

/// The document, and what is not in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// For the planner.
    pub profile: ProfileDocument,
    /// Whole rows and columns that are not claimed, with the reason, in words.
    pub left_out: Vec<String>,
}

/// The profile that these trials give. `None` where the curve or the surface has no point at all.
pub fn profile(record: &Record) -> Option<Measured> {
    let settings = &record.settings;
    let mut left_out = Vec::new();
    let mut prefill = PrefillProfile { isl: Vec::new(), ttft_ms: Vec::new(), thpt_per_gpu: Vec::new() };
    for point in &record.prompts {
        let Some(ttft) = point.median(|trial| trial.ttft.get()) else {
            left_out.push(format!("prompts of {} tokens: {}", point.at, reason(point.not_measured.as_deref())));
            continue;
        };
        prefill.isl.push(f64::from(point.at));
        prefill.ttft_ms.push(round(1000.0 * ttft, 4));
        prefill.thpt_per_gpu.push(round(f64::from(point.at) / ttft / f64::from(settings.prefill_engine_num_gpu), 2));
    }
    let width = settings.kv_usage.len();
    let cell = |row: usize, column: usize| record.cells.get(row * width + column);
    let measured = |row: usize, column: usize| cell(row, column).is_some_and(|cell| !cell.measured().is_empty());
    let (rows, columns) = rectangle(settings.context_length.len(), width, measured);
    left_out.extend(unclaimed(record, &rows, &columns));
    let grid = |value: &dyn Fn(&Cell, &BatchTrial) -> f64, digits: i32| -> Vec<Vec<f64>> {
        let median = |cell: &Point<Cell, BatchTrial>| cell.median(|trial| value(&cell.at, trial));
        let read = |row: usize, column: usize| cell(row, column).and_then(median).map(|value| round(value, digits));
        rows.iter().map(|&row| columns.iter().filter_map(|&column| read(row, column)).collect()).collect()
    };
    let gpus = f64::from(settings.decode_engine_num_gpu);
    let decode = DecodeProfile {
        kv_usage: columns.iter().map(|&column| settings.kv_usage[column]).collect(),
        context_length: rows.iter().map(|&row| f64::from(settings.context_length[row])).collect(),
        itl_ms: grid(&|_, trial| 1000.0 * trial.itl.get(), 4),
        thpt_per_gpu: grid(&|cell, trial| cell.claimed(settings.max_kv_tokens) * trial.throughput.get() / gpus, 2),
        max_kv_tokens: f64::from(settings.max_kv_tokens),
    };
    if prefill.isl.is_empty() || rows.is_empty() || columns.is_empty() {
        return None;
    }
    let (prefill_engine_num_gpu, decode_engine_num_gpu) = (settings.prefill_engine_num_gpu, settings.decode_engine_num_gpu);
    Some(Measured { profile: ProfileDocument { prefill, decode, prefill_engine_num_gpu, decode_engine_num_gpu }, left_out })
}

/// Why points are missing, one line for each point that could not be measured, and one for what went with them.
pub fn unclaimed(record: &Record, rows: &[usize], columns: &[usize]) -> Vec<String> {
    let settings = &record.settings;
    let mut lines: Vec<String> =
        record.cells.iter().filter_map(|cell| cell.not_measured.as_deref().map(|reason| format!("{}: {reason}", place(cell)))).collect();
    let gone_rows = (0..settings.context_length.len()).filter(|row| !rows.contains(row));
    lines.extend(gone_rows.map(|row| format!("context {} is left out: the surface must have no hole", settings.context_length[row])));
    let gone_columns = (0..settings.kv_usage.len()).filter(|column| !columns.contains(column));
    lines
        .extend(gone_columns.map(|column| format!("KV {} is left out: the surface must have no hole", percent(settings.kv_usage[column]))));
    lines
}

/// A cell in words.
pub fn place(cell: &Point<Cell, BatchTrial>) -> String {
    format!("context {}, KV {}", cell.at.context_length, percent(cell.at.kv_usage))
}

fn percent(share: f64) -> String {
    format!("{} %", round(100.0 * share, 2))
}

fn reason(reason: Option<&str>) -> &str {
    reason.unwrap_or("not measured")
}

/// The text of the file: one line for each key, row, and entry of a list.
pub fn text(measured: &Measured, record: &Record, endpoint: Endpoint, finished: &str) -> String {
    let ProfileDocument { prefill, decode, prefill_engine_num_gpu, decode_engine_num_gpu } = &measured.profile;
    let grid = |grid: &[Vec<f64>]| lines(2, &grid.iter().map(|values| row(values)).collect::<Vec<_>>());
    let prompts = [("isl", row(&prefill.isl)), ("ttft_ms", row(&prefill.ttft_ms)), ("thpt_per_gpu", row(&prefill.thpt_per_gpu))];
    let surface = [
        ("kv_usage", row(&decode.kv_usage)),
        ("context_length", row(&decode.context_length)),
        ("itl_ms", grid(&decode.itl_ms)),
        ("thpt_per_gpu", grid(&decode.thpt_per_gpu)),
        ("max_kv_tokens", decode.max_kv_tokens.to_string()),
    ];
    let document = [
        ("prefill", block(1, &prompts)),
        ("decode", block(1, &surface)),
        ("prefill_engine_num_gpu", prefill_engine_num_gpu.to_string()),
        ("decode_engine_num_gpu", decode_engine_num_gpu.to_string()),
        ("provenance", provenance(record, endpoint, finished, &measured.left_out)),
    ];
    block(0, &document) + "\n"
}

fn provenance(record: &Record, endpoint: Endpoint, finished: &str, left_out: &[String]) -> String {
    let settings = &record.settings;
    let prompts = record.prompts.iter().filter(|point| !point.measured().is_empty()).map(|point| {
        entry(&[
            ("isl", point.at.to_string()),
            ("ttft_ms", series(point, 4, |trial| 1000.0 * trial.ttft.get())),
            ("spread", known(point.spread(|trial| trial.ttft.get()), 4)),
        ])
    });
    let cells = record.cells.iter().filter(|cell| !cell.measured().is_empty()).map(|cell| of_cell(cell, settings.max_kv_tokens));
    let quoted = |text: &str| Value::from(text).to_string();
    let said = |text: &Option<String>| text.as_deref().map_or_else(|| "null".to_owned(), quoted);
    block(
        1,
        &[
            ("written_by", quoted(concat!("inference-planner-exporter ", env!("CARGO_PKG_VERSION")))),
            ("started", quoted(&record.started)),
            ("finished", quoted(finished)),
            ("server", quoted(&settings.url)),
            ("endpoint", quoted(endpoint.path())),
            ("model", quoted(&settings.model)),
            ("owned_by", said(&record.identity.owned_by)),
            ("engine", said(&record.identity.engine)),
            ("engine_version", said(&record.identity.engine_version)),
            ("prefill_trials", settings.prefill_repeats.to_string()),
            ("decode_trials", settings.decode_repeats.to_string()),
            ("prompts", lines(2, &prompts.collect::<Vec<_>>())),
            ("cells", lines(2, &cells.collect::<Vec<_>>())),
            ("left_out", lines(2, &left_out.iter().map(|line| quoted(line)).collect::<Vec<_>>())),
        ],
    )
}

fn of_cell(cell: &Point<Cell, BatchTrial>, max_kv_tokens: u32) -> String {
    let held = cell.median(|trial| f64::from(trial.reached) * trial.context.get() / f64::from(max_kv_tokens));
    entry(&[
        ("context_length", cell.at.context_length.to_string()),
        ("kv_usage", cell.at.kv_usage.to_string()),
        ("streams", cell.at.streams.to_string()),
        ("streams_reached", series(cell, 0, |trial| f64::from(trial.reached))),
        ("kv_usage_reached", known(held, 4)),
        ("context_reached", series(cell, 1, |trial| trial.context.get())),
        ("itl_ms", series(cell, 4, |trial| 1000.0 * trial.itl.get())),
        ("tokens_per_second", series(cell, 2, |trial| trial.throughput.get())),
        ("window_seconds", series(cell, 3, |trial| trial.window.get())),
        ("window_tokens_per_stream", series(cell, 1, |trial| trial.window_tokens.get())),
        ("answer_tokens", series(cell, 0, |trial| f64::from(trial.answer))),
        ("spread", known(cell.spread(|trial| trial.itl.get()), 4)),
    ])
}

fn series<At, Trial>(point: &Point<At, Trial>, digits: i32, value: impl Fn(&Trial) -> f64) -> String {
    row(&point.measured().iter().map(|trial| round(value(trial), digits)).collect::<Vec<_>>())
}

fn known(value: Option<f64>, digits: i32) -> String {
    value.map_or_else(|| "null".to_owned(), |value| round(value, digits).to_string())
}

fn round(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

/// Numbers as Rust shows them are JSON: digits, a point where there is a fraction, no exponent. All of them are finite, being measured.
fn row(values: &[f64]) -> String {
    format!("[{}]", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

fn entry(fields: &[(&str, String)]) -> String {
    format!("{{ {} }}", fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect::<Vec<_>>().join(", "))
}

fn block(depth: usize, fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{}\"{name}\": {value}", indent(depth + 1))).collect();
    format!("{{\n{}\n{}}}", fields.join(",\n"), indent(depth))
}

fn lines(depth: usize, items: &[String]) -> String {
    if items.is_empty() {
        return "[]".to_owned();
    }
    let items: Vec<String> = items.iter().map(|item| format!("{}{item}", indent(depth + 1))).collect();
    format!("[\n{}\n{}]", items.join(",\n"), indent(depth))
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

#[cfg(test)]
mod tests {
    use super::super::contact::Identity;
    use super::super::record::{Key, PromptTrial};
    use super::*;
    use crate::planner::model::envelope::Envelope;
    use crate::units::{Seconds, Tokens, TokensPerSecond};

    /// Everything measured: 0.1 ms a prompt token; a spacing of 10 ms and a millisecond more for each stream.
    fn record() -> Record {
        let key = Key {
            url: "http://h:8000".to_owned(),
            model: "m \"quoted\"".to_owned(),
            endpoint: None,
            isl: vec![512, 1024],
            context_length: vec![1000, 2000],
            kv_usage: vec![0.1, 0.5, 0.9],
            max_kv_tokens: 20_000,
            prefill_repeats: 3,
            decode_repeats: 1,
            decode_osl: 64,
            prefill_engine_num_gpu: 2,
            decode_engine_num_gpu: 4,
        };
        let mut record = Record::new(key, Identity::default(), "2026-01-01T00:00:00Z".to_owned());
        for point in &mut record.prompts {
            let alone = f64::from(point.at) * 1e-4;
            point.trials = [0.9, 1.0, 1.2].map(|factor| PromptTrial { ttft: Seconds(alone * factor) }).to_vec();
        }
        for cell in &mut record.cells {
            let streams = f64::from(cell.at.streams);
            let itl = 0.01 + 0.001 * streams;
            cell.trials = vec![BatchTrial {
                answer: 64,
                reached: cell.at.streams,
                itl: Seconds(itl),
                throughput: TokensPerSecond(streams / itl),
                window: Seconds(1.0),
                window_tokens: Tokens(64.0),
                context: Tokens(f64::from(cell.at.context_length)),
            }];
        }
        record
    }

    #[test]
    fn the_text_is_a_profile_with_medians_per_gpu_and_provenance_beside_it() {
        let record = record();
        let measured = profile(&record).unwrap();
        let text = text(&measured, &record, Endpoint::Completions, "2026-01-01T00:10:00Z");
        let read: Value = serde_json::from_str(&text).unwrap();
        let document: ProfileDocument = serde_json::from_value(read.clone()).unwrap();
        assert_eq!(document, measured.profile);
        Envelope::new(document).unwrap();
        assert_eq!(read["prefill"]["ttft_ms"], serde_json::json!([51.2, 102.4]));
        assert_eq!(read["prefill"]["thpt_per_gpu"], serde_json::json!([5000, 5000]));
        assert_eq!(read["decode"]["itl_ms"][0], serde_json::json!([12, 20, 28]));
        // 10 streams at 20 ms on 4 GPUs.
        assert_eq!(read["decode"]["thpt_per_gpu"][0][1], 125);
        assert_eq!(read["provenance"]["model"], "m \"quoted\"");
        assert_eq!(read["provenance"]["prompts"][0]["spread"], 0.3);
        assert_eq!(read["provenance"]["cells"][2]["streams_reached"], serde_json::json!([18]));
        assert!(text.contains("    \"isl\": [512, 1024],\n"), "{text}");
    }

    #[test]
    fn a_cell_that_could_not_be_run_is_not_claimed_and_the_rest_stays() {
        let mut record = record();
        record.cells[2].not_measured = Some("the server runs at most 12 streams at once; this cell needs 18".to_owned());
        record.prompts[1].not_measured = Some("the server refuses: too long".to_owned());
        let Measured { profile, left_out } = profile(&record).unwrap();
        assert_eq!(profile.decode.kv_usage, [0.1, 0.5]);
        assert_eq!(profile.decode.context_length, [1000.0, 2000.0]);
        assert_eq!(profile.prefill.isl, [512.0]);
        let told = left_out.join("\n");
        for words in
            ["prompts of 1024 tokens: the server refuses", "context 1000, KV 90 %: the server runs at most 12", "KV 90 % is left out"]
        {
            assert!(told.contains(words), "{told}");
        }
        for cell in &mut record.cells {
            cell.not_measured = Some("no".to_owned());
        }
        assert_eq!(super::profile(&record), None);
    }
}
