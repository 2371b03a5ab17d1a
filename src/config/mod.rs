//! What did the user ask for? Text in; a checked configuration, or the list of all problems, out. Pure.
//!
//! This file holds what the program uses: resolved, checked, with units.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::engines::Engine;
use crate::planner::input::{ModelPolicy, SourceId};
use crate::units::{ModelId, TargetId};

/// A checked configuration. One immutable snapshot serves a whole tick.
#[derive(Clone, Debug)]
pub struct Config {
    /// Our own HTTP server.
    pub server: ServerConfig,
    /// Scraping.
    pub scrape: ScrapeConfig,
    /// Where recommendations survive a restart.
    pub state_file: Option<PathBuf>,
    /// Where the operator's pins are read from.
    pub overrides_file: Option<PathBuf>,
    /// Above this many targets the per-target families are left out.
    pub max_target_series: usize,
    /// The models to plan.
    pub models: Vec<ModelConfig>,
    /// Every file that the configuration was read from, to be watched for changes.
    pub files: Vec<PathBuf>,
    /// The first 12 hex digits of the SHA-256 of the effective configuration, profiles and overrides included.
    pub hash: String,
}

/// Settings of our own HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Whether `POST /-/reload` is allowed.
    pub enable_lifecycle: bool,
}

/// Settings of scraping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// Time between rounds.
    pub interval: Duration,
    /// Deadline of one target: connection, headers, body and reading.
    pub timeout: Duration,
    /// Targets scraped at the same time.
    pub concurrency: usize,
    /// Largest body, before and after inflating, bytes.
    pub body_limit: usize,
    /// Largest sum of bodies held at the same time, bytes.
    pub bytes_in_flight: usize,
    /// HTTP proxy; none unless configured, whatever the environment says.
    pub proxy: Option<String>,
}

/// One model, or the pattern for every model that the targets name.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// Whether the name is given or comes from the targets' model label.
    pub selector: ModelSelector,
    /// Label of the exported series.
    pub target_namespace: String,
    /// Dialect of the targets; `None` recognises it.
    pub engine: Option<&'static Engine>,
    /// The sources with their targets, traffic first.
    pub sources: Vec<SourceConfig>,
    /// The policy. With [`ModelSelector::Any`] its model and pool names are placeholders until [`ModelConfig::policy_for`] fills them in.
    pub policy: ModelPolicy,
}

/// Which samples a model's plan uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSelector {
    /// Samples with this model label, and samples without one.
    Named(ModelId),
    /// A plan for each model label that the targets show; one named `default` for samples without.
    Any,
}

/// A traffic source or a pool with its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceConfig {
    /// Which.
    pub source: SourceId,
    /// The targets, sorted by name, each once.
    pub targets: Vec<TargetConfig>,
}

/// One endpoint to scrape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetConfig {
    /// `host:port/path`.
    pub target: TargetId,
    /// The full URL, `http` or `https`.
    pub url: String,
}
