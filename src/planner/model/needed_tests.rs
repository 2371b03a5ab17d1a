//! Is the count the smallest that is enough, does more arrivals never need fewer, and does the search end whatever it is asked?

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::planner::model::capacity::EngineLimits;
use crate::planner::model::envelope::{Envelope, ProfileDocument};
use crate::planner::model::iteration::{Costs, Iteration};
use crate::planner::model::server::Slowness;
use crate::planner::tests::world::seed_profile;
use crate::units::{Ratio, SecondsPerToken};

/// 8 ms an iteration, 20 us a prompt token and a request, 30 ns a KV token.
fn learned() -> Server<'static> {
    of_costs([0.008, 2e-5, 2e-5, 3e-8, 0.0], 8192)
}

/// Seconds of an iteration, a prompt token, a request, a KV token, and of an iteration at least; and the tokens of a step.
fn of_costs([fixed, prefill_token, request, kv_token, least]: [f64; 5], step: u32) -> Server<'static> {
    let (prefill_token, kv_token) = (SecondsPerToken(prefill_token), SecondsPerToken(kv_token));
    let costs = Costs { fixed: Seconds(fixed), prefill_token, request: Seconds(request), kv_token, least: Seconds(least) };
    Server::Learned(Iteration::new(costs).unwrap(), EngineLimits::or_assumed(NonZeroU32::new(step), None, NonZeroU32::new(300_000)))
}

fn demand<'a>(role: Role, server: Server<'a>, lengths: &[(f64, f64)], output: f64) -> Demand<'a> {
    let prompts = |&(tokens, share): &(f64, f64)| {
        let (alone, work) = server.prompt(Tokens(tokens), Ratio(0.0));
        Prompts { share, alone: alone.get(), work: work.get() }
    };
    let input: f64 = lengths.iter().map(|(tokens, share)| tokens * share).sum();
    Demand {
        role,
        server,
        mix: lengths.iter().map(prompts).collect(),
        input,
        output,
        // Of answers of one length.
        context: input + output / 2.0,
        accepted: 1.0,
        ttft: 0.5,
        itl: 0.03,
        share: 0.995,
        noise: 1.0,
        answers: Answers::default(),
    }
}

const LENGTHS: [(f64, f64); 3] = [(500.0, 0.5), (1000.0, 0.3), (2250.0, 0.2)];

fn of(role: Role) -> Demand<'static> {
    demand(role, learned(), &LENGTHS, 200.0)
}

/// What is smallest by trying each.
fn one_by_one(demand: &Demand<'_>, rate: f64) -> u32 {
    (1..).find(|count| demand.within(*count, rate).is_none_or(|share| share >= demand.share)).unwrap()
}

#[test]
fn the_count_is_the_smallest_that_is_enough() {
    for role in Role::ALL {
        for rate in [0.01, 1.0, 7.0, 20.0, 55.0, 130.0, 400.0] {
            let demand = of(role);
            assert_eq!(demand.need(rate).0, one_by_one(&demand, rate), "{role} {rate}");
        }
    }
}

#[test]
fn a_count_is_no_more_than_twice_what_carries_the_load_and_two() {
    // Learned of three aggregated replicas to which more came than they serve: steps of 64 ms and more say nothing of short ones, which are taken for
    // 32 ms at least.
    let server = of_costs([0.0, 6.07e-5, 1.09e-4, 1.04e-7, 0.0319], 16_384);
    let mut demand = demand(Role::Aggregated, server, &LENGTHS, 206.0);
    (demand.ttft, demand.itl, demand.noise) = (1.0, 0.04, 4.0);
    let carried = 24.9 / demand.capacity();
    let need = demand.need(24.9).0;
    assert_eq!(need, (2.0 * carried + 2.0).ceil() as u32, "{carried}");
    assert!(one_by_one(&demand, 24.9) > 2 * need, "all that the model asks for");
}

#[test]
fn nothing_needs_none() {
    assert_eq!(Role::ALL.map(|role| of(role).need(0.0).0), [0; 3]);
    assert_eq!(Role::ALL.map(|role| of(role).need(-1.0).0), [0; 3]);
}

#[test]
fn an_objective_out_of_reach_is_told_and_sized_for_what_is_to_be_carried() {
    for role in Role::ALL {
        let mut demand = of(role);
        (demand.ttft, demand.itl) = (0.001, 0.001);
        assert_eq!((demand.within(1, 0.0), demand.within(50, 3.0)), (None, None));
        let reachable = (demand.first_tokens_reachable(), demand.spacing_reachable());
        assert!(![reachable.0, reachable.1].contains(&Some(true)), "{reachable:?}");
        let rate = 10.5 * demand.capacity();
        assert_eq!(demand.need(rate).0, 11, "{role}");
        assert_eq!(demand.need(3.0 * demand.capacity()).0, 3, "no more for the noise of a number");
    }
    let mut aggregated = of(Role::Aggregated);
    aggregated.itl = 0.001;
    assert_eq!(aggregated.within(1, 0.0), None, "one of two is enough");
    assert_eq!((aggregated.first_tokens_reachable(), aggregated.spacing_reachable()), (Some(true), Some(false)));
    assert_eq!((of(Role::Prefill).spacing_reachable(), of(Role::Decode).first_tokens_reachable()), (None, None));
}

#[test]
fn prompts_out_of_reach_are_left_out_of_the_share_and_not_of_the_load() {
    let mostly = [(500.0, 0.9), (100_000.0, 0.1)];
    let long = demand(Role::Prefill, learned(), &mostly, 200.0);
    let short = demand(Role::Prefill, learned(), &[(500.0, 1.0)], 200.0);
    assert!(long.within(1000, 10.0).unwrap() > 0.999);
    assert!(long.need(10.0) > short.need(9.0));
}

#[test]
fn prompts_that_leave_hardly_a_wait_ask_for_no_replicas_of_their_own() {
    for role in [Role::Prefill, Role::Aggregated] {
        let alone = |tokens: f64| demand(role, learned(), &[(tokens, 1.0)], 200.0).idle_mix()[0].alone;
        let of_part = |part: f64| (1..).map(f64::from).find(|tokens| alone(*tokens) >= part * 0.5).unwrap();
        let with = |tokens: f64| demand(role, learned(), &[(500.0, 0.9), (tokens, 0.1)], 200.0).need(30.0).0;
        assert!(alone(of_part(0.999)) < 0.5, "it is within reach of an idle pool");
        // The work is nearly the same, so one more is all that it may take.
        assert!(with(of_part(0.999)) <= with(of_part(0.89)) + 1, "{role}: {} and {}", with(of_part(0.999)), with(of_part(0.89)));
        let nothing_else = demand(role, learned(), &[(of_part(0.999), 1.0)], 200.0);
        assert_eq!(nothing_else.first_tokens_reachable(), Some(true), "{role}");
        assert!(nothing_else.need(1.0).0 < MOST);
    }
}

fn within_time(what: &str, run: impl FnOnce()) {
    let began = Instant::now();
    run();
    // Generous: what it guards against takes minutes.
    assert!(began.elapsed() < Duration::from_secs(5), "{what}: {:?}", began.elapsed());
}

#[test]
fn huge_rates_and_fleets_of_thousands_end_soon() {
    for role in Role::ALL {
        let demand = of(role);
        within_time("huge", || assert_eq!([1e9, 1e300, f64::MAX, f64::INFINITY].map(|rate| demand.need(rate).0), [MOST; 4]));
        within_time("thousands", || {
            let count = demand.need(10_000.0 * demand.capacity()).0;
            assert!((10_000..15_000).contains(&count), "{role} {count}");
        });
        let mut strict = of(role);
        strict.share = 1.0;
        within_time("never enough", || assert!(strict.need(100.0).0 >= 1));
    }
}

#[test]
fn absurd_requests_give_numbers() {
    let envelope = Envelope::new(seed_profile()).unwrap();
    for role in Role::ALL {
        for server in [learned(), Server::Profile(&envelope, 1.0, Slowness::default())] {
            for (tokens, output) in [(0.0, 1.0), (1e9, 1e9), (1000.0, 1e9), (1e9, 1.0)] {
                let demand = demand(role, server, &[(tokens, 1.0)], output);
                for rate in [1e-300, 1.0, 1e300] {
                    let count = demand.need(rate);
                    assert!((1..=MOST).contains(&count.0), "{role} {tokens} {output} {rate}");
                    for replicas in [0, 1, count.0] {
                        let share = demand.within(replicas, rate);
                        assert!(
                            share.is_none_or(|share| (0.0..=1.0 + 1e-9).contains(&share)),
                            "{role} {tokens} {output} {rate}: {share:?}"
                        );
                        let Latencies { ttft_seconds, itl_seconds } = demand.latencies(Replicas(replicas), rate);
                        assert!([ttft_seconds, itl_seconds].into_iter().flatten().all(|latency| latency.get().is_finite()));
                    }
                }
                assert!(demand.capacity() > 0.0 && demand.capacity().is_finite());
                assert!(demand.excess(1e300, 1e300, Replicas(0)).is_finite());
            }
        }
    }
}

#[test]
fn a_profile_whose_steps_get_shorter_with_the_batch_ends_the_search_too() {
    let mut falling = seed_profile();
    falling.decode.itl_ms.iter_mut().for_each(|row| row.reverse());
    let envelope = Envelope::new(falling).unwrap();
    let mut demand = demand(Role::Decode, Server::Profile(&envelope, 1.0, Slowness::default()), &LENGTHS, 200.0);
    for itl in [0.005, 0.012, 0.02, 0.05] {
        demand.itl = itl;
        within_time("falling", || assert!([0.1, 10.0, 1000.0].iter().all(|rate| demand.need(*rate).0 >= 1)));
    }
}

#[test]
fn latencies_grow_with_the_load_and_are_left_out_where_they_would_grow_without_end() {
    let demand = of(Role::Aggregated);
    let at = |rate| demand.latencies(Replicas(4), rate);
    assert!(at(1.0).ttft_seconds < at(40.0).ttft_seconds && at(1.0).itl_seconds < at(40.0).itl_seconds);
    assert_eq!(at(1e4), Latencies::default());
    assert_eq!(of(Role::Prefill).latencies(Replicas(4), 1.0).itl_seconds, None);
    assert_eq!(of(Role::Decode).latencies(Replicas(4), 1.0).ttft_seconds, None);
}

#[test]
fn what_is_beyond_full_batches_waits() {
    let decode = of(Role::Decode);
    // 300 000 tokens of KV memory hold 250 requests of 1200 at their ends.
    assert!((decode.excess(5.0, 507.0, Replicas(2)) - 12.0).abs() < 1e-6);
    assert_eq!(decode.excess(5.0, 250.0, Replicas(2)), 5.0);
    assert_eq!(of(Role::Prefill).excess(5.0, 1e9, Replicas(2)), 5.0);
}

/// Surfaces that rise with occupancy in any way.
fn a_profile() -> impl Strategy<Value = ProfileDocument> {
    proptest::collection::vec(0.1..15.0, 5).prop_map(|rises| {
        let mut profile = seed_profile();
        let mut row = Vec::new();
        let mut itl = 5.0;
        for rise in rises {
            itl += rise;
            row.push(itl);
        }
        profile.decode.itl_ms = vec![row.clone(), row.clone(), row];
        profile
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5eed), ..ProptestConfig::default() })]

    #[test]
    fn more_arrivals_never_need_fewer(rate in 0.01..300.0_f64, times in 1.0..2.0_f64, noise in 1.0..20.0_f64, role in 0..3_usize, ttft in 0.05..2.0_f64, itl in 0.009..0.1_f64, tokens in 50.0..5000.0_f64, output in 1.0..1000.0_f64) {
        let lengths = LENGTHS.map(|(length, share)| (length / 850.0 * tokens, share));
        let mut demand = demand(Role::ALL[role], learned(), &lengths, output);
        (demand.noise, demand.ttft, demand.itl) = (noise, ttft, itl);
        prop_assert!(demand.need(rate) <= demand.need(rate * times));
    }

    #[test]
    fn nor_do_they_with_a_profile(profile in a_profile(), rate in 0.1..300.0_f64, times in 1.0..1.2_f64, noise in 1.0..20.0_f64, itl in 0.01..0.06_f64) {
        let envelope = Envelope::new(profile).unwrap();
        for role in [Role::Prefill, Role::Decode] {
            let mut demand = demand(role, Server::Profile(&envelope, 1.0, Slowness::default()), &LENGTHS, 200.0);
            (demand.noise, demand.itl) = (noise, itl);
            prop_assert!(demand.need(rate) <= demand.need(rate * times), "{role} {:?} {:?}", demand.need(rate), demand.need(rate * times));
        }
    }
}
