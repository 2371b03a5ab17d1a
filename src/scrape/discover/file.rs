//! What do Prometheus' target files say? JSON or YAML, one file or all that match a name with a `*`.
//!
//! A file is read when it has changed and been left alone for a moment, and its list counts only if the file was the same before and after.
//! JSON that is cut short is never a list. YAML may be, so that a writer that pauses for long inside a line break can show a part: write
//! beside the file and rename. A file that cannot be read or is wrong keeps its last list, whatever other files say. So does a file that is
//! gone, if it was named; of several that a `*` matched, one that is gone takes its targets with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::sieve::{Found, Group, MOST_TARGETS, Sieve, places, twin};
use super::{LARGEST_LIST, Looked};
use crate::config::TargetConfig;
use crate::files;
use crate::scrape::access::Mark;
use crate::units::TargetId;

/// How long a changed file must have been the same before it is read.
const SETTLED: Duration = Duration::from_millis(100);

/// All files of a pattern.
#[derive(Debug)]
pub(super) struct Files {
    pattern: PathBuf,
    known: Arc<Mutex<BTreeMap<PathBuf, Known>>>,
}

/// A file as it was last read.
#[derive(Debug, Default)]
struct Known {
    mark: Option<Mark>,
    targets: Vec<TargetConfig>,
    problem: Option<String>,
    note: Option<String>,
}

impl Files {
    pub(super) fn new(pattern: PathBuf) -> Self {
        Self { pattern, known: Arc::default() }
    }

    pub(super) async fn look(&self, sieve: &Arc<Sieve>) -> Result<Looked, String> {
        let mut known = Arc::clone(&self.known).lock_owned().await;
        let (pattern, sieve) = (self.pattern.clone(), Arc::clone(sieve));
        // The lock goes with the thread: a volume that hangs holds one of them.
        let looking = tokio::task::spawn_blocking(move || look(&pattern, &mut known, &sieve));
        looking.await.map_err(|error| format!("reading the files ended unexpectedly: {error}"))?
    }
}

fn look(pattern: &Path, known: &mut BTreeMap<PathBuf, Known>, sieve: &Sieve) -> Result<Looked, String> {
    let files = matching(pattern)?;
    known.retain(|file, _| files.contains(file));
    for file in files {
        refresh(&file, known.entry(file.clone()).or_default(), sieve);
    }
    let mut note = known.values().find_map(|file| file.note.clone());
    let mut targets: BTreeMap<&TargetId, &TargetConfig> = BTreeMap::new();
    for target in known.values().flat_map(|file| &file.targets) {
        let twin = twin(targets.entry(&target.target).or_insert(target), target);
        note = note.or(twin);
    }
    if targets.len() > MOST_TARGETS {
        return Err(format!("expected at most {MOST_TARGETS} targets in all files of {}, got {}", pattern.display(), targets.len()));
    }
    let problem = known.iter().find_map(|(file, known)| Some(format!("{}: {}", file.display(), known.problem.as_ref()?)));
    Ok(Looked { targets: targets.into_values().cloned().collect(), replicas: None, problem, note })
}

fn refresh(file: &Path, known: &mut Known, sieve: &Sieve) {
    let mark = Mark::of(file);
    if mark.is_some() && mark == known.mark {
        return;
    }
    let result = (|| {
        let mark = mark.ok_or("expected a file, found none")?;
        std::thread::sleep(SETTLED);
        let changing = "the file is being written";
        if Mark::of(file).as_ref() != Some(&mark) {
            return Err(changing.to_owned());
        }
        let bytes = files::read(file, LARGEST_LIST as u64).map_err(|error| error.to_string())?;
        if Mark::of(file).as_ref() != Some(&mark) {
            return Err(changing.to_owned());
        }
        let groups = parse(file, &bytes)?;
        Ok((mark, sieve.sift(places(groups).map(|place| with_file(place, file)))?))
    })();
    match result {
        Ok((mark, Looked { targets, note, .. })) => *known = Known { mark: Some(mark), targets, problem: None, note },
        // Without a mark it is read again at the next look.
        Err(problem) => {
            *known = Known { mark: None, problem: Some(problem), targets: std::mem::take(&mut known.targets), note: known.note.take() };
        }
    }
}

fn with_file(mut place: Found, file: &Path) -> Found {
    place.labels.insert("__meta_filepath".to_owned(), file.to_string_lossy().into_owned());
    place
}

fn parse(file: &Path, bytes: &[u8]) -> Result<Vec<Group>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "expected text in UTF-8".to_owned())?;
    let expected = "expected a list of { targets: [HOST:PORT], labels: {} }";
    // The message of a reader may repeat the text, in which a label may be a secret: the place says enough.
    if file.extension().is_some_and(|ending| ending == "json") {
        let refused = |error: serde_json::Error| format!("{expected}; line {}, column {}", error.line(), error.column());
        serde_json::from_str(text).map_err(refused)
    } else if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        // Not yet written, or cut; an empty list is written `[]`.
        Err(format!("{expected}, got nothing"))
    } else {
        let place = |error: &serde_saphyr::Error| {
            error.location().map_or(String::new(), |at| format!("; line {}, column {}", at.line(), at.column()))
        };
        serde_saphyr::from_str(text).map_err(|error| format!("{expected}{}", place(&error)))
    }
}

/// The files of a pattern. A `*` stands in the last part only.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>, String> {
    let name = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((start, end)) = name.split_once('*') else { return Ok(vec![pattern.to_owned()]) };
    let folder = pattern.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{} cannot be read: {error}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("{} cannot be read: {error}", folder.display()))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end) {
            found.push(path);
        }
    }
    // An empty list is written `[]`; that no file is there is more often a volume that is not mounted.
    if found.is_empty() { Err(format!("no file matches {}", pattern.display())) } else { Ok(found) }
}
