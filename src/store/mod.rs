//! SHELL, SQLite or PostgreSQL: what survives the process. The inbox, the tasks, the resources, the channels, the coverage of each set
//! and the change feed.
//!
//! | module | what it has |
//! |---|---|
//! | `sql` | connections to either database; where it is, is a `place` |
//! | `nodes`, `node_thread` | the nodes that work on a database on a server; what each does at intervals |
//! | `balance` | which Sources a node takes, and which ones it gives up |
//! | `tables` | SQL, by tables, and the records that rows become; other SQL is in `schema` and `audit`; transactions of use cases begin and end in `writer` |
//! | `tx` | use cases that write, one a file: what happens in one transaction |
//! | `reads` | queries |
//! | `query_threads` | the threads that run queries |
//! | `writer` | the thread that commits |
//! | `wake` | what a commit reports to workers that wait |
//! | `folder`, `process_start` | the folder of the database; what a process does first: it doubts what a killed one has left |
//! | `schema`, `corruption`, `write_health` | the schema and its number; a damaged database; whether writes succeed |
//! | `unreadable` | the rows that can't be read, by Source |
//! | `copy`, `backup`, `transfer` | a copy of the database; its rows in another one |
//! | `change` | a change, as documents state it and `tx` applies it |
//! | `ids` | the ids of rows, one type a table |
//! | `named` | which resources a list names |
//! | `error` | errors of the store |
//! | `arrival` | a delivery that waits to be received |
//! | `feed_readers` | where readers of the feed continue, until it is stored |
//! | `feed_line` | an entry of the feed as readers get it |
//! | `gap_history` | the gaps that were closed, for people |
//! | `scratch` | the private folder of a run that changes nothing |
//! | `audit` | what an audit compares with: the database that it has read into, beside the state database |
//! | `observer` | who sees the steps of a store, and may fail them |
//! | `tests` | tests with a database; an observer that lets steps fail and the process end |
//!
//! Invariants:
//! - What belongs together is one transaction: coverage never moves without the tasks of the changes that it covers. A write that
//!   fails has changed nothing.
//! - The database never states more than the files: a resource's row changes after its file was published, never before.
//! - One thread writes, and commits queued jobs as one transaction; a caller gets its answer after the commit. Queries have
//!   connections and threads of their own: neither waits for a thread of the runtime.
//! - A worker that waits for something is woken by a [`Wake`], sent after the commit that brought it.
//!
//! This module knows values of [`resyncd_core`], and neither the network nor the mirror.
//! Callers pass the time, except where it must be that of the write, such as for leases and for the first number of a new feed.

#![allow(clippy::disallowed_types, reason = "SQL stands here, and nowhere else")]

mod arrival;
mod audit;
mod backup;
mod balance;
mod change;
mod copy;
mod corruption;
mod error;
mod feed_line;
mod feed_readers;
mod folder;
mod gap_history;
mod ids;
mod named;
mod node_thread;
mod nodes;
mod observer;
mod place;
mod process_start;
mod query_threads;
mod reads;
mod schema;
mod scratch;
mod sql;
mod tables;
mod transfer;
mod tx;
mod unreadable;
mod wake;
mod write_health;
mod writer;

use std::any::type_name;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrival::Arrivals;
pub use arrival::{Receipt, Recipient};
pub use audit::{
    AuditDb, Expectation, Finding, FindingKind, FindingOutcome, KnownFiles, ListTimes, PathState,
};
pub use backup::{KnownMirror, back_up, begin_another_feed, copy_state, move_state, restore};
pub use change::{Change, Origin, VersionRule};
use corruption::{Check, Damage};
pub use error::StoreError;
pub(crate) use feed_line::FeedLine;
use feed_readers::FeedReaders;
pub use gap_history::ClosedGap;
use gap_history::GapHistory;
pub use ids::{ChannelId, PartId, ResourceId, SetId};
pub use named::NamedSoFar;
use node_thread::NodeThread;
use nodes::Node;
pub use nodes::{KnownNode, Moving, RENEWAL};
pub use observer::{Observer, Step};
pub use place::StatePlace;
use process_start::begin_process;
use query_threads::{Lane, QueryThreads};
pub use reads::excerpt::{FeedExcerpt, FeedSearch};
pub use reads::find::FoundResources;
pub use reads::hook_news::HookNews;
pub use reads::listing::ResourceListing;
pub use reads::named::NamedBySource;
pub use reads::published::{
    ChangeSpan, PublishedChange, PublishedResource, PublishedRows, PublishedState,
};
pub use reads::queue::{DueTasks, PackageTask, TasksInProgress};
pub use reads::statistics::SetStatistics;
pub use reads::status::{Overview, OverviewQuery, SetOverview, SourceOverview, VersionsOverview};
/// Parts of a channel's row that a caller without [`resyncd_core`] needs.
pub use resyncd_core::{CallbackSlot, DeliveryFaultKind};
use resyncd_mirror::FileLock;
pub use scratch::ScratchFolder;
pub use tables::channel::{CallbackKeys, ChannelRecord};
pub use tables::document::DocumentRecord;
pub use tables::dump::DumpProgress;
pub use tables::dump_package::PackageRecord;
pub use tables::feed::{FeedEntry, SetChange};
pub use tables::followed_source::SourceLocation;
pub use tables::forgotten::{ForgottenResource, SetTotals};
pub use tables::inbox::{Delivery, DeliveryOutcome, ProcessedDelivery};
pub use tables::part::{PageEnd, Part, PartEnd, PartEvidence, UnchangedPart};
pub use tables::published_set::PublishedSet;
pub use tables::relation::RelationKind;
pub use tables::resource::audit::KnownFile;
pub use tables::resource::{FolderEntry, Publication, ResourceView, StoredVersion};
pub use tables::source_set::{BaselineState, SetRecord};
pub use tables::subscription::{StoredSubscription, TopicPosition};
pub use tables::task::report::{GivenUpTask, HeldBackTask, PlannedTask};
pub use tables::task::status::CountedFailure;
pub use tables::task::{SourceAnswer, Task, TaskFailure, UNSELECTED_TYPE};
pub use tables::version::{
    VERSION_MISSED, VersionCounts, VersionFailure, VersionKind, VersionTask, VersionedResource,
    WaitingVersion,
};
use tables::{feed, probe};
use tokio::sync::broadcast;
pub use tx::adopt::Adoption;
pub use tx::approve::{DecisionResult, DeletionDecision};
pub use tx::compact_feed::FeedCompaction;
pub use tx::complete::TaskResult;
pub use tx::delete_absent::AbsentSearch;
pub use tx::deletion_guard::DeletionRules;
pub use tx::folder::FolderFile;
pub use tx::forget::FilesOfForgotten;
pub use tx::hooks::HookBegin;
pub use tx::ingest::{BatchResult, ChangeBatch, DocumentEnd};
pub use tx::ingest_listed::{ListProgress, PartStep};
pub use tx::share::{HeldSources, Holder};
pub use tx::trim::TrimPosition;
pub use tx::unfollowed::{FollowedSets, UnfollowedChannel};
pub use tx::versions::{DueVersions, VersionResult};
pub use unreadable::UnreadableRow;
use unreadable::UnreadableRows;
pub use wake::Wake;
pub use write_health::WriteFailure;
use write_health::WriteHealth;
pub use writer::Writing;
use writer::{Tx, Writer};

use crate::clock;
use crate::store::sql::Connection;

/// Less free space than this, in bytes, is not enough for the transactions that come next.
const LEAST_SPACE: u64 = 1 << 20;

/// The database. Share it in an [`Arc`]; dropping the last one closes it.
pub struct Store {
    folder: PathBuf,
    // Fields are dropped in this order. The check only reads.
    _check: Option<Check>,
    // The query threads close before the writer: only a connection that can write removes the log when it is the last to close.
    query_threads: QueryThreads,
    writer: Writer,
    /// It renews the lease until the writer has ended.
    _node_thread: Option<NodeThread>,
    /// The deliveries that the next job of the writer receives.
    arrivals: Arrivals,
    wakes: broadcast::Sender<Wake>,
    damage: Arc<Damage>,
    write_health: Arc<WriteHealth>,
    feed_id: String,
    /// This process, where several may work on the database.
    node: Option<Node>,
    feed_readers: FeedReaders,
    gap_history: GapHistory,
    unreadable: Arc<UnreadableRows>,
    /// Whether this process, if it ends now, ends in order.
    ends_in_order: Arc<AtomicBool>,
    _lock: FileLock,
    observer: Arc<dyn Observer>,
}

impl Store {
    /// Whether a place is known to have a database.
    pub fn exists(place: &StatePlace) -> bool {
        place.exists()
    }

    /// The ids of the mirrors that the database of a folder knows, by their Sources, also while a process works on it.
    ///
    /// # Errors
    /// An error of the database; it is not changed.
    pub fn known_mirrors(place: &StatePlace) -> Result<HashMap<String, KnownMirror>, StoreError> {
        backup::known_mirrors(place)
    }

    /// Opens, or creates, the database in a folder, and locks the folder against other processes.
    ///
    /// A file that is not a database, and a damaged one, is renamed and replaced by a new one. A small database is checked for damage
    /// first, and so is one that an earlier process found [damaged](Self::damaged); a large one while it is used.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::OtherSchema`], or an error of the system.
    pub fn open(place: impl Into<StatePlace>) -> Result<Arc<Self>, StoreError> {
        Self::open_observed(place, Arc::new(()))
    }

    /// As [`open`](Self::open), with an observer.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_observed(
        place: impl Into<StatePlace>,
        observer: Arc<dyn Observer>,
    ) -> Result<Arc<Self>, StoreError> {
        let place = place.into();
        let folder = &place.folder;
        let folder_error = |error| StoreError::Folder(folder.to_owned(), error);
        folder::prepare(folder).map_err(folder_error)?;
        let lock = folder::lock(folder)?;
        scratch::remove_unused(folder);
        let path = place.database();
        let damage = Arc::new(Damage::of(&path));
        let unreadable = Arc::new(UnreadableRows::default());
        let node = place.node()?;
        let opened = place.open().and_then(|connection| {
            let mut joined = None;
            if let Some(node) = &node {
                let place = node.join(&connection)?;
                connection.check_fence(place.fence);
                joined = Some(place);
            }
            damage.recheck(&connection)?;
            if joined.is_none_or(|place| place.is_first) {
                begin_process(&connection, &unreadable)?;
            }
            let feed_id = feed::id(&connection)?;
            Ok((connection, feed_id, joined))
        });
        let (connection, feed_id, joined) = match opened {
            Err(error) if error.code() == "database-damaged" => {
                let aside = corruption::set_aside(&path).map_err(folder_error)?;
                damage.clear().map_err(folder_error)?;
                tracing::error!(code = "database-damaged", database = %path.display(), aside = %aside.display(), %error,
                    "database damaged; set aside and rebuilt from the mirror and a baseline");
                let connection = place.open()?;
                begin_process(&connection, &unreadable)?;
                feed::start_numbers(&connection, clock::now().wall)?;
                let feed_id = feed::id(&connection)?;
                (connection, feed_id, None)
            }
            other => other?,
        };
        let (wakes, _) = broadcast::channel(4096);
        let write_health = Arc::new(WriteHealth::default());
        let ends_in_order = Arc::new(AtomicBool::new(true));
        let writer = Writer::start(
            connection,
            Arc::clone(&ends_in_order),
            wakes.clone(),
            Arc::clone(&damage),
            Arc::clone(&write_health),
            Arc::clone(&observer),
        );
        let writer = writer.map_err(StoreError::Thread)?;
        let node_thread = match joined {
            Some(joined) => {
                let parts = (place.clone(), wakes.clone(), Arc::clone(&damage));
                Some(NodeThread::start(parts.0, joined, parts.1, parts.2)?)
            }
            None => None,
        };
        let query_threads = QueryThreads::start(&place, Arc::clone(&damage))?;
        let check = if place.is_on_server() || corruption::is_checked_first(&path) {
            None
        } else {
            Some(Check::begin(&path, Arc::clone(&damage))?)
        };
        Ok(Arc::new(Self {
            folder: folder.clone(),
            _check: check,
            writer,
            arrivals: Arrivals::default(),
            query_threads,
            wakes,
            damage,
            write_health,
            feed_id,
            node,
            _node_thread: node_thread,
            feed_readers: FeedReaders::default(),
            gap_history: GapHistory::default(),
            unreadable,
            ends_in_order,
            _lock: lock,
            observer,
        }))
    }

    /// The wakes of commits from now on. A receiver that lags behind must check everything.
    pub fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    /// The id of the feed. It is random, made with the database: numbers of the feed are positions only together with it.
    pub fn feed_id(&self) -> &str {
        &self.feed_id
    }

    /// What this machine is called, where the database is on a server.
    pub fn node(&self) -> Option<&str> {
        self.node.as_ref().map(|node| node.name.as_str())
    }

    /// Makes sure that no other node has found this one dead, before what all nodes have is changed.
    ///
    /// # Errors
    /// An error of the database; its code is `database-held` if another one has.
    pub async fn confirm_place(self: &Arc<Self>) -> Result<(), StoreError> {
        match self.node {
            Some(_) => self.write(|_| Ok(())).await,
            None => Ok(()),
        }
    }

    /// Waits until another node has found this one dead. Then the process must end at once: whatever it writes may be another's.
    pub async fn replaced(&self) {
        self.damage.replaced().await;
    }

    /// Waits until the database is found to be damaged. Then the process must end: the next [`open`](Self::open) checks the database,
    /// and sets it aside.
    pub async fn damaged(&self) {
        self.damage.found().await;
    }

    /// The first row of a Source since the start that can't be read.
    pub fn unreadable_row(&self, source: &str) -> Option<UnreadableRow> {
        self.unreadable.of(source)
    }

    /// Notes the error of a worker of a Source if it is that of a row that can't be read; whether it is.
    pub fn note_unreadable(&self, source: &str, error: &StoreError) -> bool {
        self.unreadable.note(source, error)
    }

    /// Runs a query for a worker, on a thread of the store.
    async fn read<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.read_in(Lane::Work, query).await
    }

    /// As [`read`](Self::read), on a thread of that lane.
    async fn read_in<T, F>(&self, lane: Lane, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let observer = Arc::clone(&self.observer);
        let observed = move |sql: &Connection| {
            observer.observe(Step::Query(type_name::<F>()))?;
            query(sql)
        };
        self.query_threads.run(lane, observed).await
    }

    /// Runs a query on the calling thread, which may block.
    fn read_blocking<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Connection) -> Result<T, StoreError>,
    {
        self.query_threads.run_blocking(|sql| {
            self.observer.observe(Step::Query(type_name::<F>()))?;
            query(sql)
        })
    }

    /// Runs a job on the writer's thread and returns when it is on disk.
    async fn write<T, F>(self: &Arc<Self>, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer.submit(job).done().await
    }

    /// Queues a job without waiting for it. Jobs run in the order in which they were queued.
    fn begin_write<T, F>(&self, job: F) -> Writing<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer.submit(job)
    }

    /// Whether the database can be written. A full disk counts at once as a delivery of `LEAST_SPACE` bytes that could not be stored. After a
    /// write has failed, this tries one: no other job may have anything to write by now. It changes nothing, but is as long as the longest
    /// delivery that could not be stored.
    pub async fn writable(self: &Arc<Self>) -> Result<(), StoreError> {
        if let Some(error) = folder::lacks_space(&self.folder, LEAST_SPACE) {
            self.write_health.note_refused(LEAST_SPACE, &error);
            return Err(error);
        }
        if self.write_health.failure().is_none() {
            return Ok(());
        }
        let refused = self.write_health.refused();
        self.write(move |tx| {
            if refused > 0 {
                probe::fill(tx.sql, refused)?;
            }
            schema::rewrite_number(tx.sql)
        })
        .await?;
        if refused > 0 {
            self.write(|tx| Ok(probe::clear(tx.sql)?)).await?;
        }
        self.write_health.note_fitting(refused);
        Ok(())
    }

    /// Why the database can't be written; see [`writable`](Self::writable).
    pub async fn write_failure(self: &Arc<Self>) -> Option<WriteFailure> {
        // A failure is noted.
        let _ = self.writable().await;
        self.write_health.failure()
    }

    /// Whether what the listeners need works: returns when the writer and a thread for look-ups have answered. An error is an
    /// answer, and `/readyz` reports it; but one that has ended is not.
    pub async fn answers(self: &Arc<Self>) -> bool {
        let written = self.write(|_| Ok(())).await;
        let read = self.read_in(Lane::Lookups, |_| Ok(())).await;
        ![written, read]
            .iter()
            .any(|answer| matches!(answer, Err(StoreError::Closed)))
    }

    /// Returns when a thread that reads for the workers has answered.
    pub async fn serves_workers(&self) {
        // An error is an answer.
        let _ = self.read(|_| Ok(())).await;
    }
}

#[cfg(test)]
pub(crate) mod tests;
