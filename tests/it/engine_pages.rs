//! Is every recorded page read into the right roles? One folder of pages for each engine, with what is expected of them beside.
//!
//! `tests/fixtures/engines/NAME/` holds pages (`*.prom`), what each says (`expected.json`, rewritten by `UPDATE_REFERENCES=1`: read the
//! difference), and, where the workload behind two pages is known, what it did between them (`truth.json`, written by nobody but the workload).
//! A new engine needs a folder and nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use inference_planner_exporter::engines::{Dialect, ENGINES, Engine, Reading};
use inference_planner_exporter::exposition::{Format, Wanted, read};
use inference_planner_exporter::planner::input::*;
use inference_planner_exporter::planner::window::{Delta, Stamped, TargetWindow};
use inference_planner_exporter::scrape::lower::lower;
use inference_planner_exporter::units::{ModelId, Role};
use serde::{Deserialize, Serialize};

fn folder(engine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engines").join(engine)
}

/// The pages of a folder by name, in order.
fn pages(engine: &str) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder(engine)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "prom") {
            found.insert(path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap());
        }
    }
    assert!(!found.is_empty(), "{engine} has no pages");
    found
}

fn reading(engine: &Engine, name: &str, body: &[u8]) -> Reading {
    let page = read(body, Format::Text, &Wanted::new(engine.family_names())).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    (engine.read)(&page)
}

/// A histogram or counter of one model in short: its series added up.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Series {
    series: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sum: Option<f64>,
    count: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    buckets: Option<usize>,
}

/// A page in short, model by model; the empty name is for series without a model label.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Expected {
    models: BTreeMap<String, Model>,
    missing: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Model {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process_start: Option<f64>,
    itl_basis: ItlBasis,
    signals: BTreeMap<Signal, Series>,
    tallies: BTreeMap<Tally, Series>,
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    gauges: Few<Gauge, f64>,
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    fleet: Few<Gauge, f64>,
    /// A router's view of its prefill servers.
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    prefill: Few<Gauge, f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    workers: BTreeMap<String, u32>,
}

impl Model {
    fn of(sample: &Sample) -> Self {
        let histogram = |series: &Few<SeriesKey, Histogram>| Series {
            series: series.len(),
            sum: Some(series.values().map(|histogram| histogram.sum).sum()),
            count: series.values().map(|histogram| histogram.count).sum(),
            buckets: series.values().next().map(|histogram| histogram.buckets.len()),
        };
        let counter =
            |series: &Few<SeriesKey, f64>| Series { series: series.len(), sum: None, count: series.values().sum(), buckets: None };
        Self {
            process_start: sample.process_start,
            itl_basis: sample.itl_basis,
            signals: sample.histograms.iter().map(|(signal, series)| (*signal, histogram(series))).collect(),
            tallies: sample.tallies.iter().map(|(tally, series)| (*tally, counter(series))).collect(),
            gauges: sample.gauges.clone(),
            fleet: sample.fleet.clone(),
            prefill: sample.prefill.clone(),
            role: sample.role,
            workers: sample.workers.iter().map(|(role, count)| (role.as_str().to_owned(), count.0)).collect(),
        }
    }
}

#[test]
fn every_page_is_read_into_the_roles_that_stand_beside_it() {
    for engine in ENGINES {
        let found: BTreeMap<String, Expected> = pages(engine.name)
            .iter()
            .map(|(name, body)| {
                let reading = reading(engine, name, body);
                let models = reading.models.iter().map(|(name, sample)| (name.clone().unwrap_or_default(), Model::of(sample)));
                (name.clone(), Expected { models: models.collect(), missing: reading.missing.iter().map(ToString::to_string).collect() })
            })
            .collect();
        let path = folder(engine.name).join("expected.json");
        if std::env::var_os("UPDATE_REFERENCES").is_some() {
            std::fs::write(&path, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let expected: BTreeMap<String, Expected> = serde_json::from_str(&text).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{}: pages", engine.name);
        for (name, page) in &found {
            assert_eq!(page, &expected[name], "{}: {name}", engine.name);
        }
    }
}

#[test]
fn a_dialect_says_which_gauges_its_pages_may_have() {
    for engine in ENGINES {
        let readings = pages(engine.name).into_iter().map(|(name, body)| reading(engine, &name, &body)).collect::<Vec<_>>();
        let samples = readings.iter().flat_map(|reading| reading.models.values());
        let shown: BTreeSet<Gauge> =
            samples.flat_map(|sample| [&sample.gauges, &sample.fleet, &sample.prefill]).flat_map(|gauges| gauges.keys()).copied().collect();
        let said: BTreeSet<Gauge> = engine.gauges.iter().copied().collect();
        assert!(shown.is_subset(&said), "{}: shown {shown:?}, said {said:?}", engine.name);
    }
}

#[test]
fn gauges_that_no_server_can_have_are_not_told() {
    let engine = ENGINES.iter().find(|engine| engine.name == "vllm").unwrap();
    let gauges = |usage: &str, running: &str| {
        let page =
            format!("vllm:kv_cache_usage_perc{{model_name=\"m\"}} {usage}\nvllm:num_requests_running{{model_name=\"m\"}} {running}\n");
        let reading = reading(engine, "made up", page.as_bytes());
        let sample = reading.of_model(&ModelId::from("m"));
        (sample.gauges.get(&Gauge::KvUsage).copied(), sample.gauges.get(&Gauge::Running).copied(), reading.missing.contains(&"kv_usage"))
    };
    assert_eq!(gauges("1.000001", "5"), (Some(1.000001), Some(5.0), false));
    assert_eq!(gauges("42", "1e300"), (None, None, true), "a percentage is no share");
    assert_eq!(gauges("NaN", "-3"), (None, None, true));
}

const TABLE_HEAD: &str = "\
# Which engine gives which measurement

This page is made from the recorded pages in `tests/fixtures/engines`; do not edit it. `UPDATE_REFERENCES=1 cargo test --test it engine_pages`
writes it anew.

- `yes`: on every recorded page of the engine. `3 of 4`: on so many of them: it depends on the version, on settings, or on which of its servers was
  asked; some pages are excerpts or of servers without load.
- `fleet`: only as a view of the servers behind a router, which is not the target's own.
- Behind `itl` stands what one observation of it is: the mean of a request, a token, an output event, or a whole request's duration over its tokens, which is no ITL.

What none of a pool's targets gives is named by `inference_planner_target_missing_roles` and on the status page; the files of this folder say what such a server cannot know.

";

/// What the pages of an engine have of a role, in a word or two.
fn cell(role: &str, pages: &BTreeMap<String, Expected>) -> String {
    let having: Vec<&Expected> = pages.values().filter(|page| !page.missing.iter().any(|missing| missing == role)).collect();
    let models = || having.iter().flat_map(|page| page.models.values());
    let gauge = Gauge::ALL.into_iter().find(|gauge| gauge.as_str() == role);
    let of_fleet = gauge.is_some_and(|gauge| {
        models().any(|model| model.fleet.contains_key(&gauge)) && !models().any(|model| model.gauges.contains_key(&gauge))
    });
    let mut text = match having.len() {
        0 => return String::new(),
        all if all == pages.len() => "yes".to_owned(),
        some => format!("{some} of {}", pages.len()),
    };
    if of_fleet {
        text += ", fleet";
    }
    if role == Signal::Itl.as_str() {
        let bases: BTreeSet<&str> =
            models().filter(|model| model.signals.contains_key(&Signal::Itl)).map(|model| model.itl_basis.as_str()).collect();
        text += &format!(", {}", bases.into_iter().collect::<Vec<_>>().join(" or "));
    }
    text
}

#[test]
fn the_table_of_what_engines_give_is_up_to_date() {
    let roles = Reading::new(BTreeMap::new()).missing;
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut table = TABLE_HEAD.to_owned();
    table += &row(std::iter::once("engine".to_owned()).chain(roles.iter().map(|role| format!("`{role}`"))).collect());
    table += &row(vec!["---".to_owned(); roles.len() + 1]);
    for engine in ENGINES {
        let text = std::fs::read_to_string(folder(engine.name).join("expected.json")).unwrap();
        let pages: BTreeMap<String, Expected> = serde_json::from_str(&text).unwrap();
        table += &row(std::iter::once(format!("[{0}]({0}.rs)", engine.name)).chain(roles.iter().map(|role| cell(role, &pages))).collect());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engines/README.md");
    if std::env::var_os("UPDATE_REFERENCES").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == table,
        "src/engines/README.md is out of date; rewrite it with UPDATE_REFERENCES=1 cargo test --test it engine_pages"
    );
}

#[test]
fn every_page_is_recognised_as_its_folders_engine() {
    for engine in ENGINES {
        for (name, body) in pages(engine.name) {
            match lower(&body, None, None, false) {
                Ok(scraped) => {
                    assert_eq!(scraped.engine, engine.name, "{name}");
                    assert_eq!(scraped.reading, reading(engine, &name, &body), "{name}: as if the engine had been named");
                }
                Err(failure) => panic!("{}: {name}: {}", engine.name, failure.message),
            }
        }
    }
}

#[test]
fn an_engine_asks_for_every_family_that_it_reads() {
    for engine in ENGINES {
        for (name, body) in pages(engine.name) {
            let page = read(&body, Format::Text, &Wanted::all()).unwrap();
            assert_eq!((engine.read)(&page), reading(engine, &name, &body), "{}: {name}", engine.name);
        }
    }
}

#[test]
fn the_lines_that_a_recording_keeps_say_the_same() {
    for engine in ENGINES {
        for (name, body) in pages(engine.name) {
            let dialect = || Some(Dialect::Known(engine));
            let kept = lower(&body, None, dialect(), true).unwrap().page.unwrap();
            assert!(kept.len() <= body.len() + 4096, "{name}");
            let again = lower(kept.as_bytes(), None, dialect(), false).unwrap();
            assert_eq!(again.reading, reading(engine, &name, &body), "{}: {name}", engine.name);
        }
    }
}

#[test]
fn every_value_of_a_page_is_finite_and_not_negative() {
    for engine in ENGINES {
        for (name, body) in pages(engine.name) {
            for sample in reading(engine, &name, &body).models.values() {
                let histograms =
                    sample.histograms.values().flat_map(|series| series.values()).flat_map(|histogram| [histogram.sum, histogram.count]);
                let tallies = sample.tallies.values().flat_map(|series| series.values()).copied();
                let gauges = sample.gauges.values().chain(sample.fleet.values()).copied();
                assert!(histograms.chain(tallies).chain(gauges).all(|value| value.is_finite() && value >= 0.0), "{}: {name}", engine.name);
                let usage = sample.gauges.get(&Gauge::KvUsage).or(sample.fleet.get(&Gauge::KvUsage));
                assert!(usage.is_none_or(|usage| *usage <= 1.0), "{}: {name}", engine.name);
            }
        }
    }
}

/// What a workload did between two pages, as far as such pages can know it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Truth {
    /// The earlier page; without one, since the server's start.
    from: Option<String>,
    to: String,
    model: String,
    requests: Option<f64>,
    finished: Option<f64>,
    prompt_tokens: Option<f64>,
    output_tokens: Option<f64>,
    ttft: Option<f64>,
    itl: Option<f64>,
    request_duration: Option<f64>,
    #[serde(default)]
    tallies: BTreeMap<Tally, f64>,
    /// Of the later page.
    #[serde(default)]
    gauges: BTreeMap<Gauge, f64>,
}

impl Truth {
    /// What the pages say otherwise.
    fn differences(&self, delta: &Delta, last: &Sample) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |agrees: bool, role: &str, ours: Option<f64>, truth: f64| {
            if !agrees {
                found.push(format!("{}: {role} {ours:?}, was {truth}", self.to));
            }
        };
        let mean = |sum: f64, count: f64| (count > 0.0).then(|| sum / count);
        let sum = |signal| delta.histograms.get(&signal).map(|growth| growth.sum);
        let mean_of = |signal| delta.histograms.get(&signal).and_then(|growth| mean(growth.sum, growth.count));
        let tally = |tally| delta.tallies.get(&tally).copied();
        let itl = match (delta.itl_basis, tally(Tally::GeneratedTokens), sum(Signal::Itl)) {
            (ItlBasis::PerEvent, Some(tokens), Some(sum)) => mean(sum, tokens - delta.count(Signal::Ttft)),
            _ => mean_of(Signal::Itl),
        };
        for (role, ours, truth) in [
            ("requests", Some(delta.completed()), self.requests),
            ("finished", tally(Tally::Finished), self.finished),
            ("prompt tokens", sum(Signal::PromptTokens), self.prompt_tokens),
            ("output tokens", sum(Signal::OutputTokens), self.output_tokens),
        ] {
            if let Some(truth) = truth {
                note(ours == Some(truth), role, ours, truth);
            }
        }
        for (name, truth) in &self.tallies {
            note(tally(*name) == Some(*truth), name.as_str(), tally(*name), *truth);
        }
        for (role, ours, truth) in [
            ("TTFT", mean_of(Signal::Ttft), self.ttft),
            ("ITL", itl, self.itl),
            ("duration", mean_of(Signal::RequestDuration), self.request_duration),
        ] {
            if let Some(truth) = truth {
                note(ours.is_some_and(|ours| (ours / truth - 1.0).abs() < 0.01), role, ours, truth);
            }
        }
        for (name, truth) in &self.gauges {
            let ours = last.gauges.get(name).or(last.fleet.get(name)).copied();
            // Usage may be rounded to two decimals.
            let close = |ours: f64| if *name == Gauge::KvUsage { (ours - truth).abs() <= 0.005 } else { ours == *truth };
            note(ours.is_some_and(close), name.as_str(), ours, *truth);
        }
        found
    }
}

#[test]
fn pairs_of_pages_give_what_their_workload_did() {
    let (mut checked, mut found) = (0, Vec::new());
    for engine in ENGINES {
        let Ok(text) = std::fs::read_to_string(folder(engine.name).join("truth.json")) else { continue };
        let pages = pages(engine.name);
        let truths: Vec<Truth> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", engine.name));
        for truth in truths {
            let sample = |name: &str| reading(engine, name, &pages[name]).of_model(&ModelId::from(truth.model.as_str()));
            let first = truth.from.as_deref().map(sample).unwrap_or_default();
            let last = sample(&truth.to);
            let stamped =
                |seconds, sample: &Sample| Some(Stamped { at: Duration::from_secs(seconds), sample: std::sync::Arc::new(sample.clone()) });
            let window = TargetWindow { first: stamped(0, &first), last: stamped(15, &last), ..TargetWindow::default() };
            found.extend(truth.differences(&window.delta().unwrap(), &last));
            checked += 1;
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(checked > 20, "{checked}");
}
