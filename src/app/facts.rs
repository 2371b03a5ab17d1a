//! What was found out in a round? The reports of the targets, as facts about one model.

use std::collections::{BTreeMap, BTreeSet};

use super::fleet::KnownSource;
use crate::planner::input::{ModelInput, Reading, SourceInput, TargetReading};
use crate::scrape::report::TargetReport;
use crate::units::{ModelId, TargetId};

/// Name of the model whose samples carry no model label.
pub const UNNAMED_MODEL: &str = "default";

/// The models that a pattern's targets show in this round.
pub fn seen_models(sources: &[KnownSource], reports: &BTreeMap<&TargetId, &TargetReport>) -> BTreeSet<ModelId> {
    let pages = sources.iter().flat_map(|source| &source.targets).filter_map(|target| reports.get(&target.target));
    let readings: Vec<_> = pages.filter_map(|report| report.outcome.as_ref().ok()).map(|scraped| &scraped.reading).collect();
    let named: BTreeSet<ModelId> = readings.iter().flat_map(|reading| reading.model_names()).map(ModelId::from).collect();
    if named.is_empty() && readings.iter().any(|reading| !reading.models.is_empty()) {
        return BTreeSet::from([ModelId::from(UNNAMED_MODEL)]);
    }
    named
}

/// The facts of a round about one model.
pub fn input_of(sources: &[KnownSource], name: &ModelId, reports: &BTreeMap<&TargetId, &TargetReport>) -> ModelInput {
    let reading = |report: &TargetReport| match &report.outcome {
        Ok(scraped) => Reading::Sample(scraped.reading.of_model(name)),
        Err(failure) => Reading::Failed(failure.kind),
    };
    let sources = sources.iter().map(|source| SourceInput {
        source: source.source.clone(),
        discovery_failed: source.discovery_failed,
        targets: source
            .targets
            .iter()
            .filter_map(|target| reports.get(&target.target))
            .map(|report| TargetReading { target: report.target.clone(), at: report.at, reading: reading(report) })
            .collect(),
        lifecycle: source.replicas,
    });
    ModelInput::of(sources.collect())
}
