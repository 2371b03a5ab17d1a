//! How fast is the simulator? One hour of Poisson traffic through fleets of some ten replicas, read every five seconds as a planner would.
//!
//! `cargo bench --bench simulator` prints seconds and requests a second for each fleet. Prices are those of an H200 with an 8B model.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use inference_planner_exporter::engines::{by_name, render};
use inference_planner_exporter::exposition::{Format, Wanted, read};
use inference_planner_exporter::simulator::Simulation;
use inference_planner_exporter::simulator::costs::IterationCosts;
use inference_planner_exporter::simulator::fleet::{Fleet, FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use inference_planner_exporter::simulator::workload::{Lengths, Shape, Workload, WorkloadSettings};
use inference_planner_exporter::units::{Ratio, Replicas, RequestsPerSecond, Seconds, Tokens};

const HOUR: u64 = 3600;
const TICK: u64 = 5;

fn replica() -> ReplicaSettings {
    let costs = IterationCosts {
        iteration: Seconds(0.008),
        prompt_token: Seconds(2e-5),
        decoding: Seconds(4e-5),
        kv_token: Seconds(4e-8),
        prompt_pair: Seconds(2e-10),
    };
    ReplicaSettings { costs, kv_tokens: 945_029, max_requests: 256, max_batched_tokens: 8192 }
}

fn fleet(layout: Layout) -> Fleet {
    Fleet::new(FleetSettings {
        layout,
        routing: Routing::LeastWork,
        startup: Duration::from_secs(100),
        hand_over: Duration::from_millis(20),
        prefix_hits: Ratio(0.0),
        routers: NonZeroUsize::MIN,
        seed: 1,
    })
}

fn workload(rate: f64) -> Workload {
    let lengths = |mean: f64, max| Lengths { mean: Tokens(mean), variation: Ratio(1.0), min: 1, max };
    Workload::new(WorkloadSettings {
        shape: Shape::Steady(RequestsPerSecond(rate)),
        input: lengths(1200.0, 16_000),
        output: lengths(220.0, 4000),
        seed: 1,
    })
}

/// Reads every replica's page as text, through exposition and engine.
fn read_pages(fleet: &Fleet) -> usize {
    let engine = by_name("vllm").expect("an engine");
    let wanted = Wanted::new(engine.family_names());
    let mut models = 0;
    for role in fleet.roles() {
        for id in fleet.serving(role) {
            let page = fleet.vllm_page(role, id, "m", Duration::ZERO).expect("it serves");
            let text = render::vllm::vllm(&page);
            models += (engine.read)(&read(text.as_bytes(), Format::Text, &wanted).expect("a page")).models.len();
        }
    }
    models
}

/// The same without text.
fn read_samples(fleet: &Fleet) -> usize {
    let serving = fleet.roles().flat_map(|role| fleet.serving(role).map(move |id| (role, id)));
    serving.filter_map(|(role, id)| fleet.vllm_page(role, id, "m", Duration::ZERO)).map(|page| page.sample().histograms.len()).sum()
}

fn run(name: &str, layout: Layout, rate: f64, look: fn(&Fleet) -> usize) {
    let began = Instant::now();
    let mut simulation = Simulation::new(fleet(layout), workload(rate));
    let mut seen = 0;
    for tick in 1..=HOUR / TICK {
        simulation.advance_to(Duration::from_secs(tick * TICK));
        simulation.fleet.take_finished();
        seen += look(&simulation.fleet);
    }
    let took = began.elapsed().as_secs_f64();
    let truth = simulation.fleet.truth();
    println!(
        "{name:<34} {:>6} requests in {took:.3} s: {:.0} a second; {} in flight, mean TTFT {:.0} ms, mean ITL {:.1} ms, {seen} seen",
        truth.offered,
        truth.offered as f64 / took,
        truth.in_flight(),
        truth.ttft_sum / truth.completed as f64 * 1000.0,
        truth.itl_sum / truth.itl_count as f64 * 1000.0,
    );
}

fn main() {
    let pool = |replicas| PoolSettings { replicas: Replicas(replicas), replica: replica() };
    let apart = Layout::Disaggregated { prefill: pool(3), decode: pool(7) };
    let both = Layout::Aggregated(pool(10));
    for rate in [6.0, 17.0, 100.0] {
        run(&format!("3 prefill, 7 decode, {rate}/s"), apart, rate, |_| 0);
        run(&format!("10 aggregated, {rate}/s"), both, rate, |_| 0);
    }
    run("10 aggregated, 17/s, all samples", both, 17.0, read_samples);
    run("10 aggregated, 17/s, all pages", both, 17.0, read_pages);
}
