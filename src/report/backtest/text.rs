//! How does a comparison read in a terminal? One line a policy.

use crate::simulator::backtest::comparison::Comparison;
use crate::simulator::backtest::outcome::{Outcome, Scaling};
use crate::units::{Ratio, Seconds};

const HEADERS: [&str; 16] = [
    "policy",
    "within SLO",
    "missed",
    "GPU h",
    "/ clairvoyant",
    "TTFT p50",
    "p95",
    "p99",
    "ITL p50",
    "p95",
    "p99",
    "peak",
    "ups/h",
    "downs/h",
    "reversals/h",
    "violation (longest)",
];

/// One line for each outcome. Pairs such as 3+4 are prefill and decode.
pub fn text(comparison: &Comparison) -> String {
    let mut rows: Vec<[String; 16]> = vec![HEADERS.map(str::to_owned)];
    let ratio = |outcome| comparison.hindsight.as_ref().map(|hindsight| hindsight.cost_ratio(outcome));
    rows.extend(comparison.outcomes().map(|outcome| row(outcome, ratio(outcome))));
    let widths: [usize; 16] = std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let line = |row: &[String; 16]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect::<String>() + &notes(comparison)
}

/// What the table does not say.
fn notes(comparison: &Comparison) -> String {
    let mut notes = String::new();
    if comparison.out_of_reach > 0 {
        let count = comparison.out_of_reach;
        notes += &format!("{count} of the requests have prompts that take longer than the TTFT objective on an idle replica\n");
    }
    if let Some(hindsight) = &comparison.hindsight {
        notes += &format!(
            "no plan within {:.2} % of the requests can cost less than {:.2} GPU h\n",
            100.0 * hindsight.goal.get(),
            hindsight.lower_bound_gpu_hours
        );
    }
    notes
}

fn row(outcome: &Outcome, ratio: Option<Ratio>) -> [String; 16] {
    let millis = |value: Option<Seconds>| value.map_or_else(|| "-".to_owned(), |value| format!("{:.0} ms", 1000.0 * value.get()));
    let pairs = |of: &dyn Fn(&Scaling) -> String| outcome.roles.values().map(of).collect::<Vec<_>>().join("+");
    let hours = outcome.hours.max(f64::MIN_POSITIVE);
    let rates = |of: &dyn Fn(&Scaling) -> u32| pairs(&|scaling| format!("{:.1}", f64::from(of(scaling)) / hours));
    let (ttft, itl) = (outcome.ttft, outcome.itl);
    [
        outcome.policy.clone(),
        format!("{:.2} %", 100.0 * outcome.attainment.get()),
        (outcome.offered - outcome.within).to_string(),
        format!("{:.2}", outcome.gpu_hours),
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.get())),
        millis(ttft.map(|spread| spread.p50)),
        millis(ttft.map(|spread| spread.p95)),
        millis(ttft.map(|spread| spread.p99)),
        millis(itl.map(|spread| spread.p50)),
        millis(itl.map(|spread| spread.p95)),
        millis(itl.map(|spread| spread.p99)),
        pairs(&|scaling| scaling.peak.to_string()),
        rates(&|scaling| scaling.ups),
        rates(&|scaling| scaling.downs),
        rates(&|scaling| scaling.reversals),
        format!("{:.0} s ({:.0} s)", outcome.violation.get(), outcome.longest_violation.get()),
    ]
}
