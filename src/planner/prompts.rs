//! What is known of the prompts at servers that count whole requests and nothing else? What waits, what was computed, and how long prompts were.
//!
//! Some prefill servers (Dynamo's workers whose engine shows no page of its own) say how many requests they have and how long each one took. Such a
//! request is its prompt: it ends with the first token. So its duration is the time to the first token there, and of those that are there one is
//! computed and the others wait. Where several are computed in one step that is too many, by less than what a new request waits for that step to end.
//!
//! How long prompts were, only the front ends see: the mean of all that came while a server's window went on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::input::{Few, Gauge, ModelInput, Reading, Sample, Signal, SourceId};
use crate::units::{Role, TargetId, Tokens};

/// Requests that wait at a server of that role; `None` where it does not say.
pub(super) fn waiting(sample: &Sample, role: Role) -> Option<f64> {
    let gauge = |of| sample.gauges.get(&of).copied();
    let behind_the_first = || Some((gauge(Gauge::InFlight)? - 1.0).max(0.0));
    gauge(Gauge::Waiting).or_else(|| if is_of_prefill(sample, role) { behind_the_first() } else { None })
}

/// What is known of first tokens at a server of that role, of its histograms or of what they grew by.
pub(super) fn first_tokens<H>(histograms: &Few<Signal, H>, role: Role) -> Option<&H> {
    let whole = || histograms.get(&Signal::RequestDuration).filter(|_| role == Role::Prefill);
    histograms.get(&Signal::Ttft).or_else(whole)
}

fn is_of_prefill(sample: &Sample, role: Role) -> bool {
    role == Role::Prefill && !sample.is_of_a_router()
}

/// The prompts that each front end has seen since it began: their tokens, and how many they were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen(BTreeMap<TargetId, (f64, f64)>);

impl Seen {
    /// Up to this round.
    pub fn of(input: &ModelInput) -> Self {
        let traffic = input.sources.iter().filter(|source| source.source == SourceId::Traffic).flat_map(|source| &source.targets);
        let prompts = traffic.filter_map(|target| match &target.reading {
            Reading::Sample(sample) => {
                let series = sample.histograms.get(&Signal::PromptTokens)?.values();
                let (sum, count) = series.fold((0.0, 0.0), |(sum, count), one| (sum + one.sum, count + one.count));
                Some((target.target.clone(), (sum, count)))
            }
            Reading::Failed(_) => None,
        });
        Self(prompts.collect())
    }

    /// Mean length of those that came after `before`; `None` where none did, or not the same front ends were seen, or one began anew.
    pub fn mean_since(&self, before: &Self) -> Option<Tokens> {
        if !self.0.keys().eq(before.0.keys()) {
            return None;
        }
        let (mut tokens, mut prompts) = (0.0, 0.0);
        for ((sum, count), (earlier_sum, earlier_count)) in self.0.values().zip(before.0.values()) {
            if count < earlier_count || sum < earlier_sum {
                return None;
            }
            (tokens, prompts) = (tokens + sum - earlier_sum, prompts + count - earlier_count);
        }
        (prompts > 0.0).then(|| Tokens(tokens / prompts))
    }
}

#[cfg(test)]
#[path = "prompts_tests.rs"]
mod tests;
