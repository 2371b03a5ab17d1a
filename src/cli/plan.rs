//! `plan`: why does it recommend this? A decision made once and offline: from two pages, from two directories of pages, or from a recording.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;

use super::load::{ModelFlags, load, unpacked};
use super::{Failure, complain};
use crate::app::events::Event;
use crate::app::exporter::Exporter;
use crate::app::fleet::{self, Fleet};
use crate::config::{self, Config, Flags, Loaded, ModelConfig, TargetConfig};
use crate::decisions::Ledger;
use crate::engines::custom::Custom;
use crate::engines::{self, Dialect};
use crate::planner;
use crate::planner::input::{FailureKind, ModelInput, Reading, SourceInput, TargetReading};
use crate::planner::memory::Memory;
use crate::planner::plan::Plan;
use crate::record::{self, RecordedTarget, Recording};
use crate::report::{notes, plans, text};
use crate::scrape::discover::Listing;
use crate::scrape::lower::lower;
use crate::scrape::report::{Failure as ScrapeFailure, TargetReport};
use crate::units::{ModelId, Moment, TargetId};

/// Flags of `plan`.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArgs {
    /// The first page of a target, also packed by gzip, or with --config a directory of pages; repeat it for each target
    #[arg(long, requires = "after", requires = "elapsed", conflicts_with = "replay")]
    pub before: Vec<PathBuf>,
    /// The second page of the same target, in the same order
    #[arg(long, requires = "before")]
    pub after: Vec<PathBuf>,
    /// Time between the two, taken as one whole adjustment interval; a bare number is seconds
    #[arg(long, value_parser = config::parse_seconds_flag)]
    pub elapsed: Option<Duration>,
    /// The configuration, for directories of pages as `run --record` writes them
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Make recorded decisions again and compare: one decision's directory, or that of `run --record`
    #[arg(long)]
    pub replay: Option<PathBuf>,
    /// The model, where no configuration file describes it.
    #[command(flatten)]
    pub model: ModelFlags,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = PlanFormat::Json)]
    pub format: PlanFormat,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// The document of the contract.
    Json,
    /// The arithmetic, for people.
    Text,
}

/// Plans once, or replays.
pub fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.replay {
        return replay(folder, args.format);
    }
    let (Some(elapsed), false) = (args.elapsed, args.before.is_empty()) else {
        return Err(Failure::Usage("expected --before, --after and --elapsed, or --replay DIR".to_owned()));
    };
    if elapsed.is_zero() {
        return Err(Failure::Usage("--elapsed: expected more than 0s".to_owned()));
    }
    let (config, before, after) = match &args.config {
        Some(file) => {
            let ([before], [after]) = (args.before.as_slice(), args.after.as_slice()) else {
                return Err(Failure::Usage("with --config, expected one directory for each of --before and --after".to_owned()));
            };
            let config = told(load(Some(file), args.model.flags())?);
            written_down(&config)?;
            let targets = targets(&config);
            let (before, after) = (directory(before, &targets)?, directory(after, &targets)?);
            (config, before, after)
        }
        None => {
            if args.before.len() != args.after.len() {
                let (before, after) = (args.before.len(), args.after.len());
                return Err(Failure::Usage(format!("expected as many --after as --before, got {after} and {before}")));
            }
            // Offline pages have no address; the names only tell the pairs apart.
            let urls = (1..=args.before.len()).map(|pair| format!("http://pair-{pair}/metrics")).collect();
            let flags = Flags { metrics_urls: urls, ..args.model.flags() };
            let config = told(load(None, flags)?);
            let targets = targets(&config);
            let (before, after) = (pages(&args.before, &targets)?, pages(&args.after, &targets)?);
            (config, before, after)
        }
    };
    let plans = decide(config, &before, &after, elapsed);
    if plans.is_empty() {
        return Err(anyhow::anyhow!(
            "no page names a model of the dialect that was asked for; look at --engine, and at the warnings above"
        )
        .into());
    }
    print(&plans, args.format, notes::is_uncertain)?;
    Ok(ExitCode::SUCCESS)
}

/// The configuration; what nobody reads of it goes to standard error.
fn told(loaded: Loaded) -> Config {
    loaded.notes.iter().for_each(|note| complain(&format!("note: {note}")));
    loaded.config
}

/// The pages of one round: each target with its page and the file that it came from.
type Pages = Vec<(TargetConfig, Option<(PathBuf, String)>)>;

fn targets(config: &Config) -> Vec<TargetConfig> {
    let all = config.models.iter().flat_map(|model| &model.sources).flat_map(|source| &source.targets);
    let unique: BTreeMap<&TargetId, &TargetConfig> = all.map(|target| (&target.target, target)).collect();
    let mut targets: Vec<TargetConfig> = unique.into_values().cloned().collect();
    // Pairs are named by their number; a name sorts `pair-10` before `pair-2`.
    targets.sort_by_key(|target| (target.target.as_str().len(), target.target.clone()));
    targets
}

/// Refuses a configuration whose targets are found only while running.
fn written_down(config: &Config) -> anyhow::Result<()> {
    let asks = config.models.iter().flat_map(|model| &model.sources).any(|source| source.query.is_some());
    if asks || fleet::searches(config).next().is_some() {
        bail!("expected targets that are written down (targets.static): planning from pages finds none; --replay plays what was recorded");
    }
    Ok(())
}

fn pages(files: &[PathBuf], targets: &[TargetConfig]) -> anyhow::Result<Pages> {
    let read = |file: &PathBuf| {
        unpacked(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).with_context(|| format!("read {}", file.display()))
    };
    targets.iter().zip(files).map(|(target, file)| Ok((target.clone(), Some((file.clone(), read(file)?))))).collect()
}

fn directory(folder: &Path, targets: &[TargetConfig]) -> anyhow::Result<Pages> {
    let mut pages = Vec::new();
    for target in targets {
        let page = record::read_page(folder, &target.target).context("read a page")?;
        pages.push((target.clone(), page.map(|page| (folder.join(record::page_name(&target.target)), page.text))));
    }
    if pages.iter().all(|(_, page)| page.is_none()) {
        let names: Vec<_> = targets.iter().map(|target| record::page_name(&target.target)).collect();
        bail!("{}: expected pages named {}, found none", folder.display(), names.join(", "));
    }
    Ok(pages)
}

/// Plays two rounds, `elapsed` apart, to a fresh exporter whose interval is `elapsed`: one whole window.
fn decide(mut config: Config, before: &Pages, after: &Pages, elapsed: Duration) -> Vec<Plan> {
    for model in &mut config.models {
        model.policy.interval = elapsed;
    }
    let start = Moment { monotonic: Duration::ZERO, wall: Duration::ZERO };
    let engine_of = |target: &TargetId| {
        let named =
            config.models.iter().find(|model| model.sources.iter().any(|source| source.targets.iter().any(|t| t.target == *target)));
        named.and_then(|model| model.engine.clone())
    };
    let round = |pages: &Pages, at: Duration| -> Vec<TargetReport> {
        let report = |(target, page): &(TargetConfig, Option<(PathBuf, String)>)| {
            let missing = || ScrapeFailure { kind: FailureKind::Connect, message: "no page of this target".to_owned() };
            let outcome =
                page.as_ref().ok_or_else(missing).and_then(|(_, page)| lower(page.as_bytes(), None, engine_of(&target.target), false));
            if let Err(failure) = &outcome {
                let file = page.as_ref().map_or_else(|| target.target.to_string(), |(file, _)| file.display().to_string());
                tracing::warn!(file, kind = failure.kind.as_str(), "{}", failure.message);
            }
            TargetReport { target: target.target.clone(), at, duration: Duration::ZERO, outcome }
        };
        pages.iter().map(report).collect()
    };
    let (first, second) = (round(before, Duration::ZERO), round(after, elapsed));
    // What is found only while running is not there: `written_down` has refused such a configuration.
    let fleet = Fleet::of(&config, |_| Listing::default());
    let mut exporter = Exporter::new(std::sync::Arc::new(config), BTreeMap::new(), Ledger::default(), start);
    let _baseline = exporter.round(&first, &fleet, start);
    let (rounds, events) = exporter.round(&second, &fleet, start.after(elapsed));
    for event in events {
        match event {
            Event::Unplannable { model, problem } => tracing::warn!(%model, "cannot be planned: {problem}"),
            event => tracing::debug!(?event),
        }
    }
    rounds.into_iter().filter(|round| !round.stand_in).map(|round| (*round.plan).clone()).collect()
}

/// Prints the plans; `one_window` says for which the reader should know that they rest on one window alone.
fn print(plans: &[Plan], format: PlanFormat, one_window: fn(&Plan) -> bool) -> anyhow::Result<()> {
    let answer = match format {
        PlanFormat::Json => {
            let mut document = plans::document(plans);
            for (index, _) in plans.iter().enumerate().filter(|(_, plan)| one_window(plan)) {
                if let Some(notes) = document["models"][index]["notes"].as_array_mut() {
                    notes.push(notes::ONE_WINDOW.into());
                }
            }
            format!("{document:#}\n")
        }
        PlanFormat::Text => {
            let text = |plan: &Plan| match one_window(plan) {
                true => format!("{}  note: {}\n", text::plan(plan), notes::ONE_WINDOW),
                false => text::plan(plan),
            };
            plans.iter().map(text).collect()
        }
    };
    use std::io::Write;
    std::io::stdout().write_all(answer.as_bytes()).context("write the answer")
}

/// Makes recorded decisions again. Succeeds if all agree.
fn replay(folder: &Path, format: PlanFormat) -> Result<ExitCode, Failure> {
    let folders = record::list(folder).with_context(|| format!("read {}", folder.display()))?;
    if folders.is_empty() {
        return Err(anyhow::anyhow!("{}: expected recorded decisions, found none", folder.display()).into());
    }
    let mut differing = 0;
    let mut replayed = Vec::new();
    for folder in &folders {
        let recording = record::read(folder).with_context(|| format!("read the decision {}", folder.display()))?;
        let (plan, _) =
            planner::plan(&input(folder, &recording)?, Memory::clone(&recording.memory), &recording.policy, recording.record.moment);
        let verdict = compare(&recording, &plan)?;
        complain(&format!("{}: {verdict}", folder.display()));
        if let Agreement::Differs(_) = verdict {
            differing += 1;
        }
        replayed.push(plan);
    }
    print(&replayed, format, |_| false)?;
    if differing > 0 {
        return Err(anyhow::anyhow!("{differing} of {} decisions differ", folders.len()).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// What the planner was told, from the recorded pages.
fn input(folder: &Path, recording: &Recording) -> anyhow::Result<ModelInput> {
    let mut sources = Vec::new();
    for source in &recording.record.sources {
        let mut targets = Vec::new();
        for target in &source.targets {
            let reading = match target.failure {
                Some(kind) => Reading::Failed(kind),
                None => {
                    let page = recording.after.iter().find(|page| page.target == target.target);
                    let page = page.with_context(|| format!("expected the page of {} beside the decision", target.target))?;
                    let engine = dialect(folder, target, &recording.record.model)?;
                    let scraped = lower(page.text.as_bytes(), None, Some(engine), false)
                        .map_err(|failure| anyhow::anyhow!("page of {}: {}", target.target, failure.message))?;
                    Reading::Sample(scraped.reading.of_model(&recording.record.model))
                }
            };
            targets.push(TargetReading { target: target.target.clone(), at: target.at, reading });
        }
        sources.push(SourceInput {
            source: source.source.clone(),
            discovery_failed: source.discovery_failed,
            targets,
            lifecycle: source.lifecycle,
        });
    }
    Ok(ModelInput::of(sources))
}

/// The dialect that a recorded target was read with. The operator's own stands in the configuration beside the decision.
fn dialect(folder: &Path, target: &RecordedTarget, model: &ModelId) -> anyhow::Result<Dialect> {
    if target.engine != Custom::NAME {
        let known = engines::by_name(&target.engine).map(Dialect::Known);
        return known.with_context(|| format!("engine {:?} is not known", target.engine));
    }
    let path = folder.join("config.yaml");
    let loaded = load(Some(&path), Flags::default());
    let in_words = |problems: Vec<config::Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let loaded = loaded.map_err(|problems| anyhow::anyhow!("{}: {}", path.display(), in_words(problems)))?;
    let plans = |known: &ModelConfig| known.policy_for(model).is_ok();
    let model = loaded.config.models.into_iter().find(plans);
    model.and_then(|model| model.engine).with_context(|| format!("{}: expected the custom engine of {}", path.display(), target.target))
}

/// Whether a decision made again agrees with the recorded one.
#[derive(Clone, Debug, PartialEq)]
enum Agreement {
    /// To the byte.
    Identical,
    /// In every integer, verdict, reason and step; floats to 1e-9.
    Equal,
    /// Where they differ, as a path into the plan.
    Differs(String),
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Identical => f.write_str("identical"),
            Self::Equal => f.write_str("equal, floats to 1e-9"),
            Self::Differs(path) => write!(f, "differs at {path}"),
        }
    }
}

fn compare(recording: &Recording, plan: &Plan) -> anyhow::Result<Agreement> {
    let bytes = |plan: &Plan| serde_json::to_vec(plan).context("render a plan");
    if bytes(&recording.plan)? == bytes(plan)? {
        return Ok(Agreement::Identical);
    }
    let value = |plan: &Plan| serde_json::to_value(plan).context("render a plan");
    let (recorded, again) = (value(&recording.plan)?, value(plan)?);
    Ok(difference("plan", &recorded, &again).map_or(Agreement::Equal, Agreement::Differs))
}

/// The first place where two documents differ by more than float noise.
fn difference(path: &str, a: &serde_json::Value, b: &serde_json::Value) -> Option<String> {
    use serde_json::Value;
    const NOISE: f64 = 1e-9;
    let differs = || Some(format!("{path}: {a} was recorded, {b} now"));
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().zip(b.values()).find_map(|((key, a), b)| difference(&format!("{path}.{key}"), a, b))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(&format!("{path}[{i}]"), a, b))
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64()?, b.as_f64()?);
            if (a - b).abs() <= NOISE * a.abs().max(b.abs()) { None } else { differs() }
        }
        (a, b) if a == b => None,
        _ => differs(),
    }
}
