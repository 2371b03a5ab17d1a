//! Which plots show what a policy did? Counts, rates and latencies over time, on axes that all policies of a page share.

use std::collections::BTreeMap;

use super::decisions::marks;
use crate::report::plot::{Axis, Curve, Ink, Limit, Plot, Point as Dot, Shape, Size, latency, means};
use crate::simulator::backtest::comparison::Comparison;
use crate::simulator::backtest::outcome::{Counts, Outcome, Point};
use crate::units::{Replicas, RequestsPerSecond, Role, Seconds};

/// Rates of single ticks are noise: they are shown as means over this, or over more on long traces.
const SHORTEST_MEAN: f64 = 60.0;
/// Means of a trace.
const MEANS: f64 = 240.0;

/// Intervals between labels of the time axis at most: what fits beside each other.
const INTERVALS: f64 = 5.0;
/// The same of small plots.
const FEW_INTERVALS: f64 = 4.0;

/// The axes of a page. Plots that are to be compared share them; an autoscaler that asks for many replicas must not flatten the configurations.
pub(super) struct Axes {
    time: Axis,
    small_time: Axis,
    counts: BTreeMap<Role, Axis>,
    /// Of all policies that are no configuration.
    small_counts: BTreeMap<Role, Axis>,
    rates: Axis,
    ttft: Axis,
    itl: Axis,
    length: Seconds,
    mean: Seconds,
    /// The warm-up, where there is one.
    shade: Option<Seconds>,
}

impl Axes {
    pub fn of(comparison: &Comparison) -> Self {
        let length = comparison.trace.length_seconds;
        let mean = Seconds((length.get() / MEANS).max(SHORTEST_MEAN));
        let plan = comparison.hindsight.as_ref().map(|hindsight| &hindsight.clairvoyant);
        let points = || comparison.configurations.iter().flat_map(|outcome| &outcome.series);
        let objectives = &comparison.objectives;
        let shown = comparison.configurations.iter().flat_map(|outcome| rates(outcome, length, mean)).flat_map(|curve| curve.points);
        let rate = shown.filter_map(|point| point.value).filter(|rate| rate.is_finite()).fold(0.0, f64::max);
        Self {
            time: Axis::elapsed(length, INTERVALS),
            small_time: Axis::elapsed(length, FEW_INTERVALS),
            counts: counts_axes(comparison.configurations.iter().chain(plan)),
            small_counts: counts_axes(comparison.outcomes().skip(comparison.configurations.len())),
            rates: Axis::rates(RequestsPerSecond(rate)),
            ttft: Axis::latencies(points().filter_map(|point| point.ttft).chain([objectives.ttft_seconds])),
            itl: Axis::latencies(points().filter_map(|point| point.itl).chain([objectives.itl_seconds])),
            length,
            mean,
            shade: Some(comparison.warm_up_seconds).filter(|warm_up| warm_up.is_positive()),
        }
    }
}

/// For each role, an axis for the counts of some policies.
fn counts_axes<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> BTreeMap<Role, Axis> {
    let mut most: BTreeMap<Role, Replicas> = BTreeMap::new();
    for (&role, counts) in outcomes.flat_map(|outcome| &outcome.series).flat_map(|point| &point.replicas) {
        let most = most.entry(role).or_default();
        *most = (*most).max(counts.recommended).max(counts.ready);
    }
    most.into_iter().map(|(role, most)| (role, Axis::counts(most))).collect()
}

/// The plots of a configuration. `plan` is what was possible.
pub(super) fn full(axes: &Axes, comparison: &Comparison, outcome: &Outcome) -> String {
    let objectives = &comparison.objectives;
    let plan = comparison.hindsight.as_ref().map(|hindsight| &hindsight.clairvoyant);
    let mut html = String::new();
    for (&role, counts) in &axes.counts {
        html.push_str(&counts_plot(axes, counts, outcome, role, plan, Size::Full).svg());
    }
    html.push_str(&rates_plot(axes, outcome).svg());
    html.push_str(&latency_plot(axes, &axes.ttft, outcome, "TTFT", |point| point.ttft, objectives.ttft_seconds).svg());
    html.push_str(&latency_plot(axes, &axes.itl, outcome, "ITL", |point| point.itl, objectives.itl_seconds).svg());
    html
}

/// The counts of another policy.
pub(super) fn small(axes: &Axes, outcome: &Outcome) -> String {
    axes.small_counts.iter().map(|(&role, counts)| counts_plot(axes, counts, outcome, role, None, Size::Small).svg()).collect()
}

fn counts_plot<'a>(axes: &'a Axes, counts: &'a Axis, outcome: &Outcome, role: Role, plan: Option<&Outcome>, size: Size) -> Plot<'a> {
    let curve = |name: &str, ink, of: &Outcome, count: fn(&Counts) -> Replicas| {
        let value = |point: &Point| point.replicas.get(&role).map(|counts| count(counts).as_f64());
        steps(name, ink, of, axes.length, value)
    };
    let mut curves = vec![
        curve("recommended", Ink::Wide, outcome, |counts| counts.recommended),
        curve("ready", Ink::Thin, outcome, |counts| counts.ready),
    ];
    curves.extend(plan.map(|plan| curve("clairvoyant", Ink::Muted, plan, |counts| counts.recommended)));
    Plot {
        title: format!("{role} replicas"),
        size,
        time: if size == Size::Small { &axes.small_time } else { &axes.time },
        values: counts,
        curves,
        limit: None,
        shade: axes.shade,
        marks: (size == Size::Full).then(|| marks(&outcome.decisions, role)),
        bands: Vec::new(),
    }
}

fn rates_plot<'a>(axes: &'a Axes, outcome: &Outcome) -> Plot<'a> {
    Plot {
        title: format!("requests a second, means of {:.0} s", axes.mean.get()),
        size: Size::Full,
        time: &axes.time,
        values: &axes.rates,
        curves: rates(outcome, axes.length, axes.mean),
        limit: None,
        shade: axes.shade,
        marks: None,
        bands: Vec::new(),
    }
}

fn rates(outcome: &Outcome, length: Seconds, mean: Seconds) -> Vec<Curve> {
    // The first tick has no time before it.
    let ticks = || outcome.series.iter().filter(|point| point.at.is_positive());
    let curve = |name: &str, ink, rate: fn(&Point) -> RequestsPerSecond| {
        let points: Vec<Dot> = ticks().map(|point| Dot { at: point.at, value: Some(rate(point).get()) }).collect();
        Curve { name: name.to_owned(), ink, shape: Shape::Line, points: means(&points, mean) }
    };
    vec![
        curve("offered", Ink::Wide, |point| point.offered),
        curve("completed", Ink::Muted, |point| point.completed),
        steps("observed by the planner", Ink::Dashed, outcome, length, |point| point.observed.map(RequestsPerSecond::get)),
    ]
}

fn steps(name: &str, ink: Ink, outcome: &Outcome, length: Seconds, value: impl Fn(&Point) -> Option<f64>) -> Curve {
    let mut points: Vec<Dot> = outcome.series.iter().map(|point| Dot { at: point.at, value: value(point) }).collect();
    // The last answer holds until the end.
    points.extend(points.last().copied().map(|last| Dot { at: length, ..last }));
    Curve { name: name.to_owned(), ink, shape: Shape::Steps, points }
}

fn latency_plot<'a>(
    axes: &'a Axes,
    values: &'a Axis,
    outcome: &Outcome,
    name: &str,
    of: fn(&Point) -> Option<Seconds>,
    objective: Seconds,
) -> Plot<'a> {
    let ticks = outcome.series.iter().map(|point| Dot { at: point.at, value: of(point).map(Seconds::get) }).collect();
    let curve = |name: String, ink, points| Curve { name, ink, shape: Shape::Line, points };
    Plot {
        title: format!("{name}, logarithmic"),
        size: Size::Full,
        time: &axes.time,
        values,
        curves: vec![
            curve("mean of each tick".to_owned(), Ink::Light, ticks),
            curve(format!("of {:.0} s", axes.mean.get()), Ink::Thin, latency_means(outcome, of, axes.mean)),
        ],
        limit: Some(Limit { value: objective.get(), label: format!("objective {}", latency(objective)) }),
        shade: axes.shade,
        marks: None,
        bands: Vec::new(),
    }
}

/// Means over the requests of each span: ticks weigh as much as requests ended in them.
fn latency_means(outcome: &Outcome, of: fn(&Point) -> Option<Seconds>, mean: Seconds) -> Vec<Dot> {
    let known = |value: fn(f64, f64) -> f64| {
        let value = |point: &Point| Some(value(of(point)?.get(), point.completed.get()));
        let ticks = outcome.series.iter().filter(|point| point.at.is_positive());
        means(&ticks.map(|point| Dot { at: point.at, value: value(point) }).collect::<Vec<_>>(), mean)
    };
    let (sums, weights) = (known(|latency, rate| latency * rate), known(|_, rate| rate));
    let quotient = |sum: &Dot, weight: &Dot| Some(sum.value? / weight.value.filter(|&weight| weight > 0.0)?);
    sums.iter().zip(&weights).map(|(sum, weight)| Dot { at: sum.at, value: quotient(sum, weight) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_latency_weighs_ticks_by_their_requests() {
        let tick = |at, ttft: Option<f64>, completed| Point {
            at: Seconds(at),
            replicas: BTreeMap::new(),
            offered: RequestsPerSecond(0.0),
            completed: RequestsPerSecond(completed),
            ttft: ttft.map(Seconds),
            itl: None,
            observed: None,
            reason: None,
        };
        let series = vec![tick(0.0, None, 0.0), tick(30.0, Some(1.0), 3.0), tick(60.0, Some(5.0), 1.0), tick(90.0, None, 0.0)];
        let outcome = Outcome { series, ..super::super::tests::outcome("one", 0, &[]) };
        let means: Vec<_> = latency_means(&outcome, |point| point.ttft, Seconds(60.0)).iter().map(|dot| dot.value).collect();
        assert_eq!(means, [Some(2.0), None]);
    }
}
