//! What can the servers of a deployment do? Measures a live server that speaks OpenAI's completions, and writes profile.json. I/O.
//!
//! Reading order:
//! - [`plan`]: what is measured, how large each batch is. Pure.
//! - [`prompt`]: prompts of an exact length that no cache knows. Pure.
//! - [`sse`], [`answer`]: bytes to events to tokens. Pure.
//! - [`stream`]: one request. I/O.
//! - [`contact`]: who is on the other side. I/O.
//! - [`window`]: what a batch did while all of its streams ran. Pure.
//! - [`measure`]: one trial. I/O.
//! - [`record`], [`store`]: what is kept of an interrupted run.
//! - [`document`]: what is written. Pure.
//! - [`progress`]: what is shown meanwhile.

pub mod answer;
pub mod contact;
pub mod document;
pub mod measure;
pub mod plan;
pub mod progress;
pub mod prompt;
pub mod record;
pub mod sse;
pub mod store;
pub mod stream;
pub mod window;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use self::contact::{Identity, Manner, Metrics};
use self::document::Measured;
use self::measure::{Hopeless, Probe};
use self::plan::Cell;
use self::progress::Progress;
use self::prompt::Unusable;
use self::record::{Key, Record};
use self::store::Store;
use self::stream::{RequestError, Server};
use crate::units::Seconds;

/// Share by which whole streams may miss a cell's occupancy without a warning.
const ROUNDING: f64 = 0.25;

/// What is to be measured, and where the result goes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the server.
    pub url: String,
    /// For servers that ask for one.
    pub api_key: Option<String>,
    /// Everything that makes two runs the same. Its URL is filled in from `url`, its KV capacity from the server unless it is known.
    pub key: Key,
    /// Tokens that the KV cache holds, if the user said so.
    pub max_kv_tokens: Option<u32>,
    /// Longest time for one request.
    pub timeout: Duration,
    /// Where the profile goes.
    pub output: PathBuf,
    /// Whether what an earlier run left is thrown away.
    pub restart: bool,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Asked for in a way that cannot be.
    #[error("{0}")]
    Usage(String),
    /// The server does not have this model.
    #[error("the server has no model {model:?}; it has {known}")]
    Model {
        /// What was asked for.
        model: String,
        /// What there is.
        known: String,
    },
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No prompts can be made.
    #[error(transparent)]
    Prompt(#[from] Unusable),
    /// The server's counts are not what was asked for.
    #[error("the server's counts are not as expected, five times in a row: {0}")]
    Counts(String),
    /// The model ends its answers when it likes.
    #[error("the server ends answers before {wanted} tokens; expected it to obey ignore_eos: without that no batch can be kept going")]
    EndedEarly {
        /// What was asked for.
        wanted: u32,
    },
    /// Nothing can be claimed.
    #[error("no profile: {}", .0.join("; "))]
    Nothing(Vec<String>),
    /// The disk.
    #[error("cannot write {}: {cause}", file.display())]
    Write {
        /// What was to be written.
        file: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
}

/// Measures whatever an earlier run has not measured, and writes the profile. Ends early without loss when it is dropped: every trial is on
/// the disk before the next begins.
pub async fn run(settings: Settings, store: &Store, progress: &Progress) -> Result<Measured, ProfileError> {
    let server = Server::new(&settings.url, settings.api_key.as_deref(), settings.timeout)
        .map_err(|error| ProfileError::Usage(format!("--url or --api-key-file: {error}")))?;
    if settings.restart {
        store.forget();
    }
    let earlier = store.load()?;
    let model = settings.key.model.clone();
    let (identity, metrics) = meet(&server, &model, progress).await?;
    let mut key = Key { url: server.shown(), ..settings.key };
    key.max_kv_tokens = capacity(settings.max_kv_tokens, &metrics, progress)?;
    let mut record = begin(earlier, key, identity, store, progress)?;
    warn_of_rounding(&record, progress);
    let (manner, trial) = Manner::find(&server, &model, record.settings.endpoint).await?;
    if let ([first, .., last], 0) = (trial.pieces.as_slice(), record.progress().0) {
        record.pace.per_token = Seconds((*last - *first).as_secs_f64() / (trial.pieces.len() - 1) as f64);
    }
    if !manner.holds_length() {
        progress.say("warning: the server does not know ignore_eos; answers may end when the model likes");
    }
    store.save(&record)?;
    let (done, all) = record.progress();
    progress.step("looking for words of one token".to_owned(), done, all, Duration::ZERO);
    let mut probe = Probe::new(server, model, manner, nonce()).await?;
    prompt_curve(&mut probe, &mut record, store, progress).await?;
    surface(&mut probe, &mut record, store, progress).await?;
    progress.end();
    let Some(measured) = document::profile(&record) else {
        let reasons = record.prompts.iter().filter_map(|point| point.not_measured.clone());
        return Err(ProfileError::Nothing(reasons.chain(document::unclaimed(&record, &[], &[])).collect()));
    };
    store.finish(&document::text(&measured, &record, manner.endpoint, &now()))?;
    Ok(measured)
}

/// Checks that the server is there and has the model.
async fn meet(server: &Server, model: &str, progress: &Progress) -> Result<(Identity, Metrics), ProfileError> {
    let models = contact::models(server).await?;
    let owned_by = match &models {
        None => None,
        Some(models) => match models.get(model) {
            Some(owner) => owner.clone(),
            None => {
                let known: Vec<&str> = models.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none (yet)".to_owned() } else { known.join(", ") };
                return Err(ProfileError::Model { model: model.to_owned(), known });
            }
        },
    };
    let metrics = contact::metrics(server, model).await;
    if let Some(running) = metrics.running.filter(|running| *running > 0.0) {
        progress.say(&format!("warning: {running} requests of others are running on this server; what is measured holds beside them only"));
    }
    for (role, workers) in metrics.workers.iter().filter(|(_, workers)| workers.0 > 1) {
        progress.say(&format!(
            "warning: there are {workers} {role} replicas behind this address; a profile is of one prefill and one decode replica"
        ));
    }
    let engine_version = contact::version(server).await;
    Ok((Identity { engine: metrics.engine.map(str::to_owned), engine_version, owned_by }, metrics))
}

fn capacity(told: Option<u32>, metrics: &Metrics, progress: &Progress) -> Result<u32, ProfileError> {
    if let Some(told) = told {
        return Ok(told);
    }
    let expected =
        "expected --max-kv-tokens: the server's /metrics does not say how many tokens its KV cache holds (GPU blocks times block size)";
    // `as` saturates; no cache holds 2^32 tokens.
    let found = metrics.max_kv_tokens.ok_or_else(|| ProfileError::Usage(expected.to_owned()))? as u32;
    progress.say(&format!("KV cache: {found} tokens, as the server's /metrics says"));
    Ok(found)
}

/// The record to go on with.
fn begin(earlier: Option<Record>, key: Key, identity: Identity, store: &Store, progress: &Progress) -> Result<Record, ProfileError> {
    // What measured nothing binds nobody to its settings.
    let Some(record) = earlier.filter(|record| record.progress().0 > 0) else { return Ok(Record::new(key, identity, now())) };
    let differs = record.unlike(&key, &identity);
    if !differs.is_empty() {
        let file = store.partial().display();
        return Err(ProfileError::Usage(format!(
            "{file} was left by a run with other settings: {}. Measure with those settings to go on, with another --output, or with --restart \
             to throw it away",
            differs.join("; ")
        )));
    }
    let (done, all) = record.progress();
    progress.say(&format!("going on with {}: {done} of {all} trials are done", store.partial().display()));
    Ok(record)
}

fn warn_of_rounding(record: &Record, progress: &Progress) {
    let most = record.settings.max_kv_tokens;
    let missed = record.cells.iter().filter(|cell| (cell.at.rounding(most) - 1.0).abs() > ROUNDING);
    let places: Vec<String> =
        missed.map(|cell| format!("{} ({:.2})", document::place(cell), cell.at.kv_usage * cell.at.rounding(most))).collect();
    if !places.is_empty() {
        progress.say(&format!(
            "warning: the smallest batches hold more than the occupancy at {}; a cache of {most} tokens is small for these axes",
            places.join("; ")
        ));
    }
}

async fn prompt_curve(probe: &mut Probe, record: &mut Record, store: &Store, progress: &Progress) -> Result<(), ProfileError> {
    let repeats = record.settings.prefill_repeats;
    for at in 0..record.prompts.len() {
        let tokens = record.prompts[at].at;
        let mut is_warm = false;
        while !record.prompts[at].is_settled(repeats) {
            let number = record.prompts[at].trials.len() + 1;
            let trial = if is_warm { format!("{number} of {repeats}") } else { "warm-up".to_owned() };
            show(record, progress, format!("prompt of {tokens} tokens, {trial}"));
            match probe.prompt(tokens).await? {
                Err(hopeless) => record.prompts[at].not_measured = Some(hopeless.words),
                Ok(_) if !is_warm => is_warm = true,
                Ok(trial) => record.prompts[at].trials.push(trial),
            }
            record.pace.learn_prompts(&record.prompt_times());
            store.save(record)?;
        }
    }
    Ok(())
}

async fn surface(probe: &mut Probe, record: &mut Record, store: &Store, progress: &Progress) -> Result<(), ProfileError> {
    let (repeats, most) = (record.settings.decode_repeats, record.settings.max_kv_tokens);
    for at in 0..record.cells.len() {
        let cell = record.cells[at].at;
        if let Some(same) = record.cells[..at].iter().find(|other| is_same_batch(&other.at, &cell)) {
            (record.cells[at].trials, record.cells[at].not_measured) = (same.trials.clone(), same.not_measured.clone());
        }
        if let Some(most) = record.too_many_streams.filter(|most| cell.streams >= *most && !record.cells[at].is_settled(repeats)) {
            record.cells[at].not_measured = Some(format!("needs {} streams at once; {most} were too many", cell.streams));
        }
        while !record.cells[at].is_settled(repeats) {
            let trials = &record.cells[at].trials;
            let number = trials.len() + 1;
            let window = cell.window(record.settings.decode_osl, most);
            // What was long enough once is long enough again.
            let answer = trials.last().map_or_else(|| cell.first_answer(window, &record.pace), |trial| trial.answer);
            let streams = if cell.streams == 1 { "1 stream".to_owned() } else { format!("{} streams", cell.streams) };
            show(record, progress, format!("{}, {streams}, {number} of {repeats}", document::place(&record.cells[at])));
            match probe.cell(&cell, window, answer, &mut record.pace).await? {
                Ok(trial) => record.cells[at].trials.push(trial),
                Err(Hopeless { words, too_many }) => {
                    progress.say(&format!("{}: {words}", document::place(&record.cells[at])));
                    record.cells[at].not_measured = Some(words);
                    if too_many {
                        record.too_many_streams = Some(record.too_many_streams.map_or(cell.streams, |most| most.min(cell.streams)));
                    }
                }
            }
            store.save(record)?;
        }
    }
    Ok(())
}

/// Two occupancies may come to the same whole number of streams.
fn is_same_batch(one: &Cell, other: &Cell) -> bool {
    (one.context_length, one.streams, one.context) == (other.context_length, other.streams, other.context)
}

fn show(record: &Record, progress: &Progress, what: String) {
    let (done, all) = record.progress();
    progress.step(what, done, all, Duration::try_from_secs_f64(record.time_left().get()).unwrap_or_default());
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Differs from run to run, also within a second and between machines whose clocks agree: the standard library's hash keys are random.
fn nonce() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u128(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos());
    hasher.finish()
}
