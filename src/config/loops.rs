//! Which loops does preset dynamo run, and with which numbers? The settings of target sla, and how far a decision may go.

use std::num::NonZeroU32;
use std::time::Duration;

use super::check::Values;
use super::load_targets::refuse;
use super::resolve::{non_zero, text};
use crate::planner::policy::{AutoPolicy, FastRule, LoadPolicy, ModelPolicy, Preset, RegressionPolicy};
use crate::units::Ratio;

const THROUGHPUT: &str = "throughput_scaling";
const LOAD: &str = "load_scaling";
const SENSITIVITY: &str = "scale_down_sensitivity";
const DELAY: &str = "scale_down_delay";
const REGRESSION: [&str; 4] = ["load_samples", "load_sample_buckets", "load_min_observations", "speculative_nextn"];
const MOVES: &str = "max_throughput_scaling_replicas";
const STEP: &str = "scale_down_step";
const TIMEOUT: &str = "transition_timeout";

/// Seed 002 and 003: `load_scaling_down_sensitivity`, `max_num_fpm_samples`, `fpm_sample_bucket_size`, `load_min_observations`,
/// `speculative_nextn`, `max_throughput_scaling_replicas`.
const USUAL_SENSITIVITY: u64 = 80;
const USUAL_REGRESSION: [u64; 4] = [64, 16, 5, 0];
const USUAL_MOVES: u64 = 8;
/// Loads of the moment swing: a minimum of three minutes is met about once in two hours at a steady load that needs the replica.
const USUAL_DELAY: Duration = Duration::from_secs(180);
/// A decrease that was wrong costs more than one that comes late (planning.md 0).
const USUAL_STEP: u64 = 1;
/// planning.md 0.
const USUAL_ATTAINMENT: f64 = 0.99;
const AUTO_DELAY: Duration = Duration::from_secs(120);

/// The settings of target sla.
pub(super) struct SlaDraft {
    /// Whether the slow loop decides or sets a floor.
    pub throughput: bool,
    /// The rule of the fast loop; `None` where it is off.
    pub rule: Option<FastRule>,
    pub regression: RegressionPolicy,
}

/// Whether the model's target is sla: written, or meant by an objective. Tells an objective or a profile that the target does not know.
pub(super) fn is_sla(values: &mut Values, key: &str, preset: Option<Preset>, profile: bool) -> bool {
    let at = format!("{key}.planner.target");
    let objective = ["ttft", "itl"].into_iter().any(|name| values.is_written(&format!("{key}.slo.{name}")));
    let written = values.text(&at);
    let sla =
        preset == Some(Preset::Dynamo) && (written.as_deref() == Some("sla") || (written.is_none() && objective && !values.is_wrong(&at)));
    if preset == Some(Preset::Dynamo) && objective && !sla && !values.is_wrong(&at) {
        let message = "targets throughput, latency and load know no objective; leave slo out, or write target: sla";
        let written = ["ttft", "itl"].map(|name| format!("{key}.slo.{name}")).into_iter().find(|at| values.is_written(at));
        values.problem(&written.unwrap_or_else(|| format!("{key}.slo")), message);
    }
    if preset == Some(Preset::Dynamo) && !sla && profile {
        let message = "targets throughput, latency and load read no profile; leave it out, write target: sla, or preset: infera";
        values.problem(&format!("{key}.planner.profile"), message);
    }
    sla
}

/// The settings of target sla; `None` for other targets, or where one has a problem.
pub(super) fn sla(values: &mut Values, key: &str, preset: Option<Preset>, sla: bool) -> Option<SlaDraft> {
    let at = |name: &str| format!("{key}.planner.{name}");
    let of_fast = [SENSITIVITY, DELAY];
    if !sla {
        let shared = [DELAY].into_iter().chain(REGRESSION).filter(|_| preset != Some(Preset::Auto));
        let names = [THROUGHPUT, LOAD, SENSITIVITY].into_iter().chain(shared);
        if preset.is_some() {
            refuse(values, names.map(at), "belongs to preset dynamo with target sla; leave it out");
        }
        return None;
    }
    let on = |values: &mut Values, name: &str| values.switch(&at(name)).unwrap_or(true);
    let (throughput, load) = (on(values, THROUGHPUT), on(values, LOAD));
    if !throughput && !load {
        values.problem(&at(LOAD), format!("both loops are off; write {THROUGHPUT}: true, or {LOAD}: true"));
    }
    if !load {
        refuse(values, of_fast.into_iter().map(at), "belongs to the fast loop; leave it out, or write load_scaling: true");
    }
    let sensitivity = values.count(&at(SENSITIVITY)).unwrap_or(USUAL_SENSITIVITY);
    let delay = values.span(&at(DELAY)).unwrap_or(USUAL_DELAY);
    let rule = load.then(|| FastRule::Objectives { sensitivity: Ratio(sensitivity as f64 / 100.0), delay });
    Some(SlaDraft { throughput, rule, regression: regression(values, key)? })
}

/// The settings of preset auto; `None` for other presets, or where one has a problem.
pub(super) fn auto(values: &mut Values, key: &str, preset: Option<Preset>) -> Option<(AutoPolicy, RegressionPolicy)> {
    let (attainment, delay) = (format!("{key}.slo.attainment"), format!("{key}.planner.{DELAY}"));
    if preset != Some(Preset::Auto) {
        if preset.is_some() {
            refuse(values, [attainment].into_iter(), "belongs to preset auto, which plans for a share of the requests; leave it out");
        }
        return None;
    }
    let share = values.number(&attainment).unwrap_or(USUAL_ATTAINMENT);
    refuse(
        values,
        [format!("{key}.planner.correction")].into_iter(),
        "preset auto corrects a profile by what it learns of the servers; leave it out",
    );
    if !(0.5..1.0).contains(&share) {
        values.problem(&attainment, format!("expected a share of requests from 0.5 to below 1, such as 0.99, got {share}"));
    }
    let auto = AutoPolicy { attainment: Ratio(share), delay: values.span(&delay).unwrap_or(AUTO_DELAY) };
    Some((auto, regression(values, key)?))
}

fn regression(values: &mut Values, key: &str) -> Option<RegressionPolicy> {
    let at = |name: &str| format!("{key}.planner.{name}");
    let [samples, buckets, least, drafted] =
        [0, 1, 2, 3].map(|index: usize| values.count(&at(REGRESSION[index])).unwrap_or(USUAL_REGRESSION[index]));
    let side = buckets.isqrt();
    if side * side != buckets {
        values.problem(&at(REGRESSION[1]), format!("expected a square number such as 16, since loads have two dimensions, got {buckets}"));
    }
    if least > samples {
        values.problem(&at(REGRESSION[2]), format!("expected at most {} ({samples}), got {least}", REGRESSION[0]));
    }
    Some(RegressionPolicy {
        samples: usize::try_from(samples).ok()?,
        buckets_a_side: usize::try_from(side).ok()?,
        least: usize::try_from(least).ok()?,
        drafted: u32::try_from(drafted).ok()?,
    })
}

/// How far a decision of preset dynamo may move a pool: replicas, replicas downwards, and how long a pool counts as moving.
pub(super) fn moves(values: &mut Values, key: &str, preset: Option<Preset>) -> Option<(NonZeroU32, NonZeroU32, Option<Duration>)> {
    let at = |name: &str| format!("{key}.planner.{name}");
    if preset != Some(Preset::Dynamo) {
        if preset.is_some() {
            refuse(values, [MOVES, STEP, TIMEOUT].map(at).into_iter(), "belongs to preset dynamo; leave it out");
        }
        return None;
    }
    refuse(
        values,
        ["growth"].map(at).into_iter(),
        "belongs to presets infera, wva and auto; preset dynamo takes max_throughput_scaling_replicas",
    );
    let count = |values: &mut Values, name: &str, usual| non_zero(values.count(&at(name)).unwrap_or(usual));
    Some((count(values, MOVES, USUAL_MOVES)?, count(values, STEP, USUAL_STEP)?, values.span(&at(TIMEOUT))))
}

/// The lines that give the settings back.
pub(super) fn lines(policy: &ModelPolicy) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(regression) = &policy.regression {
        let fast = policy.load.as_ref();
        match &policy.auto {
            Some(auto) => lines.push(format!("{DELAY}: {}", text(auto.delay))),
            None => {
                lines.push(format!("{THROUGHPUT}: {}", fast.is_none_or(|load| load.floor)));
                lines.push(format!("{LOAD}: {}", fast.is_some()));
            }
        }
        if let Some(LoadPolicy { rule: FastRule::Objectives { sensitivity, delay }, .. }) = fast {
            lines.push(format!("{SENSITIVITY}: {}", (sensitivity.get() * 100.0).round()));
            lines.push(format!("{DELAY}: {}", text(*delay)));
        }
        let RegressionPolicy { samples, buckets_a_side, least, drafted } = regression;
        let numbers = [*samples, buckets_a_side * buckets_a_side, *least, *drafted as usize];
        lines.extend(REGRESSION.iter().zip(numbers).map(|(name, number)| format!("{name}: {number}")));
    }
    if let Some(step) = policy.step_down {
        lines.push(format!("{STEP}: {step}"));
    }
    lines.extend(policy.transition_timeout.map(|timeout| format!("{TIMEOUT}: {}", text(timeout))));
    lines
}
