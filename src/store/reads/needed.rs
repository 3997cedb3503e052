//! Counts the entries of a manifest whose content the mirror does not have. Nothing is written: a package is fetched only if
//! enough of it is needed.

use chrono::DateTime;
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{Applied, Desired, Stated};

use crate::store::change::{Change, Origin};
use crate::store::ids::SetId;
use crate::store::sql::Connection;
use crate::store::tx::batch_context::BatchContext;
use crate::store::tx::statements::{Resource, entry_of};
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
            let origin = Origin::ResourceDump;
            let context = BatchContext::read(sql, set, source, origin, DateTime::UNIX_EPOCH)?;
            let mut needed = 0;
            for entry in entries {
                needed += u64::from(is_needed(sql, &context, at, entry)?);
            }
            Ok(needed)
        })
    }
}

fn is_needed(
    sql: &Connection,
    context: &BatchContext<'_>,
    at: Option<SourceTime>,
    entry: &Change,
) -> Result<bool, StoreError> {
    // What a record selects later is requested by itself.
    if entry.kind == ChangeKind::Deleted || !entry.is_selected() {
        return Ok(false);
    }
    let Some(state) = context.state_of(&entry.uri)? else {
        return Ok(true);
    };
    let mut resource = Resource::read(sql, context, state)?;
    let stated = at.map_or(Stated::Change(entry.kind), Stated::Listed);
    let applied = resource.apply(&entry_of(context.set, entry, stated), entry.overtaken);
    let desired = resource.decide(context)?.desired;
    Ok(!matches!(applied, Applied::Older(_)) && matches!(desired, Desired::Fetch { .. }))
}
