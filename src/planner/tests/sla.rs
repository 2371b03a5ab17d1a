//! Does the fast loop of target sla keep its head? Cold replicas, idle ones, engines that do not say enough, restarts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::dynamo::SETTINGS;
use super::world::*;
use crate::planner::input::*;
use crate::planner::memory::Memory;
use crate::planner::model::iteration::Costs;
use crate::planner::plan::{Capability, Plan, Reason};
use crate::planner::policy::*;
use crate::units::*;

/// 8 ms an iteration, 20 us a prompt token and a request, 30 ns a KV token.
const COSTS: [f64; 4] = [0.008, 2e-5, 2e-5, 3e-8];
const INPUT: f64 = 1000.0;
const OUTPUT: f64 = 200.0;

pub(super) fn policy() -> ModelPolicy {
    let pool = PoolPolicy {
        pool: PoolId::from("p"),
        role: Role::Aggregated,
        replicas_from: ReplicasFrom::Targets,
        capabilities: Capabilities { max_num_batched_tokens: NonZeroU32::new(8192), ..Capabilities::default() },
        limits: Limits::new(Replicas(1), Replicas(20)).unwrap(),
        ..infera_policy().pools.remove(0)
    };
    ModelPolicy {
        preset: Preset::Dynamo,
        capacity: CapacityModel::Iterations,
        load: Some(LoadPolicy {
            interval: Duration::from_secs(5),
            rule: FastRule::Objectives { sensitivity: Ratio(0.8), delay: Duration::from_secs(180) },
            floor: true,
        }),
        regression: Some(SETTINGS),
        growth: GrowthRule::Within(NonZeroU32::new(8).unwrap()),
        step_down: NonZeroU32::new(1),
        traffic_change: ChangeRule::Tolerate,
        correction: false,
        pools: vec![pool],
        ..infera_policy()
    }
}

/// A server that counts as vLLM does.
#[derive(Clone, Debug)]
struct Server {
    started: f64,
    slower: f64,
    prompts: f64,
    generated: f64,
    finished: f64,
    itl: (f64, f64),
    iterations: f64,
    running: f64,
    waiting: f64,
    /// Prompt tokens so far, and of a request now.
    tokens: f64,
    input: f64,
}

impl Server {
    fn new(started: f64) -> Self {
        Self {
            started,
            slower: 1.0,
            prompts: 0.0,
            generated: 0.0,
            finished: 0.0,
            itl: (0.0, 0.0),
            iterations: 0.0,
            running: 0.0,
            waiting: 0.0,
            tokens: 0.0,
            input: INPUT,
        }
    }

    /// Five seconds with so many requests a second, in balance.
    fn serve(&mut self, rate: f64) {
        let [fixed, token, request, kv] = COSTS;
        // Requests under way = rate * O * iteration; prompt tokens of an iteration = rate * I * iteration.
        let context = self.input + OUTPUT / 2.0;
        let slope = rate * (OUTPUT * (request + kv * context) + self.input * token);
        let iteration = self.slower * fixed / (1.0 - (self.slower * slope).min(0.95));
        self.running = rate * OUTPUT * iteration;
        self.iterations += if rate > 0.0 { 5.0 / iteration } else { 0.0 };
        self.prompts += 5.0 * rate;
        self.tokens += 5.0 * rate * self.input;
        self.finished += 5.0 * rate;
        self.generated += 5.0 * rate * OUTPUT;
        self.itl.0 += 5.0 * rate * OUTPUT * iteration;
        self.itl.1 += 5.0 * rate * OUTPUT;
    }

    fn reading(&self) -> Reading {
        let key = SeriesKey::default;
        let histogram = |sum, count| Few::from([(key(), Histogram { sum, count, ..Histogram::default() })]);
        let tally = |value| Few::from([(key(), value)]);
        Reading::Sample(Arc::new(Sample {
            process_start: Some(MIDNIGHT as f64 + self.started),
            histograms: Few::from([
                (Signal::Ttft, histogram(self.prompts * 0.05, self.prompts)),
                (Signal::Itl, histogram(self.itl.0, self.itl.1)),
                (Signal::PromptTokens, histogram(self.tokens, self.finished)),
                (Signal::OutputTokens, histogram(self.finished * OUTPUT, self.finished)),
            ]),
            tallies: Few::from([
                (Tally::Finished, tally(self.finished)),
                (Tally::PromptTokens, tally(self.tokens)),
                (Tally::GeneratedTokens, tally(self.generated)),
                (Tally::Iterations, tally(self.iterations)),
            ]),
            itl_basis: ItlBasis::PerEvent,
            gauges: Few::from([
                (Gauge::Running, self.running),
                (Gauge::Waiting, self.waiting),
                (Gauge::KvUsage, self.running * (self.input + OUTPUT / 2.0) / 300_000.0),
                (Gauge::KvCapacityTokens, 300_000.0),
            ]),
            ..Sample::default()
        }))
    }
}

fn round(world: &mut World, at: f64, servers: &[Server]) -> Plan {
    let names = ["a:8000/metrics", "b:8000/metrics", "c:8000/metrics", "d:8000/metrics"];
    let readings = names.into_iter().zip(servers).map(|(name, server)| (name, server.reading())).collect();
    world.round_of(at, vec![(SourceId::Pool(PoolId::from("p")), readings)])
}

/// Ten minutes in which two servers see loads that differ.
fn learned() -> (World, Vec<Server>, f64) {
    let (mut world, mut servers) = (World::new(policy()), vec![Server::new(-4000.0), Server::new(-4000.0)]);
    let mut at = 0.0;
    for tick in 0..120_usize {
        // A window spans three rounds.
        let window = tick.div_ceil(3);
        let rate = 4.0 + 8.0 * (window % 4) as f64 / 3.0;
        let input = [600.0, 1000.0, 1600.0][window % 3];
        for server in &mut servers {
            server.input = input;
            server.serve(rate);
        }
        at = tick as f64 * 5.0;
        let _plan = round(&mut world, at, &servers);
    }
    (world, servers, at)
}

fn costs(world: &World) -> Costs {
    world.memory.watched[&PoolId::from("p")].iterations.line(5).unwrap().costs()
}

fn near(one: f64, other: f64, share: f64) -> bool {
    (one - other).abs() <= share * other
}

#[test]
fn what_iterations_cost_is_learned_from_pages() {
    let (world, ..) = learned();
    let found = costs(&world);
    assert!(near(found.fixed.get(), COSTS[0], 0.1), "{found:?}");
    let work = found.prefill_token.get() * 100.0 + found.request.get() * 20.0 + found.kv_token.get() * 22_000.0;
    assert!(near(work, COSTS[1] * 100.0 + COSTS[2] * 20.0 + COSTS[3] * 22_000.0, 0.1), "{found:?}");
}

#[test]
fn the_slow_first_minutes_of_a_new_replica_teach_nothing() {
    let (mut world, mut servers, at) = learned();
    let before = costs(&world);
    let mut cold = Server::new(at);
    cold.slower = 6.0;
    servers.push(cold);
    let mut last = None;
    for tick in 1..=20 {
        servers.iter_mut().for_each(|server| server.serve(5.0));
        last = Some(round(&mut world, at + f64::from(tick) * 5.0, &servers));
    }
    let after = costs(&world);
    assert!(near(after.fixed.get(), before.fixed.get(), 0.02), "{before:?} {after:?}");
    assert!(pool(&last.unwrap(), "p").recommended_replicas.unwrap() <= Replicas(3), "its capacity does not collapse");
}

#[test]
fn one_idle_engine_does_not_keep_a_pool_from_growing() {
    let (mut world, mut servers, at) = learned();
    let mut last = None;
    for tick in 1..=24 {
        servers[0].serve(14.0);
        servers[0].waiting += 30.0;
        servers[1].serve(0.0);
        last = Some(round(&mut world, at + f64::from(tick) * 5.0, &servers));
    }
    let plan = last.unwrap();
    assert!(pool(&plan, "p").recommended_replicas.unwrap() > Replicas(2), "{:?}", pool(&plan, "p").latency);
}

#[test]
fn without_the_size_of_a_step_nothing_is_given_back_and_it_is_said_what_is_missing() {
    let (mut world, mut servers, at) = learned();
    world.policy.pools[0].capabilities.max_num_batched_tokens = None;
    world.policy.pools[0].limits = Limits::new(Replicas(2), Replicas(20)).unwrap();
    let _raised = round(&mut world, at + 1.0, &servers);
    world.policy.pools[0].limits = Limits::new(Replicas(1), Replicas(20)).unwrap();
    let mut last = None;
    for tick in 1..=80 {
        servers.iter_mut().for_each(|server| server.serve(0.5));
        last = Some(round(&mut world, at + f64::from(tick) * 5.0, &servers));
    }
    let plan = last.unwrap();
    let found = pool(&plan, "p");
    assert_eq!(found.recommended_replicas, Some(Replicas(2)));
    assert!(found.missing.iter().any(|missing| missing.what == Capability::BatchedTokens), "{:?}", found.missing);
    assert_eq!(found.reason, Reason::MissingCapability);
}

#[test]
fn what_was_learned_of_another_role_is_not_used() {
    let (mut world, servers, at) = learned();
    assert!(world.memory.watched[&PoolId::from("p")].iterations.samples() > 0);
    world.policy.pools[0].role = Role::Decode;
    let _plan = round(&mut world, at + 5.0, &servers);
    let iterations = &world.memory.watched[&PoolId::from("p")].iterations;
    assert_eq!((iterations.samples(), iterations.role()), (0, Role::Decode));
}

#[test]
fn a_front_end_tells_the_limits_of_its_servers_where_they_and_the_operator_do_not() {
    let (mut world, servers, at) = learned();
    world.policy.pools[0].capabilities.max_num_batched_tokens = None;
    let front_end = |limits: &[(Gauge, f64)]| {
        let sample = Sample { gauges: Few::from([(Gauge::InFlight, 3.0)]), fleet: limits.iter().copied().collect(), ..Sample::default() };
        (SourceId::Traffic, vec![("f:8000/metrics", Reading::Sample(Arc::new(sample)))])
    };
    let replicas = |kv: bool| {
        let mut reading = servers[0].reading();
        if let (Reading::Sample(sample), false) = (&mut reading, kv) {
            Arc::make_mut(sample).gauges.remove(&Gauge::KvCapacityTokens);
        }
        (SourceId::Pool(PoolId::from("p")), vec![("a:8000/metrics", reading)])
    };
    let limits = [(Gauge::MaxBatchedTokens, 4096.0), (Gauge::KvCapacityTokens, 300_000.0)];
    let mut missing = |at: f64, limits: &[(Gauge, f64)], kv: bool| {
        let plan = world.round_of(at, vec![front_end(limits), replicas(kv)]);
        let found = pool(&plan, "p");
        let batched = found.latency.as_ref().and_then(|latency| latency.batched_tokens);
        (found.missing.iter().map(|missing| missing.what).collect::<Vec<_>>(), batched)
    };
    assert_eq!(missing(at + 5.0, &[], true), (vec![Capability::BatchedTokens], None));
    assert_eq!(missing(at + 10.0, &limits, true), (vec![], Some(4096)));
    assert_eq!(missing(at + 15.0, &limits, false), (vec![], Some(4096)));
    assert_eq!(missing(at + 20.0, &limits[..1], false).0, [Capability::KvCapacity]);
}

#[test]
fn a_restart_forgets_neither_the_costs_nor_the_count() {
    let (mut world, mut servers, at) = learned();
    let before = costs(&world);
    let published = world.memory.pools[&PoolId::from("p")].published.unwrap().replicas;
    world.memory = Memory::restored(world.memory.lasting());
    assert_eq!(costs(&world), before);
    servers.iter_mut().for_each(|server| server.serve(1.0));
    let plan = round(&mut world, at + 5.0, &servers);
    assert_eq!(pool(&plan, "p").recommended_replicas, Some(published), "not shrunk by a first look");
}
