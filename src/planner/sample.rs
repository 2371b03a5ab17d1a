//! What can one target say of one model at one moment? The measurements that engines lower pages into, each with one meaning.
//!
//! Counters and histograms stay cumulative and apart by series, since only differences may be added. A gauge is one value: engines know how the
//! ranks and processes of their servers come together.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::few::Few;
use crate::units::{Replicas, Role};

/// The names of the measurements that every decision rests on. Others serve single policies, and most servers lack some of those.
pub const NEEDED: [&str; 5] =
    [Signal::Ttft.as_str(), Signal::Itl.as_str(), Signal::PromptTokens.as_str(), Signal::OutputTokens.as_str(), Tally::Finished.as_str()];

/// A measurement that a server exports as a cumulative histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Time from a request's arrival to its first token, seconds.
    Ttft,
    /// Time between tokens, seconds; [`ItlBasis`] says of what.
    Itl,
    /// Tokens of a request's prompt.
    PromptTokens,
    /// Tokens generated for a request.
    OutputTokens,
    /// Time from a request's arrival to its end, seconds.
    RequestDuration,
}

impl Signal {
    /// All signals, in the order in which a report lists them.
    pub const ALL: [Self; 5] = [Self::Ttft, Self::Itl, Self::PromptTokens, Self::OutputTokens, Self::RequestDuration];

    /// The name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Itl => "itl",
            Self::PromptTokens => "prompt_tokens",
            Self::OutputTokens => "output_tokens",
            Self::RequestDuration => "request_duration",
        }
    }
}

/// A measurement that a server exports as a cumulative counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tally {
    /// Requests that ended, whatever the outcome; does not depend on optional instrumentation.
    Finished,
    /// Tokens generated: counted as they come where the engine does so, else at a request's end.
    GeneratedTokens,
    /// Requests that arrived.
    Started,
    /// Requests that were given up before their end. Most engines count them among the finished ones as well.
    Aborted,
    /// Requests that were refused at the door: neither started nor finished.
    Rejected,
    /// Tokens of the requests' prompts, those that a cache held included.
    PromptTokens,
    /// Of the prompts' tokens, those that need not be computed because a cache held them.
    CachedTokens,
    /// What was looked up in the prefix cache: tokens, or blocks of them. Only its ratio to the hits means something.
    PrefixQueries,
    /// What of it was found, in the same unit.
    PrefixHits,
    /// Steps of speculative decoding that verified a draft, one for each request in each.
    Drafts,
    /// Tokens that were drafted.
    DraftedTokens,
    /// Tokens of drafts that were accepted.
    AcceptedTokens,
    /// Steps of the engine's loop.
    Iterations,
    /// Tokens that those steps worked on, of prompts and generated.
    IterationTokens,
    /// Seconds from the first steps that worked on requests to their first tokens.
    PrefillSeconds,
}

impl Tally {
    /// All tallies.
    pub const ALL: [Self; 15] = [
        Self::Finished,
        Self::GeneratedTokens,
        Self::Started,
        Self::Aborted,
        Self::Rejected,
        Self::PromptTokens,
        Self::CachedTokens,
        Self::PrefixQueries,
        Self::PrefixHits,
        Self::Drafts,
        Self::DraftedTokens,
        Self::AcceptedTokens,
        Self::Iterations,
        Self::IterationTokens,
        Self::PrefillSeconds,
    ];

    /// The name in configuration and reports; none is also a [`Signal`]'s.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::GeneratedTokens => "generated_tokens",
            Self::Started => "started",
            Self::Aborted => "aborted",
            Self::Rejected => "rejected",
            Self::PromptTokens => "prompt_tokens_total",
            Self::CachedTokens => "cached_tokens",
            Self::PrefixQueries => "prefix_queries",
            Self::PrefixHits => "prefix_hits",
            Self::Drafts => "drafts",
            Self::DraftedTokens => "drafted_tokens",
            Self::AcceptedTokens => "accepted_tokens",
            Self::Iterations => "iterations",
            Self::IterationTokens => "iteration_tokens",
            Self::PrefillSeconds => "prefill_seconds",
        }
    }
}

/// A measurement of the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gauge {
    /// Requests that are being worked on: the batch, and whatever else holds memory.
    Running,
    /// Requests that wait for a place in the batch, in any queue of the server. A front end knows which wait for their first token.
    Waiting,
    /// Requests that a front end holds, running and waiting ones alike; it cannot tell them apart. Infera lets go of a stream when it hands it on.
    InFlight,
    /// Tokens of the prompts that wait.
    QueuedPromptTokens,
    /// Share of the KV memory in use, in 0..=1: of the fullest rank where a server has several.
    KvUsage,
    /// Tokens that the KV memory holds, all ranks together.
    KvCapacityTokens,
    /// Most requests in a batch.
    MaxRunning,
    /// Most tokens in a step.
    MaxBatchedTokens,
}

impl Gauge {
    /// All gauges.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Waiting,
        Self::InFlight,
        Self::QueuedPromptTokens,
        Self::KvUsage,
        Self::KvCapacityTokens,
        Self::MaxRunning,
        Self::MaxBatchedTokens,
    ];

    /// The name in configuration and reports; none is also a [`Signal`]'s or a [`Tally`]'s.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::InFlight => "in_flight",
            Self::QueuedPromptTokens => "queued_prompt_tokens",
            Self::KvUsage => "kv_usage",
            Self::KvCapacityTokens => "kv_capacity_tokens",
            Self::MaxRunning => "max_running",
            Self::MaxBatchedTokens => "max_batched_tokens",
        }
    }
}

/// One series of a counter or histogram: its labels, sorted, as `name="value"` joined by commas. Labels that only repeat a value are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SeriesKey(Arc<str>);

impl SeriesKey {
    /// The labels as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for SeriesKey {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for SeriesKey {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// What one observation of [`Signal::Itl`] stands for. Where targets differ, the last of these in force counts for their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItlBasis {
    /// The mean of one request: (last - first) / (tokens - 1).
    #[default]
    PerRequest,
    /// One token.
    PerToken,
    /// One output event, which may carry several tokens (speculative decoding).
    PerEvent,
    /// One request's whole duration over its tokens. The time to its first token is inside, so it is not held against an ITL objective.
    WholeRequest,
}

impl ItlBasis {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::PerRequest, Self::PerToken, Self::PerEvent, Self::WholeRequest];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerRequest => "per_request",
            Self::PerToken => "per_token",
            Self::PerEvent => "per_event",
            Self::WholeRequest => "whole_request",
        }
    }
}

/// A cumulative histogram of one series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Sum of all observed values.
    pub sum: f64,
    /// Number of observations.
    pub count: f64,
    /// Upper bound and cumulative count, bounds strictly increasing and finite; the +Inf bucket is `count`. May be empty.
    pub buckets: Vec<(f64, f64)>,
    /// When the series began, seconds since the Unix epoch, where the page says so (`_created`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<f64>,
}

/// What one target says of one model at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When the server's process started, seconds since the Unix epoch, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_start: Option<f64>,
    /// Cumulative histograms by series.
    pub histograms: Few<Signal, Few<SeriesKey, Histogram>>,
    /// Cumulative counters by series.
    pub tallies: Few<Tally, Few<SeriesKey, f64>>,
    /// Ready replicas by role, where the target knows the fleet (a router). Fleet views are never added up over targets.
    pub workers: Few<Role, Replicas>,
    /// What the ITL histogram counts.
    #[serde(default)]
    pub itl_basis: ItlBasis,
    /// How the target stands, all its ranks and processes together.
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    pub gauges: Few<Gauge, f64>,
    /// How the fleet behind the target stands, where it is a router: counts of all its servers, shares of the mean one, capacities and limits of
    /// one. Each router says it again: the largest counts, never the sum over targets.
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    pub fleet: Few<Gauge, f64>,
    /// What a router says of its prefill servers alone, all of them together: the prompts that wait for them or are being computed.
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    pub prefill: Few<Gauge, f64>,
    /// What the server says it does, where it is one of a disaggregated pair. `None`: it does both, or does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
}

impl Sample {
    /// Whether it comes from a router or front end, which is no replica: it speaks of a fleet, or of requests without any memory of its own.
    pub fn is_of_a_router(&self) -> bool {
        if self.role.is_some() {
            return false;
        }
        let has = |gauge| self.gauges.contains_key(&gauge);
        !self.fleet.is_empty()
            || !self.prefill.is_empty()
            || !self.workers.is_empty()
            || (has(Gauge::InFlight) && !has(Gauge::KvUsage) && !has(Gauge::Running))
    }

    /// What is needed to take a difference of sums and counts later, without the buckets, which are most of a sample.
    #[must_use]
    pub fn without_buckets(&self) -> Self {
        let mut slim = self.clone();
        slim.histograms.values_mut().flat_map(Few::values_mut).for_each(|histogram| histogram.buckets = Vec::new());
        slim
    }

    /// Whether it says nothing of the model at all.
    pub fn is_empty(&self) -> bool {
        self.histograms.is_empty() && self.tallies.is_empty() && self.workers.is_empty() && self.gauges.is_empty() && self.fleet.is_empty()
    }
}

/// How a shared sample is written: as if it were not shared.
pub(super) mod shared {
    use super::{Arc, Deserialize, Deserializer, Sample, Serialize, Serializer};

    pub fn serialize<S: Serializer>(sample: &Arc<Sample>, serializer: S) -> Result<S::Ok, S::Error> {
        sample.as_ref().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Sample>, D::Error> {
        Sample::deserialize(deserializer).map(Arc::new)
    }
}
