//! Compares entries whose time was covered before with what is known of their resources. Nothing is written: of a document that
//! is read again, most entries are known.

use rusqlite::Connection;

use crate::protocol::SourceTime;
use crate::store::change::Change;
use crate::store::ids::SetId;
use crate::store::tables::{resource, source_set};
use crate::store::{Store, StoreError};
use crate::sync::{LateChange, plan_late};

impl Store {
    /// What each of these changes means. For a caller on a blocking thread.
    pub fn compare_late<'a>(
        &self,
        set: SetId,
        source: &str,
        changes: impl Iterator<Item = &'a Change>,
    ) -> Result<Vec<LateChange>, StoreError> {
        self.read_blocking(|sql| {
            let listed_at = source_set::list_at(sql, set)?;
            changes
                .map(|change| compare(sql, set, source, listed_at, change))
                .collect()
        })
    }
}

fn compare(
    sql: &Connection,
    set: SetId,
    source: &str,
    listed_at: Option<SourceTime>,
    change: &Change,
) -> Result<LateChange, StoreError> {
    let state = resource::state(sql, source, &change.uri, set)?;
    let (known, pending, member) = match &state {
        Some(state) => (state.known.as_ref(), state.pending.as_ref(), state.member),
        None => (None, None, None),
    };
    // A list that was read completely has ended the membership of what it does not name.
    let listed_at = listed_at.filter(|_| member.is_some());
    Ok(plan_late(&change.announced(), known, pending, listed_at))
}
