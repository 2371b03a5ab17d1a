//! What survives a restart? The state file.
//!
//! One JSON document: `{ format, version, written, checksum, payload }`. The checksum is the SHA-256 of the payload's canonical text (keys
//! sorted, no spaces), so that whitespace may change but nothing else. What the payload is, the caller decides.
//!
//! - Writing is atomic: a new file beside the old one, flushed to the disk, then renamed over it. A kill at any moment leaves the old
//!   state or the new one.
//! - One process writes: whoever holds the lock on `PATH.lock`. Another reads only, and takes over once the first has gone, which is what
//!   happens in a rolling update. The lock file stays; deleting it would let two processes lock two files of one name.
//! - Only the owner may read it and its companions: it says how much traffic there is, and of what.
//! - Reading never fails: what cannot be used is ignored with words for the log, and stays on disk as `PATH.bad` when a new state is saved.
//!
//! All functions block on the disk. Async callers use a blocking thread.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::files;

const FORMAT: &str = "inference-planner-exporter state";
/// Raised when a reader of this version would misunderstand the payload. Added keys do not raise it.
const VERSION: u64 = 1;
/// A thousand pools take about a megabyte; a larger file is not ours or is broken, and is not read into memory.
const LARGEST: u64 = 64 << 20;

/// Permissions of every file that is made: read and written by the owner.
const OWNERS: u32 = 0o600;

/// The state file of this process.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    lock: Mutex<Option<File>>,
    /// Whether the file on disk was found unusable, and is to be kept aside when it is replaced.
    bad: AtomicBool,
}

/// What was found on disk.
#[derive(Clone, Debug, PartialEq)]
pub enum Loaded<T> {
    /// No file: a first start.
    Nothing,
    /// A state that was written completely.
    State(T),
    /// A file that cannot be used, and why, as a warning for the log.
    Ignored(String),
}

/// Why a state was not saved. The file on disk is the old one still.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// Another process writes this file.
    #[error("{} is locked by another process; this one only reads", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// The payload has no JSON form.
    #[error("the state cannot be written as JSON")]
    Encode(#[source] serde_json::Error),
    /// The payload is so large that it would not be read again.
    #[error("the state has {bytes} bytes; expected at most {LARGEST}")]
    TooLarge {
        /// Of the whole document.
        bytes: usize,
    },
    /// The disk refused: full, read-only, missing directory.
    #[error("cannot {action} {}", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    version: u64,
    /// Seconds since the Unix epoch, for people; nothing is decided by it.
    written: u64,
    checksum: String,
    payload: Value,
}

/// What every version of the file has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

impl StateFile {
    /// The state file at `path`, which need not exist. Tries to become its writer.
    pub fn open(path: impl Into<PathBuf>) -> Self {
        let file = Self { path: path.into(), lock: Mutex::new(None), bad: AtomicBool::new(false) };
        if file.become_writer().is_ok() {
            // A process that was killed while writing left this behind. Should it not go away, saving will say so.
            let _ = fs::remove_file(file.beside("tmp"));
        }
        file
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this process may write. Takes over if the process that held the lock has gone.
    pub fn is_writer(&self) -> bool {
        self.become_writer().is_ok()
    }

    /// As [`is_writer`](Self::is_writer), with the reason why not: another process, or the disk.
    pub fn claim(&self) -> Result<(), SaveError> {
        self.become_writer()
    }

    /// What is on disk.
    pub fn load<T: DeserializeOwned>(&self) -> Loaded<T> {
        let found = self.read();
        self.bad.store(found.is_err(), Ordering::Relaxed);
        match found {
            Ok(None) => Loaded::Nothing,
            Ok(Some(payload)) => Loaded::State(payload),
            Err(reason) => Loaded::Ignored(format!("{}: {reason}", self.path.display())),
        }
    }

    /// Replaces what is on disk.
    pub fn save<T: Serialize>(&self, payload: &T) -> Result<(), SaveError> {
        self.become_writer()?;
        let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = encode(written, payload)?;
        let new = self.beside("tmp");
        self.write_new(&new, &text)?;
        self.publish(&new)
    }

    fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, String> {
        match files::read(&self.path, LARGEST) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => decode(&read.map_err(|error| error.to_string())?).map(Some),
        }
    }

    /// Writes the text to a new file and to the disk. The first of the two steps of saving: the state is still the old one.
    fn write_new(&self, new: &Path, text: &[u8]) -> Result<(), SaveError> {
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(disk("remove", new)(error)),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(OWNERS).open(new).map_err(disk("create", new))?;
        fill(file, text).map_err(|error| {
            // A disk that is full should not stay so because of us.
            let _ = fs::remove_file(new);
            disk("write", new)(error)
        })
    }

    /// Puts the new file in the place of the old one. The second step.
    fn publish(&self, new: &Path) -> Result<(), SaveError> {
        // Only files: a directory in this place is somebody's, and replacing it fails below.
        if self.bad.load(Ordering::Relaxed) && self.path.is_file() {
            let aside = self.beside("bad");
            match fs::rename(&self.path, &aside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(disk("rename to", &aside)(error)),
                _ => {}
            }
        }
        fs::rename(new, &self.path).map_err(disk("replace", &self.path))?;
        self.bad.store(false, Ordering::Relaxed);
        let directory = self.directory();
        // The new name is on the disk only when the directory is.
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(disk("flush", directory))
    }

    fn become_writer(&self) -> Result<(), SaveError> {
        let mut held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        let path = self.beside("lock");
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            // A pipe would block for ever.
            return Err(disk("open", &path)(io::Error::other("expected a file, got something else")));
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(OWNERS).open(&path).map_err(disk("open", &path))?;
        match file.try_lock() {
            Ok(()) => *held = Some(file),
            Err(TryLockError::WouldBlock) => return Err(SaveError::Locked { path }),
            Err(TryLockError::Error(error)) => return Err(disk("lock", &path)(error)),
        }
        Ok(())
    }

    /// `PATH.suffix`.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".");
        name.push(suffix);
        name.into()
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

fn fill(mut file: File, text: &[u8]) -> io::Result<()> {
    file.write_all(text)?;
    file.sync_all()
}

fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SaveError {
    move |source| SaveError::Disk { action, path: path.to_owned(), source }
}

fn encode(written: Duration, payload: &impl Serialize) -> Result<Vec<u8>, SaveError> {
    let payload = serde_json::to_value(payload).map_err(SaveError::Encode)?;
    let checksum = checksum(&payload).map_err(SaveError::Encode)?;
    let document = Document { format: FORMAT.to_owned(), version: VERSION, written: written.as_secs(), checksum, payload };
    let text = serde_json::to_vec(&document).map_err(SaveError::Encode)?;
    if text.len() as u64 > LARGEST {
        return Err(SaveError::TooLarge { bytes: text.len() });
    }
    Ok(text)
}

/// The state, or why the text is none.
fn decode<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let head: Head = serde_json::from_slice(text).map_err(|error| format!("it is damaged or not ours: {error}"))?;
    if head.format != FORMAT {
        return Err(format!("its format is `{}`; expected `{FORMAT}`", head.format.chars().take(60).collect::<String>()));
    }
    if head.version != VERSION {
        return Err(format!("its version is {}; expected {VERSION}", head.version));
    }
    let document: Document = serde_json::from_slice(text).map_err(|error| format!("it is damaged: {error}"))?;
    let checksum = checksum(&document.payload).map_err(|error| error.to_string())?;
    if checksum != document.checksum {
        return Err(format!("its checksum is {checksum}; expected {} as written in it", document.checksum));
    }
    serde_json::from_value(document.payload).map_err(|error| format!("its payload is not understood: {error}"))
}

/// SHA-256 of the canonical text, in hexadecimal digits. [`Value`] sorts keys, and floats are written so that they read back as they were.
fn checksum(payload: &Value) -> serde_json::Result<String> {
    let digest = Sha256::digest(serde_json::to_vec(payload)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn a_kill_between_the_steps_leaves_the_old_state_and_no_litter() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("state.json");
        let old = Loaded::State("old".to_owned());
        StateFile::open(&path).save(&"old")?;
        let text = encode(NOW, &"new")?;
        for written in [&text[..0], &text[..text.len() / 2], &text[..]] {
            let killed = StateFile::open(&path);
            killed.write_new(&killed.beside("tmp"), written)?;
            assert!(killed.beside("tmp").exists());
            drop(killed);
            let next = StateFile::open(&path);
            assert_eq!(next.load::<String>(), old);
            assert!(!next.beside("tmp").exists());
        }
        let killed = StateFile::open(&path);
        killed.write_new(&killed.beside("tmp"), &text)?;
        killed.publish(&killed.beside("tmp"))?;
        drop(killed);
        assert_eq!(StateFile::open(&path).load(), Loaded::State("new".to_owned()));
        Ok(())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_value() -> io::Result<()> {
        let full = OpenOptions::new().write(true).open("/dev/full")?;
        assert!(fill(full, b"text").is_err());
        Ok(())
    }

    #[test]
    fn the_checksum_covers_the_meaning_and_not_the_spaces() -> Result<(), Box<dyn std::error::Error>> {
        let payload = std::collections::BTreeMap::from([("b", 0.1 + 0.2), ("a", 1.0)]);
        let text = String::from_utf8(encode(NOW, &payload)?)?;
        let spaced = text.replace(':', " : ").replace(',', ",\n");
        for text in [&text, &spaced] {
            let saved: std::collections::BTreeMap<String, f64> = decode(text.as_bytes())?;
            assert_eq!(saved.get("b").map(|value| value.to_bits()), Some((0.1_f64 + 0.2).to_bits()));
        }
        let forged = text.replace("1.0", "2.0");
        assert_ne!(forged, text);
        assert!(decode::<Value>(forged.as_bytes()).is_err_and(|reason| reason.contains("checksum")));
        Ok(())
    }
}
