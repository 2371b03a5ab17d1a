//! Can a program follow the decisions over a real socket? Lists, waits that wake, end and cost little, and acknowledgements.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use inference_planner_exporter::decisions::{DecisionId, Kept, Ledger, ModelState, Standing};
use inference_planner_exporter::export::snapshot::{ModelSnapshot, Snapshot};
use inference_planner_exporter::server::{AcknowledgeRequest, Server, ServerHandle, Settings, State};
use inference_planner_exporter::units::{Moment, Replicas};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::export::fixture;
use crate::server::{Answer, DEADLINE, ask, ask_with, get, settings, state};

/// Long enough for a request to be waiting, on any machine that passes the other tests.
const SHORTLY: Duration = Duration::from_millis(200);

/// What the exporter does beside its server: it decides, and takes acknowledgements.
struct App {
    ledger: Ledger,
    snapshot: Arc<ArcSwap<Snapshot>>,
    newest: watch::Sender<DecisionId>,
    acknowledgements: mpsc::Receiver<AcknowledgeRequest>,
}

impl App {
    async fn start(settings: Settings, now: Moment) -> (Self, ServerHandle) {
        let mut none = fixture::snapshot();
        none.models.clear();
        none.decisions = Standing::default();
        let (newest, to_await) = watch::channel(DecisionId(0));
        let (acknowledge, acknowledgements) = mpsc::channel(1);
        let state = State { newest: to_await, acknowledge, ..state(none, now).0 };
        let snapshot = Arc::clone(&state.snapshot);
        let ledger = Ledger::restored(Kept::default(), Some(Duration::from_secs(1800)), fixture::AT);
        (Self { ledger, snapshot, newest, acknowledgements }, Server::start(settings, state).await.unwrap())
    }

    /// Publishes so many prefill and decode replicas for each model.
    fn publish(&mut self, models: &[(&str, u32, u32)]) {
        let model = |&(name, prefill, decode): &(&str, u32, u32)| {
            let mut model = fixture::model(name, [&format!("{name}-prefill"), &format!("{name}-decode")]);
            let plan = Arc::make_mut(&mut model.plan);
            for (pool, count) in plan.pools.iter_mut().zip([prefill, decode]) {
                pool.recommended_replicas = Some(Replicas(count));
                pool.published.as_mut().unwrap().replicas = Replicas(count);
            }
            model
        };
        let models: Vec<ModelSnapshot> = models.iter().map(model).collect();
        self.ledger.observe(models.iter().map(|model| ModelState::of(&model.plan, &model.target_namespace)), "0123456789ab", fixture::AT);
        self.show(models);
    }

    fn show(&mut self, models: Vec<ModelSnapshot>) {
        let mut snapshot = fixture::snapshot();
        (snapshot.models, snapshot.decisions) = (models, self.ledger.standing());
        self.snapshot.store(Arc::new(snapshot));
        self.newest.send_replace(self.ledger.last_id());
    }

    /// Takes acknowledgements until the server goes.
    fn serve(mut self) -> JoinHandle<()> {
        tokio::spawn(async move {
            while let Some(request) = self.acknowledgements.recv().await {
                let result = self.ledger.acknowledge(request.id, request.by, fixture::AT);
                let models = self.snapshot.load().models.clone();
                self.show(models);
                request.answer.send(result).unwrap();
            }
        })
    }
}

fn parsed(answer: &Answer) -> Value {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

async fn list(addr: SocketAddr, query: &str) -> Value {
    parsed(&get(addr, &format!("/api/v1/decisions{query}")).await)
}

/// The models of an answer and their counts.
fn counts(answer: &Value) -> Vec<(&str, Vec<Option<u64>>)> {
    let pools = |decision: &Value| decision["pools"].as_array().unwrap().iter().map(|pool| pool["replicas"].as_u64()).collect();
    answer["decisions"].as_array().unwrap().iter().map(|decision| (decision["model"].as_str().unwrap(), pools(decision))).collect()
}

/// A client that waits by now.
async fn waiting(addr: SocketAddr, query: String) -> JoinHandle<Value> {
    let waiting = tokio::spawn(async move { list(addr, &query).await });
    sleep(SHORTLY).await;
    assert!(!waiting.is_finished());
    waiting
}

/// Acknowledges with this body.
async fn ack(addr: SocketAddr, id: u64, body: &str) -> Answer {
    let headers = format!("Content-Length: {}\r\n", body.len());
    // The body follows the empty line that ends the head.
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("POST /api/v1/decisions/{id}/ack HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    crate::server::read_answer(stream).await.unwrap()
}

#[tokio::test]
async fn decisions_are_listed_with_all_pools_and_the_promised_keys() {
    let (mut app, server) = App::start(settings(), fixture::AT).await;
    assert_eq!(list(server.addr, "").await, json!({ "last_id": 0, "decisions": [] }));
    app.publish(&[("\"m\"", 2, 3)]);
    app.publish(&[("\"m\"", 2, 5)]);
    let id = fixture::AT.wall.as_secs() * 1000 + 1;
    let pool = |name: &str, role: &str, before: u32, replicas: u32| json!({ "pool": name, "role": role, "before": before, "replicas": replicas, "reason": "none" });
    let decision = json!({
        "id": id,
        "model": "\"m\"",
        "target_namespace": "llm",
        "at_seconds": fixture::AT.wall.as_secs_f64(),
        "config_hash": "0123456789ab",
        "withdrawn": false,
        "pools": [pool("\"m\"-prefill", "prefill", 2, 2), pool("\"m\"-decode", "decode", 3, 5)],
        "acknowledged": null,
        "acknowledge_until_seconds": fixture::AT.wall.as_secs_f64() + 1800.0,
        "timed_out": false,
    });
    assert_eq!(list(server.addr, "").await, json!({ "last_id": id, "decisions": [decision] }), "only the latest stands");
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_wait_is_woken_by_the_next_decision_of_its_model_and_by_no_other() {
    let (mut app, server) = App::start(settings(), fixture::AT).await;
    app.publish(&[("a", 1, 1), ("b", 1, 1)]);
    let last = list(server.addr, "").await["last_id"].as_u64().unwrap();
    let any = waiting(server.addr, format!("?after={last}")).await;
    let only_a = waiting(server.addr, format!("?after={last}&model=a&wait=60")).await;
    app.publish(&[("a", 1, 1), ("b", 1, 2)]);
    let woken = timeout(DEADLINE, any).await.unwrap().unwrap();
    assert_eq!((&woken["last_id"], counts(&woken)), (&(last + 1).into(), vec![("b", vec![Some(1), Some(2)])]));
    sleep(SHORTLY).await;
    assert!(!only_a.is_finished());
    app.publish(&[("a", 4, 1), ("b", 1, 2)]);
    let woken = timeout(DEADLINE, only_a).await.unwrap().unwrap();
    assert_eq!((&woken["last_id"], counts(&woken)), (&(last + 2).into(), vec![("a", vec![Some(4), Some(1)])]));
    // Whoever comes later has missed nothing and waits for nothing.
    let missed = list(server.addr, &format!("?after={last}")).await;
    assert_eq!(counts(&missed).len(), 2);
    let missed = list(server.addr, &format!("?after={}&wait=60s", last + 1)).await;
    assert_eq!(counts(&missed), [("a", vec![Some(4), Some(1)])]);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_wait_for_the_first_decision_is_woken_by_it() {
    let (mut app, server) = App::start(settings(), fixture::AT).await;
    let first = waiting(server.addr, "?after=0".to_owned()).await;
    app.publish(&[("a", 1, 1)]);
    assert_eq!(counts(&timeout(DEADLINE, first).await.unwrap().unwrap()), [("a", vec![Some(1), Some(1)])]);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_wait_that_ends_in_vain_is_an_empty_list_whatever_the_other_deadlines() {
    let short = Duration::from_millis(300);
    let (mut app, server) = App::start(Settings { request_timeout: short, header_timeout: short, ..settings() }, fixture::AT).await;
    app.publish(&[("a", 1, 1)]);
    let last = list(server.addr, "").await["last_id"].clone();
    for wait in ["0", "700ms"] {
        assert_eq!(list(server.addr, &format!("?after={last}&wait={wait}")).await, json!({ "last_id": last, "decisions": [] }), "{wait}");
    }
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_id_of_another_process_is_answered_at_once_with_what_stands() {
    let (mut app, server) = App::start(settings(), fixture::AT).await;
    let foreign = list(server.addr, "?after=99&wait=60s").await;
    assert_eq!(foreign, json!({ "last_id": 0, "decisions": [] }), "and the client goes on from our id");
    app.publish(&[("a", 1, 1)]);
    let foreign = list(server.addr, &format!("?after={}&wait=60s", u64::MAX)).await;
    assert_eq!(counts(&foreign), [("a", vec![Some(1), Some(1)])]);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_may_not_be_served_is_withdrawn_also_while_the_loop_hangs() {
    let (mut app, server) = App::start(settings(), fixture::AT.after(fixture::VALID)).await;
    app.publish(&[("a", 2, 3)]);
    let answer = list(server.addr, "").await;
    assert_eq!(counts(&answer), [("a", vec![None, None])]);
    let decision = &answer["decisions"][0];
    assert_eq!((&decision["withdrawn"], &decision["timed_out"]), (&true.into(), &false.into()));
    assert_eq!(decision["acknowledge_until_seconds"], Value::Null);
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_nobody_acknowledged_in_time_says_so() {
    // The recommendation itself lives longer here than an acknowledgement is awaited.
    let (mut app, server) = App::start(settings(), fixture::AT.after(Duration::from_secs(1800))).await;
    app.publish(&[("a", 2, 3)]);
    let mut models = app.snapshot.load().models.clone();
    for pool in &mut Arc::make_mut(&mut models[0].plan).pools {
        pool.published.as_mut().unwrap().valid_until += fixture::VALID * 10;
    }
    app.show(models);
    let decision = list(server.addr, "").await["decisions"][0].clone();
    assert_eq!((&decision["withdrawn"], &decision["timed_out"]), (&false.into(), &true.into()));
    let _app = app.serve();
    let late = parsed(&ack(server.addr, decision["id"].as_u64().unwrap(), "").await);
    assert_eq!((&late["timed_out"], &late["acknowledged"]["by"]), (&false.into(), &Value::Null));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn shutdown_answers_everyone_who_waits() {
    // A grace that a test would not outlast: what ends here, ends by itself.
    let patient = Settings { shutdown_grace: DEADLINE * 2, ..settings() };
    let (mut app, server) = App::start(patient, fixture::AT).await;
    app.publish(&[("a", 1, 1)]);
    let last = list(server.addr, "").await["last_id"].clone();
    let mut clients = Vec::new();
    for _ in 0..20 {
        let addr = server.addr;
        let query = format!("?after={last}&wait=60s");
        clients.push(tokio::spawn(async move { list(addr, &query).await }));
    }
    sleep(SHORTLY).await;
    assert!(clients.iter().all(|client| !client.is_finished()));
    timeout(DEADLINE, server.shutdown()).await.expect("the server to end").unwrap();
    for client in clients {
        assert_eq!(timeout(DEADLINE, client).await.unwrap().unwrap(), json!({ "last_id": last, "decisions": [] }));
    }
}

#[tokio::test]
async fn waits_end_when_nothing_is_decided_any_more() {
    let (mut app, server) = App::start(settings(), fixture::AT).await;
    app.publish(&[("a", 1, 1)]);
    let last = list(server.addr, "").await["last_id"].clone();
    let client = waiting(server.addr, format!("?after={last}&wait=60s")).await;
    drop(app);
    assert_eq!(timeout(DEADLINE, client).await.unwrap().unwrap(), json!({ "last_id": last, "decisions": [] }));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn too_many_who_wait_are_told_to_come_back_and_one_who_leaves_makes_room() {
    let (mut app, server) = App::start(Settings { max_waiting: 2, ..settings() }, fixture::AT).await;
    app.publish(&[("a", 1, 1)]);
    let last = list(server.addr, "").await["last_id"].clone();
    let query = format!("?after={last}&wait=60s");
    let stays = waiting(server.addr, query.clone()).await;
    let leaves = waiting(server.addr, query.clone()).await;
    let path = format!("/api/v1/decisions{query}");
    let full = get(server.addr, &path).await;
    assert_eq!((full.status, full.header("retry-after")), (503, Some("5")), "{}", full.text());
    // Who does not wait needs no place.
    assert_eq!(counts(&list(server.addr, "").await).len(), 1);
    leaves.abort();
    let room = async {
        loop {
            let again = get(server.addr, &format!("/api/v1/decisions?after={last}&wait=1ms")).await;
            if again.status == 200 {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(DEADLINE, room).await.expect("a free place");
    assert!(!stays.is_finished());
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_wrong_question_is_answered_with_what_was_expected() {
    let (mut app, server) = App::start(settings(), fixture::AT).await;
    app.publish(&[("a", 1, 1)]);
    for (query, status, expected) in [
        ("?after=x", 400, "after: expected the last_id of an earlier answer, a whole number, got \"x\""),
        ("?after=1&wait=2m", 400, "wait: expected a duration such as 30s, at most 1m, got \"2m\""),
        ("?wait=3s", 400, "expected after=ID with it"),
        ("?since=1", 400, "expected after, model or wait"),
        ("?model=b", 404, "no model of that name"),
    ] {
        let answer = get(server.addr, &format!("/api/v1/decisions{query}")).await;
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.text().contains(expected), "{query}: {}", answer.text());
    }
    let head = ask(server.addr, "HEAD", "/api/v1/decisions?after=0").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_acknowledgement_is_kept_once_and_shown() {
    let (mut app, server) = App::start(settings(), fixture::AT).await;
    app.publish(&[("a", 1, 1)]);
    app.publish(&[("a", 1, 2)]);
    let id = list(server.addr, "").await["last_id"].as_u64().unwrap();
    let _app = app.serve();
    let name = "node \"7\" <b>\u{fc}</b>";
    let first = parsed(&ack(server.addr, id, &json!({ "by": name }).to_string()).await);
    let done = json!({ "at_seconds": fixture::AT.wall.as_secs_f64(), "by": name });
    assert_eq!((&first["id"], &first["acknowledged"]), (&id.into(), &done));
    assert_eq!(first["acknowledge_until_seconds"], Value::Null);
    assert_eq!(parsed(&ack(server.addr, id, "").await), first, "a second one changes nothing");
    assert_eq!(list(server.addr, "").await["decisions"], json!([first]));

    let superseded = ack(server.addr, id - 1, "{}").await;
    assert_eq!((superseded.status, superseded.header("content-type")), (409, Some("application/json")));
    assert_eq!(serde_json::from_slice::<Value>(&superseded.body).unwrap(), json!({ "id": id - 1, "superseded_by": id }));
    let unknown = ack(server.addr, id + 1, "").await;
    assert_eq!((unknown.status, unknown.text().contains(&format!("no decision {}", id + 1))), (404, true));
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_acknowledgement_that_is_none_is_refused_with_the_reason() {
    let (mut app, server) = App::start(settings(), fixture::AT).await;
    app.publish(&[("a", 1, 1)]);
    let id = list(server.addr, "").await["last_id"].as_u64().unwrap();
    let app = app.serve();
    let long = format!("{{\"by\": \"{}\"}}", "x".repeat(201));
    let huge = format!("{{\"by\": \"{}\"}}", "x".repeat(5000));
    for (body, status, expected) in [
        ("{\"by\": 7}", 400, "expected nothing or {\"by\": \"NAME\"}"),
        ("{\"who\": \"me\"}", 400, "unknown field `who`"),
        ("by=me", 400, "expected nothing or"),
        ("{\"by\": \"a\\nb\"}", 400, "control characters"),
        (&long, 400, "more than 200 characters"),
        (&huge, 413, ""),
    ] {
        let answer = ack(server.addr, id, body).await;
        assert_eq!(answer.status, status, "{body}");
        assert!(answer.text().contains(expected), "{body}: {}", answer.text());
    }
    assert_eq!(ask(server.addr, "POST", "/api/v1/decisions/latest/ack").await.status, 400);
    assert_eq!(list(server.addr, "").await["decisions"][0]["acknowledged"], Value::Null);
    app.abort();
    let _aborted = app.await;
    assert_eq!(ack(server.addr, id, "").await.status, 503, "nobody takes it any more");
    server.shutdown().await.unwrap();
}

#[tokio::test]
async fn acknowledgements_are_off_unless_enabled() {
    let (mut app, server) = App::start(Settings { enable_lifecycle: false, ..settings() }, fixture::AT).await;
    app.publish(&[("a", 1, 1)]);
    let answer = ask_with(server.addr, "POST", "/api/v1/decisions/1/ack", "").await.unwrap();
    assert_eq!(answer.status, 403);
    assert!(answer.text().contains("enable_lifecycle"));
    assert!(app.acknowledgements.try_recv().is_err());
    assert_eq!(counts(&list(server.addr, "").await).len(), 1, "reading is not");
    server.shutdown().await.unwrap();
}
