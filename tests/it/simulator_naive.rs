//! Does the fleet skip nothing when it takes many iterations as one event? A simulation of one replica that takes every iteration by itself,
//! written from the rules alone, must give the same times to the nanosecond.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use inference_planner_exporter::simulator::Simulation;
use inference_planner_exporter::simulator::costs::{IterationCosts, Work};
use inference_planner_exporter::simulator::fleet::{Fleet, FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use inference_planner_exporter::simulator::workload::{Lengths, Request, Shape, Workload, WorkloadSettings};
use inference_planner_exporter::units::{Ratio, Replicas, RequestsPerSecond, Role, Seconds, Tokens};

/// Prices in whole nanoseconds, so that no rounding can hide or make a difference.
const COSTS: IterationCosts = IterationCosts {
    iteration: Seconds(8e-3),
    prompt_token: Seconds(40e-6),
    decoding: Seconds(70e-6),
    kv_token: Seconds(90e-9),
    prompt_pair: Seconds(2e-9),
};

#[derive(Clone, Copy)]
struct Served {
    request: Request,
    computed: u32,
    generated: u32,
    first_token: u64,
    last_token: u64,
}

impl Served {
    fn needs(&self) -> u64 {
        u64::from(self.request.input) + u64::from(self.request.output)
    }
}

/// Serves the requests one iteration at a time. Returns (arrival, first token, last token) in nanoseconds, by arrival.
fn naive(requests: &[Request], limits: &ReplicaSettings) -> Vec<(u64, u64, u64)> {
    let mut coming: VecDeque<Served> =
        requests.iter().map(|&request| Served { request, computed: 0, generated: 0, first_token: 0, last_token: 0 }).collect();
    let arrival = |served: &Served| served.request.at.as_nanos() as u64;
    let (mut batch, mut ended, mut now): (Vec<Served>, Vec<Served>, u64) = (Vec::new(), Vec::new(), 0);
    loop {
        while let Some(next) = coming.front() {
            let promised: u64 = batch.iter().map(Served::needs).sum();
            let fits = batch.len() < limits.max_requests as usize && promised + next.needs() <= limits.kv_tokens;
            if arrival(next) > now || !fits {
                break;
            }
            batch.extend(coming.pop_front());
        }
        if batch.is_empty() {
            let Some(next) = coming.front() else { break };
            now = arrival(next);
            continue;
        }
        let decoding: Vec<u64> = batch.iter().filter(|s| s.generated > 0).map(|s| u64::from(s.request.input + s.generated)).collect();
        let mut work = Work::decode(decoding.len() as f64, decoding.iter().sum::<u64>() as f64);
        let mut budget = limits.max_batched_tokens - decoding.len() as u32;
        for served in &mut batch {
            if served.generated > 0 {
                served.generated += 1;
                continue;
            }
            let chunk = (served.request.input - served.computed).min(budget);
            if chunk == 0 {
                continue;
            }
            work += Work::chunk(served.computed, chunk);
            budget -= chunk;
            served.computed += chunk;
            served.generated = u32::from(served.computed == served.request.input);
        }
        now += (COSTS.of(&work).get() * 1e9).round() as u64;
        for served in batch.iter_mut().filter(|served| served.generated == 1 && served.first_token == 0) {
            served.first_token = now;
        }
        for served in batch.iter_mut().filter(|served| served.generated == served.request.output) {
            served.last_token = now;
        }
        ended.extend(batch.iter().filter(|served| served.last_token > 0));
        batch.retain(|served| served.last_token == 0);
    }
    ended.sort_by_key(arrival);
    ended.iter().map(|served| (arrival(served), served.first_token, served.last_token)).collect()
}

#[test]
fn runs_of_iterations_end_when_single_ones_do() {
    // By rate: mostly alone, busy, and more than it can serve for a while; the limits bind in turn.
    for (rate, kv_tokens, max_requests, max_batched_tokens) in
        [(0.3, 200_000, 64, 2048), (3.0, 200_000, 64, 512), (5.0, 12_000, 64, 2048), (6.0, 200_000, 8, 1024), (4.0, 200_000, 64, 70)]
    {
        let lengths = |mean: f64, variation, max| Lengths { mean: Tokens(mean), variation: Ratio(variation), min: 1, max };
        let workload = Workload::new(WorkloadSettings {
            shape: Shape::Steady(RequestsPerSecond(rate)),
            input: lengths(900.0, 1.5, 8000),
            output: lengths(60.0, 1.5, 2000),
            seed: 17,
        });
        let requests: Vec<Request> = workload.take(400).collect();
        let replica = ReplicaSettings { costs: COSTS, kv_tokens, max_requests, max_batched_tokens };
        let mut simulation = Simulation::new(
            Fleet::new(FleetSettings {
                layout: Layout::Aggregated(PoolSettings { replicas: Replicas(1), replica }),
                routing: Routing::LeastWork,
                startup: Duration::ZERO,
                hand_over: Duration::ZERO,
                prefix_hits: Ratio(0.0),
                routers: NonZeroUsize::MIN,
                seed: 0,
            }),
            requests.iter().copied(),
        );
        // Looking now and then must change nothing.
        for look in 0..500 {
            simulation.advance_to(Duration::from_millis(look * 777));
        }
        simulation.advance_to(Duration::from_secs(100_000));
        assert_eq!(simulation.fleet.kv_occupied(Role::Aggregated).collect::<Vec<_>>(), [0]);
        let mut found = simulation.fleet.take_finished();
        found.sort_by_key(|finished| finished.arrived);
        let expected = naive(&requests, &replica);
        assert_eq!(found.len(), expected.len());
        for ((found, (arrived, first, last)), request) in found.iter().zip(expected).zip(&requests) {
            assert_eq!(
                (found.arrived.as_nanos() as u64, found.ttft.as_nanos() as u64),
                (arrived, first - arrived),
                "rate {rate}, {request:?}"
            );
            let spacing = (request.output > 1).then(|| Duration::from_nanos(last - first) / (request.output - 1));
            assert_eq!(found.itl, spacing, "rate {rate}, {request:?}");
        }
    }
}
