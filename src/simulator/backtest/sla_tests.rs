//! Does target sla of preset dynamo do in closed loop what its documents promise?

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use super::*;
use crate::planner::policy::*;
use crate::planner::predict::{Choice, Method, Settings};
use crate::simulator::costs::IterationCosts;
use crate::simulator::fleet::{PoolSettings, ReplicaSettings, Routing};
use crate::simulator::trace::{Trace, shape};
use crate::units::*;

/// A server like an H200 with an 8B model: 6.5 ms an iteration, 18 us a prompt token, 22 us a request, 32 ns a KV token.
const COSTS: IterationCosts = IterationCosts {
    iteration: Seconds(0.0065),
    prompt_token: Seconds(1.8e-5),
    decoding: Seconds(2.2e-5),
    kv_token: Seconds(3.2e-8),
    prompt_pair: Seconds(7e-10),
};
const STARTUP: Duration = Duration::from_secs(60);
const REQUESTS: &str = "isl=1000&isl_cv=0.5&osl=200&osl_cv=0.5";

pub(super) fn trace(text: &str) -> Trace {
    Trace::following(&shape::parse(&format!("{text}&{REQUESTS}")).unwrap(), 7).unwrap()
}

fn fleet(roles: &[Role], replicas: u32) -> FleetSettings {
    let replica = ReplicaSettings { costs: COSTS, kv_tokens: 300_000, max_requests: 256, max_batched_tokens: 8192 };
    let one = PoolSettings { replicas: Replicas(replicas), replica };
    FleetSettings {
        layout: if roles.len() == 2 { Layout::Disaggregated { prefill: one, decode: one } } else { Layout::Aggregated(one) },
        routing: Routing::LeastWork,
        startup: STARTUP,
        hand_over: Duration::ZERO,
        prefix_hits: Ratio(0.0),
        routers: NonZeroUsize::MIN,
        seed: 3,
    }
}

pub(super) fn policy(roles: &[Role], ttft: f64, itl: f64) -> ModelPolicy {
    let pool = |role: &Role| PoolPolicy {
        pool: PoolId::from(role.as_str()),
        role: *role,
        gpus_per_replica: None,
        cost: None,
        accelerator: None,
        limits: Limits::new(Replicas(1), Replicas(20)).unwrap(),
        replicas_from: ReplicasFrom::Targets,
        targets_per_replica: NonZeroU32::MIN,
        capabilities: Capabilities { max_num_batched_tokens: NonZeroU32::new(8192), ..Capabilities::default() },
        pin: None,
    };
    let interval = Duration::from_secs(180);
    ModelPolicy {
        model: ModelId::from("m"),
        preset: Preset::Dynamo,
        mode: Mode::Publish,
        slo: Slo { ttft: Positive::new(ttft).unwrap(), itl: Positive::new(itl).unwrap(), statistic: Statistic::Mean, explicit: true },
        interval,
        scrape_interval: Duration::from_secs(5),
        hold_for: Duration::from_secs(600),
        capacity: CapacityModel::Iterations,
        load: Some(LoadPolicy {
            interval: Duration::from_secs(5),
            rule: FastRule::Objectives { sensitivity: Ratio(0.8), delay: Duration::from_secs(180) },
            floor: true,
        }),
        regression: Some(RegressionPolicy { samples: 64, buckets_a_side: 4, least: 5, drafted: 0 }),
        auto: None,
        warm_up: Duration::from_secs(120),
        predictor: Some(PredictorPolicy { settings: Settings::new(Choice::Fixed(Method::Arima), interval), history: Vec::new() }),
        correction: false,
        growth: GrowthRule::Within(NonZeroU32::new(8).unwrap()),
        step_down: NonZeroU32::new(1),
        transition_timeout: None,
        gpus: GpuBand::default(),
        priority: 0,
        traffic_change: ChangeRule::Tolerate,
        pools: roles.iter().map(pool).collect(),
    }
}

pub(super) fn scenario<'a>(trace: &'a Trace, roles: &[Role], replicas: u32, ttft: f64, itl: f64) -> Scenario<'a> {
    Scenario {
        requests: &trace.requests,
        length: trace.length,
        warm_up: Duration::ZERO,
        fleet: fleet(roles, replicas),
        gpus: BTreeMap::new(),
        ttft: Seconds(ttft),
        itl: Seconds(itl),
        tick: Duration::from_secs(5),
    }
}

/// Recommended counts of a role over time, as (seconds, count), where they change.
pub(super) fn changes(outcome: &Outcome, role: Role) -> Vec<(u64, u32)> {
    let mut found: Vec<(u64, u32)> = Vec::new();
    for point in &outcome.series {
        let Some(count) = point.replicas.get(&role).map(|counts| counts.recommended.0) else { continue };
        if found.last().is_none_or(|(_, last)| *last != count) {
            found.push((point.at.get() as u64, count));
        }
    }
    found
}

pub(super) const AGGREGATED: [Role; 1] = [Role::Aggregated];
pub(super) const PAIR: [Role; 2] = [Role::Prefill, Role::Decode];

/// A planner that nobody follows, with what it recommended at each tick.
pub(super) struct Unheard {
    planner: Planner,
    heard: Vec<(u64, BTreeMap<Role, Replicas>)>,
}

impl Policy for Unheard {
    fn name(&self) -> String {
        "unheard".to_owned()
    }

    fn targets(&mut self, view: &View<'_>) -> Answer {
        let answer = self.planner.targets(view);
        self.heard.push((view.now().as_secs(), answer.targets));
        Answer::default()
    }
}

impl Unheard {
    pub(super) fn new(policy: &ModelPolicy) -> Self {
        Self { planner: Planner::new("unheard", policy), heard: Vec::new() }
    }

    pub(super) fn at(&self, second: u64, role: Role) -> Option<u32> {
        self.heard.iter().find(|(at, _)| *at >= second)?.1.get(&role).map(|count| count.0)
    }
}

pub(super) fn count_at(changes: &[(u64, u32)], second: u64) -> u32 {
    changes.iter().rev().find(|(at, _)| *at <= second).map_or(0, |(_, count)| *count)
}

#[test]
fn a_burst_behind_a_saturated_prefill_pool_grows_it_at_once_and_no_further_than_it_needs() {
    let trace = trace("step?low=10&high=90&at=20m&until=30m&duration=40m");
    let scenario = scenario(&trace, &PAIR, 1, 0.3, 0.02);
    let outcome = run(&scenario, &mut Planner::new("dynamo", &policy(&PAIR, 0.3, 0.02)));
    let prefill = changes(&outcome, Role::Prefill);
    // One prefill replica computes some 40 prompts a second.
    assert_eq!(count_at(&prefill, 1199), 1, "{prefill:?}");
    assert!(count_at(&prefill, 1230) >= 2, "within half a minute: {prefill:?}");
    assert!(count_at(&prefill, 1300) >= 3 && prefill.iter().all(|(_, count)| *count <= 5), "{prefill:?}");
    assert_eq!(prefill.last().unwrap().1, 1, "and goes back: {prefill:?}");
}

#[test]
fn traffic_that_stops_takes_every_pool_to_its_minimum() {
    let trace = trace("steady?rate=70&duration=20m");
    let longer = Scenario { length: Duration::from_secs(45 * 60), ..scenario(&trace, &PAIR, 3, 0.3, 0.02) };
    let outcome = run(&longer, &mut Planner::new("dynamo", &policy(&PAIR, 0.3, 0.02)));
    for role in PAIR {
        let changes = changes(&outcome, role);
        assert!(role == Role::Decode || count_at(&changes, 1199) >= 2, "{role} {changes:?}");
        assert_eq!(changes.last().unwrap().1, 1, "{role} {changes:?}");
    }
}

#[test]
fn a_replica_that_never_becomes_ready_neither_freezes_a_pool_nor_lets_it_run_away() {
    let trace = trace("step?low=10&high=60&at=20m&until=40m&duration=70m");
    let never = Duration::from_secs(100 * 3600);
    let mut scenario = scenario(&trace, &PAIR, 1, 0.3, 0.02);
    scenario.fleet.startup = never;
    let outcome = run(&scenario, &mut Planner::new("dynamo", &policy(&PAIR, 0.3, 0.02)));
    let prefill = changes(&outcome, Role::Prefill);
    let most = prefill.iter().map(|(_, count)| *count).max().unwrap();
    assert!((2..=4).contains(&most), "60 a second want two: {prefill:?}");
    assert_eq!(prefill.last().unwrap().1, 1, "what never came is given up when nobody needs it: {prefill:?}");
}

#[test]
fn two_hours_at_the_boundary_of_one_and_two_bring_no_change_after_settling() {
    let mut seen = Vec::new();
    for rate in [22.0, 23.5, 24.5, 26.0] {
        let trace = trace(&format!("steady?rate={rate}&duration=150m"));
        let scenario = scenario(&trace, &AGGREGATED, 2, 0.3, 0.03);
        let outcome = run(&scenario, &mut Planner::new("dynamo", &policy(&AGGREGATED, 0.3, 0.03)));
        let changes = changes(&outcome, Role::Aggregated);
        assert!(changes.iter().all(|(at, _)| *at <= 1800), "{rate}: {changes:?}");
        seen.push(changes.last().unwrap().1);
    }
    assert!(seen.contains(&1) && seen.contains(&2), "the boundary lies between: {seen:?}");
}

#[test]
fn an_hour_in_which_nothing_moves_ends_at_the_count_at_which_a_following_fleet_settles() {
    for (rate, roles, watched) in [(50.0, &AGGREGATED[..], Role::Aggregated), (70.0, &PAIR[..], Role::Prefill)] {
        let trace = trace(&format!("steady?rate={rate}&duration=60m"));
        let scenario = scenario(&trace, roles, 1, 0.3, 0.03);
        let policy = policy(roles, 0.3, 0.03);
        let outcome = run(&scenario, &mut Planner::new("dynamo", &policy));
        let mut unheard = Unheard::new(&policy);
        run(&scenario, &mut unheard);
        // Decode sees what a prefill pool that does not grow lets through, and no more.
        let settled = changes(&outcome, watched);
        let advice: Vec<_> = [600, 1800, 3590].map(|at| unheard.at(at, watched)).into();
        assert_eq!(advice.last().unwrap(), &Some(settled.last().unwrap().1), "{rate} {watched}: {settled:?}, unheard {advice:?}");
        let most = settled.iter().map(|(_, count)| *count).max().unwrap();
        assert!(most <= 2 * settled.last().unwrap().1, "a following fleet does not run away either: {settled:?}");
    }
}
