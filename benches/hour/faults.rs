//! What goes wrong with which replica, and when? Drawn from a seed, and worked into the pages that it serves.

use std::collections::BTreeMap;
use std::time::Duration;

use inference_planner_exporter::engines::render::vllm::{VllmPage, vllm};
use inference_planner_exporter::planner::input::{FailureKind, Histogram};
use inference_planner_exporter::scrape::lower::lower;
use inference_planner_exporter::scrape::report::{Failure, Scraped};
use inference_planner_exporter::simulator::random::Random;

use crate::served::{Answer, http};

/// A replica's fortune changes so often, each at a moment of its own.
const SLOT: Duration = Duration::from_secs(40);
/// Share of the slots in which something is wrong.
const SHARE: f64 = 0.2;
/// Every so often all replicas hang, for the span behind it.
const BLACKOUT: (Duration, Duration) = (Duration::from_secs(12 * 60), Duration::from_secs(120));
/// Longer than any request.
const FOREVER: Duration = Duration::from_secs(120);

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Takes the request and says nothing.
    Hangs,
    /// Stops in the middle of the page, and stays connected.
    Stalls,
    /// Closes the connection instead of an answer.
    Resets,
    /// Status 500.
    Fails,
    /// Closes in the middle of the page.
    Truncates,
    /// Announces half a page as the whole one.
    Halves,
    /// Every value is NaN.
    NotANumber,
    /// A web page.
    Html,
    /// No page at all, with status 200.
    Empty,
    /// The process starts anew: all counters fall to zero.
    Restarts,
}

const ALL: [Fault; 10] = [
    Fault::Hangs,
    Fault::Stalls,
    Fault::Resets,
    Fault::Fails,
    Fault::Truncates,
    Fault::Halves,
    Fault::NotANumber,
    Fault::Html,
    Fault::Empty,
    Fault::Restarts,
];

/// What went wrong so far, and what each replica has counted before it last started anew.
#[derive(Default)]
pub struct Faults {
    /// Requests that met each fault.
    pub met: BTreeMap<Fault, u64>,
    seed: u64,
    restarts: BTreeMap<u64, (u64, VllmPage)>,
}

impl Faults {
    /// Faults by chance of this seed.
    pub fn of(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The answer of the replica with this number at `now` since the start, whose true page this is.
    pub fn answer(&mut self, replica: u64, now: Duration, wall: Duration, page: VllmPage) -> Answer {
        let (fault, text) = self.meets(replica, now, wall, page);
        broken(fault, &text)
    }

    /// What is wrong with that replica then, and what its page would be without that.
    fn meets(&mut self, replica: u64, now: Duration, wall: Duration, page: VllmPage) -> (Option<Fault>, String) {
        let replica = replica + (self.seed << 32);
        let phase = SLOT.mul_f64(Random::stream(replica, 1).unit());
        let slot = (now + phase).as_secs() / SLOT.as_secs();
        let mut random = Random::stream(replica.wrapping_mul(1_000_003).wrapping_add(slot), 2);
        let blackout = now > BLACKOUT.0 && now.as_secs() % BLACKOUT.0.as_secs() < BLACKOUT.1.as_secs();
        let fault = match random.unit() < SHARE {
            _ if blackout => Some(Fault::Hangs),
            true => Some(ALL[(random.unit() * ALL.len() as f64) as usize % ALL.len()]),
            false => None,
        };
        if let Some(fault) = fault {
            *self.met.entry(fault).or_default() += 1;
        }
        if fault == Some(Fault::Restarts) && self.restarts.get(&replica).is_none_or(|(known, _)| *known != slot) {
            self.restarts.insert(replica, (slot, VllmPage { process_start: wall, ..page.clone() }));
        }
        let text = vllm(&self.restarts.get(&replica).map_or(page.clone(), |(_, before)| since(page, before)));
        (fault, text)
    }

    /// The same without a socket: what an exporter makes of the answer.
    pub fn report(&mut self, replica: u64, now: Duration, wall: Duration, page: VllmPage) -> Result<Scraped, Failure> {
        let (fault, text) = self.meets(replica, now, wall, page);
        let failed = |kind| Err(Failure { kind, message: String::new() });
        match fault {
            Some(Fault::Hangs | Fault::Stalls) => failed(FailureKind::Timeout),
            Some(Fault::Resets) => failed(FailureKind::Connect),
            Some(Fault::Fails) => failed(FailureKind::Status),
            Some(Fault::Truncates) => failed(FailureKind::Parse),
            _ => {
                let answer = broken(fault, &text).bytes;
                let head = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
                lower(&answer[head..], None, None, false)
            }
        }
    }
}

/// What a process that started anew has counted: the same, less what was counted before.
fn since(page: VllmPage, before: &VllmPage) -> VllmPage {
    let less = |now: &Histogram, before: &Histogram| Histogram {
        sum: now.sum - before.sum,
        count: now.count - before.count,
        buckets: now.buckets.iter().zip(&before.buckets).map(|(now, before)| (now.0, now.1 - before.1)).collect(),
        created: now.created,
    };
    VllmPage {
        process_start: before.process_start,
        histograms: page
            .histograms
            .iter()
            .map(|(signal, now)| (*signal, before.histograms.get(signal).map_or(now.clone(), |before| less(now, before))))
            .collect(),
        generated_tokens: page.generated_tokens - before.generated_tokens,
        prompt_tokens: page.prompt_tokens - before.prompt_tokens,
        iterations: page.iterations - before.iterations,
        iteration_tokens: page.iteration_tokens - before.iteration_tokens,
        finished: page.finished - before.finished,
        prefilled: (page.prefilled.0 - before.prefilled.0, page.prefilled.1 - before.prefilled.1),
        ..page
    }
}

fn broken(fault: Option<Fault>, page: &str) -> Answer {
    let line_end = page[..page.len() / 2].rfind('\n').map_or(0, |end| end + 1);
    let half = &page[..page.len() / 2];
    let bytes = match fault {
        None | Some(Fault::Restarts) => http("200 OK", page, page.len()),
        Some(Fault::Hangs | Fault::Resets) => [].into(),
        Some(Fault::Stalls | Fault::Truncates) => http("200 OK", half, page.len()),
        Some(Fault::Fails) => http("500 Internal Server Error", "", 0),
        Some(Fault::Halves) => http("200 OK", &page[..line_end], line_end),
        Some(Fault::NotANumber) => {
            let line = |line: &str| {
                line.rsplit_once(' ').filter(|_| !line.starts_with('#')).map_or(line.to_owned(), |(series, _)| format!("{series} NaN"))
            };
            let text: String = page.lines().map(|text| line(text) + "\n").collect();
            http("200 OK", &text, text.len())
        }
        Some(Fault::Html) => http("200 OK", "<!doctype html><html></html>\n", 29),
        Some(Fault::Empty) => http("200 OK", "", 0),
    };
    let pause = if matches!(fault, Some(Fault::Hangs | Fault::Stalls)) { FOREVER } else { Duration::ZERO };
    Answer { bytes, pause, closes: matches!(fault, Some(Fault::Hangs | Fault::Stalls | Fault::Resets | Fault::Truncates)) }
}
