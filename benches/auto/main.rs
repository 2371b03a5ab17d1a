//! Does preset auto keep its promises? Two fleets, replicas apart and of both parts, with a profile and without, against what was possible.
//!
//! `cargo bench --bench auto -- [--seeds N] [--fleet NAME] [FILE@SCALE ...]` prints for each fleet and traffic the worst of the seeds: joint attainment, that of the
//! causal bound (the clairvoyant plan late by a start-up) and of the clairvoyant plan, cost over the latter's, and scale events an hour. The plan is
//! that of the first seed: seeds of one traffic differ by chance alone, and a plan takes as long as a hundred runs. Files are recorded traces;
//! `FILE@SCALE` multiplies their requests.
//!
//! `cargo bench --bench auto -- --boundaries` answers another question, see `boundaries.rs`.

mod boundaries;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use serde_json::Value;

/// What is simulated. The smaller model serves five times the rates of the shapes. Recorded traces are the same for both: each further copy of a request
/// has its lengths and comes within seconds of it, so that a multiple of a trace is more uneven than as much real traffic.
const FLEETS: [Fleet; 4] = [
    Fleet { name: "llama-70b", folder: "llama-70b", times: 1, aggregated: false },
    Fleet { name: "llama-8b", folder: "llama-8b", times: 5, aggregated: false },
    Fleet { name: "llama-70b, aggregated", folder: "llama-70b", times: 1, aggregated: true },
    Fleet { name: "llama-8b, aggregated", folder: "llama-8b", times: 5, aggregated: true },
];
/// Start-ups of the sweep, on the ramp.
const STARTUPS: [&str; 5] = ["4s", "60s", "140s", "200s", "300s"];
const USUAL: &str = "100s";

#[derive(Clone, Copy)]
struct Fleet {
    name: &'static str,
    folder: &'static str,
    /// Rates of its shapes over those of the larger model's.
    times: u32,
    aggregated: bool,
}

impl Fleet {
    fn ramp(&self) -> String {
        let rate = |rate: u32| rate * self.times;
        format!("shape:ramp?low={}&high={}&at=20m&over=40m&duration=75m", rate(10), rate(55))
    }

    fn shapes(&self) -> [String; 7] {
        let rate = |rate: u32| rate * self.times;
        [
            format!("shape:steady?rate={}&duration=75m", rate(45)),
            self.ramp(),
            format!("shape:diurnal?low={}&high={}&period=1h&duration=75m", rate(10), rate(55)),
            format!("shape:length-shift?rate={}&at=40m&isl_after=4620&duration=75m", rate(20)),
            format!("shape:step?low={}&high={}&at=35m&until=60m&duration=75m", rate(12), rate(50)),
            format!("shape:flash?low={}&high={}&at=40m&rise=30s&hold=5m&fall=2m&duration=75m", rate(20), rate(55)),
            format!("shape:on-off?high={}&low={}&on=5m&off=5m&duration=75m", rate(50), rate(5)),
        ]
    }
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
    let (mut seeds, mut only, mut traces) = (1, None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" => seeds = arguments.next().and_then(|text| text.parse::<u64>().ok()).expect("--seeds: expected a number"),
            "--fleet" => only = arguments.next(),
            "--boundaries" => return boundaries::print(),
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
        let mut jobs = fleet.shapes().map(|shape| (shape, 1.0, USUAL)).to_vec();
        jobs.extend(traces.iter().map(|(trace, scale)| (trace.clone(), *scale, USUAL)));
        jobs.extend(STARTUPS.map(|startup| (fleet.ramp(), 1.0, startup)));
        print_all(fleet, &jobs, seeds);
    }
}

/// A trace, its scale, and the start-up.
type Job = (String, f64, &'static str);

fn print((trace, scale, startup): &Job, row: &Row) {
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

/// The worst of the seeds for each job, policy by policy, each job as soon as it and those before it are done.
fn print_all(fleet: &Fleet, jobs: &[Job], seeds: u64) {
    let next = AtomicUsize::new(0);
    let (done, finished) = channel();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (next, done) = (&next, done.clone());
            scope.spawn(move || {
                while let Some((index, job)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|index| Some((index, jobs.get(index)?)))
                {
                    done.send((index, play_all(fleet, job, seeds))).expect("the printer waits");
                }
            });
        }
        drop(done);
        let (mut waiting, mut printed) = (BTreeMap::new(), 0);
        for (index, rows) in finished {
            waiting.insert(index, rows);
            while let Some(rows) = waiting.remove(&printed) {
                rows.iter().for_each(|row| print(&jobs[printed], row));
                printed += 1;
            }
        }
    });
}

fn play_all(fleet: &Fleet, job: &Job, seeds: u64) -> Vec<Row> {
    let first = play(fleet, job, 0, true);
    let plan = first.hindsight.expect("asked for");
    let all = std::iter::once(first.policies).chain((1..seeds).map(|seed| play(fleet, job, seed, false).policies));
    let rows = all.map(|policies| policies.into_iter().map(|(name, outcome)| plan.row(name, &outcome)).collect());
    rows.reduce(worst).unwrap_or_default()
}

fn worst(one: Vec<Row>, other: Vec<Row>) -> Vec<Row> {
    let pair = |(one, other): (Row, Row)| Row {
        policy: one.policy,
        attainment: one.attainment.min(other.attainment),
        ratio: one.ratio.max(other.ratio),
        events: one.events.max(other.events),
        ..one
    };
    one.into_iter().zip(other).map(pair).collect()
}

/// What one seed showed.
struct Played {
    policies: Vec<(String, Outcome)>,
    hindsight: Option<Plan>,
}

struct Outcome {
    attainment: f64,
    gpu_hours: f64,
    events: f64,
}

/// The clairvoyant plan and what is left of it a start-up late.
struct Plan {
    clairvoyant: Outcome,
    causal: f64,
}

impl Plan {
    fn row(&self, policy: String, outcome: &Outcome) -> Row {
        Row {
            policy,
            attainment: outcome.attainment,
            causal: self.causal,
            clairvoyant: self.clairvoyant.attainment,
            ratio: outcome.gpu_hours / self.clairvoyant.gpu_hours,
            events: outcome.events,
            events_of_plan: self.clairvoyant.events,
        }
    }
}

/// NaN where there is no such outcome.
fn outcome(of: &Value) -> Outcome {
    let number = |of: &Value, name: &str| of[name].as_f64().unwrap_or(f64::NAN);
    let moves = of["roles"].as_object().map(|roles| roles.values().map(|role| number(role, "ups") + number(role, "downs")).sum::<f64>());
    Outcome {
        attainment: number(of, "attainment"),
        gpu_hours: number(of, "gpu_hours"),
        events: moves.unwrap_or(f64::NAN) / number(of, "hours"),
    }
}

fn play(fleet: &Fleet, (trace, scale, startup): &Job, seed: u64, hindsight: bool) -> Played {
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
    if hindsight {
        command.arg("--hindsight");
    }
    command.args(["--trace", trace, "--scale", &scale.to_string(), "--startup", startup, "--warm-up", "15m"]);
    let output = command.args(["--seed", &seed.to_string(), "--format", "json"]).output().expect("run the program");
    assert!(output.status.success(), "{trace}: {}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let name =
        |of: &Value| of["policy"].as_str().expect("a name").rsplit('/').next().unwrap_or_default().trim_end_matches(".yaml").to_owned();
    let outcomes = document["configurations"].as_array().expect("configurations").iter();
    let policies = outcomes.skip(usize::from(!fleet.aggregated)).map(|of| (name(of), outcome(of))).collect();
    let found = &document["hindsight"];
    let plan = || Plan { clairvoyant: outcome(&found["clairvoyant"]), causal: outcome(&found["causal"]).attainment };
    Played { policies, hindsight: hindsight.then(plan) }
}
