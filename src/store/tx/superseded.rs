//! Tasks that were dropped while they were executed: a document stated that the mirror was up to date without them, and then
//! they changed the mirror all the same. The change is undone by a new task.

use chrono::{DateTime, Utc};
use rusqlite::Connection;

use super::batch_context::BatchContext;
use super::put_task::put_task;
use crate::protocol::{Algorithm, ChangeKind, ContentInfo, Digest};
use crate::store::change::Change;
use crate::store::error::StoreError;
use crate::store::tables::task::Task;
use crate::store::tables::{coverage, resource, task};

/// The state that the mirror had and was to keep, as a change.
pub(super) struct SupersededTask(Change);

impl SupersededTask {
    /// Whether an executed task was dropped meanwhile. If a newer task has taken its place, that one corrects the mirror.
    pub(super) fn find(sql: &Connection, task: &Task) -> Result<Option<Self>, StoreError> {
        let Some(applied) = resource::applied_without_task(sql, task.resource)? else {
            return Ok(None);
        };
        let kind = match (applied.deleted, task.kind) {
            (true, _) => ChangeKind::Deleted,
            (false, ChangeKind::Deleted) => ChangeKind::Created,
            (false, _) => ChangeKind::Updated,
        };
        // A digest that we computed ourselves may be that of other bytes than the Source has by now.
        let is_ours = |hash: &Digest| hash.algorithm() == Algorithm::Sha256;
        let is_announced =
            !task.content.hashes.is_empty() || !applied.content.hashes.iter().all(is_ours);
        let content = match is_announced {
            true => applied.content,
            false => ContentInfo {
                media_type: applied.content.media_type,
                ..ContentInfo::default()
            },
        };
        Ok(Some(Self(Change {
            uri: task.uri.clone(),
            kind,
            changed_at: applied.changed_at,
            lastmod: applied.lastmod,
            content,
            links: applied.links,
            authority: task.uri.authority(),
            late: false,
            frequency: None,
            encoding: None,
            unconfirmed: false,
        })))
    }

    /// Adds the task that restores that state.
    pub(super) fn restore(
        &self,
        sql: &Connection,
        task: &Task,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let context = BatchContext::read(sql, task.set, &task.source, task.origin, now)?;
        put_task(sql, &context, task.resource, &self.0)?;
        // A deletion was decided before, and is not decided again. `synced_until` is not lowered, because it was claimed
        // already; but it does not advance either.
        let since = coverage::unbroken_until(sql, task.set)?.max(self.0.changed_at);
        Ok(task::release(sql, task.resource, since)?)
    }
}
