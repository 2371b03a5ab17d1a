//! Is the shape of lengths that of the histogram, and does the histogram forget?

use super::*;

fn near(ours: f64, expected: f64) {
    assert!((ours - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{ours}, expected {expected}");
}

/// Shares add up to one, and lengths over their mean to a mean of one.
fn is_a_shape(shape: &Shape, by: f64) {
    assert!((shape.0.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < by);
    assert!((shape.0.iter().map(|(times, share)| times * share).sum::<f64>() - 1.0).abs() < by, "{shape:?}");
}

#[test]
fn before_any_were_seen_they_are_spread_as_an_exponential_distribution() {
    let shape = Lengths::default().shape();
    is_a_shape(&shape, 1e-3);
    assert_eq!(shape.of_mean(1000.0).iter().map(|(tokens, _)| tokens.round()).collect::<Vec<_>>(), [137.0, 477.0, 999.0, 2387.0]);
}

#[test]
fn the_histogram_gives_the_shape() {
    let mut lengths = Lengths::default();
    // 30 between 0 and 1000, 10 up to 2000, 10 beyond, which count as 3000.
    lengths.remember(&[(1000.0, 30.0), (2000.0, 40.0)], 50.0);
    let shape = lengths.shape();
    is_a_shape(&shape, 1e-12);
    let mean = 0.6 * 500.0 + 0.2 * 1500.0 + 0.2 * 3000.0;
    // A bucket is four lengths.
    let expected = [125.0, 375.0, 625.0, 875.0].map(|tokens| (tokens, 0.15)).into_iter();
    let expected = expected.chain([1125.0, 1375.0, 1625.0, 1875.0].map(|tokens| (tokens, 0.05))).chain([(3000.0, 0.2)]);
    assert_eq!(shape.0.len(), 9);
    for ((times, share), expected) in shape.0.iter().zip(expected) {
        near(*times, expected.0 / mean);
        near(*share, expected.1);
    }
}

#[test]
fn the_histogram_forgets_after_some_thousand_requests_and_begins_anew_with_other_bounds() {
    let mut lengths = Lengths::default();
    lengths.remember(&[(1000.0, 100.0), (2000.0, 100.0)], 100.0);
    for _ in 0..50 {
        lengths.remember(&[(1000.0, 0.0), (2000.0, 500.0)], 500.0);
    }
    assert!(lengths.buckets[0].1 < 1.0 && lengths.buckets[1].1 <= REMEMBERED * 1.01, "{lengths:?}");
    lengths.remember(&[(500.0, 7.0)], 7.0);
    assert_eq!(lengths, Lengths { buckets: vec![(500.0, 7.0)], longer: 0.0 });
}

#[test]
fn the_variation_of_lengths_is_that_of_their_shape() {
    assert_eq!(Shape(vec![(0.5, 0.5), (1.5, 0.5)]).spread(), Noise::Values { variation: 0.5, skewness: 0.0 });
    // A tenth at five times what the others have.
    let Noise::Values { variation, skewness } = Shape(vec![(5.0 / 9.0, 0.9), (5.0, 0.1)]).spread() else { panic!("lengths are no counts") };
    near(variation, 4.0 / 3.0);
    near(skewness, 8.0 / 3.0);
    assert_eq!(Shape(vec![(1.0, 1.0)]).spread(), Noise::Values { variation: 0.1, skewness: 0.0 });
}

#[test]
fn long_requests_stay_longer_and_so_more_of_those_at_work_are_long() {
    // Two answers in turn, of 1 and 3 steps: of 4 steps in which one is at work it is at its 1st, 1st, 2nd and 3rd, and in the middle of each step.
    let at_work = [0.5, 0.5, 1.5, 2.5].iter().sum::<f64>() / 4.0;
    near(Shape(vec![(0.5, 0.5), (1.5, 0.5)]).behind() * 2.0, at_work);
    near(Shape(vec![(1.0, 1.0)]).behind(), 0.505);
}
