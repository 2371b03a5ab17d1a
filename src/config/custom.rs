//! Which dialect did the operator choose, or write? `models[].engine` and `models[].custom`.

use std::sync::Arc;

use super::check::Values;
use crate::engines::custom::{Custom, Meaning, Metric};
use crate::engines::{self, Dialect};
use crate::planner::input::{Gauge, ItlBasis, Signal};
use crate::planner::policy::Preset;
use crate::units::Role;

/// The dialect of a model's servers; `None` recognises it.
pub(super) fn dialect(values: &mut Values, model: &str) -> Option<Dialect> {
    let (engine_at, at) = (format!("{model}.engine"), format!("{model}.custom"));
    let engine = values.text(&engine_at)?;
    if engine != Custom::NAME {
        if values.is_written(&at) {
            values.problem(&at, format!("describes servers that engine {engine} does not read; write engine: custom"));
        }
        return engines::by_name(&engine).map(Dialect::Known);
    }
    let list = format!("{at}.metrics");
    let count = values.len(&list);
    let metrics: Vec<Metric> = (0..count).filter_map(|index| metric(values, &format!("{list}[{index}]"))).collect();
    if count == 0 && !values.is_wrong(&list) {
        values.problem(
            &engine_at,
            format!("engine custom needs {at}.metrics, in a configuration file: what each of the servers' families means"),
        );
    }
    let labels = format!("{at}.repeated_labels");
    let repeated_labels = (0..values.len(&labels)).filter_map(|index| values.text(&format!("{labels}[{index}]"))).collect();
    let basis = values.text(&format!("{at}.itl_basis"));
    Some(Dialect::Custom(Arc::new(Custom {
        model_label: values.text(&format!("{at}.model_label")).unwrap_or_default(),
        repeated_labels,
        itl_basis: ItlBasis::ALL.into_iter().find(|known| Some(known.as_str()) == basis.as_deref()).unwrap_or_default(),
        metrics: spelled_alike(metrics),
    })))
}

/// Whether a dialect of the operator's own tells what the preset decides by at replicas of these roles.
pub(super) fn suffices(values: &mut Values, model: &str, custom: &Custom, preset: Preset, roles: &[Role]) {
    let at = format!("{model}.custom.metrics");
    if values.len(&at) != custom.metrics.len() || custom.metrics.is_empty() {
        // Told already; what the broken ones mean is not known.
        return;
    }
    let has = |meaning: Meaning| custom.metrics.iter().any(|metric| metric.meaning == meaning);
    let signals = [Signal::Ttft, Signal::Itl, Signal::PromptTokens, Signal::OutputTokens].map(Meaning::Signal);
    let load = [Gauge::KvUsage, Gauge::Waiting].map(Meaning::Gauge);
    let mut lacking: Vec<&str> = Vec::new();
    let mut need = |meanings: &[Meaning]| {
        lacking.extend(meanings.iter().filter(|meaning| !has(**meaning)).map(|meaning| meaning.as_str()));
    };
    match preset {
        Preset::Infera | Preset::Wva | Preset::Auto => need(&signals),
        Preset::Dynamo if roles.iter().any(|role| *role != Role::Prefill) => need(&load),
        // Where the tokens that wait are not told, they are reckoned from the requests that do.
        Preset::Dynamo if has(Meaning::Gauge(Gauge::QueuedPromptTokens)) => {}
        Preset::Dynamo => need(&load[1..]),
    }
    if !lacking.is_empty() {
        let (preset, lacking) = (preset.as_str(), lacking.join(", "));
        values.problem(&at, format!("preset {preset} decides by what no family here means; give one each the roles: {lacking}"));
    }
}

/// A counter may be named with or without `_total`, but one counter in one way: a page's lines go to the family that is asked for by name.
fn spelled_alike(mut metrics: Vec<Metric>) -> Vec<Metric> {
    let names: Vec<String> = metrics.iter().map(|metric| metric.name.clone()).collect();
    for metric in &mut metrics {
        let long = format!("{}_total", metric.name);
        if names.contains(&long) {
            metric.name = long;
        }
    }
    metrics
}

fn metric(values: &mut Values, at: &str) -> Option<Metric> {
    let role = values.text(&format!("{at}.role"));
    let name = values.text(&format!("{at}.name"));
    let list = format!("{at}.labels");
    let mut labels = Vec::new();
    for index in 0..values.len(&list) {
        let at = format!("{list}[{index}]");
        let Some(text) = values.text(&at) else { continue };
        match text.split_once('=') {
            Some((label, value)) if !label.is_empty() => labels.push((label.to_owned(), value.to_owned())),
            _ => values.problem(&at, format!("expected LABEL=VALUE, got {text:?}")),
        }
    }
    let meaning = Meaning::all().find(|meaning| Some(meaning.as_str()) == role.as_deref())?;
    Some(Metric { meaning, name: name?, labels })
}

/// The lines of `models[].custom` that give the dialect back, each with its depth below `custom`.
pub(super) fn lines(custom: &Custom, quoted: impl Fn(&str) -> String) -> Vec<String> {
    let list = |texts: &mut dyn Iterator<Item = String>| format!("[{}]", texts.map(|text| quoted(&text)).collect::<Vec<_>>().join(", "));
    let metrics = custom.metrics.iter().map(|metric| {
        let labels = list(&mut metric.labels.iter().map(|(label, value)| format!("{label}={value}")));
        format!("  - {{ role: {}, name: {}, labels: {labels} }}", metric.meaning.as_str(), quoted(&metric.name))
    });
    [
        format!("model_label: {}", quoted(&custom.model_label)),
        format!("repeated_labels: {}", list(&mut custom.repeated_labels.iter().cloned())),
        format!("itl_basis: {}", custom.itl_basis.as_str()),
        "metrics:".to_owned(),
    ]
    .into_iter()
    .chain(metrics)
    .collect()
}
