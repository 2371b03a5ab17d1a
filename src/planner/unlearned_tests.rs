//! Do signs ask for more only where they last, and only once?

use super::*;

const READY: Replicas = Replicas(10);
const NOTHING: [u32; 0] = [];

fn at(seconds: u64) -> Moment {
    Moment { monotonic: Duration::from_secs(seconds), wall: Duration::ZERO }
}

fn slow(ratio: f64) -> Spacing {
    Spacing { ratio, stay: Duration::from_secs(10), range: 1.1 }
}

/// A round every five seconds from one on to another; what is asked for.
fn asked(spaced: &mut Spaced, seen: impl Fn(u64) -> Option<Spacing>, ready: u32, from: u64, until: u64) -> Vec<u32> {
    (from..until).step_by(5).filter_map(|second| spaced.follow(seen(second), Replicas(ready), at(second))).map(|count| count.0).collect()
}

#[test]
fn tokens_too_far_apart_ask_in_proportion_when_that_lasts_for_a_stay_and_twenty_seconds() {
    let mut spaced = Spaced::default();
    assert_eq!(asked(&mut spaced, |_| Some(slow(1.2)), 10, 0, 30), NOTHING);
    assert_eq!(asked(&mut spaced, |_| Some(slow(1.2)), 10, 30, 35), [14]);
    assert_eq!(asked(&mut spaced, |_| Some(slow(1.2)), 14, 35, 65), NOTHING, "what came in is given its time");
    assert_eq!(asked(&mut spaced, |_| Some(slow(0.9)), 14, 65, 200), NOTHING, "within the objective by more than a tenth");
    assert_eq!(spaced.asked, None);
}

#[test]
fn nothing_is_asked_for_where_the_load_does_not_matter_or_nothing_is_ready() {
    for (seen, ready) in [(Spacing { range: 1.5, ..slow(2.0) }, 10), (slow(2.0), 0), (slow(f64::NAN), 10), (slow(f64::INFINITY), 10)] {
        assert_eq!(asked(&mut Spaced::default(), |_| Some(seen), ready, 0, 500), NOTHING, "{seen:?}");
    }
    let now_and_then = |second: u64| Some(slow(2.0)).filter(|_| !second.is_multiple_of(30));
    assert_eq!(asked(&mut Spaced::default(), now_and_then, 10, 0, 500), NOTHING, "pauses");
    let mut dark = Spaced::default();
    assert_eq!([0, 3600].map(|second| dark.follow(Some(slow(2.0)), READY, at(second))), [None, None], "an hour without sight");
}

#[test]
fn within_the_objective_a_part_of_a_replica_is_not_worth_one() {
    let first = |ratio, ready| asked(&mut Spaced::default(), |_| Some(slow(ratio)), ready, 0, 35)[0];
    assert_eq!((first(0.95, 1), first(0.95, 30), first(1.01, 1)), (1, 31, 2));
}

#[test]
fn what_was_asked_for_in_vain_is_not_asked_for_again() {
    // Noise of 4 % either way, which a period's mean has little of.
    let noisy = |ratio: f64| move |second: u64| Some(slow(ratio * if second.is_multiple_of(10) { 1.04 } else { 0.96 }));
    let mut spaced = Spaced::default();
    assert_eq!(asked(&mut spaced, noisy(1.2), 10, 0, 35), [14]);
    assert_eq!(asked(&mut spaced, noisy(1.18), 14, 35, 7200), NOTHING, "1.4 times as many and hardly shorter");
    assert_eq!(asked(&mut spaced, |_| None, 14, 7200, 7300), NOTHING);
    assert_eq!(asked(&mut spaced, noisy(1.18), 14, 7300, 7400), NOTHING, "a pause changes nothing");
    let after_a_restart = &mut Spaced::having(spaced.asked.unwrap());
    assert_eq!(asked(after_a_restart, noisy(1.18), 14, 7400, 7500), NOTHING);
    assert_eq!(asked(&mut spaced.clone(), noisy(1.05), 14, 7400, 7440), [17], "it is shorter");
    assert_eq!(asked(&mut spaced.clone(), noisy(1.6), 14, 7400, 7440), [25], "something else has come up");
}

#[test]
fn the_larger_sign_counts_up_to_twice_what_is_ready() {
    let some = |count| Some(Replicas(count));
    assert_eq!(wanted(some(12), some(14), READY, READY), Some((Replicas(14), Warning::SpacingUnlearned)));
    assert_eq!(wanted(some(40), some(14), READY, READY), Some((Replicas(20), Warning::Outrun)));
    assert_eq!(wanted(some(12), None, READY, Replicas(12)), None, "it stands already");
    assert_eq!(wanted(None, None, READY, READY), None);
}
