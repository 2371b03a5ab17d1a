//! How many replicas does the profile say a load needs? The same for every policy: where a run begins, and where a search ends.

use std::collections::BTreeMap;

use crate::planner::model::envelope::Envelope;
use crate::units::{Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens};

/// A steady load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Arrivals.
    pub rate: RequestsPerSecond,
    /// Mean tokens of a prompt.
    pub input: Tokens,
    /// Mean tokens of an answer.
    pub output: Tokens,
}

impl Load {
    /// The tokens that a request holds on average while it decodes.
    fn context(&self) -> Tokens {
        Tokens(self.input.get() + self.output.get() / 2.0)
    }
}

/// Replicas of each role that carry the load at the profile's throughput, at least one. There is no room to wait in that.
pub fn need(envelope: &Envelope, gpus: &BTreeMap<Role, u32>, itl: Seconds, load: Load) -> BTreeMap<Role, Replicas> {
    let busy = busy(envelope, gpus, itl, load);
    busy.into_iter().map(|(role, busy)| (role, Replicas::ceil(busy).max(Replicas(1)))).collect()
}

/// The same where each replica does both: it is busy with either.
pub(super) fn need_of_both(envelope: &Envelope, gpus: &BTreeMap<Role, u32>, itl: Seconds, load: Load) -> BTreeMap<Role, Replicas> {
    let busy: f64 = busy(envelope, gpus, itl, load).values().sum();
    BTreeMap::from([(Role::Aggregated, Replicas::ceil(busy).max(Replicas(1)))])
}

/// Replicas that are busy all the time.
fn busy(envelope: &Envelope, gpus: &BTreeMap<Role, u32>, itl: Seconds, load: Load) -> BTreeMap<Role, f64> {
    let gpus_of = |role| f64::from(gpus.get(&role).copied().unwrap_or(1));
    let prompt = envelope.prompt(load.input).per_gpu.get() * gpus_of(Role::Prefill);
    let generation = envelope.best_within(itl, load.context()).point.per_gpu.get() * gpus_of(Role::Decode);
    let replicas = |tokens: Tokens, each: f64| load.rate.get() * tokens.get() / each;
    BTreeMap::from([(Role::Prefill, replicas(load.input, prompt)), (Role::Decode, replicas(load.output, generation))])
}

/// Requests that one replica of each role may hold: those whose prompts are computed within the objective, one after the other, and those
/// that decode at the best point of the profile within the objective. At least one.
pub fn per_replica(envelope: &Envelope, ttft: Seconds, itl: Seconds, load: Load) -> BTreeMap<Role, Requests> {
    let prompts = ttft.get() / envelope.prompt(load.input).latency.get();
    let best = envelope.best_within(itl, load.context()).point;
    let decoding = best.kv_fraction.get() * envelope.document().decode.max_kv_tokens / load.context().get().max(1.0);
    let decoding = Requests(decoding.max(1.0));
    // Where each replica does both, those that decode are most of what it holds.
    BTreeMap::from([(Role::Prefill, Requests(prompts.max(1.0))), (Role::Decode, decoding), (Role::Aggregated, decoding)])
}
