//! Approves or rejects the held-back deletions of a Source.

use std::sync::Arc;

use crate::store::tables::{loss, task};
use crate::store::{Store, StoreError, Wake};

impl Store {
    /// Releases the held-back deletions of a Source and returns their number. Recent deletions do not count any more: a person
    /// has looked at them.
    pub async fn approve_deletions(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            let released = task::release_held_back(tx.sql, &source)?;
            loss::delete_of_source(tx.sql, &source)?;
            if released > 0 {
                tx.wake(Wake::Tasks(source));
            }
            Ok(released as u64)
        })
        .await
    }

    /// Rejects the held-back deletions of a Source and returns their number: the files stay. What states the same deletions again
    /// changes nothing; once the Source lists a resource again, or states a new change of it, that decides.
    pub async fn reject_deletions(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| Ok(task::reject_held_back(tx.sql, &source)? as u64))
            .await
    }
}
