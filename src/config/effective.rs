//! What is in force, defaults included? The configuration as YAML that loads again to the same configuration. Shows no secret.

use std::fmt::Display;
use std::path::Path;

use super::load_targets as load;
use super::resolve::{ModelDraft, text};
use super::{
    AccessConfig, Config, DiscoveryConfig, ModelConfig, ModelSelector, PodChoice, SourceConfig, Way, custom, loops, names, predictor,
    queueing, scalar,
};
use crate::engines::Dialect;
use crate::planner::input::SourceId;
use crate::planner::policy::{Capabilities, GpuBand, GrowthRule, ModelPolicy, PoolPolicy, Preset, ReplicasFrom};
use crate::units::{Positive, Seconds};

/// Lines at growing depth.
struct Yaml(String);

impl Yaml {
    fn line(&mut self, depth: usize, text: impl Display) {
        self.0.push_str(&format!("{:width$}{text}\n", "", width = depth * 2));
    }
}

/// What of a model came from where.
#[derive(Clone, Copy)]
pub(super) struct Origins<'a> {
    /// The file of its profile.
    pub profile: Option<&'a Path>,
    /// The file of the trace that its predictor starts with.
    pub trace: Option<&'a Path>,
    /// Whether its objectives are written for itself.
    pub slo_written: bool,
    /// The same of k.
    pub multiplier_written: bool,
}

impl<'a> Origins<'a> {
    pub(super) fn of(draft: &'a ModelDraft) -> Self {
        let (slo_written, multiplier_written) = queueing::written(draft);
        Self { profile: draft.profile.as_deref(), trace: draft.trace().map(std::path::PathBuf::as_path), slo_written, multiplier_written }
    }
}

/// Renders a configuration; `origins` are those of the models, in order.
pub(super) fn render(config: &Config, origins: &[Origins<'_>]) -> String {
    let mut yaml = Yaml(String::new());
    yaml.line(0, "server:");
    yaml.line(1, format_args!("listen: {}", quoted(&config.server.listen.to_string())));
    yaml.line(1, format_args!("enable_lifecycle: {}", config.server.enable_lifecycle));
    yaml.line(1, format_args!("acknowledge_within: {}", text(config.server.acknowledge_within)));
    if let Some(path) = &config.server.web_config_file {
        yaml.line(1, format_args!("web_config_file: {}", quoted(&path.display().to_string())));
    }
    yaml.line(0, "scrape:");
    let scrape = &config.scrape;
    yaml.line(1, format_args!("interval: {}", text(scrape.interval)));
    yaml.line(1, format_args!("timeout: {}", text(scrape.timeout)));
    yaml.line(1, format_args!("concurrency: {}", scrape.concurrency));
    yaml.line(1, format_args!("body_limit: {}", scalar::bytes_text(scrape.body_limit as u64)));
    yaml.line(1, format_args!("bytes_in_flight: {}", scalar::bytes_text(scrape.bytes_in_flight as u64)));
    if let Some(proxy) = &scrape.proxy {
        yaml.line(1, format_args!("proxy: {}", quoted(&scalar::hide_userinfo(proxy))));
    }
    for (key, path) in
        [("state_file", &config.state_file), ("overrides_file", &config.overrides_file), ("queueing_config", &config.queueing_config)]
    {
        if let Some(path) = path {
            yaml.line(0, format_args!("{key}: {}", quoted(&path.to_string_lossy())));
        }
    }
    yaml.line(0, format_args!("max_target_series: {}", config.max_target_series));
    if let Some(report) = &config.report {
        let (dir, interval) = (quoted(&report.dir.to_string_lossy()), text(report.interval));
        yaml.line(0, format_args!("report: {{ dir: {dir}, interval: {interval} }}"));
    }
    if let Some(shard) = config.shard {
        yaml.line(0, format_args!("shard: {shard}"));
    }
    budget(&mut yaml, 0, config.gpus);
    yaml.line(0, "models:");
    for (model, origins) in config.models.iter().zip(origins) {
        render_model(&mut yaml, model, *origins, config.queueing_config.is_some());
    }
    yaml.0
}

fn render_model(yaml: &mut Yaml, model: &ModelConfig, origins: Origins<'_>, config_map: bool) {
    let policy = &model.policy;
    let name = match &model.selector {
        ModelSelector::Named(name) => name.as_str(),
        ModelSelector::Any => names::ANY,
    };
    yaml.line(1, format_args!("- name: {}", quoted(name)));
    yaml.line(2, format_args!("target_namespace: {}", quoted(&model.target_namespace)));
    if policy.priority > 0 {
        yaml.line(2, format_args!("priority: {}", policy.priority));
    }
    yaml.line(2, format_args!("mode: {}", policy.mode.as_str()));
    yaml.line(2, format_args!("engine: {}", model.engine.as_ref().map_or("auto", Dialect::name)));
    if let Some(Dialect::Custom(dialect)) = &model.engine {
        yaml.line(2, "custom:");
        custom::lines(dialect, quoted).into_iter().for_each(|line| yaml.line(3, line));
    }
    slo(policy, origins).into_iter().for_each(|line| yaml.line(2, line));
    yaml.line(2, "planner:");
    yaml.line(3, format_args!("preset: {}", policy.preset.as_str()));
    if let Some(profile) = origins.profile {
        yaml.line(3, format_args!("profile: {}", quoted(&profile.to_string_lossy())));
    }
    load::lines(policy).into_iter().for_each(|line| yaml.line(3, line));
    queueing::lines(policy, origins.multiplier_written || !config_map).into_iter().for_each(|line| yaml.line(3, line));
    let trace = origins.trace.map(|trace| quoted(&trace.to_string_lossy()));
    predictor::lines(policy, trace).into_iter().for_each(|line| yaml.line(3, line));
    yaml.line(3, format_args!("adjustment_interval: {}", text(policy.interval)));
    yaml.line(3, format_args!("hold_for: {}", text(policy.hold_for)));
    yaml.line(3, format_args!("warm_up: {}", text(policy.warm_up)));
    if policy.preset == Preset::Infera {
        yaml.line(3, format_args!("correction: {}", policy.correction));
    }
    match policy.growth {
        GrowthRule::TimesObserved(growth) | GrowthRule::Confirm(growth) => yaml.line(3, format_args!("growth: {growth}")),
        GrowthRule::Within(most) => yaml.line(3, format_args!("max_throughput_scaling_replicas: {most}")),
    }
    loops::lines(policy).into_iter().for_each(|line| yaml.line(3, line));
    budget(yaml, 3, policy.gpus);
    if let Some(traffic) = model.sources.iter().find(|source| source.source == SourceId::Traffic) {
        yaml.line(2, "traffic:");
        render_targets(yaml, 3, traffic);
    }
    yaml.line(2, "pools:");
    for pool in &policy.pools {
        let source = model.sources.iter().find(|source| source.source == SourceId::Pool(pool.pool.clone()));
        render_pool(yaml, pool, source, model.selector == ModelSelector::Any);
    }
}

fn budget(yaml: &mut Yaml, depth: usize, gpus: GpuBand) {
    for (key, gpus) in [("min_gpu_budget", gpus.min), ("max_gpu_budget", gpus.max)] {
        if let Some(gpus) = gpus {
            yaml.line(depth, format_args!("{key}: {gpus}"));
        }
    }
}

/// The objectives. Those that are written for the model are a key; others must stay unwritten, since a written one counts as given. The share of
/// preset auto counts for both.
fn slo(policy: &ModelPolicy, origins: Origins<'_>) -> Option<String> {
    let (ttft, itl) = (millis(policy.slo.ttft), millis(policy.slo.itl));
    let last = match &policy.auto {
        Some(auto) => format!("attainment: {}", auto.attainment.get()),
        None => format!("statistic: {}", policy.slo.statistic.as_str()),
    };
    let slo = format!("slo: {{ ttft: {ttft}, itl: {itl}, {last} }}");
    match (policy.slo.explicit, policy.preset) {
        (true, _) if origins.slo_written => Some(slo),
        (true, _) => Some(format!("# {slo}  (not written; taken from queueing_config)")),
        (false, Preset::Infera) => Some(format!("# {slo}  (not written; taken from preset infera)")),
        (false, Preset::Wva) => Some("# slo: learned  (not written)".to_owned()),
        (false, Preset::Auto) => Some(format!("slo: {{ {last} }}  # ttft: {ttft}, itl: {itl}, not written; taken from preset auto")),
        (false, Preset::Dynamo) => None,
    }
}

fn render_pool(yaml: &mut Yaml, pool: &PoolPolicy, source: Option<&SourceConfig>, any: bool) {
    if any {
        yaml.line(3, format_args!("- role: {}", pool.role));
    } else {
        yaml.line(3, format_args!("- name: {}", quoted(pool.pool.as_str())));
        yaml.line(4, format_args!("role: {}", pool.role));
    }
    if let Some(gpus) = pool.gpus_per_replica {
        yaml.line(4, format_args!("gpus_per_replica: {gpus}"));
    }
    if let Some(cost) = pool.cost {
        yaml.line(4, format_args!("cost: {}", cost.get()));
    }
    if let Some(accelerator) = &pool.accelerator {
        yaml.line(4, format_args!("accelerator: {}", quoted(accelerator)));
    }
    yaml.line(4, format_args!("min_replicas: {}", pool.limits.min()));
    yaml.line(4, format_args!("max_replicas: {}", pool.limits.max()));
    if let Some(source) = source {
        render_targets(yaml, 4, source);
    }
    let from = match pool.replicas_from {
        ReplicasFrom::Metric => "metric",
        ReplicasFrom::Targets => "targets",
        ReplicasFrom::Kubernetes => "kubernetes",
        ReplicasFrom::Observed => "observed",
    };
    yaml.line(4, format_args!("replicas_from: {from}"));
    yaml.line(4, format_args!("targets_per_replica: {}", pool.targets_per_replica));
    if !pool.capabilities.is_unknown() {
        yaml.line(4, "capabilities:");
        let Capabilities { context_length, max_kv_tokens, max_num_seqs, max_num_batched_tokens } = pool.capabilities;
        let capabilities = [
            ("context_length", context_length),
            ("max_kv_tokens", max_kv_tokens),
            ("max_num_seqs", max_num_seqs),
            ("max_num_batched_tokens", max_num_batched_tokens),
        ];
        for (key, tokens) in capabilities {
            if let Some(tokens) = tokens {
                yaml.line(5, format_args!("{key}: {tokens}"));
            }
        }
    }
}

fn render_targets(yaml: &mut Yaml, depth: usize, source: &SourceConfig) {
    yaml.line(depth, "targets:");
    match (&source.discovery, &source.query) {
        (None, Some(query)) => {
            yaml.line(depth + 1, "prometheus:");
            yaml.line(depth + 2, format_args!("url: {}", quoted(&scalar::hide_secrets(&query.url))));
            yaml.line(depth + 2, format_args!("selector: {}", quoted(&query.selector)));
            yaml.line(depth + 2, format_args!("target_label: {}", quoted(&query.target_label)));
            yaml.line(depth + 2, format_args!("lookback: {}", text(query.lookback)));
        }
        (None, None) => {
            yaml.line(depth + 1, "static:");
            for target in &source.targets {
                yaml.line(depth + 2, format_args!("- {}", quoted(&scalar::hide_secrets(&target.url))));
            }
        }
        (Some(discovery), _) => render_discovery(yaml, depth + 1, discovery),
    }
    render_access(yaml, depth + 1, &source.access);
}

fn render_discovery(yaml: &mut Yaml, depth: usize, discovery: &DiscoveryConfig) {
    match &discovery.way {
        Way::Dns { host, port, .. } => yaml.line(depth, format_args!("dns: {}", quoted(&format!("{host}:{port}")))),
        Way::Srv { name, .. } => yaml.line(depth, format_args!("srv: {}", quoted(name))),
        Way::File { pattern } => yaml.line(depth, format_args!("file_sd: {}", quoted(&pattern.to_string_lossy()))),
        Way::Http { url } => yaml.line(depth, format_args!("http_sd: {}", quoted(&scalar::hide_secrets(url)))),
        Way::Kubernetes(kubernetes) => {
            yaml.line(depth, "kubernetes:");
            match &kubernetes.pods {
                PodChoice::Service(name) => yaml.line(depth + 1, format_args!("service: {}", quoted(name))),
                PodChoice::Selector(labels) => yaml.line(depth + 1, format_args!("selector: {}", quoted(labels))),
            }
            yaml.line(depth + 1, format_args!("namespace: {}", quoted(&kubernetes.namespace)));
            if let Some(port) = &kubernetes.port {
                yaml.line(depth + 1, format_args!("port: {}", quoted(port)));
            }
            yaml.line(depth + 1, format_args!("api_server: {}", quoted(&scalar::hide_secrets(&kubernetes.api_server))));
            for (key, path) in [("bearer_token_file", &kubernetes.access.bearer_token_file), ("ca_file", &kubernetes.access.ca_file)] {
                if let Some(path) = path {
                    yaml.line(depth + 1, format_args!("{key}: {}", quoted(&path.to_string_lossy())));
                }
            }
        }
    }
    if let Way::Dns { nameserver: Some(address), .. } | Way::Srv { nameserver: Some(address), .. } = &discovery.way {
        yaml.line(depth, format_args!("nameserver: {}", quoted(&address.to_string())));
    }
    yaml.line(depth, format_args!("refresh_interval: {}", text(discovery.refresh)));
    yaml.line(depth, format_args!("scheme: {}", discovery.scheme));
    yaml.line(depth, format_args!("path: {}", quoted(&scalar::hide_secrets(&discovery.path))));
    for (key, patterns) in [("keep", &discovery.keep), ("drop", &discovery.drop)] {
        if !patterns.is_empty() {
            yaml.line(depth, format_args!("{key}:"));
            for (label, pattern) in patterns {
                yaml.line(depth + 1, format_args!("{}: {}", quoted(label), quoted(pattern)));
            }
        }
    }
}

fn render_access(yaml: &mut Yaml, depth: usize, access: &AccessConfig) {
    let file = |yaml: &mut Yaml, depth: usize, key: &str, path: &Path| {
        yaml.line(depth, format_args!("{key}: {}", quoted(&path.to_string_lossy())));
    };
    if let Some(path) = &access.bearer_token_file {
        file(yaml, depth, "bearer_token_file", path);
    }
    if let Some((username, path)) = &access.basic_auth {
        yaml.line(depth, "basic_auth:");
        yaml.line(depth + 1, format_args!("username: {}", quoted(username)));
        file(yaml, depth + 1, "password_file", path);
    }
    if access.has_tls() {
        yaml.line(depth, "tls:");
        if let Some(path) = &access.ca_file {
            file(yaml, depth + 1, "ca_file", path);
        }
        if let Some((certificate, key)) = &access.client_certificate {
            file(yaml, depth + 1, "cert_file", certificate);
            file(yaml, depth + 1, "key_file", key);
        }
        yaml.line(depth + 1, format_args!("insecure_skip_verify: {}", access.insecure_skip_verify));
    }
    if !access.headers.is_empty() {
        yaml.line(depth, "headers:");
        for name in access.headers.keys() {
            yaml.line(depth + 1, format_args!("{}: \"hidden\"", quoted(name)));
        }
    }
}

/// A latency objective as a duration. It came from one, so that whole nanoseconds give it back exactly.
fn millis(objective: Positive) -> String {
    let nanos = (Seconds(objective.get()).get() * 1e9).round();
    // In range: objectives are at most 366 days, which is 3e16 ns.
    text(std::time::Duration::from_nanos(nanos as u64))
}

/// A text in double quotes, which YAML reads as text whatever it holds.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            ' '..='~' => quoted.push(c),
            c if c.is_alphanumeric() => quoted.push(c),
            c => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}
