//! Does every fault of a server end as the right failure of that server, and of no other?

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inference_planner_exporter::config::ScrapeConfig;
use inference_planner_exporter::engines::{Dialect, Engine, Reading};
use inference_planner_exporter::planner::input::FailureKind;
use inference_planner_exporter::scrape::report::{Scraped, TargetReport};
use inference_planner_exporter::scrape::{Job, Scraper};
use inference_planner_exporter::units::TargetId;

use crate::fake::{Behaviour, FakeServer};

/// One family; a sample per model label.
pub static ENGINE: Engine = Engine {
    name: "fake",
    families: &[&["running"]],
    counts_replicas: false,
    gauges: &[],
    recognise: |page| page.family("running").is_some(),
    read: |page| {
        let samples = page.family("running").into_iter().flat_map(|family| family.samples());
        let models = samples.map(|sample| (sample.label("model").map(str::to_owned), Default::default())).collect();
        Reading { models, missing: Vec::new() }
    },
};

pub const PAGE: &str = "# TYPE running gauge\nrunning{model=\"m\"} 3\nother 4\n";

fn config() -> ScrapeConfig {
    ScrapeConfig {
        interval: Duration::from_millis(50),
        timeout: Duration::from_secs(3),
        concurrency: 8,
        body_limit: 1 << 20,
        bytes_in_flight: 4 << 20,
        proxy: None,
    }
}

/// A deadline that no healthy answer misses, also on a busy machine.
fn patient() -> ScrapeConfig {
    ScrapeConfig { timeout: Duration::from_secs(20), ..config() }
}

fn job(url: &str) -> Job {
    Job { target: TargetId::from(url), url: url.to_owned(), engine: Some(Dialect::Known(&ENGINE)), access: Arc::default() }
}

async fn round(scraper: &Scraper, jobs: &[Job]) -> Vec<TargetReport> {
    let reports = scraper.round(jobs, Instant::now(), false).await;
    assert_eq!(reports.iter().map(|report| &report.target).collect::<Vec<_>>(), jobs.iter().map(|job| &job.target).collect::<Vec<_>>());
    reports
}

fn kind(report: &TargetReport) -> Option<FailureKind> {
    report.outcome.as_ref().err().map(|failure| failure.kind)
}

fn message(report: &TargetReport) -> &str {
    report.outcome.as_ref().err().map_or("", |failure| &failure.message)
}

/// Scrapes a server that behaves so between two healthy ones, which must be read. Twice, since connections and suspicion are remembered.
async fn beside_healthy_ones(config: &ScrapeConfig, server: &FakeServer) -> TargetReport {
    let (before, after) = (FakeServer::with_page(PAGE).await, FakeServer::with_page(PAGE).await);
    let jobs = [job(&before.url()), job(&server.url()), job(&after.url())];
    let scraper = Scraper::new(config).unwrap();
    let first = round(&scraper, &jobs).await;
    let second = round(&scraper, &jobs).await;
    for reports in [&first, &second] {
        assert_eq!((kind(&reports[0]), kind(&reports[2])), (None, None), "{reports:?}");
    }
    assert_eq!(kind(&first[1]), kind(&second[1]));
    second.into_iter().nth(1).unwrap()
}

async fn fault(config: &ScrapeConfig, behaviour: Behaviour) -> (Option<FailureKind>, String) {
    let server = FakeServer::start(behaviour).await;
    server.set_page(PAGE);
    let report = beside_healthy_ones(config, &server).await;
    (kind(&report), message(&report).to_owned())
}

fn body(headers: &str, body: &[u8]) -> Behaviour {
    Behaviour::Body { headers: headers.to_owned(), body: body.to_vec() }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn read(report: &TargetReport) -> &Scraped {
    report.outcome.as_ref().unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_is_read_over_one_kept_connection() {
    let server = FakeServer::with_page(PAGE).await;
    let scraper = Scraper::new(&patient()).unwrap();
    let origin = Instant::now();
    for _ in 0..3 {
        let reports = scraper.round(&[job(&server.url())], origin, true).await;
        let scraped = read(&reports[0]);
        assert_eq!((scraped.engine, scraped.problems), ("fake", 0));
        assert_eq!(scraped.reading.model_names().collect::<Vec<_>>(), ["m"]);
        assert_eq!(scraped.page.as_deref(), Some("# TYPE running gauge\nrunning{model=\"m\"} 3\n"));
        assert!(reports[0].at <= origin.elapsed() && reports[0].duration <= reports[0].at);
    }
    assert_eq!((server.requests(), server.connections()), (3, 1));
    let request = server.last_request().to_ascii_lowercase();
    for line in ["accept: text/plain;version=0.0.4\r\n", "accept-encoding: gzip\r\n", "user-agent: inference-planner-exporter/"] {
        assert!(request.contains(line), "{request}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_hung_server_of_200_costs_only_itself() {
    let mut servers = Vec::new();
    for index in 0..200 {
        let server = FakeServer::start(if index == 77 { Behaviour::Hang } else { Behaviour::Page }).await;
        server.set_page(PAGE);
        servers.push(server);
    }
    let jobs: Vec<_> = servers.iter().map(|server| job(&server.url())).collect();
    let scraper = Scraper::new(&config()).unwrap();
    for _ in 0..2 {
        let reports = round(&scraper, &jobs).await;
        for (index, report) in reports.iter().enumerate() {
            assert_eq!(kind(report), (index == 77).then_some(FailureKind::Timeout), "{index}: {report:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_hung_servers_than_places_keep_no_healthy_one_waiting() {
    // 24 hung servers, first in the list, against 8 places; the deadline is never reached by those that wait for a place.
    let hung = FakeServer::start(Behaviour::Hang).await;
    let healthy = FakeServer::with_page(PAGE).await;
    let url = |server: &FakeServer, index| format!("http://{}/metrics?{index}", server.addr);
    let mut jobs: Vec<_> = (0..24).map(|index| job(&url(&hung, index))).collect();
    jobs.extend((0..40).map(|index| job(&url(&healthy, index))));
    let scraper = Scraper::new(&config()).unwrap();
    for number in 0..2 {
        let reports = round(&scraper, &jobs).await;
        let first_hung_end = reports[..24].iter().map(|report| report.at).min().unwrap();
        for report in &reports[..24] {
            assert_eq!(kind(report), Some(FailureKind::Timeout), "{report:?}");
        }
        for report in &reports[24..] {
            assert_eq!(kind(report), None, "{report:?}");
            // Nothing but the order is asserted of time: healthy ones were read while the hung ones were still waited for.
            assert!(report.at < first_hung_end, "round {number}: {:?} against {first_hung_end:?}", report.at);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_ends_although_more_servers_hang_than_there_is_room_for_and_all_get_their_turn() {
    let config = ScrapeConfig { timeout: Duration::from_millis(300), concurrency: 1, ..config() };
    let hung = FakeServer::start(Behaviour::Hang).await;
    hung.set_page(PAGE);
    let jobs: Vec<_> = (0..20).map(|index| job(&format!("http://{}/{index}", hung.addr))).collect();
    let scraper = Scraper::new(&config).unwrap();
    let reports = round(&scraper, &jobs).await;
    assert!(reports.iter().all(|report| kind(report) == Some(FailureKind::Timeout)), "{reports:?}");
    let left_out = reports.iter().filter(|report| message(report).starts_with("not started")).count();
    assert!(left_out > 0 && left_out < 20, "{left_out}");
    hung.set(Behaviour::Page);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut seen = BTreeSet::new();
    while seen.len() < 20 {
        assert!(Instant::now() < deadline, "{seen:?}");
        let reports = round(&scraper, &jobs).await;
        seen.extend(reports.into_iter().filter(|report| report.outcome.is_ok()).map(|report| report.target));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_target_is_left_out_for_ever_when_all_are_too_slow_for_one_round() {
    // About a tenth of a second for each page, one at a time: less than half of the targets fit into a round.
    let config = ScrapeConfig { timeout: Duration::from_secs(1), concurrency: 1, ..config() };
    let server = FakeServer::start(Behaviour::Trickle(Duration::from_millis(2))).await;
    server.set_page(PAGE);
    let jobs: Vec<_> = (0..30).map(|index| job(&format!("http://{}/{index}", server.addr))).collect();
    let scraper = Scraper::new(&config).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut seen = BTreeSet::new();
    while seen.len() < 30 {
        assert!(Instant::now() < deadline, "{seen:?}");
        let reports = round(&scraper, &jobs).await;
        seen.extend(reports.into_iter().filter(|report| report.outcome.is_ok()).map(|report| report.target));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_at_any_point_is_a_timeout() {
    let config = ScrapeConfig { timeout: Duration::from_secs(1), ..config() };
    let (failed, words) = fault(&config, Behaviour::Hang).await;
    assert_eq!(failed, Some(FailureKind::Timeout));
    assert!(words.starts_with("no answer within 1s"), "{words}");
    let (failed, words) = fault(&config, Behaviour::HangAfterHeaders).await;
    assert_eq!(failed, Some(FailureKind::Timeout));
    assert!(words.starts_with("headers and 0 bytes"), "{words}");
    let (failed, words) = fault(&config, Behaviour::Trickle(Duration::from_secs(1))).await;
    assert_eq!(failed, Some(FailureKind::Timeout));
    assert!(words.starts_with("headers and "), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_a_connection_failure_until_it_is_back() {
    let server = FakeServer::with_page(PAGE).await;
    let scraper = Scraper::new(&patient()).unwrap();
    let jobs = [job(&server.url())];
    assert_eq!(kind(&round(&scraper, &jobs).await[0]), None);
    server.set(Behaviour::Refuse);
    let deadline = Instant::now() + Duration::from_secs(20);
    let failed = loop {
        let report = round(&scraper, &jobs).await.remove(0);
        if report.outcome.is_err() {
            break report;
        }
        assert!(Instant::now() < deadline);
    };
    assert_eq!(kind(&failed), Some(FailureKind::Connect));
    server.set(Behaviour::Page);
    while kind(&round(&scraper, &jobs).await[0]).is_some() {
        assert!(Instant::now() < deadline);
    }
    server.set(Behaviour::Refuse);
    let (failed, words) = fault(&patient(), Behaviour::Refuse).await;
    assert_eq!(failed, Some(FailureKind::Connect));
    assert!(words.starts_with("cannot connect to 127.0.0.1:"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_told_from_a_page_that_is_cut_short() {
    assert_eq!(fault(&patient(), Behaviour::CloseUnanswered).await.0, Some(FailureKind::Connect));
    assert_eq!(fault(&patient(), Behaviour::ResetInBody).await.0, Some(FailureKind::Connect));
    let (failed, words) = fault(&patient(), body("Content-Length: 900", PAGE.as_bytes())).await;
    assert_eq!(failed, Some(FailureKind::Parse));
    assert!(words.contains("cut short after 50 bytes"), "{words}");
    let cut = format!("{:x}\r\n{PAGE}", PAGE.len() + 10);
    let (failed, words) = fault(&patient(), body("Transfer-Encoding: chunked", cut.as_bytes())).await;
    assert_eq!(failed, Some(FailureKind::Parse), "{words}");
    let unended = format!("{:x}\r\n{PAGE}\r\n", PAGE.len());
    assert_eq!(fault(&patient(), body("Transfer-Encoding: chunked", unended.as_bytes())).await.0, Some(FailureKind::Parse));
    let (failed, words) = fault(&patient(), Behaviour::Raw(b"SSH-2.0-OpenSSH_9.9\r\n".to_vec())).await;
    assert_eq!(failed, Some(FailureKind::Parse), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_announced_end_that_stops_inside_a_line_is_cut() {
    // `running 16` cut to `running 1` would still read as a number.
    let answer = |body: &str| Behaviour::Raw(format!("HTTP/1.0 200 OK\r\ncontent-type: text/plain\r\n\r\n{body}").into_bytes());
    let (failed, words) = fault(&patient(), answer("running 1")).await;
    assert_eq!(failed, Some(FailureKind::Parse), "{words}");
    assert!(words.contains("ends inside a line"), "{words}");
    let server = FakeServer::start(answer("running 16\n")).await;
    assert_eq!(kind(&beside_healthy_ones(&patient(), &server).await), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_no_page_are_refused_with_a_hint() {
    let (failed, words) = fault(&patient(), Behaviour::Status(500)).await;
    assert_eq!((failed, words.as_str()), (Some(FailureKind::Status), "status 500 (Internal Server Error); expected 200"));
    let html = b"<!doctype html><html><body>Log in</body></html>";
    let (failed, words) = fault(&patient(), body("Content-Type: text/html", html)).await;
    assert_eq!(failed, Some(FailureKind::Parse));
    assert!(words.contains("HTML"), "{words}");
    let (failed, words) = fault(&patient(), body("Content-Type: application/json", b"[]")).await;
    assert_eq!(failed, Some(FailureKind::Parse));
    assert!(words.contains("/prometheus/metrics"), "{words}");
    assert_eq!(fault(&patient(), body("", b"")).await.0, Some(FailureKind::Empty));
    assert_eq!(fault(&patient(), body("", b"# TYPE running gauge\n")).await.0, Some(FailureKind::Empty));
    assert_eq!(fault(&patient(), body("", b"go_threads 3\n")).await.0, Some(FailureKind::Empty));
    let (failed, words) = fault(&patient(), body("Content-Encoding: br", PAGE.as_bytes())).await;
    assert_eq!(failed, Some(FailureKind::Parse));
    assert!(words.contains("`br`"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_200_mb_is_given_up_at_the_limit() {
    for announced in [true, false] {
        let server = FakeServer::start(Behaviour::Huge { bytes: 200 << 20, announced }).await;
        let report = beside_healthy_ones(&patient(), &server).await;
        assert_eq!(kind(&report), Some(FailureKind::TooLarge), "{report:?}");
        assert!(message(&report).contains("1048576 bytes"), "{report:?}");
        // What two rounds read, and what the sockets' buffers took besides.
        assert!(server.sent() < 50 << 20, "{}", server.sent());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gzip_bomb_is_given_up_at_the_limit() {
    let bomb = gzip(&vec![b'\n'; 200 << 20]);
    for headers in ["Content-Encoding: gzip", ""] {
        let (failed, words) = fault(&patient(), body(headers, &bomb)).await;
        assert_eq!(failed, Some(FailureKind::TooLarge));
        assert!(words.contains("after inflating"), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gzip_is_read_with_and_without_its_header_and_refused_when_cut() {
    let packed = gzip(PAGE.as_bytes());
    assert_eq!(fault(&patient(), body("Content-Encoding: gzip", &packed)).await.0, None);
    assert_eq!(fault(&patient(), body("Content-Type: text/plain", &packed)).await.0, None);
    let (failed, words) = fault(&patient(), body("Content-Encoding: gzip", &packed[..packed.len() - 9])).await;
    assert_eq!(failed, Some(FailureKind::Parse));
    assert!(words.contains("gzip"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_and_values_that_are_no_numbers_cost_their_lines_only() {
    let page = b"running{model=\"m\"} NaN\nrunning{model=\"n\"} 1\nrunning{model=\"o\xff\"} 2\n\xff\xfe 3\nrunning{model=\"p\"} 0x\n";
    let server = FakeServer::start(body("", page)).await;
    let report = beside_healthy_ones(&patient(), &server).await;
    let scraped = read(&report);
    assert_eq!(scraped.reading.model_names().collect::<Vec<_>>(), ["n", "o\u{fffd}"]);
    assert!(scraped.problems >= 3, "{scraped:?}");
    assert!(scraped.first_problem.as_deref().is_some_and(|words| words.starts_with("line ")), "{scraped:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_redirect_within_the_server_is_followed_and_no_other() {
    assert_eq!(fault(&patient(), Behaviour::Redirect("/page".to_owned())).await.0, None);
    let (failed, words) = fault(&patient(), Behaviour::Redirect("/again?token=hidden".to_owned())).await;
    assert_eq!(failed, Some(FailureKind::Status));
    assert!(words.contains("twice") && !words.contains("hidden"), "{words}");
    let elsewhere = FakeServer::with_page(PAGE).await;
    for location in [format!("http://user:hidden@{}/page?hidden", elsewhere.addr), "https://other.example/hidden".to_owned()] {
        let (failed, words) = fault(&patient(), Behaviour::Redirect(location)).await;
        assert_eq!(failed, Some(FailureKind::Status));
        assert!(words.contains(&elsewhere.addr.to_string()) || words.contains("https://other.example:443"), "{words}");
        assert!(!words.contains("hidden"), "{words}");
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_that_was_reset_is_tried_once_more() {
    let server = FakeServer::start(Behaviour::ResetSecondRequest).await;
    server.set_page(PAGE);
    let report = beside_healthy_ones(&patient(), &server).await;
    assert_eq!(kind(&report), None, "{report:?}");
    assert_eq!((server.requests(), server.connections()), (3, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_larger_than_the_small_buffer_is_read_in_every_round() {
    let scraper = Scraper::new(&patient()).unwrap();
    for size in [31_000, 40_000, 100_000] {
        let head = format!("content-type: text/plain\r\nx-padding: {}\r\n", "p".repeat(size));
        let server = FakeServer::start(body(&head, PAGE.as_bytes())).await;
        for _ in 0..4 {
            let reports = round(&scraper, &[job(&server.url())]).await;
            assert_eq!(kind(&reports[0]), None, "{size}: {}", message(&reports[0]));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_address_is_told_from_a_server_that_is_down() {
    // Longer than a label may be, so that no name server needs to be asked.
    let url = format!("http://user:hidden@{}.invalid:8000/metrics", "x".repeat(64));
    let healthy = FakeServer::with_page(PAGE).await;
    let reports = round(&Scraper::new(&patient()).unwrap(), &[job(&url), job(&healthy.url())]).await;
    assert_eq!((kind(&reports[0]), kind(&reports[1])), (Some(FailureKind::Resolve), None), "{reports:?}");
    assert!(!message(&reports[0]).contains("hidden"), "{reports:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_pages_share_a_small_budget_and_all_are_read() {
    // Sixteen pages of 800 kB each, with memory for two.
    let config = ScrapeConfig { bytes_in_flight: 2 << 20, concurrency: 16, ..patient() };
    let mut page = PAGE.to_owned();
    while page.len() < 800 << 10 {
        page.push_str("unused{label=\"some text that makes the page long\"} 1\n");
    }
    let server = FakeServer::with_page(&page).await;
    let jobs: Vec<_> = (0..16).map(|index| job(&format!("http://{}/{index}", server.addr))).collect();
    let scraper = Scraper::new(&config).unwrap();
    for report in round(&scraper, &jobs).await {
        assert_eq!(kind(&report), None, "{report:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_panics_costs_its_target_only() {
    static BROKEN: Engine = Engine {
        name: "broken",
        families: &[&["running"]],
        counts_replicas: false,
        gauges: &[],
        recognise: |_| true,
        read: |_| panic!("on purpose"),
    };
    let server = FakeServer::with_page(PAGE).await;
    let broken = Job { engine: Some(Dialect::Known(&BROKEN)), target: TargetId::from("broken"), ..job(&server.url()) };
    let reports = round(&Scraper::new(&patient()).unwrap(), &[broken, job(&server.url())]).await;
    assert_eq!((kind(&reports[0]), kind(&reports[1])), (Some(FailureKind::Parse), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_behind_an_https_url_is_a_connection_failure() {
    let server = FakeServer::with_page(PAGE).await;
    let reports = round(&Scraper::new(&patient()).unwrap(), &[job(&server.url().replace("http", "https")), job(&server.url())]).await;
    assert_eq!((kind(&reports[0]), kind(&reports[1])), (Some(FailureKind::Connect), None), "{reports:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_used_only_if_it_is_configured() {
    let proxy = FakeServer::with_page(PAGE).await;
    let config = ScrapeConfig { proxy: Some(format!("http://{}", proxy.addr)), ..patient() };
    let reports = round(&Scraper::new(&config).unwrap(), &[job("http://server.invalid:8000/metrics")]).await;
    assert_eq!(kind(&reports[0]), None, "{reports:?}");
    assert!(proxy.last_request().starts_with("GET http://server.invalid:8000/metrics "), "{}", proxy.last_request());
    let refused = ScrapeConfig { proxy: Some("http://user:hidden@[".to_owned()), ..patient() };
    let words = Scraper::new(&refused).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(words.contains("scrape.proxy") && !words.contains("hidden"), "{words}");
}
