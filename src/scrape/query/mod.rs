//! What does a Prometheus know of the targets that it scrapes? A round without scraping: the same reports, from its raw samples.
//!
//! A round asks twice. The first answer says which targets there are and when each was last scraped; a target that Prometheus no longer
//! scrapes is not among them, one that does not answer it is. The second has the samples of those scrapes, as they were: nothing is
//! extrapolated, and every report carries the moment of its scrape. In between `answer` makes pages of them again, so that nothing behind
//! this room knows the difference.
//!
//! A Prometheus that does not answer, or not with all, leaves the last list, and its targets silent.

mod answer;
mod json;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reqwest::StatusCode;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::SetupError;
use super::body::{Body, Collector, Encoding};
use super::budget::Budget;
use super::client::Requester;
use super::discover::{Listing, Looked, after};
use super::failure::{failure, within_body};
use super::lower::{families, lower};
use super::report::{Failure, TargetReport};
use crate::config::{AccessConfig, QueryConfig, ScrapeConfig, TargetConfig};
use crate::engines::Dialect;
use crate::planner::input::FailureKind;
use crate::units::TargetId;
use answer::Listed;

/// Most targets of one source, as with lists that are found.
const MOST_TARGETS: usize = 10_000;
/// Bytes of each answer that claim nothing of the common memory.
const FREE_PER_ANSWER: usize = 128 << 10;
/// How far our two clocks may drift apart before one of them counts as set.
const CLOCK_SET: Duration = Duration::from_secs(1);

/// What one source wants to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Whom to ask, and for which targets.
    pub query: QueryConfig,
    /// Their dialect; `None` recognises it.
    pub engine: Option<Dialect>,
    /// What goes with the requests.
    pub access: Arc<AccessConfig>,
}

/// What came of a question in one round.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The targets.
    pub listing: Listing,
    /// A report for each of them, in their order.
    pub reports: Vec<TargetReport>,
}

/// Asks rounds of questions. Remembers the last list of each.
#[derive(Debug)]
pub struct Querier {
    shared: Arc<Shared>,
    known: Mutex<Vec<(Question, Listing)>>,
}

#[derive(Debug)]
struct Shared {
    requester: Requester,
    budget: Arc<Budget>,
    timeout: Duration,
    clocks: Mutex<Option<Clocks>>,
}

/// The same moment on both our clocks, each since its own zero.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    wall: Duration,
    monotonic: Duration,
}

impl Querier {
    /// A querier with these settings. An answer may be as large as all pages of a round together.
    pub fn new(config: &ScrapeConfig) -> Result<Self, SetupError> {
        let budget = Budget::new(config.bytes_in_flight.saturating_mul(2), config.bytes_in_flight, FREE_PER_ANSWER);
        let shared = Shared { requester: Requester::new(config)?, budget, timeout: config.timeout, clocks: Mutex::default() };
        Ok(Self { shared: Arc::new(shared), known: Mutex::default() })
    }

    /// Asks every question once: one answer for each, in the order of `questions`, each of them once.
    ///
    /// Never fails, and ends within the timeout of a scrape. Times are spans since `origin`. With `keep_pages` the reports hold the lines that were used.
    /// Needs a tokio runtime with time and I/O.
    pub async fn round(&self, questions: &[Question], origin: Instant, keep_pages: bool) -> Vec<Answer> {
        self.shared.requester.retain(|access| questions.iter().any(|question| *question.access == *access));
        let mut running = JoinSet::new();
        for (index, question) in questions.iter().enumerate() {
            let (shared, question) = (Arc::clone(&self.shared), question.clone());
            running.spawn(async move { (index, shared.answer(&question, origin, keep_pages).await) });
        }
        let mut outcomes: Vec<_> = questions.iter().map(|_| None).collect();
        while let Some(done) = running.join_next().await {
            // An error is a panic; its outcome stays missing and is filled in below.
            if let Ok((index, outcome)) = done {
                outcomes[index] = Some(outcome);
            }
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *known);
        let mut answers = Vec::with_capacity(questions.len());
        for (question, outcome) in questions.iter().zip(outcomes) {
            let last = before.iter().find(|(known, _)| known == question).map(|(_, listing)| listing.clone()).unwrap_or_default();
            let outcome =
                outcome.unwrap_or_else(|| Err(failure(FailureKind::Parse, "the query ended unexpectedly (a defect of this program)")));
            let answer = conclude(question, &last, outcome, origin);
            known.push((question.clone(), answer.listing.clone()));
            answers.push(answer);
        }
        answers
    }
}

/// What is known after a question was asked.
fn conclude(question: &Question, last: &Listing, outcome: Result<Vec<TargetReport>, Failure>, origin: Instant) -> Answer {
    match outcome {
        Ok(reports) => {
            let target = |report: &TargetReport| TargetConfig { target: report.target.clone(), url: question.query.url.clone() };
            let listing = after(last, Ok(Looked::from(reports.iter().map(target).collect::<Vec<_>>())));
            Answer { listing, reports }
        }
        Err(failure) => {
            let listing = after(last, Err(failure.message.clone()));
            let silent = |target: &TargetConfig| TargetReport {
                target: target.target.clone(),
                at: origin.elapsed(),
                duration: Duration::ZERO,
                outcome: Err(failure.clone()),
            };
            let reports = listing.targets.iter().map(silent).collect();
            Answer { listing, reports }
        }
    }
}

impl Shared {
    async fn answer(&self, question: &Question, origin: Instant, keep_pages: bool) -> Result<Vec<TargetReport>, Failure> {
        let late = |_| {
            let time = humantime::format_duration(self.timeout);
            Err(failure(FailureKind::Timeout, format!("Prometheus gave no whole answer within {time}")))
        };
        timeout(self.timeout, self.ask(question, origin, keep_pages)).await.unwrap_or_else(late)
    }

    async fn ask(&self, question: &Question, origin: Instant, keep_pages: bool) -> Result<Vec<TargetReport>, Failure> {
        let begin = Instant::now();
        let label = question.query.target_label.clone();
        let list = self.post(question, &[("query", &answer::list_query(question.query.matchers()))]).await?;
        let (targets, now) = answer::listed(&list.bytes, &label).map_err(unusable)?;
        drop(list);
        if targets.len() > MOST_TARGETS {
            return Err(unusable(format!("expected at most {MOST_TARGETS} targets, got {}", targets.len())));
        }
        let clocks = self.clocks(origin);
        let lookback = question.query.lookback.as_secs_f64();
        let recent = targets.iter().map(|target| now - target.scraped).filter(|age| *age <= lookback);
        let body = match recent.reduce(f64::max) {
            // Whole seconds, and one more, since newer versions leave out a sample at the very beginning of a range.
            Some(oldest) => {
                let seconds = oldest.max(0.0).ceil() as u64 + 1;
                let query = answer::samples_query(question.query.matchers(), &families(question.engine.as_ref()), seconds);
                Some(self.post(question, &[("query", &query), ("time", &format!("{now:.3}"))]).await?)
            }
            None => None,
        };
        let reader = Reader { engine: question.engine.clone(), keep_pages, lookback, now, clocks, begin };
        let reading = tokio::task::spawn_blocking(move || {
            // The claim on memory is given back with the body.
            let scrapes = match body {
                Some(body) => answer::scrapes(&body.bytes, &targets, &label)?,
                None => vec![answer::Scrape::default(); targets.len()],
            };
            Ok(targets.iter().zip(scrapes).map(|(target, scrape)| reader.report(target, scrape)).collect())
        });
        reading
            .await
            .unwrap_or_else(|_| Err("reading the answer ended unexpectedly (a defect of this program)".to_owned()))
            .map_err(unusable)
    }

    /// A whole answer of status 200.
    async fn post(&self, question: &Question, form: &[(&str, &str)]) -> Result<Body, Failure> {
        let url = format!("{}/api/v1/query", question.query.url);
        let mut response = self.requester.ask(&url, &question.access, form).await?;
        let status = response.status();
        let encoding = Encoding::from_headers(response.headers())?;
        let limit = self.budget.largest();
        let mut collector =
            Collector::new(encoding, response.content_length(), limit, self.budget.claim()).map_err(|error| too_large(error, limit))?;
        let mut received = 0;
        while let Some(bytes) = response.chunk().await.map_err(|error| within_body(&error, received))? {
            received += bytes.len();
            collector.push(&bytes).await.map_err(|error| too_large(error, limit))?;
        }
        let body = collector.finish().await?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let reason = status.canonical_reason().unwrap_or("unknown");
        let said = json::error(&body.bytes).unwrap_or_else(|| "expected an answer of Prometheus' API".to_owned());
        Err(failure(FailureKind::Status, format!("status {} ({reason}): {said}", status.as_u16())))
    }

    /// Our clocks at one moment. Kept as long as they run alike: the time between two scrapes is then what Prometheus says, to the bit.
    fn clocks(&self, origin: Instant) -> Clocks {
        let now = Clocks { wall: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), monotonic: origin.elapsed() };
        let mut known = self.clocks.lock().unwrap_or_else(PoisonError::into_inner);
        let runs_alike = |known: &Clocks| {
            let passed = now.monotonic.saturating_sub(known.monotonic);
            now.wall.abs_diff(known.wall.saturating_add(passed)) < CLOCK_SET
        };
        *known.get_or_insert(now) = known.filter(runs_alike).unwrap_or(now);
        known.unwrap_or(now)
    }
}

fn unusable(message: String) -> Failure {
    failure(FailureKind::Parse, message)
}

/// Names the setting that limits an answer, which is not the one of pages.
fn too_large(error: Failure, limit: usize) -> Failure {
    if error.kind != FailureKind::TooLarge {
        return error;
    }
    let message =
        format!("Prometheus' answer exceeds {limit} bytes; expected less, or a larger scrape.bytes_in_flight, or a narrower selector");
    failure(FailureKind::TooLarge, message)
}

impl Clocks {
    /// A moment of the wall clock on the monotonic one; `None` before its zero.
    fn monotonic(&self, seconds: f64) -> Option<Duration> {
        // Whole milliseconds, as Prometheus counts them.
        let wall = Duration::from_millis((seconds * 1000.0).round() as u64);
        (self.monotonic + wall).checked_sub(self.wall)
    }
}

/// How scrapes become reports.
struct Reader {
    engine: Option<Dialect>,
    keep_pages: bool,
    /// Seconds.
    lookback: f64,
    /// The moment of the list, by Prometheus' clock.
    now: f64,
    clocks: Clocks,
    begin: Instant,
}

impl Reader {
    fn report(&self, target: &Listed, scrape: answer::Scrape) -> TargetReport {
        let at = self.clocks.monotonic(target.scraped);
        let outcome = match at {
            Some(_) => self.outcome(target, &scrape),
            None => Err(failure(FailureKind::Timeout, "last scraped long before this program began; expected a scrape since")),
        };
        TargetReport { target: TargetId::from(target.name.clone()), at: at.unwrap_or_default(), duration: self.begin.elapsed(), outcome }
    }

    fn outcome(&self, target: &Listed, scrape: &answer::Scrape) -> Result<super::report::Scraped, Failure> {
        if target.namesakes > 1 {
            let message = format!(
                "Prometheus has {} series up of this name; expected one: write a narrower selector or another target_label",
                target.namesakes
            );
            return Err(failure(FailureKind::Parse, message));
        }
        let age = self.now - target.scraped;
        if age > self.lookback {
            let message = format!("Prometheus last scraped it {age:.0} s ago; expected less than {} s", self.lookback);
            return Err(failure(FailureKind::Timeout, message));
        }
        if scrape.page.is_empty() {
            return Err(match scrape.up {
                Some(false) => failure(FailureKind::Connect, "Prometheus could not scrape it; its page of targets says why"),
                _ => failure(
                    FailureKind::Empty,
                    "Prometheus keeps nothing of its last scrape that is read here; expected the families of its engine",
                ),
            });
        }
        let read = || lower(scrape.page.as_bytes(), None, self.engine.clone(), self.keep_pages);
        let panicked = |_| Err(failure(FailureKind::Parse, "reading the page ended unexpectedly (a defect of this program)"));
        catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
    }
}
