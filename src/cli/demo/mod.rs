//! What does the exporter do, shown in one process? Simulated servers on loopback, the exporter beside them, and a day's load in minutes.
//!
//! The servers are replicas of a prefill and of a decode pool, each with a page as vLLM writes it on a port of its own, and they come and go.
//! Everything between them and the exporter goes over HTTP, as it would in a cluster: the exporter scrapes the replicas' pages, and what is
//! applied to the simulated pools is read from the exporter's page for one pool, as KEDA's `metrics-api` scaler does. Virtual time follows the
//! wall clock second for second, since the exporter divides counts by real seconds; a faster show is a shorter day.
//!
//! - [`config`]: what the exporter is started with.
//! - [`replicas`]: the ports, and how the exporter learns of them.

pub mod config;
pub mod replicas;

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;

use self::config::{Files, MODEL, POOLS};
use crate::engines::render::vllm::VllmPage;
use crate::simulator::Simulation;
use crate::simulator::counters::Truth;
use crate::simulator::fleet::{Fleet, ReplicaId};
use crate::simulator::scenario::{self, ITL_TARGET, TTFT_TARGET};
use crate::simulator::workload::{Shape, Workload};
use crate::units::{Replicas, Role};

/// How often recommendations are read: several times in a round of the exporter, so that little is lost of an interval.
const POLL: Duration = Duration::from_millis(250);
/// How long an answer of the exporter may take; it is on loopback.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Flags of `demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoOptions {
    /// Address of the exporter; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Length of a day: night, morning rise, lunch dip, afternoon peak, evening
    #[arg(long, default_value = "3m", value_parser = humantime::parse_duration)]
    pub cycle: Duration,
    /// Time until a new replica is ready
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    pub startup: Duration,
    /// Time between status lines
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    pub status_interval: Duration,
    /// Ends by itself after this time
    #[arg(long, value_parser = humantime::parse_duration)]
    pub run_for: Option<Duration>,
    /// Seed of the load
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Runs until `stop` or the end of `run_for`, or until nobody reads what it prints. The exporter's files are kept in `folder`, which exists. `start_exporter` starts the exporter
/// with the configuration file that it is given, leaves it running, and returns the address on which it listens.
pub async fn run<Start, Started>(
    options: DemoOptions,
    folder: &Path,
    start_exporter: Start,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()>
where
    Start: FnOnce(PathBuf) -> Started,
    Started: Future<Output = anyhow::Result<SocketAddr>>,
{
    let fleet = DemoFleet::new(&options)?;
    let files = Files::new(folder, options.listen)?;
    let mut replicas = replicas::Replicas::default();
    replicas.catch_up(&fleet).await?;
    files.write(replicas.listed())?;
    let exporter = start_exporter(files.config()).await.context("start the exporter")?;
    let result = async {
        print(&urls(exporter, replicas.listed(), &files))?;
        tokio::select! {
            result = replicas.tend(&fleet, &files, exporter) => result,
            result = fleet.follow(exporter) => result,
            result = fleet.print_status(options.status_interval) => result,
            () = stop => Ok(()),
            () = end_after(options.run_for) => Ok(()),
        }?;
        print(&(fleet.summary() + "\n"))
    };
    result.await.or_else(|error: anyhow::Error| {
        let closed = error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe);
        if closed { Ok(()) } else { Err(error) }
    })
}

/// To standard output at once, since what it tells belongs to the moment.
fn print(text: &str) -> anyhow::Result<()> {
    let mut output = std::io::stdout();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).context("write to standard output")
}

async fn end_after(run_for: Option<Duration>) {
    match run_for {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}

fn urls(exporter: SocketAddr, listed: &config::Listed, files: &Files) -> String {
    let mut lines = vec![format!("status page      http://{exporter}/"), format!("metrics          http://{exporter}/metrics")];
    lines.extend(POOLS.map(|(_, pool)| format!("for KEDA         http://{exporter}/metrics/pool/{pool}")));
    for (role, addresses) in listed {
        lines.extend(addresses.iter().map(|address| format!("{:<16} http://{address}/metrics", format!("first {role}"))));
    }
    lines.push(format!("all replicas     {}", files.config().display()));
    lines.join("\n") + "\n"
}

/// An HTTP client for the exporter.
fn http_client() -> anyhow::Result<reqwest::Client> {
    // The client asks for a provider even if it never speaks TLS. An error says that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(ANSWER_TIMEOUT).build().context("make an HTTP client")
}

/// The simulated servers, driven by the wall clock.
#[derive(Clone, Debug)]
pub struct DemoFleet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    shape: Shape,
    cycle: Duration,
    started: Instant,
    /// Wall time of virtual time zero, since the Unix epoch.
    epoch: Duration,
}

#[derive(Debug)]
struct State {
    simulation: Simulation<Workload>,
    /// Requests that ended.
    ended: u64,
    /// Those of them that met both objectives.
    held: u64,
}

impl DemoFleet {
    /// A fleet whose virtual time starts now.
    pub fn new(options: &DemoOptions) -> anyhow::Result<Self> {
        anyhow::ensure!(!options.cycle.is_zero(), "--cycle: expected more than 0s");
        anyhow::ensure!(!options.status_interval.is_zero(), "--status-interval: expected more than 0s");
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock: it stands before 1970")?;
        let simulation = scenario::simulation(options.cycle, options.startup, options.seed);
        Ok(Self(Arc::new(Shared {
            state: Mutex::new(State { simulation, ended: 0, held: 0 }),
            shape: scenario::workload(options.cycle, options.seed).shape,
            cycle: options.cycle,
            started: Instant::now(),
            epoch,
        })))
    }

    /// The simulation, brought up to the present. Whoever looks at it drives it; between two looks nothing has to happen.
    fn present(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock; if it did, the counters would still be the best that there is.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.simulation.advance_to(self.0.started.elapsed());
        let finished = state.simulation.fleet.take_finished();
        state.ended += finished.len() as u64;
        state.held += finished.iter().filter(|request| request.within(TTFT_TARGET, ITL_TARGET)).count() as u64;
        state
    }

    /// The replicas that answer, and whether they take requests.
    fn replicas(&self) -> BTreeMap<(Role, ReplicaId), bool> {
        let state = self.present();
        let fleet = &state.simulation.fleet;
        let mut replicas = BTreeMap::new();
        for (role, _) in POOLS {
            replicas.extend(fleet.serving(role).map(|id| ((role, id), false)));
            replicas.extend(fleet.taking_requests(role).map(|id| ((role, id), true)));
        }
        replicas
    }

    fn page(&self, role: Role, id: ReplicaId) -> Option<VllmPage> {
        self.present().simulation.fleet.vllm_page(role, id, MODEL, self.0.epoch)
    }

    /// Applies the exporter's recommendations as they come, for ever. Without one a pool stays as it is.
    pub async fn follow(&self, exporter: SocketAddr) -> anyhow::Result<()> {
        let client = http_client()?;
        loop {
            for (role, pool) in POOLS {
                let read = client.get(format!("http://{exporter}/metrics/pool/{pool}")).send().await;
                let page = match read.and_then(reqwest::Response::error_for_status) {
                    Ok(answer) => answer.text().await.ok(),
                    Err(_) => None,
                };
                if let Some(replicas) = page.as_deref().and_then(recommended) {
                    self.present().simulation.fleet.set_target(role, replicas);
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Prints what goes on, for as long as it can.
    pub async fn print_status(&self, interval: Duration) -> anyhow::Result<()> {
        let mut last = Truth::default();
        loop {
            tokio::time::sleep(interval).await;
            let (line, truth) = self.status(&last);
            last = truth;
            print(&(line + "\n"))?;
        }
    }

    /// The state now, and the latencies of the requests that completed since `last`.
    fn status(&self, last: &Truth) -> (String, Truth) {
        let state = self.present();
        let fleet = &state.simulation.fleet;
        let truth = fleet.truth();
        let pools = POOLS.map(|(role, _)| {
            let (ready, starting, draining) = (fleet.ready(role), fleet.starting(role), fleet.draining(role));
            format!("{role} {ready}/{} ({draining} draining)", ready.0 + starting.0)
        });
        let millis = |mean: Option<f64>| mean.map_or_else(|| "-".to_owned(), |seconds| format!("{:.0}", seconds * 1000.0));
        let (hour, minute) = scenario::time_of_day(self.0.cycle, fleet.now());
        let line = format!(
            "{hour:02}:{minute:02}  load {:>4.1}/s  ready/target: {}  TTFT {} ms (objective {:.0})  ITL {} ms (objective {:.0})",
            self.0.shape.rate_at(fleet.now()).get(),
            pools.join(", "),
            millis(truth.mean_ttft_since(last)),
            TTFT_TARGET.get() * 1000.0,
            millis(truth.mean_itl_since(last)),
            ITL_TARGET.get() * 1000.0,
        );
        (line, truth)
    }

    /// What came of it so far.
    fn summary(&self) -> String {
        let state = self.present();
        let fleet = &state.simulation.fleet;
        let share = if state.ended == 0 { "no request ended".to_owned() } else { percent(state.held, state.ended) };
        let mean = mean_replicas(fleet);
        let constant = scenario::PLANNED_FOR_PEAK;
        format!("{share}; {mean:.1} replicas on average, one GPU each, where a constant fleet planned for the peak has {constant}")
    }
}

fn percent(held: u64, ended: u64) -> String {
    format!("{:.1} % of {ended} requests within both objectives", 100.0 * held as f64 / ended as f64)
}

/// Replicas that are paid for, on average since the start.
fn mean_replicas(fleet: &Fleet) -> f64 {
    let paid: f64 = POOLS.iter().map(|(role, _)| fleet.replica_time(*role).as_secs_f64()).sum();
    paid / fleet.now().as_secs_f64().max(1e-9)
}

/// The value on a page with one sample.
fn recommended(page: &str) -> Option<Replicas> {
    let sample = page.lines().find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let value: f64 = sample.split_whitespace().nth(1)?.parse().ok()?;
    (value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value)).then_some(Replicas(value as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_recommendation_from_the_page_of_one_pool() {
        let page = "# HELP wanted x\n# TYPE wanted gauge\nwanted 5\n";
        assert_eq!(recommended(page), Some(Replicas(5)));
        assert_eq!(recommended("wanted 3.0"), Some(Replicas(3)));
        for text in ["", "# only a comment\n", "name NaN", "name 1.5", "name -1", "name"] {
            assert_eq!(recommended(text), None, "{text:?}");
        }
    }
}
