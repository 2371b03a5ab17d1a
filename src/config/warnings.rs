//! What is allowed and yet probably not meant? The warnings of `check`, which `run` logs.

use super::check::Values;
use super::problem::Problem;
use super::resolve::{self, ModelDraft};
use super::{Config, ModelConfig, scalar, untold};
use crate::planner::input::SourceId;
use crate::planner::model::doubts;
use crate::planner::model::envelope::Envelope;
use crate::planner::policy::{CapacityModel, Preset};
use crate::units::{Ratio, Seconds, Tokens};

/// All of them, model by model.
pub(super) fn of(models: &[ModelDraft], config: &Config, values: &Values) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (draft, model) in models.iter().zip(&config.models) {
        let at = |name: &str| format!("{}.{name}", draft.key);
        // Once for all: the remedy is the same object for each.
        let has_no_steps = |model: &ModelConfig| matches!(model.policy.preset, Preset::Infera | Preset::Wva);
        let first = config.models.iter().find(|model| has_no_steps(model));
        if first.is_some_and(|first| std::ptr::eq(first, model)) {
            let preset = model.policy.preset.as_str();
            let message = format!(
                "preset {preset} has no limit on steps down: a fall of the recommendation is followed at once; give the HPA or the \
                           ScaledObject behavior.scaleDown policies, or a stabilization window"
            );
            warnings.push(values.describe(&at("planner.preset"), message));
        }
        let (scrape, interval) = (model.policy.scrape_interval, model.policy.interval);
        // Preset auto's slices are single scrapes, and it looks at many.
        if scrape * 4 > interval && model.policy.auto.is_none() {
            let message = format!(
                "scrape.interval ({}) is more than a quarter of it ({}): a single lost scrape costs much of a window",
                resolve::text(scrape),
                resolve::text(interval)
            );
            warnings.push(values.describe(&at("planner.adjustment_interval"), message));
        }
        if let CapacityModel::Envelope(envelope) = &model.policy.capacity {
            let doubtful = doubts::of(envelope).into_iter().map(|message| ("planner.profile", message));
            for (key, message) in floors(model, envelope).into_iter().chain(doubtful) {
                warnings.push(values.describe(&at(key), message));
            }
        }
        warnings.extend(untold::of(draft, model).into_iter().map(|(key, message)| values.describe(&key, message)));
        for source in model.sources.iter().filter(|source| source.access.insecure_skip_verify) {
            let pool = draft.pools.iter().find(|pool| pool.pool.as_ref().is_some_and(|name| source.source == SourceId::Pool(name.clone())));
            let key = pool.map_or_else(|| at("traffic"), |pool| pool.key.clone());
            let message = "certificates are not checked: anyone on the way can read the credentials and forge the numbers; write \
                           tls.ca_file instead";
            warnings.push(values.describe(&format!("{key}.targets.tls.insecure_skip_verify"), message.to_owned()));
        }
        for (pool, policy) in draft.pools.iter().zip(&model.policy.pools) {
            let source = model.sources.iter().find(|source| source.source == SourceId::Pool(policy.pool.clone()));
            if let Some([only]) = source.map(|source| source.targets.as_slice())
                && scalar::is_loopback(only)
                && policy.limits.max().0 > 1
            {
                let message = format!(
                    "{} is the pool's only target and max_replicas is {}: beside one of several replicas we see a part of the traffic \
                     only; run one exporter for the whole pool",
                    only.target,
                    policy.limits.max()
                );
                warnings.push(values.describe(&format!("{}.targets.static", pool.key), message));
            }
        }
    }
    warnings
}

/// Objectives that no number of replicas can meet, by the profile's own fastest points.
fn floors(model: &ModelConfig, envelope: &Envelope) -> Vec<(&'static str, String)> {
    let document = envelope.document();
    let mut found = Vec::new();
    let millis = |seconds: Seconds| format!("{:.4} ms", seconds.get() * 1000.0);
    // Both axes have a first element: the envelope is checked.
    let shortest = document.prefill.isl.first().copied().unwrap_or_default();
    let prompt = envelope.prompt(Tokens(shortest)).latency;
    if model.policy.slo.ttft.get() <= prompt.get() {
        let message =
            format!("no number of replicas can meet it: the profile's shortest prompt ({shortest} tokens) takes {}", millis(prompt));
        found.push(("slo.ttft", message));
    }
    let least = document.decode.kv_usage.first().copied().unwrap_or_default();
    let context = document.decode.context_length.first().copied().unwrap_or_default();
    let generation = envelope.generation(Ratio(least), Tokens(context)).latency;
    if model.policy.slo.itl.get() < generation.get() {
        let message = format!("no number of replicas can meet it: the profile's least occupied point takes {}", millis(generation));
        found.push(("slo.itl", message));
    }
    found
}
