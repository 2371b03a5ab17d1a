//! What do iterations cost on measured hardware? Least squares over the prompt curve and the generation surface of a profile.
//!
//! Relative errors are squared, not absolute ones: otherwise the longest prompts decide alone and the short ones may be off by half.
//! Prices cannot be negative: the column whose price would be the lowest below zero is left out, and the rest is fitted again.
//!
//! A prefill and a decode replica are each fitted to their own part. A replica that does both has one price for an iteration, and is fitted
//! to both parts, each with equal weight.
//!
//! The form is simpler than hardware is, so a fit has errors. They are part of the answer and nothing is tuned to hide them: a judgement
//! that hangs on less than these errors is none.

use super::costs::{IterationCosts, Work};
use crate::planner::model::envelope::ProfileDocument;
use crate::units::{Ratio, Requests, Role, Seconds, Tokens};

/// What was measured: some work and how long it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// What was done.
    pub work: Work,
    /// How long it took.
    pub took: Seconds,
}

/// The two parts of a profile.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Measurements {
    /// Prompts, each alone.
    pub prompts: Vec<Measurement>,
    /// Iterations that only decode.
    pub decodes: Vec<Measurement>,
}

impl Measurements {
    /// The cells of a profile. `chunk` is the most tokens that the measured engine computed in an iteration.
    pub fn of_profile(profile: &ProfileDocument, chunk: u32) -> Self {
        let mut found = Self::default();
        for (isl, ttft) in profile.prefill.isl.iter().zip(&profile.prefill.ttft_ms) {
            found.prompt(Tokens(*isl), Seconds(ttft / 1000.0), chunk);
        }
        let surface = &profile.decode;
        for (context, row) in surface.context_length.iter().zip(&surface.itl_ms) {
            for (usage, itl) in surface.kv_usage.iter().zip(row) {
                let kv_tokens = usage * surface.max_kv_tokens;
                found.decode(Requests(kv_tokens / context), Tokens(kv_tokens), Seconds(itl / 1000.0));
            }
        }
        found
    }

    /// Adds a prompt that was computed alone.
    pub fn prompt(&mut self, tokens: Tokens, ttft: Seconds, chunk: u32) {
        // `as` saturates: longer prompts than u32 holds do not exist.
        self.prompts.push(Measurement { work: Work::prompt(tokens.get().round() as u32, 0, chunk), took: ttft });
    }

    /// Adds the token spacing of `decoding` requests that occupy `kv_tokens` together.
    pub fn decode(&mut self, decoding: Requests, kv_tokens: Tokens, itl: Seconds) {
        self.decodes.push(Measurement { work: Work::decode(decoding.get(), kv_tokens.get()), took: itl });
    }
}

/// How far a fit is from what was measured: |fitted / measured - 1|.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct FitError {
    /// Over all points.
    pub mean: Ratio,
    /// At the worst point.
    pub max: Ratio,
}

/// Prices for each role, and their errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// Of a replica that computes prompts only.
    pub prefill: IterationCosts,
    /// Of `prefill`, on the prompts.
    pub prefill_error: FitError,
    /// Of a replica that decodes only.
    pub decode: IterationCosts,
    /// Of `decode`, on the iterations.
    pub decode_error: FitError,
    /// Of a replica that does both.
    pub aggregated: IterationCosts,
    /// Of `aggregated`, on the prompts.
    pub aggregated_prefill_error: FitError,
    /// Of `aggregated`, on the iterations.
    pub aggregated_decode_error: FitError,
}

impl Fit {
    /// The prices of a replica of that role.
    pub fn costs(&self, role: Role) -> IterationCosts {
        match role {
            Role::Prefill => self.prefill,
            Role::Decode => self.decode,
            Role::Aggregated => self.aggregated,
        }
    }
}

/// The column of each price.
type Column = fn(&Work) -> f64;
const ITERATIONS: usize = 0;
const PROMPT_TOKENS: usize = 1;
const DECODING: usize = 2;
const KV_TOKENS: usize = 3;
const PROMPT_PAIRS: usize = 4;
const COLUMNS: [Column; 5] =
    [|work| work.iterations, |work| work.prompt_tokens, |work| work.decoding, |work| work.kv_tokens, |work| work.prompt_pairs];

/// Fits prices to measurements. Those that are not finite and above zero are left out; without any the prices are zero.
pub fn fit(measured: &Measurements) -> Fit {
    let (prompts, decodes) = (measured.prompts.as_slice(), measured.decodes.as_slice());
    // On prompts alone a KV token cannot be told from a prompt token, since each is read once.
    let prefill = solve(&[prompts], &[ITERATIONS, PROMPT_TOKENS, PROMPT_PAIRS]);
    let decode = solve(&[decodes], &[ITERATIONS, DECODING, KV_TOKENS]);
    let aggregated = solve(&[prompts, decodes], &[ITERATIONS, PROMPT_TOKENS, DECODING, KV_TOKENS, PROMPT_PAIRS]);
    Fit {
        prefill,
        prefill_error: error(&prefill, prompts),
        decode,
        decode_error: error(&decode, decodes),
        aggregated,
        aggregated_prefill_error: error(&aggregated, prompts),
        aggregated_decode_error: error(&aggregated, decodes),
    }
}

fn error(costs: &IterationCosts, part: &[Measurement]) -> FitError {
    let errors: Vec<f64> = part
        .iter()
        .filter(|point| point.took.is_positive())
        .map(|point| (costs.of(&point.work).get() / point.took.get() - 1.0).abs())
        .collect();
    if errors.is_empty() {
        return FitError::default();
    }
    FitError { mean: Ratio(errors.iter().sum::<f64>() / errors.len() as f64), max: Ratio(errors.iter().copied().fold(0.0, f64::max)) }
}

fn solve(parts: &[&[Measurement]], columns: &[usize]) -> IterationCosts {
    let mut columns = columns.to_vec();
    loop {
        let prices = least_squares(parts, &columns);
        let lowest = (0..columns.len()).filter(|&i| prices[columns[i]] < 0.0).min_by(|&a, &b| {
            let share = |i: usize| prices[columns[i]] * scale(parts, columns[i]);
            share(a).total_cmp(&share(b))
        });
        let Some(lowest) = lowest else {
            let [iteration, prompt_token, decoding, kv_token, prompt_pair] = prices.map(Seconds);
            return IterationCosts { iteration, prompt_token, decoding, kv_token, prompt_pair };
        };
        columns.remove(lowest);
    }
}

/// The largest value of a column, so that columns of tokens and of pairs can be compared and solved together.
fn scale(parts: &[&[Measurement]], column: usize) -> f64 {
    let largest = parts.iter().flat_map(|part| part.iter()).map(|point| COLUMNS[column](&point.work)).fold(0.0, f64::max);
    if largest > 0.0 { largest } else { 1.0 }
}

/// The normal equations of the relative errors.
fn least_squares(parts: &[&[Measurement]], columns: &[usize]) -> [f64; 5] {
    let scales: Vec<f64> = columns.iter().map(|&column| scale(parts, column)).collect();
    let size = columns.len();
    // The last column is the right side.
    let mut rows = vec![vec![0.0; size + 1]; size];
    for part in parts {
        let good = || part.iter().filter(|point| point.took.is_positive());
        let weight = 1.0 / (good().count().max(1) as f64);
        for point in good() {
            let terms: Vec<f64> =
                columns.iter().zip(&scales).map(|(&column, scale)| COLUMNS[column](&point.work) / scale / point.took.get()).collect();
            for i in 0..size {
                for j in 0..size {
                    rows[i][j] += weight * terms[i] * terms[j];
                }
                rows[i][size] += weight * terms[i];
            }
        }
    }
    let solution = eliminate(rows);
    let mut prices = [0.0; 5];
    for ((&column, scale), value) in columns.iter().zip(&scales).zip(solution) {
        prices[column] = value / scale;
    }
    prices
}

/// Gauss and Jordan with pivots. A column that depends on the others gets 0.
fn eliminate(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    const SINGULAR: f64 = 1e-12;
    let size = rows.len();
    let diagonal: Vec<f64> = (0..size).map(|i| rows[i][i]).collect();
    let mut pivots = vec![None; size];
    let mut done = 0;
    for column in 0..size {
        let Some(best) = (done..size).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs())) else { break };
        if rows[best][column].abs() <= SINGULAR * diagonal[column].max(f64::MIN_POSITIVE) {
            continue;
        }
        rows.swap(done, best);
        let pivot = rows[done].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != done) {
            let factor = row[column] / pivot[column];
            for (cell, above) in row.iter_mut().zip(&pivot) {
                *cell -= factor * above;
            }
        }
        pivots[column] = Some(done);
        done += 1;
    }
    (0..size).map(|column| pivots[column].map_or(0.0, |row: usize| rows[row][size] / rows[row][column])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUE: IterationCosts = IterationCosts {
        iteration: Seconds(0.012),
        prompt_token: Seconds(2e-5),
        decoding: Seconds(4e-5),
        kv_token: Seconds(3e-8),
        prompt_pair: Seconds(8e-10),
    };

    fn measured(noise: impl Fn(usize) -> f64) -> Measurements {
        let mut found = Measurements::default();
        for (i, tokens) in [100_u32, 1000, 2000, 4000, 8000, 16_000].into_iter().enumerate() {
            let took = TRUE.of(&Work::prompt(tokens, 0, 2048)).get() * noise(i);
            found.prompt(Tokens(f64::from(tokens)), Seconds(took), 2048);
        }
        for (i, (n, context)) in [(1.0, 350.0), (100.0, 350.0), (500.0, 350.0), (1.0, 8000.0), (50.0, 8000.0)].into_iter().enumerate() {
            let took = TRUE.of(&Work::decode(n, n * context)).get() * noise(i + 1);
            found.decode(Requests(n), Tokens(n * context), Seconds(took));
        }
        found
    }

    fn close(a: Seconds, b: Seconds) -> bool {
        (a.get() / b.get() - 1.0).abs() < 1e-6
    }

    #[test]
    fn finds_the_prices_that_made_the_measurements() {
        let fit = fit(&measured(|_| 1.0));
        for (found, expected) in [
            (fit.aggregated.iteration, TRUE.iteration),
            (fit.aggregated.prompt_token, TRUE.prompt_token),
            (fit.aggregated.decoding, TRUE.decoding),
            (fit.aggregated.kv_token, TRUE.kv_token),
            (fit.aggregated.prompt_pair, TRUE.prompt_pair),
            (fit.decode.kv_token, TRUE.kv_token),
        ] {
            assert!(close(found, expected), "{fit:?}");
        }
        for error in [fit.decode_error, fit.aggregated_prefill_error, fit.aggregated_decode_error] {
            assert!(error.max.get() < 1e-6, "{fit:?}");
        }
    }

    #[test]
    fn reports_what_it_cannot_explain() {
        // Every second point is 10 % dearer.
        let fit = fit(&measured(|i| if i % 2 == 0 { 1.0 } else { 1.1 }));
        for error in [fit.prefill_error, fit.decode_error] {
            assert!(error.max.get() > 0.02 && error.mean <= error.max, "{error:?}");
        }
    }

    #[test]
    fn no_price_is_negative() {
        let mut falling = Measurements::default();
        for (tokens, ttft) in [(100.0, 0.2), (1000.0, 0.1), (2000.0, 0.05)] {
            falling.prompt(Tokens(tokens), Seconds(ttft), 8192);
        }
        let prefill = fit(&falling).prefill;
        assert!([prefill.iteration, prefill.prompt_token, prefill.prompt_pair].iter().all(|price| price.get() >= 0.0), "{prefill:?}");
        assert!(prefill.iteration.get() > 0.0);
    }

    #[test]
    fn nothing_measured_costs_nothing() {
        assert_eq!(fit(&Measurements::default()).aggregated, IterationCosts::default());
    }
}
