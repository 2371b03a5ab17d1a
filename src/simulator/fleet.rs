//! What happens in which order? The pools behind their routers, and the queue of events.
//!
//! The life of a request in a disaggregated fleet: it arrives at a router (any, with equal chance), which sends it to a prefill replica at once;
//! its KV cache is handed over to a decode replica, where it waits until that one admits it; there the client gets the first token, which
//! prefill computed; then come iterations until the last token. In an aggregated fleet one replica does all of it.
//!
//! So TTFT holds the wait for prefill, prefill, the hand-over and the wait for a place in a batch, as it does where a router measures it.
//! A request of one token needs no decode replica. Requests wait at the router only while a pool has no ready replica.
//!
//! Left out: prefill replicas are not held up by memory that waits to be handed over, and a request once sent to a replica stays there.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::num::NonZeroUsize;
use std::time::Duration;

use super::counters::{RouterCounters, Truth};
use super::meters::ReplicaCounters;
use super::pool::Pool;
pub use super::pool::ReplicaId;
use super::random::Random;
pub use super::replica::ReplicaSettings;
use super::replica::{Left, Replica, Sequence, kv_tokens};
use super::workload::Request;
use crate::engines::render::vllm::VllmPage;
use crate::engines::render::{InferaPage, InferaSeries, infera_edges};
use crate::planner::input::Signal;
use crate::units::{Ratio, Replicas, Role, Seconds};

/// The replicas of one role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolSettings {
    /// Ready at the start.
    pub replicas: Replicas,
    /// What each can do.
    pub replica: ReplicaSettings,
}

/// Which roles there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Layout {
    /// Prompts and answers are computed apart.
    Disaggregated {
        /// Computes prompts.
        prefill: PoolSettings,
        /// Decodes.
        decode: PoolSettings,
    },
    /// Each replica does both.
    Aggregated(PoolSettings),
}

/// Which ready replica gets a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// The one with the least work: prompt tokens to compute, or KV tokens that its requests will need. The router knows the length of
    /// answers, which a real one guesses.
    #[default]
    LeastWork,
    /// Each in turn.
    RoundRobin,
}

/// What a fleet is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetSettings {
    /// Its pools.
    pub layout: Layout,
    /// How routers choose.
    pub routing: Routing,
    /// From the request for a replica to its readiness.
    pub startup: Duration,
    /// From the end of prefill to the arrival of the KV cache at a decode replica.
    pub hand_over: Duration,
    /// Share of each prompt that is in memory already and is not computed, in 0..1.
    pub prefix_hits: Ratio,
    /// Routers that share the traffic.
    pub routers: NonZeroUsize,
    /// Decides which router takes a request.
    pub seed: u64,
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

#[derive(Clone, Copy, Debug)]
enum Event {
    Started(Role, ReplicaId),
    /// With the ticket of the run that ends.
    Iterated(Role, ReplicaId, u64),
    HandedOver(Sequence),
}

/// An event in the queue. Events at the same time happen in the order in which they were scheduled.
#[derive(Clone, Debug)]
struct Scheduled {
    at: u64,
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

/// A deployment in virtual time. A clone goes on by itself, from the same moment.
#[derive(Clone, Debug)]
pub struct Fleet {
    settings: FleetSettings,
    /// Nanoseconds since the start.
    now: u64,
    events: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    pools: BTreeMap<Role, Pool<Replica>>,
    /// Where requests enter.
    entry: Role,
    /// Requests for a pool that has no ready replica.
    stranded: BTreeMap<Role, VecDeque<Sequence>>,
    routers: Vec<RouterCounters>,
    choice: Random,
    truth: Truth,
    finished: Vec<Finished>,
    /// Kept for its memory.
    left: Vec<Left>,
}

impl Fleet {
    /// A fleet at time zero, without requests.
    pub fn new(settings: FleetSettings) -> Self {
        let pool = |role, pool: PoolSettings| (role, Pool::new(pool.replicas, Replica::new(role, pool.replica)));
        let (entry, pools) = match settings.layout {
            Layout::Disaggregated { prefill, decode } => {
                (Role::Prefill, BTreeMap::from([pool(Role::Prefill, prefill), pool(Role::Decode, decode)]))
            }
            Layout::Aggregated(both) => (Role::Aggregated, BTreeMap::from([pool(Role::Aggregated, both)])),
        };
        Self {
            settings,
            now: 0,
            events: BinaryHeap::new(),
            scheduled: 0,
            pools,
            entry,
            stranded: BTreeMap::new(),
            routers: vec![RouterCounters::default(); settings.routers.get()],
            choice: Random::stream(settings.seed, 4),
            truth: Truth::default(),
            finished: Vec::new(),
            left: Vec::new(),
        }
    }

    /// Lets time run up to and including `until`, and brings all counters up to that time. A time in the past does nothing.
    pub fn advance_to(&mut self, until: Duration) {
        self.run_until(nanos(until));
        let now = self.now;
        self.pools.values_mut().flat_map(Pool::servers_mut).for_each(|replica| replica.count_until(now));
    }

    fn run_until(&mut self, until: u64) {
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
        self.run_until(nanos(request.at));
        self.truth.offered += 1;
        let input = request.input.max(1);
        // `as` saturates; one token is left to compute, which gives the first of the answer.
        let cached = ((f64::from(input) * self.settings.prefix_hits.get()) as u32).min(input - 1);
        let sequence = Sequence {
            router: self.choice.below(self.routers.len()),
            arrived: self.now,
            dispatched: self.now,
            first_token: self.now,
            input,
            cached,
            output: request.output.max(1),
        };
        if !self.holds(&request) {
            self.truth.refused += 1;
            return;
        }
        self.routers[sequence.router].in_flight += 1;
        self.dispatch(self.entry, sequence);
    }

    /// Whether replicas are large enough for a request; others are turned away.
    pub fn holds(&self, request: &Request) -> bool {
        self.pools.keys().all(|&role| kv_tokens(request.input.max(1), request.output.max(1), role) <= self.kv_limit(role))
    }

    /// Scales a pool. New replicas are ready after the start-up; those given up finish their requests.
    /// A target for a role that the fleet does not have does nothing.
    pub fn set_target(&mut self, role: Role, target: Replicas) {
        let now = Duration::from_nanos(self.now);
        let Some(pool) = self.pools.get_mut(&role) else { return };
        for id in pool.set_target(target, now) {
            self.schedule(self.now.saturating_add(nanos(self.settings.startup)), Event::Started(role, id));
        }
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse(Scheduled { at, order: self.scheduled, event }));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Started(role, id) => {
                if self.pools.get_mut(&role).is_some_and(|pool| pool.started(id)) {
                    for sequence in self.stranded.remove(&role).unwrap_or_default() {
                        self.dispatch(role, sequence);
                    }
                }
            }
            Event::HandedOver(sequence) if sequence.output == 1 => self.finish(&Sequence { first_token: self.now, ..sequence }),
            Event::HandedOver(sequence) => self.dispatch(Role::Decode, sequence),
            Event::Iterated(role, id, ticket) => self.iterated(role, id, ticket),
        }
    }

    fn dispatch(&mut self, role: Role, sequence: Sequence) {
        let Some(pool) = self.pools.get_mut(&role) else { return };
        let chosen = match self.settings.routing {
            Routing::LeastWork => pool.least_loaded(Replica::work),
            Routing::RoundRobin => pool.next_in_turn(),
        };
        let Some((id, replica)) = chosen.and_then(|id| Some((id, pool.get_mut(id)?))) else {
            self.stranded.entry(role).or_default().push_back(sequence);
            return;
        };
        if let Some((at, ticket)) = replica.accept(sequence, self.now) {
            self.schedule(at, Event::Iterated(role, id, ticket));
        }
    }

    fn iterated(&mut self, role: Role, id: ReplicaId, ticket: u64) {
        let now = self.now();
        let Some(pool) = self.pools.get_mut(&role) else { return };
        let Some(replica) = pool.get_mut(id) else { return };
        let mut left = std::mem::take(&mut self.left);
        let next = replica.step(ticket, self.now, &mut left);
        if !left.is_empty() {
            pool.release_if_drained(id, now);
        }
        if let Some((at, ticket)) = next {
            self.schedule(at, Event::Iterated(role, id, ticket));
        }
        for left in left.drain(..) {
            match left {
                Left::Ended(sequence) => self.finish(&sequence),
                Left::Prefilled(sequence) => {
                    self.schedule(self.now.saturating_add(nanos(self.settings.hand_over)), Event::HandedOver(sequence));
                }
            }
        }
        self.left = left;
    }

    fn finish(&mut self, sequence: &Sequence) {
        let now = Duration::from_nanos(self.now);
        let ttft = Duration::from_nanos(sequence.first_token - sequence.arrived);
        let itl = (sequence.output > 1).then(|| Duration::from_nanos(self.now - sequence.first_token) / (sequence.output - 1));
        let duration = Duration::from_nanos(self.now - sequence.arrived);
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
        self.finished.push(Finished { arrived: Duration::from_nanos(sequence.arrived), ttft, itl });

        let router = &mut self.routers[sequence.router];
        router.in_flight -= 1;
        let mut observe = |signal, value| router.observe(signal, infera_edges(signal), value, now);
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
        Duration::from_nanos(self.now)
    }

    /// The roles that it has.
    pub fn roles(&self) -> impl Iterator<Item = Role> {
        self.pools.keys().copied()
    }

    /// Replicas that take requests; 0 for a role that the fleet does not have.
    pub fn ready(&self, role: Role) -> Replicas {
        self.pools.get(&role).map_or(Replicas(0), Pool::ready)
    }

    /// Replicas that were asked for and are not ready yet.
    pub fn starting(&self, role: Role) -> Replicas {
        self.pools.get(&role).map_or(Replicas(0), Pool::starting)
    }

    /// Replicas that were given up and still finish their requests.
    pub fn draining(&self, role: Role) -> Replicas {
        self.pools.get(&role).map_or(Replicas(0), Pool::draining)
    }

    /// Replica time of a role so far, from the request for each replica to its release.
    pub fn replica_time(&self, role: Role) -> Duration {
        self.pools.get(&role).map_or(Duration::ZERO, |pool| pool.replica_time(self.now()))
    }

    /// The replicas of a role that answer, ready and draining, oldest first.
    pub fn serving(&self, role: Role) -> impl Iterator<Item = ReplicaId> {
        self.serving_replicas(role).map(|(id, _)| id)
    }

    /// The replicas of a role that take requests, oldest first: those that answer without those that drain.
    pub fn taking_requests(&self, role: Role) -> impl Iterator<Item = ReplicaId> {
        self.pools.get(&role).into_iter().flat_map(Pool::all_ready)
    }

    fn serving_replicas(&self, role: Role) -> impl Iterator<Item = (ReplicaId, &Replica)> {
        self.pools.get(&role).into_iter().flat_map(Pool::all_serving)
    }

    /// KV tokens that each replica of a role occupies, oldest first, as of the last [`Self::advance_to`].
    pub fn kv_occupied(&self, role: Role) -> impl Iterator<Item = u64> {
        self.serving_replicas(role).map(|(_, replica)| replica.occupied())
    }

    /// Requests in the batch of each replica of a role, oldest first.
    pub fn batch_sizes(&self, role: Role) -> impl Iterator<Item = u64> {
        self.serving_replicas(role).map(|(_, replica)| replica.running())
    }

    /// Requests that wait for a role: at the router because no replica is ready, or at a replica because it has no room.
    pub fn waiting(&self, role: Role) -> u64 {
        let at_router = self.stranded.get(&role).map_or(0, |stranded| stranded.len() as u64);
        at_router + self.serving_replicas(role).map(|(_, replica)| replica.waiting()).sum::<u64>()
    }

    /// KV tokens that a replica of a role holds at most; 0 for a role that the fleet does not have.
    pub fn kv_limit(&self, role: Role) -> u64 {
        match (self.settings.layout, role) {
            (Layout::Disaggregated { prefill, .. }, Role::Prefill) => prefill.replica.kv_tokens,
            (Layout::Disaggregated { decode, .. }, Role::Decode) => decode.replica.kv_tokens,
            (Layout::Aggregated(both), Role::Aggregated) => both.replica.kv_tokens,
            _ => 0,
        }
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
            workers: self.roles().map(|role| (role, self.ready(role))).collect(),
        })
    }

    /// What a replica counted since it was asked for, as of the last [`Self::advance_to`]. `None` for one that does not answer.
    pub fn replica_counters(&self, role: Role, id: ReplicaId) -> Option<&ReplicaCounters> {
        self.pools.get(&role)?.serving(id).map(|(_, replica)| &replica.counters)
    }

    /// A replica's page as vLLM serves it, as of the last [`Self::advance_to`]; `epoch` as above. `None` for one that does not answer.
    pub fn vllm_page(&self, role: Role, id: ReplicaId, model: &str, epoch: Duration) -> Option<VllmPage> {
        let (asked_for_at, replica) = self.pools.get(&role)?.serving(id)?;
        let counters = &replica.counters;
        Some(VllmPage {
            model: model.to_owned(),
            process_start: epoch + asked_for_at,
            histograms: Signal::ALL.into_iter().map(|signal| (signal, counters.histogram(signal))).collect(),
            running: replica.running(),
            waiting: replica.waiting(),
            kv_usage: replica.kv_usage(),
            generated_tokens: counters.generated_tokens,
            prompt_tokens: counters.prompt_tokens,
            iterations: counters.iterations,
            iteration_tokens: counters.iteration_tokens,
            prefilled: (counters.prefilled.0, counters.prefilled.1 as f64 / 1e9),
            kv_tokens: replica.kv_tokens(),
            finished: counters.finished,
        })
    }
}

/// A time as the nanoseconds that it is; 584 years are as good as for ever.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
