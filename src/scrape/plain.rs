//! How is a page asked for where there is neither TLS nor a proxy? As the client for all does it, with a small buffer.
//!
//! Nearly all targets are asked this way, and each keeps its connection between rounds. The client for all lets the buffer of a connection grow
//! with the page, to 130 kB for one of 100 kB, which was most of the memory that a target took; how large it may become can only be said to the
//! library below it.

use std::time::Duration;

use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::header::HeaderMap;
use reqwest::{Body, Response, Url};

use super::failure::Lost;
use super::resolve::Resolver;

/// Largest read buffer of a connection. A head of an answer that is larger, which nobody sends, is left to the client for all.
const BUFFER: usize = 32 << 10;
/// A connection without a sign of life is looked at after this, as often, and given up after so many.
const ALIVE: Duration = Duration::from_secs(15);
const SIGNS: u32 = 3;

/// Asks over plain HTTP.
#[derive(Debug)]
pub(super) struct Plain(Client<HttpConnector<Resolver>, Body>);

impl Plain {
    /// Idle connections are kept for so long, one a server.
    pub fn new(idle: Duration) -> Self {
        let mut connector = HttpConnector::new_with_resolver(Resolver::new());
        connector.set_nodelay(true);
        connector.set_keepalive(Some(ALIVE));
        connector.set_keepalive_interval(Some(ALIVE));
        connector.set_keepalive_retries(Some(SIGNS));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .pool_max_idle_per_host(1)
            .http1_max_buf_size(BUFFER)
            .build(connector);
        Self(client)
    }

    /// Whether this URL can be asked for here. A name and a password in it would have to become a header.
    pub fn takes(url: &Url) -> bool {
        url.scheme() == "http" && url.username().is_empty() && url.password().is_none()
    }

    /// The answer up to its body.
    pub async fn get(&self, url: &Url, headers: HeaderMap) -> Result<Response, Lost> {
        let mut request = Request::get(url.as_str()).body(Body::default()).map_err(|error| Lost::Unasked(error.into()))?;
        *request.headers_mut() = headers;
        let answer = self.0.request(request).await.map_err(Lost::Plain)?;
        Ok(Response::from(answer.map(Body::wrap)))
    }
}
