//! How are many models planned within one round? Each by itself, on as many threads as there are processors, and with the same result in the same
//! order as one after the other: a plan is a function of its own model's input and memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::planner::input::ModelInput;
use crate::planner::lint::{Violation, lint};
use crate::planner::memory::Memory;
use crate::planner::plan::{Plan, Reason};
use crate::planner::policy::ModelPolicy;
use crate::planner::{hold, plan};
use crate::units::Moment;

/// Models for which another thread pays: planning them takes several times as long as starting it.
const LEAST_FOR_A_THREAD: usize = 16;

/// What one model's plan is made from.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub input: &'a ModelInput,
    pub before: &'a Memory,
    pub policy: &'a ModelPolicy,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Planned {
    pub plan: Plan,
    pub after: Memory,
    pub violations: Vec<Violation>,
}

/// Plans all models, in their order.
pub(super) fn plan_all(tasks: &[Task<'_>], now: Moment) -> Vec<Planned> {
    let most = tasks.len() / LEAST_FOR_A_THREAD;
    // How many processors there are takes a look at several files; it is not asked for a few models.
    let threads = if most > 1 { thread::available_parallelism().map_or(1, usize::from).min(most) } else { 1 };
    plan_on(threads, tasks, now)
}

fn plan_on(threads: usize, tasks: &[Task<'_>], now: Moment) -> Vec<Planned> {
    let some = move |tasks: &[Task<'_>]| tasks.iter().map(|task| plan_checked(*task, now)).collect::<Vec<_>>();
    let (first, others) = tasks.split_at(tasks.len().div_ceil(threads.max(1)));
    thread::scope(|scope| {
        let others: Vec<_> = others.chunks(first.len().max(1)).map(|part| scope.spawn(move || some(part))).collect();
        let mut planned = some(first);
        for other in others {
            planned.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        planned
    })
}

/// A plan that passed the planner's own check, or the last good one held. A fault in the arithmetic of one model stays with that model.
fn plan_checked(task: Task<'_>, now: Moment) -> Planned {
    let Task { input, before, policy } = task;
    let violations = match catch_unwind(AssertUnwindSafe(|| plan(input, before.clone(), policy, now))) {
        Ok((plan, after)) => {
            let violations = lint(&plan, policy, before);
            if violations.is_empty() {
                return Planned { plan, after, violations };
            }
            violations
        }
        Err(_) => vec![Violation { pool: None, rule: "planning does not panic" }],
    };
    let (plan, after) = hold(input, before.clone(), policy, now, Reason::LintViolation);
    Planned { plan, after, violations }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::config::{self, Flags, Inputs};
    use crate::planner::input::{Few, Histogram, Reading, Sample, SeriesKey, Signal, SourceId, SourceInput, TargetReading};
    use crate::units::TargetId;

    /// What one server says that has completed so many requests.
    fn input(requests: f64, now: Moment) -> ModelInput {
        let series = |mean: f64| {
            let histogram = Histogram { sum: mean * requests, count: requests, ..Histogram::default() };
            Few::from([(SeriesKey::default(), histogram)])
        };
        let means = [(Signal::Ttft, 0.02), (Signal::Itl, 0.015), (Signal::PromptTokens, 512.0), (Signal::OutputTokens, 128.0)];
        let histograms = means.map(|(signal, mean)| (signal, series(mean))).into();
        let sample = Arc::new(Sample { histograms, ..Sample::default() });
        let reading = TargetReading { target: TargetId::from("a:1"), at: now.monotonic, reading: Reading::Sample(sample) };
        let source = SourceInput { source: SourceId::Traffic, discovery_failed: false, targets: vec![reading], lifecycle: None };
        ModelInput::of(vec![source])
    }

    #[test]
    fn threads_change_neither_a_plan_nor_the_order() {
        let flags = Flags {
            metrics_urls: vec!["http://a:1/metrics".to_owned()],
            preset: Some("wva".to_owned()),
            adjustment_interval: Some(Duration::from_secs(60)),
            ..Flags::default()
        };
        let config = config::read(Inputs { flags, ..Inputs::default() }).finish(&BTreeMap::new()).unwrap().config;
        let policy = &config.models[0].policy;
        let mut now = Moment { monotonic: Duration::ZERO, wall: Duration::from_secs(1_795_953_600) };
        let mut memories = vec![Memory::default(); 11];
        for minute in 1..4 {
            let inputs: Vec<ModelInput> = (0..memories.len()).map(|model| input((minute * (model + 1)) as f64 * 600.0, now)).collect();
            let tasks = inputs.iter().zip(&memories).map(|(input, before)| Task { input, before, policy });
            let tasks: Vec<Task<'_>> = tasks.collect();
            let alone = plan_on(1, &tasks, now);
            for threads in [0, 2, 3, 11, 20] {
                let together = plan_on(threads, &tasks, now);
                assert_eq!(together.len(), alone.len());
                assert!(together.iter().zip(&alone).all(|(one, other)| one.plan == other.plan && one.after == other.after), "{threads}");
            }
            assert!(minute < 2 || alone[0].plan != alone[10].plan, "models differ, so that their order shows");
            memories = alone.into_iter().map(|planned| planned.after).collect();
            now = now.after(Duration::from_secs(60));
        }
        assert!(plan_on(2, &[], now).is_empty());
    }
}
