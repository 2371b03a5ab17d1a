//! Does target sla of preset dynamo do in closed loop what its documents promise?

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use super::*;
use crate::planner::input::*;
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

fn trace(text: &str) -> Trace {
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

fn policy(roles: &[Role], ttft: f64, itl: f64) -> ModelPolicy {
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

fn scenario<'a>(trace: &'a Trace, roles: &[Role], replicas: u32, ttft: f64, itl: f64) -> Scenario<'a> {
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
fn changes(outcome: &Outcome, role: Role) -> Vec<(u64, u32)> {
    let mut found: Vec<(u64, u32)> = Vec::new();
    for point in &outcome.series {
        let Some(count) = point.replicas.get(&role).map(|counts| counts.recommended.0) else { continue };
        if found.last().is_none_or(|(_, last)| *last != count) {
            found.push((point.at.get() as u64, count));
        }
    }
    found
}

const AGGREGATED: [Role; 1] = [Role::Aggregated];
const PAIR: [Role; 2] = [Role::Prefill, Role::Decode];

#[test]
fn explore() {
    for (roles, text, start, ttft, itl) in [
        (&AGGREGATED[..], "steady?rate=20&duration=120m", 2, 0.3, 0.03),
        (&AGGREGATED[..], "steady?rate=23&duration=120m", 2, 0.3, 0.03),
        (&AGGREGATED[..], "steady?rate=25&duration=120m", 2, 0.3, 0.03),
        (&AGGREGATED[..], "steady?rate=27&duration=120m", 2, 0.3, 0.03),
        (&AGGREGATED[..], "steady?rate=30&duration=120m", 2, 0.3, 0.03),
        (&PAIR[..], "steady?rate=35&duration=120m", 2, 0.3, 0.02),
        (&PAIR[..], "steady?rate=45&duration=120m", 2, 0.3, 0.02),
        (&PAIR[..], "diurnal?low=5&high=60&period=60m&duration=120m", 2, 0.3, 0.02),
    ] {
        let trace = trace(text);
        let scenario = scenario(&trace, roles, start, ttft, itl);
        let outcome = run(&scenario, &mut Planner::new("dynamo", &policy(roles, ttft, itl)));
        println!("{text} attainment {:?} gpu hours {}", outcome.attainment, outcome.gpu_hours);
        for role in roles {
            println!("  {role} {:?}", changes(&outcome, *role));
        }
        let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
        for point in &outcome.series {
            *reasons.entry(format!("{:?}", point.reason)).or_default() += 1;
        }
        println!("  {reasons:?}");
    }
}
