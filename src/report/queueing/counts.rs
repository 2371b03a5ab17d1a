//! How do counts follow from the demand and from what one replica can do? The last part of the arithmetic, for the pools of one role.

use super::{Line, One, line, told};
use crate::planner::plan::QueueingTrace;
use crate::planner::propose::queueing::{DEVIATIONS, PADDING, padded};
use crate::report::html::number;
use crate::units::{RequestsPerSecond, Seconds};

/// From the demand to the counts of the pools of one role.
pub(super) fn counts(trace: &QueueingTrace, window: Seconds, members: &[&One<'_>]) -> Vec<Line> {
    let demand = trace.demand.get();
    let (supply, supplied) = sum(members, One::present, One::each);
    let mut lines = vec![line("demand", "", format!("{} requests/s arrive", number(demand)))];
    for one in members.iter().filter(|one| one.trace.absent.0 > 0) {
        let what = format!("{} of {} carry nothing", one.trace.absent, one.trace.standing);
        lines.push(told(one.pool.pool.as_str(), what, "they have been awaited for more than three start-ups"));
    }
    lines.push(line("supply", format!("sum of the replicas recommended so far × lambda* = {supply}"), number(supplied)));
    if let [one] = members {
        let wanted = crate::planner::model::queueing::replicas(trace.demand, one.trace.sized_with);
        lines.push(line("needed", format!("⌈demand / lambda*⌉ = ⌈{} / {}⌉", number(demand), number(one.each())), wanted.to_string()));
    }
    // As much as the planner takes for noise of the sum.
    if demand - supplied > 1e-9 * demand.max(1.0) {
        lines.push(line("short by", format!("demand − supply = {} − {}", number(demand), number(supplied)), number(demand - supplied)));
        for one in members.iter().filter(|one| one.wish() > one.standing()) {
            let why = match members {
                [_] => "no other pool of the role is known".to_owned(),
                _ => "it closes the gap, or what is left of it, at the least cost by itself".to_owned(),
            };
            lines.push(told(format!("{} gains", one.pool.pool), one.wish() - one.standing(), why));
        }
        if members.iter().all(|one| one.wish() <= one.standing()) {
            lines.push(line("nothing is added", "", "what is awaited is asked for already"));
        }
        let (supply, supplied) = sum(members, One::present_then, One::each);
        lines.push(line("supply then", supply, number(supplied)));
    } else {
        lines.extend(given_back(trace.cautious_demand, window, members));
    }
    lines
}

/// Why replicas were given back, or none.
fn given_back(demand: RequestsPerSecond, window: Seconds, members: &[&One<'_>]) -> Vec<Line> {
    let padded = padded(demand, window).get();
    let (demand, span) = (number(demand.get()), number(window.get()));
    let mut lines = vec![line(
        "demand with room",
        format!(
            "the largest of the last minutes, with silent targets; the larger of {PADDING} × {demand} and {demand} + {DEVIATIONS} × √({demand} / {span})"
        ),
        number(padded),
    )];
    for one in members.iter().filter(|one| one.wish() < one.standing()) {
        let why = match members {
            [_] => "the others carry the demand with room".to_owned(),
            _ => format!("of those that may go it has the most {}", one.dearness()),
        };
        lines.push(told(format!("{} gives back", one.pool.pool), one.standing() - one.wish(), why));
    }
    let (supply, supplied) = sum(members, One::present_then, One::lower);
    lines.push(line("certain supply then", format!("sum of count × lower end = {supply}"), number(supplied)));
    for (one, alone) in members.iter().filter_map(|one| Some((one, one.by_estimate_alone()?))) {
        let why = format!("{alone} by the estimate alone, which is not certain enough to give replicas back");
        lines.push(told(format!("{} keeps", one.pool.pool), one.wish(), why));
    }
    for one in members.iter().filter(|one| one.wish() > 0) {
        let lower = one.lower();
        let left = supplied - lower;
        let verdict = if lower <= 0.0 {
            "nothing is certain of its replicas: they stay".to_owned()
        } else if left < padded {
            format!("{}, less than {}: it stays", number(left), number(padded))
        } else {
            format!("{}, enough, but the pool is at its minimum", number(left))
        };
        let formula = if lower > 0.0 { format!("{} − {}", number(supplied), number(lower)) } else { String::new() };
        lines.push(line(format!("one less of {}", one.pool.pool), formula, verdict));
    }
    lines
}

/// A sum over pools of count times rate: in numbers, and its value.
fn sum<'a>(members: &[&One<'a>], count: fn(&One<'a>) -> u32, rate: fn(&One<'a>) -> f64) -> (String, f64) {
    let terms: Vec<String> = members.iter().map(|one| format!("{} × {}", count(one), number(rate(one)))).collect();
    (terms.join(" + "), members.iter().map(|one| f64::from(count(one)) * rate(one)).sum())
}
