//! What would have been possible? The cheapest constant counts, the cheapest plan, and how good anybody could be who does not know the future.
//!
//! | row | what it is |
//! |---|---|
//! | constant | the cheapest counts that never change and meet the goal |
//! | clairvoyant | the cheapest plan that is known: what the search of [`crate::simulator::clairvoyant`] finds, or what a judged policy did |
//! | causal | the same plan, late by start-up and one tick: who asks for a replica when the need is there |
//!
//! Where even the largest counts miss the goal, because of prompts that take too long on an idle replica, all are held to that share of what
//! the largest counts attain: otherwise there would be nothing to compare with. Where those attain nothing there is no goal, and nothing
//! is looked for.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::policy::Scheduled;
use super::{GOAL, GRACE, Outcome, Scenario, Static, run};
use crate::planner::policy::Limits;
use crate::simulator::clairvoyant::{Effort, Goal, Plan, RoleLimits, Task};
use crate::units::{Ratio, Replicas, Role};

/// Shortest time between two changes of the plan that the search tries; a replica that serves for less is hardly worth its start.
const INTERVAL: Duration = Duration::from_secs(60);
/// Most intervals: more take the search longer than they save.
const MOST_INTERVALS: u32 = 240;

/// The name of the cheapest plan known.
const CLAIRVOYANT: &str = "clairvoyant";

/// What was possible on a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hindsight {
    /// The attainment that was asked for: [`GOAL`], or less where the largest counts miss that.
    pub goal: Ratio,
    /// The cheapest constant counts.
    pub constant: Outcome,
    /// The cheapest plan known.
    pub clairvoyant: Outcome,
    /// The same, late.
    pub causal: Outcome,
    /// GPU hours below which no plan meets the goal.
    pub lower_bound_gpu_hours: f64,
}

impl Hindsight {
    /// GPU hours of a policy over those of the clairvoyant plan.
    pub fn cost_ratio(&self, outcome: &Outcome) -> Ratio {
        Ratio(outcome.gpu_hours / self.clairvoyant.gpu_hours.max(f64::MIN_POSITIVE))
    }
}

/// The attainment to ask for, when no role may have more than its limits allow. `None` if even so no request meets the objectives.
pub fn goal(scenario: &Scenario<'_>, limits: &BTreeMap<Role, Limits>) -> Option<Ratio> {
    let most: BTreeMap<Role, Replicas> = limits.iter().map(|(&role, limits)| (role, limits.max())).collect();
    let largest = run(&scenario.starting_with(&most), &mut Static(most));
    let goal = if largest.meets_goal() { GOAL } else { GOAL * largest.attainment.get() };
    (largest.within > 0).then_some(Ratio(goal))
}

/// Looks for the cheapest plans. `known` are outcomes on the same scenario, from whose counts the search starts as well. `None` if no
/// constant counts within the limits meet the goal.
pub fn hindsight(
    scenario: &Scenario<'_>,
    limits: &BTreeMap<Role, Limits>,
    goal: Ratio,
    known: &[&Outcome],
    effort: &Effort,
) -> Option<Hindsight> {
    let task = task(scenario, limits, goal);
    let enough: Vec<&&Outcome> = known.iter().filter(|outcome| outcome.attainment >= goal).collect();
    let followed: Vec<Plan> = enough.iter().map(|outcome| followed(outcome, scenario.tick)).collect();
    // A policy of another tick is followed on that.
    let ticks = enough.iter().map(|outcome| tick_of(outcome).unwrap_or(scenario.tick));
    let ticks: Vec<Duration> = std::iter::once(scenario.tick).chain(ticks).collect();
    let solution = task.solve_from(effort, &followed)?;
    let play = |name: &str, plan: &Plan, tick: Duration| {
        let first = plan.counts.keys().map(|&role| (role, plan.target(role, Duration::ZERO))).collect();
        let scenario = Scenario { tick, ..scenario.starting_with(&first) };
        let outcome = run(&scenario, &mut Scheduled { name: name.to_owned(), plan: plan.clone() });
        Outcome { chosen_in_hindsight: true, ..outcome }
    };
    // The search changes counts on its own grid only, so that a policy may be cheaper still.
    let plans = std::iter::once(solution.plan).chain(followed).zip(ticks);
    let played = plans.map(|(plan, tick)| (play(CLAIRVOYANT, &plan, tick), plan, tick));
    let played = played.filter(|(outcome, ..)| outcome.attainment >= goal);
    let (mut clairvoyant, mut plan, tick) = played.min_by(|(one, ..), (other, ..)| one.gpu_hours.total_cmp(&other.gpu_hours))?;
    let late = |plan: &Plan| {
        let plan = plan.delayed(scenario.fleet.startup + tick);
        (play("clairvoyant, late", &plan, tick), plan)
    };
    let (mut causal, mut delayed) = late(&plan);
    // A load that falls is served by a late plan as well, and it may be cheaper: then it is what was possible. Each turn saves something, and
    // a plan that is late by the whole trace is a constant.
    while causal.attainment >= goal && causal.gpu_hours < clairvoyant.gpu_hours {
        (clairvoyant, plan) = (Outcome { policy: CLAIRVOYANT.to_owned(), ..causal }, delayed);
        (causal, delayed) = late(&plan);
    }
    let counts: Vec<String> =
        solution.constant.counts.keys().map(|&role| solution.constant.target(role, Duration::ZERO).to_string()).collect();
    Some(Hindsight {
        goal,
        constant: play(&format!("best static {}", counts.join("+")), &solution.constant, scenario.tick),
        causal,
        clairvoyant,
        lower_bound_gpu_hours: task.fluid_lower_bound().as_secs_f64() / 3600.0,
    })
}

fn task<'a>(scenario: &Scenario<'a>, limits: &BTreeMap<Role, Limits>, goal: Ratio) -> Task<'a> {
    let of_role = |(&role, limits): (&Role, &Limits)| {
        let limits = RoleLimits { min: limits.min(), max: limits.max(), gpus: scenario.gpus_of(role) };
        (role, limits)
    };
    Task {
        requests: scenario.requests,
        horizon: scenario.length,
        judged_from: scenario.warm_up,
        grace: GRACE,
        interval: interval(scenario),
        fleet: scenario.fleet,
        goal: Goal { ttft: scenario.ttft, itl: scenario.itl, attainment: goal },
        limits: limits.iter().map(of_role).collect(),
    }
}

/// A whole number of ticks, so that a plan can be played exactly.
fn interval(scenario: &Scenario<'_>) -> Duration {
    let tick = scenario.tick.max(super::SHORTEST_TICK);
    let least = INTERVAL.max(scenario.length / MOST_INTERVALS);
    let ticks = least.as_nanos().div_ceil(tick.as_nanos());
    tick.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// `None` if the tick is no span of time, which no run gives.
fn tick_of(outcome: &Outcome) -> Option<Duration> {
    Duration::try_from_secs_f64(outcome.tick.get()).ok().filter(|tick| !tick.is_zero())
}

/// The counts that a policy asked for; `tick` is for an outcome that has none.
fn followed(outcome: &Outcome, tick: Duration) -> Plan {
    let tick = tick_of(outcome).unwrap_or(tick);
    let mut counts: BTreeMap<Role, Vec<Replicas>> = BTreeMap::new();
    for point in &outcome.series {
        for (&role, replicas) in &point.replicas {
            counts.entry(role).or_default().push(replicas.recommended);
        }
    }
    Plan { interval: tick, delay: Duration::ZERO, counts }
}
