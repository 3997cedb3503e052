//! The thread that writes: it commits the queued jobs of all callers as one transaction.
//!
//! A job that fails undoes nothing but its own writes. The first job of a transaction has no savepoint for that: the transaction is
//! rolled back and begun again. With a savepoint, SQLite would copy each page before it is changed, and write the copies of many pages
//! to a file.

use std::any::type_name;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{broadcast, oneshot};

use super::corruption::Damage;
use super::error::StoreError;
use super::nodes;
use super::observer::{Observer, Step};
use super::sql::{Connection, Fault};
use super::tables::process;
use super::tables::tally::Tallied;
use super::wake::Wake;
use super::write_health::WriteHealth;

/// The greatest number of jobs in one commit.
const JOBS_A_COMMIT: usize = 512;

/// A transaction in the making, as a job sees it.
pub(super) struct Tx<'a> {
    /// The connection, inside the transaction.
    pub(super) sql: &'a Tallied<'a>,
    wakes: Vec<Wake>,
    /// The last number of the feed. One wake stands for all entries.
    feed: Option<i64>,
    /// Whether no job has succeeded yet: the transaction has no writes.
    is_empty: bool,
    /// Whether a job could not write although the transaction continues.
    has_write_failed: bool,
    damage: &'a Damage,
    write_health: &'a WriteHealth,
    observer: &'a dyn Observer,
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
        if error.is_write_failure() {
            self.write_health.note_failed(error);
            self.has_write_failed = true;
        }
    }
}

/// Sends the result of the commit to a caller.
type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;
type WriteJob = Box<dyn FnOnce(&mut Tx<'_>) -> Reply + Send>;

pub(super) struct Writer {
    jobs: Option<mpsc::Sender<WriteJob>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        ends_in_order: Arc<AtomicBool>,
        wakes: broadcast::Sender<Wake>,
        damage: Arc<Damage>,
        write_health: Arc<WriteHealth>,
        observer: Arc<dyn Observer>,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                let writing = Writes {
                    connection,
                    ends_in_order,
                    wakes,
                    damage,
                    write_health,
                    observer,
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
        self.queue(Box::new(move |tx| {
            let outcome = isolated(tx, job);
            if let Err(error) = &outcome {
                tx.note(error);
            }
            // A job of a caller that went away is done all the same.
            Box::new(move |commit| drop(sender.send(commit.and(outcome))))
        }));
        Writing(answer)
    }

    /// Adds an item to those that the next job with this queue gets together. Their writes fail or succeed together, but the job may
    /// reject single items.
    pub(super) fn submit_together<I, T>(
        &self,
        queue: &SharedQueue<I, T>,
        item: I,
        job: SharedJob<I, T>,
    ) -> Writing<T>
    where
        I: Send + 'static,
        T: Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        if let Some(turn) = queue.push(item, sender) {
            self.queue(Box::new(move |tx| {
                let (items, senders): (Vec<I>, Vec<_>) = turn.begin().into_iter().unzip();
                let outcome = isolated(tx, |tx| job(tx, &items));
                let rejected = outcome.iter().flatten().filter_map(|it| it.as_ref().err());
                for error in rejected.chain(outcome.as_ref().err()) {
                    tx.note(error);
                }
                Box::new(move |commit| match commit.and(outcome) {
                    Ok(results) => {
                        for (sender, result) in senders.into_iter().zip(results) {
                            drop(sender.send(result));
                        }
                    }
                    Err(error) => {
                        let copy = error.copies();
                        for sender in senders {
                            drop(sender.send(Err(copy())));
                        }
                    }
                })
            }));
        }
        Writing(answer)
    }

    fn queue(&self, job: WriteJob) {
        if let Some(jobs) = &self.jobs {
            // Without the thread the job is dropped with its senders, and the callers get `Closed`.
            let _ = jobs.send(job);
        }
    }
}

/// What a job does with the items that it has got together; a result for each.
pub(super) type SharedJob<I, T> =
    fn(&mut Tx<'_>, &[I]) -> Result<Vec<Result<T, StoreError>>, StoreError>;

type Waiting<I, T> = Arc<Mutex<Vec<(I, oneshot::Sender<Result<T, StoreError>>)>>>;

/// Items of many callers that wait for one job.
pub(super) struct SharedQueue<I, T>(Waiting<I, T>);

impl<I, T> SharedQueue<I, T> {
    /// Adds an item. The first one gets the turn: a job is to be queued for it and those that follow.
    fn push(&self, item: I, sender: oneshot::Sender<Result<T, StoreError>>) -> Option<Turn<I, T>> {
        let mut waiting = self.0.lock();
        waiting.push((item, sender));
        (waiting.len() == 1).then(|| Turn(Some(Arc::clone(&self.0))))
    }
}

impl<I, T> Default for SharedQueue<I, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// The turn of what waits in a queue. If it ends without having begun, because the thread has, so do the items.
struct Turn<I, T>(Option<Waiting<I, T>>);

impl<I, T> Turn<I, T> {
    fn begin(mut self) -> Vec<(I, oneshot::Sender<Result<T, StoreError>>)> {
        let waiting = self.0.take();
        waiting.map_or_else(Vec::new, |waiting| std::mem::take(&mut *waiting.lock()))
    }
}

impl<I, T> Drop for Turn<I, T> {
    fn drop(&mut self) {
        if let Some(waiting) = self.0.take() {
            waiting.lock().clear();
        }
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
fn isolated<T, F>(tx: &mut Tx<'_>, job: F) -> Result<T, StoreError>
where
    F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError>,
{
    if tx.sql.is_autocommit() {
        return Err(StoreError::Closed);
    }
    let has_savepoint = !tx.is_empty;
    if has_savepoint {
        tx.sql.savepoint()?;
    }
    let woken = (tx.wakes.len(), tx.feed);
    let tallied = tx.sql.deltas();
    // A panic fails the one job, no more: the thread commits those of all Sources.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let done = job(tx)?;
        tx.observer.observe(Step::Job(type_name::<F>(), tx.sql))?;
        Ok(done)
    }));
    let outcome = outcome.unwrap_or(Err(StoreError::Panicked));
    if tx.sql.is_autocommit() {
        return Err(abort(tx, outcome.err()));
    }
    let outcome = match outcome {
        Err(StoreError::Sqlite(error)) if Fault::of(&error) == Fault::DiskFull => {
            Err(StoreError::writing(tx.sql, Arc::new(error)))
        }
        outcome => outcome,
    };
    if outcome.is_err() {
        tx.wakes.truncate(woken.0);
        tx.feed = woken.1;
        tx.sql.roll_back_to(tallied);
        if has_savepoint {
            tx.sql.roll_back_to_savepoint()?;
        } else {
            tx.sql.roll_back()?;
            tx.sql.begin()?;
        }
    }
    if has_savepoint {
        tx.sql.release()?;
    }
    tx.is_empty &= outcome.is_err();
    outcome
}

/// Has other nodes get the wakes of a transaction that may concern them.
fn tell_others(sql: &Connection, wakes: &[Wake], feed: Option<i64>) -> rusqlite::Result<()> {
    let Some(fence) = sql.fence().filter(|_| sql.has_others()) else {
        return Ok(());
    };
    let told = wakes.iter().filter(|wake| wake.is_for_others()).cloned();
    let told: Vec<Wake> = told.chain(feed.map(Wake::Feed)).collect();
    if told.is_empty() {
        return Ok(());
    }
    nodes::tell(sql, fence, &told)
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
    observer: Arc<dyn Observer>,
}

impl Writes {
    fn work(&self, queue: &mpsc::Receiver<WriteJob>) {
        while let Ok(first) = queue.recv() {
            let others = queue.try_iter().take(JOBS_A_COMMIT - 1);
            let jobs = iter::once(first).chain(others);
            let (replies, outcome) = self.commit(jobs);
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
        if self.ends_in_order.load(Ordering::SeqCst) {
            let _ = self.record_end();
        }
    }

    fn record_end(&self) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        let is_last = match transaction.fence() {
            Some(fence) => nodes::leave(&transaction, fence)?,
            None => true,
        };
        if is_last {
            process::end(&transaction)?;
        }
        transaction.commit()
    }

    /// Runs jobs in one transaction and returns their replies, and the wakes to send.
    fn commit(
        &self,
        jobs: impl Iterator<Item = WriteJob>,
    ) -> (Vec<Reply>, Result<Vec<Wake>, Arc<rusqlite::Error>>) {
        let connection = &self.connection;
        let changes = connection.total_changes();
        let begun = connection.begin();
        let sql = Tallied::new(connection);
        let mut tx = Tx {
            sql: &sql,
            wakes: Vec::new(),
            feed: None,
            is_empty: true,
            aborted: None,
            has_write_failed: false,
            damage: &self.damage,
            write_health: &self.write_health,
            observer: &*self.observer,
        };
        let replies: Vec<Reply> = jobs.map(|job| job(&mut tx)).collect();
        let outcome = match tx.aborted {
            Some(error) => Err(error),
            None => begun
                .and_then(|()| sql.write())
                .and_then(|()| tell_others(connection, &tx.wakes, tx.feed))
                .and_then(|()| connection.commit())
                .and_then(|()| self.observer.observe(Step::Committed(connection)))
                .map_err(Arc::new),
        };
        if outcome.is_err() && !connection.is_autocommit() {
            // The next transaction can't begin in one that a failed commit has left open.
            let _ = connection.roll_back();
        }
        match &outcome {
            Err(error) => {
                let error = StoreError::writing(connection, Arc::clone(error));
                self.damage.note(&error);
                self.write_health.note_failed(&error);
            }
            // A transaction without changes proves nothing.
            Ok(()) if tx.has_write_failed || connection.total_changes() == changes => {}
            Ok(()) => self.write_health.note_fitting(0),
        }
        tx.wakes.extend(tx.feed.map(Wake::Feed));
        (replies, outcome.map(|()| tx.wakes))
    }
}
