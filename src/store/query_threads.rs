//! Connections that only read, and the threads that use them.
//!
//! A query runs on a thread of its lane. The threads are few, belong to the store and do nothing else: whatever occupies the
//! runtime's threads for blocking work, such as parsing, hashing or packages, keeps no query from being answered.
//!
//! Invariants:
//! - A query of one [`Lane`] never waits for one of another.
//! - A query whose caller went away is not begun, and ends soon if it has begun. One that panics fails by itself.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::corruption::Damage;
use super::error::StoreError;
use super::place::StatePlace;
use super::sql::Connection;

/// How many connections the callers on blocking threads have together. Each of them reads a batch of entries at a time; more would
/// only compete for the disk, and cost file descriptors when hundreds of sets are read at once.
const BLOCKING_CONNECTIONS: usize = 4;
/// After so many steps of SQLite's virtual machine, well under a millisecond, it is checked whether a query is still wanted.
const STEPS_A_CHECK: i32 = 10_000;

/// Who waits for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// A hub, or a program that watches the process: both give up after some seconds. These are look-ups of single records, which
    /// take well under a millisecond. `/healthz` probes this lane: it fails when hubs can't be answered, and never because of
    /// a long query of another lane.
    Lookups,
    /// The workers of the Sources. Their queries are short, or bounded by the length of a queue.
    Work,
    /// People and programs that read the status, or pages of the feed: these queries may take as long as the database is large.
    Reports,
    /// Destinations that read the files that are published: look-ups of single records.
    Files,
    /// Destinations that read the documents that are published. One after the other: each may have 50,000 entries.
    Documents,
}

impl Lane {
    /// The number of threads. Look-ups need a second one only while the first waits for the disk; workers have more, because a
    /// hundred sets may wait for a slow disk at once; reports have two, so that a long one does not delay a short one, and no
    /// more, because they must leave the processors to the others.
    const fn threads(self) -> usize {
        match self {
            Self::Lookups | Self::Reports | Self::Files => 2,
            Self::Work => 4,
            Self::Documents => 1,
        }
    }

    /// The name of its threads: at most 15 bytes.
    const fn name(self) -> &'static str {
        match self {
            Self::Lookups => "store-lookups",
            Self::Work => "store-reader",
            Self::Reports => "store-reports",
            Self::Files => "store-files",
            Self::Documents => "store-documents",
        }
    }
}

/// All that reads.
pub(super) struct QueryThreads {
    // Each pool waits for its threads when it is dropped.
    lookups: ReaderPool,
    work: ReaderPool,
    reports: ReaderPool,
    files: ReaderPool,
    documents: ReaderPool,
    blocking: SharedConnections,
    damage: Arc<Damage>,
}

impl QueryThreads {
    /// Starts the threads. Each opens its connection with its first query.
    pub(super) fn start(place: &StatePlace, damage: Arc<Damage>) -> Result<Self, StoreError> {
        Ok(Self {
            lookups: ReaderPool::start(Lane::Lookups, place)?,
            work: ReaderPool::start(Lane::Work, place)?,
            reports: ReaderPool::start(Lane::Reports, place)?,
            files: ReaderPool::start(Lane::Files, place)?,
            documents: ReaderPool::start(Lane::Documents, place)?,
            blocking: SharedConnections::of(place),
            damage,
        })
    }

    fn pool(&self, lane: Lane) -> &ReaderPool {
        match lane {
            Lane::Lookups => &self.lookups,
            Lane::Work => &self.work,
            Lane::Reports => &self.reports,
            Lane::Files => &self.files,
            Lane::Documents => &self.documents,
        }
    }

    /// Runs a query on a thread of the lane.
    pub(super) async fn run<T, F>(&self, lane: Lane, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (sender, answer) = oneshot::channel();
        // Dropped with this future.
        let caller = Arc::new(());
        let wanted = Arc::downgrade(&caller);
        let damage = Arc::clone(&self.damage);
        self.pool(lane).push(Box::new(move |connection| {
            if wanted.strong_count() == 0 {
                return;
            }
            let answer = connection.run(Some(wanted), query);
            note(&damage, &answer);
            // The caller may have gone away meanwhile.
            drop(sender.send(answer));
        }));
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs a query on the calling thread, which may block. It waits for a connection as long as others do the same, and for
    /// nothing else.
    pub(super) fn run_blocking<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = self.blocking.run(query);
        note(&self.damage, &answer);
        answer
    }
}

fn note<T>(damage: &Damage, answer: &Result<T, StoreError>) {
    if let Err(error) = answer {
        damage.note(error);
    }
}

/// A connection that is opened with its first query.
struct Reader {
    place: StatePlace,
    connection: Option<Connection>,
}

impl Reader {
    fn of(place: &StatePlace) -> Self {
        Self {
            place: place.clone(),
            connection: None,
        }
    }

    fn open(&mut self) -> Result<&mut Connection, StoreError> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.place.open_for_queries()?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Runs a query, as long as `wanted` is alive if it is given. A panic becomes an error, and closes the connection.
    fn run<T>(
        &mut self,
        wanted: Option<Weak<()>>,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let connection = self.open()?;
        if let (Some(wanted), Some(connection)) = (wanted, connection.sqlite_mut()) {
            let is_unwanted = move || wanted.strong_count() == 0;
            connection.progress_handler(STEPS_A_CHECK, Some(is_unwanted))?;
        }
        let querying = AssertUnwindSafe(|| connection.in_snapshot(query));
        catch_unwind(querying).unwrap_or_else(|_| {
            self.connection = None;
            Err(StoreError::Panicked)
        })
    }
}

type QueryJob = Box<dyn FnOnce(&mut Reader) + Send>;

/// Threads that run the queries of one lane, in the order in which they were queued.
struct ReaderPool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    has_changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<QueryJob>,
    is_closed: bool,
}

impl ReaderPool {
    fn start(lane: Lane, place: &StatePlace) -> Result<Self, StoreError> {
        let mut pool = Self {
            queue: Arc::default(),
            threads: Vec::with_capacity(lane.threads()),
        };
        for _ in 0..lane.threads() {
            let queue = Arc::clone(&pool.queue);
            let mut reader = Reader::of(place);
            let thread = std::thread::Builder::new()
                .name(lane.name().into())
                .spawn(move || {
                    while let Some(job) = queue.next() {
                        job(&mut reader);
                    }
                });
            // If one can't be started, those before it end with the pool.
            pool.threads.push(thread.map_err(StoreError::Thread)?);
        }
        Ok(pool)
    }

    fn push(&self, job: QueryJob) {
        self.queue.jobs.lock().waiting.push_back(job);
        self.queue.has_changed.notify_one();
    }
}

impl Queue {
    /// Waits for a job; `None` once the pool is closed and no job is left.
    fn next(&self) -> Option<QueryJob> {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            if jobs.is_closed {
                return None;
            }
            self.has_changed.wait(&mut jobs);
        }
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.queue.jobs.lock().is_closed = true;
        self.queue.has_changed.notify_all();
        for thread in self.threads.drain(..) {
            // Nobody waits for a query any more: one that runs ends soon.
            let _ = thread.join();
        }
    }
}

/// Connections that callers on blocking threads share.
struct SharedConnections {
    idle: Mutex<Vec<Reader>>,
    returned: Condvar,
}

impl SharedConnections {
    fn of(place: &StatePlace) -> Self {
        let idle = (0..BLOCKING_CONNECTIONS).map(|_| Reader::of(place));
        Self {
            idle: Mutex::new(idle.collect()),
            returned: Condvar::new(),
        }
    }

    fn run<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut reader = {
            let mut idle = self.idle.lock();
            loop {
                if let Some(reader) = idle.pop() {
                    break reader;
                }
                self.returned.wait(&mut idle);
            }
        };
        let answer = reader.run(None, query);
        self.idle.lock().push(reader);
        self.returned.notify_one();
        answer
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::mem::ManuallyDrop;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::store::Store;
    use crate::store::tests::database::place;

    /// Ends a test that would hang; no test relies on the time that something takes.
    const LIMIT: Duration = Duration::from_secs(180);
    const ENDLESS: &str =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    const LANES: [Lane; 3] = [Lane::Lookups, Lane::Work, Lane::Reports];

    /// Occupies every thread of some lanes until it is dropped.
    pub(crate) struct OccupiedQueryThreads(
        #[expect(dead_code, reason = "dropped")] Vec<std::sync::mpsc::Sender<()>>,
    );

    impl QueryThreads {
        /// Occupies the threads of these lanes.
        pub(in crate::store) fn occupy(&self, lanes: &[Lane]) -> OccupiedQueryThreads {
            let mut releases = Vec::new();
            for &lane in lanes {
                for _ in 0..lane.threads() {
                    let (release, released) = std::sync::mpsc::channel::<()>();
                    self.pool(lane).push(Box::new(move |_| {
                        let _ = released.recv();
                    }));
                    releases.push(release);
                }
            }
            OccupiedQueryThreads(releases)
        }
    }

    fn store() -> (tempfile::TempDir, Arc<Store>) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(place(folder.path())).unwrap();
        (folder, store)
    }

    async fn is_answered(store: &Store, lane: Lane) {
        let answered = tokio::time::timeout(LIMIT, store.query_threads.run(lane, |_| Ok(())));
        answered.await.unwrap().unwrap();
    }

    fn forever(connection: &Connection) -> Result<i64, StoreError> {
        Ok(connection.query_row(ENDLESS, [], |row| row.get(0))?)
    }

    #[test]
    fn queries_are_answered_while_every_thread_for_blocking_work_is_occupied() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let waiting = runtime.spawn_blocking(move || {
            let _ = released.recv();
        });
        let (_folder, store) = store();
        runtime.block_on(async {
            for lane in LANES {
                is_answered(&store, lane).await;
            }
            drop(release);
            waiting.await.unwrap();
        });
    }

    #[tokio::test]
    async fn no_lane_waits_for_another() {
        let (_folder, store) = store();
        for lane in LANES {
            let others: Vec<Lane> = LANES.into_iter().filter(|&other| other != lane).collect();
            let occupied = store.query_threads.occupy(&others);
            is_answered(&store, lane).await;
            drop(occupied);
        }
    }

    #[tokio::test]
    async fn query_whose_caller_went_away_ends() {
        let (_folder, store) = store();
        // Dropping it waits for its threads, which a failure of this test may leave busy for ever.
        let store = ManuallyDrop::new(store);
        for lane in LANES {
            for _ in 0..lane.threads() {
                let (begun, begins) = oneshot::channel();
                let mut running = Box::pin(store.query_threads.run(lane, move |connection| {
                    let _ = begun.send(());
                    forever(connection)
                }));
                tokio::select! {
                    _ = &mut running => panic!("it has no end"),
                    begun = tokio::time::timeout(LIMIT, begins) => begun.unwrap().unwrap(),
                }
            }
            is_answered(&store, lane).await;
        }
        drop(ManuallyDrop::into_inner(store));
    }

    #[tokio::test]
    async fn query_whose_caller_went_away_is_not_begun() {
        let (_folder, store) = store();
        let occupied = store.query_threads.occupy(&[Lane::Work]);
        let has_begun = Arc::new(AtomicBool::new(false));
        let of_query = Arc::clone(&has_begun);
        let mut waiting = Box::pin(store.query_threads.run(Lane::Work, move |_| {
            of_query.store(true, Ordering::SeqCst);
            Ok(())
        }));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(waiting);
        drop(occupied);
        for _ in 0..Lane::Work.threads() {
            is_answered(&store, Lane::Work).await;
        }
        assert!(!has_begun.load(Ordering::SeqCst));
    }

    #[tokio::test]
    async fn panic_fails_one_query_and_costs_no_thread() {
        let (_folder, store) = store();
        for _ in 0..=2 * Lane::Work.threads().max(BLOCKING_CONNECTIONS) {
            let panicking = store
                .query_threads
                .run::<(), _>(Lane::Work, |_| panic!("a query panics"));
            assert_eq!(panicking.await.unwrap_err().code(), "panicked");
            let panicking = store
                .query_threads
                .run_blocking::<()>(|_| panic!("a query panics"));
            assert_eq!(panicking.unwrap_err().code(), "panicked");
        }
        is_answered(&store, Lane::Work).await;
        store.query_threads.run_blocking(|_| Ok(())).unwrap();
    }

    #[tokio::test]
    async fn store_that_is_closed_does_not_wait_for_an_abandoned_query() {
        let (folder, store) = store();
        let (begun, begins) = oneshot::channel();
        {
            let mut running = Box::pin(store.query_threads.run(Lane::Reports, move |connection| {
                let _ = begun.send(());
                forever(connection)
            }));
            tokio::select! {
                _ = &mut running => panic!("it has no end"),
                begun = begins => begun.unwrap(),
            }
        }
        drop(store);
        drop(Store::open(place(folder.path())).unwrap());
    }
}
