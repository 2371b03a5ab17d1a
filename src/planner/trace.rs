//! By which numbers is a pool as full, or a replica as able, as the plan says? The parts of a plan from which a person redoes the arithmetic: the
//! envelope's, the fast loop's rules, and the queueing model's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::learn::Update;
use super::learn::interval::CapacityInterval;
use super::model::iteration::Costs;
use super::model::queueing::{Lengths, Objective, Parameters, SloMultiplier};
use super::plan::{Latencies, LatencyCause, LoadRule, Proposer};
use super::propose::load::Load;
use super::shadows::Score;
use crate::units::{Ratio, Replicas, Requests, RequestsPerSecond, Seconds, TargetId, Tokens, TokensPerSecond};

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

/// Every intermediate of the envelope's arithmetic, so that a person can redo it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvelopeTrace {
    /// p: observed prefill replicas.
    pub prefill_replicas: Replicas,
    /// d: observed decode replicas.
    pub decode_replicas: Replicas,
    /// GPUs of one prefill replica.
    pub prefill_gpus_per_replica: u32,
    /// GPUs of one decode replica.
    pub decode_gpus_per_replica: u32,
    /// D = T + G * max(0, O - 1).
    pub request_duration_seconds: Seconds,
    /// L: the curve's latency at I.
    pub prompt_latency_seconds: Seconds,
    /// The curve's throughput at I, one GPU.
    pub prompt_tokens_per_second_per_gpu: TokensPerSecond,
    /// I + O/2.
    pub mean_context_tokens: Tokens,
    /// C * D / H / decode replicas.
    pub in_flight_per_decode_replica: Requests,
    /// Share of the KV cache that this takes, inside the surface's axis.
    pub kv_fraction: Ratio,
    /// The surface's latency there.
    pub generation_latency_seconds: Seconds,
    /// The surface's throughput there, one GPU.
    pub generation_tokens_per_second_per_gpu: TokensPerSecond,
    /// C * I / H.
    pub prompt_tokens_per_second: TokensPerSecond,
    /// C * O / H.
    pub generated_tokens_per_second: TokensPerSecond,
    /// Prefill replicas for throughput.
    pub prefill_throughput_budget: Replicas,
    /// Prefill replicas for the queue; 0 where it does not ask.
    pub prefill_queue_budget: Replicas,
    /// ITL objective over the generation ratio.
    pub effective_itl_budget_seconds: Seconds,
    /// KV fraction of the chosen operating point.
    pub capacity_kv_fraction: Ratio,
    /// ITL of the profile at the chosen point.
    pub capacity_itl_seconds: Seconds,
    /// Throughput of the chosen point, one GPU.
    pub capacity_tokens_per_second_per_gpu: TokensPerSecond,
    /// Decode replicas.
    pub decode_budget: Replicas,
}

/// What the next request would see at the replicas of a pool, so that a person can redo the rule. Formulas: `planner/propose/load.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyTrace {
    /// What came of it.
    pub cause: LatencyCause,
    /// The cost of an iteration; `None` while it is not known.
    pub costs: Option<Costs>,
    /// Windows of replicas that it was learned from.
    pub samples: u32,
    /// The longest of all replicas, if the recommended ones were there already.
    pub estimated: Latencies,
    /// Which replica that is, and what it holds.
    pub slowest: Option<(TargetId, Load)>,
    /// Share of the queue that would still wait if the recommended ones were there.
    pub still_waiting: Ratio,
    /// Mean prompt tokens of an iteration.
    pub prefill_tokens: Option<Tokens>,
    /// Replicas that carry the load.
    pub current: Replicas,
    /// Replicas that were recommended before this decision.
    pub recommended: Replicas,
    /// What the slow loop wants at least.
    pub floor: Option<Replicas>,
    /// Tokens of a step at most.
    pub batched_tokens: Option<u32>,
    /// Mean tokens of a prompt.
    pub input_tokens: Option<Tokens>,
    /// Mean KV tokens of a decoding request.
    pub context_tokens: Option<Tokens>,
    /// Share of the prompts that a cache held.
    pub hit_rate: Option<Ratio>,
    /// Tokens that a decoding step yields.
    pub accept_length: Option<Ratio>,
}

/// What one replica serves within the objectives, for a forecast (`planner/sizing.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityTrace {
    /// Requests a second.
    pub requests_per_second: RequestsPerSecond,
    /// TTFT there; `None` for role decode.
    pub ttft_seconds: Option<Seconds>,
    /// ITL there; `None` for role prefill.
    pub itl_seconds: Option<Seconds>,
    /// Requests that are computed together; `None` where a profile says what is served.
    pub batch: Option<u32>,
    /// Whether the objectives are met there; else no count meets them.
    pub eligible: bool,
    /// Share of the prompts that a cache held.
    pub hit_rate: Option<Ratio>,
    /// Tokens that a decoding step yields.
    pub accept_length: Option<Ratio>,
}

/// How preset auto came to its wish for a pool, so that a person can redo it. Formulas: `planner/model/attain.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AutoTrace {
    /// Requests a second now, with silent targets at their last or the average load.
    pub rate: RequestsPerSecond,
    /// Its change a second, a second.
    pub slope: f64,
    /// The time over which one line explains what arrived.
    pub over: Seconds,
    /// Standard error of the rate.
    pub error: RequestsPerSecond,
    /// Variance of the number of arrivals over its mean.
    pub noise: Ratio,
    /// Until when the count must do.
    pub horizon: Seconds,
    /// The largest rate until then, and one standard error.
    pub planned_rate: RequestsPerSecond,
    /// Mean tokens of a prompt.
    pub input_tokens: Tokens,
    /// Mean tokens of an answer.
    pub output_tokens: Tokens,
    /// How many times as long as the profile says the servers take; 1 without a profile.
    pub slower: Ratio,
    /// Requests a second that one replica serves at most, its objective met on average.
    pub replica_rate: RequestsPerSecond,
    /// Share of the requests that are to meet each objective.
    pub share: Ratio,
    /// The smallest count that lets them.
    pub need: Replicas,
    /// Share that meets the pool's objectives with that count; `None` where no count lets any.
    pub within: Option<Ratio>,
    /// The same with one less; `None` where there is none.
    pub within_less: Option<Ratio>,
    /// Requests that would wait beyond order when replicas that are asked for now are ready.
    pub left: Requests,
    /// Requests a second more that come while a queue before this pool is worked off.
    #[serde(default)]
    pub wave: RequestsPerSecond,
    /// The most noise of late, with which a decrease is judged.
    #[serde(default)]
    pub noisiest: Ratio,
    /// The count that a tenth more would need, with that noise.
    pub padded: Replicas,
    /// The most that was asked for within the delay of a decrease.
    pub recent: Replicas,
    /// Fewer than these were tried at this load in the last hours and were not enough; 0 where none were.
    #[serde(default)]
    pub refuted: Replicas,
    /// How far each proposer was from what was needed when it could serve; empty before the first start-up is over.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<Proposer, Score>,
}

/// What the queueing model knows of the replicas of a pool, so that a person can redo the arithmetic. Formulas: `planner/model/queueing.rs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueingTrace {
    /// alpha, beta and gamma.
    pub parameters: Parameters,
    /// Normalized innovation squared of the last window; `None` where the model could not explain it at all.
    pub nis: Option<f64>,
    /// How well the operating points tell the parameters apart; `None`: not at all.
    pub condition: Option<f64>,
    /// Distinct operating points that the estimate rests on.
    pub points: u32,
    /// Accepted updates since the server last changed.
    pub accepted: u32,
    /// What became of the last window; `None` where it taught nothing.
    pub update: Option<Update>,
    /// rho of one replica now; `None` where nobody served.
    pub utilization: Option<Ratio>,
    /// Mean lengths of the requests to come.
    pub lengths: Lengths,
    /// The objectives that the capacity is for.
    pub objective: Objective,
    /// Requests in a batch at most.
    pub max_batch: Requests,
    /// What one replica serves within them: lower end, estimate, upper end. `None` where no rate meets them; then `sized_with` says what instead.
    pub capacity: Option<CapacityInterval>,
    /// What it is sized with: the estimate, or the rate at the wanted utilization where the objectives are out of reach.
    pub sized_with: RequestsPerSecond,
    /// Whether the interval is narrow and the updates are many enough.
    pub converged: bool,
    /// Arrivals at all pools of the role that could be analysed.
    pub demand: RequestsPerSecond,
    /// The same with silent targets at their last or the average load: what has to fit before a replica is given back.
    pub cautious_demand: RequestsPerSecond,
    /// Replicas that were recommended before this decision, which it adds to or takes from.
    pub standing: Replicas,
    /// How many of them have been awaited for more than three start-ups, and carry nothing in the sum.
    #[serde(default)]
    pub absent: Replicas,
    /// k: how many times alpha an iteration may last where no objective is written.
    pub multiplier: SloMultiplier,
    /// What one replica costs.
    pub cost: f64,
}
