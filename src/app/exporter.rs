//! What happens with one round of reports? Every model is planned, checked, counted and shown; one model never touches another.
//!
//! This is the tick without its clock, sockets and files: reports and a moment in, a snapshot and a list of events out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::app::events::{Event, changes, new_problems, recommendations};
use crate::app::facts::{UNNAMED_MODEL, input_of, seen_models};
use crate::app::fleet::{Fleet, engines_of, replicas_of, stale_lists};
use crate::app::planning::{Planned, Task, plan_all};
use crate::app::quiet::Quiet;
use crate::app::{status, tally};
use crate::config::{Config, ModelConfig, ModelSelector};
use crate::decisions::{self, Decision, DecisionId, Ledger, Refusal};
use crate::export::served::patience;
use crate::export::snapshot::{Counters, ModelSnapshot, ReloadState, Snapshot, SourceLabels, TargetStatus};
use crate::history::{self, ModelHistory};
use crate::planner::allotment::{Claim, allot};
use crate::planner::input::{Lifecycle, ModelInput, SourceId, SourceInput};
use crate::planner::memory::{Lasting, Memory, PoolMemory};
use crate::planner::plan::{Plan, Reason};
use crate::planner::policy::ModelPolicy;
use crate::planner::ration::claims;
use crate::planner::{hold, reissue};
use crate::scrape::report::TargetReport;
use crate::units::{ModelId, Moment, PoolId, TargetId};

/// Models that a pattern may plan at the same time: far more than one fleet serves, and few enough to stay small if labels run wild.
const MOST_DISCOVERED: usize = 100;

/// Everything that lives from round to round.
#[derive(Debug)]
pub struct Exporter {
    config: Arc<Config>,
    models: Vec<ModelState>,
    counters: Counters,
    reload: ReloadState,
    targets: Vec<TargetStatus>,
    ready: bool,
    process_start: Duration,
    ledger: Ledger,
    /// Models that were seen and cannot be planned, so that each is told once.
    unplannable: BTreeSet<ModelId>,
    /// What the log was told of targets lately.
    quiet: Quiet,
    /// Pools of a former process that no planned model has claimed yet.
    restored: BTreeMap<StateKey, Lasting>,
}

/// Whose pools a part of the state file holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateKey {
    /// Model.
    pub model: ModelId,
    /// Its namespace.
    pub target_namespace: String,
}

#[derive(Debug)]
struct ModelState {
    /// Index into the configuration's models.
    origin: usize,
    key: StateKey,
    policy: Arc<ModelPolicy>,
    /// Shared with those who record what led to a decision.
    memory: Arc<Memory>,
    plan: Arc<Plan>,
    engines: BTreeMap<PoolId, String>,
    replicas: BTreeMap<PoolId, Lifecycle>,
    history: ModelHistory,
    stale_lists: Vec<String>,
    /// Which models the targets show instead, in words.
    absent: Option<String>,
    /// Whether it stands for models that no target has named yet.
    stand_in: bool,
    /// When a target last named it, on the monotonic clock; decides only for models that a pattern found.
    seen: Duration,
}

/// What one model did in a round: what recording needs to make the decision again.
#[derive(Clone, Debug)]
pub struct Round {
    /// The policy.
    pub policy: Arc<ModelPolicy>,
    /// The input.
    pub input: ModelInput,
    /// The memory from before.
    pub before: Arc<Memory>,
    /// The memory afterwards.
    pub after: Arc<Memory>,
    /// The plan.
    pub plan: Arc<Plan>,
    /// Whether the model stands for those that no target has named yet.
    pub stand_in: bool,
}

impl Exporter {
    /// An exporter before its first round. What is pinned, frozen or restored is already published.
    pub fn new(config: Arc<Config>, restored: BTreeMap<StateKey, Lasting>, ledger: Ledger, now: Moment) -> Self {
        let mut exporter = Self {
            config: Arc::clone(&config),
            models: Vec::new(),
            counters: Counters::default(),
            reload: ReloadState { successful: true, last_success: now.wall },
            targets: Vec::new(),
            ready: false,
            process_start: now.wall,
            ledger,
            unplannable: BTreeSet::new(),
            quiet: Quiet::default(),
            restored,
        };
        exporter.add_named_models(now);
        exporter
    }

    /// The configuration in force.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Puts a new configuration into force. What belongs to models and pools that stay is kept; a model whose preset or capacity model changed
    /// forgets what was derived from the old one.
    pub fn adopt(&mut self, config: Arc<Config>, now: Moment) {
        self.reload = ReloadState { successful: true, last_success: now.wall };
        self.config = Arc::clone(&config);
        for state in std::mem::take(&mut self.models) {
            self.restored.insert(state.key.clone(), state.memory.lasting());
            let serves = |model: &ModelConfig| {
                let named = model.selector == ModelSelector::Named(state.key.model.clone());
                (named || model.selector == ModelSelector::Any) && model.target_namespace == state.key.target_namespace
            };
            let Some(origin) = config.models.iter().position(serves) else { continue };
            let Ok(policy) = config.models[origin].policy_for(&state.key.model) else { continue };
            let same = policy.preset == state.policy.preset && policy.capacity == state.policy.capacity;
            let memory = Arc::unwrap_or_clone(state.memory);
            let memory = if same { memory } else { memory.without_decision() };
            // The new limits, pins and modes bind now, not at the next round.
            let interval_changed = policy.interval != state.policy.interval;
            let (plan, memory) = reissue(&state.plan, memory, &policy, interval_changed, now);
            let mut history = state.history;
            history.set_span(history_span(&config));
            self.models.push(ModelState {
                origin,
                policy: Arc::new(policy),
                memory: Arc::new(memory),
                plan: Arc::new(plan),
                history,
                ..state
            });
        }
        self.models.sort_by(|a, b| (a.origin, &a.key).cmp(&(b.origin, &b.key)));
        self.add_named_models(now);
    }

    /// Notes that a new configuration was refused.
    pub fn reload_failed(&mut self) {
        self.reload.successful = false;
    }

    /// Plans every model with one round of reports about this fleet, in the order of the configuration.
    pub fn round(&mut self, reports: &[TargetReport], fleet: &Fleet, now: Moment) -> (Vec<Round>, Vec<Event>) {
        let by_target: BTreeMap<&TargetId, &TargetReport> = reports.iter().map(|report| (&report.target, report)).collect();
        let mut events = self.add_discovered_models(&by_target, fleet, now);
        let config = Arc::clone(&self.config);
        let mut rounds = Vec::new();
        let inputs = self.inputs(fleet, &by_target, now);
        let tasks = self.models.iter().zip(&inputs);
        let tasks = tasks.map(|(state, input)| Task { input, before: &state.memory, policy: &state.policy }).collect::<Vec<_>>();
        let planned = plan_all(&tasks, now);
        for ((state, input), planned) in self.models.iter_mut().zip(inputs).zip(planned) {
            let sources = fleet.sources(state.origin);
            tally::refreshes(&mut self.counters, &state.policy, &state.key.target_namespace, sources);
            tally::scrapes(&mut self.counters, &state.policy, &state.key.target_namespace, &input);
            let before = Arc::clone(&state.memory);
            let Planned { plan, after, violations } = planned;
            self.counters.lint_violations += violations.len() as u64;
            events.extend(violations.into_iter().map(|violation| Event::Violation { model: state.key.model.clone(), violation }));
            tally::plan(&mut self.counters, &state.policy, &state.key.target_namespace, &plan);
            events.extend(changes(&state.plan, &plan));
            state.history.note(&plan, patience(config.scrape.interval));
            let after = Arc::new(after);
            state.memory = Arc::clone(&after);
            state.plan = Arc::new(plan);
            state.replicas = replicas_of(sources, &state.policy);
            state.stale_lists = stale_lists(sources);
            let absent = status::absent_everywhere(&config.models[state.origin], sources, &by_target);
            if let Some(problem) = absent.clone().filter(|_| absent != state.absent) {
                events.push(Event::Unplannable { model: state.key.model.clone(), problem });
            }
            state.absent = absent;
            state.engines = engines_of(sources, &state.policy, &by_target);
            rounds.push(Round {
                policy: Arc::clone(&state.policy),
                input,
                before,
                after,
                plan: Arc::clone(&state.plan),
                stand_in: state.stand_in,
            });
        }
        let planned: Vec<_> = self.models.iter().map(|state| (state.origin, &*state.policy)).collect();
        let targets = status::statuses(&config, fleet, &by_target, &planned, &self.targets);
        events.extend(self.quiet.pass(new_problems(&self.targets, &targets), now.monotonic));
        self.targets = targets;
        self.ready = true;
        events.extend(self.issue_decisions(now));
        events.extend(self.ledger.overdue(now).into_iter().map(Event::Unacknowledged));
        (rounds, events)
    }

    /// The facts about every model, with what a budget of all of them leaves to each. What they wanted in the round before counts: so each model
    /// is planned by itself, and the budget holds in every round.
    fn inputs(&self, fleet: &Fleet, reports: &BTreeMap<&TargetId, &TargetReport>, now: Moment) -> Vec<ModelInput> {
        let input = |state: &ModelState| input_of(fleet.sources(state.origin), &state.key.model, reports);
        let mut inputs: Vec<ModelInput> = self.models.iter().map(input).collect();
        if self.config.gpus.is_open() {
            return inputs;
        }
        let claims = |(state, input): (&ModelState, &ModelInput)| claims(&state.memory, input, &state.policy, now);
        let claims: Vec<Claim> = self.models.iter().zip(&inputs).flat_map(claims).collect();
        let grants = allot(&claims, self.config.gpus);
        for (state, input) in self.models.iter().zip(&mut inputs) {
            let own = state.policy.pools.iter().filter_map(|pool| Some((pool.pool.clone(), *grants.get(&pool.pool)?)));
            input.allowed = own.collect();
        }
        inputs
    }

    /// What our pages show from now on.
    pub fn snapshot(&self, now: Moment) -> Snapshot {
        let model = |state: &ModelState| ModelSnapshot {
            target_namespace: state.key.target_namespace.clone(),
            policy: Arc::clone(&state.policy),
            plan: Arc::clone(&state.plan),
            engines: state.engines.clone(),
            replicas: state.replicas.clone(),
            history: state.history.clone(),
            remarks: state.stale_lists.iter().chain(&state.absent).cloned().collect(),
        };
        Snapshot {
            at: now,
            ready: self.ready,
            models: self.models.iter().map(model).collect(),
            decisions: self.ledger.standing(),
            targets: self.targets.clone(),
            max_target_series: self.config.max_target_series,
            gpus: self.config.gpus,
            counters: self.counters.clone(),
            reload: self.reload,
            scrape_interval: self.config.scrape.interval,
            config_hash: self.config.hash.clone(),
            process_start: self.process_start,
        }
    }

    /// The part of memory that survives a restart, by model. Pools of a former process that have not been seen yet are passed on.
    pub fn persistent(&self) -> BTreeMap<StateKey, Lasting> {
        let mut kept = self.restored.clone();
        kept.extend(self.models.iter().map(|state| (state.key.clone(), state.memory.lasting())));
        kept
    }

    /// The decisions, for the next process.
    pub fn kept_decisions(&self) -> decisions::Kept {
        self.ledger.kept()
    }

    /// The newest decision; 0 before the first.
    pub fn last_decision(&self) -> DecisionId {
        self.ledger.last_id()
    }

    /// Makes a decision for every model for which something else is published than its last decision says. A round does that itself.
    pub fn issue_decisions(&mut self, now: Moment) -> Vec<Event> {
        let published = self.models.iter().map(|state| decisions::ModelState::of(&state.plan, &state.key.target_namespace));
        recommendations(&self.ledger.observe(published, &self.config.hash, now))
    }

    /// Notes that someone has acted on a decision.
    pub fn acknowledge(&mut self, id: DecisionId, by: Option<String>, now: Moment) -> Result<Decision, Refusal> {
        self.ledger.acknowledge(id, by, now)
    }

    fn add_named_models(&mut self, now: Moment) {
        let config = Arc::clone(&self.config);
        for (origin, model) in config.models.iter().enumerate() {
            // A named model's policy is complete; only patterns can fail to be filled in.
            if let ModelSelector::Named(name) = &model.selector {
                self.add_model(origin, name.clone(), model.policy.clone(), now);
            }
        }
    }

    /// Starts planning models that the targets name for the first time, and forgets those that no target has named for `hold_for`, but for
    /// what was learned.
    fn add_discovered_models(&mut self, reports: &BTreeMap<&TargetId, &TargetReport>, fleet: &Fleet, now: Moment) -> Vec<Event> {
        let mut events = Vec::new();
        let config = Arc::clone(&self.config);
        for (origin, model) in config.models.iter().enumerate().filter(|(_, model)| model.selector == ModelSelector::Any) {
            for name in seen_models(fleet.sources(origin), reports) {
                if let Some(known) = self.models.iter_mut().find(|state| state.origin == origin && state.key.model == name) {
                    known.seen = now.monotonic;
                    known.stand_in = false;
                    continue;
                }
                let policy = model.policy_for(&name).and_then(|policy| self.room_for(policy));
                match policy {
                    Ok(policy) => self.add_model(origin, name, policy, now),
                    Err(problem) if self.unplannable.len() < MOST_DISCOVERED && self.unplannable.insert(name.clone()) => {
                        events.push(Event::Unplannable { model: name, problem });
                    }
                    Err(_) => {}
                }
            }
            let is_gone = |state: &ModelState| {
                let own = state.origin == origin && !state.stand_in;
                own && now.monotonic.saturating_sub(state.seen) > state.policy.hold_for
            };
            let gone: Vec<ModelState> = self.models.extract_if(.., |state| is_gone(state)).collect();
            gone.into_iter().for_each(|state| self.keep_learned(state));
            self.stand_in(origin, now);
        }
        events
    }

    /// Keeps what was learned of a model's replicas for when it is named again: that is good for `learned_for`, which the planner looks after. What
    /// was recommended is gone.
    fn keep_learned(&mut self, state: ModelState) {
        let lasting = state.memory.lasting();
        let learned = Arc::unwrap_or_clone(state.memory).pools.into_iter().filter(|(_, pool)| pool.learning.is_some());
        let pools: BTreeMap<PoolId, PoolMemory> =
            learned.map(|(name, pool)| (name, PoolMemory { learning: pool.learning, ..PoolMemory::default() })).collect();
        let lasting = Lasting { pools, ..lasting };
        if lasting.pools.is_empty() && lasting.iterations.is_empty() {
            return;
        }
        self.restored.insert(state.key, lasting);
        let taught = |lasting: &Lasting| lasting.pools.values().filter_map(|pool| Some(pool.learning.as_ref()?.at)).max();
        if self.restored.len() > MOST_DISCOVERED
            && let Some(oldest) = self.restored.iter().min_by_key(|(_, lasting)| taught(lasting)).map(|(key, _)| key.clone())
        {
            self.restored.remove(&oldest);
        }
    }

    /// Sees to it that a pattern without models says why: one named as those without a name are stands for them, and leaves with the first.
    fn stand_in(&mut self, origin: usize, now: Moment) {
        if self.models.iter().any(|state| state.origin == origin && !state.stand_in) {
            let leaving = self.models.extract_if(.., |state| state.origin == origin && state.stand_in);
            // What a former process published under its name waits on for the model that really has it.
            let published =
                leaving.filter(|state| state.memory.pools.values().any(|pool| pool.published.is_some() || pool.learning.is_some()));
            self.restored.extend(published.map(|state| (state.key, state.memory.lasting())));
        } else if !self.models.iter().any(|state| state.origin == origin) {
            let name = ModelId::from(UNNAMED_MODEL);
            if let Ok(policy) = self.config.models[origin].policy_for(&name).and_then(|policy| self.room_for(policy)) {
                self.add_model(origin, name, policy, now);
                self.models.iter_mut().filter(|state| state.origin == origin).for_each(|state| state.stand_in = true);
            }
        }
    }

    fn room_for(&self, policy: ModelPolicy) -> Result<ModelPolicy, String> {
        if self.models.len() >= MOST_DISCOVERED {
            return Err(format!("expected at most {MOST_DISCOVERED} models on the targets; name the ones to plan in a configuration file"));
        }
        self.free_of_collisions(policy)
    }

    fn free_of_collisions(&self, policy: ModelPolicy) -> Result<ModelPolicy, String> {
        let taken: BTreeSet<&PoolId> = self.models.iter().flat_map(|state| state.policy.pools.iter()).map(|pool| &pool.pool).collect();
        match policy.pools.iter().find(|pool| taken.contains(&pool.pool)) {
            Some(pool) => {
                Err(format!("expected a pool name that no other model has, got {}; name the models in a configuration file", pool.pool))
            }
            None => Ok(policy),
        }
    }

    fn add_model(&mut self, origin: usize, model: ModelId, policy: ModelPolicy, now: Moment) {
        let key = StateKey { model, target_namespace: self.config.models[origin].target_namespace.clone() };
        if self.models.iter().any(|state| state.origin == origin && state.key == key) {
            return;
        }
        let mut lasting = self.restored.remove(&key).unwrap_or_default();
        for published in lasting.pools.values_mut().filter_map(|pool| pool.published.as_mut()) {
            // Written while the clock was wrong, or under a longer hold_for: nothing lives longer than a value of today.
            published.timestamp = published.timestamp.min(now.wall);
            published.valid_until = published.valid_until.min(now.wall.saturating_add(policy.hold_for));
        }
        let memory = Memory::restored(lasting);
        // Nothing was scraped yet, but every source is known: its counters start at 0.
        let sources = self.config.models[origin].sources.iter();
        let sources = sources.map(|source| SourceInput {
            source: source.source.clone(),
            discovery_failed: false,
            targets: Vec::new(),
            lifecycle: None,
        });
        let input = ModelInput::of(sources.collect());
        let (plan, memory) = hold(&input, memory, &policy, now, Reason::Baseline);
        let memory = Arc::new(Memory::restored(memory.lasting()));
        self.models.push(ModelState {
            origin,
            key,
            policy: Arc::new(policy),
            memory,
            plan: Arc::new(plan),
            engines: BTreeMap::new(),
            replicas: BTreeMap::new(),
            history: ModelHistory::new(history_span(&self.config)),
            stale_lists: Vec::new(),
            absent: None,
            stand_in: false,
            seen: now.monotonic,
        });
    }
}

/// What is shown: the last hours, or what the next report is about where that is more.
fn history_span(config: &Config) -> Duration {
    config.report.as_ref().map_or(history::SPAN, |report| report.interval)
}

/// The labels of a source's counters.
pub fn source_labels(policy: &ModelPolicy, target_namespace: &str, source: &SourceId) -> SourceLabels {
    let pool = match source {
        SourceId::Traffic => None,
        SourceId::Pool(id) => policy.pools.iter().find(|pool| pool.pool == *id),
    };
    SourceLabels {
        model: policy.model.as_str().to_owned(),
        target_namespace: target_namespace.to_owned(),
        pool: pool.map(|pool| pool.pool.clone()),
        role: pool.map(|pool| pool.role),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::config::{self, Flags, Inputs};
    use crate::scrape::discover::Listing;
    use crate::scrape::lower::lower;

    /// A page of a server that has completed so many requests; its model label.
    fn page(model: &str, requests: f64) -> String {
        let mut page = String::new();
        for (name, mean) in [
            ("time_to_first_token_seconds", 0.0237),
            ("inter_token_latency_seconds", 0.0155),
            ("request_prompt_tokens", 512.0),
            ("request_generation_tokens", 128.0),
        ] {
            let name = ["vllm", name].join(":");
            let _ = writeln!(page, "# TYPE {name} histogram\n{name}_bucket{{model_name=\"{model}\",le=\"+Inf\"}} {requests}");
            let _ = writeln!(
                page,
                "{name}_sum{{model_name=\"{model}\"}} {}\n{name}_count{{model_name=\"{model}\"}} {requests}",
                mean * requests
            );
        }
        page
    }

    #[test]
    fn what_was_learned_of_a_model_outlives_the_time_in_which_nobody_names_it() {
        let flags = Flags {
            metrics_urls: vec!["http://10.0.0.1:8000/metrics".to_owned()],
            preset: Some("wva".to_owned()),
            adjustment_interval: Some(std::time::Duration::from_secs(60)),
            ..Flags::default()
        };
        let loaded = config::read(Inputs { flags, ..Inputs::default() }).finish(&BTreeMap::new()).unwrap();
        let config = Arc::new(loaded.config);
        let target = config.models[0].sources[0].targets[0].target.clone();
        let fleet = Fleet::of(&config, |_| Listing::default());
        let start = Moment { monotonic: std::time::Duration::ZERO, wall: std::time::Duration::from_secs(1_795_953_600) };
        let mut exporter = Exporter::new(config, BTreeMap::new(), Ledger::default(), start);
        let mut minute = 0;
        let mut look = |exporter: &mut Exporter, model: &str| {
            let now = start.after(std::time::Duration::from_secs(60 * minute));
            minute += 1;
            let outcome = lower(page(model, 600.0 * minute as f64).as_bytes(), None, None, false);
            let report = TargetReport { target: target.clone(), at: now.monotonic, duration: std::time::Duration::ZERO, outcome };
            drop(exporter.round(&[report], &fleet, now));
        };
        let learned = |exporter: &Exporter| {
            let state = exporter.models.iter().find(|state| state.key.model.as_str() == "org/m")?;
            state.memory.pools.values().find_map(|pool| Some(pool.learning.clone()?.learned))
        };
        (0..3).for_each(|_| look(&mut exporter, "org/m"));
        let before = learned(&exporter).expect("it has learned");
        (0..12).for_each(|_| look(&mut exporter, "org/other"));
        assert!(exporter.models.iter().all(|state| state.key.model.as_str() == "org/other"), "nobody names it any more");
        look(&mut exporter, "org/m");
        assert_eq!(learned(&exporter), Some(before));
        let published = exporter.models.iter().find(|state| state.key.model.as_str() == "org/m");
        assert_eq!(published.and_then(|state| state.plan.pools[0].recommended_replicas), None, "what was recommended is gone");
    }
}
