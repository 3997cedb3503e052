//! Restores what the mirror had: a task was dropped while it was executed, because a document stated that the mirror was up to date
//! without it, and then it changed the mirror all the same, or may have done so. The change is undone by a new task.

use chrono::{DateTime, Utc};
use resourcesync::{Algorithm, ChangeKind, ContentInfo, Digest};
use resyncd_core::ResourceUri;
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::put_task::put_task;
use crate::store::change::{Change, Origin, VersionRule};
use crate::store::error::StoreError;
use crate::store::ids::ResourceId;
use crate::store::tables::resource::FileAndTask;
use crate::store::tables::tally::Tallied;
use crate::store::tables::task::Task;
use crate::store::tables::{coverage, resource, task};

/// The state that the mirror had and was to keep, as a change.
pub(super) struct StateToRestore(Change);

impl StateToRestore {
    /// Whether an executed task was dropped meanwhile. If a newer task has taken its place, that one corrects the mirror.
    pub(super) fn find(
        sql: &Connection,
        task: &Task,
        before: FileAndTask,
    ) -> Result<Option<Self>, StoreError> {
        if before.has_task {
            return Ok(None);
        }
        let is_announced = !task.content.hashes.is_empty();
        let applied = Self::of(sql, task.resource, &task.uri, is_announced)?;
        Ok(applied.map(|Self(applied)| {
            let kind = match (applied.kind, task.kind) {
                (ChangeKind::Updated, ChangeKind::Deleted) => ChangeKind::Created,
                (kind, _) => kind,
            };
            Self(Change { kind, ..applied })
        }))
    }

    /// What was applied of a resource that has no task. `is_announced`: whether its Source states digests.
    fn of(
        sql: &Connection,
        resource: ResourceId,
        uri: &ResourceUri,
        is_announced: bool,
    ) -> Result<Option<Self>, StoreError> {
        let Some(applied) = resource::applied_without_task(sql, resource)? else {
            return Ok(None);
        };
        let kind = if applied.deleted {
            ChangeKind::Deleted
        } else {
            ChangeKind::Updated
        };
        // A digest that we computed ourselves may be that of other bytes than the Source has by now.
        let is_ours = |hash: &Digest| hash.algorithm() == Algorithm::Sha256;
        let content = if is_announced || !applied.content.hashes.iter().all(is_ours) {
            applied.content
        } else {
            ContentInfo {
                media_type: applied.content.media_type,
                ..ContentInfo::default()
            }
        };
        Ok(Some(Self(Change {
            uri: uri.clone(),
            kind,
            changed_at: applied.changed_at,
            lastmod: applied.lastmod,
            content,
            links: applied.links,
            authority: uri.authority(),
            overtaken: false,
            frequency: None,
            encoding: None,
            unconfirmed: applied.unconfirmed,
            standing: None,
            has_cut_links: false,
            linked: Vec::new(),
            version: VersionRule::Ignored,
        })))
    }

    /// Adds the task that restores that state.
    pub(super) fn restore(
        &self,
        sql: &Tallied<'_>,
        task: &Task,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let context = BatchContext::read(sql, task.set, &task.source, task.origin, now)?;
        self.put(sql, &context, task.resource)
    }

    fn put(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        resource: ResourceId,
    ) -> Result<(), StoreError> {
        put_task(sql, context, resource, &self.0)?;
        // A deletion was decided before, and is not decided again. `synced_until` is not lowered, because it was claimed
        // already; but it does not advance either.
        let since = coverage::unbroken_until(sql, context.set)?.max(self.0.changed_at);
        Ok(task::release(sql, resource, since)?)
    }
}

/// Requests the removal of a file that a resource in doubt may have; nothing is recorded of the resource, it has no task, and the
/// Source does not serve it.
pub(super) fn request_removal_of_unrecorded(
    sql: &Tallied<'_>,
    id: ResourceId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    resource::record_absence(sql, id, now)?;
    doubt_and_restore(sql, id).map(drop)
}

/// Marks the file of a resource as in doubt: a task whose result is not known may have changed it. If the resource has no task, nothing else
/// would replace the file: it gets one that restores what was applied. Returns the label of the Source if it has got one.
pub(crate) fn doubt_and_restore(
    sql: &Tallied<'_>,
    id: ResourceId,
) -> Result<Option<String>, StoreError> {
    resource::doubt(sql, id)?;
    let Some((source, set, uri)) = resource::followed(sql, id)? else {
        return Ok(None);
    };
    let Some(applied) = StateToRestore::of(sql, id, &uri, false)? else {
        return Ok(None);
    };
    let (origin, at_once) = (Origin::ChangeList, DateTime::UNIX_EPOCH);
    let context = BatchContext::read(sql, set, &source, origin, at_once)?;
    applied.put(sql, &context, id)?;
    drop(context);
    Ok(Some(source))
}
