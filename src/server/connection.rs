//! Who may connect, and how long may they stall? A permit for each connection, and a deadline for writes that make no progress.
//!
//! A connection over the limit is closed rather than queued: a queue would only move the flood from one place to another.

use std::future::{Future, Ready, ready};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Lets a fixed number of connections in.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    permits: Arc<Semaphore>,
    write_timeout: Duration,
}

impl Limit {
    pub(super) fn new(connections: usize, write_timeout: Duration) -> Self {
        Self { permits: Arc::new(Semaphore::new(connections)), write_timeout }
    }
}

impl<S> Accept<TcpStream, S> for Limit {
    type Stream = Connection;
    type Service = S;
    type Future = Ready<io::Result<(Connection, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Ok((Connection { stream, write_timeout: self.write_timeout, stalled: None, _permit: permit }, service)),
            Err(_) => Err(io::Error::other("expected a free connection, all are in use")),
        })
    }
}

/// A connection that counts against the limit until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    write_timeout: Duration,
    /// Runs while the client takes no bytes.
    stalled: Option<Pin<Box<Sleep>>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    /// Passes a write's outcome on, or fails it once the client has taken nothing for too long.
    fn guard(&mut self, outcome: Poll<io::Result<usize>>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let write_timeout = self.write_timeout;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(write_timeout)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.guard(outcome, context)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.guard(outcome, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
