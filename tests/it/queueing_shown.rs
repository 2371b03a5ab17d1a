//! Do people and machines see what preset wva knows, and can they redo its arithmetic?

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use inference_planner_exporter::app::tally;
use inference_planner_exporter::export::catalog::{self, Family};
use inference_planner_exporter::export::samples::families;
use inference_planner_exporter::export::snapshot::{Counters, ModelSnapshot, Snapshot};
use inference_planner_exporter::planner::input::*;
use inference_planner_exporter::planner::learn::Update;
use inference_planner_exporter::planner::learn::interval::CapacityInterval;
use inference_planner_exporter::planner::memory::Memory;
use inference_planner_exporter::planner::model::queueing::{Lengths, Objective, Parameters, SloMultiplier};
use inference_planner_exporter::planner::plan::*;
use inference_planner_exporter::planner::policy::*;
use inference_planner_exporter::report::{explain, plans, text};
use inference_planner_exporter::units::*;
use serde_json::Value;

use super::export::fixture;

/// The server of the worked example in `model/queueing.rs`.
fn parameters() -> Parameters {
    Parameters::new(0.008, 1.6e-5, 5e-7).unwrap()
}

const LENGTHS: Lengths = Lengths { input: Tokens(512.0), output: Tokens(128.0) };
const OBJECTIVE: Objective = Objective { ttft: Seconds(0.5), itl: Seconds(0.02) };

fn policy(pools: &[(&str, Role, f64)]) -> ModelPolicy {
    let fixture = fixture::policy("m", ["a", "b"]);
    let pool = |&(name, role, cost): &(&str, Role, f64)| PoolPolicy {
        pool: name.into(),
        role,
        cost: Positive::new(cost),
        replicas_from: ReplicasFrom::Targets,
        ..fixture.pools[0].clone()
    };
    let multiplier = SloMultiplier::new(3.0).unwrap();
    ModelPolicy {
        preset: Preset::Wva,
        slo: Slo { ttft: Positive::new(0.5).unwrap(), itl: Positive::new(0.02).unwrap(), ..fixture.slo.clone() },
        interval: Duration::from_secs(30),
        capacity: CapacityModel::Queueing(QueueingPolicy {
            multiplier,
            max_batch: NonZeroU32::new(256).unwrap(),
            learned_for: Duration::from_secs(7 * 24 * 3600),
        }),
        growth: GrowthRule::Confirm(NonZeroU32::new(4).unwrap()),
        step_down: None,
        transition_timeout: None,
        gpus: GpuBand::default(),
        priority: 0,
        regression: None,
        traffic_change: ChangeRule::Tolerate,
        pools: pools.iter().map(pool).collect(),
        ..fixture
    }
}

fn trace(standing: u32, demand: f64) -> QueueingTrace {
    let rate = RequestsPerSecond;
    let estimate = parameters().capacity(Role::Aggregated, LENGTHS, OBJECTIVE, None).rate().unwrap();
    QueueingTrace {
        parameters: parameters(),
        nis: Some(1.25),
        condition: Some(85.0),
        points: 7,
        accepted: 12,
        update: Some(Update::Accepted),
        utilization: Some(Ratio(0.47392)),
        lengths: LENGTHS,
        objective: OBJECTIVE,
        max_batch: Requests(256.0),
        capacity: Some(CapacityInterval { lower: rate(11.2), estimate, upper: rate(13.9) }),
        sized_with: estimate,
        converged: true,
        demand: rate(demand),
        cautious_demand: rate(demand),
        standing: Replicas(standing),
        absent: Replicas(0),
        multiplier: SloMultiplier::new(3.0).unwrap(),
        cost: 1.0,
    }
}

/// A plan of one aggregated pool: from its standing count to its wish.
fn plan(trace: QueueingTrace, wish: u32) -> Plan {
    let mut plan = fixture::plan("m", ["a", "b"]);
    plan.preset = Preset::Wva;
    plan.envelope = None;
    plan.warnings.clear();
    plan.slo = Slo {
        ttft: Positive::new(trace.objective.ttft.get()).unwrap(),
        itl: Positive::new(trace.objective.itl.get()).unwrap(),
        ..plan.slo
    };
    plan.pools.truncate(1);
    let pool = &mut plan.pools[0];
    pool.role = Role::Aggregated;
    pool.proposed = BTreeMap::from([(Proposer::Queueing, Replicas(wish))]);
    pool.unbounded_replicas = Some(Replicas(wish));
    pool.queueing = Some(trace);
    plan
}

fn snapshot(plan: Plan) -> Snapshot {
    let mut snapshot = fixture::snapshot();
    snapshot.models = vec![ModelSnapshot {
        policy: Arc::new(policy(&[("a", Role::Aggregated, 1.0)])),
        plan: Arc::new(plan),
        ..snapshot.models[0].clone()
    }];
    snapshot
}

/// A snapshot with every family of preset wva.
pub fn learned() -> Snapshot {
    snapshot(plan(trace(1, 25.0), 2))
}

/// Values of a family by the values of these labels, joined with a blank.
fn values(snapshot: &Snapshot, family: &Family, labels: &[&str]) -> BTreeMap<String, f64> {
    let families = families(snapshot, fixture::AT);
    let Some(found) = families.iter().find(|found| found.name() == family.name()) else { return BTreeMap::new() };
    let series = found.get_metric().iter().map(|metric| {
        let value = |name: &&str| metric.get_label().iter().find(|pair| pair.name() == *name).unwrap().value().to_owned();
        let number = if family.kind == catalog::Kind::Counter { metric.get_counter().get_value() } else { metric.get_gauge().get_value() };
        (labels.iter().map(value).collect::<Vec<_>>().join(" "), number)
    });
    series.collect()
}

fn one(snapshot: &Snapshot, family: &Family) -> Option<f64> {
    values(snapshot, family, &["pool"]).get("a").copied()
}

#[test]
fn the_page_has_what_was_learned_in_base_units() {
    let snapshot = learned();
    for (family, value) in [
        (&catalog::QUEUEING_ALPHA, 0.008),
        (&catalog::QUEUEING_BETA, 1.6e-5),
        (&catalog::QUEUEING_GAMMA, 5e-7),
        (&catalog::QUEUEING_NIS, 1.25),
        (&catalog::QUEUEING_CONDITION, 85.0),
        (&catalog::QUEUEING_UTILIZATION, 0.47392),
    ] {
        assert_eq!(one(&snapshot, family), Some(value), "{}", family.short);
    }
    let capacity = values(&snapshot, &catalog::REPLICA_CAPACITY, &["proposer", "bound"]);
    assert_eq!(capacity["queueing lower"], 11.2);
    assert!((capacity["queueing estimate"] - 12.53).abs() < 1e-3, "{capacity:?}");
    assert_eq!(capacity["queueing upper"], 13.9);
    assert_eq!(values(&snapshot, &catalog::PROPOSED_REPLICAS, &["proposer"]), BTreeMap::from([("queueing".to_owned(), 2.0)]));
}

#[test]
fn what_is_not_known_has_no_series() {
    let unknown = QueueingTrace { nis: None, condition: None, utilization: None, capacity: None, ..trace(1, 25.0) };
    let bare = snapshot(plan(unknown, 2));
    for family in [&catalog::QUEUEING_NIS, &catalog::QUEUEING_CONDITION, &catalog::QUEUEING_UTILIZATION, &catalog::REPLICA_CAPACITY] {
        assert_eq!(one(&bare, family), None, "{}", family.short);
    }
    assert_eq!(one(&bare, &catalog::QUEUEING_ALPHA), Some(0.008));

    let mut nothing = plan(trace(1, 25.0), 2);
    nothing.pools[0].queueing = None;
    let nothing = snapshot(nothing);
    let families: BTreeSet<String> = families(&nothing, fixture::AT).iter().map(|family| family.name().to_owned()).collect();
    for family in [&catalog::QUEUEING_ALPHA, &catalog::QUEUEING_BETA, &catalog::QUEUEING_GAMMA, &catalog::REPLICA_CAPACITY] {
        assert!(!families.contains(&family.name()), "{}", family.short);
    }
    assert_eq!(values(&nothing, &catalog::QUEUEING_UPDATES, &["result"]).len(), 3, "counted from the start");
}

#[test]
fn objectives_say_where_they_come_from() {
    for source in [SloSource::Explicit, SloSource::Learned, SloSource::Observed] {
        let mut plan = plan(trace(1, 25.0), 2);
        plan.slo_source = source;
        plan.slo.explicit = source == SloSource::Explicit;
        let snapshot = snapshot(plan);
        let info = values(&snapshot, &catalog::SLO_INFO, &["source"]);
        assert_eq!(info, BTreeMap::from([(source.as_str().to_owned(), 1.0)]));
        assert_eq!(values(&snapshot, &catalog::SLO_ITL, &["model"])["m"], 0.02);
        let json = plans::model(&snapshot.models[0].plan);
        assert_eq!(json["slo"]["source"], source.as_str());
    }
    let mut waiting = plan(trace(1, 25.0), 2);
    waiting.slo.explicit = false;
    assert!(values(&snapshot(waiting), &catalog::SLO_TTFT, &["model"]).is_empty(), "nothing is in force before the first decision");
}

#[test]
fn an_update_is_counted_in_the_round_of_its_decision_and_not_again() {
    let policy = policy(&[("a", Role::Aggregated, 1.0)]);
    let mut counters = Counters::default();
    let mut shown = plan(trace(1, 25.0), 2);
    let mut round = |decided: bool, update: Option<Update>| {
        shown.decided = decided;
        shown.outcome = decided.then_some(Outcome::Unchanged);
        shown.pools[0].queueing.as_mut().unwrap().update = update;
        tally::plan(&mut counters, &policy, "llm", &shown);
        let mut snapshot = snapshot(shown.clone());
        snapshot.counters = counters.clone();
        values(&snapshot, &catalog::QUEUEING_UPDATES, &["result"])
    };
    let counts = |accepted, rejected, reset| {
        BTreeMap::from([("accepted".to_owned(), accepted), ("rejected".to_owned(), rejected), ("reset".to_owned(), reset)])
    };
    assert_eq!(round(true, Some(Update::Accepted)), counts(1.0, 0.0, 0.0));
    assert_eq!(round(false, Some(Update::Accepted)), counts(1.0, 0.0, 0.0), "between decisions the plan shows the last one");
    assert_eq!(round(true, Some(Update::Rejected)), counts(1.0, 1.0, 0.0));
    assert_eq!(round(true, None), counts(1.0, 1.0, 0.0), "a window that taught nothing is none");
    assert_eq!(round(true, Some(Update::Reset)), counts(1.0, 1.0, 1.0));
}

#[test]
fn the_names_of_updates_are_those_of_the_json() {
    for update in catalog::UPDATES {
        assert_eq!(serde_json::to_value(update).unwrap(), catalog::update_name(update));
    }
}

#[test]
fn the_json_has_every_field_of_the_trace() {
    let json = plans::model(&plan(trace(1, 25.0), 2))["pools"][0]["queueing"].clone();
    assert_eq!(json["parameters"]["alpha_seconds"], 0.008);
    assert_eq!(json["parameters"]["gamma_seconds_per_token"], 5e-7);
    assert_eq!(json["update"], "accepted");
    assert_eq!(json["lengths"]["input_tokens"], 512.0);
    assert_eq!(json["objective"]["itl_seconds"], 0.02);
    assert_eq!(json["capacity"]["lower"], 11.2);
    assert_eq!(json["standing_replicas"], 1);
    // What the planner keeps is what is shown, under the same or a longer name.
    let Value::Object(kept) = serde_json::to_value(trace(1, 25.0)).unwrap() else { panic!("an object") };
    for key in kept.keys() {
        assert!(json.as_object().unwrap().keys().any(|shown| shown.starts_with(key.as_str())), "{key}");
    }
    let bare = plans::model(&plan(QueueingTrace { capacity: None, nis: None, update: None, ..trace(1, 25.0) }, 2));
    assert_eq!(bare["pools"][0]["queueing"]["capacity"], Value::Null);
    assert_eq!(bare["pools"][0]["queueing"]["update"], Value::Null);
}

/// Every line is in the explanation for the terminal, and its end in that for the page.
#[track_caller]
fn explains(plan: &Plan, lines: &[&str]) {
    let told = text::plan(plan);
    let squeezed: Vec<String> = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let html = explain::decision(plan, &policy(&[("a", Role::Aggregated, 1.0)]));
    for line in lines {
        assert!(squeezed.iter().any(|found| found == line), "{line}\nis not in\n{told}");
        let result = line.rsplit_once(' ').map_or(*line, |(_, last)| last);
        assert!(html.contains(result), "{result} is not in {html}");
    }
}

/// `src/planner/README.md` has these numbers.
#[test]
fn a_person_can_redo_the_worked_example_of_the_readme() {
    explains(
        &plan(trace(1, 25.0), 2),
        &[
            "W, work of a request beta * (i + o) + gamma * (o + 1) * (i + o / 2) = 0.016 * (512 + 128) + 0.0005 * (128 + 1) * (512 + 128 / 2) = 47.392 ms",
            "rho lambda * W / 1000 = 10 * 47.392 / 1000 = 0.47392",
            "T now alpha / (1 - rho) = 8 / (1 - 0.47392) = 15.2068 ms",
            "TTFT by the model now T + (beta + gamma) * i = 15.2068 + (0.016 + 0.0005) * 512 = 23.6548 ms",
            "ITL by the model now T + (beta + gamma * (i + (o + 1) / 2)) = 15.2068 + (0.016 + 0.0005 * (512 + (128 + 1) / 2)) = 15.5111 ms",
            "T that TTFT leaves TTFT objective - (beta + gamma) * i = 500 - (0.016 + 0.0005) * 512 = 491.552 ms",
            "lambda at the TTFT objective (1 - alpha / T) / W * 1000 = (1 - 8 / 491.552) / 47.392 * 1000 = 20.7572 requests/s",
            "T that ITL leaves ITL objective - (beta + gamma * (i + (o + 1) / 2)) = 20 - (0.016 + 0.0005 * (512 + (128 + 1) / 2)) = 19.6958 ms",
            "lambda at the ITL objective (1 - alpha / T) / W * 1000 = (1 - 8 / 19.6958) / 47.392 * 1000 = 12.53 requests/s",
            "lambda of a full batch batch / ((o + 1) * alpha + batch * W) * 1000 = 256 / ((128 + 1) * 8 + 256 * 47.392) * 1000 = 19.4465 requests/s",
            "lambda* the least of these = 12.53 requests/s",
            "lambda* that the loads allow 11.2 to 13.9 requests/s",
            "supply sum of the replicas recommended so far * lambda* = 1 * 12.53 = 12.53",
            "needed ceil(demand / lambda*) = ceil(25 / 12.53) = 2",
            "short by demand - supply = 25 - 12.53 = 12.47",
            "supply then 2 * 12.53 = 25.06",
        ],
    );
}

#[test]
fn a_decrease_shows_the_room_and_the_lower_end_that_it_rests_on() {
    explains(
        &plan(trace(4, 18.0), 2),
        &[
            "demand with room the largest of the last minutes, with silent targets; the larger of 1.05 * 18 and 18 + 2 * sqrt(18 / 180) = 18.9",
            "a gives back 2: the others carry the demand with room",
            "certain supply then sum of count * lower end = 2 * 11.2 = 22.4",
            "one less of a 22.4 - 11.2 = 11.2, less than 18.9: it stays",
        ],
    );
}

#[test]
fn objectives_that_are_found_out_show_how() {
    let wanted = parameters().at_multiple(SloMultiplier::new(3.0).unwrap(), LENGTHS);
    let mut learned = plan(QueueingTrace { objective: wanted, ..trace(1, 25.0) }, 2);
    learned.slo_source = SloSource::Learned;
    explains(
        &learned,
        &[
            "TTFT wanted of a k * alpha + (beta + gamma) * i = 3 * 8 + (0.016 + 0.0005) * 512 = 32.448 ms",
            "ITL wanted of a k * alpha + (beta + gamma * (i + (o + 1) / 2)) = 3 * 8 + (0.016 + 0.0005 * (512 + (128 + 1) / 2)) = 24.3042 ms",
            "ITL objective the largest of the pools that have converged = 24.3042 ms",
        ],
    );
    let seen = Objective { ttft: Seconds(10.0), itl: Seconds(0.018) };
    let mut observed = plan(QueueingTrace { objective: seen, converged: false, ..trace(1, 25.0) }, 2);
    observed.slo_source = SloSource::Observed;
    explains(
        &observed,
        &[
            "TTFT objective at most 10000 ms = 10000 ms",
            "ITL objective 1.5 * the lowest mean of a window so far = 1.5 * 12 = 18 ms",
            "certainty not converged: that takes 5 accepted windows and both ends within 20 % of it",
        ],
    );
}

#[test]
fn an_objective_out_of_reach_shows_what_is_used_instead() {
    let objective = Objective { ttft: Seconds(0.5), itl: Seconds(0.008) };
    let rate = (1.0 - 1.0 / 3.0) / 0.047_392;
    let out = QueueingTrace { objective, capacity: None, sized_with: RequestsPerSecond(rate), converged: false, ..trace(1, 25.0) };
    explains(
        &plan(out, 2),
        &[
            "lambda at the ITL objective none: alpha alone is 8 ms",
            "lambda* none: no rate meets the objectives",
            "lambda at rho = 1 - 1 / k (1 - 1 / k) / W * 1000 = (1 - 1 / 3) / 47.392 * 1000 = 14.0671 requests/s",
        ],
    );
}

/// A server that does what the closed form says, and its totals.
#[derive(Clone)]
struct Server {
    parameters: Parameters,
    served: [f64; 5],
}

impl Server {
    fn new(parameters: Parameters) -> Self {
        Self { parameters, served: [0.0; 5] }
    }

    fn serve(&mut self, rate: f64, seconds: f64) {
        let state = self.parameters.at(Role::Aggregated, RequestsPerSecond(rate), LENGTHS).unwrap();
        let means = [1.0, LENGTHS.input.get(), LENGTHS.output.get(), state.ttft.get(), state.itl.get()];
        self.served.iter_mut().zip(means).for_each(|(sum, mean)| *sum += rate * seconds * mean);
    }

    fn reading(&self) -> Reading {
        let [requests, input, output, ttft, itl] = self.served;
        let histogram = |sum| Few::from([(SeriesKey::default(), Histogram { sum, count: requests, ..Histogram::default() })]);
        Reading::Sample(Arc::new(Sample {
            histograms: Few::from([
                (Signal::PromptTokens, histogram(input)),
                (Signal::OutputTokens, histogram(output)),
                (Signal::Ttft, histogram(ttft)),
                (Signal::Itl, histogram(itl)),
            ]),
            tallies: Few::from([(Tally::Finished, Few::from([(SeriesKey::default(), requests)]))]),
            itl_basis: ItlBasis::PerRequest,
            ..Sample::default()
        }))
    }
}

/// The last plan after windows of 30 s in which each replica of each pool serves the rates in turn. Pools have the replicas given.
fn planned(policy: &ModelPolicy, pools: &[(&str, Parameters, usize, f64)], rates: &[f64]) -> Plan {
    let mut servers: Vec<Vec<Server>> = pools.iter().map(|&(_, parameters, count, _)| vec![Server::new(parameters); count]).collect();
    let (mut memory, mut last) = (Memory::default(), None);
    for round in 0..=rates.len() * 6 {
        let at = round as f64 * 5.0;
        if round > 0 {
            for (servers, &(_, _, _, share)) in servers.iter_mut().zip(pools) {
                servers.iter_mut().for_each(|server| server.serve(rates[(round - 1) / 6] * share, 5.0));
            }
        }
        let source = |(&(name, ..), servers): (&(&str, Parameters, usize, f64), &Vec<Server>)| SourceInput {
            source: SourceId::Pool(name.into()),
            discovery_failed: false,
            targets: (servers.iter().enumerate())
                .map(|(index, server)| TargetReading {
                    target: format!("{name}-{index}:8000/metrics").as_str().into(),
                    at: Duration::from_secs_f64(at),
                    reading: server.reading(),
                })
                .collect(),
            lifecycle: None,
        };
        let input = ModelInput::of(pools.iter().zip(&servers).map(source).collect());
        let now = Moment { monotonic: Duration::from_secs_f64(at), wall: Duration::from_secs_f64(1_795_953_600.0 + at) };
        let (plan, next) = inference_planner_exporter::planner::plan(&input, memory, policy, now);
        (memory, last) = (next, Some(plan));
    }
    last.unwrap()
}

#[test]
fn a_plan_of_two_variants_from_samples_shows_which_one_gained_and_why() {
    let policy = policy(&[("fast", Role::Aggregated, 3.0), ("slow", Role::Aggregated, 1.0)]);
    let slower = Parameters::new(0.012, 2.4e-5, 7.5e-7).unwrap();
    let rates = [3.0, 6.0, 9.0, 4.0, 11.0, 7.0, 5.0, 10.0, 8.0, 9.5, 12.4];
    let plan = planned(&policy, &[("fast", parameters(), 1, 1.0), ("slow", slower, 2, 0.5)], &rates);
    assert_eq!(plan.reason, Reason::None, "{plan:#?}");
    let fast = plan.pools[0].queueing.as_ref().unwrap();
    let capacity = fast.capacity.unwrap();
    assert!((capacity.estimate.get() / 12.53 - 1.0).abs() < 0.05, "{capacity:?}");

    let snapshot = snapshot(plan.clone());
    let capacities = values(&snapshot, &catalog::REPLICA_CAPACITY, &["pool", "bound"]);
    assert_eq!(capacities.len(), 6);
    assert_eq!(capacities["fast estimate"], capacity.estimate.get());
    assert!(capacities["slow lower"] < capacities["slow estimate"]);
    assert_eq!(values(&snapshot, &catalog::QUEUEING_UTILIZATION, &["pool"]).len(), 2);
    assert_eq!(values(&snapshot, &catalog::SLO_ATTAINABLE, &["phase"]).len(), 2);
    assert_eq!(values(&snapshot, &catalog::ESTIMATED_ITL, &["at"]).len(), 2);
    assert_eq!(values(&snapshot, &catalog::LATENCY_RATIO, &["phase"]).len(), 2);

    let told = text::plan(&plan);
    assert!(told.contains("One replica of pool fast:") && told.contains("One replica of pool slow:"), "{told}");
    assert!(told.contains("Replicas of role aggregated:"), "{told}");
    // 12.4 and twice 6.2 arrive, and the one and the two carry 12.5 + 2 * 5.4.
    let [fast, slow] = [0, 1].map(|index: usize| plan.pools[index].unbounded_replicas.unwrap());
    assert_eq!((fast, slow), (Replicas(1), Replicas(3)), "{told}");
    assert!(told.contains("slow gains") && !told.contains("fast gains"), "{told}");
    assert!(told.contains("1: it closes the gap, or what is left of it, at the least cost by itself"), "{told}");
}

#[test]
fn a_plan_of_a_prefill_and_a_decode_pool_shows_each_with_its_own_work() {
    let policy = policy(&[("p", Role::Prefill, 1.0), ("d", Role::Decode, 1.0)]);
    let mut plan = plan(trace(1, 25.0), 2);
    plan.pools.push(plan.pools[0].clone());
    for (pool, policy) in plan.pools.iter_mut().zip(&policy.pools) {
        (pool.pool, pool.role) = (policy.pool.clone(), policy.role);
    }
    explains(
        &plan,
        &[
            "W, work of a request (beta + gamma) * i = (0.016 + 0.0005) * 512 = 8.448 ms",
            "W, work of a request o * (beta + gamma * (i + (o + 1) / 2)) = 128 * (0.016 + 0.0005 * (512 + (128 + 1) / 2)) = 38.944 ms",
            "lambda of a full batch batch / (1 * alpha + batch * W) * 1000 = 256 / (1 * 8 + 256 * 8.448) * 1000 = 117.935 requests/s",
            "lambda of a full batch batch / (o * alpha + batch * W) * 1000 = 256 / (128 * 8 + 256 * 38.944) * 1000 = 23.2861 requests/s",
        ],
    );
    let told = text::plan(&plan);
    let decode = told.split("One replica of pool d").nth(1).unwrap();
    assert!(!decode.split("Replicas of role").next().unwrap().contains("TTFT"), "{told}");
}

#[test]
fn the_table_of_variants_in_the_readme_holds() {
    use inference_planner_exporter::planner::observe::Demand;
    use inference_planner_exporter::planner::propose::queueing::{Variant, allocate};

    let variant = |name: &str, cost, estimate, lower, standing| Variant {
        pool: name.into(),
        standing: Replicas(standing),
        absent: Replicas(0),
        limits: Limits::new(Replicas(0), Replicas(50)).unwrap(),
        cost: Positive::new(cost).unwrap(),
        capacity: Some((RequestsPerSecond(estimate), RequestsPerSecond(lower))),
    };
    let counts = |demand, fast, slow| -> Vec<u32> {
        let demand = RequestsPerSecond(demand);
        let variants = [variant("fast", 3.0, 12.5, 10.8, fast), variant("slow", 1.0, 5.4, 4.6, slow)];
        let counts = allocate(Demand { supported: demand, cautious: demand }, Seconds(1e4), &variants);
        counts.values().map(|wish| wish.supported.0).collect()
    };
    assert_eq!(counts(20.0, 1, 2), [1, 2]);
    assert_eq!(counts(24.8, 1, 2), [1, 3]);
    assert_eq!(counts(8.0, 1, 3), [0, 2]);
}
