//! Who may ask? Certificates and passwords, checked before a request reaches what answers it.
//!
//! A hash by bcrypt takes a tenth of a second of a processor, which is its purpose. So a password that was right is remembered, and wrong ones
//! are tried two at a time: whoever guesses slows down other guesses, not scrapes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::extract::{Request, State as Extract};
use axum::http::header::{AUTHORIZATION, CONNECTION, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::routes::text;

/// Pages for the probes of a kubelet, which has neither password nor certificate. They tell nothing but that we live.
const OPEN: [&str; 2] = ["/-/healthy", "/-/ready"];
/// Passwords that are checked at the same time.
const CHECKS: usize = 2;
/// Checked in the place of an unknown user's hash, so that the time of an answer does not tell which users there are.
const NOBODY: &str = "$2b$10$abcdefghijklmnopqrstuuAyDYnNQOPbC.UDYzsVmtvPLLL4EPXkq";

/// Who may ask, and over what. The default is everybody, in clear text.
#[derive(Default)]
pub struct Access {
    tls: Option<Arc<rustls::ServerConfig>>,
    needs_certificate: bool,
    users: BTreeMap<String, String>,
    headers: HeaderMap,
    /// What passwords that were right hash to, one a user, so that this does not grow.
    verified: Mutex<BTreeMap<String, [u8; 32]>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("tls", &self.tls.is_some()).field("users", &self.users.len()).finish_non_exhaustive()
    }
}

impl Access {
    /// `needs_certificate` refuses those who showed none in the handshake; `users` holds hashes by bcrypt; `headers` go with every answer, and
    /// those that HTTP does not allow are left out.
    pub fn new(
        tls: Option<Arc<rustls::ServerConfig>>,
        needs_certificate: bool,
        users: BTreeMap<String, String>,
        headers: &BTreeMap<String, String>,
    ) -> Self {
        let header = |(name, value): (&String, &String)| Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?));
        Self { tls, needs_certificate, users, headers: headers.iter().filter_map(header).collect(), verified: Mutex::default() }
    }

    /// What handshakes need; `None` where connections are in clear text.
    pub(super) fn tls(&self) -> Option<Arc<rustls::ServerConfig>> {
        self.tls.clone()
    }

    /// Whether the password is this user's.
    async fn knows(self: &Arc<Self>, checks: &Semaphore, user: String, password: Vec<u8>) -> bool {
        let digest: [u8; 32] = Sha256::digest(&password).into();
        if self.verified().get(&user) == Some(&digest) {
            return true;
        }
        let Ok(_permit) = checks.acquire().await else { return false };
        let hash = self.users.get(&user).cloned();
        let known = hash.is_some();
        let checking = tokio::task::spawn_blocking(move || bcrypt::verify(password, hash.as_deref().unwrap_or(NOBODY)).unwrap_or(false));
        let right = checking.await.unwrap_or(false) && known;
        if right {
            self.verified().insert(user, digest);
        }
        right
    }

    fn verified(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, [u8; 32]>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a request's connection was made.
#[derive(Clone, Default)]
pub(super) struct Peer {
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether a certificate was shown, and found good.
    pub certified: bool,
}

impl Peer {
    /// Whether the connection was made as connections are made now.
    fn is_current(&self, access: &Access) -> bool {
        match (&self.tls, &access.tls) {
            (Some(own), Some(now)) => Arc::ptr_eq(own, now),
            (own, now) => own.is_none() && now.is_none(),
        }
    }
}

/// What every request passes.
#[derive(Clone)]
pub(super) struct Gate {
    access: Arc<ArcSwap<Access>>,
    checks: Arc<Semaphore>,
    timeout: Duration,
}

impl Gate {
    pub(super) fn new(access: Arc<ArcSwap<Access>>, timeout: Duration) -> Self {
        Self { access, checks: Arc::new(Semaphore::new(CHECKS)), timeout }
    }

    /// The answer to who may not ask.
    async fn refusal(&self, access: &Arc<Access>, peer: &Peer, headers: &HeaderMap) -> Option<Response> {
        if access.needs_certificate && !peer.certified {
            return Some(text(StatusCode::FORBIDDEN, "expected a client certificate\n"));
        }
        if access.users.is_empty() {
            return None;
        }
        let right = async {
            match credentials(headers) {
                Some((user, password)) => access.knows(&self.checks, user, password).await,
                None => false,
            }
        };
        match tokio::time::timeout(self.timeout, right).await {
            Ok(true) => None,
            Ok(false) => {
                let asks = [(WWW_AUTHENTICATE, "Basic")];
                Some((asks, text(StatusCode::UNAUTHORIZED, "expected a user and a password that are known\n")).into_response())
            }
            Err(_) => Some(text(StatusCode::SERVICE_UNAVAILABLE, "too many passwords wait to be checked\n")),
        }
    }
}

/// Lets a request in or refuses it, and ends connections that were made under other settings.
pub(super) async fn admit(Extract(gate): Extract<Gate>, request: Request, next: Next) -> Response {
    let access = gate.access.load_full();
    let peer = request.extensions().get::<Peer>().cloned().unwrap_or_default();
    let open = OPEN.contains(&request.uri().path());
    let refusal = if open { None } else { gate.refusal(&access, &peer, request.headers()).await };
    let mut response = match refusal {
        Some(refusal) => refusal,
        None => next.run(request).await,
    };
    for (name, value) in &access.headers {
        response.headers_mut().insert(name, value.clone());
    }
    if !peer.is_current(&access) {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// User and password of a request, as RFC 7617 writes them.
fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, packed) = value.split_once(' ')?;
    let plain = STANDARD.decode(packed.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = plain.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(plain[..colon].to_vec()).ok()?;
    Some((user, plain[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_as_rfc_7617_writes_them() {
        for (value, expected) in [
            ("Basic QWxhZGRpbjpvcGVuOnNlc2FtZQ==", Some(("Aladdin", "open:sesame"))),
            ("basic QWxhZGRpbjo=", Some(("Aladdin", ""))),
            ("Bearer QWxhZGRpbjo=", None),
            ("Basic QWxhZGRpbg==", None),
            ("Basic !", None),
            ("Basic", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            let expected = expected.map(|(user, password)| (user.to_owned(), password.as_bytes().to_vec()));
            assert_eq!(credentials(&headers), expected, "{value}");
        }
    }

    #[test]
    fn the_stand_in_is_a_hash_that_can_be_checked() {
        assert_eq!(bcrypt::verify("any", NOBODY).ok(), Some(false));
    }

    #[tokio::test]
    async fn a_right_password_is_checked_once() {
        let hash = "$2y$04$abcdefghijklmnopqrstuuAyDYnNQOPbC.UDYzsVmtvPLLL4EPXkq".to_owned();
        let access = Arc::new(Access::new(None, false, [("a".to_owned(), hash)].into(), &BTreeMap::new()));
        assert!(!access.knows(&Semaphore::new(1), "a".to_owned(), b"wrong".to_vec()).await);
        assert!(access.verified().is_empty());
        access.verified().insert("a".to_owned(), Sha256::digest(b"right").into());
        // No permit is left: nothing can be checked any more.
        let none = Semaphore::new(0);
        none.close();
        assert!(access.knows(&none, "a".to_owned(), b"right".to_vec()).await);
        assert!(!access.knows(&none, "a".to_owned(), b"wrong".to_vec()).await);
        assert!(!access.knows(&none, "b".to_owned(), b"right".to_vec()).await);
    }
}
