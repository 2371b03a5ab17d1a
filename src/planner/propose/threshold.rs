//! One replica more, one less, or as it is? Thresholds on how full the replicas are, without any model of what they can do.
//!
//! A replica is added when any one is too full, since its requests suffer whatever the others do. One is taken away when all are nearly empty
//! and the rest would not become too full by its share. Between the thresholds nothing happens.
//!
//! The rule looks at the count that was recommended and not only at the one that is there: the loads are scaled by current / recommended. So it
//! runs ahead of replicas that start, and does not run away while they do.
//!
//! | target | prefill: waiting prompts | decode, aggregated: share of the KV memory |
//! |---|---|---|
//! | throughput | up at 1 context length, down below 0.1 | up above 1, down below 0.6 |
//! | latency | up at 0.1, down at 0 | up above 0.4, down below 0.1 |
//! | load | up and down at the operator's tokens | up and down at the operator's shares |
//!
//! The numbers are those of Dynamo's planner (seed 002). Worked: three decode replicas at 0.5, 0.3 and 0.4 are all below 0.6, and
//! 0.5 * 3 / 2 = 0.75 is not above 1, so two are enough. Two at 0.55 stay if `up` is 1.1 or less: 0.55 * 2 / 1 = 1.1.

use std::time::Duration;

use crate::planner::policy::{Band, FastRule, LoadPolicy, QueueUnit, Threshold, Thresholds};
use crate::units::Replicas;

/// Which thresholds hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Replicas work until they are full.
    Throughput,
    /// Requests hardly wait.
    Latency,
    /// The operator's own numbers.
    Load {
        /// Tokens that wait at a prefill replica.
        prefill: Bounds,
        /// Shares of the KV memory.
        decode: Bounds,
    },
}

/// The operator's thresholds. Invariant, checked by `config`: `down < up`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// From here on one more.
    pub up: f64,
    /// Down to here one less.
    pub down: f64,
}

impl Target {
    /// The thresholds of the target, looked at once each `interval`.
    pub fn policy(self, interval: Duration) -> LoadPolicy {
        let at = |at, inclusive| Threshold { at, inclusive };
        let (prefill, prefill_unit, decode) = match self {
            Self::Throughput => (
                Band { up: at(1.0, true), down: at(0.1, false) },
                QueueUnit::ContextLengths,
                Band { up: at(1.0, false), down: at(0.6, false) },
            ),
            Self::Latency => (
                Band { up: at(0.1, true), down: at(0.0, true) },
                QueueUnit::ContextLengths,
                Band { up: at(0.4, false), down: at(0.1, false) },
            ),
            Self::Load { prefill, decode } => {
                let band = |bounds: Bounds| Band { up: at(bounds.up, true), down: at(bounds.down, true) };
                (band(prefill), QueueUnit::Tokens, band(decode))
            }
        };
        LoadPolicy { interval, rule: FastRule::Thresholds(Thresholds { prefill, prefill_unit, decode }), floor: false }
    }
}

/// The count wanted, before any limit. `loads` are those of the single targets, finite and not empty; `current` replicas carry them, and
/// `standing` were recommended last.
pub fn wanted(loads: &[f64], band: Band, current: Replicas, standing: Replicas) -> Replicas {
    let (current, recommended) = (current.as_f64().max(1.0), standing.as_f64().max(1.0));
    let most = loads.iter().copied().fold(0.0, f64::max);
    // The quotient first: where reality has caught up it is exactly 1, and adds no noise to a load that lies on its threshold.
    let share = |count: f64| current / count;
    let at = |count: f64| most * share(count);
    if band.up.is_reached_by(at(recommended)) {
        return Replicas(standing.0.saturating_add(1));
    }
    // Fewer than recommended are there: then their own loads must be low as well, and not only after they were scaled.
    let all_below = loads.iter().all(|load| band.down.is_undercut_by(load * share(recommended).max(1.0)));
    let carried = recommended > 1.0 && !reaches(band.up, at(recommended - 1.0));
    if all_below && standing.0 > 1 && carried { Replicas(standing.0 - 1) } else { standing }
}

/// Whether the rest would be too full. Here the threshold itself is too much, whichever way it counts upwards: it would be reached again at once.
fn reaches(up: Threshold, load: f64) -> bool {
    load >= up.at
}
