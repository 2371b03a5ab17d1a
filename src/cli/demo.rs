//! What does the exporter do, shown in one process? Simulated servers on loopback, the exporter beside them, and a load that rises and falls.
//!
//! Everything between the two goes over HTTP, as it would in a cluster: the exporter scrapes the routers' pages, and what is applied to the
//! simulated pools is read from the exporter's page for one pool, as KEDA's `metrics-api` scaler does. Virtual time follows the wall clock
//! second for second, since the exporter divides counts by real seconds; a faster show is a shorter cycle of the load.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::engines::render;
use crate::simulator::Simulation;
use crate::simulator::counters::Truth;
use crate::simulator::scenario::{self, ITL_TARGET, TTFT_TARGET};
use crate::simulator::workload::{Shape, Workload};
use crate::units::{Replicas, Role};

/// The served model.
const MODEL: &str = "demo/model-8b";
/// The name by which the configuration refers to the profile.
pub const PROFILE_FILE: &str = "demo-profile.json";
/// The pools. Roles in the order in which they are shown.
const POOLS: [(Role, &str); 2] = [(Role::Prefill, "demo-prefill"), (Role::Decode, "demo-decode")];
/// How often recommendations are read: as often as the exporter scrapes.
const POLL: Duration = Duration::from_secs(1);
/// How long a read may take; the exporter is on loopback.
const POLL_TIMEOUT: Duration = Duration::from_secs(2);

/// Flags of `demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoOptions {
    /// Address of the exporter; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Time in which the load rises and falls once
    #[arg(long, default_value = "3m", value_parser = humantime::parse_duration)]
    pub cycle: Duration,
    /// Time until a new replica is ready
    #[arg(long, default_value = "3s", value_parser = humantime::parse_duration)]
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

/// What the exporter is to be started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemoConfig {
    /// The configuration, YAML. It names the profile [`PROFILE_FILE`].
    pub yaml: String,
    /// The text of that profile.
    pub profile_json: String,
}

/// Runs until Ctrl-C or the end of `run_for`. `start_exporter` starts the exporter with the given configuration, leaves it running, and
/// returns the address on which it listens.
pub async fn run<Start, Started>(options: DemoOptions, start_exporter: Start) -> anyhow::Result<()>
where
    Start: FnOnce(DemoConfig) -> Started,
    Started: Future<Output = anyhow::Result<SocketAddr>>,
{
    let fleet = DemoFleet::new(&options)?;
    let (routers, serving) = fleet.serve().await?;
    let urls: Vec<String> = routers.iter().map(|address| format!("http://{address}/metrics")).collect();
    let exporter = start_exporter(demo_config(&urls, options.listen)?).await.context("start the exporter")?;
    print_urls(exporter, &urls);
    let showing = async {
        tokio::join!(fleet.follow(exporter)?, fleet.print_status(options.status_interval));
        anyhow::Ok(())
    };
    tokio::select! {
        result = showing => result,
        result = serving => result,
        result = tokio::signal::ctrl_c() => result.context("wait for ctrl-c"),
        () = end_after(options.run_for) => Ok(()),
    }
}

async fn end_after(run_for: Option<Duration>) {
    match run_for {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}

fn print_urls(exporter: SocketAddr, routers: &[String]) {
    println!("status page      http://{exporter}/");
    println!("metrics          http://{exporter}/metrics");
    for (_, pool) in POOLS {
        println!("for KEDA         http://{exporter}/metrics/pool/{pool}");
    }
    for url in routers {
        println!("simulated router {url}");
    }
}

/// The exporter's configuration for routers at these URLs.
pub fn demo_config(router_urls: &[String], listen: SocketAddr) -> anyhow::Result<DemoConfig> {
    let profile_json = serde_json::to_string_pretty(&scenario::profile()).context("write the profile")?;
    let targets = router_urls.iter().map(|url| format!("\"{url}\"")).collect::<Vec<_>>().join(", ");
    let (ttft, itl) = (TTFT_TARGET.get() * 1000.0, ITL_TARGET.get() * 1000.0);
    let pools: String = POOLS
        .iter()
        .map(|(role, pool)| format!("      - {{ name: {pool}, role: {role}, gpus_per_replica: 1, min_replicas: 1, max_replicas: 16 }}\n"))
        .collect();
    let yaml = format!(
        "server: {{ listen: \"{listen}\" }}\n\
         scrape: {{ interval: 1s, timeout: 900ms }}\n\
         models:\n\
         \x20 - name: {MODEL}\n\
         \x20   target_namespace: demo\n\
         \x20   engine: infera\n\
         \x20   slo: {{ ttft: {ttft:.0}ms, itl: {itl:.0}ms, statistic: mean }}\n\
         \x20   planner: {{ preset: infera, profile: {PROFILE_FILE}, adjustment_interval: 10s, hold_for: 2m }}\n\
         \x20   traffic:\n\
         \x20     targets: {{ static: [{targets}] }}\n\
         \x20   pools:\n{pools}"
    );
    Ok(DemoConfig { yaml, profile_json })
}

/// The simulated servers, driven by the wall clock.
#[derive(Clone, Debug)]
pub struct DemoFleet(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    simulation: Mutex<Simulation<Workload>>,
    shape: Shape,
    started: Instant,
    /// Wall time of virtual time zero, since the Unix epoch.
    epoch: Duration,
}

impl DemoFleet {
    /// A fleet whose virtual time starts now.
    pub fn new(options: &DemoOptions) -> anyhow::Result<Self> {
        anyhow::ensure!(!options.cycle.is_zero(), "--cycle: expected more than 0s");
        anyhow::ensure!(!options.status_interval.is_zero(), "--status-interval: expected more than 0s");
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock: it stands before 1970")?;
        Ok(Self(Arc::new(Shared {
            simulation: Mutex::new(scenario::simulation(options.cycle, options.startup, options.seed)),
            shape: scenario::workload(options.cycle, options.seed).shape,
            started: Instant::now(),
            epoch,
        })))
    }

    /// The simulation, brought up to the present. Whoever looks at it drives it; between two looks nothing has to happen.
    fn present(&self) -> MutexGuard<'_, Simulation<Workload>> {
        // No code panics while it holds the lock; if it did, the counters would still be the best that there is.
        let mut simulation = self.0.simulation.lock().unwrap_or_else(PoisonError::into_inner);
        simulation.advance_to(self.0.started.elapsed());
        simulation
    }

    /// Serves each router's page on a free port of loopback. Returns the addresses and what has to be polled to serve.
    pub async fn serve(&self) -> anyhow::Result<(Vec<SocketAddr>, impl Future<Output = anyhow::Result<()>> + use<>)> {
        let routers = self.present().fleet.routers().len();
        let mut addresses = Vec::new();
        let mut servers = Vec::new();
        for router in 0..routers {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen on loopback")?;
            addresses.push(listener.local_addr().context("listen on loopback")?);
            let fleet = self.clone();
            let pages = axum::Router::new().route("/metrics", get(move || std::future::ready(fleet.page(router))));
            servers.push(async move { axum::serve(listener, pages).await.context("serve a simulated router") });
        }
        let serving = async move { futures_util::future::try_join_all(servers).await.map(|_| ()) };
        Ok((addresses, serving))
    }

    fn page(&self, router: usize) -> Response {
        match self.present().fleet.infera_page(router, MODEL, self.0.epoch) {
            Some(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render::infera(&page)).into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    }

    /// Applies the exporter's recommendations as they come, for ever. Without one a pool stays as it is.
    pub fn follow(&self, exporter: SocketAddr) -> anyhow::Result<impl Future<Output = ()> + use<>> {
        install_tls_provider();
        let client = reqwest::Client::builder().no_proxy().timeout(POLL_TIMEOUT).build().context("make an HTTP client")?;
        let fleet = self.clone();
        Ok(async move {
            loop {
                for (role, pool) in POOLS {
                    let read = client.get(format!("http://{exporter}/metrics/pool/{pool}")).send().await;
                    let page = match read.and_then(reqwest::Response::error_for_status) {
                        Ok(answer) => answer.text().await.ok(),
                        Err(_) => None,
                    };
                    if let Some(replicas) = page.as_deref().and_then(recommended) {
                        fleet.present().fleet.set_target(role, replicas);
                    }
                }
                tokio::time::sleep(POLL).await;
            }
        })
    }

    /// Prints what goes on, for ever.
    pub async fn print_status(&self, interval: Duration) {
        let mut last = Truth::default();
        loop {
            tokio::time::sleep(interval).await;
            let (line, truth) = self.status(&last);
            last = truth;
            println!("{line}");
        }
    }

    /// The state now, and the latencies of the requests that completed since `last`.
    fn status(&self, last: &Truth) -> (String, Truth) {
        let mut simulation = self.present();
        let fleet = &mut simulation.fleet;
        // Single requests are not shown; without this they would be kept for ever.
        fleet.take_finished();
        let truth = fleet.truth();
        let pools = POOLS.map(|(role, _)| {
            let (ready, starting, draining) = (fleet.ready(role), fleet.starting(role), fleet.draining(role));
            format!("{role} {ready}/{} ({draining} draining)", ready.0 + starting.0)
        });
        let millis = |mean: Option<f64>| mean.map_or_else(|| "-".to_owned(), |seconds| format!("{:.0}", seconds * 1000.0));
        let line = format!(
            "{:>5}  load {:>4.1}/s  ready/target: {}  TTFT {} ms (objective {:.0})  ITL {} ms (objective {:.0})",
            humantime::format_duration(Duration::from_secs(fleet.now().as_secs())).to_string(),
            self.0.shape.rate_at(fleet.now()).get(),
            pools.join(", "),
            millis(truth.mean_ttft_since(last)),
            TTFT_TARGET.get() * 1000.0,
            millis(truth.mean_itl_since(last)),
            ITL_TARGET.get() * 1000.0,
        );
        (line, truth)
    }
}

/// The value on a page with one sample.
fn recommended(page: &str) -> Option<Replicas> {
    let sample = page.lines().find(|line| !line.is_empty() && !line.starts_with('#'))?;
    let value: f64 = sample.split_whitespace().nth(1)?.parse().ok()?;
    (value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value)).then_some(Replicas(value as u32))
}

/// The HTTP client asks for one even if it never speaks TLS. An error says that there is one already.
fn install_tls_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
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

    #[test]
    fn the_configuration_names_the_objectives_and_all_targets() {
        let urls = ["http://127.0.0.1:1/metrics".to_owned(), "http://127.0.0.1:2/metrics".to_owned()];
        let config = demo_config(&urls, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let value: serde_json::Value = serde_saphyr::from_str(&config.yaml).unwrap();
        let model = &value["models"][0];
        assert_eq!(model["traffic"]["targets"]["static"].as_array().map(Vec::len), Some(2));
        assert_eq!((model["slo"]["ttft"].as_str(), model["slo"]["itl"].as_str()), (Some("800ms"), Some("40ms")));
        assert_eq!(model["pools"][1]["name"], "demo-decode");
        let profile: crate::planner::model::envelope::ProfileDocument = serde_json::from_str(&config.profile_json).unwrap();
        assert_eq!(profile, scenario::profile());
    }
}
