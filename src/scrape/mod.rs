//! Which targets are there, and how did each answer in this round? Discovery, the HTTP client and one round over all targets.
//!
//! Every target ends as a reading or as a typed failure, and none can spoil another's: each has its own deadline, its own task, its own
//! limit on the size of the body, and a bounded share of the memory for bodies.
//!
//! Reading order: `discover` (which targets there are), `report` (what comes out), `round` (who is scraped when), `client` (one request), `plain` (the same without TLS), `access` (its credentials), `resolve` (names), `body` (collecting
//! and inflating), `budget` (memory of all bodies together), `memories` (what the last pages spare the next ones), `lower` (the page in the planner's terms), `failure` (errors in words),
//! `query` (asking a Prometheus instead of the targets).

mod access;
mod body;
mod budget;
mod client;
pub mod discover;
mod failure;
pub mod lower;
mod memories;
mod plain;
pub mod query;
pub mod report;
mod resolve;
mod round;

pub use client::SetupError;
pub use round::{Job, Scraper};
