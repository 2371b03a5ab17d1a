//! What did the user ask for? Text in; a checked configuration, or the list of all problems, out. Pure.
//!
//! This file holds what the program uses: resolved, checked, with units. It is made in two phases, because the file names other files:
//!
//! 1. [`read`] takes the text of the file, the variables and the flags, and checks all that needs no other file;
//! 2. the caller reads [`Draft::files`], and [`Draft::finish`] gives the [`Loaded`] configuration or all problems of all files.
//!
//! | file | question |
//! |---|---|
//! | `schema` | which keys exist: the one table |
//! | `tree` | what does the text say, and where |
//! | `layers`, `flags` | which of defaults, file, variables and flags wins |
//! | `check`, `scalar` | is each value of its kind |
//! | `resolve`, `pools` | what do the values mean together |
//! | `targets` | where do targets come from |
//! | `access` | what goes with a request, and are the files usable that it needs |
//! | `query` | which Prometheus is asked instead of them |
//! | `profile`, `overrides`, `config_map` | what do the files say that it names |
//! | `load_targets`, `queueing` | how presets dynamo and wva are used |
//! | `dynamo` | what do the files of Dynamo's planner mean here |
//! | `budgets` | do the minima fit the GPU budgets |
//! | `shard` | which models are ours, where several exporters share a configuration |
//! | `loops` | which loops does preset dynamo run, and how far may they go |
//! | `predictor` | how is the next window forecast |
//! | `warnings` | what is allowed and yet probably not meant |
//! | `web` | who may read us, and over what |
//! | `load` | the two phases |
//! | `effective`, `reference` | the configuration with its defaults; the generated `README.md` |

mod access;
mod budgets;
mod check;
mod config_map;
mod custom;
mod dynamo;
mod effective;
mod flags;
mod layers;
mod load;
mod load_targets;
mod loops;
mod names;
mod overrides;
mod pools;
mod predictor;
mod preset;
mod problem;
pub mod profile;
mod query;
mod queueing;
mod reference;
mod resolve;
mod scalar;
mod schema;
mod shard;
mod targets;
mod tree;
mod untold;
mod warnings;
mod web;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use access::AccessConfig;
pub use config_map::Objectives;
pub use dynamo::{no_profile, profile_files, profile_text, translate as from_dynamo};
pub use flags::Flags;
pub use load::{Draft, Inputs, Loaded, Portable, read};
pub use names::pool_name;
pub use problem::Problem;
pub use query::QueryConfig;
pub use reference::render as reference;
pub use scalar::{parse_delay_flag, parse_millis_flag, parse_seconds_flag};
pub use shard::Shard;
pub use targets::{DiscoveryConfig, KubernetesConfig, PodChoice, Way, found_target, whole};
pub use tree::SourceText;
pub use web::{WebConfig, WebDraft, read_web};

use crate::engines::Dialect;
use crate::planner::input::SourceId;
use crate::planner::policy::{GpuBand, ModelPolicy, Pin};
use crate::units::{ModelId, PoolId, TargetId};

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
    /// Where llm-d's ConfigMap of objectives is mounted.
    pub queueing_config: Option<PathBuf>,
    /// Above this many targets the per-target families are left out.
    pub max_target_series: usize,
    /// Where reports are written while it runs, if at all.
    pub report: Option<ReportConfig>,
    /// GPUs of all models together, at least and at most.
    pub gpus: GpuBand,
    /// Which of several exporters that share the configuration this is; `None`: there is one.
    pub shard: Option<Shard>,
    /// The models to plan; of a shard only its own.
    pub models: Vec<ModelConfig>,
    /// Every file that the configuration was read from, to be watched for changes; and the folder of which every file counts.
    pub files: Vec<PathBuf>,
    /// The first 12 hex digits of the SHA-256 of the effective configuration, profiles and overrides included.
    pub hash: String,
}

/// Settings of our own HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Whether reloads and acknowledgements over HTTP are allowed.
    pub enable_lifecycle: bool,
    /// How long a decision may go without an acknowledgement.
    pub acknowledge_within: Duration,
    /// Where certificates and passwords of our own server are read from; see [`read_web`].
    pub web_config_file: Option<PathBuf>,
}

/// Reports that are written while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportConfig {
    /// The folder for them.
    pub dir: PathBuf,
    /// Time between two of them.
    pub interval: Duration,
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
    pub engine: Option<Dialect>,
    /// The sources with their targets, traffic first.
    pub sources: Vec<SourceConfig>,
    /// The policy. With [`ModelSelector::Any`] its model and pool names are placeholders until [`ModelConfig::policy_for`] fills them in.
    pub policy: ModelPolicy,
    /// With [`ModelSelector::Any`]: the operator's pins, for pools whose names appear with their model. Empty otherwise: the policy has them.
    pub pins: BTreeMap<PoolId, Pin>,
    /// With [`ModelSelector::Any`]: what llm-d's ConfigMap says of single models. Empty otherwise: the policy has it.
    pub objectives: BTreeMap<ModelId, Objectives>,
}

impl ModelConfig {
    /// The policy of one model: with [`ModelSelector::Named`] the configured one, with [`ModelSelector::Any`] the pattern with its names
    /// filled in. The caller sees to it that no two models get pools of the same name ([`shared_pool`]).
    ///
    /// An error where the configuration plans another model, or the name gives no legal pool name.
    pub fn policy_for(&self, model: &ModelId) -> Result<ModelPolicy, String> {
        match &self.selector {
            ModelSelector::Named(name) if name == model => Ok(self.policy.clone()),
            ModelSelector::Named(name) => Err(format!("expected model {:?}, got {:?}", name.as_str(), model.as_str())),
            ModelSelector::Any => {
                let mut policy = self.policy.clone();
                policy.model = model.clone();
                if let Some(objectives) = self.objectives.get(model) {
                    objectives.apply(&mut policy);
                }
                for pool in &mut policy.pools {
                    pool.pool = pool_name(model, pool.role)?;
                    // Which pool a pin means is only known now; one outside this pool's limits does not count.
                    pool.pin = self.pins.get(&pool.pool).filter(|pin| pool.limits.clamp(pin.replicas) == pin.replicas).cloned();
                }
                Ok(policy)
            }
        }
    }
}

/// The first pool name that two policies share, with both models: their series could not be told apart.
pub fn shared_pool<'a>(policies: impl IntoIterator<Item = &'a ModelPolicy>) -> Option<(&'a PoolId, &'a ModelId, &'a ModelId)> {
    let mut seen: BTreeMap<&PoolId, &ModelId> = BTreeMap::new();
    for policy in policies {
        for pool in &policy.pools {
            if let Some(first) = seen.insert(&pool.pool, &policy.model) {
                return Some((&pool.pool, first, &policy.model));
            }
        }
    }
    None
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
    /// The targets that are written down, sorted by name, each once. Empty where they are found.
    pub targets: Vec<TargetConfig>,
    /// How the targets are found; `None` where they are written down.
    pub discovery: Option<DiscoveryConfig>,
    /// The Prometheus that is asked instead of the targets; `None` where they are scraped. Then nothing else finds targets.
    pub query: Option<QueryConfig>,
    /// What goes with every request to them.
    pub access: Arc<AccessConfig>,
}

/// One endpoint to scrape.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetConfig {
    /// `host:port/path`.
    pub target: TargetId,
    /// The full URL, `http` or `https`.
    pub url: String,
}
