//! What does a server of target lists say? Prometheus' HTTP discovery; also how any list is fetched whole.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::sieve::{Group, Sieve, places};
use super::{Looked, Tools};
use crate::config::AccessConfig;
use crate::planner::input::FailureKind;
use crate::scrape::body::{Body, Collector, Encoding};
use crate::scrape::failure::within_body;
use crate::scrape::report::Failure;

/// A server that answers with a list.
#[derive(Debug)]
pub(super) struct Http {
    url: String,
    headers: HeaderMap,
    tools: Arc<Tools>,
}

impl Http {
    pub(super) fn new(url: String, refresh: Duration, tools: Arc<Tools>) -> Self {
        let mut headers = HeaderMap::new();
        // As Prometheus tells it, in seconds; servers may cache by it.
        let name = HeaderName::from_static("x-prometheus-refresh-interval-seconds");
        headers.insert(name, HeaderValue::from(refresh.as_secs().max(1)));
        Self { url, headers, tools }
    }

    pub(super) async fn look(&self, sieve: &Arc<Sieve>) -> Result<Looked, String> {
        let bytes =
            fetch(&self.tools, &self.url, &AccessConfig::default(), &self.headers, "a shorter list from the server that http_sd names")
                .await?;
        let groups: Vec<Group> = serde_json::from_slice(&bytes).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("expected a list of {{ \"targets\": [\"HOST:PORT\"], \"labels\": {{}} }}; line {line}, column {column}")
        })?;
        // A long list takes seconds, in which nothing else must wait.
        let sieve = Arc::clone(sieve);
        let sifting = tokio::task::spawn_blocking(move || sieve.sift(places(groups)));
        sifting.await.map_err(|error| format!("reading the list ended unexpectedly: {error}"))?
    }
}

/// A whole JSON document. The error holds no secret; `narrower` is what it says where the document is too long, for which there is no setting.
pub(super) async fn fetch(tools: &Tools, url: &str, access: &AccessConfig, headers: &HeaderMap, narrower: &str) -> Result<Vec<u8>, String> {
    let limit = tools.budget.largest();
    let told = |failure: Failure| match failure.kind {
        FailureKind::TooLarge => format!("the list exceeds {limit} bytes; expected {narrower}"),
        _ => failure.message,
    };
    let mut headers = headers.clone();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let mut response = tools.requester.get(url, access, &headers).await.map_err(|failure| failure.message)?;
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    if !kind.trim_start().to_ascii_lowercase().starts_with("application/json") {
        return Err(format!("expected content type application/json, got {kind:?}"));
    }
    let encoding = Encoding::from_headers(response.headers()).map_err(|failure| failure.message)?;
    let collector = Collector::new(encoding, response.content_length(), limit, tools.budget.claim());
    let mut collector = collector.map_err(told)?;
    let mut received = 0;
    while let Some(bytes) = response.chunk().await.map_err(|error| within_body(&error, received).message)? {
        received += bytes.len();
        collector.push(&bytes).await.map_err(told)?;
    }
    let Body { bytes, .. } = collector.finish().await.map_err(told)?;
    Ok(bytes)
}
