//! Which of the models does this exporter plan, where several exporters share one configuration?
//!
//! A group of models that must be planned together belongs to one shard as a whole: the models of a GPU budget over all of them, or else each model
//! alone, with all its pools. Which shard that is depends on nothing but the group's name and the number of shards. So exporters need not know of each
//! other, a model that comes or goes moves no other, and from n shards to n + 1 only those move that the new one takes, one in n + 1: each shard
//! draws a number for the group from a hash, and the highest has it.

use std::num::NonZeroU32;

use sha2::{Digest, Sha256};

use super::check::Values;
use super::problem::Problem;
use super::resolve::{ModelDraft, Settings};
use super::{ModelSelector, names};

/// Most shards: more would be fewer models each than one exporter plans in a millisecond.
const MOST: u32 = 256;

/// One of several exporters, counted from 0 as the pods of a StatefulSet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    of: NonZeroU32,
}

impl Shard {
    /// Reads `i/n`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let parts = text.trim().split_once('/').and_then(|(index, of)| Some((number(index)?, NonZeroU32::new(number(of)?)?)));
        let Some((index, of)) = parts.filter(|(_, of)| of.get() <= MOST) else {
            return Err(format!("expected i/n such as 0/3, the first of three, with n from 1 to {MOST}, got {text:?}"));
        };
        if index >= of.get() {
            return Err(format!("expected a shard from 0/{of} to {}/{of}, since they are counted from 0, got {text:?}", of.get() - 1));
        }
        Ok(Self { index, of })
    }

    fn owns(self, group: Group<'_>) -> bool {
        // The last of equals; whichever, all shards agree.
        (0..self.of.get()).max_by_key(|index| group.draw(*index)) == Some(self.index)
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// Models that are planned together.
#[derive(Clone, Copy)]
enum Group<'a> {
    /// One budget is shared out among them all.
    Everything,
    /// One model, with all its pools.
    Model(&'a str),
}

impl Group<'_> {
    /// The number that a shard draws for the group.
    fn draw(self, shard: u32) -> [u8; 32] {
        let (kind, name) = match self {
            Self::Everything => ("everything", ""),
            Self::Model(name) => ("model", name),
        };
        Sha256::digest(format!("{kind} {shard} {name}")).into()
    }
}

/// Whether this exporter plans a model. All are ours where nothing says that there are others.
pub(super) fn is_ours(settings: &Settings, selector: &ModelSelector) -> bool {
    let name = match selector {
        ModelSelector::Named(name) => name.as_str(),
        ModelSelector::Any => names::ANY,
    };
    settings.shard.is_none_or(|shard| shard.owns(group(settings, name)))
}

fn group<'a>(settings: &Settings, name: &'a str) -> Group<'a> {
    let budget = settings.gpus.min.is_some() || settings.gpus.max.is_some();
    if budget { Group::Everything } else { Group::Model(name) }
}

/// Whose name is known only after a page was read cannot be left to others unread.
pub(super) fn check(values: &mut Values, settings: &Settings, models: &[ModelDraft]) {
    if settings.shard.is_some() && models.iter().any(|model| model.selector == Some(ModelSelector::Any)) {
        let message =
            "expected models with names: one that is found on the targets' pages cannot be left to another shard without reading them";
        values.problem("shard", message);
    }
}

/// Tells which models are ours.
pub(super) fn note(values: &Values, settings: &Settings, models: &[ModelDraft]) -> Option<Problem> {
    let shard = settings.shard?;
    let selectors = models.iter().filter_map(|model| model.selector.as_ref());
    let (ours, others): (Vec<&ModelSelector>, Vec<_>) = selectors.partition(|selector| is_ours(settings, selector));
    let names = ours
        .iter()
        .filter_map(|selector| if let ModelSelector::Named(name) = selector { Some(format!("{:?}", name.as_str())) } else { None });
    let names = if ours.is_empty() { "no model".to_owned() } else { names.collect::<Vec<_>>().join(", ") };
    let rest = match others.len() {
        0 => "all that there are".to_owned(),
        others => format!("{others} of {} are left to other shards", ours.len() + others),
    };
    Some(values.describe("shard", format!("{shard} plans {names}; {rest}")))
}

/// Warns where all shards but one have nothing to do.
pub(super) fn warning(values: &Values, settings: &Settings) -> Option<Problem> {
    let shard = settings.shard.filter(|shard| shard.of.get() > 1)?;
    matches!(group(settings, ""), Group::Everything).then(|| {
        let message =
            format!("one of the {} shards plans everything: min_gpu_budget and max_gpu_budget are of all models together", shard.of);
        values.describe("shard", message)
    })
}
