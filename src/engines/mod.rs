//! What does a server's page say, in the planner's terms? One file per dialect, and the table that lists them.
//!
//! Engines are the only place where a server's metric names occur. Each turns the families of one page into a [`Reading`]: one
//! [`Sample`] per model label. Pages of one engine differ by version; an engine asks for each measurement by a list of names, newest first,
//! and takes the first that exists. Aliases are never added up.
//!
//! What a target says may be its own (gauges), or a view of the fleet that every router repeats ([`Sample::fleet`], workers). Whatever a page lacks
//! is named in [`Reading::missing`] and never read as zero.
//!
//! To add an engine: write its file with an [`Engine`] constant, add one line to [`ENGINES`], and add a folder of recorded pages under
//! `tests/fixtures/engines/`; `UPDATE_REFERENCES=1 cargo test --test it engine_pages` writes down what they say.
//!
//! Reading order: `series` (what all engines share), `vllm` (a server), `infera` (a router), `sglang` (ranks), `dynamo` (pages within pages),
//! `custom` and `dialect` (the operator's own), `missing`.

pub mod custom;
mod dialect;
pub mod dynamo;
pub mod gateway;
pub mod infera;
pub mod llamacpp;
pub mod lmdeploy;
mod missing;
pub mod nim;
pub mod render;
pub mod series;
pub mod sglang;
pub mod tgi;
pub mod trtllm;
pub mod vllm;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use dialect::Dialect;

use crate::exposition::Page;
use crate::planner::input::{Gauge, Sample};
use crate::units::ModelId;

/// One server dialect.
#[derive(Debug)]
pub struct Engine {
    /// Its name in configuration and labels.
    pub name: &'static str,
    /// The families that it reads, in lists that engines share; lines of other families are skipped.
    pub families: &'static [&'static [&'static str]],
    /// Whether its pages say how many replicas of each role are ready.
    pub counts_replicas: bool,
    /// The gauges that its pages may have, of a server itself or of those behind a front end.
    pub gauges: &'static [Gauge],
    /// Whether a page is of this dialect.
    pub recognise: fn(&Page<'_>) -> bool,
    /// The page in the planner's terms.
    pub read: fn(&Page<'_>) -> Reading,
}

/// All dialects, in the order in which `auto` tries them: those that carry others' pages first, those with plain names last.
pub const ENGINES: &[&Engine] = &[
    &dynamo::ENGINE,
    &infera::ENGINE,
    &gateway::ENGINE,
    &vllm::ENGINE,
    &sglang::ENGINE,
    &trtllm::ENGINE,
    &lmdeploy::ENGINE,
    &tgi::ENGINE,
    &llamacpp::ENGINE,
    &nim::ENGINE,
];

/// The dialect of that name.
pub fn by_name(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().copied().find(|engine| engine.name == name)
}

impl Engine {
    /// Whether its pages may have the gauge.
    pub fn tells(&self, gauge: Gauge) -> bool {
        self.gauges.contains(&gauge)
    }

    /// The families that it reads.
    pub fn family_names(&self) -> impl Iterator<Item = &'static str> {
        self.families.iter().copied().flatten().copied()
    }
}

/// What one page says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// A sample per model label; `None` holds the series without one, which belong to every model that is asked for.
    pub models: BTreeMap<Option<String>, Arc<Sample>>,
    /// Measurements that the planner can use and this page lacks, by name.
    pub missing: Vec<&'static str>,
}

impl Reading {
    /// The reading of these samples, with what none of them has.
    pub fn new(models: BTreeMap<Option<String>, Sample>) -> Self {
        let missing = missing::of(models.values());
        Self { models: models.into_iter().map(|(name, sample)| (name, Arc::new(sample))).collect(), missing }
    }

    /// Everything the page says of one model: its own series and those without a model label. Empty where it says nothing.
    pub fn of_model(&self, model: &ModelId) -> Arc<Sample> {
        let named = self.models.get(&Some(model.as_str().to_owned())).cloned();
        let Some(unnamed) = self.models.get(&None) else { return named.unwrap_or_default() };
        if self.lacks(model) {
            // What the page counts without a label is the work of the models that it does name.
            return Arc::new(Sample { process_start: unnamed.process_start, ..Sample::default() });
        }
        let Some(named) = named else { return Arc::clone(unnamed) };
        let mut sample = Sample::clone(&named);
        for (signal, series) in &unnamed.histograms {
            sample.histograms.entry(*signal).or_default().extend(series.clone());
        }
        for (tally, series) in &unnamed.tallies {
            sample.tallies.entry(*tally).or_default().extend(series.clone());
        }
        for (role, workers) in &unnamed.workers {
            let known = sample.workers.entry(*role).or_default();
            *known = (*known).max(*workers);
        }
        for (gauge, value) in &unnamed.gauges {
            sample.gauges.entry(*gauge).or_insert(*value);
        }
        for (gauge, value) in &unnamed.fleet {
            sample.fleet.entry(*gauge).or_insert(*value);
        }
        for (gauge, value) in &unnamed.prefill {
            sample.prefill.entry(*gauge).or_insert(*value);
        }
        sample.role = sample.role.or(unnamed.role);
        Arc::new(sample)
    }

    /// Whether the page names models, and this one is not among them.
    pub fn lacks(&self, model: &ModelId) -> bool {
        !self.models.contains_key(&Some(model.as_str().to_owned())) && self.model_names().next().is_some()
    }

    /// The named models on the page.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().flatten().map(String::as_str)
    }
}
