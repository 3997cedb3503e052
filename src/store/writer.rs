//! The one thread that writes.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{broadcast, oneshot};

use super::{Store, StoreError, Wake};

/// How many jobs may share a commit.
const JOBS_A_COMMIT: usize = 512;

/// A transaction in the making, as a job sees it.
pub(super) struct Tx<'a> {
    /// The connection, inside the transaction.
    pub(super) sql: &'a Connection,
    wakes: &'a mut Vec<Wake>,
}

impl Tx<'_> {
    /// Wakes someone once this is committed.
    pub(super) fn wake(&mut self, wake: Wake) {
        if !self.wakes.contains(&wake) {
            self.wakes.push(wake);
        }
    }
}

/// Tells a caller how the commit went.
type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
type Job = Box<dyn FnOnce(&mut Tx<'_>) -> Answer + Send>;

pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        wakes: broadcast::Sender<Wake>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || work(&connection, &queue, &wakes))?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    fn submit<T, F>(&self, job: F) -> oneshot::Receiver<Result<T, StoreError>>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (told, answer) = oneshot::channel();
        let job: Job = Box::new(move |tx| {
            let outcome = in_savepoint(tx, job);
            // A caller that went away does not undo what it asked for.
            Box::new(move |commit| drop(told.send(commit.and(outcome))))
        });
        if let Some(jobs) = &self.jobs {
            // Without the thread the answer's sender is dropped, which tells the caller that the store is closed.
            let _ = jobs.send(job);
        }
        answer
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Runs a job on the writer's thread and answers when it is on disk.
    pub(super) async fn write<T, F>(self: &Arc<Self>, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer
            .submit(job)
            .await
            .map_err(|_| StoreError::Closed)?
    }

    /// As [`write`](Self::write), for a caller that is on a blocking thread.
    pub(super) fn write_blocking<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer
            .submit(job)
            .blocking_recv()
            .map_err(|_| StoreError::Closed)?
    }
}

/// One job's failure is its own: the others of the same commit go on.
fn in_savepoint<T>(
    tx: &mut Tx<'_>,
    job: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    tx.sql.execute_batch("SAVEPOINT job")?;
    let woken = tx.wakes.len();
    let outcome = job(tx);
    if outcome.is_err() {
        tx.wakes.truncate(woken);
        tx.sql.execute_batch("ROLLBACK TO job")?;
    }
    tx.sql.execute_batch("RELEASE job")?;
    outcome
}

fn work(connection: &Connection, queue: &mpsc::Receiver<Job>, wakes: &broadcast::Sender<Wake>) {
    while let Ok(first) = queue.recv() {
        let jobs = std::iter::once(first).chain(queue.try_iter().take(JOBS_A_COMMIT - 1));
        let mut woken = Vec::new();
        let (answers, outcome) = commit(connection, jobs, &mut woken);
        let outcome = outcome.map_err(Arc::new);
        if outcome.is_ok() {
            for wake in woken {
                // Nobody waits: nobody is woken.
                let _ = wakes.send(wake);
            }
        }
        for answer in answers {
            answer(outcome.clone().map_err(StoreError::Commit));
        }
    }
}

fn commit(
    connection: &Connection,
    jobs: impl Iterator<Item = Job>,
    wakes: &mut Vec<Wake>,
) -> (Vec<Answer>, Result<(), rusqlite::Error>) {
    let begun = connection.execute_batch("BEGIN IMMEDIATE");
    let mut tx = Tx {
        sql: connection,
        wakes,
    };
    let answers: Vec<Answer> = jobs.map(|job| job(&mut tx)).collect();
    let outcome = begun.and_then(|()| connection.execute_batch("COMMIT"));
    if outcome.is_err() && !connection.is_autocommit() {
        // What a failed commit leaves open would swallow the next transaction.
        let _ = connection.execute_batch("ROLLBACK");
    }
    (answers, outcome)
}
