//! Do signs ask for more only where they last, and only once?

use super::*;

const READY: Replicas = Replicas(10);

fn at(seconds: u64) -> Moment {
    Moment { monotonic: Duration::from_secs(seconds), wall: Duration::ZERO }
}

fn slow(ratio: f64) -> Spacing {
    Spacing { ratio, stay: Duration::from_secs(10), range: 1.1 }
}

#[test]
fn tokens_too_far_apart_ask_in_proportion_when_that_lasts_for_a_stay_and_twenty_seconds() {
    let mut beyond = None;
    let counts: Vec<_> = (0..=40).step_by(10).map(|second| spaced(&mut beyond, Some(slow(1.2)), READY, at(second))).collect();
    assert_eq!(counts, [None, None, None, Some(Replicas(14)), Some(Replicas(14))]);
    assert_eq!(spaced(&mut beyond, Some(slow(1.2)), Replicas(14), at(50)), None, "what came in is given its time");
    assert_eq!(spaced(&mut beyond, Some(slow(0.9)), Replicas(14), at(80)), None);
    assert_eq!(beyond, None, "within the objective by more than a tenth");
}

#[test]
fn nothing_is_asked_for_where_the_load_does_not_matter_or_nothing_is_ready() {
    for (seen, ready) in [(Spacing { range: 1.5, ..slow(2.0) }, READY), (slow(2.0), Replicas(0)), (slow(f64::NAN), READY)] {
        let mut beyond = None;
        assert!((0..100).all(|second| spaced(&mut beyond, Some(seen), ready, at(second)).is_none()), "{seen:?}");
    }
}

#[test]
fn what_was_asked_for_in_vain_is_not_asked_for_again() {
    let after = |ratio: f64| {
        let mut beyond = None;
        let asked = |beyond: &mut Option<Beyond>, ratio, ready, from| -> Vec<_> {
            (from..from + 60).filter_map(|second| spaced(beyond, Some(slow(ratio)), Replicas(ready), at(second))).collect()
        };
        assert_eq!(asked(&mut beyond, 1.22, 10, 0)[0], Replicas(14));
        asked(&mut beyond, ratio, 14, 60).first().copied()
    };
    assert_eq!(after(1.2), None, "1.4 times as many and hardly shorter");
    assert_eq!(after(1.0), Some(Replicas(16)));
}

#[test]
fn the_larger_sign_counts_up_to_twice_what_is_ready() {
    let some = |count| Some(Replicas(count));
    assert_eq!(wanted(some(12), some(14), READY, READY), Some((Replicas(14), Warning::SpacingUnlearned)));
    assert_eq!(wanted(some(40), some(14), READY, READY), Some((Replicas(20), Warning::Outrun)));
    assert_eq!(wanted(some(12), None, READY, Replicas(12)), None, "it stands already");
    assert_eq!(wanted(None, None, READY, READY), None);
}
