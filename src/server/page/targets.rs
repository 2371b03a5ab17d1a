//! Which targets are asked, and what is wrong with them? Those in trouble first.

use std::fmt::Write;

use crate::export::snapshot::TargetStatus;
use crate::planner::input::NEEDED;
use crate::report::html::{Cell, records};

/// Targets listed at most; the metrics have all of them.
const LISTED: usize = 50;

const HEADER: [&str; 6] = ["target", "pool", "engine", "state", "problem", "missing measurements"];

pub(super) fn section(targets: &[TargetStatus]) -> String {
    let up = targets.iter().filter(|target| target.up).count();
    let mut html = format!("<h2 id=\"targets\">Targets</h2>\n<p>{up} of {} answer.</p>\n", targets.len());
    let (troubled, sound): (Vec<_>, Vec<_>) = targets.iter().partition(|target| is_troubled(target));
    html.push_str(&listed(&troubled));
    if !sound.is_empty() {
        let _ = writeln!(html, "<details id=\"sound\"><summary>{} without a problem</summary>\n{}</details>", sound.len(), listed(&sound));
    }
    html
}

fn is_troubled(target: &TargetStatus) -> bool {
    !target.up || target.problem.is_some() || target.missing.iter().any(|role| NEEDED.contains(role))
}

fn listed(targets: &[&TargetStatus]) -> String {
    if targets.is_empty() {
        return String::new();
    }
    let row = |target: &&TargetStatus| {
        vec![
            Cell::text(&target.target),
            Cell::known(target.pool.as_ref()),
            Cell::text(&target.engine),
            if target.up { Cell::word("calm", "up", "") } else { Cell::word("alarm", "down", "") },
            Cell::known(target.problem.as_ref()),
            Cell::known((!target.missing.is_empty()).then(|| target.missing.join(", "))),
        ]
    };
    let mut html = records(&HEADER, &targets.iter().take(LISTED).map(row).collect::<Vec<_>>());
    if let Some(more) = targets.len().checked_sub(LISTED).filter(|&more| more > 0) {
        let _ = writeln!(html, "<p>And {more} more.</p>");
    }
    html
}
