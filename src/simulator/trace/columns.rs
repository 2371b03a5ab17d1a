//! What stands in the columns of a comma-separated text with a header?
//!
//! Columns come in any order, further ones are ignored, names ignore case. Quotes have no meaning: none of the formats has text in its columns.

use std::str::FromStr;

use super::lines;
use super::problem::{Fault, MOST_PROBLEMS, Problem, Problems};

/// A column that a reader wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// Its name in the header.
    pub name: &'static str,
    /// Whether a text without it is unusable.
    pub required: bool,
}

/// The wanted fields of one line, in the order in which the reader named the columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a, const N: usize> {
    columns: &'a [Column; N],
    fields: [Option<&'a str>; N],
}

impl<'a, const N: usize> Row<'a, N> {
    /// `None` if the text has no such column.
    pub fn text(&self, column: usize) -> Option<&'a str> {
        self.fields[column]
    }

    /// A value that satisfies `legal`, or `default` where the text has no such column.
    pub fn value<T: FromStr>(&self, column: usize, default: T, expected: &'static str, legal: impl Fn(&T) -> bool) -> Result<T, Fault> {
        let Some(found) = self.text(column) else { return Ok(default) };
        found.parse().ok().filter(legal).ok_or_else(|| self.refused(column, expected))
    }

    /// That the field cannot be used.
    pub fn refused(&self, column: usize, expected: &'static str) -> Fault {
        Fault::Value { name: self.columns[column].name, found: self.text(column).unwrap_or_default().to_owned(), expected }
    }
}

/// Gives every line after the header to `each`, with its number, and gathers what `each` finds wrong.
///
/// # Errors
/// All problems, or as many as are kept. If the header lacks a column, no line is read.
pub(super) fn read<'a, const N: usize>(
    text: &'a str,
    columns: &'a [Column; N],
    mut each: impl FnMut(usize, &Row<'a, N>) -> Result<(), Vec<Fault>>,
) -> Result<(), Problems> {
    let mut lines = lines::filled(text);
    let Some((number, header)) = lines.next() else { return Err(Problem::whole(Fault::Empty).into()) };
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    let positions = columns.map(|column| names.iter().position(|name| name.eq_ignore_ascii_case(column.name)));
    let lacking = columns.iter().zip(positions).filter(|(column, position)| column.required && position.is_none());
    let lacking = lacking.map(|(column, _)| Problem::line(number, Fault::NoColumn { column: column.name })).collect();
    Problems::unless(lacking, ())?;

    // Which wanted column stands at a position of the line.
    let mut wanted: Vec<Option<usize>> = vec![None; names.len()];
    for (column, position) in positions.into_iter().enumerate() {
        if let Some(position) = position {
            wanted[position] = Some(column);
        }
    }
    let mut problems = Vec::new();
    for (number, line) in lines {
        let mut fields = [None; N];
        for (field, column) in line.split(',').zip(&wanted) {
            if let Some(column) = column {
                fields[*column] = Some(field.trim());
            }
        }
        // One fault is enough for a line that is cut off.
        let cut = (0..N).find(|&column| positions[column].is_some() && fields[column].is_none());
        let faults = match cut {
            Some(column) => vec![Fault::NoField { column: columns[column].name }],
            None => each(number, &Row { columns, fields }).err().unwrap_or_default(),
        };
        problems.extend(faults.into_iter().map(|fault| Problem::line(number, fault)));
        if problems.len() >= MOST_PROBLEMS {
            break;
        }
    }
    Problems::unless(problems, ())
}
