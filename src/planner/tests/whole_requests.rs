//! Can prefill servers be planned that count whole requests only, once a front end says how long prompts are?

use std::sync::Arc;

use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::{Capability, Plan, Reason};
use crate::planner::policy::*;
use crate::units::*;

/// 10 ms for every prompt and 0.1 ms for each of its tokens.
const FIXED: f64 = 0.01;
const TOKEN: f64 = 1e-4;

fn policy() -> ModelPolicy {
    let base = super::sla::policy();
    let pool = PoolPolicy { role: Role::Prefill, capabilities: Capabilities::default(), ..base.pools[0].clone() };
    ModelPolicy { pools: vec![pool], ..base }
}

/// A pool of such servers, and the front end before them.
#[derive(Clone, Copy, Debug, Default)]
struct Fleet {
    /// Of each server.
    prompts: f64,
    seconds: f64,
    held: f64,
    tokens: f64,
}

impl Fleet {
    /// Five seconds with so many prompts a second at each of two servers.
    fn serve(&mut self, rate: f64, length: f64) {
        self.prompts += 5.0 * rate;
        self.seconds += 5.0 * rate * (FIXED + TOKEN * length);
        self.tokens += 5.0 * rate * length;
    }

    fn round(&self, world: &mut World, at: f64, with_front_end: bool) -> Plan {
        let histogram = |sum, count| Few::from([(SeriesKey::default(), Histogram { sum, count, ..Histogram::default() })]);
        let server = Reading::Sample(Arc::new(Sample {
            histograms: Few::from([(Signal::RequestDuration, histogram(self.seconds, self.prompts))]),
            tallies: Few::from([(Tally::Finished, Few::from([(SeriesKey::default(), self.prompts)]))]),
            gauges: Few::from([(Gauge::InFlight, self.held)]),
            role: Some(Role::Prefill),
            ..Sample::default()
        }));
        let all = 2.0 * self.prompts;
        let front_end = Reading::Sample(Arc::new(Sample {
            histograms: Few::from([
                (Signal::Ttft, histogram(2.0 * self.seconds + 0.01 * all, all)),
                (Signal::PromptTokens, histogram(2.0 * self.tokens, all)),
                (Signal::OutputTokens, histogram(100.0 * all, all)),
            ]),
            tallies: Few::from([(Tally::Started, Few::from([(SeriesKey::default(), all)]))]),
            gauges: Few::from([(Gauge::InFlight, 2.0 * self.held + 5.0)]),
            fleet: Few::from([(Gauge::MaxBatchedTokens, 8192.0)]),
            ..Sample::default()
        }));
        let pool = (SourceId::Pool(PoolId::from("p")), vec![("a:9000/metrics", server.clone()), ("b:9000/metrics", server)]);
        let traffic = (SourceId::Traffic, vec![("f:8000/metrics", front_end)]);
        world.round_of(at, if with_front_end { vec![traffic, pool] } else { vec![pool] })
    }
}

/// Ten minutes of prompts whose lengths differ from window to window.
fn watched(with_front_end: bool) -> (World, Fleet, f64, Plan) {
    let (mut world, mut fleet, mut last) = (World::new(policy()), Fleet::default(), None);
    for tick in 0..120_usize {
        let length = [600.0, 1000.0, 1600.0, 2400.0][tick.div_ceil(3) % 4];
        fleet.serve(1.0, length);
        last = Some(fleet.round(&mut world, tick as f64 * 5.0, with_front_end));
    }
    (world, fleet, 119.0 * 5.0, last.unwrap())
}

#[test]
fn what_a_prompt_costs_follows_from_how_long_requests_took_and_how_long_prompts_were() {
    let (world, _, _, plan) = watched(true);
    let costs = world.memory.watched[&PoolId::from("p")].iterations.line(5).unwrap().costs();
    assert!((costs.fixed.get() / FIXED - 1.0).abs() < 0.05 && (costs.prefill_token.get() / TOKEN - 1.0).abs() < 0.05, "{costs:?}");
    let found = pool(&plan, "p");
    assert_eq!((found.reason, found.missing.as_slice()), (Reason::None, [].as_slice()));
    // One prompt of 1400 tokens takes 0.15 s: six a second at most, and two come.
    assert_eq!(found.recommended_replicas, Some(Replicas(1)));
}

#[test]
fn requests_that_pile_up_at_such_servers_ask_for_more_of_them() {
    let (mut world, mut fleet, at, _) = watched(true);
    let mut last = None;
    for tick in 1..=12 {
        fleet.serve(6.0, 1400.0);
        fleet.held += 3.0;
        last = Some(fleet.round(&mut world, at + f64::from(tick) * 5.0, true));
    }
    let plan = last.unwrap();
    let found = pool(&plan, "p");
    assert!(found.recommended_replicas > Some(Replicas(2)), "{:?}", found.latency);
    let latency = found.latency.as_ref().unwrap();
    let (_, load) = latency.slowest.as_ref().unwrap();
    assert!(load.queued_prefill.get() > 1000.0, "{load:?}");
}

#[test]
fn without_a_front_end_nobody_knows_how_long_prompts_are() {
    let (mut world, mut fleet, at, before) = watched(false);
    assert_eq!(pool(&before, "p").recommended_replicas, None, "queues that are empty are no reason for fewer");
    fleet.held = 5.0;
    let plan = fleet.round(&mut world, at + 5.0, false);
    let found = pool(&plan, "p");
    assert_eq!((found.reason, found.missing[0].what), (Reason::MissingCapability, Capability::PromptLengths));
}
