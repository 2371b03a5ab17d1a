//! Are the plain files as good as the chart? Held against schemas, and what kustomize puts together against what Helm makes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{NEW, OLD, ask, kustomize, made};
use crate::shipped::{array, documents, files, path, string};

/// Labels that a chart's objects have and plain files do not.
const OF_RELEASE: [&str; 4] = ["helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"];

/// Values that say what deploy/kubernetes and its neighbours say.
pub fn like_the_plain_files() -> Value {
    let map = documents("deploy/kubernetes/configmap.yaml").remove(0);
    let config: Value = serde_saphyr::from_str(string(&map["data"]["config.yaml"])).unwrap();
    json!({
        "fullnameOverride": "inference-planner-exporter",
        "config": config,
        "files": { "profile.json": map["data"]["profile.json"] },
        "state": { "kind": "persistentVolumeClaim" },
        "serviceMonitor": { "enabled": true },
        "prometheusRule": { "enabled": true },
        "dashboards": { "enabled": true },
        "networkPolicy": { "enabled": true },
        "autoscaling": { "type": "keda-prometheus" },
    })
}

/// Objects in plain files; patches are parts of objects, and values and configurations are none.
fn plain_objects() -> Vec<Value> {
    let folders = ["keda", "kubernetes", "kubernetes-discovery", "kubernetes-network", "prometheus-operator"];
    let names = folders.iter().flat_map(|folder| files(&format!("deploy/{folder}")));
    let names = names.filter(|name| !name.ends_with("kustomization.yaml"));
    names.chain(["deploy/hpa/hpa.yaml".to_owned()]).flat_map(|name| documents(&name)).collect()
}

#[test]
fn plain_files_fit_the_schemas_and_a_misspelt_key_does_not() {
    let old = documents("deploy/hpa/hpa-before-1.33.yaml");
    let mut misspelt = documents("deploy/keda/prometheus.yaml");
    misspelt[0]["spec"]["triggers"][0]["metadata"]["metricType"] = json!("AverageValue");
    misspelt[1]["spec"]["scaleTargetRef"]["nmae"] = json!("x");
    let answers = ask(&[
        json!({ "objects": plain_objects(), "kubernetes": NEW }),
        json!({ "objects": old, "kubernetes": OLD }),
        json!({ "objects": documents("deploy/hpa/hpa.yaml"), "kubernetes": OLD }),
        json!({ "objects": misspelt, "kubernetes": NEW }),
    ]);
    assert_eq!((&answers[0]["problems"], &answers[1]["problems"]), (&json!([]), &json!([])));
    assert!(answers[2]["problems"].to_string().contains("tolerance"), "1.32 knows no tolerance: {}", answers[2]);
    assert_eq!(array(&answers[3]["problems"]).len(), 2, "{}", answers[3]);
}

/// Without what only a release has, and texts that are YAML or JSON by what they say.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(key, _)| !OF_RELEASE.contains(&key.as_str()))
            .map(|(key, value)| match value {
                Value::String(text) if key.ends_with(".yaml") => (key.clone(), serde_saphyr::from_str(text).unwrap()),
                Value::String(text) if key.ends_with(".json") => (key.clone(), serde_json::from_str(text).unwrap()),
                _ => (key.clone(), comparable(value)),
            })
            .collect(),
        Value::Array(members) => members.iter().map(comparable).collect(),
        other => other.clone(),
    }
}

fn by_name<'a>(objects: impl IntoIterator<Item = &'a Value>) -> BTreeMap<String, Value> {
    let named = |object: &Value| (format!("{} {}", string(&object["kind"]), string(&object["metadata"]["name"])), comparable(object));
    objects.into_iter().map(named).collect()
}

#[test]
fn kustomize_makes_what_the_chart_makes() {
    let mut charted = by_name(array(&made("plain-files").answer["objects"]));
    // A group that names the pools of the values; plain files have no values.
    charted.get_mut("PrometheusRule inference-planner-exporter").unwrap()["spec"]["groups"].as_array_mut().unwrap().pop();
    let plain = by_name(&kustomize::build(&path("deploy/kustomize")));
    assert_eq!(charted.keys().collect::<Vec<_>>(), plain.keys().collect::<Vec<_>>());
    for (name, object) in &charted {
        assert_eq!(object, &plain[name], "{name}");
    }
}

#[test]
fn every_folder_of_objects_builds_by_itself() {
    for folder in ["keda", "hpa", "kubernetes", "kubernetes-network", "prometheus-operator"] {
        let objects = kustomize::build(&path(&format!("deploy/{folder}")));
        assert_eq!(ask(&[json!({ "objects": objects, "kubernetes": NEW })])[0]["problems"], json!([]), "{folder}");
    }
}

#[test]
fn components_of_kustomize_add_the_account_and_the_sidecar() {
    let folder = tempfile::tempdir_in(path("target")).unwrap();
    let router = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "infera-server" },
        "spec": { "selector": { "matchLabels": { "app": "infera-server" } }, "template": { "metadata": { "labels": { "app": "infera-server" } },
            "spec": { "containers": [{ "name": "router", "image": "router" }] } } } });
    std::fs::write(folder.path().join("router.yaml"), router.to_string()).unwrap();
    let up = "../../deploy";
    let overlay = json!({ "resources": ["router.yaml", format!("{up}/kubernetes"), format!("{up}/hpa")],
        "components": [format!("{up}/kubernetes-discovery"), format!("{up}/sidecar")] });
    std::fs::write(folder.path().join("kustomization.yaml"), overlay.to_string()).unwrap();
    let objects = kustomize::build(folder.path());
    assert_eq!(ask(&[json!({ "objects": objects, "kubernetes": NEW })])[0]["problems"], json!([]));
    let objects = by_name(&objects);
    let pod = |name: &str| &objects[&format!("Deployment {name}")]["spec"]["template"]["spec"];
    assert_eq!(pod("inference-planner-exporter")["serviceAccountName"], "inference-planner-exporter");
    assert_eq!(pod("inference-planner-exporter")["automountServiceAccountToken"], true);
    let names: BTreeSet<&str> = array(&pod("infera-server")["containers"]).iter().map(|container| string(&container["name"])).collect();
    assert_eq!(names, BTreeSet::from(["exporter", "router"]));
}
