//! Which keys exist? The one table: path, kind, default and meaning of every key.
//!
//! From it come the checks of names and types, the hints for misspelt keys, the defaults, and the reference in `README.md`.
//! `[]` in a path stands for the elements of a list.

mod planner;
mod web;

use crate::engines::ENGINES;
use crate::engines::custom::{Custom, Meaning};
use crate::planner::input::ItlBasis;
use crate::planner::policy::{Mode, Preset, Statistic};
use crate::planner::predict::Method;
use crate::units::Role;

/// What a key may hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Further keys.
    Section,
    /// A list, whose elements the table describes under `path[]`.
    List,
    /// Any text that is not empty.
    Text,
    /// A Kubernetes label value.
    Label,
    /// A file; a relative path starts at the folder of the configuration file.
    Path,
    /// Address and port to listen on.
    Address,
    /// One of several exporters.
    Shard,
    /// An HTTP proxy.
    Proxy,
    /// An endpoint to scrape.
    Target,
    /// The URL of another server that is asked for something.
    Url,
    /// Names of one's own, each with a text. They have no rows, and their values are never shown.
    Map,
    /// A port by its name or number.
    Port,
    /// `true` or `false`.
    Switch,
    /// A whole number in a range, both ends included.
    Count(u64, u64),
    /// A number from 0 to this one.
    Number(f64),
    /// A whole number of bytes, at least this many.
    Bytes(u64),
    /// A duration with its unit, of at least so many microseconds: less is a slip of the hand or would keep the processor busy.
    Span(u64),
    /// A moment as RFC 3339 writes it.
    Moment,
    /// One of these words; the second list names those that a later version will know.
    Choice(fn() -> Vec<&'static str>, &'static [&'static str]),
    /// A dialect by its name: a choice whose words grow with every engine, so that the reference does not list them.
    Engine,
    /// A key that a later version will know.
    Later,
}

/// What holds where a key is not written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fallback {
    /// The key must be written.
    Required,
    /// This text, read like a written one.
    Value(&'static str),
    /// What this sentence says.
    Derived(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub path: &'static str,
    pub kind: Kind,
    pub fallback: Fallback,
    /// The meaning, for the reference.
    pub doc: &'static str,
}

/// Most tokens of anything that one replica holds.
const MOST_TOKENS: u64 = 1 << 31;
/// Most requests that one replica computes at the same time.
const MOST_REQUESTS: u64 = 1 << 20;
/// Most replicas that a pool may be allowed; a larger number is a slip of the hand.
const MOST_REPLICAS: u64 = 100_000;

/// A multiplier beyond this asks for a utilization within a thousandth of what no queue survives.
const MOST_MULTIPLIER: f64 = 1000.0;
/// A variance beyond this is in a unit that no traffic has.
const MOST_NOISE: f64 = 1e12;
/// More GPUs than any site has.
const MOST_GPUS: u64 = 10_000_000;
/// A cost beyond this is in a unit that nobody counts in.
const MOST_COST: f64 = 1e9;
/// Milliseconds of 366 days, the longest span that is accepted anywhere.
const MOST_MILLIS: f64 = 366.0 * 24.0 * 3600.0 * 1000.0;

/// Microseconds.
const MILLIS: u64 = 1000;
const SECOND: u64 = 1000 * MILLIS;

const fn key(path: &'static str, kind: Kind, fallback: Fallback, doc: &'static str) -> Key {
    Key { path, kind, fallback, doc }
}

const fn later(path: &'static str) -> Key {
    key(path, Kind::Later, Derived(""), "")
}

const fn section(path: &'static str, doc: &'static str) -> Key {
    key(path, Kind::Section, Derived(""), doc)
}

/// The words of [`Kind::Engine`].
pub(super) fn engines() -> Vec<&'static str> {
    ["auto", Custom::NAME].into_iter().chain(ENGINES.iter().map(|engine| engine.name)).collect()
}

fn meanings() -> Vec<&'static str> {
    Meaning::all().map(Meaning::as_str).collect()
}

fn itl_bases() -> Vec<&'static str> {
    ItlBasis::ALL.iter().map(|basis| basis.as_str()).collect()
}

fn modes() -> Vec<&'static str> {
    Mode::ALL.iter().map(|mode| mode.as_str()).collect()
}

fn statistics() -> Vec<&'static str> {
    Statistic::ALL.iter().map(|statistic| statistic.as_str()).collect()
}

fn presets() -> Vec<&'static str> {
    Preset::ALL.iter().map(|preset| preset.as_str()).collect()
}

fn optimization_targets() -> Vec<&'static str> {
    vec!["throughput", "latency", "load", "sla"]
}

fn predictors() -> Vec<&'static str> {
    Method::ALL.into_iter().map(Method::name).chain(["auto"]).collect()
}

fn roles() -> Vec<&'static str> {
    Role::ALL.iter().map(|role| role.as_str()).collect()
}

fn schemes() -> Vec<&'static str> {
    vec!["http", "https"]
}

fn replica_sources() -> Vec<&'static str> {
    vec!["metric", "targets", "kubernetes", "observed"]
}

pub(super) use web::KEYS as WEB_KEYS;

use Fallback::{Derived, Required, Value};
use Kind::{
    Address, Bytes, Choice, Count, Engine, Label, List, Map, Moment, Number, Path, Port, Proxy, Shard, Span, Switch, Target, Text, Url,
};

/// The keys of one `targets` section at `$at`; what the section is for, and what holds without `static`, is the caller's.
macro_rules! targets {
    ($at:literal, $doc:literal, $without:literal) => {
        &[
            section($at, concat!($doc, " One of `static`, `dns`, `srv`, `file_sd`, `http_sd`, `kubernetes` and `prometheus` says where they come from.")),
            key(concat!($at, ".static"), List, Derived($without), "A list of URLs."),
            key(concat!($at, ".static[]"), Target, Required, "`http://HOST:PORT/PATH` or `https://...`; an empty path is `/metrics`."),
            key(concat!($at, ".dns"), Text, Derived("none"), "`NAME:PORT`: every A record of the name is a target; every AAAA record where there is no A record."),
            key(concat!($at, ".srv"), Text, Derived("none"), "A name with SRV records: every record's host and port is a target."),
            key(concat!($at, ".file_sd"), Path, Derived("none"), "Prometheus' target files, JSON or YAML; one `*` in the file's name is allowed. A bad or half-written file keeps its last list."),
            key(concat!($at, ".http_sd"), Url, Derived("none"), "Prometheus' HTTP discovery: a URL that answers with such a list, as JSON."),
            key(concat!($at, ".nameserver"), Address, Derived("the system's resolver; for `srv` the servers of /etc/resolv.conf"), "The name server that `dns` and `srv` ask. It is asked for the name as it is written, without search domains."),
            key(concat!($at, ".refresh_interval"), Span(SECOND), Derived("`dns`, `srv` 30s; `file_sd`, `kubernetes` 5s; `http_sd` 60s"), "Time between two looks for targets. They happen beside the scrapes, and a look that fails keeps the last list."),
            key(concat!($at, ".scheme"), Choice(schemes, &[]), Value("http"), "Of targets that are found. A label `__scheme__` says it for its targets."),
            key(concat!($at, ".path"), Text, Value("/metrics"), "Of targets that are found. A label `__metrics_path__` says it for its targets."),
            key(concat!($at, ".keep"), Map, Derived("all"), "Labels and regular expressions: a found target counts only if all match, each the label's whole text. `__address__` is a label, too."),
            key(concat!($at, ".drop"), Map, Derived("none"), "Labels and regular expressions: a found target does not count if one matches."),
            key(concat!($at, ".bearer_token_file"), Path, Derived("none"), "A file with the token to send. It is read again when it changes, as all files of this section."),
            section(concat!($at, ".basic_auth"), "A name and a password to send."),
            key(concat!($at, ".basic_auth.username"), Text, Required, "The name."),
            key(concat!($at, ".basic_auth.password_file"), Path, Required, "A file with the password."),
            section(concat!($at, ".tls"), "How `https` is done."),
            key(concat!($at, ".tls.ca_file"), Path, Derived("the system's authorities"), "The authorities that sign the servers' certificates, PEM."),
            key(concat!($at, ".tls.cert_file"), Path, Derived("none"), "Our certificate, PEM; with `key_file`."),
            key(concat!($at, ".tls.key_file"), Path, Derived("none"), "Its key, PEM."),
            key(concat!($at, ".tls.insecure_skip_verify"), Switch, Value("false"), "Whether any certificate will do. Anyone on the way can then read the credentials and forge the numbers."),
            key(concat!($at, ".headers"), Map, Derived("none"), "Further headers by name. Their values are hidden wherever the configuration is shown."),
            section(concat!($at, ".kubernetes"), "The pods of a Service or of a label selector, asked from the API server. Needs a build with the feature `kubernetes`."),
            key(concat!($at, ".kubernetes.service"), Label, Derived("none"), "The name of a Service: its ready endpoints are targets. Needs the right to list `endpointslices`."),
            key(concat!($at, ".kubernetes.selector"), Text, Derived("none"), "Labels of pods such as `app=qwen3,role=decode`: the ready ones are targets. Needs the right to list `pods`."),
            key(concat!($at, ".kubernetes.namespace"), Label, Derived("our own namespace"), "Where the pods are."),
            key(concat!($at, ".kubernetes.port"), Port, Derived("the only one"), "The port to scrape, by name or number."),
            key(concat!($at, ".kubernetes.api_server"), Url, Derived("`https://kubernetes.default.svc`"), "The API server."),
            key(concat!($at, ".kubernetes.bearer_token_file"), Path, Derived("the service account's, with `https`"), "The token for the API server."),
            key(concat!($at, ".kubernetes.ca_file"), Path, Derived("the service account's, with `https`"), "The authority of the API server."),
            section(concat!($at, ".prometheus"), "A Prometheus that scrapes the replicas already: it is asked for its raw samples, and nobody else is."),
            key(concat!($at, ".prometheus.url"), Url, Required, "The server, with the prefix of its API if it has one. Whatever answers `/api/v1/query` will do; the access settings above are for it."),
            key(concat!($at, ".prometheus.selector"), Text, Required, "Labels of the targets, as the series `up` has them: `{job=\"vllm\",role=\"decode\"}`."),
            key(concat!($at, ".prometheus.target_label"), Text, Value("instance"), "The label that names a target; its values must be unique among the targets."),
            key(concat!($at, ".prometheus.lookback"), Span(SECOND), Value("2m"), "A target whose last scrape is older is silent; at least two scrape intervals of that Prometheus, at most 10m."),
        ]
    };
}

#[rustfmt::skip]
const TO_PLANNER: &[Key] = &[
    section("server", "Our own HTTP server."),
    key("server.listen", Address, Value("0.0.0.0:10877"), "Address and port to listen on."),
    key("server.enable_lifecycle", Switch, Value("false"), "Whether `POST` is allowed: reloads, and acknowledgements of decisions."),
    key("server.web_config_file", Path, Derived("none: everybody may read us, in clear text"), "A file with certificates and passwords, in the format of Prometheus' `--web.config.file`; see below. It and what it names are read again when they change."),
    key("server.acknowledge_within", Span(SECOND), Value("30m"), "With `enable_lifecycle`: a decision that nobody has acknowledged for so long is called timed out, and told once in the log. Nothing waits for it."),
    section("scrape", "How the targets are read."),
    key("scrape.interval", Span(100 * MILLIS), Value("5s"), "Time between two rounds of scrapes."),
    key("scrape.timeout", Span(10 * MILLIS), Value("4s"), "Deadline of one target: connection, headers, body and reading. At most `scrape.interval`."),
    key("scrape.concurrency", Count(1, 10_000), Value("64"), "Targets scraped at the same time."),
    key("scrape.body_limit", Bytes(1024), Value("8MiB"), "Largest page, before and after inflating: a number of bytes, or one with a unit (`8MiB`)."),
    key("scrape.bytes_in_flight", Bytes(1024), Value("64MiB"), "Largest sum of pages held at the same time; at least `scrape.body_limit`."),
    key("scrape.proxy", Proxy, Derived("no proxy, whatever the environment says"), "HTTP proxy for all scrapes, and for a Prometheus that is asked instead. Its credentials are hidden wherever the configuration is shown."),
    key("state_file", Path, Derived("no state is kept"), "Where recommendations survive a restart."),
    key("overrides_file", Path, Derived("no overrides"), "Where the operator's pins are read from, see below. The file need not exist yet: then nothing is pinned."),
    key("queueing_config", Path, Derived("none"), "The folder where llm-d's ConfigMap `wva-queueing-model-config` is mounted, see below. Models without a preset, profile and objective of their own then take preset wva."),
    key("max_target_series", Count(0, 1_000_000), Value("1000"), "Above this many targets the families with a `target` label are left out."),
    key("max_gpu_budget", Count(1, MOST_GPUS), Derived("none"), "GPUs of all models together at most. Where they want more, those of the highest `priority` come first, and equals share in proportion to their wishes."),
    key("min_gpu_budget", Count(0, MOST_GPUS), Derived("none"), "GPUs of all models together at least."),
    key("shard", Shard, Derived("all models are ours"), "Where several exporters share the configuration: which one this is, counted from 0 (`0/3`, `1/3`, `2/3`). Each model is planned by one of them, which alone scrapes it; under a GPU budget of all models one plans them all. Usually a flag or variable, and each needs a `state_file` of its own."),
    section("report", "What the status page shows, as files written while the exporter runs, and a log of every decision."),
    key("report.dir", Path, Derived("required with `report`"), "The folder, which is made if it does not exist. A disk that refuses costs the report and nothing else."),
    key("report.interval", Span(60 * SECOND), Value("24h"), "Time between two files, from one wall-clock multiple (UTC) to the next. A file shows what happened since the last, at most 24h."),

    key("models", List, Required, "The models to plan."),
    section("models[]", "One model."),
    key("models[].name", Text, Required, "Its name, as in the servers' model label; unique. A lone `\"*\"` plans every model that the targets name: then the pools carry no names and are called after the model."),
    key("models[].target_namespace", Label, Derived("our own namespace in a cluster, else `default`"), "The `target_namespace` label of the exported series."),
    key("models[].mode", Choice(modes, &[]), Value("publish"), "`publish`; `shadow` computes and exports everything except `recommended_replicas`; `freeze` keeps the last published number, without expiry."),
    key("models[].engine", Engine, Value("auto"), "The servers' dialect; `auto` recognises it page by page, `custom` is described below it."),
    section("models[].custom", "With `engine: custom`: what the servers' families mean. Durations are seconds, usage is a share of 1."),
    key("models[].custom.model_label", Text, Value("model_name"), "The label that names the model; pages without it belong to whichever model is asked for."),
    key("models[].custom.repeated_labels", List, Derived("none"), "Labels of ranks that repeat each other: only the lowest rank is read."),
    key("models[].custom.repeated_labels[]", Text, Required, "A label's name."),
    key("models[].custom.itl_basis", Choice(itl_bases, &[]), Value("per_request"), "What one observation of role `itl` is: the mean of a request, a token, an output event, or a request's whole duration over its tokens, which is no ITL."),
    key("models[].custom.metrics", List, Derived("required with `engine: custom`"), "The families. Of several with one role the first that a page has counts."),
    section("models[].custom.metrics[]", "One family."),
    key("models[].custom.metrics[].role", Choice(meanings, &[]), Required, "What it means."),
    key("models[].custom.metrics[].name", Text, Required, "Its name. A counter may be named without `_total`; of a histogram the count is read where the role is a count, and the sum where it is iteration_tokens or prefill_seconds."),
    key("models[].custom.metrics[].labels", List, Derived("every series"), "Only series that have these labels count."),
    key("models[].custom.metrics[].labels[]", Text, Required, "`LABEL=VALUE`."),
    key("models[].priority", Count(0, 1000), Value("0"), "Under a GPU budget of all models: larger comes first."),
    later("models[].scope"),

    section("models[].slo", "The latency objectives. They count as given only if `ttft` or `itl` is written; preset wva takes both or none, and learns them where none is."),
    key("models[].slo.ttft", Span(MILLIS), Value("500ms"), "Time to first token."),
    key("models[].slo.itl", Span(MILLIS / 10), Value("50ms"), "Time between two tokens."),
    key("models[].slo.attainment", Number(1.0), Derived("0.99 with preset auto"), "With preset auto: share of the requests that are to meet both objectives, from 0.5 to below 1."),
    key("models[].slo.statistic", Choice(statistics, &[]), Value("mean"), "Which number of the measured latencies is held against the objectives. The presets honour `mean`; preset auto judges each request by `attainment` instead."),
];

#[rustfmt::skip]
const TO_TARGETS: &[Key] = &[
    section("models[].traffic", "Where whole requests are measured, if not at the pools: routers or front ends."),
];

#[rustfmt::skip]
const TRAFFIC_TARGETS: &[Key] = targets!("models[].traffic.targets", "The endpoints to scrape.", "none");

#[rustfmt::skip]
const TO_POOL: &[Key] = &[
    key("models[].pools", List, Required, "The pools. Preset infera takes one of role prefill and one of role decode; presets dynamo and auto these, one of them, or one of role aggregated; preset wva any number of these or of those. Several of one role are variants: each has targets of its own."),
    section("models[].pools[]", "Identical replicas with one role."),
    key("models[].pools[].name", Label, Required, "Its name: the `pool` label, unique in one exporter."),
    key("models[].pools[].role", Choice(roles, &[]), Required, "What its replicas do. Preset infera does not take `aggregated`."),
    key("models[].pools[].gpus_per_replica", Count(1, 100_000), Derived("what the profile says"), "GPUs of one replica."),
    key("models[].pools[].cost", Number(MOST_COST), Derived("its GPUs"), "With preset wva: what one replica costs, above 0, in any unit that all pools of the model share. Of several variants the cheapest per request grows first."),
    key("models[].pools[].accelerator", Text, Derived("none"), "What its replicas compute on, for the label `accelerator` of `pool_info`. Nothing is decided by it."),
    key("models[].pools[].min_replicas", Count(0, MOST_REPLICAS), Value("1"), "Smallest recommendation, at least 1."),
    key("models[].pools[].max_replicas", Count(1, MOST_REPLICAS), Required, "Largest recommendation."),
];

#[rustfmt::skip]
const POOL_TARGETS: &[Key] = targets!("models[].pools[].targets", "The endpoints to scrape: the replicas themselves.", "none; without traffic targets every pool needs some");

#[rustfmt::skip]
const OF_POOL: &[Key] = &[
    key("models[].pools[].replicas_from", Choice(replica_sources, &[]), Derived("`targets` where the pool has targets, else `metric`, with presets dynamo, wva and auto `observed`"), "How ready replicas are counted: `metric` takes a router's count from the traffic targets, `targets` counts the pool's own, `kubernetes` those that `targets.kubernetes` finds ready, `observed` takes a router's count where there is one and counts targets otherwise."),
    section("models[].pools[].capabilities", "What one replica can do, where the engine does not export it."),
    key("models[].pools[].capabilities.context_length", Count(1, MOST_TOKENS), Derived("unknown"), "Tokens of the longest request. Target throughput and latency need it for prefill pools."),
    key("models[].pools[].capabilities.max_kv_tokens", Count(1, MOST_TOKENS), Derived("what the engine exports"), "Tokens that the KV memory of one replica holds."),
    key("models[].pools[].capabilities.max_num_seqs", Count(1, MOST_REQUESTS), Derived("what the engine exports"), "Requests that one replica computes at the same time at most. Preset wva reads it."),
    key("models[].pools[].capabilities.max_num_batched_tokens", Count(1, MOST_TOKENS), Derived("what the engine exports"), "Tokens of one step at most: longer prompts are computed in chunks. Target sla reads it."),
    key("models[].pools[].targets_per_replica", Count(1, 100_000), Value("1"), "Scraped endpoints of one replica (ranks, ports)."),
    later("models[].pools[].scope"), later("models[].pools[].warm_up"), later("models[].pools[].hpa_tolerance"),
];

const PARTS: [&[Key]; 7] = [TO_PLANNER, planner::KEYS, TO_TARGETS, TRAFFIC_TARGETS, TO_POOL, POOL_TARGETS, OF_POOL];

/// Every key of the configuration file, sections before their members.
pub(super) const KEYS: &[Key] = &joined::<{ length(PARTS) }>(PARTS);

const fn length(parts: [&[Key]; 7]) -> usize {
    let (mut part, mut sum) = (0, 0);
    while part < parts.len() {
        sum += parts[part].len();
        part += 1;
    }
    sum
}

/// One table of several, where the compiler runs: a `static` list cannot be grown.
const fn joined<const N: usize>(parts: [&[Key]; 7]) -> [Key; N] {
    let mut all = [parts[0][0]; N];
    let (mut part, mut index, mut next) = (0, 0, 0);
    while part < parts.len() {
        if index < parts[part].len() {
            all[next] = parts[part][index];
            (index, next) = (index + 1, next + 1);
        } else {
            (part, index) = (part + 1, 0);
        }
    }
    all
}

/// Every key of the overrides file, which is a list.
#[rustfmt::skip]
pub(super) const OVERRIDE_KEYS: &[Key] = &[
    key("", List, Derived("nothing is pinned"), "The pins; an empty file pins nothing."),
    section("[]", "One pin."),
    key("[].pool", Text, Required, "The pool's name; at most one pin a pool."),
    key("[].replicas", Count(0, MOST_REPLICAS), Required, "The number to publish, inside the pool's limits."),
    key("[].until", Moment, Required, "Until when, as RFC 3339 writes it, with any offset: `2026-01-31T18:00:00+02:00`."),
    key("[].reason", Text, Required, "Why, in the operator's words."),
];

/// Every key of an entry in the ConfigMap of `queueing_config`. Its names are llm-d's.
#[rustfmt::skip]
pub(super) const ENTRY_KEYS: &[Key] = &[
    key("model_id", Text, Required, "The model's name; not in `default`."),
    key("namespace", Label, Required, "The model's `target_namespace`; not in `default`."),
    key("targetTTFT", Number(MOST_MILLIS), Derived("0"), "Objective for the time to first token, milliseconds, at least 1. With `targetITL`, or neither; 0 counts as not written."),
    key("targetITL", Number(MOST_MILLIS), Derived("0"), "Objective for the time between tokens, milliseconds, at least 0.1."),
    key("sloMultiplier", Number(MOST_MULTIPLIER), Derived("3, or that of `default`"), "As `planner.slo_multiplier`."),
    key("tuningEnabled", Switch, Value("true"), "Nothing but `true`: what replicas can do is learned or not known."),
];

/// What a table says of a concrete path such as `models[0].name`.
pub(super) fn find<'a>(table: &'a [Key], path: &str) -> Option<&'a Key> {
    let template = template(path);
    table.iter().find(|key| key.path == template)
}

/// A concrete path with its list positions left out: `models[0].name` gives `models[].name`.
pub(super) fn template(path: &str) -> String {
    let mut template = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ if inside => continue,
            _ => {}
        }
        template.push(c);
    }
    template
}

/// The members of a section, given by its template.
pub(super) fn members<'a>(table: &'a [Key], section: &str) -> impl Iterator<Item = (&'a Key, &'a str)> {
    let prefix = if section.is_empty() { String::new() } else { format!("{section}.") };
    table.iter().filter_map(move |key| {
        let name = key.path.strip_prefix(&prefix)?;
        (!name.is_empty() && !name.contains(['.', '['])).then_some((key, name))
    })
}

/// The name that was probably meant: `" did you mean ...?"`, or nothing.
pub(super) fn hint<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(wrong, known).map_or(String::new(), |name| format!("; did you mean {name}?"))
}

/// The name that was probably meant: one that differs in a few letters, else the only one that is written out where it was cut short.
pub(super) fn nearest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Fewer letters begin too many words.
    const SHORTEST_BEGINNING: usize = 3;
    let known: Vec<&str> = known.collect();
    let distances = known.iter().map(|name| (strsim::osa_distance(wrong, name), *name));
    let near = distances.filter(|(distance, name)| *distance <= name.len().max(wrong.len()) / 3).min();
    let mut longer = known.iter().filter(|name| wrong.len() >= SHORTEST_BEGINNING && name.starts_with(wrong));
    near.map(|(_, name)| name).or_else(|| longer.next().copied().filter(|_| longer.next().is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_listed_once_below_its_section_with_its_meaning() {
        for table in [KEYS, OVERRIDE_KEYS, ENTRY_KEYS, WEB_KEYS] {
            for (index, key) in table.iter().enumerate() {
                assert!(table[..index].iter().all(|other| other.path != key.path), "{} is listed twice", key.path);
                let holder = key.path.strip_suffix("[]").or_else(|| key.path.rsplit_once('.').map(|(holder, _)| holder));
                let holder = holder.unwrap_or_default();
                assert!(holder.is_empty() || table[..index].iter().any(|other| other.path == holder), "{} has no section", key.path);
                assert_eq!(key.doc.is_empty(), matches!(key.kind, Kind::Later), "{} is without meaning", key.path);
            }
        }
    }

    #[test]
    fn hints_are_near_or_absent() {
        assert_eq!(hint("max_replica", ["min_replicas", "max_replicas"].into_iter()), "; did you mean max_replicas?");
        assert_eq!(hint("colour", ["name", "mode"].into_iter()), "");
        assert_eq!(hint("agg", ["prefill", "decode", "aggregated"].into_iter()), "; did you mean aggregated?");
        assert_eq!(hint("http_s", ["http_sd", "http_source"].into_iter()), "; did you mean http_sd?");
        assert_eq!(hint("pre", ["preset", "predictor"].into_iter()), "", "either of two is a guess");
    }
}
