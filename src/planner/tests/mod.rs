//! Scenarios, goldens and properties of the planner.

mod goldens;
mod properties;
mod scenarios;
pub(in crate::planner) mod world;
