//! Tasks that are called off while they are under way. A document has told that the mirror has what it should have, so that
//! the resource had no task any more; and then what was under way came to its end, and the mirror has it no more.

use chrono::{DateTime, Utc};
use rusqlite::{Connection, params};

use super::change_batch::{Change, Paths};
use super::links::links;
use super::planning::{Context, put_task};
use super::sets::unbroken_until;
use super::tasks::Task;
use super::{StoreError, row};
use crate::protocol::{Algorithm, ChangeKind, Digest, SourceTime};

/// What the mirror had of a resource, and was to keep.
pub(super) struct SupersededTask(Change);

impl SupersededTask {
    /// Looks whether a task that has come to its end was called off meanwhile. A newer one in its place does what is to be
    /// done.
    pub(super) fn find(sql: &Connection, task: &Task) -> Result<Option<Self>, StoreError> {
        let mut query = sql.prepare_cached(
            "SELECT deleted, changed_at, lastmod, length, media_type, hashes, links FROM resource
             WHERE id = ?1 AND applied_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM task WHERE resource_id = ?1)",
        )?;
        let mut rows = query.query([task.resource.0])?;
        let Some(found) = rows.next()? else {
            return Ok(None);
        };
        let was_deleted: bool = found.get(0)?;
        let kind = match (was_deleted, task.kind) {
            (true, _) => ChangeKind::Deleted,
            (false, ChangeKind::Deleted) => ChangeKind::Created,
            (false, _) => ChangeKind::Updated,
        };
        let hashes = row::hashes(&found.get::<_, String>(5)?);
        // What is only our own digest may be that of other bytes than the Source has by now.
        let is_ours = |hash: &Digest| hash.algorithm() == Algorithm::Sha256;
        let is_told = !task.hashes.is_empty() || !hashes.iter().all(is_ours);
        let length = found.get::<_, Option<i64>>(3)?.map(row::unsigned);
        Ok(Some(Self(Change {
            uri: task.uri.clone(),
            paths: Paths::given,
            kind,
            changed_at: row::source_time(found.get(1)?),
            lastmod: row::source_time(found.get(2)?),
            length: length.filter(|_| is_told),
            media_type: found.get(4)?,
            hashes: if is_told { hashes } else { Vec::new() },
            links: links(found.get::<_, Option<String>>(6)?.as_deref())?,
            authority: task.uri.authority(),
            late: false,
        })))
    }

    /// Has the mirror put right.
    pub(super) fn put_right(
        &self,
        sql: &Connection,
        task: &Task,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let context = Context::of(sql, task.set, &task.source, task.origin, now)?;
        put_task(sql, &context, task.resource, &self.0)?;
        // It was decided on before, so that it need not be weighed. What was claimed is not taken back; but nothing more is
        // claimed.
        let since = unbroken_until(sql, task.set)?.max(self.0.changed_at);
        sql.prepare_cached("UPDATE task SET state = 'ready', since = ?2 WHERE resource_id = ?1")?
            .execute(params![task.resource.0, since.map(SourceTime::micros)])?;
        Ok(())
    }
}
