//! How do memory and processor time grow with the fleet?

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::servers::{config, exporter};
use crate::watched::{cpu_seconds, megabytes, setting};

/// Replicas, and seconds between two rounds.
const FLEETS: [(u32, u64); 6] = [(10, 5), (200, 5), (2000, 5), (2500, 60), (5000, 60), (10_000, 60)];

/// Prints the table.
pub fn measure(port: u16) {
    println!("\npages of 100 kB, preset auto\n");
    println!("| replicas | every | CPU, % of a core | ms of CPU a page | resident MB | at most |\n|---|---|---|---|---|---|");
    for (replicas, interval) in FLEETS {
        let folder = std::env::temp_dir().join(format!("inference-planner-fleets-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("make a temporary folder");
        let process = exporter(&folder, &config(replicas, interval, port));
        let pid = process.0.id();
        // Two rounds and a little: the first connects.
        thread::sleep(Duration::from_secs(interval * 5 / 4 + 10));
        let rounds = (setting("FLEETS_SECONDS", 60) / interval).max(1);
        let (before, begun) = (cpu_seconds(pid), Instant::now());
        thread::sleep(Duration::from_secs(rounds * interval));
        let (used, span) = (cpu_seconds(pid) - before, begun.elapsed().as_secs_f64());
        let page = used / (f64::from(replicas) * rounds as f64) * 1e3;
        println!(
            "| {replicas} | {interval} s | {:.2} | {page:.3} | {:.1} | {:.1} |",
            used / span * 100.0,
            megabytes(pid, "VmRSS:"),
            megabytes(pid, "VmHWM:")
        );
        drop(process);
        // A folder that stays behind is in nobody's way.
        let _left = fs::remove_dir_all(&folder);
    }
}
