//! How does one model stand? Its pools, the last hours, latency against the objectives, and the last decision step by step.

use std::fmt::Write;
use std::time::Duration;

use super::{encoded, frame, span};
use crate::export::served::{Absence, served};
use crate::export::snapshot::{ModelSnapshot, Snapshot};
use crate::planner::plan::{Observation, PhaseState, Plan, PoolPlan, Reason, SloSource};
use crate::planner::policy::{PoolPolicy, Statistic};
use crate::report::explain;
use crate::report::html::{Cell, Escaped, brief, records};
use crate::report::past::{View, changes, plots};
use crate::report::verdict::tone;
use crate::units::{Moment, Ratio, Seconds};

/// What of a model is looked at.
pub(super) struct Look {
    pub now: Moment,
    /// How far to look back.
    pub span: Duration,
    /// Which model of its page it is.
    pub place: usize,
    /// Whether the last decision is shown without being asked for.
    pub unfolded: bool,
}

pub(super) fn section(snapshot: &Snapshot, model: &ModelSnapshot, look: &Look) -> String {
    let (plan, place) = (&*model.plan, look.place);
    let interval = model.policy.load.map_or(model.policy.interval, |load| load.interval);
    let mut html = format!(
        "<section>\n<h2 id=\"{}\">{}</h2>\n<p class=\"faint\">Namespace {}, preset {}, mode {}, a decision every {}.</p>\n",
        encoded(plan.model.as_str()),
        Escaped(&plan.model),
        Escaped(&model.target_namespace),
        plan.preset.as_str(),
        plan.mode.as_str(),
        span(interval),
    );
    if plan.held {
        let (class, reason) = (tone(Some(plan.reason)).class(), plan.reason);
        let _ = writeln!(html, "<p class=\"banner {class}\">Held: <b>{}</b>. {}</p>", Escaped(reason), Escaped(reason.meaning()));
    }
    model.remarks.iter().for_each(|sentence| html.push_str(&frame::banner("wait", sentence)));
    html.push_str(&pools(snapshot, model, look.now));
    let view = View::of(&model.history, look.span, look.now);
    html.push_str(&plots(plan, &model.history, &view));
    html.push_str(&latencies(plan));
    html.push_str(&changes(plan, &model.history, &view, &format!("changes-{place}")));
    let open = if look.unfolded { " open" } else { "" };
    let _ = writeln!(
        html,
        "<details id=\"decision-{place}\"{open}><summary>The last decision, step by step</summary>\n{}</details>\n</section>",
        explain::decision(plan, &model.policy)
    );
    html
}

fn pools(snapshot: &Snapshot, model: &ModelSnapshot, now: Moment) -> String {
    let header = ["pool", "role", "ready", "recommended", "planned", "limits", "GPUs each", "coverage", "override", "valid for", "reason"];
    let row = |pool: &PoolPlan| {
        let policy = model.policy.pools.iter().find(|policy| policy.pool == pool.pool);
        let range = |policy: &PoolPolicy| format!("{} to {}", policy.limits.min(), policy.limits.max());
        let left = |until: Duration| {
            let age = now.monotonic.saturating_sub(snapshot.at.monotonic);
            span(until.saturating_sub(snapshot.at.wall).saturating_sub(age))
        };
        vec![
            Cell::text(&pool.pool),
            Cell::text(pool.role),
            Cell::number(pool.current_replicas),
            Cell::number(served(snapshot, pool, now).ok()),
            Cell::number(pool.planned_replicas),
            Cell::number(policy.map(range)),
            Cell::number(Some(pool.gpus_per_replica)),
            Cell::number(pool.coverage.map(percent)),
            Cell::known(pool.overridden),
            Cell::number(pool.published.map(|published| left(published.valid_until))),
            reason(snapshot, pool, now),
        ]
    };
    records(&header, &model.plan.pools.iter().map(row).collect::<Vec<_>>())
}

/// Why a pool's count is what it is, or why there is none.
pub(super) fn reason(snapshot: &Snapshot, pool: &PoolPlan, now: Moment) -> Cell {
    let class = tone(Some(pool.reason)).class();
    let lacks: Vec<String> = pool.missing.iter().map(ToString::to_string).collect();
    let lacks = if lacks.is_empty() { String::new() } else { format!(" Missing: {}.", lacks.join(", ")) };
    match (served(snapshot, pool, now), pool.reason) {
        (Err(absence @ (Absence::Shadow | Absence::Expired)), _) => {
            let (word, meaning) = absence_in_words(absence);
            Cell::word("alarm", word, format_args!("{meaning}{lacks}"))
        }
        // What held it says why; a computed value needs no reason, but may carry one.
        (Ok(_), Reason::None) if !pool.held => Cell::word(class, "computed", lacks),
        (_, reason) if pool.held => Cell::word(class, reason, format_args!("held. {}{lacks}", reason.meaning())),
        (_, reason) => Cell::word(class, reason, format_args!("{}{lacks}", reason.meaning())),
    }
}

/// The word before the colon of an absence, and what it says.
fn absence_in_words(absence: Absence) -> (String, String) {
    let text = absence.to_string();
    text.split_once(": ").map_or_else(|| (text.clone(), String::new()), |(word, meaning)| (word.to_owned(), meaning.to_owned()))
}

/// Latencies to look at; the arithmetic of the decision has more digits.
fn millis(seconds: f64) -> String {
    format!("{} ms", brief(seconds * 1000.0))
}

fn percent(share: Ratio) -> String {
    format!("{} %", brief(share.get() * 100.0))
}

fn latencies(plan: &Plan) -> String {
    let header = [
        "latency",
        "objective",
        "observed",
        "met",
        "attainable",
        "share within",
        "observed / modelled",
        "estimate now",
        "estimate as recommended",
    ];
    let seen = plan.observation.as_ref();
    let estimated = &plan.estimated;
    let rows = [
        phase(Phase {
            name: "TTFT",
            objective: plan.has_objectives().then(|| plan.slo.ttft.get()),
            source: plan.slo_source,
            statistic: plan.slo.statistic,
            observed: seen.and_then(|seen| seen.ttft_seconds),
            state: plan.prompt,
            attained: seen.and_then(|seen| seen.ttft_attainment).filter(|_| plan.has_objectives()),
            ratio: plan.latency_ratio.prompt,
            estimates: [estimated.current.ttft_seconds, estimated.recommended.ttft_seconds],
        }),
        phase(Phase {
            name: "ITL",
            objective: plan.has_objectives().then(|| plan.slo.itl.get()),
            source: plan.slo_source,
            statistic: plan.slo.statistic,
            observed: seen.and_then(|seen| seen.itl_seconds),
            state: plan.generation,
            attained: seen.and_then(|seen| seen.itl_attainment).filter(|_| plan.has_objectives()),
            ratio: plan.latency_ratio.generation,
            estimates: [estimated.current.itl_seconds, estimated.recommended.itl_seconds],
        }),
    ];
    records(&header, &rows) + &demand(plan, seen)
}

/// Load in numbers.
fn demand(plan: &Plan, seen: Option<&Observation>) -> String {
    let observed = seen.and_then(|seen| seen.requests_per_second);
    let offered = seen
        .filter(|seen| seen.elapsed_seconds.is_positive())
        .and_then(|seen| Some(seen.offered_requests?.get() / seen.elapsed_seconds.get()));
    let rates = [
        ("offered", offered),
        ("observed", observed.map(|rate| rate.get())),
        ("predicted for the next window", plan.prediction.map(|next| next.requests_per_second.get())),
    ];
    let known: Vec<String> = rates.iter().filter_map(|(name, rate)| Some(format!("{name} <b>{}</b>", brief((*rate)?)))).collect();
    if known.is_empty() { String::new() } else { format!("<p>Requests a second in the last window: {}.</p>\n", known.join(", ")) }
}

struct Phase {
    name: &'static str,
    /// Seconds; `None` where the policy knows no objective.
    objective: Option<f64>,
    source: SloSource,
    statistic: Statistic,
    observed: Option<Seconds>,
    state: PhaseState,
    attained: Option<Ratio>,
    ratio: Option<Ratio>,
    estimates: [Option<Seconds>; 2],
}

fn phase(phase: Phase) -> Vec<Cell> {
    let latency = |value: Option<Seconds>| Cell::number(value.map(|latency| millis(latency.get())));
    let [current, recommended] = phase.estimates;
    let found = match phase.source {
        SloSource::Explicit => String::new(),
        source => format!(", {source}"),
    };
    let met = match phase.state.met {
        Some(true) => Cell::word("calm", "yes", ""),
        Some(false) => Cell::word("alarm", "no", ""),
        None => Cell::known(None::<&str>),
    };
    vec![
        Cell::text(phase.name),
        Cell::number(phase.objective.map(|objective| format!("{} ({}{found})", millis(objective), phase.statistic.as_str()))),
        latency(phase.observed),
        met,
        Cell::known(phase.state.attainable.map(|attainable| if attainable { "yes" } else { "no" })),
        Cell::number(phase.attained.map(percent)),
        Cell::number(phase.ratio.map(|ratio| brief(ratio.get()))),
        latency(current),
        latency(recommended),
    ]
}
