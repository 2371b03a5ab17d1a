//! Does it hold for other faults and other loads as well? The same hour in virtual time, for as many seeds as one likes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use inference_planner_exporter::app::exporter::Exporter;
use inference_planner_exporter::app::fleet::Fleet;
use inference_planner_exporter::config::{self, Config, Inputs, SourceText};
use inference_planner_exporter::decisions::Ledger;
use inference_planner_exporter::engines::render::vllm::vllm;
use inference_planner_exporter::scrape::discover::Listing;
use inference_planner_exporter::scrape::lower::lower;
use inference_planner_exporter::scrape::report::TargetReport;
use inference_planner_exporter::simulator::{Simulation, scenario, workload::Workload};
use inference_planner_exporter::units::{Moment, Role};

use crate::faults::Faults;
use crate::{CLEAN, CYCLE, FAULTY, MODEL, ROLES, STARTUP, Said, Told, address, unfounded, yaml};

const INTERVAL: Duration = Duration::from_secs(5);
const PORT: u16 = 8000;
const START: Moment = Moment { monotonic: Duration::ZERO, wall: Duration::from_secs(1_795_953_600) };

fn loaded(way: u8, listed: &[(Role, u32)]) -> Arc<Config> {
    let text = yaml(way, "127.0.0.1:0", listed, PORT);
    let profile = serde_json::to_string(&scenario::profile()).expect("a profile as JSON");
    let file = Some(SourceText { path: "config.yaml".into(), text });
    let loaded = config::read(Inputs { file, ..Inputs::default() }).finish(&BTreeMap::from([("profile.json".into(), Ok(profile))]));
    Arc::new(loaded.unwrap_or_else(|problems| panic!("{problems:?}")).config)
}

/// One exporter, and what it recommended.
struct One {
    way: u8,
    exporter: Exporter,
    told: Told,
}

impl One {
    fn new(way: u8, listed: &[(Role, u32)]) -> Self {
        Self { way, exporter: Exporter::new(loaded(way, listed), BTreeMap::new(), Ledger::default(), START), told: Told::default() }
    }

    /// A round over the fleet as this one sees it.
    fn round(&mut self, simulation: &Simulation<Workload>, faults: &mut Faults, now: Moment) {
        let config = Arc::clone(self.exporter.config());
        let fleet = Fleet::of(&config, |_| Listing::default());
        let jobs = fleet.jobs(&config);
        let mut report = |(role, number): (Role, u32), url: &str| {
            let servers = &simulation.fleet;
            let page =
                servers.serving(role).find(|id| id.number() == number).and_then(|id| servers.vllm_page(role, id, MODEL, START.wall))?;
            let job = jobs.iter().find(|job| job.url == url)?;
            let outcome = match self.way {
                CLEAN => lower(vllm(&page).as_bytes(), None, None, false),
                _ => {
                    let [.., high, low] = address(FAULTY, role, number).octets();
                    faults.report(u64::from(high) << 8 | u64::from(low), now.monotonic, now.wall, page)
                }
            };
            Some(TargetReport { target: job.target.clone(), at: now.monotonic, duration: Duration::ZERO, outcome })
        };
        let servers = listed(simulation).into_iter();
        let reports: Vec<TargetReport> = servers.filter_map(|server| report(server, &url(self.way, server))).collect();
        let (rounds, _) = self.exporter.round(&reports, &fleet, now);
        let pools = rounds.iter().flat_map(|round| &round.plan.pools);
        let told = pools.map(|pool| (pool.role, Said { recommended: pool.recommended_replicas, wish: pool.unbounded_replicas }));
        self.told.0.push((now.monotonic, told.collect()));
    }
}

fn url(way: u8, (role, number): (Role, u32)) -> String {
    crate::served::url(address(way, role, number), PORT)
}

fn listed(simulation: &Simulation<Workload>) -> Vec<(Role, u32)> {
    let fleet = &simulation.fleet;
    ROLES.into_iter().flat_map(|role| fleet.taking_requests(role).map(move |id| (role, id.number()))).collect()
}

/// Prints what fell because of a fault, seed by seed, and answers how much that was.
pub fn print(seeds: u64, span: Duration) -> usize {
    println!("| seed | recommendations that fell | where nothing failed | because of a fault |\n|---|---|---|---|");
    (0..seeds).map(|seed| hour(seed, span)).sum()
}

fn hour(seed: u64, span: Duration) -> usize {
    let mut simulation = scenario::simulation(CYCLE, STARTUP, seed);
    let mut faults = Faults::of(seed);
    let mut known = listed(&simulation);
    let (mut clean, mut faulty) = (One::new(CLEAN, &known), One::new(FAULTY, &known));
    let mut now = START;
    while now.monotonic < span {
        now = now.after(INTERVAL);
        simulation.advance_to(now.monotonic);
        drop(simulation.fleet.take_finished());
        for one in [&mut clean, &mut faulty] {
            one.round(&simulation, &mut faults, now);
        }
        let told = clean.told.0.last().map(|(_, told)| told.clone()).unwrap_or_default();
        let recommended = told.iter().filter_map(|(role, said)| Some((*role, said.recommended?)));
        recommended.for_each(|(role, count)| simulation.fleet.set_target(role, count));
        let found = listed(&simulation);
        if found != known {
            known = found;
            for one in [&mut clean, &mut faulty] {
                one.exporter.adopt(loaded(one.way, &known), now);
            }
        }
    }
    let because = unfounded(&faulty.told, &clean.told);
    println!("| {seed} | {} | {} | {} |", faulty.told.falls().len(), clean.told.falls().len(), because.len());
    for fall in &because {
        println!("  {} from {} to {} after {} s", fall.role, fall.from.0, fall.to.0, fall.at.as_secs());
    }
    because.len()
}
