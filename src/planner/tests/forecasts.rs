//! What do predictors do to a plan? They move demand on, and neither a lost window nor a silent target reads as falling traffic.

use super::world::*;
use crate::planner::plan::Plan;
use crate::planner::policy::*;
use crate::planner::predict::traffic::Traffic;
use crate::planner::predict::{Choice, Fallback, Method, Settings};
use crate::units::*;

fn policy(choice: Choice) -> ModelPolicy {
    let policy = infera_policy();
    let settings = Settings::new(choice, policy.interval);
    ModelPolicy { predictor: Some(PredictorPolicy { settings, history: Vec::new() }), ..policy }
}

fn expected(plan: &Plan) -> f64 {
    plan.prediction.unwrap().requests_per_second.get()
}

fn window(world: &mut World, router: &mut Router, number: u32, rate: f64) -> Plan {
    let from = f64::from(number) * 180.0;
    world.drive(router, from, from + 180.0, rate)
}

#[test]
fn constant_plans_exactly_what_no_predictor_plans() {
    let (mut with, mut without) = (World::new(policy(Choice::Fixed(Method::Constant))), World::new(infera_policy()));
    let mut router = Router::new(2, 4);
    let _baselines = (with.one(0.0, &router), without.one(0.0, &router));
    for (number, rate) in [7.3, 11.1, 0.7, 23.0].into_iter().enumerate() {
        let mut other = router.clone();
        let (one, two) = (window(&mut with, &mut router, number as u32, rate), window(&mut without, &mut other, number as u32, rate));
        assert_eq!((one.prediction, one.pools), (two.prediction, two.pools), "{rate}");
    }
}

#[test]
fn a_steady_rise_is_planned_for_before_it_comes() {
    let (mut world, mut router) = (World::new(policy(Choice::Fixed(Method::Kalman))), Router::new(8, 8));
    let _baseline = world.one(0.0, &router);
    let mut last = None;
    for number in 0..12 {
        last = Some(window(&mut world, &mut router, number, 4.0 + f64::from(number)));
    }
    let plan = last.unwrap();
    assert!((expected(&plan) - 16.0).abs() < 0.5, "{}", expected(&plan));
    assert_eq!(plan.outlook.unwrap().requests.method, Method::Kalman);
    let error = plan.predictor_errors[&Method::Kalman].get();
    assert!(error > 0.0 && error < 0.3, "{error}");
}

#[test]
fn the_first_windows_repeat_the_last_and_say_so() {
    let (mut world, mut router) = (World::new(policy(Choice::Fixed(Method::Arima))), Router::new(8, 8));
    let _baseline = world.one(0.0, &router);
    for number in 0..4 {
        let rate = 4.0 + f64::from(number);
        let plan = window(&mut world, &mut router, number, rate);
        let outlook = plan.outlook.unwrap();
        assert_eq!(outlook.requests.fallback, Some(Fallback::FewPoints));
        assert!((expected(&plan) - rate).abs() < 1e-6, "{}", expected(&plan));
    }
}

#[test]
fn a_window_that_nobody_answered_is_no_window_without_requests() {
    let (mut world, mut router) = (World::new(policy(Choice::Fixed(Method::Kalman))), Router::new(8, 8));
    let _baseline = world.one(0.0, &router);
    for number in 0..8 {
        let _plan = window(&mut world, &mut router, number, 10.0);
    }
    let before = world.memory.traffic.clone();
    let _held = world.silent(8.0 * 180.0, 9.0 * 180.0);
    assert_eq!(world.memory.traffic, before);
    router.serve(Served::typical(1800.0));
    let mut plan = None;
    for number in 9..12 {
        plan = Some(window(&mut world, &mut router, number, 10.0));
    }
    assert!((expected(&plan.unwrap()) - 10.0).abs() < 0.3);
}

#[test]
fn a_silent_target_does_not_read_as_falling_traffic() {
    let mut world = World::new(policy(Choice::Fixed(Method::Kalman)));
    let mut routers = Routers::new(3, &Router::new(8, 8));
    let _baseline = world.round(0.0, routers.readings());
    for number in 0..8 {
        let from = f64::from(number) * 180.0;
        let _plan = routers.drive(&mut world, from, from + 180.0, &[5.0]);
    }
    routers.hung = vec![2];
    let mut plan = None;
    for number in 8..11 {
        let from = f64::from(number) * 180.0;
        plan = Some(routers.drive(&mut world, from, from + 180.0, &[5.0]));
    }
    let next = plan.unwrap().prediction.unwrap();
    let cautious = next.estimated_requests_per_second.get();
    assert!((cautious - 15.0).abs() < 0.2, "{next:?}");
    assert!(next.requests_per_second.get() < 11.0, "what was not seen is not claimed");
}

#[test]
fn traffic_of_a_recorded_trace_is_known_before_the_first_window() {
    let traffic =
        |requests| Traffic { requests: Requests(requests), input_tokens: Some(Tokens(2048.0)), output_tokens: Some(Tokens(256.0)) };
    let mut warm = policy(Choice::Fixed(Method::Kalman));
    warm.predictor.as_mut().unwrap().history = (0..20).map(|window| traffic(180.0 * (2.0 + f64::from(window) * 0.5))).collect();
    let (mut world, mut router) = (World::new(warm), Router::new(8, 8));
    let _baseline = world.one(0.0, &router);
    let plan = window(&mut world, &mut router, 0, 12.0);
    assert_eq!(plan.outlook.unwrap().requests.fallback, None, "no waiting for points");
    assert!(expected(&plan) > 12.2, "the trend goes on: {}", expected(&plan));
}

#[test]
fn other_settings_keep_what_was_seen() {
    let (mut world, mut router) = (World::new(policy(Choice::Fixed(Method::Kalman))), Router::new(8, 8));
    let _baseline = world.one(0.0, &router);
    for number in 0..8 {
        let _plan = window(&mut world, &mut router, number, 10.0);
    }
    world.policy = policy(Choice::Auto);
    let plan = window(&mut world, &mut router, 8, 10.0);
    assert_eq!(plan.predictor_errors.len(), Method::ALL.len(), "{:?}", plan.predictor_errors);
    assert!((expected(&plan) - 10.0).abs() < 1e-6, "what never changes is known exactly");
}
