//! What does the exporter cost beside its peers? Parsers on one page, Prometheus on the same servers, and what no peer has: planning, reloading.
//!
//! `cargo bench --bench peers` prints all tables; a word behind `--` prints one: `parsing`, `rivals`, `ticks` or `starts`. Debian's `prometheus`
//! must be there for `rivals`, which lasts three minutes (`PEERS_SECONDS` changes that).

mod pages;
mod parsing;
mod rivals;
#[path = "../served/mod.rs"]
mod served;
mod servers;
mod starts;
mod ticks;
#[path = "../watched/mod.rs"]
mod watched;

fn main() {
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let tables: [(&str, fn()); 4] =
        [("parsing", parsing::compare), ("rivals", rivals::compare), ("ticks", ticks::measure), ("starts", starts::measure)];
    for (name, table) in tables {
        if only.is_empty() || only.iter().any(|word| word == name) {
            table();
        }
    }
}
