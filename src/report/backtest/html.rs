//! How does a comparison look? A page that needs nothing but itself: the summary, then each configuration over time, side by side.

use std::fmt::Write;

use super::charts::{Axes, full, small};
use super::decisions::{list, words};
use super::rows::{ATTAINMENT, HEADERS, LEGEND, best, goal, largest, metric_faults, notes, rows};
use crate::report::html::{Escaped, brief};
use crate::report::plot::{CURSOR, Ink, STYLE, clock, key, latency};
use crate::report::verdict::{counted, legend};
use crate::simulator::backtest::comparison::Comparison;
use crate::simulator::backtest::outcome::Outcome;
use crate::units::{Ratio, Seconds};

/// The whole page.
pub fn html(comparison: &Comparison) -> String {
    let name = Escaped(&comparison.trace.name);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Backtest: {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Backtest</h1>\n"
    );
    html.push_str(&facts(comparison));
    html.push_str(&summary(comparison));
    let axes = Axes::of(comparison);
    let _ = writeln!(html, "<h2>{}</h2>\n{}<div class=\"columns\">", counted(comparison.configurations.len(), "configuration"), legend());
    for outcome in &comparison.configurations {
        html.push_str(&section(comparison, outcome, &(full(&axes, comparison, outcome) + &list(outcome))));
    }
    html.push_str("</div>\n");
    let others: Vec<&Outcome> = comparison.outcomes().skip(comparison.configurations.len()).collect();
    if !others.is_empty() {
        let keys = [key(Ink::Wide, "recommended"), key(Ink::Thin, "ready")].join(" ");
        let _ =
            writeln!(html, "<h2>Other policies, and what was possible</h2>\n<p class=\"keys\">{keys}</p>\n<div class=\"columns narrow\">");
        for outcome in others {
            html.push_str(&section(comparison, outcome, &small(&axes, outcome)));
        }
        html.push_str("</div>\n");
    }
    html.push_str(&words(comparison.configurations.iter()));
    let _ = write!(html, "<script>\n{CURSOR}</script>\n</body>\n</html>\n");
    html
}

fn section(comparison: &Comparison, outcome: &Outcome, content: &str) -> String {
    format!(
        "<section>\n<h3>{}</h3>\n<p><span class=\"{}\">{} within SLO</span>, {} GPU h</p>\n{content}</section>\n",
        Escaped(&outcome.policy),
        verdict(comparison, outcome),
        percent(outcome.attainment),
        brief(outcome.gpu_hours)
    )
}

/// The class that shows whether the goal is met.
fn verdict(comparison: &Comparison, outcome: &Outcome) -> &'static str {
    if outcome.attainment >= goal(comparison) { "met" } else { "missed" }
}

fn goal_in_words(comparison: &Comparison) -> String {
    let goal = format!("{} of the requests within both", percent(goal(comparison)));
    match largest(comparison) {
        Some(largest) => format!("{goal}, since the largest fleet within the limits has {}", percent(largest)),
        None => goal,
    }
}

fn percent(share: Ratio) -> String {
    format!("{:.2} %", 100.0 * share.get())
}

fn facts(comparison: &Comparison) -> String {
    let (trace, objectives, error) = (&comparison.trace, &comparison.objectives, &comparison.fit_error);
    let span = |span: Seconds| if span.get() < 120.0 { format!("{} s", brief(span.get())) } else { clock(span) };
    let mut facts = vec![
        ("trace", trace.name.clone()),
        ("requests", format!("{}, scaled by {}, seed {}", trace.requests, brief(trace.scale), trace.seed)),
        ("length", span(trace.length_seconds)),
        ("mean rate", format!("{} requests a second", brief(trace.rate.get()))),
        ("mean lengths", format!("{} tokens in, {} out", brief(trace.mean_input.get()), brief(trace.mean_output.get()))),
        ("start-up of a replica", span(comparison.startup_seconds)),
        ("objectives", format!("TTFT {}, ITL {}", latency(objectives.ttft_seconds), latency(objectives.itl_seconds))),
        ("goal", goal_in_words(comparison)),
        (
            "latencies of the simulated servers against the profile",
            format!(
                "prompts differ by {} on average, {} at most; ITL by {}, {} at most",
                percent(error.prefill_mean),
                percent(error.prefill_max),
                percent(error.decode_mean),
                percent(error.decode_max)
            ),
        ),
    ];
    if comparison.warm_up_seconds.is_positive() {
        facts.push(("warm-up, in the shade and not judged", span(comparison.warm_up_seconds)));
    }
    if let Some(faults) = metric_faults(comparison) {
        facts.push(("faults of the metrics, from time to time", faults));
    }
    if let Some(hindsight) = &comparison.hindsight {
        facts.push(("no plan can cost less than", format!("{} GPU h", brief(hindsight.lower_bound_gpu_hours))));
    }
    let mut html = String::from("<dl class=\"facts\">\n");
    for (name, fact) in facts {
        let _ = writeln!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", Escaped(fact));
    }
    html.push_str("</dl>\n");
    html
}

fn summary(comparison: &Comparison) -> String {
    let best = best(comparison);
    let mut html = String::from("<div class=\"scroll\"><table class=\"numbers\">\n<tr>");
    for header in HEADERS {
        let _ = write!(html, "<th>{header}</th>");
    }
    html.push_str("</tr>\n");
    for (outcome, cells) in comparison.outcomes().zip(rows(comparison)) {
        html.push_str(if best.is_some_and(|best| std::ptr::eq(best, outcome)) { "<tr class=\"best\">" } else { "<tr>" });
        for (column, cell) in cells.iter().enumerate() {
            let _ = match column {
                ATTAINMENT => write!(html, "<td class=\"{}\">{}</td>", verdict(comparison, outcome), Escaped(cell)),
                _ => write!(html, "<td>{}</td>", Escaped(cell)),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    let star = match best {
        Some(_) => {
            "★ the cheapest that meets the goal, of configurations and usual settings; what was chosen on this very trace gets no star"
        }
        None => "none of the configurations and usual settings meets the goal",
    };
    for note in std::iter::once(star.to_owned()).chain(notes(comparison)).chain(LEGEND.map(str::to_owned)) {
        let _ = writeln!(html, "<p class=\"faint note\">{}</p>", Escaped(note));
    }
    html
}
