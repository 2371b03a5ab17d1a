//! Which addresses does a host name have?
//!
//! The system's resolver blocks a thread, for longer than any of our deadlines when the name server is silent, and cannot be stopped.
//! So the number of threads it may hold is bounded here, and a permit is returned by the thread itself, not by the request that gave
//! up waiting for it. Addresses written as numbers never come here.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;
use tower_service::Service;

/// Names looked up at the same time. Connections are kept, so names are looked up at start and after failures only; each look-up in
/// flight holds a thread.
const LOOKUPS: usize = 16;

/// The system's resolver with a bound on its threads.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    permits: Arc<Semaphore>,
}

impl Resolver {
    pub(super) fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(LOOKUPS)) }
    }

    async fn addresses(permits: Arc<Semaphore>, name: String) -> Result<std::vec::IntoIter<SocketAddr>, Fault> {
        let permit = permits.acquire_owned().await?;
        let looking = tokio::task::spawn_blocking(move || {
            let addresses = look_up(&name);
            drop(permit);
            addresses
        });
        Ok(looking.await??.into_iter())
    }
}

type Fault = Box<dyn Error + Send + Sync>;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let addresses = Self::addresses(Arc::clone(&self.permits), name.as_str().to_owned());
        Box::pin(async move { Ok(Box::new(addresses.await?) as Addrs) })
    }
}

impl Service<dns::Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Fault;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Fault>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: dns::Name) -> Self::Future {
        Box::pin(Self::addresses(Arc::clone(&self.permits), name.as_str().to_owned()))
    }
}

fn look_up(name: &str) -> Result<Vec<SocketAddr>, ResolveError> {
    // The connection's own port replaces this one.
    let failed = |cause| ResolveError { name: name.to_owned(), cause };
    let addresses: Vec<_> = (name, 0).to_socket_addrs().map_err(|error| failed(Some(error)))?.collect();
    if addresses.is_empty() { Err(failed(None)) } else { Ok(addresses) }
}

/// The name has no address.
#[derive(Debug)]
pub(super) struct ResolveError {
    name: String,
    cause: Option<io::Error>,
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name {} has no address", self.name)?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

impl Error for ResolveError {}
