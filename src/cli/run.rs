//! `run`, the service, and how `demo` starts the same service beside its servers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use super::Failure;
use super::demo::{self, DemoOptions};
use super::load::{ModelFlags, load, load_serving};
use crate::app::{self, Loader, Options, Running};
use crate::config::{Flags, Loaded};
use crate::planner::policy::PoolPolicy;

/// Flags of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The configuration: YAML, TOML or JSON
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Page of a server to scrape, once for each server; not a load balancer
    #[arg(long = "metrics-url")]
    pub metrics_urls: Vec<String>,
    /// The model, where no configuration file describes it.
    #[command(flatten)]
    pub model: ModelFlags,
    /// Address to listen on
    #[arg(long)]
    pub listen: Option<String>,
    /// Certificates and passwords for our own port, in the format of Prometheus' file of that name
    #[arg(long, alias = "web.config.file", value_name = "FILE")]
    pub web_config_file: Option<PathBuf>,
    /// Where recommendations survive a restart
    #[arg(long)]
    pub state_file: Option<PathBuf>,
    /// Plan only the models of this shard, where several exporters share a configuration: 0/3, 1/3 and 2/3 are three that plan each model once
    #[arg(long, value_name = "I/N")]
    pub shard: Option<String>,
    /// Record every decision below this directory, for `plan --replay`
    #[arg(long)]
    pub record: Option<PathBuf>,
}

impl RunArgs {
    fn flags(&self) -> Flags {
        Flags {
            metrics_urls: self.metrics_urls.clone(),
            listen: self.listen.clone(),
            web_config_file: self.web_config_file.clone(),
            state_file: self.state_file.clone(),
            shard: self.shard.clone(),
            ..self.model.flags()
        }
    }
}

/// Runs until a signal.
pub fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    if args.config.is_none() && args.metrics_urls.is_empty() {
        return Err(Failure::Usage("expected --config FILE, or --metrics-url URL with flags that describe one model".to_owned()));
    }
    let (record, without_file) = (args.record.clone(), args.config.is_none());
    let loader: Loader = Arc::new(move || load_serving(args.config.as_deref(), args.flags()));
    let read_at = SystemTime::now();
    let loaded = loader()?;
    let limits = without_file.then(|| limits(&loaded));
    block_on(async {
        // Before anything is started: a signal that comes early must end the process in order, too.
        let signals = Signals::listen()?;
        let running = app::start(loaded, Options { loader, read_at, record }).await?;
        if let Some(limits) = limits {
            tracing::info!("{limits}");
        }
        serve(running, signals).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The signals that `run` obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
            hang_up: signal(SignalKind::hangup()).context("listen for SIGHUP")?,
        })
    }

    /// Any of them: for whom there is nothing to reload.
    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}

/// With flags alone the limits are nobody's decision until they are shown.
fn limits(loaded: &Loaded) -> String {
    let pools = loaded.config.models.iter().flat_map(|model| &model.policy.pools);
    // With --model the pools have their names; without it they get them from the models that are seen.
    let name = |pool: &PoolPolicy| if pool.pool.as_str().is_empty() { pool.role.to_string() } else { pool.pool.to_string() };
    let texts = pools.map(|pool| format!("{} {} to {}", name(pool), pool.limits.min(), pool.limits.max()));
    format!("pools and replica limits: {}; change them with --min-replicas and --max-replicas", texts.collect::<Vec<_>>().join(", "))
}

/// Runs to the end. Threads that hang in a name look-up or on a volume do not keep the process alive.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    // Two threads are enough for thousands of targets, and keep an idle exporter small on a host with many cores.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

async fn serve(mut running: Running, mut signals: Signals) -> anyhow::Result<()> {
    let reload = running.reload();
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => {
                let (answer, _result) = oneshot::channel();
                // A full queue already holds a reload that will read the same files.
                let _full = reload.try_send(answer);
            }
            error = running.failed() => return Err(error),
        }
    }
    tracing::info!("stopping");
    running.stop().await
}

/// Runs the demonstration.
pub fn demo(options: DemoOptions) -> Result<ExitCode, Failure> {
    block_on(async {
        // Before the folder is made, so that no signal leaves it behind.
        let mut signals = Signals::listen()?;
        let folder = std::env::temp_dir().join(format!("inference-planner-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let (keep, kept) = oneshot::channel();
        let result = demo::run(options, &folder, |config| start_beside(config, keep), signals.any()).await;
        let stopped = match kept.await {
            Ok(running) => running.stop().await,
            Err(_never_started) => Ok(()),
        };
        // What is left of a demonstration is in nobody's way.
        let _left = std::fs::remove_dir_all(&folder);
        result.and(stopped)
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn start_beside(file: PathBuf, keep: oneshot::Sender<Running>) -> anyhow::Result<std::net::SocketAddr> {
    // The configuration is ours: what it would be warned of is meant.
    let loader: Loader = Arc::new(move || load(Some(&file), Flags::default()).map(|loaded| Loaded { warnings: Vec::new(), ..loaded }));
    let read_at = SystemTime::now();
    let loaded = loader().map_err(|problems| {
        anyhow::anyhow!(
            "the demonstration's configuration has problems: {}",
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        )
    })?;
    let running = app::start(loaded, Options { loader, read_at, record: None }).await?;
    let addr = running.addr;
    // The receiver lives in `demo` until the demonstration ends.
    let _ended = keep.send(running);
    Ok(addr)
}
