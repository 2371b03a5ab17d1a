//! Does a recommendation fall because of a fault? An hour in real time: a fleet that scales, replicas that fail in ten ways, and two exporters.
//!
//! `cargo bench --bench hour` prints what happened every five minutes, and at the end the recommendations that fell and the curve of resident
//! memory (`HOUR_MINUTES` makes it shorter, `HOUR_PLANNER` takes another policy than `preset: infera`). Both exporters read the same simulated
//! fleet, one as it is, the other through faults. The fleet follows the first, so that replicas come and go under a load that rises and falls
//! three times an hour; with each the configuration of both is written anew and reloaded. Whatever the second takes back without the first having
//! seen as little need for some minutes about that time fell because of a fault, and is an error.
//!
//! `HOUR_SEEDS=100 cargo bench --bench hour` plays the hour in virtual time, without sockets, for as many loads and faults.

mod faults;
mod quick;
#[path = "../served/mod.rs"]
mod served;
#[path = "../watched/mod.rs"]
mod watched;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use faults::Faults;
use inference_planner_exporter::engines::render::vllm::vllm;
use inference_planner_exporter::simulator::Simulation;
use inference_planner_exporter::simulator::scenario;
use inference_planner_exporter::simulator::workload::Workload;
use inference_planner_exporter::units::{Replicas, Role};
use served::{Answer, http, url};
use watched::{Killed, cpu_seconds, megabytes, setting};

const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";
const ROLES: [Role; 2] = [Role::Prefill, Role::Decode];
/// A day of the load.
const CYCLE: Duration = Duration::from_secs(20 * 60);
const STARTUP: Duration = Duration::from_secs(20);
/// How often recommendations are read and the fleet is looked at.
const POLL: Duration = Duration::from_secs(2);
/// How far apart in time two exporters may see the same: some windows of 30 s.
const BEFORE: Duration = Duration::from_secs(120);
const AFTER: Duration = Duration::from_secs(60);
/// How long less must have been enough before it may be taken back: the usual delay of a decrease.
const ENOUGH: Duration = Duration::from_secs(120);
/// Second octets of the addresses that show the fleet as it is, and through faults.
const CLEAN: u8 = 2;
const FAULTY: u8 = 3;

struct World {
    simulation: Simulation<Workload>,
    faults: Faults,
    started: Instant,
    epoch: Duration,
}

impl World {
    fn now(&mut self) -> Duration {
        let now = self.started.elapsed();
        self.simulation.advance_to(now);
        // Nobody asks for them; they would pile up.
        drop(self.simulation.fleet.take_finished());
        now
    }

    /// The replicas that take requests, by role and number.
    fn listed(&mut self) -> Vec<(Role, u32)> {
        self.now();
        let fleet = &self.simulation.fleet;
        ROLES.into_iter().flat_map(|role| fleet.taking_requests(role).map(move |id| (role, id.number()))).collect()
    }

    fn answer(&mut self, address: Ipv4Addr) -> Answer {
        let [_, way, high, low] = address.octets();
        let (role, number) = (ROLES[usize::from(high >> 4) % ROLES.len()], u32::from(high & 15) << 8 | u32::from(low));
        let now = self.now();
        let fleet = &self.simulation.fleet;
        let page = fleet.serving(role).find(|id| id.number() == number).and_then(|id| fleet.vllm_page(role, id, MODEL, self.epoch));
        match page {
            None => Answer { bytes: [].into(), pause: Duration::ZERO, closes: true },
            Some(page) if way == CLEAN => {
                let text = vllm(&page);
                Answer { bytes: http("200 OK", &text, text.len()), pause: Duration::ZERO, closes: false }
            }
            Some(page) => self.faults.answer(u64::from(high) << 8 | u64::from(low), now, self.epoch + now, page),
        }
    }
}

/// The address of a replica on one of the two ways.
fn address(way: u8, role: Role, number: u32) -> Ipv4Addr {
    let place = ROLES.iter().position(|known| *known == role).unwrap_or_default() as u8;
    Ipv4Addr::new(127, way, place << 4 | (number >> 8 & 15) as u8, (number & 255) as u8)
}

/// The configuration of an exporter that sees these replicas in this way.
fn yaml(way: u8, listen: &str, listed: &[(Role, u32)], port: u16) -> String {
    let pool = |role: Role| {
        let urls: Vec<String> = listed
            .iter()
            .filter(|(of, _)| *of == role)
            .map(|(_, number)| format!("{:?}", url(address(way, role, *number), port)))
            .collect();
        format!(
            "      - {{ name: {role}, role: {role}, min_replicas: 2, max_replicas: 16, gpus_per_replica: 1, targets: {{ static: [{}] }}, capabilities: {{ max_num_batched_tokens: 8192 }} }}\n",
            urls.join(", ")
        )
    };
    let planner = std::env::var("HOUR_PLANNER").unwrap_or_else(|_| "preset: infera, adjustment_interval: 30s, warm_up: 5s".to_owned());
    format!(
        "server: {{ listen: {listen:?}, enable_lifecycle: true }}\nscrape: {{ interval: 5s, timeout: 4s }}\nstate_file: state.json\nmodels:\n  - name: {MODEL}\n    \
         engine: vllm\n    slo: {{ ttft: 800ms, itl: 40ms }}\n    planner: {{ {planner}, profile: profile.json }}\n    pools:\n{}{}",
        pool(Role::Prefill),
        pool(Role::Decode)
    )
}

/// One of the two exporters.
struct Exporter {
    way: u8,
    address: String,
    folder: PathBuf,
    process: Option<Killed>,
}

impl Exporter {
    fn start(way: u8, folder: &Path, listed: &[(Role, u32)], port: u16) -> Self {
        let folder = folder.join(way.to_string());
        fs::create_dir_all(&folder).expect("make a folder");
        let profile = serde_json::to_string(&scenario::profile()).expect("a profile as JSON");
        fs::write(folder.join("profile.json"), profile).expect("write the profile");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").to_string();
        let mut exporter = Self { way, address, folder, process: None };
        exporter.write(listed, port);
        let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
        command.arg("run").arg("--config").arg(exporter.folder.join("config.yaml")).env("RUST_LOG", "info").stdout(Stdio::null());
        command.stderr(fs::File::create(exporter.folder.join("log")).expect("make a log"));
        exporter.process = Some(Killed(command.spawn().expect("start the exporter")));
        exporter
    }

    fn write(&self, listed: &[(Role, u32)], port: u16) {
        let text = yaml(self.way, &self.address, listed, port);
        fs::write(self.folder.join("config.yaml"), text).expect("write the configuration");
    }

    fn ask(&self, request: &str) -> String {
        let mut text = String::new();
        if let Ok(mut stream) = TcpStream::connect(&self.address) {
            let asked = write!(stream, "{request} HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            // What is cut short shows in what is read of it.
            let _read = asked.and_then(|()| stream.read_to_string(&mut text));
        }
        text
    }

    fn said(&self) -> BTreeMap<Role, Said> {
        let page = self.ask("GET /metrics");
        let of = |role: Role| {
            let pool = format!("pool=\"{role}\"");
            let count = |name: &str| {
                let line = page
                    .lines()
                    .find(|line| line.strip_prefix(name).is_some_and(|labels| labels.starts_with('{') && labels.contains(&pool)))?;
                Some(Replicas(line.rsplit_once(' ')?.1.trim().parse::<f64>().ok()? as u32))
            };
            let recommended = count("inference_planner_recommended_replicas");
            (role, Said { recommended, wish: count("inference_planner_unbounded_replicas") })
        };
        ROLES.into_iter().map(of).collect()
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().expect("it was started").0.id()
    }
}

/// What an exporter says of a pool.
#[derive(Clone, Copy, Default)]
struct Said {
    recommended: Option<Replicas>,
    /// Before all limits and delays.
    wish: Option<Replicas>,
}

/// A recommendation that was taken back.
struct Fall {
    at: Duration,
    role: Role,
    from: Replicas,
    to: Replicas,
}

/// What was said when.
#[derive(Default)]
struct Told(Vec<(Duration, BTreeMap<Role, Said>)>);

impl Told {
    /// The least that would have done around that time: what was recommended, or was exceeded by no wish for as long as a decrease waits, up to then
    /// or a little later.
    fn least(&self, role: Role, at: Duration) -> Option<Replicas> {
        let of = |span: (Duration, Duration)| {
            let within = self.0.iter().filter(move |(told, _)| (span.0..=span.1).contains(told));
            within.filter_map(move |(told, said)| Some((*told, *said.get(&role)?)))
        };
        let recommended = of((at.saturating_sub(BEFORE), at + AFTER)).filter_map(|(_, said)| said.recommended).min();
        let most = |until: Duration| of((until.checked_sub(ENOUGH)?, until)).filter_map(|(_, said)| said.wish).max();
        let enough = of((at, at + AFTER)).filter_map(|(told, _)| most(told)).min();
        [recommended, enough].into_iter().flatten().min()
    }

    fn falls(&self) -> Vec<Fall> {
        let mut falls = Vec::new();
        let mut last: BTreeMap<Role, Replicas> = BTreeMap::new();
        for (at, told) in &self.0 {
            for (&role, to) in told.iter().filter_map(|(role, said)| Some((role, said.recommended?))) {
                if let Some(from) = last.insert(role, to).filter(|from| to < *from) {
                    falls.push(Fall { at: *at, role, from, to });
                }
            }
        }
        falls
    }
}

fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn main() {
    let span = Duration::from_secs(60 * setting("HOUR_MINUTES", 60));
    let seeds = setting("HOUR_SEEDS", 0);
    if seeds > 0 {
        let found = quick::print(seeds, span);
        assert_eq!(found, 0, "{found} recommendations fell because of a fault");
        return;
    }
    let epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let world = World { simulation: scenario::simulation(CYCLE, STARTUP, 1), faults: Faults::default(), started: Instant::now(), epoch };
    let world = Arc::new(Mutex::new(world));
    let serving = Arc::clone(&world);
    let port = served::start(move |address| serving.lock().expect("no thread panics with it").answer(address));
    let folder = std::env::temp_dir().join(format!("inference-planner-hour-{}", std::process::id()));
    let mut listed = world.lock().expect("no thread panics with it").listed();
    let exporters = [CLEAN, FAULTY].map(|way| Exporter::start(way, &folder, &listed, port));
    let [clean, faulty] = &exporters;

    let (mut told, mut truth, mut memory, mut reloads) = (Told::default(), Told::default(), Vec::new(), 0);
    let started = Instant::now();
    println!("| minute | replicas | recommended | through faults | resident MB | open files |\n|---|---|---|---|---|---|");
    while started.elapsed() < span {
        thread::sleep(POLL);
        let (now, right) = (started.elapsed(), clean.said());
        let found = {
            let mut world = world.lock().expect("no thread panics with it");
            let recommended = right.iter().filter_map(|(role, said)| Some((*role, said.recommended?)));
            recommended.for_each(|(role, count)| world.simulation.fleet.set_target(role, count));
            world.listed()
        };
        if found != listed {
            listed = found;
            reloads += 1;
            for exporter in &exporters {
                exporter.write(&listed, port);
                let answer = exporter.ask("POST /-/reload");
                assert!(answer.starts_with("HTTP/1.1 200"), "reload: {answer}");
            }
        }
        let seen = faulty.said();
        if memory.last().is_none_or(|(at, _): &(u64, f64)| *at + 5 <= now.as_secs() / 60) {
            let resident = megabytes(faulty.pid(), "VmRSS:");
            memory.push((now.as_secs() / 60, resident));
            let count = |told: &BTreeMap<Role, Said>, role| told.get(&role).and_then(|said| said.recommended);
            let all = |told: &BTreeMap<Role, Said>| {
                ROLES.map(|role| count(told, role).map_or("-".to_owned(), |count| count.0.to_string())).join(" + ")
            };
            let there = ROLES.map(|role| listed.iter().filter(|(of, _)| *of == role).count().to_string()).join(" + ");
            println!(
                "| {} | {there} | {} | {} | {resident:.1} | {} |",
                now.as_secs() / 60,
                all(&right),
                all(&seen),
                open_files(faulty.pid())
            );
        }
        truth.0.push((now, right));
        told.0.push((now, seen));
    }
    let faults = std::mem::take(&mut world.lock().expect("no thread panics with it").faults.met);
    let (pid, share) = (faulty.pid(), cpu_seconds(faulty.pid()) / started.elapsed().as_secs_f64());
    println!("\nmemory at the end {:.1} MB, {} open files, {:.2} % of a core", megabytes(pid, "VmRSS:"), open_files(pid), share * 100.0);
    println!("{reloads} reloads; pages that met a fault: {faults:?}");
    judge(&told, &truth);
    drop(exporters);
    // A folder that stays behind is in nobody's way.
    let _left = fs::remove_dir_all(&folder);
}

/// What fell without the other exporter having asked for as little about that time.
fn unfounded(told: &Told, truth: &Told) -> Vec<Fall> {
    told.falls().into_iter().filter(|fall| truth.least(fall.role, fall.at).is_none_or(|least| least > fall.to)).collect()
}

/// Every fall must have one beside it that no fault explains.
fn judge(told: &Told, truth: &Told) {
    let unfounded = unfounded(told, truth);
    println!("recommendations that fell: {}, and {} where nothing failed", told.falls().len(), truth.falls().len());
    for Fall { at, role, from, to } in &unfounded {
        println!(
            "{role} fell from {} to {} after {} s, where the least without faults was {:?}",
            from.0,
            to.0,
            at.as_secs(),
            truth.least(*role, *at)
        );
    }
    assert!(unfounded.is_empty(), "{} recommendations fell because of a fault", unfounded.len());
    println!("none fell because of a fault");
}
