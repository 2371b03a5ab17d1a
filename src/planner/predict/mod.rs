//! What will the next window bring? One file per predictor: observation history in, next window out.

pub mod constant;
