//! What will the next window bring, if nothing changes? The same as the last one: persistence (seed 000, "Operational limits").
//!
//! It needs no history, has no parameter that can be wrong, and is hard to beat over one interval of a smooth day. It lags by one window on
//! every rise; the queue budget pays for that lag after the fact.
//!
//! Known limit: of noise it repeats every stroke. Where windows swing about a level, a mean of a few of them errs by a third less.

use super::History;
use crate::planner::observe::Window;
use crate::planner::plan::Prediction;

/// The next window, or `None` where the last one has no request or no lengths.
pub fn predict(window: &Window) -> Option<Prediction> {
    let observation = &window.observation;
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let input_tokens = observation.input_tokens.filter(|tokens| positive(tokens.get()))?;
    let output_tokens = observation.output_tokens.filter(|tokens| positive(tokens.get()))?;
    (positive(window.supported.get()) && positive(window.cautious.get())).then_some(Prediction {
        requests_per_second: window.supported,
        estimated_requests_per_second: window.cautious,
        input_tokens,
        output_tokens,
    })
}

/// The next value of one series: its last.
pub(super) fn forecast(history: &History) -> Option<f64> {
    history.values().last().copied()
}
