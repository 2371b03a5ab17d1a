//! What will the next window of a model bring, after the one that has just ended? The observed window, moved on by the predictor.
//!
//! The predictor is fed the demand of the whole fleet (silent targets at their last or the average load) as requests of a window of nominal
//! length. Its forecast over what it was fed is one factor, by which both demands of the window are multiplied, that which the data support
//! and the cautious one: so a silent target never reads as falling traffic, and with predictor constant the factor is exactly 1.
//!
//! | | requests in 180 s | supported | cautious | forecast | factor | planned for |
//! |---|---|---|---|---|---|---|
//! | all answer | 540 | 3.0/s | 3.0/s | 600 | 1.111 | 3.33/s |
//! | one of three is silent | 540 | 2.0/s | 3.0/s | 600 | 1.111 | 2.22/s, cautious 3.33/s |
//!
//! Fed are whole windows that describe at least half of the fleet, and idle ones. A short first window, or one that could not be read, is
//! no window of the series. Where a window was not fed, it is planned for as it was.

use crate::planner::memory::Memory;
use crate::planner::observe::{COVERAGE_TO_RAISE, Window, slot_of};
use crate::planner::plan::Prediction;
use crate::planner::policy::ModelPolicy;
use crate::units::{Moment, Requests, RequestsPerSecond, Tokens};

use super::traffic::{Outlook, Predictor, Traffic};

/// What a window says of the next one, and how that was found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Next {
    /// `None` where nothing is expected, or of unknown lengths.
    pub prediction: Option<Prediction>,
    /// The predictor's forecasts; `None` where the window was not fed to it.
    pub outlook: Option<Outlook>,
    /// Forecast over what the window brought; 1 where it was not forecast.
    pub factor: f64,
}

/// Takes a window in, and answers with the next one. Without a predictor the next is as the last.
pub fn next(memory: &mut Memory, policy: &ModelPolicy, window: &Window, whole: bool, now: Moment) -> Next {
    let seen = repeat(window);
    let fed = traffic_of(window, policy).filter(|_| whole && window.least_coverage().get() >= COVERAGE_TO_RAISE);
    let (Some(fed), Some(wanted)) = (fed, &policy.predictor) else { return Next { prediction: seen, outlook: None, factor: 1.0 } };
    let predictor = memory.traffic.get_or_insert_with(|| {
        let mut fresh = Predictor::new(wanted.settings);
        fresh.warm_up(&wanted.history);
        fresh
    });
    predictor.adopt(wanted.settings);
    predictor.observe_window(&fed, slot_of(now, policy.interval));
    let outlook = predictor.forecast();
    memory.traffic_at = Some(now.wall);
    let (expected, brought) = (outlook.requests.value, fed.requests.get());
    let factor = if expected == brought || brought == 0.0 { 1.0 } else { expected / brought };
    Next { prediction: moved(seen, &outlook, factor, policy), outlook: Some(outlook), factor }
}

/// What the predictor is fed. `None` where requests were served whose lengths nobody recorded: then their number is not known either.
fn traffic_of(window: &Window, policy: &ModelPolicy) -> Option<Traffic> {
    let requests = window.cautious.get() * policy.interval.as_secs_f64();
    let lengths = |tokens: Option<Tokens>| tokens.filter(|tokens| is_positive(tokens.get()));
    let (input_tokens, output_tokens) = (lengths(window.observation.input_tokens), lengths(window.observation.output_tokens));
    let known = if requests > 0.0 { input_tokens.is_some() && output_tokens.is_some() } else { window.finished == 0.0 };
    (requests.is_finite() && known).then_some(Traffic { requests: Requests(requests), input_tokens, output_tokens })
}

/// The window itself, or `None` where it has no request or no lengths.
fn repeat(window: &Window) -> Option<Prediction> {
    let observation = &window.observation;
    let input_tokens = observation.input_tokens.filter(|tokens| is_positive(tokens.get()))?;
    let output_tokens = observation.output_tokens.filter(|tokens| is_positive(tokens.get()))?;
    (is_positive(window.supported.get()) && is_positive(window.cautious.get())).then_some(Prediction {
        requests_per_second: window.supported,
        estimated_requests_per_second: window.cautious,
        input_tokens,
        output_tokens,
    })
}

/// The next window: the last one moved on; after an idle one what is forecast, of the lengths that are remembered.
fn moved(seen: Option<Prediction>, outlook: &Outlook, factor: f64, policy: &ModelPolicy) -> Option<Prediction> {
    let (input_tokens, output_tokens) = (Tokens(outlook.input_tokens.value), Tokens(outlook.output_tokens.value));
    let rate = RequestsPerSecond(outlook.requests.value / policy.interval.as_secs_f64());
    let (supported, cautious) = match seen {
        Some(seen) => (
            RequestsPerSecond(seen.requests_per_second.get() * factor),
            RequestsPerSecond(seen.estimated_requests_per_second.get() * factor),
        ),
        None => (rate, rate),
    };
    let usable = [input_tokens.get(), output_tokens.get()].into_iter().all(is_positive) && cautious.get().is_finite();
    (usable && (seen.is_some() || is_positive(rate.get()))).then_some(Prediction {
        requests_per_second: supported,
        estimated_requests_per_second: cautious,
        input_tokens,
        output_tokens,
    })
}

fn is_positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}
