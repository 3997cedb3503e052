//! SHELL, SQLite: what survives the process. The inbox, the tasks, the resources, the channels, the coverage of each set
//! and the change feed.
//!
//! Invariants:
//! - Whatever belongs together is one transaction: coverage never moves without the tasks of the changes it covers.
//! - The database never says more than the files: a resource's row changes after its file was published, never before.
//! - One thread writes, and commits what has queued up as one transaction; a caller is answered after the commit. Readers
//!   have connections of their own.
//! - Whoever waits for something is woken by a [`Wake`], sent after the commit that brought it.
//!
//! The room knows values of [`protocol`](crate::protocol) and [`sync`](crate::sync); no network and no file tree. Of the clock
//! it is told, but for what begins when it is written down: leases, and the numbers of a new feed.

mod audit_db;
mod change_batch;
mod channels;
#[cfg(test)]
pub(crate) mod commit_hook;
mod corruption;
mod deletion_guard;
mod delivered;
mod dumps;
mod feed;
mod found;
mod inbox;
mod links;
mod lists;
mod mending;
mod parts;
mod planning;
mod refusal;
mod resources;
mod row;
mod schema;
mod sets;
mod stats;
mod superseded;
mod task_results;
mod tasks;
mod versions;
mod writer;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::broadcast;

pub use audit_db::{
    AuditDb, Expectation, Finding, FindingKind, KnownFile, KnownFiles, Outcome as FindingOutcome,
    PendingList, Place, Telling,
};
pub use change_batch::{BatchCommit, BatchResult, Change, ChangeBatch, DeletionRules, Paths};
pub use channels::ChannelRecord;
pub use dumps::{Awaited, DumpProgress, PackageRecord};
pub use feed::{FeedEntry, Origin};
pub use inbox::{Delivery, DeliveryOutcome, Receipt};
pub use lists::ListProgress;
pub use mending::Adoption;
pub use parts::{KeptPart, Part, PartEnd, PartStep, PartWord};
pub use resources::ResourceView;
pub use sets::{BaselineState, DocumentRecord, Offer, SetRecord};
pub use stats::SetNumbers;
pub use task_results::{Publication, TaskFailure, TaskResult};
pub use tasks::{Taken, Task};
pub use versions::ServedVersion;

use crate::clock;
use corruption::{Check, Damage};
use refusal::Refusal;
use writer::Writer;
pub use writer::Writing;

/// The database's name in its folder.
const DATABASE: &str = "resyncd.db";

macro_rules! row_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) i64);
    };
}

row_id! {
    /// A set of resources that is followed.
    SetId
}
row_id! {
    /// A channel that is, or was, subscribed to.
    ChannelId
}
row_id! {
    /// A part of a Resource List: a list that its index names, or the only one.
    PartId
}
row_id! {
    /// A resource that was told of.
    ResourceId
}

/// Why the database did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process works on the same state.
    #[error("another resyncd is running on {0} (it holds the lock)")]
    Locked(PathBuf),
    /// The database was written by a newer version of this program.
    #[error("{path} was written by a newer resyncd (schema {found}, this one knows {known})")]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema that this program knows.
        known: i64,
    },
    /// A look at the whole database has found damage.
    #[error("database: {0}")]
    Damaged(String),
    /// The folder or the lock file can't be had.
    #[error("{0}: {1}")]
    Folder(PathBuf, std::io::Error),
    /// SQLite said no.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A transaction that others were waiting for failed.
    #[error("database: {0}")]
    Commit(Arc<rusqlite::Error>),
    /// A row holds what this program never writes.
    #[error("database: {0} can't be read")]
    BadRow(&'static str),
    /// The database is being closed.
    #[error("the database is closed")]
    Closed,
}

impl StoreError {
    /// The stable name of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked(_) => "state-locked",
            Self::NewerSchema { .. } => "newer-schema",
            Self::Folder(..) => "state-folder",
            Self::Sqlite(error) => sqlite_code(error),
            Self::Commit(error) => sqlite_code(error),
            Self::Damaged(_) => "database-damaged",
            Self::BadRow(_) => "database-row",
            Self::Closed => "database-closed",
        }
    }
}

fn sqlite_code(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => "disk-full",
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            "database-damaged"
        }
        Some(rusqlite::ErrorCode::ReadOnly) => "database-read-only",
        _ => "database",
    }
}

/// What a commit brought, for those who wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A delivery lies in the set's inbox.
    Inbox(SetId),
    /// A hub has verified or denied a channel of the set.
    Channel(SetId, ChannelId),
    /// The Source has tasks.
    Tasks(String),
    /// Something was applied, up to this sequence number of the feed.
    Feed(i64),
}

/// The database. Share it in an [`Arc`]; the last one to go closes it.
pub struct Store {
    // Whoever only looks lets go first.
    _check: Option<Check>,
    // The readers close first: only who can write tidies the log away when the last connection closes.
    readers: Readers,
    writer: Writer,
    wakes: broadcast::Sender<Wake>,
    damage: Arc<Damage>,
    refusal: Arc<Refusal>,
    _lock: File,
    #[cfg(test)]
    commit_hook: Arc<commit_hook::CommitHook>,
}

impl Store {
    /// Opens, or makes, the database in a folder, and locks the folder against other processes.
    ///
    /// A database that is not one (any more), or of which an earlier process told that it is [damaged](Self::damaged), is set
    /// aside under another name, and a new one made. A small one is looked at as a whole first; a large one meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Locked`], [`StoreError::NewerSchema`], or what the system says.
    pub fn open(folder: &Path) -> Result<Arc<Self>, StoreError> {
        let told = |error| StoreError::Folder(folder.to_owned(), error);
        std::fs::create_dir_all(folder).map_err(told)?;
        let lock = File::create(folder.join("resyncd.lock")).map_err(told)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked(folder.to_owned())),
            Err(TryLockError::Error(error)) => return Err(told(error)),
        }
        let path = folder.join(DATABASE);
        let damage = Arc::new(Damage::of(&path));
        let opened = schema::open(&path).and_then(|connection| match damage.was_met() {
            true => Err(StoreError::Damaged("an earlier process met damage".into())),
            false => Ok(connection),
        });
        let connection = match opened {
            Err(error) if error.code() == "database-damaged" => {
                let aside = corruption::set_aside(&path).map_err(told)?;
                damage.forget().map_err(told)?;
                tracing::error!(code = "database-damaged", database = %path.display(), aside = %aside.display(), %error,
                    "the database is damaged; it was set aside, and a new one is made from a baseline and the mirror");
                let connection = schema::open(&path)?;
                feed::begin_anew(&connection, clock::now().wall)?;
                connection
            }
            other => other?,
        };
        let (wakes, _) = broadcast::channel(4096);
        let refusal = Arc::new(Refusal::default());
        let (to_damage, to_refusal) = (Arc::clone(&damage), Arc::clone(&refusal));
        #[cfg(test)]
        let commit_hook = Arc::default();
        let writer = Writer::start(
            connection,
            wakes.clone(),
            to_damage,
            to_refusal,
            #[cfg(test)]
            Arc::clone(&commit_hook),
        );
        let writer = writer.map_err(told)?;
        let check = match corruption::is_checked_first(&path) {
            true => None,
            false => Some(Check::begin(&path, Arc::clone(&damage))?),
        };
        Ok(Arc::new(Self {
            _check: check,
            writer,
            readers: Readers {
                path,
                idle: Mutex::default(),
            },
            wakes,
            damage,
            refusal,
            _lock: lock,
            #[cfg(test)]
            commit_hook,
        }))
    }

    /// What commits bring from now on. A receiver that lags behind has missed something: it looks at everything.
    pub fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.wakes.subscribe()
    }

    /// Waits until the database is found to be damaged. Then there is nothing to be done but to end: the next
    /// [`open`](Self::open) sets it aside.
    pub async fn damaged(&self) {
        self.damage.met().await;
    }

    /// Runs a query on a reader's connection, off the asynchronous threads.
    async fn read<T, F>(self: &Arc<Self>, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let store = Arc::clone(self);
        #[cfg(test)]
        if self.commit_hook.is_stopped() {
            return Err(StoreError::Closed);
        }
        let reading = tokio::task::spawn_blocking(move || {
            let answer = store.readers.run(query);
            if let Err(error) = &answer {
                store.damage.note(error);
            }
            answer
        });
        reading.await.map_err(|_| StoreError::Closed)?
    }
}

/// Runs a query that may be several statements: all of them see the database as it is at one moment.
fn at_one_moment<T>(
    connection: &Connection,
    query: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let moment = connection.unchecked_transaction()?;
    let answer = query(&moment)?;
    moment.commit()?;
    Ok(answer)
}

/// Connections that only read.
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    const KEPT: usize = 8;

    fn run<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = match idle {
            Some(connection) => connection,
            None => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let connection = Connection::open_with_flags(&self.path, flags)?;
                connection.busy_timeout(schema::BUSY_TIMEOUT)?;
                connection
            }
        };
        let answer = at_one_moment(&connection, query);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < Self::KEPT {
            idle.push(connection);
        }
        answer
    }
}

#[cfg(test)]
mod tests;
