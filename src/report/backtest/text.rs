//! How does a comparison read in a terminal? One line a policy.

use super::rows::{COLUMNS, HEADERS, notes, rows};
use crate::simulator::backtest::comparison::Comparison;

/// One line for each outcome. Pairs such as 3+4 are prefill and decode.
pub fn text(comparison: &Comparison) -> String {
    let mut lines: Vec<[String; COLUMNS]> = vec![HEADERS.map(str::to_owned)];
    lines.extend(rows(comparison));
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| lines.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    lines.iter().map(line).collect::<String>() + &notes(comparison).into_iter().map(|note| note + "\n").collect::<String>()
}
