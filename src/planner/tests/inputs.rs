//! Does a plan say what it was made from and what it lacked? Loads that a reader can compute again, and holds that name the missing measurement.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::{Capability, LoadRule, LoadTrace, Missing, Plan, Reason};
use crate::planner::policy::*;
use crate::planner::propose::threshold::Target;
use crate::units::*;

/// Prefill and decode pools that are scraped, by target throughput.
fn policy() -> ModelPolicy {
    let mut policy = infera_policy();
    policy.preset = Preset::Dynamo;
    policy.capacity = CapacityModel::Unknown;
    policy.load = Some(Target::Throughput.policy(std::time::Duration::from_secs(5)));
    policy.traffic_change = ChangeRule::Tolerate;
    policy.pools.iter_mut().for_each(|pool| pool.replicas_from = ReplicasFrom::Targets);
    policy.pools[0].capabilities.context_length = NonZeroU32::new(8192);
    policy
}

/// One pool that does both, or whose router counts it.
fn aggregated() -> ModelPolicy {
    let mut policy = policy();
    policy.pools.truncate(1);
    policy.pools[0].role = Role::Aggregated;
    policy.pools[0].replicas_from = ReplicasFrom::Observed;
    policy
}

fn page(gauges: &[(Gauge, f64)]) -> Sample {
    Sample { gauges: gauges.iter().copied().collect(), workers: Few::default(), ..Router::default().sample() }
}

fn reading(sample: Sample) -> Reading {
    Reading::Sample(Arc::new(sample))
}

fn pools(prefill: Sample, decode: Sample) -> Vec<(SourceId, Vec<(&'static str, Reading)>)> {
    let source = |name: &str| SourceId::Pool(PoolId::from(name));
    vec![(source("m-prefill"), vec![("p:1/metrics", reading(prefill))]), (source("m-decode"), vec![("d:1/metrics", reading(decode))])]
}

fn full() -> Sample {
    page(&[(Gauge::KvUsage, 0.7), (Gauge::Running, 10.0), (Gauge::Waiting, 0.0)])
}

fn missing(plan: &Plan, pool: usize) -> Vec<(Capability, Option<&str>)> {
    plan.pools[pool].missing.iter().map(|missing| (missing.what, missing.target.as_ref().map(TargetId::as_str))).collect()
}

/// The load again, from what the trace says.
fn again(trace: &LoadTrace) -> f64 {
    let inputs = trace.inputs.as_ref().unwrap();
    let replicas = inputs.replicas.map_or(1.0, Replicas::as_f64);
    let (usage, waiting) = (inputs.kv_usage.unwrap_or(f64::NAN), inputs.waiting.unwrap_or(f64::NAN) / replicas);
    let tokens = |tokens: Option<Tokens>| tokens.map_or(f64::NAN, Tokens::get);
    let (input, output) = (tokens(inputs.input_tokens), tokens(inputs.output_tokens));
    let queued = inputs.queued_prompt_tokens.unwrap_or(f64::NAN) / replicas;
    match inputs.rule {
        LoadRule::Usage => usage,
        LoadRule::Lengths => usage + waiting * (input + output / 2.0) / tokens(inputs.kv_capacity_tokens),
        LoadRule::Running => usage + usage * waiting / (inputs.running.unwrap() / replicas),
        LoadRule::Full => usage.max(1.0),
        LoadRule::QueuedContexts => queued / tokens(inputs.context_length),
        LoadRule::QueuedTokens => queued,
        LoadRule::WaitingContexts => waiting * input / tokens(inputs.context_length),
        LoadRule::WaitingTokens => waiting * input,
    }
}

#[test]
fn every_load_can_be_computed_again_from_what_the_plan_says() {
    let decode = [
        (LoadRule::Usage, vec![(Gauge::KvUsage, 0.4), (Gauge::Waiting, 0.0), (Gauge::Running, 7.0)]),
        (LoadRule::Running, vec![(Gauge::KvUsage, 0.98), (Gauge::Waiting, 3.0), (Gauge::Running, 10.0)]),
        (LoadRule::Lengths, vec![(Gauge::KvUsage, 0.98), (Gauge::Waiting, 3.0), (Gauge::KvCapacityTokens, 10_000.0)]),
        (LoadRule::Full, vec![(Gauge::KvUsage, 0.0), (Gauge::Waiting, 3.0)]),
    ];
    let prefill =
        [(LoadRule::QueuedContexts, vec![(Gauge::QueuedPromptTokens, 9000.0)]), (LoadRule::WaitingContexts, vec![(Gauge::Waiting, 3.0)])];
    for (index, (decode_rule, gauges)) in decode.iter().enumerate() {
        let (prefill_rule, queue) = &prefill[index % 2];
        let mut world = World::new(policy());
        let mut servers = [page(queue), page(gauges)];
        let _baseline = world.round_of(0.0, pools(servers[0].clone(), servers[1].clone()));
        for server in &mut servers {
            let served = Router { requests: 10.0, ttft: 4.0, itl: 0.1, input: 20_480.0, output: 2560.0, ..Router::default() }.sample();
            (server.histograms, server.tallies) = (served.histograms, served.tallies);
        }
        let plan = world.round_of(5.0, pools(servers[0].clone(), servers[1].clone()));
        for (pool, rule) in [(0, *prefill_rule), (1, *decode_rule)] {
            let trace = plan.pools[pool].load.as_ref().unwrap_or_else(|| panic!("{rule}: {:?}", plan.pools[pool]));
            assert_eq!(trace.inputs.as_ref().unwrap().rule, rule);
            assert!((again(trace) - trace.load).abs() < 1e-9, "{trace:?}");
            let (current, recommended) = (trace.current.unwrap().as_f64(), trace.recommended.unwrap().as_f64());
            assert!((trace.load * current / recommended - trace.projected).abs() < 1e-9, "{trace:?}");
        }
    }
}

#[test]
fn a_routers_counts_are_spread_over_its_servers_and_the_trace_says_so() {
    let router = Sample {
        fleet: Few::from([(Gauge::KvUsage, 0.9), (Gauge::Running, 40.0), (Gauge::Waiting, 8.0)]),
        workers: Few::from([(Role::Aggregated, Replicas(4))]),
        ..page(&[])
    };
    let plan = World::new(aggregated()).round(0.0, vec![("r:1/metrics", reading(router))]);
    let trace = plan.pools[0].load.as_ref().unwrap();
    assert!((trace.load - (0.9 + 0.9 * 8.0 / 40.0)).abs() < 1e-12 && (again(trace) - trace.load).abs() < 1e-12, "{trace:?}");
    assert_eq!(trace.inputs.as_ref().unwrap().replicas, Some(Replicas(4)));
}

#[test]
fn a_hold_says_what_is_missing_and_at_which_target() {
    let cases = [
        (page(&[]), full(), 0, Capability::QueuedPrompts, Some("p:1/metrics")),
        (page(&[(Gauge::Waiting, 3.0)]), full(), 0, Capability::PromptLengths, Some("p:1/metrics")),
        (page(&[(Gauge::QueuedPromptTokens, 0.0)]), page(&[(Gauge::Waiting, 0.0)]), 1, Capability::KvUsage, Some("d:1/metrics")),
        (page(&[(Gauge::QueuedPromptTokens, 0.0)]), page(&[(Gauge::KvUsage, 0.5)]), 1, Capability::Waiting, Some("d:1/metrics")),
    ];
    for (prefill, decode, pool, what, target) in cases {
        let plan = World::new(policy()).round_of(0.0, pools(prefill, decode));
        assert_eq!((plan.pools[pool].reason, missing(&plan, pool)), (Reason::MissingCapability, vec![(what, target)]));
        assert_eq!((plan.pools[1 - pool].reason, missing(&plan, 1 - pool)), (Reason::None, vec![]));
    }
    let mut unknown = policy();
    unknown.pools[0].capabilities.context_length = None;
    let plan = World::new(unknown).round_of(0.0, pools(page(&[(Gauge::QueuedPromptTokens, 9.0)]), full()));
    assert_eq!(missing(&plan, 0), [(Capability::ContextLength, Some("p:1/metrics"))]);
    let front_end = World::new(aggregated()).round(0.0, vec![("f:1/metrics", reading(page(&[(Gauge::InFlight, 7.0)])))]);
    assert_eq!(missing(&front_end, 0), [(Capability::ReplicaPages, None)]);
}

#[test]
fn what_one_of_many_lacks_is_told_without_holding_the_others() {
    let servers = vec![("a:1/metrics", reading(full())), ("b:1/metrics", reading(full())), ("c:1/metrics", reading(page(&[])))];
    let plan = World::new(aggregated()).round(0.0, servers);
    assert_eq!((plan.reason, missing(&plan, 0)), (Reason::None, vec![(Capability::KvUsage, Some("c:1/metrics"))]));
}

#[test]
fn servers_of_a_pair_are_not_planned_as_one_pool_and_the_hold_says_what_to_write() {
    let of = |role, sample: Sample| reading(Sample { role: Some(role), ..sample });
    for other in [of(Role::Decode, full()), reading(full())] {
        let plan = World::new(aggregated()).round(0.0, vec![("p:1/metrics", of(Role::Prefill, full())), ("q:1/metrics", other)]);
        assert_eq!((plan.reason, plan.pools[0].recommended_replicas), (Reason::MissingCapability, None));
        assert_eq!(missing(&plan, 0), [(Capability::SeparatePools, Some("p:1/metrics"))]);
    }
    assert!(Capability::SeparatePools.meaning().contains("a pool of role prefill and one of role decode"));
    // The same servers, each in its pool.
    let plan = World::new(policy())
        .round_of(0.0, pools(Sample { role: Some(Role::Prefill), ..page(&[(Gauge::QueuedPromptTokens, 0.0)]) }, full()));
    assert_eq!(plan.reason, Reason::None);
}

fn with_front_end(prefill: &[(Gauge, f64)], workers: u32) -> Vec<(SourceId, Vec<(&'static str, Reading)>)> {
    let view = prefill.iter().copied().collect();
    let front_end = Sample { prefill: view, ..page(&[(Gauge::InFlight, 7.0)]) };
    let names = ["p0:1/metrics", "p1:1/metrics", "p2:1/metrics", "p3:1/metrics"];
    let mut sources = pools(page(&[]), full());
    sources[0].1 = names.into_iter().take(workers as usize).map(|name| (name, reading(page(&[])))).collect();
    sources.insert(0, (SourceId::Traffic, vec![("f:1/metrics", reading(front_end))]));
    sources
}

#[test]
fn prefill_servers_without_a_queue_of_their_own_are_planned_by_their_front_end() {
    let plan = World::new(policy()).round_of(0.0, with_front_end(&[(Gauge::QueuedPromptTokens, 20_000.0)], 2));
    let trace = plan.pools[0].load.as_ref().unwrap();
    assert!((trace.load - 10_000.0 / 8192.0).abs() < 1e-12 && (again(trace) - trace.load).abs() < 1e-12, "{trace:?}");
    assert_eq!((plan.pools[0].reason, counts(&plan)[0], plan.pools[0].coverage), (Reason::None, Some(3), Some(Ratio(1.0))));
    let idle = World::new(policy()).round_of(0.0, with_front_end(&[(Gauge::Waiting, 0.0)], 2));
    assert_eq!((idle.pools[0].reason, idle.pools[0].load.as_ref().map(|load| load.load)), (Reason::None, Some(0.0)));
    let blind = World::new(policy()).round_of(0.0, with_front_end(&[], 2));
    assert_eq!(missing(&blind, 0), [(Capability::QueuedPrompts, Some("p0:1/metrics"))]);
}

#[test]
fn no_requests_names_the_lengths_that_requests_did_not_record() {
    let mut world = World::new(infera_policy());
    let router = |requests: f64, lengths: bool| {
        let mut sample = Router { requests, input: requests * 2048.0, output: requests * 256.0, ..Router::new(2, 4) }.sample();
        if !lengths {
            sample.histograms.remove(&Signal::PromptTokens);
        }
        vec![("r:1/metrics", reading(sample))]
    };
    let _baseline = world.round(0.0, router(0.0, false));
    let plan = world.round(180.0, router(600.0, false));
    assert_eq!((plan.reason, missing(&plan, 0)), (Reason::NoRequests, vec![(Capability::PromptLengths, None)]));
    let quiet = world.round(360.0, router(600.0, false));
    assert_eq!((quiet.reason, missing(&quiet, 0)), (Reason::NoRequests, vec![]), "nothing is missing where nothing happened");
}

#[test]
fn a_pool_that_no_page_counts_is_named() {
    let mut world = World::new(infera_policy());
    let mut router = Router::new(2, 4);
    let mut round = |world: &mut World, at| {
        router.serve(Served::typical(600.0));
        let mut sample = router.sample();
        sample.workers.remove(&Role::Prefill);
        world.round(at, vec![("r:1/metrics", reading(sample))])
    };
    let _baseline = round(&mut world, 0.0);
    let plan = round(&mut world, 180.0);
    assert_eq!(
        (plan.reason, missing(&plan, 0), missing(&plan, 1)),
        (Reason::MissingCapability, vec![(Capability::WorkerCount, None)], vec![])
    );
}

#[test]
fn a_router_and_its_servers_in_one_list_count_each_request_once() {
    let mut policy = infera_policy();
    policy.traffic_change = ChangeRule::Tolerate;
    let mut world = World::new(policy);
    let (mut router, mut server) = (Router::new(1, 2), Router::default());
    let mut plan = None;
    for round in 0..=36_u32 {
        if round > 0 {
            router.serve(Served::typical(100.0));
            server.serve(Served { ttft: 9.0, ..Served::typical(50.0) });
        }
        let own = || reading(Sample { workers: Few::default(), gauges: full().gauges, ..server.sample() });
        let mut targets = vec![("r:1/metrics", router.reading()), ("s:1/metrics", own())];
        if round < 20 {
            targets.push(("t:1/metrics", own()));
        }
        plan = Some(world.round(f64::from(round) * 5.0, targets));
    }
    let seen = plan.unwrap().observation.unwrap();
    assert_eq!((seen.requests, seen.requests_per_second), (Some(Requests(3600.0)), Some(RequestsPerSecond(20.0))));
    assert!((seen.ttft_seconds.unwrap().get() - 0.396).abs() < 1e-9, "{seen:?}");
}

#[test]
fn a_missing_measurement_reads_as_one_phrase() {
    let missing = Missing { what: Capability::KvUsage, target: Some(TargetId::from("a:1/metrics")) };
    assert_eq!(missing.to_string(), "kv_usage at a:1/metrics");
    assert_eq!(Missing { target: None, ..missing }.to_string(), "kv_usage");
}
