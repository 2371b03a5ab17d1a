//! What does the planner see where metrics are faulty? Rounds on the way from the simulated servers to the planner, spoilt from time to time.
//!
//! The fleet serves as ever; only what is read of it is spoilt. Each kind of fault has spells of its own, some minutes apart, and they may meet:
//!
//! | fault | in a spell of 10 s to 3 min |
//! |---|---|
//! | [`MetricFault::Silent`] | some of the targets, in every fifth spell all, do not answer |
//! | [`MetricFault::Resets`] | the counters of some targets begin anew, each at a moment of its own; half of these pages say when the process started |
//! | [`MetricFault::Partial`] | some of the targets answer without some of their families, or not at all: the same in all rounds, or others in each |
//! | [`MetricFault::Late`] | rounds take up to 15 s longer, and the next one begins after that; every other one is lost with all its targets |
//!
//! When spells come depends on the seed alone, so every policy meets them at the same moments. Whom they meet is drawn when it is first asked
//! for: policies that ask for other replicas have other fleets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::planner::input::{FailureKind, Few, ModelInput, Reading, Sample};
use crate::simulator::random::Random;
use crate::units::{Moment, TargetId};

/// From the end of a spell to the next one of its kind, seconds: uniform between these.
const APART: (f64, f64) = (120.0, 480.0);
/// How long a spell lasts, seconds.
const LASTS: (f64, f64) = (10.0, 180.0);
/// Every fifth spell meets all targets: the share of them is uniform up to this, and at most 1.
const MOST_OF_ALL: f64 = 1.25;
/// How much longer a late round takes at most, seconds.
const LATEST: f64 = 15.0;
/// The purpose of the first kind's draws; those of the trace and the fleet are smaller, those of copied requests larger.
const PURPOSE: u64 = 1 << 16;

/// What can be wrong with metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricFault {
    /// Targets do not answer.
    Silent,
    /// Counters begin anew.
    Resets,
    /// Pages lack families, rounds lack targets.
    Partial,
    /// Rounds come late or not at all.
    Late,
}

impl MetricFault {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Silent, Self::Resets, Self::Partial, Self::Late];

    /// What people read.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Silent => "targets that do not answer",
            Self::Resets => "counters that begin anew",
            Self::Partial => "pages without some families",
            Self::Late => "rounds that come late or are lost",
        }
    }
}

/// What is wrong in a backtest, from time to time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricFaults {
    /// None: all pages are read as they are.
    pub kinds: BTreeSet<MetricFault>,
    /// The same seed gives the same spells.
    pub seed: u64,
}

/// What is between the servers and one planner.
#[derive(Clone, Debug, Default)]
pub(super) struct Between {
    spells: BTreeMap<MetricFault, Spells>,
    /// What targets had counted when their counters began anew.
    anew: BTreeMap<TargetId, Anew>,
    /// A round that takes its time, and until when.
    late: Option<(Duration, ModelInput)>,
}

/// The spells of one kind, one after the other. Times are seconds since the start.
#[derive(Clone, Debug)]
struct Spells {
    random: Random,
    current: Spell,
}

/// What is drawn for one spell.
#[derive(Clone, Debug)]
struct Spell {
    begins: f64,
    ends: f64,
    /// Share of the targets that it meets.
    targets: f64,
    /// Share of the families that it takes away.
    families: f64,
    /// Whether it meets others in each round.
    changes: bool,
    /// A sequence of its own: whom it meets moves no later spell.
    random: Random,
    lots: BTreeMap<(TargetId, &'static str), f64>,
}

/// What is no longer counted, and when that began.
#[derive(Clone, Debug)]
struct Anew {
    at: f64,
    /// Since the Unix epoch, where the page says so.
    started: Option<f64>,
    before: Sample,
}

impl Between {
    /// Before the first round.
    pub fn of(faults: &MetricFaults) -> Self {
        let spells = |&kind: &MetricFault| (kind, Spells::new(Random::stream(faults.seed, PURPOSE + kind as u64)));
        Self { spells: faults.kinds.iter().map(spells).collect(), ..Self::default() }
    }

    /// What comes of the rounds so far: of one that begins now, or that began before and took until now; `None` while one is under way.
    pub fn pass(&mut self, mut input: ModelInput, now: Moment) -> Option<ModelInput> {
        if let Some((until, round)) = self.late.take() {
            if until <= now.monotonic {
                return Some(round);
            }
            self.late = Some((until, round));
            return None;
        }
        self.count_anew(&mut input, now);
        let second = now.monotonic.as_secs_f64();
        if let Some(spell) = self.spell(MetricFault::Silent, second) {
            let silent = |target: &TargetId, _: &Reading| spell.meets(target).then_some(Reading::Failed(FailureKind::Timeout));
            replace(&mut input, silent);
        }
        if let Some(spell) = self.spell(MetricFault::Partial, second) {
            spell.lots.retain(|_, _| !spell.changes);
            replace(&mut input, |target, reading| spell.cut(target, reading));
        }
        if let Some(spell) = self.spell(MetricFault::Late, second) {
            if spell.random.unit() < 0.5 {
                replace(&mut input, |_, _| Some(Reading::Failed(FailureKind::Timeout)));
            } else {
                let takes = Duration::from_secs_f64(LATEST * spell.random.unit());
                self.late = Some((now.monotonic + takes, input));
                return None;
            }
        }
        Some(input)
    }

    fn spell(&mut self, kind: MetricFault, second: f64) -> Option<&mut Spell> {
        self.spells.get_mut(&kind)?.at(second)
    }

    /// Lets counters begin anew where their time has come, and takes away what was counted before.
    fn count_anew(&mut self, input: &mut ModelInput, now: Moment) {
        let second = now.monotonic.as_secs_f64();
        let Self { spells, anew, .. } = self;
        let mut spell = spells.get_mut(&MetricFault::Resets).and_then(|spells| spells.at(second));
        replace(input, |target, reading| {
            let Reading::Sample(sample) = reading else { return None };
            if let Some(spell) = &mut spell
                && spell.meets(target)
                && spell.begins + spell.lot(target, "moment") * (spell.ends - spell.begins) <= second
                && anew.get(target).is_none_or(|known| known.at < spell.begins)
            {
                let started = (spell.lot(target, "start") < 0.5).then_some(now.wall.as_secs_f64());
                anew.insert(target.clone(), Anew { at: second, started, before: (**sample).clone() });
            }
            Some(Reading::Sample(Arc::new(anew.get(target)?.since(sample))))
        });
    }
}

fn replace(input: &mut ModelInput, mut with: impl FnMut(&TargetId, &Reading) -> Option<Reading>) {
    for target in input.sources.iter_mut().flat_map(|source| &mut source.targets) {
        if let Some(reading) = with(&target.target, &target.reading) {
            target.reading = reading;
        }
    }
}

impl Spells {
    fn new(mut random: Random) -> Self {
        let current = Spell::after(0.0, &mut random);
        Self { random, current }
    }

    /// The spell that there is at this second.
    fn at(&mut self, second: f64) -> Option<&mut Spell> {
        while second >= self.current.ends {
            self.current = Spell::after(self.current.ends, &mut self.random);
        }
        Some(&mut self.current).filter(|spell| second >= spell.begins)
    }
}

impl Spell {
    fn after(second: f64, random: &mut Random) -> Self {
        let mut between = |(least, most): (f64, f64)| least + (most - least) * random.unit();
        let begins = second + between(APART);
        let ends = begins + between(LASTS);
        let targets = (MOST_OF_ALL * random.unit()).min(1.0);
        let (families, changes) = (random.unit(), random.unit() < 0.5);
        Self { begins, ends, targets, families, changes, random: Random::new(random.bits()), lots: BTreeMap::new() }
    }

    fn meets(&mut self, target: &TargetId) -> bool {
        self.lot(target, "") <= self.targets
    }

    /// A number in (0, 1], always the same for the same target and purpose.
    fn lot(&mut self, target: &TargetId, purpose: &'static str) -> f64 {
        let Self { lots, random, .. } = self;
        *lots.entry((target.clone(), purpose)).or_insert_with(|| random.unit())
    }

    /// What is left of a page; `None` where all is.
    fn cut(&mut self, target: &TargetId, reading: &Reading) -> Option<Reading> {
        let Reading::Sample(sample) = reading else { return None };
        if !self.meets(target) {
            return None;
        }
        let mut stays = |family| self.lot(target, family) > self.families;
        let mut left = Sample { fleet: Few::default(), prefill: Few::default(), ..(**sample).clone() };
        left.histograms.retain(|signal, _| stays(signal.as_str()));
        left.tallies.retain(|tally, _| stays(tally.as_str()));
        left.gauges.retain(|gauge, _| stays(gauge.as_str()));
        left.workers.retain(|role, _| stays(role.as_str()));
        Some(if left.is_empty() { Reading::Failed(FailureKind::Empty) } else { Reading::Sample(Arc::new(left)) })
    }
}

impl Anew {
    /// What was counted since, of a page that counts from the start.
    fn since(&self, sample: &Sample) -> Sample {
        let mut since = sample.clone();
        since.process_start = since.process_start.map(|start| self.started.unwrap_or(start));
        for (signal, series) in &mut since.histograms {
            let before = self.before.histograms.get(signal);
            for (key, histogram) in series {
                histogram.created = histogram.created.map(|created| self.started.unwrap_or(created));
                if let Some(before) = before.and_then(|series| series.get(key)) {
                    histogram.sum -= before.sum;
                    histogram.count -= before.count;
                    histogram.buckets.iter_mut().zip(&before.buckets).for_each(|(now, before)| now.1 -= before.1);
                }
            }
        }
        for (tally, series) in &mut since.tallies {
            let before = self.before.tallies.get(tally);
            series.iter_mut().for_each(|(key, now)| *now -= before.and_then(|series| series.get(key)).unwrap_or(&0.0));
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::input::{Few, Gauge, Histogram, SeriesKey, Signal, SourceId, SourceInput, Tally, TargetReading};

    const ROUND: u64 = 5;

    fn page(second: u64) -> Sample {
        let (key, counted) = (SeriesKey::default, 10.0 * second as f64);
        let histogram = Histogram { sum: 2.0 * counted, count: counted, buckets: vec![(1.0, counted / 2.0)], created: Some(7.0) };
        Sample {
            process_start: Some(7.0),
            histograms: Few::from([(Signal::OutputTokens, Few::from([(key(), histogram)]))]),
            tallies: Few::from([(Tally::Finished, Few::from([(key(), counted)]))]),
            gauges: Few::from([(Gauge::Running, 3.0), (Gauge::Waiting, 1.0)]),
            ..Sample::default()
        }
    }

    fn round(second: u64) -> (ModelInput, Moment) {
        let at = Duration::from_secs(second);
        let target =
            |number| TargetReading { target: TargetId::from(format!("t{number}")), at, reading: Reading::Sample(Arc::new(page(second))) };
        let source =
            SourceInput { source: SourceId::Traffic, discovery_failed: false, targets: (0..8).map(target).collect(), lifecycle: None };
        (ModelInput::of(vec![source]), Moment { monotonic: at, wall: Duration::from_secs(1_000_000) + at })
    }

    /// Three hours of rounds, as they come through.
    fn played(kinds: &[MetricFault], seed: u64) -> Vec<(u64, Option<ModelInput>)> {
        let mut between = Between::of(&MetricFaults { kinds: kinds.iter().copied().collect(), seed });
        let rounds = (0..3 * 3600 / ROUND).map(|round| ROUND * round);
        rounds
            .map(|second| {
                let (input, now) = round(second);
                (second, between.pass(input, now))
            })
            .collect()
    }

    /// The spans of seconds in which something differs from what the servers said.
    fn spells(rounds: &[(u64, Option<ModelInput>)]) -> Vec<(u64, u64)> {
        let mut found: Vec<(u64, u64)> = Vec::new();
        for (second, seen) in rounds {
            if seen.as_ref() == Some(&round(*second).0) {
                continue;
            }
            match found.last_mut().filter(|(_, end)| second - *end <= 60) {
                Some((_, end)) => *end = *second,
                None => found.push((*second, *second)),
            }
        }
        found
    }

    fn samples(input: &ModelInput) -> impl Iterator<Item = &Sample> {
        input.sources[0].targets.iter().filter_map(|target| match &target.reading {
            Reading::Sample(sample) => Some(sample.as_ref()),
            Reading::Failed(_) => None,
        })
    }

    #[test]
    fn without_faults_all_is_seen_as_it_is() {
        assert!(played(&[], 1).iter().all(|(second, seen)| seen.as_ref() == Some(&round(*second).0)));
    }

    #[test]
    fn a_seed_repeats_itself_and_another_one_does_not() {
        assert_eq!(played(&MetricFault::ALL, 1), played(&MetricFault::ALL, 1));
        assert_ne!(played(&MetricFault::ALL, 1), played(&MetricFault::ALL, 2));
    }

    #[test]
    fn spells_are_minutes_apart_and_last_up_to_three() {
        for kind in [MetricFault::Silent, MetricFault::Partial, MetricFault::Late] {
            let spells = spells(&played(&[kind], 1));
            assert!((10..60).contains(&spells.len()), "{kind:?}: {spells:?}");
            assert!(spells.iter().all(|(begin, end)| end - begin <= 180 + 3 * ROUND), "{kind:?}: {spells:?}");
            assert!(spells.windows(2).all(|pair| pair[1].0 - pair[0].1 >= 120 - 3 * ROUND), "{kind:?}: {spells:?}");
        }
    }

    #[test]
    fn counters_begin_anew_and_count_on_from_there() {
        let rounds = played(&[MetricFault::Resets], 1);
        let counts: Vec<f64> = rounds.iter().map(|(_, seen)| first(seen).tallies[&Tally::Finished][&SeriesKey::default()]).collect();
        let grown: Vec<f64> = counts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let falls: Vec<usize> = (0..grown.len()).filter(|&index| grown[index] < 0.0).collect();
        assert!(falls.len() >= 5, "{falls:?}");
        assert!(falls.iter().all(|&index| counts[index + 1] == 0.0), "from zero");
        assert!(grown.iter().all(|grown| *grown < 0.0 || *grown == 10.0 * ROUND as f64), "and as fast as before");
        let told = falls.iter().filter(|&&index| first(&rounds[index].1).process_start != first(&rounds[index + 1].1).process_start);
        assert!((1..falls.len()).contains(&told.count()), "some pages say so and some do not");
    }

    fn first(seen: &Option<ModelInput>) -> &Sample {
        samples(seen.as_ref().unwrap()).next().unwrap()
    }

    #[test]
    fn silence_meets_some_targets_and_sometimes_all() {
        let rounds = played(&[MetricFault::Silent], 1);
        let answer: BTreeSet<usize> = rounds.iter().map(|(_, seen)| samples(seen.as_ref().unwrap()).count()).collect();
        assert!(answer.contains(&0) && answer.contains(&8) && answer.len() > 4, "{answer:?}");
    }

    #[test]
    fn partial_pages_lack_families_and_say_nothing_wrong() {
        let mut lacking = 0;
        for (second, seen) in played(&[MetricFault::Partial], 1) {
            for sample in samples(&seen.unwrap()) {
                let whole = page(second);
                lacking += u32::from(*sample != whole);
                assert!(sample.gauges.iter().all(|(gauge, value)| whole.gauges[gauge] == *value));
                assert!(sample.tallies.iter().all(|(tally, series)| whole.tallies[tally] == *series));
                assert!(sample.histograms.iter().all(|(signal, series)| whole.histograms[signal] == *series));
            }
        }
        assert!(lacking > 500, "{lacking}");
    }

    #[test]
    fn a_late_round_shows_what_was_there_when_it_began() {
        let (mut late, mut lost) = (0, 0);
        for (second, seen) in played(&[MetricFault::Late], 1) {
            let Some(seen) = seen else { continue };
            let at = seen.sources[0].targets[0].at.as_secs();
            assert!((second.saturating_sub(15 + ROUND)..=second).contains(&at), "{at} at {second}");
            assert!(samples(&seen).all(|sample| *sample == page(at)));
            late += u32::from(at < second);
            lost += u32::from(samples(&seen).count() == 0);
        }
        assert!(late > 50 && lost > 50, "{late} late, {lost} lost");
    }
}
