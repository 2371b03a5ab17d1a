//! Does preset auto keep its promises? Two fleets, replicas apart and of both parts, with a profile and without, against what was possible.
//!
//! `cargo bench --bench auto -- [--seeds N] [--fleet NAME] [FILE@SCALE ...]` prints for each fleet and traffic the worst of the seeds: joint attainment, that of the
//! causal bound (the clairvoyant plan late by a start-up) and of the clairvoyant plan, cost over the latter's, and scale events an hour. Files
//! are recorded traces; `FILE@SCALE` multiplies their requests for the larger fleet, and five times as much for the smaller model.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// What is simulated, and how many times the rates are multiplied.
const FLEETS: [Fleet; 4] = [
    Fleet { name: "llama-70b", folder: "llama-70b", scale: 1.0, aggregated: false },
    Fleet { name: "llama-8b", folder: "llama-8b", scale: 5.0, aggregated: false },
    Fleet { name: "llama-70b, aggregated", folder: "llama-70b", scale: 1.0, aggregated: true },
    Fleet { name: "llama-8b, aggregated", folder: "llama-8b", scale: 5.0, aggregated: true },
];
/// Rates are those of the larger model.
const SHAPES: [&str; 7] = [
    "shape:steady?rate=45&duration=75m",
    "shape:ramp?low=10&high=55&at=20m&over=40m&duration=75m",
    "shape:diurnal?low=10&high=55&period=1h&duration=75m",
    "shape:length-shift?rate=20&at=40m&isl_after=4620&duration=75m",
    "shape:step?low=12&high=50&at=35m&until=60m&duration=75m",
    "shape:flash?low=20&high=55&at=40m&rise=30s&hold=5m&fall=2m&duration=75m",
    "shape:on-off?high=50&low=5&on=5m&off=5m&duration=75m",
];
/// Start-ups of the sweep, on the ramp.
const STARTUPS: [&str; 5] = ["4s", "60s", "140s", "200s", "300s"];
const RAMP: &str = SHAPES[1];
const USUAL: &str = "100s";

#[derive(Clone, Copy)]
struct Fleet {
    name: &'static str,
    folder: &'static str,
    scale: f64,
    aggregated: bool,
}

/// One line.
#[derive(Clone)]
struct Row {
    policy: String,
    attainment: f64,
    causal: f64,
    clairvoyant: f64,
    ratio: f64,
    events: f64,
    events_of_plan: f64,
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut seeds, mut only, mut traces) = (1, None, SHAPES.map(|shape| (shape.to_owned(), 1.0)).to_vec());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" => seeds = arguments.next().and_then(|text| text.parse::<u64>().ok()).expect("--seeds: expected a number"),
            "--fleet" => only = arguments.next(),
            _ => {
                let (file, scale) = argument.rsplit_once('@').expect("expected FILE@SCALE");
                traces.push((file.to_owned(), scale.parse().expect("expected FILE@SCALE")));
            }
        }
    }
    for fleet in FLEETS.iter().filter(|fleet| only.as_ref().is_none_or(|only| only == fleet.name)) {
        println!("\n{}\n", fleet.name);
        println!(
            "| traffic | policy | within both | causal bound | clairvoyant | / clairvoyant | events/h | of the plan |\n|---|---|---|---|---|---|---|---|"
        );
        let mut jobs: Vec<(String, f64, &str)> = traces.iter().map(|(trace, scale)| (trace.clone(), *scale, USUAL)).collect();
        jobs.extend(STARTUPS.map(|startup| (RAMP.to_owned(), 1.0, startup)));
        for (job, rows) in jobs.iter().zip(all(fleet, &jobs, seeds)) {
            for row in rows {
                print(job, &row);
            }
        }
    }
}

fn print((trace, scale, startup): &(String, f64, &str), row: &Row) {
    let file = trace.rsplit('/').next().unwrap_or(trace);
    let scale = if *scale == 1.0 { String::new() } else { format!(" x{scale}") };
    let startup = if *startup == USUAL { String::new() } else { format!(", start-up {startup}") };
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    println!(
        "| `{file}`{scale}{startup} | {} | {} | {} | {} | {:.2} | {:.0} | {:.0} |",
        row.policy,
        percent(row.attainment),
        percent(row.causal),
        percent(row.clairvoyant),
        row.ratio,
        row.events,
        row.events_of_plan
    );
}

/// The worst of the seeds for each job, policy by policy.
fn all(fleet: &Fleet, jobs: &[(String, f64, &str)], seeds: u64) -> Vec<Vec<Row>> {
    let runs: Vec<(usize, u64)> = (0..jobs.len()).flat_map(|job| (0..seeds).map(move |seed| (job, seed))).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(vec![Vec::new(); jobs.len()]));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(job, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let rows = play(fleet, &jobs[job], seed);
                    found.lock().expect("no thread panics with it")[job].push(rows);
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics with it");
    found.into_iter().map(|seeds| seeds.into_iter().reduce(worst).unwrap_or_default()).collect()
}

fn worst(one: Vec<Row>, other: Vec<Row>) -> Vec<Row> {
    let pair = |(one, other): (Row, Row)| Row {
        policy: one.policy,
        // Against its own bound; the bound of the seed that is shown.
        causal: if one.attainment < other.attainment { one.causal } else { other.causal },
        clairvoyant: if one.attainment < other.attainment { one.clairvoyant } else { other.clairvoyant },
        attainment: one.attainment.min(other.attainment),
        ratio: one.ratio.max(other.ratio),
        events: one.events.max(other.events),
        events_of_plan: one.events_of_plan.max(other.events_of_plan),
    };
    one.into_iter().zip(other).map(pair).collect()
}

fn play(fleet: &Fleet, (trace, scale, startup): &(String, f64, &str), seed: u64) -> Vec<Row> {
    let file = |name: &str| format!("{}/deploy/example/{}/{name}", env!("CARGO_MANIFEST_DIR"), fleet.folder);
    let judged: &[&str] = if fleet.aggregated { &["auto-aggregated.yaml"] } else { &["auto.yaml", "auto-no-profile.yaml"] };
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.arg("backtest").args(["--config", &file("config.yaml")]);
    for name in judged {
        command.args(["--config", &file(name)]);
    }
    if fleet.aggregated {
        command.arg("--aggregated");
    }
    command.args(["--trace", trace, "--scale", &(scale * fleet.scale).to_string(), "--startup", startup, "--warm-up", "15m"]);
    let output = command.args(["--seed", &seed.to_string(), "--hindsight", "--format", "json"]).output().expect("run the program");
    assert!(output.status.success(), "{trace}: {}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or(f64::NAN);
    let moves = |of: &Value| {
        let roles = of["roles"].as_object().expect("roles").values();
        roles.map(|role| number(role, "ups") + number(role, "downs")).sum::<f64>() / number(of, "hours")
    };
    let (plan, causal) = (&document["hindsight"]["clairvoyant"], &document["hindsight"]["causal"]);
    let outcomes = document["configurations"].as_array().expect("configurations").iter();
    let row = |outcome: &Value| Row {
        policy: outcome["policy"].as_str().expect("a name").rsplit('/').next().unwrap_or_default().trim_end_matches(".yaml").to_owned(),
        attainment: number(outcome, "attainment"),
        causal: number(causal, "attainment"),
        clairvoyant: number(plan, "attainment"),
        ratio: number(outcome, "gpu_hours") / number(plan, "gpu_hours"),
        events: moves(outcome),
        events_of_plan: if plan.is_object() { moves(plan) } else { f64::NAN },
    };
    outcomes.skip(usize::from(!fleet.aggregated)).map(row).collect()
}
