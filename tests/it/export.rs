//! Does the metrics page hold what the contract promises, whatever the snapshot?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use inference_planner_exporter::export::catalog::{self, Level, Values};
use inference_planner_exporter::export::page::Page;
use inference_planner_exporter::export::samples::families;
use inference_planner_exporter::export::snapshot::{Snapshot, SourceLabels};
use inference_planner_exporter::export::{process, reference};
use inference_planner_exporter::planner::input::{FailureKind, SourceId};
use inference_planner_exporter::planner::plan::{Limit, LoopDecision, Outcome, OverrideKind, Plan, Published, Reason, SourceState};
use inference_planner_exporter::planner::policy::Mode;
use inference_planner_exporter::units::{Moment, PoolId, Replicas, Role};
use prometheus::proto::MetricFamily;

/// Snapshots to show; used by the server's tests as well.
pub mod fixture {
    use std::collections::BTreeMap;
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::time::Duration;

    use inference_planner_exporter::decisions::{Kept, Ledger, ModelState};
    use inference_planner_exporter::export::snapshot::{Counters, ModelSnapshot, ReloadState, Snapshot, TargetStatus};
    use inference_planner_exporter::history::{ModelHistory, SPAN};
    use inference_planner_exporter::planner::input::*;
    use inference_planner_exporter::planner::model::envelope::{DecodeProfile, Envelope, PrefillProfile, ProfileDocument};
    use inference_planner_exporter::planner::plan::*;
    use inference_planner_exporter::planner::policy::*;
    use inference_planner_exporter::planner::predict::Method;
    use inference_planner_exporter::planner::shadows::Score;
    use inference_planner_exporter::units::*;

    /// When the fixture's round was planned.
    pub const AT: Moment = Moment { monotonic: Duration::from_secs(1000), wall: Duration::from_secs(1_700_000_000) };
    /// How long the fixture's recommendations stay valid from [`AT`].
    pub const VALID: Duration = Duration::from_secs(600);

    pub fn envelope() -> Envelope {
        Envelope::new(ProfileDocument {
            prefill: PrefillProfile { isl: vec![512.0, 2048.0], ttft_ms: vec![60.0, 215.0], thpt_per_gpu: vec![8500.0, 9500.0] },
            decode: DecodeProfile {
                kv_usage: vec![0.1, 0.9],
                context_length: vec![1024.0],
                itl_ms: vec![vec![11.0, 30.0]],
                thpt_per_gpu: vec![vec![900.0, 3000.0]],
                max_kv_tokens: 262_144.0,
            },
            prefill_engine_num_gpu: 1,
            decode_engine_num_gpu: 1,
        })
        .unwrap()
    }

    fn slo() -> Slo {
        Slo { ttft: Positive::new(0.5).unwrap(), itl: Positive::new(0.05).unwrap(), statistic: Statistic::Mean, explicit: true }
    }

    pub fn policy(model: &str, pools: [&str; 2]) -> ModelPolicy {
        let pool = |name: &str, role| PoolPolicy {
            pool: name.into(),
            role,
            gpus_per_replica: None,
            cost: None,
            accelerator: None,
            limits: Limits::new(Replicas(1), Replicas(16)).unwrap(),
            replicas_from: ReplicasFrom::Metric,
            targets_per_replica: NonZeroU32::MIN,
            capabilities: Default::default(),
            pin: None,
        };
        ModelPolicy {
            model: model.into(),
            preset: Preset::Infera,
            mode: Mode::Publish,
            slo: slo(),
            interval: Duration::from_secs(180),
            scrape_interval: Duration::from_secs(5),
            hold_for: VALID,
            capacity: CapacityModel::Envelope(Box::new(envelope())),
            load: None,
            auto: None,
            warm_up: Duration::from_secs(120),
            predictor: None,
            correction: true,
            growth: GrowthRule::TimesObserved(NonZeroU32::new(4).unwrap()),
            step_down: None,
            transition_timeout: None,
            gpus: GpuBand::default(),
            priority: 0,
            regression: None,
            traffic_change: ChangeRule::SkipWindow,
            pools: vec![pool(pools[0], Role::Prefill), pool(pools[1], Role::Decode)],
        }
    }

    fn pool_plan(name: &str, role: Role, current: u32, proposed: &[(Proposer, u32)]) -> PoolPlan {
        let wish = Replicas(proposed.iter().map(|&(_, replicas)| replicas).max().unwrap());
        PoolPlan {
            pool: name.into(),
            role,
            current_replicas: Some(Replicas(current)),
            recommended_replicas: Some(wish),
            planned_replicas: Some(wish),
            unbounded_replicas: Some(wish),
            proposed: proposed.iter().map(|&(proposer, replicas)| (proposer, Replicas(replicas))).collect(),
            steps: vec![Step { stage: Stage::Growth, before: wish, after: wish, reason: StepReason::WithinLimit }],
            limits_active: Vec::new(),
            held: false,
            reason: Reason::None,
            overridden: None,
            published: Some(Published { replicas: wish, timestamp: AT.wall, valid_until: AT.wall + VALID }),
            slow_loop: LoopDecision::Scale,
            fast_loop: LoopDecision::Wait,
            load: None,
            startup: Some(Seconds(95.0)),
            missing: Vec::new(),
            capacity_unavailable: Some(false),
            coming_replicas: None,
            coverage: Some(Ratio(1.0)),
            gpus_per_replica: 1,
            latency: None,
            capacity: None,
            auto: None,
            queueing: None,
            untaught: None,
        }
    }

    /// The snapshot where preset auto has decided for the first pool, and its proposers are scored.
    pub fn scored() -> Snapshot {
        let score = |error, short| Score { error: Ratio(error), short: Ratio(short) };
        let auto = AutoTrace {
            rate: RequestsPerSecond(20.0),
            slope: 0.0,
            over: Seconds(640.0),
            error: RequestsPerSecond(0.2),
            noise: Ratio(1.0),
            horizon: Seconds(105.0),
            planned_rate: RequestsPerSecond(20.2),
            input_tokens: Tokens(2048.0),
            output_tokens: Tokens(256.0),
            slower: Ratio(1.0),
            replica_rate: RequestsPerSecond(4.6),
            share: Ratio(0.995),
            need: Replicas(2),
            within: Some(Ratio(0.998)),
            within_less: Some(Ratio(0.9)),
            left: Requests(0.0),
            wave: RequestsPerSecond(0.0),
            noisiest: Ratio(1.0),
            padded: Replicas(2),
            recent: Replicas(2),
            refuted: Replicas(0),
            scores: BTreeMap::from([(Proposer::Auto, score(0.1, 0.0)), (Proposer::MeanCapacity, score(0.1, 0.1))]),
        };
        let mut snapshot = snapshot();
        let mut plan = Plan::clone(&snapshot.models[0].plan);
        plan.pools[0].auto = Some(auto);
        snapshot.models[0].plan = Arc::new(plan);
        snapshot
    }

    fn trace() -> EnvelopeTrace {
        EnvelopeTrace {
            prefill_replicas: Replicas(2),
            decode_replicas: Replicas(4),
            prefill_gpus_per_replica: 1,
            decode_gpus_per_replica: 1,
            request_duration_seconds: Seconds(3.485_133_75),
            prompt_latency_seconds: Seconds(0.215),
            prompt_tokens_per_second_per_gpu: TokensPerSecond(9500.0),
            mean_context_tokens: Tokens(2176.0),
            in_flight_per_decode_replica: Requests(2.962_363_687_5),
            kv_fraction: Ratio(0.1),
            generation_latency_seconds: Seconds(0.01175),
            generation_tokens_per_second_per_gpu: TokensPerSecond(843.75),
            prompt_tokens_per_second: TokensPerSecond(6963.2),
            generated_tokens_per_second: TokensPerSecond(870.4),
            prefill_throughput_budget: Replicas(1),
            prefill_queue_budget: Replicas(2),
            effective_itl_budget_seconds: Seconds(0.048_496_605_237_633_37),
            capacity_kv_fraction: Ratio(0.697_979_797_979_797_9),
            capacity_itl_seconds: Seconds(0.023_191_919_191_919_19),
            capacity_tokens_per_second_per_gpu: TokensPerSecond(3_035.858_585_858_585_7),
            decode_budget: Replicas(1),
        }
    }

    fn observation() -> Observation {
        let (ttft, itl) = (Seconds(0.396), Seconds(0.012_114_25));
        Observation {
            elapsed_seconds: Seconds(180.0),
            requests: Some(Requests(612.0)),
            offered_requests: Some(Requests(612.0)),
            requests_per_second: Some(RequestsPerSecond(3.4)),
            estimated_requests_per_second: Some(RequestsPerSecond(3.4)),
            input_tokens: Some(Tokens(2048.0)),
            output_tokens: Some(Tokens(256.0)),
            ttft_seconds: Some(ttft),
            itl_seconds: Some(itl),
            ttft_statistics: BTreeMap::from([(Statistic::Mean, ttft), (Statistic::P99, Seconds(0.9))]),
            itl_statistics: BTreeMap::from([(Statistic::Mean, itl)]),
            ttft_attainment: Some(Ratio(0.8)),
            itl_attainment: None,
        }
    }

    pub fn plan(model: &str, pools: [&str; 2]) -> Plan {
        let latencies = Latencies { ttft_seconds: Some(Seconds(0.396)), itl_seconds: Some(Seconds(0.0121)) };
        Plan {
            model: model.into(),
            preset: Preset::Infera,
            mode: Mode::Publish,
            at: AT,
            decided: true,
            outcome: Some(Outcome::Changed),
            held: false,
            reason: Reason::None,
            slo: slo(),
            slo_source: SloSource::Explicit,
            prompt: PhaseState { met: Some(true), attainable: Some(true) },
            generation: PhaseState { met: Some(true), attainable: None },
            observation: Some(observation()),
            prediction: Some(Prediction {
                requests_per_second: RequestsPerSecond(3.4),
                estimated_requests_per_second: RequestsPerSecond(3.4),
                input_tokens: Tokens(2048.0),
                output_tokens: Tokens(256.0),
            }),
            outlook: None,
            predictor_errors: BTreeMap::from([(Method::Constant, Ratio(0.2))]),
            latency_ratio: LatencyRatios { prompt: Some(Ratio(1.841_860_465_116_279)), generation: Some(Ratio(1.031)) },
            estimated: Estimates { current: latencies, recommended: latencies },
            envelope: Some(trace()),
            warnings: vec![Warning::HeadroomBelowFifth],
            sources: vec![SourceState { source: SourceId::Traffic, up: 1, stale: 1, down: 0, resets: Vec::new() }],
            pools: vec![
                pool_plan(pools[0], Role::Prefill, 2, &[(Proposer::EnvelopeThroughput, 1), (Proposer::EnvelopeQueue, 2)]),
                pool_plan(pools[1], Role::Decode, 4, &[(Proposer::EnvelopeDecode, 1)]),
            ],
        }
    }

    pub fn target(name: &str, up: bool) -> TargetStatus {
        TargetStatus {
            target: name.into(),
            pool: None,
            role: None,
            engine: "infera".to_owned(),
            up,
            duration: Duration::from_millis(12),
            missing: if up { vec![] } else { vec!["itl"] },
            problem: (!up).then(|| "timeout: no complete answer within 4s".to_owned()),
        }
    }

    pub fn model(name: &str, pools: [&str; 2]) -> ModelSnapshot {
        ModelSnapshot {
            target_namespace: "llm".to_owned(),
            policy: Arc::new(policy(name, pools)),
            plan: Arc::new(plan(name, pools)),
            engines: pools.iter().map(|&pool| (pool.into(), "infera".to_owned())).collect(),
            replicas: BTreeMap::new(),
            history: ModelHistory::new(SPAN),
            remarks: Vec::new(),
        }
    }

    pub fn snapshot() -> Snapshot {
        let models = vec![model("Qwen/Qwen3-8B", ["qwen-prefill", "qwen-decode"])];
        let mut ledger = Ledger::restored(Kept::default(), Some(Duration::from_secs(1800)), AT);
        ledger.observe(models.iter().map(|model| ModelState::of(&model.plan, &model.target_namespace)), "0123456789ab", AT);
        Snapshot {
            at: AT,
            ready: true,
            models,
            decisions: ledger.standing(),
            targets: vec![target("10.0.0.1:8000/metrics", true), target("10.0.0.2:8000/metrics", false)],
            max_target_series: 1000,
            gpus: GpuBand { min: None, max: Some(64) },
            counters: Counters { state_write_failures: Some(0), report_write_failures: Some(2), ..Counters::default() },
            reload: ReloadState { successful: true, last_success: AT.wall },
            scrape_interval: Duration::from_secs(5),
            config_hash: "0123456789ab".to_owned(),
            process_start: AT.wall - Duration::from_secs(1000),
        }
    }

    /// The same snapshot with one model's plan changed.
    pub fn with_plan(change: impl FnOnce(&mut Plan)) -> Snapshot {
        let mut snapshot = snapshot();
        change(Arc::make_mut(&mut snapshot.models[0].plan));
        snapshot
    }
}

/// Labels of a series and its value.
type Series = (BTreeMap<String, String>, f64);

fn series_of(families: &[MetricFamily], name: &str) -> Vec<Series> {
    let Some(family) = families.iter().find(|family| family.name() == name) else { return Vec::new() };
    family
        .get_metric()
        .iter()
        .map(|metric| {
            let labels = metric.get_label().iter().map(|pair| (pair.name().to_owned(), pair.value().to_owned())).collect();
            let value = if name.ends_with("_total") { metric.get_counter().get_value() } else { metric.get_gauge().get_value() };
            (labels, value)
        })
        .collect()
}

/// Values by the value of one label.
fn by_label(snapshot: &Snapshot, now: Moment, family: &catalog::Family, label: &str) -> BTreeMap<String, f64> {
    series_of(&families(snapshot, now), &family.name()).into_iter().map(|(labels, value)| (labels[label].clone(), value)).collect()
}

fn recommended(snapshot: &Snapshot, now: Moment) -> BTreeMap<String, f64> {
    by_label(snapshot, now, &catalog::RECOMMENDED_REPLICAS, "pool")
}

fn page(snapshot: Snapshot) -> String {
    Page::new(Arc::new(ArcSwap::from_pointee(snapshot)), Arc::new(|| fixture::AT)).unwrap().render().unwrap()
}

#[test]
fn the_reference_is_what_the_catalogue_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export/README.md");
    let wanted = reference::render();
    if std::env::var_os("UPDATE_REFERENCES").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "src/export/README.md is out of date; rewrite it with UPDATE_REFERENCES=1 cargo test --test it export");
}

#[test]
fn our_names_are_spelled_in_the_catalogue_only() {
    fn walk(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("export/catalog.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                // The crate's own name starts like the metrics' prefix.
                let spelled = text.replace("inference_planner_exporter", "").contains(catalog::PREFIX);
                // Every process spells these so; engines read them from servers, and tests show pages of servers.
                let test = path.to_string_lossy().ends_with("_tests.rs");
                let engines = test || path.components().any(|part| part.as_os_str() == "engines");
                let mut process_names = catalog::ALL.iter().filter(|family| family.level == Level::Process && !engines);
                let named = process_names.find(|family| text.contains(&format!("\"{}\"", family.short)));
                if spelled || named.is_some() {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn each_proposer_of_preset_auto_has_its_scores() {
    let snapshot = fixture::scored();
    let of = |family| by_label(&snapshot, fixture::AT, family, "proposer");
    let scores = |auto, other| BTreeMap::from([("auto".to_owned(), auto), ("mean_capacity".to_owned(), other)]);
    assert_eq!(of(&catalog::PROPOSER_ERROR_RATIO), scores(0.1, 0.1));
    assert_eq!(of(&catalog::PROPOSER_SHORT_RATIO), scores(0.0, 0.1));
}

#[test]
fn every_family_of_the_catalogue_has_a_series_and_no_other_is_exported() {
    let mut snapshot = fixture::snapshot();
    let traffic = SourceLabels { model: "Qwen/Qwen3-8B".to_owned(), target_namespace: "llm".to_owned(), pool: None, role: None };
    snapshot.counters.discovery_refreshes.insert(traffic, (3, 1));
    let mut names: BTreeSet<_> = families(&snapshot, fixture::AT).iter().map(|family| family.name().to_owned()).collect();
    names.extend(families(&fixture::scored(), fixture::AT).iter().map(|family| family.name().to_owned()));
    names.extend(families(&crate::queueing_shown::learned(), fixture::AT).iter().map(|family| family.name().to_owned()));
    let process = process::ProcessUse {
        cpu_seconds: Some(1.5),
        resident_bytes: Some(1.0),
        virtual_bytes: Some(1.0),
        open_fds: Some(1.0),
        max_fds: Some(1.0),
    };
    names.extend(inference_planner_exporter::export::samples::process_families(&process).iter().map(|family| family.name().to_owned()));
    let catalogued: BTreeSet<_> = catalog::ALL.iter().map(|family| family.name()).collect();
    assert_eq!(names, catalogued);
}

#[test]
fn series_carry_exactly_the_catalogued_labels_and_closed_values() {
    let presets = [fixture::snapshot(), crate::queueing_shown::learned()];
    for family in presets.iter().flat_map(|snapshot| families(snapshot, fixture::AT)) {
        let record = catalog::by_name(family.name()).unwrap();
        assert_eq!(family.help(), record.help);
        let names = catalog::labels(family.name()).unwrap();
        let mut seen = BTreeSet::new();
        for metric in family.get_metric() {
            let labels: Vec<_> = metric.get_label().iter().map(|pair| pair.name()).collect();
            assert_eq!(labels, names, "{}", family.name());
            let values: Vec<_> = metric.get_label().iter().map(|pair| pair.value().to_owned()).collect();
            assert!(seen.insert(values), "{} repeats a series", family.name());
            for label in record.labels {
                let Values::Closed(members) = label.values else { continue };
                let value = metric.get_label().iter().find(|pair| pair.name() == label.name).unwrap().value();
                let traffic = value.is_empty() && label.name == "role";
                assert!(traffic || members().iter().any(|member| member.0 == value), "{} {} {value}", family.name(), label.name);
            }
        }
    }
}

#[test]
fn a_recommendation_is_one_integer_a_pool() {
    let series = series_of(&families(&fixture::snapshot(), fixture::AT), &catalog::RECOMMENDED_REPLICAS.name());
    let label = |series: &Series, name: &str| series.0[name].clone();
    assert_eq!(series.len(), 2);
    assert_eq!(label(&series[1], "pool"), "qwen-prefill");
    assert_eq!(label(&series[1], "role"), "prefill");
    assert_eq!(label(&series[1], "target_namespace"), "llm");
    assert_eq!(label(&series[1], "model"), "Qwen/Qwen3-8B");
    assert_eq!((series[0].1, series[1].1), (1.0, 2.0));
}

#[test]
fn a_recommendation_expires_by_the_time_that_passed_and_not_by_the_wall_clock() {
    let snapshot = fixture::snapshot();
    let nearly = fixture::VALID - Duration::from_millis(1);
    assert_eq!(recommended(&snapshot, fixture::AT.after(nearly)).len(), 2);
    assert_eq!(recommended(&snapshot, fixture::AT.after(fixture::VALID)).len(), 0);

    // The wall clock stepped back by an hour while the loop was stuck: the value is as old as it was.
    let stepped = Moment { monotonic: fixture::AT.monotonic + fixture::VALID, wall: fixture::AT.wall - Duration::from_secs(3600) };
    assert_eq!(recommended(&snapshot, stepped).len(), 0);
    // And forward: nothing is lost.
    let stepped = Moment { monotonic: fixture::AT.monotonic, wall: fixture::AT.wall + Duration::from_secs(3600) };
    assert_eq!(recommended(&snapshot, stepped).len(), 2);
}

#[test]
fn an_expired_recommendation_leaves_its_times_and_the_rest_of_the_page() {
    let late = fixture::AT.after(fixture::VALID * 2);
    let families = families(&fixture::snapshot(), late);
    assert_eq!(series_of(&families, &catalog::RECOMMENDATION_VALID_UNTIL.name()).len(), 2);
    assert_eq!(series_of(&families, &catalog::RECOMMENDATION_FOLLOWED.name()).len(), 0);
    assert_eq!(series_of(&families, &catalog::PLANNED_REPLICAS.name()).len(), 2);
}

#[test]
fn a_value_that_was_valid_until_before_the_snapshot_is_not_served() {
    let snapshot =
        fixture::with_plan(|plan| plan.pools[0].published.as_mut().unwrap().valid_until = fixture::AT.wall - Duration::from_secs(1));
    assert_eq!(recommended(&snapshot, fixture::AT).keys().collect::<Vec<_>>(), ["qwen-decode"]);
}

#[test]
fn shadow_shows_everything_but_the_recommendation() {
    let snapshot = fixture::with_plan(|plan| plan.pools.iter_mut().for_each(|pool| pool.overridden = Some(OverrideKind::Shadow)));
    assert_eq!(recommended(&snapshot, fixture::AT).len(), 0);
    assert_eq!(by_label(&snapshot, fixture::AT, &catalog::PLANNED_REPLICAS, "pool").len(), 2);
    // A pin is stronger than the mode of its model.
    let pinned = fixture::with_plan(|plan| {
        plan.mode = Mode::Shadow;
        plan.pools[0].overridden = Some(OverrideKind::Pin);
        plan.pools[1].overridden = Some(OverrideKind::Shadow);
    });
    assert_eq!(recommended(&pinned, fixture::AT).len(), 1);
}

#[test]
fn unknown_numbers_have_no_series() {
    let snapshot = fixture::with_plan(|plan| {
        plan.observation = None;
        plan.prediction = None;
        plan.latency_ratio = Default::default();
        plan.estimated = Default::default();
        plan.prompt = Default::default();
        for pool in &mut plan.pools {
            pool.published = None;
            pool.planned_replicas = None;
            pool.unbounded_replicas = None;
            pool.current_replicas = None;
            pool.coverage = None;
            pool.proposed.clear();
        }
    });
    let exported = families(&snapshot, fixture::AT);
    for absent in [
        &catalog::RECOMMENDED_REPLICAS,
        &catalog::PLANNED_REPLICAS,
        &catalog::CURRENT_REPLICAS,
        &catalog::OBSERVED_TTFT,
        &catalog::OFFERED_REQUESTS_PER_SECOND,
        &catalog::PREDICTED_REQUESTS_PER_SECOND,
        &catalog::LATENCY_RATIO,
        &catalog::ESTIMATED_ITL,
        &catalog::RECOMMENDATION_TIMESTAMP,
    ] {
        assert!(series_of(&exported, &absent.name()).is_empty(), "{}", absent.short);
    }
    assert!(exported.iter().all(|family| !family.get_metric().is_empty()));
}

#[test]
fn state_sets_have_one_member_set() {
    let snapshot = fixture::with_plan(|plan| {
        let pool = &mut plan.pools[0];
        pool.held = true;
        pool.reason = Reason::CoverageLow;
        pool.slow_loop = LoopDecision::Hold;
        pool.limits_active = vec![Limit::HoldDown];
        pool.overridden = Some(OverrideKind::Pin);
    });
    let exported = families(&snapshot, fixture::AT);
    for (family, label, member, members) in [
        (&catalog::HOLD_REASON, "reason", "coverage_low", Reason::ALL.len()),
        (&catalog::LOOP_DECISION, "decision", "hold", LoopDecision::ALL.len()),
        (&catalog::LIMIT_ACTIVE, "limit", "hold_down", Limit::ALL.len()),
        (&catalog::OVERRIDE_ACTIVE, "kind", "pin", OverrideKind::ALL.len()),
    ] {
        let of_pool = series_of(&exported, &family.name()).into_iter().filter(|(labels, _)| labels["pool"] == "qwen-prefill");
        let series: Vec<_> = of_pool.filter(|(labels, _)| labels.get("loop").is_none_or(|which| which == "slow")).collect();
        assert_eq!(series.len(), members, "{}", family.short);
        let set: Vec<_> = series.iter().filter(|(_, value)| *value == 1.0).map(|(labels, _)| labels[label].as_str()).collect();
        assert_eq!(set, [member], "{}", family.short);
    }
}

#[test]
fn every_child_of_a_closed_counter_starts_at_zero() {
    let exported = families(&fixture::snapshot(), fixture::AT);
    for (family, children) in [
        (&catalog::DECISIONS, Outcome::ALL.len()),
        (&catalog::WINDOWS_SKIPPED, Reason::ALL.iter().filter(|reason| reason.hold_kind().is_some()).count()),
        (&catalog::LIMITS_APPLIED, 2 * Limit::ALL.len()),
        (&catalog::SCRAPES, FailureKind::ALL.len() + 1),
        (&catalog::TARGET_RESETS, 1),
        (&catalog::LINT_VIOLATIONS, 1),
    ] {
        let series = series_of(&exported, &family.name());
        assert_eq!(series.len(), children, "{}", family.short);
        assert!(series.iter().all(|(_, value)| *value == 0.0), "{}", family.short);
    }
}

#[test]
fn counts_land_on_their_own_series_and_those_of_a_model_that_is_gone_end() {
    let mut snapshot = fixture::snapshot();
    let key = |model: &str| (model.to_owned(), "llm".to_owned());
    let source = |pool: Option<&str>, role| SourceLabels {
        model: "Qwen/Qwen3-8B".to_owned(),
        target_namespace: "llm".to_owned(),
        pool: pool.map(PoolId::from),
        role,
    };
    for model in ["Qwen/Qwen3-8B", "gone"] {
        let (model, namespace) = key(model);
        snapshot.counters.decisions.insert((model, namespace, Outcome::Held), 3);
    }
    snapshot.counters.scrapes.insert((source(None, None), Some(FailureKind::TooLarge)), 4);
    snapshot.counters.scrapes.insert((source(None, None), None), 5);
    snapshot.counters.limits_applied.insert((source(Some("qwen-decode"), Some(Role::Decode)), Limit::Max), 6);
    let exported = families(&snapshot, fixture::AT);
    let nonzero = |family: &catalog::Family| -> Vec<_> {
        let series = series_of(&exported, &family.name()).into_iter().filter(|(_, value)| *value != 0.0);
        series.map(|(labels, value)| (labels.values().cloned().collect::<Vec<_>>().join(" "), value)).collect()
    };
    assert_eq!(nonzero(&catalog::DECISIONS), [("Qwen/Qwen3-8B held llm".to_owned(), 3.0)]);
    let scrapes: BTreeSet<_> = nonzero(&catalog::SCRAPES).into_iter().map(|(labels, value)| (labels, value as u64)).collect();
    assert_eq!(scrapes, BTreeSet::from([("Qwen/Qwen3-8B  ok  llm".to_owned(), 5), ("Qwen/Qwen3-8B  too_large  llm".to_owned(), 4)]));
    assert_eq!(nonzero(&catalog::LIMITS_APPLIED), [("max Qwen/Qwen3-8B qwen-decode decode llm".to_owned(), 6.0)]);
}

#[test]
fn a_pool_without_targets_of_its_own_shows_those_of_the_traffic_source() {
    let snapshot = fixture::with_plan(|plan| {
        let own = SourceState { source: SourceId::Pool("qwen-decode".into()), up: 7, stale: 0, down: 2, resets: Vec::new() };
        plan.sources.push(own);
    });
    let series = series_of(&families(&snapshot, fixture::AT), &catalog::POOL_TARGETS.name());
    let count = |pool: &str, state: &str| series.iter().find(|(labels, _)| labels["pool"] == pool && labels["state"] == state).unwrap().1;
    assert_eq!((count("qwen-prefill", "up"), count("qwen-prefill", "stale"), count("qwen-prefill", "down")), (1.0, 1.0, 0.0));
    assert_eq!((count("qwen-decode", "up"), count("qwen-decode", "stale"), count("qwen-decode", "down")), (7.0, 0.0, 2.0));
}

#[test]
fn per_target_families_are_left_out_above_the_limit() {
    let mut snapshot = fixture::snapshot();
    snapshot.max_target_series = 2;
    assert_eq!(by_label(&snapshot, fixture::AT, &catalog::TARGET_UP, "target").len(), 2);
    snapshot.max_target_series = 1;
    let exported = families(&snapshot, fixture::AT);
    for family in catalog::ALL.iter().filter(|family| family.level == Level::Target) {
        assert!(series_of(&exported, &family.name()).is_empty(), "{}", family.short);
    }
    assert!(!series_of(&exported, &catalog::POOL_TARGETS.name()).is_empty());
}

#[test]
fn a_recommendation_is_followed_when_the_ready_replicas_equal_it() {
    let followed = by_label(&fixture::snapshot(), fixture::AT, &catalog::RECOMMENDATION_FOLLOWED, "pool");
    assert_eq!(followed, BTreeMap::from([("qwen-decode".to_owned(), 0.0), ("qwen-prefill".to_owned(), 1.0)]));
}

#[test]
fn equal_snapshots_give_equal_pages_with_every_family_once() {
    let strip = |page: String| page.lines().filter(|line| !line.contains("process_")).map(str::to_owned).collect::<Vec<_>>();
    let lines = strip(page(fixture::snapshot()));
    assert_eq!(lines, strip(page(fixture::snapshot())));
    let types: Vec<_> = lines.iter().filter(|line| line.starts_with("# TYPE")).collect();
    assert_eq!(types.len(), types.iter().collect::<BTreeSet<_>>().len());
    assert!(lines.iter().any(|line| line
        == &format!(
            "{}{{model=\"Qwen/Qwen3-8B\",target_namespace=\"llm\",pool=\"qwen-prefill\",role=\"prefill\"}} 2",
            catalog::RECOMMENDED_REPLICAS.name()
        )));
}

#[test]
fn names_with_quotes_and_line_breaks_stay_inside_their_label() {
    let mut snapshot = fixture::snapshot();
    snapshot.models = vec![fixture::model("a\"b\\c\nd 1", ["p", "d"])];
    let text = page(snapshot);
    assert!(text.contains(r#"model="a\"b\\c\nd 1""#));
    assert!(text.lines().all(|line| line.starts_with('#') || line.rsplit_once(' ').unwrap().1.parse::<f64>().is_ok()));
}

#[test]
fn two_models_of_one_name_do_not_repeat_a_series() {
    let mut snapshot = fixture::snapshot();
    snapshot.models.push(snapshot.models[0].clone());
    let text = page(snapshot);
    let series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(series.len(), series.iter().collect::<BTreeSet<_>>().len());
}

#[test]
fn only_what_may_be_served_is_served_as_a_plan() {
    let snapshot = fixture::snapshot();
    let recommended = |plan: Plan| plan.pools.into_iter().map(|pool| pool.recommended_replicas).collect::<Vec<_>>();
    let served = |now| inference_planner_exporter::export::served::as_served(&snapshot, &snapshot.models[0], now);
    assert_eq!(recommended(served(fixture::AT)), [Some(Replicas(2)), Some(Replicas(1))]);
    assert_eq!(recommended(served(fixture::AT.after(fixture::VALID))), [None, None]);
}

#[test]
fn a_pin_is_served_as_long_as_it_says() {
    let until = fixture::AT.wall + Duration::from_secs(86_400);
    let snapshot = fixture::with_plan(|plan| {
        let pool = &mut plan.pools[0];
        pool.overridden = Some(OverrideKind::Pin);
        pool.published = Some(Published { replicas: Replicas(9), timestamp: fixture::AT.wall, valid_until: until });
    });
    let late = fixture::AT.after(Duration::from_secs(86_399));
    assert_eq!(recommended(&snapshot, late), BTreeMap::from([("qwen-prefill".to_owned(), 9.0)]));
}

#[cfg(feature = "real-programs")]
#[test]
fn promtool_finds_nothing_to_say_about_the_page() {
    use std::io::Write;
    use std::process::{Command, Stdio};

    for snapshot in [fixture::snapshot(), crate::queueing_shown::learned()] {
        let mut promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool is installed by tests/run");
        promtool.stdin.take().unwrap().write_all(page(snapshot).as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
    }
}

#[test]
fn a_decision_times_out_where_it_is_awaited_and_something_is_published() {
    let timed_out = |snapshot: &Snapshot, after: Duration| {
        let series = series_of(&families(snapshot, fixture::AT.after(after)), &catalog::DECISION_TIMED_OUT.name());
        series.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
    };
    let mut snapshot = fixture::snapshot();
    for pool in &mut Arc::make_mut(&mut snapshot.models[0].plan).pools {
        pool.published.as_mut().unwrap().valid_until += Duration::from_secs(3600);
    }
    assert_eq!(timed_out(&snapshot, Duration::from_secs(1799)), [0.0]);
    assert_eq!(timed_out(&snapshot, Duration::from_secs(1800)), [1.0]);
    assert!(timed_out(&fixture::snapshot(), Duration::from_secs(1800)).is_empty(), "expired: there is nothing to act on");
    snapshot.decisions.decisions[0].due = None;
    assert!(timed_out(&snapshot, Duration::ZERO).is_empty(), "nobody may acknowledge");
}
