//! What does another process use? The exporter that a bench starts, as Linux counts it; shared by the benches that measure it.

use std::fs;
use std::process::Child;

/// Kernel ticks a second in /proc/PID/stat: a constant of Linux's user interface.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process that ends with this value.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// A number from the environment.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Processor time of the process so far, user and system.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the exporter runs");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("a stat line").split(' ').collect();
    let ticks = |index: usize| fields[index].parse::<f64>().expect("a number of ticks");
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

/// A size of /proc/PID/status in MB, by its name there.
pub fn megabytes(pid: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the exporter runs");
    let line = status.lines().find(|line| line.starts_with(name)).expect("a size of this name");
    line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok()).expect("a size in kB") / 1000.0
}
