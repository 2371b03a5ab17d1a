//! Does an exporter stay as it is over weeks? In virtual time: replicas that come and go, reloads, clocks that step, a machine that sleeps, and
//! counts at the end of what a double counts exactly. What is remembered must not grow, and what is recommended must not drift.

use std::collections::BTreeMap;
use std::time::Duration;

use inference_planner_exporter::app::exporter::{Exporter, Round};
use inference_planner_exporter::planner::input::FailureKind;
use inference_planner_exporter::scrape::report::Failure;
use inference_planner_exporter::simulator::random::Random;
use inference_planner_exporter::units::{Moment, Replicas, Role};
use serde_json::Value;

use crate::virtual_time::{ROLES, START, Server, Servers, config, exporter, recommended};

const DAY: Duration = Duration::from_secs(86_400);
/// Long, so that weeks are few rounds.
const ROUND: Duration = Duration::from_secs(1800);
/// `SOAK_DAYS` makes it longer, and takes every policy.
const DAYS: u32 = 14;
const PLANNERS: [&str; 4] = [
    "preset: infera, profile: profile.json, adjustment_interval: 1h",
    "preset: auto, profile: profile.json",
    "preset: wva, adjustment_interval: 1h",
    "preset: dynamo, profile: profile.json, adjustment_interval: 1h",
];
/// Requests whose tokens add up to nearly 2^53, where doubles no longer hold every whole number.
const NEARLY_FULL: f64 = (9_007_199_254_740_992.0 - 2e9) / 1500.0;

/// What a day showed: the most that was remembered, and the least and the most that was recommended.
#[derive(Debug, Default)]
struct Day {
    entries: usize,
    shown: usize,
    counts: BTreeMap<Role, (u32, u32)>,
}

/// An exporter, its servers, and what happens to them.
struct Life {
    planner: &'static str,
    exporter: Exporter,
    servers: Servers,
    next: u32,
    now: Moment,
    random: Random,
    reloads: u32,
}

impl Life {
    fn new(planner: &'static str) -> Self {
        let mut life = Self {
            planner,
            exporter: exporter(&config(planner, ROUND), START),
            servers: Servers::default(),
            next: 0,
            now: START,
            random: Random::new(0x5eed),
            reloads: 0,
        };
        ROLES.into_iter().for_each(|role| life.scale(role, Replicas(4)));
        life
    }

    fn scale(&mut self, role: Role, wanted: Replicas) {
        let before = self.next;
        self.servers.scale(role, wanted, &mut self.next, self.now);
        for number in before + 1..=self.next {
            // Old ones that are new here, since a young process cannot have counted so much.
            let started = START.wall - 400 * DAY;
            self.servers.0.insert((role, number), Server { completed: NEARLY_FULL, started, ..Server::default() });
        }
    }

    /// One round with whatever comes between it and the last.
    fn round(&mut self) -> Vec<Round> {
        // Between 4 and 20 requests a second, by the time of day.
        let hour = self.now.monotonic.as_secs_f64() / DAY.as_secs_f64() * std::f64::consts::TAU;
        let rate = 12.0 - 8.0 * hour.cos();
        self.servers.work(ROUND, rate);
        self.now = self.now.after(ROUND);
        if self.chance(0.5) {
            self.replace();
        }
        if self.chance(1.0 / 6.0) {
            self.reload();
        }
        if self.chance(1.0 / 48.0) {
            // By up to ten minutes to either side.
            let step = Duration::from_secs_f64(600.0 * self.random.unit());
            self.now.wall = if self.chance(0.5) { self.now.wall + step } else { self.now.wall - step };
        }
        if self.chance(1.0 / 96.0) {
            // The machine sleeps: its monotonic clock stands still, and the servers elsewhere go on.
            let asleep = Duration::from_secs(7200);
            self.servers.work(asleep, rate);
            self.now.wall += asleep;
        }
        let silent: Vec<(Role, u32)> = self.servers.0.keys().copied().filter(|_| self.random.unit() < 0.01).collect();
        let failure = |role, number| {
            silent.contains(&(role, number)).then(|| Failure { kind: FailureKind::Timeout, message: "no answer".to_owned() })
        };
        let rounds = self.servers.round(&mut self.exporter, self.now, failure);
        for (role, count) in recommended(&rounds) {
            if let Some(count) = count {
                self.scale(role, count);
            }
        }
        rounds
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.unit() < share
    }

    /// The oldest server of each role makes room for a new one.
    fn replace(&mut self) {
        for role in ROLES {
            let count = Replicas(self.servers.count(role) as u32);
            self.scale(role, Replicas(count.0 + 1));
            self.scale(role, count);
        }
    }

    /// The configuration alternates between two.
    fn reload(&mut self) {
        self.reloads += 1;
        let planner = if self.reloads.is_multiple_of(2) { self.planner.to_owned() } else { format!("{}, hold_for: 6h", self.planner) };
        self.exporter.adopt(config(&planner, ROUND), self.now);
    }
}

/// Numbers, words and truths in a document.
fn entries(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.iter().map(entries).sum(),
        Value::Object(values) => values.values().map(entries).sum(),
        _ => 1,
    }
}

fn days(planner: &'static str, days: u32) -> Vec<Day> {
    let mut life = Life::new(planner);
    let rounds = (DAY.as_secs() / ROUND.as_secs()) as u32;
    let mut seen = Vec::new();
    for _ in 0..days {
        let mut day = Day::default();
        for round in 0..rounds {
            let done = life.round();
            for (role, count) in recommended(&done) {
                if let Some(Replicas(count)) = count {
                    let range = day.counts.entry(role).or_insert((count, count));
                    *range = (range.0.min(count), range.1.max(count));
                }
            }
            // Looking costs more than the round.
            if round % 8 == 0 {
                day.entries = day.entries.max(done.iter().map(|round| entries(&serde_json::to_value(&*round.after).unwrap())).sum());
                let snapshot = life.exporter.snapshot(life.now);
                let history: usize = snapshot.models.iter().map(|model| model.history.bytes()).sum();
                let kept = serde_json::to_value(life.exporter.kept_decisions()).unwrap();
                day.shown =
                    day.shown.max(history + entries(&kept) + snapshot.targets.len() + format!("{:?}", snapshot.counters).len() / 10);
            }
        }
        seen.push(day);
    }
    seen
}

#[test]
fn weeks_of_churn_reloads_clock_steps_and_sleep_leave_memory_flat_and_recommendations_where_they_were() {
    let asked = std::env::var("SOAK_DAYS").ok().and_then(|text| text.parse().ok());
    let planners = if asked.is_some() { &PLANNERS[..] } else { &PLANNERS[..2] };
    for planner in planners {
        let seen = days(planner, asked.unwrap_or(DAYS));
        // The first days fill what is filled.
        let (early, late) = (&seen[1..seen.len() / 2], &seen[seen.len() / 2..]);
        let most = |days: &[Day], of: fn(&Day) -> usize| days.iter().map(of).max().unwrap_or_default() as f64;
        for of in [|day: &Day| day.entries, |day: &Day| day.shown] {
            assert!(most(late, of) <= 1.1 * most(early, of), "{planner}: {seen:?}");
        }
        for role in ROLES {
            let highest = |days: &[Day]| days.iter().filter_map(|day| Some(day.counts.get(&role)?.1)).max().unwrap();
            assert!(highest(late).abs_diff(highest(early)) <= 1, "{planner}: {seen:?}");
            assert!(late.iter().all(|day| day.counts.contains_key(&role)), "{planner}: every day has recommendations");
        }
    }
}
