//! Does `profile` measure what a server does, claim nothing else, and lose nothing? The binary against a fake server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use inference_planner_exporter::config::profile::parse;

use super::openai::{MODEL, Manners, OpenAi};

const DEADLINE: Duration = Duration::from_secs(20);
/// Small axes: a cache of 2000 tokens holds 10 streams of 200 and 5 of 400.
const AXES: [&str; 14] = [
    "--max-kv-tokens",
    "2000",
    "--isl",
    "100,400",
    "--context-length",
    "200,400",
    "--kv-usage",
    "0.2,0.6",
    "--decode-osl",
    "24",
    "--prefill-repeats",
    "2",
    "--decode-repeats",
    "1",
];

struct Bench {
    folder: tempfile::TempDir,
    server: OpenAi,
}

impl Bench {
    async fn new(manners: Manners) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), server: OpenAi::start(manners).await }
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("profile.json")
    }

    fn partial(&self) -> PathBuf {
        self.folder.path().join("profile.json.partial")
    }

    fn command(&self, model: &str, more: &[&str]) -> Command {
        let mut command = exporter();
        command.args(["profile", "--url", &self.server.url(), "--model", model]).args(AXES).args(more);
        command.arg("--output").arg(self.output());
        command
    }

    /// Runs to the end while the server goes on serving.
    async fn run(&self, more: &[&str]) -> Told {
        self.run_model(MODEL, more).await
    }

    async fn run_model(&self, model: &str, more: &[&str]) -> Told {
        let mut command = self.command(model, more);
        tokio::task::spawn_blocking(move || Told::of(&command.output().unwrap())).await.unwrap()
    }

    fn document(&self) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.output()).unwrap()).unwrap()
    }
}

fn exporter() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

#[derive(Debug)]
struct Told {
    code: Option<i32>,
    table: String,
    words: String,
}

impl Told {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), table: text(&output.stdout), words: text(&output.stderr) }
    }
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_is_what_the_server_does() {
    let bench = Bench::new(Manners::default()).await;
    let told = bench.run(&["--prefill-engine-num-gpu", "2"]).await;
    assert_eq!(told.code, Some(0), "{}", told.words);
    assert!(told.table.contains("time between tokens, ms") && told.table.contains("KV 60 %"), "{}", told.table);
    assert!(told.words.contains("prompt of 400 tokens, 2 of 2") && told.words.contains("left"), "{}", told.words);
    let document = bench.document();
    let text = std::fs::read_to_string(bench.output()).unwrap();
    let envelope = parse(Path::new("profile.json"), &text).unwrap();
    assert_eq!(envelope.prefill_gpus().get(), 2);
    // 2 ms and 50 us a token at least; a busy machine is slower.
    let ttft = numbers(&document["prefill"]["ttft_ms"]);
    assert!(ttft[0] >= 7.0 && ttft[1] >= 22.0 && ttft[0] < ttft[1], "{ttft:?}");
    let per_gpu = numbers(&document["prefill"]["thpt_per_gpu"]);
    assert!((per_gpu[1] - 400.0 / ttft[1] * 1000.0 / 2.0).abs() < 1.0, "{per_gpu:?}");
    // 2, 6, 1 and 3 streams; a step takes 4 ms and half a millisecond for each.
    let cells = document["provenance"]["cells"].as_array().unwrap();
    for (cell, streams) in cells.iter().zip([2.0, 6.0, 1.0, 3.0]) {
        assert_eq!(cell["streams"].as_f64(), Some(streams));
        assert_eq!(numbers(&cell["streams_reached"]), [streams]);
        let itl = numbers(&cell["itl_ms"])[0];
        assert!(itl >= 4.0 + 0.5 * streams, "{cell}");
        let rate = numbers(&cell["tokens_per_second"])[0];
        assert!((rate * itl / 1000.0 / streams - 1.0).abs() < 0.2, "tokens over time: {cell}");
        let context = numbers(&cell["context_reached"])[0];
        assert!((context / cell["context_length"].as_f64().unwrap() - 1.0).abs() < 0.05, "{cell}");
    }
    assert_eq!(bench.server.most_decoding(), 6);
    assert_eq!(document["provenance"]["engine_version"], "1.2.3");
    assert_eq!(document["provenance"]["model"], MODEL);
    assert!(!bench.partial().exists());
    let lengths: Vec<u64> = bench.server.bodies().iter().filter_map(|body| body["min_tokens"].as_u64()).collect();
    assert!(lengths.iter().any(|&tokens| tokens >= 24), "answers are kept from ending early");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_two_prompts_begin_alike_within_and_between_runs() {
    let bench = Bench::new(Manners { per_token: Duration::ZERO, ..Manners::default() }).await;
    for _ in 0..2 {
        assert_eq!(bench.run(&[]).await.code, Some(0));
    }
    // The words are looked for with the same few prompts in every run; none of them is timed.
    let mut seen = BTreeSet::new();
    for body in bench.server.bodies() {
        let words: Vec<&str> = body["prompt"].as_str().unwrap().split_whitespace().collect();
        if words.len() > 80 {
            assert!(seen.insert(words[..8].join(" ")), "{words:?}");
        }
    }
    // Of each run: three prompts of each length, and 2, 6, 1 and 3 streams at least.
    assert!(seen.len() >= 2 * (6 + 12), "{}", seen.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_beyond_what_the_server_runs_at_once_are_not_claimed() {
    let bench = Bench::new(Manners { places: 4, ..Manners::default() }).await;
    let told = bench.run(&[]).await;
    assert_eq!(told.code, Some(0), "{}", told.words);
    assert!(told.words.contains("not claimed: context 200, KV 60 %: the server runs at most 4 streams at once"), "{}", told.words);
    let document = bench.document();
    assert_eq!(
        document["decode"]["kv_usage"],
        serde_json::json!([0.2]),
        "3 streams were measured at context 400, and stay in the provenance"
    );
    assert_eq!(document["provenance"]["cells"].as_array().unwrap().len(), 3);
    parse(Path::new("profile.json"), &document.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_run_is_gone_on_with_and_repeats_nothing() {
    let bench = Bench::new(Manners { step: Duration::from_millis(20), ..Manners::default() }).await;
    let child = bench.command(MODEL, &[]).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let trials = |path: &Path| {
        let record: Value = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let count = |list: &str| {
            record[list].as_array().map_or(0, |points| points.iter().map(|point| point["trials"].as_array().unwrap().len()).sum())
        };
        (count("prompts"), count("cells"))
    };
    let begun = Instant::now();
    while trials(&bench.partial()).1 < 1 {
        assert!(begun.elapsed() < DEADLINE, "no cell was measured");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    interrupt(&child);
    let told = tokio::task::spawn_blocking(move || Told::of(&child.wait_with_output().unwrap())).await.unwrap();
    assert_eq!(told.code, Some(1));
    assert!(told.words.contains("interrupted") && told.words.contains("of 8 trials are kept in"), "{}", told.words);
    assert!(!bench.output().exists());
    let before: Value = serde_json::from_str(&std::fs::read_to_string(bench.partial()).unwrap()).unwrap();
    // Other settings are not mixed in.
    let other = bench.run(&["--decode-engine-num-gpu", "2"]).await;
    assert_eq!(other.code, Some(64));
    assert!(other.words.contains("--decode-engine-num-gpu was 1, is 2") && other.words.contains("--restart"), "{}", other.words);
    let told = bench.run(&[]).await;
    assert_eq!(told.code, Some(0), "{}", told.words);
    assert!(told.words.contains("going on with") && !told.words.contains("prompt of 100 tokens"), "{}", told.words);
    let first = before["cells"][0]["trials"][0]["itl"].as_f64().unwrap();
    let kept = numbers(&bench.document()["provenance"]["cells"][0]["itl_ms"])[0];
    assert!((kept - 1000.0 * first).abs() < 1e-3, "{kept} {first}");
    assert!(!bench.partial().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_midway_costs_nothing_that_was_measured() {
    let bench = Bench::new(Manners::default()).await;
    let reference = bench.run(&[]).await;
    assert_eq!(reference.code, Some(0), "{}", reference.words);
    let all = bench.server.completions();
    std::fs::remove_file(bench.output()).unwrap();
    bench.server.change(|manners| manners.dies_after = all + all - 4);
    let told = bench.run(&[]).await;
    assert_eq!(told.code, Some(1), "{}", told.words);
    let last = told.words.lines().last().unwrap();
    let (_, kept) = last.split_once("; ").unwrap();
    let (kept, _) = kept.split_once(" trials are kept in ").unwrap();
    assert!(last.starts_with("error: ") && kept.ends_with(" of 8") && !kept.starts_with('0'), "{}", told.words);
    bench.server.change(|manners| manners.dies_after = usize::MAX);
    let told = bench.run(&[]).await;
    assert_eq!(told.code, Some(0), "{}", told.words);
    assert!(told.words.contains(&format!("{kept} trials are done")), "{kept}: {}", told.words);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refused_every_batch_is_measured_anew_with_restart() {
    let bench = Bench::new(Manners { breaks_after: Some(12), ..Manners::default() }).await;
    for _ in 0..2 {
        let told = bench.run(&[]).await;
        assert_eq!(told.code, Some(1), "{}", told.words);
        assert!(told.words.contains("no profile: ") && told.words.contains("with --restart measures anew"), "{}", told.words);
        assert!(!told.words.contains("goes on from there"), "{}", told.words);
        bench.server.change(|manners| manners.breaks_after = None);
    }
    let told = bench.run(&["--restart"]).await;
    assert_eq!(told.code, Some(0), "{}", told.words);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_measured_nothing_binds_nobody_to_its_settings() {
    let bench = Bench::new(Manners { longest: 40, ..Manners::default() }).await;
    let told = bench.run(&["--endpoint", "completions"]).await;
    assert_eq!(told.code, Some(1), "{}", told.words);
    assert!(bench.partial().exists() && told.words.contains("exceeds the context length"), "{}", told.words);
    bench.server.change(|manners| manners.longest = usize::MAX);
    let told = bench.run(&["--endpoint", "chat"]).await;
    assert_eq!(told.code, Some(0), "{}", told.words);
    assert!(!told.words.contains("going on with"), "{}", told.words);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_a_server_are_told_in_words() {
    type Change = fn(&mut Manners);
    let cases: [(Change, &str); 8] = [
        (|manners| manners.usage = false, "the server sent no token counts"),
        (|manners| manners.status = Some(500), "status 500: told to fail"),
        (|manners| manners.content_type = "text/html", "expected a stream (text/event-stream), got text/html"),
        (|manners| manners.breaks_after = Some(2), "the answer broke off"),
        (|manners| manners.error_after = Some(2), "the server gave up in the middle of its answer: out of memory"),
        (|manners| manners.hangs = true, "no complete answer within 1s"),
        (|manners| manners.key = Some("sesame"), "status 401: no key"),
        (|manners| manners.ends_after = 6, "ends answers before"),
    ];
    for (change, words) in cases {
        let mut manners = Manners::default();
        change(&mut manners);
        let bench = Bench::new(manners).await;
        let told = bench.run(&["--request-timeout", "1"]).await;
        assert_eq!(told.code, Some(1), "{words}: {}", told.words);
        let last = told.words.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: ") && last.contains(words), "expected {words}: {}", told.words);
        assert!(!bench.output().exists(), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_model_and_a_dead_server_are_told_and_nothing_is_left() {
    let bench = Bench::new(Manners::default()).await;
    let told = bench.run_model("another", &[]).await;
    assert_eq!(told.code, Some(1));
    assert!(told.words.contains("the server has no model \"another\"; it has tiny/model"), "{}", told.words);
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = bench.run(&["--url", &format!("http://{free}")]).await;
    assert_eq!(told.code, Some(64), "a flag is given once: {}", told.words);
    let mut command = exporter();
    command.args(["profile", "--model", "m", "--url", &format!("http://{free}"), "--output"]).arg(bench.output());
    let told = tokio::task::spawn_blocking(move || Told::of(&command.output().unwrap())).await.unwrap();
    assert_eq!(told.code, Some(1));
    assert!(told.words.contains(&format!("cannot connect to {free}")), "{}", told.words);
    assert_eq!(std::fs::read_dir(bench.folder.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_chat_server_with_a_key_and_a_metrics_page_is_measured() {
    let page = "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"125\"} 1\n\
                # TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"tiny/model\"} 0\n";
    let bench = Bench::new(Manners {
        chat_only: true,
        refused: &["min_tokens"],
        key: Some("sesame"),
        metrics: Some(page.to_owned()),
        longest: 420,
        ..Manners::default()
    })
    .await;
    let key = bench.folder.path().join("key");
    std::fs::write(&key, "sesame\n").unwrap();
    let mut command = exporter();
    command.args(["profile", "--url", &bench.server.url(), "--model", MODEL, "--isl", "100,600", "--context-length", "200,400"]);
    command.args(["--kv-usage", "0.2,0.6", "--decode-osl", "24", "--prefill-repeats", "1", "--decode-repeats", "1", "--api-key-file"]);
    command.arg(&key).arg("--output").arg(bench.output());
    let told = tokio::task::spawn_blocking(move || Told::of(&command.output().unwrap())).await.unwrap();
    assert_eq!(told.code, Some(0), "{}", told.words);
    assert!(told.words.contains("KV cache: 2000 tokens, as the server's /metrics says"), "{}", told.words);
    assert!(told.words.contains("not claimed: prompts of 600 tokens: the server answered with status 400"), "{}", told.words);
    let document = bench.document();
    assert_eq!(document["provenance"]["endpoint"], "/v1/chat/completions");
    assert_eq!(document["provenance"]["engine"], "vllm");
    assert_eq!(document["prefill"]["isl"], serde_json::json!([100]));
    assert!(!document.to_string().contains("sesame"));
}

#[test]
fn wrong_flags_are_told_at_once() {
    let run = |arguments: &[&str]| Told::of(&exporter().arg("profile").args(arguments).output().unwrap());
    let told = run(&["--model", "m", "--isl", "512,256", "--kv-usage", "0.5,1.5", "--context-length", "10"]);
    assert_eq!(told.code, Some(64));
    for words in ["--isl: expected values that rise, got 512 before 256", "--kv-usage: expected every value", "--context-length: expected"]
    {
        assert!(told.words.contains(words), "{}", told.words);
    }
    assert_eq!(run(&[]).code, Some(64), "a model is needed");
    let told = run(&["--model", "m", "--url", "127.0.0.1:8000"]);
    assert!(told.code == Some(64) && told.words.contains("expected a URL such as"), "{}", told.words);
}

#[test]
fn check_shows_a_profile_or_every_problem_of_it() {
    let check = |file: &Path| Told::of(&exporter().args(["profile", "--check"]).arg(file).output().unwrap());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/example/profile.json");
    let told = check(&example);
    assert_eq!(told.code, Some(0));
    assert!(told.words.lines().count() == 1 && told.words.contains("first at context 4096, KV 0.1: 1.5 times"), "{}", told.words);
    assert!(told.table.contains("16384"), "{}", told.table);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.json");
    let text = std::fs::read_to_string(&example).unwrap();
    std::fs::write(&file, text.replace("[60, 110", "[\"x\", 0").replace("0.9]", "1.9]")).unwrap();
    let told = check(&file);
    assert_eq!(told.code, Some(64));
    for cell in ["prefill.ttft_ms[0]", "prefill.ttft_ms[1]", "decode.kv_usage[4]"] {
        assert!(told.words.contains(cell), "{}", told.words);
    }
    std::fs::write(&file, text.replace("[900, 2300", "[9000, 2300").replace("215, 430", "400, 215")).unwrap();
    let told = check(&file);
    assert_eq!(told.code, Some(0));
    assert!(told.words.contains("falls from 400 ms at 2048") && told.words.contains("more than the streams of the cell"), "{}", told.words);
    assert_eq!(check(Path::new("/nonexistent")).code, Some(64));
}
