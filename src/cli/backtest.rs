//! `backtest`: what would have come of it? Traffic of another day, or of a shape, through configurations and autoscalers, in virtual time.

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use serde_json::json;

use super::Failure;
use super::load::load;
use crate::config::{self, Flags, ModelSelector};
use crate::planner::input::{CapacityModel, Limits, ModelPolicy};
use crate::planner::model::envelope::Envelope;
use crate::planner::propose::envelope::gpus_of;
use crate::simulator::backtest::{
    HpaQueue, Kpa, Load, Outcome, Planner, Scenario, best_of, best_static, need, out_of_reach, per_replica, run,
};
use crate::simulator::fit::{Fit, Measurements, fit};
use crate::simulator::fleet::{FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use crate::simulator::trace::edit::Edits;
use crate::simulator::trace::{self, Generation, Trace, shape};
use crate::simulator::workload::Request;
use crate::units::{ModelId, Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens};

/// Requests in the batch of a decode replica: vLLM's default on large GPUs is more than any measured profile reaches.
const MAX_REQUESTS: u32 = 1024;
/// Requests that may wait for each replica, of the autoscaler on queues.
const QUEUE_TARGET: f64 = 5.0;
/// What it is tuned over.
const QUEUE_TARGETS: [f64; 6] = [0.1, 0.25, 0.5, 1.0, 2.0, 10.0];
/// Share of what a replica may hold that the autoscaler on concurrency aims at: Knative's default.
const UTILISATION: f64 = 0.7;
/// What it is tuned over, for each role. A queue in front of a server that is busy 70 % of the time holds one or two prompts, so the shares of
/// what a replica may hold reach far down.
const SHARES: [f64; 5] = [0.02, 0.05, 0.12, 0.3, 0.6];
/// With less, a single request would ask for several replicas.
const LEAST_CONCURRENCY: f64 = 0.5;
/// Span over which the load at the start and at the peak is averaged.
const MINUTE: Duration = Duration::from_secs(60);

/// Flags of `backtest`.
#[derive(Clone, Debug, clap::Args)]
pub struct BacktestArgs {
    /// A configuration to be judged; repeat it to compare. Objectives, profile and limits of the first one are those of the simulated servers
    #[arg(long, required = true)]
    pub config: Vec<PathBuf>,
    /// The traffic: a file (Azure CSV, Mooncake or Dynamo JSONL, CSV of rates), or a shape such as shape:step?low=2&high=16&at=600s
    #[arg(long)]
    pub trace: String,
    /// Multiplies the number of requests
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// From the request for a replica to its readiness; a bare number is seconds
    #[arg(long, default_value = "60s", value_parser = config::parse_seconds_flag)]
    pub startup: Duration,
    /// The same seed gives the same result
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Compare with the best constant count and with autoscalers on queue length and on concurrency, usual and tuned: some 50 more runs
    #[arg(long)]
    pub baselines: bool,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = BacktestFormat::Text)]
    pub format: BacktestFormat,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BacktestFormat {
    /// A table.
    Text,
    /// Everything, with a point for each scrape.
    Json,
}

/// Plays the traffic to every configuration.
pub fn backtest(args: &BacktestArgs) -> Result<ExitCode, Failure> {
    let mut policies = Vec::new();
    for file in &args.config {
        let config = load(Some(file), Flags::default())?.config;
        let model = config.models.first().ok_or_else(|| anyhow!("{}: expected a model, found none", file.display()))?;
        let policy = match &model.selector {
            ModelSelector::Named(_) => model.policy.clone(),
            ModelSelector::Any => model.policy_for(&ModelId::from("default")).map_err(|problem| anyhow!(problem))?,
        };
        policies.push((file.display().to_string(), policy));
    }
    let trace = read_trace(args)?;
    let Some((_, first)) = policies.first() else { return Err(Failure::Usage("expected --config".to_owned())) };
    let world = World::new(first, &trace, args);
    world.describe();
    if policies.iter().any(|(_, policy)| policy.slo != first.slo) {
        tracing::warn!("the configurations have different objectives; all are judged by those of the first");
    }
    let mut outcomes = Vec::new();
    for (name, policy) in &policies {
        let scenario = Scenario { tick: policy.scrape_interval, ..world.scenario.clone() };
        outcomes.push(run(&scenario, &mut Planner::new(name, policy)));
    }
    if args.baselines {
        outcomes.extend(world.baselines());
    }
    let answer = match args.format {
        BacktestFormat::Text => table(&outcomes, out_of_reach(&world.scenario)),
        BacktestFormat::Json => {
            let summary = trace.summary();
            let answer = json!({
                "trace": { "name": args.trace, "scale": args.scale, "seed": args.seed, "requests": summary.requests,
                    "length_seconds": trace.length.as_secs_f64(), "rate": summary.rate,
                    "mean_input": summary.mean_input, "mean_output": summary.mean_output },
                "startup_seconds": args.startup.as_secs_f64(),
                "objectives": { "ttft_seconds": world.scenario.ttft, "itl_seconds": world.scenario.itl },
                "fit_error": { "prefill_mean": world.fit.prefill_error.mean, "prefill_max": world.fit.prefill_error.max,
                    "decode_mean": world.fit.decode_error.mean, "decode_max": world.fit.decode_error.max },
                "out_of_reach": out_of_reach(&world.scenario),
                "outcomes": outcomes,
            });
            format!("{answer:#}\n")
        }
    };
    std::io::stdout().write_all(answer.as_bytes()).context("write the answer")?;
    Ok(ExitCode::SUCCESS)
}

fn read_trace(args: &BacktestArgs) -> anyhow::Result<Trace> {
    let trace = if args.trace.starts_with(shape::PREFIX) {
        shape::parse(&args.trace).and_then(|curve| Trace::following(&curve, args.seed))
    } else {
        let text = std::fs::read_to_string(&args.trace).with_context(|| format!("read the trace {}", args.trace))?;
        trace::read(&text, &Generation { seed: args.seed, ..Generation::default() })
    };
    let edits = Edits { factor: Ratio(args.scale), seed: args.seed, ..Edits::default() };
    trace.and_then(|trace| edits.apply(trace)).with_context(|| format!("trace {}", args.trace))
}

/// The simulated servers and the traffic, as the first configuration describes them.
struct World<'a> {
    scenario: Scenario<'a>,
    limits: BTreeMap<Role, Limits>,
    envelope: &'a Envelope,
    fit: Fit,
    mean: Load,
    /// Counts for twice the busiest minute, within the limits: more are never needed.
    most: BTreeMap<Role, Replicas>,
}

impl<'a> World<'a> {
    fn new(policy: &'a ModelPolicy, trace: &'a Trace, args: &BacktestArgs) -> Self {
        let CapacityModel::Envelope(envelope) = &policy.capacity;
        let profile = envelope.document();
        // The longest measured prompt was computed in one piece as far as anyone knows; `as` saturates.
        let chunk = profile.prefill.isl.last().map_or(1, |tokens| tokens.round() as u32).max(1);
        let fit = fit(&Measurements::of_profile(profile, chunk));
        let gpus: BTreeMap<Role, u32> = policy.pools.iter().map(|pool| (pool.role, gpus_of(pool, envelope))).collect();
        let limits: BTreeMap<Role, Limits> = policy.pools.iter().map(|pool| (pool.role, pool.limits)).collect();
        let clamped = |counts: BTreeMap<Role, Replicas>| -> BTreeMap<Role, Replicas> {
            let within = |(role, count)| (role, limits.get(&role).map_or(count, |limits: &Limits| limits.clamp(count)));
            counts.into_iter().map(within).collect()
        };
        let (ttft, itl) = (Seconds(policy.slo.ttft.get()), Seconds(policy.slo.itl.get()));
        let mean = load_of(&trace.requests, trace.length);
        let minutes = minutes(&trace.requests);
        let peak =
            minutes.iter().map(|requests| load_of(requests, MINUTE).rate).fold(RequestsPerSecond(0.0), |a, b| if b > a { b } else { a });
        let first = minutes.first().map_or(mean, |requests| load_of(requests, MINUTE.min(trace.length)));
        let start = clamped(need(envelope, &gpus, itl, Load { rate: first.rate, ..mean }));
        let most = clamped(need(envelope, &gpus, itl, Load { rate: RequestsPerSecond(2.0 * peak.get()), ..mean }));
        let pool = |role, max_requests| {
            let kv_tokens = profile.decode.max_kv_tokens as u64;
            let replica = ReplicaSettings { costs: fit.costs(role), kv_tokens, max_requests, max_batched_tokens: chunk };
            PoolSettings { replicas: start.get(&role).copied().unwrap_or(Replicas(1)), replica }
        };
        let fleet = FleetSettings {
            // One prompt at a time, as profiles measure them.
            layout: Layout::Disaggregated { prefill: pool(Role::Prefill, 1), decode: pool(Role::Decode, MAX_REQUESTS) },
            routing: Routing::LeastWork,
            startup: args.startup,
            hand_over: Duration::ZERO,
            prefix_hits: Ratio(0.0),
            routers: NonZeroUsize::MIN,
            seed: args.seed,
        };
        let scenario = Scenario { requests: &trace.requests, length: trace.length, fleet, gpus, ttft, itl, tick: policy.scrape_interval };
        Self { scenario, limits, envelope, fit, mean, most }
    }

    fn describe(&self) {
        let percent = |ratio: Ratio| format!("{:.1} %", 100.0 * ratio.get());
        tracing::info!(
            prefill_mean = percent(self.fit.prefill_error.mean),
            prefill_max = percent(self.fit.prefill_error.max),
            decode_mean = percent(self.fit.decode_error.mean),
            decode_max = percent(self.fit.decode_error.max),
            "the simulated servers differ from the profile by"
        );
    }

    /// The best constant count, and each autoscaler with its usual setting and with the best of some, chosen on the very trace.
    fn baselines(&self) -> Vec<Outcome> {
        let scenario = &self.scenario;
        let best = best_static(scenario, &self.most);
        let goal = best.goal;
        let hpa = |target: f64| HpaQueue::new(Requests(target), self.limits.clone());
        let held = per_replica(self.envelope, scenario.ttft, scenario.itl, self.mean);
        let kpa = |shares: [f64; 2]| {
            let of = |(role, requests): (&Role, &Requests)| {
                let share = if *role == Role::Prefill { shares[0] } else { shares[1] };
                (*role, Requests((requests.get() * share).max(LEAST_CONCURRENCY)))
            };
            Kpa::new(held.iter().map(of).collect(), self.limits.clone())
        };
        let shares = SHARES.into_iter().flat_map(|prefill| SHARES.map(|decode| [prefill, decode]));
        let tuned = |outcome: Option<Outcome>| outcome.map(|outcome| named("tuned", outcome));
        let rows = [
            Some(named("best", best.outcome)),
            Some(run(scenario, &mut hpa(QUEUE_TARGET))),
            tuned(best_of(scenario, QUEUE_TARGETS.map(hpa), goal)),
            Some(run(scenario, &mut kpa([UTILISATION; 2]))),
            tuned(best_of(scenario, shares.map(kpa), goal)),
        ];
        rows.into_iter().flatten().collect()
    }
}

fn named(prefix: &str, outcome: Outcome) -> Outcome {
    Outcome { policy: format!("{prefix} {}", outcome.policy), ..outcome }
}

/// The requests of each minute, up to the last one that has some.
fn minutes(requests: &[Request]) -> Vec<&[Request]> {
    let minute = |request: &Request| request.at.as_secs() / MINUTE.as_secs();
    let mut parts: Vec<&[Request]> = requests.chunk_by(|a, b| minute(a) == minute(b)).collect();
    if requests.first().is_some_and(|first| minute(first) > 0) {
        parts.insert(0, &[]);
    }
    parts
}

/// The mean load over a span; that of nothing is nothing.
fn load_of(requests: &[Request], span: Duration) -> Load {
    let mean = |length: fn(&Request) -> u32| {
        let sum: u64 = requests.iter().map(|request| u64::from(length(request))).sum();
        Tokens(sum as f64 / requests.len().max(1) as f64)
    };
    let seconds = span.as_secs_f64();
    let rate = RequestsPerSecond(if seconds > 0.0 { requests.len() as f64 / seconds } else { 0.0 });
    Load { rate, input: mean(|request| request.input), output: mean(|request| request.output) }
}

const HEADERS: [&str; 14] = [
    "policy",
    "within SLO",
    "missed",
    "GPU h",
    "TTFT p50",
    "p95",
    "p99",
    "ITL p50",
    "p95",
    "p99",
    "peak",
    "ups+downs/h",
    "reversals/h",
    "violation (longest)",
];

/// One line for each outcome. Pairs such as 3+4 are prefill and decode.
fn table(outcomes: &[Outcome], out_of_reach: u64) -> String {
    let millis = |value: Option<Seconds>| value.map_or_else(|| "-".to_owned(), |value| format!("{:.0} ms", 1000.0 * value.get()));
    let mut rows: Vec<Vec<String>> = vec![HEADERS.map(str::to_owned).to_vec()];
    for outcome in outcomes {
        let hours = outcome.hours.max(f64::MIN_POSITIVE);
        let pairs = |of: &dyn Fn(&crate::simulator::backtest::outcome::Scaling) -> String| {
            outcome.roles.values().map(of).collect::<Vec<_>>().join("+")
        };
        let rates = |of: &dyn Fn(&crate::simulator::backtest::outcome::Scaling) -> u32| {
            pairs(&|scaling| format!("{:.1}", f64::from(of(scaling)) / hours))
        };
        let (ttft, itl) = (outcome.ttft, outcome.itl);
        rows.push(vec![
            outcome.policy.clone(),
            format!("{:.2} %", 100.0 * outcome.attainment.get()),
            (outcome.offered - outcome.within).to_string(),
            format!("{:.2}", outcome.gpu_hours),
            millis(ttft.map(|spread| spread.p50)),
            millis(ttft.map(|spread| spread.p95)),
            millis(ttft.map(|spread| spread.p99)),
            millis(itl.map(|spread| spread.p50)),
            millis(itl.map(|spread| spread.p95)),
            millis(itl.map(|spread| spread.p99)),
            pairs(&|scaling| scaling.peak.to_string()),
            rates(&|scaling| scaling.ups + scaling.downs),
            rates(&|scaling| scaling.reversals),
            format!("{:.0} s ({:.0} s)", outcome.violation.get(), outcome.longest_violation.get()),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADERS.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  "))
    };
    let mut text: String = rows.iter().map(line).collect();
    if out_of_reach > 0 {
        text += &format!("{out_of_reach} of the requests have prompts that take longer than the TTFT objective on an idle replica\n");
    }
    text
}
