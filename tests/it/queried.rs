//! Does a Prometheus that is asked give the same reports as scraping, and does each of its faults end as the right failure?

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use inference_planner_exporter::config::{AccessConfig, QueryConfig, ScrapeConfig};
use inference_planner_exporter::engines::Dialect;
use inference_planner_exporter::planner::input::FailureKind;
use inference_planner_exporter::scrape::query::{Answer, Querier, Question};
use inference_planner_exporter::scrape::report::TargetReport;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::scrape::ENGINE;

/// What the fake API does with a query.
type Reply = Box<dyn Fn(&str) -> Option<(u16, String)> + Send>;

/// A fake of Prometheus' API.
struct Api {
    addr: SocketAddr,
    reply: Arc<Mutex<Reply>>,
    /// Head and form of every request.
    asked: Arc<Mutex<Vec<(String, String)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Api {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let reply: Arc<Mutex<Reply>> = Arc::new(Mutex::new(Box::new(|_| None)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (replies, requests) = (Arc::clone(&reply), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&replies), Arc::clone(&requests)));
            }
        });
        Self { addr, reply, asked, task }
    }

    /// Answers so from now on; `None` is no answer at all.
    fn set(&self, reply: impl Fn(&str) -> Option<(u16, String)> + Send + 'static) {
        *self.reply.lock().unwrap() = Box::new(reply);
    }

    /// Knows these targets from now on.
    fn knows(&self, targets: &[Target]) {
        let targets = targets.to_vec();
        self.set(move |form| Some((200, answer(&targets, form))));
    }

    fn question(&self) -> Question {
        Question {
            query: QueryConfig {
                url: format!("http://{}/prefix", self.addr),
                selector: r#"{job="j"}"#.to_owned(),
                target_label: "instance".to_owned(),
                lookback: Duration::from_secs(120),
            },
            engine: Some(Dialect::Known(&ENGINE)),
            access: Arc::default(),
        }
    }
}

/// One request: head, form of the announced length, answer, end.
async fn serve(mut stream: TcpStream, reply: Arc<Mutex<Reply>>, asked: Arc<Mutex<Vec<(String, String)>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()).unwrap();
    let mut form = vec![0; length];
    stream.read_exact(&mut form).await.unwrap();
    let form = String::from_utf8(form).unwrap();
    asked.lock().unwrap().push((head, form.clone()));
    let answer = reply.lock().unwrap()(&form);
    let Some((status, body)) = answer else {
        let _closed = stream.read_u8().await;
        return;
    };
    let head =
        format!("HTTP/1.1 {status} Fake\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    // The asker may stop at its limit.
    let _gone = stream.write_all(head.as_bytes()).await;
    let _gone = stream.write_all(body.as_bytes()).await;
}

/// A target as the fake Prometheus knows it.
#[derive(Clone)]
struct Target {
    name: &'static str,
    /// Seconds between its last scrape and `NOW`.
    age: f64,
    /// Samples of its last scrape, `up` among them.
    samples: &'static [(&'static str, &'static str)],
}

const WHOLE: &[(&str, &str)] = &[("up", "1"), ("running", "3")];

/// The moment of every answer, by the fake's clock: near enough to ours.
static NOW: LazyLock<f64> = LazyLock::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as f64);

fn answer(targets: &[Target], form: &str) -> String {
    let now = *NOW;
    let labels = |target: &Target| format!(r#""instance":"{}","job":"j""#, target.name);
    let (kind, series): (_, Vec<String>) = if form.contains("timestamp") {
        let one = |target: &Target| format!(r#"{{"metric":{{{}}},"value":[{now},"{}"]}}"#, labels(target), now - target.age);
        ("vector", targets.iter().map(one).collect())
    } else {
        let of = |target: &Target| {
            let (labels, at) = (labels(target), now - target.age);
            let line = move |(name, value): &(&str, &str)| {
                format!(r#"{{"metric":{{"__name__":"{name}",{labels},"model":"m"}},"values":[[{},"1"],[{at},"{value}"]]}}"#, at - 15.0)
            };
            target.samples.iter().map(line).collect::<Vec<_>>()
        };
        ("matrix", targets.iter().flat_map(of).collect())
    };
    format!(r#"{{"status":"success","data":{{"resultType":"{kind}","result":[{}]}}}}"#, series.join(","))
}

fn config() -> ScrapeConfig {
    ScrapeConfig {
        interval: Duration::from_millis(50),
        timeout: Duration::from_secs(20),
        concurrency: 8,
        body_limit: 1 << 10,
        bytes_in_flight: 1 << 20,
        proxy: None,
    }
}

async fn ask(querier: &Querier, question: &Question) -> Answer {
    let origin = Instant::now().checked_sub(Duration::from_secs(600)).unwrap();
    querier.round(std::slice::from_ref(question), origin, false).await.remove(0)
}

fn names(answer: &Answer) -> Vec<&str> {
    let listed: Vec<_> = answer.listing.targets.iter().map(|target| target.target.as_str()).collect();
    assert_eq!(listed, answer.reports.iter().map(|report| report.target.as_str()).collect::<Vec<_>>());
    listed
}

fn failure(report: &TargetReport) -> (FailureKind, &str) {
    let failure = report.outcome.as_ref().unwrap_err();
    (failure.kind, &failure.message)
}

#[tokio::test]
async fn reports_carry_the_moments_of_the_scrapes() {
    let api = Api::start().await;
    api.knows(&[Target { name: "b:1", age: 20.0, samples: WHOLE }, Target { name: "a:1", age: 5.0, samples: WHOLE }]);
    let origin = Instant::now().checked_sub(Duration::from_secs(600)).unwrap();
    let querier = Querier::new(&config()).unwrap();
    let answer = querier.round(&[api.question()], origin, true).await.remove(0);
    assert_eq!(names(&answer), ["a:1", "b:1"]);
    assert_eq!(answer.reports[0].at - answer.reports[1].at, Duration::from_secs(15));
    let age = origin.elapsed() - answer.reports[0].at;
    assert!(age >= Duration::from_secs(5), "{age:?}");
    let scraped = answer.reports[0].outcome.as_ref().unwrap();
    assert_eq!((scraped.engine, scraped.reading.model_names().collect::<Vec<_>>(), scraped.problems), ("fake", vec!["m"], 0));
    assert_eq!(scraped.page.as_deref(), Some("# TYPE running untyped\nrunning{model=\"m\"} 3\n"));
    assert!(!answer.listing.is_stale());

    let asked = api.asked.lock().unwrap().clone();
    let (heads, forms): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
    assert!(heads.iter().all(|head| head.starts_with("POST /prefix/api/v1/query HTTP/1.1\r\n")), "{heads:?}");
    assert_eq!(forms[0], "query=timestamp%28up%7Bjob%3D%22j%22%7D%29");
    // No further back than the older of both scrapes.
    assert!(forms[1].contains("running") && forms[1].contains("%5B21s%5D&time="), "{forms:?}");
}

#[tokio::test]
async fn a_sample_that_is_seen_twice_is_the_same_and_the_next_is_as_much_later_as_it_was_scraped() {
    let api = Api::start().await;
    let querier = Querier::new(&config()).unwrap();
    let origin = Instant::now().checked_sub(Duration::from_secs(600)).unwrap();
    let mut seen = Vec::new();
    for scraped in [30.0, 30.0, 14.875] {
        api.set(move |form| {
            let target = Target { name: "a:1", age: scraped, samples: WHOLE };
            Some((200, answer(&[target], form)))
        });
        seen.push(querier.round(&[api.question()], origin, false).await[0].reports[0].at);
    }
    assert_eq!((seen[1] - seen[0], seen[2] - seen[1]), (Duration::ZERO, Duration::from_millis(15_125)));
}

#[tokio::test]
async fn each_target_is_silent_for_its_own_reason_and_gone_when_prometheus_says_so() {
    let api = Api::start().await;
    let querier = Querier::new(&config()).unwrap();
    let targets = [
        Target { name: "down", age: 1.0, samples: &[("up", "0")] },
        Target { name: "foreign", age: 1.0, samples: &[("up", "1")] },
        Target { name: "good", age: 1.0, samples: WHOLE },
        Target { name: "old", age: 200.0, samples: WHOLE },
        Target { name: "twice", age: 1.0, samples: WHOLE },
        Target { name: "twice", age: 1.0, samples: WHOLE },
    ];
    api.knows(&targets);
    let answer = ask(&querier, &api.question()).await;
    assert_eq!(names(&answer), ["down", "foreign", "good", "old", "twice"]);
    assert!(answer.reports[2].outcome.is_ok());
    let expected = [
        (0, FailureKind::Connect, "could not scrape it"),
        (1, FailureKind::Empty, "keeps nothing"),
        (3, FailureKind::Timeout, "last scraped it 200 s ago; expected less than 120 s"),
        (4, FailureKind::Parse, "2 series up of this name"),
    ];
    for (index, kind, words) in expected {
        let (found, message) = failure(&answer.reports[index]);
        assert!(found == kind && message.contains(words), "{found:?} {message}");
    }
    api.knows(&targets[1..3]);
    let answer = ask(&querier, &api.question()).await;
    assert_eq!((names(&answer), answer.listing.is_stale(), answer.listing.succeeded), (vec!["foreign", "good"], false, 2));
    api.knows(&[]);
    let answer = ask(&querier, &api.question()).await;
    assert_eq!((names(&answer).len(), answer.listing.is_stale()), (0, false));
}

/// What becomes of a known target when the API answers so.
async fn fault(config: &ScrapeConfig, reply: impl Fn(&str) -> Option<(u16, String)> + Send + 'static) -> (FailureKind, String) {
    let api = Api::start().await;
    let (first, question) = (Querier::new(&ScrapeConfig { timeout: Duration::from_secs(20), ..config.clone() }).unwrap(), api.question());
    api.knows(&[Target { name: "a:1", age: 1.0, samples: WHOLE }]);
    let querier = Querier::new(config).unwrap();
    assert_eq!(names(&ask(&first, &question).await), ["a:1"]);
    // Nothing was known before.
    api.set(reply);
    let answer = ask(&querier, &question).await;
    assert_eq!((names(&answer).len(), answer.listing.is_stale(), answer.listing.failed), (0, true, 1));
    let problem = answer.listing.problem.unwrap();
    if config.timeout < Duration::from_secs(20) {
        return (FailureKind::Timeout, problem);
    }
    // With a list, the targets stay on it and are silent.
    let answer = ask(&first, &question).await;
    assert_eq!((names(&answer), answer.listing.is_stale()), (vec!["a:1"], true));
    let (kind, message) = failure(&answer.reports[0]);
    assert_eq!(answer.listing.problem.as_deref(), Some(message));
    (kind, message.to_owned())
}

#[tokio::test]
async fn faults_of_the_api_are_told_in_its_words() {
    let said = |status: u16, body: &str| {
        let body = body.to_owned();
        move |_: &str| Some((status, body.clone()))
    };
    let error = r#"{"status":"error","errorType":"execution","error":"query processing would load\ntoo many samples"}"#;
    let found = fault(&config(), said(422, error)).await;
    assert_eq!(
        found,
        (FailureKind::Status, "status 422 (Unprocessable Entity): execution: query processing would load too many samples".to_owned())
    );
    let found = fault(&config(), said(502, "<html>")).await;
    assert_eq!(found, (FailureKind::Status, "status 502 (Bad Gateway): expected an answer of Prometheus' API".to_owned()));
    let (kind, words) = fault(&config(), said(302, "")).await;
    assert!(kind == FailureKind::Status && words.contains("redirected"), "{words}");
    let (kind, words) = fault(&config(), said(200, "running 3\n")).await;
    assert!(kind == FailureKind::Parse && words.contains("in JSON"), "{words}");
    let warned = r#"{"status":"success","warnings":["a store is down"],"data":{"resultType":"vector","result":[]}}"#;
    let (kind, words) = fault(&config(), said(200, warned)).await;
    assert!(kind == FailureKind::Parse && words.contains("a store is down"), "{words}");
    let (kind, words) = fault(&config(), said(200, &" ".repeat(2 << 20))).await;
    assert!(kind == FailureKind::TooLarge && words.contains("scrape.bytes_in_flight"), "{words}");
    // Only the samples are missing.
    let (kind, _) = fault(&config(), |form| match form.contains("timestamp") {
        true => Some((200, answer(&[Target { name: "a:1", age: 1.0, samples: WHOLE }], form))),
        false => Some((503, String::new())),
    })
    .await;
    assert_eq!(kind, FailureKind::Status);
}

#[tokio::test]
async fn an_api_that_hangs_or_is_not_there_costs_a_round() {
    let (_, words) = fault(&ScrapeConfig { timeout: Duration::from_millis(100), ..config() }, |_| None).await;
    assert_eq!(words, "Prometheus gave no whole answer within 100ms");
    let querier = Querier::new(&config()).unwrap();
    let question = {
        let api = Api::start().await;
        api.question()
    };
    let answer = ask(&querier, &question).await;
    assert!(answer.listing.problem.is_some_and(|problem| problem.contains("cannot connect")));
}

#[tokio::test]
async fn one_api_does_not_spoil_anothers_answer_and_credentials_go_along() {
    let (good, bad) = (Api::start().await, Api::start().await);
    good.knows(&[Target { name: "a:1", age: 1.0, samples: WHOLE }]);
    bad.set(|_| Some((500, String::new())));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "hunter2").unwrap();
    let headers = [("X-Scope-OrgID".to_owned(), "team".to_owned())].into();
    let access = Arc::new(AccessConfig { bearer_token_file: Some(file), headers, ..AccessConfig::default() });
    let questions = [bad.question(), Question { access, ..good.question() }];
    let querier = Querier::new(&config()).unwrap();
    let answers = querier.round(&questions, Instant::now().checked_sub(Duration::from_secs(600)).unwrap(), false).await;
    assert!(answers[0].listing.is_stale() && answers[0].reports.is_empty());
    assert!(answers[1].reports[0].outcome.is_ok());
    let head = good.asked.lock().unwrap()[1].0.to_ascii_lowercase();
    assert!(head.contains("authorization: bearer hunter2\r\n") && head.contains("x-scope-orgid: team\r\n"), "{head}");
}
