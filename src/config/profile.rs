//! Is this text a capacity profile? profile.json as a checked envelope, or every cell that is wrong.
//!
//! The walk is as tolerant as the profiles that exist require: unknown keys are skipped, a number may stand in quotes, an absent GPU count
//! is 1. It is stricter where the original stumbles: ragged rows, text and nulls are named by their cell.

use std::path::Path;

use serde_json::{Map, Value};

use super::dynamo::profile as raw;
use super::problem::Problem;
use crate::planner::model::envelope::{DecodeProfile, Envelope, PrefillProfile, ProfileDocument, ProfileProblem};

/// Reads a profile, or the raw data of Dynamo's profiler in one document. All problems of the file are reported at once; `file` only names it in them.
pub fn parse(file: &Path, text: &str) -> Result<Envelope, Vec<Problem>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root: Value = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or(&message);
        vec![Problem::syntax(file, Some((error.line(), error.column())), format!("not readable as JSON: {message}"))]
    })?;
    if raw::is_raw(&root) {
        return raw::of_document(file, &root);
    }
    let mut walk = Walk { problems: Vec::new() };
    let document = walk.document(&root);
    // The rules are judged even where cells could not be read: those cells hold a value that breaks no rule of its own.
    let unreadable = walk.problems;
    let cells: Vec<ProfileProblem> = match Envelope::new(document) {
        Ok(envelope) if unreadable.is_empty() => return Ok(envelope),
        Ok(_) => unreadable,
        Err(rules) => {
            let judged = |rule: &ProfileProblem| !unreadable.iter().any(|cell| spoilt(rule, &cell.cell));
            let rules: Vec<ProfileProblem> = rules.into_iter().filter(judged).collect();
            unreadable.into_iter().chain(rules).collect()
        }
    };
    let named =
        |problem: ProfileProblem| Problem { key: problem.cell, location: None, file: Some(file.to_owned()), message: problem.message };
    Err(cells.into_iter().map(named).collect())
}

/// Whether a rule may be broken only because a cell could not be read.
fn spoilt(rule: &ProfileProblem, unreadable: &str) -> bool {
    let inside = rule.cell.strip_prefix(unreadable).is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']));
    // A stand-in on an axis may break the order of the value after it; an axis that is missing has no length to compare with.
    let next = unreadable
        .strip_suffix(']')
        .and_then(|cell| cell.rsplit_once('['))
        .and_then(|(series, index)| Some(format!("{series}[{}]", index.parse::<usize>().ok()? + 1)));
    unreadable.is_empty()
        || inside
        || (next.as_ref() == Some(&rule.cell) && rule.message.contains("the one before"))
        || rule.message.contains(unreadable)
}

struct Walk {
    problems: Vec<ProfileProblem>,
}

/// What an unreadable cell is replaced with, so that the walk can go on.
const STAND_IN: f64 = 1.0;

impl Walk {
    fn document(&mut self, root: &Value) -> ProfileDocument {
        let empty = Map::new();
        let root = self.object("", Some(root), &empty);
        let prefill = self.object("prefill", root.get("prefill"), &empty);
        let decode = self.object("decode", root.get("decode"), &empty);
        ProfileDocument {
            prefill: PrefillProfile {
                isl: self.series("prefill.isl", prefill.get("isl")),
                ttft_ms: self.series("prefill.ttft_ms", prefill.get("ttft_ms")),
                thpt_per_gpu: self.series("prefill.thpt_per_gpu", prefill.get("thpt_per_gpu")),
            },
            decode: DecodeProfile {
                kv_usage: self.series("decode.kv_usage", decode.get("kv_usage")),
                context_length: self.series("decode.context_length", decode.get("context_length")),
                itl_ms: self.grid("decode.itl_ms", decode.get("itl_ms")),
                thpt_per_gpu: self.grid("decode.thpt_per_gpu", decode.get("thpt_per_gpu")),
                // The original cuts the fraction off.
                max_kv_tokens: self.number("decode.max_kv_tokens", decode.get("max_kv_tokens")).trunc(),
            },
            prefill_engine_num_gpu: self.gpus("prefill_engine_num_gpu", root.get("prefill_engine_num_gpu")),
            decode_engine_num_gpu: self.gpus("decode_engine_num_gpu", root.get("decode_engine_num_gpu")),
        }
    }

    fn refuse(&mut self, cell: &str, expected: &str, value: Option<&Value>) {
        let found = value.map_or("nothing".to_owned(), shown);
        self.problems.push(ProfileProblem { cell: cell.to_owned(), message: format!("expected {expected}, got {found}") });
    }

    fn object<'a>(&mut self, cell: &str, value: Option<&'a Value>, empty: &'a Map<String, Value>) -> &'a Map<String, Value> {
        match value {
            Some(Value::Object(object)) => object,
            // Inside an object that is not there nothing else can be said.
            None if self.lacks_parent(cell) => empty,
            value => {
                self.refuse(cell, "an object", value);
                empty
            }
        }
    }

    /// Whether the object around a cell has been refused already.
    fn lacks_parent(&self, cell: &str) -> bool {
        self.problems.iter().any(|problem| problem.cell.is_empty() || cell.starts_with(&format!("{}.", problem.cell)))
    }

    fn list<'a>(&mut self, cell: &str, expected: &str, value: Option<&'a Value>) -> &'a [Value] {
        match value {
            Some(Value::Array(items)) => items,
            None if self.lacks_parent(cell) => &[],
            value => {
                self.refuse(cell, expected, value);
                &[]
            }
        }
    }

    fn series(&mut self, cell: &str, value: Option<&Value>) -> Vec<f64> {
        let items = self.list(cell, "a list of numbers", value);
        items.iter().enumerate().map(|(i, item)| self.number(&format!("{cell}[{i}]"), Some(item))).collect()
    }

    fn grid(&mut self, cell: &str, value: Option<&Value>) -> Vec<Vec<f64>> {
        let rows = self.list(cell, "a list of rows", value);
        rows.iter().enumerate().map(|(i, row)| self.series(&format!("{cell}[{i}]"), Some(row))).collect()
    }

    fn number(&mut self, cell: &str, value: Option<&Value>) -> f64 {
        let number = match value {
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            None if self.lacks_parent(cell) => Some(STAND_IN),
            _ => None,
        };
        number.unwrap_or_else(|| {
            self.refuse(cell, "a number", value);
            STAND_IN
        })
    }

    fn gpus(&mut self, cell: &str, value: Option<&Value>) -> u32 {
        let Some(value) = value else { return 1 };
        let gpus = self.number(cell, Some(value)).trunc();
        if (0.0..=f64::from(u32::MAX)).contains(&gpus) {
            // In range and whole by the line above.
            gpus as u32
        } else {
            self.refuse(cell, "at least 1", Some(value));
            1
        }
    }
}

/// A value, cut where it is long.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.chars().count() > 40 => format!("{:?} and more", text.chars().take(40).collect::<String>()),
        other => other.to_string(),
    }
}
