//! What did the command line say? Flags alone describe one model; beside a file only those of the process count.

use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::value::{Dict, Value as Layered};

use super::layers::insert;
use super::names;
use super::problem::Problem;
use crate::planner::policy::Preset;
use crate::units::{ModelId, Role};

/// Largest recommendation of a pool where the flags give none.
const DEFAULT_MAX_REPLICAS: u32 = 8;

/// The flags of `run` and `plan` that the configuration is made from, as values; `None` or empty where not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--metrics-url`, repeated.
    pub metrics_urls: Vec<String>,
    /// `--model`.
    pub model: Option<String>,
    /// `--target-namespace`.
    pub target_namespace: Option<String>,
    /// `--engine`.
    pub engine: Option<String>,
    /// `--preset`.
    pub preset: Option<String>,
    /// `--min-replicas`.
    pub min_replicas: Option<u32>,
    /// `--max-replicas`.
    pub max_replicas: Option<u32>,
    /// `--profile-results`.
    pub profile_results: Option<PathBuf>,
    /// `--ttft`, read by [`super::parse_millis_flag`].
    pub ttft: Option<Duration>,
    /// `--itl`, read by [`super::parse_millis_flag`].
    pub itl: Option<Duration>,
    /// `--adjustment-interval`, read by [`super::parse_seconds_flag`].
    pub adjustment_interval: Option<Duration>,
    /// `--listen`.
    pub listen: Option<String>,
    /// `--state-file`.
    pub state_file: Option<PathBuf>,
    /// `--shard`.
    pub shard: Option<String>,
    /// `--web-config-file`.
    pub web_config_file: Option<PathBuf>,
    /// `--queueing-config`.
    pub queueing_config: Option<PathBuf>,
}

impl Flags {
    /// The flags that describe a model, with whether each was given.
    fn of_the_model(&self) -> [(&'static str, bool); 11] {
        [
            ("--metrics-url", !self.metrics_urls.is_empty()),
            ("--model", self.model.is_some()),
            ("--target-namespace", self.target_namespace.is_some()),
            ("--engine", self.engine.is_some()),
            ("--preset", self.preset.is_some()),
            ("--min-replicas", self.min_replicas.is_some()),
            ("--max-replicas", self.max_replicas.is_some()),
            ("--profile-results", self.profile_results.is_some()),
            ("--ttft", self.ttft.is_some()),
            ("--itl", self.itl.is_some()),
            ("--adjustment-interval", self.adjustment_interval.is_some()),
        ]
    }

    /// The layer of the flags.
    pub(super) fn layer(&self, with_file: bool, problems: &mut Vec<Problem>) -> Dict {
        let mut dict = Dict::new();
        if let Some(listen) = &self.listen {
            insert(&mut dict, "server.listen", Layered::from(listen.as_str()));
        }
        if let Some(shard) = &self.shard {
            insert(&mut dict, "shard", Layered::from(shard.as_str()));
        }
        if let Some(path) = self.state_file.as_deref().and_then(|path| text_of(path, "--state-file", problems)) {
            insert(&mut dict, "state_file", Layered::from(path));
        }
        if let Some(path) = self.web_config_file.as_deref().and_then(|path| text_of(path, "--web-config-file", problems)) {
            insert(&mut dict, "server.web_config_file", Layered::from(path));
        }
        if let Some(path) = self.queueing_config.as_deref().and_then(|path| text_of(path, "--queueing-config", problems)) {
            insert(&mut dict, "queueing_config", Layered::from(path));
        }
        if with_file {
            for (flag, given) in self.of_the_model() {
                if given {
                    let message = "cannot be used together with --config; write it in the file".to_owned();
                    problems.push(Problem::outside(flag, message));
                }
            }
        } else {
            insert(&mut dict, "models", Layered::from(vec![self.model(problems)]));
        }
        dict
    }

    fn model(&self, problems: &mut Vec<Problem>) -> Layered {
        let mut model = Dict::new();
        let name = self.model.as_deref().unwrap_or(names::ANY);
        insert(&mut model, "name", Layered::from(name));
        if let Some(namespace) = &self.target_namespace {
            insert(&mut model, "target_namespace", Layered::from(namespace.as_str()));
        }
        if let Some(engine) = &self.engine {
            insert(&mut model, "engine", Layered::from(engine.as_str()));
        }
        for (path, span) in [("slo.ttft", self.ttft), ("slo.itl", self.itl), ("planner.adjustment_interval", self.adjustment_interval)] {
            if let Some(span) = span {
                insert(&mut model, path, Layered::from(humantime::format_duration(span).to_string()));
            }
        }
        if let Some(preset) = &self.preset {
            insert(&mut model, "planner.preset", Layered::from(preset.as_str()));
        }
        if let Some(path) = self.profile_results.as_deref().and_then(|path| text_of(path, "--profile-results", problems)) {
            insert(&mut model, "planner.profile", Layered::from(path));
        }
        insert(&mut model, "traffic.targets.static", Layered::from(self.metrics_urls.clone()));
        // Without a profile nobody said that prompts and answers are computed apart.
        let apart = self.profile_results.is_some() || self.preset.as_deref() == Some(Preset::Infera.as_str());
        let roles: &[Role] = if apart { &[Role::Prefill, Role::Decode] } else { &[Role::Aggregated] };
        let pools: Vec<Layered> = roles.iter().map(|role| self.pool(name, *role, problems)).collect();
        insert(&mut model, "pools", Layered::from(pools));
        Layered::from(model)
    }

    fn pool(&self, model: &str, role: Role, problems: &mut Vec<Problem>) -> Layered {
        let mut pool = Dict::new();
        if model != names::ANY {
            match names::pool_name(&ModelId::from(model), role) {
                Ok(name) => insert(&mut pool, "name", Layered::from(name.as_str().to_owned())),
                Err(message) => {
                    // One sentence for both pools; a stand-in keeps the rest of the checks going.
                    if role != Role::Decode {
                        problems.push(Problem::outside("--model", message));
                    }
                    insert(&mut pool, "name", Layered::from(role.as_str()));
                }
            }
        }
        insert(&mut pool, "role", Layered::from(role.as_str()));
        insert(&mut pool, "min_replicas", Layered::from(self.min_replicas.unwrap_or(1)));
        insert(&mut pool, "max_replicas", Layered::from(self.max_replicas.unwrap_or(DEFAULT_MAX_REPLICAS)));
        Layered::from(pool)
    }
}

fn text_of(path: &Path, flag: &'static str, problems: &mut Vec<Problem>) -> Option<String> {
    let text = path.to_str().map(str::to_owned);
    if text.is_none() {
        problems.push(Problem::outside(flag, format!("expected a path in UTF-8, got {:?}", path.display().to_string())));
    }
    text
}

/// The flag that sets a key, if one does.
pub(super) fn flag_of(path: &str) -> Option<&'static str> {
    Some(match super::schema::template(path).as_str() {
        "models[].name" => "--model",
        "models[].target_namespace" => "--target-namespace",
        "models[].engine" => "--engine",
        "models[].slo.ttft" => "--ttft",
        "models[].slo.itl" => "--itl",
        "models[].planner.adjustment_interval" => "--adjustment-interval",
        "models[].planner.preset" => "--preset",
        "models[].planner.profile" => "--profile-results",
        "models[].traffic.targets.static" | "models[].traffic.targets.static[]" => "--metrics-url",
        "models[].pools[].min_replicas" => "--min-replicas",
        "models[].pools[].max_replicas" => "--max-replicas",
        "server.listen" => "--listen",
        "server.web_config_file" => "--web-config-file",
        "state_file" => "--state-file",
        "queueing_config" => "--queueing-config",
        "shard" => "--shard",
        _ => return None,
    })
}
