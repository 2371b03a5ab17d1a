//! What do this round's samples say about the window? Targets in, a windowed observation out.
//!
//! Two things happen here. [`take_in`] runs every round: it brings each target's window up to date and notes what spoils the window.
//! [`observe`] runs at a decision: it adds up the targets' windows.
//!
//! Silent targets. The sum over the targets that answered is what the data support; it is too small by what the silent ones served.
//! Dividing by the coverage would double the demand when one of two routers dies and the other takes over its clients. So demand is kept as two
//! numbers: `supported`, what was really seen over the time of the window, and `cautious`, with every silent target at its own last rate or
//! the average of the others, whichever is more. A decision rises only to what is supported and falls only to what is cautious
//! (`bound.rs`). At full coverage both are the same number.
//!
//! | window 180 s, two routers at 2 requests/s each | supported | cautious | coverage |
//! |---|---|---|---|
//! | both answer | 4 | 4 | 1 |
//! | one silent since the window began | 2 | 4 | 0.5 |
//! | one silent, the other now serves 4 | 4 | 6 or less | 0.5 |
//!
//! A target counts as covered by the share of the window that its own two samples span, and fully from nine tenths on: one missed round
//! at an end of a long window says nothing about the fleet. One that came or left during the window is measured against the time in which it
//! was listed, and what it served counts over the whole window, since others served the rest (`sum.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::input::{Gauge, ItlBasis, ModelInput, Reading, Signal, SourceId, SourceInput, Tally};
use super::memory::{Memory, SourceMemory, WindowMemory};
use super::plan::{Observation, Reason, SourceState, Warning};
use super::policy::{ChangeRule, ModelPolicy, PoolPolicy, Preset, Statistic};
use super::quantile;
use super::sum::{Span, Sum};
use super::window::{Buckets, Delta, Growth};
use crate::units::{Moment, PoolId, Positive, Ratio, Requests, RequestsPerSecond, Role, Seconds, TargetId, Tokens};

/// From this share of the window on, a target's window counts as whole.
pub const WHOLE_SHARE: f64 = 0.9;

/// Below this coverage nothing is decided; from here on a recommendation may rise (planning.md 1.1).
pub const COVERAGE_TO_RAISE: f64 = 0.5;

/// From this coverage on a recommendation may fall (planning.md 1.1).
pub const COVERAGE_TO_LOWER: f64 = 0.9;

/// A jump of the wall clock against the monotonic clock beyond this re-aligns the windows (planning.md 1.1).
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// Failed rounds in a row after which a target is down and not merely late.
const ROUNDS_TO_DOWN: u32 = 2;

/// A mean TTFT below this was not measured from a request's arrival: no server answers within it.
const SHORTEST_TTFT: f64 = 1e-4;

/// What a round shows, whether or not a decision is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// Why nothing can be seen right now, if so: of some role, no pool shows anything.
    pub blind: Option<Reason>,
    /// Pools that show nothing, each with why, while others of their role may.
    pub blind_pools: BTreeMap<PoolId, Reason>,
    /// Whether a boundary has been passed since the window began.
    pub due: bool,
    /// Whether most targets answer, of each role at one pool at least: deliberate holds renew then.
    pub coverage_good: bool,
    /// Pools of which most targets do not answer.
    pub silent_pools: BTreeSet<PoolId>,
    /// How the sources stand.
    pub sources: Vec<SourceState>,
    /// Jump of the wall clock since the last round.
    pub clock_step: Option<ClockStep>,
}

/// A jump of the wall clock against the monotonic one. Whole nanoseconds, so that following it there and back changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockStep {
    /// The wall clock was set forward.
    Forward(Duration),
    /// The wall clock was set back.
    Back(Duration),
}

/// The window of a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// What people see of it.
    pub observation: Observation,
    /// Demand that the data in hand support.
    pub supported: RequestsPerSecond,
    /// Demand with silent targets at their last or the average rate; not below `supported`.
    pub cautious: RequestsPerSecond,
    /// Whether completions stand for arrivals somewhere, which hides what waits.
    pub censored: bool,
    /// Requests that the servers finished by a counter that needs no optional instrumentation.
    pub finished: f64,
    /// Whether any SLA histogram has ever counted anything.
    pub instrumented: bool,
    /// Coverage by source.
    pub coverage: BTreeMap<SourceId, Ratio>,
    /// Coverage by role: that of its best described source.
    pub role_coverage: BTreeMap<Role, Ratio>,
    /// Arrivals by source.
    pub demand: BTreeMap<SourceId, Demand>,
    /// What the operator should know.
    pub warnings: Vec<Warning>,
}

/// Arrivals a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// That the data in hand support.
    pub supported: RequestsPerSecond,
    /// With silent targets at their last or the average load; not below `supported`.
    pub cautious: RequestsPerSecond,
}

impl Window {
    /// With the arrivals of the next window, which brings `factor` times as many.
    #[must_use]
    pub fn moved_on(mut self, factor: f64) -> Self {
        for demand in self.demand.values_mut() {
            let moved = |rate: RequestsPerSecond| RequestsPerSecond(rate.get() * factor);
            *demand = Demand { supported: moved(demand.supported), cautious: moved(demand.cautious) };
        }
        self
    }

    /// The least coverage of all roles that the decision rests on. Variants of one role are judged one by one, so a silent one lowers nothing here.
    pub fn least_coverage(&self) -> Ratio {
        least(self.role_coverage.values())
    }

    /// Coverage of what a pool is judged by: its own targets, else the traffic source.
    pub fn coverage_of(&self, pool: &PoolId) -> Ratio {
        let own = self.coverage.get(&SourceId::Pool(pool.clone())).or_else(|| self.coverage.get(&SourceId::Traffic));
        own.copied().unwrap_or_else(|| self.least_coverage())
    }
}

fn least<'a>(coverages: impl Iterator<Item = &'a Ratio>) -> Ratio {
    coverages.copied().fold(Ratio(1.0), |least, next| if next < least { next } else { least })
}

/// The sources that the window is measured at: the traffic source where there is one, else the pools themselves.
pub fn measured_at(policy: &ModelPolicy, input: &ModelInput) -> Vec<SourceId> {
    if input.sources.iter().any(|source| source.source == SourceId::Traffic) {
        return vec![SourceId::Traffic];
    }
    policy.pools.iter().map(|pool| SourceId::Pool(pool.pool.clone())).collect()
}

/// Brings memory up to date with one round of samples.
pub fn take_in(memory: &mut Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> Round {
    let slot = slot_of(now, policy.interval);
    let clock_step = memory.last_round.and_then(|last| clock_step(last, now));
    memory.last_round = Some(now);

    let measured = measured_at(policy, input);
    let mut sources = Vec::new();
    let mut spoiled = None;
    for source in &input.sources {
        let rule = change_rule(policy, &source.source);
        let (state, cause) = take_in_source(memory, source, rule, now);
        sources.push(state);
        if measured.contains(&source.source) && rule == ChangeRule::SkipWindow {
            spoiled = spoiled.or(cause);
        }
    }
    memory.sources.retain(|known| input.sources.iter().any(|source| source.source == known.source));

    let anything_seen = memory.sources.iter().any(|source| source.targets.values().any(|target| target.first.is_some()));
    let mut due = false;
    match &mut memory.window {
        None if anything_seen => memory.window = Some(WindowMemory { started: now, slot, spoiled: None, realigned: false }),
        None => {}
        Some(_) if clock_step.is_some() => begin_window(memory, policy, now, true),
        Some(window) => {
            window.spoiled = window.spoiled.or(spoiled);
            due = window.slot != slot;
        }
    }

    let answers = |id: &SourceId| {
        sources.iter().find(|state| state.source == *id).is_some_and(|state| {
            let known = state.up + state.stale + state.down;
            known > 0 && f64::from(state.up + state.stale) >= COVERAGE_TO_RAISE * f64::from(known)
        })
    };
    let coverage_good = by_role(policy, &measured).values().all(|ids| ids.iter().any(&answers));
    let silent = |id: &SourceId| if let SourceId::Pool(pool) = id { Some(pool.clone()).filter(|_| !answers(id)) } else { None };
    let silent_pools = measured.iter().filter_map(silent).collect();
    Round {
        blind: blind(memory, input, policy),
        blind_pools: blind_pools(memory, input, policy),
        due,
        coverage_good,
        silent_pools,
        sources,
        clock_step,
    }
}

/// The measured sources of each role.
fn by_role(policy: &ModelPolicy, measured: &[SourceId]) -> BTreeMap<Role, Vec<SourceId>> {
    let mut roles: BTreeMap<Role, Vec<SourceId>> = BTreeMap::new();
    measured.iter().for_each(|id| roles.entry(role_of(policy, id)).or_default().push(id.clone()));
    roles
}

fn role_of(policy: &ModelPolicy, id: &SourceId) -> Role {
    match id {
        SourceId::Traffic => Role::Aggregated,
        SourceId::Pool(name) => policy.pools.iter().find(|pool| pool.pool == *name).map_or(Role::Aggregated, |pool| pool.role),
    }
}

/// Why nothing can be decided: every source of some role is blind. One of several is not enough for that.
fn blind(memory: &Memory, input: &ModelInput, policy: &ModelPolicy) -> Option<Reason> {
    by_role(policy, &measured_at(policy, input)).values().find_map(|ids| {
        let reasons: Option<Vec<Reason>> = ids.iter().map(|id| blindness(memory, input, id)).collect();
        reasons?.first().copied()
    })
}

/// The variants that show nothing in this round: pools of a role that has others as well, whose own targets are scraped.
pub fn blind_pools(memory: &Memory, input: &ModelInput, policy: &ModelPolicy) -> BTreeMap<PoolId, Reason> {
    let measured = measured_at(policy, input);
    let is_variant = |role: Role| policy.pools.iter().filter(|pool| pool.role == role).count() > 1;
    let reason = |pool: &PoolPolicy| {
        let id = SourceId::Pool(pool.pool.clone());
        let scraped = measured.contains(&id) || input.sources.iter().any(|source| source.source == id);
        Some((pool.pool.clone(), blindness(memory, input, &id).filter(|_| scraped)?))
    };
    policy.pools.iter().filter(|pool| is_variant(pool.role)).filter_map(reason).collect()
}

/// What a changed list or a restart does to the window. The policy's rule is about routers, which come and go seldom; replicas come and go
/// with every recommendation that is followed, and a window skipped for each of them would make the planner blind whenever it acts.
fn change_rule(policy: &ModelPolicy, source: &SourceId) -> ChangeRule {
    if *source == SourceId::Traffic { policy.traffic_change } else { ChangeRule::Tolerate }
}

/// The longest window that a decision may rest on: two intervals, so that one missed round loses nothing, and some room for late rounds.
/// A longer one would average over a world that is gone.
pub fn longest_window(policy: &ModelPolicy) -> Duration {
    policy.interval.mul_f64(2.0 / WHOLE_SHARE)
}

/// Starts the next window at each target's last good sample, if that is not older than one interval.
pub fn begin_window(memory: &mut Memory, policy: &ModelPolicy, now: Moment, realigned: bool) {
    memory.sources.iter_mut().for_each(|source| source.departed.clear());
    for target in memory.sources.iter_mut().flat_map(|source| source.targets.values_mut()) {
        target.restart(now.monotonic, policy.interval.div_f64(WHOLE_SHARE));
    }
    memory.window = Some(WindowMemory { started: now, slot: slot_of(now, policy.interval), spoiled: None, realigned });
}

/// Number of the interval that holds `now`: decisions are due where it changes.
pub fn slot_of(now: Moment, interval: Duration) -> u64 {
    // Both are whole nanoseconds; an interval is not zero by the policy's invariant, and `max` keeps that a fact of this line.
    u64::try_from(now.wall.as_nanos() / interval.as_nanos().max(1)).unwrap_or(u64::MAX)
}

fn clock_step(last: Moment, now: Moment) -> Option<ClockStep> {
    // Both sides are sums, so that no difference can fall below zero.
    let found = now.wall.saturating_add(last.monotonic);
    let expected = last.wall.saturating_add(now.monotonic);
    let step = if found >= expected { ClockStep::Forward(found - expected) } else { ClockStep::Back(expected - found) };
    let (ClockStep::Forward(by) | ClockStep::Back(by)) = step;
    (by > CLOCK_STEP).then_some(step)
}

/// One source's round; also says what spoils the window there.
fn take_in_source(memory: &mut Memory, input: &SourceInput, rule: ChangeRule, now: Moment) -> (SourceState, Option<Reason>) {
    let window_started = memory.window.map(|window| window.started);
    let index = memory.sources.iter().position(|known| known.source == input.source);
    let known_before = index.is_some();
    let known = index.map(|index| memory.sources.swap_remove(index));
    let (mut targets, mut departed) = known.map(|known| (known.targets, known.departed)).unwrap_or_default();
    let lifetime_began = window_started.map_or(now.monotonic, |started| started.monotonic);

    let listed: BTreeSet<&TargetId> = input.targets.iter().map(|reading| &reading.target).collect();
    let changed = known_before && (listed.len() != targets.len() || !targets.keys().all(|target| listed.contains(target)));
    let left = targets.extract_if(.., |target, _| !listed.contains(target));
    departed.extend(left.filter_map(|(_, target)| target.departs(lifetime_began, now.monotonic)));

    let mut state = SourceState { source: input.source.clone(), up: 0, stale: 0, down: 0, resets: Vec::new() };
    for reading in &input.targets {
        let is_new = !targets.contains_key(&reading.target);
        let target = targets.entry(reading.target.clone()).or_default();
        if is_new && known_before {
            target.known_from = Some(now.monotonic);
        }
        match &reading.reading {
            Reading::Sample(sample) => {
                state.up += 1;
                let born = age_if_born_inside(sample.process_start, window_started.filter(|_| is_new && known_before), now, reading.at);
                if target.record(reading.at, sample, rule, born) {
                    state.resets.push(reading.target.clone());
                }
            }
            Reading::Failed(_) => {
                target.miss();
                if target.failures < ROUNDS_TO_DOWN && target.last.is_some() { state.stale += 1 } else { state.down += 1 }
            }
        }
    }
    let spoiled = match (changed, state.resets.is_empty()) {
        (true, _) => Some(Reason::MembershipChanged),
        (false, false) => Some(Reason::CounterReset),
        (false, true) => None,
    };
    memory.sources.push(SourceMemory { source: input.source.clone(), targets, departed });
    memory.sources.sort_by(|a, b| a.source.cmp(&b.source));
    (state, spoiled)
}

/// The process's age at `at`, which is before `now` where somebody else took the sample.
fn age_if_born_inside(process_start: Option<f64>, window_started: Option<Moment>, now: Moment, at: Duration) -> Option<Duration> {
    let (start, window) = (process_start?, window_started?);
    let seen = now.wall.saturating_sub(now.monotonic.saturating_sub(at));
    let age = Duration::try_from_secs_f64(seen.as_secs_f64() - start).ok()?;
    (start >= window.wall.as_secs_f64()).then_some(age)
}

/// Why a source that the window needs shows nothing at all in this round.
fn blindness(memory: &Memory, input: &ModelInput, id: &SourceId) -> Option<Reason> {
    let source = input.sources.iter().find(|source| source.source == *id);
    let Some(source) = source.filter(|source| !source.targets.is_empty()) else {
        return Some(match source {
            Some(source) if source.discovery_failed => Reason::DiscoveryFailed,
            _ => Reason::NoTargets,
        });
    };
    let silent = |reading: &TargetId| {
        let target = memory.source(id).and_then(|known| known.targets.get(reading));
        // One missed round after a good window is late, not down.
        target.is_none_or(|target| target.failures >= ROUNDS_TO_DOWN || (target.failures > 0 && target.delta().is_none()))
    };
    source.targets.iter().all(|reading| silent(&reading.target)).then_some(Reason::AllTargetsDown)
}

/// Adds up the targets' windows. `None` where no target has one yet.
pub fn observe(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, now: Moment) -> Option<Window> {
    let measured = measured_at(policy, input);
    let window = Span { began: memory.window.map_or(now.monotonic, |window| window.started.monotonic), ended: now.monotonic };
    let sums: Vec<_> = memory
        .sources
        .iter()
        .filter(|source| measured.contains(&source.source))
        .map(|source| (role_of(policy, &source.source), Sum::over(source, window, longest_window(policy))))
        .collect();
    let described = |role: Role| sums.iter().any(|(other, sum)| *other == role && sum.described > 0);
    if sums.is_empty() || sums.iter().any(|(role, _)| !described(*role)) {
        return None;
    }
    // Where prefill and decode are measured apart, each phase's facts come from the pool that sees it: a prefill server finishes every
    // request with one token, and a decode server's first token only waits for the KV cache (facts/engines.md 1).
    let first = pick(&sums, Role::Prefill)?;
    let rest = pick(&sums, Role::Decode)?;
    Some(assemble(&first, &rest, memory, &sums, policy))
}

/// Whether idleness was seen (planning.md 1.6): a window that describes the fleet, in which nothing ended or arrived, and servers that say of
/// themselves that nothing runs or waits. What they do not say is not known to be zero.
pub fn is_idle(memory: &Memory, input: &ModelInput, policy: &ModelPolicy, window: &Window) -> bool {
    let nothing = window.finished == 0.0
        && window.observation.requests.is_some_and(|requests| requests.get() == 0.0)
        && window.observation.offered_requests.is_some_and(|requests| requests.get() == 0.0);
    let measured = measured_at(policy, input);
    let mut targets = memory.sources.iter().filter(|source| measured.contains(&source.source)).flat_map(|source| source.targets.values());
    let rests = |target: &super::window::TargetWindow| {
        let known: Vec<f64> =
            [Gauge::Running, Gauge::Waiting, Gauge::InFlight].into_iter().filter_map(|one| target.last_gauge(one)).collect();
        !known.is_empty() && known.iter().all(|value| *value == 0.0)
    };
    // Who cannot be seen may be at work.
    nothing && least(window.coverage.values()).get() >= COVERAGE_TO_LOWER && targets.all(rests)
}

/// The sum of the role's own sources, or of those that see whole requests; of the other role's where nothing else is measured, since a pool may be
/// planned alone.
fn pick(sums: &[(Role, Sum)], role: Role) -> Option<Sum> {
    let of = |wanted: Role| {
        let mut own = sums.iter().filter(|(role, _)| *role == wanted).map(|(_, sum)| sum);
        let first = own.next()?.clone();
        Some(own.fold(first, Sum::with))
    };
    let other = if role == Role::Prefill { Role::Decode } else { Role::Prefill };
    of(role).or_else(|| of(Role::Aggregated)).or_else(|| of(other))
}

fn assemble(first: &Sum, rest: &Sum, memory: &Memory, sums: &[(Role, Sum)], policy: &ModelPolicy) -> Window {
    let mut warnings = BTreeSet::new();
    let ttft = first.total.histograms.get(&Signal::Ttft);
    let itl = rest.total.histograms.get(&Signal::Itl);
    let mut describe = |growth: Option<&Growth>, mean: Option<f64>, objective: Positive| {
        if growth.is_some_and(|growth| growth.buckets == Buckets::Unusable) {
            warnings.insert(Warning::BucketsUnusable);
        }
        let buckets = growth.and_then(|growth| match &growth.buckets {
            Buckets::Known(buckets) => Some((buckets.as_slice(), growth.count)),
            _ => None,
        });
        let mut statistics = BTreeMap::new();
        for statistic in Statistic::ALL {
            let value = match statistic.quantile() {
                None => mean,
                Some(quantile) => buckets.and_then(|(buckets, count)| quantile::quantile(buckets, count, quantile)),
            };
            statistics.extend(value.and_then(plausible).map(|value| (statistic, Seconds(value))));
        }
        let attainment = buckets.and_then(|(buckets, count)| quantile::share_within(buckets, count, objective.get()));
        (statistics, attainment.and_then(plausible).map(Ratio))
    };
    let (ttft_statistics, ttft_attainment) = describe(ttft, mean_of(ttft), policy.slo.ttft);
    let (itl_statistics, itl_attainment) = describe(itl, mean_itl(&rest.total), policy.slo.itl);

    let requests = plausible(rest.total.completed()).map(Requests);
    // Preset infera plans completions (planning.md 1.5).
    let completions = policy.preset == Preset::Infera;
    let alternates = memory.sources.iter().any(|source| source.targets.values().any(|target| target.alternates));
    if alternates {
        warnings.insert(Warning::LoadBalancedTarget);
    }
    let observation = Observation {
        elapsed_seconds: rest.elapsed(),
        requests,
        offered_requests: if completions { requests } else { plausible(rest.offered * rest.elapsed().get()).map(Requests) },
        requests_per_second: plausible(rest.supported).map(RequestsPerSecond),
        estimated_requests_per_second: plausible(rest.cautious).map(RequestsPerSecond),
        input_tokens: mean_of(first.total.histograms.get(&Signal::PromptTokens)).and_then(plausible).map(Tokens),
        output_tokens: mean_of(rest.total.histograms.get(&Signal::OutputTokens)).and_then(plausible).map(Tokens),
        ttft_seconds: ttft_statistics.get(&policy.slo.statistic).copied().filter(|ttft| ttft.get() >= SHORTEST_TTFT),
        itl_seconds: itl_statistics.get(&policy.slo.statistic).copied(),
        ttft_statistics,
        itl_statistics,
        ttft_attainment,
        itl_attainment,
    };
    let coverage = sums.iter().map(|(_, sum)| (sum.source.clone(), sum.coverage)).collect();
    let mut role_coverage = BTreeMap::new();
    for (role, sum) in sums {
        let best: &mut Ratio = role_coverage.entry(*role).or_insert(sum.coverage);
        *best = if sum.coverage > *best { sum.coverage } else { *best };
    }
    Window {
        observation,
        supported: RequestsPerSecond(if completions { rest.supported } else { rest.offered }),
        cautious: RequestsPerSecond(if completions { rest.cautious } else { rest.offered_cautious }),
        censored: rest.censored && !completions,
        finished: rest.total.tallies.get(&Tally::Finished).copied().unwrap_or(0.0),
        instrumented: memory.sources.iter().any(SourceMemory::instrumented),
        coverage,
        role_coverage,
        demand: sums.iter().map(|(_, sum)| (sum.source.clone(), demand(sum))).collect(),
        warnings: warnings.into_iter().collect(),
    }
}

fn demand(sum: &Sum) -> Demand {
    Demand { supported: RequestsPerSecond(sum.offered), cautious: RequestsPerSecond(sum.offered_cautious) }
}

/// Counters near the end of the number range overflow when they are added up; what comes of that is not known rather than infinite.
fn plausible(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

pub(super) fn mean_of(growth: Option<&Growth>) -> Option<f64> {
    growth.filter(|growth| growth.count > 0.0).map(|growth| growth.sum / growth.count)
}

/// Mean time between tokens. An engine that observes output events carries several tokens in one under speculative decoding; there the time is
/// divided by the tokens that came after each request's first, where the engine counts them. A duration of whole requests is no ITL.
pub(super) fn mean_itl(total: &Delta) -> Option<f64> {
    if total.itl_basis == ItlBasis::WholeRequest {
        return None;
    }
    let growth = total.histograms.get(&Signal::Itl)?;
    if total.itl_basis == ItlBasis::PerEvent
        && let Some(tokens) = total.tallies.get(&Tally::GeneratedTokens)
        && let later_tokens = tokens - total.count(Signal::Ttft)
        && growth.count > 0.0
        && growth.count <= later_tokens
    {
        return Some(growth.sum / later_tokens);
    }
    mean_of(Some(growth))
}

impl SourceMemory {
    /// Whether a histogram of any target has ever counted anything.
    fn instrumented(&self) -> bool {
        let last = self.targets.values().filter_map(|target| target.last.as_ref());
        last.flat_map(|last| last.sample.histograms.iter())
            .filter(|(signal, _)| **signal != Signal::RequestDuration)
            .any(|(_, series)| series.values().any(|histogram| histogram.count > 0.0))
    }
}

/// Keeps each target's rate for windows in which it is silent. The few seconds before a target fell silent do not replace the rate of a whole
/// window: they may hold no request at all, or a burst.
pub fn remember_rates(memory: &mut Memory, now: Moment) {
    let least = memory.window_elapsed(now).mul_f64(WHOLE_SHARE);
    for target in memory.sources.iter_mut().flat_map(|source| source.targets.values_mut()) {
        let completions = target.delta_of(&[Signal::OutputTokens], &[Tally::Finished]);
        let delta = completions.filter(|delta| delta.elapsed >= least || target.last_rate.is_none());
        let rate = delta.and_then(|delta| plausible(delta.completed() / delta.elapsed.as_secs_f64()));
        target.last_rate = rate.map(RequestsPerSecond).or(target.last_rate);
    }
}
