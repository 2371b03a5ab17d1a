//! Does a Prometheus that is asked lead to the same decisions as scraping? Two exporters before the same servers, one of which only
//! asks the Prometheus that scrapes them.

use std::collections::BTreeMap;

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
