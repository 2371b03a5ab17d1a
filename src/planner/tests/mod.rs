//! Scenarios, goldens and properties of the planner.
