//! What does the exporter cost? Resident memory and CPU of the released binary with ten vLLM servers scraped every five seconds.
//!
//! `cargo bench --bench resources` runs it for a minute (`RESOURCES_SECONDS`, `RESOURCES_TARGETS` change that) and prints the figures. The
//! servers are threads of this process, so that only the exporter's own use is counted; their page is a recorded one of 68 kB.

mod watched;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use watched::{Killed, cpu_seconds, megabytes, setting};

const PAGE: &str = include_str!("../tests/fixtures/pages/vllm-0.33-scrape1.prom");
const PROFILE: &str = include_str!("../deploy/example/profile.json");

/// Rounds before the measurement: buffers have their size and connections are open.
const WARM_UP: Duration = Duration::from_secs(12);

fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 {
            return;
        }
        request.extend_from_slice(&buffer[..read]);
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\r\n", PAGE.len());
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(PAGE.as_bytes())).is_err() {
                return;
            }
        }
    }
}

fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listen on loopback");
    let url = format!("http://{}/metrics", listener.local_addr().expect("a bound address"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    url
}

fn config(targets: u64) -> String {
    let pool = |role: &str, count: u64| {
        let urls: Vec<String> = (0..count).map(|_| format!("{:?}", server())).collect();
        format!("      - {{ name: bench-{role}, role: {role}, max_replicas: 64, targets: {{ static: [{}] }} }}\n", urls.join(", "))
    };
    format!(
        "server: {{ listen: \"127.0.0.1:0\" }}\nscrape: {{ interval: 5s, timeout: 4s }}\nmodels:\n  - name: meta-llama/Llama-3.1-8B-Instruct\n    engine: vllm\n    \
         planner: {{ preset: infera, profile: profile.json }}\n    pools:\n{}{}",
        pool("prefill", targets / 2),
        pool("decode", targets - targets / 2)
    )
}

fn main() {
    let (seconds, targets) = (setting("RESOURCES_SECONDS", 60), setting("RESOURCES_TARGETS", 10));
    let folder = std::env::temp_dir().join(format!("inference-planner-resources-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("make a temporary folder");
    fs::write(folder.join("config.yaml"), config(targets)).expect("write the configuration");
    fs::write(folder.join("profile.json"), PROFILE).expect("write the profile");
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.arg("run").arg("--config").arg(folder.join("config.yaml")).env("RUST_LOG", "warn").stdout(Stdio::null());
    let exporter = Killed(command.spawn().expect("start the exporter"));
    let pid = exporter.0.id();

    thread::sleep(WARM_UP);
    let (before, started) = (cpu_seconds(pid), Instant::now());
    thread::sleep(Duration::from_secs(seconds));
    let share = (cpu_seconds(pid) - before) / started.elapsed().as_secs_f64();
    println!("targets {targets}, page {} kB, every 5 s, measured over {seconds} s", PAGE.len() / 1000);
    println!("resident memory {:.1} MB", megabytes(pid, "VmRSS:"));
    println!("CPU {:.2} % of a core", share * 100.0);
    drop(exporter);
    // A folder that stays behind is in nobody's way.
    let _left = fs::remove_dir_all(&folder);
}
