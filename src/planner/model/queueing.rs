//! What can one replica do, by queueing theory? Three numbers and a closed form (seed 001 section 9).
//!
//! A server works in iterations. Each has a fixed cost alpha; a token that is computed costs beta, a token of KV memory that is read gamma.
//! A request of i prompt tokens and o generated ones keeps the server busy for W seconds beyond the fixed cost, over its o + 1 iterations.
//! With lambda requests a second, Little's law makes the mean iteration last T = alpha / (1 - rho), where rho = lambda W.
//!
//! | symbol | formula | alpha 8 ms, beta 16 us, gamma 0.5 us, i 512, o 128, lambda 10/s |
//! |---|---|---|
//! | W, both phases | beta (i + o) + gamma (o + 1)(i + o/2) | 10.24 + 37.152 = 47.392 ms |
//! | rho | lambda W | 0.47392 |
//! | T | alpha / (1 - rho) | 15.2068 ms |
//! | TTFT | T + (beta + gamma) i | 15.2068 + 8.448 = 23.6548 ms |
//! | ITL | T + beta + gamma (i + (o + 1)/2) | 15.2068 + 0.30425 = 15.5111 ms |
//! | requests at once | lambda (o + 1) T | 19.6168 |
//!
//! Everything here is algebra, also the inverse: an objective bounds T, T bounds rho, and rho is linear in lambda. ITL of at most 20 ms leaves
//! T = 19.69575 ms, so rho = 1 - 8/19.69575 = 0.59382 and lambda* = rho / W = 12.53 requests/s. A search would find the same with an error.
//!
//! Pools that only prefill or only decode have their own work: W = (beta + gamma) i with the TTFT above, and
//! W = o (beta + gamma (i + (o + 1)/2)) with the ITL above. The two works add up to that of both phases.
//!
//! The seed's TTFT has one iteration in it. Where windows show that it is more, TTFT = wait * T + (beta + gamma) i with a learned `wait`; all tables
//! here have a wait of 1, and so have roles of one phase.
//!
//! Known limits: prompts of several chunks, batches that are full, prompts that wait for each other. The parameters that are learned are those
//! with which this form describes the server best, and not the hardware's.

use serde::{Deserialize, Serialize};

use crate::units::{Positive, Ratio, Replicas, Requests, RequestsPerSecond, Role, Seconds, SecondsPerToken, Tokens};

/// Share of the mean ITL that the bootstrap takes for alpha (`BaseFactor`, seed 001 section 8).
const BASE_FACTOR: f64 = 0.9;

/// What one replica costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Fixed cost of an iteration.
    pub alpha: Seconds,
    /// Of a token that is computed.
    pub beta: SecondsPerToken,
    /// Of a KV token that is read.
    pub gamma: SecondsPerToken,
    /// Iterations that a prompt waits for and is computed in, 1 in the seed's form: TTFT = wait * T + (beta + gamma) i. A server that computes long
    /// prompts has iterations that differ, and a prompt meets the long ones.
    #[serde(default = "one")]
    pub wait: Ratio,
}

fn one() -> Ratio {
    Ratio(1.0)
}

/// Mean lengths of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// i: tokens of the prompt.
    pub input: Tokens,
    /// o: generated tokens.
    pub output: Tokens,
}

/// Latencies that are asked for. A role looks at those that it has: prefill at TTFT, decode at ITL.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// Time to first token.
    pub ttft: Seconds,
    /// Time between tokens.
    pub itl: Seconds,
}

/// What the closed form says of one replica at one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// rho, below 1.
    pub utilization: Ratio,
    /// T.
    pub iteration: Seconds,
    /// Time to first token.
    pub ttft: Seconds,
    /// Time between tokens.
    pub itl: Seconds,
    /// Requests that are served at once.
    pub concurrency: Requests,
}

/// Arrival rates at which one replica meets its limits. `None`: no rate does, however small.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// TTFT is at its objective. For role decode: unbounded.
    pub ttft: Option<RequestsPerSecond>,
    /// ITL is at its objective. For role prefill: unbounded.
    pub itl: Option<RequestsPerSecond>,
    /// The batch is full.
    pub batch: RequestsPerSecond,
}

impl Capacity {
    /// lambda*: the least of them.
    pub fn rate(&self) -> Option<RequestsPerSecond> {
        let least = self.ttft?.get().min(self.itl?.get()).min(self.batch.get());
        (least.is_finite() && least > 0.0).then_some(RequestsPerSecond(least))
    }
}

impl Parameters {
    /// `None` unless all three are finite and above zero.
    pub fn new(alpha: f64, beta: f64, gamma: f64) -> Option<Self> {
        let fine = [alpha, beta, gamma].iter().all(|value| value.is_finite() && *value > 0.0);
        fine.then_some(Self { alpha: Seconds(alpha), beta: SecondsPerToken(beta), gamma: SecondsPerToken(gamma), wait: one() })
    }

    /// A first guess from one observation at light load, where T is about alpha (seed 001 section 9.5). `None` where a value is not above zero.
    ///
    /// TTFT 45.01 ms, ITL 15.34 ms, 1123 tokens in, 1 out: alpha = 0.9 * 15.34 = 13.81 ms; beta + gamma = (45.01 - 13.81) / 1123 = 27.8 us;
    /// gamma = (1.534 - 0.0278) ms / 1123 = 1.34 us; beta = 26.4 us.
    pub fn bootstrap(ttft: Seconds, itl: Seconds, lengths: Lengths) -> Option<Self> {
        let alpha = BASE_FACTOR * itl.get();
        let per_token = (ttft.get() - alpha) / lengths.input.get();
        let gamma = ((itl.get() - alpha) - per_token) / (lengths.decoding_context() - 1.0);
        Self::new(alpha, per_token - gamma, gamma)
    }

    /// W: how long one request keeps a replica busy, beyond the fixed cost of its iterations.
    pub fn work(&self, role: Role, lengths: Lengths) -> Seconds {
        let (input, output) = (lengths.input.get(), lengths.output.get());
        let (beta, gamma) = (self.beta.get(), self.gamma.get());
        Seconds(match role {
            Role::Aggregated => beta * (input + output) + gamma * (output + 1.0) * (input + output / 2.0),
            Role::Prefill => self.prompt_work(lengths),
            Role::Decode => output * self.token_work(lengths),
        })
    }

    /// Work of the prompt: what TTFT has beyond T.
    pub(in crate::planner) fn prompt_work(&self, lengths: Lengths) -> f64 {
        (self.beta.get() + self.gamma.get()) * lengths.input.get()
    }

    /// Work of a generated token: what ITL has beyond T.
    pub(in crate::planner) fn token_work(&self, lengths: Lengths) -> f64 {
        self.beta.get() + self.gamma.get() * lengths.decoding_context()
    }

    /// The state at a load; `None` where the load is more than a replica can ever serve (rho of 1 or above).
    pub fn at(&self, role: Role, rate: RequestsPerSecond, lengths: Lengths) -> Option<State> {
        let utilization = rate.get() * self.work(role, lengths).get();
        if !(utilization.is_finite() && (0.0..1.0).contains(&utilization)) {
            return None;
        }
        let iteration = self.alpha.get() / (1.0 - utilization);
        Some(State {
            utilization: Ratio(utilization),
            iteration: Seconds(iteration),
            ttft: Seconds(self.wait.get() * iteration + self.prompt_work(lengths)),
            itl: Seconds(iteration + self.token_work(lengths)),
            concurrency: Requests(rate.get() * lengths.iterations(role) * iteration),
        })
    }

    /// The largest loads within the objective and the batch. The exact inverse of [`Self::at`].
    pub fn capacity(&self, role: Role, lengths: Lengths, objective: Objective, max_batch: Option<Requests>) -> Capacity {
        let (alpha, work) = (self.alpha.get(), self.work(role, lengths).get());
        // At an objective T is what is left of it; rho = 1 - alpha / T.
        let at = |iteration: f64| (iteration > alpha).then(|| RequestsPerSecond((1.0 - alpha / iteration) / work));
        let unbounded = Some(RequestsPerSecond(f64::INFINITY));
        // lambda n T = batch, with T = alpha / (1 - lambda W), solved for lambda.
        let batch = |batch: Requests| batch.get() / (lengths.iterations(role) * alpha + batch.get() * work);
        Capacity {
            ttft: if role == Role::Decode { unbounded } else { at((objective.ttft.get() - self.prompt_work(lengths)) / self.wait.get()) },
            itl: if role == Role::Prefill { unbounded } else { at(objective.itl.get() - self.token_work(lengths)) },
            batch: RequestsPerSecond(max_batch.map_or(f64::INFINITY, batch)),
        }
    }

    /// The latencies at T = k alpha, that is at rho = 1 - 1/k exactly (seed 001 section 3.2).
    pub fn at_multiple(&self, multiplier: SloMultiplier, lengths: Lengths) -> Objective {
        let iteration = multiplier.get() * self.alpha.get();
        let ttft = Seconds(self.wait.get() * iteration + self.prompt_work(lengths));
        Objective { ttft, itl: Seconds(iteration + self.token_work(lengths)) }
    }
}

impl Lengths {
    /// Iterations of a request in a pool of that role: one for the prompt, one for each token.
    pub(in crate::planner) fn iterations(&self, role: Role) -> f64 {
        match role {
            Role::Aggregated => self.output.get() + 1.0,
            Role::Prefill => 1.0,
            Role::Decode => self.output.get(),
        }
    }

    /// KV tokens that a request has on average while it decodes.
    pub(in crate::planner) fn decoding_context(&self) -> f64 {
        self.input.get() + (self.output.get() + 1.0) / 2.0
    }
}

/// k: how many times alpha an iteration may last. Above 1, so that there is room for any load at all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct SloMultiplier(Positive);

impl SloMultiplier {
    /// `None` unless `value` is finite and above 1.
    pub fn new(value: f64) -> Option<Self> {
        Positive::new(value).filter(|value| value.get() > 1.0).map(Self)
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0.get()
    }
}

impl TryFrom<f64> for SloMultiplier {
    type Error = String;
    fn try_from(value: f64) -> Result<Self, String> {
        Self::new(value).ok_or_else(|| format!("expected a finite number above 1, got {value}"))
    }
}

impl From<SloMultiplier> for f64 {
    fn from(multiplier: SloMultiplier) -> f64 {
        multiplier.get()
    }
}

/// Replicas that carry a demand at lambda* each.
pub fn replicas(demand: RequestsPerSecond, each: RequestsPerSecond) -> Replicas {
    Replicas::ceil(demand.get() / each.get())
}

#[cfg(test)]
#[path = "queueing_tests.rs"]
mod tests;
