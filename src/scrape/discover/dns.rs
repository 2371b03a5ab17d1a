//! Which addresses or SRV records does a name have? The system's resolver where it is enough, a resolver of our own where it is not.
//!
//! The system's resolver reads `/etc/hosts` and every other source that the host is set up for, but knows neither SRV records nor a name
//! server of one's own. The other one is made anew for each look: there is nothing to remember, and `/etc/resolv.conf` may have changed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::sync::Semaphore;

use super::Looked;
use super::sieve::{Found, Sieve};

/// Time for one question to one server; asked twice, a look is over before its deadline.
const PATIENCE: Duration = Duration::from_secs(2);

/// Every address of a name.
#[derive(Debug)]
pub(super) struct Dns {
    host: String,
    port: u16,
    nameserver: Option<SocketAddr>,
    /// One thread at most waits for the system's resolver, which cannot be stopped.
    permit: Arc<Semaphore>,
}

impl Dns {
    pub(super) fn new(host: String, port: u16, nameserver: Option<SocketAddr>) -> Self {
        Self { host, port, nameserver, permit: Arc::new(Semaphore::new(1)) }
    }

    pub(super) async fn look(&self, sieve: &Arc<Sieve>) -> Result<Looked, String> {
        let addresses = match self.nameserver {
            None => self.ask_system().await?,
            Some(server) => self.ask(server).await?,
        };
        let found = one_family(addresses).into_iter().map(|address| Found {
            address: SocketAddr::new(address, self.port).to_string(),
            labels: BTreeMap::from([("__meta_dns_name".to_owned(), self.host.clone())]),
        });
        sieve.sift(found)
    }

    async fn ask_system(&self) -> Result<Vec<IpAddr>, String> {
        let permit = Arc::clone(&self.permit).acquire_owned().await.map_err(|error| error.to_string())?;
        let host = self.host.clone();
        let asking = tokio::task::spawn_blocking(move || {
            let addresses = (host.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
            drop(permit);
            addresses.map_err(|error| format!("the name {host} has no address: {error}"))
        });
        asking.await.map_err(|error| error.to_string())?
    }

    async fn ask(&self, server: SocketAddr) -> Result<Vec<IpAddr>, String> {
        let resolver = resolver(Some(server))?;
        let mut found = Vec::new();
        for kind in [RecordType::A, RecordType::AAAA] {
            let records = records(&resolver, &self.host, kind).await?;
            found.extend(records.iter().flat_map(Lookup::answers).filter_map(|record| record.data.ip_addr()));
            if !found.is_empty() {
                break;
            }
        }
        Ok(found)
    }
}

/// A pod with addresses of both families is one server: IPv4 where there is any.
fn one_family(mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    if addresses.iter().any(IpAddr::is_ipv4) {
        addresses.retain(IpAddr::is_ipv4);
    }
    addresses
}

/// Every SRV record of a name.
#[derive(Debug)]
pub(super) struct Srv {
    name: String,
    nameserver: Option<SocketAddr>,
}

impl Srv {
    pub(super) fn new(name: String, nameserver: Option<SocketAddr>) -> Self {
        Self { name, nameserver }
    }

    pub(super) async fn look(&self, sieve: &Arc<Sieve>) -> Result<Looked, String> {
        let records = records(&resolver(self.nameserver)?, &self.name, RecordType::SRV).await?;
        let found = records.iter().flat_map(Lookup::answers).filter_map(|record| match &record.data {
            // The root as a host says that the service is decidedly not there (RFC 2782).
            RData::SRV(srv) if !srv.target.is_root() => {
                let host = srv.target.to_utf8();
                let host = host.trim_end_matches('.').to_owned();
                let labels = [("__meta_dns_name", self.name.clone()), ("__meta_dns_srv_record_target", host.clone())];
                let labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
                Some(Found { address: format!("{host}:{}", srv.port), labels })
            }
            _ => None,
        });
        sieve.sift(found)
    }
}

fn resolver(nameserver: Option<SocketAddr>) -> Result<TokioResolver, String> {
    let mut builder = match nameserver {
        Some(address) => {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            server.connections.iter_mut().for_each(|connection| connection.port = address.port());
            let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        }
        None => TokioResolver::builder_tokio().map_err(|error| format!("/etc/resolv.conf cannot be used: {error}"))?,
    };
    let options = builder.options_mut();
    options.timeout = PATIENCE;
    options.attempts = 2;
    options.use_hosts_file = ResolveHosts::Never;
    builder.build().map_err(|error| format!("no resolver: {error}"))
}

/// The records; `None` where the name is there without records of this kind.
async fn records(resolver: &TokioResolver, name: &str, kind: RecordType) -> Result<Option<Lookup>, String> {
    let parsed = Name::from_utf8(name).map_err(|error| format!("{name:?} is not a name: {error}"))?;
    match resolver.lookup(parsed, kind).await {
        Ok(found) => Ok(Some(found)),
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) if none.response_code == ResponseCode::NoError => Ok(None),
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => Err(format!("{kind} records of {name}: {}", none.response_code)),
        Err(error) => Err(format!("{kind} records of {name}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_two_families_of_addresses_counts_once() {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        assert_eq!(one_family(addresses(&["::1", "10.0.0.1", "10.0.0.2"])), addresses(&["10.0.0.1", "10.0.0.2"]));
        assert_eq!(one_family(addresses(&["::1", "::2"])), addresses(&["::1", "::2"]));
    }
}
