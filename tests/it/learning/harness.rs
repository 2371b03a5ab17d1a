//! One simulated replica whose windows teach: what the learning tests and the bench of the same name share.

use std::num::NonZeroUsize;
use std::time::Duration;

use inference_planner_exporter::planner::input::Signal;
use inference_planner_exporter::planner::learn::interval::{CapacityInterval, Question, capacity};
use inference_planner_exporter::planner::learn::{Learned, Seen, Update};
use inference_planner_exporter::planner::model::queueing::{Lengths, Objective};
use inference_planner_exporter::simulator::Simulation;
use inference_planner_exporter::simulator::costs::IterationCosts;
use inference_planner_exporter::simulator::fleet::{Fleet, FleetSettings, Layout, PoolSettings, ReplicaSettings, Routing};
use inference_planner_exporter::simulator::random::Random;
use inference_planner_exporter::simulator::workload::{Lengths as Drawn, Shape, Workload, WorkloadSettings};
use inference_planner_exporter::units::{Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds, Tokens};

/// A window.
pub const WINDOW: u64 = 60;
/// Relative noise on TTFT and ITL, log-normal.
pub const NOISE: f64 = 0.05;
/// Requests of a batch at most.
pub const BATCH: u32 = 256;

/// A kind of server and of requests.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub name: &'static str,
    pub costs: IterationCosts,
    pub input: f64,
    pub output: f64,
    /// Standard deviation over mean of both lengths.
    pub variation: f64,
    pub role: Role,
}

/// alpha 8 ms, beta 16 us, gamma 0.5 us; 512 tokens in, 128 out.
pub const UNIFORM: Server = Server {
    name: "uniform",
    costs: IterationCosts {
        iteration: Seconds(0.008),
        prompt_token: Seconds(1.6e-5),
        decoding: Seconds(1.6e-5),
        kv_token: Seconds(5e-7),
        prompt_pair: Seconds(0.0),
    },
    input: 512.0,
    output: 128.0,
    variation: 0.5,
    role: Role::Aggregated,
};

/// Prices like those fitted to an H200 with an 8B model in FP8; 1000 tokens in, 200 out.
pub const EIGHT_B: Server = Server {
    name: "8B-like",
    costs: IterationCosts {
        iteration: Seconds(0.0065),
        prompt_token: Seconds(1.8e-5),
        decoding: Seconds(2.2e-5),
        kv_token: Seconds(3.2e-8),
        prompt_pair: Seconds(7e-10),
    },
    input: 1000.0,
    output: 200.0,
    variation: 0.5,
    role: Role::Aggregated,
};

/// The prices of a server that takes this many times as long.
pub fn scaled(costs: IterationCosts, slower: f64) -> IterationCosts {
    let scaled = |one: Seconds| Seconds(one.get() * slower);
    IterationCosts {
        iteration: scaled(costs.iteration),
        prompt_token: scaled(costs.prompt_token),
        decoding: scaled(costs.decoding),
        kv_token: scaled(costs.kv_token),
        prompt_pair: scaled(costs.prompt_pair),
    }
}

impl Server {
    fn fleet(&self, slower: f64, seed: u64) -> Fleet {
        let costs = scaled(self.costs, slower);
        let replica = ReplicaSettings { costs, kv_tokens: 945_029, max_requests: BATCH, max_batched_tokens: 8192 };
        let one = PoolSettings { replicas: Replicas(1), replica };
        let many = PoolSettings { replicas: Replicas(20), replica };
        let layout = match self.role {
            Role::Aggregated => Layout::Aggregated(one),
            Role::Prefill => Layout::Disaggregated { prefill: one, decode: many },
            Role::Decode => Layout::Disaggregated { prefill: many, decode: one },
        };
        Fleet::new(FleetSettings {
            layout,
            routing: Routing::LeastWork,
            startup: Duration::from_secs(100),
            hand_over: Duration::ZERO,
            prefix_hits: Ratio(0.0),
            routers: NonZeroUsize::MIN,
            seed,
        })
    }

    pub fn workload(&self, shape: Shape, seed: u64) -> Workload {
        let drawn = |mean: f64| Drawn { mean: Tokens(mean), variation: Ratio(self.variation), min: 1, max: 100_000 };
        Workload::new(WorkloadSettings { shape, input: drawn(self.input), output: drawn(self.output), seed })
    }

    pub fn lengths(&self) -> Lengths {
        Lengths { input: Tokens(self.input), output: Tokens(self.output) }
    }

    pub fn question(&self, ttft_ms: f64, itl_ms: f64) -> Question {
        let objective = Objective { ttft: Seconds(ttft_ms / 1000.0), itl: Seconds(itl_ms / 1000.0) };
        Question { role: self.role, lengths: self.lengths(), objective, max_batch: Some(Requests(f64::from(BATCH))) }
    }

    /// Mean TTFT and ITL at a steady rate, over an hour.
    pub fn measured(&self, slower: f64, rate: f64) -> (f64, f64) {
        let mut run = Run::new(self, slower, Shape::Steady(RequestsPerSecond(rate)), 1000);
        run.window(600);
        let seen = run.window(3600);
        (seen.ttft, seen.itl)
    }

    /// The largest steady rate at which one replica meets the objective in the mean, to half a percent.
    pub fn capacity(&self, slower: f64, question: &Question) -> f64 {
        let fits = |rate: f64| {
            let (ttft, itl) = self.measured(slower, rate);
            (self.role == Role::Decode || ttft <= question.objective.ttft.get())
                && (self.role == Role::Prefill || itl <= question.objective.itl.get())
        };
        let (mut low, mut high) = (0.1, 0.2);
        while fits(high) {
            (low, high) = (high, high * 2.0);
        }
        while high / low > 1.005 {
            let middle = (low * high).sqrt();
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }
}

/// What one window of the simulated replica showed.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    pub served: f64,
    pub input: f64,
    pub output: f64,
    pub ttft: f64,
    pub itl: f64,
    pub waiting: u64,
    /// By how much the batch grew, over the completions.
    pub grown: f64,
}

/// A replica under a load.
pub struct Run {
    simulation: Simulation<Workload>,
    role: Role,
    now: u64,
    before: [(f64, f64); 4],
    batch: f64,
    noise: Random,
}

impl Run {
    pub fn new(server: &Server, slower: f64, shape: Shape, seed: u64) -> Self {
        let simulation = Simulation::new(server.fleet(slower, seed), server.workload(shape, seed));
        Self { simulation, role: server.role, now: 0, before: [(0.0, 0.0); 4], batch: 0.0, noise: Random::stream(seed, 77) }
    }

    pub fn window(&mut self, seconds: u64) -> Shown {
        self.now += seconds;
        self.simulation.advance_to(Duration::from_secs(self.now));
        let id = self.simulation.fleet.serving(self.role).next().expect("the replica serves");
        let counters = self.simulation.fleet.replica_counters(self.role, id).expect("the replica serves");
        let signals = [Signal::Ttft, Signal::Itl, Signal::PromptTokens, Signal::OutputTokens];
        let after = signals.map(|signal| (counters.signal(signal).sum() as f64, counters.signal(signal).count() as f64));
        let before = std::mem::replace(&mut self.before, after);
        let batch = self.simulation.fleet.batch_sizes(self.role).sum::<u64>() as f64;
        let grown = (batch - std::mem::replace(&mut self.batch, batch)) / (after[3].1 - before[3].1).max(1.0);
        let mean = |i: usize| (after[i].0 - before[i].0) / (after[i].1 - before[i].1).max(1.0);
        Shown {
            served: (after[3].1 - before[3].1) / seconds as f64,
            input: mean(2),
            output: mean(3),
            ttft: mean(0) / 1e9,
            itl: mean(1) / 1e9,
            waiting: self.simulation.fleet.waiting(self.role),
            grown,
        }
    }

    /// The next window as the planner sees it: with noise, and TTFT only while no queue grows.
    pub fn seen(&mut self) -> Seen {
        // A batch that is filling or emptying is in no steady state.
        let mut shown = self.window(WINDOW);
        while shown.grown.abs() > 0.1 {
            shown = self.window(WINDOW);
        }
        let mut noisy = |value: f64| Seconds(value * (NOISE * self.noise.normal()).exp());
        let (ttft, itl) = (noisy(shown.ttft), noisy(shown.itl));
        let own = |role: Role| self.role != role;
        Seen {
            served: RequestsPerSecond(shown.served),
            lengths: Lengths { input: Tokens(shown.input), output: Tokens(if self.role == Role::Prefill { 128.0 } else { shown.output }) },
            ttft: (own(Role::Decode) && shown.waiting == 0).then_some(ttft),
            itl: own(Role::Prefill).then_some(itl),
            saturated: shown.waiting > 0,
        }
    }
}

/// A learner with what it went through.
pub struct Learner {
    pub learned: Option<Learned>,
    pub updates: Vec<Update>,
    role: Role,
}

impl Learner {
    pub fn new(role: Role) -> Self {
        Self { learned: None, updates: Vec::new(), role }
    }

    pub fn learn(&mut self, seen: &Seen) -> Update {
        let role = self.role;
        let learned = self.learned.get_or_insert_with(|| Learned::new(role, seen));
        let update = learned.learn(role, seen);
        self.updates.push(update);
        update
    }

    pub fn interval(&self, question: &Question) -> Option<CapacityInterval> {
        capacity(self.learned.as_ref()?, question)
    }
}

/// A load between `high / 3` and `high`, over ten windows up and down.
pub fn threefold(high: f64, seed: u64) -> Shape {
    let period = Duration::from_secs(10 * WINDOW);
    let start = Duration::from_secs(37 * seed % (10 * WINDOW));
    Shape::Wave { low: RequestsPerSecond(high / 3.0), high: RequestsPerSecond(high), period, start }
}
