//! How do others read us? The HTTP server: metrics, health, reload, plans, decisions and a status page.
//!
//! Every answer is made from the snapshot that is in force; nothing here waits for a scrape or a decision, except where that was asked for: a
//! reload, an acknowledgement, a long poll. Slow or many clients cost a bounded amount: headers, requests and stalled writes have deadlines,
//! connections and waits a limit.

mod access;
mod connection;
mod decisions;
pub mod page;
mod routes;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use axum_server::Handle;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use access::Access;

use crate::decisions::{Decision, DecisionId, Refusal};
use crate::export::page::{Clock, Page};
use crate::export::snapshot::Snapshot;

/// Largest head of a request, bytes; hyper's smallest read buffer is 8 KiB.
const HEAD_LIMIT: usize = 32 * 1024;

/// How the server behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether reloads and acknowledgements over HTTP are allowed.
    pub enable_lifecycle: bool,
    /// Time for the head of a request to arrive; also for a handshake, and how long a connection may be idle.
    pub header_timeout: Duration,
    /// Time for an answer to be made, and for a stalled client to take more of it.
    pub request_timeout: Duration,
    /// Connections at the same time; further ones are closed at once.
    pub max_connections: usize,
    /// Those of one peer: an IPv4 address, or an IPv6 network of 64 bits.
    pub max_connections_per_peer: usize,
    /// Clients that may wait for a decision at the same time; further ones are told to come back.
    pub max_waiting: usize,
    /// How long one may wait.
    pub longest_wait: Duration,
    /// Time that open requests get to finish at shutdown.
    pub shutdown_grace: Duration,
}

impl Settings {
    /// The defaults: enough for several Prometheus servers and autoscalers, too little for anyone to exhaust us with.
    pub fn new(listen: SocketAddr, enable_lifecycle: bool) -> Self {
        Self {
            listen,
            enable_lifecycle,
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            max_connections: 256,
            // Whole clusters may come through one address; that one must not keep all others out.
            max_connections_per_peer: 192,
            // A quarter of the connections: whoever waits must not keep Prometheus out.
            max_waiting: 64,
            longest_wait: Duration::from_secs(60),
            // The process as a whole has 2 s to end.
            shutdown_grace: Duration::from_millis(1500),
        }
    }
}

/// A request to reload. The answer is every problem of a configuration that was refused.
pub type ReloadRequest = oneshot::Sender<Result<(), Vec<String>>>;

/// A request to mark a decision as acted on.
#[derive(Debug)]
pub struct AcknowledgeRequest {
    /// Which decision.
    pub id: DecisionId,
    /// Who says so, if they gave a name.
    pub by: Option<String>,
    /// Where the decision, or why not, is waited for.
    pub answer: oneshot::Sender<Result<Decision, Refusal>>,
}

/// What the answers are made from.
#[derive(Clone)]
pub struct State {
    /// The snapshot in force.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// Reads both clocks.
    pub clock: Clock,
    /// Where reloads are asked for.
    pub reload: mpsc::Sender<ReloadRequest>,
    /// Changes after each snapshot with a new decision, to its id. Waits end when the sender goes.
    pub newest: watch::Receiver<DecisionId>,
    /// Who may ask, as it is now.
    pub access: Arc<ArcSwap<Access>>,
    /// Where acknowledgements are given.
    pub acknowledge: mpsc::Sender<AcknowledgeRequest>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("State")
    }
}

/// The HTTP server.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Binds the address and serves until [`ServerHandle::shutdown`]. Fails if the address cannot be bound.
    pub async fn start(settings: Settings, state: State) -> io::Result<ServerHandle> {
        let listener = TcpListener::bind(settings.listen).await?;
        let addr = listener.local_addr()?;
        let page = Page::new(state.snapshot.clone(), state.clock.clone()).map_err(io::Error::other)?;
        let (end, ending) = watch::channel(false);
        let limit = connection::Limit::new(&settings, Arc::clone(&state.access));
        let router = routes::router(&settings, state, page, ending);

        let handle = Handle::new();
        let mut server = axum_server::Server::from_listener(listener).acceptor(limit).handle(handle.clone()).http1_only();
        server.http_builder().http1().header_read_timeout(settings.header_timeout).max_buf_size(HEAD_LIMIT);
        let task = tokio::spawn(server.serve(router.into_make_service()));
        Ok(ServerHandle { addr, handle, task, end, grace: settings.shutdown_grace })
    }
}

/// A running server.
#[derive(Debug)]
pub struct ServerHandle {
    /// The address that it listens on.
    pub addr: SocketAddr,
    handle: Handle<SocketAddr>,
    task: JoinHandle<io::Result<()>>,
    end: watch::Sender<bool>,
    grace: Duration,
}

impl ServerHandle {
    /// Stops accepting, answers those who wait, lets open requests finish within the grace, then cuts what is left.
    pub async fn shutdown(self) -> io::Result<()> {
        self.end.send_replace(true);
        self.handle.graceful_shutdown(Some(self.grace));
        self.task.await.map_err(io::Error::other)?
    }
}
