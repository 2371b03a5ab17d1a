//! The one integration test binary.
mod exposition;
