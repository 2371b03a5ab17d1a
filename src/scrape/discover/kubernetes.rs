//! Which pods are ready? A list from the API server, of a Service's EndpointSlices or of the pods that a selector matches.
//!
//! The list is asked for again and again instead of being watched. A round takes the list that is there when it begins, so that a watch would
//! tell the planner nothing earlier than a list that is asked for as often as targets are scraped; and bookmarks, expired versions and
//! dropped streams, which are where watches go wrong, do not exist here. `resourceVersion=0` lets the API server answer from its memory.
//! Cost: the slices of 100 pods are about 30 kB; pods are some kB each, so a Service is the better way to name a large pool.
//!
//! Only replicas that are ready are targets: one that still loads must not enter an average, and one that ends is no capacity. Both are
//! counted. A pod with two families of addresses is one server: IPv4 where there is any.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use super::http::fetch;
use super::sieve::{Found, Sieve};
use super::{Looked, ReplicaStates, Tools};
use crate::config::{KubernetesConfig, PodChoice};

/// The pods of one source.
#[derive(Debug)]
pub(super) struct Pods {
    config: KubernetesConfig,
    tools: Arc<Tools>,
}

/// What helps where the API's answer is too long.
const NARROWER: &str = "the pods of a narrower kubernetes.selector, or of a kubernetes.service";

impl Pods {
    pub(super) fn new(config: KubernetesConfig, tools: Arc<Tools>) -> Self {
        Self { config, tools }
    }

    pub(super) async fn look(&self, sieve: &Arc<Sieve>) -> Result<Looked, String> {
        let KubernetesConfig { namespace, port, .. } = &self.config;
        let (found, replicas) = match &self.config.pods {
            PodChoice::Service(service) => {
                let path = format!("apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
                let slices: List<Slice> = self.list(&path, &format!("kubernetes.io/service-name={service}")).await?;
                endpoints(&slices.items, service, port.as_deref())?
            }
            PodChoice::Selector(selector) => {
                let pods: List<Pod> = self.list(&format!("api/v1/namespaces/{namespace}/pods"), selector).await?;
                pods_of(&pods.items, port.as_deref())?
            }
        };
        let label = |mut place: Found| {
            place.labels.insert("__meta_kubernetes_namespace".to_owned(), namespace.clone());
            place
        };
        Ok(Looked { replicas: Some(replicas), ..sieve.sift(found.into_iter().map(label))? })
    }

    async fn list<T: for<'a> Deserialize<'a>>(&self, path: &str, selector: &str) -> Result<List<T>, String> {
        let base = format!("{}/{path}", self.config.api_server);
        let url = Url::parse_with_params(&base, [("labelSelector", selector), ("resourceVersion", "0")]);
        let url = url.map_err(|error| format!("the API server's URL cannot be used: {error}"))?;
        let bytes = fetch(&self.tools, url.as_str(), &self.config.access, &HeaderMap::new(), NARROWER).await.map_err(|message| {
            let missing = format!("; the service account needs the right to list {}", path.rsplit('/').next().unwrap_or_default());
            let hint = if message.starts_with("status 403") || message.starts_with("status 401") { missing.as_str() } else { "" };
            format!("{message}{hint}")
        })?;
        serde_json::from_slice(&bytes).map_err(|error| format!("expected a list from the API server, got something else: {error}"))
    }
}

#[derive(Debug, Deserialize)]
struct List<T> {
    items: Vec<T>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Slice {
    #[serde(default)]
    address_type: String,
    #[serde(default)]
    ports: Option<Vec<SlicePort>>,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
}

#[derive(Debug, Deserialize)]
struct SlicePort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    addresses: Vec<String>,
    #[serde(default)]
    conditions: EndpointConditions,
    #[serde(default)]
    target_ref: Option<Reference>,
}

#[derive(Debug, Default, Deserialize)]
struct EndpointConditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Reference {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Debug, Deserialize)]
struct Container {
    #[serde(default)]
    ports: Vec<ContainerPort>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    #[serde(default)]
    name: String,
    container_port: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: String,
    #[serde(default, rename = "podIP")]
    pod_ip: String,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// The port that is meant among those that are declared, by name and number. A number that is written needs no declaration.
fn choose(wanted: Option<&str>, declared: &[(&str, u16)], whose: &str) -> Result<u16, String> {
    if let Some(number) = wanted.and_then(|wanted| wanted.parse().ok()) {
        return Ok(number);
    }
    match (wanted, declared) {
        (None, [(_, only)]) => Ok(*only),
        (None, _) => Err(format!("{whose} declares {} ports; write kubernetes.port", declared.len())),
        (Some(name), _) => match declared.iter().find(|(known, _)| *known == name) {
            Some((_, port)) => Ok(*port),
            None => Err(format!("{whose} has no port named {name}")),
        },
    }
}

fn endpoints(slices: &[Slice], service: &str, port: Option<&str>) -> Result<(Vec<Found>, ReplicaStates), String> {
    let has = |family: &str| slices.iter().any(|slice| slice.address_type == family && slice.endpoints.iter().flatten().next().is_some());
    let family = if has("IPv4") || !has("IPv6") { "IPv4" } else { "IPv6" };
    // While endpoints move from one slice to another they stand in both.
    let mut known: BTreeMap<&str, (bool, bool, Found)> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.address_type == family) {
        let declared: Vec<(&str, u16)> =
            slice.ports.iter().flatten().filter_map(|port| Some((port.name.as_deref().unwrap_or_default(), port.port?))).collect();
        for endpoint in slice.endpoints.iter().flatten() {
            // The addresses of one endpoint are interchangeable.
            let Some(address) = endpoint.addresses.first() else { continue };
            let port = choose(port, &declared, &format!("the service {service}"))?;
            let name = endpoint.target_ref.as_ref().map_or("", |target| target.name.as_str());
            let labels = [("__meta_kubernetes_service_name", service), ("__meta_kubernetes_pod_name", name)];
            let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let terminating = endpoint.conditions.terminating == Some(true);
            // Unknown is ready, says the API.
            let ready = endpoint.conditions.ready != Some(false) && !terminating;
            let found = Found { address: place(address, port), labels };
            match known.get(address.as_str()) {
                Some((true, ..)) => {}
                _ => drop(known.insert(address, (ready, terminating, found))),
            }
        }
    }
    Ok(split(known.into_values()))
}

fn pods_of(pods: &[Pod], port: Option<&str>) -> Result<(Vec<Found>, ReplicaStates), String> {
    let mut known = Vec::new();
    for pod in pods.iter().filter(|pod| !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")) {
        let terminating = pod.metadata.deletion_timestamp.is_some();
        let is_ready = pod.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True");
        let ready = is_ready && !terminating && !pod.status.pod_ip.is_empty();
        let mut found = Found::default();
        if ready {
            let declared: Vec<(&str, u16)> = pod
                .spec
                .containers
                .iter()
                .flat_map(|container| &container.ports)
                .map(|port| (port.name.as_str(), port.container_port))
                .collect();
            found.address = place(&pod.status.pod_ip, choose(port, &declared, &format!("pod {}", pod.metadata.name))?);
            found.labels = pod.metadata.labels.iter().map(|(name, value)| (label_name(name), value.clone())).collect();
            found.labels.insert("__meta_kubernetes_pod_name".to_owned(), pod.metadata.name.clone());
        }
        known.push((ready, terminating, found));
    }
    Ok(split(known))
}

/// The ready ones, and how many there are of each state.
fn split(known: impl IntoIterator<Item = (bool, bool, Found)>) -> (Vec<Found>, ReplicaStates) {
    let (mut found, mut states) = (Vec::new(), ReplicaStates::default());
    for (ready, terminating, place) in known {
        match (ready, terminating) {
            (true, _) => {
                states.ready += 1;
                found.push(place);
            }
            (false, true) => states.terminating += 1,
            (false, false) => states.starting += 1,
        }
    }
    (found, states)
}

fn place(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// As Prometheus names them.
fn label_name(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("__meta_kubernetes_pod_label_{clean}")
}
