//! What do the checked values mean together? Every rule that needs more than one key, and the models as far as they can be built
//! without reading another file.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::access::Needed;
use super::check::Values;
use super::layers::Layer;
use super::loops::SlaDraft;
use super::pools::PoolDraft;
use super::predictor::PredictorDraft;
use super::queueing::QueueingDraft;
use super::targets::{self, TargetsDraft};
use super::{
    ModelSelector, ReportConfig, ScrapeConfig, ServerConfig, Shard, SourceConfig, custom, load_targets, loops, names, pools, predictor,
    preset, queueing, scalar,
};
use crate::engines::Dialect;
use crate::planner::input::SourceId;
use crate::planner::policy::{AutoPolicy, GpuBand, GrowthRule, LoadPolicy, Mode, Preset, RegressionPolicy, ReplicasFrom, Slo, Statistic};
use crate::units::{ModelId, Positive, Role, Seconds, TargetId};

/// Default of `adjustment_interval`, and with preset wva.
const INTERVAL: Duration = Duration::from_secs(180);
const SHORT_INTERVAL: Duration = Duration::from_secs(30);
/// Default of `growth`.
const GROWTH: u32 = 4;
/// Shortest default of `hold_for`: ten minutes bridge a restart of the targets.
const SHORTEST_HOLD: Duration = Duration::from_secs(600);
/// A recommendation must outlive this many decisions, so that one missed window never drops it.
const HOLD_INTERVALS: u32 = 3;

/// All but the models. Values that were refused stand at their defaults until the problems are reported.
pub(super) struct Settings {
    pub server: Option<ServerConfig>,
    pub scrape: Option<ScrapeConfig>,
    pub state_file: Option<PathBuf>,
    pub overrides_file: Option<PathBuf>,
    pub queueing_config: Option<PathBuf>,
    pub max_target_series: usize,
    pub report: Option<ReportConfig>,
    pub gpus: GpuBand,
    pub shard: Option<Shard>,
}

/// One model before its profile is read. `None` stands for a value that has a problem.
pub(super) struct ModelDraft {
    /// `models[0]`.
    pub key: String,
    pub selector: Option<ModelSelector>,
    pub target_namespace: Option<String>,
    pub engine: Option<Dialect>,
    pub mode: Mode,
    pub preset: Option<Preset>,
    pub profile: Option<PathBuf>,
    pub load: Option<LoadPolicy>,
    pub queueing: Option<QueueingDraft>,
    pub predictor: Option<PredictorDraft>,
    pub slo: Option<Slo>,
    pub interval: Option<Duration>,
    pub hold_for: Option<Duration>,
    pub warm_up: Option<Duration>,
    pub correction: bool,
    pub growth: Option<GrowthRule>,
    /// With target sla.
    pub sla: Option<SlaDraft>,
    /// With preset auto.
    pub auto: Option<(AutoPolicy, RegressionPolicy)>,
    pub step_down: Option<NonZeroU32>,
    pub transition_timeout: Option<Duration>,
    pub gpus: GpuBand,
    pub priority: u32,
    pub sources: Vec<SourceConfig>,
    pub pools: Vec<PoolDraft>,
    /// The files that its targets need.
    pub needed: Vec<Needed>,
}

/// The settings outside models. Relative paths in the file start at `folder`.
pub(super) fn settings(values: &mut Values, folder: &Path) -> Settings {
    let server = (values.address("server.listen"), values.switch("server.enable_lifecycle"), values.span("server.acknowledge_within"));
    let web_config_file = path(values, "server.web_config_file", folder);
    let (interval, timeout) = (values.span("scrape.interval"), values.span("scrape.timeout"));
    if let (Some(interval), Some(timeout)) = (interval, timeout)
        && timeout > interval
    {
        let hint = if values.is_written("scrape.timeout") { "" } else { "; write a shorter scrape.timeout as well" };
        let (timeout, interval) = (text(timeout), text(interval));
        values.problem("scrape.timeout", format!("expected at most scrape.interval ({interval}), got {timeout}{hint}"));
    }
    let (body, in_flight) = (values.count("scrape.body_limit"), values.count("scrape.bytes_in_flight"));
    if let (Some(body), Some(in_flight)) = (body, in_flight)
        && in_flight < body
    {
        let (body, in_flight) = (scalar::bytes_text(body), scalar::bytes_text(in_flight));
        values.problem("scrape.bytes_in_flight", format!("expected at least scrape.body_limit ({body}), got {in_flight}"));
    }
    let concurrency = values.count("scrape.concurrency");
    let proxy = values.text("scrape.proxy");
    let scrape = (|| {
        Some(ScrapeConfig {
            interval: interval?,
            timeout: timeout?,
            concurrency: size(concurrency?),
            body_limit: size(body?),
            bytes_in_flight: size(in_flight?),
            proxy,
        })
    })();
    Settings {
        server: match server {
            (Some(listen), Some(enable_lifecycle), Some(acknowledge_within)) => {
                Some(ServerConfig { listen, enable_lifecycle, acknowledge_within, web_config_file })
            }
            _ => None,
        },
        scrape,
        state_file: path(values, "state_file", folder),
        overrides_file: path(values, "overrides_file", folder),
        queueing_config: path(values, "queueing_config", folder),
        max_target_series: values.count("max_target_series").map_or(0, size),
        report: report(values, folder),
        gpus: budget(values, ""),
        shard: values.shard("shard"),
    }
}

/// Where and when reports are written; `None` where the section is not written, or has a problem.
fn report(values: &mut Values, folder: &Path) -> Option<ReportConfig> {
    if !values.is_written("report") {
        return None;
    }
    let (dir, interval) = (path(values, "report.dir", folder), values.span("report.interval"));
    if dir.is_none() && !values.is_wrong("report.dir") {
        values.problem("report.dir", "required: expected a folder");
    }
    Some(ReportConfig { dir: dir?, interval: interval? })
}

/// All models, with the rules that hold across them.
pub(super) fn models(values: &mut Values, folder: &Path, own_namespace: &str, scrape_interval: Option<Duration>) -> Vec<ModelDraft> {
    let count = values.len("models");
    if count == 0 && values.is_written("models") && !values.is_wrong("models") {
        values.problem("models", "expected at least one model, got none");
    }
    let mut drafts = Vec::with_capacity(count);
    for key in (0..count).map(|index| format!("models[{index}]")) {
        if !values.is_wrong(&key) {
            drafts.push(model(values, &key, folder, own_namespace, scrape_interval));
        }
    }
    names_are_unique(values, &drafts);
    targets_agree(values, &drafts);
    drafts
}

fn names_are_unique(values: &mut Values, drafts: &[ModelDraft]) {
    let mut models: BTreeMap<&str, &str> = BTreeMap::new();
    let mut pools: BTreeMap<&str, &str> = BTreeMap::new();
    for draft in drafts {
        match &draft.selector {
            Some(ModelSelector::Any) if drafts.len() > 1 => {
                values.problem(&format!("{}.name", draft.key), "a model named \"*\" takes every model: it must be the only one");
            }
            Some(ModelSelector::Named(name)) => {
                if let Some(first) = models.insert(name.as_str(), &draft.key) {
                    let message = format!("expected a name of its own, got {:?} as in {first}", name.as_str());
                    values.problem(&format!("{}.name", draft.key), message);
                }
            }
            _ => {}
        }
        // The pools of a pattern have no names yet.
        for pool in draft.pools.iter().filter(|_| draft.selector != Some(ModelSelector::Any)) {
            let Some(name) = &pool.pool else { continue };
            if let Some(first) = pools.insert(name.as_str(), &pool.key) {
                let message = format!("expected a name of its own in the whole exporter, got {:?} as in {first}", name.as_str());
                values.problem(&format!("{}.name", pool.key), message);
            }
        }
    }
}

/// One name, one URL, one way to ask and to read it: a target is scraped once, however many sources name it.
fn targets_agree(values: &mut Values, drafts: &[ModelDraft]) {
    let mut known: BTreeMap<&TargetId, (&str, String, &ModelDraft, &SourceConfig)> = BTreeMap::new();
    for draft in drafts {
        for source in &draft.sources {
            let at = draft.key_of(&source.source);
            let mut told = false;
            for target in &source.targets {
                let (url, first, model, other) = known.entry(&target.target).or_insert((&target.url, at.clone(), draft, source));
                let message = if *url != target.url {
                    let (url, own) = (scalar::hide_secrets(url), scalar::hide_secrets(&target.url));
                    format!("target {} is written as {url} in {first} and as {own}; write one of them everywhere", target.target)
                } else if told {
                    // What differs between two sources differs for all that they share.
                    continue;
                } else if other.access != source.access {
                    told = true;
                    let name = &target.target;
                    format!("target {name} is asked with other credentials, certificates or headers in {first}; write the same in both")
                } else if model.engine != draft.engine {
                    told = true;
                    let engine = |draft: &ModelDraft| draft.engine.as_ref().map_or("auto", Dialect::name);
                    let (theirs, own) = (engine(model), engine(draft));
                    format!("target {} is read as engine {theirs} in {first}, and as {own} here; write the same in both", target.target)
                } else {
                    continue;
                };
                values.problem(&at, message);
            }
        }
    }
}

impl ModelDraft {
    /// The file of the trace that its predictor starts with.
    pub fn trace(&self) -> Option<&PathBuf> {
        self.predictor.as_ref()?.trace.as_ref()
    }

    /// The section of a source's targets.
    fn key_of(&self, source: &SourceId) -> String {
        let holder = match source {
            SourceId::Traffic => format!("{}.traffic", self.key),
            SourceId::Pool(id) => {
                self.pools.iter().find(|pool| pool.pool.as_ref() == Some(id)).map_or_else(|| self.key.clone(), |pool| pool.key.clone())
            }
        };
        format!("{holder}.targets")
    }
}

fn model(values: &mut Values, key: &str, folder: &Path, own_namespace: &str, scrape_interval: Option<Duration>) -> ModelDraft {
    let at = |name: &str| format!("{key}.{name}");
    let selector = values.text(&at("name")).map(|name| match name.as_str() {
        names::ANY => ModelSelector::Any,
        name => ModelSelector::Named(ModelId::from(name)),
    });
    let namespace = values.text(&at("target_namespace"));
    let engine = custom::dialect(values, key);
    let mode = values.text(&at("mode")).and_then(|name| Mode::ALL.into_iter().find(|mode| mode.as_str() == name));
    let profile = path(values, &at("planner.profile"), folder);
    let preset = preset::read(values, key, profile.is_some());
    let slo = slo(values, key, preset);
    let interval = interval(values, &at("planner.adjustment_interval"), preset, scrape_interval);
    let hold_for = hold_for(values, &at("planner.hold_for"), interval);
    let any = selector == Some(ModelSelector::Any);
    let pool_count = values.len(&at("pools"));
    let mut sources = Vec::new();
    let mut traffic = targets::read(values, &at("traffic.targets"), folder, own_namespace);
    let mut needed = std::mem::take(&mut traffic.needed);
    let traffic_written = targets::is_written(values, &at("traffic.targets"));
    if traffic.is_source() {
        sources.push(source(SourceId::Traffic, traffic));
    }
    let mut pool = |values: &mut Values, index: usize| {
        let key = at(&format!("pools[{index}]"));
        let mut own = targets::read(values, &format!("{key}.targets"), folder, own_namespace);
        needed.append(&mut own.needed);
        pools::read(values, &key, any, traffic_written, preset, own, &mut sources)
    };
    let pools: Vec<PoolDraft> = (0..pool_count).map(|index| pool(values, index)).collect();
    if let Some(preset) = preset {
        preset::pools_fit(values, key, preset, any, &pools);
    }
    let by_sla = loops::is_sla(values, key, preset, profile.is_some());
    let (sla, auto) = (loops::sla(values, key, preset, by_sla), loops::auto(values, key, preset));
    let moves = loops::moves(values, key, preset);
    let roles: Vec<Role> = pools.iter().filter_map(|pool| pool.role).collect();
    let load = load_targets::read(values, key, preset, &roles, scrape_interval, sla.as_ref());
    load_targets::outlived(values, key, load, hold_for);
    replicas_are_counted(values, key, engine.as_ref(), &pools);
    if let (Some(Dialect::Custom(dialect)), Some(preset)) = (&engine, preset) {
        custom::suffices(values, key, dialect, preset, &roles);
    }
    every_source_is_measured(values, key, pool_count, traffic_written);
    ModelDraft {
        key: key.to_owned(),
        selector,
        target_namespace: Some(namespace.unwrap_or_else(|| own_namespace.to_owned())),
        engine,
        mode: mode.unwrap_or_default(),
        preset,
        profile,
        load,
        queueing: queueing::read(values, key, preset),
        predictor: predictor::read(values, key, folder, preset, by_sla, interval),
        slo,
        interval,
        hold_for,
        warm_up: values.span(&at("planner.warm_up")),
        correction: values.switch(&at("planner.correction")).unwrap_or_default(),
        growth: growth(values, &at("planner.growth"), preset, moves.map(|(most, ..)| most)),
        step_down: moves.map(|(_, step, _)| step),
        transition_timeout: moves.and_then(|(.., timeout)| timeout),
        gpus: budget(values, &at("planner.")),
        priority: values.count(&at("priority")).and_then(|count| u32::try_from(count).ok()).unwrap_or_default(),
        sla,
        auto,
        sources,
        pools,
        needed,
    }
}

/// How far one decision may grow a pool: preset dynamo counts replicas, the others multiply.
fn growth(values: &mut Values, at: &str, preset: Option<Preset>, most: Option<NonZeroU32>) -> Option<GrowthRule> {
    let times = values.count(at).and_then(non_zero).or(NonZeroU32::new(GROWTH))?;
    Some(match (preset, most) {
        (Some(Preset::Dynamo), most) => GrowthRule::Within(most?),
        (Some(Preset::Wva | Preset::Auto), _) => GrowthRule::Confirm(times),
        _ => GrowthRule::TimesObserved(times),
    })
}

/// The GPU budget whose keys begin so.
fn budget(values: &mut Values, at: &str) -> GpuBand {
    let (low, high) = (format!("{at}min_gpu_budget"), format!("{at}max_gpu_budget"));
    let mut gpus = |at: &str| u32::try_from(values.count(at)?).ok();
    let (min, max) = (gpus(&low), gpus(&high));
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        values.problem(&low, format!("expected at most max_gpu_budget ({max}), got {min}"));
    }
    GpuBand { min, max }
}

fn replicas_are_counted(values: &mut Values, key: &str, engine: Option<&Dialect>, pools: &[PoolDraft]) {
    if let Some(engine) = engine.filter(|engine| !engine.counts_replicas())
        && pools.iter().any(|pool| pool.replicas_from == ReplicasFrom::Metric)
    {
        let message = format!(
            "{} servers do not say how many replicas there are; give each pool targets of its own, in a configuration file",
            engine.name()
        );
        values.problem(&format!("{key}.engine"), message);
    }
}

fn interval(values: &mut Values, at: &str, preset: Option<Preset>, scrape_interval: Option<Duration>) -> Option<Duration> {
    let usual = match preset {
        Some(Preset::Wva) => SHORT_INTERVAL,
        Some(Preset::Auto) => scrape_interval.unwrap_or(SHORT_INTERVAL),
        _ => INTERVAL,
    };
    let interval = values.span(at).or(Some(usual).filter(|_| !values.is_wrong(at)))?;
    if let Some(scrape) = scrape_interval.filter(|scrape| interval < *scrape) {
        values.problem(at, format!("expected at least scrape.interval ({}), got {}", text(scrape), text(interval)));
    }
    if interval > scalar::LONGEST / HOLD_INTERVALS {
        values.problem(at, format!("expected at most 122 days, got {}", text(interval)));
    }
    Some(interval)
}

fn slo(values: &mut Values, key: &str, preset: Option<Preset>) -> Option<Slo> {
    let (ttft, itl, statistic) = (format!("{key}.slo.ttft"), format!("{key}.slo.itl"), format!("{key}.slo.statistic"));
    let explicit = values.is_written(&ttft) || values.is_written(&itl);
    let named = values.text(&statistic)?;
    if named != Statistic::Mean.as_str() {
        let message = match preset {
            Some(Preset::Auto) => format!("preset auto judges each request, by slo.attainment; leave it out, got {named}"),
            other => format!("preset {} honours statistic mean, got {named}", other.unwrap_or(Preset::Infera).as_str()),
        };
        values.problem(&statistic, message);
    }
    if preset == Some(Preset::Wva) {
        return queueing::slo(values, key);
    }
    let (ttft, itl) = (values.span(&ttft).and_then(seconds), values.span(&itl).and_then(seconds));
    Some(Slo { ttft: ttft?, itl: itl?, statistic: Statistic::Mean, explicit })
}

/// A latency as the planner has it.
pub(super) fn seconds(span: Duration) -> Option<Positive> {
    Positive::new(Seconds::from(span).get())
}

fn hold_for(values: &mut Values, at: &str, interval: Option<Duration>) -> Option<Duration> {
    let shortest = interval?.saturating_mul(HOLD_INTERVALS);
    let Some(hold_for) = values.span(at) else { return Some(shortest.max(SHORTEST_HOLD)) };
    if hold_for < shortest {
        let message = format!("expected at least {HOLD_INTERVALS} adjustment intervals ({}), got {}", text(shortest), text(hold_for));
        values.problem(at, message);
    }
    Some(hold_for)
}

/// A source with what its targets need.
pub(super) fn source(source: SourceId, draft: TargetsDraft) -> SourceConfig {
    SourceConfig { source, targets: draft.targets, discovery: draft.discovery, query: draft.query, access: draft.access }
}

fn every_source_is_measured(values: &mut Values, key: &str, pools: usize, traffic: bool) {
    // A list that is written and empty is no source; every other way may find something.
    let found = |values: &mut Values, at: &str| {
        let list = format!("{at}.static");
        targets::is_written(values, at) && (!values.is_written(&list) || values.len(&list) > 0 || values.is_wrong(&list))
    };
    if traffic {
        let at = format!("{key}.traffic.targets");
        if found(values, &at) {
            return;
        }
        let list = format!("{at}.static");
        if values.layer(&list) == Layer::Flag {
            return values.problem(&list, "required: expected --config FILE, or at least one --metrics-url URL");
        }
    }
    if values.is_wrong(&format!("{key}.pools")) {
        return;
    }
    let at: Vec<String> = (0..pools).map(|index| format!("{key}.pools[{index}]")).collect();
    let without: Vec<&String> =
        at.iter().filter(|at| !found(values, &format!("{at}.targets")) && !values.is_wrong(&format!("{at}.targets"))).collect();
    if without.len() == pools {
        values.problem(key, "no targets: write traffic.targets (routers or front ends), or targets of every pool (the replicas)");
    } else {
        for at in without {
            values.problem(at, "no targets: without traffic targets every pool needs targets of its own");
        }
    }
}

pub(super) fn path(values: &mut Values, at: &str, folder: &Path) -> Option<PathBuf> {
    let text = values.text(at)?;
    // Paths in the file are relative to it, so that a folder can be moved as a whole; those of the shell start where the shell stands.
    Some(if values.layer(at) == Layer::File { folder.join(text) } else { PathBuf::from(text) })
}

/// A count above zero.
pub(super) fn non_zero(count: u64) -> Option<NonZeroU32> {
    u32::try_from(count).ok().and_then(NonZeroU32::new)
}

fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// A duration as the file writes it.
pub(super) fn text(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}
