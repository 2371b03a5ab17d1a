//! What share of requests meets an objective with so many replicas? Each request is judged, not their mean.
//!
//! A mean that meets the objective says that about half of the requests do. What the others see is decided by chance: arrivals that come
//! together, long prompts among short ones. Both are priced here by what queueing theory knows of a pool that shares its load evenly.
//!
//! ## First tokens
//!
//! N replicas compute prompts one after the other; a prompt takes S when it is alone. With a = rate * E[S] (the replicas that are busy on average) a
//! prompt waits with Erlang's probability C(N, a), and then for an exponential time (Allen and Cunneen's correction for the variation of S):
//!
//! ```text
//! P(wait > t) = C(N, a) * exp(-t * 2 (N - a) / (E[S] (noise + cv^2)))
//! within TTFT = sum over prompt lengths of their share * P(wait <= TTFT - S)
//! ```
//!
//! Prompts that take longer than the objective when they are alone meet it with no count, and are left out; so are those that take more than
//! nine tenths of it (`needed.rs`), since for them nobody may ever wait.
//!
//! | a prompt takes 80 ms, all alike; 45 a second (a = 3.6), TTFT 500 ms | C | within |
//! |---|---|---|
//! | 4 replicas | 0.7878 | 0.9882 |
//! | 5 replicas | 0.4104 | 1.0000 |
//!
//! ## Tokens after the first
//!
//! A step of a replica with b requests takes T(b); a request of O tokens stays for O * T. So m requests are in the pool with m = rate * O * T(m/N).
//! That number swings: its variance is m / (1 - s), with s the share of a step that grows with the batch, since a fuller batch is also a slower
//! one. A request feels the mean over its stay, which swings by g(1 - s) of that, g(x) = 2 (x - 1 + e^-x) / x^2. It is within the objective while
//! the pool holds at most N * b*, with T(b*) = ITL:
//!
//! ```text
//! within ITL = Phi((N b* - m) / sqrt(m g / (1 - s)))
//! ```
//!
//! Where prompts are computed beside the batch, the time that they take of a stay is chance as well: its deviation over what is left up to the
//! objective is added to that of the batch, as squares.
//!
//! | 10 ms and 0.2 ms a request, O = 200, ITL 20 ms (b* = 50); two replicas | mean batch | within | simulated |
//! |---|---|---|---|
//! | 20 requests a second | 33.3 | 0.9997 | 1.000 |
//! | 22 | 39.3 | 0.976 | 0.970 |
//!
//! Known limits: the two are treated as independent of each other; an unevenly loaded pool does worse.

/// Steps of a bisection: more digits than a double has of a batch.
const HALVINGS: usize = 60;

/// Requests a second, and how they come: the variance of their number over its mean, 1 where each comes by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Requests a second.
    pub rate: f64,
    /// At least 1.
    pub noise: f64,
}

/// Prompts of one length: their share, and what one takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prompts {
    /// Share of all prompts, above zero.
    pub share: f64,
    /// Seconds to its first token on an idle replica.
    pub alone: f64,
    /// Seconds of a replica that it takes.
    pub work: f64,
}

/// What prompts do to a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// C: probability that a prompt waits.
    pub waits: f64,
    /// How fast the probability of longer waits falls, a second.
    pub decay: f64,
}

/// What prompts take of a replica: all that the queue before a pool asks of their lengths, so that it is worked out once for many counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// Mean seconds.
    mean: f64,
    /// Mean of their squares.
    square: f64,
}

impl Taken {
    /// What prompts of these lengths take.
    pub fn by(mix: &[Prompts]) -> Self {
        let shares: f64 = mix.iter().map(|prompts| prompts.share).sum();
        let mean = |of: &dyn Fn(&Prompts) -> f64| mix.iter().map(|prompts| prompts.share * of(prompts)).sum::<f64>() / shares;
        Self { mean: mean(&|prompts| prompts.work), square: mean(&|prompts| prompts.work * prompts.work) }
    }

    fn is_known(self) -> bool {
        [self.mean, self.square].iter().all(|mean| mean.is_finite() && *mean > 0.0)
    }
}

/// The queue before `replicas`; `None` where more comes than they compute.
pub fn queue(replicas: u32, arrivals: Arrivals, taken: Taken) -> Option<Queue> {
    let Arrivals { rate, noise } = arrivals;
    let Taken { mean, square } = taken;
    let busy = rate * mean;
    if !taken.is_known() || busy >= f64::from(replicas) {
        return None;
    }
    Some(Queue {
        waits: erlang_c(replicas, busy),
        decay: 2.0 * (f64::from(replicas) - busy) * mean / (square + (noise - 1.0) * mean * mean),
    })
}

impl Queue {
    /// Mean wait, seconds.
    pub fn mean_wait(&self) -> f64 {
        self.waits / self.decay
    }
}

/// Share of the prompts that meet the objective on an idle replica.
pub fn reachable(mix: &[Prompts], ttft: f64) -> f64 {
    mix.iter().filter(|prompts| prompts.alone <= ttft).map(|prompts| prompts.share).sum()
}

/// Share of the prompts that meet the objective behind that queue, of those that take at most `longest` alone.
pub fn within_ttft(queue: Option<Queue>, mix: &[Prompts], ttft: f64, longest: f64) -> f64 {
    let Some(queue) = queue else { return 0.0 };
    let within = |prompts: &&Prompts| prompts.alone <= ttft.min(longest);
    let met = |prompts: &Prompts| prompts.share * (1.0 - queue.waits * (-(ttft - prompts.alone) * queue.decay).exp());
    mix.iter().filter(within).map(met).sum()
}

/// Erlang's C: the probability that all of `servers` are busy when `busy` of them are on average. `busy` is below `servers`.
fn erlang_c(servers: u32, busy: f64) -> f64 {
    // Erlang's B by its recursion, which neither overflows nor cancels.
    let blocked = (1..=servers).fold(1.0, |blocked, server| busy * blocked / (f64::from(server) + busy * blocked));
    let idle = 1.0 - busy / f64::from(servers);
    blocked / (idle + blocked * (1.0 - idle))
}

/// One replica that decodes.
pub struct Decoder<'a> {
    /// Seconds of a step with so many requests and no prompt; grows with them.
    pub step: &'a dyn Fn(f64) -> f64,
    /// Requests that it holds at most.
    pub most: f64,
    /// Steps that a request takes: its tokens over the tokens of a step.
    pub steps: f64,
    /// Seconds that a step may take on average over a request's stay.
    pub objective: f64,
    /// Share of its time that prompts take; 0 where others compute them.
    pub prompts: f64,
    /// Arrivals a second times the mean square of what a prompt takes.
    pub spread: f64,
    /// b*, where it is known already.
    pub largest: Option<f64>,
}

impl Decoder<'_> {
    /// Seconds of a step, prompts included.
    pub fn time(&self, batch: f64) -> f64 {
        (self.step)(batch) / (1.0 - self.prompts).max(f64::MIN_POSITIVE)
    }

    /// b*: the largest batch whose steps meet the objective; 0 where not even a single request's do.
    pub fn largest_batch(&self) -> f64 {
        if let Some(known) = self.largest {
            return known;
        }
        if self.time(1.0) > self.objective {
            return 0.0;
        }
        if self.time(self.most) <= self.objective {
            return self.most;
        }
        bisect(1.0, self.most, |batch| self.time(batch) <= self.objective)
    }

    /// b*, or all that it holds where no batch meets the objective.
    pub fn full(&self) -> f64 {
        let largest = self.largest_batch();
        if largest > 0.0 { largest } else { self.most }
    }

    /// Requests a second that it serves with a batch of that size all the time.
    pub fn rate(&self, batch: f64) -> f64 {
        batch / (self.steps * self.time(batch))
    }

    /// The mean batch at so many requests a second; `None` where it would be above `largest`.
    pub fn batch(&self, rate: f64, largest: f64) -> Option<f64> {
        let behind = |batch: f64| batch < rate * self.steps * self.time(batch);
        if behind(largest) { None } else { Some(bisect(0.0, largest, behind)) }
    }

    /// Share of the requests whose spacing meets the objective, where each of `replicas` gets `rate`.
    pub fn within(&self, replicas: u32, arrivals: Arrivals) -> f64 {
        let Arrivals { rate, noise } = arrivals;
        let largest = self.largest_batch();
        let Some(batch) = self.batch(rate, largest).filter(|_| largest > 0.0) else { return 0.0 };
        if batch <= 0.0 {
            return 1.0;
        }
        let time = self.time(batch);
        let slope = (self.time(batch * 1.01) - time) / (0.01 * batch);
        let stiff = (1.0 - (slope * batch / time).clamp(0.0, 0.95)).max(0.05);
        let felt = 2.0 * (stiff - 1.0 + (-stiff).exp()) / (stiff * stiff);
        let count = f64::from(replicas);
        // Of the mean batch over a stay.
        let swing = (batch * count * (1.0 + noise) / 2.0 * felt / stiff).sqrt() / count;
        // Of the time of a step over a stay, by the prompts that happen to come into it.
        let jitter = (self.spread * noise * time / self.steps).sqrt() / (1.0 - self.prompts);
        // Both are shares of the room that is left for them, so that a fuller replica never seems the better one.
        let deviation = (swing / (largest - batch)).hypot(jitter / (self.objective - time).max(f64::MIN_POSITIVE));
        normal(1.0 / deviation)
    }
}

/// Where `holds` ends between `low`, where it does, and `high`.
pub(in crate::planner) fn bisect(low: f64, high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (low, high);
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2.0;
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}

/// The standard normal distribution up to `z`, to 1e-7 (Abramowitz and Stegun 26.2.17).
fn normal(z: f64) -> f64 {
    const SERIES: [f64; 5] = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial = SERIES.iter().rev().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() * polynomial;
    if z >= 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
#[path = "attain_tests.rs"]
mod tests;
