//! Does a Prometheus that is asked lead to the same decisions as scraping? Two exporters before the same servers, one of which only
//! asks the Prometheus that scrapes them.

use std::collections::{BTreeMap, BTreeSet};

use inference_planner_exporter::config::{QueryConfig, ScrapeConfig};
use inference_planner_exporter::scrape::query::{Querier, Question};
use inference_planner_exporter::scrape::{Job, Scraper};
use inference_planner_exporter::units::TargetId;

use super::*;

/// Seconds between two decisions.
const INTERVAL: f64 = 3.0;
/// Decisions of both that are compared.
const WINDOWS: usize = 4;

/// A fleet behind a Prometheus, and two exporters.
struct Twins {
    servers: [Arc<FakeServer>; 2],
    growing: tokio::task::JoinHandle<()>,
    prometheus: Process,
    scraping: (Process, SocketAddr),
    asking: (Process, SocketAddr),
    _folder: TempDir,
}

impl Drop for Twins {
    fn drop(&mut self) {
        self.growing.abort();
    }
}

impl Twins {
    async fn start(fleet: Fleet) -> Self {
        let folder = TempDir::new().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let servers = [FakeServer::start(Behaviour::Page).await, FakeServer::start(Behaviour::Page).await].map(Arc::new);
        let growing = tokio::spawn(grow(servers.clone(), fleet));
        let prometheus_addr = free_address();
        let addresses = servers.each_ref().map(|server| server.addr.to_string());
        // A label of the targets that the pages have as well, and a job that is none of ours.
        let prometheus_config = file(
            "prometheus.yaml",
            &format!(
                "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms }}\n\
                 scrape_configs:\n\
                 - job_name: routers\n\
                 \x20 static_configs: [{{ targets: {addresses:?}, labels: {{ model: of-the-target, zone: a }} }}]\n\
                 - job_name: prometheus\n\
                 \x20 static_configs: [{{ targets: ['{prometheus_addr}'] }}]\n"
            ),
        );
        let arguments = [
            format!("--config.file={prometheus_config}"),
            format!("--web.listen-address={prometheus_addr}"),
            format!("--storage.tsdb.path={}", folder.path().join("data").display()),
        ];
        let prometheus = Process::start(&program("prometheus"), &arguments, folder.path().join("prometheus.log"));
        let start = Instant::now();
        while !ready(prometheus_addr).await {
            assert!(start.elapsed() < DEADLINE, "{}", prometheus.log());
            sleep(POLL).await;
        }
        file("profile.json", &shipped::text("deploy/example/profile.json"));
        let exporter = |name: &str, targets: Option<&str>| {
            let addr = free_address();
            let written = servers.each_ref().map(|server| server.url());
            let text = exporter_config(addr, &written);
            let text = match targets {
                Some(targets) => text.replace(&format!("static: {written:?}"), targets),
                None => text,
            };
            let arguments = ["run".to_owned(), "--config".to_owned(), file(&format!("{name}.yaml"), &text)];
            let binary = Path::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
            (Process::start(binary, &arguments, folder.path().join(format!("{name}.log"))), addr)
        };
        let asked = format!("prometheus: {{ url: 'http://{prometheus_addr}', selector: '{{job=\"routers\"}}', lookback: 2s }}");
        let (scraping, asking) = (exporter("scraping", None), exporter("asking", Some(&asked)));
        Self { servers, growing, prometheus, scraping, asking, _folder: folder }
    }

    fn fail(&self, what: &str) -> ! {
        let logs = [&self.scraping.0, &self.asking.0, &self.prometheus].map(Process::log);
        panic!("{what}\nscraping:\n{}\nasking:\n{}\nprometheus:\n{}", logs[0], logs[1], logs[2]);
    }
}

/// Whether both servers are up.
async fn ready(prometheus: SocketAddr) -> bool {
    let Ok((200, body)) = get(prometheus, "/api/v1/query?query=up%7Bjob%3D%22routers%22%7D%3D%3D1").await else { return false };
    serde_json::from_str::<Value>(&body).is_ok_and(|answer| answer["data"]["result"].as_array().is_some_and(|series| series.len() == 2))
}

/// The plan that is in force; `None` while there is none.
async fn plan(addr: SocketAddr) -> Option<Value> {
    let (_, body) = get(addr, "/api/v1/plans").await.ok()?;
    let answer: Value = serde_json::from_str(&body).ok()?;
    Some(answer["models"][0].clone()).filter(Value::is_object)
}

/// Reason, and for each pool reason, proposal and recommendation.
fn decision(plan: &Value) -> String {
    let pools = plan["pools"].as_array().unwrap().iter();
    let pools: Vec<_> = pools.map(|pool| format!("{} {} {}", pool["pool"], pool["reason"], pool["recommended_replicas"])).collect();
    format!("{} {pools:?}", plan["reason"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_prometheus_decides_as_scraping_does() {
    let _serial = ONE_AT_A_TIME.lock().await;
    let twins = Twins::start(FOLLOWED).await;
    // By the number of the interval in which it was made.
    let mut decided: [BTreeMap<u64, Value>; 2] = Default::default();
    let start = Instant::now();
    let common = |decided: &[BTreeMap<u64, Value>; 2]| -> Vec<u64> {
        // The last one may not have been seen with both; a demand that is not known yet is no decision.
        decided[0].keys().filter(|slot| decided[1].contains_key(slot)).copied().collect()
    };
    while common(&decided).len() <= WINDOWS {
        if start.elapsed() > DEADLINE {
            twins.fail(&format!("too few decisions in common: {decided:#?}"));
        }
        for (decided, addr) in decided.iter_mut().zip([twins.scraping.1, twins.asking.1]) {
            let Some(plan) = plan(addr).await else { continue };
            let settled = plan["observation"]["requests_per_second"].is_number() && plan["reason"] == "none";
            if let (true, Some(at)) = (settled, plan["planned_at_seconds"].as_f64()) {
                decided.insert((at / INTERVAL) as u64, plan);
            }
        }
        sleep(POLL).await;
    }
    let slots = common(&decided);
    for slot in &slots[..WINDOWS] {
        let [scraped, asked] = [&decided[0][slot], &decided[1][slot]];
        assert_eq!(decision(asked), decision(scraped), "{asked:#}\n{scraped:#}");
        for (what, allowed) in [("requests_per_second", 0.1), ("input_tokens", 1e-9), ("output_tokens", 1e-9), ("ttft_seconds", 1e-9)] {
            let value = |plan: &Value| plan["observation"][what].as_f64().unwrap_or(f64::NAN);
            let (scraped, asked) = (value(scraped), value(asked));
            assert!((asked - scraped).abs() <= allowed * scraped, "{what}: {asked} and {scraped}");
        }
    }
    // One server stops: it is silent, and stays on the list.
    twins.servers[0].set(Behaviour::Status(500));
    let silent = async || {
        let (_, page) = get(twins.asking.1, "/metrics").await.unwrap_or_default();
        let lines: Vec<_> = page.lines().filter(|line| line.starts_with("inference_planner_target_up{")).collect();
        lines.len() == 2 && lines.iter().filter(|line| line.ends_with(" 0")).count() == 1
    };
    let start = Instant::now();
    while !silent().await {
        if start.elapsed() > DEADLINE {
            twins.fail("the stopped server is not told");
        }
        sleep(POLL).await;
    }
}

/// Every recorded page of every engine, by its file. Without empty labels: to Prometheus they are none, and to us part of a series' name.
fn recorded_pages() -> Vec<(String, String)> {
    let empty = regex_lite::Regex::new(r#"[a-zA-Z_]+="",?"#).unwrap();
    let mut pages = Vec::new();
    for folder in std::fs::read_dir(shipped::path("tests/fixtures/engines")).unwrap().map(|entry| entry.unwrap().path()) {
        let files = std::fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|ending| ending == "prom")) {
            let page = empty.replace_all(&std::fs::read_to_string(&file).unwrap(), "").into_owned();
            pages.push((file.file_name().unwrap().to_string_lossy().into_owned(), page));
        }
    }
    pages.sort();
    pages
}

/// What Prometheus itself does not take, so that it scrapes nothing there.
const REFUSED_BY_PROMETHEUS: &[&str] = &["llamacpp-b4700-nan.prom"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_page_reads_alike_through_prometheus() {
    let _serial = ONE_AT_A_TIME.lock().await;
    let folder = TempDir::new().unwrap();
    let pages = recorded_pages();
    let mut servers = Vec::new();
    for (_, page) in &pages {
        servers.push(FakeServer::with_page(page).await);
    }
    let prometheus_addr = free_address();
    let addresses: Vec<_> = servers.iter().map(|server| server.addr.to_string()).collect();
    let config = folder.path().join("prometheus.yaml");
    // Labels that pages have as well.
    let labels = "labels: { engine: e, model_name: of-the-target, namespace: n, pod: p }";
    let text = format!(
        "global: {{ scrape_interval: 4s, scrape_timeout: 4s }}\n\
         scrape_configs: [{{ job_name: j, static_configs: [{{ targets: {addresses:?}, {labels} }}] }}]\n"
    );
    std::fs::write(&config, text).unwrap();
    let arguments = [
        format!("--config.file={}", config.display()),
        format!("--web.listen-address={prometheus_addr}"),
        format!("--storage.tsdb.path={}", folder.path().join("data").display()),
    ];
    let prometheus = Process::start(&program("prometheus"), &arguments, folder.path().join("prometheus.log"));

    let scrape = ScrapeConfig {
        interval: Duration::from_secs(20),
        timeout: Duration::from_secs(20),
        concurrency: 8,
        body_limit: 8 << 20,
        bytes_in_flight: 64 << 20,
        proxy: None,
    };
    let origin = Instant::now().checked_sub(Duration::from_secs(600)).unwrap();
    let job = |server: &FakeServer| Job {
        target: TargetId::from(server.addr.to_string()),
        url: server.url(),
        engine: None,
        access: Arc::default(),
    };
    let jobs: Vec<_> = servers.iter().map(job).collect();
    let scraped = Scraper::new(&scrape).unwrap().round(&jobs, origin, false).await;
    let query = QueryConfig {
        url: format!("http://{prometheus_addr}"),
        selector: "{job=\"j\"}".to_owned(),
        target_label: "instance".to_owned(),
        lookback: Duration::from_secs(60),
    };
    let (querier, question) = (Querier::new(&scrape).unwrap(), Question { query, engine: None, access: Arc::default() });
    let start = Instant::now();
    let answer = loop {
        let answer = querier.round(std::slice::from_ref(&question), origin, false).await.remove(0);
        if answer.reports.len() == pages.len() {
            break answer;
        }
        assert!(start.elapsed() < DEADLINE, "{:?}\n{}", answer.listing.problem, prometheus.log());
        sleep(POLL).await;
    };
    let asked: BTreeMap<_, _> = answer.reports.iter().map(|report| (&report.target, report)).collect();
    let mut differing = BTreeSet::new();
    for ((file, _), scraped) in pages.iter().zip(&scraped) {
        let asked = asked[&scraped.target];
        let alike = match (&asked.outcome, &scraped.outcome) {
            (Ok(asked), Ok(scraped)) => asked.engine == scraped.engine && asked.reading == scraped.reading,
            (Err(asked), Err(scraped)) => asked.kind == scraped.kind,
            _ => false,
        };
        if !alike {
            println!("{file}: {:?}\n{:?}\n", asked.outcome, scraped.outcome);
            differing.insert(file.as_str());
        }
    }
    assert_eq!(differing, REFUSED_BY_PROMETHEUS.iter().copied().collect());
}
