//! placeholder
pub mod exposition;
pub mod units;
