//! How many requests can one replica of a pool serve at once? The least of what the engine allows, what its KV memory holds, and what full batches
//! were seen to hold.
//!
//! | bound | where from | decode, 4620 + 211 tokens |
//! |---|---|---|
//! | requests of a batch | the engine's page, else `max_num_seqs`, else `max_batch_size` | 256 |
//! | KV memory over the tokens of a request, i + (o + 1)/2 | the engine's page, else `max_kv_tokens` | 224 133 / 4726 = 47.4 |
//! | full batches over the same | windows in which requests waited and none could start (`learn`) | 213 000 / 4726 = 45.1 |
//!
//! Without the second a pool that is short of memory looks idle: its tokens come in time, and its requests wait for a place.

use super::input::Gauge;
use super::learn::Learned;
use super::memory::SourceMemory;
use super::model::queueing::Lengths;
use super::policy::{PoolPolicy, QueueingPolicy};
use crate::units::{Requests, Role};

/// The bound. `lengths` are those of the requests to come.
pub(super) fn largest(
    source: Option<&SourceMemory>,
    pool: &PoolPolicy,
    queueing: &QueueingPolicy,
    learned: Option<&Learned>,
    lengths: Lengths,
) -> Requests {
    let gauges = |gauge| source.into_iter().flat_map(|source| source.targets.values()).filter_map(move |target| target.last_gauge(gauge));
    let told = pool.capabilities.max_num_seqs.unwrap_or(queueing.max_batch);
    let requests = gauges(Gauge::MaxRunning).filter(|most| *most >= 1.0).reduce(f64::max).unwrap_or(f64::from(told.get()));
    if pool.role == Role::Prefill {
        // A prompt leaves with its first token.
        return Requests(requests);
    }
    let exported = gauges(Gauge::KvCapacityTokens).filter(|tokens| *tokens >= 1.0).reduce(f64::min);
    let memory = exported.or(pool.capabilities.max_kv_tokens.map(|tokens| f64::from(tokens.get())));
    let seen = learned.and_then(|learned| learned.full_batch).map(|tokens| tokens.get());
    let least = [memory, seen].into_iter().flatten().map(|tokens| tokens / lengths.decoding_context()).fold(requests, f64::min);
    Requests(least.max(1.0))
}
