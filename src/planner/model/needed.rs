//! How many replicas does one pool need, so that the wanted share of its requests meets each objective? The smallest count, by
//! `model/attain.rs`, of servers as `model/server.rs` knows them.
//!
//! | role | first tokens | tokens after the first |
//! |---|---|---|
//! | prefill | prompts queue before replicas that compute one after the other | others' |
//! | decode | others' | steps of the batch |
//! | aggregated | the same queue; a prompt also waits for half of a step, and is computed beside a batch | steps of the batch, longer by the share of time that prompts take |
//!
//! More arrivals never need fewer replicas: each share falls as the rate grows.

use std::borrow::Cow;
use std::cell::OnceCell;

use super::attain::{Arrivals, Decoder, Prompts, Queue, Taken, bisect, queue, reachable, within_ttft};
use super::server::Server;
use crate::planner::plan::Latencies;
use crate::units::{Replicas, Requests, Role, Seconds, Tokens};

/// Replicas beyond which no search goes.
pub const MOST: u32 = 100_000;
/// A count is not above this many times what carries the load, and so many more: beyond it a share is missed because of what was never measured.
/// Servers that were only seen overloaded do not tell what an easy step takes, and 32 replicas where six are enough are asked for to be sure of it.
const MOST_TIMES: f64 = 2.0;
const MOST_MORE: f64 = 2.0;
/// The part of the TTFT objective that a prompt may take on an idle pool, so that there is room for a wait.
const ROOMY: f64 = 0.9;
/// A load that is above a whole number of replicas by less is one: the noise of double precision.
const NOISE: f64 = 1e-9;

/// Requests of a pool, as it sees them.
pub struct Demand<'a> {
    /// What the pool does.
    pub role: Role,
    /// What one replica of it takes.
    pub server: Server<'a>,
    /// Prompts by their lengths.
    pub mix: Vec<Prompts>,
    /// Mean tokens of a prompt.
    pub input: f64,
    /// Mean tokens of an answer, at least 1.
    pub output: f64,
    /// Mean tokens of the context of a request that is being answered.
    pub context: f64,
    /// Tokens that a step yields for a request, at least 1.
    pub accepted: f64,
    /// Objective for the first token, seconds.
    pub ttft: f64,
    /// Objective for the others, seconds.
    pub itl: f64,
    /// Share of the requests that are to meet each objective.
    pub share: f64,
    /// Variance of the number of arrivals over its mean, at least 1.
    pub noise: f64,
    /// Begins empty.
    pub answers: Answers,
}

/// What was computed of a demand already, since a decision asks it many times.
#[derive(Default)]
pub struct Answers {
    capacity: OnceCell<f64>,
    taken: OnceCell<Taken>,
    /// Seconds that prompts may take on an idle pool, and the share of them that do not take more.
    in_reach: OnceCell<(f64, f64)>,
    /// Of a replica that computes no prompts.
    largest_batch: OnceCell<f64>,
}

impl Demand<'_> {
    /// Steps that a request stays for.
    fn steps(&self) -> f64 {
        (self.output / self.accepted).max(1.0)
    }

    fn step(&self, batch: f64) -> f64 {
        self.server.step(Requests(batch), Tokens(self.context)).get()
    }

    fn arriving(&self, rate: f64) -> Arrivals {
        Arrivals { rate, noise: self.noise }
    }

    /// Share of the prompts that can meet the objective: asked of an idle pool. What a busy one misses is missed, and not out of reach.
    fn reachable_prompts(&self) -> f64 {
        self.in_reach().1
    }

    /// Seconds that prompts may take on an idle pool, and the share of them that do not take more. Those that leave hardly a wait would ask for one
    /// replica after the other until none ever waits, so they are left out as those that are too long, unless there are no others.
    fn in_reach(&self) -> (f64, f64) {
        *self.answers.in_reach.get_or_init(|| {
            let mix = self.idle_mix();
            let within = |longest: f64| (longest, reachable(&mix, longest));
            Some(within(ROOMY * self.ttft)).filter(|(_, share)| *share > 0.0).unwrap_or_else(|| within(self.ttft))
        })
    }

    fn idle_mix(&self) -> Cow<'_, [Prompts]> {
        if self.role == Role::Aggregated { Cow::Owned(self.beside(0.0, self.step(0.0))) } else { Cow::Borrowed(&self.mix) }
    }

    /// Whether any count lets a prompt meet its objective; `None` for role decode.
    pub fn first_tokens_reachable(&self) -> Option<bool> {
        (self.role != Role::Decode).then(|| self.reachable_prompts() > 0.0)
    }

    /// Whether any count lets the other tokens meet theirs; `None` for role prefill.
    pub fn spacing_reachable(&self) -> Option<bool> {
        let step = |batch: f64| self.step(batch);
        (self.role != Role::Prefill).then(|| self.decoder(0.0, &step).is_some_and(|idle| idle.time(1.0) <= idle.objective))
    }

    /// Share of the requests that meet the pool's objectives; `None` where none can.
    pub fn within(&self, replicas: u32, rate: f64) -> Option<f64> {
        self.within_of(replicas, self.arriving(rate))
    }

    fn within_of(&self, replicas: u32, arrivals: Arrivals) -> Option<f64> {
        let replicas = replicas.max(1);
        let each = arrivals.rate / f64::from(replicas);
        let step = |batch: f64| self.step(batch);
        if [self.first_tokens_reachable(), self.spacing_reachable()].contains(&Some(false)) {
            return None;
        }
        let prompts = self.reachable_prompts();
        if self.role == Role::Prefill {
            return Some(within_ttft(self.queue(replicas, arrivals), &self.mix, self.ttft, self.in_reach().0) / prompts);
        }
        let Some(decoder) = self.decoder(each, &step) else { return Some(0.0) };
        let spacing = decoder.within(replicas, Arrivals { rate: each, ..arrivals });
        if self.role == Role::Decode {
            return Some(spacing);
        }
        let batch = decoder.batch(each, decoder.most).unwrap_or(decoder.most);
        let (time, idle) = (decoder.time(batch), self.step(0.0));
        let longest = self.in_reach().0 + self.longer(batch, time) - self.longer(0.0, idle);
        Some(spacing * within_ttft(self.queue(replicas, arrivals), &self.beside(batch, time), self.ttft, longest) / prompts)
    }

    /// The queue of prompts before so many replicas. What a prompt takes of one is the same beside a batch.
    fn queue(&self, replicas: u32, arrivals: Arrivals) -> Option<Queue> {
        queue(replicas, arrivals, *self.answers.taken.get_or_init(|| Taken::by(&self.mix)))
    }

    /// The prompts of a replica that decodes as well: each waits for half of a step, and is computed beside the batch.
    fn beside(&self, batch: f64, time: f64) -> Vec<Prompts> {
        let more = self.longer(batch, time);
        self.mix.iter().map(|prompts| Prompts { alone: prompts.alone + more, ..*prompts }).collect()
    }

    fn longer(&self, batch: f64, time: f64) -> f64 {
        time / 2.0 + self.step(batch)
    }

    /// One replica that gets `each` requests a second; `None` where prompts take more than all of its time.
    fn decoder<'s>(&self, each: f64, step: &'s dyn Fn(f64) -> f64) -> Option<Decoder<'s>> {
        let (mut prompts, mut spread) = (0.0, 0.0);
        if self.role == Role::Aggregated {
            let mean = |of: &dyn Fn(&Prompts) -> f64| self.mix.iter().map(|prompts| prompts.share * of(prompts)).sum::<f64>();
            prompts = each * mean(&|prompts| prompts.work);
            spread = each * mean(&|prompts| prompts.work * prompts.work);
        }
        let most = self.server.most(Tokens(self.input + self.output)).get();
        let decoder = Decoder { step, most, steps: self.steps(), objective: self.itl * self.accepted, prompts, spread, largest: None };
        let largest = (self.role == Role::Decode).then(|| *self.answers.largest_batch.get_or_init(|| decoder.largest_batch()));
        (prompts < 1.0).then_some(Decoder { largest, ..decoder })
    }

    /// The smallest count that is enough; where no count lets a request meet the objective, the one that carries them. No more than twice what carries
    /// them and two.
    pub fn need(&self, rate: f64) -> Replicas {
        self.need_of(self.arriving(rate))
    }

    /// The same for arrivals with another noise.
    pub fn need_of(&self, arrivals: Arrivals) -> Replicas {
        let rate = arrivals.rate;
        if rate <= 0.0 {
            return Replicas(0);
        }
        let carried = rate / self.capacity();
        // `as` saturates.
        let least = |count: f64| if count < f64::from(MOST) { (count as u32).max(1) } else { MOST };
        let Some(share) = self.within_of(1, arrivals) else { return Replicas(least((carried * (1.0 - NOISE)).ceil())) };
        if share >= self.share {
            return Replicas(1);
        }
        // Too few: fewer than carry the load.
        let few = least(carried.floor()).saturating_sub(1);
        let many = least(MOST_TIMES.mul_add(carried, MOST_MORE).ceil());
        Replicas(smallest(few, |count| count >= many || self.within_of(count, arrivals).is_none_or(|share| share >= self.share)))
    }

    /// Requests a second that one replica serves at most.
    pub fn capacity(&self) -> f64 {
        *self.answers.capacity.get_or_init(|| self.capacity_anew())
    }

    fn capacity_anew(&self) -> f64 {
        let prompts = 1.0 / self.mix.iter().map(|prompts| prompts.share * prompts.work).sum::<f64>();
        let step = |batch: f64| self.step(batch);
        match self.role {
            Role::Prefill => prompts,
            Role::Decode => self.decoder(0.0, &step).map_or(prompts, |decoder| decoder.rate(decoder.full())),
            Role::Aggregated => {
                bisect(0.0, prompts, |each| self.decoder(each, &step).is_some_and(|decoder| decoder.batch(each, decoder.full()).is_some()))
            }
        }
    }

    /// Requests beyond what the ready replicas hold in order.
    pub fn excess(&self, waiting: f64, running: f64, ready: Replicas) -> f64 {
        let step = |batch: f64| self.step(batch);
        let full = if self.role == Role::Prefill { None } else { self.decoder(self.capacity(), &step) };
        waiting + full.map_or(0.0, |decoder| (running - decoder.full() * ready.as_f64()).max(0.0))
    }

    /// Mean latencies with so many replicas; without one that their number would let grow without end.
    pub fn latencies(&self, replicas: Replicas, rate: f64) -> Latencies {
        let each = rate / f64::from(replicas.0.max(1));
        let step = |batch: f64| self.step(batch);
        let decoder = if self.role == Role::Prefill { None } else { self.decoder(each, &step) };
        let batch = decoder.as_ref().and_then(|decoder| decoder.batch(each, decoder.most));
        let time = decoder.as_ref().zip(batch).map(|(decoder, batch)| decoder.time(batch));
        let mix = match (self.role, batch.zip(time)) {
            (Role::Prefill, _) => Some(Cow::Borrowed(&self.mix)),
            (Role::Aggregated, Some((batch, time))) => Some(Cow::Owned(self.beside(batch, time))),
            _ => None,
        };
        let ttft = mix.and_then(|mix| {
            let alone: f64 = mix.iter().map(|prompts| prompts.share * prompts.alone).sum();
            Some(Seconds(alone + self.queue(replicas.0, self.arriving(rate))?.mean_wait()))
        });
        Latencies { ttft_seconds: ttft, itl_seconds: time.map(|time| Seconds(time / self.accepted)) }
    }
}

/// The smallest count above `few` that is enough, where more always are; [`MOST`] where none is. A fleet of thousands is searched in steps that grow,
/// and then halved.
pub(in crate::planner) fn smallest(few: u32, enough: impl Fn(u32) -> bool) -> u32 {
    let enough = |count: u32| count >= MOST || enough(count);
    let (mut few, mut step) = (few, 1);
    let mut many = few.saturating_add(step).min(MOST);
    while !enough(many) {
        (few, step) = (many, step.saturating_mul(2));
        many = few.saturating_add(step).min(MOST);
    }
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        if enough(middle) { many = middle } else { few = middle }
    }
    many
}

#[cfg(test)]
#[path = "needed_tests.rs"]
mod tests;
