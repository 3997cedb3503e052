//! The database of an audit of one Source: what the Source's documents state now, as the normal reading has stored it without an executor,
//! beside what the state database knows; and the findings.
//!
//! It is that of a [scratch folder](super::ScratchFolder). Each file that is expected has a task there: what the state database knows of
//! later changes is merged into them. The state database is only read, also while a daemon writes it.
//! Every call blocks; those on single pages only briefly.

mod expected;
mod finding;
mod known;

use std::path::{Path, absolute};

pub use expected::{Expectation, ListTimes, PathState};
pub use finding::{Finding, FindingKind, FindingOutcome};
pub use known::KnownFiles;
use parking_lot::Mutex;
use rusqlite::OpenFlags;
use url::Url;

use super::StoreError;
use super::place::StatePlace;
use super::schema::{self, DATABASE};
use super::sql::Connection;
use super::transfer::copy_source;

/// The database of an audit. Its tables are in `main`, those of the state database in `known`.
pub struct AuditDb {
    source: String,
    connection: Mutex<Connection>,
}

impl AuditDb {
    /// Opens the database that a Source's documents were read into, beside the state database `known`, if there is one. What a database on a
    /// server knows of the Source is copied beside the other one.
    ///
    /// # Errors
    /// [`StoreError`], also for a state database that is newer than this program.
    pub fn open(stated: &Path, known: &StatePlace, source: &str) -> Result<Self, StoreError> {
        let known = match known.open_to_read()? {
            Some(database) if database.sqlite().is_some() => known.database(),
            database => {
                let copy = stated.join("known.db");
                let known = schema::open(&copy)?;
                if let Some(database) = database {
                    let writing = known.transaction()?;
                    database.in_snapshot(|database| copy_source(database, &writing, source))?;
                    writing.commit()?;
                }
                copy
            }
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = rusqlite::Connection::open_with_flags(stated.join(DATABASE), flags)?;
        schema::configure(&connection)?;
        // After a crash it is not needed.
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "foreign_keys", false)?;
        connection.execute("ATTACH DATABASE ?1 AS known", [read_only(&known)?])?;
        connection.execute_batch(finding::TABLE)?;
        connection.execute_batch(expected::TABLE)?;
        Ok(Self {
            source: source.to_owned(),
            connection: Mutex::new(connection.into()),
        })
    }

    /// Runs several statements as one transaction, which is much faster than one by one.
    fn transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let sql = self.connection.lock();
        let transaction = sql.transaction()?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }
}

/// The URI by which SQLite opens a database without writing to it.
fn read_only(database: &Path) -> Result<String, StoreError> {
    let failed = |error| StoreError::Folder(database.to_owned(), error);
    let path = absolute(database).map_err(failed)?;
    let mut uri = Url::from_file_path(path)
        .map_err(|()| failed(std::io::ErrorKind::InvalidFilename.into()))?;
    uri.set_query(Some("mode=ro"));
    Ok(uri.into())
}
