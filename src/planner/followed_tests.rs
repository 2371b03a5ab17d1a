//! Is a queue followed to the moment at which new replicas are there, and is what was needed lately remembered for long enough?

use super::*;
use crate::planner::model::attain::Prompts;
use crate::planner::model::envelope::Envelope;
use crate::planner::model::needed::Answers;
use crate::planner::model::server::{Server, Slowness};
use crate::planner::tests::world::seed_profile;
use crate::units::Role;

const STARTUP: Duration = Duration::from_secs(100);
const ROUND: Duration = Duration::from_secs(5);

fn at(seconds: u64) -> Moment {
    Moment { monotonic: Duration::from_secs(seconds), wall: Duration::from_secs(seconds) }
}

/// Prompts of 100 ms: a replica computes ten a second.
fn demand(envelope: &Envelope) -> Demand<'_> {
    Demand {
        role: Role::Prefill,
        server: Server::Profile(envelope, 1.0, Slowness::default()),
        mix: vec![Prompts { share: 1.0, alone: 0.1, work: 0.1 }],
        input: 1000.0,
        output: 100.0,
        context: 1050.0,
        accepted: 1.0,
        ttft: 0.5,
        itl: 0.05,
        share: 0.995,
        noise: 1.0,
        answers: Answers::default(),
    }
}

fn caught(known: &mut Followed, queued: Queued, need: u32, now: u64) -> (u32, f64) {
    let envelope = Envelope::new(seed_profile()).unwrap();
    let found = known.caught_up(&demand(&envelope), queued, Replicas(need), STARTUP, at(now));
    (found.wanted.0, found.left)
}

/// So many replicas that are ready, at eight times the rate of one.
fn eightfold(ready: u32, waiting: f64) -> Queued {
    Queued { rate: 80.0, waiting, running: 0.0, ready: Replicas(ready) }
}

fn near(ours: f64, expected: f64) {
    assert!((ours - expected).abs() < 1e-6, "{ours}, expected {expected}");
}

#[test]
fn the_table_is_what_the_code_says() {
    let (count, left) = caught(&mut Followed::default(), eightfold(1, 0.0), 8, 0);
    near(left, 7.0 * 10.0 * 100.0);
    assert_eq!(count, 9);
}

#[test]
fn what_is_worked_off_is_sent_on_for_as_long_as_more_than_order_waits() {
    let backlog = |wanted, present, left| Backlog { wanted: Replicas(wanted), present, left };
    // Nine carry 90 a second, of which 80 arrive.
    near(backlog(9, 0.0, 7000.0).sent_on(Replicas(1), 10.0, 80.0), 10.0);
    // 225 are 5 a second for 45 s.
    near(backlog(9, 0.0, 225.0).sent_on(Replicas(1), 10.0, 80.0), 5.0);
    // One replica's old queue, after nobody needs more for it.
    near(backlog(8, 1000.0, 0.0).sent_on(Replicas(9), 10.0, 80.0), 10.0);
    near(backlog(8, 9.0, 8.0).sent_on(Replicas(9), 10.0, 80.0), 0.0);
    near(backlog(8, 1000.0, 0.0).sent_on(Replicas(8), 10.0, 80.0), 0.0);
}

#[test]
fn what_waits_never_asks_for_more_than_a_quarter_above_need() {
    assert_eq!([1, 3, 8, 40].map(|need| at_most(Replicas(1000), Replicas(need)).0), [2, 4, 10, 50]);
    assert_eq!(at_most(Replicas(9), Replicas(8)), Replicas(9));
}

#[test]
fn replicas_that_are_on_their_way_work_off_what_they_can() {
    let mut known = Followed::default();
    known.follow(Replicas(1), Replicas(1), at(0));
    known.follow(Replicas(9), Replicas(1), at(5));
    let (_, left) = caught(&mut known, eightfold(1, 0.0), 8, 55);
    // Seven more than one carries for 50 s, then one less than nine carry for 50 s.
    near(left, 70.0 * 50.0 - 10.0 * 50.0);
    known.follow(Replicas(9), Replicas(9), at(105));
    let (count, left) = caught(&mut known, eightfold(9, 700.0), 8, 105);
    near(left, 0.0);
    assert_eq!(count, 9, "kept until what waits is gone");
    let (count, _) = caught(&mut known, eightfold(9, 8.0), 8, 200);
    assert_eq!(count, 8, "one at each replica is no queue");
}

#[test]
fn those_that_arrive_are_those_that_were_asked_for_first_and_those_given_up_the_last() {
    let mut known = Followed::default();
    for (seconds, stands, ready) in [(0, 1, 1), (5, 3, 1), (50, 6, 1), (105, 6, 2)] {
        known.follow(Replicas(stands), Replicas(ready), at(seconds));
    }
    assert_eq!(known.asked, [(Duration::from_secs(5), 1), (Duration::from_secs(50), 3)]);
    known.follow(Replicas(4), Replicas(2), at(110));
    assert_eq!(known.asked, [(Duration::from_secs(50), 2)], "the two open ones are those asked for last");
    known.follow(Replicas(4), Replicas(4), at(150));
    assert_eq!(known.asked, []);
}

#[test]
fn no_more_than_a_quarter_is_asked_for_above_what_is_needed_and_no_more_than_there_are() {
    let above = |ready: u32, need: u32| caught(&mut Followed::default(), eightfold(ready, 1e6), need, 0).0;
    assert_eq!([above(1, 8), above(2, 8), above(7, 8), above(40, 80), above(1, 1)], [9, 10, 10, 100, 2]);
    assert_eq!(above(0, 8), 8, "where none serves nothing works off what waits but the new ones");
}

#[test]
fn the_most_that_was_needed_within_the_delay_is_remembered() {
    let mut known = Followed::default();
    let delay = Duration::from_secs(120);
    for (seconds, need, expected) in [(0, 3, 3), (30, 9, 9), (60, 4, 9), (90, 5, 9), (150, 2, 9), (151, 2, 5), (210, 2, 5), (211, 2, 2)] {
        known.note(Replicas(need), Replicas(need), delay, ROUND, at(seconds));
        assert_eq!(known.recently_needed(), Replicas(expected), "at {seconds} s");
    }
    known.note(Replicas(2), Replicas(3), delay, ROUND, at(290));
    known.note(Replicas(2), Replicas(2), delay, ROUND, at(295));
    assert_eq!(known.recently_needed(), Replicas(3), "also what was asked for a queue stays while its replicas start");
    for seconds in 300..10_000 {
        known.note(Replicas(5), Replicas(5), Duration::from_secs(100_000), ROUND, at(seconds));
    }
    assert!(known.needs.0.len() <= 2, "a long delay costs no memory");
}

#[test]
fn a_pool_is_watched_from_the_first_round_on_and_remembers_when_it_was_lowered() {
    let mut known = Followed::default();
    assert!(!known.is_watched(Duration::ZERO, at(0)));
    known.follow(Replicas(4), Replicas(4), at(10));
    let delay = Duration::from_secs(120);
    assert_eq!([129, 130].map(|now| known.is_watched(delay, at(now))), [false, true]);
    assert!(!known.was_lowered(Duration::from_secs(60), at(130)));
    known.follow(Replicas(3), Replicas(4), at(140));
    assert_eq!([199, 200].map(|now| known.was_lowered(Duration::from_secs(60), at(now))), [true, false]);
}

#[test]
fn after_a_gap_it_is_watched_anew() {
    let delay = Duration::from_secs(120);
    let mut known = Followed::default();
    known.follow(Replicas(5), Replicas(5), at(0));
    for now in (0..=300).step_by(5) {
        known.note(Replicas(5), Replicas(5), delay, ROUND, at(now));
    }
    assert!(known.is_watched(delay, at(300)));
    // Thirty seconds may be missing.
    known.note(Replicas(4), Replicas(4), delay, ROUND, at(330));
    assert!(known.is_watched(delay, at(330)));
    known.note(Replicas(4), Replicas(4), delay, ROUND, at(450));
    assert!(!known.is_watched(delay, at(569)));
    assert!(known.is_watched(delay, at(570)));
}

#[test]
fn rounds_that_are_far_apart_are_no_gap() {
    let (delay, round) = (Duration::from_secs(120), Duration::from_secs(60));
    let mut known = Followed::default();
    known.follow(Replicas(5), Replicas(5), at(0));
    for now in (0..=300).step_by(60) {
        known.note(Replicas(5), Replicas(5), delay, round, at(now));
    }
    // Two rounds may be missing.
    known.note(Replicas(5), Replicas(5), delay, round, at(480));
    assert!(known.is_watched(delay, at(480)));
    known.note(Replicas(5), Replicas(5), delay, round, at(661));
    assert!(!known.is_watched(delay, at(661)));
}
