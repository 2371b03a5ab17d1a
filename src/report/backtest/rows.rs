//! Which numbers tell how good a policy was? The columns of the summary, for every form of it.

use crate::simulator::backtest::GOAL;
use crate::simulator::backtest::comparison::Comparison;
use crate::simulator::backtest::outcome::{Outcome, Scaling};
use crate::units::{Ratio, Seconds};

/// Number of columns.
pub(super) const COLUMNS: usize = 16;

/// What the columns are.
pub(super) const HEADERS: [&str; COLUMNS] = [
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

/// The column that says whether the goal is met.
pub(super) const ATTAINMENT: usize = 1;

/// One row for each outcome. Pairs such as 3+4 are prefill and decode.
pub(super) fn rows(comparison: &Comparison) -> Vec<[String; COLUMNS]> {
    let ratio = |outcome| comparison.hindsight.as_ref().map(|hindsight| hindsight.cost_ratio(outcome));
    comparison.outcomes().map(|outcome| row(outcome, ratio(outcome))).collect()
}

/// What the table does not say, a sentence each.
pub(super) fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if comparison.out_of_reach > 0 {
        let count = comparison.out_of_reach;
        notes.push(format!("{count} of the requests have prompts that take longer than the TTFT objective on an idle replica"));
    }
    if let Some(hindsight) = &comparison.hindsight {
        notes.push(format!(
            "no plan within {:.2} % of the requests can cost less than {:.2} GPU h",
            100.0 * hindsight.goal.get(),
            hindsight.lower_bound_gpu_hours
        ));
    }
    notes
}

/// The share of requests that has to be within both objectives: what hindsight asked for, which is less where that cannot be had.
pub(super) fn goal(comparison: &Comparison) -> Ratio {
    comparison.hindsight.as_ref().map_or(Ratio(GOAL), |hindsight| hindsight.goal)
}

/// The cheapest outcome that meets the goal, of those that do not know the future. `None` if none of them meets it.
pub(super) fn best(comparison: &Comparison) -> Option<&Outcome> {
    let goal = goal(comparison);
    let outcomes = comparison.configurations.iter().chain(&comparison.baselines);
    outcomes.filter(|outcome| outcome.attainment >= goal).min_by(|one, other| one.gpu_hours.total_cmp(&other.gpu_hours))
}

fn row(outcome: &Outcome, ratio: Option<Ratio>) -> [String; COLUMNS] {
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
