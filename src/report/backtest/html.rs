//! How does a comparison look? A page that needs nothing but itself.

use crate::report::html::Escaped;
use crate::simulator::backtest::comparison::Comparison;

/// The whole page.
pub fn html(comparison: &Comparison) -> String {
    format!("<!doctype html>\n<title>{}</title>\n<pre>{}</pre>\n", Escaped(&comparison.trace.name), Escaped(super::text(comparison)))
}
