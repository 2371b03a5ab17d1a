//! Does our port keep out whom it should, and nobody else? Certificates and passwords with real handshakes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use inference_planner_exporter::config::{self, SourceText, WebConfig};
use inference_planner_exporter::server::{Access, Server, ServerHandle, Settings};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use crate::export::fixture;
use crate::server::{DEADLINE, ask_with, settings, state};
use crate::service::{Exporter, Site, run, text, until};
#[cfg(feature = "real-programs")]
use crate::shipped;

fn tls(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls").join(name)
}

fn certificates(name: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(tls(name)).unwrap().map(Result::unwrap).collect()
}

/// A client that trusts our authority, with the certificate of that name, speaking these versions.
fn client_of(certificate: Option<&str>, versions: &[&'static SupportedProtocolVersion]) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates("authority.pem"));
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap().with_root_certificates(roots);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let key = PrivateKeyDer::from_pem_file(tls(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(certificates(&format!("{name}.pem")), key).unwrap()
        }
    };
    Arc::new(config)
}

fn client(certificate: Option<&str>) -> Arc<ClientConfig> {
    client_of(certificate, rustls::ALL_VERSIONS)
}

/// Status and head of the answer, or why there is none.
fn ask(addr: SocketAddr, client: &Arc<ClientConfig>, path: &str, headers: &str) -> Result<(u16, String), String> {
    let stream = TcpStream::connect(addr).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(client), name).unwrap(), stream);
    let mut answer = String::new();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: exporter\r\n{headers}Connection: close\r\n\r\n").map_err(|error| error.to_string())?;
    stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
    let (head, _) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_ascii_lowercase()))
}

fn status(addr: SocketAddr, client: &Arc<ClientConfig>, path: &str, headers: &str) -> u16 {
    ask(addr, client, path, headers).unwrap_or_else(|error| panic!("{path}: {error}")).0
}

/// A configuration that names the web file, with one target that nobody serves.
fn configured(site: &Site, web: &str) -> PathBuf {
    site.write("web.yml", web);
    site.write(
        "config.yaml",
        "server: { listen: \"127.0.0.1:0\", web_config_file: web.yml }\nscrape: { interval: 100ms, timeout: 100ms }\nmodels:\n  - name: m\n    \
         planner: { preset: dynamo }\n    pools:\n      \
         - { name: m, role: aggregated, max_replicas: 4, replicas_from: targets, targets: { static: ['http://127.0.0.1:9/metrics'] } }\n",
    )
}

/// `Authorization` of user `prometheus` with this password.
fn basic(credentials: &str) -> String {
    use base64::Engine as _;
    format!("Authorization: Basic {}\r\n", base64::engine::general_purpose::STANDARD.encode(credentials))
}

fn hash(password: &str) -> String {
    bcrypt::hash(password, 4).unwrap()
}

#[test]
fn certificates_and_passwords_are_asked_for_everywhere_but_at_the_health_pages() {
    let site = Site::new();
    let web = format!(
        "tls_server_config:\n  cert_file: {}\n  key_file: {}\n  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: {}\n\
         http_server_config: {{ headers: {{ Strict-Transport-Security: max-age=60 }} }}\nbasic_auth_users: {{ prometheus: {} }}\n",
        text(&tls("server.pem")),
        text(&tls("server.key")),
        text(&tls("authority.pem")),
        hash("sesame")
    );
    let exporter = Exporter::start(&configured(&site, &web));
    let addr = exporter.addr;
    let (nobody, known) = (client(None), client(Some("client")));
    let right = basic("prometheus:sesame");
    let ready = || (status(addr, &nobody, "/-/ready", "") == 200).then_some(());
    until("the first round", ready);
    assert_eq!(status(addr, &nobody, "/-/healthy", ""), 200);
    for path in ["/metrics", "/metrics/pool/m", "/", "/api/v1/plans", "/api/v1/decisions", "/-/reload", "/-/healthy/", "/no-such"] {
        assert_eq!(status(addr, &nobody, path, &right), 403, "{path}: without a certificate");
        assert_eq!(status(addr, &known, path, ""), 401, "{path}: without a password");
    }
    for wrong in ["prometheus:sesam", "prometheus:", "other:sesame", ":", "prometheus"] {
        let (status, head) = ask(addr, &known, "/metrics", &basic(wrong)).unwrap();
        assert_eq!(status, 401, "{wrong}");
        assert!(head.contains("www-authenticate: basic") && head.contains("strict-transport-security: max-age=60"), "{head}");
    }
    for _ in 0..3 {
        assert_eq!(status(addr, &known, "/metrics", &right), 200);
    }
    assert_eq!(status(addr, &known, "/no-such", &right), 404);
    for stranger in ["own", "server"] {
        assert!(ask(addr, &client(Some(stranger)), "/-/healthy", "").is_err(), "{stranger}");
    }
    assert!(plain(addr).is_none(), "clear text is not answered");
    let log = exporter.process.log();
    assert!(!log.contains("$2") && !log.contains("sesame"), "{log}");
}

/// What a request in clear text gets.
fn plain(addr: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answer = Vec::new();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: exporter\r\nConnection: close\r\n\r\n").ok()?;
    stream.read_to_end(&mut answer).ok()?;
    String::from_utf8(answer).ok().filter(|answer| answer.starts_with("HTTP/"))
}

#[test]
fn a_certificate_is_followed_and_a_pair_that_does_not_fit_is_not_taken() {
    let site = Site::new();
    let put = |from: &str, to: &str| site.write(to, &std::fs::read_to_string(tls(from)).unwrap());
    // A client's certificate: nobody takes it from a server.
    put("client.pem", "tls.crt");
    put("client.key", "tls.key");
    let exporter = Exporter::start(&configured(&site, "tls_server_config: { cert_file: tls.crt, key_file: tls.key }\n"));
    let client = client(None);
    assert!(ask(exporter.addr, &client, "/-/healthy", "").is_err());
    put("server.pem", "tls.crt");
    until("half a pair is refused", || exporter.process.log().contains("do not belong together").then_some(()));
    assert!(exporter.process.log().contains("web.yml:1:"), "{}", exporter.process.log());
    assert!(ask(exporter.addr, &client, "/-/healthy", "").is_err(), "the old pair stays");
    put("server.key", "tls.key");
    until("the new pair serves", || ask(exporter.addr, &client, "/-/healthy", "").ok());
    // The same file also takes passwords in, and lets TLS go.
    site.write("web.yml", &format!("basic_auth_users: {{ a: {} }}\n", hash("b")));
    until("clear text is answered", || plain(exporter.addr).filter(|answer| answer.starts_with("HTTP/1.1 401")));
    let (status, ..) = exporter.ask_with("GET /metrics", &basic("a:b"));
    assert_eq!(status, 200);
}

/// The problems of a web file, with the files of the folder of certificates beside it.
fn problems(web: &str) -> Vec<String> {
    match read(web) {
        Ok(_) => Vec::new(),
        Err(problems) => problems,
    }
}

fn read(web: &str) -> Result<WebConfig, Vec<String>> {
    let draft = config::read_web(&SourceText { path: tls("web.yml"), text: web.to_owned() });
    let read = |file: &PathBuf| Some((file.clone(), Ok(std::fs::read_to_string(file).ok()?)));
    let texts: BTreeMap<_, _> = draft.files().filter_map(read).collect();
    let shown = |problem: config::Problem| problem.to_string().replace(&format!("{}/", text(&tls(""))).replace("//", "/"), "");
    draft.finish(&texts).map_err(|problems| problems.into_iter().map(shown).collect())
}

const PAIR: &str = "cert_file: server.pem, key_file: server.key";

#[test]
fn mistakes_are_told_with_line_and_key() {
    let tls = |more: &str| format!("tls_server_config: {{ {PAIR}{more} }}\n");
    for (web, expected) in [
        ("tls_server_config: [\n".to_owned(), "web.yml:"),
        ("- a\n".to_owned(), "web.yml:1:1: expected keys such as tls_server_config at the top"),
        ("# \nrate_limit: {}\n".to_owned(), "web.yml:2:1: rate_limit: no such key"),
        ("basic_auth_user: {}\n".to_owned(), "did you mean basic_auth_users?"),
        ("basic_auth_users:\n  a: sesame\n".to_owned(), "web.yml:2:3: basic_auth_users.a: expected a hash by bcrypt"),
        (format!("basic_auth_users: {{ a: {} }}\n", hash("x").replace("$04$", "$31$")), "of a cost up to 16"),
        (format!("basic_auth_users: {{ 'a:b': {} }}\n", hash("x")), "expected a name without a colon"),
        (
            "http_server_config:\n  headers:\n    Location: x\n".to_owned(),
            "web.yml:3:5: http_server_config.headers.Location: expected one line",
        ),
        ("tls_server_config: { key_file: server.key }\n".to_owned(), "tls_server_config: expected cert_file or cert"),
        ("tls_server_config: { cert_file: server.pem }\n".to_owned(), "tls_server_config: expected key_file or key"),
        (
            "tls_server_config: { cert_file: none.pem, key_file: server.key }\n".to_owned(),
            "tls_server_config.cert_file: none.pem does not exist",
        ),
        ("tls_server_config: { cert_file: make, key_file: server.key }\n".to_owned(), "expected a certificate as PEM in make, got none"),
        ("tls_server_config: { cert_file: server.pem, key_file: client.key }\n".to_owned(), "do not belong together"),
        ("tls_server_config: { cert_file: server.pem, key_file: client.pem }\n".to_owned(), "expected a private key as PEM"),
        (tls(", cert: x"), "expected cert_file or cert, got both"),
        (tls(", client_auth_type: RequireAnyClientCert"), "expected NoClientCert, VerifyClientCertIfGiven or RequireAndVerifyClientCert"),
        (tls(", client_auth_type: RequireAndVerifyClientCert"), "expected client_ca_file or client_ca beside it"),
        (tls(", client_ca_file: authority.pem"), "expected one that verifies certificates"),
        (tls(", client_auth_type: VerifyClientCertIfGiven, client_ca_file: server.key"), "expected certificates of authorities as PEM"),
        (tls(", client_allowed_sans: ['a b']"), "client_allowed_sans[0]: expected a DNS name or an IP address"),
        (tls(", min_version: TLS10"), "expected TLS12 or TLS13"),
        (tls(", min_version: TLS13, max_version: TLS12"), "max_version: expected one that is not older than min_version"),
        (tls(", cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]"), "cipher_suites[0]: expected"),
        (tls(", curve_preferences: [CurveP521]"), "curve_preferences[0]: expected"),
    ] {
        let told = problems(&web);
        assert!(told.iter().any(|problem| problem.contains(expected)), "{web}: expected {expected:?} in {told:#?}");
        assert!(!told.concat().contains("sesame"), "{told:#?}");
    }
    for right in
        [String::new(), "# nothing\n".to_owned(), tls(""), tls(", client_auth_type: NoClientCert, prefer_server_cipher_suites: false")]
    {
        assert_eq!(problems(&right), [""; 0], "{right}");
    }
}

#[test]
fn the_program_refuses_to_start_with_a_web_file_that_is_wrong() {
    let site = Site::new();
    let config = configured(&site, "\nbasic_auth_users:\n  a: sesame\n");
    for command in [["run", "--config", text(&config)], ["check", "--config", text(&config)]] {
        let (code, _, said) = run(&command);
        assert_eq!(code, Some(64), "{said}");
        assert!(said.contains("web.yml:3:3: basic_auth_users.a:") && !said.contains("sesame"), "{said}");
    }
    std::fs::remove_file(config.with_file_name("web.yml")).unwrap();
    let (code, _, said) = run(&["check", "--config", text(&config)]);
    assert!(code == Some(64) && said.contains("web.yml: cannot be read"), "{said}");
    // Who only plans needs no certificates.
    let flags = ["run", "--metrics-url", "http://127.0.0.1:9/metrics", "--model", "m", "--listen", "127.0.0.1:0", "--web.config.file"];
    let empty = site.write("empty.yml", "");
    let exporter = Exporter::start_with(&[&flags[..], &[text(&empty)]].concat(), &[]);
    assert_eq!(exporter.status("/-/healthy"), 200);
}

/// A server in this process with these settings.
async fn serving(web: &str, settings: Settings) -> ServerHandle {
    let web = read(web).unwrap();
    let state = state(fixture::snapshot(), fixture::AT).0;
    state.access.store(Arc::new(Access::new(web.tls, web.needs_certificate, web.users, &web.headers)));
    Server::start(settings, state).await.unwrap()
}

/// What a client gets, off the threads of the runtime.
async fn asked(addr: SocketAddr, client: Arc<ClientConfig>) -> Result<u16, String> {
    tokio::task::spawn_blocking(move || ask(addr, &client, "/metrics", "").map(|(status, _)| status)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_handshakes_hold_up_nobody_and_end() {
    let impatient = Settings { header_timeout: Duration::from_millis(500), ..settings() };
    let server = serving(&format!("tls_server_config: {{ {PAIR} }}\n"), impatient).await;
    let mut slow: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(server.addr).unwrap()).collect();
    for stream in &mut slow {
        // The beginning of a hello.
        stream.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    }
    assert_eq!(asked(server.addr, client(None)).await, Ok(200));
    let ended = tokio::task::spawn_blocking(move || {
        slow.into_iter().all(|mut stream| {
            stream.set_read_timeout(Some(DEADLINE)).unwrap();
            stream.read_to_end(&mut Vec::new()).map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
        })
    });
    assert!(ended.await.unwrap(), "the server ends handshakes that take too long");
    server.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_suites_and_names_bind() {
    use rustls::version::{TLS12, TLS13};
    let verified = "client_auth_type: VerifyClientCertIfGiven, client_ca_file: authority.pem";
    for (more, client, answered) in [
        ("min_version: TLS13".to_owned(), client_of(None, &[&TLS13]), true),
        ("min_version: TLS13".to_owned(), client_of(None, &[&TLS12]), false),
        ("max_version: TLS12".to_owned(), client_of(None, &[&TLS12]), true),
        ("max_version: TLS12".to_owned(), client_of(None, &[&TLS13]), false),
        ("cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]".to_owned(), client_of(None, &[&TLS12]), true),
        // The key of the certificate is no RSA key.
        ("cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]".to_owned(), client_of(None, &[&TLS12]), false),
        ("curve_preferences: [CurveP384, X25519]".to_owned(), client(None), true),
        (verified.to_owned(), client(None), true),
        (verified.to_owned(), client(Some("client")), true),
        (verified.to_owned(), client(Some("own")), false),
        (format!("{verified}, client_allowed_sans: [localhost]"), client(Some("client")), true),
        (format!("{verified}, client_allowed_sans: [prometheus.monitoring, 127.0.0.1]"), client(Some("client")), true),
        (format!("{verified}, client_allowed_sans: [prometheus.monitoring]"), client(Some("client")), false),
    ] {
        let server = serving(&format!("tls_server_config: {{ {PAIR}, {more} }}\n"), settings()).await;
        let answer = asked(server.addr, client).await;
        assert_eq!(answer.is_ok(), answered, "{more}: {answer:?}");
        server.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn headers_go_with_every_answer_and_passwords_need_no_tls() {
    let web =
        format!("basic_auth_users: {{ a: {} }}\nhttp_server_config: {{ http2: true, headers: {{ X-Frame-Options: deny }} }}\n", hash("b"));
    let server = serving(&web, settings()).await;
    for (path, headers, status) in [("/metrics", String::new(), 401), ("/metrics", basic("a:b"), 200), ("/-/healthy", String::new(), 200)] {
        let answer = ask_with(server.addr, "GET", path, &headers).await.unwrap();
        assert_eq!((answer.status, answer.header("x-frame-options")), (status, Some("deny")), "{path}");
    }
    server.shutdown().await.unwrap();
}

/// The examples of the README and of the reference, the latter with a hash in place of the dots.
#[cfg(feature = "real-programs")]
#[test]
fn prometheus_own_tool_takes_the_examples() {
    let example = |file: &str, beginning: &str| {
        let text = shipped::text(file);
        let rest = text.split_once(beginning).unwrap().1.split_once("```").unwrap().0;
        rest.replace("$2y$10$...", &hash("x"))
    };
    for web in [example("README.md", "# web.yml\n"), format!("tls_server_config:{}", example("src/config/README.md", "tls_server_config:"))]
    {
        is_taken(&web);
    }
}

#[cfg(feature = "real-programs")]
fn is_taken(web: &str) {
    let site = Site::new();
    for (from, to) in [("server.pem", "tls.crt"), ("server.key", "tls.key"), ("authority.pem", "ca.crt")] {
        site.write(to, &std::fs::read_to_string(tls(from)).unwrap());
    }
    let config = configured(&site, web);
    let (code, _, said) = run(&["check", "--config", text(&config)]);
    assert_eq!(code, Some(0), "{said}");
    let output = std::process::Command::new("promtool").args(["check", "web-config"]).arg(config.with_file_name("web.yml")).output();
    let output = output.unwrap_or_else(|error| panic!("promtool: {error}; tests/run installs it"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
