//! Would a pool have as many replicas as recommended, and never fewer because nobody can see it? KEDA's and the HPA's arithmetic as a small
//! model, and every shipped object run through it.
//!
//! The arithmetic is that of KEDA 2.20 (`prometheus_scaler.go`, `metrics_api_scaler.go`, the fallback) and of the HPA's
//! `replica_calculator.go`: an external metric with AverageValue gives `ceil(V / T)`, unless `V / (T * S)` is within the tolerance of 1; then S.
//! With Value, which we never ship, it gives `ceil(V / T * A)` for A ready pods, unless `V / T` is within the tolerance of 1.

use inference_planner_exporter::export::catalog;
use inference_planner_exporter::server::Server;
use serde_json::{Value, json};

use crate::export::fixture;
use crate::followers::objects;
use crate::promql;
use crate::server::{get, settings, state};
use crate::shipped::{array, string};

/// Counts that are tried, and counts that are there.
const MOST: u32 = 200;
/// Of an HPA that says nothing.
const USUAL_TOLERANCE: f64 = 0.1;

/// What the one that is asked has.
#[derive(Clone, Debug, PartialEq)]
enum World {
    /// Recommendations of as many exporters.
    Recommended(Vec<f64>),
    /// Prometheus answers, and has no such series: an exporter that restarts, a value that was dropped.
    Lost,
    /// Nobody answers.
    Down,
}

/// A value, or KEDA's error.
type Asked = Result<f64, ()>;

/// What a trigger makes of the world; `present` is the number of pods.
fn asked(trigger: &Value, world: &World, present: u32) -> Asked {
    let metadata = &trigger["metadata"];
    match string(&trigger["type"]) {
        "kubernetes-workload" => Ok(f64::from(present)),
        // Somebody asks, in all that is tried here.
        "prometheus" if trigger["name"] == "demand" => Ok(1.0),
        "prometheus" => {
            let series = match world {
                World::Recommended(values) => aggregated(string(&metadata["query"]), values),
                World::Lost => Vec::new(),
                World::Down => return Err(()),
            };
            // KEDA's default.
            let lenient = metadata["ignoreNullValues"] != "false";
            match series.as_slice() {
                [value] if value.is_finite() => Ok(value.max(0.0)),
                [_, _, ..] => Err(()),
                _ if lenient => Ok(0.0),
                _ => Err(()),
            }
        }
        // One exporter, asked directly: 503 and 404 are errors.
        "metrics-api" => match world {
            World::Recommended(values) if values[0].is_finite() => Ok(values[0].max(0.0)),
            World::Recommended(_) => Ok(0.0),
            World::Lost | World::Down => Err(()),
        },
        other => panic!("trigger {other}"),
    }
}

/// The answer to a query over the series of several exporters.
fn aggregated(query: &str, values: &[f64]) -> Vec<f64> {
    match promql::parse(query).unwrap().node {
        promql::Node::Aggregate { operator, .. } if operator == "max" => vec![values.iter().copied().fold(f64::NAN, f64::max)],
        promql::Node::Aggregate { operator, .. } if operator == "sum" => vec![values.iter().sum()],
        _ => values.to_vec(),
    }
}

/// What an HPA proposes for a metric of this value and the target 1.
fn proposed(value: f64, current: u32, tolerance: f64) -> u32 {
    // The adapter and KEDA send thousandths.
    let (value, current_f) = ((value * 1000.0).round() / 1000.0, f64::from(current));
    let ratio = value / current_f;
    if (1.0 - tolerance..=1.0 + tolerance).contains(&ratio) { current } else { value.ceil() as u32 }
}

/// What an HPA proposes for a metric of type Value and the target 1, all pods being ready: it takes the metric for a load of each.
fn proposed_by_value(value: f64, current: u32, tolerance: f64) -> u32 {
    let inside = (1.0 - tolerance..=1.0 + tolerance).contains(&value);
    if inside { current } else { (value * f64::from(current)).ceil() as u32 }
}

/// The value of a formula of ours: `a ?? b ?? c`, or the same guarded by demand. What failed is nil.
fn evaluated(formula: &str, triggers: &[(String, Asked)]) -> Asked {
    let chain = |text: &str| text.split(" ?? ").find_map(|name| triggers.iter().find(|(known, _)| known == name)?.1.ok()).ok_or(());
    match formula.strip_prefix("(demand ?? 1.0) > 0.0 ? max(").and_then(|rest| rest.strip_suffix(", 1.0) : 0.0")) {
        // Demand is there, in all that is tried here.
        Some(inner) => chain(inner).map(|value| value.max(1.0)),
        None => chain(formula),
    }
}

fn count(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// How many replicas a ScaledObject wants of a pool that has `current`; `failing` once KEDA has failed for longer than its threshold.
fn scaled(object: &Value, world: &World, current: u32, failing: bool) -> u32 {
    let spec = &object["spec"];
    let (min, max) = (count(&spec["minReplicaCount"]).max(1), count(&spec["maxReplicaCount"]));
    let behavior = &spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"];
    let tolerance = behavior["scaleUp"]["tolerance"].as_f64().unwrap_or(USUAL_TOLERANCE);
    let answers: Vec<(String, Asked)> = array(&spec["triggers"])
        .iter()
        .map(|trigger| (trigger["name"].as_str().unwrap_or_default().to_owned(), asked(trigger, world, current)))
        .collect();
    let failed = answers.iter().any(|(_, answer)| answer.is_err());
    let value = match spec["advanced"]["scalingModifiers"]["formula"].as_str() {
        _ if failed && !failing => Err(()),
        Some(formula) => evaluated(formula, &answers),
        None if failed => {
            let kept = count(&spec["fallback"]["replicas"]);
            Ok(f64::from(match string(&spec["fallback"]["behavior"]) {
                "currentReplicasIfHigher" => kept.max(current),
                "static" => kept,
                other => panic!("fallback {other}"),
            }))
        }
        None => answers[0].1,
    };
    let by_value = spec["triggers"][0]["metricType"] == "Value";
    let propose = if by_value { proposed_by_value } else { proposed };
    let wanted = value.map_or(current, |value| propose(value, current, tolerance));
    wanted.clamp(min, max)
}

/// Whether a pool that a ScaledObject or an HPA scales has what is recommended, and loses nothing by what is lost. Between the object's limits.
pub fn follows(place: &str, object: &Value) {
    let spec = &object["spec"];
    let keda = object["kind"] == "ScaledObject";
    let [low, high] = if keda { ["minReplicaCount", "maxReplicaCount"] } else { ["minReplicas", "maxReplicas"] };
    let (min, max) = (count(&spec[low]).max(1), count(&spec[high]));
    let tolerant = spec["behavior"]["scaleUp"].get("tolerance").is_none() && !keda;
    for current in min..=max {
        for recommended in min..=max {
            let world = World::Recommended(vec![f64::from(recommended)]);
            let wanted = if keda { scaled(object, &world, current, false) } else { hpa(object, &world, current) };
            let swallowed = tolerant && wanted == current && recommended.abs_diff(current) * 10 <= current;
            assert!(wanted == recommended || swallowed, "{place}: {recommended} of {current} became {wanted}");
        }
        for (world, failing) in [(World::Lost, false), (World::Lost, true), (World::Down, false), (World::Down, true)] {
            let wanted = if keda { scaled(object, &world, current, failing) } else { hpa(object, &world, current) };
            assert!(wanted >= current, "{place}: {current} became {wanted} in {world:?}, failing: {failing}");
        }
    }
}

/// How many an HPA wants that reads the adapter; no series, or no answer, freezes it.
fn hpa(object: &Value, world: &World, current: u32) -> u32 {
    let spec = &object["spec"];
    let tolerance = spec["behavior"]["scaleUp"]["tolerance"].as_f64().unwrap_or(USUAL_TOLERANCE);
    let wanted = match world {
        // The rule of the adapter takes the largest, as another test holds.
        World::Recommended(values) => proposed(values.iter().copied().fold(f64::NAN, f64::max), current, tolerance),
        World::Lost | World::Down => current,
    };
    wanted.clamp(count(&spec["minReplicas"]), count(&spec["maxReplicas"]))
}

/// An object that may have every count.
fn widened(object: &Value) -> Value {
    let mut wide = object.clone();
    for (low, high) in [("minReplicaCount", "maxReplicaCount"), ("minReplicas", "maxReplicas")] {
        if wide["spec"].get(high).is_some() {
            wide["spec"][low] = json!(0);
            wide["spec"][high] = json!(MOST);
        }
    }
    wide
}

#[test]
fn every_scaled_object_has_the_recommended_count_whatever_is_there() {
    let shipped = objects("ScaledObject");
    assert!(shipped.len() >= 10, "{}", shipped.len());
    for (file, object) in &shipped {
        let wide = widened(object);
        for recommended in 0..=MOST {
            for current in 1..=MOST {
                let wanted = scaled(&wide, &World::Recommended(vec![f64::from(recommended)]), current, false);
                // From zero and to zero is not the HPA's to decide.
                assert_eq!(wanted, recommended.max(1), "{file}: {recommended} of {current}");
            }
        }
    }
}

#[test]
fn nothing_that_is_lost_makes_a_pool_smaller() {
    for (file, object) in [objects("ScaledObject"), objects("HorizontalPodAutoscaler")].concat() {
        follows(&file, &object);
    }
    // We never show NaN; if something on the way did, the query by Prometheus is an error.
    let not_a_number = World::Recommended(vec![f64::NAN]);
    let by_prometheus = |object: &Value| array(&object["spec"]["triggers"]).iter().all(|trigger| trigger["type"] != "metrics-api");
    for (file, object) in objects("ScaledObject").iter().filter(|(_, object)| by_prometheus(object)) {
        let (min, max) = (count(&object["spec"]["minReplicaCount"]).max(1), count(&object["spec"]["maxReplicaCount"]));
        for (current, failing) in (min..=max).flat_map(|current| [(current, false), (current, true)]) {
            let wanted = scaled(object, &not_a_number, current, failing);
            assert!(wanted >= current, "{file}: {current} became {wanted}, failing: {failing}");
        }
    }
}

#[test]
fn of_two_exporters_the_larger_number_counts_and_not_the_sum() {
    let both = World::Recommended(vec![4.0, 6.0]);
    for (file, object) in objects("ScaledObject").iter().filter(|(_, object)| object["spec"]["triggers"][0]["type"] == "prometheus") {
        assert_eq!(scaled(&widened(object), &both, 5, false), 6, "{file}");
    }
    for (file, object) in objects("HorizontalPodAutoscaler") {
        assert_eq!(hpa(&widened(&object), &both, 5), 6, "{file}");
    }
}

#[test]
fn an_hpa_has_the_recommended_count_where_it_may_say_its_tolerance() {
    for (file, object) in objects("HorizontalPodAutoscaler") {
        let wide = widened(&object);
        let tolerant = object["spec"]["behavior"]["scaleUp"].get("tolerance").is_none();
        for (recommended, current) in (0..=MOST).flat_map(|recommended| (1..=MOST).map(move |current| (recommended, current))) {
            let wanted = hpa(&wide, &World::Recommended(vec![f64::from(recommended)]), current);
            // Before it could, steps within a tenth are swallowed: never more than that, and none below ten replicas.
            let swallowed = tolerant && wanted == current && recommended.abs_diff(current) * 10 <= current;
            assert!(wanted == recommended || swallowed, "{file}: {recommended} of {current} became {wanted}");
            assert!(!swallowed || current >= 10 || recommended == current, "{file}: {recommended} of {current}");
        }
    }
}

/// The steps that an HPA of the usual tolerance takes, from counts that operators know.
#[test]
fn the_usual_tolerance_swallows_single_steps_from_ten_replicas_on() {
    for (current, up, down) in [(9, 10, 8), (10, 12, 8), (11, 13, 9), (20, 23, 17), (50, 56, 44), (100, 111, 89)] {
        let acts = |wanted: &u32| proposed(f64::from(*wanted), current, USUAL_TOLERANCE) != current;
        assert_eq!((current + 1..).find(acts), Some(up), "up from {current}");
        assert_eq!((1..current).rev().find(acts), Some(down), "down from {current}");
    }
}

/// The model sees the mistakes for which the objects are as they are.
#[test]
fn known_mistakes_show_in_the_model() {
    let (_, good) = objects("ScaledObject").into_iter().find(|(file, _)| file == "deploy/keda/prometheus.yaml").unwrap();
    let good = widened(&good);
    let with = |place: &str, value: Value| {
        let mut wrong = good.clone();
        *wrong.pointer_mut(place).unwrap() = value;
        wrong
    };
    let lenient = with("/spec/triggers/0/metadata/ignoreNullValues", json!("true"));
    assert_eq!(scaled(&lenient, &World::Lost, 20, true), 1, "a lost series is taken for 0");
    let fixed = with("/spec/fallback/behavior", json!("static"));
    assert!(scaled(&fixed, &World::Down, 20, true) < 20, "a fixed fallback shrinks what has grown");
    let tolerant = with("/spec/advanced/horizontalPodAutoscalerConfig/behavior/scaleUp/tolerance", json!(0.1));
    assert_eq!(scaled(&tolerant, &World::Recommended(vec![21.0]), 20, false), 20, "a step is swallowed");
    let by_value = with("/spec/triggers/0/metricType", json!("Value"));
    assert_eq!(scaled(&by_value, &World::Recommended(vec![2.0]), 2, false), 4, "a count is taken for a load of each pod");
    assert_eq!(scaled(&good, &World::Recommended(vec![2.0]), 2, false), 2);
    let query = "sum(inference_planner_recommended_replicas)";
    let summed = with("/spec/triggers/0/metadata/query", json!(query));
    assert_eq!(scaled(&summed, &World::Recommended(vec![5.0, 5.0]), 5, false), 10, "two exporters double the pool");
}

/// The first sample of that name with these labels, as KEDA's `metrics-api` scaler reads a page: matchers are equalities, labels that are not
/// named are ignored.
fn first_sample(page: &str, name: &str, labels: &[(&str, &str)]) -> Vec<f64> {
    let matches = |line: &&str| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with([' ', '{']));
        rest.is_some_and(|rest| labels.iter().all(|(label, value)| rest.contains(&format!("{label}=\"{value}\""))))
    };
    page.lines().filter(matches).map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
}

/// KEDA takes nothing but status 200, sends no `Accept`, reads counters and gauges, and takes the first sample that matches.
#[tokio::test]
async fn keda_finds_one_value_on_the_page_and_on_that_of_the_pool() {
    let server = Server::start(settings(), state(fixture::snapshot(), fixture::AT).0).await.unwrap();
    let name = catalog::RECOMMENDED_REPLICAS.name();
    let whole = get(server.addr, "/metrics").await;
    for model in &fixture::snapshot().models {
        for pool in &model.policy.pools {
            let own = get(server.addr, &format!("/metrics/pool/{}", pool.pool)).await;
            for answer in [&whole, &own] {
                assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; version=0.0.4; charset=utf-8")));
                assert!(answer.text().contains(&format!("# TYPE {name} gauge\n")) && answer.text().ends_with('\n'));
            }
            let labels = [("target_namespace", model.target_namespace.as_str()), ("pool", pool.pool.as_str())];
            let by_labels = first_sample(whole.text(), &name, &labels);
            assert_eq!(by_labels.len(), 1, "{}: which is first must not matter", pool.pool);
            assert_eq!(first_sample(own.text(), &name, &[]), by_labels, "{}", pool.pool);
        }
    }
    server.shutdown().await.unwrap();
}
