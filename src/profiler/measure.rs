//! What does one trial give? One prompt alone, or one batch of streams, with the server's counts held against what was asked for. I/O.

use std::time::Duration;

use tokio::task::JoinSet;

use super::ProfileError;
use super::contact::Manner;
use super::plan::{Attempt, Cell, Next, Pace, next};
use super::prompt::{Prompts, Vocabulary};
use super::record::{BatchTrial, PromptTrial};
use super::stream::{Answer, RequestError, Server};
use super::window::{Stream, look};
use crate::units::Seconds;

/// Prompts that may have the wrong length, or be in the prefix cache, before that is an error.
const MISSES: usize = 5;
/// Cached tokens that are no worry: a block of a template that all prompts share.
const CACHED: u32 = 32;
/// Share by which the prompts of a batch may differ from what they should be.
const TOLERANCE: f64 = 0.01;
/// Pauses before a trial that failed is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

/// What came of a trial, or why there can be none.
pub type Outcome<T> = Result<T, Hopeless>;

/// Why a point or a cell cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hopeless {
    /// In words.
    pub words: String,
    /// Whether it is the number of streams, so that more of them are hopeless as well.
    pub too_many: bool,
}

impl Hopeless {
    fn refused(error: &RequestError) -> Self {
        Self { words: error.to_string(), too_many: false }
    }

    fn too_many(words: String) -> Self {
        Self { words, too_many: true }
    }
}

/// Measures one model of one server.
#[derive(Debug)]
pub struct Probe {
    server: Server,
    model: String,
    manner: Manner,
    prompts: Prompts,
}

impl Probe {
    /// Finds the words that prompts are made of. `nonce` differs from run to run.
    pub async fn new(server: Server, model: String, manner: Manner, nonce: u64) -> Result<Self, ProfileError> {
        let count = async |text: String| {
            let answer = manner.ask(&server, &model, text, 1).await?;
            Ok::<u32, ProfileError>(answer.usage.prompt_tokens)
        };
        let vocabulary = Vocabulary::find(count).await?;
        tracing::debug!(?vocabulary, "calibrated");
        Ok(Self { server, model, manner, prompts: Prompts::new(vocabulary, nonce) })
    }

    /// One prompt of exactly so many tokens, and one token of an answer.
    pub async fn prompt(&mut self, tokens: u32) -> Result<Outcome<PromptTrial>, ProfileError> {
        let mut pauses = PAUSES.iter();
        loop {
            match self.exact_prompt(tokens).await {
                Ok(trial) => return Ok(Ok(trial)),
                Err(ProfileError::Request(error)) if error.is_refusal() => return Ok(Err(Hopeless::refused(&error))),
                Err(ProfileError::Request(error)) => self.pause(error, pauses.next()).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn exact_prompt(&mut self, tokens: u32) -> Result<PromptTrial, ProfileError> {
        let mut missed = String::new();
        for _ in 0..MISSES {
            let prompt = self.prompts.of(tokens)?;
            let Answer { sent, pieces, usage } = self.manner.ask(&self.server, &self.model, prompt, 1).await?;
            if usage.prompt_tokens != tokens {
                missed = format!("a prompt of {tokens} tokens counted as {}", usage.prompt_tokens);
                self.prompts.correct(tokens, usage.prompt_tokens);
            } else if usage.cached_tokens > CACHED + self.prompts.overhead() {
                missed = format!("{} of {tokens} tokens of a new prompt came from the prefix cache", usage.cached_tokens);
            } else {
                // An answer without pieces is an error.
                let first = pieces.first().copied().unwrap_or(sent);
                return Ok(PromptTrial { ttft: Seconds::from(first - sent) });
            }
        }
        Err(ProfileError::Counts(missed))
    }

    /// Batches of one cell until one counts.
    pub async fn cell(&mut self, cell: &Cell, window: u32, answer: u32, pace: &mut Pace) -> Result<Outcome<BatchTrial>, ProfileError> {
        let mut attempts = Vec::new();
        let mut answer = answer;
        let mut pauses = PAUSES.iter();
        loop {
            let streams = match self.batch(cell, answer).await {
                Ok(streams) => streams,
                Err(ProfileError::Request(error)) if error.is_refusal() => return Ok(Err(Hopeless::refused(&error))),
                Err(ProfileError::Request(error)) => {
                    // A server that still answers a single prompt has refused the batch and is not gone.
                    let Some(pause) = pauses.next() else {
                        self.exact_prompt(cell.context).await.map_err(|_| ProfileError::Request(error.clone()))?;
                        let words = format!("of {} streams at once one fails each time: {error}", cell.streams);
                        return Ok(Err(Hopeless::too_many(words)));
                    };
                    self.pause(error, Some(pause)).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let seen = look(&streams);
            pace.learn_batch(cell, answer, &seen);
            if self.ended_early(&streams, answer) {
                return Err(ProfileError::EndedEarly { wanted: answer });
            }
            attempts.push(Attempt { answer, seen });
            answer = match next(cell, window, &attempts) {
                Next::Again(longer) => longer,
                Next::Never(words) => return Ok(Err(Hopeless::too_many(words))),
                Next::Enough => match BatchTrial::new(answer, &seen) {
                    Some(trial) => return Ok(Ok(trial)),
                    None => return Ok(Err(Hopeless::too_many("there was no window in which all streams ran".to_owned()))),
                },
            };
        }
    }

    /// Where answers end when the model likes, they end early and the batch says nothing.
    fn ended_early(&self, streams: &[Stream], answer: u32) -> bool {
        let early = streams.iter().filter(|stream| stream.usage.completion_tokens < answer - answer / 10).count();
        2 * early > streams.len()
    }

    /// All streams of a batch at once. The first failure ends the others.
    async fn batch(&mut self, cell: &Cell, answer: u32) -> Result<Vec<Stream>, ProfileError> {
        let tokens = cell.prompt(answer);
        let prompts: Vec<String> = (0..cell.streams).map(|_| self.prompts.of(tokens)).collect::<Result<_, _>>()?;
        let mut running = JoinSet::new();
        for prompt in prompts {
            let (server, model, manner) = (self.server.clone(), self.model.clone(), self.manner);
            running.spawn(async move { manner.ask(&server, &model, prompt, answer).await });
        }
        let mut answers = Vec::new();
        while let Some(ended) = running.join_next().await {
            let answer = ended.map_err(|_| RequestError::Broken("the reading of it failed".to_owned()))?;
            answers.push(answer?);
        }
        let counted = answers.iter().map(|answer| f64::from(answer.usage.prompt_tokens)).sum::<f64>() / f64::from(cell.streams);
        if (counted / f64::from(tokens) - 1.0).abs() > TOLERANCE.max(1.0 / f64::from(tokens)) {
            return Err(ProfileError::Counts(format!("prompts of {tokens} tokens counted as {counted:.1} on average")));
        }
        if let Some(hit) = answers.iter().find(|answer| answer.usage.cached_tokens > CACHED + self.prompts.overhead()) {
            let cached = hit.usage.cached_tokens;
            return Err(ProfileError::Counts(format!("{cached} of {tokens} tokens of a new prompt came from the prefix cache")));
        }
        let start = answers.iter().map(|answer| answer.sent).min();
        let since = |at: std::time::Instant| Seconds::from(start.map_or(Duration::ZERO, |start| at - start));
        let stream = |answer: &Answer| Stream { pieces: answer.pieces.iter().map(|at| since(*at)).collect(), usage: answer.usage };
        Ok(answers.iter().map(stream).collect())
    }

    /// Waits before another try; without another one the failure is final.
    async fn pause(&self, error: RequestError, pause: Option<&Duration>) -> Result<(), ProfileError> {
        let Some(pause) = pause else { return Err(error.into()) };
        // A server without counts will not send any in a second.
        if matches!(error, RequestError::NoUsage | RequestError::Unexpected(_) | RequestError::Timeout(_)) {
            return Err(error.into());
        }
        tracing::debug!("{error}; trying again");
        tokio::time::sleep(*pause).await;
        Ok(())
    }
}
