//! Does the Helm chart make what it promises? Rendered and linted by the real Helm, in every shape, held against schemas and against our
//! own `check`. Needs `tests/run`, which installs Helm for Python.

mod kustomize;
mod plain;
mod shards;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use inference_planner_exporter::config::{self, Flags, Inputs, Loaded, SourceText};
use serde_json::{Value, json};

use crate::shipped::{array, documents, path, string, text};
use crate::{autoscaler, followers, promql};

/// The newest version that we name, where each HPA may have a tolerance.
const NEW: &str = "1.35";
/// The last one without.
const OLD: &str = "1.32";
/// Where the exporter reads its configuration.
const MOUNT: &str = "/etc/inference-planner";

/// What the chart makes of some values.
struct Made {
    name: &'static str,
    values: Value,
    kubernetes: &'static str,
    answer: Value,
}

impl Made {
    fn objects(&self, kind: &str) -> Vec<&Value> {
        array(&self.answer["objects"]).iter().filter(|object| object["kind"] == kind).collect()
    }

    fn object(&self, kind: &str) -> &Value {
        let [object] =
            self.objects(kind).try_into().unwrap_or_else(|found: Vec<_>| panic!("{}: {} of kind {kind}", self.name, found.len()));
        object
    }

    fn notes(&self) -> &str {
        string(&self.answer["notes"])
    }

    /// The ConfigMap with the configuration.
    fn data(&self) -> &Value {
        let with_config = |object: &&Value| object["data"].get("config.yaml").is_some();
        &self.objects("ConfigMap").into_iter().find(with_config).unwrap()["data"]
    }

    /// The configuration in the ConfigMap, as the exporter reads it.
    fn loaded(&self) -> Loaded {
        self.loaded_with(Flags::default())
    }

    fn loaded_with(&self, flags: Flags) -> Loaded {
        let text = string(&self.data()["config.yaml"]).to_owned();
        let file = Some(SourceText { path: format!("{MOUNT}/config.yaml").into(), text });
        let draft = config::read(Inputs { file, flags, ..Inputs::default() });
        let beside = |file: &PathBuf| Some(string(self.data().get(file.file_name()?.to_str()?)?).to_owned());
        let given = draft.files().iter().filter_map(|file| Some((file.clone(), Ok(beside(file)?)))).collect();
        draft.finish(&given).unwrap_or_else(|problems| panic!("{}: {problems:#?}", self.name))
    }

    /// The pods of the Deployments.
    fn pods(&self) -> Vec<&Value> {
        self.objects("Deployment").into_iter().map(|deployment| &deployment["spec"]["template"]["spec"]).collect()
    }

    fn exporter(&self) -> String {
        let service = &self.object("Service")["metadata"];
        let scheme = self.values["web"]["scheme"].as_str().unwrap_or("http");
        format!("{scheme}://{}.{}.svc:10877", string(&service["name"]), string(&service["namespace"]))
    }
}

/// The answers of tests/charts/tool.py.
fn ask(requests: &[Value]) -> Vec<Value> {
    let python = path("target/charts/bin/python");
    assert!(python.is_file(), "{} is missing: tests/run installs what these tests need", python.display());
    let mut tool = Command::new(python)
        .arg(path("tests/charts/tool.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin.take().unwrap().write_all(json!(requests).to_string().as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Values of a file in `tests/charts/values`.
fn values(name: &str) -> Value {
    documents(&format!("tests/charts/values/{name}.yaml")).remove(0)
}

/// The same values with some of them replaced.
fn with(mut values: Value, changes: &[(&str, Value)]) -> Value {
    for (key, value) in changes {
        let mut place = &mut values;
        for part in key.split('/') {
            place = &mut place[part];
        }
        *place = value.clone();
    }
    values
}

/// The chart in every shape.
static MADE: LazyLock<Vec<Made>> = LazyLock::new(|| {
    let full = || values("full");
    let podless = || with(full(), &[("autoscaling/pools", json!({}))]);
    let cases = [
        ("defaults", json!({}), NEW),
        ("full", full(), NEW),
        ("keda-prometheus", with(podless(), &[("autoscaling/type", json!("keda-prometheus"))]), NEW),
        ("keda-metrics-api", with(podless(), &[("autoscaling/type", json!("keda-metrics-api"))]), NEW),
        ("zero", values("zero"), NEW),
        ("hpa", with(podless(), &[("autoscaling/type", json!("hpa")), ("kubeVersion", json!("1.35.0"))]), NEW),
        ("hpa-old", with(podless(), &[("autoscaling/type", json!("hpa")), ("kubeVersion", json!("1.32.4"))]), OLD),
        ("shadow", with(podless(), &[("autoscaling/type", json!("keda-prometheus")), ("config", values("shadow")["config"].clone())]), NEW),
        ("two", json!({ "replicas": 2 }), NEW),
        ("shards", values("shards"), NEW),
        ("stateless", json!({ "state": { "kind": "none" } }), OLD),
        ("sidecar", values("sidecar"), NEW),
        ("discovery", values("discovery"), NEW),
        ("tls", values("tls"), NEW),
        ("plain-files", plain::like_the_plain_files(), NEW),
    ];
    let requests: Vec<Value> = cases.iter().map(|(_, values, kubernetes)| json!({ "render": values, "kubernetes": kubernetes })).collect();
    let made = |((name, values, kubernetes), answer)| Made { name, values, kubernetes, answer };
    cases.into_iter().zip(ask(&requests)).map(made).collect()
});

fn made(name: &str) -> &'static Made {
    MADE.iter().find(|made| made.name == name).unwrap()
}

#[test]
fn every_shape_renders_and_is_clean_and_fits_the_schemas() {
    for made in MADE.iter() {
        let Made { name, answer, values, kubernetes } = made;
        assert_eq!(answer.get("refused"), None, "{name}: {values}");
        assert_eq!(answer["lint"], json!([]), "{name}");
        assert_eq!(answer["problems"], json!([]), "{name}, Kubernetes {kubernetes}");
        assert!(made.objects("ClusterRole").is_empty() && made.objects("ClusterRoleBinding").is_empty(), "{name}");
    }
}

#[test]
fn configurations_pass_our_own_check() {
    for made in MADE.iter() {
        let loaded = made.loaded();
        assert_eq!(loaded.config.server.listen.port(), 10877, "{}", made.name);
        let limited = "has no limit on steps down";
        let unexpected = loaded.warnings.iter().map(ToString::to_string).find(|warning| !warning.contains(limited));
        assert_eq!(unexpected, None, "{}", made.name);
        assert!(loaded.config.files.iter().all(|file| file.starts_with(MOUNT)), "{}", made.name);
        assert_eq!(loaded.config.state_file.is_none(), made.name == "stateless", "{}", made.name);
    }
}

/// An unprivileged process that can write its state and nothing else.
fn is_confined(name: &str, pod: &Value, container: &Value) {
    let own = &container["securityContext"];
    let either = |key: &str| own.get(key).unwrap_or(&pod["securityContext"][key]).clone();
    assert_eq!(either("runAsNonRoot"), true, "{name}");
    assert!(either("runAsUser").as_u64().is_some_and(|user| user > 0), "{name}");
    assert_eq!(either("seccompProfile"), json!({ "type": "RuntimeDefault" }), "{name}");
    assert_eq!((&own["allowPrivilegeEscalation"], &own["readOnlyRootFilesystem"]), (&json!(false), &json!(true)), "{name}");
    assert_eq!(own["capabilities"], json!({ "drop": ["ALL"] }), "{name}");
    for (probe, path) in [("livenessProbe", "/-/healthy"), ("readinessProbe", "/-/ready")] {
        let mut asked = json!({ "path": path, "port": "http-metrics" });
        if name == "tls" {
            asked["scheme"] = json!("HTTPS");
        }
        assert_eq!(container[probe]["httpGet"], asked, "{name}");
    }
    assert!(container["resources"]["requests"]["memory"].is_string() && container["resources"]["limits"]["cpu"].is_null(), "{name}");
    let config = array(&container["volumeMounts"]).iter().find(|mount| mount["mountPath"] == MOUNT).unwrap();
    assert_eq!(config.get("subPath"), None, "{name}: a subPath never sees a new ConfigMap");
}

#[test]
fn the_pod_is_confined_probed_and_reloads_without_a_restart() {
    for made in MADE.iter() {
        for deployment in made.objects("Deployment") {
            let template = &deployment["spec"]["template"];
            is_confined(made.name, &template["spec"], &template["spec"]["containers"][0]);
            let annotations = template["metadata"]["annotations"].to_string();
            assert!(!annotations.contains("checksum"), "{}: a changed configuration would restart the pod", made.name);
        }
        assert_eq!(made.objects("Deployment").is_empty(), made.name == "sidecar");
    }
    let router = json!({ "securityContext": {} });
    is_confined("patch", &router, &documents("deploy/sidecar/patch.yaml")[0]["spec"]["template"]["spec"]["containers"][0]);
    let changed = with(values("full"), &[("config/scrape", json!({ "interval": "10s" }))]);
    let again = &ask(&[json!({ "render": changed, "kubernetes": NEW })])[0];
    let deployment = array(&again["objects"]).iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(deployment, made("full").object("Deployment"));
}

#[test]
fn options_reach_the_pod() {
    let full = made("full");
    let pod = &full.object("Deployment")["spec"]["template"]["spec"];
    for key in ["priorityClassName", "affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "imagePullSecrets"] {
        assert_eq!(pod[key], full.values[key], "{key}");
    }
    let container = &pod["containers"][0];
    assert!(string(&container["image"]).contains("@sha256:"));
    assert_eq!(container["args"], json!(["run", "--config", format!("{MOUNT}/config.yaml"), "--log-format", "json"]));
    assert!(array(&pod["volumes"]).contains(&full.values["extraVolumes"][0]));
}

#[test]
fn a_volume_of_its_own_means_recreate_and_two_replicas_a_disruption_budget() {
    let strategy = |name: &str| made(name).object("Deployment")["spec"]["strategy"]["type"].clone();
    assert_eq!((strategy("full"), strategy("defaults")), (json!("Recreate"), json!("RollingUpdate")));
    assert_eq!(made("two").object("PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
    assert!(made("full").objects("PodDisruptionBudget").is_empty(), "it would block every drain");
    let volumes = |name: &str| array(&made(name).object("Deployment")["spec"]["template"]["spec"]["volumes"]).to_vec();
    assert!(volumes("defaults").contains(&json!({ "name": "state", "emptyDir": {} })));
    assert_eq!(volumes("stateless").len(), 1);
}

#[test]
fn rights_are_given_only_for_discovery_and_only_where_it_looks() {
    for made in MADE.iter().filter(|made| made.name != "discovery" && made.name != "sidecar") {
        assert!(made.objects("Role").is_empty() && made.objects("ServiceAccount").is_empty(), "{}", made.name);
        assert!(made.pods().iter().all(|pod| pod["automountServiceAccountToken"] == false), "{}", made.name);
    }
    let discovery = made("discovery");
    let rights = |role: &&Value| (string(&role["metadata"]["namespace"]).to_owned(), role["rules"].clone());
    let list = |group: &str, resource: &str| json!([{ "apiGroups": [group], "resources": [resource], "verbs": ["list"] }]);
    let expected = BTreeMap::from([("llm".to_owned(), list("discovery.k8s.io", "endpointslices")), ("other".to_owned(), list("", "pods"))]);
    assert_eq!(discovery.objects("Role").iter().map(rights).collect::<BTreeMap<_, _>>(), expected);
    let names: BTreeSet<&str> = discovery.objects("Role").iter().map(|role| string(&role["metadata"]["name"])).collect();
    assert_eq!(names.len(), 2, "elsewhere another installation may have the same name");
    for binding in discovery.objects("RoleBinding") {
        assert!(names.contains(string(&binding["roleRef"]["name"])));
        assert_eq!(binding["subjects"][0]["name"], discovery.object("ServiceAccount")["metadata"]["name"]);
    }
    let pod = &discovery.object("Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], discovery.object("ServiceAccount")["metadata"]["name"]);
    assert_eq!(pod["automountServiceAccountToken"], true);
}

#[test]
fn monitors_find_the_pod_and_depend_on_no_label_of_ours() {
    let (full, sidecar) = (made("full"), made("sidecar"));
    let endpoints =
        [&full.object("ServiceMonitor")["spec"]["endpoints"][0], &sidecar.object("PodMonitor")["spec"]["podMetricsEndpoints"][0]];
    for endpoint in endpoints {
        assert_eq!((endpoint["port"].as_str(), endpoint.get("honorLabels")), (Some("http-metrics"), None));
        assert_eq!(endpoint["relabelings"][0], json!({ "targetLabel": "job", "replacement": "inference-planner-exporter" }));
    }
    let labels = &full.object("Service")["metadata"]["labels"];
    for (key, value) in full.object("ServiceMonitor")["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&labels[key], value);
    }
    let router = &sidecar.values["sidecar"]["podLabels"];
    assert_eq!(&sidecar.object("PodMonitor")["spec"]["selector"]["matchLabels"], router);
    assert_eq!(&sidecar.object("Service")["spec"]["selector"], router);
    assert!(sidecar.objects("Deployment").is_empty() && sidecar.notes().contains("image: \"inference-planner-exporter:"));
    assert_eq!(full.object("ServiceMonitor")["metadata"]["labels"]["release"], "kube-prometheus-stack");
}

#[test]
fn a_port_with_tls_and_a_password_is_read_by_all_that_read_it() {
    let tls = made("tls");
    let endpoint = &tls.object("ServiceMonitor")["spec"]["endpoints"][0];
    let web = &tls.values["web"];
    assert_eq!(
        (&endpoint["scheme"], &endpoint["tlsConfig"], &endpoint["basicAuth"]),
        (&json!("https"), &web["tlsConfig"], &web["basicAuth"])
    );
    let trigger = &tls.object("ScaledObject")["spec"]["triggers"][0];
    assert_eq!((&trigger["metadata"]["authMode"], &trigger["authenticationRef"]["name"]), (&json!("basic,tls"), &json!("planner")));
    assert!(tls.notes().contains("https://127.0.0.1:10877/"));
    let open = &made("full").object("ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!((open.get("scheme"), open.get("tlsConfig"), open.get("basicAuth")), (None, None, None));
}

#[test]
fn the_network_policy_admits_prometheus_and_keda() {
    let ingress = &made("full").object("NetworkPolicy")["spec"]["ingress"][0];
    let admitted: Vec<&Value> =
        array(&ingress["from"]).iter().map(|peer| &peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]).collect();
    assert_eq!(admitted, ["monitoring", "keda"]);
    assert_eq!(ingress["ports"], json!([{ "port": "http-metrics", "protocol": "TCP" }]));
}

#[test]
fn every_pool_is_followed_rightly() {
    for made in MADE.iter() {
        let loaded = made.loaded();
        for object in made.objects("ScaledObject") {
            let place = format!("{}, {}", made.name, string(&object["metadata"]["name"]));
            followers::scales_rightly(&place, object, &loaded, &made.exporter());
            autoscaler::follows(&place, object);
        }
        for object in made.objects("HorizontalPodAutoscaler") {
            followers::proposes_rightly(made.name, object, &loaded, made.kubernetes == NEW);
            autoscaler::follows(made.name, object);
        }
    }
    let number = |name: &str, kind: &str| made(name).objects(kind).len();
    assert_eq!(number("shards", "ScaledObject"), 4, "for the pools of all shards");
    let scaled = ["full", "keda-prometheus", "keda-metrics-api", "zero", "plain-files"].map(|name| number(name, "ScaledObject"));
    assert_eq!(scaled, [2; 5]);
    assert_eq!(["hpa", "hpa-old"].map(|name| number(name, "HorizontalPodAutoscaler")), [2; 2]);
    assert_eq!(["defaults", "shadow"].map(|name| number(name, "ScaledObject")), [0; 2], "shadow is not acted on");
    assert!(made("hpa-old").notes().contains("has no tolerance of an HPA's own"));
    let target = &made("full").objects("ScaledObject")[1]["spec"]["scaleTargetRef"];
    assert_eq!(target["kind"], "LeaderWorkerSet");
}

#[test]
fn alerts_are_the_shipped_ones_and_one_for_each_pool() {
    let rule = made("full").object("PrometheusRule");
    let shipped = documents("alerts/inference-planner.rules.yaml").remove(0);
    let (own, general) = array(&rule["spec"]["groups"]).split_last().unwrap();
    assert_eq!(general, array(&shipped["groups"]));
    let pools: Vec<&Value> = array(&own["rules"]).iter().map(|rule| &rule["labels"]["pool"]).collect();
    assert_eq!(pools, ["qwen3-8b-prefill", "qwen3-8b-decode"]);
    for rule in array(&own["rules"]) {
        assert_eq!(promql::problems(string(&rule["expr"])), Vec::<String>::new());
    }
    let plain = documents("deploy/prometheus-operator/prometheusrule.yaml").remove(0);
    assert_eq!(plain["spec"]["groups"], shipped["groups"], "generated from the rules: write it anew");
}

#[test]
fn runbooks_lead_to_the_copy_of_the_readme_that_is_named() {
    let hint = "give\nprometheusRule.readme the address";
    assert!(made("full").notes().contains(hint), "a relative address leads nowhere from a message");
    let named = with(values("full"), &[("prometheusRule", json!({ "enabled": true, "readme": "https://wiki.example/planner" }))]);
    let answer = &ask(&[json!({ "render": named, "kubernetes": NEW })])[0];
    let rule = array(&answer["objects"]).iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    let alerts = array(&rule["spec"]["groups"]).iter().flat_map(|group| array(&group["rules"])).filter(|rule| rule["alert"].is_string());
    let runbooks: Vec<&str> = alerts.map(|alert| string(&alert["annotations"]["runbook_url"])).collect();
    assert!(
        runbooks.len() > 15 && runbooks.iter().all(|url| url.starts_with("https://wiki.example/planner#inferenceplanner")),
        "{runbooks:?}"
    );
    assert!(!string(&answer["notes"]).contains(hint));
}

/// Prometheus' own tool on a folder with a file of rules and one of tests.
fn promtool(folder: &Path, arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("promtool: {error}; tests/run installs it"));
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_configured_pool_that_is_not_planned_raises_an_alert() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &Value| std::fs::write(folder.path().join(name), content.to_string()).unwrap();
    let spec = &made("full").object("PrometheusRule")["spec"];
    write("rules.yaml", spec);
    let rules = array(&array(&spec["groups"]).last().unwrap()["rules"]);
    let pool = |name: &str, values: &str| json!({ "series": format!("inference_planner_pool_info{{target_namespace=\"llm\",pool=\"{name}\"}}"), "values": values });
    let fires = |at: &str, pools: &[&str]| {
        let expected = rules.iter().filter(|rule| pools.contains(&string(&rule["labels"]["pool"])));
        let alerts = expected.map(|rule| json!({ "exp_labels": rule["labels"], "exp_annotations": rule["annotations"] }));
        json!({ "eval_time": at, "alertname": "InferencePlannerPoolMissing", "exp_alerts": alerts.collect::<Vec<_>>() })
    };
    let scraped = json!({ "series": "inference_planner_build_info", "values": "1x20 stale" });
    write(
        "tests.yaml",
        &json!({ "rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [{ "interval": "1m",
        "input_series": [scraped, pool("qwen3-8b-prefill", "1x20 stale")],
        // Without the exporter another alert speaks.
        "alert_rule_test": [fires("5m", &[]), fires("12m", &["qwen3-8b-decode"]), fires("40m", &[])] }] }),
    );
    promtool(folder.path(), &["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"]);
    promtool(folder.path(), &["test", "rules", "tests.yaml"]);
}

#[test]
fn dashboards_are_the_shipped_ones_and_one_for_each_pool() {
    let full = made("full");
    let shown: Vec<Value> = full
        .objects("ConfigMap")
        .into_iter()
        .filter(|map| map["metadata"]["labels"]["grafana_dashboard"] == "1")
        .map(|map| serde_json::from_str(string(map["data"].as_object().unwrap().values().next().unwrap())).unwrap())
        .collect();
    let shipped =
        ["overview", "model", "exporter"].map(|name| -> Value { serde_json::from_str(&text(&format!("dashboards/{name}.json"))).unwrap() });
    assert_eq!((shown.len(), &shown[..3]), (5, &shipped[..]));
    let uids: BTreeSet<&str> = shown.iter().map(|dashboard| string(&dashboard["uid"])).collect();
    assert!(uids.len() == 5 && uids.iter().all(|uid| uid.len() <= 40), "{uids:?}");
    for dashboard in &shown[3..] {
        assert_eq!(dashboard["panels"], shipped[0]["panels"]);
        let variables = array(&dashboard["templating"]["list"]);
        let fixed = variables.iter().filter(|variable| variable["type"] == "constant" && variable["query"] == variable["current"]["value"]);
        assert_eq!(fixed.map(|variable| string(&variable["name"])).collect::<Vec<_>>(), ["target_namespace", "model", "pool"]);
    }
}

#[test]
fn wrong_values_are_refused_with_their_place() {
    let nameless = json!([{ "name": "*", "pools": [{ "name": "one", "role": "aggregated", "max_replicas": 2 }] }]);
    let cases = [
        (json!({ "servcie": {} }), "additional properties 'servcie' not allowed"),
        (json!({ "autoscaling": { "type": "keda" } }), "at '/autoscaling/type': value must be one of"),
        (json!({ "autoscaling": { "fallback": { "replicas": 0 } } }), "at '/autoscaling/fallback/replicas': minimum: got 0, want 1"),
        (json!({ "config": { "models": [] } }), "at '/config/models': minItems"),
        (json!({ "config": { "models": [{ "pools": [{ "name": "a/b", "role": "decode", "max_replicas": 2 }] }] } }), "/pools/0/name'"),
        (json!({ "replicas": "1" }), "at '/replicas': got string, want integer"),
        (json!({ "image": { "digest": "latest" } }), "at '/image/digest'"),
        (json!({ "state": { "kind": "hostPath" } }), "at '/state/kind'"),
        (json!({ "replicas": 2, "state": { "kind": "persistentVolumeClaim" } }), "one pod at a time may have the volume"),
        (json!({ "autoscaling": { "type": "hpa", "pools": { "decod": {} } } }), "config.models has no pool of that name"),
        (with(values("full"), &[("autoscaling/pools/qwen3-8b-decode/podSelector", json!(""))]), "qwen3-8b-decode.podSelector"),
        (with(values("zero"), &[("autoscaling/pools/qwen3-8b-decode/demandQuery", json!(""))]), "0 needs a demandQuery"),
        (with(values("full"), &[("autoscaling/pools/qwen3-8b-decode/maxReplicaCount", json!(2))]), "below the pool's max_replicas"),
        (with(values("full"), &[("replicas", json!(2)), ("state", json!({ "kind": "emptyDir" }))]), "use keda-prometheus"),
        (with(values("full"), &[("shards", json!(2))]), "answer from any of 2 shards"),
        (
            json!({ "shards": 2, "state": { "kind": "persistentVolumeClaim", "existingClaim": "c" } }),
            "each shard needs a volume of its own",
        ),
        (json!({ "shards": 2, "config": { "models": nameless } }), "expected models with names"),
        (with(values("sidecar"), &[("shards", json!(2))]), "a sidecar of the only router plans all of its models"),
        (json!({ "shards": 0 }), "at '/shards': minimum: got 0, want 1"),
        (json!({ "networkPolicy": { "enabled": true, "namespaces": [] } }), "an empty list of peers lets everybody in"),
        (json!({ "serviceMonitor": { "enabled": true }, "podMonitor": { "enabled": true } }), "every sample would be there twice"),
        (json!({ "workload": "sidecar" }), "sidecar.podLabels"),
        (json!({ "service": { "port": 80 }, "config": { "server": { "listen": "0.0.0.0:10877" } } }), "another port than service.port"),
    ];
    let requests: Vec<Value> = cases.iter().map(|(values, _)| json!({ "render": values, "kubernetes": NEW })).collect();
    for ((values, expected), answer) in cases.iter().zip(ask(&requests)) {
        let refused = answer["refused"].as_str().unwrap_or_else(|| panic!("{values} was taken"));
        assert!(refused.contains(expected), "{values}: expected {expected:?} in: {refused}");
    }
}

#[test]
fn the_values_in_the_readme_render_and_are_followed() {
    let readme = text("README.md");
    let block = readme.split_once("# planner.yaml\n").unwrap().1.split_once("```").unwrap().0;
    let values: Value = serde_saphyr::from_str(block).unwrap();
    let values = with(values, &[("files", json!({ "profile.json": text("deploy/example/profile.json") }))]);
    let answer = ask(&[json!({ "render": values, "kubernetes": NEW })]).remove(0);
    let made = Made { name: "README", values, kubernetes: NEW, answer };
    assert_eq!((&made.answer["lint"], &made.answer["problems"]), (&json!([]), &json!([])), "{:?}", made.answer["refused"]);
    let loaded = made.loaded();
    for object in made.objects("ScaledObject") {
        followers::scales_rightly(made.name, object, &loaded, &made.exporter());
    }
    assert_eq!(made.objects("ScaledObject").len(), 2);
}
