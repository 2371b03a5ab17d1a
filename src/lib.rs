//! placeholder
pub mod units;
pub mod exposition;
