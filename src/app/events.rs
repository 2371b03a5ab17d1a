//! What changed in a round that people should hear of? Plans and target statuses before and after in, events for the log out.

use std::collections::{BTreeMap, BTreeSet};

use super::quiet::Notice;
use crate::decisions::{Decision, DecisionId, PoolChange};
use crate::export::snapshot::TargetStatus;
use crate::planner::lint::Violation;
use crate::planner::plan::{LoopDecision, Missing, Plan, PoolPlan, Reason};
use crate::units::{ModelId, PoolId, Replicas, TargetId};

/// A change that the log tells people about.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// What is published for a pool changed.
    Recommendation {
        /// Which pool.
        pool: PoolId,
        /// Before; `None` where nothing was published.
        before: Option<Replicas>,
        /// After.
        after: Option<Replicas>,
        /// Why; `None` for a pool that is no longer planned.
        reason: Option<Reason>,
        /// Which decision changed it.
        decision: DecisionId,
    },
    /// Nobody has acknowledged a decision in time.
    Unacknowledged(Decision),
    /// A model's verdict changed.
    Verdict {
        /// Which model.
        model: ModelId,
        /// Before.
        before: Reason,
        /// After.
        after: Reason,
        /// What the pools miss now, in words; empty where nothing.
        missing: String,
    },
    /// A pool is held, or missing something, while its model goes on.
    Pool {
        /// Which pool.
        pool: PoolId,
        /// Why it was held before; `None` where it was not.
        before: Option<Reason>,
        /// Why it is held now.
        after: Option<Reason>,
        /// What it misses now, in words; empty where nothing.
        missing: String,
    },
    /// A decision has warnings.
    Warnings {
        /// Which model.
        model: ModelId,
        /// Their sentences.
        warnings: Vec<&'static str>,
    },
    /// A finished plan broke a rule and was not used.
    Violation {
        /// Which model.
        model: ModelId,
        /// What was broken.
        violation: Violation,
    },
    /// What is wrong with a target changed; `None` once nothing is.
    Target {
        /// Which target.
        target: TargetId,
        /// In words.
        problem: Option<String>,
    },
    /// More was wrong with the targets of a source than the log tells one by one.
    Targets {
        /// Whose targets.
        source: String,
        /// Changes that were not told.
        untold: u32,
    },
    /// A model that the targets name cannot be planned.
    Unplannable {
        /// Which model.
        model: ModelId,
        /// Why.
        problem: String,
    },
}

/// What decisions changed.
pub(super) fn recommendations(made: &[Decision]) -> Vec<Event> {
    let pools = made.iter().flat_map(|decision| decision.pools.iter().map(move |pool| (decision.id, pool)));
    let changed = pools.filter(|(_, pool)| pool.before != pool.after);
    let event = |(decision, pool): (DecisionId, &PoolChange)| Event::Recommendation {
        pool: pool.pool.clone(),
        before: pool.before,
        after: pool.after,
        reason: pool.reason,
        decision,
    };
    changed.map(event).collect()
}

/// What else a plan changed.
pub(super) fn changes(before: &Plan, after: &Plan) -> Vec<Event> {
    let mut events = Vec::new();
    if before.reason != after.reason {
        // Pools often miss the same.
        let missing: BTreeSet<String> = after.pools.iter().flat_map(|pool| &pool.missing).map(Missing::sentence).collect();
        let missing = missing.into_iter().collect::<Vec<_>>().join(" ");
        events.push(Event::Verdict { model: after.model.clone(), before: before.reason, after: after.reason, missing });
    }
    events.extend(after.pools.iter().filter_map(|pool| {
        let (old, new) = (own_hold(before, before.pool(&pool.pool)?), own_hold(after, pool));
        let words = |pool: &PoolPlan| pool.missing.iter().map(Missing::sentence).collect::<Vec<_>>().join(" ");
        // Whose page lacks it may be another target in every round.
        let what = |pool: &PoolPlan| pool.missing.iter().map(|missing| missing.what).collect::<Vec<_>>();
        let misses_else = new.is_some() && before.pool(&pool.pool).map(what) != Some(what(pool));
        (old != new || misses_else).then(|| Event::Pool { pool: pool.pool.clone(), before: old, after: new, missing: words(pool) })
    }));
    // The fast loop decides every few seconds; what it repeats is said once.
    let repeated = after.pools.iter().any(|pool| pool.fast_loop != LoopDecision::Wait) && before.warnings == after.warnings;
    if after.decided && !repeated && !after.warnings.is_empty() {
        let warnings = after.warnings.iter().map(|warning| warning.meaning()).collect();
        events.push(Event::Warnings { model: after.model.clone(), warnings });
    }
    events
}

/// Why a pool is held while its model is not, or for another reason. What the operator decreed is no news.
fn own_hold(plan: &Plan, pool: &PoolPlan) -> Option<Reason> {
    (pool.overridden.is_none() && pool.held && pool.reason != plan.reason).then_some(pool.reason)
}

/// Targets whose problem is of another kind than in the last round. A problem that only says the same with other numbers is no news.
pub(super) fn new_problems(before: &[TargetStatus], after: &[TargetStatus]) -> Vec<Notice> {
    let known: BTreeMap<&TargetId, &Option<String>> = before.iter().map(|status| (&status.target, &status.problem)).collect();
    let kind = |problem: &Option<String>| problem.as_deref().map(|text| text.split(':').next().unwrap_or_default().to_owned());
    let changed = after.iter().filter(|status| kind(known.get(&status.target).copied().unwrap_or(&None)) != kind(&status.problem));
    let notice =
        |status: &TargetStatus| Notice { pool: status.pool.clone(), target: status.target.clone(), problem: status.problem.clone() };
    changed.map(notice).collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;
    use crate::planner::hold;
    use crate::planner::input::*;
    use crate::planner::memory::Memory;
    use crate::planner::plan::Capability;
    use crate::planner::policy::*;
    use crate::units::{Moment, Positive, Role};

    /// A plan of two pools that are computed.
    fn plan() -> Plan {
        let pool = |name: &str, role| PoolPolicy {
            pool: PoolId::from(name),
            role,
            gpus_per_replica: None,
            cost: None,
            accelerator: None,
            limits: Limits::new(Replicas(1), Replicas(8)).unwrap(),
            replicas_from: ReplicasFrom::Targets,
            targets_per_replica: NonZeroU32::MIN,
            capabilities: Capabilities::default(),
            pin: None,
        };
        let one = Positive::new(1.0).unwrap();
        let policy = ModelPolicy {
            model: ModelId::from("m"),
            preset: Preset::Dynamo,
            mode: Mode::Publish,
            slo: Slo { ttft: one, itl: one, statistic: Statistic::Mean, explicit: false },
            interval: Duration::from_secs(180),
            scrape_interval: Duration::from_secs(5),
            hold_for: Duration::from_secs(600),
            capacity: CapacityModel::Unknown,
            load: None,
            auto: None,
            warm_up: Duration::from_secs(120),
            predictor: None,
            correction: false,
            growth: GrowthRule::TimesObserved(NonZeroU32::MIN),
            step_down: None,
            transition_timeout: None,
            gpus: GpuBand::default(),
            priority: 0,
            regression: None,
            traffic_change: ChangeRule::Tolerate,
            pools: vec![pool("p", Role::Prefill), pool("d", Role::Decode)],
        };
        let now = Moment { monotonic: Duration::ZERO, wall: Duration::from_secs(1_800_000_000) };
        let (mut plan, _) = hold(&ModelInput::of(Vec::new()), Memory::default(), &policy, now, Reason::Baseline);
        (plan.reason, plan.held) = (Reason::None, false);
        plan.pools.iter_mut().for_each(|pool| (pool.reason, pool.held) = (Reason::None, false));
        plan
    }

    fn held(reason: Reason, lacks: &[(Capability, &str)]) -> Plan {
        let mut plan = plan();
        let missing = |(what, target): &(Capability, &str)| Missing { what: *what, target: Some(TargetId::from(*target)) };
        (plan.pools[0].reason, plan.pools[0].held) = (reason, true);
        plan.pools[0].missing = lacks.iter().map(missing).collect();
        plan
    }

    #[test]
    fn a_pool_that_is_held_alone_is_told_when_that_begins_changes_and_ends() {
        let lacking = |target| held(Reason::MissingCapability, &[(Capability::QueuedPrompts, target)]);
        let words = |what: Capability| format!("{what} at a:1: {}", what.meaning());
        let event = |before, after, missing: Option<Capability>| {
            vec![Event::Pool { pool: PoolId::from("p"), before, after, missing: missing.map(words).unwrap_or_default() }]
        };
        let lost = Some(Reason::MissingCapability);
        assert_eq!(changes(&plan(), &lacking("a:1")), event(None, lost, Some(Capability::QueuedPrompts)));
        assert_eq!(changes(&lacking("a:1"), &lacking("b:1")), [], "another target lacks the same");
        let context = held(Reason::MissingCapability, &[(Capability::ContextLength, "a:1")]);
        assert_eq!(changes(&lacking("a:1"), &context), event(lost, lost, Some(Capability::ContextLength)));
        assert_eq!(changes(&context, &held(Reason::NoTargets, &[])), event(lost, Some(Reason::NoTargets), None));
        assert_eq!(changes(&held(Reason::NoTargets, &[]), &plan()), event(Some(Reason::NoTargets), None, None));
        assert_eq!(changes(&plan(), &plan()), []);
    }

    #[test]
    fn a_hold_of_the_whole_model_is_its_verdict_and_names_what_is_missing() {
        let mut whole = held(Reason::MissingCapability, &[(Capability::KvUsage, "a:1")]);
        (whole.reason, whole.held) = (Reason::MissingCapability, true);
        (whole.pools[1].reason, whole.pools[1].held) = (Reason::MissingCapability, true);
        let missing = format!("kv_usage at a:1: {}", Capability::KvUsage.meaning());
        let verdict = Event::Verdict { model: ModelId::from("m"), before: Reason::None, after: Reason::MissingCapability, missing };
        assert_eq!(changes(&plan(), &whole), [verdict]);
    }

    #[test]
    fn a_problem_is_news_when_it_is_of_another_kind() {
        let status = |problem: Option<&str>| TargetStatus {
            target: TargetId::from("a:1"),
            pool: None,
            role: None,
            engine: String::new(),
            up: false,
            duration: Duration::ZERO,
            missing: Vec::new(),
            problem: problem.map(str::to_owned),
        };
        let told = |before, after| new_problems(&[status(before)], &[status(after)]).len();
        assert_eq!(told(Some("timeout: after 4 s"), Some("timeout: after 5 s")), 0);
        assert_eq!(told(Some("timeout: after 4 s"), Some("connect: refused")), 1);
        assert_eq!((told(None, Some("status: 500")), told(Some("status: 500"), None), told(None, None)), (1, 1, 0));
    }
}
