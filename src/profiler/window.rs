//! What did the streams of a batch do while all of them ran? The steady window, and the numbers of a generation cell. Pure.
//!
//! Streams of a batch start one after another, as fast as the server prefills, and they end one after another. Only between the last start
//! and the first end are all of them decoding: that is the window, and nothing outside it counts. Within it, each stream's spacing is taken
//! between its own tokens, so that nobody's token is cut in half at the edges:
//!
//! - spacing of a stream = (time of its last token in the window - time of its first) / tokens between them;
//! - ITL of the batch = mean spacing; throughput = sum of the streams' rates, so tokens over time of what was seen.
//!
//! How many ran at once is counted, never assumed: the most streams that were between their first and last token at one moment, less those
//! that stood still in the window (waiting, or thrown out of memory) while others went on.

use super::answer::Usage;
use crate::units::{Seconds, Tokens, TokensPerSecond};

/// A stream with fewer than this share of the tokens of the middle one has been standing still.
const STANDSTILL: f64 = 0.5;

/// One stream, on a clock that all streams of the batch share.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// When each piece with text came, upwards.
    pub pieces: Vec<Seconds>,
    /// What the server counted.
    pub usage: Usage,
}

/// What a batch did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Streams that ran at once.
    pub reached: u32,
    /// From the first stream's start to the last one's.
    pub ramp: Seconds,
    /// Typical time between two tokens of a stream, over its whole life: for the planning of further batches only.
    pub pace: Seconds,
    /// The window, if there was a moment in which all ran.
    pub steady: Option<Steady>,
}

/// What happened in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Time between tokens.
    pub itl: Seconds,
    /// Of all streams together.
    pub throughput: TokensPerSecond,
    /// Length of the window.
    pub span: Seconds,
    /// Tokens that one stream generated in it, on average.
    pub tokens_each: Tokens,
    /// Mean context in its middle.
    pub context: Tokens,
}

impl Stream {
    fn first(&self) -> f64 {
        self.pieces.first().map_or(f64::INFINITY, |at| at.get())
    }

    fn last(&self) -> f64 {
        self.pieces.last().map_or(f64::NEG_INFINITY, |at| at.get())
    }

    /// Servers may send several tokens in one piece, or none for a while and then some.
    fn tokens_per_piece(&self) -> f64 {
        f64::from(self.usage.completion_tokens) / self.pieces.len().max(1) as f64
    }

    fn pieces_within(&self, start: f64, end: f64) -> &[Seconds] {
        let from = self.pieces.partition_point(|at| at.get() < start);
        let to = self.pieces.partition_point(|at| at.get() <= end);
        &self.pieces[from..to.max(from)]
    }

    fn tokens_until(&self, moment: f64) -> f64 {
        self.pieces.partition_point(|at| at.get() <= moment) as f64 * self.tokens_per_piece()
    }
}

/// Judges the streams of one batch.
pub fn look(streams: &[Stream]) -> Seen {
    let start = streams.iter().map(Stream::first).fold(f64::NEG_INFINITY, f64::max);
    let end = streams.iter().map(Stream::last).fold(f64::INFINITY, f64::min);
    let earliest = streams.iter().map(Stream::first).fold(f64::INFINITY, f64::min);
    let paces = streams.iter().filter(|stream| stream.pieces.len() > 1).map(|stream| {
        let between = stream.tokens_per_piece() * (stream.pieces.len() - 1) as f64;
        (stream.last() - stream.first()) / between.max(1.0)
    });
    let steady = (start < end).then(|| steady(streams, start, end)).flatten();
    let moving = steady.map_or(streams.len(), |(_, moving)| moving);
    Seen {
        // Batches are far below 2^32.
        reached: most_at_once(streams).min(moving) as u32,
        ramp: Seconds((start - earliest).max(0.0)),
        pace: Seconds(middle(paces.collect()).unwrap_or(0.0)),
        steady: steady.map(|(steady, _)| steady),
    }
}

/// The window's numbers, and how many streams went on in it. `None` where it is shorter than two tokens.
fn steady(streams: &[Stream], start: f64, end: f64) -> Option<(Steady, usize)> {
    let (mut spacings, mut rates, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
    for stream in streams {
        let pieces = stream.pieces_within(start, end);
        tokens.push(pieces.len() as f64 * stream.tokens_per_piece());
        if let [first, .., last] = pieces {
            let between = (pieces.len() - 1) as f64 * stream.tokens_per_piece();
            let span = last.get() - first.get();
            spacings.push(span / between);
            rates.push(between / span);
        }
    }
    let typical = middle(tokens.clone())?;
    let moving = tokens.iter().filter(|&&tokens| tokens >= STANDSTILL * typical).count();
    let context = |stream: &Stream| f64::from(stream.usage.prompt_tokens) + stream.tokens_until(f64::midpoint(start, end));
    let steady = Steady {
        itl: Seconds(mean(&spacings)?),
        throughput: TokensPerSecond(rates.iter().sum()),
        span: Seconds(end - start),
        tokens_each: Tokens(mean(&tokens)?),
        context: Tokens(mean(&streams.iter().map(context).collect::<Vec<_>>())?),
    };
    (steady.itl.is_positive() && steady.throughput.is_positive()).then_some((steady, moving))
}

/// The most streams between their first and last piece at one moment.
fn most_at_once(streams: &[Stream]) -> usize {
    let running = streams.iter().filter(|stream| !stream.pieces.is_empty());
    // At equal times an end comes before a start: a place that is handed over was never held twice.
    let mut edges: Vec<(f64, isize)> = running.flat_map(|stream| [(stream.first(), 1), (stream.last(), -1)]).collect();
    edges.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut now = 0;
    edges
        .iter()
        .map(|(_, change)| {
            now += change;
            now
        })
        .max()
        .map_or(0, isize::unsigned_abs)
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The middle value; of an even number of values the mean of the two in the middle.
pub fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream of `count` pieces, 0.1 s apart from `start`, with so many tokens in each.
    fn stream(start: f64, count: u32, tokens_per_piece: u32) -> Stream {
        let pieces = (0..count).map(|at| Seconds(start + 0.1 * f64::from(at))).collect();
        let usage = Usage { prompt_tokens: 100, completion_tokens: count * tokens_per_piece, cached_tokens: 0 };
        Stream { pieces, usage }
    }

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6 * expected.abs().max(1.0), "{found}, expected {expected}");
    }

    #[test]
    fn only_the_time_in_which_all_run_counts() {
        let seen = look(&[stream(0.0, 50, 1), stream(1.0, 50, 1), stream(2.0, 50, 1)]);
        assert_eq!(seen.reached, 3);
        near(seen.ramp.get(), 2.0);
        near(seen.pace.get(), 0.1);
        let steady = seen.steady.unwrap();
        near(steady.itl.get(), 0.1);
        near(steady.throughput.get(), 30.0);
        near(steady.span.get(), 2.9);
        // In the middle, at 3.45 s, they have 35, 25 and 15 tokens.
        near(steady.context.get(), 125.0);
    }

    #[test]
    fn pieces_of_several_tokens_are_counted_by_the_servers_usage() {
        let steady = look(&[stream(0.0, 50, 4), stream(0.0, 50, 4)]).steady.unwrap();
        near(steady.itl.get(), 0.025);
        near(steady.throughput.get(), 80.0);
    }

    #[test]
    fn a_batch_that_the_server_takes_in_halves_has_reached_half() {
        // Two places; each of the second pair starts when one of the first ends.
        let seen = look(&[stream(0.0, 20, 1), stream(0.0, 20, 1), stream(2.0, 20, 1), stream(2.0, 20, 1)]);
        assert_eq!((seen.reached, seen.steady), (2, None));
    }

    #[test]
    fn a_stream_that_stands_still_was_not_running() {
        let mut stalled = stream(0.0, 50, 1);
        stalled.pieces.drain(5..45);
        stalled.usage.completion_tokens = 10;
        let seen = look(&[stream(0.0, 50, 1), stream(0.0, 50, 1), stalled]);
        assert_eq!(seen.reached, 2);
    }

    #[test]
    fn nothing_is_no_window() {
        assert_eq!(look(&[]).steady, None);
        assert_eq!(look(&[stream(0.0, 0, 1)]).reached, 0);
        assert_eq!(look(&[stream(0.0, 1, 1), stream(0.0, 1, 1)]).steady, None);
        assert_eq!(middle(vec![3.0, 1.0]), Some(2.0));
    }
}
