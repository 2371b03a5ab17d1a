//! Where is the record kept, and where does the profile go? Files that are the old or the new ones, never half of one. I/O.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::ProfileError;
use super::record::Record;
use crate::files;

/// Largest record that is read: thousands of cells are some megabytes.
const LARGEST: u64 = 64 << 20;

/// The profile's file, and the record's beside it.
#[derive(Clone, Debug)]
pub struct Store {
    output: PathBuf,
    partial: PathBuf,
}

impl Store {
    /// For a profile that will be written there.
    pub fn new(output: &Path) -> Result<Self, ProfileError> {
        let Some(name) = output.file_name() else {
            return Err(ProfileError::Usage(format!("--output {}: expected a file", output.display())));
        };
        if output.is_dir() {
            return Err(ProfileError::Usage(format!("--output {}: expected a file, got a directory", output.display())));
        }
        let mut name = name.to_owned();
        name.push(".partial");
        Ok(Self { output: output.to_owned(), partial: output.with_file_name(name) })
    }

    /// Where the record is.
    pub fn partial(&self) -> &Path {
        &self.partial
    }

    /// The record of an interrupted run, if there is one.
    pub fn load(&self) -> Result<Option<Record>, ProfileError> {
        let unusable = |error: String| {
            let file = self.partial.display();
            ProfileError::Usage(format!("{file}: expected the record of an interrupted run: {error}. Remove it to begin anew"))
        };
        match files::read(&self.partial, LARGEST) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unusable(error.to_string())),
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| unusable(error.to_string())),
        }
    }

    /// Keeps the record.
    pub fn save(&self, record: &Record) -> Result<(), ProfileError> {
        let failed = |cause| ProfileError::Write { file: self.partial.clone(), cause };
        let text = serde_json::to_string(record).map_err(|error| failed(error.into()))?;
        replace(&self.partial, &text).map_err(failed)
    }

    /// Writes the profile; the record is no longer needed.
    pub fn finish(&self, profile: &str) -> Result<(), ProfileError> {
        replace(&self.output, profile).map_err(|cause| ProfileError::Write { file: self.output.clone(), cause })?;
        self.forget();
        Ok(())
    }

    /// Begins anew.
    pub fn forget(&self) {
        // What cannot be removed is told by the next run.
        let _left = fs::remove_file(&self.partial);
    }
}

fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    // A link stays a link: what it leads to is replaced.
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let draft = target.with_file_name(name);
    let written = (|| {
        let mut open = File::create(&draft)?;
        open.write_all(text.as_bytes())?;
        open.sync_all()?;
        fs::rename(&draft, &target)
    })();
    written.inspect_err(|_| drop(fs::remove_file(&draft)))
}
