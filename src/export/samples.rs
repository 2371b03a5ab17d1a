//! How does a snapshot read as samples? One pass over models, pools and targets, every family by its catalogue record.
//!
//! All series come from the snapshot, so those of a pool, model or target that is gone end with the next round. A number that is not
//! known has no series; a number that is not finite or is negative never leaves this file.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use super::catalog::{self, Family, Kind};
use super::process::ProcessUse;
use super::served::{decision_as_served, served};
use super::snapshot::{ModelSnapshot, Snapshot, SourceLabels, TargetStatus};
use crate::decisions::Decision;
use crate::planner::input::{FailureKind, NEEDED, SourceId};
use crate::planner::plan::{
    Latencies, Limit, LoopDecision, Outcome, OverrideKind, PhaseState, Plan, PoolPlan, Proposer, Reason, SourceState,
};
use crate::planner::policy::{CapacityModel, PoolPolicy};
use crate::units::{Moment, Ratio, Replicas, Seconds};

/// All families that the snapshot gives at `now`, in the order of the catalogue, without empty ones.
pub fn families(snapshot: &Snapshot, now: Moment) -> Vec<MetricFamily> {
    let mut samples = Samples::default();
    for model in &snapshot.models {
        samples.model(model);
        samples.decisions(snapshot, model);
        samples.acknowledgement(snapshot, model, now);
        samples.sources(snapshot, model);
        for pool in &model.plan.pools {
            samples.pool(snapshot, model, pool, now);
        }
    }
    if snapshot.targets.len() <= snapshot.max_target_series {
        snapshot.targets.iter().for_each(|target| samples.target(target));
    }
    samples.exporter(snapshot);
    samples.finish()
}

/// The families about this process.
pub fn process_families(process: &ProcessUse) -> Vec<MetricFamily> {
    let mut samples = Samples::default();
    for (family, value) in [
        (&catalog::PROCESS_CPU, process.cpu_seconds),
        (&catalog::PROCESS_RESIDENT_MEMORY, process.resident_bytes),
        (&catalog::PROCESS_VIRTUAL_MEMORY, process.virtual_bytes),
        (&catalog::PROCESS_OPEN_FDS, process.open_fds),
        (&catalog::PROCESS_MAX_FDS, process.max_fds),
    ] {
        samples.put(family, &[], value);
    }
    samples.finish()
}

/// The recommendation of one pool as a family without labels.
pub fn bare_recommendation(replicas: Replicas) -> MetricFamily {
    let family = &catalog::RECOMMENDED_REPLICAS;
    assemble(family, vec![metric(family.kind, Vec::new(), replicas.as_f64())])
}

/// A value that consumers can bear: finite and not below zero. Minus zero becomes zero.
fn publishable(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value + 0.0)
}

/// Values by label values, by family: sorted, and each series once.
#[derive(Default)]
struct Samples(BTreeMap<&'static str, BTreeMap<Vec<String>, f64>>);

impl Samples {
    /// Adds a series; the labels are those of the family's level and then its own. Nothing for a value that is not known.
    fn put(&mut self, family: &'static Family, labels: &[&str], value: impl Into<Option<f64>>) {
        debug_assert_eq!(labels.len(), family.label_names().count(), "labels of {}", family.short);
        let Some(value) = value.into() else { return };
        let publishable = publishable(value);
        debug_assert!(publishable.is_some(), "{} would be {value}", family.short);
        let Some(value) = publishable else { return };
        let key = labels.iter().map(|&label| label.to_owned()).collect();
        self.0.entry(family.short).or_default().entry(key).or_insert(value);
    }

    fn flag(&mut self, family: &'static Family, labels: &[&str], value: impl Into<Option<bool>>) {
        self.put(family, labels, value.into().map(|flag| f64::from(u8::from(flag))));
    }

    fn model(&mut self, model: &ModelSnapshot) {
        let plan = &*model.plan;
        let labels = [plan.model.as_str(), &model.target_namespace];
        let [name, namespace] = labels;
        if plan.has_objectives() {
            let slo = &plan.slo;
            self.put(&catalog::SLO_TTFT, &labels, slo.ttft.get());
            self.put(&catalog::SLO_ITL, &labels, slo.itl.get());
            self.put(&catalog::SLO_INFO, &[name, namespace, plan.slo_source.as_str(), slo.statistic.as_str()], 1.0);
        }
        self.phase([name, namespace, "prompt"], plan.prompt, plan.latency_ratio.prompt);
        self.phase([name, namespace, "generation"], plan.generation, plan.latency_ratio.generation);
        self.estimate([name, namespace, "current"], plan.estimated.current);
        self.estimate([name, namespace, "recommended"], plan.estimated.recommended);
        self.observation(labels, plan);
        for (method, error) in &plan.predictor_errors {
            self.put(&catalog::PREDICTOR_ERROR_RATIO, &[name, namespace, method.name()], error.get());
        }
        if let Some(next) = &plan.prediction {
            self.put(&catalog::PREDICTED_REQUESTS_PER_SECOND, &labels, next.requests_per_second.get());
            self.put(&catalog::PREDICTED_MEAN_INPUT_TOKENS, &labels, next.input_tokens.get());
            self.put(&catalog::PREDICTED_MEAN_OUTPUT_TOKENS, &labels, next.output_tokens.get());
        }
    }

    fn phase(&mut self, labels: [&str; 3], state: PhaseState, ratio: Option<Ratio>) {
        self.put(&catalog::LATENCY_RATIO, &labels, ratio.map(Ratio::get));
        self.flag(&catalog::SLO_MET, &labels, state.met);
        self.flag(&catalog::SLO_ATTAINABLE, &labels, state.attainable);
    }

    fn estimate(&mut self, labels: [&str; 3], latencies: Latencies) {
        self.put(&catalog::ESTIMATED_TTFT, &labels, latencies.ttft_seconds.map(Seconds::get));
        self.put(&catalog::ESTIMATED_ITL, &labels, latencies.itl_seconds.map(Seconds::get));
    }

    fn observation(&mut self, labels: [&str; 2], plan: &Plan) {
        let Some(seen) = &plan.observation else { return };
        let [name, namespace] = labels;
        for (family, statistics) in [(&catalog::OBSERVED_TTFT, &seen.ttft_statistics), (&catalog::OBSERVED_ITL, &seen.itl_statistics)] {
            for (statistic, latency) in statistics {
                self.put(family, &[name, namespace, statistic.as_str()], latency.get());
            }
        }
        let attained = [("prompt", seen.ttft_attainment), ("generation", seen.itl_attainment)];
        for (phase, share) in attained.into_iter().filter(|_| plan.has_objectives()) {
            self.put(&catalog::SLO_ATTAINMENT_RATIO, &[name, namespace, phase], share.map(Ratio::get));
        }
        let elapsed = seen.elapsed_seconds;
        let offered = seen.offered_requests.filter(|_| elapsed.is_positive()).map(|offered| offered.get() / elapsed.get());
        self.put(&catalog::OBSERVED_REQUESTS_PER_SECOND, &labels, seen.requests_per_second.map(|rate| rate.get()));
        self.put(&catalog::OFFERED_REQUESTS_PER_SECOND, &labels, offered);
        self.put(&catalog::OBSERVED_MEAN_INPUT_TOKENS, &labels, seen.input_tokens.map(|tokens| tokens.get()));
        self.put(&catalog::OBSERVED_MEAN_OUTPUT_TOKENS, &labels, seen.output_tokens.map(|tokens| tokens.get()));
    }

    /// Counters of a model's decisions; every member of a closed set has a series from the start.
    fn decisions(&mut self, snapshot: &Snapshot, model: &ModelSnapshot) {
        let (name, namespace) = (model.plan.model.as_str(), model.target_namespace.as_str());
        let key = || (name.to_owned(), namespace.to_owned());
        for &outcome in Outcome::ALL {
            let (name_key, namespace_key) = key();
            let count = snapshot.counters.decisions.get(&(name_key, namespace_key, outcome));
            self.put(&catalog::DECISIONS, &[name, namespace, outcome.as_str()], counted(count));
        }
        for &reason in Reason::ALL.iter().filter(|reason| reason.hold_kind().is_some()) {
            let (name_key, namespace_key) = key();
            let count = snapshot.counters.windows_skipped.get(&(name_key, namespace_key, reason));
            self.put(&catalog::WINDOWS_SKIPPED, &[name, namespace, reason.as_str()], counted(count));
        }
    }

    /// Whether the decision that stands was acted on in time.
    fn acknowledgement(&mut self, snapshot: &Snapshot, model: &ModelSnapshot, now: Moment) {
        let labels = [model.plan.model.as_str(), model.target_namespace.as_str()];
        let of_model = |made: &&Decision| [made.model.as_str(), made.target_namespace.as_str()] == labels;
        let awaited = snapshot.decisions.decisions.iter().find(of_model).filter(|made| made.due.is_some() || made.acknowledged.is_some());
        let awaited = awaited.map(|made| decision_as_served(snapshot, made, now)).filter(|made| !made.is_withdrawn());
        self.flag(&catalog::DECISION_TIMED_OUT, &labels, awaited.map(|made| made.is_timed_out(now)));
    }

    /// Counters of the scrapes of a model's sources.
    fn sources(&mut self, snapshot: &Snapshot, model: &ModelSnapshot) {
        for state in &model.plan.sources {
            let source = source_labels(model, &state.source);
            let role = source.role.map_or("", |role| role.as_str());
            let pool = source.pool.as_ref().map_or("", |pool| pool.as_str());
            let labels = [source.model.as_str(), &source.target_namespace, pool, role];
            for result in std::iter::once(None).chain(FailureKind::ALL.map(Some)) {
                let count = snapshot.counters.scrapes.get(&(source.clone(), result));
                self.put(&catalog::SCRAPES, &extend(labels, result.map_or(catalog::RESULT_OK, FailureKind::as_str)), counted(count));
            }
            self.put(&catalog::TARGET_RESETS, &labels, counted(snapshot.counters.target_resets.get(&source)));
            if let Some((ok, failed)) = snapshot.counters.discovery_refreshes.get(&source) {
                self.put(&catalog::DISCOVERY_REFRESHES, &extend(labels, catalog::RESULT_OK), counted(Some(ok)));
                self.put(&catalog::DISCOVERY_REFRESHES, &extend(labels, catalog::RESULT_FAILED), counted(Some(failed)));
            }
        }
    }

    fn pool(&mut self, snapshot: &Snapshot, model: &ModelSnapshot, pool: &PoolPlan, now: Moment) {
        let plan = &*model.plan;
        let labels = [plan.model.as_str(), &model.target_namespace, pool.pool.as_str(), pool.role.as_str()];
        let recommended = served(snapshot, pool, now).ok();
        self.put(&catalog::RECOMMENDED_REPLICAS, &labels, recommended.map(Replicas::as_f64));
        self.put(&catalog::PLANNED_REPLICAS, &labels, pool.planned_replicas.map(Replicas::as_f64));
        self.put(&catalog::UNBOUNDED_REPLICAS, &labels, pool.unbounded_replicas.map(Replicas::as_f64));
        self.put(&catalog::CURRENT_REPLICAS, &extend(labels, "ready"), pool.current_replicas.map(Replicas::as_f64));
        if let Some(states) = model.replicas.get(&pool.pool) {
            self.put(&catalog::CURRENT_REPLICAS, &extend(labels, "starting"), f64::from(states.starting));
            self.put(&catalog::CURRENT_REPLICAS, &extend(labels, "terminating"), f64::from(states.terminating));
        }
        for (proposer, replicas) in &pool.proposed {
            self.put(&catalog::PROPOSED_REPLICAS, &extend(labels, proposer.as_str()), replicas.as_f64());
        }
        for (proposer, score) in pool.auto.iter().flat_map(|auto| &auto.scores) {
            self.put(&catalog::PROPOSER_ERROR_RATIO, &extend(labels, proposer.as_str()), score.error.get());
            self.put(&catalog::PROPOSER_SHORT_RATIO, &extend(labels, proposer.as_str()), score.short.get());
        }
        self.put(&catalog::GPUS_PER_REPLICA, &labels, f64::from(pool.gpus_per_replica));
        self.put(&catalog::WINDOW_COVERAGE_RATIO, &labels, pool.coverage.map(Ratio::get));
        let followed = recommended.zip(pool.current_replicas).map(|(recommended, current)| recommended == current);
        self.flag(&catalog::RECOMMENDATION_FOLLOWED, &labels, followed);
        self.put(&catalog::STARTUP, &labels, pool.startup.map(Seconds::get));
        self.flag(&catalog::CAPACITY_UNAVAILABLE, &labels, pool.capacity_unavailable);
        self.put(&catalog::RECOMMENDATION_TIMESTAMP, &labels, pool.published.map(|published| published.timestamp.as_secs_f64()));
        self.put(&catalog::RECOMMENDATION_VALID_UNTIL, &labels, pool.published.map(|published| published.valid_until.as_secs_f64()));
        let interval = model.policy.load.map_or(model.policy.interval, |load| load.interval);
        self.put(&catalog::DECISION_INTERVAL, &labels, interval.as_secs_f64());
        let policy = model.policy.pools.iter().find(|policy| policy.pool == pool.pool);
        if let Some(policy) = policy {
            self.limits(labels, policy);
        }
        let accelerator = policy.and_then(|policy| policy.accelerator.as_deref()).unwrap_or_default();
        let engine = model.engines.get(&pool.pool).map_or("", String::as_str);
        let [name, namespace, pool_name, role] = labels;
        self.put(
            &catalog::POOL_INFO,
            &[name, namespace, pool_name, role, engine, accelerator, plan.preset.as_str(), plan.mode.as_str()],
            1.0,
        );
        self.state_sets(labels, pool);
        self.queueing(snapshot, model, pool, labels);
        if let Some(state) = informing_source(plan, pool) {
            for (text, targets) in [("up", state.up), ("down", state.down), ("stale", state.stale)] {
                self.put(&catalog::POOL_TARGETS, &extend(labels, text), f64::from(targets));
            }
        }
        for &limit in Limit::ALL {
            let key = (source_labels(model, &SourceId::Pool(pool.pool.clone())), limit);
            self.put(&catalog::LIMITS_APPLIED, &extend(labels, limit.as_str()), counted(snapshot.counters.limits_applied.get(&key)));
        }
    }

    /// What the queueing model has learned of the pool's replicas.
    fn queueing(&mut self, snapshot: &Snapshot, model: &ModelSnapshot, pool: &PoolPlan, labels: [&str; 4]) {
        if matches!(model.policy.capacity, CapacityModel::Queueing(_)) {
            let source = source_labels(model, &SourceId::Pool(pool.pool.clone()));
            for update in catalog::UPDATES {
                let count = snapshot.counters.queueing_updates.get(&(source.clone(), update));
                self.put(&catalog::QUEUEING_UPDATES, &extend(labels, catalog::update_name(update)), counted(count));
            }
        }
        if let (Some(sized), Some(proposer)) = (&pool.capacity, pool.proposed.keys().find(|proposer| **proposer != Proposer::Load)) {
            let [name, namespace, pool_name, role] = labels;
            let labels = [name, namespace, pool_name, role, proposer.as_str(), catalog::BOUNDS[1]];
            self.put(&catalog::REPLICA_CAPACITY, &labels, sized.requests_per_second.get());
        }
        let Some(trace) = &pool.queueing else { return };
        self.put(&catalog::QUEUEING_ALPHA, &labels, trace.parameters.alpha.get());
        self.put(&catalog::QUEUEING_BETA, &labels, trace.parameters.beta.get());
        self.put(&catalog::QUEUEING_GAMMA, &labels, trace.parameters.gamma.get());
        self.put(&catalog::QUEUEING_NIS, &labels, trace.nis);
        self.put(&catalog::QUEUEING_CONDITION, &labels, trace.condition);
        self.put(&catalog::QUEUEING_UTILIZATION, &labels, trace.utilization.map(Ratio::get));
        if let Some(capacity) = trace.capacity {
            let [name, namespace, pool_name, role] = labels;
            for (bound, rate) in catalog::BOUNDS.into_iter().zip([capacity.lower, capacity.estimate, capacity.upper]) {
                let labels = [name, namespace, pool_name, role, Proposer::Queueing.as_str(), bound];
                self.put(&catalog::REPLICA_CAPACITY, &labels, rate.get());
            }
        }
    }

    fn limits(&mut self, labels: [&str; 4], policy: &PoolPolicy) {
        self.put(&catalog::REPLICAS_MIN, &labels, policy.limits.min().as_f64());
        self.put(&catalog::REPLICAS_MAX, &labels, policy.limits.max().as_f64());
    }

    fn state_sets(&mut self, labels: [&str; 4], pool: &PoolPlan) {
        let [name, namespace, pool_name, role] = labels;
        self.flag(&catalog::RECOMMENDATION_HELD, &labels, pool.held);
        for &reason in Reason::ALL {
            self.flag(&catalog::HOLD_REASON, &extend(labels, reason.as_str()), reason == pool.reason);
        }
        for (which, made) in [("slow", pool.slow_loop), ("fast", pool.fast_loop)] {
            for &decision in LoopDecision::ALL {
                let labels = [name, namespace, pool_name, role, which, decision.as_str()];
                self.flag(&catalog::LOOP_DECISION, &labels, decision == made);
            }
        }
        for &limit in Limit::ALL {
            self.flag(&catalog::LIMIT_ACTIVE, &extend(labels, limit.as_str()), pool.limits_active.contains(&limit));
        }
        for &kind in OverrideKind::ALL {
            self.flag(&catalog::OVERRIDE_ACTIVE, &extend(labels, kind.as_str()), pool.overridden == Some(kind));
        }
    }

    fn target(&mut self, target: &TargetStatus) {
        let name = target.target.as_str();
        self.flag(&catalog::TARGET_UP, &[name], target.up);
        self.put(&catalog::TARGET_SCRAPE_DURATION, &[name], target.duration.as_secs_f64());
        if target.up {
            let missing = target.missing.iter().filter(|role| NEEDED.contains(role)).count();
            self.put(&catalog::TARGET_MISSING_ROLES, &[name], missing as f64);
        }
        let pool = target.pool.as_ref().map_or("", |pool| pool.as_str());
        let role = target.role.map_or("", |role| role.as_str());
        self.put(&catalog::TARGET_INFO, &[name, pool, role, &target.engine], 1.0);
    }

    fn exporter(&mut self, snapshot: &Snapshot) {
        let since_epoch = |time: Duration| time.as_secs_f64();
        self.put(&catalog::LINT_VIOLATIONS, &[], snapshot.counters.lint_violations as f64);
        self.put(&catalog::STATE_WRITE_FAILURES, &[], snapshot.counters.state_write_failures.map(|count| count as f64));
        self.put(&catalog::REPORT_WRITE_FAILURES, &[], snapshot.counters.report_write_failures.map(|count| count as f64));
        self.put(&catalog::GPU_BUDGET, &["all models"], snapshot.gpus.max.map(f64::from));
        for model in &snapshot.models {
            self.put(&catalog::GPU_BUDGET, &[model.policy.model.as_str()], model.policy.gpus.max.map(f64::from));
        }
        self.flag(&catalog::CONFIG_LAST_RELOAD_SUCCESSFUL, &[], snapshot.reload.successful);
        self.put(&catalog::CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP, &[], since_epoch(snapshot.reload.last_success));
        self.put(&catalog::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        self.put(&catalog::PROCESS_START_TIME, &[], since_epoch(snapshot.process_start));
    }

    fn finish(mut self) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        for family in catalog::ALL {
            let Some(series) = self.0.remove(family.short) else { continue };
            let metrics = series.into_iter().map(|(values, value)| metric(family.kind, label_pairs(family, values), value)).collect();
            families.push(assemble(family, metrics));
        }
        families
    }
}

fn counted(count: Option<&u64>) -> f64 {
    count.copied().unwrap_or(0) as f64
}

fn extend<'a>(labels: [&'a str; 4], last: &'a str) -> [&'a str; 5] {
    let [a, b, c, d] = labels;
    [a, b, c, d, last]
}

fn source_labels(model: &ModelSnapshot, source: &SourceId) -> SourceLabels {
    let pool = match source {
        SourceId::Traffic => None,
        SourceId::Pool(pool) => Some(pool.clone()),
    };
    let role = pool.as_ref().and_then(|pool| model.plan.pool(pool)).map(|plan| plan.role);
    SourceLabels { model: model.plan.model.as_str().to_owned(), target_namespace: model.target_namespace.clone(), pool, role }
}

/// The targets that inform a pool: its own, else those of the model's traffic source.
fn informing_source<'a>(plan: &'a Plan, pool: &PoolPlan) -> Option<&'a SourceState> {
    let own = SourceId::Pool(pool.pool.clone());
    let find = |source: &SourceId| plan.sources.iter().find(|state| state.source == *source);
    find(&own).or_else(|| find(&SourceId::Traffic))
}

fn label_pairs(family: &Family, values: Vec<String>) -> Vec<LabelPair> {
    let pair = |(name, value): (&'static str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_owned());
        pair.set_value(value);
        pair
    };
    family.label_names().zip(values).map(pair).collect()
}

fn metric(kind: Kind, labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut metric = Metric::from_label(labels);
    match kind {
        Kind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
    }
    metric
}

fn assemble(family: &Family, metrics: Vec<Metric>) -> MetricFamily {
    let mut assembled = MetricFamily::default();
    assembled.set_name(family.name());
    assembled.set_help(family.help.to_owned());
    assembled.set_field_type(match family.kind {
        Kind::Gauge => MetricType::GAUGE,
        Kind::Counter => MetricType::COUNTER,
    });
    assembled.set_metric(metrics);
    assembled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finite_numbers_from_zero_up_are_publishable() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9] {
            assert_eq!(publishable(value), None, "{value}");
        }
        assert_eq!(publishable(2.5), Some(2.5));
        assert!(publishable(-0.0).is_some_and(f64::is_sign_positive));
    }

    #[test]
    fn a_bare_recommendation_has_one_series_without_labels() {
        let family = bare_recommendation(Replicas(3));
        assert_eq!(family.get_metric().len(), 1);
        assert!(family.get_metric()[0].get_label().is_empty());
        assert_eq!(family.get_metric()[0].get_gauge().get_value().to_bits(), 3.0f64.to_bits());
    }
}
