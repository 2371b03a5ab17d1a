//! The one integration test binary.

mod export;
mod server;
