//! Do servers that count whole requests tell what waits, and do front ends tell how long prompts were?

use super::*;
use crate::planner::input::{Few, Histogram, SeriesKey, SourceInput, TargetReading};
use std::sync::Arc;
use std::time::Duration;

fn holding(gauges: &[(Gauge, f64)], role: Option<Role>) -> Sample {
    Sample { gauges: gauges.iter().copied().collect(), role, ..Sample::default() }
}

#[test]
fn a_prefill_server_computes_one_of_its_requests_and_the_others_wait() {
    let server = |held| holding(&[(Gauge::InFlight, held)], Some(Role::Prefill));
    assert_eq!([0.0, 1.0, 4.0].map(|held| waiting(&server(held), Role::Prefill)), [Some(0.0), Some(0.0), Some(3.0)]);
    assert_eq!(waiting(&server(4.0), Role::Decode), None, "what a decode server has it works on");
    let own = holding(&[(Gauge::InFlight, 4.0), (Gauge::Waiting, 1.0)], Some(Role::Prefill));
    assert_eq!(waiting(&own, Role::Prefill), Some(1.0), "who counts them knows better");
    assert_eq!(waiting(&holding(&[(Gauge::InFlight, 4.0)], None), Role::Prefill), None, "a front end holds what decodes as well");
}

#[test]
fn a_prefill_servers_request_ends_with_its_first_token() {
    let whole = Few::from([(Signal::RequestDuration, 1)]);
    let both = Few::from([(Signal::RequestDuration, 1), (Signal::Ttft, 2)]);
    assert_eq!((first_tokens(&whole, Role::Prefill), first_tokens(&both, Role::Prefill)), (Some(&1), Some(&2)));
    assert_eq!((first_tokens(&whole, Role::Aggregated), first_tokens(&both, Role::Aggregated)), (None, Some(&2)));
}

/// What front ends have seen: of each its name, tokens and prompts.
fn seen(front_ends: &[(&str, f64, f64)]) -> Seen {
    let target = |&(name, sum, count): &(&str, f64, f64)| {
        let histogram = Few::from([(SeriesKey::default(), Histogram { sum, count, ..Histogram::default() })]);
        let sample = Sample { histograms: Few::from([(Signal::PromptTokens, histogram)]), ..Sample::default() };
        TargetReading { target: TargetId::from(name), at: Duration::ZERO, reading: Reading::Sample(Arc::new(sample)) }
    };
    let targets = front_ends.iter().map(target).collect();
    let source = SourceInput { source: SourceId::Traffic, discovery_failed: false, lifecycle: None, targets };
    Seen::of(&ModelInput::of(vec![source]))
}

#[test]
fn prompts_are_as_long_as_the_mean_of_those_that_came_meanwhile() {
    let before = seen(&[("a", 1000.0, 10.0), ("b", 0.0, 0.0)]);
    assert_eq!(seen(&[("a", 1800.0, 12.0), ("b", 100.0, 1.0)]).mean_since(&before), Some(Tokens(300.0)));
    assert_eq!(before.mean_since(&before), None, "none came");
    assert_eq!(seen(&[("a", 1800.0, 12.0)]).mean_since(&before), None, "one is silent");
    assert_eq!(seen(&[("a", 100.0, 1.0), ("b", 900.0, 20.0)]).mean_since(&before), None, "one began anew");
}
