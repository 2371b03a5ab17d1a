//! How do we show plans to people and programs? Plans as JSON, as HTML and as text; backtests as text and HTML. Pure.

pub mod backtest;
pub mod decisions;
pub mod explain;
mod forecast;
pub mod html;
pub mod past;
pub mod plans;
pub mod plot;
mod queueing;
mod sla;
pub mod text;
pub mod verdict;
