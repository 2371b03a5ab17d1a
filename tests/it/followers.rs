//! Do the objects that follow recommendations avoid every known way to a wrong count? KEDA's and HPAs, the files that we ship and, by the
//! same checks, what the chart makes.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use inference_planner_exporter::config::Loaded;
use inference_planner_exporter::export::catalog;
use inference_planner_exporter::planner::policy::PoolPolicy;
use serde_json::{Value, json};

use crate::promql;
use crate::shipped::{self, Shipped, array, documents, files, string};

/// An HPA asks for its metrics this often, and KEDA counts a failure each time.
const HPA_PERIOD: Duration = Duration::from_secs(15);
/// The exporter's address in the files.
const EXPORTER: &str = "http://inference-planner-exporter.llm.svc:10877";
/// How zero is decided, before and after the count: demand that is not known is demand.
const ZERO: (&str, &str) = ("(demand ?? 1.0) > 0.0 ? max(", ", 1.0) : 0.0");

/// The objects of a kind in `deploy`, with their files. Templates are no YAML until the chart is rendered.
pub fn objects(kind: &str) -> Vec<(String, Value)> {
    let named = |name: String| documents(&name).into_iter().map(move |document| (name.clone(), document)).collect::<Vec<_>>();
    files("deploy")
        .into_iter()
        .filter(|name| name.ends_with(".yaml") && !name.contains("/templates/"))
        .flat_map(named)
        .filter(|(_, object)| object["kind"] == kind)
        .collect()
}

/// Whether a trigger asks another's metric whether there is anything to do.
fn is_demand(trigger: &Value) -> bool {
    trigger["name"] == "demand"
}

/// The queries of KEDA objects for what we export.
pub fn expressions() -> Vec<Shipped> {
    let mut found = Vec::new();
    for (name, object) in objects("ScaledObject") {
        for trigger in array(&object["spec"]["triggers"]).iter().filter(|trigger| !is_demand(trigger)) {
            let Some(query) = trigger["metadata"]["query"].as_str() else { continue };
            found.push(Shipped { place: format!("{name}, {}", object["metadata"]["name"]), expr: query.to_owned(), prints: Vec::new() });
        }
    }
    found
}

fn count(place: &str, value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{place}: expected a count, found {value}"))
}

/// The pool of that name, and how long it holds a value while it is blind.
fn pool<'a>(place: &str, loaded: &'a Loaded, namespace: &str, name: &str) -> (&'a PoolPolicy, Duration) {
    let models = loaded.config.models.iter().filter(|model| model.target_namespace == namespace);
    let mut pools = models.flat_map(|model| model.policy.pools.iter().map(|pool| (pool, model.policy.hold_for)));
    pools.find(|(pool, _)| pool.pool.as_str() == name).unwrap_or_else(|| panic!("{place}: {namespace} has no pool {name}"))
}

/// The pool that an object's triggers ask for.
fn followed(place: &str, object: &Value) -> String {
    let of_trigger = |trigger: &Value| {
        let metadata = &trigger["metadata"];
        let query = metadata["query"].as_str().filter(|_| !is_demand(trigger));
        let by_query = query.and_then(|query| query.split_once("pool=\"")?.1.split('"').next().map(str::to_owned));
        by_query.or_else(|| Some(metadata["url"].as_str()?.rsplit('/').next()?.to_owned()))
    };
    let pools: BTreeSet<String> = array(&object["spec"]["triggers"]).iter().filter_map(of_trigger).collect();
    assert_eq!(pools.len(), 1, "{place}: its triggers ask for {pools:?}");
    pools.into_iter().next().unwrap()
}

/// One series at most, and of this pool alone.
pub fn asks_for_one_series(query: &str, namespace: &str, pool: &str) {
    let expr = promql::parse(query).unwrap();
    let promql::Node::Aggregate { operator, grouping, arguments } = &expr.node else { panic!("{query}") };
    assert_eq!((operator.as_str(), grouping), ("max", &Some((true, vec!["target_namespace".to_owned(), "pool".to_owned()]))), "{query}");
    let [promql::Expr { node: promql::Node::Selector { name, matchers }, .. }] = arguments.as_slice() else { panic!("{query}") };
    assert_eq!(*name, catalog::RECOMMENDED_REPLICAS.name());
    let pinned: BTreeMap<_, _> =
        matchers.iter().map(|matcher| (matcher.label.as_str(), (matcher.operator.as_str(), matcher.value.as_str()))).collect();
    assert_eq!(pinned, BTreeMap::from([("target_namespace", ("=", namespace)), ("pool", ("=", pool))]), "{query}");
}

/// Both directions without a band, down slowly; `tolerant` where the version of Kubernetes knows a tolerance of one HPA.
fn behaves(place: &str, behavior: &Value, tolerant: bool) {
    for direction in ["scaleUp", "scaleDown"] {
        let tolerance = behavior[direction].get("tolerance");
        assert_eq!(tolerance, tolerant.then_some(&json!(0)), "{place}: {direction}");
    }
    assert!(count(place, &behavior["scaleDown"]["stabilizationWindowSeconds"]) >= 300, "{place}");
    assert_eq!(behavior["scaleUp"]["stabilizationWindowSeconds"], 0, "{place}: the exporter has damped already");
    assert!(!array(&behavior["scaleDown"]["policies"]).is_empty(), "{place}: steps down have no limit");
}

/// What a trigger says; `exporter` is the address for one that asks without Prometheus.
fn asks_rightly(place: &str, trigger: &Value, namespace: &str, pool: &str, exporter: &str) {
    let metadata = &trigger["metadata"];
    let texts = metadata.as_object().is_some_and(|metadata| metadata.values().all(Value::is_string));
    assert!(texts, "{place}: KEDA reads texts only: {metadata}");
    assert!(metadata.get("metricType").is_none(), "{place}: inside metadata it has no effect");
    match string(&trigger["type"]) {
        "prometheus" => {
            assert_eq!(trigger["metricType"], "AverageValue", "{place}");
            assert_eq!((&metadata["threshold"], &metadata["ignoreNullValues"]), (&json!("1"), &json!("false")), "{place}");
            assert!(!string(&metadata["query"]).contains("vector("), "{place}: a missing series is not a number");
            if !is_demand(trigger) {
                asks_for_one_series(string(&metadata["query"]), namespace, pool);
            }
        }
        "metrics-api" => {
            assert_eq!(trigger["metricType"], "AverageValue", "{place}");
            assert_eq!(string(&metadata["url"]), format!("{exporter}/metrics/pool/{pool}"), "{place}");
            assert_eq!((&metadata["format"], &metadata["targetValue"]), (&json!("prometheus"), &json!("1")), "{place}");
            assert_eq!(string(&metadata["valueLocation"]), catalog::RECOMMENDED_REPLICAS.name(), "{place}");
        }
        "kubernetes-workload" => {
            assert_eq!((&trigger["name"], &metadata["value"]), (&json!("present"), &json!("1")), "{place}");
            assert!(trigger.get("metricType").is_none(), "{place}: this scaler decides by itself");
        }
        other => panic!("{place}: trigger {other}"),
    }
}

/// Several triggers make one count: what is unknown is passed over, and last stands what the pool has.
fn combines_rightly(place: &str, spec: &Value) {
    let modifiers = &spec["advanced"]["scalingModifiers"];
    assert_eq!((&modifiers["target"], &modifiers["metricType"]), (&json!("1"), &json!("AverageValue")), "{place}");
    let triggers: BTreeSet<&str> = array(&spec["triggers"]).iter().map(|trigger| string(&trigger["name"])).collect();
    assert_eq!(triggers.len(), array(&spec["triggers"]).len(), "{place}: every trigger has a name of its own");
    let formula = string(&modifiers["formula"]);
    let zero = formula.strip_prefix(ZERO.0).and_then(|rest| rest.strip_suffix(ZERO.1));
    assert_eq!(zero.is_some(), triggers.contains("demand"), "{place}: {formula}");
    let chain: Vec<&str> = zero.unwrap_or(formula).split(" ?? ").collect();
    assert_eq!(chain.last(), Some(&"present"), "{place}: {formula}");
    let used: BTreeSet<&str> = chain.into_iter().chain(zero.map(|_| "demand")).collect();
    assert_eq!(used, triggers, "{place}: {formula}");
}

/// A ScaledObject that never shrinks a pool which nobody can see, and otherwise makes it what is recommended.
pub fn scales_rightly(place: &str, object: &Value, loaded: &Loaded, exporter: &str) {
    let (spec, namespace) = (&object["spec"], string(&object["metadata"]["namespace"]));
    let name = followed(place, object);
    let (policy, hold_for) = pool(place, loaded, namespace, &name);
    let (min, max) = (u64::from(policy.limits.min().0), u64::from(policy.limits.max().0));
    let lowest = count(place, &spec["minReplicaCount"]);
    assert!(lowest <= min && count(place, &spec["maxReplicaCount"]) >= max, "{place}: limits");
    let fallback = &spec["fallback"];
    let kept = count(place, &fallback["replicas"]);
    assert!(kept >= min.max(1) && kept <= max, "{place}: fallback replicas");
    behaves(place, &spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"], true);
    for trigger in array(&spec["triggers"]) {
        asks_rightly(place, trigger, namespace, &name, exporter);
    }
    if spec["advanced"].get("scalingModifiers").is_some() {
        assert_eq!(fallback["behavior"], "scalingModifiers", "{place}: with another one `??` never gets a nil");
        combines_rightly(place, spec);
    } else {
        assert_eq!(fallback["behavior"], "currentReplicasIfHigher", "{place}");
        assert_eq!(array(&spec["triggers"]).len(), 1, "{place}: the HPA would take the larger of several");
        let patience = HPA_PERIOD * u32::try_from(count(place, &fallback["failureThreshold"])).unwrap();
        assert!(patience >= hold_for, "{place}: the fallback comes after {patience:?}, before a held value is dropped");
    }
    let watched = array(&spec["triggers"]).iter().any(is_demand);
    assert_eq!(lowest == 0, watched, "{place}: zero needs somebody who sees that nothing is asked for");
}

/// An HPA whose proposal is the recommendation.
pub fn proposes_rightly(place: &str, object: &Value, loaded: &Loaded, tolerant: bool) {
    let (spec, namespace) = (&object["spec"], string(&object["metadata"]["namespace"]));
    let [metric] = array(&spec["metrics"]) else { panic!("{place}: expected one metric") };
    let external = &metric["external"];
    let name = string(&external["metric"]["selector"]["matchLabels"]["pool"]);
    let (policy, _) = pool(place, loaded, namespace, name);
    let (min, max) = (u64::from(policy.limits.min().0), u64::from(policy.limits.max().0));
    let lowest = count(place, &spec["minReplicas"]);
    assert!((1..=min).contains(&lowest) && count(place, &spec["maxReplicas"]) >= max, "{place}: limits");
    assert_eq!(metric["type"], "External", "{place}");
    assert_eq!(string(&external["metric"]["name"]), catalog::RECOMMENDED_REPLICAS.name(), "{place}");
    assert_eq!(external["target"], json!({ "type": "AverageValue", "averageValue": "1" }), "{place}");
    assert_eq!(external["metric"]["selector"]["matchLabels"].as_object().map(serde_json::Map::len), Some(1), "{place}");
    behaves(place, &spec["behavior"], tolerant);
}

#[test]
fn scaled_objects_never_shrink_a_blind_pool() {
    let loaded = shipped::example();
    let mut of_file: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, object) in objects("ScaledObject") {
        let place = format!("{file}, {}", string(&object["metadata"]["name"]));
        scales_rightly(&place, &object, &loaded, EXPORTER);
        of_file.entry(file).or_default().push(followed(&place, &object));
    }
    let pools: Vec<String> = shipped::example().config.models[0].policy.pools.iter().map(|pool| pool.pool.to_string()).collect();
    for file in ["prometheus", "metrics-api", "both", "zero"] {
        assert_eq!(of_file.remove(&format!("deploy/keda/{file}.yaml")).as_ref(), Some(&pools), "{file}.yaml scales every pool");
    }
    assert_eq!(of_file.keys().collect::<Vec<_>>(), ["deploy/keda/targets.yaml"]);
}

#[test]
fn an_object_is_shipped_for_every_kind_that_can_be_scaled() {
    let kinds: BTreeSet<String> =
        objects("ScaledObject").iter().map(|(_, object)| string(&object["spec"]["scaleTargetRef"]["kind"]).to_owned()).collect();
    let expected =
        ["Deployment", "StatefulSet", "LeaderWorkerSet", "DynamoGraphDeploymentScalingAdapter", "PodClique", "PodCliqueScalingGroup"];
    assert_eq!(kinds, expected.map(str::to_owned).into());
}

#[test]
fn hpas_propose_what_is_recommended() {
    let loaded = shipped::example();
    let mut seen = BTreeMap::new();
    for (file, object) in objects("HorizontalPodAutoscaler") {
        let place = format!("{file}, {}", string(&object["metadata"]["name"]));
        proposes_rightly(&place, &object, &loaded, file == "deploy/hpa/hpa.yaml");
        *seen.entry(file).or_insert(0) += 1;
    }
    assert_eq!(seen, BTreeMap::from([("deploy/hpa/hpa-before-1.33.yaml".to_owned(), 2), ("deploy/hpa/hpa.yaml".to_owned(), 2)]));
}

#[test]
fn the_adapter_gives_an_hpa_one_series() {
    let values = documents("deploy/hpa/prometheus-adapter.yaml").remove(0);
    let [rule] = array(&values["rules"]["external"]) else { panic!("one rule") };
    assert_eq!(rule["resources"]["overrides"], json!({ "target_namespace": { "resource": "namespace" } }));
    let series = string(&rule["seriesQuery"]);
    assert_eq!(promql::problems(series), Vec::<String>::new());
    // As the adapter fills it in for an HPA of pool p in namespace n.
    let query = string(&rule["metricsQuery"])
        .replace("<<.Series>>", &catalog::RECOMMENDED_REPLICAS.name())
        .replace("<<.LabelMatchers>>", "target_namespace=\"n\",pool=\"p\"");
    asks_for_one_series(&query, "n", "p");
}

#[test]
fn each_known_mistake_is_seen() {
    let (_, good) = objects("ScaledObject").into_iter().find(|(file, _)| file == "deploy/keda/prometheus.yaml").unwrap();
    let loaded = shipped::example();
    let trigger = "/spec/triggers/0";
    let behavior = "/spec/advanced/horizontalPodAutoscalerConfig/behavior";
    let mistakes = [
        (format!("{trigger}/metadata/ignoreNullValues"), json!("true")),
        (format!("{trigger}/metadata/threshold"), json!("5")),
        (format!("{trigger}/metadata/query"), json!("sum(inference_planner_recommended_replicas)")),
        (format!("{trigger}/metricType"), json!("Value")),
        (format!("{trigger}/metadata/threshold"), json!(1)),
        (format!("{behavior}/scaleUp/tolerance"), json!(0.1)),
        ("/spec/fallback/replicas".to_owned(), json!(0)),
        ("/spec/fallback/behavior".to_owned(), json!("static")),
        ("/spec/fallback/failureThreshold".to_owned(), json!(3)),
        ("/spec/minReplicaCount".to_owned(), json!(0)),
        ("/spec/maxReplicaCount".to_owned(), json!(8)),
    ];
    for (place, value) in mistakes {
        let mut wrong = good.clone();
        *wrong.pointer_mut(&place).unwrap() = value.clone();
        let judged = std::panic::catch_unwind(AssertUnwindSafe(|| scales_rightly("x", &wrong, &loaded, EXPORTER)));
        assert!(judged.is_err(), "{place}: {value} was not seen");
    }
}
