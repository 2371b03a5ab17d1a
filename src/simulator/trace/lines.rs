//! Which lines of a text hold something?

/// Lines with their number from 1, without line ends, a byte order mark, blank lines and comments (`#`).
pub(super) fn filled(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let blank = |line: &str| line.trim_start().is_empty() || line.trim_start().starts_with('#');
    (1..).zip(text.lines()).filter(move |(_, line)| !blank(line))
}

/// A parser's complaint about one line, without the line number that it cannot know.
pub(super) fn complaint(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((reason, _)) => format!("{reason} at column {}", error.column()),
        None => text,
    }
}
