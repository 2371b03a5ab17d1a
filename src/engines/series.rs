//! How do a page's families become cumulative series of the planner? What all engines share, without any metric's name.

use std::collections::BTreeMap;

use super::Reading;
use crate::exposition::{Family, Page, Part, Sample as Line};
use crate::planner::input::{Histogram, Sample, SeriesKey, Signal, Tally};

/// Reads families into a [`Reading`], model by model.
pub struct Reader<'p, 'a> {
    page: &'p Page<'a>,
    /// The label that names the model.
    model_label: &'static str,
    /// Whether a line counts for the planner.
    keep: fn(&Line<'_>) -> bool,
    reading: Reading,
}

impl<'p, 'a> Reader<'p, 'a> {
    /// A reader of `page` whose series carry the model in `model_label`.
    pub fn new(page: &'p Page<'a>, model_label: &'static str, keep: fn(&Line<'_>) -> bool) -> Self {
        Self { page, model_label, keep, reading: Reading::default() }
    }

    /// What was read.
    pub fn finish(self) -> Reading {
        self.reading
    }

    /// Lets `edit` add what is the engine's own to a model's sample.
    pub fn sample(&mut self, model: Option<String>) -> &mut Sample {
        self.reading.models.entry(model).or_default()
    }

    /// The samples read so far.
    pub fn samples(&mut self) -> impl Iterator<Item = &mut Sample> {
        self.reading.models.values_mut()
    }

    /// The first family of `names` that the page has. Later names are aliases of the same measurement and are never added to it.
    pub fn first_of(&self, names: &[&'static str]) -> Option<&'p Family<'a>> {
        names.iter().find_map(|name| self.page.family(name))
    }

    /// Reads a histogram; notes it as missing where the page has none of `names`.
    pub fn histogram(&mut self, signal: Signal, names: &[&'static str]) {
        let Some(family) = self.first_of(names) else {
            self.reading.missing.push(signal.as_str());
            return;
        };
        let mut series: BTreeMap<(Option<String>, SeriesKey), Parts> = BTreeMap::new();
        for line in family.samples.iter().filter(|line| (self.keep)(line)) {
            series.entry(self.split(line)).or_default().take(line);
        }
        for ((model, key), parts) in series {
            if let Some(histogram) = parts.finish() {
                self.sample(model).histograms.entry(signal).or_default().insert(key, histogram);
            }
        }
    }

    /// Reads a counter, or a histogram's count, into a tally.
    pub fn tally(&mut self, tally: Tally, names: &[&'static str]) {
        let Some(family) = self.first_of(names) else { return };
        let counts = |line: &&Line<'_>| matches!(line.part, Part::Total | Part::Value | Part::Count) && line.value >= 0.0;
        let keep = self.keep;
        for line in family.samples.iter().filter(counts).filter(|line| keep(line)) {
            let (model, key) = self.split(line);
            self.sample(model).tallies.entry(tally).or_default().insert(key, line.value);
        }
    }

    /// Reads the process start time into every sample.
    pub fn process_start(&mut self, names: &[&'static str]) {
        let start = self.first_of(names).and_then(|family| family.samples.first()).map(|line| line.value).filter(|start| *start > 0.0);
        self.samples().for_each(|sample| sample.process_start = start);
    }

    /// The model, and the key of the series from all other labels.
    fn split(&self, line: &Line<'_>) -> (Option<String>, SeriesKey) {
        let mut key = String::new();
        for (name, value) in line.labels.iter().filter(|(name, _)| name != self.model_label) {
            if !key.is_empty() {
                key.push(',');
            }
            // Debug quotes and escapes, so that no two label sets share a key.
            key.push_str(&format!("{name}={value:?}"));
        }
        (line.label(self.model_label).map(str::to_owned), SeriesKey(key))
    }
}

/// A histogram while its lines come in.
#[derive(Default)]
struct Parts {
    sum: Option<f64>,
    count: Option<f64>,
    infinite: Option<f64>,
    buckets: Vec<(f64, f64)>,
    created: Option<f64>,
}

impl Parts {
    fn take(&mut self, line: &Line<'_>) {
        match line.part {
            Part::Sum => self.sum = Some(line.value),
            Part::Count => self.count = Some(line.value),
            Part::Bucket(bound) if bound.is_finite() => self.buckets.push((bound, line.value)),
            Part::Bucket(_) => self.infinite = Some(line.value),
            Part::Created => self.created = Some(line.value),
            Part::Value | Part::Total | Part::Quantile(_) => {}
        }
    }

    /// `None` without a sum and a count: half a histogram says nothing.
    fn finish(mut self) -> Option<Histogram> {
        let sum = self.sum.filter(|sum| *sum >= 0.0)?;
        let count = self.count.or(self.infinite).filter(|count| *count >= 0.0)?;
        self.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(Histogram { sum, count, buckets: self.buckets, created: self.created })
    }
}
