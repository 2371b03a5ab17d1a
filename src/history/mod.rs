//! What happened in the last hours? A bounded memory of plain numbers, one entry for each change, for plots and reports. Pure.
//!
//! A model takes at most [`ring::MOST_RUNS`] changes of its traffic and as many of each pool for six hours: 43 kB with two pools, and a few
//! kilobytes where a decision is made every three minutes. Beyond that, changes of one moment are joined: latencies and rates keep the
//! highest value, counts the last. Nothing of it is kept over a restart, and nothing is decided by it.

pub mod ring;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::planner::plan::{OverrideKind, Plan, PoolPlan, Reason};
use crate::units::{PoolId, Replicas, RequestsPerSecond, Seconds};
use ring::{Joined, Ring, Run};

/// The time that is kept at least.
pub const SPAN: Duration = Duration::from_secs(6 * 3600);
/// The time that is kept at most.
pub const LONGEST_SPAN: Duration = Duration::from_secs(24 * 3600);

/// A number that may be unknown, in four bytes: seven digits are more than a plot shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packed(u32);

impl Packed {
    const UNKNOWN: Self = Self(f32::NAN.to_bits());

    fn of(value: Option<f64>) -> Self {
        // `as` gives infinity beyond the range of f32, which is no number to show either.
        let value = value.map(|value| value as f32).filter(|value| value.is_finite());
        value.map_or(Self::UNKNOWN, |value| Self(value.to_bits()))
    }

    fn get(self) -> Option<f64> {
        let value = f32::from_bits(self.0);
        (!value.is_nan()).then_some(f64::from(value))
    }

    fn larger(self, other: Self) -> Self {
        match (self.get(), other.get()) {
            (Some(one), Some(two)) if one > two => self,
            (_, Some(_)) => other,
            (_, None) => self,
        }
    }
}

/// What a model's requests met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    ttft: Packed,
    itl: Packed,
    slo_ttft: Packed,
    slo_itl: Packed,
    offered: Packed,
    observed: Packed,
    predicted: Packed,
}

impl Traffic {
    fn of(plan: &Plan) -> Self {
        // A fleet that is not seen has no latency now, whatever its last window had.
        let seen = plan.observation.as_ref().filter(|_| sees(plan.reason));
        let slo = plan.has_objectives().then_some(&plan.slo);
        let offered = seen.filter(|seen| seen.elapsed_seconds.is_positive());
        Self {
            ttft: Packed::of(seen.and_then(|seen| seen.ttft_seconds).map(Seconds::get)),
            itl: Packed::of(seen.and_then(|seen| seen.itl_seconds).map(Seconds::get)),
            slo_ttft: Packed::of(slo.map(|slo| slo.ttft.get())),
            slo_itl: Packed::of(slo.map(|slo| slo.itl.get())),
            offered: Packed::of(offered.and_then(|seen| Some(seen.offered_requests?.get() / seen.elapsed_seconds.get()))),
            observed: Packed::of(seen.and_then(|seen| seen.requests_per_second).map(RequestsPerSecond::get)),
            predicted: Packed::of(plan.prediction.map(|next| next.requests_per_second.get())),
        }
    }

    /// The objectives' statistic of TTFT in the last window.
    pub fn ttft(&self) -> Option<Seconds> {
        self.ttft.get().map(Seconds)
    }

    /// The objectives' statistic of ITL in the last window.
    pub fn itl(&self) -> Option<Seconds> {
        self.itl.get().map(Seconds)
    }

    /// The TTFT objective in force.
    pub fn slo_ttft(&self) -> Option<Seconds> {
        self.slo_ttft.get().map(Seconds)
    }

    /// The ITL objective in force.
    pub fn slo_itl(&self) -> Option<Seconds> {
        self.slo_itl.get().map(Seconds)
    }

    /// Arrivals in the last window.
    pub fn offered(&self) -> Option<RequestsPerSecond> {
        self.offered.get().map(RequestsPerSecond)
    }

    /// Completions in the last window.
    pub fn observed(&self) -> Option<RequestsPerSecond> {
        self.observed.get().map(RequestsPerSecond)
    }

    /// What the next window was expected to have.
    pub fn predicted(&self) -> Option<RequestsPerSecond> {
        self.predicted.get().map(RequestsPerSecond)
    }
}

impl Joined for Traffic {
    fn join(self, later: Self) -> Self {
        Self {
            ttft: self.ttft.larger(later.ttft),
            itl: self.itl.larger(later.itl),
            slo_ttft: later.slo_ttft,
            slo_itl: later.slo_itl,
            offered: self.offered.larger(later.offered),
            observed: self.observed.larger(later.observed),
            predicted: self.predicted.larger(later.predicted),
        }
    }
}

/// Whether the fleet is seen at all while this reason is in force.
fn sees(reason: Reason) -> bool {
    use Reason::{AllTargetsDown, CoverageLow, DiscoveryFailed, NoTargets, StaleWindow};
    !matches!(reason, NoTargets | DiscoveryFailed | AllTargetsDown | CoverageLow | StaleWindow)
}

/// A pool's counts, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    recommended: Packed,
    planned: Packed,
    current: Packed,
    /// The reason in force.
    pub reason: Reason,
}

impl Counts {
    fn of(pool: &PoolPlan) -> Self {
        let count = |replicas: Option<Replicas>| Packed::of(replicas.map(Replicas::as_f64));
        Self {
            recommended: count(pool.recommended_replicas.filter(|_| pool.overridden != Some(OverrideKind::Shadow))),
            planned: count(pool.planned_replicas),
            current: count(pool.current_replicas),
            reason: pool.reason,
        }
    }

    /// What was published.
    pub fn recommended(&self) -> Option<Replicas> {
        replicas(self.recommended)
    }

    /// What was planned, in shadow mode as well.
    pub fn planned(&self) -> Option<Replicas> {
        replicas(self.planned)
    }

    /// The ready replicas.
    pub fn current(&self) -> Option<Replicas> {
        replicas(self.current)
    }
}

fn replicas(count: Packed) -> Option<Replicas> {
    // Whole and not negative: it was made from a count.
    count.get().map(|count| Replicas(count as u32))
}

impl Joined for Counts {
    fn join(self, later: Self) -> Self {
        let reason = if later.reason.hold_kind().is_none() && self.reason.hold_kind().is_some() { self.reason } else { later.reason };
        Self { reason, ..later }
    }
}

/// One model's last hours.
#[derive(Clone, Debug)]
pub struct ModelHistory {
    traffic: Ring<Traffic>,
    pools: BTreeMap<PoolId, Ring<Counts>>,
    span: u32,
}

impl ModelHistory {
    /// An empty one. Less than [`SPAN`] or more than [`LONGEST_SPAN`] is not kept.
    pub fn new(span: Duration) -> Self {
        let span = seconds(span.clamp(SPAN, LONGEST_SPAN));
        Self { traffic: Ring::new(span), pools: BTreeMap::new(), span }
    }

    /// Keeps so much from now on.
    pub fn set_span(&mut self, span: Duration) {
        self.span = seconds(span.clamp(SPAN, LONGEST_SPAN));
        self.traffic.set_span(self.span);
        self.pools.values_mut().for_each(|pool| pool.set_span(self.span));
    }

    /// Notes what a round has planned. After a silence of more than `patience` there is a gap.
    pub fn note(&mut self, plan: &Plan, patience: Duration) {
        let (at, patience) = (seconds(plan.at.monotonic), seconds(patience));
        self.traffic.note(at, Traffic::of(plan), patience);
        self.pools.retain(|pool, _| plan.pool(pool).is_some());
        for pool in &plan.pools {
            let ring = self.pools.entry(pool.pool.clone()).or_insert_with(|| Ring::new(self.span));
            ring.note(at, Counts::of(pool), patience);
        }
    }

    /// What its requests met, oldest first.
    pub fn traffic(&self) -> impl Iterator<Item = Run<Traffic>> + '_ {
        self.traffic.runs()
    }

    /// The counts of one pool, oldest first.
    pub fn pool(&self, pool: &PoolId) -> impl Iterator<Item = Run<Counts>> + '_ {
        self.pools.get(pool).into_iter().flat_map(Ring::runs)
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        let pools = self.pools.iter().map(|(pool, ring)| size_of::<PoolId>() + pool.as_str().len() + ring.bytes());
        self.traffic.bytes() + pools.sum::<usize>()
    }
}

fn seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_or_no_number_stays_unknown() {
        for value in [None, Some(f64::NAN), Some(f64::INFINITY), Some(1e300)] {
            assert_eq!(Packed::of(value).get(), None);
            assert_eq!(Packed::of(value), Packed::UNKNOWN, "equal to itself, so that it makes one run");
        }
        assert_eq!(Packed::of(Some(0.0)).get(), Some(0.0));
        assert_eq!(Packed::of(Some(1.0)).larger(Packed::UNKNOWN), Packed::of(Some(1.0)));
    }

    #[test]
    fn a_hold_is_not_lost_when_moments_are_joined() {
        let counts =
            |count, reason| Counts { recommended: Packed::of(Some(count)), planned: Packed::UNKNOWN, current: Packed::UNKNOWN, reason };
        let joined = counts(2.0, Reason::CoverageLow).join(counts(3.0, Reason::None));
        assert_eq!((joined.recommended(), joined.reason), (Some(Replicas(3)), Reason::CoverageLow));
        assert_eq!(counts(2.0, Reason::None).join(counts(2.0, Reason::NoTargets)).reason, Reason::NoTargets);
    }
}
