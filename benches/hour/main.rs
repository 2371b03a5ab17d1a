//! Does a recommendation fall because of a fault? An hour in real time: a fleet that scales, replicas that fail in ten ways, and two exporters.
//!
//! `cargo bench --bench hour` prints what happened every five minutes, and at the end the recommendations that fell and the curve of resident
//! memory (`HOUR_MINUTES` makes it shorter, `HOUR_PLANNER` takes another policy than `preset: infera`). Both exporters read the same simulated
//! fleet, one as it is, the other through faults. The fleet follows the first, so that replicas come and go under a load that rises and falls
//! three times an hour; with each the configuration of both is written anew and reloaded. Whatever the second takes back without the first having
//! asked for as little within two minutes before or one after fell because of a fault, and is an error.

mod faults;
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
        let pool = |role: Role| {
            let urls: Vec<String> = listed
                .iter()
                .filter(|(of, _)| *of == role)
                .map(|(_, number)| format!("{:?}", url(address(self.way, role, *number), port)))
                .collect();
            format!(
                "      - {{ name: {role}, role: {role}, min_replicas: 2, max_replicas: 16, gpus_per_replica: 1, targets: {{ static: [{}] }}, capabilities: {{ max_num_batched_tokens: 8192 }} }}\n",
                urls.join(", ")
            )
        };
        let planner = std::env::var("HOUR_PLANNER").unwrap_or_else(|_| "preset: infera, adjustment_interval: 30s, warm_up: 5s".to_owned());
        let text = format!(
            "server: {{ listen: {:?}, enable_lifecycle: true }}\nscrape: {{ interval: 5s, timeout: 4s }}\nstate_file: state.json\nmodels:\n  - name: {MODEL}\n    \
             engine: vllm\n    slo: {{ ttft: 800ms, itl: 40ms }}\n    planner: {{ {planner}, profile: profile.json }}\n    pools:\n{}{}",
            self.address,
            pool(Role::Prefill),
            pool(Role::Decode)
        );
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

    fn recommended(&self) -> BTreeMap<Role, u32> {
        let page = self.ask("GET /metrics");
        let of = |role: Role| {
            let pool = format!("pool=\"{role}\"");
            let line = page.lines().find(|line| line.starts_with("inference_planner_recommended_replicas{") && line.contains(&pool))?;
            Some((role, line.rsplit_once(' ')?.1.trim().parse::<f64>().ok()? as u32))
        };
        ROLES.into_iter().filter_map(of).collect()
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().expect("it was started").0.id()
    }
}

/// A recommendation that was taken back.
struct Fall {
    at: Duration,
    role: Role,
    from: u32,
    to: u32,
}

/// What was recommended when.
#[derive(Default)]
struct Told(Vec<(Duration, BTreeMap<Role, u32>)>);

impl Told {
    /// The least that was recommended around that time.
    fn least(&self, role: Role, at: Duration) -> Option<u32> {
        let near = self.0.iter().filter(|(told, _)| *told + BEFORE >= at && *told <= at + AFTER);
        near.filter_map(|(_, told)| told.get(&role).copied()).min()
    }

    fn falls(&self) -> Vec<Fall> {
        let mut falls = Vec::new();
        let mut last: BTreeMap<Role, u32> = BTreeMap::new();
        for (at, told) in &self.0 {
            for (&role, &to) in told {
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
        let (now, right) = (started.elapsed(), clean.recommended());
        let found = {
            let mut world = world.lock().expect("no thread panics with it");
            right.iter().for_each(|(role, count)| world.simulation.fleet.set_target(*role, Replicas(*count)));
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
        let seen = faulty.recommended();
        if memory.last().is_none_or(|(at, _): &(u64, f64)| *at + 5 <= now.as_secs() / 60) {
            let resident = megabytes(faulty.pid(), "VmRSS:");
            memory.push((now.as_secs() / 60, resident));
            let all = |told: &BTreeMap<Role, u32>| ROLES.map(|role| told.get(&role).map_or("-".to_owned(), u32::to_string)).join(" + ");
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

/// Every fall must have one beside it that no fault explains.
fn judge(told: &Told, truth: &Told) {
    let falls = told.falls();
    let unfounded: Vec<&Fall> = falls.iter().filter(|fall| truth.least(fall.role, fall.at).is_none_or(|least| least > fall.to)).collect();
    println!("recommendations that fell: {}, and {} where nothing failed", falls.len(), truth.falls().len());
    for Fall { at, role, from, to } in &unfounded {
        println!(
            "{role} fell from {from} to {to} after {} s, where the least without faults was {:?}",
            at.as_secs(),
            truth.least(*role, *at)
        );
    }
    assert!(unfounded.is_empty(), "{} recommendations fell because of a fault", unfounded.len());
    println!("none fell because of a fault");
}
