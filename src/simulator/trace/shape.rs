//! Which curve does a shape such as `shape:step?low=2&high=16&at=600s` name?
//!
//! Rates are requests a second; spans are written as `90s`, `10m` or `1h 30m`, and a bare number is seconds. "Needed" parameters have no default.
//!
//! | shape | parameters | the rate |
//! |---|---|---|
//! | `steady` | `rate` needed | is always `rate` |
//! | `step` | `low`, `high`, `at` needed; `until` = the end | is `low`, from `at` to `until` `high`, then `low` again |
//! | `ramp` | `low`, `high` needed; `at` = 0s, `over` = the rest | is `low`, moves evenly from `at` on for `over`, stays `high` |
//! | `diurnal` | `low`, `high` needed; `period` = 24h, `start` = 0s | is a cosine from valley to valley in `period`; time 0 is `start` after a valley |
//! | `flash` | `low`, `high`, `at` needed; `rise` = 10s, `hold` = 60s, `fall` = 60s | is `low`, at `at` rises for `rise`, stays `high` for `hold`, falls for `fall` |
//! | `length-shift` | `rate`, `at` needed; `isl_after` = `isl`, `osl_after` = `osl` | is always `rate`; the mean lengths change at `at` |
//! | `on-off` | `high` needed; `low` = 0, `on` = 60s, `off` = 60s | is `high` for `on`, `low` for `off`, and so on |
//!
//! Every shape knows as well: `duration` = 30m (`diurnal`: one period); `cv` = 1, the variation of the gaps between arrivals (0 a clock, 1 a
//! Poisson process); `isl` = 1155 and `osl` = 211, the mean lengths; `isl_cv` = 1 and `osl_cv` = 0.8, their spread (log-normal). The defaults of
//! the lengths are those of the Azure conversation trace of 2023.

use std::time::Duration;

use super::Generation;
use super::curve::{Curve, Piece};
use super::problem::{Fault, Problem, Problems};
use crate::simulator::workload::{Lengths, Shape};
use crate::units::{Ratio, RequestsPerSecond, Tokens};

/// What a text that names a shape begins with.
pub const PREFIX: &str = "shape:";
/// The shapes.
pub const NAMES: [&str; 7] = ["steady", "step", "ramp", "diurnal", "flash", "length-shift", "on-off"];

/// Highest rate, requests a second. What one accelerator cannot serve by orders of magnitude is a typing error.
pub(super) const MOST_RATE: f64 = 1e6;
/// Highest mean length.
pub(super) const MOST_TOKENS: f64 = 1e7;
/// Highest variation.
pub(super) const MOST_VARIATION: f64 = 100.0;
/// Longest span: ten years, leap days included.
const MOST_SPAN: Duration = Duration::from_secs(3653 * 86_400);
/// Straight pieces of one period of the cosine: quarters of an hour of a day, off by at most 0.0006 of the amplitude.
const PIECES_OF_A_WAVE: u32 = 96;
/// Most periods of one shape.
const MOST_PERIODS: u128 = 10_000;

/// Lengths around a mean.
pub(super) fn lengths(mean: Tokens, variation: Ratio) -> Lengths {
    Lengths { mean, variation, min: 1, max: u32::MAX }
}

/// A span with its unit, or seconds.
fn span_of(text: &str) -> Option<Duration> {
    match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    }
}

/// What was written after the name of a shape.
struct Parameters<'a> {
    given: Vec<(&'a str, &'a str)>,
    known: Vec<&'static str>,
    problems: Vec<Problem>,
}

impl<'a> Parameters<'a> {
    fn new(text: &'a str) -> Self {
        let mut parameters = Self { given: Vec::new(), known: Vec::new(), problems: Vec::new() };
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some((name, value)) if parameters.given.iter().all(|(given, _)| *given != name) => parameters.given.push((name, value)),
                Some((name, _)) => parameters.problems.push(Problem::parameter(name, Fault::Repeated)),
                None => parameters.problems.push(Problem::whole(Fault::NotAPair { found: pair.to_owned() })),
            }
        }
        parameters
    }

    /// The value of a parameter. After a problem it stands for nothing, since no curve will come of it.
    fn read<T: Default>(&mut self, name: &'static str, default: Option<T>, expected: &'static str, parse: impl Fn(&str) -> Option<T>) -> T {
        self.known.push(name);
        let fault = match (self.given.iter().find(|(given, _)| *given == name), default) {
            (None, Some(default)) => return default,
            (None, None) => Fault::Missing,
            (Some((_, found)), _) => match parse(found) {
                Some(value) => return value,
                None => Fault::Value { name: "", found: (*found).to_owned(), expected },
            },
        };
        self.problems.push(Problem::parameter(name, fault));
        T::default()
    }

    fn number(&mut self, name: &'static str, default: Option<f64>, expected: &'static str, low: f64, high: f64) -> f64 {
        self.read(name, default, expected, |text| text.parse().ok().filter(|value| (low..=high).contains(value)))
    }

    fn rate(&mut self, name: &'static str, default: Option<f64>) -> RequestsPerSecond {
        RequestsPerSecond(self.number(name, default, "requests a second, from 0 to 1000000", 0.0, MOST_RATE))
    }

    fn tokens(&mut self, name: &'static str, default: Tokens) -> Tokens {
        Tokens(self.number(name, Some(default.get()), "mean tokens, from 1 to 10000000", 1.0, MOST_TOKENS))
    }

    fn variation(&mut self, name: &'static str, default: Ratio) -> Ratio {
        Ratio(self.number(name, Some(default.get()), "a standard deviation over its mean, from 0 to 100", 0.0, MOST_VARIATION))
    }

    fn span(&mut self, name: &'static str, default: Option<Duration>) -> Duration {
        let parse = |text: &str| span_of(text).filter(|span| *span <= MOST_SPAN);
        self.read(name, default, "a span such as 90s or 10m, at most ten years", parse)
    }

    /// A span above zero.
    fn period(&mut self, name: &'static str, default: Duration) -> Duration {
        let parse = |text: &str| span_of(text).filter(|span| !span.is_zero() && *span <= MOST_SPAN);
        self.read(name, Some(default), "a span above zero such as 90s or 10m, at most ten years", parse)
    }

    /// A moment before the end.
    fn moment(&mut self, name: &'static str, default: Option<Duration>, end: Duration) -> Duration {
        let parse = |text: &str| span_of(text).filter(|at| *at < end);
        self.read(name, default, "a span such as 90s, shorter than the duration", parse)
    }

    /// Complains of a period that recurs too often, if the spans are known.
    fn check_periods(&mut self, name: &'static str, period: Duration, duration: Duration) {
        if !self.problems.is_empty() {
            return;
        }
        if duration.as_nanos() / period.as_nanos().max(1) > MOST_PERIODS {
            let found = humantime::format_duration(period).to_string();
            self.problems
                .push(Problem::parameter(name, Fault::Value { name: "", found, expected: "a period that recurs at most 10000 times" }));
        }
    }

    fn problems(mut self) -> Vec<Problem> {
        for (name, _) in &self.given {
            if !self.known.contains(name) {
                self.problems.push(Problem::parameter(name, Fault::UnknownParameter { known: self.known.clone() }));
            }
        }
        self.problems
    }
}

/// A curve that grows to the right, cut at a duration.
struct Line {
    duration: Duration,
    drawn: Duration,
    /// Lengths and regularity of the pieces to come.
    pen: Piece,
    pieces: Vec<Piece>,
}

impl Line {
    /// Draws from where the line ends to `until`; nothing if that is in the past.
    fn draw(&mut self, until: Duration, from: RequestsPerSecond, to: RequestsPerSecond) {
        let end = until.min(self.duration);
        if end <= self.drawn {
            return;
        }
        let share = (end - self.drawn).as_secs_f64() / (until - self.drawn).as_secs_f64();
        let to = RequestsPerSecond(from.get() + (to.get() - from.get()) * share);
        self.pieces.push(Piece { length: end - self.drawn, from, to, ..self.pen });
        self.drawn = end;
    }

    fn level(&mut self, until: Duration, rate: RequestsPerSecond) {
        self.draw(until, rate, rate);
    }
}

fn step(parameters: &mut Parameters<'_>, line: &mut Line) {
    let (low, high) = (parameters.rate("low", None), parameters.rate("high", None));
    let at = parameters.moment("at", None, line.duration);
    let before = parameters.problems.len();
    let until = parameters.span("until", Some(line.duration));
    if until <= at && parameters.problems.len() == before {
        let found = humantime::format_duration(until).to_string();
        parameters.problems.push(Problem::parameter("until", Fault::Value { name: "", found, expected: "a span longer than at" }));
    }
    line.level(at, low);
    line.level(until, high);
    line.level(line.duration, low);
}

fn ramp(parameters: &mut Parameters<'_>, line: &mut Line) {
    let (low, high) = (parameters.rate("low", None), parameters.rate("high", None));
    let at = parameters.moment("at", Some(Duration::ZERO), line.duration);
    let over = parameters.span("over", Some(line.duration.saturating_sub(at)));
    line.level(at, low);
    line.draw(at + over, low, high);
    line.level(line.duration, high);
}

fn diurnal(parameters: &mut Parameters<'_>, line: &mut Line, period: Duration) {
    let (low, high) = (parameters.rate("low", None), parameters.rate("high", None));
    let start = parameters.span("start", Some(Duration::ZERO));
    parameters.check_periods("period", period, line.duration);
    if !parameters.problems.is_empty() {
        return;
    }
    let wave = Shape::Wave { low, high, period, start };
    let mut knots = 0_u32;
    while line.drawn < line.duration {
        knots += 1;
        // From the knot's number, so that rounding to nanoseconds does not add up.
        let (turns, part) = (knots / PIECES_OF_A_WAVE, knots % PIECES_OF_A_WAVE);
        let until = period * turns + period * part / PIECES_OF_A_WAVE;
        line.draw(until, wave.rate_at(line.drawn), wave.rate_at(until));
    }
}

fn flash(parameters: &mut Parameters<'_>, line: &mut Line) {
    let (low, high) = (parameters.rate("low", None), parameters.rate("high", None));
    let at = parameters.moment("at", None, line.duration);
    let rise = parameters.span("rise", Some(Duration::from_secs(10)));
    let hold = parameters.span("hold", Some(Duration::from_secs(60)));
    let fall = parameters.span("fall", Some(Duration::from_secs(60)));
    line.level(at, low);
    line.draw(at + rise, low, high);
    line.level(at + rise + hold, high);
    line.draw(at + rise + hold + fall, high, low);
    line.level(line.duration, low);
}

fn length_shift(parameters: &mut Parameters<'_>, line: &mut Line) {
    let rate = parameters.rate("rate", None);
    let at = parameters.moment("at", None, line.duration);
    line.level(at, rate);
    line.pen.input.mean = parameters.tokens("isl_after", line.pen.input.mean);
    line.pen.output.mean = parameters.tokens("osl_after", line.pen.output.mean);
    line.level(line.duration, rate);
}

fn on_off(parameters: &mut Parameters<'_>, line: &mut Line) {
    let (high, low) = (parameters.rate("high", None), parameters.rate("low", Some(0.0)));
    let on = parameters.period("on", Duration::from_secs(60));
    let off = parameters.period("off", Duration::from_secs(60));
    parameters.check_periods("on", on + off, line.duration);
    if !parameters.problems.is_empty() {
        return;
    }
    while line.drawn < line.duration {
        line.level(line.drawn + on, high);
        line.level(line.drawn + off, low);
    }
}

/// The curve that a text names; its [`PREFIX`] may be left out.
///
/// # Errors
/// All problems: an unknown shape, or everything that is wrong with its parameters.
pub fn parse(text: &str) -> Result<Curve, Problems> {
    let text = text.strip_prefix(PREFIX).unwrap_or(text);
    let (name, rest) = text.split_once('?').unwrap_or((text, ""));
    if !NAMES.contains(&name) {
        return Err(Problem::whole(Fault::UnknownShape { found: name.to_owned() }).into());
    }
    let spread = Generation::default();
    let mut parameters = Parameters::new(rest);
    let before = parameters.problems.len();
    let period = if name == "diurnal" { parameters.period("period", Duration::from_secs(86_400)) } else { Duration::from_secs(1800) };
    let duration = parameters.period("duration", period);
    // Without a usable duration no moment is too late.
    let duration = if parameters.problems.len() == before { duration } else { MOST_SPAN };
    let input = parameters.tokens("isl", Tokens(1155.0));
    let output = parameters.tokens("osl", Tokens(211.0));
    let input = lengths(input, parameters.variation("isl_cv", spread.input_variation));
    let output = lengths(output, parameters.variation("osl_cv", spread.output_variation));
    let variation = parameters.variation("cv", Ratio(1.0));
    let none = RequestsPerSecond(0.0);
    let pen = Piece { length: Duration::ZERO, from: none, to: none, input, output, variation };
    let mut line = Line { duration, drawn: Duration::ZERO, pen, pieces: Vec::new() };
    match name {
        "steady" => {
            let rate = parameters.rate("rate", None);
            line.level(duration, rate);
        }
        "step" => step(&mut parameters, &mut line),
        "ramp" => ramp(&mut parameters, &mut line),
        "diurnal" => diurnal(&mut parameters, &mut line, period),
        "flash" => flash(&mut parameters, &mut line),
        "length-shift" => length_shift(&mut parameters, &mut line),
        // The last of the names.
        _ => on_off(&mut parameters, &mut line),
    }
    Problems::unless(parameters.problems(), Curve { pieces: line.pieces })
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
