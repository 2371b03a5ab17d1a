//! What does `kubectl kustomize` make of a folder? The part of it that our files use, so that the tests need no kubectl, which Debian has too old; a
//! key, a list or an operation that is not known here is refused, never passed over. Where a kubectl is in PATH, it has to make the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Lists that a strategic merge joins by the name of their members. Other lists would be replaced as a whole.
const MERGED_BY_NAME: [&str; 3] = ["containers", "initContainers", "volumes"];

/// A kustomization.yaml.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    components: Vec<String>,
    namespace: Option<String>,
    #[serde(default)]
    config_map_generator: Vec<Generator>,
    #[serde(default)]
    patches: Vec<Patch>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Generator {
    name: String,
    files: Vec<String>,
    options: GeneratorOptions,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GeneratorOptions {
    disable_name_suffix_hash: bool,
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    target: Target,
    patch: Option<String>,
    path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    name: String,
}

/// An operation of RFC 6902.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    op: String,
    path: String,
    value: Value,
}

/// The objects of a folder with a kustomization.yaml.
pub fn build(folder: &Path) -> Vec<Value> {
    let mut objects = Vec::new();
    apply(folder, false, &mut objects);
    let ids: BTreeSet<String> = objects.iter().map(id).collect();
    assert_eq!(ids.len(), objects.len(), "{}: an object occurs twice", folder.display());
    if let Ok(output) = Command::new("kubectl").arg("kustomize").arg(folder).output() {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let real: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        let by_id = |objects: &[Value]| objects.iter().map(|object| (id(object), object.clone())).collect::<BTreeMap<_, _>>();
        assert_eq!(by_id(&objects), by_id(&real), "{}: kubectl makes something else", folder.display());
    }
    objects
}

fn id(object: &Value) -> String {
    format!("{} {} {} {}", object["apiVersion"], object["kind"], object["metadata"]["namespace"], object["metadata"]["name"])
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The text of a file of a kustomization. kustomize reads none from outside the folder.
fn read_inside(folder: &Path, name: &str) -> String {
    assert!(!name.split('/').any(|part| part == ".."), "{}: {name} is not in or below the folder", folder.display());
    read(&folder.join(name))
}

/// Adds what a folder holds to the objects so far, which a component may patch.
fn apply(folder: &Path, component: bool, objects: &mut Vec<Value>) {
    let place = folder.join("kustomization.yaml");
    let own: Kustomization = serde_saphyr::from_str(&read(&place)).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    let expected = if component { ("v1alpha1", "Component") } else { ("v1beta1", "Kustomization") };
    let version = format!("kustomize.config.k8s.io/{}", expected.0);
    assert_eq!(own.api_version.as_deref().unwrap_or(&version), version, "{}", place.display());
    assert_eq!(own.kind.as_deref().unwrap_or("Kustomization"), expected.1, "{}", place.display());
    // A component sees all objects so far, everything else its own only.
    let outer = if component { std::mem::take(objects) } else { Vec::new() };
    let mut all = outer;
    for resource in &own.resources {
        if folder.join(resource).is_dir() {
            let mut below = Vec::new();
            apply(&folder.join(resource), false, &mut below);
            all.append(&mut below);
        } else {
            let text = read_inside(folder, resource);
            all.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap_or_else(|error| panic!("{resource}: {error}")));
        }
    }
    for name in &own.components {
        apply(&folder.join(name), true, &mut all);
    }
    all.extend(own.config_map_generator.iter().map(|generator| generated(folder, generator, own.namespace.as_deref())));
    assert!(own.namespace.is_none() || own.resources.is_empty(), "{}: a namespace is followed for generated objects only", place.display());
    for patch in &own.patches {
        patched(folder, patch, &mut all);
    }
    objects.append(&mut all);
}

fn generated(folder: &Path, generator: &Generator, namespace: Option<&str>) -> Value {
    assert!(generator.options.disable_name_suffix_hash, "{}: names with a hash are not known here", generator.name);
    let data: BTreeMap<&str, String> = generator
        .files
        .iter()
        .map(|file| file.split_once('=').unwrap_or((file, file)))
        .map(|(key, file)| (key, read_inside(folder, file)))
        .collect();
    let mut object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": { "name": generator.name, "labels": generator.options.labels } });
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn patched(folder: &Path, patch: &Patch, objects: &mut [Value]) {
    let text = match (&patch.patch, &patch.path) {
        (Some(text), None) => text.clone(),
        (None, Some(path)) => read_inside(folder, path),
        _ => panic!("{}: expected patch or path", folder.display()),
    };
    let Target { kind, name } = &patch.target;
    let mut targets: Vec<&mut Value> =
        objects.iter_mut().filter(|object| object["kind"] == *kind && object["metadata"]["name"] == *name).collect();
    let [object] = targets.as_mut_slice() else { panic!("{}: {} objects are {kind} {name}", folder.display(), targets.len()) };
    match serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        operations @ Value::Array(_) => {
            let operations: Vec<Operation> = serde_json::from_value(operations).unwrap();
            operations.iter().for_each(|operation| operate(object, operation));
        }
        merged => {
            assert_eq!(
                (&merged["kind"], &merged["metadata"]["name"]),
                (&object["kind"], &object["metadata"]["name"]),
                "what is merged names its object"
            );
            merge(object, &merged);
        }
    }
}

/// One step of RFC 6902, on members of maps.
fn operate(object: &mut Value, operation: &Operation) {
    let Operation { op, path, value } = operation;
    let (parent, key) = path.rsplit_once('/').unwrap();
    let Some(Value::Object(members)) = object.pointer_mut(parent) else { panic!("{path}: expected a map at {parent}") };
    let before = members.insert(key.replace("~1", "/").replace("~0", "~"), value.clone());
    match op.as_str() {
        "add" => {}
        "replace" => assert!(before.is_some(), "{path}: there is nothing to replace"),
        other => panic!("{path}: operation {other}"),
    }
}

/// A strategic merge: maps member by member, some lists by name, all else replaced.
fn merge(into: &mut Value, patch: &Value) {
    let (Value::Object(into), Value::Object(patch)) = (into, patch) else { panic!("expected two maps") };
    for (key, value) in patch {
        match into.get_mut(key) {
            Some(old @ Value::Object(_)) => merge(old, value),
            Some(Value::Array(old)) if MERGED_BY_NAME.contains(&key.as_str()) => merge_by_name(old, value.as_array().unwrap()),
            Some(Value::Array(_)) => panic!("{key}: how this list is merged is not known here"),
            _ => drop(into.insert(key.clone(), without_nulls(value))),
        }
    }
}

/// Members of the same name are merged; new ones come first, as kustomize puts them.
fn merge_by_name(old: &mut Vec<Value>, patch: &[Value]) {
    let mut new = Vec::new();
    for member in patch {
        match old.iter_mut().find(|known| known["name"] == member["name"]) {
            Some(known) => merge(known, member),
            None => new.push(without_nulls(member)),
        }
    }
    old.splice(0..0, new);
}

/// A patch says `null` to remove a member.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>())
        }
        Value::Array(members) => Value::Array(members.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}

#[test]
fn what_kustomize_would_refuse_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": "1" } });
    std::fs::write(folder.path().join("a.yaml"), object.to_string()).unwrap();
    let made = |kustomization: Value| {
        std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
        std::panic::catch_unwind(|| build(folder.path()))
    };
    let patch = |target: &str, patch: Value| json!({ "resources": ["a.yaml"], "patches": [{ "target": { "kind": "ConfigMap", "name": target }, "patch": patch.to_string() }] });
    let replaced = made(patch("a", json!([{ "op": "replace", "path": "/data/x", "value": "2" }]))).unwrap();
    assert_eq!(replaced[0]["data"], json!({ "x": "2" }));
    let changed = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": "3", "y": "4" } });
    let merged = made(patch("a", changed)).unwrap();
    assert_eq!(merged[0]["data"], json!({ "x": "3", "y": "4" }));
    for wrong in [
        json!({ "resources": ["a.yaml"], "namePrefix": "b-" }),
        json!({ "resources": ["a.yaml", "a.yaml"] }),
        json!({ "resources": ["b.yaml"] }),
        json!({ "kind": "Component", "resources": ["a.yaml"] }),
        json!({ "configMapGenerator": [{ "name": "b", "files": ["../a.yaml"], "options": { "disableNameSuffixHash": true, "labels": {} } }] }),
        patch("b", json!({ "data": {} })),
        patch("a", json!({ "data": { "x": "3" } })),
        patch("a", json!([{ "op": "replace", "path": "/data/z", "value": "2" }])),
        patch("a", json!([{ "op": "remove", "path": "/data/x", "value": null }])),
    ] {
        assert!(made(wrong.clone()).is_err(), "{wrong} was taken");
    }
}
