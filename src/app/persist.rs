//! What is kept for the next start, and what of it is used again? Between the exporter's memory and the state file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exporter::{Exporter, StateKey};
use crate::planner::memory::PoolMemory;
use crate::state::{Loaded, SaveError, StateFile};
use crate::units::{ModelId, Moment, PoolId};

/// Renewed timestamps alone, and what could not be written, are written this often; every other change at once.
const RENEWAL: Duration = Duration::from_secs(30);

/// The content of the state file. Fields are added, never given a new meaning; learned parameters will stand beside `pools`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// By model.
    pub models: Vec<KeptModel>,
}

/// What is kept of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptModel {
    /// Which model.
    pub model: ModelId,
    /// Its namespace.
    pub target_namespace: String,
    /// What was recommended and published.
    pub pools: BTreeMap<PoolId, PoolMemory>,
}

/// Writes what has to survive, without ever holding up the loop.
#[derive(Debug)]
pub struct Keeper {
    file: Option<Arc<StateFile>>,
    /// What was last handed to the writer, and when.
    handed: Kept,
    handed_at: Duration,
    writing: Arc<Writing>,
}

/// What the writer's thread tells the loop.
#[derive(Debug, Default)]
struct Writing {
    busy: AtomicBool,
    /// The last write did not succeed, so that what was handed over is not on disk.
    failed: AtomicBool,
}

impl Keeper {
    /// Opens the state file, if one is configured, and reads what a former process left.
    pub fn open(path: Option<PathBuf>, now: Moment) -> (Self, BTreeMap<StateKey, BTreeMap<PoolId, PoolMemory>>) {
        let mut restored = BTreeMap::new();
        let file = path.map(|path| {
            let file = StateFile::open(&path);
            let path = path.display();
            match file.claim() {
                Ok(()) => {}
                Err(SaveError::Locked { .. }) => {
                    tracing::warn!(%path, "another process keeps this state file; it is read now and written once the other ends");
                }
                Err(error) => tracing::error!(%path, "state cannot be kept: {:#}", anyhow::Error::from(error)),
            }
            match file.load::<Kept>() {
                Loaded::Nothing => tracing::info!(%path, "no state yet"),
                Loaded::Ignored(problem) => tracing::warn!(%path, "state ignored: {problem}"),
                Loaded::State(saved) => restored = usable(saved, now),
            }
            file
        });
        let keeper = Self { file: file.map(Arc::new), handed: Kept::default(), handed_at: Duration::ZERO, writing: Arc::default() };
        (keeper, restored)
    }

    /// Writes if something changed, on a thread of its own: a volume that hangs must not stop the planning.
    pub fn keep(&mut self, exporter: &Exporter, now: Moment) {
        let Some(file) = &self.file else { return };
        let kept = kept(exporter);
        let waited = now.monotonic.saturating_sub(self.handed_at) >= RENEWAL;
        let changed = without_times(&kept) != without_times(&self.handed);
        let due = changed || (waited && (kept != self.handed || self.writing.failed.load(Ordering::Acquire)));
        if !due || self.writing.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        self.handed.clone_from(&kept);
        self.handed_at = now.monotonic;
        let (file, writing) = (Arc::clone(file), Arc::clone(&self.writing));
        tokio::task::spawn_blocking(move || {
            writing.failed.store(!write(&file, &kept), Ordering::Release);
            writing.busy.store(false, Ordering::Release);
        });
    }

    /// Writes once more before the process ends, within a second.
    pub async fn finish(self, exporter: &Exporter) {
        let Some(file) = self.file else { return };
        let kept = kept(exporter);
        let writing = tokio::task::spawn_blocking(move || write(&file, &kept));
        if tokio::time::timeout(Duration::from_secs(1), writing).await.is_err() {
            tracing::error!("the state file was not written within 1 s");
        }
    }
}

fn write(file: &StateFile, kept: &Kept) -> bool {
    match file.save(kept) {
        Ok(()) => return true,
        Err(error @ SaveError::Locked { .. }) => tracing::debug!("state not written: {error}"),
        Err(error) => tracing::error!("state not written: {:#}", anyhow::Error::from(error)),
    }
    false
}

fn kept(exporter: &Exporter) -> Kept {
    let models = exporter.persistent().into_iter();
    Kept { models: models.map(|(key, pools)| KeptModel { model: key.model, target_namespace: key.target_namespace, pools }).collect() }
}

fn without_times(kept: &Kept) -> Kept {
    let mut kept = kept.clone();
    for pool in kept.models.iter_mut().flat_map(|model| model.pools.values_mut()) {
        if let Some(published) = &mut pool.published {
            (published.timestamp, published.valid_until) = (Duration::ZERO, Duration::ZERO);
        }
    }
    kept
}

/// The part that a new process may build on. A recommendation that has expired says nothing of the fleet of today; a frozen one never expires.
fn usable(kept: Kept, now: Moment) -> BTreeMap<StateKey, BTreeMap<PoolId, PoolMemory>> {
    let mut restored: BTreeMap<StateKey, BTreeMap<PoolId, PoolMemory>> = BTreeMap::new();
    for model in kept.models {
        let key = StateKey { model: model.model, target_namespace: model.target_namespace };
        for (pool, mut memory) in model.pools {
            let expired = memory.published.is_some_and(|published| published.valid_until <= now.wall);
            if expired && memory.frozen.is_none() {
                tracing::warn!(model = %key.model, %pool, "state too old: its recommendation has expired and is not used");
                continue;
            }
            if memory.published.is_none() && memory.frozen.is_none() {
                memory.planned = None;
            }
            restored.entry(key.clone()).or_default().insert(pool, memory);
        }
    }
    restored
}
