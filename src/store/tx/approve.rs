//! Approves or rejects the held-back deletions of a Source.

use std::sync::Arc;

use crate::store::tables::{loss, task};
use crate::store::writer::Tx;
use crate::store::{Store, StoreError, Wake};

/// What became of the approval of deletions that a person has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// So many deletions were released.
    Released(u64),
    /// None was: so many are held back, more than that person has seen.
    MoreHeld(u64),
}

impl Store {
    /// Releases the held-back deletions of a Source and returns their number. Recent deletions do not count any more: a person
    /// has looked at them.
    pub async fn approve_deletions(self: &Arc<Self>, source: &str) -> Result<u64, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| release(tx, source)).await
    }

    /// As [`approve_deletions`](Self::approve_deletions), by a person who has seen so many of them: if more are held back, none is
    /// released.
    pub async fn approve_seen_deletions(
        self: &Arc<Self>,
        source: &str,
        seen: u64,
    ) -> Result<Approval, StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            // In the transaction that releases them: none is added in between.
            let held = task::number_held_back(tx.sql, &source)?;
            match held > seen {
                true => Ok(Approval::MoreHeld(held)),
                false => release(tx, source).map(Approval::Released),
            }
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

fn release(tx: &mut Tx<'_>, source: String) -> Result<u64, StoreError> {
    let released = task::release_held_back(tx.sql, &source)?;
    loss::delete_of_source(tx.sql, &source)?;
    if released > 0 {
        tx.wake(Wake::Tasks(source));
    }
    Ok(released as u64)
}
