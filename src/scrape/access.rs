//! What goes with a request? Credentials, certificates and headers, read from their files and read again when those change.
//!
//! Files are looked at when a request needs them, at most once a second, on a thread of its own: a volume that hangs costs the targets that
//! need it their deadline and nobody else anything. What was read stays in use while a file cannot be read again. Nothing that was read
//! is ever part of a message: those name the file and the key of the configuration.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::Path;
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, Identity};
use tokio::sync::Mutex;

use super::failure::failure;
use super::report::Failure;
use crate::config::AccessConfig;
use crate::files;
use crate::planner::input::FailureKind;

/// Time between two looks at the files.
const PERIOD: Duration = Duration::from_secs(1);
/// Largest file: tokens and certificates are small, and a wrong path may lead to anything.
const LARGEST: u64 = 1 << 20;

/// All that is needed for requests, by configuration.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    known: Lock<BTreeMap<AccessConfig, Arc<Mutex<State>>>>,
}

/// What goes with requests of one configuration, as it was last read.
#[derive(Debug)]
pub(super) struct Ready {
    pub headers: HeaderMap,
    /// For `https`, where the configuration says how; `None` is the client for all.
    pub secure: Option<Client>,
}

#[derive(Debug, Default)]
struct State {
    looked: Option<Instant>,
    marks: Vec<Option<Mark>>,
    ready: Option<Arc<Ready>>,
}

/// What tells one state of a file from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark(u64, Option<SystemTime>, u64);

impl Mark {
    /// `None` where there is no file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().map(|found| Self(found.len(), found.modified().ok(), identity(&found)))
    }
}

#[cfg(unix)]
fn identity(found: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(found)
}

#[cfg(not(unix))]
fn identity(_found: &Metadata) -> u64 {
    0
}

impl Accesses {
    /// What goes with the next request. `builder` makes the client for `https`, before its certificates are added.
    pub(super) async fn ready(
        &self,
        config: &AccessConfig,
        builder: impl FnOnce() -> ClientBuilder + Send + 'static,
    ) -> Result<Arc<Ready>, Failure> {
        let state = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match known.get(config) {
                Some(state) => Arc::clone(state),
                None => Arc::clone(known.entry(config.clone()).or_default()),
            }
        };
        let mut state = state.lock_owned().await;
        if let (Some(ready), Some(looked)) = (&state.ready, state.looked)
            && looked.elapsed() < PERIOD
        {
            return Ok(Arc::clone(ready));
        }
        let config = config.clone();
        // The lock goes with the thread: however many targets give up waiting, one thread at most looks at these files.
        let looking = tokio::task::spawn_blocking(move || {
            let result = refresh(&config, &mut state, builder);
            drop(state);
            result
        });
        looking.await.unwrap_or_else(|_| Err(refused("reading the credentials ended unexpectedly (a defect of this program)".to_owned())))
    }

    /// Forgets what no target needs any more.
    pub(super) fn retain(&self, needed: impl Fn(&AccessConfig) -> bool) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).retain(|config, _| needed(config));
    }
}

fn refused(message: String) -> Failure {
    failure(FailureKind::Connect, message)
}

fn refresh(config: &AccessConfig, state: &mut State, builder: impl FnOnce() -> ClientBuilder) -> Result<Arc<Ready>, Failure> {
    let marks: Vec<_> = config.files().map(|file| Mark::of(file)).collect();
    state.looked = Some(Instant::now());
    if let Some(ready) = state.ready.as_ref().filter(|_| state.marks == marks) {
        return Ok(Arc::clone(ready));
    }
    match (read(config, builder), &state.ready) {
        (Ok(ready), _) => {
            let ready = Arc::new(ready);
            state.ready = Some(Arc::clone(&ready));
            state.marks = marks;
            Ok(ready)
        }
        (Err(message), Some(ready)) => {
            tracing::warn!("the credentials of before stay in use: {message}");
            // Told once; tried again when a file changes.
            state.marks = marks;
            Ok(Arc::clone(ready))
        }
        (Err(message), None) => Err(refused(message)),
    }
}

fn read(config: &AccessConfig, builder: impl FnOnce() -> ClientBuilder) -> Result<Ready, String> {
    let mut headers = HeaderMap::new();
    let secret = |text: &str, what: &str| {
        let value = HeaderValue::from_str(text).map_err(|_| format!("{what}: expected characters that a header can hold"));
        value.map(|mut value| {
            // Keeps it out of every debugging output.
            value.set_sensitive(true);
            value
        })
    };
    for (name, value) in &config.headers {
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("headers: {name:?} is not the name of a header"))?;
        headers.insert(known, secret(value, "headers")?);
    }
    if let Some(file) = &config.bearer_token_file {
        let token = line("bearer_token_file", file)?;
        headers.insert(AUTHORIZATION, secret(&format!("Bearer {token}"), "bearer_token_file")?);
    }
    if let Some((username, file)) = &config.basic_auth {
        let password = line("basic_auth.password_file", file)?;
        let packed = base64(format!("{username}:{password}").as_bytes());
        headers.insert(AUTHORIZATION, secret(&format!("Basic {packed}"), "basic_auth")?);
    }
    let secure = if config.has_tls() { Some(client(config, builder())?) } else { None };
    Ok(Ready { headers, secure })
}

fn client(config: &AccessConfig, mut builder: ClientBuilder) -> Result<Client, String> {
    if let Some(file) = &config.ca_file {
        let pem = bytes("tls.ca_file", file)?;
        let authorities = Certificate::from_pem_bundle(&pem).unwrap_or_default();
        if authorities.is_empty() {
            return Err(format!("tls.ca_file: expected certificates as PEM in {}", file.display()));
        }
        builder = builder.tls_certs_only(authorities);
    }
    if let Some((certificate, key)) = &config.client_certificate {
        let mut pem = bytes("tls.cert_file", certificate)?;
        pem.push(b'\n');
        pem.extend(bytes("tls.key_file", key)?);
        let identity = Identity::from_pem(&pem);
        let expected = || format!("tls: expected a certificate and its key as PEM in {} and {}", certificate.display(), key.display());
        builder = builder.identity(identity.map_err(|_| expected())?);
    }
    if config.insecure_skip_verify {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    builder.build().map_err(|error| {
        let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
        format!("tls: these certificates cannot be used{cause}")
    })
}

fn bytes(key: &str, file: &Path) -> Result<Vec<u8>, String> {
    files::read(file, LARGEST).map_err(|error| format!("{key}: {} cannot be read: {error}", file.display()))
}

/// The text of a file without the blanks around it, which editors and `kubectl create secret` leave behind.
fn line(key: &str, file: &Path) -> Result<String, String> {
    let text = String::from_utf8(bytes(key, file)?).map_err(|_| format!("{key}: expected text in {}", file.display()))?;
    match text.trim() {
        "" => Err(format!("{key}: expected a secret in {}, got nothing", file.display())),
        text => Ok(text.to_owned()),
    }
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().chain(&[0, 0]).take(3).fold(0, |word, byte| word << 8 | u32::from(*byte));
        for place in 0..4 {
            let digit = char::from(DIGITS[(word >> (18 - 6 * place) & 63) as usize]);
            text.push(if place > group.len() { '=' } else { digit });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy"), ("\u{ff}?>", "w78/Pg==")] {
            assert_eq!(base64(bytes.as_bytes()), text, "{bytes:?}");
        }
    }
}
