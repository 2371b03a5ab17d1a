//! Does a candidate meet the goal, and what does it cost? Simulates it, and no more of it than is needed.
//!
//! Candidates differ from the plan that the search stands on in a few intervals. The state of the fleet at the beginning of intervals of that
//! plan is kept, so a candidate is simulated from the first difference on; and it is given up once it has missed too many requests.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Plan, RoleLimits, Task, Verdict};
use crate::simulator::fleet::{Fleet, FleetSettings, Layout, PoolSettings};
use crate::units::{Replicas, Role};

/// Counts, those of the first interval first, within an interval by role.
pub(super) type Counts = Vec<u32>;

/// States that are kept at most.
const MOST_STATES: usize = 128;

/// Of two plans that meet the goal, the lesser is the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    /// GPU time in nanoseconds.
    pub cost: u128,
    /// Requests that missed an objective.
    pub missed: u64,
}

/// A fleet on its way through the trace.
#[derive(Clone, Debug)]
pub(super) struct State {
    fleet: Fleet,
    /// The next request.
    next: usize,
    within: u64,
    missed: u64,
    /// The cost before the judgement begins.
    unpaid: u128,
}

/// The settings with other counts at the start.
fn with_counts(mut settings: FleetSettings, count: impl Fn(Role) -> u32) -> FleetSettings {
    let set = |pool: &mut PoolSettings, role| pool.replicas = Replicas(count(role));
    match &mut settings.layout {
        Layout::Disaggregated { prefill, decode } => {
            set(prefill, Role::Prefill);
            set(decode, Role::Decode);
        }
        Layout::Aggregated(both) => set(both, Role::Aggregated),
    }
    settings
}

impl Task<'_> {
    /// The roles of the fleet and their limits.
    pub(super) fn roles(&self) -> Vec<(Role, RoleLimits)> {
        let pools = match self.fleet.layout {
            Layout::Disaggregated { prefill, decode } => vec![(Role::Prefill, prefill), (Role::Decode, decode)],
            Layout::Aggregated(both) => vec![(Role::Aggregated, both)],
        };
        let limits = |role, pool: PoolSettings| {
            let fixed = RoleLimits { min: pool.replicas, max: pool.replicas, gpus: 1 };
            let given = self.limits.get(&role).copied().unwrap_or(fixed);
            RoleLimits { max: given.max.max(given.min), ..given }
        };
        pools.into_iter().map(|(role, pool)| (role, limits(role, pool))).collect()
    }

    /// Number of intervals, at least 1; the last one may be shorter.
    pub(super) fn intervals(&self) -> usize {
        let whole = self.horizon.as_nanos().div_ceil(self.interval.as_nanos().max(1)).max(1);
        if self.interval.is_zero() { 1 } else { usize::try_from(whole).unwrap_or(usize::MAX) }
    }

    /// When an interval ends.
    pub(super) fn end_of(&self, interval: usize) -> Duration {
        if interval + 1 >= self.intervals() {
            return self.horizon;
        }
        self.interval.saturating_mul(u32::try_from(interval + 1).unwrap_or(u32::MAX))
    }

    /// Requests that are offered.
    pub(super) fn offered(&self) -> u64 {
        let before = |at: Duration| self.requests.partition_point(|request| request.at < at);
        let all = self.requests.partition_point(|request| request.at <= self.horizon);
        all.saturating_sub(before(self.judged_from)) as u64
    }

    /// Requests that may miss.
    pub(super) fn allowed(&self) -> u64 {
        let offered = self.offered();
        // `as` saturates. The share of a goal that is whole on paper must not be one more by noise.
        let needed = (offered as f64 * self.goal.attainment.get() - 1e-6).ceil() as u64;
        offered.saturating_sub(needed)
    }

    pub(super) fn begin(&self, count: impl Fn(Role) -> u32) -> State {
        State { fleet: Fleet::new(with_counts(self.fleet, count)), next: 0, within: 0, missed: 0, unpaid: 0 }
    }

    /// Sets the targets and lets time run to `until`.
    pub(super) fn go_on(&self, state: &mut State, target: impl Fn(Role) -> Replicas, until: Duration) {
        for (role, _) in self.roles() {
            state.fleet.set_target(role, target(role));
        }
        if state.fleet.now() < self.judged_from && self.judged_from <= until {
            self.play(state, self.judged_from);
            state.unpaid = self.replica_cost(state);
        }
        self.play(state, until);
    }

    fn play(&self, state: &mut State, until: Duration) {
        while let Some(&request) = self.requests.get(state.next).filter(|request| request.at <= until) {
            state.fleet.offer(request);
            state.next += 1;
        }
        state.fleet.advance_to(until);
        self.count(state);
    }

    /// What the plan costs up to the horizon; then lets the last requests end.
    pub(super) fn close(&self, state: &mut State) -> u128 {
        let cost = self.cost(state);
        state.fleet.advance_to(self.horizon + self.grace);
        self.count(state);
        cost
    }

    fn count(&self, state: &mut State) {
        for finished in state.fleet.take_finished().into_iter().filter(|finished| finished.arrived >= self.judged_from) {
            if finished.within(self.goal.ttft, self.goal.itl) { state.within += 1 } else { state.missed += 1 }
        }
    }

    pub(super) fn cost(&self, state: &State) -> u128 {
        self.replica_cost(state) - state.unpaid
    }

    fn replica_cost(&self, state: &State) -> u128 {
        self.roles().iter().map(|(role, limits)| state.fleet.replica_time(*role).as_nanos() * u128::from(limits.gpus)).sum()
    }

    /// Simulates a plan.
    pub fn judge(&self, plan: &Plan) -> Verdict {
        let changes = plan.changes();
        let mut state = self.begin(|role| plan.target(role, Duration::ZERO).0);
        for (index, &at) in changes.iter().enumerate().take_while(|(_, at)| **at < self.horizon) {
            let until = changes.get(index + 1).copied().unwrap_or(self.horizon).min(self.horizon);
            self.go_on(&mut state, |role| plan.target(role, at), until);
        }
        let cost = self.close(&mut state);
        let offered = self.offered();
        let met = offered - state.within <= self.allowed();
        Verdict { offered, within: state.within, gpu_time: span(cost), met }
    }

    /// The plan of a candidate.
    pub(super) fn plan(&self, counts: &[u32]) -> Plan {
        let roles = self.roles();
        let of_role = |index: usize| counts.iter().skip(index).step_by(roles.len()).map(|&count| Replicas(count)).collect();
        let counts = roles.iter().enumerate().map(|(index, (role, _))| (*role, of_role(index))).collect();
        let interval = if self.interval.is_zero() { self.horizon } else { self.interval };
        Plan { interval, delay: Duration::ZERO, counts }
    }
}

/// Nanoseconds as a span; 584 years are as good as for ever.
fn span(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl State {
    pub(super) fn missed(&self) -> u64 {
        self.missed
    }

    pub(super) fn within(&self) -> u64 {
        self.within
    }
}

/// Judges candidates.
pub(super) struct Judge<'a> {
    pub task: &'a Task<'a>,
    pub roles: Vec<(Role, RoleLimits)>,
    pub intervals: usize,
    allowed: u64,
    offered: u64,
    /// Complete judgements; `None` misses the goal.
    known: BTreeMap<Counts, Option<Score>>,
    /// Where the search stands.
    base: Counts,
    /// States at the beginning of intervals of `base`, in order.
    states: Vec<(usize, State)>,
    /// Requests that `base` has missed by the end of each interval.
    base_missed: Vec<u64>,
    pub simulated: u64,
    /// Intervals that may still be simulated.
    left: u64,
}

impl<'a> Judge<'a> {
    pub fn new(task: &'a Task<'a>, simulations: u64) -> Self {
        let intervals = task.intervals();
        Self {
            task,
            roles: task.roles(),
            intervals,
            allowed: task.allowed(),
            offered: task.offered(),
            known: BTreeMap::new(),
            base: Vec::new(),
            states: Vec::new(),
            base_missed: Vec::new(),
            simulated: 0,
            left: simulations.saturating_mul(intervals as u64),
        }
    }

    pub fn exhausted(&self) -> bool {
        self.left == 0
    }

    /// From now on, that much effort is left.
    pub fn limit(&mut self, simulations: u64) {
        self.left = simulations.saturating_mul(self.intervals as u64);
    }

    fn go_on(&self, state: &mut State, counts: &[u32], interval: usize) {
        let row = &counts[interval * self.roles.len()..];
        let target = |role| self.roles.iter().position(|(known, _)| *known == role).map_or(Replicas(0), |index| Replicas(row[index]));
        self.task.go_on(state, target, self.task.end_of(interval));
    }

    /// The latest kept state that candidate and base share.
    fn resume(&self, counts: &[u32]) -> (usize, State) {
        let same = counts.iter().zip(&self.base).take_while(|(one, other)| one == other).count() / self.roles.len();
        match self.states.iter().rev().find(|(interval, _)| *interval <= same && *interval > 0) {
            Some((interval, state)) => (*interval, state.clone()),
            None => (0, self.task.begin(|role| self.roles.iter().position(|(known, _)| *known == role).map_or(0, |index| counts[index]))),
        }
    }

    /// `None` if the candidate misses the goal, or if the effort is spent. With `as_base`, a candidate is also given up when it has lost
    /// more than the base could lose on top of its own misses: one with fewer replicas will not make that good later, as a rule.
    pub fn score(&mut self, counts: &[u32], as_base: bool) -> Option<Score> {
        if let Some(known) = self.known.get(counts) {
            return *known;
        }
        if self.exhausted() {
            return None;
        }
        self.simulated += 1;
        let (first, mut state) = self.resume(counts);
        let as_base = as_base && self.base_missed.len() == self.intervals;
        let spare = self.allowed.saturating_sub(self.base_missed.last().copied().unwrap_or(0));
        for interval in first..self.intervals {
            self.go_on(&mut state, counts, interval);
            self.left = self.left.saturating_sub(1);
            if state.missed > self.allowed {
                self.known.insert(counts.to_vec(), None);
                return None;
            }
            if as_base && state.missed > self.base_missed[interval] + spare {
                return None;
            }
        }
        let cost = self.task.close(&mut state);
        let missed = self.offered - state.within;
        let score = (missed <= self.allowed).then_some(Score { cost, missed });
        self.known.insert(counts.to_vec(), score);
        score
    }

    /// The search now stands on that candidate.
    pub fn stand_on(&mut self, counts: &[u32]) {
        if self.base == counts {
            return;
        }
        let (first, mut state) = self.resume(counts);
        self.states.retain(|(interval, _)| *interval <= first && *interval > 0);
        self.base_missed.truncate(first);
        self.base = counts.to_vec();
        let spacing = self.intervals.div_ceil(MOST_STATES);
        for interval in first..self.intervals {
            if interval % spacing == 0 && interval > first {
                self.states.push((interval, state.clone()));
            }
            self.go_on(&mut state, counts, interval);
            self.left = self.left.saturating_sub(1);
            self.base_missed.push(state.missed);
        }
        self.task.close(&mut state);
        if let Some(last) = self.base_missed.last_mut() {
            // Those that never finish have missed in the end.
            *last = self.offered - state.within;
        }
    }
}
