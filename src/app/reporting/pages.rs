//! Where does a report go? Into a file named after its moment; a reader never meets half of one, and the oldest are removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::utc;

/// Reports that are kept.
const KEPT: usize = 30;

/// Writes a report as a whole, and removes what is too old.
pub(super) fn write(dir: &Path, at: Duration, html: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let name = format!("report-{}.html", utc(at, "%Y-%m-%dT%H-%M-%SZ"));
    let draft = dir.join(format!(".{name}.new"));
    let written = fill(&draft, html).and_then(|()| fs::rename(&draft, dir.join(name)));
    if written.is_err() {
        // The first error is the one to tell; a disk that is full should not stay so because of us.
        let _left = fs::remove_file(&draft);
    }
    written.and_then(|()| trim(dir))
}

fn fill(draft: &Path, html: &str) -> io::Result<()> {
    let mut file = File::create(draft)?;
    file.write_all(html.as_bytes())?;
    file.sync_all()
}

fn trim(dir: &Path) -> io::Result<()> {
    let mut reports: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with(".report-") && name.ends_with(".new") {
            // A killed process left half a report behind.
            fs::remove_file(&path)?;
        } else if name.starts_with("report-") && name.ends_with(".html") {
            reports.push(path);
        }
    }
    // Names sort by time.
    reports.sort();
    let superfluous = reports.len().saturating_sub(KEPT);
    reports.iter().take(superfluous).try_for_each(fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_reports_stay_and_nothing_of_others_goes() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("made/when/needed");
        for hour in 0..35 {
            write(&dir, Duration::from_secs(1_795_953_600 + hour * 3600), &format!("<p>{hour}")).unwrap();
        }
        fs::write(dir.join("notes.html"), "mine").unwrap();
        fs::write(dir.join(".report-half.html.new"), "half").unwrap();
        write(&dir, Duration::from_secs(1_795_953_600 + 35 * 3600), "<p>35").unwrap();
        let mut names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!((names.len(), names[0].as_str()), (KEPT + 1, "notes.html"));
        assert_eq!(names[1], "report-2026-11-29T18-00-00Z.html");
        assert_eq!(fs::read_to_string(dir.join(names.last().unwrap())).unwrap(), "<p>35");
    }
}
