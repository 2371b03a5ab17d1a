//! Does preset wva hold, rise and give back as it must? Servers that behave as the closed form says, in one or two pools.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::world::{MIDNIGHT, infera_policy};
use crate::planner::input::*;
use crate::planner::learn::Update;
use crate::planner::lint::lint;
use crate::planner::memory::Memory;
use crate::planner::model::queueing::{Lengths, Parameters, SloMultiplier};
use crate::planner::plan;
use crate::planner::plan::{Limit, Plan, PoolPlan, Reason, SloSource, StepReason, Untaught};
use crate::planner::policy::*;
use crate::units::*;

const INTERVAL: f64 = 60.0;

fn parameters() -> Parameters {
    Parameters::new(0.008, 1.6e-5, 5e-7).unwrap()
}

fn lengths() -> Lengths {
    Lengths { input: Tokens(512.0), output: Tokens(128.0) }
}

pub(super) fn pool(name: &str, cost: f64) -> PoolPolicy {
    PoolPolicy {
        pool: PoolId::from(name),
        role: Role::Aggregated,
        gpus_per_replica: None,
        cost: Positive::new(cost),
        accelerator: None,
        limits: Limits::new(Replicas(1), Replicas(50)).unwrap(),
        replicas_from: ReplicasFrom::Targets,
        targets_per_replica: NonZeroU32::MIN,
        capabilities: Capabilities::default(),
        pin: None,
    }
}

pub(super) fn policy(explicit: bool, pools: Vec<PoolPolicy>) -> ModelPolicy {
    let positive = |value| Positive::new(value).unwrap();
    ModelPolicy {
        preset: Preset::Wva,
        slo: Slo { ttft: positive(0.5), itl: positive(0.05), statistic: Statistic::Mean, explicit },
        interval: Duration::from_secs_f64(INTERVAL),
        capacity: CapacityModel::Queueing(QueueingPolicy {
            multiplier: SloMultiplier::new(3.0).unwrap(),
            max_batch: NonZeroU32::new(256).unwrap(),
            learned_for: Duration::from_secs(7 * 86_400),
        }),
        correction: false,
        growth: GrowthRule::Confirm(NonZeroU32::new(4).unwrap()),
        traffic_change: ChangeRule::Tolerate,
        pools,
        ..infera_policy()
    }
}

/// A server's cumulative counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    requests: f64,
    ttft: f64,
    itl: f64,
    running: f64,
    pub(super) waiting: f64,
    arrived: Option<f64>,
    start: Option<f64>,
    /// Prompt tokens that a cache held, of those that were looked up.
    hits: f64,
    queries: f64,
    /// Prompt tokens beyond the usual ones.
    extra_input: f64,
    /// Tokens that its KV memory holds, where it says so.
    pub(super) kv_tokens: Option<f64>,
}

impl Server {
    /// A minute at that rate, with the latencies of the closed form.
    fn serve(&mut self, seconds: f64, rate: f64) {
        let state = parameters().at(Role::Aggregated, RequestsPerSecond(rate), lengths());
        let (ttft, itl) = state.map_or((0.0, 0.0), |state| (state.ttft.get(), state.itl.get()));
        self.add(seconds, rate, ttft, itl);
    }

    fn add(&mut self, seconds: f64, rate: f64, ttft: f64, itl: f64) {
        let requests = rate * seconds;
        self.requests += requests;
        self.ttft += requests * ttft;
        self.itl += requests * itl;
    }

    fn sample(&self) -> Sample {
        let histogram =
            |mean: f64| Few::from([(SeriesKey::default(), Histogram { sum: mean, count: self.requests, ..Histogram::default() })]);
        let tally = |value: f64| Few::from([(SeriesKey::default(), value)]);
        let mut tallies = Few::from([(Tally::Finished, tally(self.requests))]);
        if self.queries > 0.0 {
            tallies.extend([(Tally::PrefixHits, tally(self.hits)), (Tally::PrefixQueries, tally(self.queries))]);
        }
        tallies.extend(self.arrived.map(|arrived| (Tally::Started, tally(arrived))));
        Sample {
            process_start: self.start,
            histograms: Few::from([
                (Signal::Ttft, histogram(self.ttft)),
                (Signal::Itl, histogram(self.itl)),
                (Signal::PromptTokens, histogram(512.0 * self.requests + self.extra_input)),
                (Signal::OutputTokens, histogram(128.0 * self.requests)),
            ]),
            tallies,
            gauges: [(Gauge::Running, self.running), (Gauge::Waiting, self.waiting)]
                .into_iter()
                .chain(self.kv_tokens.map(|tokens| (Gauge::KvCapacityTokens, tokens)))
                .collect(),
            ..Sample::default()
        }
    }
}

/// Pools of servers and the planner that watches them.
pub(super) struct World {
    policy: ModelPolicy,
    memory: Memory,
    pub(super) pools: Vec<Vec<Server>>,
    /// Pools of which no target answers.
    dark: Vec<usize>,
    /// Rounds, each of so many seconds.
    minutes: u64,
    pub(super) seconds: f64,
}

impl World {
    /// Pools of that many servers, all scraped once.
    pub(super) fn new(policy: ModelPolicy, servers: &[usize]) -> Self {
        let pools = servers.iter().map(|count| vec![Server::default(); *count]).collect();
        let mut world = Self { policy, memory: Memory::default(), pools, dark: Vec::new(), minutes: 0, seconds: INTERVAL };
        let _baseline = world.look();
        world
    }

    /// A minute in which each server of a pool serves that rate.
    pub(super) fn minute(&mut self, rates: &[f64]) -> Plan {
        for (servers, rate) in self.pools.iter_mut().zip(rates) {
            let seconds = self.seconds;
            servers.iter_mut().for_each(|server| server.serve(seconds, *rate));
        }
        self.minutes += 1;
        self.look()
    }

    fn look(&mut self) -> Plan {
        let at = Duration::from_secs_f64(self.seconds * self.minutes as f64);
        let reading = |index: usize, server: &Server| {
            if self.dark.contains(&index) { Reading::Failed(FailureKind::Timeout) } else { Reading::Sample(Arc::new(server.sample())) }
        };
        let sources = (0..).zip(&self.pools).zip(&self.policy.pools).map(|((index, servers), pool)| SourceInput {
            source: SourceId::Pool(pool.pool.clone()),
            discovery_failed: false,
            targets: (0..)
                .zip(servers)
                .map(|(number, server): (u32, _)| TargetReading {
                    target: TargetId::from(format!("{}-{number:04}", pool.pool)),
                    at,
                    reading: reading(index, server),
                })
                .collect(),
            lifecycle: None,
        });
        let input = ModelInput::of(sources.collect());
        let now = Moment { monotonic: at, wall: Duration::from_secs(MIDNIGHT) + at };
        let before = std::mem::take(&mut self.memory);
        let (plan, memory) = plan(&input, before.clone(), &self.policy, now);
        assert_eq!(lint(&plan, &self.policy, &before), []);
        self.memory = memory;
        plan
    }

    /// Minutes at loads that differ, so that the parameters are known.
    pub(super) fn teach(&mut self) {
        for rate in [3.0, 9.0, 14.0, 6.0, 11.0, 4.5, 13.0, 7.5, 16.0, 10.0] {
            let rates = vec![rate; self.pools.len()];
            let _taught = self.minute(&rates);
        }
    }
}

pub(super) fn count(plan: &PoolPlan) -> u32 {
    plan.planned_replicas.unwrap().0
}

#[test]
fn a_role_that_nobody_has_learned_anything_of_is_held() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[3]);
    // Ten requests in a minute teach nothing.
    let plan = world.minute(&[0.05]);
    assert_eq!((plan.reason, plan.pools[0].planned_replicas), (Reason::NotConverged, None));
    let plan = world.minute(&[10.0]);
    assert_eq!((plan.reason, count(&plan.pools[0])), (Reason::None, 3), "what is served within the objectives is possible");
}

#[test]
fn the_count_is_the_demand_over_lambda_star_in_both_directions() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[3]);
    world.teach();
    // lambda* is 17.704/s; three servers at 20/s would be 60/s.
    let plan = world.minute(&[19.5]);
    let trace = plan.pools[0].queueing.clone().unwrap();
    assert!((trace.capacity.unwrap().estimate.get() / 17.704 - 1.0).abs() < 0.02, "{trace:?}");
    assert_eq!(count(&plan.pools[0]), 4, "ceil(58.5 / 17.7)");
    let counts: Vec<u32> = (0..3).map(|_| count(&world.minute(&[5.0]).pools[0])).collect();
    assert_eq!(counts, [4, 4, 1], "what arrived in the last three minutes must be carried");
    let plan = world.minute(&[5.0]);
    assert_eq!(count(&plan.pools[0]), 1, "15 and its noise, 15 + 2 * sqrt(15 / 60) = 16, are below the lower end of 16.8");
    assert_eq!((plan.slo_source, plan.prompt.met, plan.generation.attainable), (SloSource::Explicit, Some(true), Some(true)));
    let estimated = plan.estimated.recommended;
    let state = parameters().at(Role::Aggregated, RequestsPerSecond(15.0), lengths()).unwrap();
    assert!((estimated.ttft_seconds.unwrap().get() / state.ttft.get() - 1.0).abs() < 0.05, "{estimated:?}");
    assert!((plan.latency_ratio.generation.unwrap().get() - 1.0).abs() < 0.05, "{:?}", plan.latency_ratio);
}

#[test]
fn a_variant_that_cannot_be_analysed_keeps_its_count_and_asks_nothing_of_the_others() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0), pool("b", 3.0)]), &[2, 2]);
    world.pools[1].clear();
    world.pools[1].resize(2, Server::default());
    for rate in [3.0, 9.0, 14.0, 6.0, 11.0, 4.5, 13.0, 7.5] {
        let _taught = world.minute(&[rate, 0.0]);
    }
    let plan = world.minute(&[14.0, 0.0]);
    assert_eq!((plan.reason, count(&plan.pools[0])), (Reason::None, 2));
    assert_eq!(
        (plan.pools[1].reason, plan.pools[1].planned_replicas, plan.pools[1].current_replicas),
        (Reason::NotConverged, None, Some(Replicas(2)))
    );
}

#[test]
fn a_variant_that_is_down_is_held_alone_and_the_others_carry_its_demand() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0), pool("b", 3.0)]), &[2, 2]);
    world.teach();
    for _ in 0..4 {
        let _settled = world.minute(&[13.0, 13.0]);
    }
    world.dark = vec![1];
    // Its clients go to the other pool: 2 * 26/s, of which lambda* is 17.7.
    let plans: Vec<Plan> = (0..11).map(|_| world.minute(&[26.0, 0.0])).collect();
    for plan in &plans {
        assert_eq!((plan.reason, plan.held, plan.pools[0].reason, plan.pools[0].held), (Reason::None, false, Reason::None, false));
        assert_eq!((plan.pools[1].reason, plan.pools[1].held), (Reason::AllTargetsDown, true));
        assert_eq!((count(&plan.pools[1]), plan.pools[1].current_replicas), (1, Some(Replicas(2))), "the dearer one had one to spare");
    }
    assert_eq!(plans.iter().map(|plan| count(&plan.pools[0])).collect::<Vec<_>>(), [3; 11]);
    assert_eq!(plans[8].pools[1].recommended_replicas, Some(Replicas(1)));
    assert_eq!(plans[10].pools[1].recommended_replicas, None, "what nobody sees expires");
    assert_eq!(plans[10].pools[0].recommended_replicas, Some(Replicas(3)));
    // What the silent pool served last may come to the other one: 6 + 26/s, 35 with room.
    let counts: Vec<u32> = (0..6).map(|_| count(&world.minute(&[3.0, 0.0]).pools[0])).collect();
    assert_eq!(counts[3..], [3; 3], "{counts:?}");
    world.dark.clear();
    let _baseline = world.minute(&[3.0, 3.0]);
    let plan = world.minute(&[3.0, 3.0]);
    assert_eq!((plan.pools[1].reason, plan.pools[1].recommended_replicas.is_some()), (Reason::None, true));
}

#[test]
fn all_variants_of_a_role_that_are_down_hold_the_model() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0), pool("b", 3.0)]), &[2, 2]);
    world.teach();
    world.dark = vec![0, 1];
    let plan = world.minute(&[0.0, 0.0]);
    assert_eq!(
        (plan.reason, plan.pools[0].reason, plan.pools[1].reason),
        (Reason::AllTargetsDown, Reason::AllTargetsDown, Reason::AllTargetsDown)
    );
    assert_eq!((plan.pools[0].held, plan.pools[1].held), (true, true));
}

#[test]
fn another_variant_steps_in_for_replicas_that_do_not_come() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0), pool("b", 3.0)]), &[2, 1]);
    world.teach();
    for _ in 0..4 {
        let _settled = world.minute(&[15.0, 15.0]);
    }
    // The cheaper one is to grow, and stays at its two replicas: nobody has seen a start, so thirty minutes are waited.
    let counts = |world: &mut World| {
        let plan = world.minute(&[20.0, 20.0]);
        (count(&plan.pools[0]), count(&plan.pools[1]))
    };
    let waited: Vec<(u32, u32)> = (0..32).map(|_| counts(&mut world)).collect();
    assert!(waited.iter().all(|counts| *counts == (3, 1)), "{waited:?}");
    assert_eq!((0..3).map(|_| counts(&mut world)).collect::<Vec<_>>(), [(3, 2); 3], "the other one");
    // At last it comes, and the dearer one is not needed any more.
    world.pools[0].push(Server::default());
    world.pools[1].push(Server::default());
    let later: Vec<(u32, u32)> = (0..8)
        .map(|_| {
            let plan = world.minute(&[12.0, 12.0]);
            (count(&plan.pools[0]), count(&plan.pools[1]))
        })
        .collect();
    assert_eq!(later.last(), Some(&(3, 1)), "{later:?}");
}

#[test]
fn a_needed_replica_of_the_dearer_of_two_variants_is_not_removed() {
    let mut world = World::new(policy(true, vec![pool("a", 5.0), pool("b", 15.0)]), &[2, 2]);
    world.teach();
    // 4 * 11 = 44/s need three of 17.7; one of the dearer goes, and no more.
    let counts: Vec<(u32, u32)> = (0..6)
        .map(|_| {
            let plan = world.minute(&[11.0, 11.0]);
            (count(&plan.pools[0]), count(&plan.pools[1]))
        })
        .collect();
    assert_eq!(counts[2..], [(2, 1); 4]);
}

#[test]
fn arrivals_that_wait_are_demand() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[2]);
    world.teach();
    // The server starts 1.66 requests a second and 6.16 arrive: the rest waits in its queue.
    for _ in 0..2 {
        for server in &mut world.pools[0] {
            server.waiting += 30.0 * INTERVAL;
        }
        let plan = world.minute(&[8.0]);
        let offered = plan.observation.clone().unwrap().offered_requests.unwrap().get();
        assert!((offered - 2.0 * 38.0 * INTERVAL).abs() < 1e-6, "{offered}");
        assert!(count(&plan.pools[0]) >= 5, "76 / 17.7: {:?}", plan.pools[0].steps);
    }
    let told = |arrived: f64| Server { arrived: Some(arrived), ..Server::default() };
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[1]);
    world.pools[0] = vec![told(0.0)];
    let _first = world.look();
    world.pools[0][0].arrived = Some(6.16 * INTERVAL);
    let plan = world.minute(&[1.66]);
    assert!((plan.observation.unwrap().offered_requests.unwrap().get() - 6.16 * INTERVAL).abs() < 1e-6);
}

#[test]
fn an_objective_below_an_idle_replica_is_unreachable_and_sized_all_the_same() {
    let mut policy = policy(true, vec![pool("a", 1.0)]);
    policy.slo.itl = Positive::new(0.004).unwrap();
    let mut world = World::new(policy, &[2]);
    world.teach();
    let plan = world.minute(&[16.0]);
    assert_eq!((plan.reason, plan.generation.attainable), (Reason::SloUnreachable, Some(false)));
    assert_eq!(count(&plan.pools[0]), 3, "32 at two thirds of 21.1 each");
    assert!(!plan.warnings.is_empty() && plan.pools[0].queueing.as_ref().is_some_and(|trace| trace.capacity.is_none()));
    let plan = world.minute(&[2.0]);
    assert_eq!(count(&plan.pools[0]), 3, "nothing is given back on it");
}

#[test]
fn without_an_objective_nothing_is_given_back_before_one_is_learned() {
    let mut world = World::new(policy(false, vec![pool("a", 1.0)]), &[4]);
    let plan = world.minute(&[3.0]);
    assert_eq!((plan.slo_source, count(&plan.pools[0])), (SloSource::Observed, 4));
    let lowest = parameters().at(Role::Aggregated, RequestsPerSecond(3.0), lengths()).unwrap();
    assert!((plan.slo.ttft.get() / (1.5 * lowest.ttft.get()) - 1.0).abs() < 1e-9, "{:?}", plan.slo);
    // The estimate alone would give some back, and neither the time nor the certainty is there.
    assert!(plan.pools[0].unbounded_replicas < Some(Replicas(4)) && plan.pools[0].limits_active == [Limit::HoldDown]);
    world.teach();
    let plan = world.minute(&[3.0]);
    assert_eq!(plan.slo_source, SloSource::Learned);
    let (ttft, itl) = (0.024 + 1.65e-5 * 512.0, 0.024 + 1.6e-5 + 5e-7 * 576.5);
    assert!((plan.slo.ttft.get() / ttft - 1.0).abs() < 0.05 && (plan.slo.itl.get() / itl - 1.0).abs() < 0.05, "{:?}", plan.slo);
}

#[test]
fn what_an_uncertain_estimate_would_give_back_is_a_step_that_holds_it() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[4]);
    let plans: Vec<Plan> = (0..8).map(|_| world.minute(&[3.0])).collect();
    for plan in &plans[4..] {
        let part = &plan.pools[0];
        assert!(!part.queueing.as_ref().unwrap().converged, "one load is no knowledge");
        assert_eq!((part.unbounded_replicas, count(part), part.reason, part.held), (Some(Replicas(2)), 4, Reason::None, false));
        assert_eq!(part.limits_active, [Limit::HoldDown]);
        assert!(part.steps.iter().any(|step| (step.after, step.reason) == (Replicas(4), StepReason::NotConverged)), "{:?}", part.steps);
    }
}

#[test]
fn a_server_in_its_warm_up_and_a_batch_that_fills_teach_nothing() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[1]);
    world.teach();
    let known = |world: &World| world.memory.pools[&PoolId::from("a")].learning.clone().unwrap();
    let before = known(&world);
    world.pools[0][0].running += 300.0;
    let plan = world.minute(&[12.0]);
    assert_eq!(known(&world).learned, before.learned, "half of what arrived is still there");
    assert_eq!(plan.pools[0].queueing.as_ref().unwrap().update, None);
    world.pools[0][0].start = Some((MIDNIGHT + 60 * (world.minutes + 1)) as f64 - 30.0);
    let _restarted = world.minute(&[12.0]);
    assert_eq!(known(&world).learned, before.learned);
}

#[test]
fn learned_parameters_are_forgotten_when_they_are_old() {
    let mut policy = policy(true, vec![pool("a", 1.0)]);
    if let CapacityModel::Queueing(queueing) = &mut policy.capacity {
        queueing.learned_for = Duration::from_secs(300);
    }
    let mut world = World::new(policy, &[2]);
    world.teach();
    for _ in 0..4 {
        let _idle = world.minute(&[0.1]);
    }
    assert!(world.memory.pools[&PoolId::from("a")].learning.is_some());
    for _ in 0..3 {
        let _idle = world.minute(&[0.1]);
    }
    assert!(world.memory.pools[&PoolId::from("a")].learning.is_none());
}

#[test]
fn a_fleet_at_rest_goes_to_its_minimum_and_one_that_hangs_does_not() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[3]);
    world.teach();
    let _busy = world.minute(&[10.0]);
    let counts: Vec<u32> = (0..7).map(|_| count(&world.minute(&[0.0]).pools[0])).collect();
    assert_eq!(counts, [3, 3, 3, 3, 1, 1, 1], "after five minutes of rest");
    // Nothing ends because the servers hang: something still runs.
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[3]);
    world.teach();
    let _busy = world.minute(&[10.0]);
    world.pools[0].iter_mut().for_each(|server| server.running = 4.0);
    let plans: Vec<Plan> = (0..7).map(|_| world.minute(&[0.0])).collect();
    assert!(plans.iter().all(|plan| count(&plan.pools[0]) == 3), "{:?}", plans.last().map(|plan| plan.reason));
}

/// What servers may say that none can have done.
fn nonsense(server: &mut Server, kind: &str, rate: f64) {
    let state = parameters().at(Role::Aggregated, RequestsPerSecond(rate), lengths()).unwrap();
    let (ttft, itl) = (state.ttft.get(), state.itl.get());
    let requests = rate * INTERVAL;
    match kind {
        "more cached than asked for" => {
            (server.hits, server.queries) = (server.hits + 600.0 * requests, server.queries + 512.0 * requests);
            server.add(INTERVAL, rate, ttft, itl);
        }
        "prompts of a million million tokens" => {
            server.extra_input += 1e12 * requests;
            server.add(INTERVAL, rate, ttft, itl);
        }
        "an iteration of 1e300 s" => server.add(INTERVAL, rate, ttft, 1e300),
        "an iteration of a nanosecond" => server.add(INTERVAL, rate, 1e-9, 1e-9),
        "no latency at all" => server.add(INTERVAL, rate, 0.0, 0.0),
        _ => unreachable!("{kind}"),
    }
}

#[test]
fn numbers_that_no_server_has_teach_nothing_and_move_no_count() {
    for (kind, reason) in [
        ("more cached than asked for", Untaught::ImplausibleLengths),
        ("prompts of a million million tokens", Untaught::ImplausibleLengths),
        ("an iteration of 1e300 s", Untaught::ImplausibleLatency),
        ("an iteration of a nanosecond", Untaught::ImplausibleLatency),
        ("no latency at all", Untaught::NoLatency),
    ] {
        let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[3]);
        world.teach();
        let known = world.memory.pools[&PoolId::from("a")].learning.clone().unwrap().learned;
        for _ in 0..8 {
            world.pools[0].iter_mut().for_each(|server| nonsense(server, kind, 15.0));
            world.minutes += 1;
            let plan = world.look();
            assert_eq!((plan.reason, count(&plan.pools[0]), plan.pools[0].untaught), (Reason::None, 3, Some(reason)), "{kind}");
        }
        assert_eq!(world.memory.pools[&PoolId::from("a")].learning.clone().unwrap().learned, known, "{kind}");
    }
}

#[test]
fn one_replicas_nonsense_is_left_out_and_the_others_teach() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[3]);
    world.teach();
    for _ in 0..4 {
        let (first, others) = world.pools[0].split_first_mut().unwrap();
        nonsense(first, "an iteration of 1e300 s", 15.0);
        others.iter_mut().for_each(|server| server.serve(INTERVAL, 15.0));
        world.minutes += 1;
        let plan = world.look();
        let trace = plan.pools[0].queueing.clone().unwrap();
        assert_eq!((trace.update, plan.pools[0].untaught, count(&plan.pools[0])), (Some(Update::Accepted), None, 3));
        assert!((trace.capacity.unwrap().estimate.get() / 17.704 - 1.0).abs() < 0.02, "{trace:?}");
    }
}

#[test]
fn a_server_that_becomes_ten_times_faster_is_followed_and_buys_nothing() {
    let mut world = World::new(policy(true, vec![pool("a", 1.0)]), &[3]);
    world.teach();
    let faster = Parameters::new(0.0008, 1.6e-6, 5e-8).unwrap();
    let mut capacity = None;
    for rate in [10.0, 6.0, 14.0, 10.0, 6.0, 14.0] {
        let state = faster.at(Role::Aggregated, RequestsPerSecond(rate), lengths()).unwrap();
        world.pools[0].iter_mut().for_each(|server| server.add(INTERVAL, rate, state.ttft.get(), state.itl.get()));
        world.minutes += 1;
        let plan = world.look();
        assert!(count(&plan.pools[0]) <= 3, "{:?}", plan.pools[0].queueing);
        capacity = plan.pools[0].queueing.clone().unwrap().capacity;
    }
    assert!((capacity.unwrap().estimate.get() / 177.04 - 1.0).abs() < 0.1, "{capacity:?}");
}

#[test]
fn windows_of_a_second_with_nonsense_among_them_never_drive_a_count_to_its_maximum() {
    let mut policy = policy(true, vec![pool("a", 1.0)]);
    policy.interval = Duration::from_secs(1);
    let mut world = World { seconds: 1.0, ..World::new(policy, &[3]) };
    world.teach();
    let mut chance = Chance(20_261_129);
    for step in 0..150 {
        let load = [10.0, 6.0, 14.0, 8.0, 12.0][(step / 20) % 5];
        let kind = chance.below(20.0);
        for server in &mut world.pools[0] {
            let rate = load * (0.8 + chance.below(0.4));
            let state = parameters().at(Role::Aggregated, RequestsPerSecond(rate), lengths()).unwrap();
            let (ttft, itl) = (state.ttft.get() * (0.9 + chance.below(0.2)), state.itl.get() * (0.9 + chance.below(0.2)));
            // Six of twenty windows mean nothing, on all servers at once.
            match kind as u32 {
                0 => server.add(1.0, rate, ttft, 1e300),
                1 => server.add(1.0, rate, ttft, itl * 1000.0),
                2 => server.add(1.0, rate, ttft * 0.1, itl * 0.1),
                3 => server.add(1.0, rate, ttft * 10.0, itl * 10.0),
                4 => server.add(1.0, rate, ttft * 100.0, itl),
                5 => server.add(1.0, rate, 0.0, itl),
                _ => server.add(1.0, rate, ttft, itl),
            }
        }
        world.minutes += 1;
        let plan = world.look();
        // 42 requests a second at most, of 17.7 each.
        assert!(count(&plan.pools[0]) <= 8, "{step}: {:?}", plan.pools[0].queueing);
    }
}

/// Numbers without order, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: f64) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / 2_f64.powi(31) * end
    }
}
