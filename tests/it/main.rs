//! The one integration test binary.
mod exposition;
mod simulator;
