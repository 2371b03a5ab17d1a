//! How many replicas does each pool need? THE CORE. Pure.

pub mod input;
pub mod model;
pub mod plan;
