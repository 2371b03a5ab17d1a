//! What came of a backtest? For terminals and as a page with plots over time.

mod charts;
mod decisions;
mod html;
mod rows;
mod text;

#[cfg(test)]
mod tests;

pub use html::html;
pub use text::text;
