//! What came of a backtest? For terminals and as a page with plots over time.

mod html;
mod text;

pub use html::html;
pub use text::text;
