//! `profile`: what can one prefill and one decode replica do? Measures them where they run, and writes profile.json; or looks at one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::backtest::page::Page;
use super::load::text_of;
use super::{Failure, complain};
use crate::config::profile::parse;
use crate::config::{self, Problem};
use crate::planner::model::doubts;
use crate::profiler::contact::Endpoint;
use crate::profiler::document::Measured;
use crate::profiler::progress::Progress;
use crate::profiler::record::Key;
use crate::profiler::store::Store;
use crate::profiler::{self, ProfileError, Settings};
use crate::report;

/// How often the time left is shown anew.
const REDRAW: Duration = Duration::from_secs(1);
/// Shortest context: a prompt, and an answer that says something.
const SHORTEST_CONTEXT: u32 = 64;
/// Shortest prompt: two blocks of most caches.
const SHORTEST_PROMPT: u32 = 32;

/// Flags of `profile`.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// Look at a profile instead of measuring one: prints every problem, or its table and what is doubtful
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "max_kv_tokens", "api_key_file", "restart"])]
    pub check: Option<PathBuf>,
    /// Write a page with plots there, too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Address of the server or front end, with or without /v1
    #[arg(long, default_value = "http://127.0.0.1:8000")]
    pub url: String,
    /// The model, as the server calls it
    #[arg(long, required_unless_present = "check")]
    pub model: Option<String>,
    /// Tokens that the KV cache of one decode replica holds: GPU blocks times block size. Without it the server's /metrics is asked
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_kv_tokens: Option<u32>,
    /// Lengths of prompts, tokens
    #[arg(long, value_delimiter = ',', default_value = "512,1024,2048,4096")]
    pub isl: Vec<u32>,
    /// Mean contexts of generation, tokens
    #[arg(long, value_delimiter = ',', default_value = "1024,4096,16384")]
    pub context_length: Vec<u32>,
    /// Shares of the KV cache in use
    #[arg(long, value_delimiter = ',', default_value = "0.1,0.3,0.5,0.7,0.9")]
    pub kv_usage: Vec<f64>,
    /// Timed trials of each prompt length; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill_repeats: u32,
    /// Batches of each generation cell; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub decode_repeats: u32,
    /// Tokens of each stream that are timed while all streams of a batch run
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..))]
    pub decode_osl: u32,
    /// GPUs of the prefill replica
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill_engine_num_gpu: u32,
    /// GPUs of the decode replica
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub decode_engine_num_gpu: u32,
    /// The interface; without it /v1/completions is tried first
    #[arg(long, value_enum)]
    pub endpoint: Option<EndpointFlag>,
    /// File with the key of the server
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Longest time for one request; a bare number is seconds
    #[arg(long, default_value = "10m", value_parser = config::parse_seconds_flag)]
    pub request_timeout: Duration,
    /// Where the profile goes; beside it stands FILE.partial until it is complete
    #[arg(long, default_value = "profile.json", value_name = "FILE")]
    pub output: PathBuf,
    /// Throw away what an interrupted run left
    #[arg(long)]
    pub restart: bool,
}

/// The interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum EndpointFlag {
    /// /v1/completions
    Completions,
    /// /v1/chat/completions
    Chat,
}

/// Measures, or looks.
pub fn profile(args: ProfileArgs) -> Result<ExitCode, Failure> {
    let profile = args.check.clone().unwrap_or_else(|| args.output.clone());
    // Found out before an hour of measuring depends on it.
    let page = args.html.as_ref().map(|file| Page::of(file, std::slice::from_ref(&profile))).transpose()?;
    if args.check.is_some() {
        show(&profile, page.as_ref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let measured = measure(args)?;
    show(&profile, page.as_ref())?;
    measured.left_out.iter().for_each(|line| complain(&format!("not claimed: {line}")));
    complain(&format!("written to {}", profile.display()));
    Ok(ExitCode::SUCCESS)
}

/// The table on standard output, what is doubtful on standard error, and plots on the page.
fn show(file: &Path, page: Option<&Page>) -> Result<(), Failure> {
    let text = text_of(file).map_err(|error| vec![Problem::of_file(file, format!("cannot be read: {error}"))])?;
    let envelope = parse(file, &text)?;
    let doubts: Vec<String> = doubts::of(&envelope).into_iter().chain(doubts::too_much(&envelope)).collect();
    let mut output = std::io::stdout();
    let table = report::profile::text(&envelope);
    output.write_all(table.as_bytes()).and_then(|()| output.flush()).context("write the table")?;
    doubts.iter().for_each(|doubt| complain(&format!("warning: {doubt}")));
    if let Some(page) = page {
        page.write(&report::profile::html(&envelope, &about(file, &text), &doubts))?;
    }
    Ok(())
}

/// What a profile says about itself, in single values.
fn about(file: &Path, text: &str) -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let provenance = document.get("provenance").and_then(Value::as_object);
    let facts = provenance.into_iter().flatten().filter_map(|(name, value)| {
        let value = value.as_str().map(str::to_owned).or(value.as_u64().map(|number| number.to_string()))?;
        Some((name.replace('_', " "), value))
    });
    std::iter::once(("file".to_owned(), file.display().to_string())).chain(facts).collect()
}

fn measure(args: ProfileArgs) -> Result<Measured, Failure> {
    let settings = settings(args)?;
    let store = Store::new(&settings.output).map_err(failure)?;
    let progress = Progress::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().context("start the runtime")?;
    let result = runtime.block_on(until_stopped(settings, &store, &progress));
    runtime.shutdown_background();
    progress.end();
    match result {
        Ok(Some(measured)) => Ok(measured),
        Ok(None) => Err(Failure::Other(anyhow::anyhow!("interrupted; {}", kept(&store)))),
        Err(error @ ProfileError::Usage(_)) => Err(failure(error)),
        // What the server refused is done, too: gone on with, it comes to the same.
        Err(error @ ProfileError::Nothing(_)) => {
            let file = store.partial().display();
            Err(Failure::Other(anyhow::anyhow!(
                "{error}; {file} keeps what was refused, and the same command with --restart measures anew"
            )))
        }
        Err(error) => Err(Failure::Other(anyhow::anyhow!("{error}; {}", kept(&store)))),
    }
}

/// `None` when a signal ended it. What was measured until then is on the disk.
async fn until_stopped(settings: Settings, store: &Store, progress: &Progress) -> Result<Option<Measured>, ProfileError> {
    let listen = |kind| signal(kind).map_err(|error| ProfileError::Usage(format!("cannot listen for signals: {error}")));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let mut redraw = tokio::time::interval(REDRAW);
    let work = profiler::run(settings, store, progress);
    tokio::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => return result.map(Some),
            _ = interrupt.recv() => return Ok(None),
            _ = terminate.recv() => return Ok(None),
            _ = redraw.tick() => progress.redraw(),
        }
    }
}

fn kept(store: &Store) -> String {
    let file = store.partial().display();
    match store.load() {
        Ok(Some(record)) => {
            let (done, all) = record.progress();
            format!("{done} of {all} trials are kept in {file}, and the same command goes on from there")
        }
        _ => "nothing had been measured yet".to_owned(),
    }
}

fn failure(error: ProfileError) -> Failure {
    match error {
        ProfileError::Usage(words) => Failure::Usage(words),
        error => Failure::Other(error.into()),
    }
}

fn settings(args: ProfileArgs) -> Result<Settings, Failure> {
    let mut problems = Vec::new();
    let model = args.model.unwrap_or_default();
    if model.trim().is_empty() {
        problems.push("--model: expected a name".to_owned());
    }
    problems.extend(axis("--isl", &args.isl, |tokens| *tokens >= SHORTEST_PROMPT, &format!("at least {SHORTEST_PROMPT}")));
    let shortest = format!("at least {SHORTEST_CONTEXT}");
    problems.extend(axis("--context-length", &args.context_length, |tokens| *tokens >= SHORTEST_CONTEXT, &shortest));
    problems.extend(axis("--kv-usage", &args.kv_usage, |share| *share > 0.0 && *share <= 1.0, "above 0 and at most 1"));
    if !problems.is_empty() {
        return Err(Failure::Usage(problems.join("\nerror: ")));
    }
    let api_key = match &args.api_key_file {
        None => None,
        Some(file) => {
            let text = text_of(file);
            let text = text.map_err(|error| Failure::Usage(format!("--api-key-file {}: {error}", file.display())))?;
            Some(text.trim().to_owned())
        }
    };
    let endpoint = args.endpoint.map(|flag| match flag {
        EndpointFlag::Completions => Endpoint::Completions,
        EndpointFlag::Chat => Endpoint::Chat,
    });
    let key = Key {
        url: String::new(),
        model,
        endpoint,
        isl: args.isl,
        context_length: args.context_length,
        kv_usage: args.kv_usage,
        max_kv_tokens: args.max_kv_tokens.unwrap_or(0),
        prefill_repeats: args.prefill_repeats,
        decode_repeats: args.decode_repeats,
        decode_osl: args.decode_osl,
        prefill_engine_num_gpu: args.prefill_engine_num_gpu,
        decode_engine_num_gpu: args.decode_engine_num_gpu,
    };
    Ok(Settings {
        url: args.url,
        api_key,
        key,
        max_kv_tokens: args.max_kv_tokens,
        timeout: args.request_timeout,
        output: args.output,
        restart: args.restart,
    })
}

/// What is wrong with an axis, if anything is.
fn axis<T: PartialOrd + std::fmt::Display>(name: &str, values: &[T], legal: impl Fn(&T) -> bool, rule: &str) -> Option<String> {
    if let Some(wrong) = values.iter().find(|value| !legal(value)) {
        return Some(format!("{name}: expected every value to be {rule}, got {wrong}"));
    }
    let wrong = values.windows(2).find(|pair| pair[0] >= pair[1])?;
    Some(format!("{name}: expected values that rise, got {} before {}", wrong[0], wrong[1]))
}
