//! Which policy is the best here? Configurations and baselines on the same traffic, and what was possible.

use serde::Serialize;

use super::faults::MetricFault;
use super::hindsight::{Hindsight, goal, hindsight};
use super::world::World;
use super::{GOAL, HpaQueue, Kpa, Outcome, Planner, Policy, Scenario, best_of, out_of_reach, per_replica, run};
use crate::planner::policy::ModelPolicy;
use crate::simulator::clairvoyant::Effort;
use crate::simulator::trace::Trace;
use crate::units::{Ratio, Requests, RequestsPerSecond, Role, Seconds, Tokens};

/// Requests that may wait for each replica, of the autoscaler on queues.
const QUEUE_TARGET: f64 = 5.0;
/// What it is tuned over, beside the usual.
const QUEUE_TARGETS: [f64; 6] = [0.1, 0.25, 0.5, 1.0, 2.0, 10.0];
/// Share of what a replica may hold that the autoscaler on concurrency aims at: Knative's default.
const UTILISATION: f64 = 0.7;
/// What it is tuned over, for each role, beside the usual. A queue in front of a server that is busy 70 % of the time holds one or two prompts, so the shares of
/// what a replica may hold reach far down.
const SHARES: [f64; 5] = [0.02, 0.05, 0.12, 0.3, 0.6];
/// With less, a single request would ask for several replicas.
const LEAST_CONCURRENCY: f64 = 0.5;

/// What came of several policies on the same traffic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The traffic.
    pub trace: Traffic,
    /// From the request for a replica to its readiness.
    pub startup_seconds: Seconds,
    /// What happened before was not judged.
    pub warm_up_seconds: Seconds,
    /// What was wrong from time to time with what planners saw; other policies look at the fleet itself.
    pub metric_faults: Vec<MetricFault>,
    /// The objectives that all are judged by.
    pub objectives: Objectives,
    /// How far the simulated servers are from the profile.
    pub fit_error: FitErrors,
    /// Requests whose prompts take longer than the TTFT objective on an idle replica.
    pub out_of_reach: u64,
    /// The planner under each configuration.
    pub configurations: Vec<Outcome>,
    /// Other autoscalers; empty unless asked for.
    pub baselines: Vec<Outcome>,
    /// What was possible; `None` unless asked for, and where no fleet within the limits meets the objectives.
    pub hindsight: Option<Hindsight>,
}

/// A trace in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// A file or a shape.
    pub name: String,
    /// By how much the number of requests was multiplied.
    pub scale: f64,
    /// Of the traffic and of the fleet.
    pub seed: u64,
    /// Number of requests.
    pub requests: usize,
    /// From the first moment to the last.
    pub length_seconds: Seconds,
    /// Mean over the length.
    pub rate: RequestsPerSecond,
    /// Mean tokens of a prompt.
    pub mean_input: Tokens,
    /// Mean tokens of an answer.
    pub mean_output: Tokens,
}

impl Traffic {
    /// The numbers of `trace`, which was scaled already.
    pub fn of(trace: &Trace, name: &str, scale: f64, seed: u64) -> Self {
        let summary = trace.summary();
        Self {
            name: name.to_owned(),
            scale,
            seed,
            requests: summary.requests,
            length_seconds: trace.length.into(),
            rate: summary.rate,
            mean_input: summary.mean_input,
            mean_output: summary.mean_output,
        }
    }
}

/// Each request's objectives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Objectives {
    /// Time to first token.
    pub ttft_seconds: Seconds,
    /// Mean token spacing.
    pub itl_seconds: Seconds,
}

/// Relative errors of the simulated servers against the profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FitErrors {
    /// Prompts, mean.
    pub prefill_mean: Ratio,
    /// Prompts, the worst.
    pub prefill_max: Ratio,
    /// Token spacing, mean.
    pub decode_mean: Ratio,
    /// Token spacing, the worst.
    pub decode_max: Ratio,
}

/// What configurations are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Each other.
    Nothing,
    /// What was possible: the cheapest constant counts, the cheapest plan, and that plan late by a start-up.
    Hindsight,
    /// That, and two autoscalers, each also tuned on the very trace: some 200 more runs.
    Baselines,
}

impl Comparison {
    /// The planner under each configuration, by name, and what it is compared with. `begins` hears of each part before it begins.
    pub fn of(
        world: &World<'_>,
        trace: Traffic,
        configurations: &[(String, ModelPolicy)],
        beside: Beside,
        begins: &mut dyn FnMut(&Part<'_>),
    ) -> Self {
        let mut parts = Parts { number: 0, of: parts(configurations.len(), beside), begins };
        let play = |(name, policy): &(String, ModelPolicy)| {
            parts.begin(name);
            let scenario = Scenario { tick: policy.scrape_interval, ..world.scenario.clone() };
            run(&scenario, &mut Planner::new(name, policy).seeing(&world.metric_faults))
        };
        let configurations: Vec<Outcome> = configurations.iter().map(play).collect();
        let scenario = &world.scenario;
        let mut comparison = Self {
            trace,
            startup_seconds: scenario.fleet.startup.into(),
            warm_up_seconds: scenario.warm_up.into(),
            metric_faults: world.metric_faults.kinds.iter().copied().collect(),
            objectives: Objectives { ttft_seconds: scenario.ttft, itl_seconds: scenario.itl },
            fit_error: FitErrors {
                prefill_mean: world.fit.prefill_error.mean,
                prefill_max: world.fit.prefill_error.max,
                decode_mean: world.fit.decode_error.mean,
                decode_max: world.fit.decode_error.max,
            },
            out_of_reach: out_of_reach(scenario),
            configurations,
            baselines: Vec::new(),
            hindsight: None,
        };
        if beside != Beside::Nothing {
            parts.begin("the largest fleet");
            let goal = goal(scenario, &world.search);
            if beside == Beside::Baselines {
                comparison.baselines = autoscalers(world, goal.unwrap_or(Ratio(GOAL)), &mut parts);
            }
            if let Some(goal) = goal {
                parts.begin("the search for the cheapest plan, the longest part");
                let known: Vec<&Outcome> = comparison.configurations.iter().chain(&comparison.baselines).collect();
                comparison.hindsight = hindsight(scenario, &world.search, goal, &known, &Effort::default());
            }
        }
        comparison
    }

    /// All outcomes, configurations first.
    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        let hindsight = self.hindsight.iter().flat_map(|hindsight| [&hindsight.constant, &hindsight.clairvoyant, &hindsight.causal]);
        self.configurations.iter().chain(&self.baselines).chain(hindsight)
    }
}

/// A part of a comparison: a run, or the search for the cheapest plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// From 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// What is played.
    pub what: &'a str,
}

struct Parts<'a> {
    number: usize,
    of: usize,
    begins: &'a mut dyn FnMut(&Part<'_>),
}

impl Parts<'_> {
    fn begin(&mut self, what: &str) {
        self.number += 1;
        (self.begins)(&Part { number: self.number, of: self.of, what });
    }

    fn run(&mut self, scenario: &Scenario<'_>, mut policy: impl Policy) -> Outcome {
        self.begin(&policy.name());
        run(scenario, &mut policy)
    }
}

/// Beside the configurations: the largest fleet, two autoscalers with all their settings, the search.
fn parts(configurations: usize, beside: Beside) -> usize {
    let settings = 1 + QUEUE_TARGETS.len() + 1 + SHARES.len() * SHARES.len();
    configurations
        + match beside {
            Beside::Nothing => 0,
            Beside::Hindsight => 2,
            Beside::Baselines => 2 + settings,
        }
}

/// Each autoscaler with its usual setting and with the best of that and some others, chosen on the very trace.
fn autoscalers(world: &World<'_>, goal: Ratio, parts: &mut Parts<'_>) -> Vec<Outcome> {
    let scenario = &world.scenario;
    let hpa = |target: f64| HpaQueue::new(Requests(target), world.limits.clone());
    let mut held = per_replica(world.envelope, scenario.ttft, scenario.itl, world.mean);
    held.retain(|role, _| world.limits.contains_key(role));
    let kpa = |shares: [f64; 2]| {
        let of = |(role, requests): (&Role, &Requests)| {
            let share = if *role == Role::Prefill { shares[0] } else { shares[1] };
            (*role, Requests((requests.get() * share).max(LEAST_CONCURRENCY)))
        };
        Kpa::new(held.iter().map(of).collect(), world.limits.clone())
    };
    let shares = SHARES.into_iter().flat_map(|prefill| SHARES.map(|decode| [prefill, decode]));
    let mut rows = Vec::new();
    let usual = parts.run(scenario, hpa(QUEUE_TARGET));
    let others: Vec<Outcome> = QUEUE_TARGETS.into_iter().map(|target| parts.run(scenario, hpa(target))).collect();
    rows.extend(with_tuned(usual, others, goal));
    let usual = parts.run(scenario, kpa([UTILISATION; 2]));
    let others: Vec<Outcome> = shares.map(|shares| parts.run(scenario, kpa(shares))).collect();
    rows.extend(with_tuned(usual, others, goal));
    rows
}

/// The usual setting, then the best of all, which is never worse.
fn with_tuned(usual: Outcome, others: Vec<Outcome>, goal: Ratio) -> impl Iterator<Item = Outcome> {
    let best = best_of(std::iter::once(usual.clone()).chain(others), goal);
    let tuned = best.map(|best| Outcome { policy: format!("tuned {}", best.policy), chosen_in_hindsight: true, ..best });
    std::iter::once(usual).chain(tuned)
}
