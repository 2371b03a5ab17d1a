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

#[test]
fn what_is_coming_is_the_level_of_rate_and_lengths() {
    let coming = six().coming().unwrap();
    assert_eq!((coming.rate.value, coming.input, coming.output, coming.supported, coming.watched), (10.0, 1000.0, 200.0, 1.0, 30.0));
}

#[test]
fn lengths_have_their_own_shape_and_the_mean_of_the_moment() {
    let mut arrivals = six();
    arrivals.prompt_lengths.remember(&[(1000.0, 30.0), (2000.0, 40.0)], 50.0);
    // 10 answers of a quarter to seven quarters of 400 tokens on average, as many each.
    arrivals.answer_lengths.remember(&[(800.0, 10.0)], 10.0);
    let coming = arrivals.coming().unwrap();
    near(coming.mix.iter().map(|(tokens, share)| tokens * share).sum(), 1000.0);
    // Variance of 1/4, 3/4, 5/4, 7/4: 5/16. Of an answer of 200 tokens (1 + 5/16) / 2 are there on average.
    near(coming.context, 1000.0 + 200.0 * 21.0 / 32.0);
    near(six().coming().unwrap().mix.iter().map(|(tokens, share)| tokens * share).sum(), 1000.0);
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
