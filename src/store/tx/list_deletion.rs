//! Plans the deletion of resources of a set that a list does not name, or states to be deleted.

use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{LocalState, plan_absent};

use super::batch_context::BatchContext;
use super::ingest::EntryOutcome;
use super::membership::{join, leave_if_shared};
use super::put_task::put_task;
use crate::store::StoreError;
use crate::store::change::Change;
use crate::store::tables::membership::{self, Membership};
use crate::store::tables::resource::{self, ResourceState};
use crate::store::tables::tally::Tallied;
use crate::store::tables::{part, task};

/// Plans the deletion of a resource that a list states to have expired, unless it has changed since, as the same list may state, too.
pub(super) fn delete_expired(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    deletion: &Change,
) -> Result<EntryOutcome, StoreError> {
    let state = resource::state(sql, context.source, &deletion.uri, context.set)?;
    let (Some(state), Some(expired)) = (state, deletion.changed_at) else {
        return Ok(EntryOutcome::Known);
    };
    let update = state.pending.filter(|it| it.kind != ChangeKind::Deleted);
    let is_later = update.is_some_and(|update| update.changed_at >= Some(expired));
    if state.membership.is_none() || is_later {
        return Ok(EntryOutcome::Known);
    }
    // Of two statements of one time the later one counts.
    let at = SourceTime::from_micros(expired.micros().saturating_add(1));
    let deleted = delete_absent_or_expired(sql, context, at, true, deletion)?;
    // The Source itself states it: that contradicts nobody.
    Ok(match deleted {
        Some(_) => EntryOutcome::Task,
        None => EntryOutcome::Known,
    })
}

/// Plans the deletion of a resource that is absent, or has expired, if that is proven at the time `at`. If it becomes a task, returns what
/// is known of the resource.
pub(super) fn delete_absent_or_expired(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    at: SourceTime,
    is_wanted: bool,
    deletion: &Change,
) -> Result<Option<Option<LocalState>>, StoreError> {
    let state = ResourceState::of_change(sql, context, deletion)?;
    // What the Source has answered not to have is not shown to exist by an update without a time.
    let is_undated = state
        .pending
        .is_some_and(|pending| pending.changed_at.is_none());
    let shows_nothing = is_undated && task::is_given_up_as_absent(sql, state.id)?;
    let pending = state.pending_for_listing().filter(|_| !shows_nothing);
    let is_proven = is_wanted && plan_absent(at, state.known.as_ref(), pending);
    if is_proven && state.remain_linked(sql, context, &deletion.uri)? {
        let linked = Membership {
            generation: context.generation,
            part: Some(part::LINKED),
            named_at: None,
        };
        membership::update(sql, context.set, state.id, linked)?;
        return Ok(None);
    }
    if is_proven && leave_if_shared(sql, context.set, state.id)? {
        if state.is_own_interrupted(context.set) {
            task::resume_interrupted(sql, state.id)?;
        }
        return Ok(None);
    }
    let live_length = state.live_length();
    // A pending deletion stays as it is, held back or approved; one whose document was not ingested to its end is decided now.
    let becomes_task = is_proven && !state.is_deletion_pending();
    if becomes_task {
        put_task(sql, context, state.id, deletion)?;
    } else if is_proven {
        task::resume_interrupted(sql, state.id)?;
    }
    let unnamed = Membership {
        generation: context.generation,
        part: None,
        named_at: None,
    };
    join(
        sql,
        context.set,
        state.id,
        live_length,
        state.membership,
        unnamed,
        None,
    )?;
    Ok(becomes_task.then_some(state.known))
}
