//! Is the level followed in two slices, steady while nothing changes, and a slope read where there is one and nowhere else?

use super::*;
use crate::planner::tests::chance::Chance;

const LENGTHS: Noise = Noise::Values { variation: 1.0, skewness: 2.0 };

/// Slices of 5 s.
fn slices(counts: impl IntoIterator<Item = f64>) -> Vec<Slice> {
    let slice = |(index, sum): (usize, f64)| Slice { at: 5.0 * (index + 1) as f64, weight: 5.0, sum };
    counts.into_iter().enumerate().map(slice).collect()
}

fn counts(slices: &[Slice]) -> Level {
    level(slices, Noise::Counts).unwrap()
}

fn near(ours: f64, expected: f64, by: f64) {
    assert!((ours - expected).abs() <= by, "{ours}, expected {expected}");
}

#[test]
fn the_table_is_what_the_code_says() {
    let steady = counts(&slices(vec![150.0; 128]));
    assert_eq!((steady.value, steady.slope, steady.over, steady.noise), (30.0, 0.0, 640.0, 1.0));
    // Each slice at the rate of its middle.
    let rates = |index: usize| 10.0 + 40.0 * (index as f64 + 0.5) / 128.0;
    let ramp = counts(&slices((0..128).map(|index| 5.0 * rates(index))));
    near(ramp.value, 50.0, 0.2);
    near(ramp.slope * 60.0, 3.75, 1e-6);
    assert_eq!(ramp.over, 640.0);
    let jump = counts(&slices(vec![150.0; 126].into_iter().chain([300.0; 2])));
    assert_eq!((jump.value, jump.slope, jump.over), (60.0, 0.0, 10.0));
}

#[test]
fn while_nothing_changes_chance_alone_seldom_shortens_the_span() {
    let (mut whole, mut off) = (0, 0.0_f64);
    for seed in 0..50 {
        let mut chance = Chance::new(seed);
        let found = counts(&slices((0..128).map(|_| chance.count(150.0))));
        whole += u32::from(found.over == 640.0);
        off = off.max((found.value - 30.0).abs() / found.error);
    }
    assert!(whole >= 48, "{whole} of 50");
    assert!(off < 4.5, "{off} standard errors");
}

#[test]
fn a_ramp_with_chance_shows_its_slope() {
    for seed in 0..10 {
        let mut chance = Chance::new(seed);
        let found = counts(&slices((0..128).map(|index| chance.count(5.0 * (10.0 + 40.0 * f64::from(index) / 128.0)))));
        near(found.slope * 60.0, 3.75, 1.0);
        near(found.value, 50.0, 4.0);
    }
}

#[test]
fn no_slope_is_read_across_a_jump_however_long_it_is_ago() {
    for seed in 0..5 {
        for after in 2..60 {
            let mut chance = Chance::new(seed * 100 + after);
            let found = counts(&slices((0..128).map(|index| chance.count(if index < 128 - after { 150.0 } else { 600.0 }))));
            near(found.value, 120.0, 25.0);
            assert!(found.slope.abs() < 0.5 && found.over <= 5.0 * after as f64 + 10.0, "{after} slices after it: {found:?}");
        }
    }
}

#[test]
fn a_jump_down_is_followed_as_well() {
    let found = counts(&slices(vec![150.0; 126].into_iter().chain([15.0; 2])));
    assert_eq!((found.value, found.over), (3.0, 10.0));
    let gone = counts(&slices(vec![150.0; 126].into_iter().chain([0.0; 2])));
    assert_eq!((gone.value, gone.over), (0.0, 10.0));
}

#[test]
fn noise_is_one_where_each_comes_by_itself_and_more_where_they_come_together() {
    for seed in 0..10 {
        let mut chance = Chance::new(seed);
        let single = counts(&slices((0..128).map(|_| chance.count(150.0)))).noise;
        assert!((1.0..2.0).contains(&single), "{single}");
        let tens = counts(&slices((0..128).map(|_| 10.0 * chance.count(15.0)))).noise;
        assert!((5.0..18.0).contains(&tens), "{tens}");
    }
    assert_eq!(counts(&slices((0..128).map(|index| f64::from(index / 4 % 2) * 1e6))).noise, 20.0);
}

#[test]
fn one_jump_is_no_noise() {
    let found = burstiness(&slices(vec![150.0; 64].into_iter().chain([1500.0; 64])));
    assert_eq!(found, 1.0);
}

#[test]
fn a_slope_is_believed_for_half_of_the_span_that_showed_it_and_not_below_zero() {
    let level = Level { value: 10.0, slope: 0.5, error: 0.0, over: 100.0, noise: 1.0 };
    assert_eq!([0.0, 20.0, 50.0, 500.0].map(|seconds| level.at(seconds)), [10.0, 20.0, 35.0, 35.0]);
    assert_eq!(Level { slope: -0.5, ..level }.at(30.0), 0.0);
}

#[test]
fn a_few_long_ones_of_skewed_lengths_are_no_shift() {
    // Ten a slice; in the last two their mean is 4.9 standard deviations of 20 above that of all.
    let slice = |index: u32| Slice {
        at: f64::from(index) * 5.0,
        weight: 10.0,
        sum: if index < 126 { 1e4 } else { 1e4 + 1e4 * 4.9 / 20.0_f64.sqrt() },
    };
    let over = |skewness| level(&(0..128).map(slice).collect::<Vec<_>>(), Noise::Values { variation: 1.0, skewness }).unwrap().over;
    assert_eq!((over(0.0), over(2.0)), (40.0, 640.0));
}

#[test]
fn lengths_have_a_level_and_no_slope() {
    let slice = |index: u32, mean: f64| Slice { at: f64::from(index) * 5.0, weight: 100.0, sum: 100.0 * mean };
    let grown: Vec<Slice> = (0..128).map(|index| slice(index, 1000.0 + f64::from(index))).collect();
    let found = level(&grown, LENGTHS).unwrap();
    assert_eq!((found.slope, found.noise), (0.0, 1.0));
    let jumped: Vec<Slice> = (0..128).map(|index| slice(index, if index < 126 { 1000.0 } else { 4000.0 })).collect();
    assert_eq!(level(&jumped, LENGTHS).unwrap().value, 4000.0);
}

#[test]
fn little_and_absurd_data_give_a_number_or_none() {
    assert_eq!(level(&[], Noise::Counts), None);
    assert_eq!(level(&[Slice { at: 5.0, weight: 0.0, sum: 3.0 }], Noise::Counts), None);
    let one = counts(&slices([150.0]));
    assert_eq!((one.value, one.slope, one.over), (30.0, 0.0, 0.0));
    for sums in [[0.0; 128], [1e-300; 128], [1e290; 128]] {
        let found = counts(&slices(sums));
        assert!([found.value, found.error, found.slope, found.over, found.noise].iter().all(|number| number.is_finite()), "{found:?}");
    }
    let same_moment: Vec<Slice> = (0..128).map(|_| Slice { at: 5.0, weight: 5.0, sum: 150.0 }).collect();
    assert_eq!(counts(&same_moment).slope, 0.0);
}

/// The table at the top of the file, part by part.
fn plainly(slices: &[Slice], noise: Noise) -> Option<Level> {
    let of = |slices: &[Slice], of: &dyn Fn(&Slice) -> f64| slices.iter().map(of).sum::<f64>();
    let now = slices.last()?.at;
    let factor = if noise == Noise::Counts { burstiness(slices) } else { 1.0 };
    let variance = |mean: f64| match noise {
        Noise::Counts => factor * mean.max(f64::MIN_POSITIVE),
        Noise::Values { variation, .. } => (variation * mean).powi(2).max(f64::MIN_POSITIVE),
    };
    let (mut found, mut smaller): (Option<Level>, Vec<usize>) = (None, Vec::new());
    for size in spans(slices.len()) {
        let span = &slices[slices.len() - size..];
        let weight = of(span, &|slice| slice.weight);
        let whole = Total { weight, sum: of(span, &|slice| slice.sum), lag: 0.0 };
        let line = line_of(span, whole, now, &variance, noise == Noise::Counts)?;
        let agrees = |part: &[Slice]| {
            let (part_weight, sum) = (of(part, &|slice| slice.weight), of(part, &|slice| slice.sum));
            let expected = of(part, &|slice| slice.weight * (line.value + line.slope * (slice.at - now)));
            let deviation = (variance(expected.max(0.0) / part_weight) * part_weight * (1.0 - part_weight / weight).max(0.0)).sqrt();
            let most = if sum > expected { CONTRADICTION + noise.tail(part_weight) } else { CONTRADICTION };
            (sum - expected).abs() <= most * deviation.max(f64::MIN_POSITIVE)
        };
        if found.is_some() && !smaller.iter().all(|&part| agrees(&span[..part]) && agrees(&span[size - part..])) {
            break;
        }
        found = Some(Level { noise: factor, ..line });
        smaller.push(size);
    }
    found
}

#[test]
fn sums_of_parts_that_are_shared_say_the_same_as_those_of_each_part() {
    for seed in 0..200 {
        let mut chance = Chance::new(seed);
        let (rate, jump, slope) = (chance.count(40.0), chance.count(64.0) as usize, chance.count(3.0) - 3.0);
        let count = |chance: &mut Chance, at: usize| {
            let rate = if at > jump { rate * 1.5 } else { rate } + slope * at as f64 / 4.0;
            chance.count(rate.max(0.0))
        };
        let slices = slices((0..1 + (seed as usize * 7) % 128).map(|at| count(&mut chance, at)));
        for noise in [Noise::Counts, Noise::Values { variation: 0.3, skewness: 1.0 }] {
            let (ours, plain) = (level(&slices, noise).unwrap(), plainly(&slices, noise).unwrap());
            assert_eq!(ours.over, plain.over, "{seed}");
            near(ours.value, plain.value, 1e-9 * plain.value);
            near(ours.slope, plain.slope, 1e-9 * plain.slope.abs());
            near(ours.error, plain.error, 1e-9 * plain.error);
        }
    }
}
