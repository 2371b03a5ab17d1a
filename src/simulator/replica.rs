//! What does one replica do? Iterations, each for as long as its work costs: continuous batching with chunked prefill.
//!
//! An iteration gives one token to every request that decodes, and spends what is left of the token limit on prompts, first come, first
//! served, the last of them perhaps in part. A prompt whose last token is computed has its first answer token at the end of that
//! iteration. Prompts so make the iterations of their neighbours longer, which is what they do on a real server.
//!
//! | role | computes prompts | decodes | a request leaves |
//! |---|---|---|---|
//! | prefill | yes | no | with its first token, for a decode replica |
//! | decode | no | yes | with its last token |
//! | aggregated | yes | yes | with its last token |
//!
//! Admission: a request is promised the KV memory of its prompt and its whole answer. So memory is never exceeded and nothing is ever
//! evicted. Real engines admit by the prompt alone, pack tighter, and compute evicted requests again; close to full memory the simulator
//! lets a request wait where they would do some work twice.
//!
//! While nobody joins or ends, iterations differ only in that all contexts grow by one, so a run of k iterations lasts
//! k * first + growth * k (k - 1) / 2. Runs are taken as one event; whoever joins during one shortens it to the end of the iteration that is
//! going on. Times are whole nanoseconds and sums whole numbers, so that looking at a replica in the middle of a run changes nothing.

use std::collections::{BTreeMap, VecDeque};

use super::costs::{IterationCosts, Work, nanos};
use super::meters::ReplicaCounters;
use super::pool::Server;
use crate::planner::input::Signal;
use crate::units::Role;

/// Longest run of iterations: keeps its square within range.
const LONGEST_RUN: u64 = 1 << 14;

/// What one replica can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaSettings {
    /// What its iterations cost.
    pub costs: IterationCosts,
    /// KV tokens that it holds.
    pub kv_tokens: u64,
    /// Requests in its batch at most (`max_num_seqs`); 0 counts as 1.
    pub max_requests: u32,
    /// Tokens that an iteration computes at most (`max_num_batched_tokens`). At least one is left for prompts whatever decodes.
    pub max_batched_tokens: u32,
}

/// A request inside the fleet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sequence {
    pub router: usize,
    /// When it arrived at its router, nanoseconds since the start.
    pub arrived: u64,
    /// When it arrived at the replica that has it now.
    pub dispatched: u64,
    pub first_token: u64,
    /// Tokens of the prompt.
    pub input: u32,
    /// Tokens of the prompt that need not be computed; fewer than all.
    pub cached: u32,
    /// Tokens to be generated, the first included.
    pub output: u32,
}

impl Sequence {
    /// KV tokens that it occupies at its end on a replica of that role.
    pub fn kv_tokens(&self, role: Role) -> u64 {
        kv_tokens(self.input, self.output, role)
    }
}

/// KV tokens that a request occupies at its end on a replica of that role.
pub(super) fn kv_tokens(input: u32, output: u32, role: Role) -> u64 {
    u64::from(input) + if role == Role::Prefill { 1 } else { u64::from(output) }
}

/// A prompt that is being computed.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    sequence: Sequence,
    /// Tokens in memory.
    computed: u32,
    /// When its first step began.
    scheduled: Option<u64>,
}

/// Iterations that are going on.
#[derive(Clone, Debug)]
struct Run {
    began: u64,
    /// Length of the first iteration.
    first: u64,
    /// By how much each is longer than the one before.
    growth: u64,
    iterations: u64,
    /// Iterations that have been counted.
    counted: u64,
    /// What it computes of the first prompts; then it has one iteration.
    chunks: Vec<u32>,
}

impl Run {
    /// The end of its `n`-th iteration.
    fn end_of(&self, n: u64) -> u64 {
        self.began + n * self.first + self.growth * (n * n.saturating_sub(1) / 2)
    }

    /// Iterations that are over at `now`.
    fn done_by(&self, now: u64) -> u64 {
        let (mut done, mut open) = (self.counted, self.iterations + 1);
        while open - done > 1 {
            let middle = done + (open - done) / 2;
            if self.end_of(middle) <= now { done = middle } else { open = middle }
        }
        done
    }
}

/// How a request left.
#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    /// With its first token, for a decode replica.
    Prefilled(Sequence),
    /// With its last token.
    Ended(Sequence),
}

/// One replica. Invariants: occupied <= promised <= KV limit; requests in the batch <= the batch limit.
#[derive(Clone, Debug)]
pub(super) struct Replica {
    role: Role,
    settings: ReplicaSettings,
    /// Not admitted, in order of arrival.
    waiting: VecDeque<Sequence>,
    /// Admitted; their prompts are not complete.
    prompts: VecDeque<Prompt>,
    /// Admitted to decode, waiting for the next iteration.
    joining: Vec<Sequence>,
    /// First tokens of those that joined the iteration going on.
    joined: Vec<u64>,
    /// By the iteration that gives them their last token.
    ending: BTreeMap<u64, Vec<Sequence>>,
    decoding: u64,
    /// KV tokens of those that decode.
    context: u64,
    occupied: u64,
    promised: u64,
    /// KV tokens that those not admitted will need.
    wanted: u64,
    /// Prompt tokens that are not computed.
    uncomputed: u64,
    /// Iterations counted.
    iterations: u64,
    run: Option<Run>,
    /// Changes with each change of the end of a run, so that an older event for it is known as stale.
    ticket: u64,
    pub counters: ReplicaCounters,
}

impl Replica {
    /// An idle replica.
    pub fn new(role: Role, settings: ReplicaSettings) -> Self {
        Self {
            role,
            settings,
            waiting: VecDeque::new(),
            prompts: VecDeque::new(),
            joining: Vec::new(),
            joined: Vec::new(),
            ending: BTreeMap::new(),
            decoding: 0,
            context: 0,
            occupied: 0,
            promised: 0,
            wanted: 0,
            uncomputed: 0,
            iterations: 0,
            run: None,
            ticket: 0,
            counters: ReplicaCounters::default(),
        }
    }

    /// KV tokens occupied, as counted so far.
    pub fn occupied(&self) -> u64 {
        self.occupied
    }

    /// Requests in the batch.
    pub fn running(&self) -> u64 {
        self.decoding + (self.joining.len() + self.prompts.len()) as u64
    }

    /// Requests that are not admitted.
    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// What a router compares: prompt tokens to be computed on a prefill replica, else KV tokens of all its requests at their ends.
    pub fn work(&self) -> u64 {
        if self.role == Role::Prefill { self.uncomputed } else { self.promised + self.wanted }
    }

    /// Takes a request in. Returns the event to schedule, if its arrival changes when something happens.
    pub fn accept(&mut self, sequence: Sequence, now: u64) -> Option<(u64, u64)> {
        self.wanted += sequence.kv_tokens(self.role);
        if self.role != Role::Decode {
            self.uncomputed += u64::from(sequence.input - sequence.cached);
        }
        self.waiting.push_back(Sequence { dispatched: now, ..sequence });
        // Behind one that waits it changes nothing.
        if self.waiting.len() > 1 || !self.admit(now) {
            return None;
        }
        let Some(run) = &mut self.run else { return self.begin(now) };
        let done = run.done_by(now);
        let shorter = if done > 0 && run.end_of(done) == now { done } else { done + 1 };
        if shorter >= run.iterations {
            return None;
        }
        run.iterations = shorter;
        let end = run.end_of(shorter);
        self.ticket += 1;
        Some((end, self.ticket))
    }

    /// Admits who fits, in order: a long request holds up the shorter ones behind it, so that it is never starved. Answers whether any did.
    fn admit(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some(&sequence) = self.waiting.front() {
            let needs = sequence.kv_tokens(self.role);
            let batch = u64::from(self.settings.max_requests.max(1));
            if self.running() >= batch || self.promised + needs > self.settings.kv_tokens {
                break;
            }
            self.waiting.pop_front();
            self.wanted -= needs;
            self.promised += needs;
            if self.role == Role::Decode {
                self.first_token(&sequence, now);
                self.joining.push(Sequence { first_token: now, ..sequence });
            } else {
                self.occupied += u64::from(sequence.cached);
                self.prompts.push_back(Prompt { sequence, computed: sequence.cached, scheduled: None });
            }
            any = true;
        }
        any
    }

    fn first_token(&mut self, sequence: &Sequence, now: u64) {
        self.counters.observe_span(Signal::Ttft, now - sequence.dispatched);
        self.counters.generated_tokens += 1;
        if self.role != Role::Decode {
            self.counters.prompt_tokens += u64::from(sequence.input);
        }
    }

    /// Begins a run unless there is nothing to do. The caller has seen that none is going on.
    fn begin(&mut self, now: u64) -> Option<(u64, u64)> {
        self.joined.clear();
        for sequence in std::mem::take(&mut self.joining) {
            self.joined.push(sequence.first_token);
            self.decode(sequence);
        }
        let mut work = Work::decode(self.decoding as f64, self.context as f64);
        let mut chunks = Vec::new();
        let mut budget = u64::from(self.settings.max_batched_tokens).saturating_sub(self.decoding).max(1);
        for prompt in &mut self.prompts {
            let left = prompt.sequence.input - prompt.computed;
            // `left` is 32 bits wide, so the smaller of both is.
            let chunk = u64::from(left).min(budget) as u32;
            if chunk == 0 {
                break;
            }
            prompt.scheduled.get_or_insert(now);
            work += Work::chunk(prompt.computed, chunk);
            self.occupied += u64::from(chunk);
            budget -= u64::from(chunk);
            chunks.push(chunk);
        }
        let iterations = match self.ending.first_key_value() {
            _ if !chunks.is_empty() => 1,
            Some((&end, _)) => (end - self.iterations).min(LONGEST_RUN),
            None => return None,
        };
        let first = nanos(self.settings.costs.of(&work));
        // At most a second: with more, a run could leave the range of its sums.
        let growth = (self.settings.costs.kv_token.get() * self.decoding as f64 * 1e9).round().clamp(0.0, 1e9) as u64;
        let run = Run { began: now, first, growth, iterations, counted: 0, chunks };
        let end = run.end_of(iterations);
        self.run = Some(run);
        self.ticket += 1;
        Some((end, self.ticket))
    }

    /// A request that has its first token decodes from the next iteration on.
    fn decode(&mut self, sequence: Sequence) {
        self.decoding += 1;
        let kv_tokens = u64::from(sequence.input) + 1;
        self.context += kv_tokens;
        // Where the prompt was computed, it occupies memory already.
        self.occupied += if self.role == Role::Decode { kv_tokens } else { 1 };
        self.ending.entry(self.iterations + u64::from(sequence.output) - 1).or_default().push(sequence);
    }

    /// Counts what is over at `now`. Does not end a run, and changes nothing that happens later.
    pub fn count_until(&mut self, now: u64) {
        let Some(run) = &mut self.run else { return };
        let done = run.done_by(now);
        let fresh = done - run.counted;
        if fresh == 0 || self.decoding == 0 {
            self.iterations += fresh;
            self.counters.iterations += fresh;
            run.counted = done;
            return;
        }
        let mut from = run.counted;
        if from == 0 {
            // Those that joined waited for the iteration before to end.
            let end = run.end_of(1);
            self.joined.iter().for_each(|&first_token| self.counters.observe_span(Signal::Itl, end - first_token));
            self.counters.observe_spans(Signal::Itl, run.first, 0, 1, self.decoding - self.joined.len() as u64);
            from = 1;
        }
        self.counters.observe_spans(Signal::Itl, run.first + from * run.growth, run.growth, done - from, self.decoding);
        run.counted = done;
        let tokens = fresh * self.decoding;
        self.counters.generated_tokens += tokens;
        self.counters.iteration_tokens += tokens;
        self.counters.iterations += fresh;
        self.iterations += fresh;
        self.context += tokens;
        self.occupied += tokens;
    }

    /// The event of a ticket: ends the run, unless the event is stale. Adds those that leave to `left`, in order.
    /// Returns the event to schedule.
    pub fn step(&mut self, ticket: u64, now: u64, left: &mut Vec<Left>) -> Option<(u64, u64)> {
        if ticket != self.ticket {
            return None;
        }
        self.count_until(now);
        let run = self.run.take()?;
        for sequence in self.ending.remove(&self.iterations).unwrap_or_default() {
            self.decoding -= 1;
            self.context -= sequence.kv_tokens(self.role);
            self.end(&sequence, sequence.output, now);
            left.push(Left::Ended(sequence));
        }
        for chunk in run.chunks {
            self.uncomputed -= u64::from(chunk);
            self.counters.iteration_tokens += u64::from(chunk);
            let Some(prompt) = self.prompts.front_mut() else { break };
            prompt.computed += chunk;
            if prompt.computed < prompt.sequence.input {
                break;
            }
            let sequence = Sequence { first_token: now, ..prompt.sequence };
            self.counters.observe_prefill(now - prompt.scheduled.unwrap_or(now));
            self.prompts.pop_front();
            self.first_token(&sequence, now);
            self.prompt_done(sequence, now, left);
        }
        self.admit(now);
        self.begin(now)
    }

    fn prompt_done(&mut self, sequence: Sequence, now: u64, left: &mut Vec<Left>) {
        if self.role == Role::Prefill {
            self.occupied += 1;
            self.end(&sequence, 1, now);
            left.push(Left::Prefilled(sequence));
        } else if sequence.output == 1 {
            self.occupied += 1;
            self.end(&sequence, 1, now);
            left.push(Left::Ended(sequence));
        } else {
            self.decode(sequence);
        }
    }

    fn end(&mut self, sequence: &Sequence, generated: u32, now: u64) {
        let kv_tokens = sequence.kv_tokens(self.role);
        self.occupied -= kv_tokens;
        self.promised -= kv_tokens;
        self.counters.finished += 1;
        self.counters.observe_tokens(Signal::PromptTokens, sequence.input);
        self.counters.observe_tokens(Signal::OutputTokens, generated);
        self.counters.observe_span(Signal::RequestDuration, now - sequence.dispatched);
    }

    /// Tokens that the KV memory holds.
    pub fn kv_tokens(&self) -> u64 {
        self.settings.kv_tokens
    }

    /// Share of the KV memory in use.
    pub fn kv_usage(&self) -> f64 {
        self.occupied as f64 / (self.settings.kv_tokens.max(1) as f64)
    }
}

impl Server for Replica {
    fn is_idle(&self) -> bool {
        self.running() + self.waiting() == 0
    }
}
