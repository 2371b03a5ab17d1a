//! Which dialect does a target speak? One of those that are known here, or the operator's own.

use std::sync::Arc;

use super::custom::Custom;
use super::{Engine, Reading};
use crate::exposition::Page;
use crate::planner::input::Gauge;

/// A dialect that was chosen.
#[derive(Clone, Debug)]
pub enum Dialect {
    /// One of the table.
    Known(&'static Engine),
    /// One from the configuration.
    Custom(Arc<Custom>),
}

impl Dialect {
    /// Its name in configuration and labels.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Known(engine) => engine.name,
            Self::Custom(_) => Custom::NAME,
        }
    }

    /// The families that it reads.
    pub fn family_names(&self) -> Vec<&str> {
        match self {
            Self::Known(engine) => engine.family_names().collect(),
            Self::Custom(custom) => custom.metrics.iter().map(|metric| metric.name.as_str()).collect(),
        }
    }

    /// Whether its pages may have the gauge.
    pub fn tells(&self, gauge: Gauge) -> bool {
        match self {
            Self::Known(engine) => engine.tells(gauge),
            Self::Custom(custom) => custom.tells(gauge),
        }
    }

    /// Whether its pages say how many replicas of each role are ready.
    pub fn counts_replicas(&self) -> bool {
        match self {
            Self::Known(engine) => engine.counts_replicas,
            Self::Custom(custom) => custom.counts_replicas(),
        }
    }

    /// The page in the planner's terms.
    pub fn read(&self, page: &Page<'_>) -> Reading {
        match self {
            Self::Known(engine) => (engine.read)(page),
            Self::Custom(custom) => custom.read(page),
        }
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(one), Self::Known(other)) => one.name == other.name,
            (Self::Custom(one), Self::Custom(other)) => one == other,
            _ => false,
        }
    }
}
