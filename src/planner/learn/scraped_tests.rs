//! Does a window of counters give the mean iteration, and nothing where it cannot?

use super::*;
use crate::planner::tests::dynamo::SETTINGS;

fn near(ours: &Observed, [prefill, decoding, kv, ms]: [f64; 4]) {
    let work = ours.work;
    let all = [work.prefill.get(), work.decoding.get(), work.kv.get(), ours.time.unwrap().get() * 1000.0];
    for (ours, expected) in all.into_iter().zip([prefill, decoding, kv, ms]) {
        assert!((ours - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{all:?}, expected {expected}");
    }
}

fn generating() -> Window {
    Window {
        elapsed: Seconds(10.0),
        iterations: Some(500.0),
        itl: Some((Seconds(0.016), ItlBasis::PerEvent)),
        prompts: Some(Requests(100.0)),
        computed: Some(Tokens(100_000.0)),
        generated: Some(Tokens(15_000.0)),
        running: Some(Requests(24.0)),
        kv_usage: Some(Ratio(0.5)),
        kv_capacity: Some(Tokens(200_000.0)),
        ..Window::default()
    }
}

#[test]
fn counted_iterations_need_no_busy_replica() {
    let seen = sample(Role::Aggregated, &generating()).unwrap();
    near(&seen, [200.0, 30.0, 100_000.0, 16.0]);
    assert_eq!(seen.prompts, Requests(0.2));
    near(&sample(Role::Decode, &generating()).unwrap(), [0.0, 30.0, 100_000.0, 16.0]);
}

#[test]
fn uncounted_iterations_follow_from_the_window_of_a_busy_replica() {
    let uncounted = Window { iterations: None, ..generating() };
    // 10 s of 16 ms are 625 iterations.
    near(&sample(Role::Aggregated, &uncounted).unwrap(), [160.0, 24.0, 100_000.0, 16.0]);
    near(&sample(Role::Decode, &Window { running: None, ..uncounted }).unwrap(), [0.0, 24.0, 100_000.0, 16.0]);
    let quiet = Window { running: Some(Requests(2.0)), ..uncounted };
    assert_eq!(sample(Role::Aggregated, &quiet), Err(Unusable::MayHavePaused));
}

#[test]
fn a_step_that_yields_several_tokens_is_one_iteration() {
    let drafted = Window { accept_length: Some(Ratio(2.0)), ..generating() };
    near(&sample(Role::Decode, &drafted).unwrap(), [0.0, 15.0, 100_000.0, 16.0]);
    let by_token = Window { itl: Some((Seconds(0.008), ItlBasis::PerToken)), ..drafted };
    near(&sample(Role::Decode, &by_token).unwrap(), [0.0, 15.0, 100_000.0, 16.0]);
}

#[test]
fn a_prefill_replica_without_a_pause_shows_its_iterations() {
    let full = Window {
        elapsed: Seconds(10.0),
        iterations: Some(200.0),
        prompts: Some(Requests(400.0)),
        computed: Some(Tokens(800_000.0)),
        waiting: Some(Requests(9.0)),
        least_waiting: Some(Requests(3.0)),
        batched_tokens: Some(Tokens(8192.0)),
        ..Window::default()
    };
    let seen = sample(Role::Prefill, &full).unwrap();
    near(&seen, [4000.0, 0.0, 0.0, 50.0]);
    assert_eq!(seen.prompts, Requests(2.0));
    near(&sample(Role::Prefill, &Window { iterations: None, ..full }).unwrap(), [8192.0, 0.0, 0.0, 102.4]);
    let unknown = Window { iterations: None, batched_tokens: None, ..full };
    assert_eq!(sample(Role::Prefill, &unknown), Err(Unusable::MayHavePaused));
}

#[test]
fn a_prefill_replica_where_nothing_waits_shows_one_prompt() {
    let quiet = Window {
        elapsed: Seconds(10.0),
        ttft: Some(Seconds(0.045)),
        prompts: Some(Requests(20.0)),
        computed: Some(Tokens(80_000.0)),
        waiting: Some(Requests(0.0)),
        least_waiting: Some(Requests(0.0)),
        batched_tokens: Some(Tokens(2048.0)),
        ..Window::default()
    };
    near(&sample(Role::Prefill, &quiet).unwrap(), [2000.0, 0.0, 0.0, 22.5]);
    near(&sample(Role::Prefill, &Window { batched_tokens: None, ..quiet }).unwrap(), [4000.0, 0.0, 0.0, 45.0]);
    for (window, why) in [
        (Window { prompts: Some(Requests(160.0)), ..quiet }, Unusable::Overlap),
        (Window { waiting: Some(Requests(0.5)), ..quiet }, Unusable::Overlap),
        (Window { waiting: None, ..quiet }, Unusable::NoQueue),
        (Window { ttft: None, ..quiet }, Unusable::NoTtft),
        (Window { computed: None, ..quiet }, Unusable::NoTokens),
        (Window { prompts: Some(Requests(0.0)), ..quiet }, Unusable::Idle),
        (Window { ttft: Some(Seconds(f64::NAN)), ..quiet }, Unusable::NoTtft),
    ] {
        assert_eq!(sample(Role::Prefill, &window), Err(why), "{window:?}");
    }
}

#[test]
fn a_prefill_replica_that_tells_what_prompts_took_shows_one_however_busy_it_is() {
    // 8 s of work in 10 s: each prompt of 4000 tokens takes 50 ms and has waited for twice as long.
    let busy = Window {
        elapsed: Seconds(10.0),
        ttft: Some(Seconds(0.15)),
        prefill_seconds: Some(Seconds(8.0)),
        prompts: Some(Requests(160.0)),
        computed: Some(Tokens(640_000.0)),
        waiting: Some(Requests(1.6)),
        least_waiting: Some(Requests(0.0)),
        batched_tokens: Some(Tokens(8192.0)),
        ..Window::default()
    };
    near(&sample(Role::Prefill, &busy).unwrap(), [4000.0, 0.0, 0.0, 50.0]);
    near(&sample(Role::Prefill, &Window { ttft: None, ..busy }).unwrap(), [4000.0, 0.0, 0.0, 50.0]);
    near(&sample(Role::Prefill, &Window { batched_tokens: Some(Tokens(2048.0)), ..busy }).unwrap(), [2000.0, 0.0, 0.0, 25.0]);
    let chunked = Window { batched_tokens: Some(Tokens(2048.0)), iterations: Some(320.0), ..busy };
    near(&sample(Role::Prefill, &chunked).unwrap(), [2000.0, 0.0, 0.0, 25.0]);
    // Two a step: 80 steps of 100 ms.
    let shared = Window { prefill_seconds: Some(Seconds(16.0)), iterations: Some(80.0), ..busy };
    let seen = sample(Role::Prefill, &shared).unwrap();
    near(&seen, [8000.0, 0.0, 0.0, 100.0]);
    assert_eq!(seen.prompts, Requests(2.0));
    let quiet = Window { ttft: Some(Seconds(0.05)), prompts: Some(Requests(16.0)), computed: Some(Tokens(64_000.0)), ..busy };
    let quiet = Window { waiting: Some(Requests(0.0)), ..quiet };
    // Prompts that share steps, and nobody says so; milliseconds; a page cut short; less than nothing; none.
    for wrong in [Some(16.0), Some(8000.0), Some(f64::NAN), Some(-1.0), Some(0.0), None] {
        let wrong = wrong.map(Seconds);
        assert_eq!(sample(Role::Prefill, &Window { prefill_seconds: wrong, ..busy }), Err(Unusable::Overlap), "{wrong:?}");
        near(&sample(Role::Prefill, &Window { prefill_seconds: wrong, ..quiet }).unwrap(), [4000.0, 0.0, 0.0, 50.0]);
    }
}

#[test]
fn what_is_missing_is_named() {
    for (window, why) in [
        (Window { generated: Some(Tokens(0.0)), ..generating() }, Unusable::Idle),
        (Window { iterations: Some(0.0), ..generating() }, Unusable::Idle),
        (Window { itl: None, ..generating() }, Unusable::NoItl),
        (Window { itl: Some((Seconds(0.02), ItlBasis::WholeRequest)), ..generating() }, Unusable::NoItl),
        (Window { kv_usage: None, ..generating() }, Unusable::NoKvUsage),
        (Window { kv_capacity: None, ..generating() }, Unusable::NoKvUsage),
        (Window { computed: None, ..generating() }, Unusable::NoTokens),
        (Window { generated: None, ..generating() }, Unusable::NoTokens),
        (Window { kv_usage: Some(Ratio(f64::NAN)), ..generating() }, Unusable::Implausible),
        (Window { computed: Some(Tokens(-5.0)), ..generating() }, Unusable::Implausible),
        // Four ranks on one page: 2000 iterations of 16 ms are 32 s of 10.
        (Window { iterations: Some(2000.0), ..generating() }, Unusable::Implausible),
    ] {
        assert_eq!(sample(Role::Aggregated, &window), Err(why), "{window:?}");
    }
}

#[test]
fn tokens_of_the_iterations_stand_for_computed_ones_that_are_not_counted() {
    let by_steps = Window { computed: None, iteration_tokens: Some(Tokens(115_000.0)), ..generating() };
    near(&sample(Role::Aggregated, &by_steps).unwrap(), [200.0, 30.0, 100_000.0, 16.0]);
    let contradicting = Window { iteration_tokens: Some(Tokens(9000.0)), ..by_steps };
    assert_eq!(sample(Role::Aggregated, &contradicting), Err(Unusable::Implausible));
}

/// From counters over the line to a capacity: windows of a server of 5 ms, 10 us a prompt token, 50 us a request and 0.1 us a KV token.
#[test]
fn windows_of_a_server_give_its_costs() {
    use crate::planner::learn::iterations::Iterations;
    let mut learned = Iterations::new(Role::Aggregated);
    for (requests, context, prompt_share) in
        [(4.0, 900.0, 0.1), (10.0, 1500.0, 0.9), (20.0, 1000.0, 0.4), (35.0, 1300.0, 0.7), (50.0, 800.0, 0.2), (60.0, 1200.0, 1.0)]
    {
        let (tokens, kv) = (500.0 * prompt_share, requests * context);
        let time = 0.005 + 10e-6 * tokens + 50e-6 * requests + 0.1e-6 * kv;
        let iterations = (30.0_f64 / time * 0.8).floor();
        let window = Window {
            elapsed: Seconds(30.0),
            iterations: Some(iterations),
            itl: Some((Seconds(time), ItlBasis::PerEvent)),
            prompts: Some(Requests(40.0)),
            computed: Some(Tokens(tokens * iterations)),
            generated: Some(Tokens(requests * iterations)),
            kv_usage: Some(Ratio(kv / 200_000.0)),
            kv_capacity: Some(Tokens(200_000.0)),
            ..Window::default()
        };
        learned.learn(&sample(Role::Aggregated, &window).unwrap(), &SETTINGS);
    }
    let costs = learned.line(SETTINGS.least).unwrap().costs();
    let pairs =
        [(costs.fixed.get(), 0.005), (costs.prefill_token.get(), 10e-6), (costs.request.get(), 50e-6), (costs.kv_token.get(), 0.1e-6)];
    assert!(pairs.iter().all(|(ours, truth)| (ours - truth).abs() < 0.01 * truth), "{costs:?}");
}
