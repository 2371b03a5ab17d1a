//! What happens in which order? The pools behind their routers, and the queue of events.
//!
//! The life of a request: it arrives at a router (any, with equal chance); goes to the prefill replica with the least work; its KV cache is
//! handed over to the decode replica with the least promised memory that has room, and waits for room if none has; there the client gets
//! the first token, which prefill computed; then come iterations until the last token.
//!
//! So TTFT holds the wait for prefill, prefill, the hand-over and the wait for KV memory, as it does where a router measures it.
//! A request of one token needs no decode replica. Requests wait at the router while a pool has no ready replica.
//!
//! Left out: prefill replicas are not held up by memory that waits to be handed over.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

use super::counters::{RouterCounters, Truth};
use super::decode::{DecodeReplica, span};
use super::pool::{Pool, ReplicaId};
use super::prefill::PrefillReplica;
use super::random::Random;
use super::workload::Request;
use crate::engines::render::{InferaPage, InferaSeries, infera_edges};
use crate::planner::input::Signal;
use crate::planner::model::envelope::Envelope;
use crate::units::{Replicas, Role, Seconds, Tokens};

/// What a fleet is made of.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// What one replica can do.
    pub envelope: Envelope,
    /// Prefill replicas that are ready at the start.
    pub prefill: Replicas,
    /// Decode replicas that are ready at the start.
    pub decode: Replicas,
    /// From the request for a replica to its readiness.
    pub startup: Duration,
    /// From the end of prefill to the arrival of the KV cache at a decode replica.
    pub hand_over: Duration,
    /// Routers that share the traffic.
    pub routers: NonZeroUsize,
    /// Decides which router takes a request.
    pub seed: u64,
}

/// A request inside the fleet.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    router: usize,
    arrived: Duration,
    first_token: Duration,
    /// Tokens of the prompt.
    pub input: u32,
    /// Tokens to be generated, the first included.
    pub output: u32,
}

impl Sequence {
    /// KV tokens that it occupies at its end.
    pub fn kv_tokens(&self) -> u64 {
        u64::from(self.input) + u64::from(self.output)
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    /// When it arrived.
    pub arrived: Duration,
    /// From arrival to first token.
    pub ttft: Duration,
    /// Mean spacing of the tokens after the first; `None` if there was only one.
    pub itl: Option<Duration>,
}

impl Finished {
    /// Whether the request meets both objectives; one of a single token has no spacing to miss.
    pub fn within(&self, ttft: Seconds, itl: Seconds) -> bool {
        self.ttft.as_secs_f64() <= ttft.get() && self.itl.is_none_or(|found| found.as_secs_f64() <= itl.get())
    }
}

#[derive(Debug)]
enum Event {
    Started(Role, ReplicaId),
    Prefilled(ReplicaId, Sequence),
    HandedOver(Sequence),
    Iterated(ReplicaId),
}

/// An event in the queue. Events at the same time happen in the order in which they were scheduled.
#[derive(Debug)]
struct Scheduled {
    at: Duration,
    order: u64,
    event: Event,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

/// A disaggregated deployment in virtual time.
#[derive(Debug)]
pub struct Fleet {
    envelope: Envelope,
    kv_limit: u64,
    startup: Duration,
    hand_over: Duration,
    now: Duration,
    events: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    prefill: Pool<PrefillReplica>,
    decode: Pool<DecodeReplica>,
    /// Arrived while no prefill replica was ready.
    awaiting_prefill: VecDeque<Sequence>,
    /// Handed over while no decode replica had room.
    awaiting_decode: VecDeque<Sequence>,
    routers: Vec<RouterCounters>,
    choice: Random,
    truth: Truth,
    finished: Vec<Finished>,
}

impl Fleet {
    /// A fleet at time zero, without requests.
    pub fn new(settings: FleetSettings) -> Self {
        Self {
            // `as` rounds down and saturates: a part of a token is no room.
            kv_limit: settings.envelope.document().decode.max_kv_tokens as u64,
            envelope: settings.envelope,
            startup: settings.startup,
            hand_over: settings.hand_over,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            scheduled: 0,
            prefill: Pool::new(settings.prefill),
            decode: Pool::new(settings.decode),
            awaiting_prefill: VecDeque::new(),
            awaiting_decode: VecDeque::new(),
            routers: vec![RouterCounters::default(); settings.routers.get()],
            choice: Random::stream(settings.seed, 4),
            truth: Truth::default(),
            finished: Vec::new(),
        }
    }

    /// Lets time run up to and including `until`. A time in the past does nothing.
    pub fn advance_to(&mut self, until: Duration) {
        while let Some(Reverse(next)) = self.events.peek() {
            if next.at > until {
                break;
            }
            let Some(Reverse(next)) = self.events.pop() else { break };
            self.now = next.at;
            self.happen(next.event);
        }
        self.now = self.now.max(until);
    }

    /// A request arrives. Time runs up to its arrival; one from the past arrives now.
    pub fn offer(&mut self, request: Request) {
        self.advance_to(request.at);
        self.truth.offered += 1;
        let sequence = Sequence {
            router: self.choice.below(self.routers.len()),
            arrived: self.now,
            first_token: self.now,
            input: request.input.max(1),
            output: request.output.max(1),
        };
        if sequence.kv_tokens() > self.kv_limit {
            self.truth.refused += 1;
            return;
        }
        self.routers[sequence.router].in_flight += 1;
        self.awaiting_prefill.push_back(sequence);
        self.feed_prefill();
    }

    /// Scales a pool. New replicas are ready after the start-up; those given up finish their requests.
    /// A disaggregated fleet has no aggregated pool; a target for one does nothing.
    pub fn set_target(&mut self, role: Role, target: Replicas) {
        let starting = match role {
            Role::Prefill => self.prefill.set_target(target, self.now),
            Role::Decode => self.decode.set_target(target, self.now),
            Role::Aggregated => Vec::new(),
        };
        for id in starting {
            self.schedule(self.startup, Event::Started(role, id));
        }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse(Scheduled { at: self.now + after, order: self.scheduled, event }));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Started(Role::Prefill, id) => {
                if self.prefill.started(id) {
                    self.feed_prefill();
                }
            }
            Event::Started(_, id) => {
                if self.decode.started(id) {
                    self.feed_decode();
                }
            }
            Event::Prefilled(id, sequence) => {
                if let Some(replica) = self.prefill.get_mut(id) {
                    replica.finish();
                }
                self.prefill.release_if_drained(id, self.now);
                self.schedule(self.hand_over, Event::HandedOver(sequence));
            }
            Event::HandedOver(sequence) => {
                if sequence.output == 1 {
                    self.finish(Sequence { first_token: self.now, ..sequence });
                } else {
                    self.awaiting_decode.push_back(sequence);
                    self.feed_decode();
                }
            }
            Event::Iterated(id) => self.iterated(id),
        }
    }

    fn feed_prefill(&mut self) {
        while let Some(&sequence) = self.awaiting_prefill.front() {
            let now = self.now;
            let Some(id) = self.prefill.least_loaded(|replica| replica.backlog(now)) else { break };
            let Some(replica) = self.prefill.get_mut(id) else { break };
            self.awaiting_prefill.pop_front();
            let service = span(self.envelope.prompt(Tokens(f64::from(sequence.input))).latency);
            let done = replica.accept(service, now);
            self.schedule(done - now, Event::Prefilled(id, sequence));
        }
    }

    /// First come, first served: a long request that finds no room holds up the shorter ones behind it, so that it is never starved.
    fn feed_decode(&mut self) {
        while let Some(&sequence) = self.awaiting_decode.front() {
            let Some(id) = self.decode.least_loaded(DecodeReplica::promised) else { break };
            let Some(replica) = self.decode.get_mut(id) else { break };
            if replica.promised() + sequence.kv_tokens() > self.kv_limit {
                break;
            }
            self.awaiting_decode.pop_front();
            replica.admit(Sequence { first_token: self.now, ..sequence });
            self.iterate(id);
        }
    }

    fn iterate(&mut self, id: ReplicaId) {
        if let Some(lasts) = self.decode.get_mut(id).and_then(|replica| replica.begin(&self.envelope)) {
            self.schedule(lasts, Event::Iterated(id));
        }
    }

    fn iterated(&mut self, id: ReplicaId) {
        let ended = self.decode.get_mut(id).map(DecodeReplica::end).unwrap_or_default();
        let some_ended = !ended.is_empty();
        for sequence in ended {
            self.finish(sequence);
        }
        if some_ended {
            self.decode.release_if_drained(id, self.now);
            self.feed_decode();
        }
        self.iterate(id);
    }

    fn finish(&mut self, sequence: Sequence) {
        let ttft = sequence.first_token - sequence.arrived;
        let itl = (sequence.output > 1).then(|| (self.now - sequence.first_token) / (sequence.output - 1));
        let duration = self.now - sequence.arrived;
        let truth = &mut self.truth;
        truth.completed += 1;
        truth.ttft_sum += ttft.as_secs_f64();
        truth.duration_sum += duration.as_secs_f64();
        truth.input_tokens += u64::from(sequence.input);
        truth.output_tokens += u64::from(sequence.output);
        if let Some(itl) = itl {
            truth.itl_sum += itl.as_secs_f64();
            truth.itl_count += 1;
        }
        self.finished.push(Finished { arrived: sequence.arrived, ttft, itl });

        let router = &mut self.routers[sequence.router];
        router.in_flight -= 1;
        let mut observe = |signal, value| router.observe(signal, infera_edges(signal), value, self.now);
        observe(Signal::Ttft, ttft.as_secs_f64());
        observe(Signal::RequestDuration, duration.as_secs_f64());
        observe(Signal::PromptTokens, f64::from(sequence.input));
        observe(Signal::OutputTokens, f64::from(sequence.output));
        if let Some(itl) = itl {
            observe(Signal::Itl, itl.as_secs_f64());
        }
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Replicas that take requests; 0 for a role that the fleet does not have.
    pub fn ready(&self, role: Role) -> Replicas {
        self.count(role, Pool::ready, Pool::ready)
    }

    /// Replicas that were asked for and are not ready yet.
    pub fn starting(&self, role: Role) -> Replicas {
        self.count(role, Pool::starting, Pool::starting)
    }

    /// Replicas that were given up and still finish their requests.
    pub fn draining(&self, role: Role) -> Replicas {
        self.count(role, Pool::draining, Pool::draining)
    }

    fn count(&self, role: Role, prefill: fn(&Pool<PrefillReplica>) -> Replicas, decode: fn(&Pool<DecodeReplica>) -> Replicas) -> Replicas {
        match role {
            Role::Prefill => prefill(&self.prefill),
            Role::Decode => decode(&self.decode),
            Role::Aggregated => Replicas(0),
        }
    }

    /// Replica time of a role so far, from the request for each replica to its release.
    pub fn replica_time(&self, role: Role) -> Duration {
        match role {
            Role::Prefill => self.prefill.replica_time(self.now),
            Role::Decode => self.decode.replica_time(self.now),
            Role::Aggregated => Duration::ZERO,
        }
    }

    /// KV tokens that each decode replica has occupied, oldest replica first.
    pub fn kv_occupied(&self) -> impl Iterator<Item = u64> {
        self.decode.servers().map(DecodeReplica::occupied)
    }

    /// KV tokens that a decode replica holds at most.
    pub fn kv_limit(&self) -> u64 {
        self.kv_limit
    }

    /// What happened so far.
    pub fn truth(&self) -> Truth {
        self.truth
    }

    /// The requests that ended since the last call, in that order. They are kept until they are taken.
    pub fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    /// What each router counted.
    pub fn routers(&self) -> &[RouterCounters] {
        &self.routers
    }

    /// A router's page as Infera serves it. `epoch` is the wall time of virtual time zero, since the Unix epoch. `None` for an unknown router.
    pub fn infera_page(&self, router: usize, model: &str, epoch: Duration) -> Option<InferaPage> {
        let counters = self.routers.get(router)?;
        let series = |(&signal, series): (&Signal, &super::counters::Series)| {
            (signal, InferaSeries { created: epoch + series.created, histogram: series.histogram.clone() })
        };
        Some(InferaPage {
            model: model.to_owned(),
            process_start: epoch,
            in_flight: counters.in_flight,
            histograms: counters.histograms.iter().map(series).collect(),
            workers: BTreeMap::from([Role::Prefill, Role::Decode].map(|role| (role, self.ready(role)))),
        })
    }
}
