//! How does text become HTML that cannot break out of its place? Escaping, and tables made of escaped cells.

use std::fmt::{self, Display, Write};

/// Text with the characters that mean something in HTML replaced, for element content and quoted attributes.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T>(pub T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaper(f), "{}", self.0)
    }
}

struct Escaper<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for Escaper<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.write_str("&amp;")?,
                '<' => self.0.write_str("&lt;")?,
                '>' => self.0.write_str("&gt;")?,
                '"' => self.0.write_str("&quot;")?,
                '\'' => self.0.write_str("&#39;")?,
                other => self.0.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// A cell of [`records`]. It can only be made of escaped text.
#[derive(Clone, Debug)]
pub struct Cell {
    html: String,
    class: &'static str,
}

impl Cell {
    /// Text.
    pub fn text(text: impl Display) -> Self {
        Self { html: Escaped(text).to_string(), class: "" }
    }

    /// Text, or a dash where it is not known.
    pub fn known<T: Display>(value: Option<T>) -> Self {
        Self::text(known(value))
    }

    /// A number, at the right edge; a dash where it is not known.
    pub fn number<T: Display>(value: Option<T>) -> Self {
        Self { html: Escaped(known(value)).to_string(), class: " class=\"number\"" }
    }

    /// Text that leads to a path of ours with this query.
    pub fn link(path: &str, text: impl Display) -> Self {
        Self { html: format!("<a href=\"{}\">{}</a>", Escaped(path), Escaped(text)), class: "" }
    }

    /// A word in a colour of the stylesheet, and a sentence.
    pub fn word(class: &'static str, word: impl Display, sentence: impl Display) -> Self {
        Self { html: format!("<span><b class=\"reason {class}\">{}</b> {}</span>", Escaped(word), Escaped(sentence)), class: "" }
    }
}

/// A table of things with the same facts. Where it is too narrow for a table, each thing becomes a list of its facts.
pub fn records(header: &[&str], rows: &[Vec<Cell>]) -> String {
    let mut html = String::from("<div class=\"scroll\"><table class=\"records\">\n<tr>");
    let numbers = |column: usize| rows.iter().filter_map(|row| row.get(column)).any(|cell| !cell.class.is_empty());
    for (column, name) in header.iter().enumerate() {
        let class = if numbers(column) { " class=\"number\"" } else { "" };
        let _ = write!(html, "<th{class}>{}</th>", Escaped(name));
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for (cell, name) in row.iter().zip(header) {
            let _ = write!(html, "<td data-label=\"{}\"{}>{}</td>", Escaped(name), cell.class, cell.html);
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html
}

/// A table with a header row; every cell is escaped here.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    framed("<table>", header, rows)
}

/// Quantities with their formulas and results; on a phone each formula stands below its quantity.
pub fn sums(rows: &[Vec<String>]) -> String {
    framed("<table class=\"sums\">", &["quantity", "formula and numbers", "result"], rows)
}

fn framed(opening: &str, header: &[&str], rows: &[Vec<String>]) -> String {
    let mut html = format!("<div class=\"scroll\">{opening}\n<tr>");
    for cell in header {
        let _ = write!(html, "<th>{}</th>", Escaped(cell));
    }
    html.push_str("</tr>\n");
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", Escaped(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html
}

/// A value for people, or a dash where it is not known.
pub fn known<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// A number that others are computed from: six significant digits, no trailing zeros.
pub fn number(value: f64) -> String {
    digits(value, 6)
}

/// A number to look at: three significant digits, more only before the point.
pub fn brief(value: f64) -> String {
    digits(value, 3)
}

fn digits(value: f64, digits: i32) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // Digits before the point of a number that is not zero: its magnitude is far inside i32.
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = usize::try_from(digits - 1 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A latency for people, in milliseconds.
pub fn millis(seconds: f64) -> String {
    format!("{} ms", number(seconds * 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_stays_text() {
        assert_eq!(Escaped("<b a=\"x\" c='y'>&").to_string(), "&lt;b a=&quot;x&quot; c=&#39;y&#39;&gt;&amp;");
        assert!(table(&["<h>"], &[vec!["<script>".to_owned()]]).contains("<th>&lt;h&gt;</th></tr>\n<tr><td>&lt;script&gt;</td>"));
    }

    #[test]
    fn numbers_keep_six_digits() {
        for (value, text) in
            [(0.0, "0"), (612.0, "612"), (3.485_133_75, "3.48513"), (0.1, "0.1"), (6963.2, "6963.2"), (1e9, "1000000000"), (f64::NAN, "–")]
        {
            assert_eq!(number(value), text);
        }
        for (value, text) in [(1933.99, "1934"), (12.4324, "12.4"), (0.984_478, "0.984"), (100.0, "100")] {
            assert_eq!(brief(value), text);
        }
    }
}
