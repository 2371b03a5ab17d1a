//! What is to be measured, how large is each batch, and how long will it take? Pure.
//!
//! A generation cell is a mean context c and an occupancy u of the KV cache K. It is measured with a batch of n = round(u * K / c) streams
//! (at least one). Since n is whole, the streams' own context is b = u * K / n, not more than a quarter from c: the occupancy is exact, and the
//! context gives way, because the time between tokens follows the cache that a step reads much more than how it is shared out. Answers have
//! o tokens and prompts b - o/2, so that the mean context is b halfway.
//!
//! How long answers must be depends on the server: streams start one after another, as fast as it prefills, and all of them must run at
//! once for a while, the window of w tokens. So o = w + the tokens that the first stream generates while the others start. How many those
//! are is known after a batch: a batch whose window was too short is repeated with longer answers, as long as that brings more streams to
//! run at once. Where it does not, the server runs no more, and the cell cannot be measured.
//!
//! The window is w tokens, and shorter where the cache would overflow before its end: at its end each stream holds b + w/2 tokens, so
//! w <= 2 * (K/n - b), less a tenth for what is rounded up to whole blocks.
//!
//! | K = 262144 | n | b | w at most | prompt, without a ramp |
//! |---|---|---|---|---|
//! | c = 1024, u = 0.5 | 128 | 1024 | 1843, so 256 as by default | 1024 - 128 = 896 |
//! | c = 1024, u = 0.9 | 230 | 1026 | 2 * (1139.8 - 1026) * 0.9 = 204 | 1026 - 102 = 924 |
//! | c = 16384, u = 0.1 | 2 (1.6) | 13107 | 256 | 13107 - 128 = 12979 |

use serde::{Deserialize, Serialize};

use super::window::Seen;
use crate::units::Seconds;

/// Shortest prompt: a block, so that no two are alike.
const SHORTEST_PROMPT: u32 = 16;
/// Fewest tokens of a window: fewer say nothing of the spacing.
const SHORTEST_WINDOW: u32 = 16;
/// Share of the wanted window that is enough, once there is one.
const ENOUGH: f64 = 0.5;
/// More streams at once than this factor times those of the batch before is progress.
const PROGRESS: f64 = 1.05;
/// Share by which the context of a batch may give way.
const GIVE: f64 = 0.25;
/// Answers get this much longer than the ramp asks for: no two ramps are alike.
const SLACK: f64 = 1.15;

/// A point of the generation surface.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Mean context, tokens.
    pub context_length: u32,
    /// Share of the KV cache in use.
    pub kv_usage: f64,
    /// Streams of the batch.
    pub streams: u32,
    /// Context of each of them halfway, so that together they fill the share.
    pub context: u32,
}

/// Every cell, contexts upwards and in each the occupancies upwards: what needs most streams comes early, and tells what can be skipped.
pub fn cells(context_lengths: &[u32], kv_usages: &[f64], max_kv_tokens: u32) -> Vec<Cell> {
    let cell = |context_length: u32, kv_usage: f64| {
        let (held, wanted) = (kv_usage * f64::from(max_kv_tokens), f64::from(context_length));
        let streams = (held / wanted).round().max(1.0);
        let context = (held / streams).clamp(wanted * (1.0 - GIVE), wanted * (1.0 + GIVE)).round();
        // Both are below the tokens in the cache or those of a context, which are u32.
        Cell { context_length, kv_usage, streams: streams as u32, context: context as u32 }
    };
    context_lengths.iter().flat_map(|&context| kv_usages.iter().map(move |&usage| cell(context, usage))).collect()
}

impl Cell {
    /// Occupancy of the batch, over the occupancy that the cell stands for.
    pub fn rounding(&self, max_kv_tokens: u32) -> f64 {
        f64::from(self.streams) * f64::from(self.context) / f64::from(max_kv_tokens) / self.kv_usage
    }

    /// Share of the batch's throughput that the cell may claim. Where contexts gave way to be shorter, fewer streams of the full context fit; where they
    /// are longer, more would fit, and were not seen.
    pub fn claimed(&self, max_kv_tokens: u32) -> f64 {
        let fit = self.kv_usage * f64::from(max_kv_tokens) / f64::from(self.context_length);
        (fit / f64::from(self.streams)).min(1.0)
    }

    /// Tokens of the window.
    pub fn window(&self, wanted: u32, max_kv_tokens: u32) -> u32 {
        let room = 2.0 * (f64::from(max_kv_tokens) / f64::from(self.streams) - f64::from(self.context)) * 0.9;
        // `as` makes 0 of what is negative.
        wanted.min(room as u32).min(self.longest_answer()).max(SHORTEST_WINDOW)
    }

    /// The longest answer whose half still leaves a prompt.
    pub fn longest_answer(&self) -> u32 {
        self.context.saturating_sub(SHORTEST_PROMPT).saturating_mul(2)
    }

    /// The prompt that goes with answers of this length.
    pub fn prompt(&self, answer: u32) -> u32 {
        self.context.saturating_sub(answer / 2).max(SHORTEST_PROMPT)
    }

    /// Answers for a first attempt, by what is known of the server's pace.
    pub fn first_answer(&self, window: u32, pace: &Pace) -> u32 {
        let ramp = f64::from(self.streams.saturating_sub(1)) * pace.prompt(self.prompt(window)).get();
        let during = if pace.per_token.is_positive() { ramp / pace.per_token.get() } else { 0.0 };
        // `as` saturates.
        window.saturating_add(during as u32).min(self.longest_answer())
    }
}

/// A batch that was run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempt {
    /// Tokens of the answers that were asked for.
    pub answer: u32,
    /// What came of it.
    pub seen: Seen,
}

/// What to do after a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// It counts.
    Enough,
    /// Once more, with answers of so many tokens.
    Again(u32),
    /// The cell cannot be measured.
    Never(String),
}

/// Judges the last of these batches of one cell.
pub fn next(cell: &Cell, window: u32, attempts: &[Attempt]) -> Next {
    let Some(Attempt { answer, seen }) = attempts.last() else { return Next::Again(window) };
    let all_ran = seen.reached >= cell.streams;
    if all_ran && seen.steady.is_some_and(|steady| steady.tokens_each.get() >= ENOUGH * f64::from(window)) {
        return Next::Enough;
    }
    let before = attempts.len().checked_sub(2).map_or(0, |at| attempts[at].seen.reached);
    if !all_ran && f64::from(seen.reached) <= PROGRESS * f64::from(before) {
        return Next::Never(format!("the server runs at most {} streams at once; this cell needs {}", seen.reached, cell.streams));
    }
    let during_ramp = if seen.pace.is_positive() { seen.ramp.get() / seen.pace.get() } else { 0.0 };
    // `as` saturates, and the longest answer bounds it.
    let longer = (f64::from(window) + SLACK * during_ramp) as u32;
    let longer = longer.max(answer + window).min(cell.longest_answer());
    if longer <= *answer {
        let message = format!(
            "{} of {} streams ran at once before the first ended: they start too slowly for answers within this context",
            seen.reached, cell.streams
        );
        return Next::Never(message);
    }
    Next::Again(longer)
}

/// How fast the server is, as far as is known. Begins with a guess, for the first estimate of the time left.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// What every prompt costs, however short.
    pub per_prompt: Seconds,
    /// What each of its tokens adds.
    pub per_prompt_token: Seconds,
    /// Time between tokens of a stream.
    pub per_token: Seconds,
}

impl Default for Pace {
    fn default() -> Self {
        Self { per_prompt: Seconds(0.02), per_prompt_token: Seconds(1e-4), per_token: Seconds(0.02) }
    }
}

impl Pace {
    /// One prompt.
    pub fn prompt(&self, tokens: u32) -> Seconds {
        Seconds(self.per_prompt.get() + f64::from(tokens) * self.per_prompt_token.get())
    }

    /// One batch: its prompts one after another, then the answer of the last stream to start.
    pub fn batch(&self, cell: &Cell, window: u32) -> Seconds {
        let answer = cell.first_answer(window, self);
        let prompts = f64::from(cell.streams) * self.prompt(cell.prompt(answer)).get();
        Seconds(prompts + f64::from(answer) * self.per_token.get())
    }

    /// Learns from prompts alone, by their lengths upwards: the line through the last two.
    pub fn learn_prompts(&mut self, measured: &[(u32, Seconds)]) {
        let (base, slope) = match measured {
            [] => return,
            // Half of it may be the server's own overhead.
            [(tokens, time)] => (time.get() / 2.0, time.get() / 2.0 / f64::from(*tokens)),
            [.., (less, before), (more, after)] => {
                let slope = ((after.get() - before.get()) / (f64::from(*more) - f64::from(*less))).max(0.0);
                ((after.get() - slope * f64::from(*more)).max(0.0), slope)
            }
        };
        (self.per_prompt, self.per_prompt_token) = (Seconds(base), Seconds(slope));
    }

    /// Learns from a batch: how fast streams start, and how fast they go on.
    pub fn learn_batch(&mut self, cell: &Cell, answer: u32, seen: &Seen) {
        if seen.pace.is_positive() {
            self.per_token = seen.pace;
        }
        if cell.streams > 1 && seen.reached >= cell.streams {
            let prompts = f64::from(cell.streams - 1) * f64::from(cell.prompt(answer));
            (self.per_prompt, self.per_prompt_token) = (Seconds(0.0), Seconds(seen.ramp.get() / prompts));
        }
    }
}

/// The rows and columns of the largest rectangle without a hole: the row or column with the largest share of holes goes first, of equals the
/// last column, since the fullest batches are those that servers refuse.
pub fn rectangle(rows: usize, columns: usize, measured: impl Fn(usize, usize) -> bool) -> (Vec<usize>, Vec<usize>) {
    let (mut rows, mut columns): (Vec<usize>, Vec<usize>) = ((0..rows).collect(), (0..columns).collect());
    while !rows.is_empty() && !columns.is_empty() {
        let holes = |row: usize, column: usize| usize::from(!measured(row, column));
        let of_row = |row: usize| columns.iter().map(|&column| holes(row, column)).sum::<usize>() as f64 / columns.len() as f64;
        let of_column = |column: usize| rows.iter().map(|&row| holes(row, column)).sum::<usize>() as f64 / rows.len() as f64;
        let worst = |shares: Vec<f64>| {
            let at = (0..shares.len()).max_by(|&a, &b| shares[a].total_cmp(&shares[b]).then(a.cmp(&b)));
            at.map_or((0, 0.0), |at| (at, shares[at]))
        };
        let (row, row_share) = worst(rows.iter().map(|&row| of_row(row)).collect());
        let (column, column_share) = worst(columns.iter().map(|&column| of_column(column)).collect());
        if row_share <= 0.0 && column_share <= 0.0 {
            break;
        }
        if row_share > column_share {
            rows.remove(row);
        } else {
            columns.remove(column);
        }
    }
    (rows, columns)
}

#[cfg(test)]
mod tests {
    use super::super::window::Steady;
    use super::*;
    use crate::units::{Tokens, TokensPerSecond};

    fn seen(reached: u32, ramp: f64, tokens_each: Option<f64>) -> Seen {
        let steady = tokens_each.map(|tokens| Steady {
            itl: Seconds(0.01),
            throughput: TokensPerSecond(100.0),
            span: Seconds(1.0),
            tokens_each: Tokens(tokens),
            context: Tokens(1024.0),
        });
        Seen { reached, ramp: Seconds(ramp), pace: Seconds(0.01), steady }
    }

    #[test]
    fn the_example_of_the_head_is_right() {
        let cells = cells(&[1024, 4096], &[0.5, 0.9], 262_144);
        assert_eq!(cells.iter().map(|cell| cell.streams).collect::<Vec<_>>(), [128, 230, 32, 58]);
        assert_eq!([cells[0].context, cells[1].context], [1024, 1026]);
        assert_eq!([cells[0].window(256, 262_144), cells[1].window(256, 262_144)], [256, 204]);
        assert_eq!([cells[0].prompt(256), cells[1].prompt(204)], [896, 924]);
        let long = super::cells(&[16384], &[0.1], 262_144)[0];
        assert_eq!((long.streams, long.context, long.prompt(256)), (2, 13107, 12979));
    }

    #[test]
    fn occupancies_are_exact_unless_the_cache_is_too_small() {
        for cell in cells(&[512, 1000, 2048, 4096], &[0.1, 0.3, 0.6, 0.9], 16_384) {
            let off = (cell.rounding(16_384) - 1.0).abs();
            assert!(off < 0.01 || cell.streams == 1, "{cell:?}");
            assert!((f64::from(cell.context) / f64::from(cell.context_length) - 1.0).abs() <= GIVE + 0.001, "{cell:?}");
        }
        // 2.4 streams of 2048 tokens are two longer ones; 1.6 of 1024 are two shorter ones, of whose tokens 1.6 streams generate a part.
        let claimed = |context: u32, share: f64| cells(&[context], &[share], 16_384)[0].claimed(16_384);
        assert!((claimed(2048, 0.3) - 1.0).abs() < 1e-9 && (claimed(1024, 0.1) - 0.8).abs() < 1e-9);
        // 0.4 streams of 4096 tokens: one of 3072 is nearly twice the occupancy.
        assert!((cells(&[4096], &[0.1], 16_384)[0].rounding(16_384) - 1.875).abs() < 1e-9);
    }

    #[test]
    fn a_window_in_a_full_or_tiny_cache_is_short_and_prompts_stay() {
        let full = Cell { context_length: 100, kv_usage: 1.0, streams: 10, context: 100 };
        assert_eq!(full.window(256, 1000), SHORTEST_WINDOW);
        assert_eq!(full.prompt(full.longest_answer()), SHORTEST_PROMPT);
        assert_eq!(Cell { streams: 1, ..full }.window(500, 1000), 168);
    }

    #[test]
    fn answers_grow_with_the_ramp_until_the_window_is_long_enough() {
        let cell = Cell { context_length: 1024, kv_usage: 0.5, streams: 100, context: 1024 };
        let first = Attempt { answer: 256, seen: seen(60, 4.0, None) };
        assert_eq!(next(&cell, 256, &[first]), Next::Again(256 + 460));
        let second = Attempt { answer: 716, seen: seen(100, 4.0, Some(250.0)) };
        assert_eq!(next(&cell, 256, &[first, second]), Next::Enough);
        let short = Attempt { answer: 716, seen: seen(100, 4.0, Some(20.0)) };
        assert_eq!(next(&cell, 256, &[first, short]), Next::Again(972));
    }

    #[test]
    fn what_the_server_does_not_run_at_once_is_given_up_after_two_batches() {
        let cell = Cell { context_length: 1024, kv_usage: 0.5, streams: 128, context: 1024 };
        let [first, second] = [256, 800].map(|answer| Attempt { answer, seen: seen(64, 5.0, None) });
        assert!(matches!(next(&cell, 256, &[first]), Next::Again(_)));
        let Next::Never(words) = next(&cell, 256, &[first, second]) else { panic!("it went on") };
        assert!(words.contains("at most 64 streams at once; this cell needs 128"), "{words}");
        // The ramp is longer than any answer that the context allows.
        let slow = Attempt { answer: cell.longest_answer(), seen: seen(100, 100.0, None) };
        assert!(matches!(next(&cell, 256, &[first, slow]), Next::Never(_)));
    }

    #[test]
    fn the_rectangle_keeps_what_was_measured() {
        assert_eq!(rectangle(2, 3, |_, _| true), (vec![0, 1], vec![0, 1, 2]));
        // The fullest batch at the shortest context failed: one of three columns goes rather than one of two rows.
        assert_eq!(rectangle(2, 3, |row, column| (row, column) != (0, 2)), (vec![0, 1], vec![0, 1]));
        assert_eq!(rectangle(3, 3, |row, _| row != 0), (vec![1, 2], vec![0, 1, 2]));
        assert_eq!(rectangle(2, 2, |_, _| false), (vec![0, 1], vec![]));
    }

    #[test]
    fn a_faster_server_needs_less_time() {
        let cell = Cell { context_length: 1024, kv_usage: 0.5, streams: 128, context: 1024 };
        let fast = Pace { per_prompt: Seconds(0.0), per_prompt_token: Seconds(1e-5), per_token: Seconds(0.005) };
        assert!(fast.batch(&cell, 256).get() < Pace::default().batch(&cell, 256).get());
        let at_once = Pace { per_prompt_token: Seconds(0.0), ..fast };
        assert_eq!(cell.first_answer(256, &at_once), 256);
    }

    #[test]
    fn the_pace_is_learnt_from_prompts_and_from_batches() {
        let mut pace = Pace::default();
        pace.learn_prompts(&[(100, Seconds(0.1))]);
        assert!((pace.prompt(100).get() - 0.1).abs() < 1e-9);
        pace.learn_prompts(&[(50, Seconds(9.0)), (100, Seconds(0.1)), (300, Seconds(0.2))]);
        assert!((pace.prompt(1000).get() - 0.55).abs() < 1e-9);
        let cell = Cell { context_length: 1024, kv_usage: 0.5, streams: 101, context: 1024 };
        pace.learn_batch(&cell, 48, &seen(101, 10.0, None));
        assert!((pace.prompt(1000).get() - 0.1).abs() < 1e-9 && pace.per_token == Seconds(0.01));
    }
}
