//! Is a replica what its profile says, what was learned of it, or the one corrected by the other?

use std::num::NonZeroU32;

use super::*;
use crate::planner::model::iteration::Costs;
use crate::planner::tests::world::seed_profile;
use crate::units::SecondsPerToken;

fn near(ours: f64, expected: f64) {
    assert!((ours - expected).abs() <= 1e-9 * expected, "{ours}, expected {expected}");
}

fn envelope() -> Envelope {
    Envelope::new(seed_profile()).unwrap()
}

/// The example of `iteration.rs`, with chunks of 2048, a fixed cost of `fixed` seconds.
fn learned(fixed: f64) -> Server<'static> {
    let costs = Costs {
        fixed: Seconds(fixed),
        prefill_token: SecondsPerToken(10e-6),
        request: Seconds(20e-6),
        kv_token: SecondsPerToken(0.1e-6),
        least: Seconds(0.0),
    };
    let limits = EngineLimits::or_assumed(NonZeroU32::new(2048), NonZeroU32::new(64), NonZeroU32::new(70_400));
    Server::Learned(Iteration::new(costs).unwrap(), limits)
}

#[test]
fn a_prompt_takes_what_the_curve_says_and_no_longer_than_alone() {
    let envelope = envelope();
    let server = Server::Profile(&envelope, 1.0, Slowness::default());
    let (alone, work) = server.prompt(Tokens(2048.0), Ratio(0.0));
    near(alone.get(), 0.215);
    near(work.get(), 0.215);
    let two = Server::Profile(&envelope, 2.0, Slowness::default()).prompt(Tokens(2048.0), Ratio(0.0));
    near(two.1.get(), 2048.0 / 19_000.0);
    near(server.prompt(Tokens(2048.0), Ratio(0.5)).0.get(), 0.11);
}

#[test]
fn a_prompt_beyond_the_end_of_the_curve_takes_longer_in_proportion() {
    let envelope = envelope();
    let server = Server::Profile(&envelope, 1.0, Slowness::default());
    let (alone, work) = server.prompt(Tokens(40_960.0), Ratio(0.0));
    near(alone.get(), 4.3);
    near(work.get(), 4.3);
}

#[test]
fn learned_costs_give_the_chunks_of_a_prompt_and_the_step_of_a_batch() {
    let server = learned(0.005);
    let (alone, work) = server.prompt(Tokens(4500.0), Ratio(0.0));
    near(alone.get(), 3.0 * 0.005 + 0.045);
    assert_eq!(alone, work);
    near(server.step(Requests(64.0), Tokens(1100.0)).get(), 0.013_32);
    near(server.most(Tokens(2200.0)).get(), 32.0);
    near(server.most(Tokens(100.0)).get(), 64.0);
    near(server.most(Tokens(1e9)).get(), 1.0);
}

#[test]
fn nothing_has_no_length_that_makes_it_free_or_endless() {
    let envelope = envelope();
    for server in [Server::Profile(&envelope, 1.0, Slowness::default()), learned(0.005)] {
        for tokens in [0.0, 1e9, f64::MAX] {
            let (alone, work) = server.prompt(Tokens(tokens), Ratio(0.0));
            assert!(alone.get() > 0.0 && work.get() > 0.0 && work <= alone, "{alone:?} {work:?}");
        }
        assert!(server.step(Requests(0.0), Tokens(0.0)).get() > 0.0);
        assert!(server.most(Tokens(0.0)).get() >= 1.0);
    }
}

/// Decode at 23.83 requests of 1100 tokens, a tenth of the KV memory, where the profile says 11.05 ms, corrected by a line of so many ms a step.
fn slower(ms: f64) -> f64 {
    let envelope = envelope();
    let (batch, context) = (Requests(26_214.4 / 1100.0), Tokens(1100.0));
    let plain = Server::Profile(&envelope, 1.0, Slowness::default());
    let says = plain.step(batch, context).get();
    let fixed = ms / 1000.0 - batch.get() * (20e-6 + 1100.0 * 0.1e-6);
    let corrected = plain.corrected(&learned(fixed), Role::Decode, Tokens(1000.0), batch, context);
    near(corrected.step(batch, context).get(), says * corrected.slower());
    corrected.slower()
}

#[test]
fn a_profile_is_corrected_where_the_servers_differ_from_it_by_more_than_a_fit_errs() {
    assert_eq!(slower(11.0), 1.0);
    assert_eq!(slower(12.5), 1.0, "13 % more are not noticed");
    for (times, expected) in [(1.18, 1.0 + 0.18 * 0.2), (1.3, 1.3), (0.76, 1.0 - 0.24 * 0.6)] {
        let found = slower(11.05 * times);
        assert!((found - expected).abs() < 1e-3, "by and by: {times} is {found}, expected {expected}");
    }
    assert!((slower(22.1) - 2.0).abs() < 0.02);
    assert!(slower(7.5) < 0.75, "nor are servers that turned out to be faster taken for slow ones");
    assert_eq!(slower(500.0), LARGEST);
}

#[test]
fn a_learned_line_corrects_itself_by_nothing() {
    let line = learned(0.005);
    let same = line.corrected(&learned(0.05), Role::Prefill, Tokens(1000.0), Requests(1.0), Tokens(1000.0));
    assert_eq!((same.slower(), same.step(Requests(1.0), Tokens(0.0))), (1.0, line.step(Requests(1.0), Tokens(0.0))));
}
