//! Simulated variants that preset wva plans in closed loop: each a fleet of its own, requests spread over them by what their replicas can do.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use inference_planner_exporter::planner::input::{ModelInput, Reading, SourceId, SourceInput, TargetReading};
use inference_planner_exporter::planner::lint::lint;
use inference_planner_exporter::planner::memory::Memory;
use inference_planner_exporter::planner::model::queueing::SloMultiplier;
use inference_planner_exporter::planner::plan;
use inference_planner_exporter::planner::plan::Plan;
use inference_planner_exporter::planner::policy::{
    Capabilities, CapacityModel, ChangeRule, GpuBand, GrowthRule, Limits, Mode, ModelPolicy, PoolPolicy, Preset, QueueingPolicy,
    ReplicasFrom, Slo, Statistic,
};
use inference_planner_exporter::simulator::fleet::{Fleet, FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use inference_planner_exporter::simulator::random::Random;
use inference_planner_exporter::simulator::workload::Shape;
use inference_planner_exporter::units::{ModelId, Moment, PoolId, Positive, Ratio, Replicas, Role, TargetId};

use super::harness::{BATCH, Server};

/// Between two scrapes.
pub const TICK: u64 = 5;
/// Between two decisions.
pub const INTERVAL: u64 = 30;
/// A multiple of every interval.
const EPOCH: Duration = Duration::from_secs(1_795_953_600);

/// One variant.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    pub name: &'static str,
    pub server: Server,
    pub cost: f64,
    /// What one replica can really do within the objective, for spreading requests and for judging.
    pub capacity: f64,
    pub replicas: u32,
    pub min: u32,
}

/// What a decision did.
#[derive(Clone, Debug)]
pub struct Decided {
    pub at: u64,
    /// Arrivals a second since the decision before.
    pub rate: f64,
    /// Published counts, by variant.
    pub counts: Vec<u32>,
    pub plan: Plan,
}

/// The policy of preset wva with a written objective in milliseconds, or a learned one.
pub fn policy(variants: &[Variant], objective: Option<(f64, f64)>) -> ModelPolicy {
    let (ttft, itl) = objective.unwrap_or((10_000.0, 500.0));
    let positive = |value: f64| Positive::new(value).expect("a test's number");
    let pool = |variant: &Variant| PoolPolicy {
        pool: PoolId::from(variant.name),
        role: variant.server.role,
        gpus_per_replica: None,
        cost: Positive::new(variant.cost),
        accelerator: None,
        limits: Limits::new(Replicas(variant.min), Replicas(60)).expect("limits"),
        replicas_from: ReplicasFrom::Targets,
        targets_per_replica: NonZeroU32::MIN,
        capabilities: Capabilities { max_num_seqs: NonZeroU32::new(BATCH), ..Capabilities::default() },
        pin: None,
    };
    ModelPolicy {
        model: ModelId::from("m"),
        preset: Preset::Wva,
        mode: Mode::Publish,
        slo: Slo { ttft: positive(ttft / 1000.0), itl: positive(itl / 1000.0), statistic: Statistic::Mean, explicit: objective.is_some() },
        interval: Duration::from_secs(INTERVAL),
        scrape_interval: Duration::from_secs(TICK),
        hold_for: Duration::from_secs(600),
        capacity: CapacityModel::Queueing(QueueingPolicy {
            multiplier: SloMultiplier::new(3.0).expect("above one"),
            max_batch: NonZeroU32::new(BATCH).expect("above zero"),
            learned_for: Duration::from_secs(7 * 86_400),
        }),
        load: None,
        auto: None,
        warm_up: Duration::from_secs(60),
        predictor: None,
        correction: false,
        growth: GrowthRule::Confirm(NonZeroU32::new(4).expect("above zero")),
        step_down: None,
        transition_timeout: None,
        gpus: GpuBand::default(),
        priority: 0,
        regression: None,
        traffic_change: ChangeRule::Tolerate,
        pools: variants.iter().map(pool).collect(),
    }
}

/// Plays a load to the variants under the policy, and follows what it publishes.
pub fn play(variants: &[Variant], policy: &ModelPolicy, shape: Shape, length: u64, seed: u64) -> Vec<Decided> {
    let mut fleets: Vec<Fleet> = variants.iter().map(|variant| fleet(variant, seed)).collect();
    let mut workload = variants[0].server.workload(shape, seed).peekable();
    let mut chance = Random::stream(seed, 99);
    let mut memory = Memory::default();
    let (mut decided, mut arrived, mut since) = (Vec::new(), 0, 0);
    for now in (0..length).step_by(TICK as usize) {
        while let Some(request) = workload.next_if(|request| request.at.as_secs() < now) {
            arrived += 1;
            let ready = |index: usize| f64::from(fleets[index].ready(variants[index].server.role).0) * variants[index].capacity;
            let total: f64 = (0..fleets.len()).map(ready).sum();
            let mut left = chance.unit() * total;
            let chosen = (0..fleets.len()).find(|&index| {
                left -= ready(index);
                left <= 0.0
            });
            let fleet = &mut fleets[chosen.unwrap_or(0)];
            fleet.advance_to(request.at);
            fleet.offer(request);
        }
        let at = Duration::from_secs(now);
        fleets.iter_mut().for_each(|fleet| fleet.advance_to(at));
        let input = ModelInput {
            sources: variants.iter().zip(&fleets).map(|(variant, fleet)| source(variant, fleet, at)).collect(),
            allowed: BTreeMap::new(),
        };
        let moment = Moment { monotonic: at, wall: EPOCH + at };
        let before = std::mem::take(&mut memory);
        let (plan, after) = plan(&input, before.clone(), policy, moment);
        assert_eq!(lint(&plan, policy, &before), [], "at {now}");
        memory = after;
        let counts: Vec<Option<Replicas>> = plan.pools.iter().map(|pool| pool.recommended_replicas).collect();
        for ((variant, fleet), count) in variants.iter().zip(&mut fleets).zip(&counts) {
            if let Some(count) = count {
                fleet.set_target(variant.server.role, *count);
            }
        }
        if plan.decided {
            let standing =
                |(variant, fleet): (&Variant, &Fleet)| fleet.ready(variant.server.role).0 + fleet.starting(variant.server.role).0;
            let now_counts: Vec<u32> = variants.iter().zip(&fleets).map(standing).collect();
            decided.push(Decided { at: now, rate: f64::from(arrived - since) / INTERVAL as f64, counts: now_counts, plan });
            since = arrived;
        }
    }
    decided
}

fn fleet(variant: &Variant, seed: u64) -> Fleet {
    let replica = ReplicaSettings { costs: variant.server.costs, kv_tokens: 945_029, max_requests: BATCH, max_batched_tokens: 8192 };
    assert_eq!(variant.server.role, Role::Aggregated, "variants are whole servers here");
    Fleet::new(FleetSettings {
        layout: Layout::Aggregated(PoolSettings { replicas: Replicas(variant.replicas), replica }),
        routing: Routing::LeastWork,
        startup: Duration::from_secs(60),
        hand_over: Duration::ZERO,
        prefix_hits: Ratio(0.0),
        routers: NonZeroUsize::MIN,
        seed,
    })
}

fn source(variant: &Variant, fleet: &Fleet, now: Duration) -> SourceInput {
    let role = variant.server.role;
    let target = |id: inference_planner_exporter::simulator::fleet::ReplicaId| {
        let page = fleet.vllm_page(role, id, "m", EPOCH)?;
        Some((id.number(), page.sample()))
    };
    let targets: BTreeMap<u32, _> = fleet.taking_requests(role).filter_map(target).collect();
    SourceInput {
        source: SourceId::Pool(PoolId::from(variant.name)),
        discovery_failed: false,
        targets: targets
            .into_iter()
            .map(|(number, sample)| TargetReading {
                target: TargetId::from(format!("{}-{number:08}", variant.name)),
                at: now,
                reading: Reading::Sample(Arc::new(sample)),
            })
            .collect(),
        lifecycle: None,
    }
}
