//! How far is it, and how long will it take? A bar on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Characters of the bar.
const BAR: usize = 24;
/// Characters of a line: it must not wrap, or it could not be written over.
const LINE: usize = 100;

/// Where the work is shown.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    now: Mutex<Option<Step>>,
}

/// What is being done.
#[derive(Clone, Debug)]
struct Step {
    what: String,
    done: usize,
    all: usize,
    left: Duration,
    since: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), now: Mutex::new(None) }
    }
}

impl Progress {
    /// The next trial begins: `done` of `all` are done, and the rest will take about so long.
    pub fn step(&self, what: String, done: usize, all: usize, left: Duration) {
        let step = Step { what, done, all, left, since: Instant::now() };
        if self.terminal {
            *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
            self.redraw();
        } else {
            write(&format!("{}\n", line(&step, Duration::ZERO)));
        }
    }

    /// Lets the time left run down while a trial lasts.
    pub fn redraw(&self) {
        if let Some(step) = &*self.now.lock().unwrap_or_else(PoisonError::into_inner) {
            write(&format!("\r\x1b[K{}", line(step, step.since.elapsed())));
        }
    }

    /// A line for people that stays.
    pub fn say(&self, text: &str) {
        self.clear();
        write(&format!("{text}\n"));
        self.redraw();
    }

    /// Nothing is being done any more.
    pub fn end(&self) {
        self.clear();
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn clear(&self) {
        if self.terminal {
            write("\r\x1b[K");
        }
    }
}

fn write(text: &str) {
    // A terminal that is gone is nobody's loss.
    let _gone = std::io::stderr().write_all(text.as_bytes());
}

fn line(step: &Step, elapsed: Duration) -> String {
    let filled = (BAR * step.done).checked_div(step.all).map_or(BAR, |filled| filled.min(BAR));
    let bar = "█".repeat(filled) + &"░".repeat(BAR - filled);
    let text = format!("{bar} {:>3}/{}  {}  {}", step.done, step.all, step.what, remaining(step.left.saturating_sub(elapsed)));
    text.chars().take(LINE).collect()
}

fn remaining(left: Duration) -> String {
    match left.as_secs() {
        0..=5 => "a few seconds left".to_owned(),
        seconds @ 6..90 => format!("about {} s left", seconds.next_multiple_of(5)),
        seconds @ 90..5400 => format!("about {} min left", seconds.div_ceil(60)),
        seconds => format!("about {:.1} h left", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_share_and_the_time_left_and_never_wraps() {
        let step = |done| Step {
            what: "prompt of 2048 tokens, 2 of 3".to_owned(),
            done,
            all: 48,
            left: Duration::from_secs(300),
            since: Instant::now(),
        };
        let shown = line(&step(24), Duration::from_secs(200));
        assert_eq!(shown, "████████████░░░░░░░░░░░░  24/48  prompt of 2048 tokens, 2 of 3  about 2 min left");
        assert!(line(&Step { what: "x".repeat(500), ..step(60) }, Duration::ZERO).chars().count() <= LINE);
        assert!(line(&Step { all: 0, ..step(0) }, Duration::MAX).contains("a few seconds left"));
    }
}
