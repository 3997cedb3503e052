//! Errors of the store.

use std::path::PathBuf;
use std::sync::Arc;

use super::sql::{Connection, Fault};

/// Why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process works on the same state.
    #[error("another resyncd is running on {0} (it holds the lock)")]
    Locked(PathBuf),
    /// The URL of a database is none, or can't be used.
    #[error("{0}")]
    Url(String),
    /// Another node works on the database.
    #[error("the node {0} works on the database")]
    Held(String),
    /// No node of that name works on the database.
    #[error("no node {0} works on the database; see `resyncd nodes`")]
    UnknownNode(String),
    /// There is no other node that could hold what one does.
    #[error("no other node works on the database that could hold what {0} does")]
    NoOtherNode(String),
    /// No node has a Source of that name in its configuration.
    #[error("no node follows a Source {0}")]
    NotHeld(String),
    /// A node does not answer.
    #[error("the node {0} does not answer")]
    NoAnswer(String),
    /// The database was written by a version of this program that has another schema.
    #[error(
        "{path} was written by {} resyncd (schema {found}, this one knows {known}): install that version again, or move the \
         database away: a new one is rebuilt from the mirror and a baseline",
        if found > known { "a newer" } else { "an earlier" }
    )]
    OtherSchema {
        /// The database.
        path: PathBuf,
        /// The number of its schema.
        found: i64,
        /// The number of the schema that this program knows.
        known: i64,
    },
    /// A file is no sound database of resyncd.
    #[error("{0} is no backup that can be restored: {1}")]
    NoBackup(PathBuf, String),
    /// What only SQLite's database can do was asked of one on a server.
    #[error(
        "the state is in a PostgreSQL database: use pg_dump and pg_restore, or `resyncd store copy`"
    )]
    OnServer,
    /// A state can't be moved to where one is.
    #[error("there is a state in {0} already")]
    HasState(PathBuf),
    /// An integrity check found damage.
    #[error("database: {0}")]
    Damaged(String),
    /// The folder or the lock file can't be opened.
    #[error("{0}: {1}")]
    Folder(PathBuf, std::io::Error),
    /// The system starts no thread.
    #[error("a thread of the database can't be started: {0}")]
    Thread(std::io::Error),
    /// The disk of the database, or the quota of its owner, is full.
    #[error("no space left for the database {path}: {error}")]
    DiskFull {
        /// The database.
        path: String,
        /// SQLite's error.
        error: Arc<rusqlite::Error>,
    },
    /// The disk of the database has too little space for a transaction.
    #[error("only {free} bytes are free on the disk of {folder}")]
    NoSpace {
        /// The folder of the database.
        folder: PathBuf,
        /// The bytes that are free.
        free: u64,
    },
    /// SQLite failed, or a column holds a value that this program never writes.
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A transaction failed that carried this job and others.
    #[error("database: {0}")]
    Commit(Arc<rusqlite::Error>),
    /// A row is missing that must exist, or its columns contradict each other.
    #[error("database: {0} can't be read")]
    BadRow(&'static str),
    /// A Source has as many resources as it may have: no further one becomes known.
    #[error("the Source has more than {0} resources")]
    TooManyResources(u64),
    /// Entries of the feed were removed that follow the requested one.
    #[error("entries of the feed up to {oldest} were removed")]
    FeedTrimmed {
        /// The oldest number after which nothing is missing.
        oldest: i64,
    },
    /// A position belongs to another feed: the database was lost or set aside since.
    #[error(
        "the position belongs to another feed: the database was replaced, and what happened meanwhile is not known"
    )]
    OtherFeed,
    /// A position is beyond the end of the feed: it belongs to another feed, or to a newer copy of the database.
    #[error(
        "the feed ends at {last}: the position belongs to another feed, or to a newer copy of the database"
    )]
    BeyondFeed {
        /// The greatest number that was used.
        last: i64,
    },
    /// The channel was deleted meanwhile.
    #[error("the channel is gone")]
    NoChannel,
    /// A query or a write panicked. It has changed nothing.
    #[error("resyncd panicked while it used the database; see the log")]
    Panicked,
    /// The database is being closed.
    #[error("the database is closed")]
    Closed,
}

impl StoreError {
    /// The stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked(_) => "state-locked",
            Self::OtherSchema { found, known, .. } if found > known => "newer-schema",
            Self::OtherSchema { .. } => "earlier-schema",
            Self::Folder(..) => "state-folder",
            Self::NoBackup(..) => "backup-unusable",
            Self::Url(_) => "bad-store",
            Self::Held(_) => "database-held",
            Self::UnknownNode(_) => "unknown-node",
            Self::NoOtherNode(_) => "no-other-node",
            Self::NotHeld(_) => "unknown-source",
            Self::NoAnswer(_) => "node-not-answering",
            Self::OnServer => "state-on-server",
            Self::HasState(_) => "state-exists",
            Self::Thread(_) => "store-thread",
            Self::DiskFull { .. } | Self::NoSpace { .. } => "disk-full",
            Self::Sqlite(error) => code_of(error),
            Self::Commit(error) => code_of(error),
            Self::Damaged(_) => "database-damaged",
            Self::BadRow(_) => "database-row",
            Self::TooManyResources(_) => "too-many-resources",
            Self::FeedTrimmed { .. } => "feed-trimmed",
            Self::OtherFeed => "other-feed",
            Self::BeyondFeed { .. } => "beyond-feed",
            Self::NoChannel => "no-channel",
            Self::Panicked => "panicked",
            Self::Closed => "database-closed",
        }
    }

    /// Whether a row can't be read.
    pub(super) fn is_of_row(&self) -> bool {
        self.code() == "database-row"
    }

    /// Makes copies of an error for all callers whose writes have failed together.
    pub(super) fn copies(self) -> impl Fn() -> Self {
        let shared = match self {
            Self::Sqlite(error) => Self::Commit(Arc::new(error)),
            other => other,
        };
        move || match &shared {
            Self::Commit(error) => Self::Commit(Arc::clone(error)),
            Self::DiskFull { path, error } => Self::DiskFull {
                path: path.clone(),
                error: Arc::clone(error),
            },
            Self::BadRow(what) => Self::BadRow(what),
            Self::Panicked => Self::Panicked,
            _ => Self::Closed,
        }
    }

    /// The error of a write to a database; that of a full disk names it.
    pub(super) fn writing(connection: &Connection, error: Arc<rusqlite::Error>) -> Self {
        match Fault::of(&error) {
            Fault::DiskFull => Self::DiskFull {
                path: connection.path(),
                error,
            },
            _ => Self::Commit(error),
        }
    }

    /// Whether a database on a server may be used a little later.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Held(_)) || self.is_write_failure()
    }

    /// Whether nothing could be written because of the disk or another process.
    pub(super) fn is_write_failure(&self) -> bool {
        let cause = match self {
            Self::Sqlite(error) => error,
            Self::Commit(error) | Self::DiskFull { error, .. } => error,
            _ => return false,
        };
        matches!(
            Fault::of(cause),
            Fault::DiskFull | Fault::ReadOnly | Fault::Unavailable
        )
    }
}

fn code_of(error: &rusqlite::Error) -> &'static str {
    match Fault::of(error) {
        Fault::Row => "database-row",
        Fault::DiskFull => "disk-full",
        Fault::Damaged => "database-damaged",
        Fault::ReadOnly => "database-read-only",
        #[cfg(feature = "postgres")]
        Fault::Held => "database-held",
        Fault::Unavailable | Fault::Other => "database",
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn error_of_a_full_disk_names_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let connection = rusqlite::Connection::open(folder.path().join("resyncd.db")).unwrap();
        let connection = Connection::from(connection);
        for (result, code, is_named) in [
            (ffi::SQLITE_FULL, "disk-full", true),
            (ffi::SQLITE_IOERR, "database", false),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(result), None);
            let error = StoreError::writing(&connection, Arc::new(error));
            assert_eq!(error.code(), code);
            assert!(error.is_write_failure());
            assert_eq!(
                error.to_string().contains("resyncd.db"),
                is_named,
                "{error}"
            );
        }
    }
}
