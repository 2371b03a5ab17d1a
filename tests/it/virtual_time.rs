//! Exporters without a clock: the rounds of the real program over servers whose counts are computed, at the moments that a test chooses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use inference_planner_exporter::app::exporter::{Exporter, Round};
use inference_planner_exporter::app::fleet::Fleet;
use inference_planner_exporter::config::{self, Config, DiscoveryConfig, Inputs, SourceText, TargetConfig, Way};
use inference_planner_exporter::decisions::Ledger;
use inference_planner_exporter::engines::Reading;
use inference_planner_exporter::engines::render::vllm::{VllmPage, vllm_edges};
use inference_planner_exporter::planner::input::{Histogram, Sample, Signal};
use inference_planner_exporter::scrape::discover::Listing;
use inference_planner_exporter::scrape::report::{Failure, Scraped, TargetReport};
use inference_planner_exporter::simulator::scenario;
use inference_planner_exporter::units::{Moment, PoolId, Replicas, Role, TargetId};

pub const MODEL: &str = "org/model";
pub const ROLES: [Role; 2] = [Role::Prefill, Role::Decode];
/// A multiple of all intervals, since the Unix epoch.
pub const START: Moment = Moment { monotonic: Duration::ZERO, wall: Duration::from_secs(1_795_953_600) };
/// Tokens of each prompt and of each answer.
const PROMPT: f64 = 1500.0;
const ANSWER: f64 = 80.0;

/// A configuration of one model with a pool of either role, a `profile.json`, which the servers of [`Servers`] are found for, and rounds in this interval.
pub fn config(planner: &str, interval: Duration) -> Arc<Config> {
    let pool = |role: Role| {
        format!(
            "      - {{ name: {role}, role: {role}, min_replicas: 1, max_replicas: 64, targets: {{ dns: \"{role}:8000\" }}, \
             capabilities: {{ max_num_batched_tokens: 8192, context_length: 32768 }} }}\n"
        )
    };
    let text = format!(
        "scrape: {{ interval: {}s }}\nmodels:\n  - name: {MODEL}\n    engine: vllm\n    slo: {{ ttft: 800ms, itl: 40ms }}\n    \
         planner: {{ {planner} }}\n    pools:\n{}{}",
        interval.as_secs(),
        pool(Role::Prefill),
        pool(Role::Decode)
    );
    let profile = serde_json::to_string(&scenario::profile()).unwrap();
    let files = BTreeMap::from([("profile.json".into(), Ok(profile))]);
    let draft = config::read(Inputs { file: Some(SourceText { path: "config.yaml".into(), text }), ..Inputs::default() });
    Arc::new(draft.finish(&files).unwrap_or_else(|problems| panic!("{problems:?}")).config)
}

pub fn exporter(config: &Arc<Config>, now: Moment) -> Exporter {
    Exporter::new(Arc::clone(config), BTreeMap::new(), Ledger::default(), now)
}

/// A server: what it has done since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    /// Requests that it has completed.
    pub completed: f64,
    /// Requests a second now.
    pub rate: f64,
    /// When it started, since the Unix epoch.
    pub started: Duration,
}

impl Server {
    fn page(&self, role: Role) -> VllmPage {
        let count = self.completed.floor();
        let histogram = |signal: Signal, value: f64| {
            let buckets = vllm_edges(signal).iter().map(|edge| (*edge, if *edge >= value { count } else { 0.0 })).collect();
            (signal, Histogram { sum: count * value, count, buckets, created: None })
        };
        let answer = if role == Role::Prefill { 1.0 } else { ANSWER };
        let iterations = count * answer / 4.0;
        VllmPage {
            model: MODEL.to_owned(),
            process_start: self.started,
            histograms: BTreeMap::from([
                histogram(Signal::Ttft, 0.25),
                histogram(Signal::Itl, 0.02),
                histogram(Signal::PromptTokens, PROMPT),
                histogram(Signal::OutputTokens, answer),
                histogram(Signal::RequestDuration, 0.25 + 0.02 * answer),
            ]),
            running: (self.rate * (0.25 + 0.02 * answer)).round() as u64,
            waiting: 0,
            kv_usage: (self.rate * 0.02).min(1.0),
            generated_tokens: (count * answer) as u64,
            prompt_tokens: (count * PROMPT) as u64,
            iterations: iterations as u64,
            iteration_tokens: (count * (PROMPT + answer)) as u64,
            prefilled: (0, 0.0),
            kv_tokens: 131_072,
            finished: count as u64,
        }
    }
}

/// The servers that there are, by role and number.
#[derive(Clone, Debug, Default)]
pub struct Servers(pub BTreeMap<(Role, u32), Server>);

impl Servers {
    /// Lets time pass under so many requests a second, which each role's servers share.
    pub fn work(&mut self, span: Duration, rate: f64) {
        for role in ROLES {
            let share = rate / self.count(role).max(1) as f64;
            for (_, server) in self.0.iter_mut().filter(|((of, _), _)| *of == role) {
                server.rate = share;
                server.completed += share * span.as_secs_f64();
            }
        }
    }

    pub fn count(&self, role: Role) -> usize {
        self.0.keys().filter(|(of, _)| *of == role).count()
    }

    /// Starts servers with new numbers, or stops the oldest, until there are so many.
    pub fn scale(&mut self, role: Role, wanted: Replicas, next: &mut u32, now: Moment) {
        while self.count(role) < wanted.0 as usize {
            *next += 1;
            self.0.insert((role, *next), Server { started: now.wall, ..Server::default() });
        }
        while self.count(role) > wanted.0 as usize {
            let oldest = *self.0.keys().find(|(of, _)| *of == role).unwrap();
            self.0.remove(&oldest);
        }
    }

    fn target(role: Role, number: u32) -> TargetConfig {
        let target = format!("{role}-{number}:8000/metrics");
        TargetConfig { url: format!("http://{target}"), target: TargetId::from(target) }
    }

    fn listing(&self, discovery: &DiscoveryConfig) -> Listing {
        let Way::Dns { host, .. } = &discovery.way else { panic!("pools are found by name") };
        let keys = self.0.keys().filter(|(role, _)| role.as_str() == host);
        let mut targets: Vec<TargetConfig> = keys.map(|(role, number)| Self::target(*role, *number)).collect();
        targets.sort_by(|one, other| one.target.cmp(&other.target));
        Listing { targets, looked: true, succeeded: 1, ..Listing::default() }
    }

    /// One round of an exporter. `failure` says which servers give no page.
    pub fn round(&self, exporter: &mut Exporter, now: Moment, failure: impl Fn(Role, u32) -> Option<Failure>) -> Vec<Round> {
        let fleet = Fleet::of(exporter.config(), |discovery| self.listing(discovery));
        let scraped = |sample: Sample| Scraped {
            engine: "vllm",
            reading: Reading::new(BTreeMap::from([(Some(MODEL.to_owned()), sample)])),
            problems: 0,
            first_problem: None,
            page: None,
        };
        let report = |(&(role, number), server): (&(Role, u32), &Server)| TargetReport {
            target: Self::target(role, number).target,
            at: now.monotonic,
            duration: Duration::from_millis(3),
            outcome: failure(role, number).map_or_else(|| Ok(scraped(server.page(role).sample())), Err),
        };
        let reports: Vec<TargetReport> = self.0.iter().map(report).collect();
        exporter.round(&reports, &fleet, now).0
    }
}

/// What a round recommends, by role.
pub fn recommended(rounds: &[Round]) -> BTreeMap<Role, Option<Replicas>> {
    let pools = rounds.iter().flat_map(|round| &round.plan.pools);
    pools.map(|pool| (role_of(&pool.pool), pool.recommended_replicas)).collect()
}

fn role_of(pool: &PoolId) -> Role {
    ROLES.into_iter().find(|role| role.as_str() == pool.as_str()).unwrap()
}
