//! What can be asked on the command line? One file per command; this one holds what they share.
//!
//! Results go to standard output, logs to standard error. Exit codes: 0 done, 64 bad usage or configuration, 1 anything else.

pub mod backtest;
pub mod check;
pub mod demo;
pub mod load;
pub mod plan;
pub mod profile;
pub mod run;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::config::Problem;
use crate::report::text::printable;

/// Exit code of bad usage and bad configuration, as in sysexits.h.
const USAGE: u8 = 64;

/// Plans how many replicas of LLM inference servers meet TTFT and ITL objectives with the fewest GPUs, and exports the counts as Prometheus metrics.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 120)]
pub struct Cli {
    /// Form of the log on standard error; RUST_LOG chooses what is logged
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the exporter
    Run(run::RunArgs),
    /// Read a configuration and print every problem at once
    Check(check::CheckArgs),
    /// Plan once, offline, and print the decision as JSON or text
    Plan(Box<plan::PlanArgs>),
    /// Measure a running server, and write profile.json
    Profile(profile::ProfileArgs),
    /// Play traffic to configurations and autoscalers in virtual time, and compare what comes of it
    Backtest(backtest::BacktestArgs),
    /// Show it all in one process: simulated servers, the exporter, a changing load
    Demo(demo::DemoOptions),
}

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// The configuration has problems.
    Config(Vec<Problem>),
    /// The command was used wrongly.
    Usage(String),
    /// Anything else.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<Vec<Problem>> for Failure {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Config(problems)
    }
}

/// Runs the command of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; clap prints them to standard output. A closed pipe is nobody's loss.
            let _closed_pipe = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    // The demonstration tells on standard output what it does, and there is a recommendation every few seconds.
    let level = if matches!(cli.command, Command::Demo(_)) { "warn" } else { "info" };
    start_logging(cli.log_format, level);
    let result = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Check(args) => check::check(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Profile(args) => profile::profile(args),
        Command::Backtest(args) => backtest::backtest(&args),
        Command::Demo(options) => run::demo(options),
    };
    match result {
        Ok(code) => code,
        Err(failure) => report(&failure),
    }
}

/// Lines for standard error, without what would move a terminal's cursor. If nobody can read them, nobody is told so.
fn complain(text: &str) {
    let lines: String = text.lines().map(|line| printable(line) + "\n").collect();
    let _closed = std::io::stderr().write_all(lines.as_bytes());
}

fn report(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Config(problems) => {
            for problem in problems {
                complain(&problem.to_string());
            }
            ExitCode::from(USAGE)
        }
        Failure::Usage(problem) => {
            complain(&format!("error: {problem}"));
            ExitCode::from(USAGE)
        }
        Failure::Other(error) => {
            complain(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn start_logging(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    // Colours are for terminals; in a file or a log collector they are noise between a key and its value.
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // Told with a panic where standard error is closed: the service must outlive who reads its log.
    let builder = builder.log_internal_errors(false);
    match format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
}
