//! What is kept for the next start, and what of it is used again? Between the exporter's memory and the state file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::exporter::{Exporter, StateKey};
use crate::config::Config;
use crate::decisions::{self, Ledger};
use crate::planner::memory::{Lasting, PoolMemory};
use crate::planner::policy::CapacityModel;
use crate::state::{Loaded, SaveError, StateFile};
use crate::units::{ModelId, Moment, PoolId};

/// How long what was learned is kept at least, also for pools that nobody plans now. Where less is allowed, the planner drops the rest.
const LEARNED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// Longest pause after which forecasts go on from the windows before it.
const PAUSE: Duration = Duration::from_secs(3600);

/// Renewed timestamps alone, and what could not be written, are written this often; every other change at once.
const RENEWAL: Duration = Duration::from_secs(30);

/// The content of the state file. Fields are added, never given a new meaning; what was learned of a pool's replicas stands in its memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// By model.
    pub models: Vec<KeptModel>,
    /// The decisions that stand.
    #[serde(default)]
    pub decisions: decisions::Kept,
}

/// What is kept of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptModel {
    /// Which model.
    pub model: ModelId,
    /// Its namespace.
    pub target_namespace: String,
    /// What its memory is good for in another process: pools, traffic, iterations.
    #[serde(flatten)]
    pub lasting: Lasting,
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
    /// How often the disk refused.
    refused: AtomicU64,
    /// Whether the last answer of the disk was no, which is told when it begins and when it ends.
    refuses: AtomicBool,
}

impl Keeper {
    /// Opens the state file, if one is configured, and reads what a former process left.
    pub fn open(config: &Config, now: Moment) -> (Self, BTreeMap<StateKey, Lasting>, Ledger) {
        let (mut restored, mut decisions) = (BTreeMap::new(), decisions::Kept::default());
        let file = config.state_file.clone().map(|path| {
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
                Loaded::State(Kept { models, decisions: saved }) => {
                    restored = usable(models, learned_for(config), now);
                    decisions = saved;
                }
            }
            file
        });
        let keeper = Self { file: file.map(Arc::new), handed: Kept::default(), handed_at: Duration::ZERO, writing: Arc::default() };
        let acknowledge_within = config.server.enable_lifecycle.then_some(config.server.acknowledge_within);
        (keeper, restored, Ledger::restored(decisions, acknowledge_within, now))
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
            writing.failed.store(!write(&file, &kept, &writing), Ordering::Release);
            writing.busy.store(false, Ordering::Release);
        });
    }

    /// How often the disk refused what was to be kept; `None` where nothing is.
    pub fn refused(&self) -> Option<u64> {
        self.file.as_ref().map(|_| self.writing.refused.load(Ordering::Relaxed))
    }

    /// Writes once more before the process ends, within a second.
    pub async fn finish(self, exporter: &Exporter) {
        let Some(file) = self.file else { return };
        let kept = kept(exporter);
        let writing = tokio::task::spawn_blocking(move || write(&file, &kept, &self.writing));
        if tokio::time::timeout(Duration::from_secs(1), writing).await.is_err() {
            tracing::error!("the state file was not written within 1 s");
        }
    }
}

fn write(file: &StateFile, kept: &Kept, writing: &Writing) -> bool {
    match file.save(kept) {
        Ok(()) => {
            if writing.refuses.swap(false, Ordering::Relaxed) {
                tracing::info!(path = %file.path().display(), "the state file is written again");
            }
            return true;
        }
        Err(error @ SaveError::Locked { .. }) => tracing::debug!("state not written: {error}"),
        Err(error) => {
            writing.refused.fetch_add(1, Ordering::Relaxed);
            if !writing.refuses.swap(true, Ordering::Relaxed) {
                tracing::error!("state not written, which is tried again: {:#}", anyhow::Error::from(error));
            }
        }
    }
    false
}

fn kept(exporter: &Exporter) -> Kept {
    let models = exporter.persistent().into_iter();
    let model = |(key, lasting): (StateKey, _)| KeptModel { model: key.model, target_namespace: key.target_namespace, lasting };
    Kept { models: models.map(model).collect(), decisions: exporter.kept_decisions() }
}

fn without_times(kept: &Kept) -> Kept {
    let mut kept = kept.clone();
    for pool in kept.models.iter_mut().flat_map(|model| model.lasting.pools.values_mut()) {
        if let Some(published) = &mut pool.published {
            (published.timestamp, published.valid_until) = (Duration::ZERO, Duration::ZERO);
        }
    }
    kept
}

/// The longest that any model allows.
fn learned_for(config: &Config) -> Duration {
    let allowed = config.models.iter().filter_map(|model| match &model.policy.capacity {
        CapacityModel::Queueing(queueing) => Some(queueing.learned_for),
        CapacityModel::Envelope(_) | CapacityModel::Iterations | CapacityModel::Unknown => None,
    });
    allowed.fold(LEARNED_FOR, Duration::max)
}

/// The part that a new process may build on. A recommendation that has expired says nothing of the fleet of today; a frozen one never expires,
/// and what replicas can do is true for longer than what was needed of them.
fn usable(kept: Vec<KeptModel>, learned_for: Duration, now: Moment) -> BTreeMap<StateKey, Lasting> {
    let mut restored: BTreeMap<StateKey, Lasting> = BTreeMap::new();
    for model in kept {
        let key = StateKey { model: model.model, target_namespace: model.target_namespace };
        let Lasting { pools, traffic, traffic_at, mut iterations, mut asked } = model.lasting;
        if traffic_at.is_some_and(|at| now.wall.saturating_sub(at) > learned_for) {
            iterations.clear();
        }
        iterations.retain(|pool, learned| learned.is_sound() || nothing_that_can_be_learned(&key, pool));
        asked.retain(|pool, asked| iterations.contains_key(pool) && asked.is_sound());
        // A series that broke off long ago is no beginning of the next one.
        let goes_on = traffic_at.is_some_and(|at| now.wall.saturating_sub(at) <= PAUSE && at <= now.wall);
        let traffic = traffic.filter(|traffic| !goes_on || traffic.is_sound() || nothing_that_can_be_seen(&key));
        let goes_on = goes_on && traffic.is_some();
        if goes_on || !iterations.is_empty() {
            let kept = restored.entry(key.clone()).or_default();
            (kept.traffic, kept.traffic_at) = if goes_on { (traffic, traffic_at) } else { (None, None) };
            (kept.iterations, kept.asked) = (iterations, asked);
        }
        for (pool, mut memory) in pools {
            memory.learning = memory.learning.filter(|learning| now.wall.saturating_sub(learning.at) <= learned_for);
            if memory.learning.as_ref().is_some_and(|learning| !learning.is_sound()) {
                nothing_that_can_be_learned(&key, &pool);
                memory.learning = None;
            }
            if let Some(learning) = &mut memory.learning {
                // Written while the clock was wrong: it ages from now on.
                learning.at = learning.at.min(now.wall);
            }
            let expired = memory.published.is_some_and(|published| published.valid_until <= now.wall);
            if expired && memory.frozen.is_none() {
                tracing::warn!(model = %key.model, %pool, "state too old: its recommendation has expired and is not used");
                memory = PoolMemory { learning: memory.learning, ..PoolMemory::default() };
                if memory.learning.is_none() {
                    continue;
                }
            }
            if memory.published.is_none() && memory.frozen.is_none() {
                (memory.planned, memory.wanted) = (None, None);
            }
            restored.entry(key.clone()).or_default().pools.insert(pool, memory);
        }
    }
    restored
}

/// Says so; never true.
fn nothing_that_can_be_learned(key: &StateKey, pool: &PoolId) -> bool {
    tracing::warn!(model = %key.model, %pool, "what the state says was learned is nothing that can be learned; it is not used");
    false
}

/// Says so; never true.
fn nothing_that_can_be_seen(key: &StateKey) -> bool {
    tracing::warn!(model = %key.model, "the windows that the state says were seen are none that can be seen; forecasts begin anew");
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::learn::iterations::Iterations;
    use crate::planner::learn::{Learned, Seen};
    use crate::planner::memory::Learning;
    use crate::planner::model::queueing::Lengths;
    use crate::planner::plan::Published;
    use crate::planner::predict::traffic::{Predictor, Traffic};
    use crate::planner::predict::{Choice, Method, Settings};
    use crate::units::{Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens};

    const DAY: Duration = Duration::from_secs(24 * 3600);
    const NOW: Moment = Moment { monotonic: Duration::ZERO, wall: Duration::from_secs(1_795_953_600) };

    fn learned() -> Learned {
        let seen = Seen {
            served: RequestsPerSecond(5.0),
            lengths: Lengths { input: Tokens(512.0), output: Tokens(128.0) },
            ttft: Some(Seconds(0.019)),
            itl: Some(Seconds(0.011)),
            saturated: false,
        };
        let mut learned = Learned::new(Role::Aggregated, &seen);
        learned.learn(Role::Aggregated, &seen);
        learned
    }

    /// A pool that was last taught so long ago, and whose recommendation ends so long after.
    fn left_behind(taught: Duration, valid_for: Duration) -> PoolMemory {
        let at = NOW.wall - taught;
        PoolMemory {
            planned: Some(Replicas(5)),
            wanted: None,
            floor: None,
            published: Some(Published { replicas: Replicas(5), timestamp: at, valid_until: at + valid_for }),
            served: Some(Replicas(5)),
            learning: Some(Learning { learned: learned(), at, update: None, lowest_ttft: None, lowest_itl: None }),
            frozen: None,
            baseline: true,
        }
    }

    fn restored(memory: PoolMemory) -> Option<PoolMemory> {
        let pools = BTreeMap::from([(PoolId::from("p"), memory)]);
        let models = vec![KeptModel {
            model: ModelId::from("m"),
            target_namespace: "n".to_owned(),
            lasting: Lasting { pools, ..Lasting::default() },
        }];
        // As it comes back from the file.
        let text = serde_json::to_string(&Kept { models, ..Kept::default() }).unwrap();
        usable(serde_json::from_str::<Kept>(&text).unwrap().models, LEARNED_FOR, NOW)
            .into_values()
            .flat_map(|lasting| lasting.pools.into_values())
            .next()
    }

    #[test]
    fn what_was_learned_outlives_the_recommendation_and_does_not_bring_it_back() {
        let hour = Duration::from_secs(3600);
        let before = left_behind(hour, Duration::from_secs(600));
        let after = restored(before.clone()).unwrap();
        assert_eq!(after, PoolMemory { learning: before.learning, ..PoolMemory::default() });
        let fresh = left_behind(Duration::from_secs(60), Duration::from_secs(600));
        assert_eq!(restored(fresh.clone()), Some(fresh), "both are good");
    }

    #[test]
    fn what_was_learned_too_long_ago_is_forgotten() {
        assert!(restored(left_behind(7 * DAY, Duration::from_secs(600))).is_some());
        assert_eq!(restored(left_behind(8 * DAY, Duration::from_secs(600))), None);
        let still_valid = restored(left_behind(8 * DAY, 9 * DAY)).unwrap();
        assert_eq!((still_valid.learning, still_valid.planned), (None, Some(Replicas(5))));
    }

    #[test]
    fn what_cannot_have_been_learned_is_dropped_and_the_recommendation_stays() {
        let mut memory = left_behind(Duration::from_secs(60), Duration::from_secs(600));
        memory.learning.iter_mut().for_each(|learning| learning.learned.filter.parameters.alpha = Seconds(1e9));
        let after = restored(memory.clone()).unwrap();
        assert_eq!(after, PoolMemory { learning: None, ..memory });
    }

    /// What a process that starts now makes of iterations and windows, the last of which ended so long ago, as the file has them.
    fn restored_of(iterations: &str, history: &str, ended: Duration) -> (bool, bool) {
        let at = NOW.wall - ended;
        let text = format!(
            r#"{{"models":[{{"model":"m","target_namespace":"n","pools":{{}},"iterations":{{"p":{iterations}}},
                "traffic":{{"requests":{0},"input_tokens":{0},"output_tokens":{0}}},"traffic_at":{{"secs":{1},"nanos":0}}}}]}}"#,
            series(history),
            at.as_secs()
        );
        let kept = serde_json::from_str::<Kept>(&text).unwrap();
        let lasting = usable(kept.models, LEARNED_FOR, NOW).into_values().next().unwrap_or_default();
        (!lasting.iterations.is_empty(), lasting.traffic.is_some())
    }

    fn series(history: &str) -> String {
        let settings = Settings::new(Choice::Fixed(Method::Constant), Duration::from_secs(60));
        let mut predictor = Predictor::new(settings);
        predictor.observe(&Traffic { requests: Requests(5.0), input_tokens: Some(Tokens(5.0)), output_tokens: Some(Tokens(5.0)) });
        let text = serde_json::to_value(&predictor).unwrap()["requests"].to_string();
        let changed = text.replace("\"history\":[5.0]", &format!("\"history\":{history}"));
        assert!(changed.contains(history), "{text}");
        changed
    }

    #[test]
    fn iterations_and_windows_go_on_unless_they_are_old_or_cannot_have_been_seen() {
        let learned = serde_json::to_string(&Iterations::new(Role::Decode)).unwrap();
        let strange = learned.replace("\"input\":[]", "\"input\":[-1.0]");
        assert_ne!(learned, strange);
        assert_eq!(restored_of(&learned, "[5.0]", Duration::from_secs(60)), (true, true));
        assert_eq!(restored_of(&strange, "[5.0]", Duration::from_secs(60)), (false, true));
        assert_eq!(restored_of(&learned, "[-5.0]", Duration::from_secs(60)), (true, false));
        assert_eq!(restored_of(&learned, "[1e300]", Duration::from_secs(60)), (true, false));
        assert_eq!(restored_of(&learned, "[5.0]", 2 * PAUSE), (true, false), "forecasts do not go on, costs do");
        assert_eq!(restored_of(&learned, "[5.0]", 8 * DAY), (false, false));
    }

    #[test]
    fn what_a_wrong_clock_wrote_ages_from_now_on() {
        let mut memory = left_behind(DAY, DAY + Duration::from_secs(600));
        memory.learning.iter_mut().for_each(|learning| learning.at = NOW.wall + 30 * DAY);
        assert_eq!(restored(memory).unwrap().learning.map(|learning| learning.at), Some(NOW.wall));
    }
}
