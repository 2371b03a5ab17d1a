//! `check`: is a configuration right? Every problem at once, before anything runs.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::load::load;
use super::{Failure, complain};
use crate::config::Flags;

/// Flags of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The configuration: YAML, TOML or JSON; the files that it names are checked with it
    #[arg(value_name = "FILE", required_unless_present = "config")]
    pub file: Option<PathBuf>,
    /// The same as FILE
    #[arg(long, conflicts_with = "file")]
    pub config: Option<PathBuf>,
    /// Print the configuration with defaults filled in and secrets hidden
    #[arg(long)]
    pub print_effective: bool,
}

/// Checks; problems go to standard error.
pub fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let file = args.file.as_deref().or(args.config.as_deref());
    let loaded = load(file, Flags::default())?;
    if !loaded.unready.is_empty() {
        return Err(loaded.unready.into());
    }
    for (kind, told) in [("warning", &loaded.warnings), ("note", &loaded.notes)] {
        told.iter().for_each(|told| complain(&format!("{kind}: {told}")));
    }
    let answer = if args.print_effective {
        loaded.effective
    } else {
        let pools: usize = loaded.config.models.iter().map(|model| model.policy.pools.len()).sum();
        format!("ok: models {}, pools {pools}, configuration {}\n", loaded.config.models.len(), loaded.config.hash)
    };
    std::io::stdout().write_all(answer.as_bytes()).context("write the answer")?;
    Ok(ExitCode::SUCCESS)
}
