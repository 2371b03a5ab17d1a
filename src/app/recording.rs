//! What is recorded of a round? Every decision with its pages, its memory and its plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exporter::Round;
use crate::config::Portable;
use crate::planner::input::Reading;
use crate::record::{DecisionRecord, RecordedPage, RecordedSource, RecordedTarget, Recorder, Recording};
use crate::scrape::report::TargetReport;
use crate::units::{Moment, TargetId};

/// Records the decisions among `rounds`, and keeps the pages with which windows begin. A full disk costs the recording and nothing else.
pub fn record(recorder: &mut Recorder, rounds: &[Round], reports: &[TargetReport], now: Moment, portable: &Portable) {
    let by_target: BTreeMap<&TargetId, &TargetReport> = reports.iter().map(|report| (&report.target, report)).collect();
    for round in rounds.iter().filter(|round| round.plan.decided) {
        let recording = assemble(recorder, round, &by_target, now, portable);
        match recorder.write(&recording) {
            Ok(folder) => tracing::debug!(folder = %folder.display(), "decision recorded"),
            Err(error) => tracing::error!("decision not recorded: {error}"),
        }
    }
    for (target, at) in beginnings(rounds) {
        let page = by_target.get(target).filter(|report| report.at == at).and_then(|report| report.outcome.as_ref().ok());
        if let Some(page) = page.and_then(|scraped| scraped.page.as_deref())
            && let Err(error) = recorder.keep_beginning(target, at, page)
        {
            tracing::error!(%target, "page not kept for recording: {error}");
        }
    }
    recorder.retain(|target| by_target.contains_key(target));
}

/// The targets whose windows begin, and when.
fn beginnings(rounds: &[Round]) -> impl Iterator<Item = (&TargetId, std::time::Duration)> {
    let targets = rounds.iter().flat_map(|round| &round.after.sources).flat_map(|source| &source.targets);
    targets.filter_map(|(target, window)| Some((target, window.first.as_ref()?.at)))
}

fn assemble(
    recorder: &Recorder,
    round: &Round,
    reports: &BTreeMap<&TargetId, &TargetReport>,
    now: Moment,
    portable: &Portable,
) -> Recording {
    let engine = |target: &TargetId| {
        let scraped = reports.get(target).and_then(|report| report.outcome.as_ref().ok());
        scraped.map(|scraped| scraped.engine.to_owned()).unwrap_or_default()
    };
    let sources = round.input.sources.iter().map(|source| RecordedSource {
        source: source.source.clone(),
        discovery_failed: source.discovery_failed,
        lifecycle: source.lifecycle,
        targets: source
            .targets
            .iter()
            .map(|reading| RecordedTarget {
                target: reading.target.clone(),
                at: reading.at,
                engine: engine(&reading.target),
                failure: match &reading.reading {
                    Reading::Sample(_) => None,
                    Reading::Failed(kind) => Some(*kind),
                },
            })
            .collect(),
    });
    let after = reports.values().filter_map(|report| {
        let text = report.outcome.as_ref().ok()?.page.clone()?;
        Some(RecordedPage { target: report.target.clone(), text })
    });
    let windows = round.before.sources.iter().flat_map(|source| &source.targets);
    let before = windows.filter_map(|(target, window)| recorder.beginning(target, window.first.as_ref()?.at));
    Recording {
        record: DecisionRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: round.policy.model.clone(),
            moment: now,
            sources: sources.collect(),
        },
        config: portable.config.clone(),
        files: portable.files.clone(),
        policy: (*round.policy).clone(),
        memory: Arc::clone(&round.before),
        plan: (*round.plan).clone(),
        before: before.collect(),
        after: after
            .filter(|page| round.input.sources.iter().any(|source| source.targets.iter().any(|t| t.target == page.target)))
            .collect(),
    }
}
