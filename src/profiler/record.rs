//! What has been measured so far, and for which question? The record of a run: all trials, and the settings that they hold for.
//!
//! It is written beside the output after every trial, so that an interruption at any moment loses one trial at most, and it is read by the
//! next run. Trials under other settings, or of another engine version, are not mixed in: such a record is refused with what differs.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contact::{Endpoint, Identity};
use super::plan::{Cell, Pace};
use super::window::{Seen, middle};
use crate::units::{Seconds, Tokens, TokensPerSecond};

/// What is measured. Two runs with equal settings measure the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Key {
    /// The server, without credentials.
    pub url: String,
    /// The model.
    pub model: String,
    /// The interface, where one was asked for.
    pub endpoint: Option<Endpoint>,
    /// Lengths of prompts.
    pub isl: Vec<u32>,
    /// Mean contexts.
    pub context_length: Vec<u32>,
    /// Occupancies.
    pub kv_usage: Vec<f64>,
    /// Tokens that the KV cache holds.
    pub max_kv_tokens: u32,
    /// Trials of each prompt length.
    pub prefill_repeats: u32,
    /// Trials of each cell.
    pub decode_repeats: u32,
    /// Tokens of the window.
    pub decode_osl: u32,
    /// GPUs of the prefill replica.
    pub prefill_engine_num_gpu: u32,
    /// GPUs of the decode replica.
    pub decode_engine_num_gpu: u32,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What for.
    pub settings: Key,
    /// On which server.
    pub identity: Identity,
    /// When it began.
    pub started: String,
    /// How fast the server is, for the estimate of the time left.
    pub pace: Pace,
    /// The prompt curve, one entry for each length.
    pub prompts: Vec<Point<u32, PromptTrial>>,
    /// The generation surface, one entry for each cell.
    pub cells: Vec<Point<Cell, BatchTrial>>,
    /// The smallest batch that turned out to be more than the server runs at once.
    #[serde(default)]
    pub too_many_streams: Option<u32>,
}

/// Trials at one place of the curve or of the surface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point<At, Trial> {
    /// Where.
    pub at: At,
    /// What was measured.
    pub trials: Vec<Trial>,
    /// Why it cannot be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

/// One prompt alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptTrial {
    /// From the request to the first token.
    pub ttft: Seconds,
}

/// One batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchTrial {
    /// Tokens of each answer.
    pub answer: u32,
    /// Streams that ran at once.
    pub reached: u32,
    /// Time between tokens.
    pub itl: Seconds,
    /// All streams together.
    pub throughput: TokensPerSecond,
    /// Length of the window in which all ran.
    pub window: Seconds,
    /// Tokens of each stream in it.
    pub window_tokens: Tokens,
    /// Mean context in its middle.
    pub context: Tokens,
}

impl BatchTrial {
    /// Of a batch that had a window.
    pub fn new(answer: u32, seen: &Seen) -> Option<Self> {
        let steady = seen.steady?;
        Some(Self {
            answer,
            reached: seen.reached,
            itl: steady.itl,
            throughput: steady.throughput,
            window: steady.span,
            window_tokens: steady.tokens_each,
            context: steady.context,
        })
    }
}

impl<At, Trial> Point<At, Trial> {
    fn new(at: At) -> Self {
        Self { at, trials: Vec::new(), not_measured: None }
    }

    /// Whether nothing is left to do.
    pub fn is_settled(&self, repeats: u32) -> bool {
        self.not_measured.is_some() || self.trials.len() >= repeats as usize
    }

    /// Trials that count: all, or none where the point cannot be measured.
    pub fn measured(&self) -> &[Trial] {
        if self.not_measured.is_some() { &[] } else { &self.trials }
    }

    /// The middle of what the trials say.
    pub fn median(&self, value: impl Fn(&Trial) -> f64) -> Option<f64> {
        middle(self.measured().iter().map(value).collect())
    }

    /// How far the trials are apart, as a share of their middle.
    pub fn spread(&self, value: impl Fn(&Trial) -> f64) -> Option<f64> {
        let values: Vec<f64> = self.measured().iter().map(value).collect();
        let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)));
        Some((high - low) / middle(values)?)
    }
}

impl Record {
    /// Nothing measured yet.
    pub fn new(settings: Key, identity: Identity, started: String) -> Self {
        let cells = super::plan::cells(&settings.context_length, &settings.kv_usage, settings.max_kv_tokens);
        Self {
            prompts: settings.isl.iter().copied().map(Point::new).collect(),
            cells: cells.into_iter().map(Point::new).collect(),
            too_many_streams: None,
            pace: Pace::default(),
            settings,
            identity,
            started,
        }
    }

    /// What keeps these trials from being gone on with: each setting that differs, with both values.
    pub fn unlike(&self, settings: &Key, identity: &Identity) -> Vec<String> {
        let values = |key: &Key| match serde_json::to_value(key) {
            Ok(Value::Object(values)) => values,
            _ => serde_json::Map::new(),
        };
        let now = values(settings);
        let differ = values(&self.settings).into_iter().filter_map(|(name, before)| {
            let now = now.get(&name).unwrap_or(&Value::Null);
            (*now != before).then(|| format!("--{name} was {}, is {}", shown(&before), shown(now)))
        });
        let version = |identity: &Identity| identity.engine_version.clone().unwrap_or_else(|| "unknown".to_owned());
        let (before, now) = (version(&self.identity), version(identity));
        differ.chain((before != now).then(|| format!("the engine's version was {before}, is {now}"))).collect()
    }

    /// Trials that were made, or can be left out, and trials in all.
    pub fn progress(&self) -> (usize, usize) {
        let Key { prefill_repeats, decode_repeats, .. } = self.settings;
        let prompts = self.prompts.iter().map(|point| settled(point, prefill_repeats));
        let cells = self.cells.iter().map(|cell| settled(cell, decode_repeats));
        let all = self.prompts.len() * prefill_repeats as usize + self.cells.len() * decode_repeats as usize;
        (prompts.chain(cells).sum(), all)
    }

    /// Time that the trials left will take, by what is known of the server.
    pub fn time_left(&self) -> Seconds {
        let Key { prefill_repeats, decode_repeats, decode_osl, max_kv_tokens, .. } = self.settings;
        let left = |done: usize, repeats: u32| f64::from(repeats) - done as f64;
        // A length that has no trial yet is warmed up as well.
        let prompts = self.prompts.iter().filter(|point| !point.is_settled(prefill_repeats)).map(|point| {
            let warm_up = if point.trials.is_empty() { 1.0 } else { 0.0 };
            (left(point.trials.len(), prefill_repeats) + warm_up) * self.pace.prompt(point.at).get()
        });
        let cells = self.cells.iter().filter(|cell| !cell.is_settled(decode_repeats)).map(|cell| {
            let window = cell.at.window(decode_osl, max_kv_tokens);
            let pace = Pace { per_token: self.spacing_near(cell.at.kv_usage).unwrap_or(self.pace.per_token), ..self.pace };
            left(cell.trials.len(), decode_repeats) * pace.batch(&cell.at, window).get()
        });
        Seconds(prompts.chain(cells).sum())
    }

    /// The spacing at the measured occupancy that is nearest.
    fn spacing_near(&self, kv_usage: f64) -> Option<Seconds> {
        let measured = self.cells.iter().filter_map(|cell| Some(((cell.at.kv_usage - kv_usage).abs(), cell.trials.last()?.itl)));
        measured.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, itl)| itl)
    }

    /// The prompts that were measured, by their lengths.
    pub fn prompt_times(&self) -> Vec<(u32, Seconds)> {
        self.prompts.iter().filter_map(|point| Some((point.at, point.trials.last()?.ttft))).collect()
    }
}

fn settled<At, Trial>(point: &Point<At, Trial>, repeats: u32) -> usize {
    if point.not_measured.is_some() { repeats as usize } else { point.trials.len() }
}

/// As it is written on the command line.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        Value::String(text) => text.clone(),
        Value::Null => "not given".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn key() -> Key {
        Key {
            url: "http://h".to_owned(),
            model: "m".to_owned(),
            endpoint: None,
            isl: vec![100, 200],
            context_length: vec![1000],
            kv_usage: vec![0.1, 0.5],
            max_kv_tokens: 100_000,
            prefill_repeats: 3,
            decode_repeats: 2,
            decode_osl: 64,
            prefill_engine_num_gpu: 1,
            decode_engine_num_gpu: 1,
        }
    }

    #[test]
    fn other_settings_and_another_engine_are_named() {
        let identity = |version: &str| Identity { engine_version: Some(version.to_owned()), ..Identity::default() };
        let record = Record::new(key(), identity("1"), String::new());
        assert_eq!(record.unlike(&key(), &identity("1")), Vec::<String>::new());
        let other = Key { isl: vec![100], model: "n".to_owned(), endpoint: Some(Endpoint::Chat), ..key() };
        let expected = ["--endpoint was not given, is chat", "--isl was 100,200, is 100", "--model was m, is n"];
        let found = record.unlike(&other, &identity("2"));
        assert!(expected.iter().all(|line| found.contains(&(*line).to_owned())), "{found:?}");
        assert!(found.contains(&"the engine's version was 1, is 2".to_owned()), "{found:?}");
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn progress_and_time_left_count_trials() {
        let mut record = Record::new(key(), Identity::default(), String::new());
        assert_eq!(record.progress(), (0, 2 * 3 + 2 * 2));
        let whole = record.time_left().get();
        record.prompts[0].trials.push(PromptTrial { ttft: Seconds(0.1) });
        record.cells[1].not_measured = Some("too many".to_owned());
        assert_eq!(record.progress(), (3, 10));
        assert!(record.time_left().get() < whole);
        record.prompts.clear();
        record.cells.clear();
        assert_eq!(record.time_left().get(), 0.0);
    }

    #[test]
    fn medians_and_spreads_leave_out_what_cannot_be_measured() {
        let mut point = Point { at: 1, trials: vec![1.0, 4.0, 2.0], not_measured: None };
        assert_eq!((point.median(|value| *value), point.spread(|value| *value)), (Some(2.0), Some(1.5)));
        point.not_measured = Some("refused".to_owned());
        assert_eq!((point.median(|value| *value), point.spread(|value| *value)), (None, None));
    }
}
