//! One replica more, one less, or as it is? The fast loop of a target of latencies: what would the next request see at each replica right now?
//!
//! `threshold.rs` asks how full replicas are; this asks how long the next request would take, from the time of an iteration that was learned
//! (`learn/iterations.rs`) and from what each replica holds at the moment.
//!
//! | estimate | formula |
//! |---|---|
//! | TTFT | the queued prompt tokens and one mean prompt, less what a cache holds, in chunks of a step; in an aggregated server each chunk carries its decoding |
//! | ITL | one iteration with everything that runs and waits and one more request of mean context, over the tokens that a step yields; in an aggregated server with the mean prompt tokens of an iteration beside it |
//!
//! - Up: every estimate is above its objective. One more replica.
//! - Down: the rest could carry it. With N replicas each of the rest gets N / (N - 1) of the load. TTFT: what the queue adds may use at most the
//!   sensitivity's share of what the objective leaves over a lone prompt. ITL: below the sensitivity's share of its objective, and the KV memory
//!   must hold it. Every replica has to pass. So a count that is left is not wanted back at once.
//! - An aggregated pool grows if either latency asks for it and shrinks if both allow it.
//! - Not below what the slow loop predicts (`throughput.rs`).
//!
//! The advice runs ahead of reality, and does not run away. Loads are projected to the count that stands: with N replicas there and S recommended,
//! queue, memory and requests are taken N / S times. While new replicas start nothing more is added than the projection asks for; when
//! they are there, what they really hold replaces it. Of a queue the caller gives what would still wait if they were there (`backlog.rs`), so that
//! the same projection may also take back what was too much.
//!
//! One idle replica. The original adds nothing while a single replica could take the next request in time, which is right where a router
//! sends it there, and wrong for ever where it does not: a replica that just started, one that prefixes never lead to, one that is broken. The
//! middle is [`Judge::Spread`]: it also grows when the load would break the objective even if it were spread evenly over all replicas, the idle
//! ones with the rest. An idle replica is thus neither ignored (what it could take is counted) nor a veto (only as far as it could help). Where
//! spreading would do, more replicas are no cure; the answer is to stay and the reason is `Unbalanced`, for the operator to look at the routing. With
//! [`Judge::Every`] it is the original's rule; where loads are even both are the same.
//!
//! Worked, prefill, 2 ms + 10 us a token, steps of 2048, prompts of 1500, two replicas, TTFT 500 ms, sensitivity 80 %. A queue of 4000 tokens: 5500
//! tokens are 22.48 + 22.48 + 16.04 = 61 ms. Down with 15 000 tokens queued at each? A lone prompt takes 17 ms, so 0.8 * 483 = 386 ms are
//! left for waiting. The one that is left gets 30 000 and takes 347 ms: 330 more than alone, so down. At 18 000 it would be 396: refused.
//!
//! With no line learned yet, or no replica seen, it answers `InsufficientData` and keeps the count; silent replicas are the caller's business, who
//! knows how many there should be.
//!
//! Known limits: estimates of the next request, not of a percentile. One replica a decision, so that a burst is the slow loop's and the queue's.

use std::cmp::Ordering;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::planner::model::capacity::trusted_hit_rate;
use crate::planner::model::iteration::{Iteration, Work};
use crate::units::{Ratio, Replicas, Requests, Role, Seconds, Tokens};

/// What one replica holds at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Prompt tokens that wait.
    pub queued_prefill: Tokens,
    /// Requests that are being decoded.
    pub decoding: Requests,
    /// KV tokens of those.
    pub kv: Tokens,
    /// Requests that wait to be decoded.
    pub queued_decoding: Requests,
    /// KV tokens that those will need.
    pub queued_kv: Tokens,
}

/// What all replicas of a pool have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Engine {
    /// The time of an iteration.
    pub iteration: Iteration,
    /// Most tokens in a step; without them no TTFT can be told.
    pub batched_tokens: Option<NonZeroU32>,
    /// Tokens that the KV memory holds; unknown, it is never the limit.
    pub kv_tokens: Option<NonZeroU32>,
    /// Mean tokens of a prompt.
    pub input: Tokens,
    /// Mean KV tokens of a decoding request.
    pub context: Tokens,
    /// Mean prompt tokens of an iteration.
    pub prefill: Tokens,
    /// Share of the prompts that a cache holds.
    pub hit_rate: Option<Ratio>,
    /// Tokens that a decoding step yields; `None`: 1.
    pub accept_length: Option<Ratio>,
}

/// How a pool is judged whose replicas are not loaded alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// It grows when every replica is above the objective.
    Every,
    /// It also grows when the mean load is.
    Spread,
}

/// The objectives and how cautious a decrease is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Time to first token.
    pub ttft: Seconds,
    /// Time between tokens.
    pub itl: Seconds,
    /// Share of an objective, in 0..=1, that the rest may use after a decrease; 0: no decrease.
    pub sensitivity: Ratio,
    /// How unequal loads are judged.
    pub judge: Judge,
}

/// The counts that a decision starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Replicas that carry the loads.
    pub current: Replicas,
    /// The last recommendation; `current` where there was none.
    pub standing: Replicas,
    /// The smallest count.
    pub floor: Replicas,
    /// What the slow loop predicts; `None` without one.
    pub lower_bound: Option<Replicas>,
}

/// Why a count is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An objective would be missed, or the slow loop wants more.
    Up,
    /// The rest can carry the load.
    Down,
    /// Nothing asks for a change.
    Stay,
    /// The rest could not carry the load.
    RefusedConsolidation,
    /// The rest could carry the load, but the slow loop predicts more.
    CappedByThroughput,
    /// Single replicas miss an objective that would be met if the load were spread evenly.
    Unbalanced,
    /// The time of an iteration or the load is not known.
    InsufficientData,
}

/// One latency of all replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// What the next request would see, of each replica in the order of the loads, at the count that stands.
    pub estimates: Vec<Seconds>,
    /// Whether one replica less could carry the load.
    pub can_shrink: bool,
    /// The count that this latency asks for; `None`: no change.
    pub wish: Option<Replicas>,
    /// Whether single estimates are above the objective and the load, spread evenly, is not.
    pub unbalanced: bool,
}

/// The count of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The count, before the GPU budget.
    pub replicas: Replicas,
    /// Why.
    pub cause: Cause,
    /// Time to first token; `None` for role decode, or where it cannot be told.
    pub ttft: Option<Outlook>,
    /// Time between tokens; `None` for role prefill.
    pub itl: Option<Outlook>,
}

/// Decides for one pool from the loads of its replicas.
pub fn decide(role: Role, engine: Option<&Engine>, loads: &[Load], counts: &Counts, rules: &Rules) -> Decision {
    let engine = engine.filter(|_| !loads.is_empty() && counts.current.0 > 0 && counts.standing.0 > 0);
    let view = engine.map(|engine| View { role, engine, loads, counts, rules });
    let ttft = view.as_ref().filter(|_| role != Role::Decode).and_then(View::ttft);
    let itl = view.as_ref().filter(|_| role != Role::Prefill).map(View::itl);
    let (wish, cause) = match (&ttft, &itl) {
        (None, None) => (None, Cause::InsufficientData),
        (Some(ttft), None) => (ttft.wish, ttft.cause(counts)),
        (None, Some(itl)) if role == Role::Decode => (itl.wish, itl.cause(counts)),
        // An aggregated pool may grow by ITL alone, but gives nothing back while nobody can tell what TTFT would be.
        (None, Some(itl)) if itl.cause(counts) == Cause::Up => (itl.wish, Cause::Up),
        (None, Some(_)) => (None, Cause::InsufficientData),
        (Some(ttft), Some(itl)) => both(ttft, itl, counts),
    };
    let (replicas, cause) = bounded(wish, cause, counts);
    Decision { replicas, cause, ttft, itl }
}

/// Up if either says so, down if both do.
fn both(ttft: &Outlook, itl: &Outlook, counts: &Counts) -> (Option<Replicas>, Cause) {
    let causes = [ttft.cause(counts), itl.cause(counts)];
    let wish = ttft.wish.max(itl.wish);
    if causes.contains(&Cause::Up) {
        return (wish, Cause::Up);
    }
    if ttft.can_shrink && itl.can_shrink {
        return (wish, Cause::Stay);
    }
    let strongest = [Cause::Unbalanced, Cause::RefusedConsolidation].into_iter().find(|cause| causes.contains(cause));
    (None, strongest.unwrap_or(Cause::Stay))
}

/// Not below the slow loop's bound, nor below the floor.
fn bounded(wish: Option<Replicas>, cause: Cause, counts: &Counts) -> (Replicas, Cause) {
    let standing = counts.standing;
    let wanted = wish.unwrap_or(standing);
    let replicas = wanted.max(counts.floor).max(counts.lower_bound.unwrap_or_default());
    let cause = match replicas.cmp(&standing) {
        Ordering::Greater => Cause::Up,
        Ordering::Less => Cause::Down,
        Ordering::Equal if wanted < standing => Cause::CappedByThroughput,
        Ordering::Equal => cause,
    };
    (replicas, cause)
}

impl Outlook {
    fn cause(&self, counts: &Counts) -> Cause {
        match self.wish {
            Some(wish) if wish > counts.standing => Cause::Up,
            Some(wish) if wish < counts.standing => Cause::Down,
            _ if self.unbalanced => Cause::Unbalanced,
            None if counts.standing.0 > 1 => Cause::RefusedConsolidation,
            _ => Cause::Stay,
        }
    }
}

/// Everything that estimates are made from.
struct View<'a> {
    role: Role,
    engine: &'a Engine,
    loads: &'a [Load],
    counts: &'a Counts,
    rules: &'a Rules,
}

impl View<'_> {
    /// `None` where the size of a step is not known.
    fn ttft(&self) -> Option<Outlook> {
        let step = self.engine.batched_tokens?;
        let share = self.share();
        let at_standing = |load: &Load| self.first_token(load, step, share, Beside { scale: share, queued: false });
        let can_shrink = self.scale_of_the_rest().is_some_and(|scale| {
            self.loads.iter().all(|load| {
                let beside = Beside { scale, queued: true };
                let alone = self.first_token(load, step, 0.0, beside);
                let budget = (self.rules.ttft.get() - alone) * self.rules.sensitivity.get();
                budget > 0.0 && self.first_token(load, step, scale, beside) - alone < budget
            })
        });
        Some(self.outlook(at_standing, self.rules.ttft, can_shrink))
    }

    fn itl(&self) -> Outlook {
        let share = self.share();
        let allowed = self.rules.itl.get() * self.rules.sensitivity.get();
        let can_shrink = self.scale_of_the_rest().is_some_and(|scale| {
            self.loads.iter().all(|load| {
                let queued_prompts = self.becomes_memory(load);
                let kv = ((load.kv.get() + load.queued_kv.get() + queued_prompts) * scale).floor();
                let holds = self.engine.kv_tokens.is_none_or(|most| kv < f64::from(most.get()));
                holds && self.next_token(load, scale, queued_prompts) < allowed
            })
        });
        self.outlook(|load| self.next_token(load, share, 0.0), self.rules.itl, can_shrink)
    }

    fn outlook(&self, estimate: impl Fn(&Load) -> f64, objective: Seconds, can_shrink: bool) -> Outlook {
        let estimates: Vec<Seconds> = self.loads.iter().map(|load| Seconds(estimate(load))).collect();
        let above = estimates.iter().filter(|estimate| **estimate > objective).count();
        let spread = || estimate(&mean(self.loads)) > objective.get();
        let grows = above == estimates.len() || (self.rules.judge == Judge::Spread && above > 0 && spread());
        let standing = self.counts.standing.0;
        let wish = if grows {
            Some(Replicas(standing.saturating_add(1)))
        } else {
            can_shrink.then(|| Replicas(standing - 1).max(self.counts.floor))
        };
        let unbalanced = self.rules.judge == Judge::Spread && above > 0 && !grows;
        Outlook { estimates, can_shrink, wish, unbalanced }
    }

    /// N / S: how much of its load a replica would have if the count that stands were there.
    fn share(&self) -> f64 {
        self.counts.current.as_f64() / self.counts.standing.as_f64()
    }

    /// How much of its load a replica would have with one less than stand; `None` where that is none.
    fn scale_of_the_rest(&self) -> Option<f64> {
        let Counts { current, standing, .. } = *self.counts;
        (standing.0 > 1).then(|| current.as_f64() / Replicas(standing.0 - 1).as_f64())
    }

    /// Seconds until the first token of the next request.
    fn first_token(&self, load: &Load, step: NonZeroU32, queue_scale: f64, beside: Beside) -> f64 {
        let missed = 1.0 - trusted_hit_rate(self.engine.hit_rate).get();
        let tokens = ((load.queued_prefill.get() * queue_scale + self.engine.input.get()) * missed).ceil();
        // `as` saturates, and takes what is no number for none.
        self.engine.iteration.prompt_time(tokens as u64, step, self.decoding(load, beside)).get()
    }

    /// What each chunk carries beside the prompt.
    fn decoding(&self, load: &Load, beside: Beside) -> Work {
        if self.role != Role::Aggregated {
            return Work::default();
        }
        let queued = if beside.queued { (load.queued_decoding.get(), load.queued_kv.get()) } else { (0.0, 0.0) };
        let scaled = |running: f64, queued: f64| ((running + queued) * beside.scale).ceil();
        Work {
            prefill: Tokens(0.0),
            decoding: Requests(scaled(load.decoding.get(), queued.0)),
            kv: Tokens(scaled(load.kv.get(), queued.1)),
        }
    }

    /// Seconds between the tokens of the next request; `queued_prompts` tokens of memory come to what is there.
    fn next_token(&self, load: &Load, scale: f64, queued_prompts: f64) -> f64 {
        let kv = (load.kv.get() + load.queued_kv.get() + queued_prompts) * scale + self.engine.context.get();
        let requests = (load.decoding.get() + load.queued_decoding.get()) * scale + 1.0;
        let prefill = if self.role == Role::Aggregated { self.engine.prefill.get().ceil() } else { 0.0 };
        let work = Work { prefill: Tokens(prefill), decoding: Requests(requests.ceil()), kv: Tokens(kv.ceil()) };
        let accepted =
            self.engine.accept_length.map(Ratio::get).filter(|accepted| accepted.is_finite()).map_or(1.0, |accepted| accepted.max(1.0));
        self.engine.iteration.time(work).get() / accepted
    }

    /// Queued prompts of an aggregated server will be decoded by it.
    fn becomes_memory(&self, load: &Load) -> f64 {
        if self.role == Role::Aggregated { load.queued_prefill.get() } else { 0.0 }
    }
}

/// How much decoding goes on beside a prompt.
#[derive(Clone, Copy)]
struct Beside {
    scale: f64,
    /// Whether what waits counts as well.
    queued: bool,
}

/// The load of each replica if all had the same.
fn mean(loads: &[Load]) -> Load {
    let mean = |of: fn(&Load) -> f64| loads.iter().map(of).sum::<f64>() / loads.len() as f64;
    Load {
        queued_prefill: Tokens(mean(|load| load.queued_prefill.get())),
        decoding: Requests(mean(|load| load.decoding.get())),
        kv: Tokens(mean(|load| load.kv.get())),
        queued_decoding: Requests(mean(|load| load.queued_decoding.get())),
        queued_kv: Tokens(mean(|load| load.queued_kv.get())),
    }
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
