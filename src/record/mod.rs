//! How can a decision be made again elsewhere? Recorded rounds on disk, and reading them back.
//!
//! A recording is a folder of decisions, each a folder of its own, named by its moment and model so that names sort by time:
//!
//! ```text
//! DIR/1795953600-000001-qwen3-8b/
//!   decision.json     version, model, moment, target list with outcomes
//!   config.yaml       the effective configuration; with profile-N.json and queueing-config/ beside it, `plan --config` takes it as it is
//!   policy.json       what the configuration means for the model, its profile included
//!   memory.json       the planner's memory from before
//!   plan.json         the plan
//!   before/*.prom.gz  each target's page at the beginning of its window: the requested families only
//!   after/*.prom.gz   each target's page in the round of the decision
//! ```
//!
//! A decision is written into a hidden folder first and renamed when it is whole, so that a reader never meets half of one. The oldest are
//! removed beyond 1 GB or 24 h.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::planner::input::{FailureKind, Lifecycle, SourceId};
use crate::planner::memory::Memory;
use crate::planner::plan::Plan;
use crate::planner::policy::ModelPolicy;
use crate::units::{ModelId, Moment, TargetId};

/// Largest sum of all recordings, bytes.
const MOST_BYTES: u64 = 1_000_000_000;

/// Oldest recording that is kept.
const OLDEST: Duration = Duration::from_secs(24 * 3600);

/// Largest page that reading back inflates, bytes; scraping has the same bound.
const LARGEST_PAGE: u64 = 64 << 20;

/// The facts of a decision that are not in a file of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// Version of the exporter that decided.
    pub version: String,
    /// Which model.
    pub model: ModelId,
    /// When.
    pub moment: Moment,
    /// The sources with their targets in the round of the decision.
    pub sources: Vec<RecordedSource>,
}

/// A source in the round of the decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedSource {
    /// Which source.
    pub source: SourceId,
    /// Whether its list could not be refreshed.
    pub discovery_failed: bool,
    /// Its targets.
    pub targets: Vec<RecordedTarget>,
    /// What becomes of its replicas, where discovery told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
}

/// A target in the round of the decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedTarget {
    /// Which target.
    pub target: TargetId,
    /// When it answered, on the monotonic clock.
    pub at: Duration,
    /// Its dialect; empty where it did not answer.
    pub engine: String,
    /// Why it did not answer, if so.
    pub failure: Option<FailureKind>,
}

/// A page of the round of a decision, or of a window's beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedPage {
    /// Whose page.
    pub target: TargetId,
    /// The lines of the requested families.
    pub text: String,
}

/// Everything that is written of one decision.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The facts.
    pub record: DecisionRecord,
    /// The effective configuration, YAML.
    pub config: String,
    /// The files that it names, by their paths beside it.
    pub files: BTreeMap<String, String>,
    /// The policy that decided.
    pub policy: ModelPolicy,
    /// The memory from before.
    pub memory: Arc<Memory>,
    /// The plan.
    pub plan: Plan,
    /// Pages at the beginnings of the targets' windows.
    pub before: Vec<RecordedPage>,
    /// Pages of the round.
    pub after: Vec<RecordedPage>,
}

/// Writes recordings into one folder.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    written: u64,
    /// What is there, oldest first, with its size and moment.
    kept: VecDeque<(PathBuf, u64, Duration)>,
    /// The page at the beginning of each target's window, compressed.
    beginnings: BTreeMap<TargetId, (Duration, Vec<u8>)>,
}

impl Recorder {
    /// Opens a folder, which is made if it does not exist.
    pub fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if is_hidden(&path) && path.join("decision.json").is_file() {
                // A killed process left half a decision behind.
                fs::remove_dir_all(path)?;
            }
        }
        let mut kept = VecDeque::new();
        for path in list(&folder)? {
            let (bytes, written) = (size(&path)?, written_at(&path).unwrap_or_default());
            kept.push_back((path, bytes, written));
        }
        Ok(Self { folder, written: 0, kept, beginnings: BTreeMap::new() })
    }

    /// Keeps the page of a target if its window begins with it.
    pub fn keep_beginning(&mut self, target: &TargetId, at: Duration, page: &str) -> io::Result<()> {
        self.beginnings.insert(target.clone(), (at, compress(page)?));
        Ok(())
    }

    /// The kept page of a target whose window began at `at`.
    pub fn beginning(&self, target: &TargetId, at: Duration) -> Option<RecordedPage> {
        let (kept_at, page) = self.beginnings.get(target)?;
        let text = (*kept_at == at).then(|| inflate(page)).and_then(Result::ok)?;
        Some(RecordedPage { target: target.clone(), text })
    }

    /// Forgets targets that are gone.
    pub fn retain(&mut self, known: impl Fn(&TargetId) -> bool) {
        self.beginnings.retain(|target, _| known(target));
    }

    /// Removes the oldest beyond the bounds and writes one decision. What cannot be written whole leaves nothing behind.
    pub fn write(&mut self, recording: &Recording) -> io::Result<PathBuf> {
        self.written += 1;
        let moment = recording.record.moment.wall;
        self.trim(moment)?;
        let name = format!("{:012}-{:06}-{}", moment.as_secs(), self.written, file_name(recording.record.model.as_str()));
        let (unfinished, finished) = (self.folder.join(format!(".{name}")), self.folder.join(name));
        let written = write_files(&unfinished, recording).and_then(|()| fs::rename(&unfinished, &finished));
        if let Err(error) = written {
            // The first error is the one to tell; what could not be made need not be removed.
            let _nothing_there = fs::remove_dir_all(&unfinished);
            return Err(error);
        }
        self.kept.push_back((finished.clone(), size(&finished)?, moment));
        Ok(finished)
    }

    fn trim(&mut self, now: Duration) -> io::Result<()> {
        let mut total: u64 = self.kept.iter().map(|(_, bytes, _)| bytes).sum();
        while let Some((folder, bytes, written)) = self.kept.front() {
            if total <= MOST_BYTES && now.saturating_sub(*written) <= OLDEST {
                break;
            }
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => total -= bytes,
            }
            self.kept.pop_front();
        }
        Ok(())
    }
}

fn write_files(folder: &Path, recording: &Recording) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    write_json(&folder.join("decision.json"), &recording.record)?;
    fs::write(folder.join("config.yaml"), &recording.config)?;
    for (name, text) in &recording.files {
        let path = folder.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    write_json(&folder.join("policy.json"), &recording.policy)?;
    write_json(&folder.join("memory.json"), &*recording.memory)?;
    write_json(&folder.join("plan.json"), &recording.plan)?;
    for (part, pages) in [("before", &recording.before), ("after", &recording.after)] {
        let folder = folder.join(part);
        fs::create_dir(&folder)?;
        for page in pages {
            fs::write(folder.join(page_name(&page.target)), compress(&page.text)?)?;
        }
    }
    Ok(())
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// The decisions below `folder`, oldest first; `folder` itself if it is one.
pub fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if folder.join("decision.json").is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !is_hidden(&path) && path.join("decision.json").is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads one decision back.
pub fn read(folder: &Path) -> io::Result<Recording> {
    let record: DecisionRecord = read_json(&folder.join("decision.json"))?;
    let targets = || record.sources.iter().flat_map(|source| &source.targets).map(|target| &target.target);
    let pages = |part: &str| -> io::Result<Vec<RecordedPage>> {
        let folder = folder.join(part);
        let pages = targets().filter_map(|target| read_page(&folder, target).transpose());
        pages.collect()
    };
    Ok(Recording {
        config: fs::read_to_string(folder.join("config.yaml"))?,
        // The policy holds what they say; only `plan --config` reads them.
        files: BTreeMap::new(),
        policy: read_json(&folder.join("policy.json"))?,
        memory: Arc::new(read_json(&folder.join("memory.json"))?),
        plan: read_json(&folder.join("plan.json"))?,
        before: pages("before")?,
        after: pages("after")?,
        record,
    })
}

/// The page of a target in a folder of pages, compressed or plain; `None` where there is none.
pub fn read_page(folder: &Path, target: &TargetId) -> io::Result<Option<RecordedPage>> {
    let compressed = folder.join(page_name(target));
    let plain = compressed.with_extension("");
    let text = if compressed.is_file() {
        inflate(&fs::read(&compressed)?).map_err(|error| named(&compressed, error))?
    } else if plain.is_file() {
        fs::read_to_string(&plain).map_err(|error| named(&plain, error))?
    } else {
        return Ok(None);
    };
    Ok(Some(RecordedPage { target: target.clone(), text }))
}

/// The name of a target's page in a folder of pages: what is not a letter, digit, dot or dash becomes an underscore.
pub fn page_name(target: &TargetId) -> String {
    format!("{}.prom.gz", file_name(target.as_str()))
}

fn file_name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' }).collect()
}

fn compress(text: &str) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()
}

fn inflate(bytes: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(bytes).take(LARGEST_PAGE).read_to_string(&mut text)?;
    Ok(text)
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec(value).map_err(io::Error::other)?;
    fs::write(path, text)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<T> {
    let bytes = fs::read(path).map_err(|error| named(path, error))?;
    serde_json::from_slice(&bytes).map_err(|error| named(path, io::Error::other(error)))
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += if found.is_dir() { size(&entry.path())? } else { found.len() };
    }
    Ok(bytes)
}

fn written_at(folder: &Path) -> Option<Duration> {
    let name = folder.file_name()?.to_str()?;
    let seconds = name.split('-').next()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pages_are_safe_file_names() {
        assert_eq!(page_name(&TargetId::from("10.0.0.1:8000/../metrics")), "10.0.0.1_8000_.._metrics.prom.gz");
    }

    #[test]
    fn the_oldest_recordings_go_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        for seconds in [1_000_u64, 50_000, 100_000] {
            let path = folder.path().join(format!("{seconds:012}-000001-m"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("decision.json"), "{}").unwrap();
        }
        fs::create_dir(folder.path().join(".half")).unwrap();
        fs::write(folder.path().join(".half/decision.json"), "{}").unwrap();
        let mut recorder = Recorder::open(folder.path().to_owned()).unwrap();
        recorder.trim(Duration::from_secs(100_000)).unwrap();
        let left: Vec<_> = list(folder.path()).unwrap().iter().filter_map(|path| written_at(path)).collect();
        assert_eq!(left, [50_000, 100_000].map(Duration::from_secs));
        assert!(!folder.path().join(".half").exists(), "a leftover of a killed process goes");
    }
}
