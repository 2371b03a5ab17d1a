//! How does a comparison read in a terminal? One line a policy.

use super::rows::{COLUMNS, HEADERS, LEGEND, notes, rows};
use crate::report::text::printable;
use crate::simulator::backtest::comparison::Comparison;

/// One line for each outcome, then what else is to be known, then what the columns mean.
pub fn text(comparison: &Comparison) -> String {
    let mut lines: Vec<[String; COLUMNS]> = vec![HEADERS.map(str::to_owned)];
    lines.extend(rows(comparison).into_iter().map(|row| row.map(|cell| printable(&cell))));
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| lines.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let notes = notes(comparison).into_iter().chain(LEGEND.map(str::to_owned)).map(|note| note + "\n");
    lines.iter().map(line).chain(notes).collect()
}
