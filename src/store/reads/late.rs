//! Compares entries whose time was covered before with what is known of their resources. Nothing is written: of a document that
//! is read again, most entries are known.

use rusqlite::Connection;

use crate::protocol::SourceTime;
use crate::store::change::Change;
use crate::store::ids::SetId;
use crate::store::tables::{resource, source_set};
use crate::store::{Store, StoreError};
use crate::sync::{LateChange, Pending, plan_late};

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
    let Some(state) = &state else {
        return Ok(plan_late(&change.announced(), None, None, None));
    };
    let known = state.known.as_ref();
    // A list that was read completely has ended the membership of what it does not name.
    let listed_at = listed_at.filter(|_| state.member.is_some());
    // A request for a resource whose entry states nothing is no change, and a deletion that is interrupted is stated again.
    let is_check = |pending: &&Pending| {
        known.is_some() && state.is_pending_listed && pending.changed_at.is_none()
    };
    let pending = state.pending.as_ref();
    let pending = pending.filter(|pending| !state.is_interrupted && !is_check(pending));
    Ok(plan_late(&change.announced(), known, pending, listed_at))
}
