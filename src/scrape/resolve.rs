//! Which addresses does a host name have?
//!
//! The system's resolver blocks a thread, for longer than any of our deadlines when the name server is silent, and cannot be stopped.
//! So the number of threads it may hold is bounded here, and a permit is returned by the thread itself, not by the request that gave
//! up waiting for it. Addresses written as numbers never come here.

use std::fmt;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

/// Names looked up at the same time. Connections are kept, so names are looked up at start and after failures only; each look-up in
/// flight holds a thread.
const LOOKUPS: usize = 16;

/// The system's resolver with a bound on its threads.
#[derive(Debug)]
pub(super) struct Resolver {
    permits: Arc<Semaphore>,
}

impl Resolver {
    pub(super) fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(LOOKUPS)) }
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let permits = Arc::clone(&self.permits);
        Box::pin(async move {
            let permit = permits.acquire_owned().await?;
            let name = name.as_str().to_owned();
            let addresses = tokio::task::spawn_blocking(move || {
                let addresses = look_up(&name);
                drop(permit);
                addresses
            });
            Ok(Box::new(addresses.await??.into_iter()) as Addrs)
        })
    }
}

fn look_up(name: &str) -> Result<Vec<std::net::SocketAddr>, ResolveError> {
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

impl std::error::Error for ResolveError {}
