//! What did Dynamo's profiler measure? Its raw data as our profile document, or every cell that is wrong.
//!
//! | array | content |
//! |---|---|
//! | `prefill_isl`, `prefill_ttft`, `prefill_thpt_per_gpu` | prompt tokens; milliseconds; prompt tokens a second on one GPU |
//! | `x_kv_usage`, `y_context_length` | where a point of the surface was measured: share of the KV cache, mean context in tokens |
//! | `z_itl`, `z_thpt_per_gpu` | milliseconds; generated tokens a second on one GPU |
//! | `max_kv_tokens` | tokens that the KV cache of one replica holds: a number, or a list of one |
//!
//! The data do not say how many GPUs a replica has: one, unless the pool's `gpus_per_replica` says otherwise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::npz;
use super::surface::{self, Point};
use crate::config::problem::Problem;
use crate::config::profile::shown;
use crate::planner::model::envelope::{DecodeProfile, Envelope, PrefillProfile, ProfileDocument};

/// Where a folder has each half; the first that is there counts, as in Dynamo.
const PREFILL_FILES: [&str; 2] = ["selected_prefill_interpolation/raw_data.npz", "prefill_raw_data.json"];
const DECODE_FILES: [&str; 2] = ["selected_decode_interpolation/raw_data.npz", "decode_raw_data.json"];

/// An array of each half, by which it is recognised.
const PREFILL_MARK: &str = "prefill_isl";
const DECODE_MARK: &str = "x_kv_usage";

/// The files of which a folder with Dynamo's profile data has some.
pub fn profile_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    PREFILL_FILES.into_iter().chain(DECODE_FILES).map(|file| folder.join(file))
}

/// One of them as text: JSON as it is, an .npz as the same in JSON.
pub fn profile_text(file: &Path, bytes: Vec<u8>) -> Result<String, String> {
    if file.extension().is_some_and(|ending| ending == "npz") {
        return npz::as_json(&bytes);
    }
    String::from_utf8(bytes).map_err(|_| "expected text, got bytes that are none".to_owned())
}

/// Why a folder without any of them is no profile.
pub fn no_profile() -> String {
    format!("expected a profile.json, or a folder with Dynamo's {} and {}, got a folder without them", PREFILL_FILES[1], DECODE_FILES[1])
}

/// One half of the data: an object with its arrays.
struct Half<'a> {
    file: &'a Path,
    /// In front of an array's name in problems.
    prefix: &'static str,
    arrays: &'a Map<String, Value>,
}

/// Whether a document is Dynamo's raw data rather than a profile.json: both halves in one object, or each in one of its own.
pub(in crate::config) fn is_raw(root: &Value) -> bool {
    let has = |half: &str, mark: &str| root.get(mark).is_some() || root.get(half).is_some_and(|half| half.get(mark).is_some());
    has("prefill", PREFILL_MARK) || has("decode", DECODE_MARK)
}

/// Reads such a document.
pub(in crate::config) fn of_document(file: &Path, root: &Value) -> Result<Envelope, Vec<Problem>> {
    let empty = Map::new();
    let half = |name: &'static str, prefix: &'static str, mark: &str| {
        let own = root.get(name).filter(|half| half.get(mark).is_some()).and_then(Value::as_object);
        match own {
            Some(arrays) => Half { file, prefix, arrays },
            None => Half { file, prefix: "", arrays: root.as_object().unwrap_or(&empty) },
        }
    };
    envelope(&half("prefill", "prefill.", PREFILL_MARK), &half("decode", "decode.", DECODE_MARK))
}

/// Reads a folder, if `files` has some of its files; they hold the text of each, or why there is none.
pub(in crate::config) fn of_folder(
    folder: &Path,
    files: &BTreeMap<PathBuf, Result<String, String>>,
) -> Option<Result<Envelope, Vec<Problem>>> {
    let found = |names: [&str; 2]| names.into_iter().map(|name| folder.join(name)).find(|file| files.contains_key(file));
    let halves = [(PREFILL_FILES, found(PREFILL_FILES)), (DECODE_FILES, found(DECODE_FILES))];
    if halves.iter().all(|(_, file)| file.is_none()) {
        return None;
    }
    let mut problems = Vec::new();
    let mut roots = Vec::new();
    for ([npz, json], file) in halves {
        let Some(file) = file else {
            problems.push(Problem::of_file(folder, format!("expected {npz} or {json} beside the other half, got neither")));
            continue;
        };
        match files.get(&file).map(|text| text.as_ref().map(|text| serde_json::from_str(text))) {
            Some(Ok(Ok(Value::Object(arrays)))) => roots.push((file, arrays)),
            Some(Ok(Ok(_))) => problems.push(Problem::of_file(&file, "expected an object with arrays, got something else".to_owned())),
            Some(Ok(Err(error))) => problems.push(Problem::of_file(&file, format!("not readable as JSON: {error}"))),
            Some(Err(error)) => problems.push(Problem::of_file(&file, format!("cannot be read: {error}"))),
            None => {}
        }
    }
    let [prefill, decode] = &roots[..] else { return Some(Err(problems)) };
    let half = |(file, arrays)| Half { file, prefix: "", arrays };
    Some(envelope(&half((prefill.0.as_path(), &prefill.1)), &half((decode.0.as_path(), &decode.1))))
}

fn envelope(prefill: &Half<'_>, decode: &Half<'_>) -> Result<Envelope, Vec<Problem>> {
    let mut problems = Vec::new();
    let halves = (prompt_curve(prefill, &mut problems), surface(decode, &mut problems));
    let (Some(curve), Some(surface)) = halves else { return Err(problems) };
    let document = ProfileDocument { prefill: curve, decode: surface, prefill_engine_num_gpu: 1, decode_engine_num_gpu: 1 };
    // What the arrays were checked for is what the envelope asks for; if it asks for more, the cell is named as it has it.
    Envelope::new(document).map_err(|broken| {
        broken
            .into_iter()
            .map(|rule| Problem { key: rule.cell, location: None, file: Some(decode.file.to_owned()), message: rule.message })
            .collect()
    })
}

fn prompt_curve(half: &Half<'_>, problems: &mut Vec<Problem>) -> Option<PrefillProfile> {
    let [isl, ttft, throughput] = half.arrays([PREFILL_MARK, "prefill_ttft", "prefill_thpt_per_gpu"], f64::INFINITY, problems)?;
    let points = isl.iter().zip(ttft).zip(throughput).map(|((isl, ttft), throughput)| (*isl, [ttft, throughput])).collect();
    let points = surface::curve(points);
    let series = |value: usize| points.iter().map(|(_, values)| values[value]).collect();
    Some(PrefillProfile { isl: points.iter().map(|(isl, _)| *isl).collect(), ttft_ms: series(0), thpt_per_gpu: series(1) })
}

fn surface(half: &Half<'_>, problems: &mut Vec<Problem>) -> Option<DecodeProfile> {
    // A share of the cache is at most all of it.
    let arrays = half.arrays([DECODE_MARK, "y_context_length", "z_itl", "z_thpt_per_gpu"], 1.0, problems);
    let tokens = half.single("max_kv_tokens", problems);
    let ([usages, contexts, latencies, throughputs], max_kv_tokens) = (arrays?, tokens?);
    let places = usages.into_iter().zip(contexts);
    let values = latencies.into_iter().zip(throughputs);
    let points = places.zip(values).map(|((usage, context), (itl, throughput))| Point { usage, context, values: [itl, throughput] });
    match surface::rectangle(points.collect()) {
        Ok(rectangle) => {
            let [itl_ms, thpt_per_gpu] = rectangle.grids;
            Some(DecodeProfile { kv_usage: rectangle.usages, context_length: rectangle.contexts, itl_ms, thpt_per_gpu, max_kv_tokens })
        }
        Err(message) => {
            half.refuse("y_context_length", message, problems);
            None
        }
    }
}

impl Half<'_> {
    fn refuse(&self, cell: &str, message: String, problems: &mut Vec<Problem>) {
        problems.push(Problem { key: format!("{}{cell}", self.prefix), location: None, file: Some(self.file.to_owned()), message });
    }

    /// Arrays of equal length, positive numbers all, those of the first at most `most`.
    fn arrays<const N: usize>(&self, names: [&str; N], most: f64, problems: &mut Vec<Problem>) -> Option<[Vec<f64>; N]> {
        let first = names[0];
        let series = names.map(|name| self.series(name, if name == first { most } else { f64::INFINITY }, problems));
        let length = series[0].as_ref().map(Vec::len);
        let mut fits = true;
        for (name, series) in names.iter().zip(&series) {
            if let (Some(length), Some(series)) = (length, series)
                && series.len() != length
            {
                self.refuse(name, format!("expected one value for each {first} ({length}), got {}", series.len()), problems);
                fits = false;
            }
        }
        let complete: Vec<Vec<f64>> = series.into_iter().flatten().collect();
        complete.try_into().ok().filter(|_| fits)
    }

    fn series(&self, name: &str, most: f64, problems: &mut Vec<Problem>) -> Option<Vec<f64>> {
        let items = match self.arrays.get(name) {
            Some(Value::Array(items)) if !items.is_empty() => items,
            Some(Value::Array(_)) => {
                self.refuse(name, "expected at least one number, got none".to_owned(), problems);
                return None;
            }
            other => {
                let found = if other.is_some() { "something else" } else { "nothing" };
                self.refuse(name, format!("expected a list of numbers, got {found}"), problems);
                return None;
            }
        };
        let before = problems.len();
        let mut series = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match positive(item).filter(|number| *number <= most) {
                Some(number) => series.push(number),
                None => self.refuse(&format!("{name}[{index}]"), format!("expected {}, got {}", expected(most), shown(item)), problems),
            }
        }
        (problems.len() == before).then_some(series)
    }

    fn single(&self, name: &str, problems: &mut Vec<Problem>) -> Option<f64> {
        let value = match self.arrays.get(name) {
            Some(Value::Array(items)) if items.len() == 1 => items.first(),
            other => other,
        };
        let number = value.and_then(positive);
        if number.is_none() {
            let found = value.map_or_else(|| "nothing".to_owned(), shown);
            self.refuse(name, format!("expected {}, or a list of one, got {found}", expected(f64::INFINITY)), problems);
        }
        // As in profile.json, whole tokens count.
        number.map(f64::trunc)
    }
}

fn expected(most: f64) -> &'static str {
    if most.is_finite() { "a share above 0 and at most 1" } else { "a finite number above zero" }
}

fn positive(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite() && *number > 0.0)
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
