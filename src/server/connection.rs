//! Who may connect, and how long may they stall? A permit for each connection, a deadline for handshakes, and one for writes that make no
//! progress.
//!
//! A connection over the limit is closed rather than queued: a queue would only move the flood from one place to another.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Extension;
use axum::middleware::AddExtension;
use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower_layer::Layer;

use super::Settings;
use super::access::{Access, Peer};

/// Lets a fixed number of connections in, with a handshake where there is TLS.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    permits: Arc<Semaphore>,
    handshake_timeout: Duration,
    write_timeout: Duration,
    access: Arc<ArcSwap<Access>>,
}

impl Limit {
    pub(super) fn new(settings: &Settings, access: Arc<ArcSwap<Access>>) -> Self {
        let permits = Arc::new(Semaphore::new(settings.max_connections));
        Self { permits, handshake_timeout: settings.header_timeout, write_timeout: settings.request_timeout, access }
    }

    fn permitted(&self, stream: TcpStream) -> io::Result<Connection> {
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Ok(Connection { stream, write_timeout: self.write_timeout, stalled: None, _permit: permit }),
            Err(_) => Err(io::Error::other("expected a free connection, all are in use")),
        }
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Limit {
    type Stream = Stream;
    type Service = AddExtension<S, Peer>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let (connection, tls, patience) = (self.permitted(stream), self.access.load().tls(), self.handshake_timeout);
        Box::pin(async move {
            let connection = connection?;
            let (stream, peer) = match tls {
                None => (Stream::Plain(connection), Peer::default()),
                Some(tls) => {
                    let secure = timeout(patience, TlsAcceptor::from(Arc::clone(&tls)).accept(connection)).await??;
                    let certified = secure.get_ref().1.peer_certificates().is_some();
                    (Stream::Secure(Box::new(secure)), Peer { tls: Some(tls), certified })
                }
            };
            Ok((stream, Extension(peer).layer(service)))
        })
    }
}

/// A connection as HTTP sees it.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Connection),
    Secure(Box<TlsStream<Connection>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Secure(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Secure(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Self::Secure(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Secure(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Secure(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Secure(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A connection that counts against the limit until it is dropped. Below TLS, so that what TLS keeps back to write cannot stall either.
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
