//! The one integration test binary.

mod engines;
mod export;
mod exposition;
mod fake;
mod scrape;
mod server;
mod simulator;
