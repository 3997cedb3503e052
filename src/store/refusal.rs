//! Whether the database takes what it is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Store, StoreError};

/// Whether the last transaction that had something to write was refused.
#[derive(Default)]
pub(super) struct Refusal(AtomicBool);

impl Refusal {
    pub(super) fn note(&self, refused: bool) {
        self.0.store(refused, Ordering::Relaxed);
    }
}

impl Store {
    /// Whether the database takes what it is given. After it has refused something, this writes what is there already:
    /// nobody else may have anything to write by now.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn writable(self: &Arc<Self>) -> Result<(), StoreError> {
        if !self.refusal.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write(|tx| {
            let version: i64 = tx
                .sql
                .pragma_query_value(None, "user_version", |row| row.get(0))?;
            Ok(tx.sql.pragma_update(None, "user_version", version)?)
        })
        .await?;
        self.refusal.note(false);
        Ok(())
    }
}
