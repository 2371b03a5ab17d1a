//! Which latencies is a learned capacity for, and are they met now? The objectives of preset wva in the seed's order (seed 001 section 3).
//!
//! | source | when | objective |
//! |---|---|---|
//! | explicit | both are written | as written |
//! | learned | a variant has converged | that of an iteration of k alpha, the largest of the variants |
//! | observed | before | 1.5 times the lowest window mean seen, at most 10 s and 500 ms |

use super::learn::{LEAST_UPDATES, interval};
use super::memory::Learning;
use super::model::queueing::Objective;
use super::observe::Window;
use super::plan::SloSource;
use super::policy::{ModelPolicy, QueueingPolicy};
use super::variants::{CONVERGED, Known};
use crate::units::{Role, Seconds};

/// Room over the lowest latencies while nothing is learned (`DefaultFallbackHeadroom`), and how high that may go.
pub(crate) const HEADROOM: f64 = 1.5;
pub(crate) const HIGHEST_TTFT: Seconds = Seconds(10.0);
pub(crate) const HIGHEST_ITL: Seconds = Seconds(0.5);
/// Share of the objectives below which a served load leaves room. Near the maximum a tenth more load can double an iteration; below eight tenths of
/// the objectives it cannot, and the noise of arrivals must not buy a replica.
const USED: f64 = 0.8;

/// Whether the objectives are met now; `None` where that is not known.
#[derive(Clone, Copy)]
pub(super) struct PhaseMet {
    pub prompt: Option<bool>,
    pub generation: Option<bool>,
    /// Share of the objectives that is used, the larger of both phases that are known.
    used: f64,
}

impl PhaseMet {
    pub fn of(window: &Window, objective: Objective) -> Self {
        let within = |found: Option<Seconds>, objective: Seconds| found.map(|found| found <= objective);
        let (ttft, itl) = (window.observation.ttft_seconds, window.observation.itl_seconds);
        let share = |found: Option<Seconds>, objective: Seconds| found.map_or(1.0, |found| found.get() / objective.get());
        Self {
            prompt: within(ttft, objective.ttft),
            generation: within(itl, objective.itl),
            used: share(ttft, objective.ttft).max(share(itl, objective.itl)),
        }
    }

    /// Whether a tenth more load would hardly be felt.
    pub fn has_room(self, role: Role) -> bool {
        self.in_role(role) && self.used <= USED
    }

    /// Whether one is missed that more of the role may mend. First tokens are late for want of decode replicas too: where those have no place,
    /// requests wait before prefill or after it.
    pub fn is_missed(self, role: Role) -> bool {
        let (prompt, generation) = (self.prompt == Some(false), self.generation == Some(false));
        match role {
            Role::Prefill => prompt,
            Role::Decode | Role::Aggregated => prompt || generation,
        }
    }

    /// Those that the role decides.
    pub fn in_role(self, role: Role) -> bool {
        let (prompt, generation) = (self.prompt == Some(true), self.generation == Some(true));
        match role {
            Role::Prefill => prompt,
            Role::Decode => generation,
            Role::Aggregated => prompt && generation,
        }
    }
}

/// The objectives in the seed's order (section 3).
pub(super) fn objective(policy: &ModelPolicy, queueing: &QueueingPolicy, known: &[Known<'_>]) -> (Objective, SloSource) {
    if policy.slo.explicit {
        return (Objective { ttft: Seconds(policy.slo.ttft.get()), itl: Seconds(policy.slo.itl.get()) }, SloSource::Explicit);
    }
    let learned = |one: &Known<'_>| {
        let learning = one.learning?;
        let wanted = learning.learned.parameters().at_multiple(queueing.multiplier, one.lengths);
        let interval = interval::capacity(&learning.learned, &one.question(wanted))?;
        (learning.learned.accepted >= LEAST_UPDATES && interval.is_within(CONVERGED)).then_some(wanted)
    };
    let wanted: Vec<(&Known<'_>, Objective)> = known.iter().filter_map(|one| Some((one, learned(one)?))).collect();
    let most = |role: Role, of: fn(&Objective) -> Seconds| {
        let all = wanted.iter().filter(|(one, _)| one.sees(role)).map(|(_, wanted)| of(wanted));
        all.reduce(|a, b| if b > a { b } else { a })
    };
    if let (Some(ttft), Some(itl)) = (most(Role::Prefill, |one| one.ttft), most(Role::Decode, |one| one.itl)) {
        return (Objective { ttft, itl }, SloSource::Learned);
    }
    let lowest = |of: fn(&Learning) -> Option<Seconds>, highest: Seconds| {
        let lowest = known.iter().filter_map(|one| of(one.learning?)).map(Seconds::get).reduce(f64::min);
        Seconds(lowest.map_or(highest.get(), |lowest| (HEADROOM * lowest).min(highest.get())))
    };
    let ttft = lowest(|learning| learning.lowest_ttft, HIGHEST_TTFT);
    let itl = lowest(|learning| learning.lowest_itl, HIGHEST_ITL);
    (Objective { ttft, itl }, SloSource::Observed)
}
