//! Who is scraped when, so that no target waits for another's failure? One round over all targets.
//!
//! A fixed number of places in which targets are scraped one after the other is not enough: as many hung servers as there are places
//! would keep all others waiting. So a place is for targets that answer as healthy ones do, within a moment:
//!
//! - A target starts in one of [`ScrapeConfig::concurrency`] *places*. If it has no result after [`patience`], it gives the place to the
//!   next and goes on in one of the *seats*, of which there are [`SEATS_PER_PLACE`] times as many; waiting costs a socket and little else.
//!   Only when the seats are taken as well does it keep its place.
//! - Targets that failed in the last round by resolve, connect or timeout are *suspects*: they start in a seat and never take a place.
//!   From the second round on, healthy targets meet only healthy ones in the queue, however many servers hang.
//! - A target's deadline begins when it starts. Waiting for a place does not count against it.
//! - The round as a whole ends after one interval (or five quarters of the timeout, if that is longer, so that a target that starts a
//!   little later has its time). What has not started by then is reported as a timeout that says so, and starts before its like in the next
//!   round, so that no target is left out for ever.
//!
//! Each target is a task of its own, so that an unforeseen panic, in an engine's reading, costs one target.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::body::{Body, Collector, Encoding};
use super::budget::Budget;
use super::client::{Requester, SetupError};
use super::failure::{failure, within_body};
use super::lower::lower_with;
use super::memories::Memories;
use super::report::{Failure, Scraped, TargetReport};
use crate::config::{AccessConfig, ScrapeConfig};
use crate::engines::Dialect;
use crate::planner::input::FailureKind;
use crate::units::TargetId;

/// Bounds the sockets of targets that do not answer: with 100 places, 500 sockets are open at most, of the usual 1024 files.
const SEATS_PER_PLACE: usize = 4;
/// Larger pages are read on a thread of their own: at some hundred MB/s this much takes the better part of a millisecond.
const READ_IN_PLACE: usize = 256 << 10;

/// Bytes of each body that claim nothing of the common memory: ordinary pages are smaller, and stalled large ones must not delay them. With all
/// places and seats taken this is 40 MiB more at most.
const FREE_PER_BODY: usize = 128 << 10;

/// How long a target may take before it counts as slow: far above a healthy answer, far below a timeout.
fn patience(timeout: Duration) -> Duration {
    (timeout / 8).min(Duration::from_millis(250))
}

/// One target to scrape.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name. Each name once in a round.
    pub target: TargetId,
    /// The full URL, `http` or `https`.
    pub url: String,
    /// Its dialect; `None` recognises it.
    pub engine: Option<Dialect>,
    /// What goes with the request.
    pub access: Arc<AccessConfig>,
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        (&self.target, &self.url, &self.engine, &self.access) == (&other.target, &other.url, &other.engine, &other.access)
    }
}

/// Scrapes rounds of targets. Remembers connections, and which targets did not answer.
#[derive(Debug)]
pub struct Scraper {
    shared: Arc<Shared>,
    concurrency: usize,
    longest: Duration,
    history: Mutex<History>,
}

/// What the tasks of all targets use.
#[derive(Debug)]
struct Shared {
    requester: Requester,
    budget: Arc<Budget>,
    timeout: Duration,
    body_limit: usize,
    /// Of the pages of the last scrapes.
    memories: Memories,
    /// Threads that read large pages.
    readers: Arc<Semaphore>,
}

/// What earlier rounds tell about the order of the next. Knows the targets of the last round only.
#[derive(Debug, Default)]
struct History {
    round: u64,
    /// The number of the round in which a target was last started; 0 for never.
    last_start: BTreeMap<TargetId, u64>,
    /// The targets that did not answer when they were last started.
    suspects: BTreeSet<TargetId>,
}

impl Scraper {
    /// A scraper with these settings. A changed configuration makes a new one.
    pub fn new(config: &ScrapeConfig) -> Result<Self, SetupError> {
        let budget = Budget::new(config.bytes_in_flight, config.body_limit, FREE_PER_BODY);
        let readers = std::thread::available_parallelism().map_or(1, usize::from);
        let shared = Shared {
            requester: Requester::new(config)?,
            body_limit: budget.largest(),
            budget,
            timeout: config.timeout,
            memories: Memories::default(),
            readers: Arc::new(Semaphore::new(readers)),
        };
        Ok(Self {
            shared: Arc::new(shared),
            concurrency: config.concurrency.clamp(1, Semaphore::MAX_PERMITS / SEATS_PER_PLACE),
            longest: config.interval.max(config.timeout.saturating_mul(5) / 4),
            history: Mutex::default(),
        })
    }

    /// Scrapes every target once: one report for each job, in the order of `jobs`.
    ///
    /// Never fails, and ends within the longer of the interval and five quarters of the timeout. Times are spans since `origin`. With
    /// `keep_pages` the reports hold the lines that were used. Dropping the future ends all requests. Needs a tokio runtime with time and
    /// I/O. Not meant to run twice at the same time: both rounds would have all places.
    pub async fn round(&self, jobs: &[Job], origin: std::time::Instant, keep_pages: bool) -> Vec<TargetReport> {
        let end = Instant::now() + self.longest;
        self.shared.requester.retain(|access| jobs.iter().any(|job| *job.access == *access));
        self.shared.memories.retain(&jobs.iter().map(|job| &job.target).collect());
        let (mut regular, mut suspects) = self.queues(jobs);
        let places = Arc::new(Semaphore::new(self.concurrency));
        let seats = Arc::new(Semaphore::new(self.concurrency * SEATS_PER_PLACE));
        let mut running = JoinSet::new();
        let mut reports: Vec<Option<TargetReport>> = jobs.iter().map(|_| None).collect();
        let mut started = vec![false; jobs.len()];
        loop {
            let (next, seat) = tokio::select! {
                biased;
                Some(done) = running.join_next() => {
                    // An error is a panic; its report stays missing and is filled in below.
                    if let Ok((index, report)) = done {
                        reports[index] = Some(report);
                    }
                    continue;
                }
                () = sleep_until(end), if !(regular.is_empty() && suspects.is_empty()) => {
                    regular.clear();
                    suspects.clear();
                    continue;
                }
                Ok(place) = Arc::clone(&places).acquire_owned(), if !regular.is_empty() => {
                    (regular.pop_front(), (place, Some(Arc::clone(&seats))))
                }
                Ok(seat) = Arc::clone(&seats).acquire_owned(), if !suspects.is_empty() => (suspects.pop_front(), (seat, None)),
                else => break,
            };
            let Some(index) = next else { continue };
            started[index] = true;
            let task = Task { shared: Arc::clone(&self.shared), job: jobs[index].clone(), keep_pages, origin, end };
            running.spawn(async move { (index, task.run(seat.0, seat.1).await) });
        }
        let reports = complete(jobs, reports, &started, origin);
        self.remember(&reports, &started);
        reports
    }

    /// The indices into `jobs` of the regular targets and of the suspects, each in the order in which they start: whoever waited longest
    /// is first, otherwise the order of the jobs holds.
    fn queues(&self, jobs: &[Job]) -> (VecDeque<usize>, VecDeque<usize>) {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let mut order: Vec<_> = (0..jobs.len()).collect();
        order.sort_by_key(|&index| history.last_start.get(&jobs[index].target));
        order.into_iter().partition(|&index| !history.suspects.contains(&jobs[index].target))
    }

    fn remember(&self, reports: &[TargetReport], started: &[bool]) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *history);
        history.round = before.round + 1;
        for (report, &started) in reports.iter().zip(started) {
            let silent = |failure: &Failure| matches!(failure.kind, FailureKind::Resolve | FailureKind::Connect | FailureKind::Timeout);
            let target = &report.target;
            let (suspect, last) = match started {
                true => (report.outcome.as_ref().is_err_and(silent), history.round),
                false => (before.suspects.contains(target), before.last_start.get(target).copied().unwrap_or_default()),
            };
            history.last_start.insert(target.clone(), last);
            if suspect {
                history.suspects.insert(target.clone());
            }
        }
    }
}

/// Fills in the reports of targets that were not started and of tasks that panicked.
fn complete(jobs: &[Job], reports: Vec<Option<TargetReport>>, started: &[bool], origin: std::time::Instant) -> Vec<TargetReport> {
    let missing = |job: &Job, started: bool| {
        let outcome = match started {
            true => failure(FailureKind::Parse, "reading the page ended unexpectedly; expected a result (a defect of this program)"),
            false => failure(FailureKind::Timeout, "not started before the round's end; expected fewer targets that do not answer"),
        };
        TargetReport { target: job.target.clone(), at: origin.elapsed(), duration: Duration::ZERO, outcome: Err(outcome) }
    };
    let reports = reports.into_iter().zip(jobs).zip(started);
    reports.map(|((report, job), &started)| report.unwrap_or_else(|| missing(job, started))).collect()
}

/// How far a target got, for the message when time is up.
#[derive(Debug, Default)]
struct Progress {
    headers: AtomicBool,
    received: AtomicUsize,
}

/// The scraping of one target.
struct Task {
    shared: Arc<Shared>,
    job: Job,
    keep_pages: bool,
    origin: std::time::Instant,
    end: Instant,
}

impl Task {
    /// Scrapes, with the place given up for one of the `seats` if it takes long.
    async fn run(self, place: OwnedSemaphorePermit, seats: Option<Arc<Semaphore>>) -> TargetReport {
        let begin = Instant::now();
        let mut scraping = Box::pin(self.within_deadline(begin));
        let outcome = match seats {
            None => scraping.await,
            Some(seats) => {
                let seat = async {
                    sleep(patience(self.shared.timeout)).await;
                    seats.acquire_owned().await
                };
                tokio::select! {
                    biased;
                    outcome = &mut scraping => outcome,
                    _seat = seat => {
                        drop(place);
                        scraping.await
                    }
                }
            }
        };
        TargetReport { target: self.job.target.clone(), at: self.origin.elapsed(), duration: begin.elapsed(), outcome }
    }

    async fn within_deadline(&self, begin: Instant) -> Result<Scraped, Failure> {
        let deadline = (begin + self.shared.timeout).min(self.end);
        let progress = Progress::default();
        timeout_at(deadline, self.scrape(&progress)).await.unwrap_or_else(|_| {
            let time = humantime::format_duration(Duration::from_millis(u64::try_from((deadline - begin).as_millis()).unwrap_or(u64::MAX)));
            let state = match (progress.headers.load(Ordering::Relaxed), progress.received.load(Ordering::Relaxed)) {
                (false, _) => "no answer".to_owned(),
                (true, received) => format!("headers and {received} bytes of the body, but no end"),
            };
            Err(failure(FailureKind::Timeout, format!("{state} within {time}; expected a whole page")))
        })
    }

    async fn scrape(&self, progress: &Progress) -> Result<Scraped, Failure> {
        let shared = &self.shared;
        let mut response = shared.requester.get(&self.job.url, &self.job.access, &HeaderMap::new()).await?;
        progress.headers.store(true, Ordering::Relaxed);
        let headers = response.headers();
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let encoding = Encoding::from_headers(headers)?;
        let told = response.content_length().is_some() || headers.contains_key(TRANSFER_ENCODING);
        let mut collector = Collector::new(encoding, response.content_length(), shared.body_limit, shared.budget.claim())?;
        let mut received = 0;
        while let Some(bytes) = response.chunk().await.map_err(|error| within_body(&error, received))? {
            received += bytes.len();
            progress.received.store(received, Ordering::Relaxed);
            collector.push(&bytes).await?;
        }
        let Body { bytes, left_out, claim } = collector.finish().await?;
        if !told && bytes.last() != Some(&b'\n') {
            // Cut inside a number it would still read as one.
            let message = "the page ends inside a line, and the server announced neither a length nor chunks; expected a whole page";
            return Err(failure(FailureKind::Parse, message));
        }
        let (engine, keep) = (self.job.engine.clone(), self.keep_pages);
        let earlier = shared.memories.earlier(&self.job.target);
        let (scraped, earlier, used) = if bytes.len() <= READ_IN_PLACE {
            let (scraped, used) = lower_with(&bytes, content_type.as_deref(), engine, keep, &earlier);
            (scraped, earlier, used)
        } else {
            let reader = Arc::clone(&shared.readers).acquire_owned().await;
            let reading = tokio::task::spawn_blocking(move || {
                let (scraped, used) = lower_with(&bytes, content_type.as_deref(), engine, keep, &earlier);
                // Given back here, since memory and thread are in use until now, also if the target's time is up.
                drop((bytes, claim, reader));
                (scraped, earlier, used)
            });
            reading.await.map_err(|_| failure(FailureKind::Parse, "reading the page ended unexpectedly (a defect of this program)"))?
        };
        shared.memories.note(&self.job.target, &earlier, used);
        let mut scraped = scraped?;
        if left_out > 0 {
            scraped.problems += 1;
            scraped.first_problem.get_or_insert_with(|| format!("{left_out} bytes after the end of the gzip stream; expected none"));
        }
        Ok(scraped)
    }
}
