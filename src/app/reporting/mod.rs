//! What is written while it runs? A report at each interval and a log of every decision. Neither ever holds up the loop.
//!
//! Files are written on a thread of their own, one at a time. What the loop has to say meanwhile waits in a bounded queue. A disk that refuses
//! costs what was to be written, and one line in the log when that begins and one when it ends.

mod log;
mod pages;

use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::config::ReportConfig;
use crate::export::served::as_served;
use crate::export::snapshot::Snapshot;
use crate::history::LONGEST_SPAN;
use crate::report::plans;
use crate::server::page;
use crate::units::Moment;
use log::Log;

/// Lines that wait for a disk that hangs, bytes. More are dropped.
const MOST_WAITING: usize = 4 << 20;

/// Hands over what is to be written.
pub struct Reporter {
    active: Option<Active>,
    /// Writes that failed and lines that were dropped, under any configuration.
    refused: Arc<AtomicU64>,
}

struct Active {
    config: ReportConfig,
    writer: Arc<Mutex<Writer>>,
    refused: Arc<AtomicU64>,
    busy: Arc<AtomicBool>,
    /// Of decisions that are not handed over yet.
    lines: String,
    /// How many intervals have passed since the Unix epoch.
    intervals: u128,
    /// A report that is not handed over yet.
    due: Option<(Arc<Snapshot>, Moment)>,
}

impl Reporter {
    /// A reporter as it is configured; it does nothing where it is not.
    pub fn new(config: Option<&ReportConfig>, now: Moment) -> Self {
        let refused = Arc::<AtomicU64>::default();
        Self { active: config.map(|config| Active::new(config, now, &refused)), refused }
    }

    /// Puts a new configuration into force.
    pub fn adopt(&mut self, config: Option<&ReportConfig>, now: Moment) {
        if self.active.as_ref().map(|active| &active.config) != config {
            self.active = config.map(|config| Active::new(config, now, &self.refused));
        }
    }

    /// How much could not be written; `None` where nothing is to be.
    pub fn refused(&self) -> Option<u64> {
        self.active.as_ref().map(|_| self.refused.load(Ordering::Relaxed))
    }

    /// Notes the decisions of a round, and writes the report if it is time.
    pub fn note(&mut self, snapshot: &Arc<Snapshot>, now: Moment) {
        let Some(active) = &mut self.active else { return };
        active.note(snapshot, now);
        if let Some(job) = active.next_job(now) {
            tokio::task::spawn_blocking(job);
        }
    }

    /// Writes what is left, within a second.
    pub async fn finish(mut self, now: Moment) {
        let Some(active) = &mut self.active else { return };
        let rest = async {
            while active.busy.load(Ordering::Acquire) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            match active.next_job(now) {
                Some(job) => tokio::task::spawn_blocking(job).await,
                None => Ok(()),
            }
        };
        if tokio::time::timeout(Duration::from_secs(1), rest).await.is_err() {
            tracing::error!("the log of decisions was not written within 1 s");
        }
    }
}

impl Active {
    fn new(config: &ReportConfig, now: Moment, refused: &Arc<AtomicU64>) -> Self {
        let mut active = Self {
            config: config.clone(),
            writer: Arc::new(Mutex::new(Writer::new(&config.dir, refused))),
            refused: Arc::clone(refused),
            busy: Arc::default(),
            lines: String::new(),
            intervals: 0,
            due: None,
        };
        active.intervals = active.intervals_until(now);
        active
    }

    fn intervals_until(&self, now: Moment) -> u128 {
        now.wall.as_nanos() / self.config.interval.as_nanos().max(1)
    }

    fn note(&mut self, snapshot: &Arc<Snapshot>, now: Moment) {
        for model in snapshot.models.iter().filter(|model| model.plan.decided) {
            let line = plans::model(&as_served(snapshot, model, now)).to_string();
            if self.lines.len() + line.len() < MOST_WAITING {
                self.lines.push_str(&line);
                self.lines.push('\n');
            } else {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        let intervals = self.intervals_until(now);
        if intervals > self.intervals {
            self.due = Some((Arc::clone(snapshot), now));
        }
        // Also where the clock was set back: the next line that is crossed counts.
        self.intervals = intervals;
    }

    /// What the writer does next, if it is idle and there is something to do.
    fn next_job(&mut self, now: Moment) -> Option<impl FnOnce() + Send + 'static> {
        if (self.lines.is_empty() && self.due.is_none()) || self.busy.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (lines, due) = (std::mem::take(&mut self.lines), self.due.take());
        let (writer, span) = (Arc::clone(&self.writer), self.config.interval.min(LONGEST_SPAN));
        // Idle again also after a panic, or if the job never runs: the next round may try again.
        let idle = Idle(Arc::clone(&self.busy));
        Some(move || {
            let _until_done = idle;
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            writer.log(&lines, now);
            if let Some((snapshot, at)) = due {
                writer.report(&snapshot, at, span);
            }
        })
    }
}

/// Says that the writer is idle once it goes.
struct Idle(Arc<AtomicBool>);

impl Drop for Idle {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Blocks on the disk.
struct Writer {
    log: Log,
    dir: std::path::PathBuf,
    log_fails: bool,
    report_fails: bool,
    refused: Arc<AtomicU64>,
}

impl Writer {
    fn new(dir: &Path, refused: &Arc<AtomicU64>) -> Self {
        Self { log: Log::new(dir), dir: dir.to_owned(), log_fails: false, report_fails: false, refused: Arc::clone(refused) }
    }

    fn log(&mut self, lines: &str, now: Moment) {
        if !lines.is_empty() {
            let written = self.log.append(lines, now.wall);
            self.refused.fetch_add(u64::from(written.is_err()), Ordering::Relaxed);
            tell("the log of decisions", &self.dir, &mut self.log_fails, written);
        }
    }

    fn report(&mut self, snapshot: &Snapshot, at: Moment, span: Duration) {
        let title = format!("Report until {} UTC", utc(at.wall, "%Y-%m-%d %H:%M"));
        let written = pages::write(&self.dir, at.wall, &page::report(snapshot, at, span, &title));
        self.refused.fetch_add(u64::from(written.is_err()), Ordering::Relaxed);
        tell("the report", &self.dir, &mut self.report_fails, written);
    }
}

/// Tells when writing begins to fail, and when it works again.
fn tell<E: Display>(what: &str, dir: &Path, fails: &mut bool, written: Result<(), E>) {
    let dir = dir.display();
    match (&written, *fails) {
        (Err(error), false) => tracing::error!(%dir, "{what} cannot be written; what is to be written is lost until it can: {error}"),
        (Ok(()), true) => tracing::info!(%dir, "{what} is written again"),
        _ => {}
    }
    *fails = written.is_err();
}

/// A moment since the Unix epoch, UTC.
fn utc(wall: Duration, format: &str) -> String {
    let seconds = i64::try_from(wall.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::decisions::{Kept, Ledger};
    use crate::export::snapshot::{Counters, ReloadState};

    const START: Moment = Moment { monotonic: Duration::from_secs(3600), wall: Duration::from_secs(1_795_996_800 - 90) };

    fn snapshot(at: Moment) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            at,
            ready: true,
            models: Vec::new(),
            decisions: Ledger::restored(Kept::default(), None, at).standing(),
            targets: Vec::new(),
            max_target_series: 0,
            gpus: Default::default(),
            counters: Counters { decisions: BTreeMap::new(), ..Counters::default() },
            reload: ReloadState { successful: true, last_success: at.wall },
            scrape_interval: Duration::from_secs(5),
            config_hash: "abc".to_owned(),
            process_start: START.wall,
        })
    }

    #[test]
    fn a_report_is_written_when_the_wall_clock_crosses_a_multiple_of_the_interval() {
        let folder = tempfile::tempdir().unwrap();
        let config = ReportConfig { dir: folder.path().join("reports"), interval: Duration::from_secs(60) };
        let mut active = Active::new(&config, START, &Arc::default());
        for second in (0..=150).step_by(10) {
            let now = START.after(Duration::from_secs(second));
            active.note(&snapshot(now), now);
            if let Some(job) = active.next_job(now) {
                job();
            }
        }
        let mut names: Vec<_> =
            std::fs::read_dir(&config.dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["report-2026-11-29T23-59-00Z.html", "report-2026-11-30T00-00-00Z.html", "report-2026-11-30T00-01-00Z.html"]);
        let html = std::fs::read_to_string(config.dir.join(&names[1])).unwrap();
        assert!(html.contains("<h1>Report until 2026-11-30 00:00 UTC</h1>") && html.contains("abc"), "{html}");
    }

    #[test]
    fn what_comes_while_the_disk_hangs_waits_for_its_turn() {
        let folder = tempfile::tempdir().unwrap();
        let config = ReportConfig { dir: folder.path().to_owned(), interval: Duration::from_secs(60) };
        let mut active = Active::new(&config, START, &Arc::default());
        active.lines.push_str("1\n");
        let hanging = active.next_job(START).unwrap();
        active.lines.push_str("2\n");
        assert!(active.next_job(START).is_none(), "one at a time");
        hanging();
        active.next_job(START).unwrap()();
        assert!(active.next_job(START).is_none() && active.lines.is_empty());
        assert!(!active.busy.load(Ordering::Acquire));
    }
}
