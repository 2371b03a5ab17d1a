//! What do the exporter and Prometheus use while they read the same servers at the same time?

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::servers::{address, config, exporter, servers};
use crate::watched::{Killed, cpu_seconds, megabytes, setting};

/// Rounds before the measurement: buffers have their size and connections are open.
const WARM_UP: Duration = Duration::from_secs(20);
fn prometheus(folder: &Path, targets: u32, port: u16) -> Killed {
    let hosts: Vec<String> = (0..targets).map(|number| format!("'{}:{port}'", address(number))).collect();
    let config = format!(
        "global: {{ scrape_interval: 5s, scrape_timeout: 4s }}\nscrape_configs:\n- job_name: vllm\n  static_configs:\n  - targets: [{}]\n",
        hosts.join(", ")
    );
    fs::write(folder.join("prometheus.yml"), config).expect("write the configuration of Prometheus");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", folder.join("prometheus.yml").display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display())).arg("--web.listen-address=127.0.0.1:0");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Killed(child.expect("start prometheus; expected the program in PATH (Debian: apt-get install prometheus)"))
}

/// What a process used: share of a core, and resident MB.
#[derive(Clone, Copy)]
struct Use {
    cpu: f64,
    memory: f64,
}

/// Both, over the same time.
fn measure(targets: u32, port: u16, seconds: u64) -> [Use; 2] {
    let folder = std::env::temp_dir().join(format!("inference-planner-peers-{}-{targets}", std::process::id()));
    fs::create_dir_all(&folder).expect("make a temporary folder");
    let both = [exporter(&folder, &config(targets, 5, port)), prometheus(&folder, targets, port)];
    thread::sleep(WARM_UP);
    let (before, begun) = (both.each_ref().map(|process| cpu_seconds(process.0.id())), Instant::now());
    thread::sleep(Duration::from_secs(seconds));
    let span = begun.elapsed().as_secs_f64();
    let used = [0, 1].map(|place: usize| {
        let pid = both[place].0.id();
        Use { cpu: (cpu_seconds(pid) - before[place]) / span, memory: megabytes(pid, "VmRSS:") }
    });
    drop(both);
    // A folder that stays behind is in nobody's way.
    let _left = fs::remove_dir_all(&folder);
    used
}

/// Prints the table.
pub fn compare() {
    let (port, seconds) = (servers(), setting("PEERS_SECONDS", 60));
    println!("\nservers with pages of 100 kB, read every 5 s for {seconds} s by both at the same time\n");
    println!("| servers | | exporter | Prometheus | exporter / Prometheus |\n|---|---|---|---|---|");
    let mut earlier: Option<(u32, [Use; 2])> = None;
    for targets in [50, 200] {
        let used = measure(targets, port, seconds);
        let [ours, theirs] = used;
        println!("| {targets} | CPU, % of a core | {:.2} | {:.2} | {:.3} |", ours.cpu * 100.0, theirs.cpu * 100.0, ours.cpu / theirs.cpu);
        println!("| {targets} | resident MB | {:.1} | {:.1} | {:.3} |", ours.memory, theirs.memory, ours.memory / theirs.memory);
        if let Some((fewer, before)) = earlier.replace((targets, used)) {
            let more = f64::from(targets - fewer);
            let [ours, theirs] = [0, 1].map(|place: usize| (used[place].memory - before[place].memory) / more);
            println!("| each more | resident MB | {ours:.3} | {theirs:.3} | {:.3} |", ours / theirs);
        }
    }
}
