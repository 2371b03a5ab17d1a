//! How do a model's last hours look? Counts, latencies and rates over the time of day, and a list of what changed and why.

use std::fmt::Write;
use std::time::Duration;

use super::html::Escaped;
use super::plot::{Axis, Band, Curve, Ink, Limit, Mark, Plot, Point, Shape, Sign, Size, latency, time_of_day};
use super::verdict::{counted, sign, tone};
use crate::history::ring::Run;
use crate::history::{Counts, ModelHistory, Traffic};
use crate::planner::plan::{Plan, PoolPlan, Reason};
use crate::units::{Moment, Replicas, RequestsPerSecond, Seconds};

/// Intervals between labels of the time axis at most.
const INTERVALS: f64 = 6.0;
/// Time that is shown at least, so that the first minutes do not fill the width.
const SHORTEST: Duration = Duration::from_secs(120);
/// Changes listed at most.
const LISTED: usize = 100;

/// The part of the past that is shown.
#[derive(Clone, Copy, Debug)]
pub struct View {
    now: Moment,
    /// Seconds of the monotonic clock.
    from: u32,
}

impl View {
    /// The last `span` of a history until `now`, or all of it where that is less.
    pub fn of(history: &ModelHistory, span: Duration, now: Moment) -> Self {
        let wanted = now.monotonic.saturating_sub(span.max(SHORTEST));
        let first = history.traffic().next().map_or(now.monotonic, |run| Duration::from_secs(run.from.into()));
        let from = first.min(now.monotonic.saturating_sub(SHORTEST)).max(wanted);
        Self { now, from: u32::try_from(from.as_secs()).unwrap_or(u32::MAX) }
    }

    /// Seconds since the Unix epoch, by the wall clock of now: a clock that was set makes no gap.
    fn wall(&self, at: u32) -> Seconds {
        Seconds(self.now.wall.as_secs_f64() - self.now.monotonic.as_secs_f64() + f64::from(at))
    }

    fn axis(&self) -> Axis {
        Axis::time_of_day(self.wall(self.from), self.now.wall.into(), INTERVALS)
    }

    /// The runs that reach into it.
    fn cut<T>(&self, runs: impl Iterator<Item = Run<T>>) -> Vec<Run<T>> {
        runs.filter(|run| run.until >= self.from).map(|run| Run { from: run.from.max(self.from), ..run }).collect()
    }

    /// A stair that holds each value until the next, with gaps where nothing is known.
    fn stair<T>(&self, name: &str, ink: Ink, runs: &[Run<T>], value: impl Fn(&T) -> Option<f64>) -> Curve {
        let mut points = Vec::new();
        let mut end = None;
        for run in runs {
            points.extend(end.filter(|end| *end < run.from).map(|end| Point { at: self.wall(end), value: None }));
            points.push(Point { at: self.wall(run.from), value: value(&run.value) });
            end = Some(run.until);
        }
        points.extend(runs.last().map(|last| Point { at: self.wall(last.until), value: value(&last.value) }));
        Curve { name: name.to_owned(), ink, shape: Shape::Steps, points }
    }
}

/// The plots of one model. What was never known has none.
pub fn plots(plan: &Plan, history: &ModelHistory, view: &View) -> String {
    let time = view.axis();
    let traffic = view.cut(history.traffic());
    let mut html: String = plan.pools.iter().map(|pool| counts(pool, &view.cut(history.pool(&pool.pool)), view, &time)).collect();
    let objectives = plan.has_objectives().then(|| [plan.slo.ttft, plan.slo.itl].map(|objective| Seconds(objective.get())));
    let statistic = plan.slo.statistic.as_str();
    let phases = [
        ("TTFT", Traffic::ttft as fn(&Traffic) -> Option<Seconds>, Traffic::slo_ttft as fn(&Traffic) -> Option<Seconds>),
        ("ITL", Traffic::itl, Traffic::slo_itl),
    ];
    for (at, (name, measured, objective)) in phases.into_iter().enumerate() {
        let objectives = objectives.map(|both| both[at]);
        let drawn = Latency { title: format!("{name}, {statistic} of each window"), measured, objective, in_force: objectives };
        html.push_str(&latencies(&drawn, &traffic, view, &time).unwrap_or_default());
    }
    html.push_str(&rates(&traffic, view, &time).unwrap_or_default());
    format!("<div class=\"plots\">\n{html}</div>\n")
}

fn counts(pool: &PoolPlan, runs: &[Run<Counts>], view: &View, time: &Axis) -> String {
    let count = |count: fn(&Counts) -> Option<Replicas>| move |counts: &Counts| count(counts).map(Replicas::as_f64);
    let mut curves = vec![
        view.stair("recommended", Ink::Wide, runs, count(Counts::recommended)),
        view.stair("ready", Ink::Thin, runs, count(Counts::current)),
    ];
    // Shadow mode, pins and values that expired.
    if runs.iter().any(|run| run.value.planned() != run.value.recommended()) {
        curves.push(view.stair("planned", Ink::Dashed, runs, count(Counts::planned)));
    }
    let shown = |counts: &Counts| [counts.recommended(), counts.current(), counts.planned()];
    let most = runs.iter().flat_map(|run| shown(&run.value)).flatten().max().unwrap_or_default();
    let plot = Plot {
        title: format!("{}, replicas", pool.pool),
        size: Size::Full,
        time,
        values: &Axis::counts(most),
        curves,
        limit: None,
        shade: None,
        marks: Some(marks(runs, view)),
        bands: bands(runs, view),
    };
    plot.svg()
}

/// A mark for each change of the recommendation, and of the reason.
fn marks(runs: &[Run<Counts>], view: &View) -> Vec<Mark> {
    let mark = |pair: &[Run<Counts>]| {
        let [before, after] = pair else { return None };
        let (reason, at) = (Some(after.value.reason), view.wall(after.from));
        let sign = match (before.value.recommended(), after.value.recommended()) {
            (Some(from), Some(to)) if from < to => Sign::Up,
            (Some(from), Some(to)) if from > to => Sign::Down,
            _ if before.value.reason != after.value.reason => sign(reason),
            _ => return None,
        };
        let text = format!("{} {}\n{}: {}", time_of_day(at), step(before, after), after.value.reason, after.value.reason.meaning());
        Some(Mark { at, sign, tone: tone(reason), text })
    };
    runs.windows(2).filter_map(mark).collect()
}

/// Such as 2 → 3, or the count alone where it stays.
fn step(before: &Run<Counts>, after: &Run<Counts>) -> String {
    let text = |count: Option<Replicas>| count.map_or_else(|| "none".to_owned(), |count| count.to_string());
    let (from, to) = (before.value.recommended(), after.value.recommended());
    if from == to { text(to) } else { format!("{} → {}", text(from), text(to)) }
}

/// The time in which the pool was held, by reason.
fn bands(runs: &[Run<Counts>], view: &View) -> Vec<Band> {
    let held = runs.iter().filter(|run| run.value.reason != Reason::None);
    let band = |run: &Run<Counts>| {
        let reason = run.value.reason;
        let text = format!("{reason} from {}: {}", time_of_day(view.wall(run.from)), reason.meaning());
        Band { from: view.wall(run.from), until: view.wall(run.until), tone: tone(Some(reason)), text }
    };
    held.map(band).collect()
}

struct Latency {
    title: String,
    measured: fn(&Traffic) -> Option<Seconds>,
    objective: fn(&Traffic) -> Option<Seconds>,
    in_force: Option<Seconds>,
}

fn latencies(drawn: &Latency, runs: &[Run<Traffic>], view: &View, time: &Axis) -> Option<String> {
    let measured = || runs.iter().filter_map(|run| (drawn.measured)(&run.value));
    let objectives = || runs.iter().filter_map(|run| (drawn.objective)(&run.value));
    measured().next()?;
    let seconds = |of: fn(&Traffic) -> Option<Seconds>| move |traffic: &Traffic| of(traffic).map(Seconds::get);
    let mut curves = vec![view.stair("measured", Ink::Thin, runs, seconds(drawn.measured))];
    // A written objective is a line; one that is learned moves.
    let first = objectives().next();
    if objectives().any(|objective| Some(objective) != first) {
        curves.push(view.stair("objective", Ink::Dashed, runs, seconds(drawn.objective)));
    }
    let label = |value: Seconds| Limit { value: value.get(), label: format!("objective {}", latency(value)) };
    let plot = Plot {
        title: drawn.title.clone(),
        size: Size::Full,
        time,
        values: &Axis::latencies(measured().chain(objectives()).chain(drawn.in_force)),
        curves,
        limit: drawn.in_force.map(label),
        shade: None,
        marks: None,
        bands: Vec::new(),
    };
    Some(plot.svg())
}

fn rates(runs: &[Run<Traffic>], view: &View, time: &Axis) -> Option<String> {
    let all = |traffic: &Traffic| [traffic.offered(), traffic.observed(), traffic.predicted()];
    let most = runs.iter().flat_map(|run| all(&run.value)).flatten().map(RequestsPerSecond::get).reduce(f64::max)?;
    let rate = |of: fn(&Traffic) -> Option<RequestsPerSecond>| move |traffic: &Traffic| of(traffic).map(RequestsPerSecond::get);
    let plot = Plot {
        title: "Requests a second".to_owned(),
        size: Size::Full,
        time,
        values: &Axis::rates(RequestsPerSecond(most)),
        curves: vec![
            view.stair("offered", Ink::Wide, runs, rate(Traffic::offered)),
            view.stair("observed", Ink::Thin, runs, rate(Traffic::observed)),
            view.stair("predicted for the next window", Ink::Dashed, runs, rate(Traffic::predicted)),
        ],
        limit: None,
        shade: None,
        marks: None,
        bands: Vec::new(),
    };
    Some(plot.svg())
}

/// A folded list of the changes of the counts and reasons in that time, the newest first. `id` names it on its page.
pub fn changes(plan: &Plan, history: &ModelHistory, view: &View, id: &str) -> String {
    let mut changes: Vec<(u32, String)> = Vec::new();
    for pool in &plan.pools {
        let runs = view.cut(history.pool(&pool.pool));
        let changed = |pair: &[Run<Counts>]| {
            let [before, after] = pair else { return None };
            let same = before.value.recommended() == after.value.recommended() && before.value.reason == after.value.reason;
            (!same).then(|| (after.from, item(pool, before, after, view)))
        };
        changes.extend(runs.windows(2).filter_map(changed));
    }
    changes.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let summary = counted(changes.len(), "change");
    let mut html = format!("<details id=\"{id}\"><summary>{summary} of a count or of the reason in this time</summary>\n");
    if changes.len() > LISTED {
        let _ = writeln!(html, "<p class=\"faint\">The last {LISTED} of them.</p>");
    }
    html.push_str("<ol class=\"decisions\">\n");
    changes.iter().take(LISTED).for_each(|(_, item)| html.push_str(item));
    html.push_str("</ol></details>\n");
    html
}

fn item(pool: &PoolPlan, before: &Run<Counts>, after: &Run<Counts>, view: &View) -> String {
    let reason = after.value.reason;
    let word = if reason == Reason::None { "computed" } else { reason.as_str() };
    format!(
        "<li><b>{}</b> {} {} <span class=\"reason {}\" title=\"{}\">{word}</span></li>\n",
        time_of_day(view.wall(after.from)),
        Escaped(&pool.pool),
        step(before, after),
        tone(Some(reason)).class(),
        Escaped(reason.meaning()),
    )
}
