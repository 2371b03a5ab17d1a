//! How is a mistake in the configuration told? One record for each, so that all of them can be shown at once.

use std::fmt;
use std::path::{Path, PathBuf};

/// One mistake, or one warning: where it is, what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key as a path, `models[0].pools[1].max_replicas`; the variable's or flag's name where the value came from one of those;
    /// empty for the syntax of a file.
    pub key: String,
    /// Line and column, both from 1, where they are known.
    pub location: Option<(usize, usize)>,
    /// The file, `None` for variables and flags.
    pub file: Option<PathBuf>,
    /// The value given, the rule that it breaks, and a hint. Holds no secret.
    pub message: String,
}

impl Problem {
    /// A file as a whole: it cannot be read.
    pub fn of_file(file: &Path, message: String) -> Self {
        Self { key: String::new(), location: None, file: Some(file.to_owned()), message }
    }

    /// A mistake in the syntax of a file.
    pub(super) fn syntax(file: &Path, location: Option<(usize, usize)>, message: String) -> Self {
        Self { key: String::new(), location, file: Some(file.to_owned()), message }
    }

    /// A mistake in a variable or a flag.
    pub(super) fn outside(key: &str, message: String) -> Self {
        Self { key: key.to_owned(), location: None, file: None, message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some((line, column)) = self.location {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Sorts as people read: file by file in the order of `files`, from top to bottom; what has no place comes first.
pub(super) fn sort(problems: &mut [Problem], files: &[PathBuf]) {
    problems.sort_by_key(|problem| {
        let file = problem.file.as_ref().map(|file| files.iter().position(|known| known == file).unwrap_or(usize::MAX));
        (file, problem.location)
    });
}
