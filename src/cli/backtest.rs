//! `backtest`: what would have come of it? Traffic of another day, or of a shape, through configurations and autoscalers, in virtual time.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use flate2::read::MultiGzDecoder;

use super::Failure;
use super::load::load;
use crate::config::{self, Flags, ModelSelector};
use crate::planner::input::ModelPolicy;
use crate::report;
use crate::simulator::backtest::comparison::{Comparison, FitErrors, Traffic};
use crate::simulator::backtest::world::{World, WorldSettings};
use crate::simulator::fleet::Routing;
use crate::simulator::trace::edit::Edits;
use crate::simulator::trace::{self, Generation, Trace, shape};
use crate::units::{ModelId, Ratio};

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Unpacked bytes of a trace at most; a week of the largest public trace is below that.
const MOST_BYTES: u64 = 4 << 30;

/// Flags of `backtest`.
#[derive(Clone, Debug, clap::Args)]
pub struct BacktestArgs {
    /// A configuration to be judged; repeat it to compare. Objectives, profile and limits of the first one are those of the simulated servers
    #[arg(long, required = true)]
    pub config: Vec<PathBuf>,
    /// The traffic: a file (Azure CSV, Mooncake or Dynamo JSONL, CSV of rates; also gzipped), or a shape such as shape:step?low=2&high=16&at=600s
    #[arg(long)]
    pub trace: String,
    /// Multiplies the number of requests
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// From the request for a replica to its readiness; a bare number is seconds
    #[arg(long, default_value = "60s", value_parser = config::parse_delay_flag)]
    pub startup: Duration,
    /// What happens before is played and not judged: neither requests nor cost
    #[arg(long, default_value = "0s", value_parser = config::parse_delay_flag)]
    pub warm_up: Duration,
    /// From the end of prefill to the arrival of the KV cache at a decode replica
    #[arg(long, default_value = "0s", value_parser = config::parse_delay_flag)]
    pub hand_over: Duration,
    /// Share of each prompt that is in memory already and is not computed, from 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = share)]
    pub prefix_hits: f64,
    /// How requests are spread over the replicas of a pool
    #[arg(long, value_enum, default_value_t = RoutingFlag::LeastWork)]
    pub routing: RoutingFlag,
    /// The same seed gives the same result
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Compare with autoscalers on queue length and on concurrency, usual and tuned, with the best constant counts, and with a plan that knows the future: some 200 more runs
    #[arg(long)]
    pub baselines: bool,
    /// Write a report with plots over time into this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
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

/// How requests are spread over the replicas of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoutingFlag {
    /// To the one with the least work.
    LeastWork,
    /// To each in turn.
    RoundRobin,
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("expected a number from 0 to 1".to_owned()) }
}

/// Plays the traffic to every configuration.
pub fn backtest(args: &BacktestArgs) -> Result<ExitCode, Failure> {
    let configurations = args.config.iter().map(|file| configuration(file)).collect::<Result<Vec<_>, Failure>>()?;
    let trace = read_trace(args)?;
    let Some((_, first)) = configurations.first() else { return Err(Failure::Usage("expected --config".to_owned())) };
    if configurations.iter().any(|(_, policy)| policy.slo != first.slo) {
        tracing::warn!("the configurations have different objectives; all are judged by those of the first");
    }
    let settings = WorldSettings {
        startup: args.startup,
        hand_over: args.hand_over,
        warm_up: args.warm_up,
        prefix_hits: Ratio(args.prefix_hits),
        routing: match args.routing {
            RoutingFlag::LeastWork => Routing::LeastWork,
            RoutingFlag::RoundRobin => Routing::RoundRobin,
        },
        seed: args.seed,
    };
    if args.warm_up >= trace.length {
        return Err(Failure::Usage(format!("--warm-up: expected less than the length of the trace, {:.0} s", trace.length.as_secs_f64())));
    }
    let world = World::new(first, &trace, &settings).ok_or_else(|| {
        Failure::Usage(
            "--config: the first configuration describes the simulated servers, so it needs a profile (planner.profile)".to_owned(),
        )
    })?;
    let traffic = Traffic::of(&trace, &args.trace, args.scale, args.seed);
    let comparison = Comparison::of(&world, traffic, &configurations, args.baselines, &mut |_| {});
    describe(&comparison.fit_error);
    if args.baselines && comparison.hindsight.is_none() {
        tracing::warn!("no constant counts within the limits meet the goal, so there is no plan to compare with");
    }
    if let Some(file) = &args.html {
        std::fs::write(file, report::backtest::html(&comparison)).with_context(|| format!("write the report {}", file.display()))?;
    }
    let answer = match args.format {
        BacktestFormat::Text => report::backtest::text(&comparison),
        BacktestFormat::Json => serde_json::to_string_pretty(&comparison).context("write the answer")? + "\n",
    };
    std::io::stdout().write_all(answer.as_bytes()).context("write the answer")?;
    Ok(ExitCode::SUCCESS)
}

/// The first model of a file, under the file's name.
fn configuration(file: &Path) -> Result<(String, ModelPolicy), Failure> {
    let config = load(Some(file), Flags::default())?.config;
    let model = config.models.first().ok_or_else(|| anyhow!("{}: expected a model, found none", file.display()))?;
    let policy = match &model.selector {
        ModelSelector::Named(_) => model.policy.clone(),
        ModelSelector::Any => model.policy_for(&ModelId::from("default")).map_err(|problem| anyhow!(problem))?,
    };
    Ok((file.display().to_string(), policy))
}

fn describe(errors: &FitErrors) {
    let percent = |ratio: Ratio| format!("{:.1} %", 100.0 * ratio.get());
    tracing::info!(
        prefill_mean = percent(errors.prefill_mean),
        prefill_max = percent(errors.prefill_max),
        decode_mean = percent(errors.decode_mean),
        decode_max = percent(errors.decode_max),
        "the simulated servers differ from the profile by"
    );
}

fn read_trace(args: &BacktestArgs) -> anyhow::Result<Trace> {
    let trace = if args.trace.starts_with(shape::PREFIX) {
        shape::parse(&args.trace).and_then(|curve| Trace::following(&curve, args.seed))
    } else {
        let text = read_text(Path::new(&args.trace)).with_context(|| format!("read the trace {}", args.trace))?;
        trace::read(&text, &Generation { seed: args.seed, ..Generation::default() })
    };
    let edits = Edits { factor: Ratio(args.scale), seed: args.seed, ..Edits::default() };
    trace.and_then(|trace| edits.apply(trace)).with_context(|| format!("trace {}", args.trace))
}

/// The text of a file, unpacked if it is gzipped.
fn read_text(file: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(file)?;
    if !bytes.starts_with(&GZIP) {
        return String::from_utf8(bytes).context("expected UTF-8 text, or such text gzipped");
    }
    let mut text = String::new();
    let read = MultiGzDecoder::new(bytes.as_slice()).take(MOST_BYTES).read_to_string(&mut text).context("unpack it")?;
    anyhow::ensure!((read as u64) < MOST_BYTES, "expected less than {MOST_BYTES} unpacked bytes");
    Ok(text)
}
