//! A small fleet for the tests of preset auto: replicas that answer in balance, follow the plan after a start-up, and can be made to fail.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::dynamo::SETTINGS;
use super::world::*;
use crate::planner::input::*;
use crate::planner::plan::Plan;
use crate::planner::policy::*;
use crate::units::*;

pub const INPUT: f64 = 2048.0;
pub const OUTPUT: f64 = 256.0;

/// Preset auto with the seed's profile, and pools of their own replicas.
pub fn auto_policy() -> ModelPolicy {
    let seed = infera_policy();
    let pools = seed.pools.iter().map(|pool| PoolPolicy { replicas_from: ReplicasFrom::Targets, ..pool.clone() }).collect();
    ModelPolicy {
        preset: Preset::Auto,
        interval: Duration::from_secs(5),
        auto: Some(AutoPolicy { attainment: Ratio(0.99), delay: Duration::from_secs(120) }),
        regression: Some(SETTINGS),
        correction: false,
        growth: GrowthRule::Confirm(NonZeroU32::new(4).unwrap()),
        traffic_change: ChangeRule::Tolerate,
        pools,
        ..seed
    }
}

/// The same with one pool of role aggregated, of which nothing is known yet.
pub fn aggregated_policy() -> ModelPolicy {
    let policy = auto_policy();
    let capabilities = Capabilities { max_num_batched_tokens: NonZeroU32::new(8192), ..Capabilities::default() };
    let pool = PoolPolicy { pool: PoolId::from("p"), role: Role::Aggregated, capabilities, ..policy.pools[0].clone() };
    ModelPolicy { capacity: CapacityModel::Iterations, pools: vec![pool], ..policy }
}

/// 8 ms an iteration, 20 us a prompt token and a request, 30 ns a KV token.
const COSTS: [f64; 4] = [0.008, 2e-5, 2e-5, 3e-8];

/// Cumulative counters of one replica.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    pub finished: f64,
    pub tokens: f64,
    pub generated: f64,
    pub seconds: f64,
    pub iterations: f64,
    pub running: f64,
    pub waiting: f64,
    /// Seconds after midnight.
    pub started: f64,
}

impl Replica {
    /// Five seconds of `rate` requests a second.
    fn serve(&mut self, role: Role, rate: f64, input: f64) {
        let [fixed, token, request, kv] = COSTS;
        let prompts = if role == Role::Decode { 0.0 } else { input * token };
        let answers = if role == Role::Prefill { 0.0 } else { OUTPUT * (request + kv * (input + OUTPUT / 2.0)) };
        let iteration = fixed / (1.0 - (rate * (prompts + answers)).min(0.95));
        // An overloaded one holds what fits.
        self.running = (rate * if role == Role::Prefill { iteration } else { OUTPUT * iteration }).min(100.0);
        self.iterations += if rate > 0.0 { 5.0 / iteration } else { 0.0 };
        self.finished += 5.0 * rate;
        self.tokens += 5.0 * rate * input;
        self.generated += 5.0 * rate * if role == Role::Prefill { 1.0 } else { OUTPUT };
        self.seconds += 5.0 * rate * iteration;
    }

    fn sample(&self, role: Role) -> Sample {
        let key = SeriesKey::default;
        let histogram = |sum| Few::from([(key(), Histogram { sum, count: self.finished, ..Histogram::default() })]);
        let tally = |value| Few::from([(key(), value)]);
        Sample {
            process_start: Some(MIDNIGHT as f64 + self.started),
            role: Some(role).filter(|role| *role != Role::Aggregated),
            histograms: Few::from([
                (Signal::Ttft, histogram(self.finished * 0.2)),
                (Signal::Itl, histogram(self.seconds)),
                (Signal::PromptTokens, histogram(self.tokens)),
                (Signal::OutputTokens, histogram(self.generated)),
            ]),
            tallies: Few::from([
                (Tally::Finished, tally(self.finished)),
                (Tally::PromptTokens, tally(self.tokens)),
                (Tally::GeneratedTokens, tally(self.generated)),
                (Tally::Iterations, tally(self.iterations)),
            ]),
            itl_basis: ItlBasis::PerRequest,
            gauges: Few::from([
                (Gauge::Running, self.running),
                (Gauge::Waiting, self.waiting),
                (Gauge::KvUsage, self.running * (INPUT + OUTPUT / 2.0) / 300_000.0),
                (Gauge::KvCapacityTokens, 300_000.0),
            ]),
            ..Sample::default()
        }
    }
}

/// Pools of replicas, and the exporter that watches them.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub world: World,
    pub at: f64,
    pub pools: Vec<Vec<Replica>>,
    /// Mean tokens of a prompt.
    pub input: f64,
    /// Replicas of each pool, from the first on, that do not answer.
    pub silent: usize,
    /// What is changed of every page before it is read.
    pub edit: fn(&mut Sample),
}

impl Fleet {
    /// So many replicas in each pool, which have been up for an hour.
    pub fn new(policy: ModelPolicy, replicas: &[usize]) -> Self {
        let pool = |count: &usize| vec![Replica { started: -3600.0, ..Replica::default() }; *count];
        Self { world: World::new(policy), at: 0.0, pools: replicas.iter().map(pool).collect(), input: INPUT, silent: 0, edit: |_| () }
    }

    pub fn sources(&self) -> Vec<(SourceId, Vec<(String, Reading)>)> {
        let reading = |index: usize, role: Role, replica: &Replica| {
            let mut sample = replica.sample(role);
            (self.edit)(&mut sample);
            let reading = if index < self.silent { failed() } else { Reading::Sample(Arc::new(sample)) };
            (format!("r{index:04}:8000/metrics"), reading)
        };
        let pools = self.world.policy.pools.iter().zip(&self.pools);
        pools
            .map(|(pool, replicas)| {
                let readings = replicas.iter().enumerate().map(|(index, replica)| reading(index, pool.role, replica));
                (SourceId::Pool(pool.pool.clone()), readings.collect())
            })
            .collect()
    }

    /// Reads all pages at the moment.
    pub fn look(&mut self) -> Plan {
        let sources = self.sources();
        let named = sources
            .iter()
            .map(|(source, readings)| (source.clone(), readings.iter().map(|(name, reading)| (name.as_str(), reading.clone())).collect()));
        self.world.round_of(self.at, named.collect())
    }

    /// Five seconds with so many requests a second, spread evenly, and a look.
    pub fn round(&mut self, rate: f64) -> Plan {
        self.at += 5.0;
        for (pool, replicas) in self.world.policy.pools.iter().zip(&mut self.pools) {
            let each = rate / replicas.len().max(1) as f64;
            replicas.iter_mut().for_each(|replica| replica.serve(pool.role, each, self.input));
        }
        self.look()
    }

    /// So many seconds of that; every plan.
    pub fn run(&mut self, seconds: f64, rate: f64) -> Vec<Plan> {
        (0..(seconds / 5.0) as u32).map(|_| self.round(rate)).collect()
    }

    /// The same, and the last plan.
    pub fn last(&mut self, seconds: f64, rate: f64) -> Plan {
        self.run(seconds, rate).pop().unwrap()
    }

    /// The same with replicas that follow the plan: those that are asked for start and serve in the next round.
    pub fn follow(&mut self, seconds: f64, rate: f64) -> Vec<Plan> {
        let rounds = (seconds / 5.0) as u32;
        (0..rounds)
            .map(|_| {
                let plan = self.round(rate);
                for (pool, replicas) in plan.pools.iter().zip(&mut self.pools) {
                    let wanted = pool.recommended_replicas.map_or(replicas.len(), |count| count.0 as usize);
                    // Old ones, so that nothing is taken for a rollout.
                    replicas.resize(wanted, Replica { started: self.at - 3600.0, ..Replica::default() });
                }
                plan
            })
            .collect()
    }
}

/// Recommended counts, pool by pool.
pub fn recommended(plan: &Plan) -> Vec<u32> {
    plan.pools.iter().map(|pool| pool.recommended_replicas.map_or(0, |count| count.0)).collect()
}
