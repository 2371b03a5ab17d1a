//! Who reads the configuration again? A task beside the loop, so that files that take long, or never answer, stop no round.
//!
//! | a reading | then |
//! |---|---|
//! | is under way | who asks waits for the next one, since files that changed after it began are read once more |
//! | takes long | who asked is told; it goes on, and the next request begins another beside it |
//! | ends | it is taken over, unless one that began later was |
//!
//! A reading that never ends (a volume that is gone, a pipe) holds a thread, so there is a limit to those that hang.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch as told};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::{Loader, watch};
use crate::config::{Loaded, Problem};
use crate::server::ReloadRequest;

/// Readings at a time, those that hang included.
const MOST: usize = 8;

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

/// Nobody takes what was read any more.
struct Unwanted;

/// The reading that others wait for.
struct Current {
    number: u64,
    answers: Vec<ReloadRequest>,
    late: Instant,
}

/// A reading by its number, with the files as they were before it.
type Done = (u64, watch::Marks, Result<(Loaded, watch::Marks), Vec<Problem>>);

#[derive(Default)]
struct Readings {
    running: JoinSet<Done>,
    current: Option<Current>,
    /// Who asked since it began.
    next: Vec<ReloadRequest>,
    begun: u64,
    /// The last that was taken over.
    taken: u64,
}

impl Reader {
    /// Reads when it is asked to, until nobody wants it any more.
    pub async fn run(mut self) {
        let mut readings = Readings::default();
        loop {
            let late = readings.current.as_ref().map(|current| current.late);
            let done = tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => {
                        readings.next.push(request);
                        Ok(())
                    }
                    None => return,
                },
                Some(done) = readings.running.join_next() => self.take(&mut readings, done).await,
                () = tokio::time::sleep_until(late.unwrap_or_else(Instant::now)), if late.is_some() => self.tell(&mut readings).await,
            };
            if done.is_err() || self.begin(&mut readings).await.is_err() {
                return;
            }
        }
    }

    /// Begins a reading for all who wait, where none is under way that is in time.
    async fn begin(&mut self, readings: &mut Readings) -> Result<(), Unwanted> {
        if readings.current.is_some() || readings.next.is_empty() {
            return Ok(());
        }
        let mut answers = std::mem::take(&mut readings.next);
        answers.extend(std::iter::from_fn(|| self.requests.try_recv().ok()));
        if readings.running.len() >= MOST {
            let problem = format!("{MOST} readings of the configuration hang; expected files that answer");
            return self.send(Err(vec![problem]), answers).await;
        }
        readings.begun += 1;
        let number = readings.begun;
        let (loader, files) = (Arc::clone(&self.loader), self.files.clone());
        // Files are looked at before they are read: what changes in between is read once more. A look may hang as well.
        readings.running.spawn_blocking(move || {
            let before = watch::look(&files);
            let read = loader().map(|loaded| {
                let after = watch::look(&loaded.config.files);
                (loaded, after)
            });
            (number, before, read)
        });
        readings.current = Some(Current { number, answers, late: Instant::now() + self.longest_wait });
        Ok(())
    }

    /// Tells who waits that the reading takes long.
    async fn tell(&mut self, readings: &mut Readings) -> Result<(), Unwanted> {
        let Some(current) = readings.current.take() else { return Ok(()) };
        let problem = format!(
            "reading the configuration takes longer than {}; expected files that answer. It is taken over when it is read",
            humantime::format_duration(self.longest_wait)
        );
        self.send(Err(vec![problem]), current.answers).await
    }

    /// Takes over what was read.
    async fn take(&mut self, readings: &mut Readings, done: Result<Done, JoinError>) -> Result<(), Unwanted> {
        let (number, result) = match done {
            Ok((number, before, read)) if number > readings.taken => {
                readings.taken = number;
                (number, self.marked(before, read))
            }
            // One that began later was taken over.
            Ok(_) => return Ok(()),
            Err(error) => (readings.begun, Err(vec![format!("reading the configuration failed: {error}")])),
        };
        let current = readings.current.take_if(|current| current.number == number);
        self.send(result, current.map(|current| current.answers).unwrap_or_default()).await
    }

    /// Tells the watcher which files were read.
    fn marked(&mut self, before: watch::Marks, read: Result<(Loaded, watch::Marks), Vec<Problem>>) -> Result<Box<Loaded>, Vec<String>> {
        match read {
            Ok((loaded, after)) => {
                self.files.clone_from(&loaded.config.files);
                let files: BTreeSet<&PathBuf> = self.files.iter().collect();
                let mut marks = after;
                marks.extend(before.into_iter().filter(|(file, _)| files.contains(file)));
                self.watched.send_replace(marks);
                Ok(Box::new(loaded))
            }
            Err(problems) => {
                self.watched.send_replace(before);
                Err(problems.iter().map(ToString::to_string).collect())
            }
        }
    }

    async fn send(&self, result: Result<Box<Loaded>, Vec<String>>, answers: Vec<ReloadRequest>) -> Result<(), Unwanted> {
        self.read.send(Read { result, answers }).await.map_err(|_| Unwanted)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};

    use tokio::sync::oneshot;

    use super::*;
    use crate::config::{self, Flags, Inputs};

    struct Scene {
        ask: mpsc::Sender<ReloadRequest>,
        read: mpsc::Receiver<Read>,
        /// Ends the first reading.
        end: Sender<()>,
    }

    /// A reader whose first `hanging` readings wait for `end`, and who asks waits so long.
    fn scene(hanging: usize, longest_wait: Duration) -> Scene {
        let flags = Flags { metrics_urls: vec!["http://10.0.0.1:8000/metrics".to_owned()], ..Flags::default() };
        let (end, ended) = channel::<()>();
        let (ended, begun) = (Mutex::new(ended), AtomicUsize::new(0));
        let loader: Loader = Arc::new(move || {
            if begun.fetch_add(1, Ordering::Relaxed) < hanging {
                let _end = ended.lock().unwrap().recv();
            }
            config::read(Inputs { flags: flags.clone(), ..Inputs::default() }).finish(&BTreeMap::new())
        });
        let (watched, _told) = told::channel(watch::Marks::new());
        let (ask, requests) = mpsc::channel(16);
        let (found, read) = mpsc::channel(1);
        tokio::spawn(Reader { loader, files: Vec::new(), watched, requests, read: found, longest_wait }.run());
        Scene { ask, read, end }
    }

    impl Scene {
        async fn ask(&self) {
            self.ask.send(oneshot::channel().0).await.unwrap();
        }

        /// Who was answered, and the first of the problems.
        async fn next(&mut self) -> (usize, Option<String>) {
            let read = self.read.recv().await.unwrap();
            (read.answers.len(), read.result.err().map(|problems| problems[0].clone()))
        }
    }

    fn late(span: &str) -> Option<String> {
        Some(format!("reading the configuration takes longer than {span}; expected files that answer. It is taken over when it is read"))
    }

    #[tokio::test]
    async fn files_that_take_long_are_taken_over_when_they_are_read() {
        let mut scene = scene(1, Duration::from_millis(50));
        scene.ask().await;
        assert_eq!(scene.next().await, (1, late("50ms")));
        scene.end.send(()).unwrap();
        assert_eq!(scene.next().await, (0, None));
    }

    #[tokio::test]
    async fn a_reading_that_never_ends_does_not_keep_later_ones_from_being_taken_over() {
        let mut scene = scene(1, Duration::from_secs(2));
        scene.ask().await;
        assert_eq!(scene.next().await, (1, late("2s")));
        scene.ask().await;
        assert_eq!(scene.next().await, (1, None));
        // What it read is older than what is in force.
        scene.end.send(()).unwrap();
        scene.ask().await;
        assert_eq!(scene.next().await, (1, None));
    }

    #[tokio::test]
    async fn who_asks_while_files_are_read_has_them_read_once_more() {
        let mut scene = scene(1, Duration::from_secs(20));
        scene.ask().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        scene.ask().await;
        scene.ask().await;
        scene.end.send(()).unwrap();
        assert_eq!(scene.next().await, (1, None));
        assert_eq!(scene.next().await, (2, None));
    }

    #[tokio::test]
    async fn readings_that_hang_are_limited() {
        let mut scene = scene(usize::MAX, Duration::from_millis(50));
        for _ in 0..MOST {
            scene.ask().await;
            assert_eq!(scene.next().await, (1, late("50ms")));
        }
        scene.ask().await;
        assert_eq!(scene.next().await, (1, Some("8 readings of the configuration hang; expected files that answer".to_owned())));
        // The threads end with the test.
        drop(scene.end);
    }
}
