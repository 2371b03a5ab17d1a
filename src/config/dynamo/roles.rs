//! Which pools does a Dynamo planner plan, and which of its two loops moves them? What its mode, target and switches mean.

use super::read::Fields;
use crate::units::Role;

/// One side of a disaggregated deployment, with the fields that are its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// The word in our configuration.
    pub role: Role,
    /// Smallest number of replicas.
    pub floor: &'static str,
    /// GPUs of a replica.
    pub gpus: &'static str,
    /// Thresholds of target load: one more, one less.
    pub thresholds: [&'static str; 2],
}

pub(super) const PREFILL: Side = Side {
    role: Role::Prefill,
    floor: "prefill_min_endpoint",
    gpus: "prefill_engine_num_gpu",
    thresholds: ["prefill_scale_up_queue_tokens", "prefill_scale_down_queue_tokens"],
};

pub(super) const DECODE: Side = Side {
    role: Role::Decode,
    floor: "decode_min_endpoint",
    gpus: "decode_engine_num_gpu",
    thresholds: ["decode_scale_up_kv_rate", "decode_scale_down_kv_rate"],
};

/// What is planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    /// Dynamo's word.
    pub name: &'static str,
    prefill: bool,
    decode: bool,
    /// One pool does both; Dynamo keeps it on its decode side.
    pub aggregated: bool,
}

impl Mode {
    /// Whether that side is planned.
    pub(super) fn has(self, side: Side) -> bool {
        if side.role == Role::Prefill { self.prefill } else { self.decode }
    }

    /// The planned sides; in mode agg the decode side stands for the replicas that do both.
    pub(super) fn sides(self) -> impl Iterator<Item = Side> {
        [PREFILL, DECODE].into_iter().filter(move |side| self.has(*side))
    }

    /// The role that a side's pool has here.
    pub(super) fn role(self, side: Side) -> Role {
        if self.aggregated { Role::Aggregated } else { side.role }
    }
}

/// The mode; disagg where it is written wrongly.
pub(super) fn mode(fields: &Fields) -> Mode {
    let mode = |name, prefill, decode, aggregated| Mode { name, prefill, decode, aggregated };
    match fields.text("mode") {
        Some("prefill") => mode("prefill", true, false, false),
        Some("decode") => mode("decode", false, true, false),
        Some("agg") => mode("agg", false, true, true),
        _ => mode("disagg", true, true, false),
    }
}

/// Whether latency objectives are planned for.
pub(super) fn is_sla(fields: &Fields) -> bool {
    fields.text("optimization_target") == Some("sla")
}

/// Whether the slow loop runs: with target sla alone.
pub(super) fn throughput_scales(fields: &Fields) -> bool {
    is_sla(fields) && fields.switch("enable_throughput_scaling")
}

/// Whether the fast loop runs: always, unless target sla has it switched off.
pub(super) fn load_scales(fields: &Fields) -> bool {
    !is_sla(fields) || fields.switch("enable_load_scaling")
}

/// Fewest replicas of a side as Dynamo has it; 0 permits none.
pub(super) fn floor(fields: &Fields, side: Side) -> i64 {
    fields.whole(side.floor).or_else(|| fields.whole("min_endpoint")).unwrap_or(1)
}

/// GPUs of the fewest replicas of a side that are planned here; a replica of unknown size has at least one.
pub(super) fn least_gpus(fields: &Fields, side: Side) -> i64 {
    floor(fields, side).max(1).saturating_mul(gpus(fields, side).unwrap_or(1))
}

/// GPUs of a replica, where they are written.
pub(super) fn gpus(fields: &Fields, side: Side) -> Option<i64> {
    fields.whole(side.gpus)
}
