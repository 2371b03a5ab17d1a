//! How do we show plans to people and programs? Plans as JSON, as HTML and as text; backtests as text and HTML; profiles as text. Pure.

mod auto;
pub mod backtest;
pub mod decisions;
pub mod explain;
mod forecast;
pub mod html;
pub mod notes;
pub mod past;
pub mod plans;
pub mod plot;
pub mod profile;
mod queueing;
mod sla;
pub mod text;
pub mod verdict;
