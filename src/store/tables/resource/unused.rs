//! Rows of `resource` that nothing needs: the mirror has no recorded file of them, none is in doubt, no set names them, and no change
//! of them is pending.
//!
//! A row of a resource that was deleted states when: that protects against older documents that still name it. It is unused once
//! the deletion was applied a while ago, and every set of the Source has read a Resource List of a later time.

use chrono::{DateTime, Utc};

use crate::store::ids::ResourceId;
use crate::store::sql::{Connection, Result, params};
use crate::store::tables::tally::Tallied;
use crate::store::tables::values::Micros;

/// `?1`: deletions that were applied before are old; `?2`: the Sources whose deletions remove the files, as JSON.
const IS_UNUSED: &str = "
    NOT EXISTS (SELECT 1 FROM task WHERE task.resource_id = resource.id)
    AND NOT EXISTS (SELECT 1 FROM member WHERE member.resource_id = resource.id)
    AND NOT EXISTS (SELECT 1 FROM loss WHERE loss.resource_id = resource.id)
    AND NOT EXISTS (SELECT 1 FROM dropped_task WHERE dropped_task.resource_id = resource.id)
    AND doubted = 0
    AND (applied_at IS NULL OR (
        deleted = 1 AND applied_at < ?1 AND source IN (SELECT value FROM json_each(CAST(?2 AS TEXT)))
        AND NOT EXISTS (SELECT 1 FROM source_set WHERE source_set.source = resource.source AND ended = 0
                        AND (list_at IS NULL OR list_at <= resource.changed_at))))";

/// Which rows are unused.
#[derive(Clone, Debug)]
pub(crate) struct UnusedRule {
    /// Deletions that were applied before this are old.
    pub(crate) deleted_before: DateTime<Utc>,
    /// The labels of the Sources whose deletions remove the files, as a JSON array.
    pub(crate) deleting: String,
}

impl UnusedRule {
    /// The rule by which a deletion is never old.
    pub(crate) fn without_deletions() -> Self {
        Self {
            deleted_before: DateTime::UNIX_EPOCH,
            deleting: "[]".to_owned(),
        }
    }
}

/// Rows of a range of ids whose use has changed.
#[derive(Debug, Default)]
pub(crate) struct FoundRows {
    /// Those that are unused, and since when that is known.
    pub(crate) unused: Vec<(ResourceId, Option<DateTime<Utc>>)>,
    /// Those that were unused and are used again.
    pub(crate) used: Vec<ResourceId>,
    /// The last id of the range; `None`: there are no rows behind `after`.
    pub(crate) last: Option<ResourceId>,
}

/// Looks at up to `most` rows after one.
pub(crate) fn find(
    sql: &Connection,
    after: ResourceId,
    most: usize,
    rule: &UnusedRule,
) -> Result<FoundRows> {
    let mut found = FoundRows::default();
    let mut statement = sql.prepare_cached(&format!(
        "SELECT id, unused_since, {IS_UNUSED} FROM resource WHERE id > ?3 ORDER BY id LIMIT ?4"
    ))?;
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![
        Micros(rule.deleted_before),
        rule.deleting,
        after,
        limit
    ])?;
    while let Some(row) = rows.next()?.as_ref() {
        let id: ResourceId = row.get(0)?;
        let since = row.get::<_, Option<Micros>>(1)?.map(DateTime::from);
        found.last = Some(id);
        match row.get::<_, Option<bool>>(2)? {
            Some(true) => found.unused.push((id, since)),
            _ if since.is_some() => found.used.push(id),
            _ => {}
        }
    }
    Ok(found)
}

/// Stores since when a row is known to be unused; `None`: it is used.
pub(crate) fn mark(sql: &Connection, id: ResourceId, since: Option<DateTime<Utc>>) -> Result<()> {
    sql.prepare_cached("UPDATE resource SET unused_since = ?2 WHERE id = ?1")?
        .execute(params![id, since.map(Micros)])
        .map(drop)
}

/// Removes a resource that is unused still. The last row of all stays, so that no id is used twice: the result of a task may arrive
/// after its row was removed.
pub(crate) fn remove(sql: &Tallied<'_>, id: ResourceId, rule: &UnusedRule) -> Result<()> {
    let is_unused = sql
        .prepare_cached(&format!(
            "SELECT 1 FROM resource WHERE id = ?3 AND id < (SELECT MAX(id) FROM resource) AND {IS_UNUSED}"
        ))?
        .exists(params![Micros(rule.deleted_before), rule.deleting, id])?;
    if is_unused {
        super::remove(sql, id)?;
    }
    Ok(())
}
