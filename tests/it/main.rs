//! The one integration test binary.

mod export;
mod exposition;
mod fake;
mod scrape;
mod server;
mod simulator;
