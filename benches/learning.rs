//! How well does the queueing model learn? One simulated replica, windows of 60 s, 5 % log-normal noise on TTFT and ITL.
//!
//! `cargo bench --bench learning -- [SEEDS]` prints, for servers and objectives, in how many of the seeds (100 unless said) each claim holds. The
//! tests of the same name assert the claims with a few seeds.

#[allow(dead_code)]
#[path = "../tests/it/learning/claims.rs"]
mod claims;
#[allow(dead_code)]
#[path = "../tests/it/learning/harness.rs"]
mod harness;

use claims::{Case, constant, followed, varied};
use harness::{EIGHT_B, UNIFORM};

fn main() {
    let seeds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(100);
    let cases = [(UNIFORM, 500.0, 50.0), (UNIFORM, 50.0, 500.0), (EIGHT_B, 500.0, 30.0), (EIGHT_B, 60.0, 500.0)];
    let cases: Vec<Case> = std::thread::scope(|scope| {
        let threads: Vec<_> = cases.iter().map(|&(server, ttft, itl)| scope.spawn(move || Case::new(server, ttft, itl))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a case")).collect()
    });
    println!("seeds of {seeds} in which lambda* is within 15 % of the measured capacity, the load varying threefold within ten windows\n");
    println!("| server, objective | capacity | load up to | after 10 windows | 20 | 40 |\n|---|---|---|---|---|---|");
    for case in &cases {
        for share in [0.7, 0.9] {
            let counts = [10, 20, 40].map(|windows| varied(case, share, windows, seeds).to_string());
            println!("| {} | {:.2}/s | {:.0} % | {} |", case.name(), case.capacity, share * 100.0, counts.join(" | "));
        }
    }
    println!("\ntwenty windows of a constant load, then twenty of a varying one: seeds of {seeds}\n");
    println!("| server, objective | rho | interval holds the capacity | lower end above it | lambda* within 15 % afterwards |");
    println!("|---|---|---|---|---|");
    for (case, most) in [(&cases[0], 19.5), (&cases[2], 28.5)] {
        for utilization in [0.05, 0.24, 0.6, 0.9, 1.2] {
            let found = constant(case, most, utilization, seeds);
            let name = case.name();
            println!("| {name} | {utilization} | {} | {} | {} |", found.contained, found.promised_too_much, found.learned);
        }
    }
    println!("\nten windows after the server's speed changed at a constant load: seeds of {seeds} with TTFT and ITL within 10 %\n");
    println!("| server | load | 1.3 times as long | 0.75 times |\n|---|---|---|---|");
    for case in [&cases[0], &cases[2]] {
        for share in [0.3, 0.5, 0.7] {
            let counts = [1.3, 0.75].map(|slower| followed(case, slower, share, seeds).to_string());
            println!("| {} | {:.0} % | {} |", case.server.name, share * 100.0, counts.join(" | "));
        }
    }
}
