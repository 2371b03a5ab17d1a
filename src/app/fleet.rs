//! Which targets does each source have in this round? What is written down, what discovery knows at the moment, and what a
//! Prometheus answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::{AccessConfig, Config, DiscoveryConfig, ModelConfig, SourceConfig, TargetConfig};
use crate::planner::input::{Lifecycle, SourceId};
use crate::planner::policy::{ModelPolicy, PoolPolicy};
use crate::scrape::Job;
use crate::scrape::discover::Listing;
use crate::scrape::query::{Answer, Question};
use crate::scrape::report::TargetReport;
use crate::units::{PoolId, TargetId};

/// The sources of every model as one round knows them, in the order of the configuration that it was made from.
#[derive(Clone, Debug, Default)]
pub struct Fleet(Vec<Vec<KnownSource>>);

/// One source with its targets.
#[derive(Clone, Debug)]
pub struct KnownSource {
    /// Which.
    pub source: SourceId,
    /// Its targets, sorted by name, each once.
    pub targets: Vec<TargetConfig>,
    /// Whether the list may be another one by now.
    pub discovery_failed: bool,
    /// Replicas by state, where discovery tells them.
    pub replicas: Option<Lifecycle>,
    /// Why the list may be another one by now, in words.
    pub problem: Option<String>,
    /// Looks that succeeded and that did not; `None` where targets are written down.
    pub refreshes: Option<(u64, u64)>,
    access: Arc<AccessConfig>,
    /// Whom to ask instead of the targets, which are known with the answer.
    question: Option<Question>,
}

impl Fleet {
    /// The fleet of a configuration, where `listing` knows what was found.
    pub fn of(config: &Config, listing: impl Fn(&DiscoveryConfig) -> Listing) -> Self {
        let source = |model: &ModelConfig, source: &SourceConfig| {
            let question = source.query.as_ref().map(|query| Question {
                query: query.clone(),
                engine: model.engine.clone(),
                access: Arc::clone(&source.access),
            });
            let mut known = KnownSource {
                source: source.source.clone(),
                targets: source.targets.clone(),
                discovery_failed: false,
                replicas: None,
                problem: None,
                refreshes: None,
                access: Arc::clone(&source.access),
                question,
            };
            if let Some(discovery) = &source.discovery {
                known.take(listing(discovery));
            }
            known
        };
        Self(config.models.iter().map(|model| model.sources.iter().map(|known| source(model, known)).collect()).collect())
    }

    /// The sources of one model, by its place in the configuration.
    pub fn sources(&self, model: usize) -> &[KnownSource] {
        self.0.get(model).map_or(&[], Vec::as_slice)
    }

    /// Every target once, however many models and pools name it.
    pub fn jobs(&self, config: &Config) -> Vec<Job> {
        let mut jobs = BTreeMap::new();
        for (model, source, target) in self.scraped(config) {
            jobs.entry(&target.target).or_insert_with(|| Job {
                target: target.target.clone(),
                url: target.url.clone(),
                engine: model.engine.clone(),
                access: Arc::clone(&source.access),
            });
        }
        jobs.into_values().collect()
    }

    /// What sources want of targets that they share and do not all get, a sentence for each two sources: such a target is asked in the way of
    /// the first. Of targets that are written down a checked configuration has none.
    pub fn conflicts(&self, config: &Config) -> BTreeSet<String> {
        let mut first: BTreeMap<&TargetId, (&ModelConfig, &KnownSource, &TargetConfig)> = BTreeMap::new();
        let mut found = BTreeSet::new();
        for (model, source, target) in self.scraped(config) {
            let &mut (its_model, its_source, its_target) = first.entry(&target.target).or_insert((model, source, target));
            let same_access = Arc::ptr_eq(&its_source.access, &source.access) || its_source.access == source.access;
            let what = match (its_target.url == target.url, same_access, its_model.engine == model.engine) {
                (true, true, true) => continue,
                (false, ..) => "URL",
                (true, false, _) => "credentials, certificates and headers",
                (true, true, false) => "engine",
            };
            let (one, other) = (its_source.name(its_model), source.name(model));
            found.insert(format!(
                "targets that {other} shares with {one} are asked with the {what} of the latter; expected the same in both"
            ));
        }
        found
    }

    /// Every target that is scraped, as often as sources name it.
    fn scraped<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = (&'a ModelConfig, &'a KnownSource, &'a TargetConfig)> {
        let sources = config.models.iter().zip(&self.0).flat_map(|(model, sources)| sources.iter().map(move |source| (model, source)));
        let scraped = sources.filter(|(_, source)| source.question.is_none());
        scraped.flat_map(|(model, source)| source.targets.iter().map(move |target| (model, source, target)))
    }

    /// What is asked of a Prometheus instead, each question once.
    pub fn questions(&self) -> Vec<Question> {
        let mut questions = Vec::new();
        for question in self.0.iter().flatten().filter_map(|source| source.question.as_ref()) {
            if !questions.contains(question) {
                questions.push(question.clone());
            }
        }
        questions
    }

    /// Takes in what came of [`Fleet::questions`], in their order: the targets stand in the fleet, their reports come out, each once.
    ///
    /// Targets are told apart by their names. What another server calls by a name that is taken is another target, and is left out.
    pub fn learn(&mut self, questions: &[Question], answers: Vec<Answer>) -> Vec<TargetReport> {
        let mut owners: BTreeMap<TargetId, &str> = BTreeMap::new();
        let mut reports = Vec::new();
        for (question, answer) in questions.iter().zip(answers) {
            let mut listing = answer.listing;
            let mut taken = None;
            for report in answer.reports {
                let owner = *owners.entry(report.target.clone()).or_insert_with(|| {
                    reports.push(report.clone());
                    &question.query.url
                });
                if owner != question.query.url {
                    listing.targets.retain(|target| target.target != report.target);
                    taken = Some(report.target);
                }
            }
            if let Some(target) = taken {
                listing.problem =
                    Some(format!("another Prometheus has a target {target} as well; choose another target_label for one of them"));
            }
            for source in self.0.iter_mut().flatten().filter(|source| source.question.as_ref() == Some(question)) {
                source.take(listing.clone());
            }
        }
        reports
    }
}

impl KnownSource {
    fn name(&self, model: &ModelConfig) -> String {
        match &self.source {
            SourceId::Traffic => format!("the traffic source of model {}", model.policy.model),
            SourceId::Pool(pool) => format!("pool {pool}"),
        }
    }

    fn take(&mut self, listing: Listing) {
        self.discovery_failed = listing.is_stale();
        self.replicas = listing.replicas;
        self.problem = listing.problem;
        self.refreshes = Some((listing.succeeded, listing.failed));
        self.targets = listing.targets;
    }
}

/// The searches that a configuration wants.
pub fn searches(config: &Config) -> impl Iterator<Item = &DiscoveryConfig> {
    config.models.iter().flat_map(|model| &model.sources).filter_map(|source| source.discovery.as_ref())
}

/// Replicas by state, of the pools whose discovery tells them. Several targets may be one replica.
pub fn replicas_of(sources: &[KnownSource], policy: &ModelPolicy) -> BTreeMap<PoolId, Lifecycle> {
    let of_pool = |pool: &PoolPolicy| {
        let states = sources.iter().find(|source| source.source == SourceId::Pool(pool.pool.clone()))?.replicas?;
        let whole = |targets: u32| targets.div_ceil(pool.targets_per_replica.get());
        let states =
            Lifecycle { ready: whole(states.ready), starting: whole(states.starting), terminating: whole(states.terminating), ..states };
        Some((pool.pool.clone(), states))
    };
    policy.pools.iter().filter_map(of_pool).collect()
}

/// The dialect seen at each pool's own targets, else at the traffic source.
pub fn engines_of(sources: &[KnownSource], policy: &ModelPolicy, reports: &BTreeMap<&TargetId, &TargetReport>) -> BTreeMap<PoolId, String> {
    let seen_at = |id: &SourceId| {
        let source = sources.iter().find(|source| source.source == *id)?;
        let reports = source.targets.iter().filter_map(|target| reports.get(&target.target));
        reports.filter_map(|report| report.outcome.as_ref().ok()).map(|scraped| scraped.engine).next()
    };
    let engine = |pool: &PoolId| seen_at(&SourceId::Pool(pool.clone())).or_else(|| seen_at(&SourceId::Traffic));
    policy.pools.iter().filter_map(|pool| Some((pool.pool.clone(), engine(&pool.pool)?.to_owned()))).collect()
}

/// The lists that are older than they should be, in words.
pub fn stale_lists(sources: &[KnownSource]) -> Vec<String> {
    let name = |source: &SourceId| match source {
        SourceId::Traffic => "the traffic source".to_owned(),
        SourceId::Pool(pool) => format!("pool {pool}"),
    };
    let sentence = |source: &KnownSource| {
        let known = source.targets.len();
        Some(format!("Targets of {}: {}. The last list ({known} targets) stays in use.", name(&source.source), source.problem.as_ref()?))
    };
    sources.iter().filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::QueryConfig;

    fn source(url: &str) -> KnownSource {
        let query = QueryConfig {
            url: url.to_owned(),
            selector: "{job=\"j\"}".to_owned(),
            target_label: "instance".to_owned(),
            lookback: std::time::Duration::from_secs(120),
        };
        KnownSource {
            source: SourceId::Traffic,
            targets: Vec::new(),
            discovery_failed: false,
            replicas: None,
            problem: None,
            refreshes: None,
            access: Arc::default(),
            question: Some(Question { query, engine: None, access: Arc::default() }),
        }
    }

    fn answer(names: &[&str]) -> Answer {
        let target = |name: &&str| TargetConfig { target: TargetId::from(*name), url: String::new() };
        let targets: Vec<_> = names.iter().map(target).collect();
        let failure = crate::scrape::report::Failure { kind: crate::planner::input::FailureKind::Connect, message: String::new() };
        let report = |target: &TargetConfig| TargetReport {
            target: target.target.clone(),
            at: std::time::Duration::ZERO,
            duration: std::time::Duration::ZERO,
            outcome: Err(failure.clone()),
        };
        let reports = targets.iter().map(report).collect();
        Answer { listing: Listing { targets, looked: true, succeeded: 1, ..Listing::default() }, reports }
    }

    fn names(source: &KnownSource) -> Vec<&str> {
        source.targets.iter().map(|target| target.target.as_str()).collect()
    }

    #[test]
    fn a_question_of_two_sources_is_asked_once_and_both_know_the_targets() {
        let mut fleet = Fleet(vec![vec![source("http://one")], vec![source("http://one")]]);
        let questions = fleet.questions();
        assert_eq!(questions.len(), 1);
        let reports = fleet.learn(&questions, vec![answer(&["a", "b"])]);
        assert_eq!(reports.len(), 2);
        assert!(fleet.0.iter().flatten().all(|source| names(source) == ["a", "b"] && !source.discovery_failed));
    }

    #[test]
    fn a_target_that_another_prometheus_calls_the_same_is_left_out_and_told() {
        let mut fleet = Fleet(vec![vec![source("http://one"), source("http://other")]]);
        let questions = fleet.questions();
        let reports = fleet.learn(&questions, vec![answer(&["a", "b"]), answer(&["b", "c"])]);
        assert_eq!(reports.iter().map(|report| report.target.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!((names(&fleet.0[0][0]), names(&fleet.0[0][1])), (vec!["a", "b"], vec!["c"]));
        assert!(!fleet.0[0][0].discovery_failed && fleet.0[0][1].discovery_failed);
        assert!(fleet.0[0][1].problem.as_deref().is_some_and(|problem| problem.contains("target b as well")));
    }
}
