//! The connection of an audit's database.

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, Transaction};

use super::tables;
use crate::store::StoreError;

/// The database of one audit of one Source.
pub struct AuditDb {
    connection: Mutex<Connection>,
}

impl AuditDb {
    /// Creates an empty one.
    ///
    /// # Errors
    /// [`StoreError`], also where no temporary file can be created.
    pub fn begin() -> Result<Self, StoreError> {
        let folder =
            tempfile::tempdir().map_err(|error| StoreError::Folder(std::env::temp_dir(), error))?;
        let connection = Connection::open(folder.path().join("audit.db"))?;
        // No other process opens it, and after a crash it is not needed.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "journal_mode", "OFF")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "temp_store", "FILE")?;
        connection.pragma_update(None, "cache_size", -16_384)?;
        tables::create(&connection)?;
        Ok(Self {
            connection: Mutex::new(connection),
        })
    }

    pub(super) fn sql(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }

    /// Runs several statements as one transaction, which is much faster than one by one.
    pub(super) fn transaction<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut sql = self.sql();
        let transaction = sql.transaction()?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }
}
