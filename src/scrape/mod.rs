//! How did each target answer in this round? The HTTP client and one round over all targets.

pub mod report;
