//! How does the log of decisions survive kills, restarts and full disks? JSON lines in gzip members, one member for each write.
//!
//! A file may be cut anywhere: all members before the cut can be read. The first write of a process removes what a crash left of the last
//! member, since nothing behind it could be read otherwise.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::utc;

/// Largest file, bytes. A day that has more gets several.
const LARGEST: u64 = 64 << 20;
/// Largest sum of all files, bytes.
const MOST_BYTES: u64 = 1_000_000_000;
/// Oldest file that is kept.
const OLDEST: Duration = Duration::from_secs(30 * 24 * 3600);

pub(super) struct Log {
    dir: PathBuf,
    /// The file whose end is known to be whole.
    whole: Option<PathBuf>,
    largest: u64,
    most_bytes: u64,
}

/// A file of the log, as its name says: `decisions-DAY.jsonl.gz`, `decisions-DAY.2.jsonl.gz` and so on.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    day: String,
    number: u32,
}

impl Part {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_prefix("decisions-")?.strip_suffix(".jsonl.gz")?;
        match name.split_once('.') {
            None => Some(Self { day: name.to_owned(), number: 1 }),
            Some((day, number)) => Some(Self { day: day.to_owned(), number: number.parse().ok()? }),
        }
    }

    fn name(&self) -> String {
        let number = if self.number > 1 { format!(".{}", self.number) } else { String::new() };
        format!("decisions-{}{number}.jsonl.gz", self.day)
    }
}

impl Log {
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), whole: None, largest: LARGEST, most_bytes: MOST_BYTES }
    }

    /// Appends whole lines to the file of the day, and removes what is too old or too much.
    pub fn append(&mut self, lines: &str, now: Duration) -> io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(lines.as_bytes())?;
        let member = encoder.finish()?;
        let path = self.dir.join(self.part(utc(now, "%Y-%m-%d"), member.len() as u64)?.name());
        let known_whole = self.whole.take().is_some_and(|whole| whole == path);
        write(&path, &member, known_whole)?;
        self.whole = Some(path);
        self.trim(utc(now.saturating_sub(OLDEST), "%Y-%m-%d"))
    }

    /// Where so many bytes of a day go.
    fn part(&self, day: String, bytes: u64) -> io::Result<Part> {
        let last = self.parts()?.into_iter().rfind(|(part, _, _)| part.day == day);
        Ok(match last {
            None => Part { day, number: 1 },
            Some((part, _, size)) if size + bytes <= self.largest => part,
            Some((part, _, _)) => Part { number: part.number.saturating_add(1), ..part },
        })
    }

    /// All files with their sizes, oldest first.
    fn parts(&self) -> io::Result<Vec<(Part, PathBuf, u64)>> {
        let mut parts = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if let Some(part) = Part::of(&path) {
                let bytes = fs::metadata(&path)?.len();
                parts.push((part, path, bytes));
            }
        }
        parts.sort();
        Ok(parts)
    }

    fn trim(&self, oldest_day: String) -> io::Result<()> {
        let mut parts = self.parts()?;
        // The file that is written to stays.
        parts.pop();
        let mut total: u64 = parts.iter().map(|(_, _, bytes)| bytes).sum();
        for (part, path, bytes) in parts {
            if total <= self.most_bytes && part.day >= oldest_day {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }
}

fn write(path: &Path, member: &[u8], known_whole: bool) -> io::Result<()> {
    let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
    // Two processes overlap in a rolling update; neither may cut off what the other is writing. Dropping the file unlocks it.
    file.lock()?;
    if !known_whole {
        mend(&file)?;
    }
    let before = file.metadata()?.len();
    (&file).write_all(member).inspect_err(|_| {
        // Should that fail as well, the next write mends it.
        let _ = file.set_len(before);
    })
}

/// Cuts off a last member that is not whole.
fn mend(file: &File) -> io::Result<()> {
    let mut reader = BufReader::new(file);
    let mut whole = 0;
    while !reader.fill_buf()?.is_empty() {
        match io::copy(&mut GzDecoder::new(&mut reader), &mut io::sink()) {
            Ok(_) => whole = reader.stream_position()?,
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::InvalidInput) => {
                return file.set_len(whole);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::MultiGzDecoder;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_795_996_800);
    const FIRST: &str = "decisions-2026-11-30.jsonl.gz";

    fn lines(path: &Path) -> Vec<String> {
        let mut text = String::new();
        MultiGzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_restart_appends_and_each_day_has_its_file() {
        let folder = tempfile::tempdir().unwrap();
        Log::new(folder.path()).append("1\n2\n", NOW).unwrap();
        let mut restarted = Log::new(folder.path());
        restarted.append("3\n", NOW).unwrap();
        restarted.append("4\n", NOW + Duration::from_secs(24 * 3600)).unwrap();
        assert_eq!(lines(&folder.path().join(FIRST)), ["1", "2", "3"]);
        assert_eq!(lines(&folder.path().join("decisions-2026-12-01.jsonl.gz")), ["4"]);
    }

    #[test]
    fn what_a_crash_left_of_a_member_goes_and_all_before_and_after_can_be_read() {
        for cut in 1..20 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(FIRST);
            let mut log = Log::new(folder.path());
            log.append("whole\n", NOW).unwrap();
            let whole = fs::metadata(&path).unwrap().len();
            log.append("cut\n", NOW).unwrap();
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            Log::new(folder.path()).append("after\n", NOW).unwrap();
            assert_eq!(lines(&path), ["whole", "after"], "{cut} bytes of {} lost", bytes.len() as u64 - whole);
        }
    }

    #[test]
    fn a_file_that_is_no_log_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FIRST), "no gzip").unwrap();
        Log::new(folder.path()).append("1\n", NOW).unwrap();
        assert_eq!(lines(&folder.path().join(FIRST)), ["1"]);
    }

    #[test]
    fn the_oldest_files_go_beyond_the_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log { largest: 60, most_bytes: 100, ..Log::new(folder.path()) };
        for at in 0..12 {
            log.append(&format!("{at}\n"), NOW).unwrap();
        }
        let names = names(folder.path());
        assert!(names.contains(&"decisions-2026-11-30.6.jsonl.gz".to_owned()) && names.len() <= 6, "{names:?}");
        assert!(!names.contains(&FIRST.to_owned()), "{names:?}");
        let mut log = Log::new(folder.path());
        log.append("new\n", NOW + OLDEST + Duration::from_secs(2 * 24 * 3600)).unwrap();
        assert_eq!(self::names(folder.path()), ["decisions-2027-01-01.jsonl.gz"]);
    }
}
