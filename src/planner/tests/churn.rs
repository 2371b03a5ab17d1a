//! What happens while replicas come and go? Pools that are measured themselves, at a constant demand spread over whoever is listed.

use std::sync::Arc;

use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::{Plan, Reason};
use crate::planner::policy::*;
use crate::units::*;

/// Two pools whose replicas are scraped.
struct Pools {
    world: World,
    /// By role: replicas with their counters, and how many came before the first of them.
    listed: [Vec<Router>; 2],
    gone: [usize; 2],
}

impl Pools {
    fn new(prefill: usize, decode: usize) -> Self {
        let mut policy = infera_policy();
        policy.pools.iter_mut().for_each(|pool| pool.replicas_from = ReplicasFrom::Targets);
        let mut pools = Self { world: World::new(policy), listed: [Vec::new(), Vec::new()], gone: [0, 0] };
        pools.scale(0.0, prefill, decode);
        pools
    }

    /// New replicas begin with counters at zero; the oldest leave first.
    fn scale(&mut self, at: f64, prefill: usize, decode: usize) {
        for (role, count) in [prefill, decode].into_iter().enumerate() {
            let known = self.listed[role].len();
            self.listed[role].drain(..known.saturating_sub(count));
            self.gone[role] += known.saturating_sub(count);
            let start = Some(MIDNIGHT as f64 + at);
            self.listed[role].resize_with(count, || Router { start, ..Router::default() });
        }
    }

    /// Five seconds of `rate` requests a second, then a round.
    fn step(&mut self, at: f64, rate: f64) -> Plan {
        for role in &mut self.listed {
            let share = 1.0 / role.len() as f64;
            role.iter_mut().for_each(|replica| replica.serve(Served::typical(rate * 5.0 * share)));
        }
        self.round(at)
    }

    fn round(&mut self, at: f64) -> Plan {
        let readings: [Vec<(String, Reading)>; 2] = [0, 1].map(|role: usize| {
            let reading = |(index, replica): (usize, &Router)| {
                let mut sample = replica.sample();
                sample.workers.clear();
                (format!("{role}-{:03}:8000/metrics", self.gone[role] + index), Reading::Sample(Arc::new(sample)))
            };
            self.listed[role].iter().enumerate().map(reading).collect()
        });
        let sources = ["m-prefill", "m-decode"].into_iter().zip(&readings).map(|(name, readings)| {
            (SourceId::Pool(PoolId::from(name)), readings.iter().map(|(name, reading)| (name.as_str(), reading.clone())).collect())
        });
        self.world.round_of(at, sources.collect())
    }
}

fn rates(plan: &Plan) -> [f64; 2] {
    let observation = plan.observation.as_ref().unwrap();
    [observation.requests_per_second.unwrap().get(), observation.estimated_requests_per_second.unwrap().get()]
}

#[test]
fn a_fleet_that_grows_to_50_and_shrinks_to_5_loses_no_window_and_no_recommendation() {
    let mut pools = Pools::new(5, 2);
    let _baseline = pools.round(0.0);
    let mut decisions = 0;
    for step in 1..=432_u32 {
        let at = f64::from(step) * 5.0;
        let plan = pools.step(at, BUSY);
        if plan.decided {
            decisions += 1;
            assert_eq!((plan.reason, plan.held), (Reason::None, false), "{at}");
            let [seen, estimated] = rates(&plan);
            assert!((seen - BUSY).abs() < 0.01 * BUSY && (estimated - BUSY).abs() < 0.06 * BUSY, "at {at}: {seen} {estimated}");
            // The queue formula multiplies the wait by the observed count, so prefill may ask for more; decode follows demand alone.
            let [prefill, decode] = counts(&plan);
            assert!(prefill >= Some(5) && decode == Some(2), "{at}: {prefill:?} {decode:?}");
        }
        // Up to 50 of each from 250 s to 740 s, down to 5 of each from 1150 s to 1600 s, one every ten seconds.
        let size = match at {
            at if at < 250.0 => continue,
            at if at < 1150.0 => (5 + ((at - 250.0) / 10.0) as usize).min(50),
            at => 50 - (((at - 1150.0) / 10.0) as usize).min(45),
        };
        let decode = if at < 1150.0 { size - 3 } else { size };
        pools.scale(at, size, decode);
    }
    assert_eq!(decisions, 12);
}

#[test]
fn a_pool_that_doubles_within_one_window_counts_each_request_once() {
    let mut pools = Pools::new(4, 2);
    let _baseline = pools.round(0.0);
    let mut last = None;
    for step in 1..=36_u32 {
        let at = f64::from(step) * 5.0;
        last = Some(pools.step(at, BUSY));
        if step == 24 {
            pools.scale(at, 8, 4);
        }
    }
    let plan = last.unwrap();
    assert!(plan.decided && plan.reason == Reason::None);
    assert!((rates(&plan)[0] - BUSY).abs() < 1e-9, "{:?}", rates(&plan));
    assert_eq!(pool(&plan, "m-decode").coverage, Some(Ratio(1.0)));
}
