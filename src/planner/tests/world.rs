//! A small world for planner tests: routers with cumulative counters, and rounds at explicit moments.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::planner::allotment::Grant;
use crate::planner::input::*;
use crate::planner::lint;
use crate::planner::memory::Memory;
use crate::planner::model::envelope::{DecodeProfile, Envelope, PrefillProfile, ProfileDocument};
use crate::planner::plan::{Plan, PoolPlan};
use crate::planner::policy::*;
use crate::units::*;

/// A wall clock that is a multiple of 180 s and of 60 s: the moment 0 of every scenario.
pub const MIDNIGHT: u64 = 1_795_953_600;

/// The example profile of seed 000.
pub fn seed_profile() -> ProfileDocument {
    ProfileDocument {
        prefill: PrefillProfile {
            isl: vec![512.0, 1024.0, 2048.0, 4096.0],
            ttft_ms: vec![60.0, 110.0, 215.0, 430.0],
            thpt_per_gpu: vec![8500.0, 9300.0, 9500.0, 9500.0],
        },
        decode: DecodeProfile {
            kv_usage: vec![0.1, 0.3, 0.5, 0.7, 0.9],
            context_length: vec![1024.0, 4096.0, 16384.0],
            itl_ms: vec![vec![11.0, 13.0, 16.0, 21.0, 30.0], vec![13.0, 16.0, 20.0, 27.0, 39.0], vec![18.0, 23.0, 30.0, 41.0, 60.0]],
            thpt_per_gpu: vec![
                vec![900.0, 2300.0, 3100.0, 3300.0, 3000.0],
                vec![750.0, 1900.0, 2500.0, 2600.0, 2300.0],
                vec![520.0, 1300.0, 1700.0, 1750.0, 1500.0],
            ],
            max_kv_tokens: 262_144.0,
        },
        prefill_engine_num_gpu: 1,
        decode_engine_num_gpu: 1,
    }
}

/// Preset infera with the seed's profile, 180 s, and limits that do not bind.
pub fn infera_policy() -> ModelPolicy {
    let pool = |name: &str, role| PoolPolicy {
        pool: PoolId::from(name),
        role,
        gpus_per_replica: None,
        cost: None,
        accelerator: None,
        limits: Limits::new(Replicas(1), Replicas(1000)).unwrap(),
        replicas_from: ReplicasFrom::Metric,
        targets_per_replica: NonZeroU32::MIN,
        capabilities: Capabilities::default(),
        pin: None,
    };
    ModelPolicy {
        model: ModelId::from("m"),
        preset: Preset::Infera,
        mode: Mode::Publish,
        slo: Slo { ttft: Positive::new(0.5).unwrap(), itl: Positive::new(0.05).unwrap(), statistic: Statistic::Mean, explicit: true },
        interval: Duration::from_secs(180),
        scrape_interval: Duration::from_secs(5),
        hold_for: Duration::from_secs(600),
        capacity: CapacityModel::Envelope(Box::new(Envelope::new(seed_profile()).unwrap())),
        load: None,
        auto: None,
        warm_up: Duration::from_secs(120),
        predictor: None,
        correction: true,
        growth: GrowthRule::TimesObserved(NonZeroU32::new(4).unwrap()),
        step_down: None,
        transition_timeout: None,
        gpus: GpuBand::default(),
        priority: 0,
        regression: None,
        traffic_change: ChangeRule::SkipWindow,
        pools: vec![pool("m-prefill", Role::Prefill), pool("m-decode", Role::Decode)],
    }
}

/// A router's cumulative counters.
#[derive(Clone, Debug, Default)]
pub struct Router {
    pub requests: f64,
    pub ttft: f64,
    pub itl: f64,
    pub input: f64,
    pub output: f64,
    pub prefill: u32,
    pub decode: u32,
    pub start: Option<f64>,
}

/// What a router serves in some time: means of requests.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    pub requests: f64,
    pub input: f64,
    pub output: f64,
    pub ttft: f64,
    pub itl: f64,
}

impl Served {
    /// The load of the seed's example log line, in `requests` requests.
    pub fn typical(requests: f64) -> Self {
        Self { requests, input: 2048.0, output: 256.0, ttft: 0.396, itl: 0.012_114_25 }
    }
}

impl Router {
    pub fn new(prefill: u32, decode: u32) -> Self {
        Self { prefill, decode, ..Self::default() }
    }

    pub fn serve(&mut self, served: Served) {
        self.requests += served.requests;
        self.ttft += served.requests * served.ttft;
        self.itl += served.requests * served.itl;
        self.input += served.requests * served.input;
        self.output += served.requests * served.output;
    }

    pub fn sample(&self) -> Sample {
        let histogram = |sum| Few::from([(SeriesKey::default(), Histogram { sum, count: self.requests, ..Histogram::default() })]);
        Sample {
            process_start: self.start,
            histograms: Few::from([
                (Signal::Ttft, histogram(self.ttft)),
                (Signal::Itl, histogram(self.itl)),
                (Signal::PromptTokens, histogram(self.input)),
                (Signal::OutputTokens, histogram(self.output)),
            ]),
            tallies: Few::from([(Tally::Finished, Few::from([(SeriesKey::default(), self.requests)]))]),
            workers: Few::from([(Role::Prefill, Replicas(self.prefill)), (Role::Decode, Replicas(self.decode))]),
            itl_basis: ItlBasis::PerRequest,
            ..Sample::default()
        }
    }

    pub fn reading(&self) -> Reading {
        Reading::Sample(Arc::new(self.sample()))
    }
}

pub fn failed() -> Reading {
    Reading::Failed(FailureKind::Timeout)
}

/// One exporter over a list of routers.
#[derive(Clone, Debug)]
pub struct World {
    pub policy: ModelPolicy,
    pub memory: Memory,
    /// Difference between the wall clock and midnight plus monotonic time, seconds.
    pub clock_error: f64,
    /// What an orchestrator says of the sources.
    pub lifecycle: BTreeMap<SourceId, Lifecycle>,
    /// What a budget of several models leaves.
    pub allowed: BTreeMap<PoolId, Grant>,
}

impl World {
    pub fn new(policy: ModelPolicy) -> Self {
        Self { policy, memory: Memory::default(), clock_error: 0.0, lifecycle: BTreeMap::new(), allowed: BTreeMap::new() }
    }

    pub fn moment(&self, at: f64) -> Moment {
        Moment { monotonic: Duration::from_secs_f64(at), wall: Duration::from_secs_f64(MIDNIGHT as f64 + at + self.clock_error) }
    }

    /// One round `at` seconds after midnight. Every plan is linted.
    pub fn round_of(&mut self, at: f64, sources: Vec<(SourceId, Vec<(&str, Reading)>)>) -> Plan {
        let sources = sources
            .into_iter()
            .map(|(source, readings)| SourceInput {
                lifecycle: self.lifecycle.get(&source).copied(),
                source,
                discovery_failed: false,
                targets: readings
                    .into_iter()
                    .map(|(target, reading)| TargetReading { target: TargetId::from(target), at: Duration::from_secs_f64(at), reading })
                    .collect(),
            })
            .collect();
        let before = self.memory.clone();
        let input = ModelInput { sources, allowed: self.allowed.clone() };
        let (plan, memory) = crate::planner::plan(&input, self.memory.clone(), &self.policy, self.moment(at));
        assert_eq!(lint::lint(&plan, &self.policy, &before), [], "{plan:#?}");
        self.memory = memory;
        plan
    }

    /// One round of the traffic source.
    pub fn round(&mut self, at: f64, readings: Vec<(&str, Reading)>) -> Plan {
        self.round_of(at, vec![(SourceId::Traffic, readings)])
    }

    /// One round of a single router.
    pub fn one(&mut self, at: f64, router: &Router) -> Plan {
        self.round(at, vec![("a:8000/metrics", router.reading())])
    }
}

/// Plans and published counts of prefill and decode.
pub fn counts(plan: &Plan) -> [Option<u32>; 2] {
    [0, 1].map(|index: usize| plan.pools[index].recommended_replicas.map(|count| count.0))
}

pub fn pool<'a>(plan: &'a Plan, name: &str) -> &'a PoolPlan {
    plan.pool(&PoolId::from(name)).unwrap()
}

/// Requests a second of the seed's example load that ask for 5 prefill and 2 decode replicas: 20 * 2048 / 9500 = 4.3 and
/// 20 * 256 / 3035.9 = 1.7. Twice as many would ask for 9, the growth limit of two replicas permitting.
pub const BUSY: f64 = 20.0;

impl World {
    /// Rounds every 5 s after `from` up to `to`, with a single router that serves `rate` requests a second of the example load.
    pub fn drive(&mut self, router: &mut Router, from: f64, to: f64, rate: f64) -> Plan {
        let mut plan = None;
        let rounds = ((to - from) / 5.0).round() as u32;
        for round in 1..=rounds {
            router.serve(Served::typical(rate * 5.0));
            plan = Some(self.one(from + f64::from(round) * 5.0, router));
        }
        plan.unwrap()
    }

    /// Rounds every 5 s after `from` up to `to` in which the single router does not answer.
    pub fn silent(&mut self, from: f64, to: f64) -> Plan {
        let rounds = ((to - from) / 5.0).round() as u32;
        (1..=rounds).map(|round| self.round(from + f64::from(round) * 5.0, vec![("a:8000/metrics", failed())])).last().unwrap()
    }
}

/// A world with one router of 2 prefill and 4 decode replicas that has decided 5 and 2 at 180 s.
pub fn decided() -> (World, Router) {
    let (mut world, mut router) = (World::new(infera_policy()), Router::new(2, 4));
    let _baseline = world.one(0.0, &router);
    let plan = world.drive(&mut router, 0.0, 180.0, BUSY);
    assert_eq!(counts(&plan), [Some(5), Some(2)]);
    (world, router)
}

/// Several routers, each with its own counters; those named in `hung` do not answer.
#[derive(Clone, Debug)]
pub struct Routers {
    pub routers: Vec<(String, Router)>,
    pub hung: Vec<usize>,
}

impl Routers {
    pub fn new(count: usize, router: &Router) -> Self {
        Self { routers: (0..count).map(|index| (format!("r{index:03}:8000/metrics"), router.clone())).collect(), hung: Vec::new() }
    }

    pub fn readings(&self) -> Vec<(&str, Reading)> {
        let reading = |index: usize, router: &Router| if self.hung.contains(&index) { failed() } else { router.reading() };
        self.routers.iter().enumerate().map(|(index, (name, router))| (name.as_str(), reading(index, router))).collect()
    }

    /// Rounds every 5 s after `from` up to `to`; router `i` serves `rates[i % rates.len()]` requests a second.
    pub fn drive(&mut self, world: &mut World, from: f64, to: f64, rates: &[f64]) -> Plan {
        let mut plan = None;
        let rounds = ((to - from) / 5.0).round() as u32;
        for round in 1..=rounds {
            for (index, (_, router)) in self.routers.iter_mut().enumerate() {
                router.serve(Served::typical(rates[index % rates.len()] * 5.0));
            }
            plan = Some(world.round(from + f64::from(round) * 5.0, self.readings()));
        }
        plan.unwrap()
    }
}
