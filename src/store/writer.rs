//! The thread that writes: it commits the queued jobs of all callers as one transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{broadcast, oneshot};

use super::corruption::Damage;
use super::error::StoreError;
use super::tables::session;
use super::wake::Wake;
use super::write_health::WriteHealth;

/// The greatest number of jobs in one commit.
const JOBS_A_COMMIT: usize = 512;

/// A transaction in the making, as a job sees it.
pub(super) struct Tx<'a> {
    /// The connection, inside the transaction.
    pub(super) sql: &'a Connection,
    wakes: Vec<Wake>,
    /// The last number of the feed. One wake stands for all entries.
    feed: Option<i64>,
    /// Whether a job could not write although the transaction continues.
    has_write_failed: bool,
    damage: &'a Damage,
    /// The error on which SQLite has rolled back the complete transaction, as it does when the disk is full.
    aborted: Option<Arc<rusqlite::Error>>,
}

impl Tx<'_> {
    /// Sends a wake after the commit.
    pub(super) fn wake(&mut self, wake: Wake) {
        if let Wake::Feed(seq) = wake {
            self.feed = self.feed.max(Some(seq));
        } else if !self.wakes.contains(&wake) {
            self.wakes.push(wake);
        }
    }

    /// Notes the error of a job if its cause concerns all jobs.
    fn note(&mut self, error: &StoreError) {
        self.damage.note(error);
        self.has_write_failed |= error.is_write_failure();
    }
}

/// Sends the result of the commit to a caller.
type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
type Job = Box<dyn FnOnce(&mut Tx<'_>) -> Reply + Send>;

pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        ends_in_order: Arc<AtomicBool>,
        wakes: broadcast::Sender<Wake>,
        damage: Arc<Damage>,
        write_health: Arc<WriteHealth>,
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
                    ends_in_order,
                    wakes,
                    damage,
                    write_health,
                    #[cfg(test)]
                    hook,
                };
                writing.work(&queue);
                writing.end();
            })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    /// Queues a job. Jobs run in the order in which they were queued.
    pub(super) fn submit<T, F>(&self, job: F) -> Writing<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        let job: Job = Box::new(move |tx| {
            let outcome = in_savepoint(tx, job);
            if let Err(error) = &outcome {
                tx.note(error);
            }
            // A job of a caller that went away is done all the same.
            Box::new(move |commit| drop(sender.send(commit.and(outcome))))
        });
        if let Some(jobs) = &self.jobs {
            // Without the thread the sender is dropped, and the caller gets `Closed`.
            let _ = jobs.send(job);
        }
        Writing(answer)
    }
}

/// A job that was given to the writer.
#[must_use = "wait for the result of the job"]
#[derive(Debug)]
pub struct Writing<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> Writing<T> {
    /// Waits until the job is on disk.
    pub async fn done(self) -> Result<T, StoreError> {
        self.0.await.map_err(|_| StoreError::Closed)?
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

/// Runs a job so that its failure undoes nothing but its own writes. If the transaction is gone the job is not run: its writes
/// would be committed although its caller gets an error.
fn in_savepoint<T>(
    tx: &mut Tx<'_>,
    job: impl FnOnce(&mut Tx<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if tx.sql.is_autocommit() {
        return Err(StoreError::Closed);
    }
    tx.sql.execute_batch("SAVEPOINT job")?;
    let woken = (tx.wakes.len(), tx.feed);
    // A panic fails the one job, no more: the thread commits those of all Sources.
    let outcome = catch_unwind(AssertUnwindSafe(|| job(tx))).unwrap_or(Err(StoreError::Panicked));
    if tx.sql.is_autocommit() {
        return Err(abort(tx, outcome.err()));
    }
    let outcome = match outcome {
        Err(StoreError::Sqlite(error))
            if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) =>
        {
            Err(StoreError::writing(tx.sql, Arc::new(error)))
        }
        outcome => outcome,
    };
    if outcome.is_err() {
        tx.wakes.truncate(woken.0);
        tx.feed = woken.1;
        tx.sql.execute_batch("ROLLBACK TO job")?;
    }
    tx.sql.execute_batch("RELEASE job")?;
    outcome
}

/// Marks the transaction as gone, with the error that ended it.
fn abort(tx: &mut Tx<'_>, error: Option<StoreError>) -> StoreError {
    let error = match error {
        Some(StoreError::Sqlite(error)) => error,
        _ => rusqlite::Error::InvalidQuery,
    };
    let error = Arc::new(error);
    tx.aborted = Some(Arc::clone(&error));
    StoreError::writing(tx.sql, error)
}

/// What the thread uses.
struct Writes {
    connection: Connection,
    ends_in_order: Arc<AtomicBool>,
    wakes: broadcast::Sender<Wake>,
    damage: Arc<Damage>,
    write_health: Arc<WriteHealth>,
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
            #[cfg(test)]
            let before = self.connection.total_changes();
            let (replies, outcome) = self.commit(jobs);
            #[cfg(test)]
            if outcome.is_ok() {
                let has_changes = self.connection.total_changes() != before;
                if !self.hook.committed(&self.connection, has_changes) {
                    continue;
                }
            }
            if let Ok(woken) = &outcome {
                for wake in woken {
                    // There may be no receiver.
                    let _ = self.wakes.send(wake.clone());
                }
            }
            for reply in replies {
                reply(match &outcome {
                    Ok(_) => Ok(()),
                    Err(error) => Err(StoreError::writing(&self.connection, Arc::clone(error))),
                });
            }
        }
    }

    /// Records that the process ends in order, if it does. Without the record the next process doubts what had a task.
    fn end(&self) {
        #[cfg(test)]
        if self.hook.is_stopped() {
            return;
        }
        if self.ends_in_order.load(Ordering::SeqCst) {
            let _ = session::end(&self.connection);
        }
    }

    /// Runs jobs in one transaction and returns their replies, and the wakes to send.
    fn commit(
        &self,
        jobs: impl Iterator<Item = Job>,
    ) -> (Vec<Reply>, Result<Vec<Wake>, Arc<rusqlite::Error>>) {
        let connection = &self.connection;
        let changes = connection.total_changes();
        let begin = || connection.execute_batch("BEGIN IMMEDIATE");
        #[cfg(test)]
        let begin = || match self.hook.fails() {
            true => Err(rusqlite::Error::InvalidQuery),
            false => begin(),
        };
        let begun = begin();
        let mut tx = Tx {
            sql: connection,
            wakes: Vec::new(),
            feed: None,
            aborted: None,
            has_write_failed: false,
            damage: &self.damage,
        };
        let replies: Vec<Reply> = jobs.map(|job| job(&mut tx)).collect();
        let outcome = match tx.aborted {
            Some(error) => Err(error),
            None => begun
                .and_then(|()| connection.execute_batch("COMMIT"))
                .map_err(Arc::new),
        };
        if outcome.is_err() && !connection.is_autocommit() {
            // The next transaction can't begin in one that a failed commit has left open.
            let _ = connection.execute_batch("ROLLBACK");
        }
        match &outcome {
            Err(error) => {
                let error = StoreError::Commit(Arc::clone(error));
                self.damage.note(&error);
                self.write_health.note_failed();
            }
            Ok(()) if tx.has_write_failed => self.write_health.note_failed(),
            // A transaction without changes proves nothing.
            Ok(()) if connection.total_changes() == changes => {}
            Ok(()) => self.write_health.note_fitting(0),
        }
        tx.wakes.extend(tx.feed.map(Wake::Feed));
        (replies, outcome.map(|()| tx.wakes))
    }
}
