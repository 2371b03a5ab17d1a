//! Does a configuration mean what it says, and is every mistake told, each with its place?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inference_planner_exporter::config::{
    self, Config, Flags, Inputs, Loaded, ModelSelector, Problem, SourceText, parse_millis_flag, parse_seconds_flag,
};
use inference_planner_exporter::planner::input::SourceId;
use inference_planner_exporter::planner::policy::{CapacityModel, ChangeRule, GrowthRule, Mode, Pin, Preset, ReplicasFrom, Statistic};
use inference_planner_exporter::planner::propose::threshold::Target;
use inference_planner_exporter::units::{Replicas, Role};
use proptest::prelude::*;

const PROFILE: &str = include_str!("../fixtures/config/profile.json");
const MINIMAL: &str = include_str!("../fixtures/config/minimal.yaml");
const FULL: &str = include_str!("../fixtures/config/full.yaml");
const OVERRIDES: &str = "/etc/planner/overrides.yaml";

fn file(path: &str, text: &str) -> Inputs {
    Inputs { file: Some(SourceText { path: path.into(), text: text.to_owned() }), ..Inputs::default() }
}

/// Loads with every profile that is asked for being the good one, and the overrides as given.
fn load_with(inputs: Inputs, overrides: Option<&str>) -> Result<Loaded, Vec<Problem>> {
    let draft = config::read(inputs);
    let mut files = BTreeMap::new();
    for path in draft.files() {
        if path.ends_with("profile.json") {
            files.insert(path.clone(), Ok(PROFILE.to_owned()));
        } else if let Some(text) = overrides {
            files.insert(path.clone(), Ok(text.to_owned()));
        }
    }
    draft.finish(&files)
}

fn load(text: &str) -> Result<Loaded, Vec<Problem>> {
    load_with(file("c.yaml", text), None)
}

fn lines(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn problems(inputs: Inputs) -> Vec<String> {
    lines(&load_with(inputs, None).expect_err("the configuration has problems"))
}

fn good(result: Result<Loaded, Vec<Problem>>) -> Loaded {
    result.unwrap_or_else(|problems| panic!("{:#?}", lines(&problems)))
}

/// Everything but where it was read from.
fn meaning(config: &Config) -> String {
    format!("{:#?}", Config { files: Vec::new(), ..config.clone() })
}

#[test]
fn a_minimal_file_takes_every_default() {
    let config = good(load(MINIMAL)).config;
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:10877");
    assert!(!config.server.enable_lifecycle);
    assert_eq!((config.scrape.interval, config.scrape.timeout), (Duration::from_secs(5), Duration::from_secs(4)));
    assert_eq!((config.scrape.concurrency, config.scrape.body_limit, config.scrape.bytes_in_flight), (64, 8 << 20, 64 << 20));
    assert_eq!((&config.scrape.proxy, &config.state_file, &config.overrides_file), (&None, &None, &None));
    assert_eq!(config.max_target_series, 1000);
    assert_eq!(config.files, [PathBuf::from("c.yaml"), "profile.json".into()]);
    assert_eq!(config.hash.len(), 12);

    let [model] = config.models.as_slice() else { panic!("one model") };
    assert_eq!(model.selector, ModelSelector::Named("Qwen/Qwen3-8B".into()));
    assert_eq!(model.target_namespace, "default");
    assert!(model.engine.is_none());
    let policy = &model.policy;
    assert_eq!((policy.preset, policy.mode, policy.interval), (Preset::Infera, Mode::Publish, Duration::from_secs(180)));
    assert_eq!((policy.hold_for, policy.correction), (Duration::from_secs(600), true));
    assert_eq!(
        (policy.slo.ttft.get(), policy.slo.itl.get(), policy.slo.statistic, policy.slo.explicit),
        (0.5, 0.05, Statistic::Mean, false)
    );
    assert_eq!(policy.traffic_change, ChangeRule::SkipWindow);
    assert!(matches!(policy.growth, GrowthRule::TimesObserved(growth) if growth.get() == 4));
    assert_eq!(model.sources.len(), 1);
    assert_eq!(model.sources[0].source, SourceId::Traffic);
    assert_eq!(model.sources[0].targets[0].target.as_str(), "10.0.0.11:8000/metrics");
    assert_eq!(model.sources[0].targets[0].url, "http://10.0.0.11:8000/metrics");
    let pool = &policy.pools[1];
    assert_eq!((pool.pool.as_str(), pool.role, pool.replicas_from), ("qwen3-8b-decode", Role::Decode, ReplicasFrom::Metric));
    assert_eq!((pool.limits.min(), pool.limits.max(), pool.gpus_per_replica.map(u32::from)), (Replicas(1), Replicas(16), Some(1)));
}

#[test]
fn a_full_file_is_taken_as_written() {
    let loaded = good(load_with(file("conf/c.yaml", FULL), None));
    let config = loaded.config;
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:9000");
    assert_eq!(config.scrape.bytes_in_flight, 16 << 20);
    assert_eq!(config.state_file, Some("conf/state.json".into()));
    assert_eq!(config.files.len(), 4);
    assert_eq!(config.files[2], PathBuf::from("conf/other/profile.json"));
    let first = &config.models[0];
    assert_eq!(first.selector, ModelSelector::Named("no".into()), "a quoted word stays text");
    let targets: Vec<&str> = first.sources[0].targets.iter().map(|target| target.target.as_str()).collect();
    assert_eq!(targets, ["[::1]:8000/custom", "router.llm.svc:443/metrics"]);
    let targets: Vec<&str> = first.sources[1].targets.iter().map(|target| target.target.as_str()).collect();
    assert_eq!(targets, ["10.0.0.1:8000/metrics", "10.0.0.2:8000/metrics"]);
    assert_eq!(first.policy.pools[1].replicas_from, ReplicasFrom::Targets, "a pool with targets counts them");
    assert_eq!(first.policy.pools[1].targets_per_replica.get(), 2);
    assert_eq!(first.policy.pools[0].gpus_per_replica.map(u32::from), Some(2));
    let second = &config.models[1];
    assert_eq!((second.policy.slo.ttft.get(), second.policy.slo.itl.get(), second.policy.slo.explicit), (0.2, 0.05, true));
    assert!(!loaded.effective.contains("secret"), "{}", loaded.effective);
    assert!(loaded.effective.contains("proxy: \"http://hidden@proxy.internal:3128\""), "{}", loaded.effective);
}

#[test]
fn a_query_may_be_a_token_and_is_not_shown() {
    let loaded = good(load(&FULL.replace("8000/custom", "8000/custom?token=hunter2")));
    assert!(!loaded.effective.contains("hunter2") && loaded.effective.contains("8000/custom?hidden"), "{}", loaded.effective);
    let mut targets = loaded.config.models[0].sources.iter().flat_map(|source| &source.targets);
    assert!(targets.any(|target| target.url.ends_with("?token=hunter2")), "it is scraped all the same");
}

#[test]
fn toml_and_json_mean_the_same_as_yaml() {
    let yaml = meaning(&good(load(MINIMAL)).config);
    for (path, text) in
        [("c.toml", include_str!("../fixtures/config/minimal.toml")), ("c.json", include_str!("../fixtures/config/minimal.json"))]
    {
        assert_eq!(meaning(&good(load_with(file(path, text), None)).config), yaml, "{path}");
    }
}

#[test]
fn the_effective_configuration_loads_to_the_same_configuration() {
    let hidden = FULL.replace("someone:secret@", "");
    let flags = Flags { metrics_urls: vec!["http://h:1".to_owned()], profile_results: Some("profile.json".into()), ..Flags::default() };
    let overrides = format!("overrides_file: {OVERRIDES}\n{MINIMAL}");
    let inputs = [
        file("c.yaml", MINIMAL),
        file("conf/c.yaml", &hidden),
        file("c.yaml", &overrides),
        file("c.yaml", &MINIMAL.replace("Qwen/Qwen3-8B", "'tab\\t \"quoted\" \u{e9}\u{2028}: #'")),
        Inputs { flags: flags.clone(), own_namespace: Some("here".to_owned()), ..Inputs::default() },
        Inputs { flags: Flags { model: Some("Qwen/Qwen3-8B".to_owned()), ..flags }, ..Inputs::default() },
    ];
    for input in inputs {
        let first = good(load_with(input.clone(), None));
        let again = good(load_with(file("effective.yaml", &first.effective), None));
        assert_eq!(meaning(&again.config), meaning(&first.config), "{input:?}\n{}", first.effective);
        assert_eq!(again.effective, first.effective);
    }
}

/// Every way to find targets, with every setting of a request.
const FOUND: &str = "
models:
  - name: M
    planner: { profile: profile.json }
    traffic:
      targets:
        file_sd: 'routers-*.json'
        scheme: https
        path: /prometheus/metrics
        refresh_interval: 2s
        keep: { role: 'router|gateway', shard: 3 }
        drop: { __address__: '10\\.9\\..*' }
        bearer_token_file: secrets/token
        tls: { ca_file: ca.pem, cert_file: /etc/c.pem, key_file: c.key, insecure_skip_verify: true }
        headers: { X-Scope-OrgID: hunter2, X-Shard: 7 }
    pools:
      - { name: p, role: prefill, max_replicas: 4, targets: { dns: 'p.llm.svc:8000', nameserver: '10.0.0.10:53', basic_auth: { username: u, password_file: pw } } }
      - { name: d, role: decode, max_replicas: 4, targets: { TARGETS } }
";

#[test]
fn targets_may_be_found_in_every_way() {
    use config::{DiscoveryConfig, Way};
    let text = |targets: &str| FOUND.replace("TARGETS", targets);
    let ways = [
        "srv: _http._tcp.d.llm.svc",
        "http_sd: 'http://inventory/targets'",
        "prometheus: { url: 'https://prometheus:9090/', selector: '{job=\"vllm\"}', target_label: pod, lookback: 90s }, headers: { X-Scope-OrgID: hunter2 }",
        "prometheus: { url: 'http://prometheus:9090/prefix', selector: '{job=\"vllm\",role=~\"decode|both\",}' }",
    ];
    #[cfg(feature = "kubernetes")]
    let ways = ways.into_iter().chain([
        "kubernetes: { service: decode }",
        "kubernetes: { selector: 'app=qwen3', namespace: other, port: 8000, api_server: 'http://127.0.0.1:8001' }",
        "kubernetes: { service: decode, port: metrics, api_server: 'https://10.0.0.1:6443', bearer_token_file: t, ca_file: c }",
    ]);
    for way in ways {
        let first = good(load_with(file("conf/c.yaml", &text(way)), None));
        let effective = first.effective.replace("\"hidden\"", "hunter2");
        let again = good(load_with(file("effective.yaml", &effective), None));
        assert_eq!(meaning(&again.config), meaning(&first.config), "{}", first.effective);
        assert_eq!(again.effective, first.effective);
        assert!(!first.effective.contains("hunter2") && !format!("{:?}", first.config).contains("hunter2"), "{}", first.effective);
        let sources = &first.config.models[0].sources;
        let access = &sources[0].access;
        assert_eq!(access.headers["X-Scope-OrgID"], "hunter2");
        assert_eq!(access.bearer_token_file.as_deref(), Some(Path::new("conf/secrets/token")));
        assert_eq!(access.client_certificate, Some(("/etc/c.pem".into(), "conf/c.key".into())));
        let DiscoveryConfig { way, refresh, scheme, path, keep, .. } = sources[0].discovery.as_ref().unwrap();
        assert_eq!(way, &Way::File { pattern: "conf/routers-*.json".into() });
        assert_eq!((refresh.as_secs(), scheme.as_str(), path.as_str(), keep["shard"].as_str()), (2, "https", "/prometheus/metrics", "3"));
        let dns = Way::Dns { host: "p.llm.svc".to_owned(), port: 8000, nameserver: "10.0.0.10:53".parse().ok() };
        assert_eq!(sources[1].discovery.as_ref().map(|found| (&found.way, found.refresh.as_secs())), Some((&dns, 30)));
        assert_eq!(first.config.models[0].policy.pools[1].replicas_from, ReplicasFrom::Targets);
        let told = lines(&first.warnings);
        assert!(told.iter().any(|warning| warning.contains("tls.insecure_skip_verify: certificates are not checked")), "{told:?}");
    }
}

#[cfg(feature = "kubernetes")]
#[test]
fn ready_pods_are_counted_where_kubernetes_is_asked_for_them() {
    let pool = FOUND.replace("targets: { TARGETS }", "replicas_from: kubernetes, targets: { kubernetes: { service: decode } }");
    let first = good(load_with(file("conf/c.yaml", &pool), None));
    assert_eq!(first.config.models[0].policy.pools[1].replicas_from, ReplicasFrom::Kubernetes);
    let again = good(load_with(file("effective.yaml", &first.effective.replace("\"hidden\"", "hunter2")), None));
    assert_eq!(meaning(&again.config), meaning(&first.config), "{}", first.effective);
}

#[test]
fn mistakes_in_what_prometheus_is_asked_are_told_together() {
    let text = "
models:
  - name: M
    planner: { profile: profile.json }
    pools:
      - name: p
        role: prefill
        max_replicas: 4
        targets:
          prometheus: { url: 'http://h/?k=hunter2', selector: 'up', target_label: __name__, lookback: 1h }
          keep: { a: b }
          dns: h:1
      - { name: d, role: decode, max_replicas: 4, targets: { prometheus: { url: 'http://h' }, scheme: https } }
";
    let told = problems(file("c.yaml", text));
    assert!(!told.iter().any(|problem| problem.contains("hunter2")), "{told:#?}");
    for expected in [
        "pools[0].targets.prometheus: expected one way to find targets, got dns and prometheus; keep one",
        "pools[1].targets.prometheus.selector: required",
        "pools[1].targets.scheme: belongs to targets that are found; with prometheus",
    ] {
        assert!(told.iter().any(|problem| problem.contains(expected)), "{expected}: {told:#?}");
    }
    let told = problems(file("c.yaml", &text.replace("          dns: h:1\n", "")));
    for expected in [
        "prometheus.url: expected the URL of a server",
        "prometheus.selector: expected labels of the targets such as {job=\"vllm\"}",
        "prometheus.target_label: expected a label such as instance",
        "prometheus.lookback: expected at most 10m, got 1h",
        "pools[0].targets.keep: belongs to targets that are found; with prometheus",
    ] {
        assert!(told.iter().any(|problem| problem.contains(expected)), "{expected}: {told:#?}");
    }
}

#[test]
fn mistakes_in_how_targets_are_found_are_told_together() {
    let text = "
models:
  - name: M
    planner: { profile: profile.json }
    traffic: { targets: { static: ['http://h:1'], scheme: https, keep: { a: b } } }
    pools:
      - name: p
        role: prefill
        max_replicas: 4
        targets:
          file_sd: 'a*/b.txt'
          dns: h:1
          keep: { role: '(' }
          path: metrics
          headers: { Authorization: hunter2, 'X A': [hunter2] }
          bearer_token_file: t
          basic_auth: { username: 'a:b' }
          tls: { cert_file: c }
      - { name: d, role: decode, max_replicas: 4, targets: { http_sd: 'http://u:hunter2@h/?k=hunter2', nameserver: '10.0.0.1:53', kubernets: {} } }
";
    let told = problems(file("c.yaml", text));
    assert!(!told.iter().any(|problem| problem.contains("hunter2")), "{told:#?}");
    for expected in [
        "traffic.targets.scheme: belongs to targets that are found",
        "traffic.targets.keep: belongs to targets that are found",
        "pools[0].targets.file_sd: expected one way to find targets, got dns and file_sd; keep one",
        "pools[0].targets.keep: expected a regular expression for label role",
        "pools[0].targets.path: expected a path such as /metrics, got \"metrics\"",
        "pools[0].targets.headers: expected a text for \"X A\", got something else",
        "pools[0].targets.basic_auth.password_file: required",
        "pools[0].targets.tls: expected cert_file and key_file together, got one of them",
        "pools[1].targets.http_sd: credentials in a URL are not supported, got \"http://hidden@h/?hidden\"",
        "pools[1].targets.nameserver: belongs to dns and srv, not to http_sd",
        "pools[1].targets.kubernets: no such key; did you mean kubernetes?",
    ] {
        assert!(told.iter().any(|problem| problem.contains(expected)), "{expected}\n{told:#?}");
    }
}

#[test]
#[cfg(not(feature = "kubernetes"))]
fn kubernetes_needs_a_build_that_knows_it() {
    let told = problems(file("c.yaml", &FOUND.replace("TARGETS", "kubernetes: { service: decode }")));
    let told: Vec<_> = told.into_iter().filter(|problem| !problem.ends_with("does not exist")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("pools[1].targets.kubernetes: this program was built without the feature kubernetes"), "{told:?}");
}

#[test]
fn variables_win_over_the_file_and_flags_over_variables() {
    let text = format!("server: {{ listen: '0.0.0.0:1', enable_lifecycle: true }}\nscrape: {{ interval: 3s, timeout: 1s }}\n{MINIMAL}");
    let env = [
        ("INFERENCE_PLANNER__SERVER__LISTEN", "0.0.0.0:2"),
        ("INFERENCE_PLANNER__SCRAPE__INTERVAL", "7s"),
        ("INFERENCE_PLANNER__SCRAPE__CONCURRENCY", "9"),
        ("INFERENCE_PLANNER__STATE_FILE", "from-env.json"),
        ("INFERENCE_PLANNER__OVERRIDES_FILE", "pins.yaml"),
    ];
    let env: Vec<_> = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let flags = Flags { listen: Some("0.0.0.0:3".to_owned()), ..Flags::default() };
    let config = good(load_with(Inputs { env, flags, ..file("conf/c.yaml", &text) }, None)).config;
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:3");
    assert!(config.server.enable_lifecycle, "the file's value stays where no later layer speaks");
    assert_eq!((config.scrape.interval, config.scrape.timeout), (Duration::from_secs(7), Duration::from_secs(1)));
    assert_eq!(config.scrape.concurrency, 9);
    assert_eq!(config.state_file, Some("from-env.json".into()), "a variable's path starts where the process runs");
}

#[test]
fn wrong_variables_are_named() {
    let env = [
        ("INFERENCE_PLANNER__SERVER__LISTN", "x"),
        ("INFERENCE_PLANNER__MODELS", "[]"),
        ("INFERENCE_PLANNER__SCRAPE__TIMEOUT", "fast"),
        ("INFERENCE_PLANNER__SERVER__ENABLE_LIFECYCLE", "maybe"),
    ];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(
        problems(Inputs { env, ..file("c.yaml", MINIMAL) }),
        [
            "INFERENCE_PLANNER__SERVER__LISTN: not a variable that is read; variables set the keys of server and scrape, state_file, overrides_file and shard; did you mean ...__SERVER__LISTEN?",
            "INFERENCE_PLANNER__MODELS: not a variable that is read; variables set the keys of server and scrape, state_file, overrides_file and shard",
            "INFERENCE_PLANNER__SCRAPE__TIMEOUT: expected a duration such as 500ms, got \"fast\"",
            "INFERENCE_PLANNER__SERVER__ENABLE_LIFECYCLE: expected true or false, got \"maybe\"",
        ]
    );
}

fn flags() -> Flags {
    Flags {
        metrics_urls: vec!["http://127.0.0.1:8000".to_owned()],
        model: Some("Qwen/Qwen3 8B.".to_owned()),
        profile_results: Some("some/profile.json".into()),
        ..Flags::default()
    }
}

#[test]
fn flags_alone_name_the_pools_after_the_model() {
    let flags = Flags { ttft: Some(Duration::from_millis(300)), max_replicas: Some(5), ..flags() };
    let loaded = good(load_with(Inputs { flags, own_namespace: Some("llm".to_owned()), ..Inputs::default() }, None));
    let model = &loaded.config.models[0];
    let pools: Vec<&str> = model.policy.pools.iter().map(|pool| pool.pool.as_str()).collect();
    assert_eq!(pools, ["qwen3-8b-prefill", "qwen3-8b-decode"]);
    assert_eq!((model.policy.pools[0].limits.min(), model.policy.pools[0].limits.max()), (Replicas(1), Replicas(5)));
    assert_eq!((model.target_namespace.as_str(), model.policy.preset), ("llm", Preset::Infera));
    assert_eq!((model.policy.slo.ttft.get(), model.policy.slo.itl.get(), model.policy.slo.explicit), (0.3, 0.05, true));
    assert_eq!(model.policy_for(&"Qwen/Qwen3 8B.".into()).expect("this model"), model.policy);
    assert!(model.policy_for(&"other".into()).is_err());
}

#[test]
fn without_a_model_flag_every_model_gets_a_policy_of_its_own() {
    let flags = Flags { model: None, ..flags() };
    let env = vec![("INFERENCE_PLANNER__OVERRIDES_FILE".to_owned(), "pins.yaml".to_owned())];
    let pins = "- { pool: b-decode, replicas: 3, until: 2030-01-01T00:00:00Z, reason: test }";
    let loaded = good(load_with(Inputs { flags, env, ..Inputs::default() }, Some(pins)));
    let model = &loaded.config.models[0];
    assert_eq!(model.selector, ModelSelector::Any);
    let policy = model.policy_for(&"a/B".into()).expect("a legal name");
    assert_eq!((policy.model.as_str(), policy.pools[0].pool.as_str(), policy.pools[1].pool.as_str()), ("a/B", "b-prefill", "b-decode"));
    assert_eq!(policy.pools[1].pin.as_ref().map(|pin| pin.replicas), Some(Replicas(3)));
    assert_eq!(policy.pools[0].pin, None);
    let same = model.policy_for(&"c/b".into()).expect("a legal name");
    let (pool, first, second) = config::shared_pool([&policy, &same]).expect("both are called b");
    assert_eq!((pool.as_str(), first.as_str(), second.as_str()), ("b-prefill", "a/B", "c/b"));
    assert!(config::shared_pool([&policy]).is_none());
    assert_eq!(
        model.policy_for(&"x/---".into()).expect_err("nothing legal remains"),
        "model \"x/---\" gives no pool name; write a configuration file with names of your own"
    );
}

#[test]
fn reports_need_a_folder_and_have_an_interval() {
    let with = |report: &str| load_with(file("/etc/planner/c.yaml", &format!("{report}\n{MINIMAL}")), None);
    let report = |text: &str| good(with(text)).config.report.map(|report| (report.dir, report.interval));
    assert_eq!(report(""), None);
    assert_eq!(report("report: { dir: r }"), Some((PathBuf::from("/etc/planner/r"), Duration::from_secs(24 * 3600))));
    assert_eq!(report("report: { dir: /r, interval: 1h }"), Some((PathBuf::from("/r"), Duration::from_secs(3600))));
    let loaded = good(with("report: { dir: r, interval: 90m }"));
    assert!(loaded.effective.contains("\nreport: { dir: \"/etc/planner/r\", interval: 1h 30m }\n"), "{}", loaded.effective);
    let refused = |text: &str| lines(&with(text).expect_err(text)).join("\n");
    assert!(refused("report: {}").contains("report.dir: required: expected a folder"), "{}", refused("report: {}"));
    let short = refused("report: { dir: r, interval: 59s }");
    assert!(short.contains("report.interval: expected at least 1m, got \"59s\"") && short.lines().count() == 1, "{short}");
}

#[test]
fn urls_alone_plan_one_aggregated_pool_by_throughput() {
    let flags = Flags { metrics_urls: flags().metrics_urls, ..Flags::default() };
    let loaded = good(load_with(Inputs { flags, ..Inputs::default() }, None));
    let model = &loaded.config.models[0];
    assert_eq!(model.selector, ModelSelector::Any);
    assert!(model.engine.is_none() && loaded.warnings.is_empty(), "{:?}", lines(&loaded.warnings));
    let policy = model.policy_for(&"a/B".into()).expect("a legal name");
    let [pool] = policy.pools.as_slice() else { panic!("one pool") };
    assert_eq!((pool.pool.as_str(), pool.role, pool.replicas_from), ("b-agg", Role::Aggregated, ReplicasFrom::Observed));
    assert_eq!((pool.limits.min(), pool.limits.max()), (Replicas(1), Replicas(8)));
    assert_eq!(policy.capacity, CapacityModel::Unknown);
    assert_eq!(policy.load, Some(Target::Throughput.policy(Duration::from_secs(5))));
    let again = good(load(&loaded.effective));
    assert_eq!(meaning(&again.config), meaning(&Config { hash: again.config.hash.clone(), ..loaded.config }));
}

#[test]
fn the_targets_of_preset_dynamo_read_back_from_the_effective_configuration() {
    for planner in [
        "{ preset: dynamo }",
        "{ preset: dynamo, target: latency, load_adjustment_interval: 10s }",
        "{ preset: dynamo, target: load, prefill_scale_up_queue_tokens: 9000, prefill_scale_down_queue_tokens: 100, decode_scale_up_kv_rate: 90, decode_scale_down_kv_rate: 55 }",
    ] {
        let text = format!(
            "models:\n  - name: M\n    planner: {planner}\n    pools:\n\
             \x20     - {{ name: p, role: prefill, max_replicas: 4, capabilities: {{ context_length: 8192 }}, targets: {{ static: ['http://p:1'] }} }}\n\
             \x20     - {{ name: d, role: decode, max_replicas: 4, capabilities: {{ max_kv_tokens: 500000 }}, targets: {{ static: ['http://d:1'] }} }}\n"
        );
        let loaded = good(load(&text));
        assert!(loaded.warnings.is_empty(), "{:?}", lines(&loaded.warnings));
        let again = good(load(&loaded.effective));
        assert_eq!(meaning(&again.config), meaning(&Config { hash: again.config.hash.clone(), ..loaded.config }), "{planner}");
    }
}

#[test]
fn wrong_flags_are_named() {
    let wrong = Flags {
        metrics_urls: vec!["10.0.0.1:8000".to_owned(), "http://h:1".to_owned(), "http://h:1/".to_owned()],
        engine: Some("vlm".to_owned()),
        preset: Some("automatic".to_owned()),
        min_replicas: Some(9),
        listen: Some("10877".to_owned()),
        ..Flags::default()
    };
    let mut found = problems(Inputs { flags: wrong, ..Inputs::default() });
    // The list of engines grows.
    let engine = found.remove(0);
    assert!(engine.starts_with("--engine: expected auto") && engine.contains(", got \"vlm\""), "{engine}");
    assert_eq!(
        found,
        [
            "--preset: expected infera, dynamo, wva or auto, got \"automatic\"",
            "--metrics-url: expected a URL such as http://10.0.0.11:8000/metrics, got \"10.0.0.1:8000\": it has no http:// or https:// in front",
            "--listen: expected an IP address and a port such as 0.0.0.0:10877, got \"10877\"",
            "--metrics-url: target h:1/metrics is listed twice; keep one",
            "--max-replicas: expected at least min_replicas (9), got 8",
        ]
    );
    assert_eq!(
        problems(Inputs { flags: Flags { metrics_urls: Vec::new(), ..flags() }, ..Inputs::default() }),
        ["--metrics-url: required: expected --config FILE, or at least one --metrics-url URL"]
    );
    assert_eq!(
        problems(Inputs { flags: Flags { model: Some("x".repeat(60)), ..flags() }, ..Inputs::default() }).len(),
        1,
        "one sentence for both pools"
    );
    assert_eq!(
        problems(Inputs { flags: Flags { ttft: Some(Duration::from_secs(1)), ..Flags::default() }, ..file("c.yaml", MINIMAL) }),
        ["--ttft: cannot be used together with --config; write it in the file"]
    );
}

#[test]
fn bare_numbers_on_flags_have_the_unit_of_the_planners_people_come_from() {
    for (text, millis) in [("500", 500), ("12.5", 12), ("500ms", 500), ("2s", 2000), ("1m 30s", 90_000)] {
        assert_eq!(parse_millis_flag(text).map(|span| span.as_millis()), Ok(millis), "{text}");
    }
    for (text, seconds) in [("180", 180), ("3m", 180), ("0.5", 0), ("1h", 3600)] {
        assert_eq!(parse_seconds_flag(text).map(|span| span.as_secs()), Ok(seconds), "{text}");
    }
    for text in ["nan", "inf", "-1", "", "1e300", "0", "0s", "-3s", "fast", "400d"] {
        assert!(parse_millis_flag(text).is_err() && parse_seconds_flag(text).is_err(), "{text}");
    }
    assert_eq!(
        parse_millis_flag("fast").expect_err("no number"),
        "expected a number of milliseconds, or a duration such as 500ms, got \"fast\""
    );
}

/// Each text of the golden file with the whole of what is said about it.
#[test]
fn every_mistake_is_told_with_its_place() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/config/mistakes.txt");
    let golden = std::fs::read_to_string(&path).expect("the golden file is committed");
    let (head, cases) = golden.split_once("\n=== ").expect("cases after a line of introduction");
    let mut told = head.to_owned();
    for case in cases.split("\n=== ") {
        let (name, rest) = case.split_once('\n').expect("a name");
        let (text, _) = rest.split_once(">>> told\n").expect("what is told");
        told += &format!("\n=== {name}\n{text}>>> told\n{}\n", problems(file(name, text)).join("\n"));
    }
    if std::env::var_os("UPDATE_REFERENCES").is_some() {
        std::fs::write(&path, &told).expect("the golden file can be written");
        return;
    }
    for (expected, found) in golden.split("\n=== ").zip(told.split("\n=== ")) {
        assert_eq!(found.trim_end(), expected.trim_end());
    }
}

#[test]
fn a_pool_without_targets_needs_traffic() {
    let text = "
models:
  - name: M
    planner: { profile: profile.json }
    pools:
      - { name: p, role: prefill, max_replicas: 1, targets: { static: ['http://h:1'] }, replicas_from: metric }
      - { name: d, role: decode, max_replicas: 1 }
";
    assert_eq!(
        problems(file("c.yaml", text)),
        [
            "c.yaml:6:104: models[0].pools[0].replicas_from: metric takes the count of the traffic targets, and there are none; write targets",
            "c.yaml:7:9: models[0].pools[1]: no targets: without traffic targets every pool needs targets of its own",
        ]
    );
}

#[test]
fn mistakes_of_all_files_are_told_together() {
    let text = format!("overrides_file: pins.yaml\nscrap: {{}}\n{MINIMAL}");
    let draft = config::read(file("conf/c.yaml", &text));
    assert_eq!(draft.files(), [PathBuf::from("conf/profile.json"), "conf/pins.yaml".into()]);
    let files = BTreeMap::from([
        (PathBuf::from("conf/profile.json"), Ok(PROFILE.replacen("60", "\"x\"", 1))),
        (PathBuf::from("conf/pins.yaml"), Ok("- { pool: nobody }\n".to_owned())),
    ]);
    let problems = draft.finish(&files).expect_err("three files, three kinds of mistakes");
    assert_eq!(
        lines(&problems),
        [
            "conf/c.yaml:2:1: scrap: no such key; did you mean scrape?",
            "conf/profile.json: prefill.ttft_ms[0]: expected a number, got \"x\"",
            "conf/pins.yaml:1:3: [0].replicas: required: expected a whole number from 0 to 100000",
            "conf/pins.yaml:1:3: [0].until: required: expected a moment such as 2026-01-31T18:00:00Z",
            "conf/pins.yaml:1:3: [0].reason: required: expected a text",
            "conf/pins.yaml:1:11: [0].pool: no pool is called \"nobody\"",
        ]
    );
    let unreadable = BTreeMap::from([
        (PathBuf::from("conf/profile.json"), Err("permission denied".to_owned())),
        (PathBuf::from("conf/pins.yaml"), Err("is a directory".to_owned())),
    ]);
    let problems = config::read(file("conf/c.yaml", &text.replace("scrap: {}\n", ""))).finish(&unreadable).expect_err("unreadable");
    assert_eq!(
        lines(&problems),
        [
            "conf/c.yaml:1:17: overrides_file: conf/pins.yaml cannot be read: is a directory",
            "conf/c.yaml:4:25: models[0].planner.profile: conf/profile.json cannot be read: permission denied",
        ]
    );
}

#[test]
fn duplicate_keys_and_names_are_refused() {
    assert_eq!(
        problems(file("c.yaml", &format!("server: {{}}\n{MINIMAL}server: {{}}\nstate_file: a\nstate_file: b\n"))),
        [
            "c.yaml:10:1: server: written twice, first in line 1; keep one",
            "c.yaml:12:1: state_file: written twice, first in line 11; keep one"
        ]
    );
    assert_eq!(
        problems(file("c.json", "{\"models\": [], \"models\": []}")),
        ["c.json:1:12: models: expected at least one model, got none", "c.json:1:16: models: written twice, first in line 1; keep one",]
    );
    let twice = format!("{MINIMAL}{}", MINIMAL.trim_start_matches("models:\n"));
    assert_eq!(
        problems(file("c.yaml", &twice)),
        [
            "c.yaml:9:11: models[1].name: expected a name of its own, got \"Qwen/Qwen3-8B\" as in models[0]",
            "c.yaml:14:17: models[1].pools[0].name: expected a name of its own in the whole exporter, got \"qwen3-8b-prefill\" as in models[0].pools[0]",
            "c.yaml:15:17: models[1].pools[1].name: expected a name of its own in the whole exporter, got \"qwen3-8b-decode\" as in models[0].pools[1]",
        ]
    );
}

#[test]
fn bad_syntax_is_told_with_line_and_column_and_nothing_else() {
    for (path, text, expected) in [
        ("c.yaml", "models:\n\t- a\n", "c.yaml:2:2: not readable as YAML: "),
        ("c.yaml", "a: [1\nb: 2\n", "c.yaml:2:2: not readable as YAML: "),
        ("c.yaml", "a: *b\n", "c.yaml:1:4: not readable as YAML: "),
        ("c.yaml", "a: 1\n---\nb: 2\n", "c.yaml:2:1: not readable as YAML: "),
        ("c.toml", "a = 1\nb = = 2\n", "c.toml:2:5: not readable as TOML: "),
        ("c.toml", "a = 1\na = 2\n", "c.toml:2:1: not readable as TOML: "),
        ("c.json", "{\n  'a': 1 }", "c.json:2:3: not readable as JSON: "),
        ("c.json", "{ \"a\": 1 } # no", "c.json:1:12: not readable as JSON: "),
        ("c.txt", "a: 1", "c.txt: expected a file name that ends in .yaml, .yml, .toml or .json"),
    ] {
        let found = problems(file(path, text));
        assert!(found.len() == 1 && found[0].starts_with(expected), "{text:?}: {found:#?}");
    }
}

#[test]
fn the_traps_of_yaml_do_not_bite() {
    // An unquoted `no` is a name, an unquoted number is not, and merges work.
    let text = MINIMAL.replace("Qwen/Qwen3-8B", "no");
    assert_eq!(good(load(&text)).config.models[0].policy.model.as_str(), "no");
    let merged = MINIMAL
        .replace("- { name: qwen3-8b-prefill", "- &p { name: qwen3-8b-prefill")
        .replace("{ name: qwen3-8b-decode, role: decode, max_replicas: 16 }", "{ <<: *p, name: d, role: decode }");
    let config = good(load(&merged)).config;
    assert_eq!(config.models[0].policy.pools[1].pool.as_str(), "d");
    assert_eq!(config.models[0].policy.pools[1].limits.max(), Replicas(16));

    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        laughs += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", "));
    }
    let found = problems(file("c.yaml", &laughs));
    assert!(found.len() == 1 && found[0].contains("not readable as YAML"), "{found:?}");
    for (path, deep) in [
        ("c.yaml", format!("a: {}{}", "[".repeat(200), "]".repeat(200))),
        ("c.json", format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))),
        ("c.toml", format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000))),
    ] {
        assert_eq!(problems(file(path, &deep)).len(), 1, "{path}");
    }
}

fn warnings(text: &str) -> Vec<String> {
    lines(&good(load(text)).warnings)
}

#[test]
fn check_warns_of_what_is_allowed_and_hardly_meant() {
    let downs = "preset infera has no limit on steps down: a fall of the recommendation is followed at once; give the HPA or the ScaledObject \
                 behavior.scaleDown policies, or a stabilization window";
    assert_eq!(warnings(MINIMAL), [format!("c.yaml:3:14: models[0].planner.preset: {downs}")]);
    let text = "
models:
  - name: M
    slo: { ttft: 60ms, itl: 10ms }
    planner: { preset: infera, profile: profile.json, adjustment_interval: 10s }
    pools:
      - { name: p, role: prefill, max_replicas: 2, targets: { static: ['http://localhost:1'] } }
      - { name: d, role: decode, max_replicas: 1, targets: { static: ['http://127.0.0.1:1'] } }
";
    assert_eq!(
        warnings(text),
        [
            "c.yaml:4:18: models[0].slo.ttft: no number of replicas can meet it: the profile's shortest prompt (512 tokens) takes 60.0000 ms".to_owned(),
            "c.yaml:4:29: models[0].slo.itl: no number of replicas can meet it: the profile's least occupied point takes 11.0000 ms".to_owned(),
            format!("c.yaml:5:24: models[0].planner.preset: {downs}"),
            "c.yaml:5:76: models[0].planner.adjustment_interval: scrape.interval (5s) is more than a quarter of it (10s): a single lost scrape costs much of a window".to_owned(),
            "c.yaml:7:71: models[0].pools[0].targets.static: localhost:1/metrics is the pool's only target and max_replicas is 2: beside one of several replicas we see a part of the traffic only; run one exporter for the whole pool".to_owned(),
        ]
    );
}

#[test]
fn check_names_what_preset_dynamo_will_not_be_told() {
    let told = |model: &str, pool: &str| {
        let text = format!(
            "models:\n  - name: M\n    planner: {{ preset: dynamo }}\n{model}    pools:\n      - {{ name: p, max_replicas: 4, {pool} }}\n"
        );
        let found = warnings(&text).into_iter().map(|line| line.split_once(": ").map_or(String::new(), |(_, rest)| rest.to_owned()));
        found.collect::<Vec<_>>()
    };
    let own = "targets: { static: ['http://a:1', 'http://b:1'] }";
    let (slo, front) = ("    slo: { ttft: 500ms }\n", "    traffic: { targets: { static: ['http://f:1'] } }\n");
    let vllm = "    engine: vllm\n";
    let one = |found: Vec<String>, key: &str, part: &str| {
        assert!(found.len() == 1 && found[0].starts_with(key) && found[0].contains(part), "{key}, {part}: {found:?}");
    };
    let prefill = format!("role: prefill, {own}");
    let batched = "models[0].pools[0].capabilities.max_num_batched_tokens: ";
    one(told(&format!("{slo}{vllm}"), &prefill), batched, "the pool is held with reason missing_capability");
    one(told(slo, &prefill), batched, "only Dynamo's front end exports");
    one(told(slo, &format!("role: aggregated, {own}")), batched, "gives nothing back");
    assert_eq!(told(&format!("{slo}{front}"), &prefill), [""; 0], "a front end may tell it");
    assert_eq!(told(slo, &format!("{prefill}, capabilities: {{ max_num_batched_tokens: 8192 }}")), [""; 0]);
    assert_eq!(told(&format!("{slo}{vllm}"), &format!("role: decode, {own}")), [""; 0]);

    let decode = format!("role: decode, {own}");
    one(told(&format!("{slo}    engine: nim\n"), &decode), "models[0].pools[0].capabilities.max_kv_tokens: ", "engine nim");
    assert_eq!(told(&format!("{slo}    engine: nim\n"), &format!("{decode}, capabilities: {{ max_kv_tokens: 9000 }}")), [""; 0]);
    one(told("    engine: tgi\n", &decode), "models[0].engine: ", "decides by (kv_usage): pool p is held");
    one(told(&format!("{slo}{front}"), "role: decode"), "models[0].pools[0].targets: ", "no front end tells it");
    assert_eq!(told(vllm, &decode), [""; 0], "target throughput needs less");
}

#[test]
fn overrides_become_pins() {
    let text = format!("overrides_file: {OVERRIDES}\n{MINIMAL}");
    let pins = "- pool: qwen3-8b-decode\n  replicas: 6\n  until: 1970-01-02T01:00:00+01:00\n  reason: launch\n";
    let loaded = good(load_with(file("c.yaml", &text), Some(pins)));
    let pin = Pin { replicas: Replicas(6), until: Duration::from_secs(86_400), reason: "launch".to_owned() };
    assert_eq!(loaded.config.models[0].policy.pools[1].pin, Some(pin));
    assert_eq!(loaded.config.models[0].policy.pools[0].pin, None);
    let without = good(load_with(file("c.yaml", &text), None));
    assert_eq!(without.config.models[0].policy.pools[1].pin, None, "a file that does not exist pins nothing");
    assert_eq!(without.config.files.last(), Some(&PathBuf::from(OVERRIDES)), "it is watched all the same");
    assert_ne!(loaded.config.hash, without.config.hash);
    assert_eq!(loaded.effective, without.effective);
    let empty = good(load_with(file("c.yaml", &text), Some("# nothing yet\n")));
    assert_eq!(empty.config.hash, without.config.hash);

    let bad = "
- { pool: qwen3-8b-decode, replicas: 17, until: 2030-01-01T00:00:00Z, reason: a }
- { pool: qwen3-8b-decode, replicas: 3, until: 2030-01-01T00:00:00Z, reason: a }
- { pool: qwen3-8b-prefil, replicas: 3, until: 2030-01-01T00:00:00Z, reason: a }
- { pool: qwen3-8b-prefill, replicas: 0, until: tomorrow, reason: '', who: me }
- 7
";
    let found = load_with(file("c.yaml", &text), Some(bad)).expect_err("bad pins");
    let found: Vec<String> = lines(&found).iter().map(|line| line.replace(OVERRIDES, "o")).collect();
    assert_eq!(
        found,
        [
            "o:2:38: [0].replicas: expected 1 to 16, the limits of pool \"qwen3-8b-decode\", got 17",
            "o:3:11: [1].pool: pool \"qwen3-8b-decode\" is pinned twice, first in [0]; keep one",
            "o:4:11: [2].pool: no pool is called \"qwen3-8b-prefil\"; did you mean qwen3-8b-prefill?",
            "o:5:39: [3].replicas: expected 1 to 16, the limits of pool \"qwen3-8b-prefill\", got 0",
            "o:5:49: [3].until: expected a moment such as 2026-01-31T18:00:00Z, got \"tomorrow\"",
            "o:5:67: [3].reason: expected a text, got \"\"",
            "o:5:71: [3].who: no such key",
            "o:6:3: [4]: expected further keys below it, got 7",
        ]
    );
    let found = load_with(file("c.yaml", &text), Some("pool: x\n")).expect_err("not a list");
    assert_eq!(lines(&found), [format!("{OVERRIDES}:1:1: expected a list, got a section")]);
}

fn profile_problems(text: &str) -> Vec<String> {
    lines(&config::profile::parse(Path::new("p.json"), text).expect_err("a bad profile"))
}

#[test]
fn a_profile_is_read_as_tolerantly_as_profiles_require() {
    let loaded = config::profile::parse(Path::new("p.json"), PROFILE).expect("the good profile");
    assert_eq!(loaded.document().prefill.ttft_ms, [60.0, 110.0, 215.0, 430.0]);
    let odd = PROFILE.replacen("512", "\"512\"", 1).replacen("262144", "262144.9", 1).replacen(
        "\"prefill_engine_num_gpu\": 1",
        "\"note\": [null]",
        1,
    );
    let odd = config::profile::parse(Path::new("p.json"), &odd).expect("numbers in quotes, unknown keys, no GPU count");
    assert_eq!(odd, loaded);
}

#[test]
fn every_bad_cell_of_a_profile_is_told() {
    assert_eq!(profile_problems("{\n \"prefill\": }"), ["p.json:2:13: not readable as JSON: expected value"]);
    assert_eq!(profile_problems("[]"), ["p.json: expected an object, got a list"]);
    assert_eq!(
        profile_problems("{}"),
        ["p.json: prefill: expected an object, got nothing", "p.json: decode: expected an object, got nothing"]
    );
    let text = r#"{
        "prefill": { "isl": [512, 256], "ttft_ms": [null, 3], "thpt_per_gpu": [0] },
        "decode": { "kv_usage": [0.1, 1.5], "context_length": [1024, 2048],
                    "itl_ms": [[11, "x"], [13]], "max_kv_tokens": true },
        "decode_engine_num_gpu": null, "prefill_engine_num_gpu": 0 }"#;
    assert_eq!(
        profile_problems(text),
        [
            "p.json: prefill.ttft_ms[0]: expected a number, got null",
            "p.json: decode.itl_ms[0][1]: expected a number, got \"x\"",
            "p.json: decode.thpt_per_gpu: expected a list of rows, got nothing",
            "p.json: decode.max_kv_tokens: expected a number, got true",
            "p.json: decode_engine_num_gpu: expected a number, got null",
            "p.json: prefill.isl[1]: expected a value above the one before it (512), got 256",
            "p.json: prefill.thpt_per_gpu: expected one value for each prefill.isl (2), got 1",
            "p.json: prefill.thpt_per_gpu[0]: expected a finite number above zero, got 0",
            "p.json: decode.kv_usage[1]: expected a share in (0, 1], got 1.5",
            "p.json: decode.itl_ms[1]: expected one value for each decode.kv_usage (2), got 1",
            "p.json: prefill_engine_num_gpu: expected at least 1",
        ]
    );
}

#[test]
fn the_hash_follows_the_meaning_and_the_profile() {
    let first = good(load(MINIMAL)).config;
    let spaced = good(load(&format!("# a comment\n{MINIMAL}"))).config;
    assert_eq!(first.hash, spaced.hash, "comments mean nothing");
    let other = good(load(&MINIMAL.replace("16 }", "17 }"))).config;
    assert_ne!(first.hash, other.hash);
    let draft = config::read(file("c.yaml", MINIMAL));
    let files = BTreeMap::from([(PathBuf::from("profile.json"), Ok(PROFILE.replacen("60", "61", 1)))]);
    let measured_anew = draft.finish(&files).expect("a good profile").config;
    assert_ne!(first.hash, measured_anew.hash);
    let CapacityModel::Envelope(envelope) = &measured_anew.models[0].policy.capacity else { panic!("a profile was given") };
    assert_eq!(envelope.document().prefill.ttft_ms[0], 61.0);
}

#[test]
fn the_committed_reference_is_the_rendered_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/README.md");
    let rendered = config::reference();
    if std::env::var_os("UPDATE_REFERENCES").is_some() {
        std::fs::write(&path, &rendered).expect("the reference can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the reference is committed");
    assert!(committed == rendered, "src/config/README.md is out of date; run the tests with UPDATE_REFERENCES=1");
}

/// Words that our files are made of, so that random texts reach past the first check.
fn fragments() -> impl Strategy<Value = String> {
    let words = [
        "models",
        "pools",
        "name",
        "slo",
        "ttft",
        "server",
        "scrape",
        "interval",
        "targets",
        "static",
        "planner",
        "profile",
        "role",
        "<<",
        ":",
        ": ",
        "\n",
        "\n  ",
        "\n  - ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "\"",
        "'",
        "&a ",
        "*a",
        "!!",
        "|",
        ">",
        "#",
        "=",
        ".",
        "\t",
        "\0",
        "5s",
        "500ms",
        "1e999",
        "-1",
        "0x1F",
        "null",
        "~",
        "true",
        "http://h:1",
        "\u{feff}",
        "\u{2028}",
        "é",
        "---",
        "...",
        "%",
    ];
    prop::collection::vec(prop::sample::select(words.to_vec()), 0..60).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(text in prop_oneof![fragments(), any::<String>(), any::<Vec<u8>>().prop_map(|b| String::from_utf8_lossy(&b).into_owned())]) {
        for path in ["c.yaml", "c.toml", "c.json", "c"] {
            let _ = load_with(file(path, &text), Some(&text));
        }
        let _ = load_with(file("c.yaml", &format!("overrides_file: o\n{MINIMAL}")), Some(&text));
        let _ = config::profile::parse(Path::new("p"), &text);
        for path in ["d.yaml", "d.json", "d"] {
            let _ = config::from_dynamo(&SourceText { path: path.into(), text: text.clone() });
        }
        let _ = config::profile_text(Path::new("raw_data.npz"), text.clone().into_bytes());
        let _ = (parse_millis_flag(&text), parse_seconds_flag(&text));
    }

    #[test]
    fn every_effective_configuration_loads_to_itself(
        (interval, scrape, hold) in (3_000u64..10_000_000, 100u64..3_000, 3u64..50),
        (ttft, itl) in (prop::option::of(1_000_000u64..100_000_000_000), prop::option::of(100_000u64..10_000_000_000)),
        (min, more, growth, targets) in (1u32..50, 0u32..50, 2u32..9, 1u32..4),
        name in "[^\\p{C}]{1,20}",
        mode in prop::sample::select(vec!["publish", "shadow", "freeze"]),
        (correction, own) in (any::<bool>(), any::<bool>()),
    ) {
        prop_assume!(name.trim() != "*" && !name.trim().is_empty());
        let slo: Vec<String> = [("ttft", ttft), ("itl", itl)].into_iter().filter_map(|(key, nanos)| Some(format!("{key}: {}ns", nanos?))).collect();
        let quoted = serde_json::to_string(&name).expect("a string");
        let pool = |role: &str| {
            let targets = if own { format!(", targets: {{ static: ['http://{role}:80'] }}") } else { String::new() };
            format!("{{ name: {role}, role: {role}, min_replicas: {min}, max_replicas: {}, targets_per_replica: {targets_per}{targets} }}", min + more, targets_per = targets.len().max(1))
        };
        let text = format!(
            "scrape: {{ interval: {scrape}ms, timeout: {scrape}ms }}\nmodels:\n  - name: {quoted}\n    mode: {mode}\n    slo: {{ {} }}\n    \
             planner: {{ preset: infera, profile: profile.json, adjustment_interval: {interval}ms, hold_for: {}ms, correction: {correction}, growth: {growth} }}\n    \
             traffic: {{ targets: {{ static: ['http://h:{targets}'] }} }}\n    pools: [{}, {}]\n",
            slo.join(", "), interval * hold, pool("prefill"), pool("decode"),
        );
        let first = good(load(&text));
        let again = good(load(&first.effective));
        prop_assert_eq!(meaning(&again.config), meaning(&first.config));
        prop_assert_eq!(first.config.models[0].policy.slo.explicit, ttft.is_some() || itl.is_some());
    }
}

/// Models of these names, each with a pair of pools.
fn models_named(names: &[String]) -> String {
    let model = |name: &String| {
        format!(
            "  - name: {name}\n    planner: {{ profile: profile.json }}\n    traffic: {{ targets: {{ static: ['http://{name}:80'] }} }}\n    \
             pools: [{{ name: {name}-p, role: prefill, max_replicas: 4 }}, {{ name: {name}-d, role: decode, max_replicas: 4 }}]\n"
        )
    };
    format!("models:\n{}", names.iter().map(model).collect::<String>())
}

fn of_shard(text: &str, shard: &str) -> Loaded {
    let mut inputs = file("c.yaml", text);
    inputs.flags.shard = Some(shard.to_owned());
    good(load_with(inputs, None))
}

/// The models of a shard.
fn planned(loaded: &Loaded) -> Vec<String> {
    let names = loaded.config.models.iter().map(|model| match &model.selector {
        ModelSelector::Named(name) => name.as_str().to_owned(),
        ModelSelector::Any => "*".to_owned(),
    });
    names.collect()
}

#[test]
fn each_model_is_planned_by_exactly_one_shard_with_both_its_pools() {
    let names: Vec<String> = (0..40).map(|i| format!("m{i}")).collect();
    let text = models_named(&names);
    for shards in 1..=7 {
        let all: Vec<Loaded> = (0..shards).map(|shard| of_shard(&text, &format!("{shard}/{shards}"))).collect();
        let mut found: Vec<String> = all.iter().flat_map(planned).collect();
        found.sort_by_key(|name| names.iter().position(|known| known == name));
        assert_eq!(found, names, "{shards} shards");
        assert!(all.iter().flat_map(|loaded| &loaded.config.models).all(|model| model.policy.pools.len() == 2 && model.sources.len() == 1));
        assert!(all.iter().all(|loaded| planned(loaded).len() <= 40 / shards * 2), "{:?}", all.iter().map(planned).collect::<Vec<_>>());
    }
}

#[test]
fn other_models_move_none_and_a_further_shard_takes_only_its_own() {
    let names: Vec<String> = (0..60).map(|i| format!("m{i}")).collect();
    let (few, all) = (models_named(&names[..30]), models_named(&names));
    let shards = |text: &str, of: usize| -> BTreeMap<String, usize> {
        (0..of).flat_map(|shard| planned(&of_shard(text, &format!("{shard}/{of}"))).into_iter().map(move |name| (name, shard))).collect()
    };
    let (of_few, of_all) = (shards(&few, 3), shards(&all, 3));
    assert!(of_few.iter().all(|(name, shard)| of_all[name] == *shard));
    let four = shards(&all, 4);
    let moved: Vec<_> = of_all.iter().filter(|(name, shard)| four[*name] != **shard).collect();
    assert!(moved.iter().all(|(name, _)| four[*name] == 3), "a model that moves goes to the new shard: {moved:?}");
    assert!((5..=25).contains(&moved.len()), "{}", moved.len());
    // Which names go where is part of the promise: exporters of two versions run side by side during an update.
    assert_eq!(shards(&models_named(&names[..6]), 3).into_values().collect::<Vec<_>>(), [0, 0, 1, 1, 1, 1]);
}

#[test]
fn a_shard_tells_its_models_and_its_effective_configuration_loads_to_the_same() {
    let text = models_named(&["a", "b", "c"].map(str::to_owned));
    let all: Vec<Loaded> = ["0/2", "1/2"].map(|shard| of_shard(&text, shard)).into();
    for (loaded, shard) in all.iter().zip(["0/2", "1/2"]) {
        let ours = planned(loaded);
        let note = lines(&loaded.notes).into_iter().find(|note| note.starts_with("--shard: ")).expect("a note");
        assert!(note.contains(&format!("{shard} plans ")) && ours.iter().all(|name| note.contains(&format!("{name:?}"))), "{note}");
        assert_eq!(note.contains("left to other shards"), ours.len() < 3, "{note}");
        let again = good(load(&loaded.effective));
        assert_eq!(meaning(&again.config), meaning(&loaded.config));
    }
    assert_ne!(all[0].config.hash, all[1].config.hash);
    // A variable does it as well, so that pods can share one file.
    let mut inputs = file("c.yaml", &text);
    inputs.env = vec![("INFERENCE_PLANNER__SHARD".to_owned(), "1/2".to_owned())];
    assert_eq!(planned(&good(load_with(inputs, None))), planned(&all[1]));
}

#[test]
fn a_budget_of_all_models_keeps_them_in_one_shard_which_is_warned_of() {
    let names: Vec<String> = (0..6).map(|i| format!("m{i}")).collect();
    let text = format!("max_gpu_budget: 64\n{}", models_named(&names));
    let all: Vec<Loaded> = (0..3).map(|shard| of_shard(&text, &format!("{shard}/3"))).collect();
    let mut counts: Vec<usize> = all.iter().map(|loaded| planned(loaded).len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 6]);
    assert!(
        lines(&all[0].warnings).iter().any(|warning| warning.contains("one of the 3 shards plans everything")),
        "{:?}",
        all[0].warnings
    );
    // A model's own budget concerns nobody else.
    let own = models_named(&names).replace("profile.json }", "profile.json, max_gpu_budget: 64 }");
    assert!((0..3).all(|shard| !lines(&of_shard(&own, &format!("{shard}/3")).warnings).iter().any(|warning| warning.contains("shards"))));
}

#[test]
fn a_shard_that_is_none_is_refused_with_what_would_be() {
    let text = models_named(&["a".to_owned()]);
    let refused = |text: &str, shard: &str| {
        let mut inputs = file("c.yaml", text);
        inputs.flags.shard = Some(shard.to_owned());
        let [problem] = problems(inputs).try_into().expect("one problem");
        problem
    };
    for shard in ["", "1", "/", "1/", "/3", "1/2/3", "-1/3", "+1/3", "1/0", "a/b", "1.0/3", "0/257", "4294967296/4294967297"] {
        let problem = refused(&text, shard);
        assert!(problem.starts_with("--shard: expected i/n such as 0/3, the first of three, with n from 1 to 256, got "), "{problem}");
    }
    assert_eq!(refused(&text, "3/3"), "--shard: expected a shard from 0/3 to 2/3, since they are counted from 0, got \"3/3\"");
    let any = MINIMAL.replace("Qwen/Qwen3-8B", "'*'").replace("name: qwen3-8b-prefill, ", "").replace("name: qwen3-8b-decode, ", "");
    let problem = refused(&any, "0/3");
    assert!(problem.starts_with("--shard: expected models with names"), "{problem}");
    let [problem] = problems(file("c.yaml", &format!("shard: 3\n{text}"))).try_into().expect("one problem");
    assert_eq!(problem, "c.yaml:1:8: shard: expected one of several exporters such as 0/3, got 3");
}

#[test]
fn a_profile_whose_latency_and_throughput_disagree_is_warned_of() {
    // One GPU that was noted as two: each would have to do what half of it can.
    let profile = PROFILE.replacen("\"prefill_engine_num_gpu\": 1", "\"prefill_engine_num_gpu\": 2", 1);
    let draft = config::read(file("c.yaml", MINIMAL));
    let loaded = good(draft.finish(&BTreeMap::from([(PathBuf::from("profile.json"), Ok(profile))])));
    let found = lines(&loaded.warnings).into_iter().find(|warning| warning.contains("do not fit together")).expect("a warning");
    assert!(found.contains("models[0].planner.profile") && found.contains("0.50 times"), "{found}");
    assert!(!warnings(MINIMAL).iter().any(|warning| warning.contains("do not fit together")));
}
