//! How does a person redo the decisions of preset auto? Its numbers as JSON and in sentences.

use serde_json::{Value, json};

use super::html::number;
use crate::planner::plan::{AutoTrace, PoolPlan};
use crate::units::{Ratio, Replicas};

/// The numbers of a pool.
pub(super) fn value(trace: &AutoTrace) -> Value {
    json!({
        "requests_per_second": trace.rate.get(),
        "slope_per_second": trace.slope,
        "over_seconds": trace.over.get(),
        "standard_error": trace.error.get(),
        "noise": trace.noise.get(),
        "horizon_seconds": trace.horizon.get(),
        "planned_requests_per_second": trace.planned_rate.get(),
        "input_tokens": trace.input_tokens.get(),
        "output_tokens": trace.output_tokens.get(),
        "slower_than_profile": trace.slower.get(),
        "replica_requests_per_second": trace.replica_rate.get(),
        "wanted_share": trace.share.get(),
        "needed_replicas": trace.need.0,
        "expected_share": trace.within.map(Ratio::get),
        "expected_share_with_one_less": trace.within_less.map(Ratio::get),
        "left_waiting": trace.left.get(),
        "worked_off_before_it": trace.wave.get(),
        "noise_of_late": trace.noisiest.get(),
        "needed_for_a_tenth_more": trace.padded.0,
        "recently_needed": trace.recent.0,
        "fewer_refuted": trace.refuted.0,
        "scores": trace.scores.iter().map(|(proposer, score)| {
            (proposer.as_str().to_owned(), json!({ "error": score.error.get(), "short": score.short.get() }))
        }).collect::<serde_json::Map<_, _>>(),
    })
}

/// What is to be said of a pool.
pub(super) fn sentences(pool: &PoolPlan) -> Vec<String> {
    let Some(trace) = &pool.auto else { return Vec::new() };
    let percent = |share: Ratio| format!("{} %", number(share.get() * 100.0));
    let share = match (trace.within, trace.within_less) {
        (None, _) => "no count lets a request meet the objective".to_owned(),
        (Some(share), None) => format!("with {} replicas {} of the requests meet it", trace.need, percent(share)),
        (Some(share), Some(less)) => {
            format!("with {} replicas {} of the requests meet it, with one less {}", trace.need, percent(share), percent(less))
        }
    };
    let scored =
        trace.scores.iter().map(|(proposer, score)| format!("{proposer} by {} ({} too few)", percent(score.error), percent(score.short)));
    let scored: Vec<String> = scored.collect();
    let mut sentences = vec![
        format!(
            "{} requests/s arrive, by what came in the last {} s, and {} more a minute; noise {}. Until {} s from now, when a replica that is asked for now can serve, that is at most {} with a standard error of {} included.",
            number(trace.rate.get()),
            number(trace.over.get()),
            number(trace.slope * 60.0),
            number(trace.noise.get()),
            number(trace.horizon.get()),
            number(trace.planned_rate.get()),
            number(trace.error.get()),
        ),
        format!(
            "One replica serves {} requests/s of {} + {} tokens at most, {} times as slow as its profile; {} are to meet the pool's objective: {share}.",
            number(trace.replica_rate.get()),
            number(trace.input_tokens.get()),
            number(trace.output_tokens.get()),
            number(trace.slower.get()),
            percent(trace.share),
        ),
        format!(
            "{} requests would wait beyond order then, and {} requests/s more come from a queue before this pool. A tenth more arrivals, with the most noise of late ({}), would need {}; {} were asked for lately.",
            number(trace.left.get()),
            number(trace.wave.get()),
            number(trace.noisiest.get()),
            trace.padded,
            trace.recent,
        ),
    ];
    if trace.within.is_some_and(|within| within < trace.share) {
        sentences
            .push("More than twice what carries the load, and two, is not asked for: so far above it nothing was measured.".to_owned());
    }
    if trace.refuted > Replicas(0) {
        sentences.push(format!("Fewer than {} were tried at this load in the last hours, and were not enough.", trace.refuted));
    }
    if !scored.is_empty() {
        sentences.push(format!("In the last hours each was off from what was needed when it could serve: {}.", scored.join(", ")));
    }
    sentences
}
