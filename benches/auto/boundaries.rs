//! Does a constant load at the boundary between two counts move preset auto? Two hours at each boundary from 1 to 10 replicas of either pool.
//!
//! A boundary is found with the planner's own answer: the load at which the median of what it asks for, while the pool is held at `n`, goes from
//! `n` to `n + 1`. Then the fleet follows for two hours and a quarter at that load, one percent below and one above, and each change of a
//! count after the first quarter of an hour is printed: pool, minute, counts. Arrivals are those of a clock with requests all alike, and by chance
//! with lengths that differ.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inference_planner_exporter::cli::load::load;
use inference_planner_exporter::config::Flags;
use inference_planner_exporter::planner::plan::Proposer;
use inference_planner_exporter::planner::policy::ModelPolicy;
use inference_planner_exporter::simulator::backtest::faults::MetricFaults;
use inference_planner_exporter::simulator::backtest::world::{World, WorldSettings};
use inference_planner_exporter::simulator::backtest::{Answer, Outcome, Planner, Policy, View, run};
use inference_planner_exporter::simulator::fleet::Routing;
use inference_planner_exporter::simulator::trace::{Trace, shape};
use inference_planner_exporter::units::{Ratio, Replicas, Role};

/// Names, and what a shape says of arrivals and lengths.
const ARRIVALS: [(&str, &str); 2] =
    [("a clock", "cv=0&isl=3000&isl_cv=0&osl=600&osl_cv=0"), ("chance", "cv=1&isl=3000&isl_cv=0.5&osl=600&osl_cv=0.5")];
const ROLES: [Role; 2] = [Role::Prefill, Role::Decode];
const MOST: u32 = 10;
const BESIDE: [f64; 3] = [0.99, 1.0, 1.01];
/// Minutes: what a search for a boundary plays, and of it what it looks at; and what is played there.
const SEARCHED: u32 = 35;
const LOOKED_AT: usize = 15;
const PLAYED: u32 = 135;
const SETTLING: f64 = 900.0;
/// Boundaries are found to this part of their load.
const EXACT: f64 = 0.003;
const LOWEST_RATE: f64 = 0.2;
const SEED: u64 = 0;

/// A planner that everybody follows but one pool, with what it asked for there.
struct Held {
    planner: Planner,
    role: Role,
    asked: Vec<Replicas>,
}

impl Policy for Held {
    fn name(&self) -> String {
        "held".to_owned()
    }

    fn targets(&mut self, view: &View<'_>) -> Answer {
        let mut answer = self.planner.targets(view);
        let pool = answer.why.as_ref().and_then(|why| why.pools.get(&self.role));
        self.asked.extend(pool.and_then(|pool| pool.proposed.get(&Proposer::Auto)).copied());
        answer.targets.remove(&self.role);
        answer
    }
}

struct Bench {
    servers: ModelPolicy,
    judged: ModelPolicy,
}

impl Bench {
    fn new() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/example/llama-70b");
        let policy = |name: &str| {
            let loaded = load(Some(&folder.join(name)), Flags::default()).unwrap_or_else(|_| panic!("read {name}"));
            loaded.config.models[0].policy.clone()
        };
        Self { servers: policy("config.yaml"), judged: policy("auto.yaml") }
    }

    /// Plays so many minutes at a rate, with that count of one role at the start.
    fn play(&self, (arrivals, role): (&str, Role), (count, rate, minutes): (u32, f64, u32), policy: &mut dyn Policy) -> Outcome {
        let text = format!("steady?rate={rate}&duration={minutes}m&{arrivals}");
        let trace = Trace::following(&shape::parse(&text).expect("a shape"), SEED).expect("a trace");
        let settings = WorldSettings {
            startup: Duration::from_secs(100),
            hand_over: Duration::ZERO,
            prefix_hits: Ratio(0.0),
            warm_up: Duration::ZERO,
            routing: Routing::LeastWork,
            aggregated: false,
            metric_faults: MetricFaults::default(),
            seed: SEED,
        };
        let world = World::new(&self.servers, &trace, &settings).expect("a profile");
        run(&world.scenario.starting_with(&BTreeMap::from([(role, Replicas(count))])), policy)
    }

    /// What a pool that is held at `count` is asked to have in the end.
    fn asked(&self, pool: (&str, Role), count: u32, rate: f64) -> Replicas {
        let mut held = Held { planner: Planner::new("held", &self.judged), role: pool.1, asked: Vec::new() };
        self.play(pool, (count, rate, SEARCHED), &mut held);
        let ticks = LOOKED_AT * 60 / usize::try_from(self.judged.scrape_interval.as_secs()).expect("an interval");
        let mut last = held.asked.split_off(held.asked.len().saturating_sub(ticks));
        last.sort_unstable();
        last[last.len() / 2]
    }

    fn boundary(&self, pool: (&str, Role), count: u32, from: f64) -> f64 {
        let (mut below, mut above) = (from, from);
        while self.asked(pool, count, above) <= Replicas(count) {
            (below, above) = (above, above * 1.3);
        }
        while above - below > EXACT * above {
            let middle = (below + above) / 2.0;
            if self.asked(pool, count, middle) <= Replicas(count) { below = middle } else { above = middle }
        }
        above
    }

    /// Prints all boundaries of a pool, a line each.
    fn print(&self, (name, arrivals): (&str, &str), role: Role) {
        let mut rate = LOWEST_RATE;
        for count in 1..=MOST {
            rate = self.boundary((arrivals, role), count, rate);
            let cells = BESIDE.map(|beside| {
                let mut planner = Planner::new("auto", &self.judged);
                let outcome = self.play((arrivals, role), (count, rate * beside, PLAYED), &mut planner);
                let moved = moved(&outcome);
                format!("{} {}", moved.len(), moved.join(", "))
            });
            println!("| {name} | {role} | {count} to {} | {rate:.2} | {} |", count + 1, cells.join(" | "));
        }
    }
}

/// The changes of counts after settling.
fn moved(outcome: &Outcome) -> Vec<String> {
    let pairs = outcome.series.windows(2).filter(|pair| pair[1].at.get() >= SETTLING);
    let changes = pairs.flat_map(|pair| {
        let at = pair[1].at.get() / 60.0;
        pair[1].replicas.iter().filter_map(move |(role, counts)| {
            let (before, after) = (pair[0].replicas.get(role)?.recommended, counts.recommended);
            (before != after).then(|| format!("{role} {at:.0} min {before}→{after}"))
        })
    });
    changes.collect()
}

/// Prints the table, each line when it is known.
pub fn print() {
    println!("| arrivals | pool | boundary | requests/s | changes in 2 h, 1 % below | at it | 1 % above |\n|---|---|---|---|---|---|---|");
    let bench = Bench::new();
    let jobs: Vec<_> = ARRIVALS.into_iter().flat_map(|arrivals| ROLES.map(|role| (arrivals, role))).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(&(arrivals, role)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bench.print(arrivals, role);
                }
            });
        }
    });
}
