//! What text does a scrape of ours get? A registry with one collector over the snapshot, rendered as text 0.0.4.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};

use super::snapshot::Snapshot;
use super::{catalog, process, samples};
use crate::units::{Moment, Replicas};

/// The content type of every metrics answer; Prometheus 3 refuses a page without one.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The reading of both clocks that `app` supplies.
pub type Clock = Arc<dyn Fn() -> Moment + Send + Sync>;

/// The metrics page.
#[derive(Clone)]
pub struct Page(Registry);

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

impl Page {
    /// A page that shows whatever the snapshot is at the time of a scrape.
    pub fn new(snapshot: Arc<ArcSwap<Snapshot>>, clock: Clock) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(SnapshotCollector::new(snapshot, clock)?))?;
        Ok(Self(registry))
    }

    /// The text. Families and series are sorted, so equal snapshots give equal pages but for the process's own use of resources.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.0.gather())
    }
}

/// The page of one pool: its recommendation without labels.
pub fn render_recommendation(replicas: Replicas) -> Result<String, prometheus::Error> {
    TextEncoder::new().encode_to_string(&[samples::bare_recommendation(replicas)])
}

/// Collects the snapshot that is in force when it is asked.
pub struct SnapshotCollector {
    snapshot: Arc<ArcSwap<Snapshot>>,
    clock: Clock,
    /// A collector must own a description; the families that it returns are not held against it.
    desc: Desc,
}

impl SnapshotCollector {
    /// A collector over a shared snapshot.
    pub fn new(snapshot: Arc<ArcSwap<Snapshot>>, clock: Clock) -> Result<Self, prometheus::Error> {
        let family = &catalog::RECOMMENDED_REPLICAS;
        let labels = family.label_names().map(str::to_owned).collect();
        let desc = Desc::new(family.name(), family.help.to_owned(), labels, std::collections::HashMap::new())?;
        Ok(Self { snapshot, clock, desc })
    }
}

impl Collector for SnapshotCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // The clock is read after the snapshot, so that the snapshot is never from the future.
        let snapshot = self.snapshot.load();
        let mut families = samples::families(&snapshot, (self.clock)());
        families.extend(samples::process_families(&process::read()));
        families
    }
}
