//! `backtest`: what would have come of it? Traffic of another day, or of a shape, through configurations and autoscalers, in virtual time.
//!
//! - `inputs`: configurations and traffic.
//! - `help`: the shapes in words.
//! - `page`: the file of the report.

mod help;
mod inputs;
pub(super) mod page;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;

use self::inputs::{Configuration, check_spans, configuration, no_servers, playable, servers, traffic, unlike};
use self::page::Page;
use super::Failure;
use crate::config;
use crate::report;
use crate::report::text::printable;
use crate::simulator::backtest::comparison::{Beside, Comparison, FitErrors, Part, Traffic};
use crate::simulator::backtest::faults::{MetricFault, MetricFaults};
use crate::simulator::backtest::world::{World, WorldSettings};
use crate::simulator::fleet::Routing;
use crate::units::Ratio;

/// Mean difference of the simulated servers from their profile above which their answers are doubtful.
const DOUBTFUL: Ratio = Ratio(0.1);
/// Characters of a line of progress: it must not wrap, or it could not be written over.
const PROGRESS: usize = 70;

/// Flags of `backtest`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::SHAPES)]
pub struct BacktestArgs {
    /// A configuration to be judged; repeat it to compare. Objectives, profile and GPUs of the first one with a profile are those of the simulated servers; the limits of each hold for itself, those of that one for baselines too
    #[arg(long, required = true)]
    pub config: Vec<PathBuf>,
    /// The model to be judged, where a configuration plans several
    #[arg(long)]
    pub model: Option<String>,
    /// The traffic: a file (Azure CSV, Mooncake or Dynamo JSONL, CSV of rates; also gzipped), or a shape such as 'shape:step?low=2&high=16&at=600s', see below
    #[arg(long)]
    pub trace: String,
    /// Multiplies the number of requests
    #[arg(long, default_value_t = 1.0, value_parser = factor, allow_negative_numbers = true)]
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
    /// Replicas that compute prompts and decode, in place of one pool for each: configurations of an aggregated pool are judged
    #[arg(long)]
    pub aggregated: bool,
    /// What is wrong from time to time with the metrics that planners see, while the servers go on as ever; several are separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND,...")]
    pub metric_faults: Vec<MetricFaultFlag>,
    /// The same seed gives the same result
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Compare with autoscalers on queue length and on concurrency, usual and tuned, with the best constant counts, and with a plan that knows the future: some 200 more runs
    #[arg(long)]
    pub baselines: bool,
    /// Compare with what was possible: the best constant counts, a plan that knows the future, and that plan late by a start-up
    #[arg(long)]
    pub hindsight: bool,
    /// Write a report with plots over time into this file, in place of what was there
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

/// What is wrong with metrics, in spells of 10 s to 3 min that are some minutes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MetricFaultFlag {
    /// Some or all targets do not answer.
    Silent,
    /// Counters of some targets begin anew.
    Resets,
    /// Pages lack some of their families.
    Partial,
    /// Rounds come up to 15 s late, or are lost.
    Late,
}

impl From<MetricFaultFlag> for MetricFault {
    fn from(flag: MetricFaultFlag) -> Self {
        match flag {
            MetricFaultFlag::Silent => Self::Silent,
            MetricFaultFlag::Resets => Self::Resets,
            MetricFaultFlag::Partial => Self::Partial,
            MetricFaultFlag::Late => Self::Late,
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("expected a number from 0 to 1".to_owned()) }
}

fn factor(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a finite number above zero".to_owned())
}

/// Plays the traffic to every configuration.
pub fn backtest(args: &BacktestArgs) -> Result<ExitCode, Failure> {
    let model = args.model.as_deref();
    let configurations = args.config.iter().map(|file| configuration(file, model)).collect::<Result<Vec<_>, Failure>>()?;
    let servers = servers(&configurations)?;
    // The servers' own configuration plans other pools than replicas that do both.
    let judged = || configurations.iter().filter(|one| !args.aggregated || !std::ptr::eq(*one, servers));
    if judged().next().is_none() {
        return Err(Failure::Usage(
            "--aggregated: expected a configuration with an aggregated pool beside the one with a profile".to_owned(),
        ));
    }
    for other in judged().filter(|other| !std::ptr::eq(*other, servers)) {
        playable(servers, other, args.aggregated)?;
        for found in unlike(servers, other) {
            tracing::warn!("{}: {found}", other.name);
        }
    }
    let page = args.html.as_ref().map(|file| Page::of(file, &read_files(args, &configurations))).transpose()?;
    let trace = traffic(args)?;
    check_spans(args, &trace, &configurations)?;
    let world = World::new(&servers.policy, &trace, &settings(args)).ok_or_else(no_servers)?;
    let traffic = Traffic::of(&trace, &args.trace, args.scale, args.seed);
    let policies: Vec<_> = judged().map(|configuration| (configuration.name.clone(), configuration.policy.clone())).collect();
    let beside = match (args.baselines, args.hindsight) {
        (true, _) => Beside::Baselines,
        (false, true) => Beside::Hindsight,
        (false, false) => Beside::Nothing,
    };
    let comparison = Comparison::of(&world, traffic, &policies, beside, &mut progress);
    clear_progress();
    describe(&comparison.fit_error);
    if beside != Beside::Nothing && comparison.hindsight.is_none() {
        tracing::warn!("no fleet within the limits can meet the objectives on this trace, so there is no plan to compare with");
    }
    // The answer is worth having even if the report cannot be written.
    let written = page.map_or(Ok(()), |page| page.write(&report::backtest::html(&comparison)));
    let answer = match args.format {
        BacktestFormat::Text => report::backtest::text(&comparison),
        BacktestFormat::Json => serde_json::to_string_pretty(&comparison).context("write the answer")? + "\n",
    };
    let mut output = std::io::stdout();
    let printed = output.write_all(answer.as_bytes()).and_then(|()| output.flush()).context("write the answer");
    written?;
    printed?;
    Ok(ExitCode::SUCCESS)
}

fn settings(args: &BacktestArgs) -> WorldSettings {
    WorldSettings {
        startup: args.startup,
        hand_over: args.hand_over,
        warm_up: args.warm_up,
        prefix_hits: Ratio(args.prefix_hits),
        routing: match args.routing {
            RoutingFlag::LeastWork => Routing::LeastWork,
            RoutingFlag::RoundRobin => Routing::RoundRobin,
        },
        aggregated: args.aggregated,
        metric_faults: MetricFaults { kinds: args.metric_faults.iter().copied().map(MetricFault::from).collect(), seed: args.seed },
        seed: args.seed,
    }
}

/// Every file that is read; a shape is none and matches none.
fn read_files(args: &BacktestArgs, configurations: &[Configuration]) -> Vec<PathBuf> {
    let named = configurations.iter().flat_map(|configuration| configuration.files.clone());
    named.chain(args.config.clone()).chain([PathBuf::from(&args.trace)]).collect()
}

/// Says on a terminal what goes on, on one line. Elsewhere it would be noise.
fn progress(part: &Part<'_>) {
    if std::io::stderr().is_terminal() {
        let line: String = format!("{} of {}: {}", part.number, part.of, printable(part.what)).chars().take(PROGRESS).collect();
        write_progress(&line);
    }
}

fn clear_progress() {
    if std::io::stderr().is_terminal() {
        write_progress("");
    }
}

fn write_progress(line: &str) {
    // To the start of the line, and what stood there away. A terminal that is gone is nobody's loss.
    let _gone = write!(std::io::stderr(), "\r\x1b[K{line}");
}

fn describe(errors: &FitErrors) {
    let percent = |ratio: Ratio| format!("{:.1} %", 100.0 * ratio.get());
    tracing::info!(
        prefill_mean = percent(errors.prefill_mean),
        prefill_max = percent(errors.prefill_max),
        decode_mean = percent(errors.decode_mean),
        decode_max = percent(errors.decode_max),
        "the latencies of the simulated servers differ from those of the profile by"
    );
    if errors.prefill_mean > DOUBTFUL || errors.decode_mean > DOUBTFUL {
        tracing::warn!(
            "the simulated servers differ from the profile by more than 10 % on average: what comes of real ones may be different"
        );
    }
}
