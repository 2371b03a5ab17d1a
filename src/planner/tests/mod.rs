//! Scenarios, goldens and properties of the planner.

mod budgets;
mod churn;
pub(in crate::planner) mod dynamo;
mod forecasts;
mod goldens;
mod inputs;
mod lifecycle;
mod load;
mod properties;
mod queueing;
mod scenarios;
mod serving;
mod silence;
mod sla;
pub(in crate::planner) mod world;
