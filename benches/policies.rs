//! How do policies compare? Every shape of traffic, and recorded traces if their files are given, through all presets and baselines.
//!
//! `cargo bench --bench policies -- [FILE@SCALE ...]` prints a table for each trace: joint attainment, GPU hours and their ratio to the
//! clairvoyant plan, scale events and reversals an hour of both pools together, and the time in violation. Of five seeds the worst value of
//! each column is shown where `--seeds 5` is given; without it there is one seed.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/example/llama-70b/config.yaml");
const LEARNING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/example/llama-70b/wva.yaml");
const SLA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/example/llama-70b/dynamo.yaml");
const UNMEASURED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/example/llama-70b/dynamo-no-profile.yaml");
/// The configurations, and what their rows are called.
const CONFIGURATIONS: [(&str, &str); 4] =
    [(CONFIG, "preset infera"), (LEARNING, "preset wva"), (SLA, "dynamo sla"), (UNMEASURED, "dynamo sla, no profile")];
const STARTUP: &str = "100s";
const WARM_UP: &str = "15m";

/// At the peak 8 to 12 replicas are needed. Lengths are those of the Azure conversation trace.
const SHAPES: [&str; 7] = [
    "shape:steady?rate=45&duration=75m",
    "shape:step?low=12&high=50&at=35m&until=60m&duration=75m",
    "shape:ramp?low=10&high=55&at=20m&over=40m&duration=75m",
    "shape:diurnal?low=10&high=55&period=1h&duration=75m",
    "shape:flash?low=20&high=55&at=40m&rise=30s&hold=5m&fall=2m&duration=75m",
    "shape:length-shift?rate=20&at=40m&isl_after=4620&duration=75m",
    "shape:on-off?high=50&low=5&on=5m&off=5m&duration=75m",
];

/// One line of a table.
struct Row {
    policy: String,
    attainment: f64,
    gpu_hours: f64,
    ratio: Option<f64>,
    events: f64,
    reversals: f64,
    violation: f64,
    longest: f64,
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let mut traces: Vec<(String, String)> = Vec::new();
    let mut seeds = 1;
    while let Some(argument) = arguments.next() {
        if argument == "--seeds" {
            seeds = arguments
                .next()
                .and_then(|text| text.parse().ok())
                .filter(|count| *count > 0)
                .expect("--seeds: expected a number above zero");
            continue;
        }
        let (file, scale) = argument.rsplit_once('@').expect("expected FILE@SCALE");
        traces.push((file.to_owned(), scale.to_owned()));
    }
    traces.splice(0..0, SHAPES.map(|shape| (shape.to_owned(), "1".to_owned())));
    let jobs: Vec<(usize, u64)> = (0..traces.len()).flat_map(|trace| (0..seeds).map(move |seed| (trace, seed))).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(trace, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (name, scale) = &traces[trace];
                    let rows = play(name, scale, seed);
                    found.lock().expect("no thread panics with it").push((trace, seed, rows));
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no thread panics with it");
    found.sort_by_key(|(trace, seed, _)| (*trace, *seed));
    let mut overview = String::new();
    for (index, (name, scale)) in traces.iter().enumerate() {
        let of_trace: Vec<Vec<Row>> = found.extract_if(.., |(trace, ..)| *trace == index).map(|(.., rows)| rows).collect();
        let rows = worst(of_trace);
        print(name, scale, &rows);
        overview += &brief(name, scale, &rows);
    }
    println!(
        "\n| traffic | {} | HPA queue 5 | tuned HPA | KPA 70 % | tuned KPA | best static | clairvoyant | late |",
        CONFIGURATIONS.map(|(_, name)| name).join(" | ")
    );
    println!("{}|\n{overview}", "|---".repeat(CONFIGURATIONS.len() + 8));
}

/// All policies on one trace.
fn play(trace: &str, scale: &str, seed: u64) -> Vec<Row> {
    let seed = seed.to_string();
    let arguments = ["--trace", trace, "--scale", scale, "--startup", STARTUP, "--warm-up", WARM_UP];
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.arg("backtest").args(CONFIGURATIONS.iter().flat_map(|(file, _)| ["--config", file]));
    let output = command.args(arguments).args(["--seed", &seed, "--baselines", "--format", "json"]).output().expect("run the program");
    assert!(output.status.success(), "{trace}: {}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let hindsight = &document["hindsight"];
    let best = hindsight["clairvoyant"]["gpu_hours"].as_f64();
    let lists = [&document["configurations"], &document["baselines"]].into_iter().filter_map(Value::as_array).flatten();
    let bounds = ["constant", "clairvoyant", "causal"].into_iter().filter_map(|name| hindsight.get(name));
    let rows: Vec<Row> = lists.chain(bounds).map(|outcome| row(outcome, best)).collect();
    // The clairvoyant plan is the cheapest that is known; a cheaper row that does as well would be a fault of the search.
    if let (Some(goal), Some(best)) = (hindsight["goal"].as_f64(), best) {
        for row in rows.iter().filter(|row| row.attainment >= goal) {
            assert!(row.gpu_hours >= best - 1e-9, "{trace}: {} costs {} GPU h, the clairvoyant plan {best}", row.policy, row.gpu_hours);
        }
    }
    rows
}

fn row(outcome: &Value, best: Option<f64>) -> Row {
    let number = |name: &str| outcome[name].as_f64().expect(name);
    let hours = number("hours");
    let moves = |names: &[&str]| {
        let roles = outcome["roles"].as_object().expect("roles").values();
        roles.flat_map(|role| names.iter().map(|name| role[name].as_f64().expect("a count"))).sum::<f64>() / hours
    };
    let policy = outcome["policy"].as_str().expect("a name");
    let called = CONFIGURATIONS.iter().find(|(file, _)| *file == policy).map_or(policy, |(_, name)| name);
    Row {
        policy: called.to_owned(),
        attainment: number("attainment"),
        gpu_hours: number("gpu_hours"),
        ratio: best.map(|best| number("gpu_hours") / best),
        events: moves(&["ups", "downs"]),
        reversals: moves(&["reversals"]),
        violation: number("violation"),
        longest: number("longest_violation"),
    }
}

/// The worst of the seeds, policy by policy. Names with settings differ by seed; the first is shown.
fn worst(seeds: Vec<Vec<Row>>) -> Vec<Row> {
    let worse = |a: Row, b: Row| Row {
        policy: a.policy,
        attainment: a.attainment.min(b.attainment),
        gpu_hours: a.gpu_hours.max(b.gpu_hours),
        ratio: a.ratio.zip(b.ratio).map(|(a, b)| a.max(b)),
        events: a.events.max(b.events),
        reversals: a.reversals.max(b.reversals),
        violation: a.violation.max(b.violation),
        longest: a.longest.max(b.longest),
    };
    seeds.into_iter().reduce(|all, next| all.into_iter().zip(next).map(|(a, b)| worse(a, b)).collect()).unwrap_or_default()
}

fn title(name: &str, scale: &str) -> String {
    let file = std::path::Path::new(name).file_name().map_or(name.into(), |file| file.to_string_lossy());
    let trace = if name.starts_with("shape:") { name.into() } else { file };
    format!("`{trace}`{}", if scale == "1" { String::new() } else { format!(", {scale} times the requests") })
}

fn print(name: &str, scale: &str, rows: &[Row]) {
    println!("\n{}\n", title(name, scale));
    println!("| policy | within both objectives | GPU h | / clairvoyant | events/h | reversals/h | violation (longest) |");
    println!("|---|---|---|---|---|---|---|");
    for row in rows {
        println!(
            "| {} | {:.2} % | {:.1} | {} | {:.0} | {:.0} | {:.0} s ({:.0} s) |",
            row.policy,
            100.0 * row.attainment,
            row.gpu_hours,
            row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            row.events,
            row.reversals,
            row.violation,
            row.longest,
        );
    }
}

/// One line for the overview: attainment, and cost over that of the clairvoyant plan.
fn brief(name: &str, scale: &str, rows: &[Row]) -> String {
    let cell = |row: &Row| {
        format!("{:.1} % at {}", 100.0 * row.attainment, row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")))
    };
    let cells: Vec<String> = rows.iter().map(cell).collect();
    format!("| {} | {} |\n", title(name, scale), cells.join(" | "))
}
