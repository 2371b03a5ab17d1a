//! What came of one streamed request, and when did each piece come? I/O.
//!
//! Nothing of the other side is trusted: an answer may never end, be of another type, break off, or send more than was asked for. Each is a
//! failure with words. Times are taken when a piece has arrived, before it is read.

use std::error::Error;
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::Value;

use super::answer::{self, Frame, Usage};
use super::sse::{Event, Events};

/// Most bytes of an answer that is not a stream.
const LARGEST_BODY: usize = 4 << 20;
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest wait for answers to questions about the server itself.
const QUESTION: Duration = Duration::from_secs(10);

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No connection.
    #[error("cannot connect to {place}: {cause}")]
    Connect {
        /// Host and port.
        place: String,
        /// The innermost cause.
        cause: String,
    },
    /// The connection or the stream ended early.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// Not complete in time.
    #[error("no complete answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    /// An answer other than 200.
    #[error("the server answered with status {status}: {words}")]
    Status {
        /// The status.
        status: u16,
        /// The server's words.
        words: String,
    },
    /// Not what a completion looks like.
    #[error("{0}")]
    Unexpected(String),
    /// An error in the stream.
    #[error("the server gave up in the middle of its answer: {0}")]
    InStream(String),
    /// No counts.
    #[error(
        "the server sent no token counts; expected a last event with usage, as asked for with stream_options.include_usage: without them \
         neither the length of prompts nor the number of generated tokens is known"
    )]
    NoUsage,
}

impl RequestError {
    /// The server would not take this request, and will not take it a second time.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Status { status: 400 | 413 | 422, .. })
    }
}

/// A completed request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When it was sent.
    pub sent: Instant,
    /// When each piece with text came.
    pub pieces: Vec<Instant>,
    /// The server's counts.
    pub usage: Usage,
}

/// A server, and how to speak to it.
#[derive(Clone, Debug)]
pub struct Server {
    http: Client,
    base: Url,
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

impl Server {
    /// `base` may end in `/v1`. The error says what is wrong with the address or the key.
    pub fn new(base: &str, key: Option<&str>, timeout: Duration) -> Result<Self, String> {
        let wrong = || "expected a URL such as http://127.0.0.1:8000".to_owned();
        let mut base = Url::parse(base).map_err(|_| wrong())?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() || base.query().is_some() || base.fragment().is_some() {
            return Err(wrong());
        }
        let path = base.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1").unwrap_or(path).trim_end_matches('/').to_owned();
        base.set_path(&path);
        let authorization = key.map(|key| HeaderValue::from_str(&format!("Bearer {key}"))).transpose();
        let mut authorization = authorization.map_err(|_| "expected a key in one line of visible characters".to_owned())?;
        authorization.iter_mut().for_each(|value| value.set_sensitive(true));
        // The client asks for a provider even if it never speaks TLS. An error says that there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Client::builder()
            .user_agent(concat!("inference-planner-exporter/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .http1_only()
            // Each piece is to be seen when it comes, and each stream needs a connection of its own: there is no limit on them.
            .tcp_nodelay(true)
            .retry(reqwest::retry::never())
            .connect_timeout(CONNECT);
        let builder = if base.scheme() == "https" { builder } else { builder.tls_certs_only([]) };
        let http = builder.build().map_err(|error| format!("cannot set up HTTP: {}", innermost(&error)))?;
        Ok(Self { http, base, authorization, timeout })
    }

    /// Its address without credentials.
    pub fn shown(&self) -> String {
        let mut url = self.base.clone();
        // Only addresses without a host have no place for them.
        let (_user, _password) = (url.set_username(""), url.set_password(None));
        url.as_str().trim_end_matches('/').to_owned()
    }

    fn place(&self) -> String {
        let port = self.base.port_or_known_default().map_or_else(String::new, |port| format!(":{port}"));
        format!("{}{port}", self.base.host_str().unwrap_or_default())
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        url
    }

    /// The body of a page of this server, e.g. `/v1/models`.
    pub async fn page(&self, path: &str) -> Result<Vec<u8>, RequestError> {
        let mut request = self.http.get(self.url(path));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let answer = async {
            let response = request.send().await.map_err(|error| self.failure(&error))?;
            let status = response.status();
            let body = self.body(response).await?;
            if status == StatusCode::OK { Ok(body) } else { Err(refused(status, &body)) }
        };
        tokio::time::timeout(QUESTION, answer).await.map_err(|_| RequestError::Timeout(QUESTION))?
    }

    /// A streamed completion, to its end.
    pub async fn ask(&self, path: &str, body: &Value, most_pieces: usize) -> Result<Answer, RequestError> {
        let answer = self.stream(path, body, most_pieces);
        tokio::time::timeout(self.timeout, answer).await.map_err(|_| RequestError::Timeout(self.timeout))?
    }

    async fn stream(&self, path: &str, body: &Value, most_pieces: usize) -> Result<Answer, RequestError> {
        let mut request = self.http.post(self.url(path)).header(CONTENT_TYPE, "application/json").header(ACCEPT, "text/event-stream");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let request = request.body(body.to_string());
        let sent = Instant::now();
        let mut response = request.send().await.map_err(|error| self.failure(&error))?;
        if response.status() != StatusCode::OK {
            let status = response.status();
            return Err(refused(status, &self.body(response).await?));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("no content type").to_owned();
        if !kind.starts_with("text/event-stream") {
            return Err(RequestError::Unexpected(format!("expected a stream (text/event-stream), got {kind}")));
        }
        let mut reading = Reading { most_pieces, ..Reading::default() };
        let mut events = Events::default();
        while let Some(bytes) = response.chunk().await.map_err(|error| self.failure(&error))? {
            let at = Instant::now();
            for event in events.push(&bytes).map_err(|error| RequestError::Unexpected(error.to_string()))? {
                reading.take(&event, at)?;
            }
            if reading.done {
                // What comes after is nothing; to read it keeps the connection.
                let _rest = tokio::time::timeout(Duration::from_secs(1), response.chunk()).await;
                return reading.finish(sent);
            }
        }
        if let Some(event) = events.finish().map_err(|error| RequestError::Unexpected(error.to_string()))? {
            reading.take(&event, Instant::now())?;
        }
        reading.finish(sent)
    }

    /// A body that is not a stream.
    async fn body(&self, mut response: Response) -> Result<Vec<u8>, RequestError> {
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(|error| self.failure(&error))? {
            body.extend_from_slice(&bytes);
            if body.len() > LARGEST_BODY {
                return Err(RequestError::Unexpected(format!("expected an answer of at most {LARGEST_BODY} bytes, got more")));
            }
        }
        Ok(body)
    }

    /// Never the library's own words as a whole: they repeat the URL, which may hold a password.
    fn failure(&self, error: &reqwest::Error) -> RequestError {
        let cause = innermost(error);
        if error.is_connect() { RequestError::Connect { place: self.place(), cause } } else { RequestError::Broken(cause) }
    }
}

fn refused(status: StatusCode, body: &[u8]) -> RequestError {
    RequestError::Status { status: status.as_u16(), words: answer::words(&String::from_utf8_lossy(body)) }
}

fn innermost(error: &reqwest::Error) -> String {
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(next) = cause.and_then(Error::source) {
        cause = Some(next);
    }
    cause.map_or_else(|| "no further words".to_owned(), ToString::to_string)
}

/// What has been read of a stream.
#[derive(Debug, Default)]
struct Reading {
    pieces: Vec<Instant>,
    usage: Option<Usage>,
    done: bool,
    most_pieces: usize,
}

impl Reading {
    fn take(&mut self, event: &Event, at: Instant) -> Result<(), RequestError> {
        match answer::read(event).map_err(RequestError::Unexpected)? {
            Frame::Done => self.done = true,
            Frame::Error(words) => return Err(RequestError::InStream(words)),
            Frame::Piece { has_text, usage } => {
                self.usage = usage.or(self.usage);
                if has_text {
                    self.pieces.push(at);
                }
                if self.pieces.len() > self.most_pieces {
                    let most = self.most_pieces;
                    return Err(RequestError::Unexpected(format!("expected at most {most} pieces, got more: max_tokens is not obeyed")));
                }
            }
        }
        Ok(())
    }

    fn finish(self, sent: Instant) -> Result<Answer, RequestError> {
        if !self.done {
            let pieces = self.pieces.len();
            return Err(RequestError::Broken(format!("the stream ended after {pieces} pieces and before [DONE]")));
        }
        let usage = self.usage.ok_or(RequestError::NoUsage)?;
        if self.pieces.is_empty() {
            return Err(RequestError::Unexpected("expected an answer with text, got none".to_owned()));
        }
        Ok(Answer { sent, pieces: self.pieces, usage })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_may_end_in_v1_and_never_shows_a_password() {
        for (given, shown, url) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/models"),
            ("http://h:1/v1/", "http://h:1", "http://h:1/v1/models"),
            ("http://me:secret@h/llm/v1", "http://h/llm", "http://me:secret@h/llm/v1/models"),
        ] {
            let server = Server::new(given, None, Duration::from_secs(1)).unwrap();
            assert_eq!(server.shown(), shown);
            assert_eq!(server.url("/v1/models").as_str(), url);
        }
        for wrong in ["127.0.0.1:8000", "ftp://h", "http://h?x=1", ""] {
            assert!(Server::new(wrong, None, Duration::from_secs(1)).is_err(), "{wrong}");
        }
        assert!(Server::new("http://h", Some("two\nlines"), Duration::from_secs(1)).is_err());
    }
}
