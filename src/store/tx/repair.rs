//! Makes tasks of the differences that an audit found. They are executed even if the database has the same facts.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use resourcesync::ChangeKind;
use resyncd_core::ResourceUri;

use super::batch_context::BatchContext;
use super::statements::Resource;
use crate::store::change::{Change, Origin};
use crate::store::ids::SetId;
use crate::store::sql::Connection;
use crate::store::tables::resource;
use crate::store::tables::tally::Tallied;
use crate::store::tables::task;
use crate::store::{Store, StoreError, Wake};

impl Store {
    /// Makes tasks of changes that an audit requires, each for its set or, without one, for the set that announced the
    /// resource last. A deletion needs no approval: a person has asked for it.
    pub async fn repair(
        self: &Arc<Self>,
        source: &str,
        now: DateTime<Utc>,
        changes: Vec<(Option<SetId>, Change)>,
    ) -> Result<(), StoreError> {
        let source = source.to_owned();
        self.write(move |tx| {
            for (set, change) in &changes {
                if let Some(set) = set_of(tx.sql, &source, *set, &change.uri)? {
                    let context = BatchContext::read(tx.sql, set, &source, Origin::Audit, now)?;
                    repair(tx.sql, &context, change)?;
                }
            }
            if !changes.is_empty() {
                tx.wake(Wake::Tasks(source));
            }
            Ok(())
        })
        .await
    }
}

/// The set that a change belongs to: `announced_by`, or else the set of the resource's row.
pub(super) fn set_of(
    sql: &Connection,
    source: &str,
    announced_by: Option<SetId>,
    uri: &ResourceUri,
) -> Result<Option<SetId>, StoreError> {
    match announced_by {
        Some(set) => Ok(Some(set)),
        None => Ok(resource::set_of(sql, source, uri)?),
    }
}

/// Makes a task of a change that a person has asked for.
pub(super) fn repair(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    change: &Change,
) -> Result<(), StoreError> {
    let mut resource = Resource::of_change(sql, context, change)?;
    let deletes = change.kind == ChangeKind::Deleted;
    let id = resource.state.id;
    let pending = resource.state.task.as_ref();
    if let Some(newer) = pending.filter(|pending| pending.changed_at > change.changed_at) {
        // A newer change may be stated nowhere else: it is not replaced. If it agrees with the audit, it is due now.
        if (newer.kind == ChangeKind::Deleted) == deletes {
            task::expedite(sql, id, context.origin, context.now)?;
            if let Some(task) = &mut resource.state.task {
                task.origin = context.origin;
            }
            // What the task had is a row from now on.
            resource.save(sql, context)?;
        }
        return Ok(());
    }
    let known = resource.state.known.as_ref();
    let kind = match change.kind {
        ChangeKind::Deleted => ChangeKind::Deleted,
        _ if resource.is_live() => ChangeKind::Updated,
        _ => ChangeKind::Created,
    };
    // A list may state an older change than the one that was applied: its time does not go back.
    let changed_at = change
        .changed_at
        .max(known.and_then(|known| known.changed_at));
    // What only links name belongs to the set because of them.
    if !deletes && !resource.is_only_linked() {
        resource.join_changed(sql, context, true)?;
    }
    let change = Change {
        kind,
        changed_at,
        authority: change.uri.authority(),
        ..change.clone()
    };
    resource.put_order(sql, context, &change)
}
