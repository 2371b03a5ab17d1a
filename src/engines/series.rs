//! How do a page's families become cumulative series and gauges of the planner? What all engines share, without any metric's name.
//!
//! One server may say one thing several times. Ranks that work on the same requests (tensor, pipeline, expert parallel) repeat each other's
//! values, and so do the processes behind one page (`pid`): one of them is read. Data-parallel ranks share the work: their series stay apart
//! and add up. A counter's series are never added here, since only differences may be.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::Reading;
use crate::exposition::{Family, Page, Part, Sample as Line};
use crate::planner::input::{Few, Gauge, Histogram, ItlBasis, Sample, SeriesKey, Signal, Tally};
use crate::units::{Replicas, Role};

/// The processes behind one page; never a dimension of the work.
const PROCESS: &str = "pid";

/// How an engine labels its series.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'n> {
    /// The label that names the model.
    pub model: &'n str,
    /// Labels of ranks that repeat each other: the lowest rank is read.
    pub repeated: &'n [&'n str],
    /// A label that, where it is empty, marks the total of the series that fill it.
    pub total: Option<&'n str>,
    /// Whether a line counts for the planner.
    pub keep: fn(&Line<'_>) -> bool,
}

impl<'n> Labels<'n> {
    /// Series that differ by the model's label, and by others that all add up.
    pub const fn by_model(model: &'n str) -> Self {
        Self { model, repeated: &[], total: None, keep: |_| true }
    }
}

/// How the series of a gauge make one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// Counts of things add up over ranks.
    Sum,
    /// Shares do not: the fullest rank is the first to hold the others up.
    Max,
    /// Of servers that a router sees, as most routers tell it.
    Mean,
}

impl Combine {
    /// One value from at least one.
    pub fn of(self, values: &[f64]) -> f64 {
        let sum = || values.iter().sum::<f64>();
        match self {
            Self::Sum => sum(),
            Self::Max => values.iter().copied().fold(0.0, f64::max),
            Self::Mean => sum() / values.len().max(1) as f64,
        }
    }
}

/// Reads families into a [`Reading`], model by model.
pub struct Reader<'p, 'a> {
    lines: Lines<'p, 'a>,
    models: BTreeMap<Option<String>, Sample>,
}

/// A share above this is none: rounding reaches a little above 1, a percentage is far beyond.
const MOST_USAGE: f64 = 1.01;
/// Counts from here on are no longer exact in double precision, and far above what any server holds.
const MOST_COUNT: f64 = 9_007_199_254_740_992.0;

/// Whether a server can have that: what cannot be is as good as not told.
fn can_be(gauge: Gauge, value: f64) -> bool {
    value <= if gauge == Gauge::KvUsage { MOST_USAGE } else { MOST_COUNT }
}

impl<'p, 'a> Reader<'p, 'a> {
    /// A reader of `page`, whose series are labelled so.
    pub fn new(page: &'p Page<'a>, labels: Labels<'p>) -> Self {
        let places = vec![OnceCell::new(); page.sets()];
        Self { lines: Lines { page, labels, places }, models: BTreeMap::new() }
    }

    /// What was read. `itl` says what the engine's ITL histogram counts.
    pub fn finish(mut self, itl: ItlBasis) -> Reading {
        for sample in self.models.values_mut() {
            sample.itl_basis = itl;
            [&mut sample.gauges, &mut sample.fleet, &mut sample.prefill]
                .into_iter()
                .for_each(|gauges| gauges.retain(|gauge, value| can_be(*gauge, *value)));
        }
        Reading::new(self.models)
    }

    /// Lets the engine add what is its own to a model's sample.
    pub fn sample(&mut self, model: Option<String>) -> &mut Sample {
        self.models.entry(model).or_default()
    }

    /// The samples read so far.
    pub fn samples(&mut self) -> impl Iterator<Item = &mut Sample> {
        self.models.values_mut()
    }

    /// The first family of `names` that the page has. Later names are aliases of the same measurement and are never added to it.
    pub fn first_of(&self, names: &[&str]) -> Option<Family<'p>> {
        self.lines.first_of(names)
    }

    /// Reads a histogram.
    pub fn histogram(&mut self, signal: Signal, names: &[&str]) {
        self.histogram_where(signal, names, |_| true);
    }

    /// Reads those series of a histogram that `which` picks.
    pub fn histogram_where(&mut self, signal: Signal, names: &[&str], which: impl Fn(&Line<'_>) -> bool) {
        let Some(family) = self.first_of(names) else { return };
        let mut series: Few<&Place, (&[u64], Parts)> = Few::default();
        let lines: Vec<Line<'_>> = self.lines.of(family).filter(|line| which(line)).collect();
        // The lines of one series stand together.
        for lines in lines.chunk_by(|one, next| one.set() == next.set()) {
            let (place, rank) = self.lines.place(&lines[0]);
            let known = series.entry(place).or_insert_with(|| (rank, Parts::default()));
            if **rank < *known.0 {
                *known = (rank, Parts::default());
            } else if **rank > *known.0 {
                continue;
            }
            known.1.buckets.reserve(lines.len());
            lines.iter().for_each(|line| known.1.take(line));
        }
        for ((model, key), (_, parts)) in series {
            if let Some(histogram) = parts.finish() {
                of_model(&mut self.models, model).histograms.entry(signal).or_default().insert(key.clone(), histogram);
            }
        }
    }

    /// Gives a signal without a histogram the sum and count of two counters that advance together, so that it has a mean and no quantiles.
    pub fn mean_of_counters(&mut self, signal: Signal, sums: &[&str], counts: &[&str]) {
        let count_of: BTreeMap<_, _> = self.totals(counts);
        for (model, sum) in self.totals(sums) {
            let Some(&count) = count_of.get(&model) else { continue };
            let known = self.sample(model).histograms.entry(signal).or_default();
            if known.is_empty() {
                known.insert(SeriesKey::default(), Histogram { sum, count, ..Histogram::default() });
            }
        }
    }

    /// Reads a counter, or a histogram's count, into a tally.
    pub fn tally(&mut self, tally: Tally, names: &[&str]) {
        self.tally_where(tally, names, |_| true);
    }

    /// Reads those series of a counter that `which` picks.
    pub fn tally_where(&mut self, tally: Tally, names: &[&str], which: impl Fn(&Line<'_>) -> bool) {
        self.tally_of(tally, names, is_count, which);
    }

    /// Reads those sums of a histogram that `which` picks into a tally, or a counter of the same.
    pub fn tally_of_sum(&mut self, tally: Tally, names: &[&str], which: impl Fn(&Line<'_>) -> bool) {
        self.tally_of(tally, names, |part| matches!(part, Part::Sum | Part::Total | Part::Value), which);
    }

    fn tally_of(&mut self, tally: Tally, names: &[&str], part: impl Fn(Part) -> bool, which: impl Fn(&Line<'_>) -> bool) {
        for ((model, key), value) in self.lines.values(names, part, which) {
            of_model(&mut self.models, model).tallies.entry(tally).or_default().insert(key.clone(), value);
        }
    }

    /// Reads what two counters come to, series by series, where both are there.
    pub fn tally_of_two(&mut self, tally: Tally, one: &str, other: &str) {
        let others: Few<&Place, f64> = self.lines.values(&[other], is_count, |_| true).collect();
        for (place, value) in self.lines.values(&[one], is_count, |_| true) {
            if let Some(more) = others.get(&place) {
                of_model(&mut self.models, &place.0).tallies.entry(tally).or_default().insert(place.1.clone(), value + more);
            }
        }
    }

    /// Counts zero for counters that an engine shows from their first event on, where it shows a gauge from its start and nothing yet of
    /// `events`: absent is zero only as long as nothing has happened.
    pub fn zero_before(&mut self, events: &[&str], anchor: Gauge, tallies: &[Tally]) {
        if self.first_of(events).is_some() {
            return;
        }
        for sample in self.samples().filter(|sample| sample.gauges.contains_key(&anchor)) {
            for &tally in tallies {
                sample.tallies.entry(tally).or_insert_with(|| Few::from([(SeriesKey::default(), 0.0)]));
            }
        }
    }

    /// Reads a gauge.
    pub fn gauge(&mut self, gauge: Gauge, combine: Combine, names: &[&str]) {
        for (model, value) in self.gauges(combine, names, |_| true) {
            self.sample(model).gauges.insert(gauge, value);
        }
    }

    /// Reads those series of a gauge that `which` picks.
    pub fn gauge_where(&mut self, gauge: Gauge, names: &[&str], which: impl Fn(&Line<'_>) -> bool) {
        for (model, value) in self.gauges(Combine::Max, names, which) {
            self.sample(model).gauges.insert(gauge, value);
        }
    }

    /// Adds a further queue, where the page has it, to a gauge that it has.
    pub fn gauge_plus(&mut self, gauge: Gauge, names: &[&str]) {
        for (model, value) in self.gauges(Combine::Sum, names, |_| true) {
            if let Some(known) = self.sample(model).gauges.get_mut(&gauge) {
                *known += value;
            }
        }
    }

    /// Reads a router's view of the fleet.
    pub fn fleet(&mut self, gauge: Gauge, combine: Combine, names: &[&str]) {
        for (model, value) in self.gauges(combine, names, |_| true) {
            self.sample(model).fleet.insert(gauge, value);
        }
    }

    /// Reads the process start time into every sample.
    pub fn process_start(&mut self, names: &[&str]) {
        let start = self.first_of(names).and_then(|family| family.samples().next()).map(|line| line.value).filter(|start| *start > 0.0);
        self.samples().for_each(|sample| sample.process_start = start);
    }

    /// A gauge of each model.
    pub fn gauges(&self, combine: Combine, names: &[&str], which: impl Fn(&Line<'_>) -> bool) -> BTreeMap<Option<String>, f64> {
        let values = self.lines.values(names, |part| matches!(part, Part::Value | Part::Total), which);
        let values: Vec<(&Option<String>, f64)> = values.map(|((model, _), value)| (model, value)).collect();
        // Places are in the order of their models.
        let of_one = |values: &[(&Option<String>, f64)]| {
            let (models, values): (Vec<_>, Vec<f64>) = values.iter().copied().unzip();
            (models[0].clone(), combine.of(&values))
        };
        values.chunk_by(|one, next| one.0 == next.0).map(of_one).collect()
    }

    /// A counter of each model, all its series added: good for a mean of two counters, and only for engines whose series do not vanish.
    fn totals(&self, names: &[&str]) -> BTreeMap<Option<String>, f64> {
        let mut totals = BTreeMap::new();
        for ((model, _), value) in self.lines.values(names, is_count, |_| true) {
            *totals.entry(model.clone()).or_insert(0.0) += value;
        }
        totals
    }
}

/// What was read of a model so far.
fn of_model<'m>(models: &'m mut BTreeMap<Option<String>, Sample>, model: &Option<String>) -> &'m mut Sample {
    if !models.contains_key(model) {
        models.insert(model.clone(), Sample::default());
    }
    models.get_mut(model).expect("it was put in where it was not there")
}

/// A model, and one of its series.
type Place = (Option<String>, SeriesKey);
/// A place, and where it stands among the ranks that repeat each other.
type Ranked = (Place, Vec<u64>);

/// The lines of a page that count, and where each belongs.
struct Lines<'p, 'a> {
    page: &'p Page<'a>,
    labels: Labels<'p>,
    /// Of each label list of the page, as soon as it is asked for: many families have the same.
    places: Vec<OnceCell<Box<Ranked>>>,
}

impl<'p, 'a> Lines<'p, 'a> {
    fn first_of(&self, names: &[&str]) -> Option<Family<'p>> {
        names.iter().find_map(|name| self.page.family(name))
    }

    /// The values of the first family of `names` by series, of the lowest rank each, and the largest where only the process differs: an
    /// instrument that another process owns stays at zero.
    fn values(
        &self,
        names: &[&str],
        part: impl Fn(Part) -> bool,
        which: impl Fn(&Line<'_>) -> bool,
    ) -> impl Iterator<Item = (&Place, f64)> {
        let family = self.first_of(names);
        let mut values: Few<&Place, (&[u64], f64)> = Few::default();
        for line in family.into_iter().flat_map(|family| self.of(family)).filter(|line| part(line.part) && line.value >= 0.0 && which(line))
        {
            let (place, rank) = self.place(&line);
            let rank: &[u64] = rank;
            match values.get_mut(&place) {
                Some(known) if rank == known.0 => known.1 = known.1.max(line.value),
                Some(known) if rank > known.0 => {}
                Some(known) => *known = (rank, line.value),
                None => {
                    values.insert(place, (rank, line.value));
                }
            }
        }
        values.into_iter().map(|(place, (_, value))| (place, value))
    }

    /// The lines of a family that count.
    fn of(&self, family: Family<'p>) -> impl Iterator<Item = Line<'p>> + use<'p, 'a> {
        let keep = self.labels.keep;
        let total = self.labels.total.filter(|label| family.samples().any(|line| is_total(&line, label)));
        family.samples().filter(move |line| keep(line) && total.is_none_or(|label| is_total(line, label)))
    }

    /// The model and the series of a line, and its rank, which its labels alone decide.
    fn place(&self, line: &Line<'_>) -> &Ranked {
        self.places[line.set()].get_or_init(|| Box::new(self.put_together(line)))
    }

    fn put_together(&self, line: &Line<'_>) -> Ranked {
        let Labels { model, repeated, .. } = self.labels;
        let mut key = String::new();
        for (name, value) in line.labels.iter().filter(|(name, _)| name != model && name != PROCESS && !repeated.contains(&name.as_ref())) {
            if !key.is_empty() {
                key.push(',');
            }
            key.push_str(name);
            key.push('=');
            push_quoted(&mut key, value);
        }
        let rank = repeated.iter().map(|label| line.label(label).map_or(0, |rank| rank.parse().unwrap_or(u64::MAX)));
        ((line.label(model).map(str::to_owned), SeriesKey::from(key)), rank.collect())
    }
}

/// Adds the text in quotes, escaped as Debug does it, so that no two label sets share a key.
fn push_quoted(key: &mut String, text: &str) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if !text.bytes().all(is_plain) {
        return key.push_str(&format!("{text:?}"));
    }
    key.push('"');
    key.push_str(text);
    key.push('"');
}

/// The role that a server gives itself, where it names one of a disaggregated pair. Any other word says nothing.
pub fn role_named(word: &str) -> Option<Role> {
    match word {
        "prefill" => Some(Role::Prefill),
        "decode" => Some(Role::Decode),
        _ => None,
    }
}

/// A count of replicas: whole and not negative. Anything else is no count, and unknown is not zero.
pub fn whole(value: f64) -> Option<Replicas> {
    (value >= 0.0 && value.fract() == 0.0 && value <= f64::from(u32::MAX)).then_some(Replicas(value as u32))
}

fn is_total(line: &Line<'_>, label: &str) -> bool {
    line.label(label).is_none_or(str::is_empty)
}

fn is_count(part: Part) -> bool {
    matches!(part, Part::Total | Part::Value | Part::Count)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_debug_does_it() {
        for text in ["", "0", "meta/Llama 3.1~", "a\"b", "a\\b", "tab\t", "café", "\u{7f}", "\0", "'"] {
            let mut key = String::from("label=");
            push_quoted(&mut key, text);
            assert_eq!(key, format!("label={text:?}"));
        }
    }
}
