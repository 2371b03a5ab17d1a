//! Do shapes give the requests that paper says, and is every bad parameter named?

use super::*;
use crate::simulator::trace::Trace;
use crate::simulator::workload::Request;

fn curve(text: &str) -> Curve {
    parse(text).unwrap_or_else(|problems| panic!("{text}: {problems}"))
}

fn shown(text: &str) -> Vec<String> {
    parse(text).expect_err("something is wrong").iter().map(ToString::to_string).collect()
}

#[test]
fn shapes_integrate_to_what_paper_says_and_deliver_it() {
    for (text, seconds, expected) in [
        ("shape:steady?rate=5&duration=1000s", 1000, 5000.0),
        ("shape:step?low=2&high=16&at=600s&duration=1800s&isl=1155&osl=211", 1800, 2.0 * 600.0 + 16.0 * 1200.0),
        ("shape:step?low=2&high=16&at=600s&until=900s&duration=30m", 1800, 2.0 * 1500.0 + 16.0 * 300.0),
        ("shape:ramp?low=0&high=10&duration=20m", 1200, 6000.0),
        ("shape:ramp?low=1&high=10&at=100s&over=200s&duration=1000s", 1000, 100.0 + 1100.0 + 7000.0),
        // Cut in the middle of the rise.
        ("shape:ramp?low=0&high=10&over=2000s&duration=1000s", 1000, 2500.0),
        ("shape:diurnal?low=2&high=10&period=1h", 3600, 6.0 * 3600.0),
        ("shape:diurnal?low=2&high=10&period=10m&start=5m&duration=1000s", 1000, 0.0),
        ("shape:flash?low=2&high=20&at=500s&rise=20s&hold=100s&fall=40s&duration=1000s", 1000, 2.0 * 840.0 + 11.0 * 60.0 + 2000.0),
        ("shape:length-shift?rate=4&at=500s&isl_after=4000&duration=1000s", 1000, 4000.0),
        ("shape:on-off?high=12&low=1&on=30s&off=90s&duration=1250s", 1250, 10.0 * (360.0 + 90.0) + 360.0 + 20.0),
        ("shape:on-off?high=12&cv=2", 1800, 15.0 * 720.0),
    ] {
        let curve = curve(text);
        assert_eq!(curve.length(), Duration::from_secs(seconds), "{text}");
        // One and two thirds of a period from its peak on: the integral of the cosine over the last 400 s.
        let tail = 600.0 / std::f64::consts::TAU * (std::f64::consts::TAU * 400.0 / 600.0).sin();
        let expected = if expected == 0.0 { 6.0 * 1000.0 + 4.0 * tail } else { expected };
        assert!((curve.expected().get() / expected - 1.0).abs() < 1e-3, "{text}: {} instead of {expected}", curve.expected().get());
        let trace = Trace::following(&curve, 17).unwrap();
        let bound = 4.0 * expected.sqrt() * if text.contains("cv=2") { 2.0 } else { 1.0 };
        assert!((trace.requests.len() as f64 - expected).abs() < bound, "{text}: {}", trace.requests.len());
        assert!(trace.requests.is_sorted_by_key(|request| request.at) && trace.requests.iter().all(|r| r.at <= trace.length), "{text}");
    }
}

#[test]
fn a_shape_has_its_rates_at_its_times() {
    let rate = |text: &str, seconds| curve(text).rate_at(Duration::from_secs(seconds)).get();
    let step = "shape:step?low=2&high=16&at=600s";
    assert_eq!([rate(step, 599), rate(step, 600), rate(step, 1799), rate(step, 1800)], [2.0, 16.0, 16.0, 0.0]);
    let flash = "flash?low=2&high=20&at=100s";
    assert_eq!([rate(flash, 100), rate(flash, 105), rate(flash, 110), rate(flash, 200), rate(flash, 230)], [2.0, 11.0, 20.0, 11.0, 2.0]);
    let day = "diurnal?low=2&high=10";
    assert_eq!([rate(day, 0), rate(day, 43_200)], [2.0, 10.0]);
    assert!((rate(day, 21_600) - 6.0).abs() < 1e-9);
    assert_eq!(curve(day).peak().get(), 10.0);
    let off = "on-off?high=9";
    assert_eq!([rate(off, 59), rate(off, 60), rate(off, 120)], [9.0, 0.0, 9.0]);
}

#[test]
fn lengths_shift_where_they_are_told_to() {
    let trace =
        Trace::following(&curve("shape:length-shift?rate=20&at=600s&duration=1200s&isl=1000&osl=100&isl_after=4000&osl_cv=0"), 3).unwrap();
    let mean = |late: bool| {
        let lengths = trace.requests.iter().filter(|request| (request.at.as_secs() >= 600) == late).map(|request| f64::from(request.input));
        lengths.clone().sum::<f64>() / lengths.count() as f64
    };
    // The mean of 12,000 lengths with a spread of 1 is within 4 % in all but one of 100,000 cases.
    assert!((mean(false) / 1000.0 - 1.0).abs() < 0.04 && (mean(true) / 4000.0 - 1.0).abs() < 0.04, "{} {}", mean(false), mean(true));
    assert!(trace.requests.iter().all(|request| request.output == 100));
}

#[test]
fn one_seed_gives_one_sequence() {
    let requests = |seed| -> Vec<Request> { curve("shape:flash?low=2&high=20&at=500s&cv=1.7").requests(seed).collect() };
    assert_eq!(requests(1), requests(1));
    assert_ne!(requests(1), requests(2));
}

#[test]
fn every_problem_of_a_shape_is_named() {
    assert_eq!(
        shown("shape:wave?low=1"),
        ["unknown shape \"wave\": expected one of steady, step, ramp, diurnal, flash, length-shift, on-off"]
    );
    assert_eq!(shown("shape:steady"), ["parameter rate: missing: expected a value, since there is no default"]);
    assert_eq!(
        shown("shape:step?low=-1&low=2&high&at=2h&duration=1h&speed=9"),
        [
            "parameter low: given twice: expected one value",
            "expected name=value, got \"high\"",
            "parameter low: expected requests a second, from 0 to 1000000, got \"-1\"",
            "parameter high: missing: expected a value, since there is no default",
            "parameter at: expected a span such as 90s, shorter than the duration, got \"2h\"",
            "parameter speed: unknown parameter: expected one of duration, isl, osl, isl_cv, osl_cv, cv, low, high, at, until",
        ]
    );
    assert_eq!(shown("shape:step?low=1&high=2&at=60s&until=1m"), ["parameter until: expected a span longer than at, got \"1m\""]);
    assert_eq!(
        shown("shape:on-off?high=1&on=1ns&off=1ns"),
        ["parameter on: expected a period that recurs at most 10000 times, got \"2ns\""]
    );
    assert_eq!(shown("shape:diurnal?low=1&high=2&period=0s").len(), 1);
    assert_eq!(shown("shape:step?low=1&high=2&at=60s&until=20y").len(), 1, "nothing follows from what is wrong");
    assert_eq!(shown("shape:step?low=1&high=2&at=50m&duration=x").len(), 1);
    assert_eq!(curve("shape:step?low=1&high=2&at=60&duration=10y").length(), Duration::from_secs(315_576_000), "a bare number is seconds");
    assert!(Trace::following(&curve("shape:steady?rate=1000000"), 0).is_err());
}
