//! `check`: is a configuration right? Every problem at once, before anything runs.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::load::{load_serving, source};
use super::{Failure, complain};
use crate::config::{self, Flags};

/// Flags of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration: YAML, TOML or JSON; the files that it names are checked with it
    #[arg(value_name = "FILE", required_unless_present_any = ["config", "from_dynamo"])]
    pub file: Option<PathBuf>,
    /// The same as FILE
    #[arg(long, conflicts_with = "file")]
    pub config: Option<PathBuf>,
    /// Tell which models are of this shard, as `run` takes it
    #[arg(long, value_name = "I/N", conflicts_with = "from_dynamo")]
    pub shard: Option<String>,
    /// Print the configuration with defaults filled in and secrets hidden
    #[arg(long)]
    pub print_effective: bool,
    /// Translate a configuration of Dynamo's planner and print it: a PlannerConfig, or a DynamoGraphDeploymentRequest with one, JSON or YAML.
    /// Each value names the field that it comes from, each field without a counterpart says why, and what Dynamo's file does not say is
    /// marked FILL_IN
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "config", "print_effective"])]
    pub from_dynamo: Option<PathBuf>,
}

/// Checks; problems go to standard error.
pub fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    if let Some(file) = &args.from_dynamo {
        return answer(&config::from_dynamo(&source(file)?)?);
    }
    let file = args.file.as_deref().or(args.config.as_deref());
    let loaded = load_serving(file, Flags { shard: args.shard.clone(), ..Flags::default() })?;
    if !loaded.unready.is_empty() {
        return Err(loaded.unready.into());
    }
    for (kind, told) in [("warning", &loaded.warnings), ("note", &loaded.notes)] {
        told.iter().for_each(|told| complain(&format!("{kind}: {told}")));
    }
    let text = if args.print_effective {
        loaded.effective
    } else {
        let pools: usize = loaded.config.models.iter().map(|model| model.policy.pools.len()).sum();
        format!("ok: models {}, pools {pools}, configuration {}\n", loaded.config.models.len(), loaded.config.hash)
    };
    answer(&text)
}

fn answer(text: &str) -> Result<ExitCode, Failure> {
    std::io::stdout().write_all(text.as_bytes()).context("write the answer")?;
    Ok(ExitCode::SUCCESS)
}
