//! Many simulated vLLM servers in one thread, and the exporter that reads them: for the benches that measure it at such fleets.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::pages::Moving;
use crate::served::{self, Answer, http, url};
use crate::watched::Killed;

/// The pages of so many seconds are kept; each server is some seconds ahead of others.
const KEPT: u64 = 16;
const AHEAD: u64 = 8;

/// The address of a server by its number.
pub fn address(number: u32) -> Ipv4Addr {
    let [_, high, middle, low] = number.to_be_bytes();
    Ipv4Addr::new(127, 1 + high, middle, low)
}

/// Starts servers whose counts rise every second. Gives the port that all have.
pub fn servers() -> u16 {
    let (moving, started) = (Moving::new(), Instant::now());
    let made: Mutex<BTreeMap<u64, Arc<[u8]>>> = Mutex::default();
    served::start(move |address| {
        let tick = started.elapsed().as_secs() + u64::from(address.octets()[3]) % AHEAD;
        let mut made = made.lock().expect("no thread panics with it");
        made.retain(|known, _| known + KEPT > tick);
        let page = || {
            let text = moving.at(tick);
            http("200 OK", &text, text.len())
        };
        Answer { bytes: Arc::clone(made.entry(tick).or_insert_with(page)), pause: Duration::ZERO, closes: false }
    })
}

/// The exporter's configuration for so many replicas of one model.
pub fn config(targets: u32, interval: u64, port: u16) -> String {
    let urls: Vec<String> = (0..targets).map(|number| format!("{:?}", url(address(number), port))).collect();
    format!(
        "server: {{ listen: \"127.0.0.1:0\" }}\nscrape: {{ interval: {interval}s, timeout: 4s }}\nmodels:\n  \
         - name: meta-llama/Llama-3.1-8B-Instruct\n    engine: vllm\n    slo: {{ ttft: 500ms, itl: 30ms }}\n    planner: {{ preset: auto }}\n    pools:\n      \
         - {{ name: bench, role: aggregated, max_replicas: 20000, targets: {{ static: [{}] }} }}\n",
        urls.join(", ")
    )
}

/// Starts the exporter with that configuration.
pub fn exporter(folder: &Path, config: &str) -> Killed {
    fs::write(folder.join("config.yaml"), config).expect("write the configuration");
    let mut command = Command::new(env!("CARGO_BIN_EXE_inference-planner-exporter"));
    command.arg("run").arg("--config").arg(folder.join("config.yaml")).env("RUST_LOG", "error").stdout(Stdio::null());
    Killed(command.spawn().expect("start the exporter"))
}
