//! Where does the report go? Into a file that is either the old report or the new one, and never one of the inputs.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::Failure;

/// A file that a report may be written to.
#[derive(Debug)]
pub(in crate::cli) struct Page {
    target: PathBuf,
    /// In the same folder, so that it can be renamed.
    draft: PathBuf,
}

impl Page {
    /// Finds out whether the file can be written, before hours of work depend on it. What was there stays there.
    pub fn of(file: &Path, inputs: &[PathBuf]) -> Result<Self, Failure> {
        let shown = file.display();
        // A link stays a link: what it leads to is replaced.
        let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let refused = |expected: &str| Failure::Usage(format!("--html {shown}: expected {expected}"));
        let Some(name) = target.file_name() else { return Err(refused("a file")) };
        match fs::metadata(&target) {
            Ok(found) if !found.is_file() => return Err(refused("a file, got something else")),
            Ok(found) => {
                let same =
                    |input: &PathBuf| fs::metadata(input).is_ok_and(|input| (input.dev(), input.ino()) == (found.dev(), found.ino()));
                if inputs.iter().any(same) {
                    return Err(refused("another file than those that are read"));
                }
                // The rename would replace what its owner protects.
                OpenOptions::new().write(true).open(&target).with_context(|| format!("write the report {shown}"))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(anyhow::Error::new(error).context(format!("write the report {shown}")).into()),
        }
        let draft = target.with_file_name(format!(".{}.{}.new", name.to_string_lossy(), std::process::id()));
        let page = Self { target, draft };
        page.begin().with_context(|| format!("write the report {shown}"))?;
        page.forget();
        Ok(page)
    }

    /// Replaces the report. Who reads finds the old one or the new one, whole; after an error the old one.
    pub fn write(&self, html: &str) -> anyhow::Result<()> {
        self.replace(html).inspect_err(|_| self.forget()).with_context(|| format!("write the report {}", self.target.display()))
    }

    fn replace(&self, html: &str) -> std::io::Result<()> {
        let mut file = self.begin()?;
        file.write_all(html.as_bytes())?;
        if let Ok(before) = fs::metadata(&self.target) {
            file.set_permissions(before.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&self.draft, &self.target)
    }

    fn begin(&self) -> std::io::Result<File> {
        OpenOptions::new().write(true).create_new(true).open(&self.draft)
    }

    fn forget(&self) {
        // It is nobody's; what cannot be removed is in nobody's way.
        let _left = fs::remove_file(&self.draft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_report_replaces_the_old_one_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.html");
        fs::write(&file, "old").unwrap();
        let page = Page::of(&file, &[]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old", "nothing is written before its time");
        page.write("new").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), names(folder.path())), ("new", vec!["report.html".to_owned()]));
    }

    #[test]
    fn inputs_and_what_is_no_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("config.yaml");
        let link = folder.path().join("link.html");
        fs::write(&input, "x").unwrap();
        std::os::unix::fs::symlink(&input, &link).unwrap();
        for file in [&input, &link, &folder.path().to_owned(), &PathBuf::from("/dev/null"), &folder.path().join("none/report.html")] {
            let refused = Page::of(file, std::slice::from_ref(&input));
            assert!(refused.is_err(), "{}", file.display());
        }
        assert_eq!(fs::read_to_string(&input).unwrap(), "x");
    }
}
