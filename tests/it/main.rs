//! The one integration test binary.

mod config;
mod export;
mod exposition;
mod fake;
mod plan_cli;
mod scrape;
mod server;
mod service;
mod simulator;
mod state;
