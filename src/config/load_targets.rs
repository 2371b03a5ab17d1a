//! How full may replicas be? The target of preset dynamo and its thresholds.

use std::time::Duration;

use super::check::Values;
use super::loops::SlaDraft;
use super::resolve::text;
use crate::planner::policy::{FastRule, LoadPolicy, ModelPolicy, Preset, QueueUnit};
use crate::planner::propose::threshold::{Bounds, Target};
use crate::units::Role;

const PREFILL: [&str; 2] = ["prefill_scale_up_queue_tokens", "prefill_scale_down_queue_tokens"];
const DECODE: [&str; 2] = ["decode_scale_up_kv_rate", "decode_scale_down_kv_rate"];
const INTERVAL: &str = "load_adjustment_interval";
/// Bounds of a role that no pool has; never looked at.
const UNUSED: Bounds = Bounds { up: 1.0, down: 0.0 };

/// The thresholds of a model. `None` where there are none, or where they have a problem.
pub(super) fn read(
    values: &mut Values,
    key: &str,
    preset: Option<Preset>,
    roles: &[Role],
    scrape_interval: Option<Duration>,
    sla: Option<&SlaDraft>,
) -> Option<LoadPolicy> {
    let at = |name: &str| format!("{key}.planner.{name}");
    if preset != Some(Preset::Dynamo) {
        if preset.is_some() {
            let names = ["target", INTERVAL].into_iter().chain(PREFILL).chain(DECODE);
            refuse(values, names.map(at), "belongs to preset dynamo; leave it out");
        }
        return None;
    }
    let interval = values.span(&at(INTERVAL)).or(scrape_interval);
    if let (Some(interval), Some(scrape)) = (interval, scrape_interval)
        && interval < scrape
    {
        values.problem(&at(INTERVAL), format!("expected at least scrape.interval ({}), got {}", text(scrape), text(interval)));
    }
    let target = values.text(&at("target"));
    let throughput = sla.is_some_and(|sla| sla.throughput);
    let rule = sla.and_then(|sla| sla.rule);
    let own = target.as_deref() == Some("load");
    if !own {
        refuse(values, PREFILL.into_iter().chain(DECODE).map(at), "belongs to target load; write target: load, or leave it out");
    }
    if sla.is_some() {
        if rule.is_none() {
            refuse(values, [at(INTERVAL)].into_iter(), "belongs to the fast loop; leave it out, or write load_scaling: true");
        }
        return Some(LoadPolicy { interval: interval?, rule: rule?, floor: throughput });
    }
    let target = match target.as_deref() {
        Some("load") => {
            // Both are looked at before either ends this: their problems are told together.
            let prefill = bounds(values, key, PREFILL, roles.contains(&Role::Prefill), 1.0);
            let decode = bounds(values, key, DECODE, roles.iter().any(|role| *role != Role::Prefill), 100.0);
            Target::Load { prefill: prefill?, decode: decode? }
        }
        Some("latency") => Target::Latency,
        _ if values.is_wrong(&at("target")) => return None,
        _ => Target::Throughput,
    };
    Some(target.policy(interval?))
}

/// A recommendation must outlive three decisions of the fast loop, or it would come and go.
pub(super) fn outlived(values: &mut Values, key: &str, load: Option<LoadPolicy>, hold_for: Option<Duration>) {
    if let (Some(load), Some(hold_for)) = (load, hold_for)
        && load.interval.saturating_mul(3) > hold_for
    {
        let message = format!("expected at most a third of hold_for ({}), got {}", text(hold_for), text(load.interval));
        values.problem(&format!("{key}.planner.{INTERVAL}"), message);
    }
}

/// Refuses keys that are written and have no meaning there. What has a problem of its own, or stands in something that has, is told already.
pub(super) fn refuse(values: &mut Values, keys: impl Iterator<Item = String>, message: &str) {
    for key in keys {
        if values.is_written(&key) && !values.is_wrong(&key) {
            values.problem(&key, message);
        }
    }
}

fn bounds(values: &mut Values, key: &str, names: [&str; 2], needed: bool, unit: f64) -> Option<Bounds> {
    if !needed {
        return Some(UNUSED);
    }
    let [up, down] = names.map(|name| {
        let at = format!("{key}.planner.{name}");
        let value = values.count(&at);
        if value.is_none() && !values.is_wrong(&at) {
            values.problem(&at, "required with target load");
        }
        value
    });
    let (up, down) = (up?, down?);
    if down >= up {
        values.problem(&format!("{key}.planner.{}", names[1]), format!("expected less than {} ({up}), got {down}", names[0]));
    }
    // Both are far below what double precision holds exactly.
    Some(Bounds { up: up as f64 / unit, down: down as f64 / unit })
}

/// The lines that give the thresholds back.
pub(super) fn lines(policy: &ModelPolicy) -> Vec<String> {
    let Some(load) = &policy.load else { return Vec::new() };
    let mut lines = vec![format!("{INTERVAL}: {}", text(load.interval))];
    let FastRule::Thresholds(bands) = load.rule else { return lines };
    match [Target::Throughput, Target::Latency].into_iter().find(|target| target.policy(load.interval) == *load) {
        Some(Target::Latency) => lines.push("target: latency".to_owned()),
        Some(_) => lines.push("target: throughput".to_owned()),
        None => {
            lines.push("target: load".to_owned());
            let has = |prefill: bool| policy.pools.iter().any(|pool| (pool.role == Role::Prefill) == prefill);
            let rows = [(has(true), PREFILL, bands.prefill, 1.0), (has(false), DECODE, bands.decode, 100.0)];
            for (_, names, band, unit) in rows.into_iter().filter(|(used, ..)| *used) {
                debug_assert!(bands.prefill_unit == QueueUnit::Tokens);
                lines.push(format!("{}: {}", names[0], (band.up.at * unit).round()));
                lines.push(format!("{}: {}", names[1], (band.down.at * unit).round()));
            }
        }
    }
    lines
}
