//! Which families do we export, and under which names and labels? One record each; everything else asks this table.
//!
//! The encoder, the generated reference and the tests walk [`ALL`]; no other file spells a family's name. A name here is a promise
//! to dashboards, alerts and autoscalers: it may gain labels, it is not renamed.

use crate::planner::input::FailureKind;
use crate::planner::learn::Update;
use crate::planner::plan::{Limit, LoopDecision, Outcome, OverrideKind, Proposer, Reason, SloSource};
use crate::planner::policy::{Mode, Preset, Statistic};
use crate::planner::predict::Method;
use crate::units::Role;

/// What every family of ours starts with; those of [`Level::Process`] keep the names that all exporters share.
pub const PREFIX: &str = "inference_planner_";

/// Whether a family may fall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that rises and falls.
    Gauge,
    /// A count since the process started.
    Counter,
}

impl Kind {
    /// The word in a TYPE line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// What one series of a family describes; decides the labels that all families of the level share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// One model.
    Model,
    /// One pool of a model.
    Pool,
    /// One pool, or the traffic source of a model, whose pool and role are empty.
    Source,
    /// One scraped endpoint.
    Target,
    /// This exporter.
    Exporter,
    /// This process, under the names that all exporters share.
    Process,
}

impl Level {
    /// All levels, in the order of the reference.
    pub const ALL: [Self; 6] = [Self::Model, Self::Pool, Self::Source, Self::Target, Self::Exporter, Self::Process];

    /// Labels of every series of the level, in order.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Model => &["model", "target_namespace"],
            Self::Pool | Self::Source => &["model", "target_namespace", "pool", "role"],
            Self::Target => &["target"],
            Self::Exporter | Self::Process => &[],
        }
    }

    /// The word in the reference.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Pool => "pool",
            Self::Source => "source",
            Self::Target => "target",
            Self::Exporter => "exporter",
            Self::Process => "process",
        }
    }
}

/// One member of a closed set: its label value and its meaning.
pub type Member = (&'static str, &'static str);

/// What a label may say.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// A name from the configuration or a version; the text says which.
    Named(&'static str),
    /// One of a closed set.
    Closed(fn() -> Vec<Member>),
}

/// A label that a family has besides those of its level.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: Values,
}

/// One exported family.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name without the prefix.
    pub short: &'static str,
    /// Gauge or counter.
    pub kind: Kind,
    /// What a series describes.
    pub level: Level,
    /// Labels besides those of the level, in order.
    pub labels: &'static [Label],
    /// The HELP text.
    pub help: &'static str,
}

impl Family {
    /// The full name, as exported.
    pub fn name(&self) -> String {
        match self.level {
            Level::Process => self.short.to_owned(),
            _ => format!("{PREFIX}{}", self.short),
        }
    }

    /// All label names, in the order in which series carry them.
    pub fn label_names(&self) -> impl Iterator<Item = &'static str> {
        self.level.labels().iter().copied().chain(self.labels.iter().map(|label| label.name))
    }
}

/// The family of that full name.
pub fn by_name(name: &str) -> Option<&'static Family> {
    ALL.iter().copied().find(|family| family.name() == name)
}

/// The labels of the family of that full name, in order; `None` for a name that is not ours.
pub fn labels(name: &str) -> Option<Vec<&'static str>> {
    by_name(name).map(|family| family.label_names().collect())
}

macro_rules! closed_labels {
    ($($name:ident = $label:literal: $set:ty;)+) => {
        $(const $name: Label = Label {
            name: $label,
            values: Values::Closed(|| <$set>::ALL.iter().map(|member| (member.as_str(), member.meaning())).collect()),
        };)+
    };
}

closed_labels! {
    PROPOSER = "proposer": Proposer;
    SLO_SOURCE = "source": SloSource;
    REASON = "reason": Reason;
    LIMIT = "limit": Limit;
    DECISION = "decision": LoopDecision;
    OVERRIDE = "kind": OverrideKind;
    OUTCOME = "outcome": Outcome;
}

const STATE: Label = Label {
    name: "state",
    values: Values::Closed(|| {
        vec![
            ("ready", "Replicas that serve."),
            ("starting", "Replicas that do not serve yet; known with Kubernetes discovery."),
            ("terminating", "Replicas that serve no longer; known with Kubernetes discovery."),
        ]
    }),
};
const ENGINE: Label = Label { name: "engine", values: Values::Named("the dialect of the targets; empty before the first answer") };
const ACCELERATOR: Label = Label { name: "accelerator", values: Values::Named("the accelerator, where the configuration names it") };
const PRESET: Label =
    Label { name: "preset", values: Values::Closed(|| Preset::ALL.iter().map(|preset| (preset.as_str(), "A planning preset.")).collect()) };
const MODE: Label = Label {
    name: "mode",
    values: Values::Closed(|| {
        let meaning = |mode| match mode {
            Mode::Publish => "Computed and published.",
            Mode::Shadow => "Computed and shown, but no recommendation is published.",
            Mode::Freeze => "The last published integer stays, without expiry.",
        };
        Mode::ALL.iter().map(|&mode| (mode.as_str(), meaning(mode))).collect()
    }),
};
const LOOP: Label = Label {
    name: "loop",
    values: Values::Closed(|| {
        vec![
            ("slow", "The loop that decides at multiples of the adjustment interval, from a window and a model."),
            ("fast", "The loop that decides from how full the replicas are right now."),
        ]
    }),
};
const PHASE: Label = Label {
    name: "phase",
    values: Values::Closed(|| vec![("prompt", "Up to the first token: TTFT."), ("generation", "After the first token: ITL.")]),
};
const BUDGET: Label = Label { name: "budget", values: Values::Named("`all models`, or the model whose own it is") };
const PREDICTOR: Label =
    Label { name: "predictor", values: Values::Closed(|| Method::ALL.iter().map(|method| (method.name(), method.meaning())).collect()) };
const AT: Label = Label {
    name: "at",
    values: Values::Closed(|| vec![("current", "At the observed count."), ("recommended", "At the recommended count.")]),
};
const STATISTIC: Label = Label {
    name: "statistic",
    values: Values::Closed(|| {
        let meaning = |statistic| match statistic {
            Statistic::Mean => "Sum over count.",
            Statistic::P50 => "Median, from buckets.",
            Statistic::P90 => "90th percentile, from buckets.",
            Statistic::P95 => "95th percentile, from buckets.",
            Statistic::P99 => "99th percentile, from buckets.",
        };
        Statistic::ALL.iter().map(|&statistic| (statistic.as_str(), meaning(statistic))).collect()
    }),
};
const TARGET_STATE: Label = Label {
    name: "state",
    values: Values::Closed(|| {
        vec![
            ("up", "Answered in this round."),
            ("down", "Failed for longer than two rounds."),
            ("stale", "Failed in this round, but answered in one of the two before."),
        ]
    }),
};
const RESULT: Label = Label {
    name: "result",
    values: Values::Closed(|| {
        let failures = FailureKind::ALL.iter().map(|&kind| (kind.as_str(), failure_meaning(kind)));
        std::iter::once((RESULT_OK, "A page was read.")).chain(failures).collect()
    }),
};
const BOUND: Label = Label {
    name: "bound",
    values: Values::Closed(|| {
        let [lower, estimate, upper] = BOUNDS;
        vec![
            (lower, "At least this, as far as the observations say; nothing is given back on more."),
            (estimate, "By the estimated parameters; what is added is sized with it."),
            (upper, "At most this."),
        ]
    }),
};
const UPDATE: Label = Label {
    name: "result",
    values: Values::Closed(|| UPDATES.iter().map(|&update| (update_name(update), update_meaning(update))).collect()),
};
const REFRESH: Label = Label {
    name: "result",
    values: Values::Closed(|| {
        vec![
            (RESULT_OK, "The list of targets was read."),
            (RESULT_FAILED, "It was not, or not wholly; what was known before stays in use."),
        ]
    }),
};
const POOL: Label = Label { name: "pool", values: Values::Named("the pool; empty for a traffic source") };
const ROLE: Label = Label {
    name: "role",
    values: Values::Closed(|| {
        let meaning = |role| match role {
            Role::Prefill => "Computes the prompt and the first token.",
            Role::Decode => "Generates the tokens after the first.",
            Role::Aggregated => "Does both.",
        };
        Role::ALL.iter().map(|&role| (role.as_str(), meaning(role))).collect()
    }),
};
const VERSION: Label = Label { name: "version", values: Values::Named("the version of this exporter") };

/// Label value of a scrape that gave a page, and of a look for targets that gave a list.
pub const RESULT_OK: &str = "ok";
/// Label value of a look for targets that failed.
pub const RESULT_FAILED: &str = "failed";
/// Label values of the ends of an interval and of the value between them.
pub const BOUNDS: [&str; 3] = ["lower", "estimate", "upper"];
/// What may become of a window that the queueing model learns from.
pub const UPDATES: [Update; 3] = [Update::Accepted, Update::Rejected, Update::Reset];

/// Label value of what became of a window.
pub fn update_name(update: Update) -> &'static str {
    match update {
        Update::Accepted => "accepted",
        Update::Rejected => "rejected",
        Update::Reset => "reset",
    }
}

fn update_meaning(update: Update) -> &'static str {
    match update {
        Update::Accepted => "The window fitted what was believed and refined it.",
        Update::Rejected => "The window did not fit what was believed, and has changed nothing yet.",
        Update::Reset => "The window was one contradiction too many: the parameters were estimated anew.",
    }
}

fn failure_meaning(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Resolve => "The host name has no address.",
        FailureKind::Connect => "No connection, or it broke.",
        FailureKind::Timeout => "No complete answer before the deadline.",
        FailureKind::Status => "An answer other than 200.",
        FailureKind::Parse => "Not a metrics page: HTML, JSON, or cut short.",
        FailureKind::TooLarge => "The body exceeds the limit, before or after inflating.",
        FailureKind::Empty => "A page without any sample that the engine knows.",
    }
}

macro_rules! families {
    ($($name:ident = $kind:ident $short:literal $level:ident [$($label:ident),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $name: Family = Family {
                short: $short,
                kind: Kind::$kind,
                level: Level::$level,
                labels: &[$($label),*],
                help: $help,
            };
        )+
        /// All families, in the order of the reference.
        pub const ALL: &[&Family] = &[$(&$name),+];
    };
}

families! {
    RECOMMENDED_REPLICAS = Gauge "recommended_replicas" Pool []
        "Replicas to run. Absent when expired, in shadow mode, or before the first decision; decided by the exporter's own loop, not by a scrape of this page.";
    PLANNED_REPLICAS = Gauge "planned_replicas" Pool [] "Replicas after limits, in every mode.";
    PROPOSED_REPLICAS = Gauge "proposed_replicas" Pool [PROPOSER] "Replicas that each proposer asked for.";
    UNBOUNDED_REPLICAS = Gauge "unbounded_replicas" Pool [] "Replicas wanted before any limit.";
    CURRENT_REPLICAS = Gauge "current_replicas" Pool [STATE] "Observed replicas by state; a state is present only where it is known.";
    REPLICAS_MIN = Gauge "replicas_min" Pool [] "Smallest count that may be recommended.";
    REPLICAS_MAX = Gauge "replicas_max" Pool [] "Largest count that may be recommended.";
    GPUS_PER_REPLICA = Gauge "gpus_per_replica" Pool [] "GPUs of one replica.";
    POOL_INFO = Gauge "pool_info" Pool [ENGINE, ACCELERATOR, PRESET, MODE] "Static facts of a pool; always 1.";
    RECOMMENDATION_TIMESTAMP = Gauge "recommendation_timestamp_seconds" Pool []
        "When the recommendation was computed or renewed, Unix time. Stays while the value it belongs to is known, also once expired.";
    RECOMMENDATION_VALID_UNTIL = Gauge "recommendation_valid_until_timestamp_seconds" Pool []
        "Until when the recommendation may be served, Unix time.";
    DECISION_INTERVAL = Gauge "decision_interval_seconds" Pool [] "Time between decisions.";
    RECOMMENDATION_HELD = Gauge "recommendation_held" Pool [] "1 while the recommendation is held rather than computed.";
    HOLD_REASON = Gauge "hold_reason" Pool [REASON] "State set: 1 for the reason in force; none while the value is computed, also where a limit kept it up: limit_active tells.";
    STARTUP = Gauge "startup_seconds" Pool [] "Measured time from a recommendation to a replica that it brought: the longest of the last few.";
    CAPACITY_UNAVAILABLE = Gauge "capacity_unavailable" Pool [] "1 while recommended replicas are awaited for more than three start-ups.";
    LOOP_DECISION = Gauge "loop_decision" Pool [LOOP, DECISION] "State set: 1 for what the loop did in the last round.";
    LIMIT_ACTIVE = Gauge "limit_active" Pool [LIMIT] "State set: 1 for each limit that changed the wish in the last decision; hold_down also while a learned model is not certain enough to give back what its estimate has to spare.";
    OVERRIDE_ACTIVE = Gauge "override_active" Pool [OVERRIDE] "State set: 1 for the operator's override in force.";
    LATENCY_RATIO = Gauge "latency_ratio" Model [PHASE] "Measured latency over that of the capacity model at the current count; 1 where they agree.";
    ESTIMATED_TTFT = Gauge "estimated_ttft_seconds" Model [AT] "Time to first token that the capacity model expects at a count.";
    ESTIMATED_ITL = Gauge "estimated_itl_seconds" Model [AT] "Time between tokens that the capacity model expects at a count.";
    OBSERVED_TTFT = Gauge "observed_ttft_seconds" Model [STATISTIC] "Time to first token in the last window.";
    OBSERVED_ITL = Gauge "observed_itl_seconds" Model [STATISTIC] "Time between tokens in the last window.";
    SLO_TTFT = Gauge "slo_ttft_seconds" Model [] "Objective for the time to first token.";
    SLO_ITL = Gauge "slo_itl_seconds" Model [] "Objective for the time between tokens.";
    SLO_INFO = Gauge "slo_info" Model [SLO_SOURCE, STATISTIC] "Where the objectives come from and which statistic they are held against; always 1.";
    SLO_MET = Gauge "slo_met" Model [PHASE] "1 while the observed statistic is within the objective.";
    SLO_ATTAINABLE = Gauge "slo_attainable" Model [PHASE] "1 while some number of replicas could meet the objective.";
    SLO_ATTAINMENT_RATIO = Gauge "slo_attainment_ratio" Model [PHASE] "Share of the last window within the objective, from histogram buckets.";
    OBSERVED_REQUESTS_PER_SECOND = Gauge "observed_requests_per_second" Model [] "Requests completed a second in the last window.";
    OFFERED_REQUESTS_PER_SECOND = Gauge "offered_requests_per_second" Model []
        "Requests that arrived a second in the last window: demand, also under backlog. Preset infera takes completions.";
    OBSERVED_MEAN_INPUT_TOKENS = Gauge "observed_mean_input_tokens" Model [] "Mean prompt length in the last window.";
    OBSERVED_MEAN_OUTPUT_TOKENS = Gauge "observed_mean_output_tokens" Model [] "Mean generated length in the last window.";
    PREDICTED_REQUESTS_PER_SECOND = Gauge "predicted_requests_per_second" Model [] "Requests a second expected in the next window.";
    PREDICTED_MEAN_INPUT_TOKENS = Gauge "predicted_mean_input_tokens" Model [] "Mean prompt length expected in the next window.";
    PREDICTED_MEAN_OUTPUT_TOKENS = Gauge "predicted_mean_output_tokens" Model [] "Mean generated length expected in the next window.";
    PROPOSER_ERROR_RATIO = Gauge "proposer_error_ratio" Pool [PROPOSER]
        "Mean distance of what each proposer of preset auto asked for from what was needed when it could serve, over what was needed. The last hours.";
    PROPOSER_SHORT_RATIO = Gauge "proposer_short_ratio" Pool [PROPOSER] "Of that, what was lacking.";
    PREDICTOR_ERROR_RATIO = Gauge "predictor_error_ratio" Model [PREDICTOR] "Mean distance of recent forecasts of requests from what came, over what came, for each predictor that runs.";
    WINDOW_COVERAGE_RATIO = Gauge "window_coverage_ratio" Pool [] "Share of the known replicas that the last window describes.";
    REPLICA_CAPACITY = Gauge "replica_capacity_requests_per_second" Pool [PROPOSER, BOUND] "Requests a second that one replica serves within the objectives. Absent where no rate meets them.";
    QUEUEING_ALPHA = Gauge "queueing_alpha_seconds" Pool [] "Learned fixed cost of an iteration.";
    QUEUEING_BETA = Gauge "queueing_beta_seconds_per_token" Pool [] "Learned cost of a token that is computed.";
    QUEUEING_GAMMA = Gauge "queueing_gamma_seconds_per_token" Pool [] "Learned cost of a token of KV memory that is read.";
    QUEUEING_NIS = Gauge "queueing_nis" Pool []
        "Normalized innovation squared of the last window: how far it was from what was expected. Absent where the model could not explain it at all.";
    QUEUEING_CONDITION = Gauge "queueing_condition_number" Pool []
        "How well the loads seen tell the learned parameters apart: up to 1000 they do. Absent where they do not at all.";
    QUEUEING_UTILIZATION = Gauge "queueing_utilization_ratio" Pool [] "Utilization of one replica in the last window by the learned parameters; absent where nobody served.";
    QUEUEING_UPDATES = Counter "queueing_updates_total" Pool [UPDATE] "Windows with requests and latencies that the queueing model looked at, by what became of them: accepted ones refined it, rejected ones did not fit it, at a reset it was estimated anew. Windows that taught nothing do not count.";
    DECISION_TIMED_OUT = Gauge "decision_timed_out" Model []
        "1 while nobody has acknowledged the last decision in time. Present only where acknowledgements are switched on and something is published.";
    DECISIONS = Counter "decisions_total" Model [OUTCOME] "Decisions by outcome.";
    WINDOWS_SKIPPED = Counter "windows_skipped_total" Model [REASON] "Windows that were not used for a decision, by reason.";
    LIMITS_APPLIED = Counter "limits_applied_total" Pool [LIMIT] "Decisions in which a limit changed the wish.";
    RECOMMENDATION_FOLLOWED = Gauge "recommendation_followed" Pool [] "1 while the ready replicas equal the recommendation.";
    POOL_TARGETS = Gauge "pool_targets" Pool [TARGET_STATE]
        "Scraped targets that inform the pool, by state: its own, or those of the model's traffic source.";
    TARGET_UP = Gauge "target_up" Target [] "1 while the target answers.";
    TARGET_SCRAPE_DURATION = Gauge "target_scrape_duration_seconds" Target [] "How long the target's last answer took.";
    TARGET_MISSING_ROLES = Gauge "target_missing_roles" Target [] "Measurements that every decision rests on and the target's page lacks.";
    TARGET_INFO = Gauge "target_info" Target [POOL, ROLE, ENGINE] "Where a target belongs; always 1.";
    SCRAPES = Counter "scrapes_total" Source [RESULT] "Scrapes of targets by result.";
    TARGET_RESETS = Counter "target_resets_total" Source [] "Rounds in which a target's counters had moved backwards: its server restarted.";
    DISCOVERY_REFRESHES = Counter "discovery_refreshes_total" Source [REFRESH] "Looks for the targets of a source by result; absent where they are written down.";
    LINT_VIOLATIONS = Counter "lint_violations_total" Exporter [] "Finished plans that broke a rule of the planner's own check and were not used.";
    GPU_BUDGET = Gauge "gpu_budget" Exporter [BUDGET] "Configured ceiling of GPUs. Absent where there is none.";
    STATE_WRITE_FAILURES = Counter "state_write_failures_total" Exporter []
        "Attempts to write the state file that the disk refused. Absent without a state file.";
    REPORT_WRITE_FAILURES = Counter "report_write_failures_total" Exporter []
        "Reports, and writes to the log of decisions, that the disk refused or that had to be dropped. Absent where reports are not configured.";
    CONFIG_LAST_RELOAD_SUCCESSFUL = Gauge "config_last_reload_successful" Exporter [] "1 if the last attempt to load the configuration succeeded.";
    CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP = Gauge "config_last_reload_success_timestamp_seconds" Exporter []
        "When the configuration was last loaded, Unix time.";
    BUILD_INFO = Gauge "build_info" Exporter [VERSION] "The build; always 1.";
    PROCESS_CPU = Counter "process_cpu_seconds_total" Process [] "Processor time of this process, user and system.";
    PROCESS_RESIDENT_MEMORY = Gauge "process_resident_memory_bytes" Process [] "Resident memory of this process.";
    PROCESS_VIRTUAL_MEMORY = Gauge "process_virtual_memory_bytes" Process [] "Virtual memory of this process.";
    PROCESS_OPEN_FDS = Gauge "process_open_fds" Process [] "Open file descriptors of this process.";
    PROCESS_MAX_FDS = Gauge "process_max_fds" Process [] "Largest number of open file descriptors of this process.";
    PROCESS_START_TIME = Gauge "process_start_time_seconds" Process [] "When this process started, Unix time.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_clean_for_promtool() {
        let units = ["milliseconds", "minutes", "hours", "days", "kilobytes", "percent"];
        let abbreviations = ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];
        for family in ALL {
            let name = family.name();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit()), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            for suffix in ["_count", "_sum", "_bucket", "_gauge", "_counter"] {
                assert!(!name.ends_with(suffix), "{name}");
            }
            for token in name.split('_') {
                assert!(!token.is_empty() && !units.contains(&token) && !abbreviations.contains(&token), "{name}");
            }
            assert_eq!(name.starts_with("process_"), family.level == Level::Process, "{name}");
            assert!(!family.help.is_empty() && family.help.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn every_name_occurs_once() {
        let names: BTreeSet<_> = ALL.iter().map(|family| family.name()).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn no_label_clashes_with_a_scrape_label_or_with_itself() {
        let taken = ["namespace", "pod", "job", "instance", "service", "endpoint", "container", "quantile", "le"];
        for family in ALL {
            let labels: Vec<_> = family.label_names().collect();
            assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), labels.len(), "{}", family.short);
            for label in labels {
                assert!(!taken.contains(&label) && !label.starts_with("__"), "{} {label}", family.short);
            }
        }
    }

    #[test]
    fn closed_sets_have_distinct_members_with_a_meaning() {
        for family in ALL {
            for label in family.labels {
                let Values::Closed(members) = label.values else { continue };
                let members = members();
                assert!(!members.is_empty(), "{} {}", family.short, label.name);
                assert_eq!(members.iter().map(|member| member.0).collect::<BTreeSet<_>>().len(), members.len());
                assert!(members.iter().all(|member| member.1.ends_with('.')), "{} {}", family.short, label.name);
            }
        }
    }

    #[test]
    fn levels_carry_the_labels_of_the_contract() {
        assert_eq!(labels(&RECOMMENDED_REPLICAS.name()).unwrap(), ["model", "target_namespace", "pool", "role"]);
        assert_eq!(labels(&LATENCY_RATIO.name()).unwrap(), ["model", "target_namespace", "phase"]);
        assert_eq!(labels(&TARGET_INFO.name()).unwrap(), ["target", "pool", "role", "engine"]);
        assert_eq!(labels(&SCRAPES.name()).unwrap(), ["model", "target_namespace", "pool", "role", "result"]);
        assert_eq!(labels("up"), None);
    }
}
