//! How long do a start, a reload and an hour of backtest take? The program itself, seen from outside.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::servers::exporter;
use crate::ticks::yaml;

const TIMES: usize = 9;

fn ask(address: &str, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "{request} HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}

fn median(mut spans: Vec<Duration>) -> f64 {
    spans.sort();
    spans[spans.len() / 2].as_secs_f64() * 1e3
}

/// From the start of the process to its first page, and of a reload to its answer: median milliseconds.
fn start_and_reload(models: usize) -> (f64, f64) {
    let folder = std::env::temp_dir().join(format!("inference-planner-starts-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("make a temporary folder");
    let (mut starts, mut reloads) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").to_string();
        let config = yaml(models, &address);
        let begun = Instant::now();
        let process = exporter(&folder, &config);
        while ask(&address, "GET /metrics").is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the exporter does not answer");
            thread::sleep(Duration::from_millis(1));
        }
        starts.push(begun.elapsed());
        let begun = Instant::now();
        ask(&address, "POST /-/reload").expect("it is reloaded");
        reloads.push(begun.elapsed());
        drop(process);
    }
    // A folder that stays behind is in nobody's way.
    let _left = fs::remove_dir_all(&folder);
    (median(starts), median(reloads))
}

/// Prints the tables.
pub fn measure() {
    println!("\n| models | start to the first page, ms | reload, ms |\n|---|---|---|");
    for models in [1, 10, 100] {
        let (start, reload) = start_and_reload(models);
        println!("| {models} | {start:.1} | {reload:.1} |");
    }
    let file = |name: &str| format!("{}/deploy/example/llama-8b/{name}", env!("CARGO_MANIFEST_DIR"));
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.args(["backtest", "--config", &file("auto.yaml"), "--trace", "shape:diurnal?low=40&high=200&period=1h&duration=60m"]);
    let output = command.output().expect("run the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    println!("\nan hour of backtest, 120 requests/s on average: {:.1} s", begun.elapsed().as_secs_f64());
}
