//! Which pods are ready? A list from the API server, of a Service's EndpointSlices or of the pods that a selector matches.
//!
//! The list is asked for again and again instead of being watched. A round takes the list that is there when it begins, so that a watch would
//! tell the planner nothing earlier than a list that is asked for as often as targets are scraped; and bookmarks, expired versions and
//! dropped streams, which are where watches go wrong, do not exist here. `resourceVersion=0` lets the API server answer from its memory.
//! Cost: the slices of 100 pods are about 30 kB; pods are some kB each, so a Service is the better way to name a large pool.
//!
//! Only replicas that are ready are targets: one that still loads must not enter an average, and one that ends is no capacity. Both are
//! counted. A pod with two families of addresses is one server: IPv4 where there is any.
//!
//! Generations. A workload whose template changed replaces its pods one by one; its old and its new ones differ in a hash, which a label holds
//! and a Deployment also writes into the name (`decode-7d4b9c6f5-x2x9k`). Slices know names only. Two workloads behind one selector are two
//! workloads and not two generations. Slices do not list a pod before it has an address: what they show is not all that was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use super::http::fetch;
use super::sieve::{Found, Sieve};
use super::{Looked, Tools};
use crate::config::{KubernetesConfig, PodChoice};
use crate::planner::input::Lifecycle;

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
        let (mut known, complete) = match &self.config.pods {
            PodChoice::Service(service) => {
                let path = format!("apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
                let slices: List<Slice> = self.list(&path, &format!("kubernetes.io/service-name={service}")).await?;
                (endpoints(&slices.items, service, port.as_deref())?, false)
            }
            PodChoice::Selector(selector) => {
                let pods: List<Pod> = self.list(&format!("api/v1/namespaces/{namespace}/pods"), selector).await?;
                (pods_of(&pods.items, port.as_deref())?, true)
            }
        };
        for replica in &mut known {
            replica.found.labels.insert("__meta_kubernetes_namespace".to_owned(), namespace.clone());
        }
        // What is kept and dropped holds for replicas of every state: those that start in another pool are not ours.
        known.retain(|replica| sieve.takes(&replica.found));
        let replicas = Lifecycle { complete, ..lifecycle(&known) };
        let ready = known.into_iter().filter(|replica| replica.state == State::Ready);
        Ok(Looked { replicas: Some(replicas), ..sieve.sift(ready.map(|replica| replica.found))? })
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
    #[serde(default)]
    owner_references: Vec<Reference>,
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

/// One replica as the API server knows it.
#[derive(Debug)]
struct Replica {
    state: State,
    found: Found,
    /// Its workload and which generation of it, where they can be told.
    generation: Option<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Starting,
    Terminating,
}

impl State {
    fn of(ready: bool, terminating: bool) -> Self {
        match (terminating, ready) {
            (true, _) => Self::Terminating,
            (false, true) => Self::Ready,
            (false, false) => Self::Starting,
        }
    }
}

fn endpoints(slices: &[Slice], service: &str, port: Option<&str>) -> Result<Vec<Replica>, String> {
    let has = |family: &str| slices.iter().any(|slice| slice.address_type == family && slice.endpoints.iter().flatten().next().is_some());
    let family = if has("IPv4") || !has("IPv6") { "IPv4" } else { "IPv6" };
    // While endpoints move from one slice to another they stand in both.
    let mut known: BTreeMap<&str, Replica> = BTreeMap::new();
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
            // Unknown is ready, says the API.
            let state = State::of(endpoint.conditions.ready != Some(false), endpoint.conditions.terminating == Some(true));
            if known.get(address.as_str()).is_none_or(|known| known.state != State::Ready) {
                let found = Found { address: place(address, port), labels };
                known.insert(address, Replica { state, found, generation: generation_in_name(name) });
            }
        }
    }
    Ok(known.into_values().collect())
}

fn pods_of(pods: &[Pod], port: Option<&str>) -> Result<Vec<Replica>, String> {
    let mut known = Vec::new();
    for pod in pods.iter().filter(|pod| !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")) {
        let is_ready = pod.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True");
        let state = State::of(is_ready && !pod.status.pod_ip.is_empty(), pod.metadata.deletion_timestamp.is_some());
        let labels = pod.metadata.labels.iter().map(|(name, value)| (label_name(name), value.clone())).collect();
        let mut found = Found { address: String::new(), labels };
        found.labels.insert("__meta_kubernetes_pod_name".to_owned(), pod.metadata.name.clone());
        if state == State::Ready {
            let declared: Vec<(&str, u16)> = pod
                .spec
                .containers
                .iter()
                .flat_map(|container| &container.ports)
                .map(|port| (port.name.as_str(), port.container_port))
                .collect();
            found.address = place(&pod.status.pod_ip, choose(port, &declared, &format!("pod {}", pod.metadata.name))?);
        }
        known.push(Replica { state, found, generation: generation_of(&pod.metadata) });
    }
    Ok(known)
}

/// How many there are of each state, and of how many generations those are that stay.
fn lifecycle(known: &[Replica]) -> Lifecycle {
    let count = |state| u32::try_from(known.iter().filter(|replica| replica.state == state).count()).unwrap_or(u32::MAX);
    let mut generations: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let staying = known.iter().filter(|replica| replica.state != State::Terminating);
    for (workload, generation) in staying.filter_map(|replica| replica.generation.as_ref()) {
        generations.entry(workload).or_default().insert(generation);
    }
    let most = generations.values().map(BTreeSet::len).max().unwrap_or_default();
    Lifecycle {
        ready: count(State::Ready),
        starting: count(State::Starting),
        terminating: count(State::Terminating),
        generations: u32::try_from(most).unwrap_or(u32::MAX),
        complete: false,
    }
}

/// The labels in which controllers write the generation of a pod's template: Deployments; StatefulSets and DaemonSets.
const GENERATION_LABELS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

fn generation_of(pod: &Metadata) -> Option<(String, String)> {
    let hash = GENERATION_LABELS.iter().find_map(|label| pod.labels.get(*label))?;
    // A Deployment owns its pods through a ReplicaSet of each generation, which is called after it and the hash.
    let owner = pod.owner_references.first().map_or("", |owner| owner.name.as_str());
    let workload = owner.strip_suffix(hash.as_str()).map_or(owner, |stem| stem.trim_end_matches('-'));
    Some((workload.to_owned(), hash.clone()))
}

/// The letters of hashes and suffixes in the names of a Deployment's pods.
const NAME_LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

/// The Deployment and the hash in a pod's name; `None` where the name has another shape.
fn generation_in_name(name: &str) -> Option<(String, String)> {
    let is_word = |word: &str| word.chars().all(|letter| NAME_LETTERS.contains(letter));
    let (rest, suffix) = name.rsplit_once('-')?;
    let (workload, hash) = rest.rsplit_once('-')?;
    let fits = suffix.len() == 5 && (6..=10).contains(&hash.len()) && is_word(suffix) && is_word(hash);
    fits.then(|| (workload.to_owned(), hash.to_owned()))
}

fn place(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// As Prometheus names them.
fn label_name(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("__meta_kubernetes_pod_label_{clean}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deployments_generation_stands_in_the_names_of_its_pods_and_in_no_other_names() {
        let told = |name: &str| generation_in_name(name).map(|(workload, hash)| format!("{workload} {hash}"));
        assert_eq!(told("qwen3-decode-7d4b9c6f5-x2x9k").as_deref(), Some("qwen3-decode 7d4b9c6f5"));
        for other in ["decode-0", "decode", "", "qwen3-prefill-decode", "p-10.0.0.1", "decode-7d4b9c6f5-x2x9"] {
            assert_eq!(told(other), None, "{other}");
        }
    }

    #[test]
    fn two_generations_of_one_workload_are_a_rollout_and_two_workloads_are_none() {
        let replica = |state, workload: &str, hash: &str| Replica {
            state,
            found: Found::default(),
            generation: Some((workload.to_owned(), hash.to_owned())),
        };
        let old = replica(State::Ready, "decode", "a");
        assert_eq!(lifecycle(&[replica(State::Starting, "decode", "b"), replica(State::Ready, "other", "a")]).generations, 1);
        assert_eq!(lifecycle(&[old, replica(State::Starting, "decode", "b")]).generations, 2);
        let ends = [replica(State::Terminating, "decode", "a"), replica(State::Ready, "decode", "b")];
        assert_eq!(lifecycle(&ends), Lifecycle { ready: 1, terminating: 1, generations: 1, ..Lifecycle::default() });
    }

    #[test]
    fn the_labels_of_controllers_tell_the_generation() {
        let pod = |label: &str, hash: &str, owner: &str| Metadata {
            name: "p".to_owned(),
            labels: BTreeMap::from([(label.to_owned(), hash.to_owned())]),
            deletion_timestamp: None,
            owner_references: vec![Reference { name: owner.to_owned() }],
        };
        let told = |pod: &Metadata| generation_of(pod).map(|(workload, hash)| format!("{workload} {hash}"));
        assert_eq!(told(&pod("pod-template-hash", "7d4b9", "decode-7d4b9")).as_deref(), Some("decode 7d4b9"));
        assert_eq!(told(&pod("controller-revision-hash", "decode-5f6", "decode")).as_deref(), Some("decode decode-5f6"));
        assert_eq!(told(&pod("app", "x", "decode")), None);
    }
}
