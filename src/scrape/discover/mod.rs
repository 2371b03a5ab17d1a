//! Which targets does a source have now? Every way to find them, each asked in the background at its own pace.
//!
//! A list is swapped whole when a look has succeeded, and a round takes the list as it is when the round begins: no look ever holds up a
//! scrape, and no list changes under a round. A look that fails keeps the last list and says why. "I do not know" and "there are none" are
//! different answers: a name that does not exist, a file that cannot be read or a server that does not answer are the former, an empty
//! list is the latter.
//!
//! One file a way: `dns`, `file`, `http`, `kubernetes`. What is written down needs no looking. `sieve` makes targets of what is found:
//! labels, `keep` and `drop`, each target once.
//!
//! A server that is found twice must not be counted twice. So names and slices of services with two families of addresses give one of them,
//! IPv4 where there is any; a target that two groups of a list name is one target.

mod dns;
mod file;
mod http;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod sieve;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::budget::Budget;
use super::client::{Requester, SetupError};
use crate::config::{DiscoveryConfig, ScrapeConfig, TargetConfig, Way};
use crate::planner::input::Lifecycle;
use sieve::Sieve;

/// Longest look: a name server or an API that takes longer does not answer.
const LONGEST_LOOK: Duration = Duration::from_secs(10);
/// Largest list, bytes.
const LARGEST_LIST: usize = 16 << 20;
/// Bytes of all lists together that are held while they are read.
const LISTS_IN_FLIGHT: usize = 32 << 20;

/// What is known of a source's targets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The targets of the last look that succeeded, sorted by name, each once.
    pub targets: Vec<TargetConfig>,
    /// Replicas by state, where the way tells them.
    pub replicas: Option<Lifecycle>,
    /// Why the last look did not succeed, or not wholly; `None` if it did. Holds no secret.
    pub problem: Option<String>,
    /// What the last look left out, though it succeeded. Holds no secret.
    pub note: Option<String>,
    /// Whether there has been a look at all.
    pub looked: bool,
    /// Looks that succeeded since the search began.
    pub succeeded: u64,
    /// Looks that did not.
    pub failed: u64,
}

impl Listing {
    /// Whether the list may be another one by now.
    pub fn is_stale(&self) -> bool {
        self.problem.is_some() || !self.looked
    }
}

/// What one look found.
#[derive(Debug, Default)]
pub(super) struct Looked {
    targets: Vec<TargetConfig>,
    replicas: Option<Lifecycle>,
    /// What part of it is older than this look, and why.
    problem: Option<String>,
    /// What was left out of it and is no fault of the look.
    note: Option<String>,
}

impl From<Vec<TargetConfig>> for Looked {
    fn from(targets: Vec<TargetConfig>) -> Self {
        Self { targets, ..Self::default() }
    }
}

/// What the ways use together.
#[derive(Debug)]
struct Tools {
    requester: Requester,
    budget: Arc<Budget>,
}

/// All searches under way.
#[derive(Debug)]
pub struct Discovery {
    tools: Arc<Tools>,
    searches: BTreeMap<DiscoveryConfig, Search>,
}

#[derive(Debug)]
struct Search {
    listing: watch::Receiver<Listing>,
    task: JoinHandle<()>,
}

impl Drop for Search {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Discovery {
    /// No search yet. Lists are asked for without the proxy of the scrapes: they come from the same network.
    pub fn new(config: &ScrapeConfig) -> Result<Self, SetupError> {
        let requester = Requester::new(&ScrapeConfig { proxy: None, ..config.clone() })?;
        let budget = Budget::new(LISTS_IN_FLIGHT, LARGEST_LIST, 64 << 10);
        Ok(Self { tools: Arc::new(Tools { requester, budget }), searches: BTreeMap::new() })
    }

    /// Searches for these from now on. What was searched for before and still is keeps its list. Needs a tokio runtime.
    pub fn adopt<'a>(&mut self, wanted: impl IntoIterator<Item = &'a DiscoveryConfig>) {
        let wanted: BTreeSet<&DiscoveryConfig> = wanted.into_iter().collect();
        self.searches.retain(|config, _| wanted.contains(config));
        for config in wanted {
            if !self.searches.contains_key(config) {
                let (publish, listing) = watch::channel(Listing::default());
                let task = tokio::spawn(search(config.clone(), Arc::clone(&self.tools), publish));
                self.searches.insert(config.clone(), Search { listing, task });
            }
        }
    }

    /// What is known now.
    pub fn listing(&self, config: &DiscoveryConfig) -> Listing {
        let Some(search) = self.searches.get(config) else { return Listing::default() };
        let mut listing = search.listing.borrow().clone();
        if search.task.is_finished() {
            listing.problem.get_or_insert_with(|| "the search ended unexpectedly (a defect of this program)".to_owned());
        }
        listing
    }

    /// Waits until each search has looked once.
    pub async fn settled(&self) {
        for search in self.searches.values() {
            let mut listing = search.listing.clone();
            // An error is a search that has ended; then there is nothing to wait for.
            let _looked = listing.wait_for(|listing| listing.looked).await.is_ok();
        }
    }
}

/// One way with what it remembers between looks.
enum Seeker {
    Dns(dns::Dns),
    Srv(dns::Srv),
    File(file::Files),
    Http(http::Http),
    #[cfg(feature = "kubernetes")]
    Kubernetes(kubernetes::Pods),
    #[cfg(not(feature = "kubernetes"))]
    Absent,
}

impl Seeker {
    fn new(config: &DiscoveryConfig, tools: &Arc<Tools>) -> Self {
        match &config.way {
            Way::Dns { host, port, nameserver } => Self::Dns(dns::Dns::new(host.clone(), *port, *nameserver)),
            Way::Srv { name, nameserver } => Self::Srv(dns::Srv::new(name.clone(), *nameserver)),
            Way::File { pattern } => Self::File(file::Files::new(pattern.clone())),
            Way::Http { url } => Self::Http(http::Http::new(url.clone(), config.refresh, Arc::clone(tools))),
            #[cfg(feature = "kubernetes")]
            Way::Kubernetes(pods) => Self::Kubernetes(kubernetes::Pods::new(pods.clone(), Arc::clone(tools))),
            #[cfg(not(feature = "kubernetes"))]
            Way::Kubernetes(_) => Self::Absent,
        }
    }

    async fn look(&self, sieve: &Arc<Sieve>) -> Result<Looked, String> {
        match self {
            Self::Dns(way) => way.look(sieve).await,
            Self::Srv(way) => way.look(sieve).await,
            Self::File(way) => way.look(sieve).await,
            Self::Http(way) => way.look(sieve).await,
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(way) => way.look(sieve).await,
            #[cfg(not(feature = "kubernetes"))]
            Self::Absent => Err("this program was built without the feature kubernetes".to_owned()),
        }
    }
}

/// Looks again and again, for good.
async fn search(config: DiscoveryConfig, tools: Arc<Tools>, publish: watch::Sender<Listing>) {
    let seeker = Seeker::new(&config, &tools);
    let sieve = Arc::new(Sieve::new(&config));
    loop {
        let looked = timeout(LONGEST_LOOK, seeker.look(&sieve)).await.unwrap_or_else(|_| Err("no answer within 10s".to_owned()));
        let before = publish.borrow().clone();
        let after = after(&before, looked);
        tell(&config.way, &before, &after);
        publish.send_replace(after);
        sleep(config.refresh).await;
    }
}

/// What is known after a look.
pub(super) fn after(before: &Listing, looked: Result<Looked, String>) -> Listing {
    let mut listing = Listing { looked: true, problem: None, ..before.clone() };
    match looked {
        Ok(looked) => {
            listing.targets = looked.targets;
            listing.replicas = looked.replicas;
            listing.problem = looked.problem;
            listing.note = looked.note;
        }
        Err(problem) => listing.problem = Some(problem),
    }
    match listing.problem {
        None => listing.succeeded += 1,
        Some(_) => listing.failed += 1,
    }
    listing
}

/// Tells people what changed.
fn tell(way: &Way, before: &Listing, after: &Listing) {
    let source = name(way);
    if after.problem != before.problem {
        match &after.problem {
            Some(problem) => tracing::warn!(source, targets = after.targets.len(), "the last list of targets stays in use: {problem}"),
            None => tracing::info!(source, targets = after.targets.len(), "the list of targets is up to date again"),
        }
    }
    if let Some(note) = after.note.as_ref().filter(|_| after.note != before.note) {
        tracing::warn!(source, "{note}");
    }
    if after.targets != before.targets {
        let known = |list: &[TargetConfig]| list.iter().map(|target| target.target.clone()).collect::<BTreeSet<_>>();
        let (old, new) = (known(&before.targets), known(&after.targets));
        let (came, went) = (new.difference(&old).count(), old.difference(&new).count());
        tracing::info!(source, targets = new.len(), came, went, "targets changed");
    }
}

/// What a way is called in the log: without anything that may be a secret.
fn name(way: &Way) -> String {
    match way {
        Way::Dns { host, port, .. } => format!("dns {host}:{port}"),
        Way::Srv { name, .. } => format!("srv {name}"),
        Way::File { pattern } => format!("file_sd {}", pattern.display()),
        Way::Http { url } => format!("http_sd {}", url.split(['?', '#']).next().unwrap_or_default()),
        Way::Kubernetes(pods) => format!("kubernetes {:?} in {}", pods.pods, pods.namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Looked {
        let target = |name: &&str| crate::config::found_target("http", name, "/metrics").unwrap();
        Looked::from(names.iter().map(target).collect::<Vec<_>>())
    }

    #[test]
    fn a_look_that_fails_keeps_the_list_and_one_that_finds_nothing_empties_it() {
        let first = after(&Listing::default(), Ok(list(&["a:1", "b:1"])));
        let failed = after(&first, Err("no answer".to_owned()));
        assert_eq!((failed.targets.len(), failed.is_stale(), failed.failed), (2, true, 1));
        let partly = after(&first, Ok(Looked { problem: Some("one file".to_owned()), ..list(&["a:1"]) }));
        assert_eq!((partly.targets.len(), partly.is_stale()), (1, true));
        let empty = after(&failed, Ok(list(&[])));
        assert_eq!((empty.targets.len(), empty.is_stale(), empty.succeeded), (0, false, 2));
        assert!(Listing::default().is_stale());
    }
}
