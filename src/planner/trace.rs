//! By which numbers is a pool as full as the plan says? The part of a plan from which a person redoes the fast loop's rule.

use serde::{Deserialize, Serialize};

use super::plan::LoadRule;
use crate::units::{Replicas, TargetId, Tokens};

/// The numbers that a load comes from, as the page has them. What the rule does not use, or nobody knows, is `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadInputs {
    /// The formula.
    pub rule: LoadRule,
    /// Share of the KV memory in use.
    pub kv_usage: Option<f64>,
    /// Requests that wait.
    pub waiting: Option<f64>,
    /// Requests that run.
    pub running: Option<f64>,
    /// Tokens of the prompts that wait.
    pub queued_prompt_tokens: Option<f64>,
    /// I: mean prompt length of the last window.
    pub input_tokens: Option<Tokens>,
    /// O: mean answer of the last window.
    pub output_tokens: Option<Tokens>,
    /// Tokens that the KV memory of a replica holds.
    pub kv_capacity_tokens: Option<Tokens>,
    /// Tokens of the longest request.
    pub context_length: Option<Tokens>,
    /// Replicas that the counts are divided by, where a router speaks for them.
    pub replicas: Option<Replicas>,
}

impl Default for LoadInputs {
    fn default() -> Self {
        Self {
            rule: LoadRule::Usage,
            kv_usage: None,
            waiting: None,
            running: None,
            queued_prompt_tokens: None,
            input_tokens: None,
            output_tokens: None,
            kv_capacity_tokens: None,
            context_length: None,
            replicas: None,
        }
    }
}

/// How full the replicas of a pool are, so that a person can redo the rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadTrace {
    /// The fullest of the targets.
    pub fullest: TargetId,
    /// Its load: a share of its KV memory, or what waits at a prefill replica in context lengths or tokens.
    pub load: f64,
    /// The numbers behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<LoadInputs>,
    /// Replicas that carry the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Replicas>,
    /// Replicas that were recommended before this decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recommended: Option<Replicas>,
    /// The same if the recommended replicas were there already: load * current / recommended.
    pub projected: f64,
    /// From here on one more is wanted.
    pub up: f64,
    /// Below here one less is wanted, if all targets are.
    pub down: f64,
    /// Whether all targets are below.
    pub all_below: bool,
    /// Targets whose load is known.
    pub described: u32,
    /// Targets.
    pub known: u32,
}
