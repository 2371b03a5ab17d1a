//! Do slices give the rate, the lengths and their shape, also after a pause that is longer than all of them?

use super::*;

fn slice(index: usize, requests: f64, prompts: (f64, f64)) -> Arrived {
    Arrived { at: 5.0 * (index + 1) as f64, seconds: 5.0, requests, supported: requests, prompts, answers: (prompts.0, prompts.0 * 200.0) }
}

/// Six slices of 50 requests of 1000 tokens.
fn six() -> Arrivals {
    Arrivals { slices: (0..6).map(|index| slice(index, 50.0, (50.0, 50_000.0))).collect(), ..Arrivals::default() }
}

fn near(ours: f64, expected: f64) {
    assert!((ours - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{ours}, expected {expected}");
}

/// Shares add up to one, and lengths over their mean to a mean of one.
fn is_a_shape(shape: &[(f64, f64)], by: f64) {
    assert!((shape.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < by);
    assert!((shape.iter().map(|(times, share)| times * share).sum::<f64>() - 1.0).abs() < by, "{shape:?}");
}

#[test]
fn what_is_coming_is_the_level_of_rate_and_lengths() {
    let coming = six().coming().unwrap();
    assert_eq!((coming.rate.value, coming.input, coming.output, coming.supported, coming.watched), (10.0, 1000.0, 200.0, 1.0, 30.0));
}

#[test]
fn without_a_histogram_lengths_are_spread_as_an_exponential_distribution() {
    is_a_shape(&USUAL_SHAPE.map(|times| (times, 0.25)), 1e-3);
    let mix = six().coming().unwrap().mix;
    assert_eq!(mix.iter().map(|(tokens, _)| tokens.round()).collect::<Vec<_>>(), [137.0, 477.0, 999.0, 2387.0]);
}

#[test]
fn the_histogram_gives_the_shape_and_the_slices_its_mean() {
    let mut arrivals = six();
    // 30 between 0 and 1000, 10 up to 2000, 10 beyond, which count as 3000.
    arrivals.remember(&[(1000.0, 30.0), (2000.0, 40.0)], 50.0);
    let shape = arrivals.shape();
    is_a_shape(&shape, 1e-12);
    let mean = 0.6 * 500.0 + 0.2 * 1500.0 + 0.2 * 3000.0;
    // A bucket is four lengths.
    let expected = [125.0, 375.0, 625.0, 875.0].map(|tokens| (tokens, 0.15)).into_iter();
    let expected = expected.chain([1125.0, 1375.0, 1625.0, 1875.0].map(|tokens| (tokens, 0.05))).chain([(3000.0, 0.2)]);
    assert_eq!(shape.len(), 9);
    for ((times, share), expected) in shape.iter().zip(expected) {
        near(*times, expected.0 / mean);
        near(*share, expected.1);
    }
    let mix = arrivals.coming().unwrap().mix;
    near(mix.iter().map(|(tokens, share)| tokens * share).sum(), 1000.0);
}

#[test]
fn the_histogram_forgets_after_some_thousand_requests_and_begins_anew_with_other_bounds() {
    let mut arrivals = six();
    arrivals.remember(&[(1000.0, 100.0), (2000.0, 100.0)], 100.0);
    for _ in 0..50 {
        arrivals.remember(&[(1000.0, 0.0), (2000.0, 500.0)], 500.0);
    }
    assert!(arrivals.lengths[0].1 < 1.0 && arrivals.lengths[1].1 <= REMEMBERED * 1.01, "{:?}", arrivals.lengths);
    arrivals.remember(&[(500.0, 7.0)], 7.0);
    assert_eq!((arrivals.lengths, arrivals.longer), (vec![(500.0, 7.0)], 0.0));
}

#[test]
fn silent_targets_leave_a_part_unsupported() {
    let mut arrivals = six();
    arrivals.slices.iter_mut().for_each(|slice| slice.supported = 25.0);
    assert_eq!(arrivals.coming().unwrap().supported, 0.5);
    arrivals.slices.iter_mut().for_each(|slice| slice.supported = 60.0);
    assert_eq!(arrivals.coming().unwrap().supported, 1.0);
}

#[test]
fn lengths_outlive_a_pause_and_are_not_invented_before() {
    let mut arrivals = six();
    arrivals.slices.iter_mut().for_each(|slice| {
        (slice.requests, slice.supported, slice.prompts, slice.answers) = (0.0, 0.0, (0.0, 0.0), (0.0, 0.0));
    });
    assert_eq!(arrivals.coming(), None);
    (arrivals.last_prompts, arrivals.last_answers) = (Some(800.0), Some(100.0));
    let coming = arrivals.coming().unwrap();
    assert_eq!((coming.rate.value, coming.input, coming.output), (0.0, 800.0, 100.0));
}

#[test]
fn counters_near_the_end_of_the_number_range_say_nothing() {
    let mut arrivals = six();
    arrivals.slices.iter_mut().for_each(|slice| slice.requests = 1e308);
    assert_eq!(arrivals.coming(), None);
    let mut long = six();
    long.slices.iter_mut().for_each(|slice| slice.prompts.1 = f64::MAX);
    assert!(long.coming().is_none_or(|coming| coming.input.is_finite()));
}

#[test]
fn the_variation_of_lengths_is_that_of_their_shape() {
    assert_eq!(spread(&[(0.5, 0.5), (1.5, 0.5)]), Noise::Values { variation: 0.5, skewness: 0.0 });
    // A tenth at five times what the others have.
    let Noise::Values { variation, skewness } = spread(&[(5.0 / 9.0, 0.9), (5.0, 0.1)]) else { panic!("lengths are no counts") };
    near(variation, 4.0 / 3.0);
    near(skewness, 8.0 / 3.0);
    assert_eq!(spread(&[(1.0, 1.0)]), Noise::Values { variation: 0.1, skewness: 0.0 });
}

/// So many slices with 50 requests, and 20 more or less for parts of 20 s in turn where they are uneven.
fn slices(count: usize, uneven: bool) -> Vec<Arrived> {
    let requests = |index: usize| {
        if !uneven {
            50.0
        } else if (index / 4).is_multiple_of(2) {
            70.0
        } else {
            30.0
        }
    };
    (0..count).map(|index| slice(index, requests(index), (50.0, 50_000.0))).collect()
}

#[test]
fn the_most_noise_is_remembered_and_what_it_had_beyond_one_falls_by_half_in_twenty_minutes() {
    let mut arrivals = Arrivals { slices: slices(64, true), ..Arrivals::default() };
    let noisy = arrivals.coming().unwrap();
    assert!(noisy.rate.noise > 5.0, "{noisy:?}");
    assert_eq!(noisy.noisiest, noisy.rate.noise);
    arrivals.slices = slices(64, false);
    for _ in 0..240 {
        assert!(arrivals.coming().unwrap().noisiest >= 1.0);
    }
    let even = arrivals.coming().unwrap();
    assert_eq!(even.rate.noise, 1.0);
    assert!((even.noisiest - 1.0 - (noisy.noisiest - 1.0) / 2.0).abs() < 0.01 * noisy.noisiest, "{} of {}", even.noisiest, noisy.noisiest);
}

#[test]
fn the_noise_of_a_few_slices_is_chance_and_not_remembered() {
    let mut arrivals = Arrivals { slices: slices(31, true), ..Arrivals::default() };
    assert!(arrivals.coming().unwrap().noisiest > 1.0, "it counts while it is seen");
    arrivals.slices = slices(64, false);
    assert_eq!(arrivals.coming().unwrap().noisiest, 1.0);
}
