//! What did a policy decide, when, and why? Marks for the time axis and a list to read.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use crate::planner::plan::{Step, StepReason};
use crate::report::html::Escaped;
use crate::report::plot::{Mark, Sign, clock};
use crate::report::verdict::{counted, sign, tone};
use crate::simulator::backtest::outcome::Decision;
use crate::simulator::backtest::{Outcome, PoolWhy, Why};
use crate::units::{Replicas, Role};

/// Decisions listed at most; a long list is for programs.
const LISTED: usize = 500;

/// A decision and the counts before it.
#[derive(Clone, Copy)]
struct Change<'a> {
    before: Option<&'a BTreeMap<Role, Replicas>>,
    decision: &'a Decision,
}

impl Change<'_> {
    fn before(&self, role: Role) -> Option<Replicas> {
        self.before.and_then(|counts| counts.get(&role)).copied()
    }

    /// Such as 2 → 3, or the count alone where it stays.
    fn count(&self, role: Role) -> String {
        let Some(after) = self.decision.replicas.get(&role) else { return "–".to_owned() };
        match self.before(role) {
            Some(before) if before != *after => format!("{before} → {after}"),
            _ => after.to_string(),
        }
    }

    fn changes_a_count(&self) -> bool {
        self.before.is_none_or(|before| *before != self.decision.replicas)
    }
}

fn changes(decisions: &[Decision]) -> Vec<Change<'_>> {
    let before = std::iter::once(None).chain(decisions.iter().map(|decision| Some(&decision.replicas)));
    decisions.iter().zip(before).map(|(decision, before)| Change { before, decision }).collect()
}

/// Marks of one role: its changes, and each change of the reason.
pub(super) fn marks(decisions: &[Decision], role: Role) -> Vec<Mark> {
    let reason = |decision: &Decision| decision.why.as_ref().map(|why| why.reason);
    let mut last = None;
    let mut marks = Vec::new();
    for change in changes(decisions) {
        let after = change.decision.replicas.get(&role).copied();
        let moved = change.before.is_some() && change.before(role) != after;
        let reason = reason(change.decision);
        if moved || last != Some(reason) {
            let sign = if moved { if change.before(role) < after { Sign::Up } else { Sign::Down } } else { sign(reason) };
            marks.push(Mark { at: change.decision.at, sign, tone: tone(reason), text: tooltip(&change, role) });
        }
        last = Some(reason);
    }
    marks
}

fn tooltip(change: &Change<'_>, role: Role) -> String {
    let mut text = format!("{} {role} {}", clock(change.decision.at), change.count(role));
    let Some(why) = &change.decision.why else { return text };
    let _ = write!(text, "\n{}: {}", why.reason, why.reason.meaning());
    if let Some(pool) = why.pools.get(&role) {
        for line in [proposals(pool), telling(pool)].into_iter().filter(|line| !line.is_empty()) {
            let _ = write!(text, "\n{line}");
        }
    }
    text
}

fn proposals(pool: &PoolWhy) -> String {
    pool.proposed.iter().map(|(proposer, replicas)| format!("{proposer} {replicas}")).collect::<Vec<_>>().join(", ")
}

/// The steps that did something or could have.
fn telling(pool: &PoolWhy) -> String {
    let step = |step: &Step| match step.before == step.after {
        true => format!("{} {} ({})", step.stage, step.after, step.reason),
        false => format!("{} {} → {} ({})", step.stage, step.before, step.after, step.reason),
    };
    pool.steps
        .iter()
        .filter(|step| step.reason != StepReason::WithinLimit || step.before != step.after)
        .map(step)
        .collect::<Vec<_>>()
        .join(", ")
}

/// A folded list of all decisions, the start first, or of as many as can be read.
pub(super) fn list(outcome: &Outcome) -> String {
    let all = changes(&outcome.decisions);
    let mut listed: Vec<&Change<'_>> = all.iter().collect();
    if listed.len() > LISTED {
        listed.retain(|change| change.changes_a_count());
        listed.truncate(LISTED);
    }
    let left_out = all.len() - listed.len();
    let mut html = format!(
        "<details><summary>The start and {} of a count or of the reason</summary>\n",
        counted(all.len().saturating_sub(1), "change")
    );
    if left_out > 0 {
        let _ = writeln!(
            html,
            "<p>{left_out} are left out: those that changed the reason only, and all beyond the first {LISTED}. <code>--format json</code> has all.</p>"
        );
    }
    html.push_str("<ol class=\"decisions\">\n");
    for change in listed {
        html.push_str(&item(change));
    }
    html.push_str("</ol></details>\n");
    html
}

/// When, what and why in one line, then a line for each pool that proposals were made for.
fn item(change: &Change<'_>) -> String {
    let counts: Vec<String> = change.decision.replicas.keys().map(|&role| format!("{role} {}", change.count(role))).collect();
    let mut html = format!("<li><b>{}</b> {}", clock(change.decision.at), counts.join(", "));
    let Some(why) = &change.decision.why else { return html + "</li>\n" };
    let tone = tone(Some(why.reason)).class();
    let _ = write!(html, " <span class=\"reason {tone}\" title=\"{}\">{}</span>", Escaped(why.reason.meaning()), Escaped(why.reason));
    if let Some(rate) = why.observed {
        let _ = write!(html, " <span class=\"faint\">observed {:.2}/s</span>", rate.get());
    }
    for (role, pool) in &why.pools {
        let parts = [proposals(pool), telling(pool)].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        if !parts.is_empty() {
            let _ = write!(html, "<div>{role}: {}</div>", Escaped(parts));
        }
    }
    for warning in &why.warnings {
        let _ = write!(html, "<div class=\"reason wait\" title=\"{}\">{}</div>", Escaped(warning.meaning()), Escaped(warning));
    }
    html + "</li>\n"
}

/// The words that the lists use, with their meanings.
pub(super) fn words<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> String {
    let mut words: BTreeMap<String, &'static str> = BTreeMap::new();
    for why in outcomes.flat_map(|outcome| &outcome.decisions).filter_map(|decision| decision.why.as_ref()) {
        note(&mut words, why);
    }
    if words.is_empty() {
        return String::new();
    }
    let mut html = String::from("<h2>What the words mean</h2>\n<dl class=\"words\">\n");
    for (word, meaning) in words {
        let _ = writeln!(html, "<dt><code>{}</code></dt><dd>{}</dd>", Escaped(word), Escaped(meaning));
    }
    html.push_str("</dl>\n");
    html
}

fn note(words: &mut BTreeMap<String, &'static str>, why: &Why) {
    let mut add = |word: &dyn Display, meaning| {
        words.insert(word.to_string(), meaning);
    };
    add(&why.reason, why.reason.meaning());
    for warning in &why.warnings {
        add(warning, warning.meaning());
    }
    for pool in why.pools.values() {
        for proposer in pool.proposed.keys() {
            add(proposer, proposer.meaning());
        }
        for step in pool.steps.iter().filter(|step| step.reason != StepReason::WithinLimit) {
            add(&step.stage, step.stage.meaning());
            add(&step.reason, step.reason.meaning());
        }
    }
}
