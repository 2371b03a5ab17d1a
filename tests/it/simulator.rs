//! Does the simulated fleet obey the laws that any queueing system obeys, and does it serve as its profile says?

use std::collections::BTreeMap;
use std::time::Duration;

use inference_planner_exporter::engines::render;
use inference_planner_exporter::planner::input::Signal;
use inference_planner_exporter::planner::model::envelope::Envelope;
use inference_planner_exporter::simulator::Simulation;
use inference_planner_exporter::simulator::costs::{IterationCosts, Work};
use inference_planner_exporter::simulator::counters::Truth;
use inference_planner_exporter::simulator::fleet::{Fleet, FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use inference_planner_exporter::simulator::scenario;
use inference_planner_exporter::simulator::workload::{Lengths, Request, Shape, Workload, WorkloadSettings};
use inference_planner_exporter::units::{Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens};

fn envelope() -> Envelope {
    Envelope::new(scenario::profile()).expect("the demo's profile is legal")
}

fn settings(prefill: u32, decode: u32) -> FleetSettings {
    let settings = scenario::fleet(Duration::from_secs(3), 1);
    let Layout::Disaggregated { prefill: computes, decode: decodes } = settings.layout else { panic!("the demo is disaggregated") };
    let layout = Layout::Disaggregated {
        prefill: PoolSettings { replicas: Replicas(prefill), ..computes },
        decode: PoolSettings { replicas: Replicas(decode), ..decodes },
    };
    FleetSettings { layout, ..settings }
}

fn fleet(prefill: u32, decode: u32) -> Fleet {
    Fleet::new(settings(prefill, decode))
}

/// Replicas that compute prompts and decode.
fn aggregated(replicas: u32) -> (FleetSettings, ReplicaSettings) {
    let costs = IterationCosts {
        iteration: Seconds(0.01),
        prompt_token: Seconds(5e-5),
        decoding: Seconds(1e-4),
        kv_token: Seconds(1e-7),
        prompt_pair: Seconds(1e-9),
    };
    let replica = ReplicaSettings { costs, kv_tokens: 100_000, max_requests: 48, max_batched_tokens: 2048 };
    let layout = Layout::Aggregated(PoolSettings { replicas: Replicas(replicas), replica });
    (FleetSettings { layout, ..settings(0, 0) }, replica)
}

fn steady(rate: f64) -> Workload {
    let lengths = |mean: f64| Lengths { mean: Tokens(mean), variation: Ratio(0.3), min: 2, max: 6000 };
    Workload::new(WorkloadSettings {
        shape: Shape::Steady(RequestsPerSecond(rate)),
        input: lengths(1500.0),
        output: lengths(110.0),
        seed: 5,
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn request(at: Duration, input: u32, output: u32) -> Request {
    Request { at, input, output, prefix: None }
}

#[test]
fn every_request_is_completed_in_flight_or_refused() {
    let mut simulation = Simulation::new(fleet(4, 4), steady(18.0));
    for second in 1..=60 {
        simulation.advance_to(seconds(second));
        // Scaling must lose nothing.
        simulation.fleet.set_target(Role::Prefill, Replicas(1 + (second as u32 * 7) % 6));
        simulation.fleet.set_target(Role::Decode, Replicas((second as u32 * 5) % 6));
        let truth = simulation.fleet.truth();
        let in_flight: u64 = simulation.fleet.routers().iter().map(|router| router.in_flight).sum();
        assert_eq!(truth.offered, truth.completed + truth.refused + in_flight);
        assert_eq!(in_flight, truth.in_flight());
    }
    for role in [Role::Prefill, Role::Decode] {
        simulation.fleet.set_target(role, Replicas(6));
    }
    let offered = simulation.fleet.truth().offered;
    assert!(offered > 900, "{offered}");
    simulation.fleet.advance_to(seconds(600));
    assert_eq!(simulation.fleet.truth(), Truth { completed: offered, ..simulation.fleet.truth() });
    assert_eq!(simulation.fleet.take_finished().len() as u64, offered);
}

#[test]
fn a_request_that_no_replica_can_hold_is_refused() {
    let mut fleet = fleet(1, 1);
    let limit = u32::try_from(fleet.kv_limit(Role::Decode)).expect("fits");
    fleet.offer(request(seconds(1), limit - 10, 11));
    fleet.offer(request(seconds(1), limit - 10, 10));
    assert_eq!((fleet.truth().refused, fleet.truth().in_flight()), (1, 1));
}

#[test]
fn mean_number_in_flight_is_rate_times_mean_duration() {
    let mut simulation = Simulation::new(fleet(5, 5), steady(18.0));
    simulation.advance_to(seconds(30));
    let start = simulation.fleet.truth();
    let (mut sum, mut samples) = (0.0, 0.0);
    for step in 0..60_000 {
        simulation.advance_to(seconds(30) + Duration::from_millis(10 * step));
        sum += simulation.fleet.truth().in_flight() as f64;
        samples += 1.0;
    }
    let truth = simulation.fleet.truth();
    let rate = (truth.completed - start.completed) as f64 / 600.0;
    let duration = (truth.duration_sum - start.duration_sum) / (truth.completed - start.completed) as f64;
    let mean = sum / samples;
    assert!((mean / (rate * duration) - 1.0).abs() < 0.01, "{mean} in flight, {rate} a second of {duration} s");
}

#[test]
fn an_unloaded_fleet_serves_exactly_as_the_profile_says() {
    let envelope = envelope();
    for (input, output) in [(256, 2), (512, 300), (1024, 110), (4096, 50)] {
        let mut fleet = fleet(1, 1);
        fleet.offer(request(seconds(1), input, output));
        fleet.advance_to(seconds(100));
        let finished = fleet.take_finished()[0];
        let curve = envelope.prompt(Tokens(f64::from(input))).latency.get();
        assert!((finished.ttft.as_secs_f64() - curve).abs() < 1e-8, "{input}: {:?} instead of {curve}", finished.ttft);
        // One request is below the least occupancy that the surface has; there the profile's formula holds, at the mean context.
        let context = f64::from(input) + f64::from(output) / 2.0;
        let expected = 0.014 + 0.3e-3 + 0.4e-6 * context;
        let itl = finished.itl.expect("more than one token").as_secs_f64();
        assert!((itl / expected - 1.0).abs() < 1e-4, "{input}, {output}: {itl} instead of {expected}");
    }
}

#[test]
fn a_full_batch_is_spaced_as_the_surface_says_at_its_occupancy() {
    let mut fleet = fleet(25, 1);
    for _ in 0..25 {
        fleet.offer(request(seconds(1), 1500, 110));
    }
    fleet.advance_to(seconds(100));
    let surface = envelope();
    let context = Tokens(1555.0);
    let expected = surface.generation(surface.kv_fraction(Requests(25.0), context), context).latency.get();
    let itl = fleet.truth().itl_sum / fleet.truth().itl_count as f64;
    assert!((itl / expected - 1.0).abs() < 0.01, "{itl} instead of {expected}");
}

#[test]
fn waiting_for_one_prefill_replica_is_that_of_an_m_d_1_queue() {
    // Equal prompts make service constant: 200 ms at 1500 tokens. At utilisation 0.7 the mean wait is rho / (2 (1 - rho)) services.
    let settings = WorkloadSettings {
        shape: Shape::Steady(RequestsPerSecond(3.5)),
        input: Lengths::always(1500),
        output: Lengths::always(1),
        seed: 11,
    };
    let mut simulation = Simulation::new(fleet(1, 1), Workload::new(settings));
    simulation.advance_to(seconds(40_000));
    let truth = simulation.fleet.truth();
    let wait = truth.ttft_sum / truth.completed as f64 - 0.2;
    let expected = 0.2 * 0.7 / (2.0 * 0.3);
    assert!((wait / expected - 1.0).abs() < 0.03, "{wait} instead of {expected}");
}

#[test]
fn more_replicas_never_give_a_longer_mean_ttft_under_high_load() {
    let mean_ttft = |prefill, decode| {
        let mut simulation = Simulation::new(fleet(prefill, decode), steady(24.0));
        simulation.advance_to(seconds(120));
        simulation.fleet.set_target(Role::Prefill, Replicas(16));
        simulation.fleet.set_target(Role::Decode, Replicas(16));
        simulation.fleet.advance_to(seconds(3600));
        let truth = simulation.fleet.truth();
        assert_eq!(truth.in_flight(), 0);
        truth.ttft_sum / truth.completed as f64
    };
    let by_prefill: Vec<f64> = (2..=8).map(|prefill| mean_ttft(prefill, 8)).collect();
    let by_decode: Vec<f64> = (2..=8).map(|decode| mean_ttft(8, decode)).collect();
    for means in [&by_prefill, &by_decode] {
        // The tolerance is for sums that are added up in another order.
        assert!(means.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-9)), "{means:?}");
        assert!(means[0] > 2.0 * means[6], "{means:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_pages_whatever_the_steps_of_time() {
    let page = |step: u64| {
        let mut simulation = scenario::simulation(scenario::CYCLE, scenario::STARTUP, 9);
        for milliseconds in (0..=60_000).step_by(step as usize) {
            simulation.advance_to(Duration::from_millis(milliseconds));
        }
        let page = |router| render::infera(&simulation.fleet.infera_page(router, "m", Duration::ZERO).expect("a router"));
        (page(0), page(1), simulation.fleet.infera_page(2, "m", Duration::ZERO))
    };
    let coarse = page(60_000);
    assert_eq!(coarse, page(60_000));
    assert_eq!(coarse, page(50));
    assert_ne!(coarse.0, coarse.1);
    assert_eq!(coarse.2, None);
}

#[test]
fn kv_memory_is_never_exceeded() {
    let mut simulation = Simulation::new(fleet(12, 1), steady(30.0));
    let limit = simulation.fleet.kv_limit(Role::Decode);
    let mut most = 0;
    for step in 0..4000 {
        simulation.advance_to(Duration::from_millis(step * 10));
        most = simulation.fleet.kv_occupied(Role::Decode).fold(most, u64::max);
        assert!(most <= limit);
    }
    assert!(most as f64 > 0.9 * limit as f64, "the load must fill the memory, got {most} of {limit}");
}

#[test]
fn a_new_replica_takes_requests_after_its_start_up_and_not_before() {
    let mut fleet = fleet(0, 0);
    fleet.offer(request(seconds(1), 1500, 1));
    fleet.set_target(Role::Prefill, Replicas(1));
    let ready = seconds(4);
    fleet.advance_to(ready - Duration::from_nanos(1));
    assert_eq!((fleet.ready(Role::Prefill), fleet.starting(Role::Prefill)), (Replicas(0), Replicas(1)));
    fleet.advance_to(ready);
    assert_eq!((fleet.ready(Role::Prefill), fleet.starting(Role::Prefill)), (Replicas(1), Replicas(0)));
    fleet.advance_to(seconds(10));
    // 3 s of start-up and 200 ms of service.
    assert_eq!(fleet.take_finished()[0].ttft, Duration::from_millis(3200));
}

#[test]
fn drained_replicas_finish_their_requests_and_take_no_new_ones() {
    let mut fleet = fleet(1, 2);
    for _ in 0..20 {
        fleet.offer(request(seconds(1), 600, 200));
    }
    fleet.advance_to(seconds(4));
    fleet.set_target(Role::Decode, Replicas(0));
    fleet.set_target(Role::Prefill, Replicas(0));
    assert_eq!((fleet.ready(Role::Decode), fleet.draining(Role::Decode)), (Replicas(0), Replicas(2)));
    fleet.offer(request(seconds(4), 600, 200));
    fleet.advance_to(seconds(100));
    assert_eq!((fleet.draining(Role::Decode), fleet.draining(Role::Prefill)), (Replicas(0), Replicas(0)));
    let finished = fleet.truth().completed;
    // The late request has no prefill replica; those already prefilled end, the others wait for a decode replica.
    assert!(finished >= 15, "{finished}");
    assert_eq!(finished + fleet.truth().in_flight(), 21);
    // The two replicas are paid for until their last request ends, not longer.
    let paid = fleet.replica_time(Role::Decode);
    assert!(paid > seconds(8) && paid < seconds(30), "{paid:?}");
}

#[test]
fn an_aggregated_request_alone_takes_the_time_of_its_work() {
    let (settings, replica) = aggregated(1);
    for (input, output) in [(1, 1), (500, 20), (2048, 2), (5000, 300)] {
        let mut fleet = Fleet::new(settings);
        fleet.offer(request(seconds(1), input, output));
        fleet.advance_to(seconds(100));
        let finished = fleet.take_finished()[0];
        let prompt = replica.costs.of(&Work::prompt(input, 0, 2048)).get();
        assert!((finished.ttft.as_secs_f64() - prompt).abs() < 1e-8, "{input}: {:?} instead of {prompt}", finished.ttft);
        let decode: f64 = (1..output).map(|token| replica.costs.of(&Work::decode(1.0, f64::from(input + token))).get()).sum();
        let spacing = finished.itl.map(|itl| itl.as_secs_f64() * f64::from(output - 1)).unwrap_or(0.0);
        assert!((spacing - decode).abs() < 1e-6, "{input}, {output}: {spacing} instead of {decode}");
    }
}

#[test]
fn littles_law_holds_inside_an_aggregated_fleet() {
    let (settings, _) = aggregated(3);
    let mut simulation = Simulation::new(Fleet::new(settings), steady(12.0));
    simulation.advance_to(seconds(30));
    let start = simulation.fleet.truth();
    let (mut sum, samples) = (0.0, 60_000);
    for step in 1..=samples {
        simulation.advance_to(seconds(30) + Duration::from_millis(10 * step));
        sum += (simulation.fleet.batch_sizes(Role::Aggregated).sum::<u64>() + simulation.fleet.waiting(Role::Aggregated)) as f64;
    }
    let truth = simulation.fleet.truth();
    let expected = (truth.duration_sum - start.duration_sum) / 600.0;
    let mean = sum / samples as f64;
    assert!(mean > 5.0 && (mean / expected - 1.0).abs() < 0.01, "{mean} in flight instead of {expected}");
}

#[test]
fn waiting_for_a_batch_of_one_is_that_of_an_m_d_1_queue() {
    // An answer of equal length after an equal prompt occupies the only place for a constant time.
    let (settings, replica) = aggregated(1);
    let replica = ReplicaSettings { max_requests: 1, ..replica };
    let service = replica.costs.of(&Work::prompt(400, 0, 2048)).get()
        + (1..20).map(|token| replica.costs.of(&Work::decode(1.0, f64::from(400 + token))).get()).sum::<f64>();
    let settings = FleetSettings { layout: Layout::Aggregated(PoolSettings { replicas: Replicas(1), replica }), ..settings };
    let workload = WorkloadSettings {
        shape: Shape::Steady(RequestsPerSecond(0.8 / service)),
        input: Lengths::always(400),
        output: Lengths::always(20),
        seed: 3,
    };
    let mut simulation = Simulation::new(Fleet::new(settings), Workload::new(workload));
    simulation.advance_to(seconds(40_000));
    let truth = simulation.fleet.truth();
    let wait = truth.duration_sum / truth.completed as f64 - service;
    let expected = service * 0.8 / (2.0 * 0.2);
    assert!((wait / expected - 1.0).abs() < 0.03, "{wait} instead of {expected} after {} requests", truth.completed);
}

#[test]
fn chunks_of_a_prompt_slow_those_who_decode() {
    let (settings, replica) = aggregated(1);
    let spacing = |with_prompt: bool| {
        let mut fleet = Fleet::new(settings);
        fleet.offer(request(seconds(1), 500, 100));
        if with_prompt {
            fleet.offer(request(Duration::from_millis(1500), 10_000, 1));
        }
        fleet.advance_to(seconds(100));
        let finished = fleet.take_finished();
        finished.iter().find_map(|request| request.itl).expect("one decodes").as_secs_f64() * 99.0
    };
    // The prompt shares its iterations with the request that decodes, which loses what the chunks cost beyond an iteration.
    let alone = replica.costs.of(&Work::prompt(10_000, 0, 2047));
    let lost = spacing(true) - spacing(false);
    let expected = alone.get() - replica.costs.iteration.get() * 5.0;
    assert!((lost / expected - 1.0).abs() < 0.01, "{lost} instead of {expected}");
}

#[test]
fn batch_and_memory_limits_hold_on_an_aggregated_fleet() {
    for (kv_tokens, max_requests) in [(100_000, 16), (30_000, 200)] {
        let (settings, replica) = aggregated(2);
        let replica = ReplicaSettings { kv_tokens, max_requests, ..replica };
        let layout = Layout::Aggregated(PoolSettings { replicas: Replicas(2), replica });
        let mut simulation = Simulation::new(Fleet::new(FleetSettings { layout, ..settings }), steady(30.0));
        let (mut most, mut largest) = (0, 0);
        for step in 0..3000 {
            simulation.advance_to(Duration::from_millis(step * 10));
            most = simulation.fleet.kv_occupied(Role::Aggregated).fold(most, u64::max);
            largest = simulation.fleet.batch_sizes(Role::Aggregated).fold(largest, u64::max);
            assert!(most <= kv_tokens && largest <= u64::from(max_requests), "{most} tokens, {largest} requests");
        }
        let (full, crowded) = (most as f64 > 0.9 * kv_tokens as f64, largest == u64::from(max_requests));
        assert!(full || crowded, "the load must reach a limit, got {most} tokens and {largest} requests");
    }
}

#[test]
fn an_aggregated_fleet_conserves_its_requests() {
    for routing in [Routing::LeastWork, Routing::RoundRobin] {
        let (settings, _) = aggregated(3);
        let mut simulation = Simulation::new(Fleet::new(FleetSettings { routing, ..settings }), steady(12.0));
        for second in 1..=60 {
            simulation.advance_to(seconds(second));
            simulation.fleet.set_target(Role::Aggregated, Replicas((second as u32 * 5) % 7));
            let truth = simulation.fleet.truth();
            let in_flight: u64 = simulation.fleet.routers().iter().map(|router| router.in_flight).sum();
            assert_eq!((truth.in_flight(), truth.refused), (in_flight, 0));
        }
        simulation.fleet.set_target(Role::Aggregated, Replicas(6));
        simulation.fleet.advance_to(seconds(600));
        let truth = simulation.fleet.truth();
        assert!(truth.offered > 600, "{truth:?}");
        assert_eq!((truth.completed, simulation.fleet.kv_occupied(Role::Aggregated).sum::<u64>()), (truth.offered, 0));
    }
}

#[test]
fn more_aggregated_replicas_never_give_a_longer_mean_ttft_under_high_load() {
    for routing in [Routing::LeastWork, Routing::RoundRobin] {
        let means: Vec<f64> = (2..=8)
            .map(|replicas| {
                let (settings, _) = aggregated(replicas);
                let mut simulation = Simulation::new(Fleet::new(FleetSettings { routing, ..settings }), steady(45.0));
                simulation.advance_to(seconds(120));
                simulation.fleet.advance_to(seconds(3600));
                let truth = simulation.fleet.truth();
                assert_eq!(truth.in_flight(), 0);
                truth.ttft_sum / truth.completed as f64
            })
            .collect();
        assert!(means.windows(2).all(|pair| pair[1] <= pair[0]), "{routing:?}: {means:?}");
        assert!(means[0] > 2.0 * means[6], "{means:?}");
    }
}

#[test]
fn who_joins_never_moves_the_iteration_that_goes_on() {
    // Each arrival shortens the run of the first request. Where only iterations cost anything, nobody's tokens may move.
    let (settings, replica) = aggregated(1);
    let free = ReplicaSettings {
        costs: IterationCosts {
            prompt_token: Seconds(0.0),
            decoding: Seconds(0.0),
            kv_token: Seconds(0.0),
            prompt_pair: Seconds(0.0),
            ..replica.costs
        },
        ..replica
    };
    let layout = Layout::Aggregated(PoolSettings { replicas: Replicas(1), replica: free });
    let mut fleet = Fleet::new(FleetSettings { layout, ..settings });
    fleet.offer(request(seconds(1), 100, 301));
    for i in 0..200 {
        fleet.offer(request(seconds(1) + Duration::from_micros(12_345 * i), 50, 2));
    }
    fleet.advance_to(seconds(100));
    let finished = fleet.take_finished();
    let first = finished.iter().find(|request| request.arrived == seconds(1) && request.ttft == Duration::from_millis(10));
    assert!(first.is_some());
    assert!(finished.iter().all(|request| request.itl == Some(Duration::from_millis(10))));
}

#[test]
fn cached_prefixes_shorten_prefill_and_still_take_memory() {
    let (settings, replica) = aggregated(1);
    let mut fleet = Fleet::new(FleetSettings { prefix_hits: Ratio(0.6), ..settings });
    fleet.offer(request(seconds(1), 2000, 100));
    fleet.advance_to(Duration::from_millis(1500));
    assert!(fleet.kv_occupied(Role::Aggregated).all(|tokens| (2000..2100).contains(&tokens)));
    fleet.advance_to(seconds(100));
    let expected = replica.costs.of(&Work::prompt(2000, 1200, 2048)).get();
    assert!((fleet.take_finished()[0].ttft.as_secs_f64() - expected).abs() < 1e-8);
}

#[test]
fn the_hand_over_delays_the_first_token() {
    let ttft = |hand_over| {
        let mut fleet = Fleet::new(FleetSettings { hand_over, ..settings(1, 1) });
        fleet.offer(request(seconds(1), 1500, 100));
        fleet.advance_to(seconds(100));
        fleet.take_finished()[0].ttft
    };
    assert_eq!(ttft(Duration::from_millis(70)) - ttft(Duration::ZERO), Duration::from_millis(70));
}

/// Mean of a signal over all routers, from their pages' counters.
fn totals(fleet: &Fleet) -> BTreeMap<Signal, (f64, f64)> {
    let mut totals = BTreeMap::new();
    for router in fleet.routers() {
        for (&signal, series) in &router.histograms {
            let (sum, count) = totals.entry(signal).or_insert((0.0, 0.0));
            *sum += series.histogram.sum;
            *count += series.histogram.count;
        }
    }
    totals
}

#[test]
fn the_routers_pages_together_tell_the_truth() {
    let mut simulation = Simulation::new(fleet(5, 5), steady(18.0));
    simulation.advance_to(seconds(100));
    let truth = simulation.fleet.truth();
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for router in 0..2 {
        let page = render::infera(&simulation.fleet.infera_page(router, "m", seconds(1_700_000_000)).expect("a router"));
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let value: f64 = value.parse().expect("a number");
            *sums.entry(series.to_owned()).or_default() += value;
        }
    }
    let labels = r#"{model="m",router="disagg"}"#;
    assert_eq!(sums[&format!("infera_time_to_first_token_seconds_count{labels}")], truth.completed as f64);
    assert_eq!(sums[&format!("infera_inter_token_latency_seconds_count{labels}")], truth.itl_count as f64);
    assert_eq!(sums[&format!("infera_input_sequence_tokens_sum{labels}")], truth.input_tokens as f64);
    assert_eq!(sums[&format!("infera_output_sequence_tokens_sum{labels}")], truth.output_tokens as f64);
    assert_eq!(sums[r#"infera_request_duration_seconds_count{outcome="ok",router="disagg"}"#], truth.completed as f64);
    assert_eq!(sums[r#"infera_request_inflight{router="disagg"}"#], truth.in_flight() as f64);
    // Both routers show the whole fleet.
    assert_eq!(sums[r#"infera_active_workers{disagg_mode="prefill",model="m"}"#], 10.0);
    let ttft = sums[&format!("infera_time_to_first_token_seconds_sum{labels}")];
    assert!((ttft / truth.ttft_sum - 1.0).abs() < 1e-9);
    assert_eq!(totals(&simulation.fleet)[&Signal::Itl].1, truth.itl_count as f64);
}
