//! What goes with a request, and are the files that it needs usable? The credentials, certificates and headers of one `targets` section.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::check::Values;
use super::resolve::path;

/// Headers that have keys of their own, or that the client decides by what it sends and can read.
const OWNED: [&str; 19] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "if-modified-since",
    "if-none-match",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What goes with every request to a target. Files are read when a request needs them, and again when they change.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessConfig {
    /// A file with the bearer token.
    pub bearer_token_file: Option<PathBuf>,
    /// User name and the file with the password.
    pub basic_auth: Option<(String, PathBuf)>,
    /// The authorities that servers' certificates may come from; `None` is the system's.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate is good enough.
    pub insecure_skip_verify: bool,
    /// Headers by name. The values may be secrets and are never shown.
    pub headers: BTreeMap<String, String>,
}

impl AccessConfig {
    /// Whether TLS is to be done in another way than with the system's authorities alone.
    pub fn has_tls(&self) -> bool {
        self.ca_file.is_some() || self.client_certificate.is_some() || self.insecure_skip_verify
    }

    /// Every file that is read for it.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let pair = self.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        let password = self.basic_auth.iter().map(|(_, file)| file);
        self.bearer_token_file.iter().chain(password).chain(&self.ca_file).chain(pair)
    }
}

impl fmt::Debug for AccessConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessConfig")
            .field("bearer_token_file", &self.bearer_token_file)
            .field("basic_auth", &self.basic_auth)
            .field("ca_file", &self.ca_file)
            .field("client_certificate", &self.client_certificate)
            .field("insecure_skip_verify", &self.insecure_skip_verify)
            .field("headers", &self.headers.keys())
            .finish()
    }
}

/// A file that the configuration names and that a target cannot be asked, or found, without.
#[derive(Clone, Debug)]
pub(super) struct Needed {
    /// The key that names it.
    pub key: String,
    pub path: PathBuf,
    pub need: Need,
}

/// What such a file is to hold.
#[derive(Clone, Debug)]
pub(super) enum Need {
    /// A token, which goes into a header.
    Token,
    /// A password.
    Password,
    /// Certificates of authorities.
    Authorities,
    /// Our certificate, and where its key is.
    Certificate(PathBuf),
    /// The key of our certificate.
    Key,
    /// Lists of targets. A tool may write them later.
    Targets,
    /// Files of such lists.
    Folder,
}

/// What is to be said of a needed file.
pub(super) enum Finding {
    /// Targets cannot be asked so.
    Problem(String),
    /// It is in order, and may surprise.
    Note(String),
}

/// The texts of files by their paths; why one cannot be read; nothing of one that does not exist.
pub(super) type Texts = BTreeMap<PathBuf, Result<String, String>>;

/// Reads the settings of the section at `at`; the files that they name go to `needed`.
pub(super) fn read(values: &mut Values, at: &str, folder: &Path, needed: &mut Vec<Needed>) -> Arc<AccessConfig> {
    let key = |name: &str| format!("{at}.{name}");
    let bearer_token_file = path(values, &key("bearer_token_file"), folder);
    let basic_auth = if values.is_written(&key("basic_auth")) {
        let username = values.text(&key("basic_auth.username"));
        username.zip(path(values, &key("basic_auth.password_file"), folder))
    } else {
        None
    };
    if let Some((username, _)) = basic_auth.as_ref().filter(|(username, _)| username.contains([':', '\n', '\r'])) {
        values.problem(&key("basic_auth.username"), format!("expected a name without a colon, got {username:?}"));
    }
    let pair = (path(values, &key("tls.cert_file"), folder), path(values, &key("tls.key_file"), folder));
    if pair.0.is_some() != pair.1.is_some() {
        values.problem(&key("tls"), "expected cert_file and key_file together, got one of them");
    }
    let headers = headers(values, &key("headers"));
    if bearer_token_file.is_some() && basic_auth.is_some() {
        values.problem(&key("basic_auth"), "expected bearer_token_file or basic_auth, got both; keep one");
    }
    let access = AccessConfig {
        bearer_token_file,
        basic_auth,
        ca_file: path(values, &key("tls.ca_file"), folder),
        client_certificate: pair.0.zip(pair.1),
        insecure_skip_verify: values.switch(&key("tls.insecure_skip_verify")).unwrap_or_default(),
        headers,
    };
    let mut need = |name: &str, path: Option<&PathBuf>, need: Need| {
        needed.extend(path.map(|path| Needed { key: key(name), path: path.clone(), need }));
    };
    need("bearer_token_file", access.bearer_token_file.as_ref(), Need::Token);
    need("basic_auth.password_file", access.basic_auth.as_ref().map(|(_, file)| file), Need::Password);
    need("tls.ca_file", access.ca_file.as_ref(), Need::Authorities);
    if let Some((certificate, own_key)) = &access.client_certificate {
        need("tls.cert_file", Some(certificate), Need::Certificate(own_key.clone()));
        need("tls.key_file", Some(own_key), Need::Key);
    }
    Arc::new(access)
}

fn headers(values: &mut Values, at: &str) -> BTreeMap<String, String> {
    let headers = values.map(at);
    let mut known: BTreeMap<String, &String> = BTreeMap::new();
    for name in headers.keys() {
        let token = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
        let lower = name.to_ascii_lowercase();
        if !token || OWNED.contains(&lower.as_str()) {
            values.problem(at, format!("expected a header that is free to be set, got {name:?}"));
        }
        if let Some(first) = known.insert(lower, name) {
            values.problem(at, format!("headers {first:?} and {name:?} are one and the same; keep one"));
        }
    }
    for (name, _) in headers.iter().filter(|(_, value)| !fits_a_header(value)) {
        let message = format!("expected a value of {name:?} that a header can hold: one line of letters, digits and signs of ASCII");
        values.problem(at, message);
    }
    headers
}

/// Whether a header can hold the text.
fn fits_a_header(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || matches!(c, ' '..='~'))
}

impl Needed {
    /// What is wrong with the file, if anything. Never repeats what it holds.
    pub(super) fn finding(&self, texts: &Texts) -> Option<Finding> {
        let shown = self.path.display();
        match (texts.get(&self.path), &self.need) {
            (None, Need::Targets) => Some(Finding::Note(format!("{shown} does not exist yet: there are no targets until it is written"))),
            (None, Need::Folder) => {
                Some(Finding::Note(format!("the folder {shown} does not exist yet: there are no targets until it does")))
            }
            // A folder cannot be read as a text: it is there.
            (Some(_), Need::Folder) => None,
            (None, _) => Some(Finding::Problem(format!("{shown} does not exist"))),
            (Some(Err(error)), _) => Some(Finding::Problem(format!("{shown} cannot be read: {error}"))),
            (Some(Ok(text)), _) => self.mistake(text, texts).map(Finding::Problem),
        }
    }

    fn mistake(&self, text: &str, texts: &Texts) -> Option<String> {
        let shown = self.path.display();
        match &self.need {
            Need::Token | Need::Password if text.trim().is_empty() => Some(format!("expected a secret in {shown}, got nothing")),
            Need::Token if !fits_a_header(text.trim()) => {
                Some(format!("expected a token in {shown} that a header can hold: one line of letters, digits and signs of ASCII"))
            }
            Need::Token | Need::Password | Need::Targets | Need::Folder => None,
            Need::Authorities => {
                let mut store = rustls::RootCertStore::empty();
                let usable = |certificate| store.add(certificate).is_ok();
                let refused = || format!("expected certificates of authorities in {shown}, got one that cannot be read");
                certificates(text).map_or_else(
                    |what| Some(format!("expected certificates as PEM in {shown}, got {what}")),
                    |found| (!found.into_iter().all(usable)).then(refused),
                )
            }
            Need::Certificate(key_file) => match certificates(text) {
                Err(what) => Some(format!("expected a certificate as PEM in {shown}, got {what}")),
                Ok(chain) => {
                    let key = texts.get(key_file).and_then(|text| PrivateKeyDer::from_pem_slice(text.as_ref().ok()?.as_bytes()).ok());
                    let provider = rustls::crypto::ring::default_provider();
                    let pair = rustls::sign::CertifiedKey::from_der(chain, key?, &provider);
                    pair.err().map(|_| format!("the certificate in {shown} and the key in {} do not belong together", key_file.display()))
                }
            },
            Need::Key => {
                let refused = |_| format!("expected a private key as PEM, without a passphrase, in {shown}, got none");
                PrivateKeyDer::from_pem_slice(text.as_bytes()).err().map(refused)
            }
        }
    }
}

/// The certificates of a text, at least one; or what is there instead.
pub(super) fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() && text.trim().is_empty() => Err("nothing"),
        Ok(found) if found.is_empty() => Err("none"),
        Ok(found) => Ok(found),
        Err(_) => Err("a section that is broken"),
    }
}
