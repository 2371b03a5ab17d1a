//! Do the simulator's pages lead the planner to what really happened? Page, exposition, engine, window, against the simulator's own truth.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use inference_planner_exporter::engines::{by_name, render};
use inference_planner_exporter::exposition::{Format, Wanted, read};
use inference_planner_exporter::planner::input::{ItlBasis, NEEDED, Sample, Signal, Tally};
use inference_planner_exporter::planner::policy::ChangeRule;
use inference_planner_exporter::planner::window::{Delta, TargetWindow};
use inference_planner_exporter::simulator::Simulation;
use inference_planner_exporter::simulator::counters::Truth;
use inference_planner_exporter::simulator::fleet::{Fleet, FleetSettings, Layout};
use inference_planner_exporter::simulator::scenario;
use inference_planner_exporter::simulator::workload::{Lengths, Shape, Workload, WorkloadSettings};
use inference_planner_exporter::units::{ModelId, Ratio, Replicas, RequestsPerSecond, Role, Tokens};

const MODEL: &str = "some/model";
const EPOCH: Duration = Duration::from_secs(1_795_953_600);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Busy for a minute, then silent, so that by the end everything has completed.
fn simulation(settings: FleetSettings) -> Simulation<impl Iterator<Item = inference_planner_exporter::simulator::workload::Request>> {
    let lengths = |mean: f64| Lengths { mean: Tokens(mean), variation: Ratio(0.5), min: 1, max: 6000 };
    let workload = Workload::new(WorkloadSettings {
        shape: Shape::Steady(RequestsPerSecond(16.0)),
        input: lengths(1500.0),
        output: lengths(110.0),
        seed: 5,
    });
    Simulation::new(Fleet::new(settings), workload.take_while(|request| request.at < seconds(60)))
}

fn disaggregated() -> FleetSettings {
    let settings = scenario::fleet(seconds(3), 2);
    let Layout::Disaggregated { mut prefill, mut decode } = settings.layout else { panic!("the demo is disaggregated") };
    (prefill.replicas, decode.replicas) = (Replicas(5), Replicas(4));
    FleetSettings { layout: Layout::Disaggregated { prefill, decode }, ..settings }
}

fn aggregated() -> FleetSettings {
    let settings = disaggregated();
    let Layout::Disaggregated { prefill, decode } = settings.layout else { panic!("it is disaggregated") };
    let mut both = decode;
    both.replicas = Replicas(6);
    both.replica.costs.prompt_token = prefill.replica.costs.prompt_token;
    both.replica.max_batched_tokens = 1024;
    FleetSettings { layout: Layout::Aggregated(both), ..settings }
}

/// What the planner reads from a page.
fn sample(engine: &str, text: &str) -> Arc<Sample> {
    let engine = by_name(engine).expect("an engine");
    let page = read(text.as_bytes(), Format::Text, &Wanted::new(engine.family_names())).expect("a page");
    assert!((engine.recognise)(&page));
    assert!((engine.read)(&page).missing.iter().all(|role| !NEEDED.contains(role)));
    (engine.read)(&page).of_model(&ModelId::from(MODEL))
}

/// What the planner reads from the pages of all routers of a fleet, or of all its replicas of one role. The short way without text must
/// give the very same.
fn samples(fleet: &Fleet, source: Option<Role>) -> Vec<Arc<Sample>> {
    let same = |(read, short): (Arc<Sample>, Sample)| {
        assert_eq!(*read, short);
        read
    };
    match source {
        None => (0..fleet.routers().len())
            .map(|router| fleet.infera_page(router, MODEL, EPOCH).expect("a router"))
            .map(|page| same((sample("infera", &render::infera(&page)), page.sample())))
            .collect(),
        Some(role) => fleet
            .serving(role)
            .map(|id| fleet.vllm_page(role, id, MODEL, EPOCH).expect("a replica"))
            .map(|page| same((sample("vllm", &render::vllm::vllm(&page)), page.sample())))
            .collect(),
    }
}

/// The growth of a source between two times, as the planner sees it, and the truth at both.
fn windows(settings: FleetSettings, source: Option<Role>, from: Duration, to: Duration) -> (Delta, Truth, Truth) {
    let mut simulation = simulation(settings);
    simulation.advance_to(from);
    let before = simulation.fleet.truth();
    let mut windows: Vec<TargetWindow> = samples(&simulation.fleet, source)
        .iter()
        .map(|sample| {
            let mut window = TargetWindow::default();
            window.record(from, sample, ChangeRule::SkipWindow, None);
            window
        })
        .collect();
    simulation.advance_to(to);
    let mut sum = Delta::default();
    for (window, sample) in windows.iter_mut().zip(samples(&simulation.fleet, source)) {
        assert!(!window.record(to, &sample, ChangeRule::SkipWindow, None), "nothing restarted");
        let delta = window.delta().expect("two samples");
        assert_eq!(delta.elapsed, to - from);
        sum.add(delta);
    }
    (sum, before, simulation.fleet.truth())
}

fn close(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 1e-9
}

#[test]
fn windows_over_infera_routers_hold_the_truth() {
    for settings in [disaggregated(), aggregated()] {
        let (delta, before, after) = windows(settings, None, seconds(20), seconds(50));
        let completed = (after.completed - before.completed) as f64;
        assert!(completed > 300.0, "{completed}");
        assert_eq!((delta.completed(), delta.tallies[&Tally::Finished]), (completed, completed));
        assert_eq!(delta.itl_basis, ItlBasis::PerRequest);
        for (signal, sum, count) in [
            (Signal::Ttft, after.ttft_sum - before.ttft_sum, completed),
            (Signal::Itl, after.itl_sum - before.itl_sum, (after.itl_count - before.itl_count) as f64),
            (Signal::PromptTokens, (after.input_tokens - before.input_tokens) as f64, completed),
            (Signal::OutputTokens, (after.output_tokens - before.output_tokens) as f64, completed),
        ] {
            let growth = &delta.histograms[&signal];
            assert_eq!(growth.count, count, "{signal:?}");
            assert!(close(growth.sum, sum), "{signal:?}: {} instead of {sum}", growth.sum);
        }
    }
}

#[test]
fn windows_over_aggregated_vllm_servers_hold_the_truth() {
    // Between two moments at which requests are under way: what is counted at a request's end.
    let (delta, before, after) = windows(aggregated(), Some(Role::Aggregated), seconds(20), seconds(50));
    let completed = (after.completed - before.completed) as f64;
    assert_eq!((delta.completed(), delta.tallies[&Tally::Finished], delta.itl_basis), (completed, completed, ItlBasis::PerEvent));
    for (signal, sum) in [
        (Signal::PromptTokens, (after.input_tokens - before.input_tokens) as f64),
        (Signal::OutputTokens, (after.output_tokens - before.output_tokens) as f64),
        (Signal::RequestDuration, after.duration_sum - before.duration_sum),
    ] {
        assert_eq!(delta.histograms[&signal].count, completed, "{signal:?}");
        assert!(close(delta.histograms[&signal].sum, sum), "{signal:?}: {} instead of {sum}", delta.histograms[&signal].sum);
    }

    // From the first request to the last: what is counted as it comes adds up to the same requests.
    let (delta, _, truth) = windows(aggregated(), Some(Role::Aggregated), Duration::ZERO, seconds(200));
    assert_eq!(truth.in_flight(), 0);
    assert_eq!(delta.tallies[&Tally::GeneratedTokens], truth.output_tokens as f64);
    assert_eq!(delta.histograms[&Signal::Ttft].count, truth.completed as f64);
    assert!(close(delta.histograms[&Signal::Ttft].sum, truth.ttft_sum));
    let spacings = &delta.histograms[&Signal::Itl];
    assert_eq!(spacings.count, (truth.output_tokens - truth.completed) as f64);
    assert!(
        close(spacings.sum, truth.duration_sum - truth.ttft_sum),
        "{} instead of {}",
        spacings.sum,
        truth.duration_sum - truth.ttft_sum
    );
}

#[test]
fn windows_over_disaggregated_vllm_servers_hold_the_truth() {
    let whole = |role| windows(disaggregated(), Some(role), Duration::ZERO, seconds(200));
    let (prefill, _, truth) = whole(Role::Prefill);
    let (decode, _, same) = whole(Role::Decode);
    assert_eq!((truth.in_flight(), truth), (0, same));
    let completed = truth.completed as f64;
    // A prefill server ends every request with one token and spaces none.
    assert_eq!(prefill.histograms[&Signal::PromptTokens].sum, truth.input_tokens as f64);
    assert_eq!((prefill.histograms[&Signal::OutputTokens].sum, prefill.histograms[&Signal::Itl].count), (completed, 0.0));
    // Requests of one token never reach a decode server.
    assert_eq!(decode.histograms[&Signal::OutputTokens].count, truth.itl_count as f64);
    assert_eq!(decode.tallies[&Tally::GeneratedTokens], (truth.output_tokens - (truth.completed - truth.itl_count)) as f64);
    assert_eq!(decode.histograms[&Signal::Itl].count, (truth.output_tokens - truth.completed) as f64);
    assert!(close(decode.histograms[&Signal::Itl].sum, truth.duration_sum - truth.ttft_sum));
    let waits = prefill.histograms[&Signal::Ttft].sum + decode.histograms[&Signal::Ttft].sum;
    assert!(close(waits, truth.ttft_sum), "without a hand-over the two waits are the whole one: {waits}, {}", truth.ttft_sum);
}

#[test]
fn gauges_of_vllm_pages_show_what_is_under_way() {
    for (settings, role) in [(aggregated(), Role::Aggregated), (disaggregated(), Role::Decode)] {
        let mut simulation = simulation(settings);
        simulation.advance_to(seconds(40));
        let fleet = &simulation.fleet;
        let pages: Vec<_> = fleet.serving(role).map(|id| fleet.vllm_page(role, id, MODEL, EPOCH).expect("a replica")).collect();
        let occupied: Vec<f64> = fleet.kv_occupied(role).map(|tokens| tokens as f64 / fleet.kv_limit(role) as f64).collect();
        assert_eq!(pages.iter().map(|page| page.kv_usage).collect::<Vec<_>>(), occupied);
        let under_way: u64 = pages.iter().map(|page| page.running + page.waiting).sum();
        assert!(under_way > 0 && under_way <= fleet.truth().in_flight());
        if role == Role::Aggregated {
            assert_eq!(under_way, fleet.truth().in_flight());
            assert_eq!(fleet.waiting(role), pages.iter().map(|page| page.waiting).sum::<u64>());
        }
    }
}

#[test]
fn replicas_are_pages_from_their_readiness_to_their_release() {
    let mut simulation = simulation(aggregated());
    let ids = |simulation: &Simulation<_>| simulation.fleet.serving(Role::Aggregated).map(|id| id.number()).collect::<Vec<_>>();
    simulation.advance_to(seconds(10));
    simulation.fleet.set_target(Role::Aggregated, Replicas(7));
    assert_eq!(ids(&simulation), [0, 1, 2, 3, 4, 5]);
    simulation.advance_to(seconds(13));
    assert_eq!(ids(&simulation), [0, 1, 2, 3, 4, 5, 6]);
    let newest = simulation.fleet.serving(Role::Aggregated).last().expect("seven");
    let page = simulation.fleet.vllm_page(Role::Aggregated, newest, MODEL, EPOCH).expect("it is ready");
    assert_eq!((page.process_start, page.finished), (EPOCH + seconds(10), 0));
    simulation.fleet.set_target(Role::Aggregated, Replicas(1));
    assert!(ids(&simulation).len() > 1, "those that drain still answer");
    simulation.advance_to(seconds(400));
    assert_eq!(ids(&simulation), [0]);
    assert_eq!(simulation.fleet.vllm_page(Role::Aggregated, newest, MODEL, EPOCH), None);
}

#[test]
fn pages_do_not_depend_on_who_looked_before() {
    let page = |step: usize| {
        let mut simulation = simulation(aggregated());
        for milliseconds in (0..=45_000).step_by(step) {
            simulation.advance_to(Duration::from_millis(milliseconds));
        }
        let fleet = &simulation.fleet;
        let pages: BTreeMap<_, _> = fleet
            .serving(Role::Aggregated)
            .map(|id| (id, render::vllm::vllm(&fleet.vllm_page(Role::Aggregated, id, MODEL, EPOCH).expect("a replica"))))
            .collect();
        pages
    };
    let coarse = page(45_000);
    assert_eq!(coarse.len(), 6);
    assert_eq!(coarse, page(45_000));
    assert_eq!(coarse, page(9));
}
