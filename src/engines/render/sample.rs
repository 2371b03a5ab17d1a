//! What would the planner read from a page? The short way for a backtest, which reads thousands of pages a second.
//!
//! Writing and reading a page as text takes some 0.2 ms, ten times what it takes to simulate what is on it. A test holds the short way to the
//! long one: both give the same sample to the last bit.

use std::time::Duration;

use super::vllm::VllmPage;
use super::{InferaPage, InferaSeries};
use crate::planner::input::{Few, Gauge, Histogram, ItlBasis, Sample, SeriesKey, Signal, Tally};
use crate::units::Role;

impl InferaPage {
    /// What the engine reads from the rendered page for the page's own model.
    pub fn sample(&self) -> Sample {
        let key = || SeriesKey::from("router=\"disagg\"");
        let read = |series: &InferaSeries| Histogram { created: Some(series.created.as_secs_f64()), ..series.histogram.clone() };
        let histograms = self.histograms.iter().filter(|(signal, _)| **signal != Signal::RequestDuration);
        let finished = self.histograms.get(&Signal::RequestDuration).map(|series| {
            let key = SeriesKey::from("outcome=\"ok\",router=\"disagg\"");
            (Tally::Finished, Few::from([(key, series.histogram.count)]))
        });
        Sample {
            process_start: started(self.process_start),
            histograms: histograms.map(|(&signal, series)| (signal, Few::from([(key(), read(series))]))).collect(),
            tallies: finished.into_iter().collect(),
            // A mixed worker is in no pool that the engine knows.
            workers: self.workers.iter().filter(|(role, _)| **role != Role::Aggregated).map(|(&role, &n)| (role, n)).collect(),
            itl_basis: ItlBasis::PerRequest,
            gauges: Few::from([(Gauge::InFlight, self.in_flight as f64)]),
            ..Sample::default()
        }
    }
}

impl VllmPage {
    /// What the engine reads from the rendered page for the page's own model.
    pub fn sample(&self) -> Sample {
        let key = |more: &str| SeriesKey::from(format!("engine=\"0\"{more}"));
        let created = Some(self.process_start.as_secs_f64());
        let read = |histogram: &Histogram| Few::from([(key(""), Histogram { created, ..histogram.clone() })]);
        Sample {
            process_start: started(self.process_start),
            histograms: self.histograms.iter().map(|(&signal, histogram)| (signal, read(histogram))).collect(),
            tallies: Few::from([
                (Tally::Finished, Few::from([(key(",finished_reason=\"stop\""), self.finished as f64)])),
                (Tally::GeneratedTokens, Few::from([(key(""), self.generated_tokens as f64)])),
                (Tally::PromptTokens, Few::from([(key(""), self.prompt_tokens as f64)])),
                (Tally::Iterations, Few::from([(key(""), self.iterations as f64)])),
                (Tally::IterationTokens, Few::from([(key(""), self.iteration_tokens as f64)])),
                (Tally::PrefillSeconds, Few::from([(key(""), self.prefilled.1)])),
            ]),
            itl_basis: ItlBasis::PerEvent,
            gauges: Few::from([
                (Gauge::Running, self.running as f64),
                (Gauge::Waiting, self.waiting as f64),
                (Gauge::KvUsage, self.kv_usage),
                (Gauge::KvCapacityTokens, self.kv_tokens as f64),
            ]),
            ..Sample::default()
        }
    }
}

/// A process that started at the epoch itself says nothing, as for the engines.
fn started(at: Duration) -> Option<f64> {
    (!at.is_zero()).then_some(at.as_secs_f64())
}
