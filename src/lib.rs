//! placeholder

pub mod cli {
    pub mod demo;
}
pub mod config;
pub mod engines;
pub mod export;
pub mod exposition;
pub mod planner;
pub mod report;
pub mod scrape;
pub mod server;
pub mod simulator;
pub mod state;
pub mod units;
