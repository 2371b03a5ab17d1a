//! Do the predictors do what they promise: equal the goldens, never give a negative or a non-number, and survive any history?

use std::time::Duration;

use proptest::prelude::*;
use serde_json::Value;

use super::traffic::{Predictor, Traffic, windows};
use super::*;
use crate::units::{Requests, Tokens};

const GOLDENS: &str = include_str!("../../../tests/fixtures/goldens/dynamo-predictors.json");
const INTERVAL: Duration = Duration::from_secs(180);

fn settings(method: Method) -> Settings {
    Settings::new(Choice::Fixed(method), INTERVAL)
}

fn golden_settings(variant: &Value) -> Option<Settings> {
    let method = match variant["load_predictor"].as_str().unwrap() {
        "constant" => Method::Constant,
        "kalman" => Method::Kalman,
        // Not binding: the peer's values depend on its linear algebra library.
        _ => return None,
    };
    let mut found = settings(method);
    found.log1p = variant["log1p"].as_bool().unwrap();
    if method == Method::Kalman {
        let number = |name: &str| variant[name].as_f64().unwrap();
        let min_points = variant["min_points"].as_u64().unwrap() as usize;
        found.kalman = kalman::Settings { q_level: number("q_level"), q_trend: number("q_trend"), r: number("r"), min_points };
    }
    Some(found)
}

fn close(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= 1e-9 * expected.abs().max(1e-3)
}

#[test]
fn constant_and_kalman_goldens_agree() {
    let goldens: Value = serde_json::from_str(GOLDENS).unwrap();
    let mut compared = 0;
    for (name, variant) in goldens["variants"].as_object().unwrap() {
        let Some(settings) = golden_settings(variant) else { continue };
        for case in goldens["cases"].as_array().unwrap() {
            let expected = &case["out"][name];
            let mut series = Series::new(settings);
            assert_eq!(Some(series.forecast().value), expected["before_any"].as_f64());
            for (index, value) in case["values"].as_array().unwrap().iter().enumerate() {
                series.observe(value.as_f64().unwrap_or(f64::NAN));
                let (found, wanted) = (series.forecast().value, expected["forecast"][index].as_f64().unwrap());
                assert!(close(found, wanted), "{name} {} after {index}: {found}, expected {wanted}", case["id"]);
                compared += 1;
            }
            assert!(close(series.forecast().value, expected["final_only"].as_f64().unwrap()));
        }
    }
    assert!(compared > 5000, "{compared}");
}

fn fed(settings: Settings, values: impl IntoIterator<Item = f64>) -> Series {
    let mut series = Series::new(settings);
    values.into_iter().for_each(|value| series.observe(value));
    series
}

fn choices() -> impl Iterator<Item = Choice> {
    Method::ALL.into_iter().map(Choice::Fixed).chain([Choice::Auto])
}

#[test]
fn a_steady_series_is_forecast_exactly() {
    for choice in choices() {
        let value = fed(Settings::new(choice, INTERVAL), [50.0; 30]).forecast().value;
        assert!((value - 50.0).abs() < 1e-9, "{choice:?}: {value}");
    }
}

#[test]
fn before_traffic_the_forecast_is_zero_and_says_why() {
    for choice in choices() {
        let forecast = fed(Settings::new(choice, INTERVAL), [0.0, f64::NAN, -3.0, f64::INFINITY]).forecast();
        assert_eq!((forecast.value, forecast.fallback), (0.0, Some(Fallback::NoTraffic)));
    }
}

#[test]
fn leading_zeros_are_as_if_they_had_not_been() {
    for choice in choices() {
        let settings = Settings::new(choice, INTERVAL);
        let values = [5.0, 9.0, 2.0, 0.0, 7.0, 8.0, 3.0];
        let zeros = [0.0; 8].into_iter().chain(values);
        assert_eq!(fed(settings, zeros), fed(settings, values));
    }
}

#[test]
fn below_min_points_the_last_value_is_forecast_and_says_why() {
    for method in [Method::Kalman, Method::Arima, Method::Prophet] {
        let mut series = fed(settings(method), [10.0, 30.0, 20.0, 60.0]);
        assert_eq!(series.forecast(), Forecast { value: 60.0, method, fallback: Some(Fallback::FewPoints) });
        series.observe(40.0);
        assert_eq!(series.forecast().fallback, None, "{method:?}");
    }
}

#[test]
fn a_ramp_is_followed_ahead_of_its_last_value() {
    for method in [Method::Kalman, Method::Arima, Method::Prophet] {
        let value = fed(settings(method), (0..40).map(|i| 100.0 + 5.0 * f64::from(i))).forecast().value;
        assert!((value - 300.0).abs() < 2.0, "{method:?}: {value}");
    }
}

#[test]
fn arima_finds_the_order_of_an_alternating_series() {
    let value = fed(settings(Method::Arima), (0..30).map(|i| if i % 2 == 0 { 10.0 } else { 90.0 })).forecast().value;
    assert!((value - 10.0).abs() < 3.0, "{value}");
}

#[test]
fn arima_follows_a_step_that_a_frozen_order_would_average() {
    let steps = [50.0, 52.0, 49.0, 51.0, 50.0, 48.0].into_iter().cycle().take(30).chain([200.0, 202.0, 199.0].into_iter().cycle().take(10));
    let value = fed(settings(Method::Arima), steps).forecast().value;
    assert!((value - 200.0).abs() < 15.0, "{value}");
}

#[test]
fn prophet_learns_a_day_from_two() {
    let hours = |hour: i32| 100.0 + 50.0 * (std::f64::consts::TAU * f64::from(hour) / 24.0).sin();
    let mut settings = Settings::new(Choice::Fixed(Method::Prophet), Duration::from_secs(3600));
    let error = |settings: Settings| (fed(settings, (0..50).map(hours)).forecast().value - hours(50)).abs();
    assert!(error(settings) < 5.0, "{}", error(settings));
    settings.prophet_window = 40;
    assert!(error(settings) > 5.0, "less than two days have no season");
}

#[test]
fn prophet_stays_at_zero_while_nothing_comes() {
    let decline = (0..20).map(|i| 200.0 - 10.0 * f64::from(i)).chain([0.0; 4]);
    let mut series = fed(settings(Method::Prophet), decline);
    assert_eq!(series.forecast(), Forecast { value: 0.0, method: Method::Prophet, fallback: Some(Fallback::Idle) });
    [20.0, 40.0, 60.0].into_iter().for_each(|value| series.observe(value));
    // The line still falls; planning for nothing would be worse than the last value.
    assert_eq!(series.forecast(), Forecast { value: 60.0, method: Method::Prophet, fallback: Some(Fallback::BelowZero) });
}

#[test]
fn auto_takes_the_method_that_has_been_best_lately() {
    let alternating = (0..40).map(|i| if i % 2 == 0 { 10.0 } else { 90.0 });
    let series = fed(Settings::new(Choice::Auto, INTERVAL), alternating);
    assert_eq!(series.forecast().method, Method::Arima);
    // A slow random walk: nothing is clearly better than persistence.
    let walk = (0..40).scan((1000.0, 1_u64), |(level, seed), _| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *level += (*seed >> 60) as f64 - 7.5;
        Some(*level)
    });
    assert_eq!(fed(Settings::new(Choice::Auto, INTERVAL), walk).forecast().method, Method::Constant);
}

#[test]
fn every_method_is_scored_against_what_came() {
    let mut predictor = Predictor::new(Settings::new(Choice::Auto, INTERVAL));
    assert!(predictor.errors().is_empty());
    let window = |requests: f64| Traffic { requests: Requests(requests), input_tokens: Some(Tokens(700.0)), output_tokens: None };
    [100.0, 150.0].into_iter().for_each(|requests| predictor.observe(&window(requests)));
    let errors = predictor.errors();
    assert_eq!(errors.len(), 4);
    assert!(errors.values().all(|error| (error - 1.0 / 3.0).abs() < 1e-12), "the last value was off by 50 of 150");
}

#[test]
fn an_idle_window_repeats_the_last_lengths() {
    let mut predictor = Predictor::new(settings(Method::Kalman));
    let busy = Traffic { requests: Requests(10.0), input_tokens: Some(Tokens(700.0)), output_tokens: Some(Tokens(90.0)) };
    (0..8).for_each(|_| predictor.observe(&busy));
    (0..3).for_each(|_| predictor.observe(&Traffic::default()));
    let outlook = predictor.forecast();
    assert!((outlook.input_tokens.value - 700.0).abs() < 1e-9 && (outlook.output_tokens.value - 90.0).abs() < 1e-9);
    assert!(outlook.requests.value < 5.0);
}

#[test]
fn a_falling_length_is_never_nothing() {
    let mut predictor = Predictor::new(settings(Method::Kalman));
    for input in [1000.0, 800.0, 600.0, 400.0, 200.0, 20.0] {
        predictor.observe(&Traffic { requests: Requests(10.0), input_tokens: Some(Tokens(input)), output_tokens: None });
    }
    let forecast = predictor.forecast().input_tokens;
    assert_eq!((forecast.value, forecast.fallback), (20.0, Some(Fallback::BelowZero)));
}

#[test]
fn a_warm_predictor_forecasts_before_live_traffic_begins() {
    let history: Vec<Traffic> = (0..20).map(|i| Traffic { requests: Requests(100.0 + f64::from(i)), ..Traffic::default() }).collect();
    let mut predictor = Predictor::new(settings(Method::Arima));
    predictor.warm_up(&history);
    let warm = predictor.forecast();
    assert!((warm.requests.value - 120.0).abs() < 2.0 && warm.requests.fallback.is_none());
    predictor.observe(&Traffic::default());
    assert_eq!(predictor.forecast(), warm, "live traffic has not begun");
}

#[test]
fn a_trace_is_cut_into_whole_windows_with_the_empty_ones() {
    let request = |seconds: u64, input: f64| (Duration::from_secs(seconds), Tokens(input), Tokens(10.0));
    let found = windows([request(7, 100.0), request(66, 300.0), request(190, 50.0), request(250, 1.0)], Duration::from_secs(60));
    let counts: Vec<f64> = found.iter().map(|window| window.requests.get()).collect();
    assert_eq!(counts, [2.0, 0.0, 0.0, 1.0]);
    assert_eq!((found[0].input_tokens, found[1].input_tokens), (Some(Tokens(200.0)), None));
}

#[test]
fn other_settings_take_over_the_history() {
    let values = (0..25).map(|i| 100.0 + f64::from((i * 7919) % 13));
    let mut series = fed(settings(Method::Constant), values.clone());
    series.adopt(settings(Method::Kalman));
    assert_eq!(series, fed(settings(Method::Kalman), values));
}

#[test]
fn arima_chooses_at_the_same_windows_whenever_it_began_once_all_that_it_remembers_is_the_same() {
    const MOST: u64 = 200;
    let since = |first: u64, last: u64| {
        let mut arima = arima::Arima::default();
        for window in first..=last {
            // What is chosen follows from the history alone, so equal values do, which cost no fit.
            let history = vec![50.0; (window + 1 - first).min(MOST) as usize];
            arima.observe(&history, window, MOST as usize);
        }
        arima
    };
    let all_and_one_choice = 1000 + MOST + MOST / 20;
    for first in 980..1000 {
        assert_eq!(since(1000, all_and_one_choice), since(first, all_and_one_choice), "{first}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(0x5eed), ..ProptestConfig::default() })]

    #[test]
    fn no_history_leads_to_a_negative_or_endless_forecast(
        values in prop::collection::vec(prop_oneof![4 => 0.0..2000.0, 1 => proptest::num::f64::ANY], 0..12),
        log1p: bool,
    ) {
        for choice in choices() {
            let mut series = Series::new(Settings { log1p, ..Settings::new(choice, INTERVAL) });
            for value in &values {
                series.observe(*value);
                let next = series.forecast().value;
                prop_assert!(next.is_finite() && next >= 0.0, "{choice:?}: {next}");
                let errors: Vec<_> = series.scores().filter_map(|(_, score)| score.ratio()).collect();
                prop_assert!(errors.iter().all(|error| error.is_finite()));
            }
            let text = serde_json::to_string(&series).unwrap();
            prop_assert_eq!(serde_json::from_str::<Series>(&text).unwrap(), series, "what is remembered survives a restart");
        }
    }
}
