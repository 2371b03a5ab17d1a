//! Why is a number what it is? Everything that people, dashboards and alerts branch on: closed sets with one stable name and one sentence of
//! meaning for each member, from which the references are made.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! closed_set {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal, $meaning:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $(#[doc = $meaning] #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// All members, in the order in which references list them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable name: a label value and a JSON string.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// What it means, in one sentence for people; the generated references print it.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(super) use closed_set;

closed_set! {
    /// Why a recommendation is what it is. All but `none` and `slo_unreachable` hold the last value.
    Reason {
        None = "none", "The value was computed from data that can be trusted.";
        Baseline = "baseline", "No complete window yet: the first scrape only sets the baseline, or the process has just started.";
        NoTargets = "no_targets", "The list of targets is empty.";
        DiscoveryFailed = "discovery_failed", "The list of targets could not be read and none was known before.";
        AllTargetsDown = "all_targets_down", "Every target failed to answer.";
        CoverageLow = "coverage_low", "The window describes less than half of the known targets.";
        MembershipChanged = "membership_changed", "A traffic target was added or removed during the window.";
        CounterReset = "counter_reset", "A cumulative counter of a traffic target moved backwards: its server restarted.";
        StaleWindow = "stale_window", "The window is too short or the clock stepped during it, so its rates mean nothing.";
        NoRequests = "no_requests", "No request was completed in the window, or their lengths were not recorded.";
        LatencyAbsent = "latency_absent", "Requests were completed, but TTFT or ITL was not measured or is not plausible.";
        NoDecodeReplicas = "no_decode_replicas", "No ready decode replica is registered, so the load of one replica is unknown.";
        NonpositiveProfileLatency = "nonpositive_profile_latency", "The profile gives a latency of zero or less at the observed lengths.";
        MissingCapability = "missing_capability", "The engine does not export a capability that the policy needs and the configuration does not give it.";
        SlaMetricsDisabled = "sla_metrics_disabled", "Requests are served, but the server records no SLA histograms; start it with its SLA metrics enabled.";
        SloUnreachable = "slo_unreachable", "No number of replicas can meet the objective; the value was computed all the same.";
        NotConverged = "not_converged", "The learned model is not certain enough yet.";
        Rollout = "rollout", "The pool shows two generations or many fresh replicas.";
        Transition = "transition", "An earlier change of this pool is still under way.";
        LintViolation = "lint_violation", "The finished plan broke a rule of the planner's own check; the last good plan is kept.";
        Frozen = "frozen", "The operator froze the last published value.";
        Pinned = "pinned", "The operator pinned the value.";
    }
}

/// What a hold means for the published value (contract 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// Nothing trustworthy is seen: the value expires.
    Blind,
    /// The planner sees and waits: the value renews while coverage is good.
    Deliberate,
    /// The operator decided: the value always renews.
    Decreed,
}

impl Reason {
    /// How a hold for this reason ends; `None` where the value is computed.
    pub fn hold_kind(self) -> Option<HoldKind> {
        match self {
            Self::None | Self::SloUnreachable => None,
            Self::NoTargets
            | Self::NoDecodeReplicas
            | Self::NonpositiveProfileLatency
            | Self::AllTargetsDown
            | Self::CoverageLow
            | Self::StaleWindow
            | Self::DiscoveryFailed
            | Self::LatencyAbsent
            | Self::MissingCapability
            | Self::SlaMetricsDisabled
            | Self::LintViolation => Some(HoldKind::Blind),
            Self::Transition
            | Self::Rollout
            | Self::NotConverged
            | Self::NoRequests
            | Self::MembershipChanged
            | Self::CounterReset
            | Self::Baseline => Some(HoldKind::Deliberate),
            Self::Frozen | Self::Pinned => Some(HoldKind::Decreed),
        }
    }
}

closed_set! {
    /// Who asked for a number of replicas.
    Proposer {
        EnvelopeThroughput = "envelope_throughput", "Prompt tokens a second over the profile's capacity of one prefill replica.";
        EnvelopeQueue = "envelope_queue", "Prefill replicas that fit the observed wait into what the TTFT objective leaves beside service.";
        EnvelopeDecode = "envelope_decode", "Generated tokens a second over the best throughput whose ITL fits the objective.";
        Queueing = "queueing", "The queueing model.";
        Regression = "regression", "The forecast traffic over what one replica serves, by the cost of iterations that was learned.";
        Load = "load", "The latencies that the next request would see, by that cost and the loads of the moment.";
        Threshold = "threshold", "Thresholds on load signals.";
        MeanCapacity = "mean_capacity", "The traffic of the moment over what one replica serves on average. Beside preset auto, decides nothing.";
        MeanLatency = "mean_latency", "The smallest count whose mean latencies meet the objectives. Beside preset auto, decides nothing.";
        Auto = "auto", "The combined model of preset auto.";
    }
}

closed_set! {
    /// A limit that can change a wish. The names of `limits_applied_total` and `limit_active`.
    Limit {
        Growth = "growth", "One decision may grow a pool by a bounded factor.";
        Confirm = "confirm", "A large rise needs two rounds that agree.";
        HoldDown = "hold_down", "A decrease needs a window that describes the fleet, and time.";
        NMinusOne = "n_minus_one", "A replica is given back only if the rest can carry the load.";
        Step = "step", "One decision may shrink a pool by a bounded step.";
        Min = "min", "The configured minimum.";
        Max = "max", "The configured maximum.";
        GpuBudget = "gpu_budget", "The configured GPU budget.";
        Pinned = "pinned", "The operator's pin.";
    }
}

closed_set! {
    /// A stage that a wish passes on its way to a plan.
    Stage {
        Growth = "growth", "Bounds the growth of one decision.";
        HoldDown = "hold_down", "Allows a decrease only where the data support it.";
        StepDown = "step_down", "Bounds what one decision takes away.";
        Limits = "limits", "Applies the configured minimum and maximum.";
        GpuBudget = "gpu_budget", "Applies the GPU budgets of the model and of all models.";
    }
}

closed_set! {
    /// What a stage did and why.
    StepReason {
        WithinLimit = "within_limit", "The wish passed unchanged.";
        Transition = "transition", "Replicas of an earlier increase arrive one after the other; the pool does not grow further meanwhile.";
        RecentlyNeeded = "recently_needed", "Fewer were not enough a short while ago: what goes would come back.";
        Refuted = "refuted", "That count was tried at this load in the last hours, and was not enough.";
        StepCapped = "step_capped", "One decision takes away no more replicas.";
        GrowthCapped = "growth_capped", "The wish exceeded the growth that one decision may make.";
        NotConfirmed = "not_confirmed", "A large rise: the decision before did not want that many.";
        CoverageBelowLowering = "coverage_below_lowering", "The window describes too little of the fleet to allow a decrease.";
        SilentTargetsMayCarryLoad = "silent_targets_may_carry_load", "With the silent targets at their last or the average load, more replicas are needed than the data in hand ask for.";
        PaddedDemand = "padded_demand", "A tenth more than is expected would need more replicas than the data in hand ask for.";
        ManyFreshReplicas = "many_fresh_replicas", "More than a quarter of the replicas have just started: a rollout, or a restart of the fleet; a pool does not shrink meanwhile.";
        Rollout = "rollout", "The pool shows two generations of its replicas: its template was changed, and it does not shrink meanwhile.";
        ReplicasMissing = "replicas_missing", "Replicas have gone without being asked to: what is left says nothing of the load that they carried.";
        NotConverged = "not_converged", "The learned model is not certain enough yet to give back what its estimate has to spare, or was estimated anew in this window.";
        ObjectiveMissed = "objective_missed", "An objective is missed now: no replica is given back meanwhile, whatever the model says.";
        DemandCensored = "demand_censored", "The servers do not say what arrives and latencies are above the objective: completions say nothing of what is wanted.";
        FirstWindowIncomplete = "first_window_incomplete", "A process that has not watched for long enough since its start does not shrink a pool.";
        RaisedToMinimum = "raised_to_minimum", "The wish was below the configured minimum.";
        LoweredToMaximum = "lowered_to_maximum", "The wish was above the configured maximum.";
        LoweredToBudget = "lowered_to_budget", "The GPU budget is not enough for all that is wanted.";
        BudgetHeldByOthers = "budget_held_by_others", "The GPUs are granted and still held by other pools: replicas that end, or are awaited there.";
        RaisedToBudget = "raised_to_budget", "The GPU budget's minimum is to be used whatever the load.";
    }
}

closed_set! {
    /// What a decision was missing. Each meaning says where it would come from.
    Capability {
        SeparatePools = "separate_pools", "The page says that it is a prefill or a decode server, and nothing says which pool it belongs to: in a configuration file, write a pool of role prefill and one of role decode, each with the targets of its servers.";
        ReplicaPages = "replica_pages", "The targets are front ends that do not know how full their servers are: add the servers' own pages.";
        KvUsage = "kv_usage", "The share of the KV memory in use: the server exports no such gauge, or the front end does not know it.";
        Waiting = "waiting", "The number of requests that wait: the server exports no such gauge.";
        QueuedPrompts = "queued_prompts", "Prompts that wait, in tokens or as a number: where prefill servers export neither, write their front end under traffic.targets.";
        ContextLength = "context_length", "Tokens of the longest request: write it under capabilities of the pool.";
        PromptLengths = "prompt_lengths", "The mean length of prompts: no request of the window recorded it.";
        OutputLengths = "output_lengths", "The mean length of answers: no request of the window recorded it.";
        Ttft = "ttft", "The time to the first token: no request of the window recorded it, or it is not plausible.";
        Itl = "itl", "The time between tokens: no request of the window recorded it.";
        KvCapacity = "kv_capacity", "Tokens that the KV memory of a replica holds: the server does not export it; write max_kv_tokens under capabilities of the pool.";
        Running = "running", "The number of requests that run: the server exports no such gauge.";
        BatchedTokens = "max_num_batched_tokens", "Most tokens of a step, without which no TTFT can be told: the server does not export it; write it under capabilities of the pool.";
        WorkerCount = "worker_count", "The number of replicas: no page lists those of this role; give the pool targets, or another replicas_from.";
    }
}

closed_set! {
    /// How the load of a replica follows from its inputs. Where a router speaks for its fleet, its counts are divided by the replicas.
    LoadRule {
        Usage = "usage", "kv_usage, since nothing waits";
        Lengths = "lengths", "kv_usage + waiting * (input_tokens + output_tokens / 2) / kv_capacity_tokens";
        Running = "running", "kv_usage + kv_usage * waiting / running, since the lengths or the capacity are not known";
        Full = "full", "the larger of kv_usage and 1: requests wait, and what they need cannot be told";
        QueuedContexts = "queued_contexts", "queued_prompt_tokens / context_length";
        QueuedTokens = "queued_tokens", "queued_prompt_tokens";
        WaitingContexts = "waiting_contexts", "waiting * input_tokens / context_length";
        WaitingTokens = "waiting_tokens", "waiting * input_tokens";
    }
}

closed_set! {
    /// What the latencies expected of the next request ask for.
    LatencyCause {
        ScaleUp = "scale_up", "An objective would be missed, or the slow loop wants more.";
        ScaleDown = "scale_down", "The rest could carry the load.";
        Outrun = "scale_up_outrun", "Prompts wait and more come than were served while they waited, whatever an iteration costs.";
        NotConfirmed = "scale_up_not_confirmed", "An objective would be missed, and was not a moment ago: the next decisions must agree.";
        Draining = "draining", "An objective would be missed because of a queue that will be gone before a further replica could be ready.";
        NoChange = "no_change", "Nothing asks for a change.";
        RefusedConsolidation = "scale_down_refused_consolidation", "The objectives are met, and would not be with one replica less.";
        CappedByThroughput = "scale_down_capped_by_throughput", "The rest could carry the load, but the slow loop wants more.";
        Unbalanced = "unbalanced", "Single replicas would miss an objective that all would meet if the load were spread evenly: look at the routing.";
        InsufficientData = "insufficient_data", "The cost of an iteration, or the load, is not known.";
    }
}

closed_set! {
    /// Where the objectives come from.
    SloSource {
        Explicit = "explicit", "They are written, or the preset's own.";
        Learned = "learned", "They are the latencies of the queueing model at the wanted utilization.";
        Observed = "observed", "The model is not certain enough yet: one and a half times the lowest latencies seen so far.";
    }
}

closed_set! {
    /// Something the operator should know about a decision that was made all the same.
    Warning {
        TtftBelowFloor = "ttft_below_floor", "The TTFT objective is at or below the measured service time of one prompt: no number of replicas can meet it, and the queue budget is off.";
        HeadroomBelowFifth = "headroom_below_fifth", "The TTFT objective leaves less than 20 % of the service time for waiting; the queue budget is off, since noise would dominate it.";
        ItlBelowFloor = "itl_below_floor", "The ITL objective is below the fastest point of the profile: no number of replicas can meet it; sized at the least occupied point.";
        PrefillGrowthCapped = "prefill_growth_capped", "More prefill replicas are wanted than one decision may add.";
        DecodeGrowthCapped = "decode_growth_capped", "More decode replicas are wanted than one decision may add.";
        ObjectiveBelowModel = "objective_below_model", "An objective is below what the learned model gives an idle replica: no number of replicas can meet it; sized for the wanted utilization.";
        LoadBalancedTarget = "load_balanced_target", "A target answers from several processes in turn; point the exporter at each replica, not at a load balancer.";
        Outrun = "outrun", "What a replica serves within the objectives is not known yet, requests wait, and more come than were served while they waited: the count that carries them is asked for.";
        SpacingUnlearned = "spacing_unlearned", "What a step takes at another load is not known yet, and the measured time between tokens is beyond its objective, or within a tenth of it: more replicas in proportion are asked for, whose smaller batches tell it.";
        BucketsUnusable = "buckets_unusable", "The buckets of a latency histogram do not agree with each other; its quantiles are left out.";
    }
}

closed_set! {
    /// What a loop did in this round.
    LoopDecision {
        Scale = "scale", "A new count was decided.";
        Stay = "stay", "The count was confirmed.";
        Hold = "hold", "The count is held.";
        Wait = "wait", "No decision is due.";
    }
}

closed_set! {
    /// How the operator overrides a pool.
    OverrideKind {
        Pin = "pin", "A decreed count.";
        Freeze = "freeze", "The last published count.";
        Shadow = "shadow", "Nothing is published.";
    }
}

closed_set! {
    /// How the decisions of a model are counted.
    Outcome {
        Changed = "changed", "At least one pool's recommendation changed.";
        Unchanged = "unchanged", "All recommendations were confirmed.";
        Held = "held", "The window was skipped.";
    }
}

#[expect(clippy::derivable_impls, reason = "the macro that makes closed sets knows no default member")]
impl Default for SloSource {
    fn default() -> Self {
        Self::Explicit
    }
}
