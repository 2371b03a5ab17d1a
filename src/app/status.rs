//! What is known of each target, and of a model that no target shows? In the words of the status page and the log.

use std::collections::{BTreeMap, BTreeSet};

use crate::app::fleet::{Fleet, KnownSource};
use crate::config::{Config, ModelConfig, ModelSelector};
use crate::engines::Reading;
use crate::export::snapshot::TargetStatus;
use crate::planner::input::SourceId;
use crate::planner::policy::{ModelPolicy, PoolPolicy};
use crate::scrape::report::TargetReport;
use crate::units::{PoolId, TargetId};

/// Every target that was asked, with what came of it. `planned` are the models that are planned, each with its place in the configuration;
/// `before` is the last round's.
pub fn statuses(
    config: &Config,
    fleet: &Fleet,
    reports: &BTreeMap<&TargetId, &TargetReport>,
    planned: &[(usize, &ModelPolicy)],
    before: &[TargetStatus],
) -> Vec<TargetStatus> {
    let before: BTreeMap<&TargetId, &PoolId> = before.iter().filter_map(|status| Some((&status.target, status.pool.as_ref()?))).collect();
    let mut statuses: BTreeMap<TargetId, TargetStatus> = BTreeMap::new();
    for (origin, model) in config.models.iter().enumerate() {
        let sources = fleet.sources(origin);
        for source in sources {
            for report in source.targets.iter().filter_map(|target| reports.get(&target.target)) {
                let (engine, missing, problem) = match &report.outcome {
                    Ok(scraped) => {
                        let problem = absent_model(model, &scraped.reading).or_else(|| scraped.first_problem.clone());
                        (scraped.engine, scraped.reading.missing.clone(), problem)
                    }
                    Err(failure) => ("", Vec::new(), Some(format!("{}: {}", failure.kind.as_str(), failure.message))),
                };
                let pool = match &source.source {
                    SourceId::Traffic => pool_of_replica(origin, sources, report, planned, &before),
                    SourceId::Pool(pool) => model.policy.pools.iter().find(|known| known.pool == *pool),
                };
                statuses.entry(report.target.clone()).or_insert_with(|| TargetStatus {
                    target: report.target.clone(),
                    pool: pool.map(|pool| pool.pool.clone()),
                    role: pool.map(|pool| pool.role),
                    engine: engine.to_owned(),
                    up: report.outcome.is_ok(),
                    duration: report.duration,
                    missing,
                    problem,
                });
            }
        }
    }
    statuses.into_values().collect()
}

/// The pool that a target of the traffic source is a replica of, where that is certain: it speaks for itself and not for a fleet, serves one
/// model, and that has one pool, without targets of its own. One that does not answer is what it was.
fn pool_of_replica<'a>(
    origin: usize,
    sources: &[KnownSource],
    report: &TargetReport,
    planned: &[(usize, &'a ModelPolicy)],
    before: &BTreeMap<&TargetId, &PoolId>,
) -> Option<&'a PoolPolicy> {
    let of_origin = || planned.iter().filter(|(place, _)| *place == origin).map(|(_, policy)| *policy);
    let pool = match &report.outcome {
        Ok(scraped) => {
            let reading = &scraped.reading;
            if reading.models.is_empty() || reading.models.values().any(|sample| sample.is_of_a_router()) {
                return None;
            }
            let served: Vec<&ModelPolicy> = of_origin().filter(|policy| !reading.lacks(&policy.model)).collect();
            let [policy] = served.as_slice() else { return None };
            let [pool] = policy.pools.as_slice() else { return None };
            pool
        }
        Err(_) => {
            let before = *before.get(&report.target)?;
            of_origin().flat_map(|policy| &policy.pools).find(|pool| pool.pool == *before)?
        }
    };
    let own = SourceId::Pool(pool.pool.clone());
    sources.iter().all(|source| source.source != own).then_some(pool)
}

/// In words, where every page that was read serves other models than the one that is planned.
pub fn absent_everywhere(model: &ModelConfig, sources: &[KnownSource], reports: &BTreeMap<&TargetId, &TargetReport>) -> Option<String> {
    /// Enough to see which name was meant.
    const MOST_SHOWN: usize = 10;
    let ModelSelector::Named(name) = &model.selector else { return None };
    let pages = sources.iter().flat_map(|source| &source.targets).filter_map(|target| reports.get(&target.target));
    let readings: Vec<&Reading> = pages.filter_map(|report| report.outcome.as_ref().ok()).map(|scraped| &scraped.reading).collect();
    if readings.is_empty() || !readings.iter().all(|reading| reading.lacks(name)) {
        return None;
    }
    let seen: BTreeSet<&str> = readings.iter().flat_map(|reading| reading.model_names()).collect();
    let more = if seen.len() > MOST_SHOWN { " and others" } else { "" };
    let shown: Vec<&str> = seen.into_iter().take(MOST_SHOWN).collect();
    Some(format!("No target shows model {name}; they show {}{more}. Is the name right?", shown.join(", ")))
}

/// In words, where a page serves other models than the one that is planned: most often a mistyped name.
fn absent_model(model: &ModelConfig, reading: &Reading) -> Option<String> {
    let ModelSelector::Named(name) = &model.selector else { return None };
    let seen: Vec<&str> = reading.model_names().collect();
    reading.lacks(name).then(|| format!("no samples of model {name}; the page has {}", seen.join(", ")))
}
