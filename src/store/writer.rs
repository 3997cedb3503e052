//! The one thread that writes.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use rusqlite::{Connection, ErrorCode};
use tokio::sync::{broadcast, oneshot};

use super::corruption::Damage;
use super::refusal::Refusal;
use super::{Store, StoreError, Wake};

/// How many jobs may share a commit.
const JOBS_A_COMMIT: usize = 512;

/// A transaction in the making, as a job sees it.
pub(super) struct Tx<'a> {
    /// The connection, inside the transaction.
    pub(super) sql: &'a Connection,
    wakes: Vec<Wake>,
    /// Up to where the feed has grown. One wake tells of all of it.
    feed: Option<i64>,
    /// Whether a job could not write, though the transaction goes on.
    refused: bool,
    damage: &'a Damage,
    /// Why SQLite has rolled back the whole transaction by itself, as it does when the disk is full.
    aborted: Option<Arc<rusqlite::Error>>,
}

impl Tx<'_> {
    /// Wakes someone once this is committed.
    pub(super) fn wake(&mut self, wake: Wake) {
        if let Wake::Feed(seq) = wake {
            self.feed = self.feed.max(Some(seq));
        } else if !self.wakes.contains(&wake) {
            self.wakes.push(wake);
        }
    }

    /// Takes note of why a job failed, if it is not the job's own matter.
    fn meet(&mut self, error: &StoreError) {
        self.damage.note(error);
        if let StoreError::Sqlite(cause) = error
            && is_refusal(cause)
        {
            self.refused = true;
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
        damage: Arc<Damage>,
        refusal: Arc<Refusal>,
        #[cfg(test)] hook: Arc<super::commit_hook::CommitHook>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        #[cfg(test)]
        let clock = crate::clock::simulated::installed();

        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                #[cfg(test)]
                if let Some(clock) = clock {
                    clock.install();
                }
                let writing = Writes {
                    connection,
                    wakes,
                    damage,
                    refusal,
                    #[cfg(test)]
                    hook,
                };
                writing.work(&queue);
            })?;
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
            if let Err(error) = &outcome {
                tx.meet(error);
            }
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

/// Something that the writer was told to do.
#[must_use = "only who waits learns how it went"]
#[derive(Debug)]
pub struct Writing<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> Writing<T> {
    /// Waits until it is on disk. For a caller on a blocking thread.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing was written.
    pub fn wait(self) -> Result<T, StoreError> {
        self.0.blocking_recv().map_err(|_| StoreError::Closed)?
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
        self.begin_write(job).wait()
    }

    /// Tells the writer of a job. Jobs are done in the order in which they were told.
    pub(super) fn begin_write<T, F>(&self, job: F) -> Writing<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        Writing(self.writer.submit(job))
    }
}

/// One job's failure is its own: the others of the same commit go on. Unless there is no transaction any more: whatever a
/// job then wrote would stand although its caller is told that it does not.
fn in_savepoint<T>(
    tx: &mut Tx<'_>,
    job: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if tx.sql.is_autocommit() {
        return Err(StoreError::Closed);
    }
    tx.sql.execute_batch("SAVEPOINT job")?;
    let woken = (tx.wakes.len(), tx.feed);
    let outcome = job(tx);
    if tx.sql.is_autocommit() {
        return Err(abort(tx, outcome.err()));
    }
    if outcome.is_err() {
        tx.wakes.truncate(woken.0);
        tx.feed = woken.1;
        tx.sql.execute_batch("ROLLBACK TO job")?;
    }
    tx.sql.execute_batch("RELEASE job")?;
    outcome
}

/// Notes that the transaction is gone, with the error that ended it.
fn abort(tx: &mut Tx<'_>, error: Option<StoreError>) -> StoreError {
    let error = match error {
        Some(StoreError::Sqlite(error)) => error,
        _ => rusqlite::Error::InvalidQuery,
    };
    let error = Arc::new(error);
    tx.aborted = Some(Arc::clone(&error));
    StoreError::Commit(error)
}

/// Whether the disk, or another process, is what keeps a statement from writing.
fn is_refusal(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::ReadOnly
                | ErrorCode::PermissionDenied
                | ErrorCode::CannotOpen
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
        )
    )
}

/// What the thread works with.
struct Writes {
    connection: Connection,
    wakes: broadcast::Sender<Wake>,
    damage: Arc<Damage>,
    refusal: Arc<Refusal>,
    #[cfg(test)]
    hook: Arc<super::commit_hook::CommitHook>,
}

impl Writes {
    fn work(&self, queue: &mpsc::Receiver<Job>) {
        while let Ok(first) = queue.recv() {
            let jobs = std::iter::once(first).chain(queue.try_iter().take(JOBS_A_COMMIT - 1));
            #[cfg(test)]
            if !self.hook.begin() {
                // The process has ended: no job is done, and no caller is answered. All at once, so that none of the next process
                // is among them.
                drop(jobs.collect::<Vec<Job>>());
                continue;
            }
            let (answers, outcome) = self.commit(jobs);
            #[cfg(test)]
            if outcome.is_ok() && !self.hook.committed(&self.connection) {
                continue;
            }
            if let Ok(woken) = &outcome {
                for wake in woken {
                    // Nobody waits: nobody is woken.
                    let _ = self.wakes.send(wake.clone());
                }
            }
            for answer in answers {
                answer(match &outcome {
                    Ok(_) => Ok(()),
                    Err(error) => Err(StoreError::Commit(Arc::clone(error))),
                });
            }
        }
    }

    /// Runs jobs in one transaction; answers whom to wake.
    fn commit(
        &self,
        jobs: impl Iterator<Item = Job>,
    ) -> (Vec<Answer>, Result<Vec<Wake>, Arc<rusqlite::Error>>) {
        let connection = &self.connection;
        let changes = connection.total_changes();
        let begun = connection.execute_batch("BEGIN IMMEDIATE");
        let mut tx = Tx {
            sql: connection,
            wakes: Vec::new(),
            feed: None,
            aborted: None,
            refused: false,
            damage: &self.damage,
        };
        let answers: Vec<Answer> = jobs.map(|job| job(&mut tx)).collect();
        let outcome = match tx.aborted {
            Some(error) => Err(error),
            None => begun
                .and_then(|()| connection.execute_batch("COMMIT"))
                .map_err(Arc::new),
        };
        if outcome.is_err() && !connection.is_autocommit() {
            // What a failed commit leaves open would swallow the next transaction.
            let _ = connection.execute_batch("ROLLBACK");
        }
        match &outcome {
            Err(error) => {
                let error = StoreError::Commit(Arc::clone(error));
                self.damage.note(&error);
                self.refusal.note(true);
            }
            Ok(()) if tx.refused => self.refusal.note(true),
            // Whoever had nothing to write proves nothing.
            Ok(()) if connection.total_changes() == changes => {}
            Ok(()) => self.refusal.note(false),
        }
        tx.wakes.extend(tx.feed.map(Wake::Feed));
        (answers, outcome.map(|()| tx.wakes))
    }
}
