//! Errors of the store.

use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::ErrorCode;

/// Why an operation of the store failed.
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
    /// An integrity check found damage.
    #[error("database: {0}")]
    Damaged(String),
    /// The folder or the lock file can't be opened.
    #[error("{0}: {1}")]
    Folder(PathBuf, std::io::Error),
    /// The system starts no thread.
    #[error("a thread of the database can't be started: {0}")]
    Thread(std::io::Error),
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
            Self::NewerSchema { .. } => "newer-schema",
            Self::Folder(..) => "state-folder",
            Self::Thread(_) => "store-thread",
            Self::Sqlite(error) => sqlite_code(error),
            Self::Commit(error) => sqlite_code(error),
            Self::Damaged(_) => "database-damaged",
            Self::BadRow(_) => "database-row",
            Self::TooManyResources(_) => "too-many-resources",
            Self::FeedTrimmed { .. } => "feed-trimmed",
            Self::NoChannel => "no-channel",
            Self::Panicked => "panicked",
            Self::Closed => "database-closed",
        }
    }

    /// Whether nothing could be written because of the disk or another process.
    pub(super) fn is_write_failure(&self) -> bool {
        let cause = match self {
            Self::Sqlite(error) => error,
            Self::Commit(error) => error,
            _ => return false,
        };
        matches!(
            cause.sqlite_error_code(),
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
}

fn sqlite_code(error: &rusqlite::Error) -> &'static str {
    if matches!(error, rusqlite::Error::FromSqlConversionFailure(..)) {
        return "database-row";
    }
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => "disk-full",
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            "database-damaged"
        }
        Some(rusqlite::ErrorCode::ReadOnly) => "database-read-only",
        _ => "database",
    }
}
