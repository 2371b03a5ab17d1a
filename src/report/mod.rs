//! How do we show plans to people and programs? Plans as JSON and as HTML. Pure.

pub mod explain;
pub mod html;
pub mod plans;
