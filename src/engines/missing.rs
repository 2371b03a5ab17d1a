//! Which measurements does a page lack? The planner's roles, by name.
//!
//! Every role counts that some policy decides by, whether or not this kind of server ever tells it: who reads the report wants to know what the
//! decision goes without, and not whose fault that is. Limits of a server's batch are no role: the configuration gives them where no page does.

use crate::planner::input::{Gauge, Sample, Signal, Tally};

/// The names of the roles that none of `samples` fills.
pub fn of<'s>(samples: impl Iterator<Item = &'s Sample> + Clone) -> Vec<&'static str> {
    let any = |found: &dyn Fn(&Sample) -> bool| samples.clone().any(found);
    let tally = |tally| any(&|sample| sample.tallies.contains_key(&tally));
    let gauge = |gauge| any(&|sample| sample.gauges.contains_key(&gauge) || sample.fleet.contains_key(&gauge));
    let signals = Signal::ALL.map(|signal| (signal.as_str(), any(&|sample| sample.histograms.contains_key(&signal))));
    let tallies = [
        Tally::Finished,
        Tally::Started,
        Tally::PromptTokens,
        Tally::CachedTokens,
        Tally::GeneratedTokens,
        Tally::PrefixQueries,
        Tally::PrefixHits,
        Tally::Iterations,
        Tally::IterationTokens,
        Tally::PrefillSeconds,
    ];
    let gauges = [Gauge::QueuedPromptTokens, Gauge::KvUsage, Gauge::KvCapacityTokens];
    signals
        .into_iter()
        .chain(tallies.map(|name| (name.as_str(), tally(name))))
        .chain([("acceptance", tally(Tally::Drafts) || tally(Tally::AcceptedTokens))])
        // A front end that cannot tell the two apart says what they come to.
        .chain([Gauge::Running, Gauge::Waiting].map(|name| (name.as_str(), gauge(name) || gauge(Gauge::InFlight))))
        .chain(gauges.map(|name| (name.as_str(), gauge(name))))
        .chain([("workers", any(&|sample| !sample.workers.is_empty()))])
        .chain([("process_start", any(&|sample| sample.process_start.is_some()))])
        .filter_map(|(name, found)| (!found).then_some(name))
        .collect()
}
