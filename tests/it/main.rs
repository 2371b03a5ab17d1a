//! The one integration test binary.
mod simulator;
