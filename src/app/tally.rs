//! What is counted? Scrapes, resets, decisions, skipped windows and limits; each once, where it happened.

use super::exporter::source_labels;
use super::fleet::KnownSource;
use crate::export::snapshot::Counters;
use crate::planner::input::{ModelInput, Reading, SourceId};
use crate::planner::plan::{Limit, Outcome, OverrideKind, Plan};
use crate::planner::policy::ModelPolicy;

/// Counts a round's scrapes by source and result.
pub fn scrapes(counters: &mut Counters, policy: &ModelPolicy, target_namespace: &str, input: &ModelInput) {
    for source in &input.sources {
        let labels = source_labels(policy, target_namespace, &source.source);
        for target in &source.targets {
            let failure = match &target.reading {
                Reading::Sample(_) => None,
                Reading::Failed(kind) => Some(*kind),
            };
            *counters.scrapes.entry((labels.clone(), failure)).or_default() += 1;
        }
    }
}

/// Takes over how often discovery has looked for each source's targets.
pub fn refreshes(counters: &mut Counters, policy: &ModelPolicy, target_namespace: &str, sources: &[KnownSource]) {
    for source in sources {
        if let Some(refreshes) = source.refreshes {
            counters.discovery_refreshes.insert(source_labels(policy, target_namespace, &source.source), refreshes);
        }
    }
}

/// Counts what a plan decided.
pub fn plan(counters: &mut Counters, policy: &ModelPolicy, target_namespace: &str, plan: &Plan) {
    for source in &plan.sources {
        let labels = source_labels(policy, target_namespace, &source.source);
        *counters.target_resets.entry(labels).or_default() += source.resets.len() as u64;
    }
    if plan.decided {
        queueing_updates(counters, policy, target_namespace, plan);
    }
    let Some(outcome) = plan.outcome else { return };
    let model = plan.model.as_str().to_owned();
    *counters.decisions.entry((model.clone(), target_namespace.to_owned(), outcome)).or_default() += 1;
    if outcome == Outcome::Held {
        *counters.windows_skipped.entry((model, target_namespace.to_owned(), plan.reason)).or_default() += 1;
    }
    for pool in &plan.pools {
        let labels = source_labels(policy, target_namespace, &SourceId::Pool(pool.pool.clone()));
        let pinned = (pool.overridden == Some(OverrideKind::Pin)).then_some(Limit::Pinned);
        // A held decision has no limits of its own.
        for limit in pool.limits_active.iter().copied().filter(|limit| *limit != Limit::Pinned).chain(pinned) {
            *counters.limits_applied.entry((labels.clone(), limit)).or_default() += 1;
        }
    }
}

/// Counts what became of the window that each pool's queueing model learned from. The plan shows it until the next decision: it is counted in the
/// round of its own.
fn queueing_updates(counters: &mut Counters, policy: &ModelPolicy, target_namespace: &str, plan: &Plan) {
    for pool in &plan.pools {
        if let Some(update) = pool.queueing.as_ref().and_then(|trace| trace.update) {
            let labels = source_labels(policy, target_namespace, &SourceId::Pool(pool.pool.clone()));
            *counters.queueing_updates.entry((labels, update)).or_default() += 1;
        }
    }
}
