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
