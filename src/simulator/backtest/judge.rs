//! What is counted during a run? The requests themselves, the counts that were asked for, and the time that was paid.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use super::outcome::{Counts, Decision, Outcome, Point, Scaling, Spread};
use super::policy::{Answer, Why};
use super::{GOAL, Scenario};
use crate::simulator::fleet::{Finished, Fleet};
use crate::units::{Ratio, Replicas, RequestsPerSecond, Role, Seconds};

/// What is judged at a time.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// A change back after longer than this follows the load.
const REVERSAL: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    offered: u64,
    within: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moves {
    /// Replica time before the judgement begins.
    unpaid: Duration,
    target: Replicas,
    last: Option<(Duration, Ordering)>,
    scaling: Scaling,
}

/// The notes of a run.
#[derive(Debug)]
pub(super) struct Judge<'a> {
    scenario: &'a Scenario<'a>,
    windows: Vec<Window>,
    refused: u64,
    ttft: Vec<f64>,
    itl: Vec<f64>,
    moves: BTreeMap<Role, Moves>,
    /// When the last tick was, and how many requests had arrived by then.
    seen: (Duration, u64),
    decisions: Vec<Decision>,
    series: Vec<Point>,
}

impl<'a> Judge<'a> {
    pub fn new(scenario: &'a Scenario<'a>, fleet: &Fleet) -> Self {
        let judged = scenario.length.saturating_sub(scenario.warm_up);
        let count = usize::try_from(judged.as_nanos().div_ceil(WINDOW.as_nanos())).unwrap_or(usize::MAX).max(1);
        let mut windows = vec![Window::default(); count];
        let mut refused = 0;
        for request in scenario.requests {
            if let Some(since) = request.at.checked_sub(scenario.warm_up) {
                windows[window_of(since, count)].offered += 1;
                refused += u64::from(!fleet.holds(request));
            }
        }
        let moves = |role| {
            let target = fleet.ready(role);
            (role, Moves { target, scaling: Scaling { peak: target, ..Scaling::default() }, ..Moves::default() })
        };
        let moves = fleet.roles().map(moves).collect();
        let (ttft, itl) = (Vec::new(), Vec::new());
        Self { scenario, windows, refused, ttft, itl, moves, seen: (Duration::ZERO, 0), decisions: Vec::new(), series: Vec::new() }
    }

    /// Notes that the warm-up ends: what was paid until now and how counts moved is not judged, what is held now is.
    pub fn begin(&mut self, fleet: &Fleet) {
        for (&role, moves) in &mut self.moves {
            moves.unpaid = fleet.replica_time(role);
            let held = Replicas(fleet.ready(role).0 + fleet.starting(role).0 + fleet.draining(role).0);
            moves.scaling = Scaling { peak: held, ..Scaling::default() };
        }
    }

    /// Notes a tick: what ended in it, and the fleet after the answer.
    pub fn tick(&mut self, now: Duration, fleet: &Fleet, finished: &[Finished], answer: &Answer) {
        self.take(finished);
        let mut replicas = BTreeMap::new();
        for (&role, moves) in &mut self.moves {
            let ready = fleet.ready(role);
            let target = Replicas(ready.0 + fleet.starting(role).0);
            moves.note(now, target, Replicas(target.0 + fleet.draining(role).0));
            replicas.insert(role, Counts { recommended: target, ready });
        }
        self.decide(now, &replicas, answer);
        let offered = fleet.truth().offered;
        let (before, known) = std::mem::replace(&mut self.seen, (now, offered));
        let span = now.saturating_sub(before).as_secs_f64();
        // Counts of requests are exact in double precision.
        let rate = |count: u64| RequestsPerSecond(if span > 0.0 { count as f64 / span } else { 0.0 });
        let mean = |values: &mut dyn Iterator<Item = Duration>| {
            let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value.as_secs_f64(), count + 1));
            (count > 0).then(|| Seconds(sum / f64::from(count)))
        };
        self.series.push(Point {
            at: now.into(),
            replicas,
            offered: rate(offered - known),
            completed: rate(finished.len() as u64),
            ttft: mean(&mut finished.iter().map(|request| request.ttft)),
            itl: mean(&mut finished.iter().filter_map(|request| request.itl)),
            observed: answer.why.as_ref().and_then(|why| why.observed),
            reason: answer.why.as_ref().map(|why| why.reason),
        });
    }

    fn decide(&mut self, now: Duration, counts: &BTreeMap<Role, Counts>, answer: &Answer) {
        let replicas = counts.iter().map(|(&role, counts)| (role, counts.recommended)).collect();
        let reason = |why: &Option<Why>| why.as_ref().map(|why| why.reason);
        if self.decisions.last().is_none_or(|last| last.replicas != replicas || reason(&last.why) != reason(&answer.why)) {
            self.decisions.push(Decision { at: now.into(), replicas, why: answer.why.clone() });
        }
    }

    fn take(&mut self, finished: &[Finished]) {
        let count = self.windows.len();
        for request in finished {
            let Some(since) = request.arrived.checked_sub(self.scenario.warm_up) else { continue };
            self.ttft.push(request.ttft.as_secs_f64());
            self.itl.extend(request.itl.map(|itl| itl.as_secs_f64()));
            if request.within(self.scenario.ttft, self.scenario.itl) {
                self.windows[window_of(since, count)].within += 1;
            }
        }
    }

    /// Notes what the fleet cost so far.
    pub fn paid(&mut self, fleet: &Fleet) {
        for (&role, moves) in &mut self.moves {
            let gpus = f64::from(self.scenario.gpus_of(role));
            moves.scaling.gpu_hours = fleet.replica_time(role).saturating_sub(moves.unpaid).as_secs_f64() / 3600.0 * gpus;
        }
    }

    pub fn finish(mut self, policy: String, finished: &[Finished]) -> Outcome {
        self.take(finished);
        let offered = self.windows.iter().map(|window| window.offered).sum::<u64>();
        let within = self.windows.iter().map(|window| window.within).sum::<u64>();
        let completed = self.ttft.len() as u64;
        let judged = self.scenario.length.saturating_sub(self.scenario.warm_up);
        let (violation, longest_violation) = violations(&self.windows, judged);
        let roles: BTreeMap<Role, Scaling> = self.moves.iter().map(|(&role, moves)| (role, moves.scaling)).collect();
        Outcome {
            policy,
            offered,
            completed,
            refused: self.refused,
            unfinished: offered - completed - self.refused,
            within,
            attainment: share(within, offered),
            ttft: Spread::of(self.ttft),
            itl: Spread::of(self.itl),
            gpu_hours: roles.values().map(|scaling| scaling.gpu_hours).sum(),
            hours: judged.as_secs_f64() / 3600.0,
            roles,
            violation: violation.into(),
            longest_violation: longest_violation.into(),
            chosen_in_hindsight: false,
            tick: self.scenario.tick.max(super::SHORTEST_TICK).into(),
            decisions: self.decisions,
            series: self.series,
        }
    }
}

impl Moves {
    fn note(&mut self, now: Duration, target: Replicas, held: Replicas) {
        let direction = target.cmp(&self.target);
        match direction {
            Ordering::Greater => self.scaling.ups += 1,
            Ordering::Less => self.scaling.downs += 1,
            Ordering::Equal => {}
        }
        if direction != Ordering::Equal {
            let back = self.last.is_some_and(|(at, last)| last != direction && now <= at + REVERSAL);
            self.scaling.reversals += u32::from(back);
            self.last = Some((now, direction));
        }
        self.target = target;
        self.scaling.peak = self.scaling.peak.max(held);
    }
}

/// The window of a moment; the last one takes what comes later.
fn window_of(at: Duration, count: usize) -> usize {
    usize::try_from(at.as_nanos() / WINDOW.as_nanos()).unwrap_or(usize::MAX).min(count - 1)
}

fn share(within: u64, offered: u64) -> Ratio {
    Ratio(if offered == 0 { 1.0 } else { within as f64 / offered as f64 })
}

/// The time in bad windows, and the longest of it in one piece. The last window may be shorter than the others.
fn violations(windows: &[Window], length: Duration) -> (Duration, Duration) {
    let (mut all, mut longest, mut current) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut begin = Duration::ZERO;
    for window in windows {
        let span = WINDOW.min(length.saturating_sub(begin));
        begin += WINDOW;
        if share(window.within, window.offered).get() < GOAL {
            all += span;
            current += span;
            longest = longest.max(current);
        } else {
            current = Duration::ZERO;
        }
    }
    (all, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_lasts_until_a_good_window() {
        let window = |offered, within| Window { offered, within };
        let windows = [window(100, 98), window(100, 90), window(0, 0), window(100, 99), window(10, 9)];
        let (all, longest) = violations(&windows, Duration::from_secs(270));
        assert_eq!((all, longest), (Duration::from_secs(150), Duration::from_secs(120)));
    }

    #[test]
    fn only_a_quick_change_back_is_a_reversal() {
        let mut moves = Moves { target: Replicas(2), ..Moves::default() };
        for (at, target) in [(0, 3), (60, 4), (120, 3), (180, 3), (600, 2), (1300, 4)] {
            moves.note(Duration::from_secs(at), Replicas(target), Replicas(target));
        }
        let Scaling { ups, downs, reversals, peak, .. } = moves.scaling;
        assert_eq!((ups, downs, reversals, peak), (3, 2, 1, Replicas(4)));
    }
}
