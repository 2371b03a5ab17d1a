//! What would the next request see if there were another number of replicas? The loads of one pool, projected to any count.
//!
//! The rule is `propose/load.rs`. What it is given depends on the count: of the queue, what would still wait (`backlog.rs`); of a full replica's
//! batch, what would be left of it.

use super::backlog::Backlog;
use super::input::{Gauge, ModelInput};
use super::load::Lengths;
use super::memory::Memory;
use super::model::iteration::{Iteration, Work};
use super::plan::Latencies;
use super::policy::{PoolPolicy, RegressionPolicy};
use super::propose::load::{Cause, Counts, Decision, Engine, Load, Outlook, Rules, decide};
use super::sizing;
use super::watching::Watched;
use crate::units::{Replicas, Requests, Role, Seconds, Tokens};
use std::num::NonZeroU32;

/// One pool in one round.
pub(super) struct Scene<'a> {
    pub role: Role,
    pub engine: Option<Engine>,
    /// Of each replica; the queue is what would still wait.
    pub loads: Vec<Load>,
    pub backlog: &'a Backlog,
    pub rules: Rules,
    pub current: Replicas,
    pub least: Replicas,
    pub floor: Option<Replicas>,
}

impl Scene<'_> {
    /// What the rule says where so many stand.
    pub fn at(&self, standing: Replicas) -> Decision {
        let counts = Counts { current: self.current, standing, floor: self.least, lower_bound: self.floor };
        let ease = self.engine.as_ref().map_or(1.0, |engine| ease(engine, &self.loads, self.backlog.relief(standing)));
        let eased = self.engine.map(|engine| Engine { prefill: Tokens(engine.prefill.get() * ease), ..engine });
        // The rule takes loads N / S times; what runs does not follow that where a full replica is relieved.
        let running = if ease < 1.0 { (ease * standing.as_f64() / self.current.as_f64()).min(1.0) } else { 1.0 };
        let of = |load: &Load| Load { decoding: Requests(load.decoding.get() * running), kv: Tokens(load.kv.get() * running), ..*load };
        decide(self.role, eased.as_ref(), &self.loads.iter().map(of).collect::<Vec<_>>(), &counts, &self.rules)
    }

    /// The smallest count that would be enough; `None` where that cannot be told.
    pub fn enough(&self, decision: &Decision, stands: Replicas) -> Option<Replicas> {
        if decision.cause == Cause::InsufficientData {
            return None;
        }
        let less = |count: Replicas| Replicas(count.0 - 1);
        let mut count = decision.replicas.max(stands);
        while count.0 > 1 && self.at(count).replicas < count && self.backlog.carried_by(less(count)) {
            count = less(count);
        }
        Some(count)
    }

    /// Whether some replica would serve the next request within the objectives.
    pub fn any_in_time(&self, decision: &Decision) -> bool {
        let any = |outlook: &Option<Outlook>, most: Seconds| {
            outlook.as_ref().is_none_or(|outlook| outlook.estimates.iter().any(|estimate| *estimate <= most))
        };
        any(&decision.ttft, self.rules.ttft) && any(&decision.itl, self.rules.itl)
    }
}

/// The longest that any replica would give.
pub(super) fn latencies(decision: &Decision) -> Latencies {
    let longest = |outlook: &Option<Outlook>| {
        let estimates = outlook.as_ref()?.estimates.iter().map(|estimate| estimate.get());
        estimates.reduce(f64::max).filter(|estimate| estimate.is_finite()).map(Seconds)
    };
    Latencies { ttft_seconds: longest(&decision.ttft), itl_seconds: longest(&decision.itl) }
}

/// How much of what a full replica has in an iteration it would have with `relief` of its prompts. Fewer prompts make iterations shorter, and in a
/// shorter iteration fewer come and fewer are under way: x solves x = relief * time(work * x) / time(work).
///
/// 42 ms = 6.5 + 35.5 of work, relief 0.44: x = 0.44 * (6.5 + 35.5 x) / 42 gives x = 0.11, and iterations of 10.4 ms.
fn ease(engine: &Engine, loads: &[Load], relief: f64) -> f64 {
    if relief >= 1.0 || loads.is_empty() {
        return 1.0;
    }
    let mean = |of: fn(&Load) -> f64| loads.iter().map(of).sum::<f64>() / loads.len() as f64;
    let (decoding, kv) = (mean(|load| load.decoding.get()), mean(|load| load.kv.get()));
    let time = |share: f64| {
        let work = Work { prefill: Tokens(engine.prefill.get() * share), decoding: Requests(decoding * share), kv: Tokens(kv * share) };
        engine.iteration.time(work).get()
    };
    // A contraction by less than the relief: sixty steps are exact for any relief below 0.55, and close enough for the others.
    (0..60).fold(1.0, |share, _| relief * time(share) / time(1.0))
}

/// Most tokens in a step; `None` where neither the engine, the operator nor a front end says so.
pub(super) fn batched(input: &ModelInput, pool: &PoolPolicy) -> Option<NonZeroU32> {
    sizing::limit(input, pool, Gauge::MaxBatchedTokens)
}

/// What is known of the pool's engines; `None` while the cost of an iteration is not, or no length is.
pub(super) fn engine(
    memory: &Memory,
    input: &ModelInput,
    pool: &PoolPolicy,
    lengths: Lengths,
    settings: &RegressionPolicy,
) -> Option<Engine> {
    let Watched { iterations, .. } = memory.watched.get(&pool.pool)?;
    let iteration: Iteration = iterations.line(settings.least).ok()?;
    let prompt = lengths.input.or(iterations.input())?;
    let context = iterations.context().or_else(|| Some(Tokens(prompt.get() + lengths.output?.get() / 2.0)));
    Some(Engine {
        iteration,
        batched_tokens: batched(input, pool),
        kv_tokens: sizing::limit(input, pool, Gauge::KvCapacityTokens),
        input: prompt,
        context: context.unwrap_or(prompt),
        prefill: iterations.prefill().unwrap_or_default(),
        hit_rate: memory.reuse.hit_rate,
        accept_length: memory.reuse.accept_length,
    })
}
