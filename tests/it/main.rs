//! The one integration test binary.

mod exposition;
mod fake;
mod scrape;
mod state;
