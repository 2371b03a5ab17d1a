//! What becomes of each Dynamo field, in words? The table of `README.md`, made from the table of fields.

use std::fmt::Write as _;

use super::fields::{FIELDS, Fate, Kind};
use super::read;

/// The table.
pub(in crate::config) fn table() -> String {
    let mut page =
        "| Dynamo's field | other names | value | its default | here | where it becomes no key, and why |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for field in FIELDS.iter().filter(|field| !matches!(field.kind, Kind::Section)) {
        let (key, remark) = match field.fate {
            Fate::Key(key, unused) => (full(key), unused),
            Fate::Nothing(reason) => ("none".to_owned(), reason),
        };
        let aliases: Vec<String> = field.aliases.iter().map(|name| format!("`{name}`")).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | `{}` | {key} | {remark} |",
            field.name,
            aliases.join(", "),
            read::expected(field),
            field.default
        );
    }
    page
}

/// The path of a key that stands in a model unless it says otherwise.
fn full(key: &str) -> String {
    let outside = ["scrape.", "server.", "report."].iter().any(|section| key.starts_with(section));
    if outside { format!("`{key}`") } else { format!("`models[].{key}`") }
}
