//! How does text become a configuration? The two phases, and what is told of both.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::access::Finding;
use super::check::Values;
use super::config_map::{self, ConfigMap};
use super::dynamo::profile as raw;
use super::effective::{self, Origins};
use super::flags::Flags;
use super::layers::{self, Merged};
use super::overrides::{self, Pools};
use super::pools::PoolDraft;
use super::predictor::{self, Arrival};
use super::problem::{self, Problem};
use super::resolve::{self, ModelDraft, Settings};
use super::schema::KEYS;
use super::tree::{self, SourceText, Value};
use super::{Config, ModelConfig, ModelSelector, ServerConfig, WebConfig, budgets, names, profile, queueing, shard, warnings};
use crate::planner::model::envelope::Envelope;
use crate::planner::policy::{CapacityModel, ChangeRule, Limits, ModelPolicy, Pin, PoolPolicy, Preset};
use crate::units::{ModelId, PoolId, Role};

/// Hexadecimal digits of the hash that logs and pages show: enough to tell configurations apart, short enough to read aloud.
const HASH_DIGITS: usize = 12;

/// Everything that a configuration is made from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The configuration file; `None` with flags alone.
    pub file: Option<SourceText>,
    /// The environment variables that begin with `INFERENCE_PLANNER__`.
    pub env: Vec<(String, String)>,
    /// The command line.
    pub flags: Flags,
    /// The Kubernetes namespace that we run in: the default of `target_namespace`.
    pub own_namespace: Option<String>,
}

/// A configuration that waits for the files which it names. It may have problems already; they are told with those of the files.
pub struct Draft {
    source: Option<PathBuf>,
    values: Values,
    settings: Settings,
    models: Vec<ModelDraft>,
    files: Vec<PathBuf>,
    /// How many of them, from the front, change what is planned.
    watched: usize,
    problems: Vec<Problem>,
}

/// What the files say that a configuration names.
struct Said {
    envelopes: BTreeMap<PathBuf, Envelope>,
    traces: BTreeMap<PathBuf, Vec<Arrival>>,
    pins: BTreeMap<PoolId, Pin>,
    map: ConfigMap,
}

/// A checked configuration with what people want to know of it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is allowed and yet probably not meant.
    pub warnings: Vec<Problem>,
    /// What is in order, and may surprise.
    pub notes: Vec<Problem>,
    /// What requests need and will not find: files of credentials and certificates that are missing or wrong. A mistake for who checks a
    /// configuration. An exporter runs all the same: each costs only the targets that need it, and is looked for again at every round.
    pub unready: Vec<Problem>,
    /// The configuration as YAML, defaults filled in, paths resolved and credentials hidden. It loads again to the same configuration, save
    /// for the hidden credentials, when it is read as a file of the folder in which the process runs.
    pub effective: String,
    /// Who may read us. The caller reads it where it is needed ([`super::read_web`]); here it is the default.
    pub web: WebConfig,
    /// The same in a form that can be carried elsewhere.
    pub portable: Portable,
}

/// A configuration with the files that it names, for another folder or machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portable {
    /// As [`Loaded::effective`], but what it is made from is named as files beside it.
    pub config: String,
    /// The profiles, JSON, and the files of llm-d's ConfigMap, by those names; the latter with a folder in front.
    pub files: BTreeMap<String, String>,
}

/// Reads the text, the variables and the flags, and checks everything that needs no other file. Never fails: problems wait in the draft.
pub fn read(inputs: Inputs) -> Draft {
    let Inputs { file, env, flags, own_namespace } = inputs;
    let mut problems = Vec::new();
    let tree = file.as_ref().and_then(|source| {
        let (tree, found) = tree::read(source);
        problems.extend(found);
        tree
    });
    // Without a tree every required key would be called missing: the syntax is the only thing to say about that file.
    let mut unreadable = file.is_some() && tree.is_none();
    if let (Some(tree), Some(source)) = (&tree, &file)
        && !matches!(tree.value, Value::Map(_) | Value::Null)
    {
        let message = "expected keys such as models at the top, got a single value or a list".to_owned();
        problems.push(Problem::syntax(&source.path, tree.at, message));
        unreadable = true;
    }
    let variables = layers::variables(&env, &mut problems);
    let flags = flags.layer(file.is_some(), &mut problems);
    let path = file.map(|source| source.path);
    let merged = match Merged::new(tree.as_ref(), variables, flags) {
        Ok(merged) => merged,
        Err(message) => {
            problems.push(Problem::outside("", message));
            Merged::empty()
        }
    };
    let mut values = Values::of_layers(KEYS, &merged, path.as_deref(), tree.as_ref());
    let folder = path.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    let settings = resolve::settings(&mut values, &folder);
    let namespace = own_namespace.unwrap_or_else(|| "default".to_owned());
    let scrape_interval = settings.scrape.as_ref().map(|scrape| scrape.interval);
    let models = if unreadable { Vec::new() } else { resolve::models(&mut values, &folder, &namespace, scrape_interval) };
    shard::check(&mut values, &settings, &models);
    problems.extend(values.take_problems());
    let mut files: Vec<PathBuf> = Vec::new();
    let add = |files: &mut Vec<PathBuf>, file: &PathBuf| {
        if !files.contains(file) {
            files.push(file.clone());
        }
    };
    let named = models.iter().flat_map(|model| model.profile.iter().chain(model.trace()));
    named.chain(&settings.overrides_file).for_each(|file| add(&mut files, file));
    let watched = files.len();
    models.iter().flat_map(|model| &model.needed).for_each(|needed| add(&mut files, &needed.path));
    Draft { source: path, values, settings, models, files, watched, problems }
}

impl Draft {
    /// The files that the configuration names and the caller is to read, profiles and traces first, then the overrides, then what requests need:
    /// relative paths already start at the folder of the configuration file.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Whether a path among [`Draft::files`] may be a folder with Dynamo's profile data. The caller then reads those of its
    /// [`profile_files`](super::profile_files) that are there, as [`profile_text`](super::profile_text) has them.
    pub fn may_be_folder(&self, path: &Path) -> bool {
        self.models.iter().any(|model| model.profile.as_deref() == Some(path))
    }

    /// Whether a path among [`Draft::files`] is a recorded trace, which may be packed by gzip: the caller unpacks it.
    pub fn is_trace(&self, path: &Path) -> bool {
        self.models.iter().any(|model| model.trace().is_some_and(|trace| trace == path))
    }

    /// The folder of which the caller is to read every file as well, save those whose names begin with a dot; `None` where there is none.
    pub fn folder(&self) -> Option<&Path> {
        self.settings.queueing_config.as_deref()
    }

    /// Completes the configuration with the text of its files, or tells all problems of all files.
    ///
    /// `files` holds for each of [`Draft::files`], for each file of a profile that is a folder, and for each file of [`Draft::folder`], its
    /// text or why it cannot be read; for a folder that cannot be listed, why not. A path that it does not hold is a file that does not exist: a problem for a profile, for
    /// credentials and for the ConfigMap's `default`, no pins for the overrides, a note for a list of targets.
    pub fn finish(mut self, files: &BTreeMap<PathBuf, Result<String, String>>) -> Result<Loaded, Vec<Problem>> {
        let (envelopes, traces) = (self.profiles(files), self.traces(files));
        let said = Said { envelopes, traces, pins: self.overrides(files), map: self.config_map(files) };
        let config = self.config(&said);
        config.iter().for_each(|config| budgets::fit(&mut self.values, config));
        // What requests need is followed where they are made.
        let mut sources: Vec<PathBuf> = self.source.iter().chain(&self.files[..self.watched]).cloned().collect();
        let folders = sources.clone();
        let inside = folders.iter().filter(|path| self.may_be_folder(path)).flat_map(|folder| raw::profile_files(folder));
        sources.extend(inside.filter(|file| files.contains_key(file)));
        if let Some(folder) = self.folder() {
            sources.push(folder.to_owned());
            sources.extend(files.keys().filter(|file| config_map::is_entry(folder, file)).cloned());
        }
        self.problems.extend(self.values.take_problems());
        let (mut unready, mut notes) = self.needed(files);
        notes.extend(queueing::notes(&self.models, &said.map, &self.values));
        notes.extend(shard::note(&self.values, &self.settings, &self.models));
        match config {
            Some(config) if self.problems.is_empty() => {
                let mut warnings = warnings::of(&self.models, &config, &self.values);
                warnings.extend(shard::warning(&self.values, &self.settings));
                [&mut warnings, &mut unready, &mut notes].into_iter().for_each(|told| problem::sort(told, &sources));
                let loaded = self.loaded(Config { files: sources, ..config }, &said);
                Ok(Loaded { warnings, notes, unready, ..loaded })
            }
            _ => {
                if self.problems.is_empty() {
                    // Every value that stops `config` has said why; this line is for the day on which one does not.
                    self.problems.push(Problem::outside("", "the configuration is incomplete".to_owned()));
                }
                self.problems.append(&mut unready);
                problem::sort(&mut self.problems, &sources);
                // One flag may set several keys.
                self.problems.dedup();
                Err(self.problems)
            }
        }
    }

    /// What is to be said of the files that requests and searches need: mistakes, and notes.
    fn needed(&self, files: &BTreeMap<PathBuf, Result<String, String>>) -> (Vec<Problem>, Vec<Problem>) {
        let (mut mistakes, mut notes) = (Vec::new(), Vec::new());
        for needed in self.models.iter().flat_map(|model| &model.needed) {
            match needed.finding(files) {
                Some(Finding::Problem(message)) => mistakes.push(self.values.describe(&needed.key, message)),
                Some(Finding::Note(message)) => notes.push(self.values.describe(&needed.key, message)),
                None => {}
            }
        }
        (mistakes, notes)
    }

    fn profiles(&mut self, files: &BTreeMap<PathBuf, Result<String, String>>) -> BTreeMap<PathBuf, Envelope> {
        let mut envelopes = BTreeMap::new();
        let mut seen: Vec<&PathBuf> = Vec::new();
        for model in &self.models {
            let Some(path) = &model.profile else { continue };
            let key = format!("{}.planner.profile", model.key);
            let read = match (raw::of_folder(path, files), files.get(path)) {
                (None, None) => {
                    self.values.problem(&key, format!("{} does not exist", path.display()));
                    continue;
                }
                (None, Some(Err(error))) => {
                    self.values.problem(&key, format!("{} cannot be read: {error}", path.display()));
                    continue;
                }
                _ if seen.contains(&path) => continue,
                (Some(read), _) => read,
                (None, Some(Ok(text))) => profile::parse(path, text),
            };
            match read {
                Ok(envelope) => drop(envelopes.insert(path.clone(), envelope)),
                Err(problems) => self.problems.extend(problems),
            }
            seen.push(path);
        }
        envelopes
    }

    fn traces(&mut self, files: &BTreeMap<PathBuf, Result<String, String>>) -> BTreeMap<PathBuf, Vec<Arrival>> {
        let mut traces = BTreeMap::new();
        for model in &self.models {
            let Some(path) = model.trace() else { continue };
            let key = format!("{}.planner.warmup_trace", model.key);
            match files.get(path) {
                None => self.values.problem(&key, format!("{} does not exist", path.display())),
                Some(Err(error)) => self.values.problem(&key, format!("{} cannot be read: {error}", path.display())),
                Some(Ok(_)) if traces.contains_key(path) => {}
                Some(Ok(text)) => {
                    let arrivals = predictor::arrivals(path, text).map_err(|problems| self.problems.extend(problems));
                    traces.insert(path.clone(), arrivals.unwrap_or_default());
                }
            }
        }
        traces
    }

    fn overrides(&mut self, files: &BTreeMap<PathBuf, Result<String, String>>) -> BTreeMap<PoolId, Pin> {
        let Some(path) = &self.settings.overrides_file else { return BTreeMap::new() };
        let text = match files.get(path) {
            None => return BTreeMap::new(),
            Some(Err(error)) => {
                self.values.problem("overrides_file", format!("{} cannot be read: {error}", path.display()));
                return BTreeMap::new();
            }
            Some(Ok(text)) => text,
        };
        let any = |model: &&ModelDraft| model.selector == Some(ModelSelector::Any);
        let (patterns, named): (Vec<&ModelDraft>, Vec<&ModelDraft>) = self.models.iter().partition(any);
        let known =
            named.iter().flat_map(|model| &model.pools).filter_map(|pool: &PoolDraft| Some((pool.pool.as_ref()?, pool.limits))).collect();
        let limits = patterns.iter().flat_map(|model| &model.pools).filter_map(|pool| pool.limits);
        let pattern = limits.reduce(|left, right| {
            // The widest: which of the pools a pin means is known when its model appears. Smallest and largest keep their order.
            Limits::new(left.min().min(right.min()), left.max().max(right.max())).unwrap_or(left)
        });
        let source = SourceText { path: path.clone(), text: text.clone() };
        let (pins, problems) = overrides::parse(&source, &Pools { known, pattern });
        self.problems.extend(problems);
        pins
    }

    fn config_map(&mut self, files: &BTreeMap<PathBuf, Result<String, String>>) -> ConfigMap {
        let Some(folder) = self.folder() else { return ConfigMap::default() };
        let (map, problems) = ConfigMap::read(folder, files);
        let message = match files.get(folder) {
            Some(Err(error)) => Some(format!("{} cannot be read: {error}", folder.display())),
            _ if files.contains_key(&folder.join(config_map::DEFAULT)) => None,
            _ => Some(format!("expected a file `default` in {}, as llm-d's ConfigMap has one", folder.display())),
        };
        self.problems.extend(problems);
        if let Some(message) = message {
            self.values.problem("queueing_config", message);
        }
        map
    }

    fn config(&self, said: &Said) -> Option<Config> {
        let settings = &self.settings;
        let models = self.models.iter().map(|model| self.model(model, said)).collect::<Option<Vec<_>>>()?;
        Some(Config {
            server: settings.server.clone()?,
            scrape: settings.scrape.clone()?,
            state_file: settings.state_file.clone(),
            overrides_file: settings.overrides_file.clone(),
            queueing_config: settings.queueing_config.clone(),
            max_target_series: settings.max_target_series,
            report: settings.report.clone(),
            gpus: settings.gpus,
            shard: settings.shard,
            models,
            files: Vec::new(),
            hash: String::new(),
        })
    }

    fn model(&self, draft: &ModelDraft, said: &Said) -> Option<ModelConfig> {
        let preset = draft.preset?;
        let capacity = match preset {
            Preset::Infera => CapacityModel::Envelope(Box::new(said.envelopes.get(draft.profile.as_ref()?)?.clone())),
            Preset::Dynamo => match (&draft.sla, &draft.profile) {
                (None, _) => CapacityModel::Unknown,
                (Some(_), Some(path)) => CapacityModel::Envelope(Box::new(said.envelopes.get(path)?.clone())),
                (Some(_), None) => CapacityModel::Iterations,
            },
            Preset::Wva => CapacityModel::Queueing(draft.queueing.as_ref()?.policy()?),
            Preset::Auto => match &draft.profile {
                Some(path) => CapacityModel::Envelope(Box::new(said.envelopes.get(path)?.clone())),
                None => CapacityModel::Iterations,
            },
        };
        let selector = draft.selector.clone()?;
        let pools = draft.pools.iter().map(|draft| pool(draft, &capacity, &said.pins)).collect::<Option<Vec<_>>>()?;
        let (model, pins) = match &selector {
            ModelSelector::Named(model) => (model.clone(), BTreeMap::new()),
            ModelSelector::Any => (ModelId::from(names::ANY), said.pins.clone()),
        };
        let mut policy = ModelPolicy {
            model,
            preset,
            mode: draft.mode,
            slo: draft.slo.clone()?,
            interval: draft.interval?,
            scrape_interval: self.settings.scrape.as_ref()?.interval,
            hold_for: draft.hold_for?,
            capacity,
            load: match preset {
                Preset::Infera | Preset::Wva | Preset::Auto => None,
                Preset::Dynamo if draft.sla.as_ref().is_some_and(|sla| sla.rule.is_none()) => None,
                Preset::Dynamo => Some(draft.load?),
            },
            regression: draft.sla.as_ref().map(|sla| sla.regression).or(draft.auto.map(|(_, regression)| regression)),
            auto: draft.auto.map(|(auto, _)| auto),
            warm_up: draft.warm_up?,
            predictor: Some(draft.predictor.as_ref()?.policy(&said.traces)?),
            correction: draft.correction,
            growth: draft.growth?,
            step_down: draft.step_down,
            transition_timeout: draft.transition_timeout,
            gpus: draft.gpus,
            priority: draft.priority,
            traffic_change: match preset {
                Preset::Infera => ChangeRule::SkipWindow,
                Preset::Dynamo | Preset::Wva | Preset::Auto => ChangeRule::Tolerate,
            },
            pools,
        };
        queueing::for_model(draft, &said.map).apply(&mut policy);
        Some(ModelConfig {
            selector,
            target_namespace: draft.target_namespace.clone()?,
            engine: draft.engine.clone(),
            sources: draft.sources.clone(),
            policy,
            pins,
            objectives: queueing::for_pattern(draft, &said.map).collect(),
        })
    }

    fn loaded(&self, mut config: Config, said: &Said) -> Loaded {
        let origins: Vec<Origins<'_>> = self.models.iter().map(Origins::of).collect();
        let effective = effective::render(&config, &origins);
        let portable = portable(&config, &origins, said);
        // Each part begins with its length, so that no two lists of parts give the same bytes. Maps and vectors are ordered, floats are
        // printed so that they read back to the same bits: equal configurations give equal text.
        let mut hash = Sha256::new();
        let envelopes = said.envelopes.values().map(|envelope| serde_json::to_string(envelope.document()).unwrap_or_default());
        let pins = said.pins.iter().map(|(pool, pin)| format!("{pool:?} {pin:?}"));
        let entries = said.map.texts.iter().map(|(name, text)| format!("{name:?} {text}"));
        let traces = config.models.iter().filter_map(|model| model.policy.predictor.as_ref());
        let traces = traces.filter(|predictor| !predictor.history.is_empty()).map(|predictor| format!("{:?}", predictor.history));
        for part in std::iter::once(effective.clone()).chain(envelopes).chain(pins).chain(entries).chain(traces) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        config.hash = digits[..HASH_DIGITS].to_owned();
        // All were checked and are shown, so that a mistake is told by every shard.
        config.models.retain(|model| shard::is_ours(&self.settings, &model.selector));
        Loaded { config, warnings: Vec::new(), notes: Vec::new(), unready: Vec::new(), effective, web: WebConfig::default(), portable }
    }
}

fn pool(draft: &PoolDraft, capacity: &CapacityModel, pins: &BTreeMap<PoolId, Pin>) -> Option<PoolPolicy> {
    let role = draft.role?;
    let measured = match capacity {
        CapacityModel::Envelope(envelope) if role == Role::Prefill => envelope.prefill_gpus(),
        CapacityModel::Envelope(envelope) => envelope.decode_gpus(),
        CapacityModel::Queueing(_) | CapacityModel::Iterations | CapacityModel::Unknown => NonZeroU32::MIN,
    };
    let name = draft.pool.clone()?;
    Some(PoolPolicy {
        pin: pins.get(&name).cloned(),
        pool: name,
        role,
        cost: draft.cost,
        accelerator: draft.accelerator.clone(),
        gpus_per_replica: Some(draft.gpus_per_replica.unwrap_or(measured)),
        limits: draft.limits?,
        replicas_from: draft.replicas_from,
        targets_per_replica: draft.targets_per_replica,
        capabilities: draft.capabilities,
    })
}

/// Profiles become `profile-1.json` and so on, by the number of their model; the ConfigMap becomes a folder.
fn portable(config: &Config, origins: &[Origins<'_>], said: &Said) -> Portable {
    const FOLDER: &str = "queueing-config";
    let names: Vec<String> = (1..=origins.len()).map(|number| format!("profile-{number}.json")).collect();
    let beside: Vec<Origins<'_>> =
        names.iter().zip(origins).map(|(name, known)| Origins { profile: known.profile.map(|_| Path::new(name)), ..*known }).collect();
    let text = |path: &Path| {
        let document = said.envelopes.get(path).map(|envelope| serde_json::to_string(envelope.document()));
        // A checked profile is finite numbers in plain structures, which JSON always holds.
        document.and_then(Result::ok).unwrap_or_default()
    };
    let queueing_config = config.queueing_config.as_ref().map(|_| PathBuf::from(FOLDER));
    // Who plans again elsewhere serves nobody.
    let server = ServerConfig { web_config_file: None, ..config.server.clone() };
    let rendered = effective::render(&Config { queueing_config, server, ..config.clone() }, &beside);
    let profiles = names.iter().zip(origins).filter_map(|(name, known)| Some((name.clone(), text(known.profile?))));
    let entries = said.map.texts.iter().map(|(name, text)| (format!("{FOLDER}/{name}"), text.clone()));
    Portable { config: rendered, files: profiles.chain(entries).collect() }
}
