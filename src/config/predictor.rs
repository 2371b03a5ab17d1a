//! How is the next window forecast? The predictor of a model, and the recorded traffic that it starts with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::check::Values;
use super::load_targets::refuse;
use super::problem::Problem;
use super::resolve::path;
use crate::planner::policy::{ModelPolicy, PredictorPolicy, Preset};
use crate::planner::predict::traffic::{Traffic, windows};
use crate::planner::predict::{Choice, Method, Settings, kalman};
use crate::simulator::trace::{self, Generation, problem::Place};
use crate::units::Tokens;

const KALMAN: [&str; 4] = ["kalman_q_level", "kalman_q_trend", "kalman_r", "kalman_min_points"];

/// The settings of a model before its trace is read.
pub(super) struct PredictorDraft {
    settings: Settings,
    pub trace: Option<PathBuf>,
}

/// Reads the keys. `sla` is target sla. `None` where one has a problem.
pub(super) fn read(
    values: &mut Values,
    key: &str,
    folder: &Path,
    preset: Option<Preset>,
    sla: bool,
    interval: Option<Duration>,
) -> Option<PredictorDraft> {
    let at = |name: &str| format!("{key}.planner.{name}");
    if preset == Some(Preset::Auto) {
        let keys = ["predictor", "predictor_log1p", "prophet_window", "warmup_trace"].into_iter().chain(KALMAN);
        refuse(values, keys.map(at), "preset auto forecasts from the slices of its own last minutes; leave it out");
        let settings = Settings::new(Choice::Fixed(Method::Constant), interval?);
        return Some(PredictorDraft { settings, trace: None });
    }
    let usual = usual(preset, sla);
    let choice = match values.text(&at("predictor")) {
        Some(name) if name == "auto" => Choice::Auto,
        Some(name) => Choice::Fixed(Method::ALL.into_iter().find(|method| method.name() == name)?),
        None if values.is_wrong(&at("predictor")) => return None,
        None => Choice::Fixed(usual),
    };
    let runs = |method| choice == Choice::Auto || choice == Choice::Fixed(method);
    if !runs(Method::Kalman) {
        refuse(values, KALMAN.map(at).into_iter(), "belongs to predictor kalman or auto; leave it out");
    }
    if !runs(Method::Prophet) {
        refuse(values, [at("prophet_window")].into_iter(), "belongs to predictor prophet or auto; leave it out");
    }
    if choice == Choice::Fixed(Method::Constant) {
        let keys = ["predictor_log1p", "warmup_trace"].map(at);
        refuse(values, keys.into_iter(), "has no meaning for predictor constant, which repeats the last window; leave it out");
    }
    let variance = |values: &mut Values, name: &str| {
        let value = values.number(&at(name))?;
        if value <= 0.0 {
            values.problem(&at(name), format!("expected more than 0, got {value}"));
        }
        Some(value)
    };
    let kalman = kalman::Settings {
        q_level: variance(values, KALMAN[0])?,
        q_trend: variance(values, KALMAN[1])?,
        r: variance(values, KALMAN[2])?,
        min_points: usize::try_from(values.count(&at(KALMAN[3]))?).ok()?,
    };
    let settings = Settings {
        log1p: values.switch(&at("predictor_log1p"))?,
        prophet_window: usize::try_from(values.count(&at("prophet_window"))?).ok()?,
        kalman,
        ..Settings::new(choice, interval?)
    };
    Some(PredictorDraft { settings, trace: path(values, &at("warmup_trace"), folder) })
}

/// The predictor that a preset has of itself.
fn usual(preset: Option<Preset>, sla: bool) -> Method {
    if preset == Some(Preset::Dynamo) && sla { Method::Arima } else { Method::Constant }
}

impl PredictorDraft {
    /// With the traffic of its trace, from the texts that were read.
    pub(super) fn policy(&self, traces: &BTreeMap<PathBuf, Vec<Arrival>>) -> Option<PredictorPolicy> {
        let history = match &self.trace {
            None => Vec::new(),
            Some(path) => history(traces.get(path)?, &self.settings),
        };
        Some(PredictorPolicy { settings: self.settings, history })
    }
}

/// When a request came, its prompt and its answer.
pub(super) type Arrival = (Duration, Tokens, Tokens);

/// The last windows of a trace: what a predictor remembers of it.
fn history(arrivals: &[Arrival], settings: &Settings) -> Vec<Traffic> {
    let mut found = windows(arrivals.iter().copied(), settings.interval);
    found.drain(..found.len().saturating_sub(settings.remembered()));
    found
}

/// The requests of a trace, or what is wrong with it and where.
pub(super) fn arrivals(path: &Path, text: &str) -> Result<Vec<Arrival>, Vec<Problem>> {
    let found = trace::read(text, &Generation::default()).map_err(|problems| {
        let problem = |problem: &trace::problem::Problem| {
            let line = if let Place::Line(line) = problem.place { Some((line, 1)) } else { None };
            Problem::syntax(path, line, problem.fault.to_string())
        };
        problems.iter().map(problem).collect::<Vec<_>>()
    })?;
    let tokens = |count: u32| Tokens(f64::from(count));
    Ok(found.requests.iter().map(|request| (request.at, tokens(request.input), tokens(request.output))).collect())
}

/// The lines that give the settings back.
pub(super) fn lines(policy: &ModelPolicy, trace: Option<String>) -> Vec<String> {
    // Preset auto has its own way, and takes no key.
    let Some(PredictorPolicy { settings, .. }) = policy.predictor.as_ref().filter(|_| policy.auto.is_none()) else { return Vec::new() };
    let name = match settings.choice {
        Choice::Auto => "auto",
        Choice::Fixed(method) => method.name(),
    };
    let mut lines = vec![format!("predictor: {name}")];
    let runs = |method| settings.choice == Choice::Auto || settings.choice == Choice::Fixed(method);
    if settings.choice != Choice::Fixed(Method::Constant) {
        lines.push(format!("predictor_log1p: {}", settings.log1p));
    }
    if runs(Method::Prophet) {
        lines.push(format!("prophet_window: {}", settings.prophet_window));
    }
    if runs(Method::Kalman) {
        let kalman::Settings { q_level, q_trend, r, min_points } = settings.kalman;
        lines.push(format!("{}: {q_level}", KALMAN[0]));
        lines.push(format!("{}: {q_trend}", KALMAN[1]));
        lines.push(format!("{}: {r}", KALMAN[2]));
        lines.push(format!("{}: {min_points}", KALMAN[3]));
    }
    lines.extend(trace.map(|trace| format!("warmup_trace: {trace}")));
    lines
}
