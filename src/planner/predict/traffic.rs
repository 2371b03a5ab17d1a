//! How many requests of which lengths will the next window bring? Three series and what an idle window means for them.
//!
//! A window without requests has no lengths. It counts as 0 requests of the last known lengths: zeros would teach the length models
//! that prompts have become short, and the first window after a pause would be planned for nothing.
//!
//! A window that could not be read is not an idle one. It must not be fed at all; the next one then follows the one before.
//!
//! Requests are those of a window of nominal length (rate times interval), so that a window cut short by a missed scrape does not look like
//! less traffic.
//!
//! Warm-up: [`windows`] cuts a recorded trace into windows, and [`Predictor::warm_up`] takes them in as if they had been observed. Requests
//! of a trace of other traffic mislead: arima forgets them after 200 windows, the others sooner. Zeros before the first live request are
//! dropped.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Fallback, Forecast, Method, Series, Settings};
use crate::units::{Requests, Tokens};

/// What one window brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests of a window of nominal length.
    pub requests: Requests,
    /// Mean prompt length; `None` without requests, or where nobody measures it.
    pub input_tokens: Option<Tokens>,
    /// Mean generated length; `None` as above.
    pub output_tokens: Option<Tokens>,
}

/// What the next window is expected to bring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outlook {
    /// Requests in a window.
    pub requests: Forecast,
    /// Mean prompt length in tokens. The value is 0 with a reason before a length was seen.
    pub input_tokens: Forecast,
    /// Mean generated length in tokens; as above.
    pub output_tokens: Forecast,
}

/// One predictor with its memory: a series each for requests, prompt and generated lengths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predictor {
    requests: Series,
    input_tokens: Series,
    output_tokens: Series,
}

impl Predictor {
    /// A predictor that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        let series = Series::new(settings);
        Self { requests: series.clone(), input_tokens: series.clone(), output_tokens: series }
    }

    /// Takes in the window after the last one. Forecasts made before are scored against it.
    pub fn observe(&mut self, window: &Traffic) {
        self.observe_window(window, self.requests.next_window());
    }

    /// Takes in a window that was really read, the `number`th of its length since the Unix epoch.
    pub fn observe_window(&mut self, window: &Traffic, number: u64) {
        self.requests.observe_window(window.requests.get(), number);
        self.input_tokens.observe_length(window.input_tokens, number);
        self.output_tokens.observe_length(window.output_tokens, number);
    }

    /// Whether such windows can have been observed.
    pub fn is_sound(&self) -> bool {
        [&self.requests, &self.input_tokens, &self.output_tokens].into_iter().all(Series::is_sound)
    }

    /// Takes in a history, such as a recorded trace. Live traffic begins with the first request after it.
    pub fn warm_up(&mut self, history: &[Traffic]) {
        history.iter().for_each(|window| self.observe(window));
        for series in [&mut self.requests, &mut self.input_tokens, &mut self.output_tokens] {
            series.await_traffic();
        }
    }

    /// The next window.
    pub fn forecast(&self) -> Outlook {
        Outlook {
            requests: self.requests.forecast(),
            input_tokens: self.input_tokens.forecast_length(),
            output_tokens: self.output_tokens.forecast_length(),
        }
    }

    /// Recent one-step error over the mean, of requests, by method; absent where nothing was tested yet.
    pub fn errors(&self) -> BTreeMap<Method, f64> {
        self.requests.scores().filter_map(|(method, score)| Some((method, score.ratio()?))).collect()
    }

    /// Goes on under other settings with what is remembered.
    pub fn adopt(&mut self, settings: Settings) {
        for series in [&mut self.requests, &mut self.input_tokens, &mut self.output_tokens] {
            series.adopt(settings);
        }
    }
}

impl Series {
    /// An idle window repeats the last length; before the first length there is nothing to repeat.
    fn observe_length(&mut self, tokens: Option<Tokens>, window: u64) {
        let known = tokens.map(Tokens::get).filter(|tokens| tokens.is_finite() && *tokens > 0.0);
        if let Some(length) = known.or_else(|| self.last()) {
            self.observe_window(length, window);
        }
    }

    /// No request is of no length, whatever a trend says.
    fn forecast_length(&self) -> Forecast {
        let forecast = self.forecast();
        match self.last() {
            Some(last) if forecast.value <= 0.0 => Forecast { value: last, fallback: Some(Fallback::BelowZero), ..forecast },
            _ => forecast,
        }
    }
}

/// A trace cut into windows that begin with its first request: (arrival, prompt tokens, generated tokens) in the order of arrival. Windows
/// without requests are part of it, the last window, which the trace cuts off, is not.
pub fn windows(requests: impl IntoIterator<Item = (Duration, Tokens, Tokens)>, interval: Duration) -> Vec<Traffic> {
    let (mut found, mut begin): (Vec<Traffic>, Option<Duration>) = (Vec::new(), None);
    let (mut count, mut input, mut output) = (0.0, 0.0, 0.0);
    let close = |count: f64, input: f64, output: f64| {
        let mean = |sum: f64| (count > 0.0).then(|| Tokens(sum / count));
        Traffic { requests: Requests(count), input_tokens: mean(input), output_tokens: mean(output) }
    };
    if interval.is_zero() {
        return found;
    }
    for (at, prompt, generated) in requests {
        let mut from = *begin.get_or_insert(at);
        while at >= from + interval {
            found.push(close(count, input, output));
            (count, input, output) = (0.0, 0.0, 0.0);
            from += interval;
        }
        begin = Some(from);
        (count, input, output) = (count + 1.0, input + prompt.get(), output + generated.get());
    }
    found
}
