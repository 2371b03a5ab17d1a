//! Are the shares within the objectives those of the table, and of a simulation of what they describe?

use super::*;
use crate::planner::tests::chance::Chance;

fn alike(work: f64) -> Vec<Prompts> {
    vec![Prompts { share: 1.0, alone: work, work }]
}

fn even(rate: f64) -> Arrivals {
    Arrivals { rate, noise: 1.0 }
}

/// The share within 500 ms.
fn share_within(replicas: u32, arrivals: Arrivals, mix: &[Prompts]) -> f64 {
    within_ttft(queue(replicas, arrivals, Taken::by(mix)), mix, 0.5, 0.5)
}

fn near(ours: f64, expected: f64, by: f64) {
    assert!((ours - expected).abs() <= by, "{ours}, expected {expected}");
}

#[test]
fn the_table_of_prompts_is_what_the_code_says() {
    for (replicas, waits, within) in [(4, 0.7878, 0.9882), (5, 0.4104, 1.0)] {
        near(queue(replicas, even(45.0), Taken::by(&alike(0.08))).unwrap().waits, waits, 5e-5);
        near(share_within(replicas, even(45.0), &alike(0.08)), within, 5e-5);
    }
}

#[test]
fn one_server_waits_as_pollaczek_and_khinchine_say() {
    // M/D/1 at half load: rho S / (2 (1 - rho)) = 0.5 * 0.1 / 1 = 50 ms. M/M/1 twice that: cv 1 by two lengths.
    near(queue(1, even(5.0), Taken::by(&alike(0.1))).unwrap().mean_wait(), 0.05, 1e-12);
    let mix = [(0.5, 0.0), (0.5, 0.2)].map(|(share, work)| Prompts { share, alone: work, work });
    near(queue(1, even(5.0), Taken::by(&mix)).unwrap().mean_wait(), 0.1, 1e-12);
}

#[test]
fn arrivals_that_come_together_wait_longer() {
    let wait = |noise| queue(4, Arrivals { rate: 45.0, noise }, Taken::by(&alike(0.08))).unwrap().mean_wait();
    near(wait(5.0) / wait(1.0), 5.0, 1e-9);
}

#[test]
fn more_than_can_be_computed_meets_nothing() {
    assert_eq!(queue(4, even(50.0), Taken::by(&alike(0.08))), None);
    assert_eq!(share_within(4, even(50.0), &alike(0.08)), 0.0);
}

#[test]
fn prompts_that_are_too_long_alone_are_out_of_reach_and_keep_the_others_waiting() {
    let mixed = [(0.9, 0.08), (0.1, 0.8)].map(|(share, work)| Prompts { share, alone: work, work });
    near(reachable(&mixed, 0.5), 0.9, 1e-12);
    let within = share_within(5, even(20.0), &mixed);
    assert!(within < 0.9 && within > 0.8, "{within}");
    assert!(within / 0.9 < share_within(5, even(20.0), &alike(0.08)), "the long ones keep the short ones waiting");
}

/// 10 ms and 0.2 ms a request; 200 steps; 20 ms, which 50 requests reach.
fn decoder(step: &dyn Fn(f64) -> f64) -> Decoder<'_> {
    Decoder { step, most: 1000.0, steps: 200.0, objective: 0.02, prompts: 0.0, spread: 0.0, largest: None }
}

fn line(batch: f64) -> f64 {
    0.01 + 0.0002 * batch
}

#[test]
fn a_batch_is_what_arrives_while_one_request_stays() {
    let decoder = decoder(&line);
    near(decoder.largest_batch(), 50.0, 1e-9);
    near(decoder.rate(50.0), 12.5, 1e-9);
    // b = 10 * 200 * (10 ms + 0.2 ms b) = 20 / (1 - 0.4).
    near(decoder.batch(10.0, 50.0).unwrap(), 100.0 / 3.0, 1e-9);
    assert_eq!(decoder.batch(12.6, 50.0), None);
    assert_eq!(decoder.within(2, even(12.6)), 0.0);
    assert_eq!(decoder.within(2, even(0.0)), 1.0);
}

#[test]
fn a_step_that_no_batch_lets_meet_the_objective_meets_it_never() {
    let slow = |batch: f64| 0.02 + line(batch);
    let decoder = decoder(&slow);
    assert_eq!((decoder.largest_batch(), decoder.full()), (0.0, 1000.0));
    assert_eq!(decoder.within(2, even(0.1)), 0.0);
}

#[test]
fn steps_that_do_not_grow_are_bounded_by_what_fits() {
    let flat = |_: f64| 0.02;
    let decoder = Decoder { most: 50.0, ..decoder(&flat) };
    near(decoder.largest_batch(), 50.0, 0.0);
    assert!(decoder.within(2, even(5.0)) > 0.999, "exactly at the objective is within it");
    let fuller = decoder.within(2, even(11.0));
    assert!(fuller > 0.5 && fuller < 0.99, "what does not fit waits: {fuller}");
}

/// Requests that come by chance go to the replica with the fewest, and advance one step in the time of its batch.
fn simulated(replicas: usize, rate: f64) -> f64 {
    struct Stay {
        since: f64,
        left: f64,
    }
    const TICK: f64 = 0.02;
    let (mut chance, mut at, mut next) = (Chance::new(1), 0.0, 0.0);
    let mut pool: Vec<Vec<Stay>> = (0..replicas).map(|_| Vec::new()).collect();
    let (mut met, mut all) = (0.0, 0.0);
    while at < 3000.0 {
        at += TICK;
        while next < at {
            let emptiest = pool.iter_mut().min_by_key(|stays| stays.len()).unwrap();
            emptiest.push(Stay { since: at, left: 200.0 });
            next += chance.exponential(1.0 / rate);
        }
        for stays in &mut pool {
            let advanced = TICK / line(stays.len() as f64);
            stays.iter_mut().for_each(|stay| stay.left -= advanced);
            stays.retain(|stay| {
                if stay.left <= 0.0 && at > 60.0 {
                    all += 1.0;
                    met += f64::from(u8::from((at - stay.since) / 200.0 <= 0.02));
                }
                stay.left > 0.0
            });
        }
    }
    met / all
}

#[test]
fn spacing_within_the_objective_agrees_with_a_simulation() {
    let decoder = decoder(&line);
    for (rate, expected) in [(20.0, 0.9997), (22.0, 0.976)] {
        let ours = decoder.within(2, even(rate / 2.0));
        near(ours, expected, 5e-4);
        near(simulated(2, rate), ours, 0.015);
    }
}

#[test]
fn the_normal_distribution_is_that_of_the_books() {
    for (z, expected) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.0, 0.158_655_3), (2.575_829, 0.995), (f64::INFINITY, 1.0)] {
        near(normal(z), expected, 1e-6);
    }
}
