//! When did a file change? A look at every file once a second.
//!
//! Looking is dull and always works: it follows the symbolic links by which Kubernetes swaps a mounted ConfigMap, sees an editor's rename, a
//! file that appears later, and a network volume; it needs no descriptors and has no queue that can overflow. It costs a few system
//! calls a second.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot, watch};

use crate::server::ReloadRequest;

/// Time between looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Files of a folder that are looked at: more than one of which every file counts may have, and few enough for once a second.
const MOST_FILES: usize = 2000;

/// The watched files as they were at one moment.
pub type Marks = BTreeMap<PathBuf, Mark>;

/// What tells one state of a file from another; `None` where there is no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    file: Option<Found>,
    /// Of a folder: what is in it by its name, so that a file that appears is noticed, and a change of one that was refused.
    entries: BTreeMap<OsString, Option<Found>>,
}

/// Length, time of change and number of a file.
type Found = (u64, Option<SystemTime>, u64);

impl Mark {
    fn of(path: &Path) -> Self {
        let metadata = std::fs::metadata(path).ok();
        let folder = metadata.as_ref().is_some_and(std::fs::Metadata::is_dir);
        let listed = folder.then(|| std::fs::read_dir(path)).into_iter().flatten().flatten().flatten().take(MOST_FILES);
        let entries = listed.map(|entry| (entry.file_name(), std::fs::metadata(entry.path()).ok().map(found))).collect();
        Self { file: metadata.map(found), entries }
    }
}

fn found(metadata: std::fs::Metadata) -> Found {
    (metadata.len(), metadata.modified().ok(), identity(&metadata))
}

#[cfg(unix)]
fn identity(found: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

#[cfg(not(unix))]
fn identity(_found: &std::fs::Metadata) -> u64 {
    0
}

/// Asks for a reload after a change, once the files have been the same for one more look: a half-written file is not read.
///
/// `read` holds the files as they were before they were last read, whoever asked for that: a change while they were read is a change.
pub async fn watch(mut read: watch::Receiver<Marks>, reload: mpsc::Sender<ReloadRequest>) {
    let mut applied = read.borrow_and_update().clone();
    let mut last = applied.clone();
    loop {
        tokio::time::sleep(PERIOD).await;
        if read.has_changed().unwrap_or(false) {
            applied = read.borrow_and_update().clone();
        }
        // A volume that hangs must not hold a thread that others need.
        let files: Vec<PathBuf> = applied.keys().cloned().collect();
        let Ok(now) = tokio::task::spawn_blocking(move || look(&files)).await else { return };
        let settled = now == last;
        last = now;
        if last == applied || !settled {
            continue;
        }
        applied.clone_from(&last);
        let (answer, _result) = oneshot::channel();
        if reload.send(answer).await.is_err() {
            return;
        }
    }
}

/// The files as a reading that began at `began` saw them. What was changed since then may be older or newer than what was read: it is taken for
/// unread, and read once more.
pub fn look_after_reading<'a>(files: impl IntoIterator<Item = &'a PathBuf>, began: SystemTime) -> Marks {
    let is_newer = |found: &Found| found.1.is_some_and(|changed| changed >= began);
    let unread = Mark { file: None, entries: BTreeMap::new() };
    let mut marks = look(files);
    let changed = marks.values_mut().filter(|mark| mark.file.iter().chain(mark.entries.values().flatten()).any(is_newer));
    changed.for_each(|mark| mark.clone_from(&unread));
    marks
}

/// The files as they are now.
pub fn look<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Marks {
    files.into_iter().map(|file| (file.clone(), Mark::of(file))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_while_it_was_read_counts_as_unread() {
        let folder = tempfile::tempdir().unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let written = |name: &str, changed: SystemTime| {
            let path = folder.path().join(name);
            std::fs::File::create(&path).unwrap().set_modified(changed).unwrap();
            path
        };
        let files = [written("before", at(99)), written("meanwhile", at(100)), folder.path().join("missing")];
        let (seen, now) = (look_after_reading(&files, at(100)), look(&files));
        assert_eq!(seen[&files[0]], now[&files[0]]);
        assert_ne!(seen[&files[1]], now[&files[1]]);
        assert_eq!(seen[&files[2]], now[&files[2]]);
        let inside = folder.path().to_path_buf();
        assert_ne!(look_after_reading([&inside], at(100))[&inside], look([&inside])[&inside]);
        assert_eq!(look_after_reading([&inside], SystemTime::now() + Duration::from_secs(60))[&inside], look([&inside])[&inside]);
    }
}
