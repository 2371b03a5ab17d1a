//! What will the next window bring? One file per predictor: observation history in, next window out.
//!
//! | file | question |
//! |---|---|
//! | `next` | what the next window of a model brings, given the one that has just ended |
//! | `traffic` | requests and lengths of the next window, from those of the windows so far; warm-up from a trace |
//! | `series` | one of these three numbers: cleaning, fall-back to the last value, choice among methods |
//! | `constant`, `kalman`, `arima`, `prophet` | the methods |
//! | `score` | how far off was each lately? |
//! | `kpss`, `arma`, `least_squares` | parts of `arima` |
//!
//! Everything is a function of what was observed: no clock, no randomness. What is remembered is plain data that survives a restart.

pub mod arima;
mod arma;
mod constant;
pub mod kalman;
mod kpss;
mod least_squares;
pub mod level;
pub mod next;
mod prophet;
pub mod score;
mod series;
#[cfg(test)]
mod tests;
pub mod traffic;

use series::History;
pub use series::{Choice, Fallback, Forecast, Method, Series, Settings};
