//! The one integration test binary.

mod export;
mod exposition;
mod server;
mod simulator;
