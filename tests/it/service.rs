//! Does the running program keep the contract? The real binary as a child process, against fake servers whose counters grow with time.
//!
//! Each test waits for what it expects until a deadline, never for a fixed time, and asserts no upper latency. Loads are chosen so that
//! the wish lies in the middle between two counts: a window that is a tenth longer or shorter than meant changes nothing.

mod churn;
mod decisions;
mod faults;
mod kill_switch;
mod leaks;
mod naming;
mod process;
mod queueing_config;
mod reload;
mod reports;
mod restart;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inference_planner_exporter::engines::render::{self, InferaPage, InferaSeries, infera_edges};
use inference_planner_exporter::planner::input::{Histogram, Signal};
use inference_planner_exporter::units::{Replicas, Role};

use crate::fake::{Behaviour, FakeServer};

const BINARY: &str = env!("CARGO_BIN_EXE_inference-planner-exporter");
const DEADLINE: Duration = Duration::from_secs(20);

/// A profile on which a replica of either pool is worth 1000 tokens a second whatever happens.
const FLAT_PROFILE: &str = r#"{
  "prefill": { "isl": [64, 4096], "ttft_ms": [100, 100], "thpt_per_gpu": [1000, 1000] },
  "decode": { "kv_usage": [0.1, 0.9], "context_length": [64, 4096], "itl_ms": [[10, 10], [10, 10]],
              "thpt_per_gpu": [[1000, 1000], [1000, 1000]], "max_kv_tokens": 100000 },
  "prefill_engine_num_gpu": 1, "decode_engine_num_gpu": 1 }"#;

/// Of each router where two share the load: 2.5 replicas' worth in all, so 3 are recommended.
pub const HALF_LOAD: f64 = 12.5;

/// Calls `probe` until it gives something.
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A child process with what it has written so far. Killed when it is dropped.
pub struct Process {
    child: Child,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl Process {
    pub fn spawn(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(args).env_remove("RUST_LOG").envs(variables.iter().copied());
        Self::of(command)
    }

    /// The program where no file can grow, as on a disk that is full.
    pub fn spawn_on_a_full_disk(args: &[&str]) -> Self {
        let mut command = Command::new("sh");
        // Without the signal a write that goes beyond the limit fails, and the rest is up to the program.
        command.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh", BINARY]).args(args).env_remove("RUST_LOG");
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = collect(child.stdout.take().unwrap());
        let stderr = collect(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    pub fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    pub fn log(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// `TERM`, `INT` or `HUP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status().unwrap();
        assert!(sent.success());
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Its exit code; `None` where a signal ended it.
    pub fn ended(&mut self) -> Option<i32> {
        let status = until("the process ends", || self.child.try_wait().unwrap());
        // The readers see the end of the pipes a moment later.
        until("the last words are read", || (Arc::strong_count(&self.stdout) == 1 && Arc::strong_count(&self.stderr) == 1).then_some(()));
        status.code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&text);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read) = pipe.read(&mut buffer) {
            if read == 0 {
                break;
            }
            sink.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    });
    text
}

/// Runs a command to its end: exit code, standard output, standard error.
pub fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let mut process = Process::spawn(args, &[]);
    let code = process.ended();
    (code, process.stdout(), process.log())
}

/// The service, with its address.
pub struct Exporter {
    pub process: Process,
    pub addr: SocketAddr,
}

impl Exporter {
    pub fn start(config: &Path) -> Self {
        Self::start_with(&["run", "--config", text(config)], &[])
    }

    pub fn start_with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::of(Process::spawn(args, variables))
    }

    /// Once it listens.
    pub fn of(mut process: Process) -> Self {
        let addr = until("the exporter starts", || {
            assert!(process.child.try_wait().unwrap().is_none(), "{}", process.log());
            let log = process.log();
            let started = log.lines().find(|line| line.contains("started") && line.contains("address"))?;
            // As text `address=A`, as JSON `"address":"A"`.
            let (_, rest) = started.split_once("address=").or_else(|| started.split_once("\"address\":\""))?;
            rest.split([' ', '"']).next()?.parse().ok()
        });
        Self { process, addr }
    }

    /// Status, head and body.
    pub fn ask(&self, request: &str) -> (u16, String, String) {
        self.ask_with(request, "")
    }

    pub fn ask_with(&self, request: &str, headers: &str) -> (u16, String, String) {
        ask(self.addr, request, headers)
    }

    pub fn status(&self, path: &str) -> u16 {
        self.ask(&format!("GET {path}")).0
    }

    /// The page, which is always there and sound.
    pub fn metrics(&self) -> Metrics {
        let (status, head, body) = self.ask("GET /metrics");
        assert_eq!(status, 200, "{body}");
        assert!(head.to_ascii_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
        let metrics = Metrics(body);
        metrics.assert_sound();
        metrics
    }

    pub fn recommended(&self, pool: &str) -> Option<f64> {
        self.metrics().recommended(pool)
    }

    /// The value by the path for one pool.
    pub fn pool_page(&self, pool: &str) -> (u16, String) {
        let (status, _, body) = self.ask(&format!("GET /metrics/pool/{pool}"));
        (status, body)
    }

    /// Waits until both pools of the models have this recommendation, computed and not held.
    pub fn settle(&self, models: &[&str], replicas: f64) {
        let pools: Vec<String> = models.iter().flat_map(|model| pools(model)).collect();
        until(&format!("{models:?} at {replicas}"), || {
            let page = self.metrics();
            let settled = |pool: &String| page.recommended(pool) == Some(replicas) && page.held(pool) == Some(0.0);
            pools.iter().all(settled).then_some(())
        });
    }

    /// Looks at the page again and again until every model has decided so many times more.
    pub fn watch(&self, models: &[&str], decisions: f64, mut look: impl FnMut(&Metrics)) {
        let counts = |page: &Metrics| -> Vec<f64> { models.iter().map(|model| page.sum("decisions_total", &[("model", model)])).collect() };
        let first = counts(&self.metrics());
        until("enough decisions", || {
            let page = self.metrics();
            look(&page);
            counts(&page).iter().zip(&first).all(|(now, first)| now - first >= decisions).then_some(())
        });
    }
}

/// Status, head and body.
pub fn ask(addr: SocketAddr, request: &str, headers: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: exporter\r\n{headers}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    (status, head.to_owned(), if chunked { dechunked(body) } else { body.to_owned() })
}

fn dechunked(body: &str) -> String {
    let (mut rest, mut text) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&after[..size]);
        rest = &after[(size + 2).min(after.len())..];
    }
    text
}

/// Our own page.
pub struct Metrics(pub String);

impl Metrics {
    fn lines<'a>(&'a self, family: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = f64> + use<'a> {
        let name = format!("inference_planner_{family}");
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(&name)?;
            if !rest.starts_with(['{', ' ']) || !labels.iter().all(|label| rest.contains(label)) {
                return None;
            }
            rest.rsplit_once(' ')?.1.parse().ok()
        })
    }

    /// The one value with these labels.
    pub fn value(&self, family: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut lines = self.lines(family, labels);
        let value = lines.next();
        assert!(lines.next().is_none(), "{family}{labels:?} is more than one series");
        value
    }

    pub fn sum(&self, family: &str, labels: &[(&str, &str)]) -> f64 {
        self.lines(family, labels).sum()
    }

    pub fn recommended(&self, pool: &str) -> Option<f64> {
        self.value("recommended_replicas", &[("pool", pool)])
    }

    pub fn held(&self, pool: &str) -> Option<f64> {
        self.value("recommendation_held", &[("pool", pool)])
    }

    /// The reason in force.
    pub fn reason(&self, pool: &str) -> String {
        let name = "inference_planner_hold_reason{";
        let pool = format!("pool=\"{pool}\"");
        let active = self.0.lines().find(|line| line.starts_with(name) && line.contains(&pool) && line.ends_with(" 1"));
        let (_, rest) = active.expect("one reason is in force").split_once("reason=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }

    /// Every value is a number that a consumer can act on.
    fn assert_sound(&self) {
        for line in self.0.lines().filter(|line| !line.starts_with('#')) {
            let value: f64 = line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).unwrap_or(f64::NAN);
            assert!(value.is_finite() && value >= 0.0, "{line}");
        }
    }
}

pub fn pools(model: &str) -> [String; 2] {
    [format!("{model}-prefill"), format!("{model}-decode")]
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Held while an exporter is tried. What takes all processors would stretch the windows of the others, and waits until it is alone.
static TURN: RwLock<()> = RwLock::new(());

enum Turn {
    Beside(#[expect(dead_code, reason = "held, never read")] RwLockReadGuard<'static, ()>),
    #[cfg(feature = "real-programs")]
    Alone(#[expect(dead_code, reason = "held, never read")] std::sync::RwLockWriteGuard<'static, ()>),
}

/// A folder with configuration and profile.
pub struct Site {
    folder: tempfile::TempDir,
    _turn: Turn,
}

impl Site {
    pub fn new() -> Self {
        Self::in_turn(Turn::Beside(TURN.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Once nobody else has one. It is not queued for: a test with two sites must not wait for itself.
    #[cfg(feature = "real-programs")]
    pub fn alone() -> Self {
        let patience = Instant::now() + Duration::from_secs(600);
        loop {
            match TURN.try_write() {
                Ok(turn) => return Self::in_turn(Turn::Alone(turn)),
                Err(std::sync::TryLockError::Poisoned(turn)) => return Self::in_turn(Turn::Alone(turn.into_inner())),
                Err(std::sync::TryLockError::WouldBlock) => assert!(Instant::now() < patience, "the other tests do not end"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn in_turn(turn: Turn) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap(), _turn: turn };
        site.write("profile.json", FLAT_PROFILE);
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Quick scrapes, these further settings, and these models.
    pub fn config(&self, settings: &str, models: &[Model]) -> PathBuf {
        let scrape = if settings.contains("scrape:") { "" } else { "scrape: { interval: 100ms, timeout: 100ms }\n" };
        let server = if settings.contains("server:") { "" } else { "server: { listen: \"127.0.0.1:0\" }\n" };
        let models: String = models.iter().map(Model::yaml).collect();
        self.write("config.yaml", &format!("{server}{scrape}{settings}models:\n{models}"))
    }
}

/// A model in a configuration.
#[derive(Clone)]
pub struct Model {
    pub name: String,
    pub urls: Vec<String>,
    pub mode: &'static str,
    pub interval: &'static str,
    pub hold_for: &'static str,
    pub limits: (u32, u32),
}

impl Model {
    pub fn new(name: &str, urls: impl IntoIterator<Item = String>) -> Self {
        let urls = urls.into_iter().collect();
        Self { name: name.to_owned(), urls, mode: "publish", interval: "1s", hold_for: "60s", limits: (1, 16) }
    }

    pub fn of(name: &str, routers: &[Router]) -> Self {
        Self::new(name, routers.iter().map(|router| router.server.url()))
    }

    fn yaml(&self) -> String {
        let Self { name, mode, interval, hold_for, limits: (min, max), .. } = self;
        let urls = self.urls.iter().map(|url| format!("\"{url}\"")).collect::<Vec<_>>().join(", ");
        let pool = |role| format!("      - {{ name: {name}-{role}, role: {role}, min_replicas: {min}, max_replicas: {max} }}\n");
        format!(
            "  - name: {name}\n    mode: {mode}\n    slo: {{ ttft: 500ms, itl: 50ms }}\n    \
             planner: {{ preset: infera, profile: profile.json, adjustment_interval: {interval}, hold_for: {hold_for} }}\n    \
             traffic: {{ targets: {{ static: [{urls}] }} }}\n    pools:\n{}{}",
            pool("prefill"),
            pool("decode")
        )
    }
}

/// What a router has counted.
struct Counted {
    rate: f64,
    since: Instant,
    page: InferaPage,
}

/// Mean of each signal: what [`FLAT_PROFILE`] expects, so that no latency ratio comes in.
const MEANS: [(Signal, f64); 5] = [
    (Signal::Ttft, 0.1),
    (Signal::Itl, 0.01),
    (Signal::PromptTokens, 100.0),
    (Signal::OutputTokens, 100.0),
    (Signal::RequestDuration, 1.0),
];

impl Counted {
    fn start(model: &str, rate: f64) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let workers = BTreeMap::from([(Role::Prefill, Replicas(2)), (Role::Decode, Replicas(5))]);
        let page = InferaPage { model: model.to_owned(), process_start: now, in_flight: 0, histograms: BTreeMap::new(), workers };
        Self { rate, since: Instant::now(), page }
    }

    fn advance(&mut self) {
        let requests = self.since.elapsed().as_secs_f64() * self.rate;
        self.since = Instant::now();
        for (signal, mean) in MEANS {
            let created = self.page.process_start;
            let empty = || Histogram {
                sum: 0.0,
                count: 0.0,
                buckets: infera_edges(signal).iter().map(|&edge| (edge, 0.0)).collect(),
                created: None,
            };
            let series = self.page.histograms.entry(signal).or_insert_with(|| InferaSeries { created, histogram: empty() });
            series.histogram.sum += requests * mean;
            series.histogram.count += requests;
            for (edge, count) in &mut series.histogram.buckets {
                *count += if *edge >= mean { requests } else { 0.0 };
            }
        }
    }
}

/// An Infera router that serves a steady load.
pub struct Router {
    pub server: FakeServer,
    counted: Arc<Mutex<Counted>>,
}

impl Router {
    pub async fn start(model: &str, rate: f64) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), model, rate).await
    }

    pub async fn start_at(addr: SocketAddr, model: &str, rate: f64) -> Self {
        let server = FakeServer::start_at(addr, Behaviour::Page).await;
        let counted = Arc::new(Mutex::new(Counted::start(model, rate)));
        let router = Self { server, counted };
        router.spoil(|page| page.into_bytes());
        router
    }

    /// Two that share the load for 3 replicas.
    pub async fn pair(model: &str) -> Vec<Self> {
        vec![Self::start(model, HALF_LOAD).await, Self::start(model, HALF_LOAD).await]
    }

    /// Shows its page with this change from now on.
    pub fn spoil(&self, change: impl Fn(String) -> Vec<u8> + Send + 'static) {
        let counted = Arc::clone(&self.counted);
        self.server.set_live_page(move || {
            let mut counted = counted.lock().unwrap();
            counted.advance();
            change(render::infera(&counted.page))
        });
    }

    pub fn set_rate(&self, rate: f64) {
        let mut counted = self.counted.lock().unwrap();
        counted.advance();
        counted.rate = rate;
    }

    pub fn set_workers(&self, prefill: u32, decode: u32) {
        let workers = BTreeMap::from([(Role::Prefill, Replicas(prefill)), (Role::Decode, Replicas(decode))]);
        self.counted.lock().unwrap().page.workers = workers;
    }

    /// As after a restart of the process: all counters start again.
    pub fn restart(&self) {
        let mut counted = self.counted.lock().unwrap();
        *counted = Counted::start(&counted.page.model.clone(), counted.rate);
    }

    /// As the exporter names it.
    pub fn target(&self) -> String {
        format!("{}/metrics", self.server.addr)
    }
}
