//! Does anything that is read from outside make us crash? Real files and pages with some of it changed, doubled, cut off or replaced by what
//! readers dislike; the seed is fixed, so that every run tries the same.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inference_planner_exporter::config::{self, Inputs, Loaded, Problem, SourceText};
use inference_planner_exporter::planner::window::{Stamped, TargetWindow};
use inference_planner_exporter::scrape::lower::lower;
use inference_planner_exporter::simulator::trace::{self, Format, Generation};
use inference_planner_exporter::units::ModelId;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::RngSeed;

const MINIMAL: &str = include_str!("../fixtures/config/minimal.yaml");
const FULL: &str = include_str!("../fixtures/config/full.yaml");
const PROFILE: &str = include_str!("../fixtures/config/profile.json");

/// What readers dislike: ends of ranges, numbers that are none, beginnings without ends.
const WORDS: [&str; 30] = [
    "0",
    "-1",
    "1e308",
    "-1e308",
    "1e-320",
    "NaN",
    "+Inf",
    "-Inf",
    "18446744073709551616",
    "9007199254740993",
    "0x10",
    "1_000",
    "null",
    "true",
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{feff}",
    "\u{85}",
    "&a",
    "*a",
];

/// One change.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    /// From a place on, so many bytes.
    Remove(Index, usize),
    Repeat(Index, usize),
    Insert(Index, &'static str),
    /// A number becomes another.
    Number(Index, &'static str),
    Cut(Index),
}

impl Edit {
    fn any() -> impl Strategy<Value = Self> {
        let place = any::<Index>;
        let word = || prop::sample::select(WORDS.to_vec());
        prop_oneof![
            3 => (place(), any::<u8>()).prop_map(|(place, byte)| Self::Set(place, byte)),
            2 => (place(), 1..200_usize).prop_map(|(place, length)| Self::Remove(place, length)),
            2 => (place(), 1..200_usize).prop_map(|(place, length)| Self::Repeat(place, length)),
            3 => (place(), word()).prop_map(|(place, word)| Self::Insert(place, word)),
            4 => (place(), word()).prop_map(|(place, word)| Self::Number(place, word)),
            1 => place().prop_map(Self::Cut),
        ]
    }

    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let end = |start: usize, length: usize| (start + length).min(bytes.len());
        match self {
            Self::Set(place, byte) => *place.get_mut(bytes) = *byte,
            Self::Remove(place, length) => {
                let start = place.index(bytes.len());
                bytes.drain(start..end(start, *length));
            }
            Self::Repeat(place, length) => {
                let start = place.index(bytes.len());
                let part = bytes[start..end(start, *length)].to_vec();
                bytes.splice(start..start, part);
            }
            Self::Insert(place, word) => {
                let start = place.index(bytes.len());
                bytes.splice(start..start, word.bytes());
            }
            Self::Number(place, word) => {
                let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
                let from = place.index(bytes.len());
                let Some(start) = bytes[from..].iter().position(is_part).map(|found| from + found) else { return };
                let length = bytes[start..].iter().take_while(|byte| is_part(byte)).count();
                bytes.splice(start..start + length, word.bytes());
            }
            Self::Cut(place) => bytes.truncate(place.index(bytes.len())),
        }
    }
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(Edit::any(), 1..6)
}

fn changed(bytes: &[u8], edits: &[Edit]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    edits.iter().for_each(|edit| edit.apply(&mut bytes));
    bytes
}

fn changed_text(text: &str, edits: &[Edit]) -> String {
    String::from_utf8_lossy(&changed(text.as_bytes(), edits)).into_owned()
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The recorded pages of all engines, in order.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for engine in std::fs::read_dir(fixtures().join("engines")).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let inside = std::fs::read_dir(engine).unwrap().map(|entry| entry.unwrap().path());
        found.extend(inside.filter(|path| path.extension().is_some_and(|extension| extension == "prom")));
    }
    found.sort();
    assert!(found.len() > 50, "{}", found.len());
    found
}

fn load(text: String, files: &dyn Fn(&Path) -> Option<String>, entries: &[(&str, String)]) -> Result<Loaded, Vec<Problem>> {
    let draft = config::read(Inputs { file: Some(SourceText { path: "c.yaml".into(), text }), ..Inputs::default() });
    let mut found: BTreeMap<_, _> = draft.files().iter().filter_map(|path| Some((path.clone(), Ok(files(path)?)))).collect();
    if let Some(folder) = draft.folder() {
        found.extend(entries.iter().map(|(name, text)| (folder.join(name), Ok(text.clone()))));
    }
    draft.finish(&found)
}

/// Who is refused learns why, and from what.
fn is_told(result: &Result<Loaded, Vec<Problem>>) -> bool {
    result.as_ref().err().is_none_or(|problems| !problems.is_empty() && problems.iter().all(|problem| !problem.message.is_empty()))
}

fn bounded(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5eed), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(bounded(200))]

    #[test]
    fn a_changed_page_is_refused_or_gives_finite_numbers_and_reads_the_same_again(page in prop::sample::select(pages()), edits in edits()) {
        let good = std::fs::read(page).unwrap();
        let bad = changed(&good, &edits);
        for content_type in [None, Some("application/openmetrics-text; version=1.0.0")] {
            let Ok(scraped) = lower(&bad, content_type, None, true) else { continue };
            let names: Vec<&str> = scraped.reading.model_names().collect();
            for name in names.into_iter().chain(["another"]) {
                let sample = |reading: &inference_planner_exporter::engines::Reading| reading.of_model(&ModelId::from(name));
                let last = sample(&scraped.reading);
                prop_assert!(last.gauges.values().chain(last.fleet.values()).all(|value| value.is_finite()));
                // What the page said before it was changed is the other end of a window.
                let first = lower(&good, None, None, false).map(|scraped| sample(&scraped.reading)).unwrap_or_default();
                let stamped = |seconds, sample| Some(Stamped { at: Duration::from_secs(seconds), sample });
                for (first, last) in [(first.clone(), last.clone()), (last, first)] {
                    let _held = TargetWindow { first: stamped(0, first), last: stamped(15, last), ..TargetWindow::default() }.delta();
                }
            }
            if let Some(kept) = scraped.page.filter(|_| content_type.is_none()) {
                let again = lower(kept.as_bytes(), None, None, false);
                prop_assert_eq!(again.map(|again| format!("{:?}", again.reading)).ok(), Some(format!("{:?}", scraped.reading)));
            }
        }
    }
}

proptest! {
    #![proptest_config(bounded(500))]

    #[test]
    fn a_changed_configuration_is_refused_with_words_or_loads_to_itself(full: bool, edits in edits()) {
        let text = changed_text(if full { FULL } else { MINIMAL }, &edits);
        let files = |path: &Path| path.ends_with("profile.json").then(|| PROFILE.to_owned());
        let loaded = load(text, &files, &[]);
        prop_assert!(is_told(&loaded));
        if let Ok(loaded) = loaded {
            let again = load(loaded.effective.clone(), &files, &[]);
            prop_assert!(again.is_ok() && is_told(&again), "{:?}\n{}", again.err(), loaded.effective);
        }
    }

    #[test]
    fn a_changed_profile_is_refused_with_words_or_used(of in prop::sample::select(vec!["config/profile.json", "profiles/dynamo_h100_vllm_llama33_70b_fp8.json"]), edits in edits()) {
        let profile = changed_text(&std::fs::read_to_string(fixtures().join(of)).unwrap(), &edits);
        let loaded = load(MINIMAL.to_owned(), &|path| path.ends_with("profile.json").then(|| profile.clone()), &[]);
        prop_assert!(is_told(&loaded));
    }

    #[test]
    fn a_changed_entry_of_the_config_map_is_refused_with_words_or_used(first in edits(), second in edits()) {
        const MODEL: &str = "queueing_config: map\nmodels:\n  - name: org/m\n    target_namespace: prod\n    pools: [{ name: m, role: aggregated, max_replicas: 4, targets: { static: ['http://h:1'] } }]\n";
        const DEFAULT: &str = "sloMultiplier: 3.0\ntuningEnabled: true\n";
        const ENTRY: &str = "model_id: org/m\nnamespace: prod\ntargetTTFT: 500.0\ntargetITL: 50.0\n";
        let loaded = load(MODEL.to_owned(), &|_| None, &[("default", changed_text(DEFAULT, &first)), ("m", changed_text(ENTRY, &second))]);
        prop_assert!(is_told(&loaded));
    }
}

/// A few lines of each format.
fn traces() -> Vec<String> {
    let azure = std::fs::read_to_string(fixtures().join("traces/azure2023_conv_200.csv")).unwrap();
    let azure: Vec<&str> = azure.lines().take(40).collect();
    let mooncake = "{\"timestamp\":0,\"input_length\":6758,\"output_length\":500,\"hash_ids\":[0,1,2]}\n{\"timestamp\":3000,\"input_length\":7322,\"output_length\":490,\"hash_ids\":[0,3]}\n";
    let rates = "t,rate_per_s,isl,osl\n0,1.5,1000,100\n60,2,1000,100\n120,0,1,1\n";
    vec![azure.join("\n"), mooncake.to_owned(), rates.to_owned()]
}

proptest! {
    #![proptest_config(bounded(500))]

    #[test]
    fn a_changed_trace_is_refused_with_words_or_in_order(trace in prop::sample::select(traces()), edits in edits()) {
        let text = changed_text(&trace, &edits);
        // A curve with a high rate is legal and would only take time.
        if Format::of(&text) != Some(Format::Rates) {
            match trace::read(&text, &Generation::default()) {
                Ok(trace) => prop_assert!(trace.requests.is_sorted_by_key(|request| request.at)),
                Err(problems) => prop_assert!(problems.iter().all(|problem| !problem.to_string().is_empty())),
            }
        }
        let warm_up = MINIMAL.replacen("profile.json", "profile.json, warmup_trace: trace", 1);
        let loaded = load(warm_up, &|path| Some(if path.ends_with("trace") { text.clone() } else { PROFILE.to_owned() }), &[]);
        prop_assert!(is_told(&loaded));
    }
}
