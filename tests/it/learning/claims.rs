//! What is claimed of the learner, each over a number of seeds: the tests take a few, the bench of the same name a hundred.

use inference_planner_exporter::planner::learn::interval::Question;
use inference_planner_exporter::simulator::workload::Shape;
use inference_planner_exporter::units::RequestsPerSecond;

use super::harness::{Learner, Run, Server, threefold};

/// A server with an objective, and what one replica of it can really do.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub server: Server,
    pub ttft_ms: f64,
    pub itl_ms: f64,
    pub capacity: f64,
}

impl Case {
    pub fn new(server: Server, ttft_ms: f64, itl_ms: f64) -> Self {
        let capacity = server.capacity(1.0, &server.question(ttft_ms, itl_ms));
        Self { server, ttft_ms, itl_ms, capacity }
    }

    pub fn name(&self) -> String {
        format!("{} {}, TTFT {} ms, ITL {} ms", self.server.name, self.server.role, self.ttft_ms, self.itl_ms)
    }

    fn question(&self) -> Question {
        self.server.question(self.ttft_ms, self.itl_ms)
    }

    fn is_near(&self, learner: &Learner, share: f64) -> bool {
        learner.interval(&self.question()).is_some_and(|found| (found.estimate.get() / self.capacity - 1.0).abs() <= share)
    }
}

/// Seeds in which lambda* is within 15 % of the measured capacity after `windows` of a load that varies threefold within ten, up to `share` of the
/// capacity.
pub fn varied(case: &Case, share: f64, windows: usize, seeds: u64) -> u64 {
    (0..seeds).filter(|&seed| case.is_near(&taught(case, 1.0, share, windows, seed), 0.15)).count() as u64
}

fn taught(case: &Case, slower: f64, share: f64, windows: usize, seed: u64) -> Learner {
    let mut run = Run::new(&case.server, slower, threefold(case.capacity * share, seed), seed);
    let mut learner = Learner::new(case.server.role);
    (0..windows).for_each(|_| {
        learner.learn(&run.seen());
    });
    learner
}

/// What twenty windows of one constant load lead to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constant {
    /// Seeds whose interval holds the measured capacity.
    pub contained: u64,
    /// Seeds whose lower end promises more than a replica can do: on that a needed replica would be given back.
    pub promised_too_much: u64,
    /// Seeds in which lambda* is within 15 % after twenty further windows of a varying load.
    pub learned: u64,
}

/// A constant load of `utilization` of the most that a replica serves, then a varying one.
pub fn constant(case: &Case, most: f64, utilization: f64, seeds: u64) -> Constant {
    let mut found = Constant::default();
    for seed in 0..seeds {
        let mut run = Run::new(&case.server, 1.0, Shape::Steady(RequestsPerSecond(most * utilization)), seed);
        let mut learner = Learner::new(case.server.role);
        (0..20).for_each(|_| {
            learner.learn(&run.seen());
        });
        if let Some(interval) = learner.interval(&case.question()) {
            found.contained += u64::from(interval.lower.get() <= case.capacity && case.capacity <= interval.upper.get());
            found.promised_too_much += u64::from(interval.lower.get() > case.capacity);
        }
        let mut run = Run::new(&case.server, 1.0, threefold(case.capacity * 0.8, seed), seed + 500);
        (0..20).for_each(|_| {
            learner.learn(&run.seen());
        });
        found.learned += u64::from(case.is_near(&learner, 0.15));
    }
    found
}

/// Seeds in which, ten windows after the server became slower by that factor at a constant load, the model's TTFT and ITL are within 10 % of the
/// measured ones.
pub fn followed(case: &Case, slower: f64, share: f64, seeds: u64) -> u64 {
    let rate = case.capacity * share;
    let (ttft, itl) = case.server.measured(slower, rate);
    let near = |seed: &u64| {
        let mut learner = taught(case, 1.0, 0.8, 20, *seed);
        let mut run = Run::new(&case.server, slower, Shape::Steady(RequestsPerSecond(rate)), seed + 900);
        (0..10).for_each(|_| {
            learner.learn(&run.seen());
        });
        let parameters = learner.learned.as_ref().map(|learned| learned.parameters());
        let state = parameters.and_then(|known| known.at(case.server.role, RequestsPerSecond(rate), case.server.lengths()));
        state.is_some_and(|state| (state.ttft.get() / ttft - 1.0).abs() <= 0.1 && (state.itl.get() / itl - 1.0).abs() <= 0.1)
    };
    (0..seeds).filter(near).count() as u64
}
