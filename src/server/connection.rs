//! Who may connect, and how long may they stall? A permit for each connection, a share of them for each peer, a deadline for handshakes, and one
//! for writes that make no progress.
//!
//! A connection over the limit is closed rather than queued: a queue would only move the flood from one place to another.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
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
    peers: Arc<Peers>,
    handshake_timeout: Duration,
    write_timeout: Duration,
    access: Arc<ArcSwap<Access>>,
}

impl Limit {
    pub(super) fn new(settings: &Settings, access: Arc<ArcSwap<Access>>) -> Self {
        let permits = Arc::new(Semaphore::new(settings.max_connections));
        let peers = Arc::new(Peers { most: settings.max_connections_per_peer, open: Mutex::default() });
        Self { permits, peers, handshake_timeout: settings.header_timeout, write_timeout: settings.request_timeout, access }
    }

    fn permitted(&self, stream: TcpStream) -> io::Result<Connection> {
        let share = Peers::enter(&self.peers, peer_of(stream.peer_addr()?.ip()))?;
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Ok(Connection { stream, write_timeout: self.write_timeout, stalled: None, _permit: permit, _share: share }),
            Err(_) => Err(io::Error::other("expected a free connection, all are in use")),
        }
    }
}

/// Who counts as one: an IPv4 address, or the network of 64 bits that a host with IPv6 chooses its addresses from.
fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// How many connections each peer has.
#[derive(Debug)]
struct Peers {
    most: usize,
    open: Mutex<BTreeMap<IpAddr, usize>>,
}

impl Peers {
    fn enter(peers: &Arc<Self>, peer: IpAddr) -> io::Result<Share> {
        let mut open = peers.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(peer).or_default();
        // A peer with none is let in by any limit but zero, so that no entry without a share stays.
        if *count >= peers.most.max(1) {
            return Err(io::Error::other("expected a peer with fewer connections"));
        }
        *count += 1;
        Ok(Share { peers: Arc::clone(peers), peer })
    }
}

/// One connection of a peer, until it is dropped.
#[derive(Debug)]
struct Share {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.peers.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.peer);
            }
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
    _share: Share,
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
