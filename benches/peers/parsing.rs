//! How fast is a page read, against crates that read it as well, and against finding its line ends?
//!
//! Left out: prometheus-parse, which drops every name with a colon and so this page; openmetrics-parser, under the LGPL, which refuses families
//! whose samples differ in their labels; prometheus-exposition-format-rs, which brings lexical-core 0.7 (RUSTSEC-2023-0086).

use std::hint::black_box;
use std::time::{Duration, Instant};

use inference_planner_exporter::engines::vllm::FAMILIES;
use inference_planner_exporter::exposition::{Format, Memory, Wanted, read};

use crate::pages::{Moving, page};

/// Each reader runs so long in a turn; turns go round, so that what else the machine does meets all of them.
const TURN: Duration = Duration::from_millis(150);
const TURNS: usize = 7;

/// A way to read the page; gives something that depends on all of it.
struct Way<'a> {
    name: &'static str,
    read: Box<dyn FnMut() -> usize + 'a>,
    /// Best seconds a page of each turn.
    turns: Vec<f64>,
}

fn way<'a>(name: &'static str, read: impl FnMut() -> usize + 'a) -> Way<'a> {
    Way { name, read: Box::new(read), turns: Vec::new() }
}

/// One call a line: what every reader of lines must do at least.
fn newlines(bytes: &[u8]) -> usize {
    let (mut lines, mut rest) = (0, bytes);
    while let Some(end) = memchr::memchr(b'\n', rest) {
        rest = &rest[end + 1..];
        lines += 1;
    }
    lines
}

/// Prints the table.
pub fn compare() {
    let first = page();
    let bytes = first.as_bytes();
    let selected = Wanted::new(FAMILIES.iter().copied());
    let all = Wanted::all();
    let samples = |wanted: &Wanted| {
        let page = read(black_box(bytes), Format::Text, wanted).expect("a good page");
        page.families().map(|family| family.samples().len()).sum::<usize>()
    };
    // The same series with other values, two pages in turn, and what the page before them left behind.
    let moving = Moving::new();
    let [before, one, other] = [7, 8, 9].map(|tick| moving.at(tick));
    let remembered = read(before.as_bytes(), Format::Text, &selected).expect("a good page");
    let memory = Memory::of(before.as_bytes(), Format::Text, &selected, &remembered).expect("a page without problems");
    let mut turn = false;
    let repeated = || {
        turn = !turn;
        let body = if turn { one.as_bytes() } else { other.as_bytes() };
        let page = memory.read(black_box(body), Format::Text, &selected).expect("the same series");
        page.families().map(|family| family.samples().len()).sum::<usize>()
    };
    let mut ways = vec![
        way("newline loop with memchr, one call a line", || newlines(black_box(bytes))),
        way("families of vLLM selected, first scrape", || samples(&selected)),
        way("families of vLLM selected, the last scrape's series with other values", repeated),
        way("every family", || samples(&all)),
        way("nom-openmetrics 0.3.0", || nom_openmetrics::parser::prometheus(black_box(&first)).expect("a good page").1.len()),
        way("prom_text_format_parser 0.1.0", || prom_text_format_parser::parse_scrape(black_box(&first)).0.len()),
    ];
    for _ in 0..TURNS {
        for way in &mut ways {
            let begun = Instant::now();
            let mut best = f64::MAX;
            while begun.elapsed() < TURN {
                let start = Instant::now();
                black_box((way.read)());
                best = best.min(start.elapsed().as_secs_f64());
            }
            way.turns.push(best);
        }
    }
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let page = read(bytes, Format::Text, &selected).expect("a good page");
    let wanted: usize = page.families().flat_map(|family| family.samples()).map(|sample| lines[sample.line as usize - 1].len()).sum();
    println!(
        "\n{} kB, {} lines, {} of them comments; {} of {} samples selected, {} kB with {} label lists; one thread\n",
        bytes.len() / 1000,
        lines.len(),
        lines.iter().filter(|line| line.starts_with(b"#")).count(),
        samples(&selected),
        samples(&all),
        wanted / 1000,
        page.sets(),
    );
    println!("| reader | MB/s | share of the loop |\n|---|---|---|");
    let speeds: Vec<f64> = ways.iter().map(|way| bytes.len() as f64 / median(&way.turns) / 1e6).collect();
    for (way, speed) in ways.iter().zip(&speeds) {
        println!("| {} | {speed:.0} | {:.3} |", way.name, speed / speeds[0]);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
