//! Do the pages of real servers lead to the numbers that really happened? Pages through exposition, engine and planner, to a plan.
//!
//! The pages were rendered by the servers' own metric code from a simulated workload, 15 s apart (vLLM 0.33's third one after a restart);
//! the expected numbers are what that workload did between them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inference_planner_exporter::engines::{Engine, Reading as PageReading, by_name};
use inference_planner_exporter::exposition::{Format, Wanted, read};
use inference_planner_exporter::planner::input::*;
use inference_planner_exporter::planner::lint::lint;
use inference_planner_exporter::planner::memory::Memory;
use inference_planner_exporter::planner::plan;
use inference_planner_exporter::planner::plan::{Capability, Missing, Plan, Reason};
use inference_planner_exporter::planner::policy::*;
use inference_planner_exporter::planner::propose::threshold::Target;
use inference_planner_exporter::report::{self, explain};
use inference_planner_exporter::units::*;

/// A wall clock that is a multiple of 15 s.
const START: u64 = 1_795_953_600;

const PROFILE: &str = r#"{
    "prefill": { "isl": [512, 1024, 2048, 4096], "ttft_ms": [60, 110, 215, 430], "thpt_per_gpu": [8500, 9300, 9500, 9500] },
    "decode": {
        "kv_usage": [0.1, 0.5, 0.9], "context_length": [1024, 4096],
        "itl_ms": [[11, 16, 30], [13, 20, 39]], "thpt_per_gpu": [[900, 3100, 3000], [750, 2500, 2300]], "max_kv_tokens": 262144
    },
    "prefill_engine_num_gpu": 1, "decode_engine_num_gpu": 1
}"#;

const LLAMA: &str = "meta-llama/Llama-3.1-8B-Instruct";
const MISTRAL: &str = "mistralai/Mistral-7B-Instruct-v0.3";
const DEEPSEEK: &str = "deepseek-ai/DeepSeek-R1-0528";

fn page(engine: &str, name: &str) -> PageReading {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/engines/{engine}/{name}.prom"));
    let body = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    reading_of(by_name(engine).unwrap(), &body)
}

fn reading_of(engine: &Engine, body: &[u8]) -> PageReading {
    let page = read(body, Format::Text, &Wanted::new(engine.family_names())).unwrap();
    assert!((engine.recognise)(&page));
    (engine.read)(&page)
}

fn sample(engine: &str, name: &str, model: &str) -> Arc<Sample> {
    page(engine, name).of_model(&ModelId::from(model))
}

fn policy(from: ReplicasFrom) -> ModelPolicy {
    let pool = |name: &str, role| PoolPolicy {
        pool: PoolId::from(name),
        role,
        gpus_per_replica: None,
        cost: None,
        accelerator: None,
        limits: Limits::new(Replicas(1), Replicas(100)).unwrap(),
        replicas_from: from,
        targets_per_replica: NonZeroU32::MIN,
        capabilities: Default::default(),
        pin: None,
    };
    ModelPolicy {
        model: ModelId::from("m"),
        preset: Preset::Infera,
        mode: Mode::Publish,
        slo: Slo { ttft: Positive::new(0.5).unwrap(), itl: Positive::new(0.05).unwrap(), statistic: Statistic::Mean, explicit: true },
        interval: Duration::from_secs(15),
        scrape_interval: Duration::from_secs(15),
        hold_for: Duration::from_secs(600),
        capacity: CapacityModel::Envelope(serde_json::from_str(PROFILE).unwrap()),
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
        pools: vec![pool("m-prefill", Role::Prefill), pool("m-decode", Role::Decode)],
    }
}

/// Sources with their targets' samples in each of several rounds, 15 s apart.
type Rounds = Vec<Vec<(SourceId, Vec<(&'static str, Arc<Sample>)>)>>;

/// The last plan.
fn planned(rounds: Rounds, policy: &ModelPolicy) -> Plan {
    let mut memory = Memory::default();
    let mut last = None;
    for (round, sources) in (0..).zip(rounds) {
        let at = Duration::from_secs(15 * round);
        let target =
            |(target, sample): (&str, Arc<Sample>)| TargetReading { target: TargetId::from(target), at, reading: Reading::Sample(sample) };
        let sources = sources
            .into_iter()
            .map(|(source, targets)| SourceInput {
                source,
                discovery_failed: false,
                targets: targets.into_iter().map(target).collect(),
                lifecycle: None,
            })
            .collect();
        let before = memory.clone();
        let (plan, after) = plan(&ModelInput::of(sources), memory, policy, Moment { monotonic: at, wall: Duration::from_secs(START) + at });
        assert_eq!(lint(&plan, policy, &before), []);
        memory = after;
        last = Some(plan);
    }
    last.unwrap()
}

/// The plan after the pages of one traffic target.
fn of_one_target(engine: &str, names: &[&str], model: &str) -> Plan {
    let round = |name: &&str| vec![(SourceId::Traffic, vec![("a:8000/metrics", sample(engine, name, model))])];
    planned(names.iter().map(round).collect(), &policy(ReplicasFrom::Metric))
}

/// What a workload did between two pages.
struct Truth {
    requests: f64,
    prompt_tokens: f64,
    output_tokens: f64,
    ttft: f64,
    itl: f64,
}

fn check(name: &str, plan: &Plan, truth: &Truth) {
    let observation = plan.observation.as_ref().unwrap_or_else(|| panic!("{name}: {}", plan.reason));
    let requests = observation.requests.unwrap().get();
    assert_eq!((observation.elapsed_seconds, requests), (Seconds(15.0), truth.requests), "{name}");
    let tokens = |mean: Option<Tokens>| (mean.unwrap().get() * requests).round();
    assert_eq!((tokens(observation.input_tokens), tokens(observation.output_tokens)), (truth.prompt_tokens, truth.output_tokens), "{name}");
    for (what, ours, truth) in [("TTFT", observation.ttft_seconds, truth.ttft), ("ITL", observation.itl_seconds, truth.itl)] {
        let ours = ours.unwrap().get();
        assert!((ours / truth - 1.0).abs() < 1e-9, "{name}: {what} is {ours}, was {truth}");
    }
}

#[test]
fn every_version_of_vllm_gives_what_its_workload_did() {
    for (name, truth) in [
        (
            "vllm-0.11.0",
            Truth {
                requests: 166.0,
                prompt_tokens: 155_256.0,
                output_tokens: 22_267.0,
                ttft: 0.048_061_753_737_567_416,
                itl: 0.011_271_052_304_365_108,
            },
        ),
        (
            "vllm-0.10.2",
            Truth {
                requests: 170.0,
                prompt_tokens: 156_840.0,
                output_tokens: 22_714.0,
                ttft: 0.049_729_189_203_693_2,
                itl: 0.010_186_066_626_084_452,
            },
        ),
        (
            "vllm-0.10.2-v0engine",
            Truth {
                requests: 137.0,
                prompt_tokens: 112_737.0,
                output_tokens: 17_135.0,
                ttft: 0.054_306_711_053_147_18,
                itl: 0.009_926_850_635_570_864,
            },
        ),
        // Speculative decoding: 20 398 events carry 43 843 tokens, of which 308 are first ones. Per request it was 8.777 ms.
        (
            "vllm-0.33",
            Truth {
                requests: 303.0,
                prompt_tokens: 289_037.0,
                output_tokens: 45_356.0,
                ttft: 0.289_868_262_280_418_95,
                itl: 387.632_577_168_837_7 / 43_535.0,
            },
        ),
        // Two ranks add up: 91 and 40 first tokens, 13 360 and 4965 gaps.
        (
            "vllm-0.10.2-multiapi-dp2",
            Truth {
                requests: 125.0,
                prompt_tokens: 115_450.0,
                output_tokens: 19_848.0,
                ttft: (0.035_208_937_220_661_395 * 91.0 + 0.028_780_911_406_218_48 * 40.0) / 131.0,
                itl: (107.124_049_559_170_52 + 33.943_683_469_473_655) / 18_325.0,
            },
        ),
    ] {
        let model = if name.ends_with("v0engine") { MISTRAL } else { LLAMA };
        let plan = of_one_target("vllm", &[&format!("{name}-scrape1"), &format!("{name}-scrape2")], model);
        check(name, &plan, &truth);
        assert_eq!(plan.reason, Reason::NoDecodeReplicas, "{name}: a vLLM page says nothing of the fleet");
    }
}

#[test]
fn speculative_decoding_is_within_two_percent_of_the_mean_over_requests() {
    let plan = of_one_target("vllm", &["vllm-0.33-scrape1", "vllm-0.33-scrape2"], LLAMA);
    let itl = plan.observation.unwrap().itl_seconds.unwrap().get();
    assert!((itl / 0.008_776_707_184_026_8 - 1.0).abs() < 0.02, "{itl}");
}

#[test]
fn both_names_of_one_measurement_are_not_added() {
    let sample = sample("vllm", "vllm-0.11.0-scrape2", LLAMA);
    let itl: f64 = sample.histograms[&Signal::Itl].values().map(|histogram| histogram.count).sum();
    let tokens: f64 = sample.tallies[&Tally::GeneratedTokens].values().sum();
    let first: f64 = sample.histograms[&Signal::Ttft].values().map(|histogram| histogram.count).sum();
    assert_eq!(itl, tokens - first);
}

#[test]
fn a_restarted_server_spoils_its_window() {
    let plan = of_one_target("vllm", &["vllm-0.33-scrape1", "vllm-0.33-scrape2", "vllm-0.33-scrape3-after-restart"], LLAMA);
    assert_eq!((plan.reason, plan.sources[0].resets.len()), (Reason::CounterReset, 1));
}

#[test]
fn a_server_without_a_request_yet_has_no_requests() {
    let plan = of_one_target("vllm", &["vllm-0.33-fresh-start", "vllm-0.33-fresh-start"], LLAMA);
    assert_eq!(plan.reason, Reason::NoRequests);
}

#[test]
fn a_gauge_that_repeats_by_process_id_is_not_a_server_without_load() {
    let text = format!(
        "vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} 1.0\n{}",
        std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engines/vllm/vllm-0.11-multiapi-pid-gauge-excerpt.prom")
        )
        .unwrap()
    );
    let reading = reading_of(by_name("vllm").unwrap(), text.as_bytes());
    assert!(reading.models.values().all(|sample| sample.histograms.is_empty()), "the excerpt has nothing that the planner reads");
}

#[test]
fn infera_routers_add_their_traffic_and_agree_on_the_fleet() {
    let round = |scrape: u8| {
        let router = |letter: char| sample("infera", &format!("infera-sla-model-label-router{letter}-scrape{scrape}"), DEEPSEEK);
        vec![(SourceId::Traffic, vec![("a:8000/metrics", router('A')), ("b:8000/metrics", router('B'))])]
    };
    let plan = planned(vec![round(1), round(2)], &policy(ReplicasFrom::Metric));
    let observation = plan.observation.as_ref().unwrap();
    // Lengths cover all successful requests, latencies the streaming ones: the counts differ by design of the router.
    assert_eq!(observation.requests, Some(Requests(61.0 + 45.0)));
    assert_eq!(observation.input_tokens, Some(Tokens((164_799.0 + 91_443.0) / (65.0 + 48.0))));
    assert_eq!(observation.output_tokens, Some(Tokens((16_853.0 + 10_945.0) / 106.0)));
    let close = |ours: Option<Seconds>, sum: f64, count: f64| assert!((ours.unwrap().get() - sum / count).abs() < 1e-12);
    close(observation.ttft_seconds, 5.576_015_153_036_224 + 2.719_926_503_965_496, 88.0);
    close(observation.itl_seconds, 1.138_155_368_962_071 + 0.503_277_780_632_741_3, 85.0);
    let current = |index: usize| plan.pools[index].current_replicas;
    assert_eq!(
        (plan.reason, current(0), current(1)),
        (Reason::None, Some(Replicas(2)), Some(Replicas(3))),
        "the largest view, not the sum"
    );
    // 106 * 2267.6 / 15 = 16 025 prompt tokens a second, of which the ratio 0.0943 s / 0.2386 s leaves 6333, over 9500;
    // 106 * 262.2 / 15 = 1853 generated ones over nearly 2800.
    let recommended: Vec<_> = plan.pools.iter().map(|pool| pool.recommended_replicas.unwrap().0).collect();
    assert_eq!(recommended, [1, 1]);
}

#[test]
fn the_largest_view_of_the_fleet_wins_where_routers_disagree() {
    let mut behind = sample("infera", "infera-sla-model-label-routerB-scrape2", DEEPSEEK);
    Arc::make_mut(&mut behind).workers = Few::from([(Role::Prefill, Replicas(5)), (Role::Decode, Replicas(1))]);
    let router = || sample("infera", "infera-sla-model-label-routerA-scrape2", DEEPSEEK);
    let rounds = vec![vec![(SourceId::Traffic, vec![("a:8000/metrics", router()), ("b:8000/metrics", behind)])]];
    let plan = planned(rounds, &policy(ReplicasFrom::Metric));
    assert_eq!([0, 1].map(|index: usize| plan.pools[index].current_replicas), [Some(Replicas(5)), Some(Replicas(3))]);
}

#[test]
fn an_infera_page_without_model_labels_belongs_to_the_model_that_is_asked_for() {
    let plan = of_one_target("infera", &["infera-sla-20260819-scrape1", "infera-sla-20260819-scrape2"], "anything");
    let observation = plan.observation.unwrap();
    assert_eq!((plan.reason, observation.requests), (Reason::None, Some(Requests(61.0))));
    assert_eq!(observation.output_tokens, Some(Tokens(16_853.0 / 61.0)));
}

#[test]
fn a_worker_that_leaves_takes_its_series_and_no_work_with_it() {
    let plan = of_one_target("infera", &["infera-newest-derived-scrape1", "infera-newest-derived-scrape2-worker-left"], DEEPSEEK);
    let observation = plan.observation.as_ref().unwrap();
    assert_eq!((plan.reason, observation.requests), (Reason::None, Some(Requests(60.0))), "no counter fell");
    assert_eq!((observation.input_tokens, observation.output_tokens), (Some(Tokens(2510.0)), Some(Tokens(318.0))));
    assert!((observation.itl_seconds.unwrap().get() - 0.02).abs() < 1e-9, "of the two workers that stayed");
    assert_eq!(plan.pools[1].current_replicas, Some(Replicas(2)));
}

#[test]
fn prefill_and_decode_servers_measured_apart_give_one_plan() {
    let round = |scrape: u8| {
        let server = |role: &str| sample("vllm", &format!("vllm-0.33-pd-{role}-scrape{scrape}"), LLAMA);
        let source = |pool: &str, target, sample| (SourceId::Pool(PoolId::from(pool)), vec![(target, sample)]);
        vec![source("m-prefill", "p:8000/metrics", server("prefill")), source("m-decode", "d:8000/metrics", server("decode"))]
    };
    let plan = planned(vec![round(1), round(2)], &policy(ReplicasFrom::Targets));
    assert_eq!((plan.reason, plan.held), (Reason::None, false));
    let observation = plan.observation.as_ref().unwrap();
    // From the decode server: 105 requests, 14 310 tokens, 14 458 gaps. From the prefill server: 104 prompts and their first tokens.
    assert_eq!((observation.requests, observation.output_tokens), (Some(Requests(105.0)), Some(Tokens(14_310.0 / 105.0))));
    assert_eq!(observation.input_tokens, Some(Tokens(93_628.0 / 104.0)));
    let close = |ours: Option<Seconds>, truth: f64| assert!((ours.unwrap().get() / truth - 1.0).abs() < 1e-9, "{ours:?} {truth}");
    close(observation.ttft_seconds, 0.028_959_390_975_737_11);
    close(observation.itl_seconds, 0.006_973_265_188_018_642);
    let counts = |index: usize| (plan.pools[index].current_replicas.unwrap().0, plan.pools[index].recommended_replicas.unwrap().0);
    // TTFT is a third of the profile's: 6302 prompt tokens a second count for a third over 9300; 954 generated ones over 3000.
    assert_eq!([counts(0), counts(1)], [(1, 1), (1, 1)]);
    assert!(plan.latency_ratio.prompt.unwrap().get() < 0.34, "{:?}", plan.latency_ratio);
    assert!(plan.pools.iter().all(|pool| pool.coverage == Some(Ratio(1.0))));
}

#[test]
fn a_prefill_pool_that_does_not_answer_blinds_the_plan() {
    let decode = |scrape: u8| sample("vllm", &format!("vllm-0.33-pd-decode-scrape{scrape}"), LLAMA);
    let prefill = || (SourceId::Pool(PoolId::from("m-prefill")), Vec::new());
    let round = |scrape: u8| vec![prefill(), (SourceId::Pool(PoolId::from("m-decode")), vec![("d:8000/metrics", decode(scrape))])];
    assert_eq!(planned(vec![round(1), round(2)], &policy(ReplicasFrom::Targets)).reason, Reason::NoTargets);
}

#[test]
fn a_page_that_repeats_every_line_counts_each_once() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engines/vllm/vllm-0.11.0-scrape2.prom");
    let text = std::fs::read_to_string(path).unwrap();
    let twice = format!("{text}{text}");
    let engine = by_name("vllm").unwrap();
    assert_eq!(reading_of(engine, twice.as_bytes()).models, reading_of(engine, text.as_bytes()).models);
}

fn text(engine: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/engines/{engine}/{name}.prom"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn both_generations_of_a_gateway_on_one_page_are_not_added() {
    let newer = text("gateway", "llm-d-epp-2026");
    let older = text("gateway", "gie-epp-0.5-inference-model");
    let engine = by_name("gateway").unwrap();
    // A picker that writes both says the same of one model.
    let older = older.replace("sql-lora-v3", "llama-3.1-8b").replace("sql-lora", "llama-3.1-8b");
    let read = |body: String| reading_of(engine, body.as_bytes()).of_model(&ModelId::from("llama-3.1-8b"));
    let (alone, both) = (read(newer.clone()), read(format!("{older}\n{newer}")));
    assert_eq!((&alone.histograms, &alone.tallies, &alone.gauges), (&both.histograms, &both.tallies, &both.gauges));
    assert_eq!((&alone.workers, alone.fleet[&Gauge::KvUsage]), (&both.workers, both.fleet[&Gauge::KvUsage]));
    assert_eq!(alone.itl_basis, both.itl_basis);
}

#[test]
fn tensor_parallel_ranks_repeat_and_data_parallel_ranks_add_up() {
    // Attention in data parallel: each tensor rank is a data rank, so that neither alone tells them apart.
    let rank = |tp: u32, dp: u32, running: f64, usage: f64| {
        let labels =
            format!("{{dp_rank=\"{dp}\",engine_type=\"unified\",model_name=\"m\",moe_ep_rank=\"{tp}\",pp_rank=\"0\",tp_rank=\"{tp}\"}}");
        format!("sglang:num_running_reqs{labels} {running}\nsglang:token_usage{labels} {usage}\nsglang:max_total_num_tokens{labels} 1000\n")
    };
    let page = [rank(1, 0, 9.0, 0.9), rank(0, 0, 3.0, 0.3), rank(2, 1, 4.0, 0.4), rank(3, 1, 8.0, 0.8)].concat();
    let sample = reading_of(by_name("sglang").unwrap(), page.as_bytes()).of_model(&ModelId::from("m"));
    let expected = [(Gauge::Running, 7.0), (Gauge::KvUsage, 0.4), (Gauge::KvCapacityTokens, 2000.0)];
    assert_eq!(sample.gauges, Few::from(expected));
    assert_eq!(sample.tallies[&Tally::Finished].values().sum::<f64>(), 0.0, "no request has ended yet");
}

#[test]
fn ranks_that_all_export_change_nothing() {
    let model = "Qwen/Qwen3-30B-A3B-Instruct-2507";
    let one = sample("sglang", "sglang-0.5.23-priority-scrape2", model);
    let all = sample("sglang", "sglang-0.5.23-tp2all-scrape2", model);
    let total =
        |sample: &Sample| sample.tallies.iter().map(|(tally, series)| (*tally, series.values().sum::<f64>())).collect::<BTreeMap<_, _>>();
    // One workload, served with priorities and with two ranks that export alike.
    assert_eq!((&one.gauges, total(&one)), (&all.gauges, total(&all)));
}

#[test]
fn a_duration_over_its_tokens_is_not_held_against_an_itl_objective() {
    let page = |requests: u32| {
        format!(
            "tgi_request_count {requests}\ntgi_request_success {requests}\n\
             tgi_request_mean_time_per_token_duration_sum {0}\ntgi_request_mean_time_per_token_duration_count {requests}\n\
             tgi_request_input_length_sum {1}\ntgi_request_input_length_count {requests}\n\
             tgi_request_generated_tokens_sum {1}\ntgi_request_generated_tokens_count {requests}\n",
            f64::from(requests) * 0.5,
            requests * 100
        )
    };
    let sample = |requests| reading_of(by_name("tgi").unwrap(), page(requests).as_bytes()).of_model(&ModelId::from("m"));
    let round = |requests| vec![(SourceId::Traffic, vec![("a:80/metrics", sample(requests))])];
    let plan = planned(vec![round(10), round(30)], &policy(ReplicasFrom::Metric));
    let observation = plan.observation.unwrap();
    assert_eq!((observation.requests, observation.itl_seconds), (Some(Requests(20.0)), None));
}

#[test]
fn a_sample_without_gauges_is_stored_as_before() {
    let sample = Sample { process_start: Some(1.0), ..Sample::default() };
    let stored = serde_json::to_string(&sample).unwrap();
    assert_eq!(stored, r#"{"process_start":1.0,"histograms":{},"tallies":{},"workers":{},"itl_basis":"per_request"}"#);
    assert_eq!(serde_json::from_str::<Sample>(&stored).unwrap(), sample);
}

/// By target throughput, with these pools.
fn by_load(pools: &[(&str, Role)], from: ReplicasFrom) -> ModelPolicy {
    let mut policy = policy(from);
    policy.preset = Preset::Dynamo;
    policy.capacity = CapacityModel::Unknown;
    policy.load = Some(Target::Throughput.policy(Duration::from_secs(15)));
    let template = policy.pools[0].clone();
    let pool = |(name, role): &(&str, Role)| PoolPolicy {
        pool: PoolId::from(*name),
        role: *role,
        capabilities: Capabilities { context_length: NonZeroU32::new(8192), ..Capabilities::default() },
        ..template.clone()
    };
    policy.pools = pools.iter().map(pool).collect();
    policy
}

#[test]
fn sglang_servers_of_a_pair_given_as_urls_alone_are_held_with_what_to_write() {
    let model = "Qwen/Qwen3-30B-A3B-Instruct-2507";
    let server = |role: &str, scrape: u8| sample("sglang", &format!("sglang-0.5.23-{role}-scrape{scrape}"), model);
    let urls = |scrape| {
        vec![(SourceId::Traffic, vec![("d:30000/metrics", server("decode", scrape)), ("p:30000/metrics", server("prefill", scrape))])]
    };
    let plan = planned(vec![urls(1), urls(2)], &by_load(&[("m-agg", Role::Aggregated)], ReplicasFrom::Observed));
    let missing = Missing { what: Capability::SeparatePools, target: Some(TargetId::from("d:30000/metrics")) };
    assert_eq!((plan.reason, &plan.pools[0].missing), (Reason::MissingCapability, &vec![missing]));
    let policy = by_load(&[("m-agg", Role::Aggregated)], ReplicasFrom::Observed);
    for told in [explain::decision(&plan, &policy), report::text::plan(&plan), report::plans::model(&plan).to_string()] {
        assert!(told.contains("separate_pools") && told.contains("write a pool of role prefill and one of role decode"), "{told}");
        assert!(told.contains("d:30000/metrics"), "{told}");
    }
    // As the hold says.
    let source = |pool: &str, target, sample| (SourceId::Pool(PoolId::from(pool)), vec![(target, sample)]);
    let apart = |scrape| {
        let (prefill, decode) = (server("prefill", scrape), server("decode", scrape));
        vec![source("m-prefill", "p:30000/metrics", prefill), source("m-decode", "d:30000/metrics", decode)]
    };
    let pools = [("m-prefill", Role::Prefill), ("m-decode", Role::Decode)];
    let policy = by_load(&pools, ReplicasFrom::Targets);
    let plan = planned(vec![apart(1), apart(2)], &policy);
    // A reader finds the numbers behind each load.
    let told = report::plans::model(&plan);
    let inputs = &told["pools"][1]["load"]["inputs"];
    assert!(inputs["kv_usage"] == 0.12 && inputs["waiting"] == 3.0 && inputs["kv_capacity_tokens"] == 131_072.0, "{inputs}");
    let html = explain::decision(&plan, &policy);
    let formula = "kv_usage + waiting * (input_tokens + output_tokens / 2) / kv_capacity_tokens (kv_usage 0.12, waiting 3, input_tokens";
    assert!(html.contains(formula) && html.contains("waiting * input_tokens / context_length (waiting"), "{html}");
    assert!(plan.pools.iter().all(|pool| pool.reason == Reason::None && pool.missing.is_empty()), "{:?}", plan.pools);
    let one_that_does_both = sample("sglang", "sglang-0.5.23-scrape2", model);
    assert_eq!(one_that_does_both.role, None);
}

#[test]
fn dynamos_prefill_workers_are_planned_by_what_their_front_end_says_of_them() {
    let read = |name: &str| sample("dynamo", &format!("dynamo-1.6.1-disagg-{name}-b"), "tiny");
    assert_eq!((read("prefill").role, read("decode").role), (Some(Role::Prefill), None));
    let workers = (SourceId::Pool(PoolId::from("m-prefill")), vec![("p:8081/metrics", read("prefill"))]);
    let policy = by_load(&[("m-prefill", Role::Prefill)], ReplicasFrom::Targets);
    let alone = planned(vec![vec![workers.clone()]], &policy);
    let missing = Missing { what: Capability::QueuedPrompts, target: Some(TargetId::from("p:8081/metrics")) };
    assert_eq!((alone.reason, &alone.pools[0].missing), (Reason::MissingCapability, &vec![missing]));
    let front_end = (SourceId::Traffic, vec![("f:8000/metrics", read("frontend"))]);
    let plan = planned(vec![vec![front_end, workers]], &policy);
    assert_eq!((plan.reason, plan.pools[0].load.as_ref().map(|load| load.load)), (Reason::None, Some(0.0)));
}

#[test]
fn a_front_end_whose_router_knows_its_prefill_workers_counts_their_prompts_in_tokens() {
    let page = |pending: u32| {
        format!(
            "dynamo_frontend_requests_total{{model=\"m\",status=\"success\"}} 1\n\
             dynamo_frontend_stage_requests{{phase=\"prefill\",stage=\"route\"}} 0\n\
             dynamo_frontend_queued_requests{{model=\"m\"}} 5\n\
             dynamo_frontend_router_queue_pending_isl_tokens{{model=\"m\",policy_class=\"default\",worker_type=\"prefill\"}} {pending}\n\
             dynamo_frontend_router_queue_pending_isl_tokens{{model=\"m\",policy_class=\"default\",worker_type=\"decode\"}} 7\n\
             dynamo_frontend_worker_active_prefill_tokens{{dp_rank=\"0\",worker_id=\"1\",worker_type=\"prefill\"}} 3000\n\
             dynamo_frontend_worker_active_prefill_tokens{{dp_rank=\"0\",worker_id=\"2\",worker_type=\"prefill\"}} 1000\n\
             dynamo_frontend_worker_active_prefill_tokens{{dp_rank=\"0\",worker_id=\"3\",worker_type=\"decode\"}} 9\n"
        )
    };
    let sample = reading_of(by_name("dynamo").unwrap(), page(500).as_bytes()).of_model(&ModelId::from("m"));
    let expected = [(Gauge::QueuedPromptTokens, 4500.0), (Gauge::Waiting, 5.0)];
    assert_eq!(sample.prefill, Few::from(expected));
    let plan = planned(
        vec![vec![(SourceId::Traffic, vec![("f:8000/metrics", sample)])]],
        &by_load(&[("m-prefill", Role::Prefill)], ReplicasFrom::Observed),
    );
    let load = plan.pools[0].load.as_ref().unwrap();
    assert_eq!((load.load, plan.pools[0].current_replicas), (2250.0 / 8192.0, Some(Replicas(2))));
}

#[test]
fn a_front_end_and_its_workers_given_together_count_each_request_once() {
    let read = |name: &str, scrape: &str| sample("dynamo", &format!("dynamo-1.6.1-disagg-{name}-{scrape}"), "tiny");
    let alone = |scrape| vec![(SourceId::Traffic, vec![("f:8000/metrics", read("frontend", scrape))])];
    let together = |scrape| {
        let targets = [("d:8081/metrics", "decode"), ("f:8000/metrics", "frontend"), ("p:8081/metrics", "prefill")];
        vec![(SourceId::Traffic, targets.into_iter().map(|(target, name)| (target, read(name, scrape))).collect())]
    };
    let seen = |rounds| planned(rounds, &policy(ReplicasFrom::Metric)).observation.unwrap();
    let (one, all) = (seen(vec![alone("a"), alone("b")]), seen(vec![together("a"), together("b")]));
    assert!(one.requests.unwrap().get() > 0.0);
    assert_eq!(all, one);
    // By load alone their pools are not known.
    let plan = planned(vec![together("b")], &by_load(&[("m-agg", Role::Aggregated)], ReplicasFrom::Observed));
    let missing = Missing { what: Capability::SeparatePools, target: Some(TargetId::from("p:8081/metrics")) };
    assert!(plan.reason == Reason::MissingCapability && plan.pools[0].missing.contains(&missing), "{:?}", plan.pools[0]);
}
