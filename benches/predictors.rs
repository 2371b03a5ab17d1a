//! How far off are the predictors one step ahead? Requests in windows of 60 s and 180 s of recorded traces, through every method and
//! `auto`.
//!
//! `cargo bench --bench predictors -- CONV.csv CODE.csv` prints the mean absolute error from window 5 on. The two files are the Azure
//! traces of 2023, for which the goals are known: in brackets stands the error over that of the same method in NVIDIA Dynamo 1.6.1 (for
//! auto: over the best method of the cell), then whether the goal is met. Any other number of files is measured without goals. Last the
//! slowest refit of up to 200 windows.

use std::time::{Duration, Instant};

use inference_planner_exporter::planner::predict::traffic::{Traffic, windows};
use inference_planner_exporter::planner::predict::{Choice, Method, Series, Settings};
use inference_planner_exporter::simulator::trace::{Generation, read};
use inference_planner_exporter::units::Tokens;

/// Windows that are not judged.
const UNJUDGED: usize = 5;
/// What Dynamo's predictors err by: conversation at 60 s and 180 s, code at 60 s and 180 s.
const KNOWN: [(Method, [f64; 4]); 4] = [
    (Method::Constant, [26.9, 101.3, 142.2, 284.6]),
    (Method::Kalman, [31.5, 158.9, 143.6, 249.4]),
    (Method::Arima, [62.5, 199.9, 127.5, 309.2]),
    (Method::Prophet, [61.8, 236.6, 143.6, 243.9]),
];

fn main() {
    let files: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if files.is_empty() {
        println!("no trace given; expected: cargo bench --bench predictors -- CONV.csv CODE.csv");
        return;
    }
    let known = files.len() == 2;
    let cells: Vec<(Duration, Vec<Traffic>)> = files.iter().flat_map(|file| [60, 180].map(|seconds| cut(file, seconds))).collect();
    let titles: Vec<String> =
        files.iter().flat_map(|file| [60, 180].map(|seconds| format!("{} {seconds} s", file.rsplit('/').next().unwrap_or(file)))).collect();
    println!("| predictor | {} | geometric mean |\n|---|{}---|", titles.join(" | "), "---|".repeat(titles.len()));
    let mut best = vec![f64::MAX; cells.len()];
    let mut best_mean = f64::MAX;
    for (method, theirs) in KNOWN {
        let errors: Vec<f64> = cells.iter().map(|cell| error(Choice::Fixed(method), cell)).collect();
        best.iter_mut().zip(&errors).for_each(|(best, error)| *best = best.min(*error));
        best_mean = best_mean.min(geometric_mean(&errors));
        let exact = matches!(method, Method::Constant | Method::Kalman);
        let goal = |ratio: f64| if exact { (ratio - 1.0).abs() <= 0.01 } else { ratio <= 1.10 };
        let verdicts = theirs.iter().zip(&errors).map(|(theirs, error)| verdict(error / theirs, goal(error / theirs)));
        row(method.name(), &errors, known.then(|| verdicts.collect()), None);
    }
    let errors: Vec<f64> = cells.iter().map(|cell| error(Choice::Auto, cell)).collect();
    let verdicts = errors.iter().zip(&best).map(|(error, best)| verdict(error / best, error / best <= 1.25)).collect();
    let mean = geometric_mean(&errors) / best_mean;
    row("auto", &errors, Some(verdicts), Some(verdict(mean, mean <= 1.05)));
    slowest(&files);
}

fn cut(file: &str, seconds: u64) -> (Duration, Vec<Traffic>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let trace = read(&text, &Generation::default()).unwrap_or_else(|problems| panic!("{file}: {problems}"));
    let interval = Duration::from_secs(seconds);
    let requests = trace.requests.iter().map(|request| (request.at, Tokens(request.input.into()), Tokens(request.output.into())));
    (interval, windows(requests, interval))
}

/// Mean absolute error of requests.
fn error(choice: Choice, (interval, windows): &(Duration, Vec<Traffic>)) -> f64 {
    let mut series = Series::new(Settings::new(choice, *interval));
    let mut sum = 0.0;
    for (index, window) in windows.iter().enumerate() {
        if index >= UNJUDGED {
            sum += (series.forecast().value - window.requests.get()).abs();
        }
        series.observe(window.requests.get());
    }
    sum / (windows.len().saturating_sub(UNJUDGED)) as f64
}

fn geometric_mean(errors: &[f64]) -> f64 {
    (errors.iter().map(|error| error.ln()).sum::<f64>() / errors.len() as f64).exp()
}

fn verdict(ratio: f64, met: bool) -> String {
    format!(" ({ratio:.2}, {})", if met { "met" } else { "MISSED" })
}

fn row(name: &str, errors: &[f64], verdicts: Option<Vec<String>>, of_mean: Option<String>) {
    let verdicts = verdicts.unwrap_or_else(|| vec![String::new(); errors.len()]);
    let cells: Vec<String> = errors.iter().zip(verdicts).map(|(error, verdict)| format!("{error:.1}{verdict}")).collect();
    println!("| {name} | {} | {:.1}{} |", cells.join(" | "), geometric_mean(errors), of_mean.unwrap_or_default());
}

/// The longest that one window took, over windows of 15 s: some 230 to a trace.
fn slowest(files: &[String]) {
    println!();
    for method in Method::ALL {
        let mut longest = Duration::ZERO;
        for (interval, windows) in files.iter().map(|file| cut(file, 15)) {
            let mut series = Series::new(Settings::new(Choice::Fixed(method), interval));
            for window in windows {
                let begun = Instant::now();
                series.observe(window.requests.get());
                longest = longest.max(begun.elapsed());
            }
        }
        println!("{}: slowest window of those of 15 s {:.1} ms", method.name(), longest.as_secs_f64() * 1e3);
    }
}
