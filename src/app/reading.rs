//! Who reads the configuration again? A task beside the loop, so that files that take long, or never answer, stop no round.
//!
//! What is being read is never given up: who asked is told after a while that it takes long, and what was read at last is taken over.
//! While one reading is under way the next requests wait: files that changed since it began are read once more.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch as told};

use super::{Loader, watch};
use crate::config::Loaded;
use crate::server::ReloadRequest;

/// What a reading came to.
pub struct Read {
    /// The configuration, or all that is wrong with it.
    pub result: Result<Box<Loaded>, Vec<String>>,
    /// Who asked for it.
    pub answers: Vec<ReloadRequest>,
}

/// The task.
pub struct Reader {
    /// How to read it.
    pub loader: Loader,
    /// The files of what was read last.
    pub files: Vec<PathBuf>,
    /// Tells the watcher what was read.
    pub watched: told::Sender<watch::Marks>,
    /// Where readings are asked for.
    pub requests: mpsc::Receiver<ReloadRequest>,
    /// Where they go.
    pub read: mpsc::Sender<Read>,
    /// How long who asked for one waits for its files.
    pub longest_wait: Duration,
}

impl Reader {
    /// Reads once for each request and all that wait with it, until nobody wants it any more.
    pub async fn run(mut self) {
        while let Some(first) = self.requests.recv().await {
            let mut answers = vec![first];
            answers.extend(std::iter::from_fn(|| self.requests.try_recv().ok()));
            if self.read(answers).await.is_err() {
                return;
            }
        }
    }

    async fn read(&mut self, mut answers: Vec<ReloadRequest>) -> Result<(), mpsc::error::SendError<Read>> {
        let (loader, files) = (Arc::clone(&self.loader), self.files.clone());
        // They are looked at before they are read: what changes in between is read once more.
        let mut reading = tokio::task::spawn_blocking(move || (watch::look(&files), loader()));
        let done = match tokio::time::timeout(self.longest_wait, &mut reading).await {
            Ok(done) => done,
            Err(_) => {
                let problem = format!(
                    "reading the configuration takes longer than {}; expected files that answer. It is taken over when it is read",
                    humantime::format_duration(self.longest_wait)
                );
                self.read.send(Read { result: Err(vec![problem]), answers: std::mem::take(&mut answers) }).await?;
                reading.await
            }
        };
        let result = match done {
            Ok((before, Ok(loaded))) => {
                self.files.clone_from(&loaded.config.files);
                let mut marks = watch::look(&self.files);
                marks.extend(before.into_iter().filter(|(file, _)| self.files.contains(file)));
                self.watched.send_replace(marks);
                Ok(Box::new(loaded))
            }
            Ok((before, Err(problems))) => {
                self.watched.send_replace(before);
                Err(problems.iter().map(ToString::to_string).collect())
            }
            Err(error) => Err(vec![format!("reading the configuration failed: {error}")]),
        };
        self.read.send(Read { result, answers }).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use tokio::sync::oneshot;

    use super::*;
    use crate::config::{self, Flags, Inputs};

    #[tokio::test]
    async fn files_that_take_long_are_taken_over_when_they_are_read_and_read_again_for_who_asked_meanwhile() {
        let flags = Flags { metrics_urls: vec!["http://10.0.0.1:8000/metrics".to_owned()], ..Flags::default() };
        let (answer, answers) = std::sync::mpsc::channel::<()>();
        let answers = Mutex::new(answers);
        let loader: Loader = Arc::new(move || {
            answers.lock().unwrap().recv().unwrap();
            config::read(Inputs { flags: flags.clone(), ..Inputs::default() }).finish(&BTreeMap::new())
        });
        let (watched, _told) = told::channel(watch::Marks::new());
        let (ask, requests) = mpsc::channel(2);
        let (found, mut read) = mpsc::channel(1);
        let reader = Reader { loader, files: Vec::new(), watched, requests, read: found, longest_wait: Duration::from_millis(20) };
        let running = tokio::spawn(reader.run());
        ask.send(oneshot::channel().0).await.unwrap();
        let late = read.recv().await.unwrap();
        let problems = late.result.err().unwrap();
        assert_eq!(late.answers.len(), 1, "who asked is told");
        assert!(problems[0].contains("takes longer than 20ms; expected files that answer"), "{problems:?}");
        ask.send(oneshot::channel().0).await.unwrap();
        answer.send(()).unwrap();
        let done = read.recv().await.unwrap();
        assert!(done.result.is_ok() && done.answers.is_empty());
        answer.send(()).unwrap();
        let mut again = read.recv().await.unwrap();
        if again.result.is_err() {
            // Two cores that are busy take longer than 20 ms: then it is told as above.
            again = read.recv().await.unwrap();
        } else {
            assert_eq!(again.answers.len(), 1);
        }
        assert!(again.result.is_ok());
        drop(ask);
        running.await.unwrap();
    }
}
