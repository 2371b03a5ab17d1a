//! Does it work where the kernel gives it 32 MiB and a twentieth of a core?

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::servers::config;
use crate::watched::{Killed, cpu_seconds, megabytes, setting};

const MEMORY: u64 = 32 << 20;
/// Microseconds of processor time in each period.
const QUOTA: u64 = 5_000;
const PERIOD: u64 = 100_000;
const REPLICAS: u32 = 10;

/// A control group of ours: its folders, which are removed with it.
struct Group(Vec<PathBuf>);

impl Group {
    fn new() -> Self {
        let name = format!("inference-planner-{}", std::process::id());
        let root = PathBuf::from("/sys/fs/cgroup");
        let (folders, settings): (Vec<PathBuf>, Vec<(usize, &str, String)>) = if root.join("cgroup.controllers").exists() {
            // The group above must hand the controllers down; it may do so already.
            let _handed = fs::write(root.join("cgroup.subtree_control"), "+memory +cpu");
            let limits = vec![
                (0, "memory.max", MEMORY.to_string()),
                (0, "memory.swap.max", "0".to_owned()),
                (0, "cpu.max", format!("{QUOTA} {PERIOD}")),
            ];
            (vec![root.join(&name)], limits)
        } else {
            let limits = vec![
                (0, "memory.limit_in_bytes", MEMORY.to_string()),
                (0, "memory.memsw.limit_in_bytes", MEMORY.to_string()),
                (1, "cpu.cfs_period_us", PERIOD.to_string()),
                (1, "cpu.cfs_quota_us", QUOTA.to_string()),
            ];
            (vec![root.join("memory").join(&name), root.join("cpu").join(&name)], limits)
        };
        let group = Self(folders);
        for folder in &group.0 {
            fs::create_dir(folder).unwrap_or_else(|error| panic!("make {}: {error}; expected control groups, and root", folder.display()));
        }
        for (place, file, value) in settings {
            let path = group.0[place].join(file);
            fs::write(&path, value).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        }
        group
    }

    /// The exporter as a command that enters the group before it runs, so that all of its memory counts.
    fn command(&self, config: &Path) -> Command {
        let enter: String = self.0.iter().map(|folder| format!("echo $$ > {} && ", folder.join("cgroup.procs").display())).collect();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{enter} exec \"$@\""), "sh", env!("CARGO_BIN_EXE_inference-planner-exporter"), "run", "--config"]);
        command.arg(config).env("RUST_LOG", "error").stdout(Stdio::null());
        command
    }

    /// Lines of the group's files that tell what it has used and how often it was held back.
    fn said(&self) -> Vec<String> {
        let files = ["memory.max_usage_in_bytes", "memory.peak", "memory.failcnt", "cpu.stat"];
        let paths = self.0.iter().flat_map(|folder| files.map(|file| (file, folder.join(file))));
        let read = paths.filter_map(|(file, path)| Some(format!("{file}: {}", fs::read_to_string(path).ok()?.trim().replace('\n', ", "))));
        read.collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.0 {
            // It goes once its process has gone, which has just been waited for.
            let _removed = fs::remove_dir(folder);
        }
    }
}

/// Prints what came of it.
pub fn measure(port: u16) {
    let seconds = setting("LIMITS_SECONDS", 120);
    let folder = std::env::temp_dir().join(format!("inference-planner-limits-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("make a temporary folder");
    let group = Group::new();
    let address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").to_string();
    let path = folder.join("config.yaml");
    fs::write(&path, config(REPLICAS, 5, port).replace("127.0.0.1:0", &address)).expect("write the configuration");
    let process = Killed(group.command(&path).spawn().expect("start the exporter"));
    let pid = process.0.id();
    thread::sleep(Duration::from_secs(seconds));
    let page = ask(&address);
    let sum = |family: &str| {
        let lines = page.lines().filter(|line| line.starts_with(&format!("inference_planner_{family}{{")));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<f64>().ok()).sum::<f64>()
    };
    let failed = page.lines().filter(|line| line.starts_with("inference_planner_scrapes_total{") && !line.contains("result=\"ok\""));
    let failed: f64 = failed.filter_map(|line| line.rsplit_once(' ')?.1.trim().parse::<f64>().ok()).sum();
    println!("\n{REPLICAS} replicas every 5 s for {seconds} s, at most 32 MiB and 5 % of a core, held by a control group\n");
    println!("targets up {}, scrapes that failed {failed}", sum("target_up"));
    println!("resident memory {:.1} MB, processor time {:.2} s", megabytes(pid, "VmRSS:"), cpu_seconds(pid));
    group.said().iter().for_each(|line| println!("{line}"));
    assert!(sum("target_up") == f64::from(REPLICAS) && failed == 0.0, "every replica is read in time");
    drop((process, group));
    // A folder that stays behind is in nobody's way.
    let _left = fs::remove_dir_all(&folder);
}

fn ask(address: &str) -> String {
    use std::io::{Read, Write};
    let mut text = String::new();
    if let Ok(mut stream) = std::net::TcpStream::connect(address) {
        let asked = write!(stream, "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
        // A page that is cut shows in what is read of it.
        let _read = asked.and_then(|()| stream.read_to_string(&mut text));
    }
    text
}
