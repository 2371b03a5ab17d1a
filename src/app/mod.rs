//! How does it all run? The composition root and the tick.

pub mod exporter;
pub mod tally;
