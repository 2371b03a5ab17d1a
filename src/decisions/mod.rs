//! Which changes of what we publish stand, and has anyone acted on them? The bookkeeping of decisions; pure, with an explicit moment.
//!
//! A decision is a change of what is published for a model, with all its pools, so that prefill and decode are seen in one step. Each model has
//! one decision that stands; a newer one takes its place at once, acknowledged or not. Nothing here holds up planning: a decision that nobody
//! acknowledges in time is told once and stays.
//!
//! What counts is what is published, whoever decreed it: an override makes a decision, a model in shadow mode has none. Where a value expires,
//! or leaves with its pool or model, the decision says that nothing is published there. It never says 0.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::planner::plan::{Plan, Reason};
use crate::units::{ModelId, Moment, PoolId, Replicas, Role};

/// Ids of a model's former decisions that are known as superseded; of an older one nobody knows any more what it was.
const MOST_SUPERSEDED: usize = 32;

/// How long a model that is no longer planned keeps its last decision: a client that was away hears that nothing is published any more.
const REMEMBERED_FOR: Duration = Duration::from_secs(1800);

/// Identifies a decision in answers, in the log and in the state file. Ids only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DecisionId(pub u64);

impl DecisionId {
    /// Milliseconds since the Unix epoch, so that a process that knows nothing of the former one goes on above it; or one more than the last
    /// where the clock is not ahead of that.
    fn after(last: Self, now: Moment) -> Self {
        let millis = u64::try_from(now.wall.as_millis()).unwrap_or(u64::MAX);
        Self(last.0.saturating_add(1).max(millis))
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A change of what is published for a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Which one.
    pub id: DecisionId,
    /// Whose pools.
    pub model: ModelId,
    /// The model's namespace.
    pub target_namespace: String,
    /// When it was made, time since the Unix epoch.
    pub at: Duration,
    /// The configuration in force then.
    pub config_hash: String,
    /// Every pool of the model, and those that left it with this decision.
    pub pools: Vec<PoolChange>,
    /// Who has acted on it.
    pub acknowledged: Option<Acknowledgement>,
    /// When an acknowledgement is due; `None` where none is awaited: it is there, nothing is to be done, or nobody may give one.
    #[serde(skip)]
    pub due: Option<Due>,
}

/// What a decision means for one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolChange {
    /// Which pool.
    pub pool: PoolId,
    /// Its role.
    pub role: Role,
    /// Published before; `None` where nothing was.
    pub before: Option<Replicas>,
    /// Published from now on; `None` where nothing is.
    pub after: Option<Replicas>,
    /// Why; `None` for a pool that is no longer planned.
    pub reason: Option<Reason>,
}

/// Someone has acted on a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// When, time since the Unix epoch.
    pub at: Duration,
    /// Who, if they said so.
    pub by: Option<String>,
}

/// A moment in the future, by both clocks: the monotonic one decides, the other is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    monotonic: Duration,
    /// Time since the Unix epoch.
    pub wall: Duration,
}

impl Decision {
    /// Whether nothing is published for the model any more.
    pub fn is_withdrawn(&self) -> bool {
        self.pools.iter().all(|pool| pool.after.is_none())
    }

    /// Whether an acknowledgement was due before `now` and is not there.
    pub fn is_timed_out(&self, now: Moment) -> bool {
        !self.is_withdrawn() && self.due.is_some_and(|due| due.monotonic <= now.monotonic)
    }

    fn published(&self) -> BTreeMap<&PoolId, Replicas> {
        self.pools.iter().filter_map(|pool| Some((&pool.pool, pool.after?))).collect()
    }

    /// When it has to be acknowledged, where that was allowed so long from the decision on.
    fn due(&self, within: Option<Duration>, now: Moment) -> Option<Due> {
        let within = within.filter(|_| self.acknowledged.is_none() && !self.is_withdrawn())?;
        let left = within.saturating_sub(now.wall.saturating_sub(self.at));
        Some(Due { monotonic: now.monotonic.saturating_add(left), wall: self.at.saturating_add(within) })
    }
}

/// What a plan publishes for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelState {
    /// Which model.
    pub model: ModelId,
    /// Its namespace.
    pub target_namespace: String,
    /// All its pools.
    pub pools: Vec<PoolState>,
}

/// What a plan publishes for a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// Which pool.
    pub pool: PoolId,
    /// Its role.
    pub role: Role,
    /// The integer; `None` where nothing is published.
    pub replicas: Option<Replicas>,
    /// Why.
    pub reason: Reason,
}

impl ModelState {
    /// What a plan says.
    pub fn of(plan: &Plan, target_namespace: &str) -> Self {
        let pools = plan.pools.iter().map(|pool| PoolState {
            pool: pool.pool.clone(),
            role: pool.role,
            replicas: pool.recommended_replicas,
            reason: pool.reason,
        });
        Self { model: plan.model.clone(), target_namespace: target_namespace.to_owned(), pools: pools.collect() }
    }
}

/// The decisions that stand at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The newest id ever given; 0 before the first.
    pub last_id: DecisionId,
    /// The latest of each model, sorted by model.
    pub decisions: Vec<Decision>,
}

/// Why a decision was not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No decision of this id is known.
    Unknown,
    /// The model has a newer one.
    Superseded {
        /// That one.
        by: DecisionId,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Superseded { by } => write!(f, "superseded by {by}"),
        }
    }
}

/// What of the ledger survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    last_id: DecisionId,
    models: Vec<Entry>,
}

/// What is known of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    decision: Decision,
    /// Ids of those before, newest last.
    superseded: VecDeque<DecisionId>,
    /// Whether it was told that nobody has acknowledged it.
    told: bool,
    /// Since when, on the monotonic clock, the model is not planned.
    #[serde(skip)]
    unplanned_since: Option<Duration>,
}

type Key = (ModelId, String);

/// All decisions that stand.
#[derive(Debug, Default)]
pub struct Ledger {
    last_id: DecisionId,
    models: BTreeMap<Key, Entry>,
    acknowledge_within: Option<Duration>,
}

impl Ledger {
    /// The ledger of a former process, or an empty one. `acknowledge_within` is how long an acknowledgement is awaited; `None` if nobody may
    /// give one. Models that are not planned yet keep their decisions for a while: they may still be found.
    pub fn restored(kept: Kept, acknowledge_within: Option<Duration>, now: Moment) -> Self {
        let restored = |mut entry: Entry| {
            entry.decision.due = entry.decision.due(acknowledge_within, now);
            entry.unplanned_since = Some(now.monotonic);
            ((entry.decision.model.clone(), entry.decision.target_namespace.clone()), entry)
        };
        Self { last_id: kept.last_id, models: kept.models.into_iter().map(restored).collect(), acknowledge_within }
    }

    /// The newest id ever given; 0 before the first.
    pub fn last_id(&self) -> DecisionId {
        self.last_id
    }

    /// What survives a restart.
    pub fn kept(&self) -> Kept {
        Kept { last_id: self.last_id, models: self.models.values().cloned().collect() }
    }

    /// The decisions that stand.
    pub fn standing(&self) -> Standing {
        Standing { last_id: self.last_id, decisions: self.models.values().map(|entry| entry.decision.clone()).collect() }
    }

    /// Compares what is published for all planned models with the decisions that stand, and gives the new ones.
    pub fn observe(&mut self, models: impl IntoIterator<Item = ModelState>, config_hash: &str, now: Moment) -> Vec<Decision> {
        let mut planned: BTreeMap<Key, Vec<PoolState>> = BTreeMap::new();
        for model in models {
            planned.entry((model.model, model.target_namespace)).or_default().extend(model.pools);
        }
        let mut made = Vec::new();
        for (key, pools) in &planned {
            if let Some(entry) = self.models.get_mut(key) {
                entry.unplanned_since = None;
            }
            made.extend(self.decide(key, pools, config_hash, now));
        }
        let unplanned: Vec<Key> = self.models.keys().filter(|key| !planned.contains_key(key)).cloned().collect();
        for key in unplanned {
            let Some(entry) = self.models.get_mut(&key) else { continue };
            match entry.unplanned_since {
                None => {
                    entry.unplanned_since = Some(now.monotonic);
                    made.extend(self.decide(&key, &[], config_hash, now));
                }
                Some(since) if now.monotonic.saturating_sub(since) >= REMEMBERED_FOR => drop(self.models.remove(&key)),
                Some(_) => {}
            }
        }
        made
    }

    /// The decisions that nobody has acknowledged in time, each once.
    pub fn overdue(&mut self, now: Moment) -> Vec<Decision> {
        let overdue =
            self.models.values_mut().filter(|entry| !entry.told && entry.unplanned_since.is_none() && entry.decision.is_timed_out(now));
        overdue
            .map(|entry| {
                entry.told = true;
                entry.decision.clone()
            })
            .collect()
    }

    /// Marks a decision as acted on and gives it back. The first acknowledgement stays.
    pub fn acknowledge(&mut self, id: DecisionId, by: Option<String>, now: Moment) -> Result<Decision, Refusal> {
        if let Some(entry) = self.models.values_mut().find(|entry| entry.decision.id == id) {
            let decision = &mut entry.decision;
            decision.acknowledged.get_or_insert(Acknowledgement { at: now.wall, by });
            decision.due = None;
            return Ok(decision.clone());
        }
        let newer = self.models.values().find(|entry| entry.superseded.contains(&id)).ok_or(Refusal::Unknown)?;
        Err(Refusal::Superseded { by: newer.decision.id })
    }

    /// A new decision for one model, if what is published for it changed.
    fn decide(&mut self, key: &Key, pools: &[PoolState], config_hash: &str, now: Moment) -> Option<Decision> {
        let entry = self.models.get(key);
        let before = entry.map(|entry| entry.decision.published()).unwrap_or_default();
        let after: BTreeMap<&PoolId, Replicas> = pools.iter().filter_map(|pool| Some((&pool.pool, pool.replicas?))).collect();
        if before == after {
            return None;
        }
        let mut changes: Vec<PoolChange> = pools.iter().map(|pool| changed(pool, before.get(&pool.pool).copied())).collect();
        let stays = |left: &PoolChange| pools.iter().any(|pool| pool.pool == left.pool);
        let left = entry.iter().flat_map(|entry| &entry.decision.pools).filter(|pool| pool.after.is_some() && !stays(pool));
        changes.extend(left.map(|left| PoolChange { before: left.after, after: None, reason: None, ..left.clone() }));
        let (model, target_namespace) = key.clone();
        let mut decision = Decision {
            id: DecisionId::after(self.last_id, now),
            model,
            target_namespace,
            at: now.wall,
            config_hash: config_hash.to_owned(),
            pools: changes,
            acknowledged: None,
            due: None,
        };
        decision.due = decision.due(self.acknowledge_within, now);
        self.last_id = decision.id;
        self.replace(key, decision.clone());
        Some(decision)
    }

    fn replace(&mut self, key: &Key, decision: Decision) {
        let Some(entry) = self.models.get_mut(key) else {
            let entry = Entry { decision, superseded: VecDeque::new(), told: false, unplanned_since: None };
            self.models.insert(key.clone(), entry);
            return;
        };
        entry.superseded.push_back(entry.decision.id);
        if entry.superseded.len() > MOST_SUPERSEDED {
            entry.superseded.pop_front();
        }
        (entry.decision, entry.told) = (decision, false);
    }
}

fn changed(pool: &PoolState, before: Option<Replicas>) -> PoolChange {
    PoolChange { pool: pool.pool.clone(), role: pool.role, before, after: pool.replicas, reason: Some(pool.reason) }
}
