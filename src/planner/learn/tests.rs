//! Do the estimators find what made the windows, and survive windows that mean nothing?

use nalgebra::{Matrix3, Vector3};

use super::interval::{Question, capacity};
use super::*;
use crate::planner::model::queueing::Objective;
use crate::units::{Ratio, Requests, SecondsPerToken, Tokens};

/// What facts call case A.
fn truth() -> Parameters {
    Parameters::new(0.008, 1.6e-5, 5e-7).unwrap()
}

fn lengths() -> Lengths {
    Lengths { input: Tokens(512.0), output: Tokens(128.0) }
}

/// A window without noise, made by the closed form itself.
fn window(role: Role, parameters: Parameters, rate: f64) -> Seen {
    let state = parameters.at(role, RequestsPerSecond(rate), lengths()).unwrap();
    Seen {
        served: RequestsPerSecond(rate),
        lengths: lengths(),
        ttft: (role != Role::Decode).then_some(state.ttft),
        itl: (role != Role::Prefill).then_some(state.itl),
        saturated: false,
    }
}

fn slower(parameters: Parameters, factor: f64) -> Parameters {
    let [alpha, beta, gamma] = [parameters.alpha.get(), parameters.beta.get(), parameters.gamma.get()].map(|one| one * factor);
    Parameters::new(alpha, beta, gamma).unwrap()
}

fn taught(role: Role, parameters: Parameters, rates: &[f64]) -> Learned {
    let mut learned = Learned::new(role, &window(role, parameters, rates[0]));
    rates.iter().for_each(|rate| {
        learned.learn(role, &window(role, parameters, *rate));
    });
    learned
}

/// Twelve loads between a tenth and nine tenths of the maximum.
const VARIED: [f64; 12] = [2.0, 9.0, 16.0, 5.0, 12.0, 18.0, 3.5, 14.0, 7.0, 10.5, 17.0, 4.2];

fn question(role: Role) -> Question {
    let objective = Objective { ttft: Seconds(0.5), itl: Seconds(0.05) };
    Question { role, lengths: lengths(), objective, max_batch: Some(Requests(256.0)) }
}

#[test]
fn loads_that_differ_give_the_parameters_themselves() {
    let learned = taught(Role::Aggregated, truth(), &VARIED);
    let found = learned.parameters();
    for (found, made) in
        [(found.alpha.get(), truth().alpha.get()), (found.beta.get(), truth().beta.get()), (found.gamma.get(), truth().gamma.get())]
    {
        // What was believed before still weighs a little.
        assert!((found / made - 1.0).abs() < 5e-3, "{found}, expected {made}");
    }
    assert!(learned.is_told_apart() && learned.accepted >= LEAST_UPDATES);
    let interval = capacity(&learned, &question(Role::Aggregated)).unwrap();
    let made = question(Role::Aggregated).capacity(truth()).unwrap();
    assert!((interval.estimate.get() / made.get() - 1.0).abs() < 5e-3 && interval.is_within(0.2), "{interval:?}");
}

#[test]
fn a_pool_of_one_phase_learns_from_the_latency_that_it_has() {
    // Rates up to nine tenths of what the phase alone could do.
    for (role, factor) in [(Role::Prefill, 5.5), (Role::Decode, 1.2)] {
        let rates = VARIED.map(|rate| rate * factor);
        let learned = taught(role, truth(), &rates);
        let (made, question) = (question(role).capacity(truth()).unwrap().get(), question(role));
        let interval = capacity(&learned, &question).unwrap();
        assert!((interval.estimate.get() / made - 1.0).abs() < 0.01, "{role}: {interval:?}, expected {made}");
        assert!(learned.condition.is_some(), "beta and gamma count as one");
    }
}

#[test]
fn one_operating_point_is_not_taken_for_knowledge() {
    let learned = taught(Role::Aggregated, truth(), &[1.06; 40]);
    let interval = capacity(&learned, &question(Role::Aggregated)).unwrap();
    assert!(!learned.is_told_apart() && learned.all_points().len() == 1);
    assert!(interval.lower.get() < 8.0 && interval.upper.get() > 60.0, "{interval:?}");
    assert!(interval.lower <= interval.estimate && interval.estimate <= interval.upper);
}

#[test]
fn a_slower_server_is_known_after_three_windows_at_constant_load() {
    let mut learned = taught(Role::Aggregated, truth(), &VARIED);
    let now = slower(truth(), 1.3);
    let updates: Vec<Update> = (0..3).map(|_| learned.learn(Role::Aggregated, &window(Role::Aggregated, now, 8.0))).collect();
    assert_eq!(updates.last(), Some(&Update::Reset), "{updates:?}");
    let state = learned.parameters().at(Role::Aggregated, RequestsPerSecond(8.0), lengths()).unwrap();
    let made = now.at(Role::Aggregated, RequestsPerSecond(8.0), lengths()).unwrap();
    assert!((state.ttft.get() / made.ttft.get() - 1.0).abs() < 0.02 && (state.itl.get() / made.itl.get() - 1.0).abs() < 0.02);
    let (star, expected) =
        (question(Role::Aggregated).capacity(learned.parameters()).unwrap(), question(Role::Aggregated).capacity(now).unwrap());
    assert!((star.get() / expected.get() - 1.0).abs() < 0.1, "the shape is kept: {star:?}, expected {expected:?}");
}

#[test]
fn a_load_beyond_the_models_maximum_teaches() {
    // From the seed's defaults a load of 18/s would be rho 1.7.
    let mut learned = Learned::new(Role::Aggregated, &window(Role::Aggregated, truth(), 18.0));
    learned.filter = Filter::new(filter::DEFAULTS);
    for rate in [18.0, 12.0, 17.0, 8.0, 14.0, 5.0, 16.0, 10.0] {
        learned.learn(Role::Aggregated, &window(Role::Aggregated, truth(), rate));
    }
    let star = question(Role::Aggregated).capacity(learned.parameters()).unwrap().get();
    assert!((star / 17.704 - 1.0).abs() < 0.05, "{star}");
}

#[test]
fn the_gate_and_the_noise_are_the_seeds() {
    // R for TTFT 50 ms and ITL 5 ms: diag(1.626926, 0.01626926) ms^2; P0 = diag(0.0625, 6.25e-6, 6.25e-12) ms^2 for the defaults.
    for (latency, variance) in [(50.0_f64, 1.626_926_f64), (5.0, 0.016_269_26)] {
        assert!(((filter::LEAST_NOISE * latency).powi(2) / variance - 1.0).abs() < 1e-6);
    }
    let start = Filter::new(filter::DEFAULTS);
    for (place, expected) in [0.0625e-6, 6.25e-12, 6.25e-18].into_iter().enumerate() {
        assert!((start.covariance[place][place] / expected - 1.0).abs() < 1e-9, "{:?}", start.covariance);
    }
}

#[test]
fn a_step_of_the_filter_moves_towards_what_was_seen_and_keeps_a_covariance() {
    let mut filter = Filter::new(truth());
    let mut seen = window(Role::Aggregated, truth(), 5.0);
    let scale = |latency: Option<Seconds>, by: f64| latency.map(|latency| Seconds(latency.get() * by));
    (seen.ttft, seen.itl) = (scale(seen.ttft, 1.05), scale(seen.itl, 1.05));
    let judged = filter.update(Role::Aggregated, &seen, filter::LEAST_NOISE);
    assert!(judged.accepted && judged.nis.is_some_and(|nis| nis > 0.1 && nis < 2.0), "{judged:?}");
    assert!(filter.parameters.alpha > truth().alpha && filter.parameters.beta > truth().beta);
    let covariance = Matrix3::from_fn(|i, j| filter.covariance[i][j]);
    assert_eq!(covariance, covariance.transpose());
    // Scaled by the parameters, so that the eigenvalues are of one size.
    let scale = Vector3::new(truth().alpha.get(), truth().beta.get(), truth().gamma.get());
    let relative = Matrix3::from_fn(|i, j| covariance[(i, j)] / scale[i] / scale[j]);
    assert!(relative.symmetric_eigenvalues().iter().all(|value| *value > 0.0), "{relative}");
    let mut far = window(Role::Aggregated, truth(), 5.0);
    (far.ttft, far.itl) = (far.ttft.map(|ttft| Seconds(ttft.get() * 2.0)), far.itl.map(|itl| Seconds(itl.get() * 2.0)));
    let before = filter;
    assert!(!filter.update(Role::Aggregated, &far, filter::LEAST_NOISE).accepted);
    assert_eq!(filter, before, "what is rejected changes nothing");
}

#[test]
fn the_slopes_are_the_derivatives() {
    let rate = RequestsPerSecond(12.0);
    let slopes = fit::slopes_of(Role::Aggregated, rate, lengths(), truth()).unwrap();
    let logs = |parameters: Parameters| {
        let state = parameters.at(Role::Aggregated, rate, lengths()).unwrap();
        [state.ttft.get().ln(), state.itl.get().ln()]
    };
    for (place, step) in [(0, 1e-6), (1, 1e-6), (2, 1e-6)] {
        let mut moved = truth();
        match place {
            0 => moved.alpha = Seconds(moved.alpha.get() * f64::exp(step)),
            1 => moved.beta = SecondsPerToken(moved.beta.get() * f64::exp(step)),
            _ => moved.gamma = SecondsPerToken(moved.gamma.get() * f64::exp(step)),
        }
        for (slope, (there, here)) in slopes.iter().zip(logs(moved).into_iter().zip(logs(truth()))) {
            assert!((slope[place] - (there - here) / step).abs() < 1e-4, "{place}: {slope}");
        }
    }
}

#[test]
fn windows_at_one_load_are_one_point_and_the_list_is_short() {
    let mut points = Points::default();
    (0..50).for_each(|_| points.add(&window(Role::Aggregated, truth(), 4.0)));
    points.add(&window(Role::Aggregated, truth(), 4.2));
    assert_eq!(points.len(), 1);
    // A load that falls slowly leaves points behind.
    (0..200).for_each(|step| points.add(&window(Role::Aggregated, truth(), 4.0 * 0.995_f64.powi(step))));
    assert!(points.len() >= 9, "{}", points.len());
    for step in 0..60 {
        points.add(&window(Role::Aggregated, truth(), 0.5 * 1.06_f64.powi(step)));
    }
    assert!(points.len() <= 16 && points.len() >= 10, "{}", points.len());
}

#[test]
fn nothing_makes_a_parameter_that_is_no_number() {
    let values = [0.0_f64, 1e-300, 1e-9, 0.003, 0.05, 7.0, 1e9, 1e300];
    let mut learned = Learned::new(Role::Aggregated, &window(Role::Aggregated, truth(), 3.0));
    let mut turn = 0;
    for (index, served) in values.into_iter().enumerate() {
        for ttft in values {
            for itl in values {
                turn += 1;
                let lengths = Lengths { input: Tokens(values[(turn + index) % 8].max(1.0)), output: Tokens(values[turn % 8].max(1.0)) };
                let ttft = (turn % 3 > 0).then_some(Seconds(ttft));
                let seen = Seen {
                    served: RequestsPerSecond(served),
                    lengths,
                    ttft,
                    itl: (turn % 5 > 0).then_some(Seconds(itl)),
                    saturated: turn % 7 == 0,
                };
                learned.learn(Role::Aggregated, &seen);
                let found = learned.parameters();
                assert!(Parameters::new(found.alpha.get(), found.beta.get(), found.gamma.get()).is_some(), "{found:?} after {seen:?}");
                assert!(learned.filter.covariance.iter().flatten().all(|value| value.is_finite()), "{:?}", learned.filter);
                assert!(learned.nis.is_none_or(f64::is_finite) && learned.condition.is_none_or(f64::is_finite));
                if turn % 64 == 0
                    && let Some(interval) = capacity(&learned, &question(Role::Aggregated))
                {
                    let all = [interval.lower, interval.estimate, interval.upper].map(RequestsPerSecond::get);
                    assert!(all.iter().all(|rate| rate.is_finite() && *rate >= 0.0) && all[0] <= all[1] && all[1] <= all[2], "{all:?}");
                }
            }
        }
    }
}

#[test]
fn a_prefill_server_that_never_rests_teaches_its_capacity() {
    // Nothing was ever seen of it but a queue: 40 prompts a second are all that it can do.
    let seen = Seen { served: RequestsPerSecond(40.0), lengths: lengths(), ttft: None, itl: None, saturated: true };
    let mut learned = Learned::new(Role::Prefill, &seen);
    (0..3).for_each(|_| {
        learned.learn(Role::Prefill, &seen);
    });
    let star = question(Role::Prefill).capacity(learned.parameters()).unwrap().get();
    assert!((36.0..=42.0).contains(&star), "{star}");
    // A pause says nothing.
    let idle = Seen { served: RequestsPerSecond(4.0), saturated: false, ..seen };
    let before = learned.parameters();
    learned.learn(Role::Prefill, &idle);
    assert_eq!(learned.parameters(), before);
}

#[test]
fn one_window_that_means_nothing_is_rejected_and_forgotten() {
    let mut learned = taught(Role::Aggregated, truth(), &VARIED);
    let before = learned.parameters();
    let stray = window(Role::Aggregated, slower(truth(), 8.0), 1.0);
    let stray = Seen { served: RequestsPerSecond(8.0), ..stray };
    assert_eq!(learned.learn(Role::Aggregated, &stray), Update::Rejected);
    for rate in [9.0, 14.0, 6.0, 11.0] {
        assert_eq!(learned.learn(Role::Aggregated, &window(Role::Aggregated, truth(), rate)), Update::Accepted);
    }
    assert!(learned.all_points().as_slice().iter().all(|point| point.seen != stray), "it is no point");
    assert!((learned.parameters().alpha.get() / before.alpha.get() - 1.0).abs() < 0.02);
}

#[test]
fn a_wrong_model_that_is_right_now_and_then_is_estimated_anew() {
    let mut learned = Learned::new(Role::Aggregated, &window(Role::Aggregated, truth(), 10.0));
    // It knows one load by heart, and the others not at all.
    learned.filter = Filter::new(Parameters::new(0.0145, 1e-6, 1e-8).unwrap());
    let updates: Vec<Update> = [3.0, 14.0, 10.0]
        .iter()
        .cycle()
        .take(12)
        .map(|rate| learned.learn(Role::Aggregated, &window(Role::Aggregated, truth(), *rate)))
        .collect();
    assert!(updates.contains(&Update::Reset), "{updates:?}");
}

#[test]
fn what_no_windows_can_have_led_to_is_not_sound() {
    let sound = taught(Role::Aggregated, truth(), &VARIED);
    assert!(sound.is_sound());
    let with = |change: &dyn Fn(&mut Learned)| {
        let mut learned = sound.clone();
        change(&mut learned);
        learned.is_sound()
    };
    type Spoils<'a> = (&'a str, &'a dyn Fn(&mut Learned));
    let spoils: [Spoils<'_>; 13] = [
        ("a wait of nothing", &|learned| learned.filter.parameters.wait = Ratio(0.0)),
        ("alpha below its bounds", &|learned| learned.filter.parameters.alpha = Seconds(1e-9)),
        ("gamma of zero", &|learned| learned.filter.parameters.gamma = SecondsPerToken(0.0)),
        ("an endless beta", &|learned| learned.filter.parameters.beta = SecondsPerToken(f64::INFINITY)),
        ("a negative variance", &|learned| learned.filter.covariance[0][0] *= -1.0),
        ("a covariance that is not symmetric", &|learned| learned.filter.covariance[0][1] = learned.filter.covariance[0][0] * 9.0),
        ("a correlation above one", &|learned| {
            let state = learned.parameters();
            let large = 5.0 * state.alpha.get() * state.beta.get();
            (learned.filter.covariance[0][1], learned.filter.covariance[1][0]) = (large, large);
        }),
        ("a window of no requests", &|learned| learned.recent[0].served = RequestsPerSecond(0.0)),
        ("an iteration of an hour", &|learned| learned.recent[0].itl = Some(Seconds(3600.0))),
        ("more windows than are kept", &|learned| learned.recent = vec![learned.recent[0]; 9]),
        ("a distance below zero", &|learned| learned.nis = Some(-1.0)),
        ("a batch of nothing", &|learned| learned.full_batch = Some(Tokens(0.0))),
        ("a shape without alpha", &|learned| learned.shape = learned.shape.map(|shape| Parameters { alpha: Seconds(0.0), ..shape })),
    ];
    for (what, change) in spoils {
        assert!(!with(change), "{what}");
    }
}

#[test]
fn prompts_that_wait_for_more_than_one_iteration_are_learned_as_that() {
    let made = Parameters { wait: Ratio(2.2), ..truth() };
    let mut learned = Learned::new(Role::Aggregated, &window(Role::Aggregated, made, VARIED[0]));
    for rate in VARIED.iter().chain(&VARIED) {
        learned.learn(Role::Aggregated, &window(Role::Aggregated, made, *rate));
    }
    assert!((learned.parameters().wait.get() / 2.2 - 1.0).abs() < 0.12, "{:?}", learned.parameters());
    // TTFT of 150 ms binds: T = (150 - 8.448) / 2.2.
    let objective = Objective { ttft: Seconds(0.15), itl: Seconds(0.5) };
    let question = Question { objective, ..question(Role::Aggregated) };
    let (star, expected) = (question.capacity(learned.parameters()).unwrap().get(), question.capacity(made).unwrap().get());
    assert!(
        (expected - (1.0 - 8.0 / (141.552 / 2.2)) / 0.047_392).abs() < 0.01 && (star / expected - 1.0).abs() < 0.03,
        "{star} {expected}"
    );
    // A change of speed does not change how long prompts wait, in iterations.
    let slow = slower(made, 1.3);
    for rate in [8.0, 8.5, 8.2, 8.4] {
        learned.learn(Role::Aggregated, &window(Role::Aggregated, Parameters { wait: Ratio(2.2), ..slow }, rate));
    }
    assert!((learned.parameters().alpha.get() / slow.alpha.get() - 1.0).abs() < 0.15, "{:?}", learned.parameters());
}

#[test]
fn near_the_maximum_arrivals_of_single_windows_do_not_become_a_shape() {
    let mut learned = taught(Role::Aggregated, truth(), &VARIED);
    let slow = slower(truth(), 1.3);
    // Nine tenths of what the slower server can do. A window's iterations are longer or shorter than its completions say.
    let rate = 0.9 / (1.3 * 0.047_392);
    let scatter = [1.0, 1.02, 0.99, 1.2, 0.85, 1.1, 0.8, 1.15, 0.93, 0.96_f64];
    for factor in scatter {
        let seen = window(Role::Aggregated, slow, rate);
        let of = |latency: Option<Seconds>| latency.map(|latency| Seconds(latency.get() * factor));
        learned.learn(Role::Aggregated, &Seen { ttft: of(seen.ttft), itl: of(seen.itl), ..seen });
    }
    let (found, made) = (learned.parameters(), slow);
    let at = |parameters: Parameters| parameters.at(Role::Aggregated, RequestsPerSecond(rate), lengths()).unwrap();
    assert!((at(found).itl.get() / at(made).itl.get() - 1.0).abs() < 0.07, "{:?}, expected {:?}", at(found), at(made));
    assert!((at(found).ttft.get() / at(made).ttft.get() - 1.0).abs() < 0.07, "{:?}, expected {:?}", at(found), at(made));
    // The proportions are those that were learned before.
    assert!((found.alpha.get() / made.alpha.get() - 1.0).abs() < 0.1, "{found:?}, expected {made:?}");
    let star = |parameters| question(Role::Aggregated).capacity(parameters).unwrap().get();
    assert!((star(found) / star(made) - 1.0).abs() < 0.05, "{} {}", star(found), star(made));
}

#[test]
fn a_batch_that_was_full_is_remembered_in_tokens() {
    // 45 requests of 512 + 64.5 tokens find a place, others wait.
    let (places, served) = (45.0, 45.0 / (129.0 * 0.008 + 45.0 * 0.047_392));
    let full = Seen { saturated: true, ..window(Role::Aggregated, truth(), served) };
    let mut learned = taught(Role::Aggregated, truth(), &VARIED);
    assert_eq!(learned.full_batch, None, "nobody waited");
    learned.learn(Role::Aggregated, &full);
    let tokens = |learned: &Learned| learned.full_batch.unwrap().get();
    assert!((tokens(&learned) / (places * 576.5) - 1.0).abs() < 0.02, "{}", tokens(&learned));
    learned.learn(Role::Aggregated, &window(Role::Aggregated, truth(), 12.0));
    assert!((tokens(&learned) / (places * 576.5) - 1.0).abs() < 0.02, "a calm window says nothing of it");
    learned.learn(Role::Aggregated, &window(Role::Aggregated, truth(), 17.0));
    assert!(tokens(&learned) > 1.4 * places * 576.5, "it was not full, or is larger now");
    for rate in [4.0, 3.0, 5.0] {
        learned.learn(Role::Aggregated, &window(Role::Aggregated, slower(truth(), 1.4), rate));
    }
    assert_eq!(learned.full_batch, None, "of another server nothing is known");
}
