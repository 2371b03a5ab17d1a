//! How is the queueing model used? The settings of preset wva, and who sets its objectives.

use std::num::NonZeroU32;
use std::time::Duration;

use super::check::Values;
use super::config_map::{ConfigMap, Objectives, above_one};
use super::load_targets::refuse;
use super::problem::Problem;
use super::resolve::{ModelDraft, seconds, text};
use super::{ModelSelector, names};
use crate::planner::model::queueing::SloMultiplier;
use crate::planner::policy::{CapacityModel, ModelPolicy, Preset, QueueingPolicy, Slo, Statistic};
use crate::units::{ModelId, Positive};

/// k where nobody wrote one (`DefaultSLOMultiplier`).
const MULTIPLIER: f64 = 3.0;
/// The objectives that the policy holds while none is written: what learning may reach at most before it has converged
/// (`DefaultMaxFallbackTTFT`, `DefaultMaxFallbackITL`).
const FALLBACK: [f64; 2] = [10.0, 0.5];

/// The settings of a model before the ConfigMap is read.
pub(super) struct QueueingDraft {
    /// The written one.
    multiplier: Option<SloMultiplier>,
    max_batch: NonZeroU32,
    learned_for: Duration,
}

impl QueueingDraft {
    /// The settings, before anybody else speaks.
    pub(super) fn policy(&self) -> Option<QueueingPolicy> {
        let multiplier = self.multiplier.or_else(|| SloMultiplier::new(MULTIPLIER))?;
        Some(QueueingPolicy { multiplier, max_batch: self.max_batch, learned_for: self.learned_for })
    }
}

/// The settings of a model; `None` for other presets.
pub(super) fn read(values: &mut Values, key: &str, preset: Option<Preset>) -> Option<QueueingDraft> {
    let at = |name: &str| format!("{key}.planner.{name}");
    if preset != Some(Preset::Wva) {
        if preset.is_some() {
            refuse(values, ["slo_multiplier", "max_batch_size", "learned_for"].map(at).into_iter(), "belongs to preset wva; leave it out");
        }
        return None;
    }
    refuse(values, [at("correction")].into_iter(), "preset wva learns from the latencies and has no profile to correct; leave it out");
    let multiplier = values.number(&at("slo_multiplier")).filter(|multiplier| *multiplier != 0.0);
    if let Some(multiplier) = multiplier.filter(|multiplier| SloMultiplier::new(*multiplier).is_none()) {
        values.problem(&at("slo_multiplier"), above_one(multiplier));
    }
    Some(QueueingDraft {
        multiplier: multiplier.and_then(SloMultiplier::new),
        max_batch: values.count(&at("max_batch_size")).and_then(|count| u32::try_from(count).ok()).and_then(NonZeroU32::new)?,
        learned_for: values.span(&at("learned_for"))?,
    })
}

/// The objectives: both are written, or none and they are learned.
pub(super) fn slo(values: &mut Values, key: &str) -> Option<Slo> {
    let keys = ["ttft", "itl"].map(|name| format!("{key}.slo.{name}"));
    let written = keys.each_ref().map(|key| values.is_written(key));
    let [ttft, itl] = match written {
        [false, false] => FALLBACK.map(Positive::new),
        [true, true] => keys.map(|key| values.span(&key).and_then(seconds)),
        [ttft, _] => {
            let (missing, other) = if ttft { (&keys[1], "ttft") } else { (&keys[0], "itl") };
            values.problem(missing, format!("required beside {other}: preset wva takes both objectives, or learns both"));
            return None;
        }
    };
    Some(Slo { ttft: ttft?, itl: itl?, statistic: Statistic::Mean, explicit: written[0] })
}

/// What the ConfigMap says and the model's own configuration does not.
fn open(draft: &ModelDraft, said: Objectives) -> Objectives {
    let (slo, multiplier) = written(draft);
    Objectives { slo: said.slo.filter(|_| !slo), multiplier: said.multiplier.filter(|_| !multiplier) }
}

/// Whether the objectives, and k, are written for the model itself.
pub(super) fn written(draft: &ModelDraft) -> (bool, bool) {
    (draft.slo.as_ref().is_some_and(|slo| slo.explicit), draft.queueing.as_ref().is_some_and(|queueing| queueing.multiplier.is_some()))
}

/// What counts of the ConfigMap for the model, or for every model of a pattern that has no entry of its own.
pub(super) fn for_model(draft: &ModelDraft, map: &ConfigMap) -> Objectives {
    if draft.preset != Some(Preset::Wva) {
        return Objectives::default();
    }
    let model = if let Some(ModelSelector::Named(model)) = &draft.selector { Some(model) } else { None };
    open(draft, map.of(model, draft.target_namespace.as_deref().unwrap_or_default()))
}

/// The models that a pattern may meet and the ConfigMap has an entry for, with what counts for them.
pub(super) fn for_pattern<'a>(draft: &'a ModelDraft, map: &'a ConfigMap) -> impl Iterator<Item = (ModelId, Objectives)> + 'a {
    let is_pattern = draft.selector == Some(ModelSelector::Any) && draft.preset == Some(Preset::Wva);
    let entries = map.entries.keys().filter(move |(_, namespace)| is_pattern && Some(namespace) == draft.target_namespace.as_ref());
    entries.map(|(model, namespace)| (model.clone(), open(draft, map.of(Some(model), namespace))))
}

/// Where both speak, and what nobody reads.
pub(super) fn notes(models: &[ModelDraft], map: &ConfigMap, values: &Values) -> Vec<Problem> {
    if map.default.is_some() && models.iter().all(|draft| draft.preset.is_some_and(|preset| preset != Preset::Wva)) {
        return vec![values.describe("queueing_config", "not read: no model has preset wva".to_owned())];
    }
    let learning = models.iter().filter(|draft| draft.preset == Some(Preset::Wva));
    let mut notes: Vec<Problem> = learning.flat_map(|draft| both_speak(draft, map, values)).collect();
    for ((model, namespace), entry) in &map.entries {
        if let Some(message) = not_read(models, model, namespace) {
            notes.push(Problem { key: "model_id".to_owned(), location: None, file: Some(entry.file.clone()), message });
        }
    }
    notes
}

fn both_speak(draft: &ModelDraft, map: &ConfigMap, values: &Values) -> Vec<Problem> {
    let model = if let Some(ModelSelector::Named(model)) = &draft.selector { Some(model) } else { None };
    let namespace = draft.target_namespace.as_deref().unwrap_or_default();
    let (slo, multiplier) = written(draft);
    let mut found = Vec::new();
    let mut tell = |written: bool, key: &str, names: &str, speaks: &dyn Fn(&Objectives) -> bool| {
        if let Some(entry) = map.speaking(model, namespace).find(|entry| written && speaks(&entry.objectives)) {
            let message = format!("counts for this model, and not {names} in {}", entry.file.display());
            found.push(values.describe(&format!("{}.{key}", draft.key), message));
        }
    };
    tell(slo, "slo", "targetTTFT and targetITL", &|said| said.slo.is_some());
    tell(multiplier, "planner.slo_multiplier", "sloMultiplier", &|said| said.multiplier.is_some());
    found
}

/// Why nobody reads the entry of a model, if so.
fn not_read(models: &[ModelDraft], model: &ModelId, namespace: &str) -> Option<String> {
    let named =
        |draft: &&ModelDraft| draft.selector == Some(ModelSelector::Named(model.clone())) || draft.selector == Some(ModelSelector::Any);
    let place = |draft: &ModelDraft| draft.target_namespace.as_deref().unwrap_or_default().to_owned();
    let model = model.as_str();
    match models.iter().filter(named).find(|draft| place(draft) == namespace) {
        Some(ModelDraft { preset: Some(Preset::Wva), .. }) => None,
        Some(other) => Some(format!("not read: preset {} plans model {model:?}", other.preset.map_or(names::ANY, Preset::as_str))),
        None => {
            let elsewhere = models.iter().find(named).map(place);
            let hint = elsewhere.map_or_else(String::new, |other| format!("; its target_namespace is {other:?}"));
            Some(format!("not read: no model {model:?} is configured with target_namespace {namespace:?}{hint}"))
        }
    }
}

/// The lines that give the settings back. A multiplier that others would set is told and stays unwritten.
pub(super) fn lines(policy: &ModelPolicy, own_multiplier: bool) -> Vec<String> {
    let CapacityModel::Queueing(queueing) = &policy.capacity else { return Vec::new() };
    let multiplier = format!("slo_multiplier: {}", queueing.multiplier.get());
    vec![
        if own_multiplier { multiplier } else { format!("# {multiplier}  (not written; queueing_config may set it)") },
        format!("max_batch_size: {}", queueing.max_batch),
        format!("learned_for: {}", text(queueing.learned_for)),
    ]
}
