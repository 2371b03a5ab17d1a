//! What does a round cost that asks a Prometheus for a large fleet? Time, memory and bytes with 1,000 vLLM replicas behind one `prometheus` source.
//!
//! `cargo bench --bench queried` runs the released binary for a minute (`QUERIED_REPLICAS`, `QUERIED_ROUNDS` change the size) and prints the
//! figures. The Prometheus is a thread of this process: it answers with what a real one would keep of a recorded page of 68 kB for each replica,
//! scraped every 15 s, choosing the series by the pattern that the exporter asks with, and packs its answers. They are made between two rounds, so
//! that only the exporter's own work is measured.

mod watched;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use regex_lite::Regex;
use watched::{Killed, cpu_seconds, megabytes, setting};

const PAGE: &str = include_str!("../tests/fixtures/pages/vllm-0.33-scrape1.prom");
const MODEL: &str = "meta-llama/Llama-3.1-8B-Instruct";

/// Seconds between two rounds: room to make the next answers, on any machine.
const INTERVAL: u64 = 10;
/// Seconds between two scrapes of a replica by the Prometheus.
const SCRAPES: f64 = 15.0;
/// The first learns the question, the others fill the buffers.
const WARM_UP: u64 = 4;
/// An answer as it goes over the wire, and its length before it was packed.
#[derive(Default)]
struct Answer {
    packed: Vec<u8>,
    plain: usize,
}

impl Answer {
    fn of(kind: &str, series: &[String]) -> Self {
        let body = format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":[{}]}}}}"#, series.join(","));
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body.as_bytes()).expect("memory takes everything");
        Self { packed: encoder.finish().expect("memory takes everything"), plain: body.len() }
    }
}

/// The answers of the moment: which targets there are, and their samples.
#[derive(Default)]
struct Answers {
    list: Answer,
    samples: Answer,
    series: usize,
}

#[derive(Default)]
struct Api {
    /// The names that the exporter asks for.
    wanted: OnceLock<Regex>,
    answers: Mutex<Arc<Answers>>,
    /// Bytes that were sent.
    sent: Mutex<u64>,
}

/// A line of the page as the labels of a JSON series, without their closing brace, and its value.
fn series_of(line: &str) -> Option<(&str, String, &str)> {
    let (head, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    let (name, labels) = head.split_once('{').map_or((head, ""), |(name, labels)| (name, labels.trim_end_matches('}')));
    let mut json = format!(r#""__name__":"{name}""#);
    // No label of this page holds a comma or a quote.
    for (name, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
        let _ = write!(json, r#","{name}":{value}"#);
    }
    Some((name, json, value))
}

/// What a Prometheus knows at `now`: each replica was scraped at a moment of its own.
fn answers(wanted: &Regex, replicas: u64, now: f64) -> Answers {
    let page: Vec<(&str, String, &str)> = PAGE.lines().filter_map(series_of).filter(|(name, ..)| wanted.is_match(name)).collect();
    let (mut list, mut samples) = (Vec::new(), Vec::new());
    for replica in 0..replicas {
        let own = format!(r#""instance":"10.{}.{}.{}:8000","job":"vllm""#, replica >> 16, replica >> 8 & 255, replica & 255);
        let phase = SCRAPES * replica as f64 / replicas as f64;
        let scraped = phase + ((now - phase) / SCRAPES).floor() * SCRAPES;
        list.push(format!(r#"{{"metric":{{{own}}},"value":[{now:.3},"{scraped:.3}"]}}"#));
        samples.push(format!(r#"{{"metric":{{"__name__":"up",{own}}},"values":[[{scraped:.3},"1"]]}}"#));
        for (_, labels, value) in &page {
            samples.push(format!(r#"{{"metric":{{{labels},{own}}},"values":[[{scraped:.3},"{value}"]]}}"#));
        }
    }
    Answers { list: Answer::of("vector", &list), samples: Answer::of("matrix", &samples), series: page.len() + 1 }
}

/// The value of `query` in a form, decoded.
fn query(form: &str) -> String {
    let pairs = url::form_urlencoded::parse(form.as_bytes());
    pairs.into_iter().find(|(name, _)| name == "query").map(|(_, value)| value.into_owned()).unwrap_or_default()
}

fn serve(api: &Api, mut stream: TcpStream) -> Option<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, form)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        if form.len() < length? {
            continue;
        }
        let query = query(form);
        request.clear();
        let answers = Arc::clone(&api.answers.lock().expect("no thread panics with the lock"));
        let answer = if query.starts_with("timestamp") {
            &answers.list
        } else {
            let pattern = query.split("__name__=~\"").nth(1)?.split('"').next()?;
            api.wanted.get_or_init(|| Regex::new(&format!("^(?:{pattern})$")).expect("a pattern of the exporter"));
            &answers.samples
        };
        let status = if answer.packed.is_empty() { "503 Not Yet" } else { "200 OK" };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            answer.packed.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&answer.packed)).ok()?;
        *api.sent.lock().expect("no thread panics with the lock") += (head.len() + answer.packed.len()) as u64;
    }
}

fn wall() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs_f64()
}

/// Makes new answers halfway between two rounds, which lie on multiples of the interval.
fn keep_making(api: &Api, replicas: u64) {
    let empty_sample = Regex::new("^up$").expect("a name is a pattern");
    loop {
        let made = answers(api.wanted.get().unwrap_or(&empty_sample), replicas, wall());
        *api.answers.lock().expect("no thread panics with the lock") = Arc::new(made);
        let interval = INTERVAL as f64;
        let left = interval - (wall() - interval / 2.0).rem_euclid(interval);
        thread::sleep(Duration::from_secs_f64(left));
    }
}

fn start_api(replicas: u64) -> (Arc<Api>, String) {
    let api = Arc::new(Api::default());
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen on loopback");
    let url = format!("http://{}", listener.local_addr().expect("a bound address"));
    let (making, serving) = (Arc::clone(&api), Arc::clone(&api));
    thread::spawn(move || keep_making(&making, replicas));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let api = Arc::clone(&serving);
            thread::spawn(move || serve(&api, stream));
        }
    });
    (api, url)
}

/// The exporter's own page.
fn page(addr: &str) -> String {
    let mut text = String::new();
    if let Ok(mut stream) = TcpStream::connect(addr) {
        let asked = write!(stream, "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
        // A page that is cut shows in what is read of it.
        let _read = asked.and_then(|()| stream.read_to_string(&mut text));
    }
    text
}

/// The values of a family on the page.
fn values(page: &str, family: &str) -> Vec<f64> {
    let name = format!("inference_planner_{family}{{");
    let lines = page.lines().filter(|line| line.starts_with(&name));
    lines.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse().ok()).collect()
}

fn main() {
    let (replicas, rounds) = (setting("QUERIED_REPLICAS", 1000), setting("QUERIED_ROUNDS", 5));
    let (api, url) = start_api(replicas);
    let addr = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").to_string();
    let folder = std::env::temp_dir().join(format!("inference-planner-queried-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("make a temporary folder");
    let config = format!(
        "server: {{ listen: \"{addr}\" }}\nscrape: {{ interval: {INTERVAL}s, timeout: {INTERVAL}s }}\nmax_target_series: 1000000\nmodels:\n  \
         - name: {MODEL}\n    engine: vllm\n    planner: {{ preset: dynamo }}\n    pools:\n      \
         - {{ name: bench, role: aggregated, max_replicas: 100000, targets: {{ prometheus: {{ url: \"{url}\", selector: '{{job=\"vllm\"}}' }} }} }}\n"
    );
    fs::write(folder.join("config.yaml"), config).expect("write the configuration");
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.arg("run").arg("--config").arg(folder.join("config.yaml")).env("RUST_LOG", "error").stdout(Stdio::null());
    let exporter = Killed(command.spawn().expect("start the exporter"));
    let pid = exporter.0.id();

    thread::sleep(Duration::from_secs(WARM_UP * INTERVAL));
    let sent = || *api.sent.lock().expect("no thread panics with the lock");
    let (before, sent_before, started) = (cpu_seconds(pid), sent(), Instant::now());
    let mut longest: f64 = 0.0;
    for _ in 0..rounds {
        thread::sleep(Duration::from_secs(INTERVAL));
        longest = values(&page(&addr), "target_scrape_duration_seconds").into_iter().fold(longest, f64::max);
    }
    let per_round = (cpu_seconds(pid) - before) / rounds as f64;
    let bytes = (sent() - sent_before) as f64 / rounds as f64;
    let answers = Arc::clone(&api.answers.lock().expect("no thread panics with the lock"));
    let up = values(&page(&addr), "target_up").iter().sum::<f64>();
    println!(
        "replicas {replicas}, series of each {}, up {up}, {rounds} rounds in {:.0} s",
        answers.series,
        started.elapsed().as_secs_f64()
    );
    println!("longest round {longest:.2} s, processor time {per_round:.2} s a round");
    println!("resident memory {:.0} MB, at most {:.0} MB", megabytes(pid, "VmRSS:"), megabytes(pid, "VmHWM:"));
    println!("received {:.1} MB a round, {:.1} MB before packing", bytes / 1e6, (answers.list.plain + answers.samples.plain) as f64 / 1e6);
    assert!(up >= replicas as f64, "every replica answers, else the figures mean nothing");
    drop(exporter);
    // A folder that stays behind is in nobody's way.
    let _left = fs::remove_dir_all(&folder);
}
