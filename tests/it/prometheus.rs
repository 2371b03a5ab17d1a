//! Does it all work with a real Prometheus? The real binary before fake servers whose counters grow, a Prometheus that scrapes it, and
//! every expression that we ship. Needs `prometheus` and `promtool` in PATH: `tests/run` installs them.

mod demo;
mod learned;
mod queried;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inference_planner_exporter::engines::render::{self, InferaPage, InferaSeries};
use inference_planner_exporter::export::catalog;
use inference_planner_exporter::planner::input::{Histogram, Signal};
use inference_planner_exporter::units::{Replicas, Role};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::fake::{Behaviour, FakeServer};
use crate::promql::{self, Expr, Node};
use crate::shipped::{self, Shipped};
use crate::{dashboards, followers};

/// A test that reaches this is stuck; what takes longest is `for` and a window of 15 s together.
const DEADLINE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(200);
/// A name with characters that mean something in a regular expression.
const MODEL: &str = "Qwen/Qwen2.5-7B";
const POOLS: [&str; 2] = ["qwen3-8b-prefill", "qwen3-8b-decode"];

/// Several processes each, and times that count: one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is not in PATH: install Debian's package `prometheus`, as tests/run does"))
}

/// A program that ends with its test.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(program: &Path, arguments: &[String], log: PathBuf) -> Self {
        let file = std::fs::File::create(&log).unwrap();
        let output = file.try_clone().unwrap();
        let mut command = Command::new(program);
        // What it leaves behind when it is killed goes with the test's folder.
        command.args(arguments).env("TMPDIR", log.parent().unwrap());
        let child = command.stdin(Stdio::null()).stdout(output).stderr(file).spawn().unwrap();
        Self { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_before = self.child.kill();
        let _status = self.child.wait();
    }
}

/// An address that was free a moment ago. Neither program tells which port it took for port 0 before it answers there.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Status and body. HTTP/1.0, so that the body comes in one piece and ends with the connection.
async fn get(addr: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok((status, body.to_owned()))
}

/// What the fake fleet is told to be.
#[derive(Clone, Copy)]
struct Fleet {
    prefill: u32,
    decode: u32,
    /// Of each of the two routers.
    requests_per_second: f64,
}

/// What the planner wants for this load, with room for a few per cent of error in the counts of a short window: 8.5 prefill replicas'
/// and 3.3 decode replicas of work.
const FOLLOWED: Fleet = Fleet { prefill: 9, decode: 4, requests_per_second: 19.75 };

impl Fleet {
    /// The page of one router after so much time.
    fn page(self, epoch: Duration, age: Duration) -> String {
        let requests = (100.0 + self.requests_per_second * age.as_secs_f64()).floor();
        let of_each = [
            (Signal::Ttft, 0.396),
            (Signal::Itl, 0.012),
            (Signal::PromptTokens, 2048.0),
            (Signal::OutputTokens, 256.0),
            (Signal::RequestDuration, 3.5),
        ];
        let histograms = of_each.map(|(signal, value)| {
            let buckets = render::infera_edges(signal).iter().map(|&edge| (edge, if edge >= value { requests } else { 0.0 })).collect();
            let histogram = Histogram { sum: requests * value, count: requests, buckets, created: None };
            (signal, InferaSeries { created: epoch, histogram })
        });
        render::infera(&InferaPage {
            model: MODEL.to_owned(),
            process_start: epoch,
            in_flight: 20,
            histograms: histograms.into(),
            workers: [(Role::Prefill, Replicas(self.prefill)), (Role::Decode, Replicas(self.decode))].into(),
        })
    }
}

/// Servers, exporter and Prometheus; where the exporter brings servers of its own, none of ours.
struct World {
    servers: Vec<Arc<FakeServer>>,
    growing: tokio::task::JoinHandle<()>,
    exporter: Process,
    prometheus: Process,
    exporter_addr: SocketAddr,
    prometheus_addr: SocketAddr,
    _folder: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.growing.abort();
    }
}

/// The rules with all times divided by 60: `[5m]` becomes `[5s]`, `for: 10m` becomes `for: 10s`, and the minute that the stale alert
/// allows for scrapes becomes a second. How times relate to each other, which is what the rules are built on, stays.
fn shortened(rules: &str) -> String {
    let mut text = String::new();
    for line in rules.lines() {
        let time = line.contains('[') || line.trim_start().starts_with("for: ");
        let shorter = if time && !line.trim_start().starts_with('#') { minutes_to_seconds(line) } else { line.to_owned() };
        text.push_str(&shorter.replace("+ 60", "+ 1"));
        text.push('\n');
    }
    text
}

/// `5m` becomes `5s` and `1h` becomes `60s`.
fn minutes_to_seconds(line: &str) -> String {
    let mut text = String::new();
    let mut digits = String::new();
    for character in line.chars() {
        match character {
            '0'..='9' => digits.push(character),
            'm' if !digits.is_empty() => text.push_str(&format!("{}s", std::mem::take(&mut digits))),
            'h' if !digits.is_empty() => text.push_str(&format!("{}s", std::mem::take(&mut digits).parse::<u32>().unwrap() * 60)),
            other => {
                text.push_str(&std::mem::take(&mut digits));
                text.push(other);
            }
        }
    }
    text + &digits
}

impl World {
    async fn start(fleet: Fleet) -> Self {
        let folder = TempDir::new().unwrap();
        let servers = [FakeServer::start(Behaviour::Page).await, FakeServer::start(Behaviour::Page).await].map(Arc::new);
        let growing = tokio::spawn(grow(servers.clone(), fleet));
        let exporter_addr = free_address();
        let config = folder.path().join("config.yaml");
        std::fs::write(&config, exporter_config(exporter_addr, &servers.each_ref().map(|server| server.url()))).unwrap();
        std::fs::write(folder.path().join("profile.json"), shipped::text("deploy/example/profile.json")).unwrap();
        let arguments = ["run".to_owned(), "--config".to_owned(), config.display().to_string()];
        let rules = shortened(&shipped::text(shipped::RULES));
        Self::watched(folder, &rules, (exporter_addr, &arguments), servers.into(), growing)
    }

    /// An exporter with these arguments at this address, and a Prometheus that scrapes it by these rules.
    fn watched(
        folder: TempDir,
        rules: &str,
        (exporter_addr, arguments): (SocketAddr, &[String]),
        servers: Vec<Arc<FakeServer>>,
        growing: tokio::task::JoinHandle<()>,
    ) -> Self {
        let prometheus_program = program("prometheus");
        let prometheus_addr = free_address();
        std::fs::write(folder.path().join("rules.yaml"), rules).unwrap();
        let prometheus_config = folder.path().join("prometheus.yaml");
        let text = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }}\n\
             rule_files: [rules.yaml]\n\
             scrape_configs:\n\
             - job_name: inference-planner-exporter\n\
             \x20 static_configs: [{{ targets: ['{exporter_addr}'], labels: {{ namespace: llm }} }}]\n"
        );
        std::fs::write(&prometheus_config, text).unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
        let exporter = Process::start(binary, arguments, folder.path().join("exporter.log"));
        let arguments = [
            format!("--config.file={}", prometheus_config.display()),
            format!("--web.listen-address={prometheus_addr}"),
            format!("--storage.tsdb.path={}", folder.path().join("data").display()),
        ];
        let prometheus = Process::start(&prometheus_program, &arguments, folder.path().join("prometheus.log"));
        Self { servers, growing, exporter, prometheus, exporter_addr, prometheus_addr, _folder: folder }
    }

    /// Polls until `done` says so.
    async fn until(&self, what: &str, done: impl AsyncFn(&Self) -> bool) {
        let start = Instant::now();
        while !done(self).await {
            if start.elapsed() > DEADLINE {
                panic!("waited in vain until {what}\nexporter:\n{}\nprometheus:\n{}", self.exporter.log(), self.prometheus.log());
            }
            sleep(POLL).await;
        }
    }

    /// The data of an answer of Prometheus' API, or its error.
    async fn api(&self, path: &str) -> Result<Value, String> {
        api(self.prometheus_addr, path).await
    }

    /// What a query answers. Some numbers come with the first decisions only, so one that may not be empty is asked again for a while.
    async fn data(&self, place: &str, expr: &str, may_be_empty: bool) -> Vec<Value> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let series = self.query(expr).await.unwrap_or_else(|error| panic!("{place}: {error}"));
            if may_be_empty || !series.is_empty() {
                return series;
            }
            assert!(Instant::now() < deadline, "{place}: no data for {expr}");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// The series of an instant query.
    async fn query(&self, expr: &str) -> Result<Vec<Value>, String> {
        query(self.prometheus_addr, expr).await
    }

    async fn has(&self, expr: &str) -> bool {
        self.query(expr).await.is_ok_and(|series| !series.is_empty())
    }

    /// Pools for which the alert fires, as Prometheus' own series of alerts says.
    async fn firing(&self, alert: &str) -> Vec<String> {
        let series = self.query(&format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}")).await.unwrap_or_default();
        series.iter().map(|series| series["metric"]["pool"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Whether both pools have a number and two decisions were counted.
    async fn planned(&self) -> bool {
        let recommended = catalog::RECOMMENDED_REPLICAS.name();
        let decided = format!("sum(increase({}[1m])) > 0", catalog::DECISIONS.name());
        self.query(&recommended).await.is_ok_and(|series| series.len() == 2) && self.has(&decided).await
    }
}

/// The data of an answer of a Prometheus' API, or its error.
async fn api(prometheus: SocketAddr, path: &str) -> Result<Value, String> {
    let (_, body) = get(prometheus, path).await.map_err(|error| error.to_string())?;
    let answer: Value = serde_json::from_str(&body).map_err(|error| format!("{error}: {body}"))?;
    match (answer["status"] == "success", answer.get("warnings")) {
        (true, None) => Ok(answer["data"].clone()),
        _ => Err(body),
    }
}

/// The series of an instant query.
async fn query(prometheus: SocketAddr, expr: &str) -> Result<Vec<Value>, String> {
    let encoded: String = url::form_urlencoded::byte_serialize(expr.as_bytes()).collect();
    let data = api(prometheus, &format!("/api/v1/query?query={encoded}")).await?;
    match data["resultType"].as_str() {
        Some("vector") => Ok(data["result"].as_array().cloned().unwrap_or_default()),
        other => Err(format!("expected a vector, got {other:?}")),
    }
}

/// Pages that grow for as long as the test runs.
async fn grow(servers: [Arc<FakeServer>; 2], fleet: Fleet) {
    let (start, epoch) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
    loop {
        servers.iter().for_each(|server| server.set_page(&fleet.page(epoch, start.elapsed())));
        sleep(Duration::from_millis(50)).await;
    }
}

fn exporter_config(listen: SocketAddr, targets: &[String]) -> String {
    format!(
        "server: {{ listen: '{listen}', enable_lifecycle: true }}\n\
         scrape: {{ interval: 250ms, timeout: 250ms }}\n\
         models:\n\
         - name: {MODEL}\n\
         \x20 target_namespace: llm\n\
         \x20 slo: {{ ttft: 500ms, itl: 50ms }}\n\
         \x20 planner: {{ preset: infera, profile: profile.json, adjustment_interval: 3s, hold_for: 9s }}\n\
         \x20 traffic: {{ targets: {{ static: {targets:?} }} }}\n\
         \x20 pools:\n\
         \x20 - {{ name: {}, role: prefill, gpus_per_replica: 1, max_replicas: 16 }}\n\
         \x20 - {{ name: {}, role: decode, gpus_per_replica: 1, max_replicas: 16 }}\n",
        POOLS[0], POOLS[1]
    )
}

/// Runs promtool with this standard input.
fn promtool(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(program("promtool"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The variables of the dashboard as Grafana puts them in: all, or what was chosen, with what a regular expression would read escaped.
fn substituted(expr: &str, all: bool) -> String {
    let chosen =
        [("$target_namespace", "llm".to_owned()), ("$model", MODEL.replace('.', "\\\\.")), ("$pool", format!("({})", POOLS.join("|")))];
    let chosen = chosen.into_iter().chain([("$instance", ".+".to_owned())]);
    chosen.fold(expr.to_owned(), |expr, (variable, value)| expr.replace(variable, if all { ".*" } else { &value }))
}

/// Expressions of the dashboard that show trouble or change; in a quiet fleet they are empty.
const EMPTY_WHEN_QUIET: [&str; 10] = [
    "Why A",
    "Reason A",
    "Limits that bind A",
    "Limits applied in an hour A",
    "Skipped windows in 15 minutes A",
    "Failed scrapes A",
    "Measurements that pages lack A",
    "annotation Reason",
    "annotation Recommendation changed",
    // Only where targets are found, and only where acknowledgements are switched on.
    "Looks for targets A",
];

/// Families that another preset than this world's makes, or a replica that starts.
const OF_OTHERS: [&str; 3] = ["queueing_", "replica_capacity_", "startup_seconds"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shipped_expression_works_on_a_real_prometheus() {
    let _serial = ONE_AT_A_TIME.lock().await;
    let world = World::start(FOLLOWED).await;
    world.until("both pools are planned", World::planned).await;
    the_page_is_clean(&world).await;
    for all in [true, false] {
        for Shipped { place, expr, prints } in [dashboards::expressions(), followers::expressions()].concat() {
            let quiet = EMPTY_WHEN_QUIET.iter().any(|name| place.ends_with(&format!(", {name}")));
            let series = world.data(&place, &substituted(&expr, all), quiet || of_others(&expr)).await;
            for label in &prints {
                // Only traffic sources have an empty pool, and a series without it shows nothing in its place.
                assert!(series.iter().all(|series| series["metric"][label].is_string() || label == "pool"), "{place}: {label}");
            }
        }
    }
    for Shipped { place, expr, .. } in shipped::alert_expressions() {
        world.query(&expr).await.unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    rules_are_healthy(&world).await;
    joins_find_partners(&world).await;
}

/// Whether this world has no data for an expression.
fn of_others(expr: &str) -> bool {
    OF_OTHERS.iter().any(|part| expr.contains(part))
}

async fn the_page_is_clean(world: &World) {
    let (status, page) = get(world.exporter_addr, "/metrics").await.unwrap();
    assert_eq!(status, 200);
    assert!(page.lines().count() > 100, "{page}");
    let checked = promtool(&["check", "metrics"], &page);
    assert!(checked.status.success() && said(&checked).is_empty(), "{}", said(&checked));
    // Prometheus took all of it.
    let samples = page.lines().filter(|line| !line.starts_with('#')).count();
    let scraped = world.query("scrape_samples_scraped").await.unwrap();
    assert_eq!(scraped[0]["value"][1], samples.to_string());
}

async fn rules_are_healthy(world: &World) {
    let data = world.api("/api/v1/rules").await.unwrap();
    let groups = data["groups"].as_array().unwrap();
    let rules: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert_eq!(rules.len(), shipped::rules().len());
    for rule in rules {
        assert_eq!((&rule["health"], rule["lastError"].as_str().unwrap_or_default()), (&Value::from("ok"), ""), "{}", rule["name"]);
        // A condition may hold for a moment; `for` is there for that.
        assert_ne!(rule["state"], "firing", "{} in a quiet fleet", rule["name"]);
    }
}

/// Two families that an expression joins must meet, or the expression is empty for ever and says nothing.
async fn joins_find_partners(world: &World) {
    let mut met = 0;
    let mut alone = Vec::new();
    for Shipped { place, expr, .. } in shipped::expressions() {
        let expr = promql::parse(&substituted(&expr, true)).unwrap();
        for joint in expr.all() {
            let Node::Binary { operator, matching, left, right } = &joint.node else { continue };
            let vectors = !left.families().is_empty() && !right.families().is_empty();
            // A union without `on` joins nothing.
            if !vectors || operator == "or" && matching.is_none() {
                continue;
            }
            let (left, right) = (always(left), always(right));
            if !world.has(left).await || !world.has(right).await {
                alone.push(joint.text.clone());
                continue;
            }
            let matching = matching
                .as_ref()
                .map_or_else(String::new, |(on, labels)| format!("{} ({})", if *on { "on" } else { "ignoring" }, labels.join(", ")));
            assert!(world.has(&format!("({left}) and {matching} ({right})")).await, "{place}: the sides never meet in {}", joint.text);
            met += 1;
        }
    }
    assert!(met >= 10, "only {met} joins were tried");
    // While the exporter lives, the absence of its build is no series; and no pool of this world is at its ceiling.
    let may_be = |text: &String| text.contains("absent(") || text.contains(":inference_planner_ceiling_reached:") || of_others(text);
    assert!(alone.iter().all(may_be), "without data on a side: {alone:#?}");
}

/// The part of an expression that has series whatever the values: without comparisons and exclusions.
fn always(expr: &Expr) -> &str {
    match &expr.node {
        Node::Binary { operator, left, right, .. } if ["unless", "and", "==", "!=", ">", "<", ">=", "<="].contains(&operator.as_str()) => {
            always(if left.families().is_empty() { right } else { left })
        }
        _ => &expr.text,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alerts_fire_when_nobody_follows_and_when_servers_stop_and_end_when_they_return() {
    let _serial = ONE_AT_A_TIME.lock().await;
    let (stale, unfollowed) = ("InferencePlannerRecommendationStale", "InferencePlannerRecommendationNotFollowed");
    let absent = "InferencePlannerRecommendationAbsent";
    // The planner wants more prefill replicas than the one that the fleet keeps.
    let world = World::start(Fleet { prefill: 1, ..FOLLOWED }).await;
    world.until("both pools are planned", World::planned).await;
    world
        .until("the alert for a pool that does not follow fires", async |world: &World| world.firing(unfollowed).await == [POOLS[0]])
        .await;
    assert_eq!(world.firing(stale).await, Vec::<String>::new());

    world.servers.iter().for_each(|server| server.set(Behaviour::Refuse));
    let both = async |world: &World| world.firing(stale).await.len() == 2;
    world.until("the alert for old recommendations fires", both).await;
    // Its description asks for the reason.
    let alerts = world.api("/api/v1/alerts").await.unwrap();
    let of_stale = alerts["alerts"].as_array().unwrap().iter().filter(|alert| alert["labels"]["alertname"] == stale);
    for description in of_stale.map(|alert| alert["annotations"]["description"].as_str().unwrap()) {
        assert!(description.ends_with("Reason now: all_targets_down "), "{description}");
    }
    let gone = async |world: &World| !world.has(&catalog::RECOMMENDED_REPLICAS.name()).await;
    world.until("the value is dropped", gone).await;
    // Somebody asked while the servers could be seen.
    world.until("the alert for what nobody recommends fires", async |world: &World| world.firing(absent).await.len() == 2).await;
    assert_eq!(get(world.exporter_addr, "/metrics").await.unwrap().0, 200);

    world.servers.iter().for_each(|server| server.set(Behaviour::Page));
    let none = async |world: &World| {
        let ended = world.firing(stale).await.is_empty() && world.firing(absent).await.is_empty();
        ended && world.has(&catalog::RECOMMENDED_REPLICAS.name()).await
    };
    world.until("recommendations are back and the alerts end", none).await;
}

#[test]
fn rules_pass_their_own_tests() {
    let _serial = ONE_AT_A_TIME.blocking_lock();
    let folder = TempDir::new().unwrap();
    let short = folder.path().join("short.rules.yaml");
    std::fs::write(&short, shortened(&shipped::text(shipped::RULES))).unwrap();
    for rules in [shipped::RULES, short.to_str().unwrap()] {
        let checked = promtool(&["check", "rules", "--lint=all", "--lint-fatal", rules], "");
        assert!(checked.status.success(), "{}", said(&checked));
    }
    let mut files: Vec<_> = std::fs::read_dir(shipped::path("alerts/tests")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let arguments: Vec<_> = ["test", "rules"].into_iter().chain(files.iter().map(|file| file.to_str().unwrap())).collect();
    let tested = promtool(&arguments, "");
    assert!(tested.status.success(), "{}", said(&tested));
    // promtool does say so when a rule is wrong.
    std::fs::write(&short, "groups: [{ name: a, rules: [{ alert: A, expr: 'up ==' }] }]").unwrap();
    assert!(!promtool(&["check", "rules", short.to_str().unwrap()], "").status.success());
}

#[test]
fn shortening_divides_every_time_by_sixty() {
    let rules = "# [5m]\n  expr: increase(x_total[30m]) > 0.25\n for: 10m\n  a[1h] + 60\n";
    assert_eq!(shortened(rules), "# [5m]\n  expr: increase(x_total[30s]) > 0.25\n for: 10s\n  a[60s] + 1\n");
    let short = shortened(&shipped::text(shipped::RULES));
    let times = short.lines().filter(|line| !line.trim_start().starts_with('#') && (line.contains("m]") || line.contains("h]")));
    assert_eq!(times.count(), 0);
}
