//! What does llm-d's ConfigMap say of objectives? The folder that `queueing_config` names, file by file.
//!
//! `default` is for all models, every other file for the model that it names. Where the original overlooks something, it is a mistake here:
//! a model that is named twice, half a pair of targets, a key that does not exist. The targets of `default`, which the original reads and
//! drops, count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::check::Values;
use super::layers;
use super::problem::Problem;
use super::schema::ENTRY_KEYS;
use super::tree::{self, Node, SourceText, Value};
use crate::planner::model::queueing::SloMultiplier;
use crate::planner::policy::{CapacityModel, ModelPolicy, Slo, Statistic};
use crate::units::{ModelId, Positive};

/// The entry for all models.
pub(super) const DEFAULT: &str = "default";
const TTFT: &str = "targetTTFT";
const ITL: &str = "targetITL";
const MULTIPLIER: &str = "sloMultiplier";
/// What names the model of an entry.
const MODEL: [&str; 2] = ["model_id", "namespace"];
/// Smallest targets, milliseconds, as for `models[].slo`: less was meant in seconds.
const LEAST: [(&str, f64); 2] = [(TTFT, 1.0), (ITL, 0.1)];

/// What an entry says. `None` where it leaves the choice to others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Objectives {
    /// Both targets.
    pub slo: Option<Slo>,
    /// k.
    pub multiplier: Option<SloMultiplier>,
}

impl Objectives {
    /// This, and what it leaves open from another.
    fn or(&self, other: &Self) -> Self {
        Self { slo: self.slo.clone().or_else(|| other.slo.clone()), multiplier: self.multiplier.or(other.multiplier) }
    }

    /// Puts it into a policy.
    pub(super) fn apply(&self, policy: &mut ModelPolicy) {
        if let Some(slo) = &self.slo {
            policy.slo = slo.clone();
        }
        if let (Some(multiplier), CapacityModel::Queueing(queueing)) = (self.multiplier, &mut policy.capacity) {
            queueing.multiplier = multiplier;
        }
    }
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub file: PathBuf,
    pub objectives: Objectives,
}

/// The whole ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ConfigMap {
    pub default: Option<Entry>,
    /// By model and namespace.
    pub entries: BTreeMap<(ModelId, String), Entry>,
    /// The texts by the names of the files.
    pub texts: BTreeMap<String, String>,
}

/// Whose files they are: Kubernetes keeps what it swaps under names that begin with a dot.
pub(super) fn is_entry(folder: &Path, file: &Path) -> bool {
    file.parent() == Some(folder) && file.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'))
}

impl ConfigMap {
    /// Reads the files of the folder among `files`. All problems are reported at once.
    pub(super) fn read(folder: &Path, files: &BTreeMap<PathBuf, Result<String, String>>) -> (Self, Vec<Problem>) {
        let (mut map, mut problems) = (Self::default(), Vec::new());
        for (path, text) in files.iter().filter(|(path, _)| is_entry(folder, path)) {
            // An entry without a name is no entry.
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let text = match text {
                Ok(text) => text,
                Err(error) => {
                    problems.push(Problem::of_file(path, format!("cannot be read: {error}")));
                    continue;
                }
            };
            if is_manifest(text) {
                let message = "a manifest of kind ConfigMap; expected the mounted data: a folder with one file for each key under its `data`, as a \
                               volume of that ConfigMap has it";
                problems.push(Problem::of_file(path, message.to_owned()));
                continue;
            }
            map.texts.insert(name.clone(), text.clone());
            let source = SourceText { path: path.clone(), text: text.clone() };
            let (node, found) = tree::read_as_yaml(&source);
            problems.extend(found);
            if let Some(node) = node {
                problems.extend(map.add(&source, &node, name == DEFAULT));
            }
        }
        (map, problems)
    }

    fn add(&mut self, source: &SourceText, node: &Node, is_default: bool) -> Vec<Problem> {
        // Nothing at all is an entry without keys.
        let empty = Node { value: Value::Map(Vec::new()), at: node.at };
        let node = if node.value == Value::Null { &empty } else { node };
        let mut values = Values::of_file(ENTRY_KEYS, &layers::layered(ENTRY_KEYS, node, ""), &source.path, node);
        let entry = Entry { file: source.path.clone(), objectives: objectives(&mut values) };
        if values.switch("tuningEnabled") == Some(false) {
            values.problem("tuningEnabled", "expected true: what replicas can do is learned or not known; leave it out");
        }
        if is_default {
            for key in MODEL.map(|key| Some(key).filter(|key| values.is_written(key))).into_iter().flatten() {
                values.problem(key, "default is for all models; write an entry of its own for one");
            }
            self.default = Some(entry);
        } else if values.is_wrong("") {
            // What is not a section has no keys that could be missing.
        } else if MODEL.iter().all(|key| !values.is_written(key)) {
            values.problem("", "names no model: expected model_id and namespace; only the entry `default` is for all models");
        } else if let [Some(model), Some(namespace)] = MODEL.map(|key| values.text(key)) {
            match self.entries.get(&(ModelId::from(model.as_str()), namespace.clone())) {
                Some(first) => {
                    let message = format!("{} is for model {model:?} in namespace {namespace:?} as well; keep one", first.file.display());
                    values.problem(MODEL[0], message);
                }
                None => drop(self.entries.insert((ModelId::from(model.as_str()), namespace), entry)),
            }
        }
        values.take_problems()
    }

    /// What it says of a model: its own entry, and what that leaves open from `default`.
    pub(super) fn of(&self, model: Option<&ModelId>, namespace: &str) -> Objectives {
        let own = model.and_then(|model| self.entries.get(&(model.clone(), namespace.to_owned())));
        let all = [own, self.default.as_ref()].into_iter().flatten();
        all.fold(Objectives::default(), |objectives, entry| objectives.or(&entry.objectives))
    }

    /// The entries that speak for a model, the one that counts first.
    pub(super) fn speaking<'a>(&'a self, model: Option<&'a ModelId>, namespace: &'a str) -> impl Iterator<Item = &'a Entry> {
        let own = self.entries.iter().filter(move |((id, place), _)| Some(id) == model && place == namespace).map(|(_, entry)| entry);
        own.chain(&self.default)
    }
}

/// Whether the text is the object that Kubernetes makes the files from, and not one of the files.
fn is_manifest(text: &str) -> bool {
    let says = |line: &str| line.trim().trim_end_matches(',').replace(['"', ' '], "") == "kind:ConfigMap";
    text.lines().any(says)
}

fn objectives(values: &mut Values) -> Objectives {
    let multiplier = values.number(MULTIPLIER).filter(|multiplier| *multiplier != 0.0);
    if let Some(multiplier) = multiplier.filter(|multiplier| SloMultiplier::new(*multiplier).is_none()) {
        values.problem(MULTIPLIER, above_one(multiplier));
    }
    Objectives { slo: targets(values), multiplier: multiplier.and_then(SloMultiplier::new) }
}

/// What refuses a multiplier that leaves no room for any load.
pub(super) fn above_one(multiplier: f64) -> String {
    format!("expected more than 1, or 0 for the default, got {multiplier}: at 1 an idle replica would be full")
}

fn targets(values: &mut Values) -> Option<Slo> {
    let written = LEAST.map(|(key, least)| {
        let target = values.number(key).filter(|target| *target != 0.0);
        if let Some(target) = target.filter(|target| *target < least) {
            values.problem(key, format!("expected at least {least} ms, or 0 for none, got {target}; is it in milliseconds?"));
        }
        target
    });
    for ((key, _), (other, _), target) in [(LEAST[0], LEAST[1], written), (LEAST[1], LEAST[0], [written[1], written[0]])] {
        if let [Some(_), None] = target
            && !values.is_wrong(other)
        {
            values.problem(key, format!("expected {other} as well: both are written or neither"));
        }
    }
    let [ttft, itl] = written.map(|target| target.and_then(|millis| Positive::new(millis / 1000.0)));
    Some(Slo { ttft: ttft?, itl: itl?, statistic: Statistic::Mean, explicit: true })
}
