//! Whether the database can be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Store, StoreError};

/// Whether the last transaction with something to write failed for a cause that is not its own: disk full, read-only, locked.
#[derive(Default)]
pub(super) struct WriteHealth {
    has_failed: AtomicBool,
}

impl WriteHealth {
    pub(super) fn note(&self, failed: bool) {
        self.has_failed.store(failed, Ordering::Relaxed);
    }
}

impl Store {
    /// Whether the database can be written. After a write has failed, this tries one that changes nothing: no other job may
    /// have anything to write by now.
    ///
    /// # Errors
    /// The error of that write.
    pub async fn writable(self: &Arc<Self>) -> Result<(), StoreError> {
        if !self.write_health.has_failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write(|tx| {
            let version: i64 = tx
                .sql
                .pragma_query_value(None, "user_version", |row| row.get(0))?;
            Ok(tx.sql.pragma_update(None, "user_version", version)?)
        })
        .await?;
        self.write_health.note(false);
        Ok(())
    }
}
