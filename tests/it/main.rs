//! The one integration test binary.

mod config;
mod engines;
mod export;
mod exposition;
mod fake;
mod scrape;
mod server;
mod simulator;
mod state;
mod tidy;
