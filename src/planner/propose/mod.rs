//! How many replicas does each policy want? One file per proposer: facts of a window in, wishes out, before any limit.
//!
//! A proposer answers every set of facts: with wishes, or with the reason why there are none.

pub mod envelope;
pub mod load;
pub mod queueing;
pub mod threshold;
pub mod throughput;

use std::collections::BTreeMap;

use super::plan::{Estimates, LatencyRatios, PhaseState, Prediction, Proposer, Reason, Warning};
use super::policy::{CapacityModel, PoolPolicy};
use crate::planner::plan::EnvelopeTrace;
use crate::units::{Replicas, Role, Seconds};

/// What a proposer may look at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// The next window.
    pub prediction: Prediction,
    /// T: measured TTFT.
    pub ttft: Option<Seconds>,
    /// G: measured ITL.
    pub itl: Option<Seconds>,
    /// Observed prefill replicas.
    pub prefill: Replicas,
    /// Observed decode replicas.
    pub decode: Replicas,
}

/// A wish for one role: what the data in hand support, and what silent targets could add. `supported <= cautious`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// From the demand that was seen.
    pub supported: Replicas,
    /// From the demand with silent targets at their last or the average load.
    pub cautious: Replicas,
}

/// What a proposer answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Wishes by proposer; several may concern one role.
    pub wishes: BTreeMap<Proposer, (Role, Wish)>,
    /// Measured over modelled latency.
    pub latency_ratio: LatencyRatios,
    /// Whether TTFT can be met by any count.
    pub prompt: PhaseState,
    /// Whether ITL can be met by any count.
    pub generation: PhaseState,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
    /// The arithmetic.
    pub trace: EnvelopeTrace,
}

/// A policy that turns facts into wishes.
pub trait Propose {
    /// The wishes, or why there are none.
    fn propose(&self, facts: &Facts) -> Result<Proposal, Reason>;

    /// The model's latencies at the observed counts and at others.
    fn estimate(&self, facts: &Facts, proposal: &Proposal, prefill: Replicas, decode: Replicas) -> Estimates;
}

/// GPUs of one replica of a pool: its setting, else what the capacity model says, else 1.
pub fn gpus_of(pool: &PoolPolicy, capacity: &CapacityModel) -> u32 {
    match capacity {
        CapacityModel::Envelope(envelope) => envelope::gpus_of(pool, envelope),
        CapacityModel::Queueing(_) | CapacityModel::Iterations | CapacityModel::Unknown => {
            pool.gpus_per_replica.map_or(1, std::num::NonZeroU32::get)
        }
    }
}
