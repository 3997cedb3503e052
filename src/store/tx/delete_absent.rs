//! Finds the resources of a set that a complete Resource List or Resource Dump does not name, and plans their deletion.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resyncd_core::ResourceUri;

use super::batch_context::BatchContext;
use super::deletion_guard::decide_deletions_of_others;
use super::ingest::BatchResult;
use super::ingest_listed::ListProgress;
use super::list_deletion::delete_absent_or_expired;
use crate::store::change::Change;
use crate::store::tables::tally::Tallied;
use crate::store::tables::{membership, source_set};
use crate::store::{Store, StoreError};

/// How many resources one transaction checks, and how many of them may be absent, so that none keeps the writer for long.
const RESOURCES_A_STEP: i64 = 20_000;
const ABSENT_A_STEP: usize = 1000;

impl Store {
    /// Checks some of the resources of the set, and plans the deletion of those that the list, now read completely, did not name. Returns
    /// `None` when there are no more. The deletions stay undecided until the document ends. Resources that `wants`
    /// excludes were not looked for in the list, and stay. `readings`: how many complete readings, this one and those before
    /// it, must not have named a resource.
    pub async fn delete_absent(
        self: &Arc<Self>,
        list: &ListProgress,
        now: DateTime<Utc>,
        readings: u32,
        wants: impl Fn(&ResourceUri) -> bool + Send + 'static,
    ) -> Result<Option<BatchResult>, StoreError> {
        let list = list.clone();
        self.write(move |tx| delete_absent(tx.sql, &list, now, readings, wants))
            .await
    }
}

fn delete_absent(
    sql: &Tallied<'_>,
    list: &ListProgress,
    now: DateTime<Utc>,
    readings: u32,
    wants: impl Fn(&ResourceUri) -> bool,
) -> Result<Option<BatchResult>, StoreError> {
    let (set, at) = (list.set, list.at);
    let context = BatchContext::read(sql, set, &list.source, list.origin, now)?;
    let begin = source_set::absent_until(sql, set)?;
    let Some(mut end) = membership::last_of_next(sql, set, begin, RESOURCES_A_STEP)? else {
        return Ok(None);
    };
    let first = context.generation - i64::from(readings.saturating_sub(1));
    let absent = membership::absent(
        sql,
        set,
        first..=context.generation,
        begin,
        end,
        ABSENT_A_STEP,
    )?;
    if let Some(&(last, _)) = absent.get(ABSENT_A_STEP - 1) {
        end = last;
    }
    // The next step continues here, so that all steps together pass each resource once.
    source_set::set_absent_until(sql, set, end)?;
    let mut result = BatchResult::default();
    for (_, uri) in absent {
        let is_wanted = wants(&uri);
        let deletion = Change::deletion(uri, Some(at));
        let outcome = delete_absent_or_expired(sql, &context, at, is_wanted, &deletion)?;
        result.count(outcome);
    }
    decide_deletions_of_others(sql, &context)?;
    Ok(Some(result))
}
