//! What does one target answer to one request? Headers, status and redirects; the body is `body`'s.
//!
//! The client follows no redirect by itself, uses no proxy that the configuration does not name, and undoes no compression: each of
//! these is decided here, with a limit and with words for people. Connections are kept between rounds.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use reqwest::{Client, ClientBuilder, Proxy, Response, StatusCode, Url};

use super::access::{Accesses, Ready};
use super::failure::{Lost, closed_without_answer, failure, place, without_response};
use super::plain::Plain;
use super::report::Failure;
use super::resolve::Resolver;
use crate::config::{AccessConfig, ScrapeConfig};
use crate::planner::input::FailureKind;

/// Never OpenMetrics: a widespread client library changes the names of the families in it.
const WANTED_FORMAT: &str = "text/plain;version=0.0.4";
const OURSELVES: &str = concat!("inference-planner-exporter/", env!("CARGO_PKG_VERSION"));

/// Why no scraper can be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The address of the proxy cannot be used. Not repeated here, since it may hold a password.
    #[error("scrape.proxy: expected a URL such as `http://proxy:3128`")]
    Proxy,
    /// The HTTP library could not be set up.
    #[error("cannot set up the HTTP client")]
    Client(#[source] reqwest::Error),
}

/// Sends the requests.
#[derive(Debug)]
pub(super) struct Requester {
    /// For `http` without a proxy.
    direct: Plain,
    /// For `http` otherwise.
    plain: Client,
    /// For `https`. Made when first needed: it reads the system's certificates, which takes memory and fails where there are none.
    secure: OnceLock<Client>,
    idle: Duration,
    proxy: Option<Proxy>,
    proxy_is_secure: bool,
    accesses: Accesses,
}

impl Requester {
    pub(super) fn new(config: &ScrapeConfig) -> Result<Self, SetupError> {
        // Fails only if a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let proxy = config.proxy.as_deref().map(Proxy::all).transpose().map_err(|_| SetupError::Proxy)?;
        let proxy_is_secure = config.proxy.as_deref().is_some_and(|url| url.to_ascii_lowercase().starts_with("https:"));
        let idle = idle(config.interval);
        let plain = builder(idle, proxy.clone()).tls_certs_only([]).build().map_err(SetupError::Client)?;
        Ok(Self { direct: Plain::new(idle), plain, secure: OnceLock::new(), idle, proxy, proxy_is_secure, accesses: Accesses::default() })
    }

    /// Forgets the credentials that no target needs any more.
    pub(super) fn retain(&self, needed: impl Fn(&AccessConfig) -> bool) {
        self.accesses.retain(needed);
    }

    /// The answer to a request for this page: status 200, the body not yet read. Follows one redirect within the same server. The headers of
    /// `access` win over `extra`.
    pub(super) async fn get(&self, url: &str, access: &AccessConfig, extra: &HeaderMap) -> Result<Response, Failure> {
        let (url, ready) = self.prepare(url, access).await?;
        let mut headers = extra.clone();
        headers.extend(ready.iter().flat_map(|ready| ready.headers.clone()));
        let response = self.send(&url, ready.as_deref(), &headers, None).await?;
        if !response.status().is_redirection() {
            return ok(response);
        }
        let url = same_server(&url, &response)?;
        drop(response);
        tracing::debug!(target = place(&url), path = url.path(), "following a redirect");
        let response = self.send(&url, ready.as_deref(), &headers, None).await?;
        if response.status().is_redirection() {
            let message = format!("status {}: redirected twice; expected the page after one redirect", response.status().as_u16());
            return Err(failure(FailureKind::Status, message));
        }
        ok(response)
    }

    /// The answer to a question that is asked by a form and answered with JSON: of any status but a redirection, which would lose the form.
    /// The question must change nothing: it is asked again where a kept connection turns out to be closed.
    pub(super) async fn ask(&self, url: &str, access: &AccessConfig, form: &[(&str, &str)]) -> Result<Response, Failure> {
        let (url, ready) = self.prepare(url, access).await?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.extend(ready.iter().flat_map(|ready| ready.headers.clone()));
        let mut encoded = url.clone();
        encoded.query_pairs_mut().clear().extend_pairs(form);
        let response = self.send(&url, ready.as_deref(), &headers, encoded.query()).await?;
        if response.status().is_redirection() {
            let message = format!("status {}: redirected; expected an answer", response.status().as_u16());
            return Err(failure(FailureKind::Status, message));
        }
        Ok(response)
    }

    async fn prepare(&self, url: &str, access: &AccessConfig) -> Result<(Url, Option<Arc<Ready>>), Failure> {
        let url = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| failure(FailureKind::Connect, "the target's URL is not usable; expected http:// or https:// and a host"))?;
        if *access == AccessConfig::default() {
            return Ok((url, None));
        }
        let (idle, proxy) = (self.idle, self.proxy.clone());
        Ok((url, Some(self.accesses.ready(access, move || builder(idle, proxy)).await?)))
    }

    /// Sends a request; with a form as its body, where there is one.
    async fn send(&self, url: &Url, ready: Option<&Ready>, headers: &HeaderMap, form: Option<&str>) -> Result<Response, Failure> {
        let way = self.way(url, ready, form)?;
        let answer = match way.ask(url, headers, form).await {
            Err(lost) if closed_without_answer(&lost) => way.ask(url, headers, form).await,
            // Where the small buffer ends depends on how the head comes in pieces: the larger one decides whether it is too large.
            Err(lost) if lost.is_large_head() && matches!(way, Way::Plain(_)) => Way::Full(self.client(url)?).ask(url, headers, form).await,
            answer => answer,
        };
        answer.map_err(|lost| without_response(&lost, &place(url)))
    }

    fn way<'a>(&'a self, url: &Url, ready: Option<&'a Ready>, form: Option<&str>) -> Result<Way<'a>, Failure> {
        if form.is_none() && self.proxy.is_none() && Plain::takes(url) {
            return Ok(Way::Plain(&self.direct));
        }
        match ready.and_then(|ready| ready.secure.as_ref()) {
            Some(client) if url.scheme() == "https" => Ok(Way::Full(client)),
            _ => self.client(url).map(Way::Full),
        }
    }

    fn client(&self, url: &Url) -> Result<&Client, Failure> {
        if url.scheme() != "https" && !self.proxy_is_secure {
            return Ok(&self.plain);
        }
        if let Some(client) = self.secure.get() {
            return Ok(client);
        }
        let client = builder(self.idle, self.proxy.clone()).build().map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            failure(FailureKind::Connect, format!("no TLS; expected the system's certificates to be readable{cause}"))
        })?;
        Ok(self.secure.get_or_init(|| client))
    }
}

/// How long an unused connection is kept: long enough to outlast the pause between two rounds where that is short. Each has a buffer of a third of a
/// page, which costs a large fleet more than a new connection a minute; most model servers close theirs after 5 s anyway.
fn idle(interval: Duration) -> Duration {
    if interval > Duration::from_secs(15) { Duration::from_secs(5) } else { Duration::from_secs(60) }
}

/// By whom a request is sent.
enum Way<'a> {
    Plain(&'a Plain),
    Full(&'a Client),
}

impl Way<'_> {
    async fn ask(&self, url: &Url, headers: &HeaderMap, form: Option<&str>) -> Result<Response, Lost> {
        match self {
            Self::Plain(client) => {
                let mut all = usual_headers();
                all.extend(headers.clone());
                client.get(url, all).await
            }
            Self::Full(client) => {
                let request = match form {
                    None => client.get(url.clone()),
                    Some(form) => client.post(url.clone()).body(form.to_owned()),
                };
                request.headers(headers.clone()).send().await.map_err(Lost::Full)
            }
        }
    }
}

/// What goes with a request where nothing else is said.
fn usual_headers() -> HeaderMap {
    let usual = [(ACCEPT, WANTED_FORMAT), (ACCEPT_ENCODING, "gzip"), (USER_AGENT, OURSELVES)];
    usual.map(|(name, value)| (name, HeaderValue::from_static(value))).into_iter().collect()
}

fn builder(idle: Duration, proxy: Option<Proxy>) -> ClientBuilder {
    let builder = Client::builder()
        .default_headers(usual_headers())
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .pool_idle_timeout(idle)
        .pool_max_idle_per_host(1)
        .dns_resolver(Resolver::new());
    match proxy {
        Some(proxy) => builder.proxy(proxy),
        None => builder,
    }
}

fn ok(response: Response) -> Result<Response, Failure> {
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(response);
    }
    let reason = status.canonical_reason().unwrap_or("unknown");
    Err(failure(FailureKind::Status, format!("status {} ({reason}); expected 200", status.as_u16())))
}

/// Where the response redirects to, if that is the same server; another one is never asked, as it might be anything.
fn same_server(url: &Url, response: &Response) -> Result<Url, Failure> {
    let status = response.status().as_u16();
    let refused = |what: String| failure(FailureKind::Status, format!("status {status}: {what}"));
    let location = response.headers().get(LOCATION).ok_or_else(|| refused("no Location; expected status 200".to_owned()))?;
    let mut next = location
        .to_str()
        .ok()
        .and_then(|location| url.join(location).ok())
        .ok_or_else(|| refused("the Location is not a URL; expected status 200".to_owned()))?;
    if next.scheme() != url.scheme() || place(&next) != place(url) {
        let (from, to) = (place(url), place(&next));
        let to_scheme = next.scheme();
        return Err(refused(format!("redirected to {to_scheme}://{to}; expected the page or a redirect within {}://{from}", url.scheme())));
    }
    // The same server may see the same credentials again; a Location does not carry them.
    let _ = next.set_username(url.username());
    let _ = next.set_password(url.password());
    Ok(next)
}
