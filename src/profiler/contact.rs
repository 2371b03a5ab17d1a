//! Who is on the other side, and how does it want to be asked? I/O.
//!
//! What servers accept differs: some have only chats, some refuse parameters that they do not know. So a short request is tried, with
//! everything first, then with less, and what the server takes is used from then on. What its pages say (models, version, metrics) goes
//! into the provenance; none of them is needed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::stream::{Answer, RequestError, Server};
use crate::engines::{ENGINES, Reading};
use crate::exposition::{Format, Wanted};
use crate::planner::input::Gauge;
use crate::units::{ModelId, Replicas, Role};

/// Tokens of the answer to a trial request.
const TRIAL: u32 = 4;
/// A name with more characters is no version.
const LONGEST_VERSION: usize = 100;

/// Which of the two interfaces is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

impl Endpoint {
    /// Where it is.
    pub fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// How answers are kept from ending early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    /// `ignore_eos` and `min_tokens`: vLLM, SGLang, TensorRT-LLM, Dynamo.
    Both,
    /// `ignore_eos` only.
    IgnoreEos,
    /// Nothing: the model decides.
    Free,
}

/// A way to ask that the server takes.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// The interface.
    pub endpoint: Endpoint,
    length: Length,
}

impl Manner {
    /// Whether answers are as long as they are asked to be.
    pub fn holds_length(self) -> bool {
        self.length != Length::Free
    }

    /// Sends a prompt and waits for an answer of so many tokens.
    pub async fn ask(self, server: &Server, model: &str, prompt: String, tokens: u32) -> Result<Answer, RequestError> {
        let mut body = json!({
            "model": model,
            "max_tokens": tokens,
            "temperature": 0.0,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        match self.endpoint {
            Endpoint::Completions => body["prompt"] = prompt.into(),
            Endpoint::Chat => body["messages"] = json!([{ "role": "user", "content": prompt }]),
        }
        if self.length != Length::Free {
            body["ignore_eos"] = true.into();
        }
        if self.length == Length::Both {
            body["min_tokens"] = tokens.into();
        }
        // A piece holds a token or more; some servers send a few more pieces than tokens, such as halves of a character.
        server.ask(self.endpoint.path(), &body, 2 * tokens as usize + 16).await
    }

    /// Finds a way that this server takes, with its answer to the trial.
    pub async fn find(server: &Server, model: &str, wanted: Option<Endpoint>) -> Result<(Self, Answer), RequestError> {
        let endpoints = wanted.map_or(vec![Endpoint::Completions, Endpoint::Chat], |endpoint| vec![endpoint]);
        let mut first_failure = None;
        for endpoint in endpoints {
            for length in [Length::Both, Length::IgnoreEos, Length::Free] {
                let manner = Self { endpoint, length };
                match manner.ask(server, model, " Name a colour and a city.".to_owned(), TRIAL).await {
                    Ok(answer) => return Ok((manner, answer)),
                    Err(error @ RequestError::Status { status: 404 | 405 | 501, .. }) => {
                        first_failure.get_or_insert(error);
                        break;
                    }
                    Err(error) if error.is_refusal() => drop(first_failure.get_or_insert(error)),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(first_failure.unwrap_or(RequestError::NoUsage))
    }
}

/// What the server's pages say about it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    /// The dialect of its metrics page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// What `/version` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_version: Option<String>,
    /// `owned_by` of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned_by: Option<String>,
}

/// The models that the server lists, with their owners. `None` where it has no such list.
pub async fn models(server: &Server) -> Result<Option<BTreeMap<String, Option<String>>>, RequestError> {
    let body = match server.page("/v1/models").await {
        Ok(body) => body,
        Err(RequestError::Status { .. } | RequestError::Unexpected(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let list = serde_json::from_slice::<Value>(&body).ok().and_then(|list| list.get("data")?.as_array().cloned());
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    Ok(list.map(|list| list.iter().filter_map(|model| Some((text(model.get("id"))?, text(model.get("owned_by"))))).collect()))
}

/// What `/version` says, where there is such a page.
pub async fn version(server: &Server) -> Option<String> {
    let body = server.page("/version").await.ok()?;
    let version = serde_json::from_slice::<Value>(&body).ok()?.get("version")?.as_str()?.to_owned();
    (version.chars().count() <= LONGEST_VERSION).then_some(version)
}

/// What the metrics page says of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// The dialect.
    pub engine: Option<&'static str>,
    /// Tokens that the KV memory of a replica holds.
    pub max_kv_tokens: Option<f64>,
    /// Requests that are being worked on.
    pub running: Option<f64>,
    /// Replicas behind this address, by role; empty where it does not say.
    pub workers: BTreeMap<Role, Replicas>,
}

/// Reads the server's `/metrics`. Empty where there is none or nobody can read it.
pub async fn metrics(server: &Server, model: &str) -> Metrics {
    let Ok(body) = server.page("/metrics").await else { return Metrics::default() };
    let Ok(page) = crate::exposition::read(&body, Format::Text, &Wanted::all()) else { return Metrics::default() };
    let Some(engine) = ENGINES.iter().find(|engine| (engine.recognise)(&page)) else { return Metrics::default() };
    let reading: Reading = (engine.read)(&page);
    let sample = reading.of_model(&ModelId::from(model));
    let gauge = |gauge: Gauge| sample.gauges.get(&gauge).or(sample.fleet.get(&gauge)).copied();
    Metrics {
        engine: Some(engine.name),
        max_kv_tokens: gauge(Gauge::KvCapacityTokens).filter(|tokens| *tokens >= 1.0),
        running: gauge(Gauge::Running).or(gauge(Gauge::InFlight)),
        workers: sample.workers.iter().map(|(role, ready)| (*role, *ready)).collect(),
    }
}
