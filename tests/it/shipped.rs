//! Do the files that we ship say what the code does? Alerts, dashboard and deployment, held against the catalogue and the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use inference_planner_exporter::config::{self, Inputs, Loaded, SourceText};
use inference_planner_exporter::export::catalog;
use inference_planner_exporter::planner::plan::Reason;
use inference_planner_exporter::units::Role;
use serde_json::Value;

use crate::{dashboards, followers, promql};

/// The rules that we ship.
pub const RULES: &str = "alerts/inference-planner.rules.yaml";

/// An expression and where it stands.
#[derive(Clone, Debug)]
pub struct Shipped {
    /// File and place in it.
    pub place: String,
    /// The expression as written, variables included.
    pub expr: String,
    /// Labels that the texts beside it print.
    pub prints: Vec<String>,
}

/// A file of the project.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The text of a file of the project.
pub fn text(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// All files below a folder, by name.
pub fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path(folder)).unwrap() {
        let name = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
        if path(&name).is_dir() { found.extend(files(&name)) } else { found.push(name) }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder} is empty");
    found
}

/// The documents of a YAML file.
pub fn documents(name: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The members of a list; none where there is no list.
pub fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text.
pub fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected a text, found {value}"))
}

/// The words between `open` and `close`.
pub fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| rest.split_once(close)).map(|(inside, _)| inside).collect()
}

/// Words that start like a family of ours or of every process. Names of recorded series have a colon, and begin with a level.
fn family_names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| !character.is_ascii_alphanumeric() && !['_', ':'].contains(&character));
    words.filter(|word| word.starts_with(catalog::PREFIX) || word.starts_with("process_")).collect()
}

/// All rules, in order.
pub fn rules() -> Vec<Value> {
    let groups = documents(RULES).remove(0);
    array(&groups["groups"]).iter().flat_map(|group| array(&group["rules"]).to_vec()).collect()
}

/// The alerts.
pub fn alerts() -> Vec<Value> {
    rules().into_iter().filter(|rule| rule["alert"].is_string()).collect()
}

/// Expressions that are recorded, by the names of their series.
pub fn recorded() -> &'static BTreeMap<String, String> {
    static RECORDED: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
        let named = |rule: &Value| Some((rule["record"].as_str()?.to_owned(), string(&rule["expr"]).to_owned()));
        rules().iter().filter_map(named).collect()
    });
    &RECORDED
}

/// Every expression of the rules: conditions, and queries inside annotations.
pub fn alert_expressions() -> Vec<Shipped> {
    let mut found = Vec::new();
    for (record, expr) in recorded() {
        found.push(Shipped { place: format!("{RULES}, {record}"), expr: expr.clone(), prints: Vec::new() });
    }
    for rule in alerts() {
        let place = format!("{RULES}, {}", string(&rule["alert"]));
        let annotations = rule["annotations"].to_string();
        let prints = annotations
            .split("$labels.")
            .skip(1)
            .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned());
        found.push(Shipped { place: place.clone(), expr: string(&rule["expr"]).to_owned(), prints: prints.collect() });
        let description = string(&rule["annotations"]["description"]);
        for query in between(description, "printf \"max", "\" $labels") {
            let expr = format!("max{}", query.replace("%q", "\"x\"").replace("\\\"", "\""));
            found.push(Shipped { place: format!("{place}, description"), expr, prints: vec!["reason".to_owned()] });
        }
    }
    found
}

/// All expressions that we ship.
pub fn expressions() -> Vec<Shipped> {
    let all = [alert_expressions(), dashboards::expressions(), followers::expressions()].concat();
    assert!(all.len() > 100, "only {} expressions were found", all.len());
    all
}

/// The configuration at `name`, its profile given.
fn load(name: &str, config: &str, profile: &str) -> Loaded {
    let inputs = Inputs { file: Some(SourceText { path: name.into(), text: config.to_owned() }), ..Inputs::default() };
    let draft = config::read(inputs);
    let files: BTreeMap<_, _> =
        draft.files().iter().filter(|file| file.ends_with("profile.json")).map(|file| (file.clone(), Ok(profile.to_owned()))).collect();
    assert_eq!(files.len(), 1, "{name} names a profile.json");
    draft.finish(&files).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"))
}

/// The object of that kind in a file of deploy/kubernetes.
fn object(name: &str, kind: &str) -> Value {
    documents(&format!("deploy/kubernetes/{name}")).into_iter().find(|document| document["kind"] == kind).unwrap()
}

/// The configuration that the shipped objects follow.
pub fn example() -> Loaded {
    load("deploy/example/config.yaml", &text("deploy/example/config.yaml"), &text("deploy/example/profile.json"))
}

fn config_map() -> Loaded {
    let map = object("configmap.yaml", "ConfigMap");
    load("/etc/inference-planner/config.yaml", string(&map["data"]["config.yaml"]), string(&map["data"]["profile.json"]))
}

#[test]
fn every_family_named_anywhere_is_exported() {
    for folder in ["alerts", "dashboards", "deploy"] {
        for file in files(folder) {
            let text = text(&file);
            let unknown: Vec<_> = family_names(&text).into_iter().filter(|name| catalog::by_name(name).is_none()).collect();
            assert_eq!(unknown, Vec::<&str>::new(), "{file}");
        }
    }
    assert_eq!(family_names("x(inference_planner_no_such{a}) process_y"), BTreeSet::from(["inference_planner_no_such", "process_y"]));
}

#[test]
fn every_expression_fits_the_catalogue_and_prints_labels_that_it_has() {
    for Shipped { place, expr, prints } in expressions() {
        assert_eq!(promql::problems(&expr), Vec::<String>::new(), "{place}");
        let labels = promql::parse(&expr).and_then(|expr| promql::labels(&expr)).unwrap().unwrap();
        for label in prints {
            assert!(labels.contains(&label), "{place}: prints {label}, but the answer has {labels:?}");
        }
    }
}

#[test]
fn reasons_in_alerts_are_members_of_the_closed_set() {
    let mut named = 0;
    for shipped in alert_expressions() {
        let expr = promql::parse(&shipped.expr).unwrap();
        for selector in expr.all() {
            let promql::Node::Selector { matchers, .. } = &selector.node else { continue };
            for reason in matchers.iter().filter(|matcher| matcher.label == "reason").flat_map(|matcher| matcher.value.split('|')) {
                assert!(Reason::ALL.iter().any(|known| known.as_str() == reason), "{}: {reason}", shipped.place);
                named += 1;
            }
        }
    }
    assert!(named > 5, "only {named} reasons were found");
}

/// Series that a test of the rules invents, but that no exporter has, would prove nothing.
#[test]
fn series_in_the_tests_of_the_rules_are_such_as_we_export() {
    for file in files("alerts/tests") {
        let document = documents(&file).remove(0);
        for series in array(&document["tests"]).iter().flat_map(|test| array(&test["input_series"])) {
            let series = string(&series["series"]);
            // The rules have to bear states of replicas that only later sources tell.
            let series = series.replace("state=\"pending\"", "state=\"ready\"");
            let expr = promql::parse(&series).unwrap_or_else(|problem| panic!("{file}: {problem}"));
            assert_eq!(promql::problems(&series), Vec::<String>::new(), "{file}");
            let promql::Node::Selector { name, matchers } = &expr.node else { panic!("{file}: {series}") };
            let given: BTreeSet<&str> = matchers.iter().map(|matcher| matcher.label.as_str()).collect();
            let missing: Vec<_> = catalog::labels(name).unwrap_or_default().into_iter().filter(|label| !given.contains(label)).collect();
            assert_eq!(missing, Vec::<&str>::new(), "{file}: {series}");
        }
    }
}

/// By name: whether a test sees the alert quiet, firing, and fewer firing afterwards.
fn seen_by_tests() -> BTreeMap<String, [bool; 3]> {
    let mut seen: BTreeMap<String, [bool; 3]> = BTreeMap::new();
    for file in files("alerts/tests") {
        for test in array(&documents(&file)[0]["tests"]) {
            let mut before: BTreeMap<&str, (Duration, usize)> = BTreeMap::new();
            for check in array(&test["alert_rule_test"]) {
                let (name, firing) = (string(&check["alertname"]), array(&check["exp_alerts"]).len());
                let at = humantime::parse_duration(string(&check["eval_time"])).unwrap();
                let [quiet, fires, ends] = seen.entry(name.to_owned()).or_default();
                let earlier = before.insert(name, (at, firing));
                assert!(earlier.is_none_or(|(earlier, _)| earlier < at), "{file}: {name} at {at:?} is not in order");
                *quiet |= firing == 0;
                *fires |= firing > 0;
                *ends |= earlier.is_some_and(|(_, earlier)| earlier > firing);
            }
        }
    }
    seen
}

#[test]
fn every_alert_is_seen_quiet_firing_and_ended_by_tests() {
    let named: BTreeMap<String, [bool; 3]> = alerts().iter().map(|rule| (string(&rule["alert"]).to_owned(), [true; 3])).collect();
    assert_eq!(seen_by_tests(), named);
}

/// The alerts that call somebody at night.
const PAGES: [&str; 2] = ["InferencePlannerSloMissedAtMaximum", "InferencePlannerRecommendationAbsent"];

#[test]
fn alerts_are_named_rated_and_explained() {
    let readme = text("README.md");
    let anchors: BTreeSet<String> = readme.lines().filter_map(|line| line.strip_prefix("#### ")).map(str::to_lowercase).collect();
    for rule in alerts() {
        let name = string(&rule["alert"]);
        assert!(name.starts_with("InferencePlanner"), "{name}");
        assert!(["critical", "warning", "info"].contains(&string(&rule["labels"]["severity"])), "{name}");
        for annotation in ["summary", "description"] {
            assert!(!string(&rule["annotations"][annotation]).is_empty(), "{name}");
        }
        assert_eq!(string(&rule["annotations"]["runbook_url"]), format!("README.md#{}", name.to_lowercase()));
        assert!(anchors.contains(&name.to_lowercase()), "the README has no runbook {name}");
        let calls = rule["labels"]["severity"] == "critical";
        assert_eq!(calls, PAGES.contains(&name), "{name}: at night only for what cannot wait");
        assert!(!string(&rule["annotations"]["summary"]).contains("{{"), "{name}: a summary is the same for a whole group");
    }
}

#[test]
fn shipped_configurations_load_and_warn_of_nothing_that_they_do_not_answer() {
    for (name, loaded) in [("example", example()), ("ConfigMap", config_map())] {
        let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
        let unexpected: Vec<_> = warnings.iter().filter(|warning| !EXPECTED_WARNINGS.iter().any(|part| warning.contains(part))).collect();
        assert_eq!(unexpected, Vec::<&String>::new(), "{name}");
    }
}

/// A configuration for each situation that the README names, with the roles of its pools in order.
const CASES: [(&str, &[Role]); 7] = [
    ("router-and-pools", &[Role::Prefill, Role::Decode]),
    ("pods-are-both", &[Role::Aggregated]),
    ("multi-port", &[Role::Aggregated]),
    ("many-models", &[Role::Aggregated, Role::Aggregated]),
    ("sidecar", &[Role::Prefill, Role::Decode]),
    ("objectives", &[Role::Prefill, Role::Decode]),
    ("shared-gpus", &[Role::Aggregated, Role::Aggregated]),
];

#[test]
fn a_configuration_is_shipped_for_every_case_and_loads() {
    let names: Vec<String> = CASES.iter().map(|(name, _)| format!("deploy/example/cases/{name}.yaml")).collect();
    assert_eq!(files("deploy/example/cases").into_iter().collect::<BTreeSet<_>>(), names.iter().cloned().collect());
    for (name, (case, roles)) in names.iter().zip(CASES) {
        let draft = config::read(Inputs { file: Some(SourceText { path: name.into(), text: text(name) }), ..Inputs::default() });
        let given = draft.files().iter().map(|file| (file.clone(), Ok(text("deploy/example/profile.json")))).collect();
        let loaded = draft.finish(&given).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        let unexpected = loaded.warnings.iter().map(ToString::to_string).find(|warning| !warning.contains(EXPECTED_WARNINGS[0]));
        assert_eq!(unexpected, None, "{name}");
        let pools: Vec<Role> = loaded.config.models.iter().flat_map(|model| &model.policy.pools).map(|pool| pool.role).collect();
        assert_eq!(pools, roles, "{name}");
        assert!(text("README.md").contains(&format!("deploy/example/cases/{case}.yaml")), "the README names {name}");
    }
}

#[test]
fn the_example_of_preset_wva_takes_the_config_map_beside_it() {
    let folder = "deploy/example/wva";
    let name = format!("{folder}/config.yaml");
    let draft = config::read(Inputs { file: Some(SourceText { path: (&name).into(), text: text(&name) }), ..Inputs::default() });
    let map = draft.folder().unwrap().to_string_lossy().into_owned();
    assert_eq!(map, format!("{folder}/queueing-config"));
    let loaded = draft.finish(&files(&map).into_iter().map(|file| (PathBuf::from(&file), Ok(text(&file)))).collect());
    let loaded = loaded.unwrap_or_else(|problems| panic!("{problems:#?}"));
    let unexpected = loaded.warnings.iter().map(ToString::to_string).find(|warning| !warning.contains(EXPECTED_WARNINGS[0]));
    assert_eq!((unexpected, loaded.notes), (None, Vec::new()));
    let [llama, qwen] = loaded.config.models.as_slice() else { panic!("two models") };
    assert_eq!((llama.policy.slo.explicit, llama.policy.slo.ttft.get(), qwen.policy.slo.explicit), (true, 0.5, false));
    assert!(text("README.md").contains(&name), "the README names it");
}

/// Presets infera and wva have no limit on steps down; the shipped ScaledObjects have, as a test here holds.
const EXPECTED_WARNINGS: [&str; 1] = ["has no limit on steps down"];

#[test]
fn the_example_and_the_config_map_plan_the_same_pools() {
    let pools = |loaded: &Loaded| {
        format!(
            "{:?}",
            loaded.config.models.iter().map(|model| (&model.selector, &model.target_namespace, &model.policy)).collect::<Vec<_>>()
        )
    };
    assert_eq!(pools(&example()), pools(&config_map()));
    let profile = string(&object("configmap.yaml", "ConfigMap")["data"]["profile.json"]).to_owned();
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(parsed(&profile), parsed(&text("deploy/example/profile.json")));
}

/// The port of the Service.
fn object_port() -> u64 {
    object("service.yaml", "Service")["spec"]["ports"][0]["port"].as_u64().unwrap()
}

#[test]
fn the_kubernetes_objects_refer_to_each_other() {
    let (service, deployment) = (object("service.yaml", "Service"), object("deployment.yaml", "Deployment"));
    let (map, claim) = (object("configmap.yaml", "ConfigMap"), object("state.yaml", "PersistentVolumeClaim"));
    let monitor = documents("deploy/prometheus-operator/servicemonitor.yaml").remove(0);
    let template = &deployment["spec"]["template"];
    let container = &template["spec"]["containers"][0];
    assert_eq!(service["spec"]["selector"], template["metadata"]["labels"]);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], template["metadata"]["labels"]);
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]);
    for each in [&service, &deployment, &map, &claim, &monitor] {
        assert_eq!(each["metadata"]["namespace"], "llm", "{}", each["kind"]);
    }
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], service["spec"]["ports"][0]["name"]);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], container["ports"][0]["name"]);
    let config = config_map().config;
    assert_eq!(container["ports"][0]["containerPort"], config.server.listen.port());
    assert_eq!(object_port(), u64::from(config.server.listen.port()));
    let volumes = array(&template["spec"]["volumes"]);
    let mounted = |volume: &str| array(&container["volumeMounts"]).iter().find(|mount| mount["name"] == volume).unwrap();
    assert_eq!(volumes[0]["configMap"]["name"], map["metadata"]["name"]);
    assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], claim["metadata"]["name"]);
    let read = Path::new(string(&mounted("config")["mountPath"]));
    assert_eq!(container["args"], serde_json::json!(["run", "--config", read.join("config.yaml")]));
    assert!(config.files.iter().all(|file| file.parent() == Some(read)), "{:?}", config.files);
    assert_eq!(config.state_file.unwrap().parent(), Some(Path::new(string(&mounted("state")["mountPath"]))));
    let job = string(&service["metadata"]["name"]);
    assert!(text(RULES).contains(&format!("up{{job=\"{job}\"}}")), "the operator makes the Service's name the job");
    assert!(container["livenessProbe"]["httpGet"]["path"] == "/-/healthy" && container["readinessProbe"]["httpGet"]["path"] == "/-/ready");
}
