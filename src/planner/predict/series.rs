//! What comes next in one series? Values in, the chosen predictor's forecast out, and how good each predictor has been.
//!
//! A series is a number a window: requests, mean prompt length, mean generated length. Numbers here are bare, since the same code serves
//! all three; units come back in `traffic.rs`.
//!
//! | what comes | what is done |
//! |---|---|
//! | a value that is not finite or below zero | read as 0, as Dynamo does |
//! | zeros before the first other value | dropped: traffic has not begun, and a model that starts there would see a jump |
//! | zeros later | part of the history; a `prophet` forecast that has reached 0 stays there until a value comes |
//! | log1p asked for | models see ln(1 + value); forecasts are brought back |
//! | a forecast of zero or less while requests come | the last value, with the reason; `kalman` gives 0, as Dynamo's does |
//! | no model yet, or none fits | the last value, with the reason |
//!
//! `auto` runs all methods and passes on the forecast of the one with the smallest recent error (`score.rs`), the simplest of equals.
//! Persistence is left only for one with at most 0.8 of its error: of four methods scored over ten windows one looks better than it is by
//! chance. It costs the sum of all, and errs where the series has just changed its nature.
//!
//! | `auto` on the Azure traces, geometric mean of the four errors | requests |
//! |---|---|
//! | persistence left at 1.0, 0.9, 0.8, 0.7 of its error | 107.3, 105.7, 99.4, 102.2 |
//! | the best single method (constant) | 102.4 |
//!
//! Rejected: the mean of all forecasts, weighted by the inverse error to the power of 4. As good on these traces (99.3), but five times the
//! best on a series that one method knows exactly, and no number that a reader finds in any of the methods.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arima::{self, Arima};
use super::score::Score;
use super::{constant, kalman, prophet};

/// Share of persistence's error from which on `auto` prefers another method.
const CLEARLY_BETTER: f64 = 0.8;
/// Values above this are no measurements of traffic; below it no square or exponential overflows.
const LARGEST: f64 = 1e15;
/// Windows that are remembered, unless prophet's window is longer.
const REMEMBERED: usize = 200;

/// The way in which a forecast is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// The last value.
    Constant,
    /// Local linear trend.
    Kalman,
    /// ARIMA of automatic order.
    Arima,
    /// Piecewise linear trend and seasons.
    Prophet,
}

impl Method {
    /// All, the simplest first.
    pub const ALL: [Self; 4] = [Self::Constant, Self::Kalman, Self::Arima, Self::Prophet];

    /// What it forecasts, in one sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Constant => "The last value.",
            Self::Kalman => "A level with a trend, followed by a Kalman filter.",
            Self::Arima => "An ARIMA model of automatic order.",
            Self::Prophet => "A piecewise linear trend with seasons.",
        }
    }

    /// As the configuration and the labels write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Kalman => "kalman",
            Self::Arima => "arima",
            Self::Prophet => "prophet",
        }
    }
}

/// Which method is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Always this one.
    Fixed(Method),
    /// The one that has been best lately.
    Auto,
}

impl Choice {
    fn methods(self) -> Vec<Method> {
        match self {
            Self::Fixed(method) => vec![method],
            Self::Auto => Method::ALL.to_vec(),
        }
    }
}

/// What a user may set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Which method is asked.
    pub choice: Choice,
    /// Whether models see ln(1 + value).
    pub log1p: bool,
    /// Windows that prophet looks at.
    pub prophet_window: usize,
    /// Noise of the local linear trend.
    pub kalman: kalman::Settings,
    /// Length of a window; prophet's seasons need it.
    pub interval: Duration,
}

impl Settings {
    /// Dynamo's values for one choice.
    pub fn new(choice: Choice, interval: Duration) -> Self {
        Self { choice, log1p: false, prophet_window: 50, kalman: kalman::Settings::default(), interval }
    }

    /// Windows that are kept.
    pub fn remembered(&self) -> usize {
        REMEMBERED.max(self.prophet_window)
    }
}

/// Why the last value is forecast instead of a model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// Nothing but zeros so far: the forecast is 0.
    NoTraffic,
    /// Fewer windows than the method needs.
    FewPoints,
    /// No model could be fitted, or its forecast is no number.
    NoFit,
    /// The model expects nothing, but requests come.
    BelowZero,
    /// Traffic has ended and the forecast had reached zero.
    Idle,
}

impl Fallback {
    /// As labels and reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoTraffic => "no_traffic",
            Self::FewPoints => "few_points",
            Self::NoFit => "no_fit",
            Self::BelowZero => "below_zero",
            Self::Idle => "idle",
        }
    }
}

/// What is expected of the next window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Finite and not negative, in the unit of the series.
    pub value: f64,
    /// Whose forecast it is.
    pub method: Method,
    /// Why it is the last value; `None` where it is the method's own.
    pub fallback: Option<Fallback>,
}

/// The values that models see, the oldest first, as they came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct History(Vec<f64>);

impl History {
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    fn push(&mut self, value: f64, most: usize) {
        self.0.push(value);
        self.0.drain(..self.0.len().saturating_sub(most));
    }
}

/// What a method keeps beside the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Constant,
    Kalman(kalman::Filter),
    Arima(Arima),
    Prophet,
}

/// One method at work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Runner {
    state: State,
    next: Forecast,
    score: Score,
}

impl Runner {
    fn new(method: Method) -> Self {
        let state = match method {
            Method::Constant => State::Constant,
            Method::Kalman => State::Kalman(kalman::Filter::default()),
            Method::Arima => State::Arima(Arima::default()),
            Method::Prophet => State::Prophet,
        };
        Self { state, next: Forecast { value: 0.0, method, fallback: Some(Fallback::NoTraffic) }, score: Score::default() }
    }

    /// Takes in the last value of the history, that of window number `window`. `seen` is what models see of it.
    fn observe(&mut self, history: &History, seen: &[f64], window: u64, settings: &Settings) {
        let Some(&value) = history.values().last() else { return };
        if self.next.fallback != Some(Fallback::NoTraffic) {
            self.score.observe(self.next.value, value);
        }
        let min_points = match self.state {
            State::Constant => 1,
            State::Kalman(_) => settings.kalman.min_points.min(settings.remembered()),
            State::Arima(_) => arima::MIN_POINTS,
            State::Prophet => prophet::MIN_POINTS,
        };
        let idle = value == 0.0 && self.next.value == 0.0 && matches!(self.state, State::Prophet);
        let transform = |value: f64| if settings.log1p { value.exp_m1() } else { value };
        let modelled = match &mut self.state {
            State::Constant => constant::forecast(history),
            State::Kalman(filter) => {
                seen.last().inspect(|value| filter.observe(**value, &settings.kalman));
                filter.forecast().map(transform)
            }
            State::Arima(arima) => {
                arima.observe(seen, window, settings.remembered());
                arima.forecast(seen).map(transform)
            }
            State::Prophet if idle => None,
            State::Prophet => {
                let window = &seen[seen.len().saturating_sub(settings.prophet_window.max(prophet::MIN_POINTS))..];
                prophet::forecast(window, settings.interval).map(transform)
            }
        };
        let (forecast, fallback) = match modelled {
            _ if history.values().len() < min_points => (value, Some(Fallback::FewPoints)),
            // Kalman's is cut off at zero, as Dynamo's is.
            Some(forecast) if forecast <= 0.0 && value > 0.0 && !matches!(self.state, State::Kalman(_)) => {
                (value, Some(Fallback::BelowZero))
            }
            Some(forecast) if forecast.is_finite() => (forecast.clamp(0.0, LARGEST), None),
            _ => (value, Some(if idle { Fallback::Idle } else { Fallback::NoFit })),
        };
        (self.next.value, self.next.fallback) = (forecast, fallback);
    }
}

/// One series with all that its methods remember.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    settings: Settings,
    /// Whether zeros are dropped until another value comes.
    awaiting_traffic: bool,
    history: History,
    /// Number of the last window of the history.
    #[serde(default)]
    window: u64,
    runners: Vec<Runner>,
}

impl Series {
    /// A series that nothing is known of.
    pub fn new(settings: Settings) -> Self {
        let runners = settings.choice.methods().into_iter().map(Runner::new).collect();
        Self { settings, awaiting_traffic: true, history: History::default(), window: 0, runners }
    }

    /// Takes in the value of the window after the last one. Its forecast, made before, is scored.
    pub fn observe(&mut self, value: f64) {
        self.observe_window(value, self.next_window());
    }

    /// Takes in the value of the window with this number. Where windows are numbered since the Unix epoch, series that began at different times
    /// become the same.
    pub(super) fn observe_window(&mut self, value: f64, window: u64) {
        let value = if value.is_finite() { value.clamp(0.0, LARGEST) } else { 0.0 };
        self.awaiting_traffic &= value == 0.0;
        if self.awaiting_traffic {
            return;
        }
        self.window = window;
        self.history.push(value, self.settings.remembered());
        let seen: Vec<f64> = if self.settings.log1p {
            self.history.values().iter().map(|value| value.ln_1p()).collect()
        } else {
            self.history.values().to_vec()
        };
        for runner in &mut self.runners {
            runner.observe(&self.history, &seen, window, &self.settings);
        }
    }

    /// What is expected of the next window.
    pub fn forecast(&self) -> Forecast {
        // A method that was not tested yet is not preferred; the first of equals is the simplest.
        let error = |runner: &Runner| {
            let handicap = if runner.next.method == Method::Constant { CLEARLY_BETTER } else { 1.0 };
            runner.score.mean_error().map_or(f64::MAX, |error| error * handicap)
        };
        let best = self.runners.iter().min_by(|a, b| error(a).total_cmp(&error(b)));
        best.map_or(Forecast { value: 0.0, method: Method::Constant, fallback: Some(Fallback::NoTraffic) }, |runner| runner.next)
    }

    /// How far off each running method has been lately.
    pub fn scores(&self) -> impl Iterator<Item = (Method, Score)> {
        self.runners.iter().map(|runner| (runner.next.method, runner.score))
    }

    /// Whether such values can have been observed. A state file may hold anything.
    pub fn is_sound(&self) -> bool {
        let values = self.history.values();
        values.len() <= self.settings.remembered() && values.iter().all(|value| (0.0..=LARGEST).contains(value))
    }

    /// The same history under other settings: methods and scores are as if they had run all along on what is remembered.
    pub fn adopt(&mut self, settings: Settings) {
        if settings != self.settings {
            let mut other = Self::new(settings);
            other.window = self.window.saturating_sub(self.history.values().len() as u64);
            self.history.values().iter().for_each(|value| other.observe(*value));
            other.awaiting_traffic = self.awaiting_traffic;
            *self = other;
        }
    }

    /// Drops zeros again until another value comes: what follows is not the continuation of what was fed so far.
    pub(super) fn await_traffic(&mut self) {
        self.awaiting_traffic = true;
    }

    /// Number of the window after the last one.
    pub(super) fn next_window(&self) -> u64 {
        self.window.saturating_add(1)
    }

    /// The last value that was taken in.
    pub(super) fn last(&self) -> Option<f64> {
        self.history.values().last().copied()
    }
}
