//! What does each path answer?

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Query, State as Extract};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::sync::{Semaphore, oneshot, watch};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use super::access::{Gate, admit};
use super::{Settings, State, decisions, page};
use crate::export::page::{CONTENT_TYPE as METRICS, Page, render_recommendation};
use crate::export::served::{as_served, find_pool, patience, served};
use crate::export::snapshot::Snapshot;
use crate::report::plans;
use crate::units::{Moment, PoolId};

/// The only body that is read is the name of who acknowledges.
const BODY_LIMIT: usize = 4096;
/// A page below this many bytes is not worth compressing.
const WORTH_COMPRESSING: usize = 1024;

const TEXT: &str = "text/plain; charset=utf-8";

/// What the handlers share.
pub(super) struct Shared {
    pub state: State,
    page: Page,
    pub enable_lifecycle: bool,
    /// True once the server ends.
    pub ending: watch::Receiver<bool>,
    /// Places for clients that wait for a decision.
    pub waiting: Semaphore,
    pub longest_wait: Duration,
}

impl Shared {
    /// The snapshot, and then the time, so that the snapshot is never from the future.
    pub fn now(&self) -> (Arc<Snapshot>, Moment) {
        let snapshot = self.state.snapshot.load_full();
        (snapshot, (self.state.clock)())
    }
}

pub(super) fn router(settings: &Settings, state: State, page: Page, ending: watch::Receiver<bool>) -> Router {
    let gate = Gate::new(Arc::clone(&state.access), settings.request_timeout);
    let shared = Arc::new(Shared {
        state,
        page,
        enable_lifecycle: settings.enable_lifecycle,
        ending,
        waiting: Semaphore::new(settings.max_waiting),
        longest_wait: settings.longest_wait,
    });
    let within = |timeout| TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, timeout);
    // A wait ends by itself; the deadline is for what could go wrong after it.
    let waiting = get(decisions::list).layer(within(settings.longest_wait.saturating_add(settings.request_timeout)));
    Router::new()
        .route("/", get(status))
        .route("/metrics", get(metrics))
        .route("/metrics/pool/{pool}", get(pool))
        .route("/api/v1/plans", get(api_plans))
        .route("/api/v1/decisions/{id}/ack", post(decisions::acknowledge))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .route("/-/reload", post(reload).put(reload))
        .fallback(|| async { text(StatusCode::NOT_FOUND, "not found; see /\n") })
        .layer(within(settings.request_timeout))
        .route("/api/v1/decisions", waiting)
        .with_state(shared)
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn_with_state(gate, admit))
        .layer(CatchPanicLayer::new())
}

pub(super) fn text(status: StatusCode, body: impl Into<String>) -> Response {
    (status, [(CONTENT_TYPE, TEXT)], body.into()).into_response()
}

/// The answer with the rendered page, or one that says why there is none.
fn answer(rendered: Result<String, impl std::fmt::Display>, respond: impl FnOnce(String) -> Response) -> Response {
    match rendered {
        Ok(body) => respond(body),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot render the page: {error}\n")),
    }
}

/// Always text 0.0.4: autoscalers ask for nothing, and every Prometheus reads it.
async fn metrics(Extract(shared): Extract<Arc<Shared>>, headers: HeaderMap) -> Response {
    answer(shared.page.render(), |body| compressed(&headers, METRICS, body))
}

async fn pool(Extract(shared): Extract<Arc<Shared>>, Path(pool): Path<String>) -> Response {
    let (snapshot, now) = shared.now();
    let Some((_, plan)) = find_pool(&snapshot, &PoolId::from(pool)) else {
        return text(StatusCode::NOT_FOUND, "no pool of that name\n");
    };
    match served(&snapshot, plan, now) {
        Err(absence) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{absence}\n")),
        Ok(replicas) => answer(render_recommendation(replicas), |body| ([(CONTENT_TYPE, METRICS)], body).into_response()),
    }
}

async fn api_plans(Extract(shared): Extract<Arc<Shared>>, headers: HeaderMap) -> Response {
    let (snapshot, now) = shared.now();
    let served: Vec<_> = snapshot.models.iter().map(|model| as_served(&snapshot, model, now)).collect();
    compressed(&headers, "application/json", format!("{:#}\n", plans::document(&served)))
}

async fn status(Extract(shared): Extract<Arc<Shared>>, Query(query): Query<page::Query>, headers: HeaderMap) -> Response {
    let (snapshot, now) = shared.now();
    let Some(html) = page::render(&snapshot, now, &query) else {
        return text(StatusCode::NOT_FOUND, "no model of that name; see /\n");
    };
    let policy = [(CONTENT_SECURITY_POLICY, page::policy()), (REFERRER_POLICY, "no-referrer".to_owned())];
    (policy, compressed(&headers, "text/html; charset=utf-8", html)).into_response()
}

async fn healthy(Extract(shared): Extract<Arc<Shared>>) -> Response {
    let (snapshot, now) = shared.now();
    let age = now.monotonic.saturating_sub(snapshot.at.monotonic);
    let patience = patience(snapshot.scrape_interval);
    if age > patience {
        let problem = format!("no round for {} s, expected one within {} s\n", age.as_secs(), patience.as_secs());
        return text(StatusCode::SERVICE_UNAVAILABLE, problem);
    }
    text(StatusCode::OK, "healthy\n")
}

async fn ready(Extract(shared): Extract<Arc<Shared>>) -> Response {
    match shared.state.snapshot.load().ready {
        true => text(StatusCode::OK, "ready\n"),
        false => text(StatusCode::SERVICE_UNAVAILABLE, "the first scrape round has not ended\n"),
    }
}

async fn reload(Extract(shared): Extract<Arc<Shared>>) -> Response {
    if !shared.enable_lifecycle {
        return text(StatusCode::FORBIDDEN, "reload over HTTP is off; set server.enable_lifecycle: true, or send SIGHUP\n");
    }
    let (request, answer) = oneshot::channel();
    if shared.state.reload.send(request).await.is_err() {
        return stopping();
    }
    match answer.await {
        Ok(Ok(())) => text(StatusCode::OK, "reloaded\n"),
        Ok(Err(problems)) => {
            let lines: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
            text(StatusCode::INTERNAL_SERVER_ERROR, format!("the configuration was refused, the old one stays:\n{lines}"))
        }
        Err(_) => stopping(),
    }
}

pub(super) fn stopping() -> Response {
    text(StatusCode::SERVICE_UNAVAILABLE, "the exporter is stopping\n")
}

/// The body, gzipped where the client takes that.
pub(super) fn compressed(headers: &HeaderMap, content_type: &'static str, body: String) -> Response {
    let described =
        [(CONTENT_TYPE, content_type), (X_CONTENT_TYPE_OPTIONS, "nosniff"), (CACHE_CONTROL, "no-store"), (VARY, "Accept-Encoding")];
    if body.len() >= WORTH_COMPRESSING && takes_gzip(headers) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        if let Ok(zipped) = encoder.write_all(body.as_bytes()).and_then(|()| encoder.finish()) {
            return (described, [(CONTENT_ENCODING, "gzip")], zipped).into_response();
        }
    }
    (described, body).into_response()
}

/// Whether gzip is named in Accept-Encoding and not refused by a weight of zero.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let offers = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    offers.into_iter().any(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let named = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
        let refused =
            parts.filter_map(|part| part.strip_prefix("q=")).any(|weight| weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0));
        named && !refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_used_only_where_it_is_asked_for() {
        for (offer, takes) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("br, gzip ; q=1.0", true),
            ("gzip;q=0", false),
            ("identity", false),
            ("x-gzipped", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, offer.parse().unwrap());
            assert_eq!(takes_gzip(&headers), takes, "{offer}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
