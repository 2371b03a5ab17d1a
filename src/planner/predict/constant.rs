//! What will the next window bring, if nothing changes? The same as the last one: persistence (seed 000, "Operational limits").
//!
//! It needs no history, has no parameter that can be wrong, and is hard to beat over one interval of a smooth day. It lags by one window on
//! every rise; the queue budget pays for that lag after the fact.
//!
//! Known limit: of noise it repeats every stroke. Where windows swing about a level, a mean of a few of them errs by a third less.

use super::History;

/// The next value of one series: its last.
pub(super) fn forecast(history: &History) -> Option<f64> {
    history.values().last().copied()
}
