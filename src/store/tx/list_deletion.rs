//! Plans the deletion of resources of a set that a list does not name, or states to be deleted.

use resourcesync::SourceTime;
use resyncd_core::{Applied, Stated, Voice};

use super::batch_context::BatchContext;
use super::ingest::EntryOutcome;
use super::settle::{Cause, Settled};
use super::statements::{Resource, entry_of};
use crate::store::StoreError;
use crate::store::change::Change;
use crate::store::tables::membership::Membership;
use crate::store::tables::tally::Tallied;

/// Plans the deletion of a resource that a list states to have expired, unless it has changed since, as the same list may state, too.
pub(super) fn delete_expired(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    deletion: &Change,
) -> Result<EntryOutcome, StoreError> {
    let state = context.state_of(&deletion.uri)?;
    let state = state.filter(|it| it.membership.is_some());
    let (Some(state), Some(expired)) = (state, deletion.changed_at) else {
        return Ok(EntryOutcome::Known);
    };
    let resource = Resource::read(sql, context, state)?;
    // Of two statements of one time the later one counts.
    let at = SourceTime::from_micros(expired.micros().saturating_add(1));
    let outcome = delete_absent_or_expired(sql, context, resource, at, deletion)?;
    // The Source itself states it: that contradicts nobody.
    Ok(match outcome {
        EntryOutcome::Contradiction => EntryOutcome::Task,
        outcome => outcome,
    })
}

/// Plans the deletion of a resource that is absent, or has expired, if that is proven at the time `at`.
pub(super) fn delete_absent_or_expired(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    mut resource: Resource,
    at: SourceTime,
    deletion: &Change,
) -> Result<EntryOutcome, StoreError> {
    let claimed = resource
        .stated_by(context.set, Voice::Hub)
        .map(|it| it.exists());
    resource.forget_denied_undated(context.set);
    let absent = resyncd_core::Entry {
        at: Some(at),
        ..entry_of(context.set, deletion, Stated::Absent(at))
    };
    let is_proven = resource.apply(&absent, false) == Applied::News;
    if is_proven && resource.remain_linked(sql, context, &deletion.uri)? {
        resource.join(sql, context, Membership::Linked)?;
        resource.settle(sql, context, None, Cause::Document)?;
        return Ok(EntryOutcome::Known);
    }
    resource.join(sql, context, Membership::Changed)?;
    // It may be gone already, by a document that was not ingested to its end.
    let is_gone = resource.existence_in(context.set).is_none();
    let news = is_gone.then_some(deletion);
    let settled = resource.settle(sql, context, news, Cause::Document)?;
    Ok(match (settled, claimed) {
        (Settled::Task, Some(true)) => EntryOutcome::Contradiction,
        (Settled::Task, _) => EntryOutcome::Task,
        _ => EntryOutcome::Known,
    })
}

impl Resource {
    /// What the Source has answered not to have is not shown to exist by an update without a time.
    fn forget_denied_undated(&mut self, set: crate::store::ids::SetId) {
        let denied: Vec<_> = self
            .statements
            .iter()
            .filter(|it| it.entry.set.0 == set.0 && it.is_change() && it.entry.at.is_none())
            .filter(|it| self.is_denied(it))
            .map(|it| it.revision)
            .collect();
        self.statements.retain(|it| !denied.contains(&it.revision));
    }
}
