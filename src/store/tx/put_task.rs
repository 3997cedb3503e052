//! From a change to the task of its resource: the newest change wins.

use chrono::{DateTime, Utc};
use resourcesync::{ChangeKind, SourceTime};
use resyncd_core::{Pending, ResourceUri};

use super::batch_context::BatchContext;
use super::relate::is_selected;
use crate::store::change::{Change, Origin};
use crate::store::error::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::tables::tally::Tallied;
use crate::store::tables::task::{self, NewTask, TaskState};

/// Makes a change the resource's task and returns `true`, unless the task states the same already: a repeated change neither
/// restarts a download nor revokes an approval. A deletion stays undecided until its document ends. The task of a change that is not
/// selected is not executed, and does not count.
pub(super) fn put_task(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    resource: ResourceId,
    change: &Change,
) -> Result<bool, StoreError> {
    put_task_at(sql, context, resource, change, context.now)
}

/// As [`put_task`], for a task that is due at that time.
pub(super) fn put_task_at(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    resource: ResourceId,
    change: &Change,
    not_before: DateTime<Utc>,
) -> Result<bool, StoreError> {
    // The mirror is behind from this change on; what a listing reveals may be as old as the end of the unbroken coverage, or of
    // any time if there is none.
    let since = if context.origin.is_listing() {
        context
            .unbroken
            .map(|unbroken| change.changed_at.map_or(unbroken, |at| at.min(unbroken)))
    } else {
        change.changed_at
    };
    put(sql, context, resource, change, not_before, since)
}

/// As [`put_task`], where the mirror may be behind from another time than that of the change; `None`: from any.
pub(super) fn put_task_since(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    resource: ResourceId,
    change: &Change,
    since: Option<SourceTime>,
) -> Result<bool, StoreError> {
    put(sql, context, resource, change, context.now, since)
}

fn put(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    resource: ResourceId,
    change: &Change,
    not_before: DateTime<Utc>,
    since: Option<SourceTime>,
) -> Result<bool, StoreError> {
    let state = match change.kind {
        ChangeKind::Deleted => TaskState::Undecided,
        ChangeKind::Created | ChangeKind::Updated
            if is_selected(sql, context, change)? || context.is_linked(resource)? =>
        {
            TaskState::Ready
        }
        // If it is selected later, it is not to be read again.
        ChangeKind::Created | ChangeKind::Updated => TaskState::Unwanted,
    };
    let task = NewTask {
        resource,
        source: context.source,
        set: context.set,
        origin: context.origin,
        change,
        state,
        not_before,
        since,
    };
    let is_put = task::put(sql, &task)?;
    Ok(match state {
        TaskState::Unwanted => {
            if !is_put {
                task::unselect(sql, resource)?;
            }
            false
        }
        // It was not selected before. What is served in another type than is selected stays.
        TaskState::Ready if !is_put && change.standing.is_some() => task::select(sql, resource)?,
        _ => is_put,
    })
}

/// A resource that is requested again, whatever its documents have stated last: the Source's answer counts.
pub(super) struct RequestedAgain<'a> {
    pub(super) resource: ResourceId,
    /// The label of its Source.
    pub(super) source: &'a str,
    pub(super) uri: &'a ResourceUri,
    /// The set for which it is requested.
    pub(super) set: SetId,
    pub(super) origin: Origin,
    /// Whether the mirror has it.
    pub(super) is_live: bool,
}

impl RequestedAgain<'_> {
    /// Makes the request the resource's task. `since`: the time from which the mirror may be behind.
    pub(super) fn put(
        &self,
        sql: &Tallied<'_>,
        now: DateTime<Utc>,
        since: Option<SourceTime>,
    ) -> Result<(), StoreError> {
        let change = Change {
            kind: self.kind(),
            ..Change::deletion(self.uri.clone(), None)
        };
        let again = NewTask {
            resource: self.resource,
            source: self.source,
            set: self.set,
            origin: self.origin,
            change: &change,
            state: TaskState::Ready,
            not_before: now,
            since,
        };
        Ok(task::replace(sql, &again)?)
    }

    /// The task as a pending change.
    pub(super) fn pending(&self) -> Pending {
        Pending {
            kind: self.kind(),
            changed_at: None,
            unconfirmed: false,
            is_listed: self.origin.is_listing(),
        }
    }

    fn kind(&self) -> ChangeKind {
        if self.is_live {
            ChangeKind::Updated
        } else {
            ChangeKind::Created
        }
    }
}
