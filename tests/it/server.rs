//! Does the server answer every path as promised, and does it bear bad clients?

use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use inference_planner_exporter::decisions::DecisionId;
use inference_planner_exporter::export::catalog;
use inference_planner_exporter::export::snapshot::Snapshot;
use inference_planner_exporter::planner::plan::OverrideKind;
use inference_planner_exporter::planner::plan::Reason;
use inference_planner_exporter::server::{ReloadRequest, Server, ServerHandle, Settings, State};
use inference_planner_exporter::units::Moment;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::export::fixture;

/// Nothing here takes long; a test that reaches this is stuck.
pub const DEADLINE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);

pub fn settings() -> Settings {
    Settings { shutdown_grace: Duration::from_millis(200), ..Settings::new("127.0.0.1:0".parse().unwrap(), true) }
}

/// Of an exporter that takes reloads and makes no decisions.
pub fn state(snapshot: Snapshot, now: Moment) -> (State, mpsc::Receiver<ReloadRequest>) {
    let (reload, requests) = mpsc::channel(1);
    let (newest, acknowledge) = (watch::channel(DecisionId(0)).1, mpsc::channel(1).0);
    let (snapshot, access) = (Arc::new(ArcSwap::from_pointee(snapshot)), Arc::default());
    (State { snapshot, clock: Arc::new(move || now), reload, newest, access, acknowledge }, requests)
}

async fn start(snapshot: Snapshot, now: Moment) -> ServerHandle {
    Server::start(settings(), state(snapshot, now).0).await.unwrap()
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name));
        self.head.lines().find(named).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    }
}

/// Sends one request with exactly these further header lines and reads to the end of the connection.
pub async fn ask_with(addr: SocketAddr, method: &str, path: &str, headers: &str) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{headers}\r\n").as_bytes()).await?;
    read_answer(stream).await
}

/// The answer to the one request of a connection.
pub async fn read_answer(mut stream: TcpStream) -> std::io::Result<Answer> {
    let mut bytes = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut bytes)).await.expect("an answer before the deadline")?;
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok(Answer { status, head, body: bytes[end + 4..].to_vec() })
}

pub async fn ask(addr: SocketAddr, method: &str, path: &str) -> Answer {
    ask_with(addr, method, path, "").await.unwrap()
}

pub async fn get(addr: SocketAddr, path: &str) -> Answer {
    ask(addr, "GET", path).await
}

/// Waits until the other side has closed; bytes that still come are dropped.
async fn closed(stream: &mut TcpStream) {
    let read = async {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    };
    timeout(DEADLINE, read).await.expect("the server to close the connection");
}

/// Asks until there is an answer.
async fn eventually_answers(addr: SocketAddr) {
    let answered = async {
        while ask_with(addr, "GET", "/-/ready", "").await.is_err() {
            sleep(POLL).await;
        }
    };
    timeout(DEADLINE, answered).await.expect("an answer before the deadline");
}

#[tokio::test]
async fn metrics_are_text_0_0_4_whatever_is_asked_for() {
    let server = start(fixture::snapshot(), fixture::AT).await;
    for headers in ["", "Accept: application/openmetrics-text; version=1.0.0\r\n", "Accept: application/json\r\n"] {
        let answer = ask_with(server.addr, "GET", "/metrics", headers).await.unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert!(answer.text().contains(&format!("# TYPE {} gauge\n", catalog::RECOMMENDED_REPLICAS.name())));
        assert!(answer.text().ends_with('\n'));
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn metrics_come_gzipped_to_those_who_take_it() {
    let server = start(fixture::snapshot(), fixture::AT).await;
    let answer = ask_with(server.addr, "GET", "/metrics", "Accept-Encoding: gzip\r\n").await.unwrap();
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    assert!(text.contains(&catalog::RECOMMENDED_REPLICAS.name()));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn metrics_are_served_while_every_target_is_down() {
    let mut snapshot = fixture::with_plan(|plan| plan.reason = Reason::AllTargetsDown);
    snapshot.targets = vec![fixture::target("10.0.0.1:8000/metrics", false)];
    let server = start(snapshot, fixture::AT).await;
    assert_eq!(get(server.addr, "/metrics").await.status, 200);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn head_gives_the_head_alone() {
    let server = start(fixture::snapshot(), fixture::AT).await;
    for path in ["/", "/metrics", "/metrics/pool/qwen-decode", "/api/v1/plans", "/api/v1/decisions", "/-/healthy", "/-/ready"] {
        let answer = ask(server.addr, "HEAD", path).await;
        assert_eq!((answer.status, answer.body.len()), (200, 0), "{path}");
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_pool_page_is_its_recommendation_without_labels() {
    let server = start(fixture::snapshot(), fixture::AT).await;
    let answer = get(server.addr, "/metrics/pool/qwen-prefill").await;
    let name = catalog::RECOMMENDED_REPLICAS.name();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(answer.text(), format!("# HELP {name} {}\n# TYPE {name} gauge\n{name} 2\n", catalog::RECOMMENDED_REPLICAS.help));
    assert_eq!(get(server.addr, "/metrics/pool/other").await.status, 404);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_pool_page_without_a_value_says_why() {
    let undecided = fixture::with_plan(|plan| {
        plan.pools[0].published = None;
        plan.pools[0].reason = Reason::Baseline;
    });
    for (snapshot, now, why) in [
        (undecided, fixture::AT, "baseline"),
        (fixture::with_plan(|plan| plan.pools[0].overridden = Some(OverrideKind::Shadow)), fixture::AT, "shadow"),
        (fixture::snapshot(), fixture::AT.after(fixture::VALID), "expired"),
    ] {
        let server = start(snapshot, now).await;
        let answer = get(server.addr, "/metrics/pool/qwen-prefill").await;
        assert_eq!(answer.status, 503, "{why}");
        assert!(answer.text().contains(why), "{}", answer.text());
        server.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn an_expired_recommendation_is_on_no_page() {
    let server = start(fixture::snapshot(), fixture::AT.after(fixture::VALID)).await;
    let metrics = get(server.addr, "/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(!metrics.text().contains(&catalog::RECOMMENDED_REPLICAS.name()));
    let plans: serde_json::Value = serde_json::from_slice(&get(server.addr, "/api/v1/plans").await.body).unwrap();
    assert!(plans["models"][0]["pools"][0]["recommended_replicas"].is_null());
    assert_eq!(plans["models"][0]["pools"][0]["planned_replicas"], 2);
    assert!(get(server.addr, "/").await.text().contains("expired</b> the last recommendation is no longer valid"));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_new_snapshot_is_served_at_once() {
    let (state, _requests) = state(fixture::snapshot(), fixture::AT);
    let snapshot = state.snapshot.clone();
    let server = Server::start(settings(), state).await.unwrap();
    assert!(get(server.addr, "/metrics/pool/qwen-decode").await.text().ends_with(" 1\n"));
    snapshot.store(Arc::new(fixture::with_plan(|plan| plan.pools[1].published.as_mut().unwrap().replicas.0 = 7)));
    assert!(get(server.addr, "/metrics/pool/qwen-decode").await.text().ends_with(" 7\n"));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn plans_hold_the_promised_keys_with_unrounded_numbers() {
    let server = start(fixture::snapshot(), fixture::AT).await;
    let answer = get(server.addr, "/api/v1/plans").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let plans: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    let model = &plans["models"][0];
    assert_eq!(model["model"], "Qwen/Qwen3-8B");
    assert_eq!((&model["held"], &model["reason"]), (&false.into(), &"none".into()));
    assert_eq!(model["observation"]["requests"], 612.0);
    assert_eq!(model["observation"]["offered_requests"], 612.0);
    assert_eq!(model["observation"]["itl_seconds"], 0.012_114_25);
    assert_eq!(model["latency_ratio"]["prompt"], 1.841_860_465_116_279);
    assert_eq!(model["estimated"]["recommended"]["ttft_seconds"], 0.396);
    assert_eq!(model["envelope"]["capacity_tokens_per_second_per_gpu"], 3_035.858_585_858_585_7);
    let pool = &model["pools"][0];
    assert_eq!((&pool["pool"], &pool["role"]), (&"qwen-prefill".into(), &"prefill".into()));
    assert_eq!((&pool["current_replicas"], &pool["recommended_replicas"], &pool["unbounded_replicas"]), (&2.into(), &2.into(), &2.into()));
    assert_eq!(pool["proposed"], serde_json::json!({ "envelope_throughput": 1, "envelope_queue": 2 }));
    let step = serde_json::json!({ "stage": "growth", "before": 2, "after": 2, "reason": "within_limit" });
    assert_eq!(pool["steps"], serde_json::json!([step]));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn plans_keep_their_keys_and_are_null_where_nothing_is_known() {
    let snapshot = fixture::with_plan(|plan| {
        plan.observation = None;
        plan.latency_ratio = Default::default();
        plan.estimated = Default::default();
        plan.pools[0].current_replicas = None;
    });
    let server = start(snapshot, fixture::AT).await;
    let plans: serde_json::Value = serde_json::from_slice(&get(server.addr, "/api/v1/plans").await.body).unwrap();
    for path in [
        "/observation/elapsed_seconds",
        "/observation/requests",
        "/observation/ttft_seconds",
        "/latency_ratio/prompt",
        "/estimated/current/ttft_seconds",
        "/estimated/recommended/itl_seconds",
        "/pools/0/current_replicas",
    ] {
        assert_eq!(plans["models"][0].pointer(path), Some(&serde_json::Value::Null), "{path}");
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn health_turns_bad_when_rounds_stop() {
    let slow = || {
        let mut snapshot = fixture::snapshot();
        snapshot.scrape_interval = Duration::from_secs(60);
        snapshot
    };
    for (snapshot, age, status) in [
        (fixture::snapshot(), 30, 200),
        (fixture::snapshot(), 31, 503),
        // Five intervals of a minute are longer than the shortest patience.
        (slow(), 300, 200),
        (slow(), 301, 503),
    ] {
        // Only the monotonic clock counts.
        let now = Moment { monotonic: fixture::AT.monotonic + Duration::from_secs(age), wall: fixture::AT.wall };
        let server = start(snapshot, now).await;
        assert_eq!(get(server.addr, "/-/healthy").await.status, status, "{age} s");
        server.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn readiness_follows_the_first_round() {
    for (ready, status) in [(false, 503), (true, 200)] {
        let mut snapshot = fixture::snapshot();
        snapshot.ready = ready;
        let server = start(snapshot, fixture::AT).await;
        assert_eq!(get(server.addr, "/-/ready").await.status, status);
        server.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let server = start(fixture::snapshot(), fixture::AT).await;
    assert_eq!(get(server.addr, "/favicon.ico").await.status, 404);
    assert_eq!(get(server.addr, "/metrics/pool/").await.status, 404);
    assert_eq!(ask(server.addr, "POST", "/metrics").await.status, 405);
    assert_eq!(ask(server.addr, "POST", "/api/v1/decisions").await.status, 405);
    assert_eq!(get(server.addr, "/api/v1/decisions/1/ack").await.status, 405);
    assert_eq!(get(server.addr, "/-/reload").await.status, 405);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn reload_over_http_is_off_unless_enabled() {
    let (state, mut requests) = state(fixture::snapshot(), fixture::AT);
    let server = Server::start(Settings { enable_lifecycle: false, ..settings() }, state).await.unwrap();
    let answer = ask(server.addr, "POST", "/-/reload").await;
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("enable_lifecycle"));
    assert!(requests.try_recv().is_err());
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn reload_answers_with_every_problem() {
    let (state, mut requests) = state(fixture::snapshot(), fixture::AT);
    let server = Server::start(settings(), state).await.unwrap();
    let app = tokio::spawn(async move {
        let outcomes = [Ok(()), Err(vec!["models[0].slo: expected a duration".to_owned(), "server.lisen: unknown key".to_owned()])];
        for outcome in outcomes {
            requests.recv().await.unwrap().send(outcome).unwrap();
        }
    });
    assert_eq!(ask(server.addr, "PUT", "/-/reload").await.status, 200);
    let refused = ask(server.addr, "POST", "/-/reload").await;
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("models[0].slo: expected a duration\nserver.lisen: unknown key\n"));
    app.await.unwrap();
    // Nobody listens any more.
    assert_eq!(ask(server.addr, "POST", "/-/reload").await.status, 503);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_reload_that_hangs_is_answered_all_the_same() {
    let (state, _requests) = state(fixture::snapshot(), fixture::AT);
    let server = Server::start(Settings { request_timeout: Duration::from_millis(100), ..settings() }, state).await.unwrap();
    assert_eq!(ask(server.addr, "POST", "/-/reload").await.status, 503);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_status_page_shows_the_decision_so_that_it_can_be_redone() {
    let mut snapshot = fixture::with_plan(|plan| {
        plan.held = true;
        plan.reason = Reason::CoverageLow;
    });
    snapshot.reload.successful = false;
    let server = start(snapshot, fixture::AT).await;
    let answer = get(server.addr, "/").await;
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    let page = answer.text();
    for shown in [
        "Qwen/Qwen3-8B",
        "qwen-prefill",
        Reason::CoverageLow.meaning(),
        "C × I / H = 612 × 2048 / 180",
        "6963.2",
        "2.96236 × 2176 / 262144",
        "⌈0.215 × (1.84186 − 1) × max(1, 2) / (0.5 − 0.215)⌉",
        "⌈870.4 / (3035.86 × 1)⌉",
        "(1 − 1) × 60 + 1 × 215, where I lies 1 of the way from 512 to 2048",
        "(1 − 0) × ((1 − 0) × 11 + 0 × 30) + 0 × ((1 − 0) × 11 + 0 × 30)",
        "x = 0.747475 from 0.1 to 0.9",
        "headroom_below_fifth",
        "10.0.0.2:8000/metrics",
        "no complete answer within 4s",
        "1 of 2 answer",
        "href=\"/metrics\"",
        "href=\"/api/v1/plans\"",
        "href=\"/api/v1/decisions\"",
        "The last attempt to load the configuration failed",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    for external in ["<link rel=\"stylesheet", "http://", "https://", "src="] {
        assert!(!page.contains(external), "{external}");
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_status_page_does_not_mix_a_newer_window_into_an_older_decision() {
    let snapshot = fixture::with_plan(|plan| {
        plan.decided = false;
        plan.observation.as_mut().unwrap().requests.as_mut().unwrap().0 = 7.0;
    });
    let server = start(snapshot, fixture::AT).await;
    let answer = get(server.addr, "/").await;
    assert!(answer.text().contains("symbols stand for that one"));
    assert!(answer.text().contains("C × I / H = C × I / H"));
    assert!(!answer.text().contains("= 7 × 2048"));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_status_page_shows_the_counts_of_the_decision_after_the_fleet_has_changed() {
    let snapshot = fixture::with_plan(|plan| {
        plan.decided = false;
        plan.pools.iter_mut().for_each(|pool| pool.current_replicas.as_mut().unwrap().0 = 9);
    });
    let server = start(snapshot, fixture::AT).await;
    let answer = get(server.addr, "/").await;
    assert!(answer.text().contains("612 × 3.48513 / 180 / 4</td>"));
    assert!(answer.text().contains("max(1, 2) / (0.5"));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn names_cannot_inject_markup_into_the_status_page() {
    let attack = "<script>alert(1)</script>\"'&";
    let mut snapshot = fixture::snapshot();
    let mut model = fixture::model(attack, [attack, "decode"]);
    model.target_namespace = attack.to_owned();
    snapshot.models = vec![model];
    snapshot.config_hash = attack.to_owned();
    let mut target = fixture::target(attack, false);
    target.problem = Some(attack.to_owned());
    target.engine = attack.to_owned();
    snapshot.targets = vec![target];
    let server = start(snapshot, fixture::AT).await;
    let answer = get(server.addr, "/").await;
    assert_eq!(answer.text().matches("<script").count(), 1, "our own");
    assert!(answer.text().contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"));
    assert!(answer.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn every_page_stands_before_the_first_model_is_seen() {
    let mut snapshot = fixture::snapshot();
    snapshot.models.clear();
    snapshot.targets.clear();
    let server = start(snapshot, fixture::AT).await;
    for path in ["/", "/metrics", "/api/v1/plans", "/api/v1/decisions"] {
        assert_eq!(get(server.addr, path).await.status, 200, "{path}");
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn clients_that_send_no_complete_head_are_cut() {
    let (state, _requests) = state(fixture::snapshot(), fixture::AT);
    let server = Server::start(Settings { header_timeout: Duration::from_millis(100), ..settings() }, state).await.unwrap();
    for start_of_head in ["", "GET /metrics HTTP/1.1\r\nHost: he"] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(start_of_head.as_bytes()).await.unwrap();
        closed(&mut stream).await;
    }
    assert_eq!(get(server.addr, "/-/ready").await.status, 200);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn connections_over_the_limit_are_closed_and_a_free_place_is_used_again() {
    let (state, _requests) = state(fixture::snapshot(), fixture::AT);
    let server = Server::start(Settings { max_connections: 2, ..settings() }, state).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        // An answer shows that the connection has its place.
        stream.write_all(b"GET /-/ready HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
        stream.read_exact(&mut [0; 15]).await.unwrap();
        held.push(stream);
    }
    closed(&mut TcpStream::connect(server.addr).await.unwrap()).await;
    held.pop();
    eventually_answers(server.addr).await;
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_peer_with_many_connections_leaves_room_for_others() {
    async fn held(from: &str, addr: SocketAddr) -> std::io::Result<TcpStream> {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(format!("{from}:0").parse().unwrap())?;
        let mut stream = socket.connect(addr).await?;
        stream.write_all(b"GET /-/ready HTTP/1.1\r\nHost: here\r\n\r\n").await?;
        timeout(DEADLINE, stream.read_exact(&mut [0; 15])).await.expect("an answer or an end")?;
        Ok(stream)
    }
    let (state, _requests) = state(fixture::snapshot(), fixture::AT);
    let server = Server::start(Settings { max_connections: 4, max_connections_per_peer: 2, ..settings() }, state).await.unwrap();
    let first = held("127.0.0.1", server.addr).await.unwrap();
    let _second = held("127.0.0.1", server.addr).await.unwrap();
    assert!(held("127.0.0.1", server.addr).await.is_err());
    let _other = held("127.0.0.2", server.addr).await.unwrap();
    drop(first);
    eventually_answers(server.addr).await;
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_client_that_takes_no_bytes_loses_its_place() {
    let mut snapshot = fixture::snapshot();
    // A page of tens of megabytes, more than the sockets' buffers hold.
    snapshot.max_target_series = usize::MAX;
    snapshot.targets = (0..60_000).map(|i| fixture::target(&format!("10.0.0.1:{i}/{}", "x".repeat(64)), true)).collect();
    let (state, _requests) = state(snapshot, fixture::AT);
    let limits = Settings { max_connections: 1, request_timeout: Duration::from_secs(2), ..settings() };
    let server = Server::start(limits, state).await.unwrap();
    let mut greedy = TcpStream::connect(server.addr).await.unwrap();
    greedy.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
    greedy.read_exact(&mut [0; 15]).await.unwrap();
    eventually_answers(server.addr).await;
    server.shutdown().await.unwrap();
}

/// What the server says to these bytes, up to the end of the connection.
async fn said_to(addr: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let mut said = Vec::new();
    let exchange = async {
        // Whoever is cut off in the middle has said enough.
        let _cut = stream.write_all(bytes).await;
        let _reset = stream.read_to_end(&mut said).await;
    };
    timeout(DEADLINE, exchange).await.expect("the server to close the connection");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn no_bytes_that_a_client_sends_harm_the_server() {
    let (state, _requests) = state(fixture::snapshot(), fixture::AT);
    let server = Server::start(Settings { header_timeout: Duration::from_millis(300), ..settings() }, state).await.unwrap();
    const REQUEST: &[u8] = b"POST /api/v1/decisions?after=1&wait=0 HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nAuthorization: Basic dTpw\r\nAccept-Encoding: gzip;q=0.5\r\nConnection: close\r\n\r\n{}";
    let mut seed: u64 = 0x5eed;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..150 {
        let mut bytes = REQUEST.to_vec();
        for _ in 0..=random(4) {
            let (place, byte) = (random(bytes.len()), u8::try_from(random(256)).unwrap());
            match random(4) {
                0 => bytes[place] = byte,
                1 => drop(bytes.remove(place)),
                2 => bytes.insert(place, [b'%', b'\r', b'\n', b'\0', b'?', b'/', b':', 0xff][random(8)]),
                _ => bytes.truncate(place.max(1)),
            }
        }
        let addr = server.addr;
        clients.spawn(async move { said_to(addr, &bytes).await });
    }
    for said in clients.join_all().await {
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 ") && !said.starts_with("HTTP/1.1 5"), "{said}");
    }
    assert_eq!(get(server.addr, "/-/ready").await.status, 200);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn huge_heads_are_refused_and_bodies_that_nobody_reads_are_not_waited_for() {
    let (state, _requests) = state(fixture::snapshot(), fixture::AT);
    let settings = Settings { header_timeout: Duration::from_millis(500), ..settings() };
    let server = Server::start(Settings { enable_lifecycle: false, ..settings }, state).await.unwrap();
    let head = |middle: &str| format!("GET /metrics HTTP/1.1\r\nHost: here\r\n{middle}\r\n").into_bytes();
    let long = head(&format!("X: {}\r\n", "x".repeat(1 << 20)));
    let many = head(&"X: y\r\n".repeat(1000));
    let path = format!("GET /{} HTTP/1.1\r\nHost: here\r\n\r\n", "x".repeat(1 << 20)).into_bytes();
    for bytes in [long, many, path] {
        let said = said_to(server.addr, &bytes).await;
        // Nothing at all where the end of the connection overtook the answer.
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 431") || said.starts_with("HTTP/1.1 414"), "{said}");
    }
    for body in ["Content-Length: 1000000000000\r\n", "Transfer-Encoding: chunked\r\n"] {
        let said =
            said_to(server.addr, format!("POST /-/reload HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{body}\r\n").as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 4"), "{said}");
    }
    assert_eq!(get(server.addr, "/-/ready").await.status, 200);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_head_that_drips_in_has_no_more_time_than_one_that_stalls() {
    let (state, _requests) = state(fixture::snapshot(), fixture::AT);
    let server = Server::start(Settings { header_timeout: Duration::from_millis(300), ..settings() }, state).await.unwrap();
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    let drip = async {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").await?;
        loop {
            stream.write_all(b"x").await?;
            sleep(Duration::from_millis(20)).await;
        }
    };
    let ended: std::io::Result<()> = timeout(DEADLINE, drip).await.expect("the server to close the connection");
    assert!(ended.is_err());
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn shutdown_cuts_what_does_not_end() {
    let server = start(fixture::snapshot(), fixture::AT).await;
    let addr = server.addr;
    let mut idle = TcpStream::connect(addr).await.unwrap();
    idle.write_all(b"GET /-/ready HTTP/1.1\r\nHost: here\r\n\r\n").await.unwrap();
    idle.read_exact(&mut [0; 15]).await.unwrap();
    let mut half = TcpStream::connect(addr).await.unwrap();
    half.write_all(b"GET /metrics HT").await.unwrap();
    timeout(DEADLINE, server.shutdown()).await.expect("the server to end").unwrap();
    closed(&mut idle).await;
    closed(&mut half).await;
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn a_panic_in_one_answer_ends_neither_the_server_nor_the_others() {
    let broken = Arc::new(AtomicBool::new(true));
    let (mut state, _requests) = state(fixture::snapshot(), fixture::AT);
    let switch = broken.clone();
    state.clock = Arc::new(move || {
        assert!(!switch.load(Ordering::Relaxed), "this clock is broken on purpose");
        fixture::AT
    });
    let server = Server::start(settings(), state).await.unwrap();
    assert_eq!(get(server.addr, "/metrics").await.status, 500);
    broken.store(false, Ordering::Relaxed);
    assert_eq!(get(server.addr, "/metrics").await.status, 200);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let server = start(fixture::snapshot(), fixture::AT).await;
    let taken = Settings { listen: server.addr, ..settings() };
    assert!(Server::start(taken, state(fixture::snapshot(), fixture::AT).0).await.is_err());
    server.shutdown().await.unwrap();
}
