//! Scenarios, goldens and properties of the planner.

mod auto;
mod auto_faults;
mod boundaries;
mod budgets;
pub(in crate::planner) mod chance;
mod churn;
pub(in crate::planner) mod dynamo;
mod fleet;
mod forecasts;
mod full_batches;
mod goldens;
mod inputs;
mod lifecycle;
mod load;
mod partial_pages;
mod properties;
mod queueing;
mod scenarios;
mod serving;
mod silence;
mod sla;
mod whole_requests;
pub(in crate::planner) mod world;
