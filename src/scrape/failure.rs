//! What went wrong, in one of the closed kinds and in words?
//!
//! Messages are made from our own words, host and port, and the innermost cause. Errors of the HTTP library are never printed whole,
//! because they repeat the URL, and URLs may hold passwords or tokens.

use std::error::Error;
use std::io;

use reqwest::Url;

use super::report::Failure;
use super::resolve::ResolveError;
use crate::planner::input::FailureKind;

/// How the TLS library calls a server's certificate that is its own authority. Its type is private to a crate of that library.
const OWN_AUTHORITY: &str = "CaUsedAsEndEntity";

/// A failure with its words.
pub(super) fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}

/// `host:port` of a URL: what may be shown of it.
pub(super) fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or("(no host)");
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// What became of a request that was not answered.
#[derive(Debug)]
pub(super) enum Lost {
    /// As the client for all says it.
    Full(reqwest::Error),
    /// As the client for plain HTTP says it.
    Plain(hyper_util::client::legacy::Error),
    /// It could not be put together.
    Unasked(Box<dyn Error + Send + Sync>),
}

impl Lost {
    fn is_connect(&self) -> bool {
        match self {
            Self::Full(error) => error.is_connect(),
            Self::Plain(error) => error.is_connect(),
            Self::Unasked(_) => false,
        }
    }

    /// Whether the head of the answer did not fit the buffer.
    pub fn is_large_head(&self) -> bool {
        find::<hyper::Error>(self.error()).is_some_and(hyper::Error::is_parse_too_large)
    }

    fn is_timeout(&self) -> bool {
        matches!(self, Self::Full(error) if error.is_timeout())
    }

    fn error(&self) -> &(dyn Error + 'static) {
        match self {
            Self::Full(error) => error,
            Self::Plain(error) => error,
            Self::Unasked(error) => &**error,
        }
    }
}

/// Why no response came from `place`.
pub(super) fn without_response(lost: &Lost, place: &str) -> Failure {
    let error = lost.error();
    let cause = innermost(error);
    if let Some(unknown) = find::<ResolveError>(error) {
        return failure(FailureKind::Resolve, unknown.to_string());
    }
    if lost.is_timeout() || io_kind(error) == Some(io::ErrorKind::TimedOut) {
        return failure(FailureKind::Timeout, format!("no answer from {place}: {cause}"));
    }
    if cause.contains(OWN_AUTHORITY) {
        let message = format!(
            "the certificate of {place} is an authority's: it signed itself; give the server a certificate that an authority issued and name \
             that authority in tls.ca_file, or write tls.insecure_skip_verify: true"
        );
        return failure(FailureKind::Connect, message);
    }
    if lost.is_connect() {
        return failure(FailureKind::Connect, format!("cannot connect to {place}: {cause}"));
    }
    if let Lost::Unasked(_) = lost {
        return failure(FailureKind::Connect, format!("{place} cannot be asked: {cause}; expected a URL that fits a request"));
    }
    if find::<hyper::Error>(error).is_some_and(hyper::Error::is_parse) {
        return failure(FailureKind::Parse, format!("expected an HTTP answer from {place}: {cause}"));
    }
    failure(FailureKind::Connect, format!("the connection to {place} broke before an answer came: {cause}"))
}

/// Why the body ended early, after `received` bytes.
pub(super) fn within_body(error: &reqwest::Error, received: usize) -> Failure {
    let cause = innermost(error);
    match io_kind(error) {
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe) => {
            failure(FailureKind::Connect, format!("the connection broke after {received} bytes of the body: {cause}"))
        }
        Some(io::ErrorKind::TimedOut) => failure(FailureKind::Timeout, format!("the body stopped after {received} bytes: {cause}")),
        _ => failure(FailureKind::Parse, format!("the body was cut short after {received} bytes: {cause}")),
    }
}

/// Whether the connection was closed without a word. On a connection from an earlier round that says nothing of the server: it may have
/// closed it as idle in the moment in which we wrote to it.
pub(super) fn closed_without_answer(lost: &Lost) -> bool {
    if lost.is_connect() || lost.is_timeout() {
        return false;
    }
    let error = lost.error();
    let closed = |error: &hyper::Error| error.is_incomplete_message() || error.is_closed() || error.is_canceled();
    let broken = matches!(
        io_kind(error),
        Some(io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
    );
    broken || find::<hyper::Error>(error).is_some_and(closed)
}

fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    find::<io::Error>(error).map(io::Error::kind)
}

/// The first error of this type among the error and its causes.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// The text of the innermost cause, on one line.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let text = causes(error).last().map(ToString::to_string).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_and_port_of_a_url_are_shown() -> Result<(), Box<dyn Error>> {
        for (url, shown) in [
            ("http://user:secret@host:8000/metrics?token=secret", "host:8000"),
            ("https://host/metrics", "host:443"),
            ("http://[::1]:80/metrics", "[::1]:80"),
        ] {
            assert_eq!(place(&Url::parse(url)?), shown);
        }
        Ok(())
    }
}
