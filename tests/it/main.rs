//! The one integration test binary.

mod access;
mod agreement;
mod autoscaler;
mod backtest_cli;
#[cfg(feature = "real-programs")]
mod browser;
#[cfg(feature = "real-programs")]
mod chart;
mod config;
mod config_auto;
mod config_files;
mod config_wva;
mod container;
mod dashboards;
mod decisions;
mod demo;
mod discovery;
mod documents;
mod dynamo;
mod engine_custom;
mod engine_pages;
mod engines;
mod export;
mod exposition;
mod exposition_ahead;
mod exposition_memory;
mod fake;
mod followers;
mod fuzz;
mod learning;
#[allow(dead_code)]
mod nameserver;
mod openai;
mod plan_cli;
mod profile;
#[cfg(feature = "real-programs")]
mod prometheus;
mod promql;
mod queried;
mod queueing_shown;
mod scrape;
mod server;
mod service;
mod shipped;
mod simulator;
mod simulator_fit;
mod simulator_naive;
mod simulator_pages;
mod soak;
mod state;
mod status_page;
mod tidy;
mod virtual_time;
mod web;
