//! Does the process begin, speak and end as programs around it expect?

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Exporter, Model, Process, Router, Site, run, text, until};
use crate::fake::{Behaviour, FakeServer};

/// The promise is 2 s. More is allowed for a busy machine, but less than any timeout that the process could be waiting for.
const SOON: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread")]
async fn both_signals_end_it_soon_while_a_server_hangs_and_a_client_holds_its_connection() {
    let hung = FakeServer::start(Behaviour::Hang).await;
    let site = Site::new();
    let model = Model { interval: "60s", hold_for: "10m", ..Model::new("m", [hung.url()]) };
    let config = site.config("scrape: { interval: 60s, timeout: 60s }\n", &[model]);
    let exporters = ["TERM", "INT"].map(|signal| (signal, Exporter::start(&config)));
    for (signal, mut exporter) in exporters {
        until("the server is asked", || (hung.requests() > 0).then_some(()));
        let _idle = TcpStream::connect(exporter.addr).unwrap();
        let mut half = TcpStream::connect(exporter.addr).unwrap();
        half.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        let told = Instant::now();
        exporter.process.signal(signal);
        assert_eq!(exporter.process.ended(), Some(0), "{signal}: {}", exporter.process.log());
        assert!(told.elapsed() < SOON, "{signal}: {:?}", told.elapsed());
        assert_eq!(exporter.process.stdout(), "", "a service has no results");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_asks_the_servers_of_its_models_alone_and_one_without_models_is_ready() {
    let (ours, others) = (Router::pair("m0").await, Router::pair("m2").await);
    let site = Site::new();
    let config = site.config("", &[Model::of("m0", &ours), Model::of("m2", &others)]);
    let start = |shard: &str| Exporter::start_with(&["run", "--config", text(&config), "--shard", shard], &[]);
    let exporter = start("0/3");
    exporter.settle(&["m0"], 3.0);
    assert!(exporter.process.log().contains("0/3 plans \"m0\"; 1 of 2 are left to other shards"), "{}", exporter.process.log());
    assert!(!exporter.metrics().0.contains("m2-"));
    let empty = start("2/3");
    until("it is ready", || (empty.status("/-/ready") == 200).then_some(()));
    assert!(empty.process.log().contains("2/3 plans no model"), "{}", empty.process.log());
    assert_eq!(empty.metrics().sum("recommended_replicas", &[]), 0.0);
    let asked: usize = others.iter().map(|router| router.server.requests()).sum();
    assert_eq!(asked, 0);
    let (code, said, notes) = run(&["check", "--config", text(&config), "--shard", "1/3"]);
    assert!(code == Some(0) && said.starts_with("ok: models 1, pools 2") && notes.contains("1/3 plans \"m2\""), "{said}{notes}");
    let (code, _, said) = run(&["run", "--config", text(&config), "--shard", "3/3"]);
    assert!(code == Some(64) && said.contains("--shard: expected a shard from 0/3 to 2/3"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_bad_usage_from_bad_luck() {
    for args in [&["run", "--no-such-flag"][..], &["run"], &["no-such-command"], &["check"], &["run", "--config", "/no/such/file.yaml"]] {
        let (code, stdout, stderr) = run(args);
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{args:?}");
        assert!(!stderr.is_empty(), "{args:?}");
    }
    for args in [&["--help"][..], &["--version"], &["run", "--help"], &["plan", "--help"]] {
        let (code, stdout, stderr) = run(args);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{args:?}");
        assert!(!stdout.is_empty(), "{args:?}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = Site::new();
    let server = format!("server: {{ listen: \"{}\" }}\n", taken.local_addr().unwrap());
    let config = site.config(&server, &[Model::new("m", ["http://127.0.0.1:9/metrics".to_owned()])]);
    let (code, stdout, stderr) = run(&["run", "--config", text(&config)]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains(&taken.local_addr().unwrap().to_string()), "{stderr}");
    let config = site.config("", &[Model::new("m", ["http://127.0.0.1:9/metrics".to_owned()])]);
    let below_a_file = site.path("profile.json").join("recorded");
    let (code, _, stderr) = run(&["run", "--config", text(&config), "--record", text(&below_a_file)]);
    assert!(code == Some(1) && stderr.contains("profile.json/recorded"), "{code:?} {stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_prints_every_problem_and_its_own_effective_configuration_is_right() {
    let site = Site::new();
    let config = site.config("", &[Model::new("m", ["http://127.0.0.1:9/metrics".to_owned()])]);
    let (code, stdout, _) = run(&["check", text(&config)]);
    assert_eq!(code, Some(0));
    let hash = stdout.trim_end().rsplit(' ').next().unwrap().to_owned();
    let (code, effective, stderr) = run(&["check", "--config", text(&config), "--print-effective"]);
    assert_eq!(code, Some(0), "{stderr}");
    let again = site.write("effective.yaml", &effective);
    let (code, stdout, stderr) = run(&["check", text(&again)]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.trim_end().ends_with(&hash), "{stdout} is not {hash}");
    assert_eq!(run(&["check", text(&again), "--print-effective"]).1, effective);

    let good = std::fs::read_to_string(&config).unwrap();
    let bad = good.replace("mode: publish", "mode: pubish").replace("min_replicas: 1", "min_replicas: 99").replace("itl: 50ms", "itl: 50");
    let (code, stdout, stderr) = run(&["check", text(&site.write("bad.yaml", &bad))]);
    assert_eq!((code, stdout.as_str()), (Some(64), ""));
    for problem in ["models[0].mode", "models[0].slo.itl", "pools[0].max_replicas", "pools[1].max_replicas"] {
        let line = stderr.lines().find(|line| line.contains(problem));
        assert!(line.is_some_and(|line| line.contains("bad.yaml:")), "{problem} in\n{stderr}");
    }
}

/// A page whose samples have this model label, or none.
fn relabelled(page: String, model: Option<&str>) -> Vec<u8> {
    let label = model.map(|model| format!("model=\"{model}\","));
    let page = page.replace("model=\"m\",", label.as_deref().unwrap_or_default());
    page.replace(",model=\"m\"", &model.map(|model| format!(",model=\"{model}\"")).unwrap_or_default()).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_alone_plan_one_model_or_every_model_that_is_seen() {
    const QUICK: &[(&str, &str)] = &[("INFERENCE_PLANNER__SCRAPE__INTERVAL", "100ms"), ("INFERENCE_PLANNER__SCRAPE__TIMEOUT", "100ms")];
    let router = |model: Option<&'static str>| async move {
        let router = Router::start("m", 25.0).await;
        router.spoil(move |page| relabelled(page, model));
        router
    };
    let two = Router::start("m", 25.0).await;
    two.spoil(|page| [relabelled(page.clone(), Some("Org/Big_Model")), relabelled(page, Some("small"))].concat());
    let (unnamed, called_default) = (router(None).await, router(Some("default")).await);
    let site = Site::new();
    let profile = site.path("profile.json");
    let start = |router: &Router, more: &[&str]| {
        let url = router.server.url();
        let mut args = vec!["run", "--metrics-url", &url, "--profile-results", text(&profile), "--listen", "127.0.0.1:0"];
        args.extend(["--adjustment-interval", "1", "--ttft", "500", "--itl", "50ms"]);
        args.extend(more);
        Exporter::start_with(&args, QUICK)
    };
    let every = start(&two, &[]);
    let one = start(&two, &["--model", "Org/Big_Model", "--max-replicas", "2"]);
    let without = start(&unnamed, &[]);
    let default = start(&called_default, &["--model", "default"]);
    every.settle(&["big_model", "small"], 3.0);
    one.settle(&["big_model"], 2.0);
    without.settle(&["default"], 3.0);
    default.settle(&["default"], 3.0);
    let page = every.metrics();
    assert_eq!(page.value("planned_replicas", &[("model", "Org/Big_Model"), ("pool", "big_model-decode")]), Some(3.0));
    assert_eq!(page.value("replicas_max", &[("pool", "small-decode")]), Some(8.0));
    assert!(!one.metrics().0.contains("small"));
    assert_eq!(without.metrics().value("planned_replicas", &[("model", "default"), ("role", "decode")]), Some(3.0));
    assert!(every.process.log().contains("replica limits: *-prefill 1 to 8, *-decode 1 to 8"), "{}", every.process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_is_one_line_of_the_log_in_both_forms() {
    let routers = Router::pair("m").await;
    let site = Site::new();
    let config = site.config("", &[Model::of("m", &routers)]);
    let as_text = Exporter::start(&config);
    let as_json = Exporter::start_with(&["--log-format", "json", "run", "--config", text(&config)], &[]);
    as_text.settle(&["m"], 3.0);
    as_json.settle(&["m"], 3.0);
    let hash = run(&["check", text(&config)]).1.trim_end().rsplit(' ').next().unwrap().to_owned();
    let changes = |log: &str| log.lines().filter(|line| line.contains("recommendation") && line.contains("m-prefill")).count();
    for exporter in [&as_text, &as_json] {
        // Prefill goes from nothing to 3 in one step and stays there.
        assert_eq!(changes(&exporter.process.log()), 1, "{}", exporter.process.log());
        assert_eq!(exporter.process.stdout(), "");
    }
    let log = as_text.process.log();
    let line = log.lines().find(|line| line.contains(" INFO recommendation ") && line.contains("pool=m-prefill")).unwrap();
    for part in ["before=\"absent\"", "after=\"3\"", "reason=none", "decision=", &format!("config={hash}"), "version="] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert!(!log.contains('\u{1b}'), "no colours where no terminal is");
    for line in as_json.process.log().lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        if entry["fields"]["message"] == "recommendation" && entry["fields"]["pool"] == "m-prefill" {
            assert_eq!((&entry["fields"]["after"], &entry["fields"]["config"]), (&"3".into(), &hash.as_str().into()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_process_ends_in_order_from_its_first_moment_on() {
    let site = Site::new();
    let config = site.config("", &[Model::new("m", ["http://127.0.0.1:9/metrics".to_owned()])]);
    for _ in 0..3 {
        let mut exporter = Exporter::start(&config);
        exporter.process.signal("TERM");
        assert_eq!(exporter.process.ended(), Some(0), "{}", exporter.process.log());
    }
    let mut early = Process::spawn(&["run", "--config", text(&config)], &[]);
    early.kill();
    assert_eq!(early.ended(), None);
}
