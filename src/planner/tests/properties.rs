//! Which rules hold for every history? The invariants of `lib.rs` as far as the planner keeps them, on random but repeatable histories.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::world::*;
use crate::planner::input::*;
use crate::planner::lint::lint;
use crate::planner::memory::Memory;
use crate::planner::observe::COVERAGE_TO_LOWER;
use crate::planner::plan::{Plan, Prediction};
use crate::planner::policy::*;
use crate::planner::propose::envelope::EnvelopePolicy;
use crate::planner::propose::{Facts, Propose};
use crate::units::*;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(0x5eed), ..ProptestConfig::default() }
}

/// How one cumulative number moves.
#[derive(Clone, Copy, Debug)]
enum Move {
    Grow(f64),
    Set(f64),
}

#[derive(Clone, Debug)]
enum Answer {
    Fail,
    Empty,
    Page { series: u8, moves: [Move; 6], workers: Option<(u32, u32)>, start: Option<f64> },
}

#[derive(Clone, Debug)]
struct RoundOf {
    after: f64,
    clock: f64,
    targets: BTreeMap<u8, Answer>,
}

fn a_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        8 => (0.0..5000.0).prop_map(Move::Grow),
        1 => Just(Move::Grow(0.0)),
        1 => prop_oneof![Just(0.0), Just(1e308), Just(f64::MAX), Just(f64::MIN_POSITIVE), 0.0..1e6].prop_map(Move::Set),
    ]
}

fn an_answer() -> impl Strategy<Value = Answer> {
    let page =
        (0..3_u8, [a_move(), a_move(), a_move(), a_move(), a_move(), a_move()], proptest::option::of((0..6_u32, 0..6_u32)), 0..12_u8);
    prop_oneof![
        2 => Just(Answer::Fail),
        1 => Just(Answer::Empty),
        12 => page.prop_map(|(series, moves, workers, start)| {
            // Most pages come from the same process.
            let start = (start > 0).then_some(if start == 1 { 7.0 } else { 3.0 });
            Answer::Page { series, moves, workers, start }
        }),
    ]
}

fn a_history() -> impl Strategy<Value = Vec<RoundOf>> {
    let after = prop_oneof![8 => Just(5.0), 6 => Just(60.0), 6 => Just(180.0), 1 => Just(0.0), 1 => Just(2000.0)];
    let clock = prop_oneof![20 => Just(0.0), 1 => Just(0.5), 1 => -4000.0..4000.0];
    // Target 0 is nearly always listed, so that not every window is one of a changed list.
    let targets = prop_oneof![
        6 => an_answer().prop_map(|answer| BTreeMap::from([(0, answer)])),
        1 => proptest::collection::btree_map(0..3_u8, an_answer(), 0..4),
    ];
    let round = (after, clock, targets).prop_map(|(after, clock, targets)| RoundOf { after, clock, targets });
    proptest::collection::vec(round, 1..30)
}

fn a_policy() -> impl Strategy<Value = ModelPolicy> {
    let mode = prop_oneof![6 => Just(Mode::Publish), 1 => Just(Mode::Shadow), 1 => Just(Mode::Freeze)];
    let statistic = prop_oneof![4 => Just(Statistic::Mean), 1 => Just(Statistic::P95)];
    (mode, statistic, 0..4_u32, 0..20_u32, any::<bool>(), any::<bool>(), proptest::option::of(0.0..3000.0)).prop_map(
        |(mode, statistic, min, more, tolerate, correction, pin)| {
            let mut policy = infera_policy();
            policy.mode = mode;
            policy.slo.statistic = statistic;
            policy.correction = correction;
            if tolerate {
                policy.traffic_change = ChangeRule::Tolerate;
            }
            for pool in &mut policy.pools {
                pool.limits = Limits::new(Replicas(min), Replicas(min + more)).unwrap();
            }
            policy.pools[0].pin = pin.map(|until| Pin {
                replicas: Replicas(min),
                until: std::time::Duration::from_secs_f64(MIDNIGHT as f64 + until),
                reason: String::new(),
            });
            policy
        },
    )
}

/// Targets whose counters follow a history.
#[derive(Default)]
struct Pages(BTreeMap<u8, BTreeMap<u8, [f64; 6]>>);

impl Pages {
    fn reading(&mut self, target: u8, answer: &Answer) -> Reading {
        let Answer::Page { series, moves, workers, start } = answer else {
            return if matches!(answer, Answer::Fail) { failed() } else { Reading::Sample(Arc::default()) };
        };
        let known = self.0.entry(target).or_default();
        let values = known.entry(*series).or_default();
        for (value, change) in values.iter_mut().zip(moves) {
            *value = match change {
                Move::Grow(by) => (*value + by).min(f64::MAX),
                Move::Set(to) => *to,
            };
        }
        let mut sample = Sample { process_start: *start, ..Sample::default() };
        for (key, values) in known.iter() {
            let key = SeriesKey::from(format!("rank=\"{key}\""));
            for (index, signal) in [Signal::Ttft, Signal::Itl, Signal::PromptTokens, Signal::OutputTokens].into_iter().enumerate() {
                let count = values[4];
                let buckets = vec![(0.1, count / 4.0), (1.0, count / 2.0)];
                let histogram = Histogram { sum: values[index], count, buckets, created: None };
                sample.histograms.entry(signal).or_default().insert(key.clone(), histogram);
            }
            sample.tallies.entry(Tally::Finished).or_default().insert(key, values[5]);
        }
        if let Some((prefill, decode)) = workers {
            sample.workers = Few::from([(Role::Prefill, Replicas(*prefill)), (Role::Decode, Replicas(*decode))]);
        }
        Reading::Sample(Arc::new(sample))
    }
}

fn inputs(history: &[RoundOf]) -> Vec<(ModelInput, Moment)> {
    let (mut pages, mut world, mut at) = (Pages::default(), World::new(infera_policy()), 0.0);
    let round = |round: &RoundOf| {
        at += round.after;
        world.clock_error += round.clock;
        let now = world.moment(at);
        let reading = |(target, answer): (&u8, &Answer)| TargetReading {
            target: TargetId::from(format!("r{target}:80/metrics")),
            at: now.monotonic,
            reading: pages.reading(*target, answer),
        };
        let targets = round.targets.iter().map(reading).collect();
        (
            ModelInput {
                sources: vec![SourceInput { source: SourceId::Traffic, discovery_failed: false, targets, lifecycle: None }],
                allowed: BTreeMap::new(),
            },
            now,
        )
    };
    history.iter().map(round).collect()
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

fn falls(plan: &Plan, before: &Memory, policy: &ModelPolicy) -> bool {
    plan.pools.iter().zip(&policy.pools).any(|(plan, pool)| {
        let last = before.pools.get(&pool.pool).and_then(|memory| memory.planned).map(|last| pool.limits.clamp(last));
        plan.planned_replicas.zip(last).is_some_and(|(planned, last)| planned < last)
    })
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn every_history_gives_plans_that_keep_the_rules(history in a_history(), policy in a_policy()) {
        let mut memory = Memory::default();
        for (input, now) in inputs(&history) {
            let (plan, after) = crate::planner::plan(&input, memory.clone(), &policy, now);
            prop_assert_eq!(lint(&plan, &policy, &memory), []);
            for (pool_plan, pool) in plan.pools.iter().zip(&policy.pools) {
                for count in [pool_plan.planned_replicas, pool_plan.recommended_replicas].into_iter().flatten() {
                    prop_assert_eq!(count, pool.limits.clamp(count));
                }
                let first = memory.pools.get(&pool.pool).is_none_or(|known| known.planned.is_none());
                if let (true, Some(planned), Some(observed)) = (first, pool_plan.planned_replicas, pool_plan.current_replicas)
                    && !after.complete_window_seen
                {
                    prop_assert!(planned >= pool.limits.clamp(observed), "the first plan of a fresh process does not shrink");
                }
            }
            prop_assert!(after.complete_window_seen || !falls(&plan, &memory, &policy), "nor do its next ones");
            if falls(&plan, &memory, &policy) {
                prop_assert!(plan.decided && !plan.held);
                prop_assert!(plan.pools.iter().all(|pool| pool.coverage.is_some_and(|coverage| coverage.get() >= COVERAGE_TO_LOWER)));
            }

            // The same question has the same answer, byte by byte, also from a memory that was written and read.
            let text = json(&memory);
            let read: Memory = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, &memory);
            let (again, after_again) = crate::planner::plan(&input, read, &policy, now);
            prop_assert_eq!(json(&again), json(&plan));
            prop_assert_eq!(json(&after_again), json(&after));

            // Planning again on the result, at the same moment, changes nothing.
            let (repeated, _) = crate::planner::plan(&input, after.clone(), &policy, now);
            prop_assert!(!repeated.decided);
            prop_assert_eq!(counts(&repeated), counts(&plan));
            prop_assert_eq!(json(&after.decision), json(&crate::planner::plan(&input, after.clone(), &policy, now).1.decision));
            memory = after;
        }
    }

    #[test]
    fn the_order_of_targets_does_not_matter(history in a_history(), policy in a_policy()) {
        let (mut straight, mut reversed) = (Memory::default(), Memory::default());
        for (input, now) in inputs(&history) {
            let mut backwards = input.clone();
            backwards.sources[0].targets.reverse();
            let (plan, after) = crate::planner::plan(&input, straight, &policy, now);
            let (other, other_after) = crate::planner::plan(&backwards, reversed, &policy, now);
            prop_assert_eq!(json(&plan), json(&other));
            prop_assert_eq!(&after, &other_after);
            (straight, reversed) = (after, other_after);
        }
    }
}

/// Routers that serve the same kind of request, each at its own steady rate; some stay silent for a while in the third window.
fn a_loss() -> impl Strategy<Value = (Vec<f64>, Vec<(usize, u32, u32)>, Served)> {
    let served = (100.0..5000.0, 2.0..600.0, 0.05..2.0, 0.005..0.06).prop_map(|(input, output, ttft, itl)| Served {
        requests: 1.0,
        input,
        output,
        ttft,
        itl,
    });
    (1..14_usize, served).prop_flat_map(|(count, served)| {
        let rates = proptest::collection::vec(0.0..6.0, count);
        let losses = proptest::collection::vec((0..count, 72..108_u32, 1..40_u32), 0..4);
        (rates, losses, Just(served))
    })
}

proptest! {
    #![proptest_config(config(120))]

    /// A decrease that the lost data would not have allowed must not happen: without them a plan is never below the smaller of what stood
    /// before and what they would have led to.
    #[test]
    fn losing_data_never_gives_a_smaller_plan((rates, losses, served) in a_loss(), fleet in (1..12_u32, 1..12_u32), decline in 0.1..=1.0) {
        let mut whole = World::new(infera_policy());
        let mut routers = Routers::new(rates.len(), &Router::new(fleet.0, fleet.1));
        let _baseline = whole.round(0.0, routers.readings());
        let mut lossy = whole.clone();
        let mut stood = None;
        for round in 1..=108_u32 {
            // The load falls at the start of the third window, in which data are lost.
            let factor = if round > 72 { decline } else { 1.0 };
            for ((_, router), rate) in routers.routers.iter_mut().zip(&rates) {
                router.serve(Served { requests: rate * 5.0 * factor, ..served });
            }
            let at = f64::from(round) * 5.0;
            let with = whole.round(at, routers.readings());
            routers.hung = losses.iter().filter(|(_, from, length)| (*from..from + length).contains(&round)).map(|loss| loss.0).collect();
            let without = lossy.round(at, routers.readings());
            routers.hung.clear();
            if let Some(stood) = stood.replace(without.clone()).filter(|_| round == 108) {
                for (index, pool) in without.pools.iter().enumerate() {
                    let planned = |plan: &Plan| plan.pools[index].planned_replicas;
                    let least = planned(&with).min(planned(&stood));
                    prop_assert!(pool.planned_replicas >= least, "{}: {:?} {:?}", pool.pool, with.pools[index], pool);
                }
            }
        }
    }
}

fn facts() -> impl Strategy<Value = Facts> {
    (0.01..500.0, 0.0..1.0, 1.0..9000.0, 1.0..3000.0, 0.0002..3.0, 0.0002..0.3, 0..50_u32).prop_map(
        |(seen, hidden, input, output, ttft, itl, prefill)| Facts {
            prediction: Prediction {
                requests_per_second: RequestsPerSecond(seen),
                estimated_requests_per_second: RequestsPerSecond(seen * (1.0 + hidden)),
                input_tokens: Tokens(input),
                output_tokens: Tokens(output),
            },
            ttft: Some(Seconds(ttft)),
            itl: Some(Seconds(itl)),
            prefill: Replicas(prefill),
            // So many that the occupancy stays at the edge of the profile: the generation ratio is then the same at every demand.
            decode: Replicas(10_000_000),
        },
    )
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn more_demand_never_wants_fewer_replicas_at_fixed_latency_ratios(facts in facts(), factor in 1.0..20.0, correction in any::<bool>()) {
        let mut policy = infera_policy();
        policy.correction = correction;
        let CapacityModel::Envelope(envelope) = &policy.capacity else { unreachable!("the policy has a profile") };
        let proposer = EnvelopePolicy::new(envelope, &policy);
        let mut scaled = facts;
        scaled.prediction.requests_per_second.0 *= factor;
        scaled.prediction.estimated_requests_per_second.0 *= factor;
        let (low, high) = (proposer.propose(&facts).unwrap(), proposer.propose(&scaled).unwrap());
        prop_assert_eq!(low.latency_ratio, high.latency_ratio);
        for (proposer, (_, wish)) in &low.wishes {
            let (_, more) = high.wishes[proposer];
            prop_assert!(more.supported >= wish.supported && more.cautious >= wish.cautious, "{}", proposer);
            prop_assert!(wish.cautious >= wish.supported);
        }
    }
}
