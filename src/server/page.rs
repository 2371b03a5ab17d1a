//! What does a person see at `/`? Models, pools, latency against objectives, the last decision step by step, and troubled targets.
//!
//! One self-contained page without scripts or external resources. All text that comes from outside is escaped.

use std::fmt::Write;
use std::time::Duration;

use crate::export::served::served;
use crate::export::snapshot::{ModelSnapshot, Snapshot, TargetStatus};
use crate::planner::input::{NEEDED, PoolPolicy, Statistic};
use crate::planner::plan::{Observation, PhaseState, Plan, PoolPlan, Reason, SloSource};
use crate::report::explain;
use crate::report::html::{Escaped, brief, known, number, table};
use crate::units::{Moment, Ratio, Seconds};

/// Troubled targets listed at most; the metrics have all of them.
const TARGETS_LISTED: usize = 50;

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<meta http-equiv=\"refresh\" content=\"10\">
<title>inference-planner-exporter</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; margin: .5em 0 1.5em }
th, td { border: 1px solid #ccc; padding: .25em .6em; text-align: left; vertical-align: top }
th { background: #f2f2f2 }
td { font-variant-numeric: tabular-nums }
.pools td:not(:last-child), .latencies td { white-space: nowrap }
h2 { border-top: 2px solid #ddd; margin-top: 2em; padding-top: .5em }
.held, .warnings { background: #fff4d6; padding: .5em 1em }
.warnings { padding-left: 2em }
code { font-size: 90% }
</style>
</head>
<body>
<h1>inference-planner-exporter</h1>
";

pub(super) fn render(snapshot: &Snapshot, now: Moment) -> String {
    let mut html = String::from(HEAD);
    html.push_str(&introduction(snapshot, now));
    if snapshot.models.is_empty() {
        html.push_str("<p>No model has been seen yet.</p>\n");
    }
    for model in &snapshot.models {
        html.push_str(&render_model(snapshot, model, now));
    }
    html.push_str(&targets(&snapshot.targets));
    html.push_str("</body>\n</html>\n");
    html
}

fn introduction(snapshot: &Snapshot, now: Moment) -> String {
    let mut html = format!(
        "<p>Plans how many LLM inference replicas meet the latency objectives. Version {}, configuration <code>{}</code>.\n\
         Last round {} ago.</p>\n\
         <p><a href=\"/metrics\">metrics</a> · <a href=\"/api/v1/plans\">plans as JSON</a> · \
         <a href=\"/api/v1/decisions\">decisions as JSON</a> · <a href=\"/-/healthy\">healthy</a> · \
         <a href=\"/-/ready\">ready</a></p>\n",
        env!("CARGO_PKG_VERSION"),
        Escaped(&snapshot.config_hash),
        seconds(now.monotonic.saturating_sub(snapshot.at.monotonic)),
    );
    if !snapshot.ready {
        html.push_str("<p class=\"held\">The first scrape round has not ended.</p>\n");
    }
    if !snapshot.reload.successful {
        html.push_str("<p class=\"held\">The last attempt to load the configuration failed; the old one is in force. The log names every problem.</p>\n");
    }
    html
}

fn seconds(span: Duration) -> String {
    format!("{} s", number(span.as_secs_f64().round()))
}

fn render_model(snapshot: &Snapshot, model: &ModelSnapshot, now: Moment) -> String {
    let plan = &*model.plan;
    let mut html = format!(
        "<h2>{}</h2>\n<p>Namespace {}, preset {}, mode {}, a decision every {}.</p>\n",
        Escaped(&plan.model),
        Escaped(&model.target_namespace),
        plan.preset.as_str(),
        plan.mode.as_str(),
        seconds(model.policy.load.map_or(model.policy.interval, |load| load.interval)),
    );
    if plan.held {
        let _ = writeln!(html, "<p class=\"held\">Held: <b>{}</b>. {}</p>", Escaped(plan.reason), Escaped(plan.reason.meaning()));
    }
    for sentence in &model.remarks {
        let _ = writeln!(html, "<p class=\"held\">{}</p>", Escaped(sentence));
    }
    html.push_str(&pools(snapshot, model, now));
    html.push_str(&latencies(plan));
    let _ = writeln!(html, "<h3>Last decision of {}</h3>", Escaped(&plan.model));
    html.push_str(&explain::decision(plan, &model.policy));
    html
}

fn pools(snapshot: &Snapshot, model: &ModelSnapshot, now: Moment) -> String {
    let header = ["pool", "role", "ready", "recommended", "planned", "limits", "GPUs each", "coverage", "override", "valid for", "reason"];
    let row = |pool: &PoolPlan| {
        let policy = model.policy.pools.iter().find(|policy| policy.pool == pool.pool);
        let range = |policy: &PoolPolicy| format!("{} to {}", policy.limits.min(), policy.limits.max());
        // What held it says why; a computed value needs no reason, but may carry one.
        let reason = match (pool.held, pool.reason) {
            (false, Reason::None) => "computed".to_owned(),
            (held, reason) => format!("{}{reason}: {}", if held { "held, " } else { "" }, reason.meaning()),
        };
        let lacks: Vec<String> = pool.missing.iter().map(ToString::to_string).collect();
        let reason = if lacks.is_empty() { reason } else { format!("{reason} Missing: {}.", lacks.join(", ")) };
        let left = |until: Duration| {
            let age = now.monotonic.saturating_sub(snapshot.at.monotonic);
            seconds(until.saturating_sub(snapshot.at.wall).saturating_sub(age))
        };
        vec![
            pool.pool.to_string(),
            pool.role.to_string(),
            known(pool.current_replicas),
            served(snapshot, pool, now).map_or_else(|absence| absence.to_string(), |replicas| replicas.to_string()),
            known(pool.planned_replicas),
            known(policy.map(range)),
            pool.gpus_per_replica.to_string(),
            known(pool.coverage.map(percent)),
            known(pool.overridden),
            known(pool.published.map(|published| left(published.valid_until))),
            reason,
        ]
    };
    format!("<h3>Pools</h3>\n<div class=\"pools\">\n{}</div>\n", table(&header, &model.plan.pools.iter().map(row).collect::<Vec<_>>()))
}

/// Latencies to look at; the arithmetic below has more digits.
fn millis(seconds: f64) -> String {
    format!("{} ms", brief(seconds * 1000.0))
}

fn percent(share: Ratio) -> String {
    format!("{} %", brief(share.get() * 100.0))
}

fn latencies(plan: &Plan) -> String {
    let header = [
        "",
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
    format!("<h3>Latency</h3>\n<div class=\"latencies\">\n{}</div>\n{}", table(&header, &rows), demand(seen))
}

fn demand(seen: Option<&Observation>) -> String {
    let Some(rate) = seen.and_then(|seen| seen.requests_per_second) else { return String::new() };
    format!("<p>Load in the last window: {} requests/s.</p>\n", brief(rate.get()))
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

fn phase(phase: Phase) -> Vec<String> {
    let latency = |value: Option<Seconds>| known(value.map(|latency| millis(latency.get())));
    let yes_or_no = |flag: Option<bool>| known(flag.map(|flag| if flag { "yes" } else { "no" }));
    let [current, recommended] = phase.estimates;
    let found = match phase.source {
        SloSource::Explicit => String::new(),
        source => format!(", {source}"),
    };
    vec![
        phase.name.to_owned(),
        known(phase.objective.map(|objective| format!("{} ({}{found})", millis(objective), phase.statistic.as_str()))),
        latency(phase.observed),
        yes_or_no(phase.state.met),
        yes_or_no(phase.state.attainable),
        known(phase.attained.map(percent)),
        known(phase.ratio.map(|ratio| brief(ratio.get()))),
        latency(current),
        latency(recommended),
    ]
}

fn targets(targets: &[TargetStatus]) -> String {
    let up = targets.iter().filter(|target| target.up).count();
    let mut html = format!("<h2>Targets</h2>\n<p>{up} of {} answer.</p>\n", targets.len());
    let lacks = |target: &TargetStatus| target.missing.iter().any(|role| NEEDED.contains(role));
    let troubled: Vec<_> = targets.iter().filter(|target| !target.up || target.problem.is_some() || lacks(target)).collect();
    if troubled.is_empty() {
        return html;
    }
    let row = |target: &&TargetStatus| {
        vec![
            target.target.to_string(),
            known(target.pool.as_ref()),
            target.engine.clone(),
            if target.up { "up" } else { "down" }.to_owned(),
            known(target.problem.as_ref()),
            target.missing.join(", "),
        ]
    };
    let rows: Vec<_> = troubled.iter().take(TARGETS_LISTED).map(row).collect();
    html.push_str(&table(&["target", "pool", "engine", "state", "problem", "missing measurements"], &rows));
    if let Some(more) = troubled.len().checked_sub(TARGETS_LISTED).filter(|&more| more > 0) {
        let _ = writeln!(html, "<p>And {more} more.</p>");
    }
    html
}
