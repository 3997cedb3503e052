//! Finds the members that a complete Resource List or Resource Dump does not name, and plans their deletion.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::ingest::{BatchResult, EntryOutcome};
use super::list_entries::ListProgress;
use super::membership::{join, leave_if_shared};
use super::put_task::put_task;
use crate::protocol::{ChangeKind, ResourceUri, SourceTime};
use crate::store::change::Change;
use crate::store::tables::member::{self, Membership};
use crate::store::tables::resource::ResourceState;
use crate::store::tables::{part, source_set, task};
use crate::store::{Store, StoreError};
use crate::sync::plan_absent;

/// How many members one transaction checks, and how many of them may be absent, so that none keeps the writer for long.
const MEMBERS_A_STEP: i64 = 20_000;
const ABSENT_A_STEP: usize = 1000;

impl Store {
    /// Checks some of the members, and plans the deletion of those that the list, now read completely, did not name. Returns
    /// `None` when there are no more members. The deletions stay undecided until the document ends. Members that `wants`
    /// excludes were not looked for in the list, and stay. `readings`: how many complete readings, this one and those before
    /// it, must not have named a member.
    pub async fn list_absent(
        self: &Arc<Self>,
        list: &ListProgress,
        now: DateTime<Utc>,
        readings: u32,
        wants: impl Fn(&ResourceUri) -> bool + Send + 'static,
    ) -> Result<Option<BatchResult>, StoreError> {
        let list = list.clone();
        self.write(move |tx| list_absent(tx.sql, &list, now, readings, wants))
            .await
    }
}

fn list_absent(
    sql: &Connection,
    list: &ListProgress,
    now: DateTime<Utc>,
    readings: u32,
    wants: impl Fn(&ResourceUri) -> bool,
) -> Result<Option<BatchResult>, StoreError> {
    let (set, at) = (list.set, list.at);
    let context = BatchContext::read(sql, set, &list.source, list.origin, now)?;
    let begin = source_set::absent_until(sql, set)?;
    let Some(mut end) = member::last_of_next(sql, set, begin, MEMBERS_A_STEP)? else {
        return Ok(None);
    };
    let first = context.generation - i64::from(readings.saturating_sub(1));
    let absent = member::absent(
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
    // The next step continues here, so that all steps together pass each member once.
    source_set::set_absent_until(sql, set, end)?;
    let mut result = BatchResult::default();
    for (_, uri) in absent {
        let is_wanted = wants(&uri);
        let deletion = Change::deletion(uri, Some(at));
        result.count(delete_absent(sql, &context, at, is_wanted, &deletion)?);
    }
    Ok(Some(result))
}

/// Plans the deletion of an absent member, if it is proven, and returns what became of it.
fn delete_absent(
    sql: &Connection,
    context: &BatchContext<'_>,
    at: SourceTime,
    is_wanted: bool,
    deletion: &Change,
) -> Result<EntryOutcome, StoreError> {
    let state = ResourceState::of_change(sql, context, deletion)?;
    let pending = state.pending_for_listing();
    let is_proven = is_wanted && plan_absent(at, state.known.as_ref(), pending);
    if is_proven && state.remain_linked(sql, context, &deletion.uri)? {
        let linked = Membership {
            generation: context.generation,
            part: Some(part::LINKED),
        };
        member::update(sql, context.set, state.id, linked)?;
        return Ok(EntryOutcome::Known);
    }
    if is_proven && leave_if_shared(sql, context.set, state.id)? {
        return Ok(EntryOutcome::Known);
    }
    let live_length = state.live_length();
    // A pending deletion stays as it is, held back or approved; one whose document was not ingested to its end is decided now.
    let is_pending = state
        .pending
        .is_some_and(|pending| pending.kind == ChangeKind::Deleted);
    let becomes_task = is_proven && !is_pending;
    if becomes_task {
        put_task(sql, context, state.id, deletion)?;
    } else if is_proven {
        task::resume_interrupted(sql, state.id)?;
    }
    let unnamed = Membership {
        generation: context.generation,
        part: None,
    };
    join(
        sql,
        context.set,
        state.id,
        live_length,
        state.member,
        unnamed,
        None,
    )?;
    if !becomes_task {
        return Ok(EntryOutcome::Known);
    }
    let known = state.known.as_ref();
    let is_refuted = known.is_some_and(|known| known.is_refuted_by_absence(at, context.unbroken));
    Ok(match is_refuted {
        true => EntryOutcome::Contradiction,
        false => EntryOutcome::Task,
    })
}
