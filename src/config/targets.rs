//! Where do a source's targets come from, and how are they asked? One `targets` section: written down or found, and the settings of each request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::access::{self, AccessConfig, Need, Needed};
use super::check::Values;
use super::resolve::path;
use super::{QueryConfig, TargetConfig, query, scalar};

/// The ways to find targets, with how often each is asked where nobody says so. The numbers are Prometheus', save for what costs nothing to
/// ask more often: a look at a file, and a list that the API server holds in memory.
const WAYS: [(&str, Duration); 5] = [
    ("dns", Duration::from_secs(30)),
    ("srv", Duration::from_secs(30)),
    ("file_sd", Duration::from_secs(5)),
    ("http_sd", Duration::from_secs(60)),
    ("kubernetes", Duration::from_secs(5)),
];

/// Where Kubernetes puts what a pod needs to speak to its API server.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The API server, as every pod can reach it.
const API_SERVER: &str = "https://kubernetes.default.svc";

/// How targets are found, and which of what is found counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiscoveryConfig {
    /// Who is asked.
    pub way: Way,
    /// Time between two looks; not zero.
    pub refresh: Duration,
    /// `http` or `https`, where what is found does not say (`__scheme__`).
    pub scheme: String,
    /// The page, where what is found does not say (`__metrics_path__`). Begins with `/`.
    pub path: String,
    /// Labels and the patterns that each must match as a whole.
    pub keep: BTreeMap<String, String>,
    /// Labels and patterns of which none may match as a whole.
    pub drop: BTreeMap<String, String>,
}

/// Who is asked for targets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Every address of a host name is a target.
    Dns {
        /// The name.
        host: String,
        /// The port of every target.
        port: u16,
        /// Who is asked; `None` is the system's resolver.
        nameserver: Option<SocketAddr>,
    },
    /// Every SRV record is a target.
    Srv {
        /// The records' name.
        name: String,
        /// Who is asked; `None` is the one in `/etc/resolv.conf`.
        nameserver: Option<SocketAddr>,
    },
    /// Prometheus' target files.
    File {
        /// The file; a `*` in its name stands for anything.
        pattern: PathBuf,
    },
    /// Prometheus' HTTP discovery.
    Http {
        /// The URL, without credentials in front of its host.
        url: String,
    },
    /// The API of Kubernetes.
    Kubernetes(KubernetesConfig),
}

/// Which pods are targets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KubernetesConfig {
    /// Their namespace.
    pub namespace: String,
    /// Which ones.
    pub pods: PodChoice,
    /// Which port of them; a name or a number. `None` takes the only one.
    pub port: Option<String>,
    /// The API server's URL.
    pub api_server: String,
    /// The credentials and the authority for it.
    pub access: Arc<AccessConfig>,
}

/// How pods are chosen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodChoice {
    /// The ready endpoints of a Service, read from its EndpointSlices.
    Service(String),
    /// The ready pods that a label selector matches.
    Selector(String),
}

/// A `targets` section. `None` for a part of it that has a problem.
pub(super) struct TargetsDraft {
    /// The targets written down.
    pub targets: Vec<TargetConfig>,
    pub discovery: Option<DiscoveryConfig>,
    pub query: Option<QueryConfig>,
    pub access: Arc<AccessConfig>,
    /// The files that it names.
    pub needed: Vec<Needed>,
}

impl TargetsDraft {
    /// Whether the source has anything to scrape, now or later.
    pub(super) fn is_source(&self) -> bool {
        !self.targets.is_empty() || self.discovery.is_some() || self.query.is_some()
    }
}

/// Whether the section at `at` says where targets come from, rightly or wrongly.
pub(super) fn is_written(values: &Values, at: &str) -> bool {
    ["static", query::KEY].into_iter().chain(WAYS.map(|(name, _)| name)).any(|way| values.is_written(&format!("{at}.{way}")))
}

/// Reads the section at `at`.
pub(super) fn read(values: &mut Values, at: &str, folder: &Path, own_namespace: &str) -> TargetsDraft {
    if values.is_wrong(at) {
        // Nothing below it was read: nothing is to be said of it.
        return TargetsDraft { targets: Vec::new(), discovery: None, query: None, access: Arc::default(), needed: Vec::new() };
    }
    let key = |name: &str| format!("{at}.{name}");
    let ways = WAYS.iter().map(|(name, _)| *name).chain([query::KEY]);
    let written: Vec<&str> = ways.filter(|name| values.is_written(&key(name))).collect();
    let fixed = values.is_written(&key("static"));
    if let Some(second) = written.get(usize::from(!fixed)) {
        let first = if fixed { "static" } else { written[0] };
        values.problem(&key(second), format!("expected one way to find targets, got {first} and {second}; keep one"));
    }
    let mut needed = Vec::new();
    let access = access::read(values, at, folder, &mut needed);
    let targets = written_down(values, &key("static"));
    let Some(&way) = written.first() else {
        if is_written(values, at) {
            refuse_rules_of_found(values, at, "with static, leave it out and write whole URLs");
        }
        return TargetsDraft { targets, discovery: None, query: None, access, needed };
    };
    if way == query::KEY {
        refuse_rules_of_found(values, at, "with prometheus, leave it out and choose by its selector");
        return TargetsDraft { targets, discovery: None, query: query::read(values, &key(query::KEY)), access, needed };
    }
    let discovery = discovery(values, at, way, folder, own_namespace, &mut needed);
    TargetsDraft { targets, discovery, query: None, access, needed }
}

fn refuse_rules_of_found(values: &mut Values, at: &str, instead: &str) {
    for name in ["scheme", "path", "refresh_interval", "nameserver", "keep", "drop"] {
        let key = format!("{at}.{name}");
        if values.is_written(&key) {
            values.problem(&key, format!("belongs to targets that are found; {instead}"));
        }
    }
}

fn discovery(
    values: &mut Values,
    at: &str,
    way: &str,
    folder: &Path,
    own_namespace: &str,
    needed: &mut Vec<Needed>,
) -> Option<DiscoveryConfig> {
    let key = |name: &str| format!("{at}.{name}");
    let nameserver = values.address(&key("nameserver"));
    if !matches!(way, "dns" | "srv") && values.is_written(&key("nameserver")) {
        values.problem(&key("nameserver"), format!("belongs to dns and srv, not to {way}; leave it out"));
    }
    let default = WAYS.iter().find(|(name, _)| *name == way).map(|(_, refresh)| *refresh);
    let refresh = values.span(&key("refresh_interval")).or(default);
    let scheme = values.text(&key("scheme"));
    let page = values.text(&key("path"));
    // A path is what makes a target of an address.
    let is_path = |page: &str| page.starts_with('/') && found_target("http", "h:1", page).is_ok();
    if let Some(page) = page.as_deref().filter(|page| !is_path(page)).map(scalar::hide_secrets) {
        values.problem(&key("path"), format!("expected a path such as /metrics, got {page:?}"));
    }
    let (keep, drop) = (patterns(values, &key("keep")), patterns(values, &key("drop")));
    let found = match way {
        "dns" => host_and_port(values, &key("dns")).map(|(host, port)| Way::Dns { host, port, nameserver }),
        "srv" => values.text(&key("srv")).map(|name| Way::Srv { name, nameserver }),
        "file_sd" => file(values, &key("file_sd"), folder, needed),
        "http_sd" => values.text(&key("http_sd")).map(|url| Way::Http { url }),
        _ => kubernetes(values, &key("kubernetes"), folder, own_namespace, needed).map(Way::Kubernetes),
    };
    Some(DiscoveryConfig { way: found?, refresh: refresh?, scheme: scheme?, path: page?, keep, drop })
}

/// Checked text becomes a target; the way in for what is found. `scheme` and `path` as in [`DiscoveryConfig`].
pub fn found_target(scheme: &str, address: &str, path: &str) -> Result<TargetConfig, String> {
    if address.is_empty() || address.contains(['/', '?', '#', '@']) {
        return Err(format!("expected an address such as 10.0.0.11:8000, got {:?}", scalar::hide_userinfo(address)));
    }
    scalar::target(&format!("{scheme}://{address}{path}"))
}

fn written_down(values: &mut Values, at: &str) -> Vec<TargetConfig> {
    let mut targets: Vec<TargetConfig> = Vec::new();
    for index in 0..values.len(at) {
        let at = format!("{at}[{index}]");
        let Some(target) = values.target(&at) else { continue };
        if targets.iter().any(|known| known.target == target.target) {
            values.problem(&at, format!("target {} is listed twice; keep one", target.target));
        } else {
            targets.push(target);
        }
    }
    targets.sort();
    targets
}

fn patterns(values: &mut Values, at: &str) -> BTreeMap<String, String> {
    let map = values.map(at);
    for (label, pattern) in &map {
        // Alone first: `a)|(b` is sound only inside our brackets, and would escape them.
        let sound = regex_lite::Regex::new(pattern).and_then(|_| regex_lite::Regex::new(&whole(pattern)));
        if let Err(error) = sound {
            values.problem(at, format!("expected a regular expression for label {label}, got {pattern:?}: {error}"));
        }
    }
    map
}

/// The pattern that matches a whole text, as Prometheus reads it.
pub fn whole(pattern: &str) -> String {
    format!("^(?:{pattern})$")
}

fn host_and_port(values: &mut Values, at: &str) -> Option<(String, u16)> {
    let text = values.text(at)?;
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok().filter(|port| *port > 0)?)));
    match parts.filter(|(host, _)| !host.is_empty() && !host.contains([':', '/', '@']) && !host.contains(char::is_whitespace)) {
        Some((host, port)) => Some((host.to_owned(), port)),
        None => {
            let text = scalar::hide_userinfo(&text);
            values.problem(at, format!("expected a host name and a port such as qwen3-decode.llm.svc:8000, got {text:?}"));
            None
        }
    }
}

fn file(values: &mut Values, at: &str, folder: &Path, needed: &mut Vec<Needed>) -> Option<Way> {
    let pattern = path(values, at, folder)?;
    let name = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stars = |text: &str| text.matches('*').count();
    let elsewhere = pattern.parent().map_or(0, |folder| stars(&folder.to_string_lossy()));
    if stars(&name) > 1 || elsewhere > 0 {
        values.problem(at, format!("expected at most one *, in the file's name, got {:?}", pattern.display().to_string()));
    }
    if ![".json", ".yaml", ".yml"].iter().any(|ending| name.ends_with(ending)) {
        values.problem(at, format!("expected a file name that ends in .json, .yaml or .yml, got {name:?}"));
    }
    // Of a pattern only the folder is known to be needed.
    let (path, need) = match stars(&name) {
        0 => (pattern.clone(), Need::Targets),
        _ => (pattern.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned(), Need::Folder),
    };
    needed.push(Needed { key: at.to_owned(), path, need });
    Some(Way::File { pattern })
}

fn kubernetes(values: &mut Values, at: &str, folder: &Path, own_namespace: &str, needed: &mut Vec<Needed>) -> Option<KubernetesConfig> {
    let key = |name: &str| format!("{at}.{name}");
    if !cfg!(feature = "kubernetes") {
        values.problem(at, "this program was built without the feature kubernetes; build it with --features kubernetes, or use dns or srv");
    }
    let (service, selector) = (values.text(&key("service")), values.text(&key("selector")));
    let pods = match (service, selector) {
        (Some(service), None) => Some(PodChoice::Service(service)),
        (None, Some(selector)) => Some(PodChoice::Selector(selector)),
        (Some(_), Some(_)) => {
            values.problem(&key("selector"), "expected service or selector, got both; keep one");
            None
        }
        (None, None) if values.is_wrong(&key("service")) || values.is_wrong(&key("selector")) => None,
        (None, None) => {
            values.problem(at, "expected service (the name of a Service) or selector (labels of the pods), got neither");
            None
        }
    };
    let own = |name: &str| Path::new(SERVICE_ACCOUNT).join(name);
    let (token, ca) = (path(values, &key("bearer_token_file"), folder), path(values, &key("ca_file"), folder));
    // Those of the service account are where the exporter runs, and not where it is checked: only what is written is asked for.
    for (name, path, need) in [("bearer_token_file", &token, Need::Token), ("ca_file", &ca, Need::Authorities)] {
        needed.extend(path.clone().map(|path| Needed { key: key(name), path, need }));
    }
    let api_server = values.text(&key("api_server")).unwrap_or_else(|| API_SERVER.to_owned());
    // The service account's token goes over no open line, such as that of `kubectl proxy`, unless it is written.
    let secure = api_server.to_ascii_lowercase().starts_with("https:");
    let access = AccessConfig {
        bearer_token_file: token.or_else(|| secure.then(|| own("token"))),
        ca_file: ca.or_else(|| secure.then(|| own("ca.crt"))),
        ..AccessConfig::default()
    };
    Some(KubernetesConfig {
        namespace: values.text(&key("namespace")).unwrap_or_else(|| own_namespace.to_owned()),
        pods: pods?,
        port: values.text(&key("port")),
        api_server: api_server.trim_end_matches('/').to_owned(),
        access: Arc::new(access),
    })
}
