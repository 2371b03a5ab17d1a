//! How do we show plans to people and programs? Plans as JSON, as HTML and as text; backtests as text and HTML. Pure.

pub mod backtest;
pub mod explain;
pub mod html;
pub mod notes;
pub mod plans;
pub mod plot;
mod queueing;
pub mod text;
