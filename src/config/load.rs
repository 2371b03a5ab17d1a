//! How does text become a configuration? The two phases, and what is told of both.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::access::Finding;
use super::check::Values;
use super::flags::Flags;
use super::layers::{self, Merged};
use super::overrides::{self, Pools};
use super::problem::{self, Problem};
use super::resolve::{self, ModelDraft, PoolDraft, Settings};
use super::schema::KEYS;
use super::tree::{self, SourceText, Value};
use super::{Config, ModelConfig, ModelSelector, effective, names, profile, scalar};
use crate::planner::input::{CapacityModel, ChangeRule, Limits, ModelPolicy, Pin, PoolPolicy, Preset, QueueUnit, SourceId};
use crate::planner::model::envelope::Envelope;
use crate::units::{ModelId, PoolId, Ratio, Role, Seconds, Tokens};

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
    /// The same in a form that can be carried elsewhere.
    pub portable: Portable,
}

/// A configuration with its profiles, for another folder or machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Portable {
    /// As [`Loaded::effective`], but profiles are named as files beside it.
    pub config: String,
    /// The profiles, JSON, by those names.
    pub profiles: BTreeMap<String, String>,
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
    problems.extend(values.take_problems());
    let mut files: Vec<PathBuf> = Vec::new();
    let add = |files: &mut Vec<PathBuf>, file: &PathBuf| {
        if !files.contains(file) {
            files.push(file.clone());
        }
    };
    models.iter().filter_map(|model| model.profile.as_ref()).chain(&settings.overrides_file).for_each(|file| add(&mut files, file));
    let watched = files.len();
    models.iter().flat_map(|model| &model.needed).for_each(|needed| add(&mut files, &needed.path));
    Draft { source: path, values, settings, models, files, watched, problems }
}

impl Draft {
    /// The files that the configuration names and the caller is to read, profiles first, then the overrides, then what requests need:
    /// relative paths already start at the folder of the configuration file.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Completes the configuration with the text of its files, or tells all problems of all files.
    ///
    /// `files` holds for each of [`Draft::files`] its text or why it cannot be read. A path that it does not hold is a file that does not
    /// exist: a problem for a profile and for credentials, no pins for the overrides, a note for a list of targets.
    pub fn finish(mut self, files: &BTreeMap<PathBuf, Result<String, String>>) -> Result<Loaded, Vec<Problem>> {
        let envelopes = self.profiles(files);
        let pins = self.overrides(files);
        let config = self.config(&envelopes, &pins);
        // What requests need is followed where they are made.
        let sources: Vec<PathBuf> = self.source.iter().chain(&self.files[..self.watched]).cloned().collect();
        self.problems.extend(self.values.take_problems());
        let (mut unready, mut notes) = self.needed(files);
        match config {
            Some(config) if self.problems.is_empty() => {
                let mut warnings = self.warnings(&config);
                [&mut warnings, &mut unready, &mut notes].into_iter().for_each(|told| problem::sort(told, &sources));
                let loaded = self.loaded(Config { files: sources, ..config }, &envelopes, &pins);
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
            match files.get(path) {
                None => self.values.problem(&key, format!("{} does not exist", path.display())),
                Some(Err(error)) => self.values.problem(&key, format!("{} cannot be read: {error}", path.display())),
                Some(Ok(_)) if seen.contains(&path) => {}
                Some(Ok(text)) => match profile::parse(path, text) {
                    Ok(envelope) => {
                        envelopes.insert(path.clone(), envelope);
                    }
                    Err(problems) => self.problems.extend(problems),
                },
            }
            seen.push(path);
        }
        envelopes
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

    fn config(&self, envelopes: &BTreeMap<PathBuf, Envelope>, pins: &BTreeMap<PoolId, Pin>) -> Option<Config> {
        let settings = &self.settings;
        let models = self.models.iter().map(|model| self.model(model, envelopes, pins)).collect::<Option<Vec<_>>>()?;
        Some(Config {
            server: settings.server.clone()?,
            scrape: settings.scrape.clone()?,
            state_file: settings.state_file.clone(),
            overrides_file: settings.overrides_file.clone(),
            max_target_series: settings.max_target_series,
            models,
            files: Vec::new(),
            hash: String::new(),
        })
    }

    fn model(&self, draft: &ModelDraft, envelopes: &BTreeMap<PathBuf, Envelope>, pins: &BTreeMap<PoolId, Pin>) -> Option<ModelConfig> {
        let capacity = match draft.preset? {
            Preset::Infera => CapacityModel::Envelope(Box::new(envelopes.get(draft.profile.as_ref()?)?.clone())),
            Preset::Dynamo => CapacityModel::Unknown,
        };
        let selector = draft.selector.clone()?;
        let pools = draft
            .pools
            .iter()
            .map(|pool| {
                let role = pool.role?;
                let measured = match &capacity {
                    CapacityModel::Envelope(envelope) if role == Role::Prefill => envelope.prefill_gpus(),
                    CapacityModel::Envelope(envelope) => envelope.decode_gpus(),
                    CapacityModel::Unknown => NonZeroU32::MIN,
                };
                let name = pool.pool.clone()?;
                Some(PoolPolicy {
                    pin: pins.get(&name).cloned(),
                    pool: name,
                    role,
                    gpus_per_replica: Some(pool.gpus_per_replica.unwrap_or(measured)),
                    limits: pool.limits?,
                    replicas_from: pool.replicas_from,
                    targets_per_replica: pool.targets_per_replica,
                    capabilities: pool.capabilities,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        let (model, pins) = match &selector {
            ModelSelector::Named(model) => (model.clone(), BTreeMap::new()),
            ModelSelector::Any => (ModelId::from(names::ANY), pins.clone()),
        };
        let policy = ModelPolicy {
            model,
            preset: draft.preset?,
            mode: draft.mode,
            slo: draft.slo.clone()?,
            interval: draft.interval?,
            scrape_interval: self.settings.scrape.as_ref()?.interval,
            hold_for: draft.hold_for?,
            capacity,
            load: match draft.preset? {
                Preset::Infera => None,
                Preset::Dynamo => Some(draft.load?),
            },
            warm_up: draft.warm_up?,
            correction: draft.correction,
            growth: draft.growth?,
            traffic_change: match draft.preset? {
                Preset::Infera => ChangeRule::SkipWindow,
                Preset::Dynamo => ChangeRule::Tolerate,
            },
            pools,
        };
        Some(ModelConfig {
            selector,
            target_namespace: draft.target_namespace.clone()?,
            engine: draft.engine.clone(),
            sources: draft.sources.clone(),
            policy,
            pins,
        })
    }

    fn loaded(&self, mut config: Config, envelopes: &BTreeMap<PathBuf, Envelope>, pins: &BTreeMap<PoolId, Pin>) -> Loaded {
        let profiles: Vec<Option<&Path>> = self.models.iter().map(|model| model.profile.as_deref()).collect();
        let effective = effective::render(&config, &profiles);
        let portable = portable(&config, &profiles, envelopes);
        // Each part begins with its length, so that no two lists of parts give the same bytes. Maps and vectors are ordered, floats are
        // printed so that they read back to the same bits: equal configurations give equal text.
        let mut hash = Sha256::new();
        let envelopes = envelopes.values().map(|envelope| serde_json::to_string(envelope.document()).unwrap_or_default());
        let pins = pins.iter().map(|(pool, pin)| format!("{pool:?} {pin:?}"));
        for part in std::iter::once(effective.clone()).chain(envelopes).chain(pins) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        config.hash = digits[..HASH_DIGITS].to_owned();
        Loaded { config, warnings: Vec::new(), notes: Vec::new(), unready: Vec::new(), effective, portable }
    }

    fn warnings(&self, config: &Config) -> Vec<Problem> {
        let mut warnings = Vec::new();
        for (draft, model) in self.models.iter().zip(&config.models) {
            let at = |name: &str| format!("{}.{name}", draft.key);
            if model.policy.preset == Preset::Infera {
                let message = "preset infera has no limit on steps down: a fall of the recommendation is followed at once; give the HPA or the \
                               ScaledObject behavior.scaleDown policies, or a stabilization window";
                warnings.push(self.values.describe(&at("planner.preset"), message.to_owned()));
            }
            let (scrape, interval) = (model.policy.scrape_interval, model.policy.interval);
            if scrape * 4 > interval {
                let message = format!(
                    "scrape.interval ({}) is more than a quarter of it ({}): a single lost scrape costs much of a window",
                    resolve::text(scrape),
                    resolve::text(interval)
                );
                warnings.push(self.values.describe(&at("planner.adjustment_interval"), message));
            }
            if let CapacityModel::Envelope(envelope) = &model.policy.capacity {
                let unlike = unlike_throughput(envelope).map(|message| ("planner.profile", message));
                for (key, message) in floors(model, envelope).into_iter().chain(unlike) {
                    warnings.push(self.values.describe(&at(key), message));
                }
            }
            for pool in blind_prefill(&model.policy) {
                let message = "the servers do not export it, and target throughput and latency count waiting prompts in context lengths: \
                               without it the pool is held with reason missing_capability";
                let key =
                    draft.pools.iter().find(|known| known.pool.as_ref() == Some(&pool.pool)).map_or("pools", |known| known.key.as_str());
                warnings.push(self.values.describe(&format!("{key}.capabilities.context_length"), message.to_owned()));
            }
            for source in model.sources.iter().filter(|source| source.access.insecure_skip_verify) {
                let pool =
                    draft.pools.iter().find(|pool| pool.pool.as_ref().is_some_and(|name| source.source == SourceId::Pool(name.clone())));
                let key = pool.map_or_else(|| at("traffic"), |pool| pool.key.clone());
                let message = "certificates are not checked: anyone on the way can read the credentials and forge the numbers; write \
                               tls.ca_file instead";
                warnings.push(self.values.describe(&format!("{key}.targets.tls.insecure_skip_verify"), message.to_owned()));
            }
            for (pool, policy) in draft.pools.iter().zip(&model.policy.pools) {
                let source = model.sources.iter().find(|source| source.source == SourceId::Pool(policy.pool.clone()));
                if let Some([only]) = source.map(|source| source.targets.as_slice())
                    && scalar::is_loopback(only)
                    && policy.limits.max().0 > 1
                {
                    let message = format!(
                        "{} is the pool's only target and max_replicas is {}: beside one of several replicas we see a part of the traffic \
                         only; run one exporter for the whole pool",
                        only.target,
                        policy.limits.max()
                    );
                    warnings.push(self.values.describe(&format!("{}.targets.static", pool.key), message));
                }
            }
        }
        warnings
    }
}

/// Profiles become `profile-1.json` and so on, by the number of their model.
fn portable(config: &Config, profiles: &[Option<&Path>], envelopes: &BTreeMap<PathBuf, Envelope>) -> Portable {
    let mut names = (1..).map(|number| format!("profile-{number}.json"));
    let named: Vec<Option<(String, &Path)>> = profiles.iter().map(|path| Some((names.next()?, (*path)?))).collect();
    let paths: Vec<Option<&Path>> = named.iter().map(|named| named.as_ref().map(|(name, _)| Path::new(name))).collect();
    let text = |path: &Path| {
        let document = envelopes.get(path).map(|envelope| serde_json::to_string(envelope.document()));
        // A checked profile is finite numbers in plain structures, which JSON always holds.
        document.and_then(Result::ok).unwrap_or_default()
    };
    let rendered = effective::render(config, &paths);
    Portable { config: rendered, profiles: named.iter().flatten().map(|(name, path)| (name.clone(), text(path))).collect() }
}

/// Prefill pools whose waiting prompts cannot be held against a context length.
fn blind_prefill(policy: &ModelPolicy) -> impl Iterator<Item = &PoolPolicy> {
    let counts_lengths = policy.load.is_some_and(|load| load.prefill_unit == QueueUnit::ContextLengths);
    let blind = move |pool: &&PoolPolicy| counts_lengths && pool.role == Role::Prefill && pool.capabilities.context_length.is_none();
    policy.pools.iter().filter(blind)
}

/// How far a prompt's latency and the throughput may be apart.
const MOST_APART: f64 = 1.25;

/// That most prompts of the profile would take a replica much more or less time by its throughput than by their TTFT.
fn unlike_throughput(envelope: &Envelope) -> Option<String> {
    let prefill = &envelope.document().prefill;
    let gpus = f64::from(envelope.prefill_gpus().get());
    let points = prefill.isl.iter().zip(&prefill.ttft_ms).zip(&prefill.thpt_per_gpu);
    let mut ratios: Vec<f64> = points.map(|((isl, ttft), throughput)| isl / (ttft / 1000.0) / gpus / throughput).collect();
    ratios.sort_by(f64::total_cmp);
    let apart = ratios.iter().filter(|ratio| !(1.0 / MOST_APART..=MOST_APART).contains(*ratio)).count();
    let median = ratios.get(ratios.len() / 2)?;
    (2 * apart > ratios.len()).then(|| {
        format!(
            "prefill.ttft_ms and prefill.thpt_per_gpu do not fit together at {apart} of {} points: one prompt after the other on {gpus} GPUs, \
             isl / TTFT / GPUs is {median:.2} times the throughput in the middle; is it the throughput of one GPU, and of one prompt at a time?",
            ratios.len()
        )
    })
}

/// Objectives that no number of replicas can meet, by the profile's own fastest points.
fn floors(model: &ModelConfig, envelope: &Envelope) -> Vec<(&'static str, String)> {
    let document = envelope.document();
    let mut found = Vec::new();
    let millis = |seconds: Seconds| format!("{:.4} ms", seconds.get() * 1000.0);
    // Both axes have a first element: the envelope is checked.
    let shortest = document.prefill.isl.first().copied().unwrap_or_default();
    let prompt = envelope.prompt(Tokens(shortest)).latency;
    if model.policy.slo.ttft.get() <= prompt.get() {
        let message =
            format!("no number of replicas can meet it: the profile's shortest prompt ({shortest} tokens) takes {}", millis(prompt));
        found.push(("slo.ttft", message));
    }
    let least = document.decode.kv_usage.first().copied().unwrap_or_default();
    let context = document.decode.context_length.first().copied().unwrap_or_default();
    let generation = envelope.generation(Ratio(least), Tokens(context)).latency;
    if model.policy.slo.itl.get() < generation.get() {
        let message = format!("no number of replicas can meet it: the profile's least occupied point takes {}", millis(generation));
        found.push(("slo.itl", message));
    }
    found
}
