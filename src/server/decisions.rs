//! How does a program follow the decisions? The list of those that stand, the wait for the next one, and the acknowledgement.
//!
//! A wait costs a timer and two places in channels: nothing looks again until a decision is made. It ends with the time that was asked for, or
//! with the server, in an ordinary answer; a client that leaves frees its place at once.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State as Extract};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::AcknowledgeRequest;
use super::routes::{Shared, compressed, stopping, text};
use crate::decisions::{Decision, DecisionId, Refusal};
use crate::export::served::decision_as_served;
use crate::report::decisions::{decision, document, superseded};

/// Shorter than what most proxies allow a request.
const USUAL_WAIT: Duration = Duration::from_secs(30);
/// Seconds after which a client that found no place to wait may try again.
const TRY_AGAIN_AFTER: &str = "5";
/// Characters of the name of who acknowledges.
const LONGEST_NAME: usize = 200;

const JSON: &str = "application/json";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    after: Option<DecisionId>,
    wait: Duration,
    model: Option<String>,
}

impl Question {
    /// The pairs of a query, or what was expected of them.
    fn of(pairs: &[(String, String)], longest: Duration) -> Result<Self, String> {
        let (mut after, mut wait, mut model) = (None, None, None);
        for (key, value) in pairs {
            let again = match key.as_str() {
                "after" => after.replace(id(value)?).is_some(),
                "wait" => wait.replace(span(value, longest)?).is_some(),
                "model" => model.replace(value.clone()).is_some(),
                _ => return Err(format!("{key:?}: unknown key, expected after, model or wait")),
            };
            if again {
                return Err(format!("{key}: expected once"));
            }
        }
        if wait.is_some() && after.is_none() {
            return Err("wait: expected after=ID with it, the last_id of an earlier answer; 0 waits for the first decision".to_owned());
        }
        Ok(Self { after, wait: wait.unwrap_or(USUAL_WAIT.min(longest)), model })
    }

    /// What there is to answer now, and whether it is worth an answer before the time is up; `None` for a model that nobody knows.
    fn look(&self, shared: &Shared) -> Option<(String, bool)> {
        let (snapshot, now) = shared.now();
        let standing = &snapshot.decisions;
        let of_model = |name: &str| self.model.as_ref().is_none_or(|asked| asked == name);
        let mut known = snapshot.models.iter().map(|model| &model.plan.model).chain(standing.decisions.iter().map(|made| &made.model));
        if self.model.is_some() && !known.any(|model| of_model(model.as_str())) {
            return None;
        }
        // An id of another process, larger than ours, says nothing of what its client has seen of us.
        let seen = self.after.filter(|after| *after <= standing.last_id);
        let newer = standing.decisions.iter().filter(|made| of_model(made.model.as_str()) && seen.is_none_or(|seen| made.id > seen));
        let newer: Vec<Decision> = newer.map(|made| decision_as_served(&snapshot, made, now)).collect();
        let text = format!("{:#}\n", document(standing.last_id, &newer, now));
        Some((text, seen.is_none() || !newer.is_empty()))
    }
}

fn id(text: &str) -> Result<DecisionId, String> {
    text.parse().map(DecisionId).map_err(|_| format!("after: expected the last_id of an earlier answer, a whole number, got {text:?}"))
}

/// A bare number is seconds.
fn span(text: &str, longest: Duration) -> Result<Duration, String> {
    let span = text.parse().map(Duration::from_secs).ok().or_else(|| humantime::parse_duration(text).ok());
    span.filter(|span| *span <= longest).ok_or_else(|| {
        let longest = humantime::format_duration(Duration::from_millis(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX)));
        format!("wait: expected a duration such as 30s, at most {longest}, got {text:?}")
    })
}

pub(super) async fn list(
    Extract(shared): Extract<Arc<Shared>>,
    Query(pairs): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Response {
    let question = match Question::of(&pairs, shared.longest_wait) {
        Ok(question) => question,
        Err(problem) => return text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
    };
    let (mut newest, mut ending) = (shared.state.newest.clone(), shared.ending.clone());
    let deadline = sleep(question.wait);
    tokio::pin!(deadline);
    let mut place = None;
    let mut over = question.wait.is_zero();
    loop {
        // Before the look: what comes after it is then a change.
        newest.borrow_and_update();
        let Some((found, at_once)) = question.look(&shared) else { return text(StatusCode::NOT_FOUND, "no model of that name\n") };
        if over || at_once {
            return compressed(&headers, JSON, found);
        }
        if place.is_none() {
            place = shared.waiting.try_acquire().ok();
        }
        if place.is_none() {
            let full = text(StatusCode::SERVICE_UNAVAILABLE, "too many clients wait already; try again later\n");
            return ([(RETRY_AFTER, TRY_AGAIN_AFTER)], full).into_response();
        }
        over = tokio::select! {
            () = &mut deadline => true,
            _ended = ending.wait_for(|ending| *ending) => true,
            changed = newest.changed() => changed.is_err(),
        };
    }
}

/// The body of an acknowledgement.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Acknowledgement {
    by: Option<String>,
}

impl Acknowledgement {
    /// From a body, which may be empty; or what was expected of it.
    fn of(body: &[u8]) -> Result<Self, String> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        let expected = |problem: &str| format!("expected nothing or {{\"by\": \"NAME\"}}: {problem}");
        let Json(said) = Json::<Self>::from_bytes(body).map_err(|problem| expected(&problem.body_text()))?;
        let unfit = |by: &String| by.chars().count() > LONGEST_NAME || by.chars().any(char::is_control);
        if said.by.as_ref().is_some_and(unfit) {
            return Err(expected(&format!("the name has more than {LONGEST_NAME} characters, or control characters")));
        }
        Ok(said)
    }
}

pub(super) async fn acknowledge(
    Extract(shared): Extract<Arc<Shared>>,
    Path(id): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    if !shared.enable_lifecycle {
        return text(StatusCode::FORBIDDEN, "acknowledgements are off; set server.enable_lifecycle: true\n");
    }
    let Ok(id) = id.parse().map(DecisionId) else {
        return text(StatusCode::BAD_REQUEST, "expected the id of a decision, a whole number\n");
    };
    let by = match body.map(|body| Acknowledgement::of(&body)) {
        Ok(Ok(said)) => said.by,
        Ok(Err(problem)) => return text(StatusCode::BAD_REQUEST, format!("{problem}\n")),
        Err(rejection) => return rejection.into_response(),
    };
    let (answer, answered) = oneshot::channel();
    if shared.state.acknowledge.send(AcknowledgeRequest { id, by, answer }).await.is_err() {
        return stopping();
    }
    let json = [(CONTENT_TYPE, JSON)];
    match answered.await {
        Ok(Ok(made)) => {
            let (snapshot, now) = shared.now();
            (json, format!("{:#}\n", decision(&decision_as_served(&snapshot, &made, now), now))).into_response()
        }
        Ok(Err(Refusal::Superseded { by })) => (StatusCode::CONFLICT, json, format!("{:#}\n", superseded(id, by))).into_response(),
        Ok(Err(Refusal::Unknown)) => text(StatusCode::NOT_FOUND, format!("no decision {id}; see /api/v1/decisions\n")),
        Err(_) => stopping(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    fn question(pairs: &[(&str, &str)]) -> Result<Question, String> {
        let pairs: Vec<(String, String)> = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        Question::of(&pairs, LONGEST)
    }

    #[test]
    fn a_question_takes_what_the_readme_says() {
        let plain = Question { after: None, wait: USUAL_WAIT, model: None };
        assert_eq!(question(&[]), Ok(plain.clone()));
        assert_eq!(question(&[("after", "7")]), Ok(Question { after: Some(DecisionId(7)), ..plain.clone() }));
        for (written, seconds) in [("0", 0), ("45", 45), ("20s", 20), ("1m", 60)] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(question(&[("wait", written), ("after", "0")]), Ok(Question { after: Some(DecisionId(0)), wait, ..plain.clone() }));
        }
        assert_eq!(question(&[("model", "a/b")]), Ok(Question { model: Some("a/b".to_owned()), ..plain }));
    }

    #[test]
    fn a_wrong_question_is_told_what_was_expected() {
        for (pairs, expected) in [
            (&[("after", "-1")][..], "after: expected the last_id of an earlier answer, a whole number, got \"-1\""),
            (&[("after", "1"), ("wait", "61s")], "wait: expected a duration such as 30s, at most 1m, got \"61s\""),
            (&[("after", "1"), ("wait", "soon")], "got \"soon\""),
            (&[("wait", "5s")], "wait: expected after=ID with it"),
            (&[("after", "1"), ("after", "2")], "after: expected once"),
            (&[("timeout", "5s")], "\"timeout\": unknown key, expected after, model or wait"),
        ] {
            let problem = question(pairs).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
