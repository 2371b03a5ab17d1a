//! Do edits keep what they promise to keep?

use super::super::{Generation, read, shape};
use super::*;

const CONVERSATION: &str = include_str!("../../../tests/fixtures/traces/azure2023_conv_200.csv");

fn sample() -> Trace {
    read(CONVERSATION, &Generation::default()).unwrap()
}

fn synthetic() -> Trace {
    Trace::following(&shape::parse("shape:steady?rate=10&duration=1000s").unwrap(), 4).unwrap()
}

fn scaled(trace: &Trace, factor: f64, seed: u64) -> Trace {
    Edits { factor: Ratio(factor), seed, ..Edits::default() }.apply(trace.clone()).unwrap()
}

#[test]
fn the_default_changes_nothing() {
    assert_eq!(Edits::default().apply(sample()), Ok(sample()));
}

#[test]
fn scaling_keeps_the_expected_count_and_repeats_to_the_byte() {
    let trace = synthetic();
    for factor in [0.1, 0.5, 0.9, 1.5, 2.0, 3.25] {
        for seed in [1, 2] {
            let result = scaled(&trace, factor, seed);
            let expected = trace.requests.len() as f64 * factor;
            // Only the fraction is left to chance.
            let fraction: f64 = factor.fract();
            let bound = 4.0 * (trace.requests.len() as f64 * fraction * (1.0 - fraction)).sqrt();
            assert!((result.requests.len() as f64 - expected).abs() <= bound, "{factor}: {}", result.requests.len());
            assert!(result.requests.is_sorted_by_key(|request| request.at));
            assert!(result.requests.iter().all(|request| request.at <= trace.length));
            assert_eq!(format!("{:?}", scaled(&trace, factor, seed)), format!("{result:?}"));
        }
        assert_ne!(scaled(&trace, factor, 1), scaled(&trace, factor, 2), "{factor}");
    }
}

#[test]
fn a_higher_factor_keeps_the_requests_of_a_lower_one() {
    let trace = sample();
    let mut lower = Vec::new();
    for factor in [0.2, 0.7, 1.0, 1.3, 2.8, 4.0] {
        let mut higher = scaled(&trace, factor, 9).requests;
        let all = higher.clone();
        for request in &lower {
            let found = higher.iter().position(|other| other == request).expect("a kept request");
            higher.swap_remove(found);
        }
        lower = all;
    }
}

#[test]
fn copies_stay_near_their_originals_and_do_not_coincide() {
    let trace = sample();
    let jitter = Duration::from_millis(800);
    let edits = Edits { factor: Ratio(2.0), jitter, ..Edits::default() };
    let result = edits.apply(trace.clone()).unwrap();
    let mut copies = result.requests;
    for original in &trace.requests {
        let place = copies.iter().position(|request| request == original).expect("the original");
        copies.remove(place);
    }
    assert_eq!(copies.len(), trace.requests.len());
    for copy in &copies {
        let near =
            |request: &&Request| request.at.abs_diff(copy.at) <= jitter && request.input == copy.input && request.output == copy.output;
        assert!(trace.requests.iter().any(|request| near(&request)), "{copy:?}");
        assert!(trace.requests.iter().all(|request| request.at != copy.at), "{copy:?}");
    }
}

#[test]
fn a_jitter_longer_than_the_trace_stays_inside() {
    let edits = Edits { factor: Ratio(5.0), jitter: Duration::from_secs(100_000), ..Edits::default() };
    let result = edits.apply(sample()).unwrap();
    assert_eq!(result.requests.len(), 1000);
    assert!(result.requests.iter().all(|request| request.at <= result.length));
}

#[test]
fn a_slice_starts_at_zero_and_ends_before_its_limit() {
    let trace = synthetic();
    let (skip, limit) = (Duration::from_secs(100), Duration::from_secs(50));
    let slice = Edits { skip, limit: Some(limit), ..Edits::default() }.apply(trace.clone()).unwrap();
    assert_eq!(slice.length, limit);
    let expected: Vec<Request> = trace.requests.iter().filter(|request| (100..150).contains(&request.at.as_secs())).copied().collect();
    assert_eq!(slice.requests.len(), expected.len());
    assert!(slice.requests.iter().zip(&expected).all(|(cut, whole)| cut.at + skip == whole.at && cut.input == whole.input));
    let rest = Edits { skip, limit: Some(Duration::from_secs(100_000)), ..Edits::default() }.apply(trace).unwrap();
    assert_eq!(rest.length, Duration::from_secs(900));
    // The last arrival of a recording belongs to it.
    let tail = Edits { skip: sample().length, ..Edits::default() }.apply(sample()).unwrap();
    assert_eq!((tail.requests.len(), tail.length), (1, Duration::ZERO));
}

#[test]
fn lengths_are_capped() {
    let edits = Edits { max_input: Some(500), max_output: Some(40), ..Edits::default() };
    let result = edits.apply(sample()).unwrap();
    assert_eq!(result.requests.len(), 200);
    let capped = |whole: &Request| Request { input: whole.input.min(500), output: whole.output.min(40), ..*whole };
    assert_eq!(result.requests, sample().requests.iter().map(capped).collect::<Vec<_>>());
}

#[test]
fn edits_that_make_no_sense_are_all_named() {
    let shown = |edits: Edits| -> Vec<String> { edits.apply(sample()).unwrap_err().iter().map(ToString::to_string).collect() };
    assert_eq!(
        shown(Edits { factor: Ratio(-1.0), max_input: Some(0), ..Edits::default() }),
        ["parameter factor: expected a finite number, 0 or more, got \"-1\"", "parameter max_input: expected 1 token or more, got \"0\""]
    );
    assert_eq!(shown(Edits { factor: Ratio(f64::NAN), ..Edits::default() }).len(), 1);
    assert_eq!(shown(Edits { factor: Ratio(1e9), ..Edits::default() }), ["200000000000 requests expected: at most 30000000 can be held"]);
    assert_eq!(shown(Edits { factor: Ratio(0.0), ..Edits::default() }), ["the trace holds no request"]);
    assert_eq!(shown(Edits { skip: Duration::from_secs(86_400), ..Edits::default() }), ["the trace holds no request"]);
}
