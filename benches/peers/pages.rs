//! What do the simulated servers show? A recorded vLLM page, grown to 100 kB by a second engine, whose counts rise with every tick.

use std::fmt::Write;

const RECORDED: &str = include_str!("../../tests/fixtures/pages/vllm-0.33-scrape1.prom");
/// The page is grown to this size.
const BYTES: usize = 100_000;
/// Ticks in which every count rises by as much as it was recorded at.
const TICKS: f64 = 240.0;

/// The page as it stands before the first tick.
pub fn page() -> String {
    let mut text = String::new();
    let mut surplus = BYTES - RECORDED.len();
    let mut block = String::new();
    for line in RECORDED.lines().chain(["# end"]) {
        if line.starts_with('#') {
            // The second engine's series stand behind the first one's.
            text.push_str(&block);
            surplus = surplus.saturating_sub(block.len());
            block.clear();
        } else if line.contains("engine=\"0\"") && surplus > 0 {
            let _ = writeln!(block, "{}", line.replace("engine=\"0\"", "engine=\"1\""));
        }
        if line != "# end" {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// A page whose counts move.
pub struct Moving {
    /// What stands before a value, the value, and whether it moves and is whole.
    lines: Vec<(String, Option<(f64, bool)>)>,
}

impl Moving {
    /// The page of [`page`].
    pub fn new() -> Self {
        let counts = |series: &str| {
            let name = series.split('{').next().unwrap_or_default();
            ["_total", "_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix))
        };
        let line = |line: &str| match line.rsplit_once(' ') {
            Some((series, value)) if !line.starts_with('#') && counts(series) => {
                let value: f64 = value.parse().expect("a number");
                (series.to_owned(), Some((value, value.fract() == 0.0)))
            }
            _ => (line.to_owned(), None),
        };
        Self { lines: page().lines().map(line).collect() }
    }

    /// The page after so many ticks.
    pub fn at(&self, tick: u64) -> String {
        let factor = 1.0 + tick as f64 / TICKS;
        let mut text = String::with_capacity(BYTES + BYTES / 8);
        for (line, value) in &self.lines {
            text.push_str(line);
            match value {
                Some((base, true)) => drop(writeln!(text, " {:?}", (base * factor).floor())),
                Some((base, false)) => drop(writeln!(text, " {:?}", base * factor)),
                None => text.push('\n'),
            }
        }
        text
    }
}
