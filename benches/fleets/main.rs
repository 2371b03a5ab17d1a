//! What does a fleet cost? Memory and processor time of the exporter at fleets from ten to ten thousand replicas, and at ten under hard limits.
//!
//! `cargo bench --bench fleets` takes a quarter of an hour and prints a table of each kind; `limits` or `sizes` behind `--` prints one. Each replica
//! is a vLLM server with a page of 100 kB whose counts move, on an address of its own, served by a thread of this process that does not count.
//! For the hard limits a control group is made under /sys/fs/cgroup (version 2, else 1) and removed again, which takes root.

mod limits;
#[path = "../peers/pages.rs"]
mod pages;
#[path = "../served/mod.rs"]
mod served;
#[path = "../peers/servers.rs"]
mod servers;
mod sizes;
#[path = "../watched/mod.rs"]
mod watched;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let port = servers::servers();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|word| word == name);
    if wanted("limits") {
        limits::measure(port);
    }
    if wanted("sizes") {
        sizes::measure(port);
    }
}
