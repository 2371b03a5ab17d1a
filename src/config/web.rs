//! Who may read us, and over what? The file of TLS and passwords in the format of Prometheus' `--web.config.file`, checked.
//!
//! It is apart from the configuration, as Prometheus has it: the same file serves several programs, and only a process that listens needs it.

pub(super) mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::check::Values;
use super::layers;
use super::problem::{self, Problem};
use super::schema::WEB_KEYS;
use super::tree::{self, Node, SourceText, Value};
use tls::TlsDraft;

/// The headers that Prometheus' format lets be set.
const HEADERS: [&str; 5] =
    ["Content-Security-Policy", "Strict-Transport-Security", "X-Content-Type-Options", "X-Frame-Options", "X-XSS-Protection"];
/// The costliest hash that is taken: one check of cost 16 takes about four seconds of a processor.
const MOST_COST: u32 = 16;

/// How others may read us. The default is everybody, in clear text.
#[derive(Clone, Default)]
pub struct WebConfig {
    /// With it the port speaks TLS. No client certificate is mandatory in the handshake: see `needs_certificate`.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether those who have shown no certificate get nothing but the health pages.
    pub needs_certificate: bool,
    /// Hashes of passwords by bcrypt, by user. Empty asks nobody.
    pub users: BTreeMap<String, String>,
    /// Headers of every answer.
    pub headers: BTreeMap<String, String>,
    /// The files that all this was read from.
    pub files: Vec<PathBuf>,
}

impl fmt::Debug for WebConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebConfig")
            .field("tls", &self.tls.is_some())
            .field("needs_certificate", &self.needs_certificate)
            .field("users", &self.users.keys())
            .field("headers", &self.headers.keys())
            .field("files", &self.files)
            .finish()
    }
}

/// The file of TLS and passwords that waits for the certificates and keys which it names.
pub struct WebDraft {
    path: PathBuf,
    values: Values,
    tls: Option<TlsDraft>,
    users: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    problems: Vec<Problem>,
}

/// Reads the file of TLS and passwords: YAML, whatever its name. Problems wait in the draft.
pub fn read_web(source: &SourceText) -> WebDraft {
    let (root, mut problems) = tree::read_as_yaml(source);
    // An empty file asks for nothing, in Prometheus as well.
    let root = root.unwrap_or(Node { value: Value::Null, at: None });
    if !matches!(root.value, Value::Map(_) | Value::Null) {
        problems.push(Problem::syntax(&source.path, root.at, "expected keys such as tls_server_config at the top".to_owned()));
    }
    let keys = if matches!(root.value, Value::Map(_)) { root } else { Node { value: Value::Map(Vec::new()), at: None } };
    let mut values = Values::of_file(WEB_KEYS, &layers::layered(WEB_KEYS, &keys, ""), &source.path, &keys);
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let tls = values.is_written("tls_server_config").then(|| TlsDraft::read(&mut values, folder));
    let users = values.map("basic_auth_users");
    for (user, _) in users.iter().filter(|(_, hash)| !is_hash(hash)) {
        let message =
            format!("expected a hash by bcrypt of a cost up to {MOST_COST}, such as `htpasswd -nB NAME` writes, got something else");
        problems.push(of_entry(source, &keys, "basic_auth_users", user, message));
    }
    for (user, _) in users.iter().filter(|(user, _)| user.is_empty() || user.contains(':')) {
        problems.push(of_entry(source, &keys, "basic_auth_users", user, "expected a name without a colon".to_owned()));
    }
    let headers = values.map("http_server_config.headers");
    for (name, value) in &headers {
        let fits = value.chars().all(|c| matches!(c, ' '..='~'));
        if !fits || !HEADERS.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            let message = format!("expected one line for one of {}", HEADERS.join(", "));
            let section = keys.entry("http_server_config").map_or(&keys, |(_, node)| node);
            let problem = of_entry(source, section, "headers", name, message);
            problems.push(Problem { key: format!("http_server_config.{}", problem.key), ..problem });
        }
    }
    problems.extend(values.take_problems());
    WebDraft { path: source.path.clone(), values, tls, users, headers, problems }
}

impl WebDraft {
    /// The certificates and keys that the caller is to read.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.tls.iter().flat_map(TlsDraft::files)
    }

    /// Completes it with the texts of its files, or why each cannot be read; or tells all problems.
    pub fn finish(mut self, texts: &BTreeMap<PathBuf, Result<String, String>>) -> Result<WebConfig, Vec<Problem>> {
        let files: Vec<PathBuf> = std::iter::once(&self.path).chain(self.files()).cloned().collect();
        let tls = self.tls.take().map(|draft| (draft.needs_certificate(), draft.build(texts)));
        let (needs_certificate, tls) = match tls {
            None => (false, None),
            Some((needed, Ok(config))) => (needed, Some(Arc::new(config))),
            Some((needed, Err(told))) => {
                self.problems.extend(told.into_iter().map(|(key, message)| self.values.describe(&key, message)));
                (needed, None)
            }
        };
        if self.problems.is_empty() {
            return Ok(WebConfig { tls, needs_certificate, users: self.users, headers: self.headers, files });
        }
        problem::sort(&mut self.problems, &files);
        Err(self.problems)
    }
}

/// A problem of one entry of a map whose names are the writer's own.
fn of_entry(source: &SourceText, holder: &Node, map: &str, name: &str, message: String) -> Problem {
    let entry = holder.entry(map).and_then(|(_, node)| node.entry(name));
    let location = entry.and_then(|(key, _)| key.at);
    Problem { key: format!("{map}.{name}"), location, file: Some(source.path.clone()), message }
}

/// Whether the text is a hash by bcrypt that a request can wait for: `$2y$10$` and 53 letters of its alphabet.
fn is_hash(text: &str) -> bool {
    let mut parts = text.split('$');
    let (Some(""), Some("2a" | "2b" | "2x" | "2y"), Some(cost), Some(rest), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let affordable = cost.len() == 2 && cost.parse::<u32>().is_ok_and(|cost| (4..=MOST_COST).contains(&cost));
    affordable && rest.len() == 53 && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./".contains(&byte))
}
