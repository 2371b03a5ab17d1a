//! How long does a round take in which every model decides? Preset auto with a full memory, for one model and for many.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inference_planner_exporter::app::exporter::Exporter;
use inference_planner_exporter::app::fleet::Fleet;
use inference_planner_exporter::config::{self, Config, Inputs, SourceText};
use inference_planner_exporter::decisions::Ledger;
use inference_planner_exporter::engines::render::vllm::vllm;
use inference_planner_exporter::scrape::discover::Listing;
use inference_planner_exporter::scrape::lower::lower;
use inference_planner_exporter::scrape::report::{Scraped, TargetReport};
use inference_planner_exporter::simulator::Simulation;
use inference_planner_exporter::simulator::scenario;
use inference_planner_exporter::simulator::workload::Workload;
use inference_planner_exporter::units::{Moment, Role};

const MODEL: &str = "model";
const INTERVAL: Duration = Duration::from_secs(5);
/// Until memories have their size.
const WARM_UP: u64 = 120;
/// Rounds that are measured.
const MEASURED: u64 = 40;
const START: Moment = Moment { monotonic: Duration::ZERO, wall: Duration::from_secs(1_795_953_600) };
const ROLES: [Role; 2] = [Role::Prefill, Role::Decode];

/// A configuration of so many models, each with two servers of either role.
pub fn yaml(models: usize, listen: &str) -> String {
    let pool = |model: usize, role: Role| {
        let urls: Vec<String> =
            (0..2).map(|server| format!("\"http://10.{}.{}.{server}:{}/metrics\"", model >> 8, model & 255, 8000 + role as u16)).collect();
        format!("      - {{ name: \"{role}-{model}\", role: {role}, max_replicas: 64, targets: {{ static: [{}] }} }}\n", urls.join(", "))
    };
    let model = |model: usize| {
        let pools: String = ROLES.map(|role| pool(model, role)).concat();
        format!(
            "  - name: {MODEL}-{model}\n    engine: vllm\n    slo: {{ ttft: 800ms, itl: 40ms }}\n    planner: {{ preset: auto }}\n    pools:\n{pools}"
        )
    };
    let models: String = (0..models).map(model).collect();
    format!(
        "server: {{ listen: \"{listen}\", enable_lifecycle: true }}\nscrape: {{ interval: 5s, timeout: 100ms, concurrency: 1000 }}\nmodels:\n{models}"
    )
}

fn loaded(models: usize) -> Arc<Config> {
    let file = Some(SourceText { path: "bench.yaml".into(), text: yaml(models, "127.0.0.1:0") });
    let loaded = config::read(Inputs { file, ..Inputs::default() }).finish(&BTreeMap::new());
    Arc::new(loaded.unwrap_or_else(|problems| panic!("{problems:?}")).config)
}

/// What each of the four servers of a model says now.
fn said(simulation: &Simulation<Workload>) -> Vec<Scraped> {
    let fleet = &simulation.fleet;
    let pages =
        ROLES.into_iter().flat_map(|role| fleet.serving(role).take(2).filter_map(move |id| fleet.vllm_page(role, id, MODEL, START.wall)));
    pages.map(|page| lower(vllm(&page).as_bytes(), None, None, false).unwrap_or_else(|failure| panic!("{failure:?}"))).collect()
}

/// Reports of all servers of a configuration: every model's say the same of it.
fn reports(config: &Config, fleet: &Fleet, said: &[Scraped], now: Moment) -> Vec<TargetReport> {
    let mut reports = Vec::new();
    for (place, model) in config.models.iter().enumerate() {
        let name = model.policy.model.clone();
        let targets = fleet.sources(place).iter().flat_map(|source| &source.targets);
        for (target, said) in targets.zip(said) {
            let mut scraped = said.clone();
            let rename = |(known, sample): (Option<String>, _)| (known.map(|_| name.as_str().to_owned()), sample);
            scraped.reading.models = scraped.reading.models.into_iter().map(rename).collect();
            reports.push(TargetReport { target: target.target.clone(), at: now.monotonic, duration: Duration::ZERO, outcome: Ok(scraped) });
        }
    }
    reports
}

/// Seconds of each measured round, sorted.
fn rounds(models: usize) -> Vec<f64> {
    let config = loaded(models);
    let fleet = Fleet::of(&config, |_| Listing::default());
    let mut exporter = Exporter::new(Arc::clone(&config), BTreeMap::new(), Ledger::default(), START);
    let mut simulation = scenario::simulation(Duration::from_secs(3600), Duration::from_secs(100), 1);
    let mut spans = Vec::new();
    for tick in 1..=WARM_UP + MEASURED {
        let now = START.after(INTERVAL * tick as u32);
        simulation.advance_to(now.monotonic);
        drop(simulation.fleet.take_finished());
        let reports = reports(&config, &fleet, &said(&simulation), now);
        let begun = Instant::now();
        let round = exporter.round(&reports, &fleet, now);
        let span = begun.elapsed().as_secs_f64();
        drop(round);
        if tick > WARM_UP {
            spans.push(span);
        }
    }
    spans.sort_by(f64::total_cmp);
    spans
}

/// Prints the table.
pub fn measure() {
    println!("\na round of preset auto, memory of {} min, two servers of either role a model\n", WARM_UP * INTERVAL.as_secs() / 60);
    println!("| models | median ms | slowest ms |\n|---|---|---|");
    for models in [1, 100, 1000] {
        let spans = rounds(models);
        println!("| {models} | {:.3} | {:.3} |", spans[spans.len() / 2] * 1e3, spans[spans.len() - 1] * 1e3);
    }
}
