//! How does it all run? The composition root and the tick: the only place that reads the clock and knows every room.
//!
//! One tick: take one configuration snapshot; read the clock once; run one scrape round; plan, check and count every model; swap the
//! snapshot that our pages read; keep what survives a restart; record; log what changed.

mod changed;
pub mod clock;
pub mod events;
pub mod exporter;
pub mod facts;
pub mod fleet;
pub mod persist;
mod planning;
mod quiet;
mod reading;
pub mod recording;
mod reporting;
pub mod status;
pub mod tally;
pub mod watch;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::config::{Config, Loaded, Portable, Problem, ServerConfig, WebConfig};
use crate::decisions::{Decision, DecisionId};
use crate::export::snapshot::Snapshot;
use crate::record::Recorder;
use crate::scrape::Scraper;
use crate::scrape::discover::Discovery;
use crate::scrape::query::Querier;
use crate::scrape::report::TargetReport;
use crate::server::{Access, AcknowledgeRequest, ReloadRequest, Server, ServerHandle, Settings, State};
use crate::units::Moment;
use clock::Clock;
use events::Event;
use exporter::Exporter;
use fleet::Fleet;
use persist::Keeper;
use reading::{Read, Reader};
use reporting::Reporter;

/// Reads the configuration with everything it names, or tells all its problems.
pub type Loader = Arc<dyn Fn() -> Result<Loaded, Vec<Problem>> + Send + Sync>;

/// Requests of one kind that may wait at the same time.
const QUEUE: usize = 16;

/// How long who asked for a reload waits for its files: less than a request over HTTP may take.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How long a reload waits for the targets of a search that it changed.
const LONGEST_SEARCH: Duration = Duration::from_secs(1);

/// How `run` was asked to behave beyond its configuration.
#[derive(Clone)]
pub struct Options {
    /// How to read the configuration again.
    pub loader: Loader,
    /// When it began to be read for the first time.
    pub read_at: SystemTime,
    /// Where to record decisions, if at all.
    pub record: Option<PathBuf>,
}

/// A running exporter.
pub struct Running {
    /// The address that it listens on.
    pub addr: SocketAddr,
    reload: mpsc::Sender<ReloadRequest>,
    stop: oneshot::Sender<()>,
    ticking: JoinHandle<()>,
    watching: JoinHandle<()>,
    reading: JoinHandle<()>,
    server: ServerHandle,
}

impl Running {
    /// Where a reload is asked for.
    pub fn reload(&self) -> mpsc::Sender<ReloadRequest> {
        self.reload.clone()
    }

    /// Ends the tick and the server, in this order, and keeps the state. Takes less than 2 s.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.watching.abort();
        self.reading.abort();
        // The loop may have ended already, by a panic; the server is stopped all the same.
        let _ended = self.stop.send(());
        let ticked = self.ticking.await;
        self.server.shutdown().await.context("stop the server")?;
        ticked.context("the planning loop ended before it was asked to")
    }

    /// Resolves if the planning loop ends by itself, which it does only by a fault.
    pub async fn failed(&mut self) -> anyhow::Error {
        match (&mut self.ticking).await {
            Ok(()) => anyhow::anyhow!("the planning loop ended"),
            Err(error) => anyhow::Error::from(error).context("the planning loop failed"),
        }
    }
}

/// Starts everything. The exporter serves its pages when this returns, and its first round is under way.
pub async fn start(loaded: Loaded, options: Options) -> anyhow::Result<Running> {
    let clock = Clock::start();
    let warned = warnings(&loaded);
    let config = Arc::new(loaded.config);
    let (watched, to_watch) = tokio::sync::watch::channel(watch::look_after_reading(&config.files, options.read_at));
    let open =
        |folder: PathBuf| Recorder::open(folder.clone()).with_context(|| format!("open the recording directory {}", folder.display()));
    let recorder = options.record.map(open).transpose()?;
    let scraper = Arc::new(Scraper::new(&config.scrape).context("make the scraper")?);
    let querier = Arc::new(Querier::new(&config.scrape).context("make the querier")?);
    let mut discovery = Discovery::new(&config.scrape).context("make the searches for targets")?;
    discovery.adopt(fleet::searches(&config));
    let now = clock.now();
    let (keeper, restored, ledger) = Keeper::open(&config, now);
    let mut exporter = Exporter::new(Arc::clone(&config), restored, ledger, now);
    let first = exporter.issue_decisions(now);
    let snapshot = Arc::new(ArcSwap::from_pointee(exporter.snapshot(now)));

    let access = Arc::new(ArcSwap::from_pointee(access_of(loaded.web)));
    let (reload, reloads) = mpsc::channel(QUEUE);
    let (acknowledge, acknowledgements) = mpsc::channel(QUEUE);
    let (newest, to_await) = tokio::sync::watch::channel(exporter.last_decision());
    let state = State {
        snapshot: Arc::clone(&snapshot),
        clock: Arc::new(move || clock.now()),
        reload: reload.clone(),
        newest: to_await,
        access: Arc::clone(&access),
        acknowledge,
    };
    let settings = Settings::new(config.server.listen, config.server.enable_lifecycle);
    let server = Server::start(settings, state).await.with_context(|| format!("listen on {}", config.server.listen))?;
    tracing::info!(address = %server.addr, models = config.models.len(), config = %config.hash, version = env!("CARGO_PKG_VERSION"), "started");
    warned.iter().for_each(|warning| tracing::warn!("{warning}"));
    loaded.notes.iter().for_each(|note| tracing::info!("{note}"));
    first.iter().for_each(|event| log(event, &config));

    let watching = tokio::spawn(watch::watch(to_watch, reload.clone()));
    let (stop, stopped) = oneshot::channel();
    // What was read waits here until the loop takes it over.
    let (found, read) = mpsc::channel(1);
    let reader =
        Reader { loader: options.loader, files: config.files.clone(), watched, requests: reloads, read: found, longest_wait: LONGEST_WAIT };
    let reading = tokio::spawn(reader.run());
    let inbox = Inbox { stopped, read, acknowledgements };
    let ticker = Ticker {
        clock,
        exporter,
        scraper,
        querier,
        discovery,
        snapshot,
        access,
        newest,
        keeper,
        reporter: Reporter::new(config.report.as_ref(), now),
        recorder,
        portable: loaded.portable,
        warned,
        conflicts: BTreeSet::new(),
    };
    let ticking = tokio::spawn(ticker.run(inbox));
    Ok(Running { addr: server.addr, reload, stop, ticking, watching, reading, server })
}

fn access_of(web: WebConfig) -> Access {
    Access::new(web.tls, web.needs_certificate, web.users, &web.headers)
}

/// What the loop is asked for.
struct Inbox {
    stopped: oneshot::Receiver<()>,
    read: mpsc::Receiver<Read>,
    acknowledgements: mpsc::Receiver<AcknowledgeRequest>,
}

/// The loop and what it owns.
struct Ticker {
    clock: Clock,
    exporter: Exporter,
    scraper: Arc<Scraper>,
    querier: Arc<Querier>,
    discovery: Discovery,
    snapshot: Arc<ArcSwap<Snapshot>>,
    access: Arc<ArcSwap<Access>>,
    /// Wakes those who wait for a decision.
    newest: tokio::sync::watch::Sender<DecisionId>,
    keeper: Keeper,
    reporter: Reporter,
    recorder: Option<Recorder>,
    portable: Portable,
    warned: Vec<Problem>,
    /// The conflicts of the last round, so that each is told once.
    conflicts: BTreeSet<String>,
}

impl Ticker {
    async fn run(mut self, mut inbox: Inbox) {
        // The baseline is wanted as early as possible; all later rounds lie on the wall clock's grid. A first round without its targets would
        // only be followed by a fleet that changes.
        let longest = self.exporter.config().scrape.timeout;
        tokio::select! {
            _ = &mut inbox.stopped => return self.finish().await,
            _settled = tokio::time::timeout(longest, self.discovery.settled()) => {}
        }
        let mut wait = Duration::ZERO;
        'ticks: loop {
            let due = tokio::time::sleep(wait);
            tokio::pin!(due);
            loop {
                tokio::select! {
                    biased;
                    _ = &mut inbox.stopped => break 'ticks,
                    // Planning goes first: a storm of requests must not stop it.
                    () = &mut due => break,
                    Some(request) = inbox.acknowledgements.recv() => self.acknowledge(request),
                    Some(read) = inbox.read.recv() => self.take_over(read).await,
                }
            }
            let Some((reports, fleet, began)) = self.scrape(&mut inbox).await else { break 'ticks };
            self.conclude(&reports, &fleet, began);
            wait = self.until_next_round();
        }
        self.finish().await;
    }

    /// Writes what has to be on disk before the process ends.
    async fn finish(self) {
        tokio::join!(self.keeper.finish(&self.exporter), self.reporter.finish(self.clock.now()));
    }

    /// One round of reports about the targets of one configuration; `None` when asked to stop. A reload does not wait for a hung server, and
    /// one that changes the targets begins the round anew: reports of other targets would look like a fleet that changed twice.
    async fn scrape(&mut self, inbox: &mut Inbox) -> Option<(Vec<TargetReport>, Fleet, Moment)> {
        'rounds: loop {
            let mut fleet = self.fleet();
            let (jobs, questions, began) = (fleet.jobs(self.exporter.config()), fleet.questions(), self.clock.now());
            let (scraper, querier) = (Arc::clone(&self.scraper), Arc::clone(&self.querier));
            let (origin, keep_pages) = (self.clock.origin(), self.recorder.is_some());
            let scraping = async { tokio::join!(scraper.round(&jobs, origin, keep_pages), querier.round(&questions, origin, keep_pages)) };
            tokio::pin!(scraping);
            loop {
                tokio::select! {
                    biased;
                    _ = &mut inbox.stopped => return None,
                    (mut reports, answers) = &mut scraping => {
                        reports.extend(fleet.learn(&questions, answers));
                        return Some((reports, fleet, began));
                    }
                    Some(request) = inbox.acknowledgements.recv() => self.acknowledge(request),
                    Some(read) = inbox.read.recv() => {
                        self.take_over(read).await;
                        fleet = self.fleet();
                        if fleet.jobs(self.exporter.config()) != jobs || fleet.questions() != questions {
                            continue 'rounds;
                        }
                    }
                }
            }
        }
    }

    /// The targets as they are known now.
    fn fleet(&self) -> Fleet {
        Fleet::of(self.exporter.config(), |search| self.discovery.listing(search))
    }

    /// Plans one round of reports and tells everyone. `now` is when the round began: a hung server stretches rounds, and the time between
    /// two ends would then say less about the windows than the time between two beginnings, which lie on the grid.
    fn conclude(&mut self, reports: &[TargetReport], fleet: &Fleet, now: Moment) {
        let (rounds, events) = self.exporter.round(reports, fleet, now);
        self.show(now);
        self.reporter.note(&self.snapshot.load_full(), now);
        for event in &events {
            log(event, self.exporter.config());
        }
        let conflicts = fleet.conflicts(self.exporter.config());
        conflicts.difference(&self.conflicts).for_each(|conflict| tracing::warn!("{conflict}"));
        self.conflicts = conflicts;
        self.keeper.keep(&self.exporter, now);
        if let Some(recorder) = &mut self.recorder {
            // Files are written beside the other tasks, not under them.
            tokio::task::block_in_place(|| recording::record(recorder, &rounds, reports, now, &self.portable));
        }
    }

    /// Swaps the snapshot that our pages read, and then wakes those who wait for what is new in it.
    fn show(&self, now: Moment) {
        let mut snapshot = self.exporter.snapshot(now);
        snapshot.counters.state_write_failures = self.keeper.refused();
        snapshot.counters.report_write_failures = self.reporter.refused();
        self.snapshot.store(Arc::new(snapshot));
        let newest = self.exporter.last_decision();
        self.newest.send_if_modified(|told| std::mem::replace(told, newest) != newest);
    }

    fn acknowledge(&mut self, request: AcknowledgeRequest) {
        let now = self.clock.now();
        let by = request.by.clone().unwrap_or_default();
        let result = self.exporter.acknowledge(request.id, request.by, now);
        match &result {
            Ok(decision) => {
                tracing::info!(model = %decision.model, decision = %request.id, by, "decision acknowledged");
                // What is planned is as old as it was: the moment of the snapshot judges expiry and health.
                let shown = self.snapshot.load().at;
                self.show(shown);
                self.keeper.keep(&self.exporter, now);
            }
            Err(refusal) => tracing::info!(decision = %request.id, by, refusal = %refusal, "acknowledgement refused"),
        }
        // The asker may have left.
        let _gone = request.answer.send(result);
    }

    /// Takes over what was read, and tells who asked for it.
    async fn take_over(&mut self, read: Read) {
        let result = read.result.and_then(|loaded| self.adopt(*loaded));
        if let Err(problems) = &result {
            self.exporter.reload_failed();
            for problem in problems {
                tracing::error!("configuration refused, the running one stays: {problem}");
            }
        }
        // A search that was changed finds mostly what it had found before: a round in between would see no target at all.
        let _settled = tokio::time::timeout(LONGEST_SEARCH, self.discovery.settled()).await;
        self.show(self.clock.now());
        for answer in read.answers {
            // The asker may have left.
            let _gone = answer.send(result.clone());
        }
    }

    fn adopt(&mut self, loaded: Loaded) -> Result<(), Vec<String>> {
        let now = self.clock.now();
        let warnings = warnings(&loaded);
        let config = Arc::new(loaded.config);
        let running = Arc::clone(self.exporter.config());
        if config.scrape != running.scrape {
            let scraper = Scraper::new(&config.scrape).map_err(|error| vec![format!("scrape: {error}")])?;
            self.querier = Arc::new(Querier::new(&config.scrape).map_err(|error| vec![format!("scrape: {error}")])?);
            self.scraper = Arc::new(scraper);
        }
        self.discovery.adopt(fleet::searches(&config));
        self.access.store(Arc::new(access_of(loaded.web)));
        // Where the web file lies is no matter: what it says is in force now.
        let web_config_file = running.server.web_config_file.clone();
        if (ServerConfig { web_config_file, ..config.server.clone() }) != running.server {
            tracing::warn!("server settings changed; they take effect at the next start");
        }
        if config.state_file != running.state_file {
            tracing::warn!("state_file changed; it takes effect at the next start");
        }
        // A reload tells only what is new; the start told the rest, and `check` tells all.
        let told = |warning: &Problem| self.warned.iter().any(|known| (&known.key, &known.message) == (&warning.key, &warning.message));
        warnings.iter().filter(|warning| !told(warning)).for_each(|warning| tracing::warn!("{warning}"));
        self.warned = warnings;
        self.portable = loaded.portable;
        self.reporter.adopt(config.report.as_ref(), now);
        self.exporter.adopt(Arc::clone(&config), now);
        let events = self.exporter.issue_decisions(now);
        let decision = self.exporter.last_decision();
        let changed = changed::between(&running, &config);
        tracing::info!(before = %running.hash, config = %config.hash, changed, version = env!("CARGO_PKG_VERSION"), %decision, "configuration reloaded");
        events.iter().for_each(|event| log(event, &config));
        self.keeper.keep(&self.exporter, now);
        Ok(())
    }

    /// Time to the next multiple of the scrape interval on the wall clock, so that rounds fall on decision boundaries.
    fn until_next_round(&self) -> Duration {
        /// Timers may fire a moment early; a round just before the grid line would belong to the old interval.
        const PAST_THE_LINE: Duration = Duration::from_millis(2);
        let interval = self.exporter.config().scrape.interval.as_nanos().max(1);
        let into = self.clock.now().wall.as_nanos() % interval;
        let rest = u64::try_from(interval - into).unwrap_or(u64::MAX);
        Duration::from_nanos(rest) + PAST_THE_LINE
    }
}

/// What is not meant, and what requests will miss: neither stops an exporter.
fn warnings(loaded: &Loaded) -> Vec<Problem> {
    loaded.warnings.iter().chain(&loaded.unready).cloned().collect()
}

fn log(event: &Event, config: &Config) {
    let version = env!("CARGO_PKG_VERSION");
    match event {
        Event::Recommendation { pool, before, after, reason, decision } => {
            let text = |count: &Option<crate::units::Replicas>| count.map_or_else(|| "absent".to_owned(), |count| count.to_string());
            let (before, after, reason) = (text(before), text(after), reason.map_or("not_planned", |reason| reason.as_str()));
            tracing::info!(%pool, before, after, reason = %reason, %decision, config = %config.hash, version, "recommendation");
        }
        Event::Unacknowledged(Decision { id, model, .. }) => {
            let within = humantime::format_duration(config.server.acknowledge_within);
            tracing::warn!(%model, decision = %id, %within, "nobody has acknowledged this decision in time; it stands, and planning goes on");
        }
        Event::Verdict { model, before, after, missing } => match after.hold_kind() {
            Some(crate::planner::plan::HoldKind::Blind) => {
                tracing::warn!(%model, %before, %after, missing, meaning = after.meaning(), "held, and the value expires");
            }
            _ => tracing::info!(%model, %before, %after, meaning = after.meaning(), "verdict"),
        },
        Event::Pool { pool, before, after, missing } => {
            let text = |reason: &Option<crate::planner::plan::Reason>| reason.map_or("none", |reason| reason.as_str());
            let what = if after.is_some() { "this pool alone is held" } else { "this pool is no longer held alone" };
            tracing::info!(%pool, before = text(before), after = text(after), missing, "{what}");
        }
        Event::Warnings { model, warnings } => warnings.iter().for_each(|warning| tracing::warn!(%model, "{warning}")),
        Event::Violation { model, violation } => {
            tracing::error!(%model, pool = ?violation.pool, rule = violation.rule, "a plan broke a rule and was not used");
        }
        Event::Target { target, problem: Some(problem) } => tracing::warn!(%target, "{problem}"),
        Event::Targets { source, untold } => tracing::warn!(source, untold, "more changes of targets than are told one by one"),
        Event::Target { target, problem: None } => tracing::info!(%target, "answers without a problem again"),
        Event::Unplannable { model, problem } => tracing::error!(%model, "cannot be planned: {problem}"),
    }
}
