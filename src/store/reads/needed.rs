//! Counts the entries of a manifest whose content the mirror does not have. Nothing is written: a package is fetched only if
//! enough of it is needed.

use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{Decision, plan_change};
use rusqlite::Connection;

use crate::store::change::Change;
use crate::store::ids::SetId;
use crate::store::tables::resource;
use crate::store::{Store, StoreError};

impl Store {
    /// How many of these entries would become tasks that fetch content: entries of a Resource Dump of the time `at`, or,
    /// without one, of a Change Dump. For a caller on a blocking thread.
    pub fn count_needed(
        &self,
        set: SetId,
        source: &str,
        at: Option<SourceTime>,
        entries: &[Change],
    ) -> Result<u64, StoreError> {
        self.read_blocking(|sql| {
            let mut needed = 0;
            for entry in entries {
                needed += u64::from(is_needed(sql, set, source, at, entry)?);
            }
            Ok(needed)
        })
    }
}

fn is_needed(
    sql: &Connection,
    set: SetId,
    source: &str,
    at: Option<SourceTime>,
    entry: &Change,
) -> Result<bool, StoreError> {
    // What a record selects later is requested by itself.
    if entry.kind == ChangeKind::Deleted || !entry.is_selected() {
        return Ok(false);
    }
    let Some(state) = resource::state(sql, source, &entry.uri, set)? else {
        return Ok(true);
    };
    let decision = match at {
        Some(at) => state.planned_for_list(sql, set, at, entry)?,
        None => plan_change(
            &entry.announced(),
            state.known.as_ref(),
            state.pending.as_ref(),
        ),
    };
    Ok(decision == Decision::Task)
}
