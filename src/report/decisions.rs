//! How does a decision read as JSON? For programs that follow decisions over HTTP.
//!
//! A count that is not published is null. Keys may be added, these stay.

use serde_json::{Value, json};

use crate::decisions::{Decision, DecisionId, PoolChange};
use crate::units::{Moment, Replicas};

/// `{"last_id": ..., "decisions": [...]}`, in the order given.
pub fn document<'a>(last_id: DecisionId, decisions: impl IntoIterator<Item = &'a Decision>, now: Moment) -> Value {
    json!({ "last_id": last_id.0, "decisions": decisions.into_iter().map(|made| decision(made, now)).collect::<Vec<_>>() })
}

/// One decision.
pub fn decision(decision: &Decision, now: Moment) -> Value {
    json!({
        "id": decision.id.0,
        "model": decision.model.as_str(),
        "target_namespace": decision.target_namespace,
        "at_seconds": decision.at.as_secs_f64(),
        "config_hash": decision.config_hash,
        "withdrawn": decision.is_withdrawn(),
        "pools": decision.pools.iter().map(pool).collect::<Vec<_>>(),
        "acknowledged": decision.acknowledged.as_ref().map(|done| json!({ "at_seconds": done.at.as_secs_f64(), "by": done.by })),
        "acknowledge_until_seconds": decision.due.filter(|_| !decision.is_withdrawn()).map(|due| due.wall.as_secs_f64()),
        "timed_out": decision.is_timed_out(now),
    })
}

/// Why a decision is not acknowledged: a newer one stands.
pub fn superseded(id: DecisionId, by: DecisionId) -> Value {
    json!({ "id": id.0, "superseded_by": by.0 })
}

fn pool(pool: &PoolChange) -> Value {
    let count = |replicas: Option<Replicas>| replicas.map(|replicas| replicas.0);
    json!({
        "pool": pool.pool.as_str(),
        "role": pool.role.as_str(),
        "before": count(pool.before),
        "replicas": count(pool.after),
        "reason": pool.reason.map(|reason| reason.as_str()),
    })
}
