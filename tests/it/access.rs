//! Do credentials and certificates go with every request, follow their files, and stay secret?

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inference_planner_exporter::config::{AccessConfig, ScrapeConfig};
use inference_planner_exporter::engines::Dialect;
use inference_planner_exporter::planner::input::FailureKind;
use inference_planner_exporter::scrape::report::TargetReport;
use inference_planner_exporter::scrape::{Job, Scraper};
use inference_planner_exporter::units::TargetId;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::fake::{Behaviour, FakeServer};
use crate::scrape::{ENGINE, PAGE};
use crate::service::{Exporter, Router, Site, run, text, until};

fn scraper() -> Scraper {
    let config = ScrapeConfig {
        interval: Duration::from_millis(50),
        timeout: Duration::from_secs(20),
        concurrency: 8,
        body_limit: 1 << 20,
        bytes_in_flight: 4 << 20,
        proxy: None,
    };
    Scraper::new(&config).unwrap()
}

async fn scrape(scraper: &Scraper, url: &str, access: &AccessConfig) -> TargetReport {
    let job =
        Job { target: TargetId::from(url), url: url.to_owned(), engine: Some(Dialect::Known(&ENGINE)), access: Arc::new(access.clone()) };
    scraper.round(&[job], Instant::now(), false).await.remove(0)
}

fn refused(report: &TargetReport) -> (Option<FailureKind>, String) {
    let failure = report.outcome.as_ref().err();
    (failure.map(|failure| failure.kind), failure.map_or(String::new(), |failure| failure.message.clone()))
}

/// Scrapes until the request has this line, in lower case.
async fn sends(scraper: &Scraper, server: &FakeServer, access: &AccessConfig, line: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let report = scrape(scraper, &server.url(), access).await;
        if server.last_request().contains(&format!("\r\n{line}\r\n")) {
            assert!(report.outcome.is_ok(), "{report:?}");
            return;
        }
        assert!(Instant::now() < end, "{line}: {}", server.last_request());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_sent_and_follows_its_file() {
    let server = FakeServer::with_page(PAGE).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let access = AccessConfig { bearer_token_file: Some(file.clone()), ..AccessConfig::default() };
    let scraper = scraper();
    let (kind, message) = refused(&scrape(&scraper, &server.url(), &access).await);
    assert_eq!(kind, Some(FailureKind::Connect));
    assert!(message.starts_with("bearer_token_file: ") && message.contains("token cannot be read"), "{message}");
    assert_eq!(server.requests(), 0, "nothing is asked without the token");
    std::fs::write(&file, "first\n").unwrap();
    sends(&scraper, &server, &access, "authorization: Bearer first").await;
    std::fs::write(&file, "the-second").unwrap();
    sends(&scraper, &server, &access, "authorization: Bearer the-second").await;
    // While the file is away the last token serves.
    std::fs::remove_file(&file).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    sends(&scraper, &server, &access, "authorization: Bearer the-second").await;
    std::fs::write(&file, "third").unwrap();
    sends(&scraper, &server, &access, "authorization: Bearer third").await;
    // Nobody else's requests carry it.
    assert!(scrape(&scraper, &server.url(), &AccessConfig::default()).await.outcome.is_ok());
    assert!(!server.last_request().contains("authorization"), "{}", server.last_request());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_a_password_and_further_headers_are_sent() {
    let server = FakeServer::with_page(PAGE).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "open sesame\n").unwrap();
    let headers = [("X-Scope-OrgID".to_owned(), "llm".to_owned())].into();
    let access = AccessConfig { basic_auth: Some(("Aladdin".to_owned(), file)), headers, ..AccessConfig::default() };
    let scraper = scraper();
    sends(&scraper, &server, &access, "authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==").await;
    sends(&scraper, &server, &access, "x-scope-orgid: llm").await;
    sends(&scraper, &server, &access, "accept: text/plain;version=0.0.4").await;
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "hunter2\u{7}hunter2").unwrap();
    let access = AccessConfig { bearer_token_file: Some(broken), ..AccessConfig::default() };
    let (_, message) = refused(&scrape(&scraper, &server.url(), &access).await);
    assert!(message.contains("bearer_token_file") && !message.contains("hunter2"), "{message}");
    assert!(!format!("{access:?}").contains("hunter2"));
}

fn tls(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

/// A server that speaks TLS and answers every request with the page; with `clients` it wants a certificate of that authority.
fn secure_server(clients: bool) -> SocketAddr {
    secure_server_as("server", clients)
}

/// The same, with the certificate and key of that name.
fn secure_server_as(name: &str, clients: bool) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificates = || CertificateDer::pem_file_iter(tls("authority.pem")).unwrap().map(Result::unwrap);
    let mut authorities = rustls::RootCertStore::empty();
    authorities.add_parsable_certificates(certificates());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().unwrap();
    let builder = if clients {
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(tls(&format!("{name}.pem"))).unwrap().map(Result::unwrap).collect();
    let config = Arc::new(builder.with_single_cert(chain, PrivateKeyDer::from_pem_file(tls(&format!("{name}.key"))).unwrap()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || serve(config, stream));
        }
    });
    addr
}

/// One request; errors mean that the other side does not want to talk.
fn serve(config: Arc<rustls::ServerConfig>, stream: TcpStream) -> Option<()> {
    let mut stream = rustls::StreamOwned::new(rustls::ServerConnection::new(config).ok()?, stream);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{PAGE}", PAGE.len())
        .ok()?;
    stream.conn.send_close_notify();
    stream.flush().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_checked_by_the_written_authority_or_by_nobody_on_request() {
    let url = format!("https://{}/metrics", secure_server(false));
    let scraper = scraper();
    let with = |authority: &str| AccessConfig { ca_file: Some(tls(authority)), ..AccessConfig::default() };
    let read = scrape(&scraper, &url, &with("authority.pem")).await;
    assert!(read.outcome.is_ok(), "{read:?}");
    for access in [with("stranger.pem"), AccessConfig { headers: [("a".to_owned(), "b".to_owned())].into(), ..AccessConfig::default() }] {
        let (kind, message) = refused(&scrape(&scraper, &url, &access).await);
        assert_eq!(kind, Some(FailureKind::Connect), "{message}");
    }
    let careless = AccessConfig { insecure_skip_verify: true, ..AccessConfig::default() };
    assert!(scrape(&scraper, &url, &careless).await.outcome.is_ok());
    let (kind, message) = refused(&scrape(&scraper, &url, &with("server.key")).await);
    assert_eq!(kind, Some(FailureKind::Connect));
    assert!(message.starts_with("tls.ca_file: expected certificates") && !message.contains("PRIVATE"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_issued_itself_is_told_with_what_to_do() {
    let url = format!("https://{}/metrics", secure_server_as("own", false));
    let scraper = scraper();
    let trusting = AccessConfig { ca_file: Some(tls("own.pem")), ..AccessConfig::default() };
    let (kind, message) = refused(&scrape(&scraper, &url, &trusting).await);
    assert_eq!(kind, Some(FailureKind::Connect));
    assert!(message.contains("signed itself") && message.contains("tls.ca_file") && message.contains("insecure_skip_verify"), "{message}");
    let careless = AccessConfig { insecure_skip_verify: true, ..AccessConfig::default() };
    assert!(scrape(&scraper, &url, &careless).await.outcome.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_shown_and_its_file_followed() {
    let url = format!("https://{}/metrics", secure_server(true));
    let scraper = scraper();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("client.pem"), folder.path().join("client.key"));
    let without = AccessConfig { ca_file: Some(tls("authority.pem")), ..AccessConfig::default() };
    assert_eq!(refused(&scrape(&scraper, &url, &without).await).0, Some(FailureKind::Connect));
    let access = AccessConfig { client_certificate: Some((certificate.clone(), key.clone())), ..without };
    // The server's own is no client's; then the right pair is put in its place.
    std::fs::copy(tls("server.pem"), &certificate).unwrap();
    std::fs::copy(tls("server.key"), &key).unwrap();
    assert!(scrape(&scraper, &url, &access).await.outcome.is_err());
    std::fs::copy(tls("client.pem"), &certificate).unwrap();
    std::fs::copy(tls("client.key"), &key).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let report = scrape(&scraper, &url, &access).await;
        if report.outcome.is_ok() {
            break;
        }
        assert!(Instant::now() < end, "{report:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn a_mistake_beside_a_secret_does_not_show_it() {
    let site = Site::new();
    let targets = |access: &str| {
        format!(
            "models:\n  - name: m\n    planner: {{ profile: profile.json }}\n    pools: [{{ name: p, role: prefill, max_replicas: 2 }}, {{ name: d, role: decode, max_replicas: 2 }}]\n    \
             traffic:\n      targets:\n        static: [\"http://h:1\"]\n        {access}\n"
        )
    };
    let mistakes = [
        targets("headers: { X-Key: [hunter2] }"),
        targets("headers: { X-Key: { a: hunter2 } }"),
        targets("headers: { \"X Key\": hunter2 }"),
        targets("headers: { X-Key: \"hunter2\\nX: y\" }"),
        targets("headers: { X-Key: hunter2, X-Key: hunter2 }"),
        targets("headers: { X-Key: hunter2"),
        targets("headers: { X-Key: \"hunter2 }"),
        targets("basic_auth: { username: u, password: hunter2 }"),
        targets("bearer_token: hunter2"),
        targets("http_sd: \"http://u:hunter2@h:1/\""),
        targets("").replace("http://h:1", "http://u:hunter2@h:port"),
        targets("").replace("http://h:1", "http://h:1/metrics?key=hunter2\\u0000"),
        format!("scrape: {{ proxy: \"http://u:hunter2@:1\" }}\n{}", targets("")),
        format!("scrape: {{ proxy: \"ftp://u:hunter2@h:1\" }}\n{}", targets("")),
    ];
    for text in mistakes {
        for name in ["c.yaml", "c.toml", "c.json"] {
            let file = site.write(name, &text);
            let (code, shown, said) = run(&["check", "--config", file.to_str().unwrap()]);
            assert_eq!(code, Some(64), "{text}");
            assert!(!shown.contains("hunter2") && !said.contains("hunter2"), "{text}\n{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_show_nowhere() {
    let router = Router::start("m", 25.0).await;
    let closed = FakeServer::start(Behaviour::Status(401)).await;
    let lists = FakeServer::start(Behaviour::Status(403)).await;
    let site = Site::new();
    site.write("token", "hunter2-token\n");
    site.write("password", "hunter2-password\n");
    let config = site.write(
        "config.yaml",
        &format!(
            "server: {{ listen: \"127.0.0.1:0\" }}\nscrape: {{ interval: 100ms, timeout: 100ms }}\nstate_file: state.json\nreport: {{ dir: reports }}\nmodels:\n  - name: m\n    \
             planner: {{ preset: infera, profile: profile.json, adjustment_interval: 1s, hold_for: 60s }}\n    \
             traffic: {{ targets: {{ static: [\"{}\", \"{}\"], bearer_token_file: token, headers: {{ X-Key: hunter2-header }}, \
             tls: {{ insecure_skip_verify: true }} }} }}\n    \
             pools:\n      - {{ name: m-prefill, role: prefill, max_replicas: 16 }}\n      \
             - {{ name: m-decode, role: decode, max_replicas: 16, replicas_from: metric, targets: {{ http_sd: \"http://{}/l?key=hunter2-query\", \
             basic_auth: {{ username: u, password_file: password }} }} }}\n",
            router.server.url(),
            closed.url(),
            lists.addr
        ),
    );
    tokio::task::block_in_place(|| {
        let exporter =
            Exporter::start_with(&["run", "--config", text(&config), "--record", text(&site.path("records"))], &[("RUST_LOG", "trace")]);
        until("the first decision", || exporter.recommended("m-decode"));
        until("the list was refused", || exporter.process.log().contains("status 403").then_some(()));
        assert!(router.server.last_request().contains("Bearer hunter2-token") && router.server.last_request().contains("hunter2-header"));
        for page in ["/metrics", "/", "/api/v1/plans", "/api/v1/decisions"] {
            let (status, _, body) = exporter.ask(&format!("GET {page}"));
            assert!(status == 200 && !body.contains("hunter2"), "{page}: {body}");
        }
        until("a recording", || site.path("records").read_dir().ok()?.next().map(drop));
        until("the state", || site.path("state.json").exists().then_some(()));
        let written = files_below(&site.path(""));
        for name in ["state.json", "records", "reports"] {
            assert!(written.iter().any(|path| path.starts_with(site.path(name))), "{name}: {written:?}");
        }
        let given = ["token", "password", "config.yaml"].map(|name| site.path(name));
        for path in written.iter().filter(|path| !given.contains(path)) {
            let bytes = std::fs::read(path).unwrap_or_default();
            let mut text = String::new();
            let text = match flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text) {
                Ok(_) => text,
                Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
            };
            assert!(!text.contains("hunter2"), "{}: {text}", path.display());
        }
        let log = exporter.process.log();
        assert!(log.contains("certificates are not checked"), "{log}");
        let line = log.lines().find(|line| line.contains("hunter2"));
        assert_eq!(line, None);
        let (code, shown, said) = run(&["check", "--config", text(&config), "--print-effective"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(shown.contains("bearer_token_file") && !shown.contains("hunter2") && !said.contains("hunter2"), "{shown}{said}");
        assert!(said.contains("models[0].traffic.targets.tls.insecure_skip_verify"), "{said}");
    });
}
