//! Which numbers tell how good a policy was? The columns of the summary, for every form of it.

use crate::report::plot::latency;
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

/// What the columns mean where their names do not say it.
pub(super) const LEGEND: [&str; 5] = [
    "pairs such as 3+4: prefill and decode; all columns from the end of the warm-up on",
    "within SLO: share of the requests within both objectives; missed: the others",
    "peak: most replicas at a time, those that start or drain included",
    "reversals: changes in the other direction than the last one, at most 10 minutes after it",
    "violation: time in minutes of whose requests less than 99 % are within both objectives, and the longest such time in one piece",
];

/// What the table does not say, a sentence each.
pub(super) fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(faults) = metric_faults(comparison) {
        notes.push(format!("what planners saw was faulty from time to time: {faults}; other policies look at the fleet itself"));
    }
    if comparison.out_of_reach > 0 {
        let count = comparison.out_of_reach;
        notes.push(format!("{count} of the requests have prompts that take longer than the TTFT objective on an idle replica"));
    }
    if comparison.hindsight.is_none() && !comparison.baselines.is_empty() {
        notes.push("no fleet within the limits can meet the objectives on this trace, so there is no plan to compare with".to_owned());
    }
    if let Some(largest) = largest(comparison) {
        notes.push(format!(
            "the goal is {:.2} % of the requests: the largest fleet that was tried, within the limits, has {:.2} % within both objectives, and \
             99 % of that is asked for",
            100.0 * goal(comparison).get(),
            100.0 * largest.get()
        ));
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

/// What was wrong with the metrics, if anything was.
pub(super) fn metric_faults(comparison: &Comparison) -> Option<String> {
    let faults: Vec<&str> = comparison.metric_faults.iter().map(|fault| fault.meaning()).collect();
    (!faults.is_empty()).then(|| faults.join(", "))
}

/// The share of requests that has to be within both objectives: what hindsight asked for, which is less where that cannot be had.
pub(super) fn goal(comparison: &Comparison) -> Ratio {
    comparison.hindsight.as_ref().map_or(Ratio(GOAL), |hindsight| hindsight.goal)
}

/// What the largest fleet attains, where that is below the usual goal.
pub(super) fn largest(comparison: &Comparison) -> Option<Ratio> {
    Some(goal(comparison)).filter(|goal| goal.get() < GOAL).map(|goal| Ratio(goal.get() / GOAL))
}

/// The cheapest outcome that meets the goal, of those that anybody could have had: neither the plan nor its settings know the trace. `None`
/// if none of them meets it.
pub(super) fn best(comparison: &Comparison) -> Option<&Outcome> {
    let goal = goal(comparison);
    let outcomes = comparison.configurations.iter().chain(&comparison.baselines);
    let had = outcomes.filter(|outcome| outcome.attainment >= goal && !outcome.chosen_in_hindsight);
    had.min_by(|one, other| one.gpu_hours.total_cmp(&other.gpu_hours))
}

fn row(outcome: &Outcome, ratio: Option<Ratio>) -> [String; COLUMNS] {
    let shown = |value: Option<Seconds>| value.map_or_else(|| "-".to_owned(), latency);
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
        shown(ttft.map(|spread| spread.p50)),
        shown(ttft.map(|spread| spread.p95)),
        shown(ttft.map(|spread| spread.p99)),
        shown(itl.map(|spread| spread.p50)),
        shown(itl.map(|spread| spread.p95)),
        shown(itl.map(|spread| spread.p99)),
        pairs(&|scaling| scaling.peak.to_string()),
        rates(&|scaling| scaling.ups),
        rates(&|scaling| scaling.downs),
        rates(&|scaling| scaling.reversals),
        format!("{:.0} s ({:.0} s)", outcome.violation.get(), outcome.longest_violation.get()),
    ]
}
