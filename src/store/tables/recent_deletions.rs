//! `loss`: deletions that were released within the last seconds without a person's approval, and within the last day where only
//! a hub has stated them.

use chrono::{DateTime, Utc};

use super::linked;
use super::values::{Count, Micros};
use crate::store::ids::SetId;
use crate::store::sql::{Connection, Result, params};

/// How many resources were lost to recent deletions.
pub(crate) struct RecentDeletions {
    /// Those that are deleted, or will be.
    pub(crate) all: u64,
    /// Those that are deleted.
    pub(crate) applied: u64,
}

/// Deletes the rows outside these times. A later time comes from a clock that was set back since. Rows of unconfirmed deletions stay
/// from an earlier time on.
pub(crate) fn delete_outside(
    sql: &Connection,
    set: SetId,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
    unconfirmed_from: DateTime<Utc>,
) -> Result<()> {
    sql.prepare_cached(
        "DELETE FROM loss WHERE set_id = ?1
             AND let_go_at NOT BETWEEN CASE unconfirmed WHEN 0 THEN CAST(?2 AS BIGINT) ELSE CAST(?4 AS BIGINT) END AND ?3",
    )?
    .execute(params![
        set,
        Micros(from),
        Micros(until),
        Micros(unconfirmed_from)
    ])?;
    Ok(())
}

/// Whether there are rows outside these times.
pub(crate) fn any_outside(
    sql: &Connection,
    set: SetId,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM loss WHERE set_id = ?1 AND let_go_at NOT BETWEEN ?2 AND ?3")?
        .exists(params![set, Micros(from), Micros(until)])
}

/// An upper bound of [`count`] that costs less: it counts resources that were created again.
pub(crate) fn estimate(
    sql: &Connection,
    set: SetId,
    since: DateTime<Utc>,
) -> Result<RecentDeletions> {
    sql.prepare_cached("SELECT COUNT(*) FROM loss WHERE set_id = ?1 AND let_go_at >= ?2")?
        .query_row(params![set, Micros(since)], |row| {
            Ok(RecentDeletions {
                all: row.get::<_, Count>(0)?.0,
                applied: 0,
            })
        })
}

/// The deletions since a time that were not undone by a later change, with those of linked files whose owners are being deleted. There
/// are few: more would have been held back.
pub(crate) fn count(sql: &Connection, set: SetId, since: DateTime<Utc>) -> Result<RecentDeletions> {
    sql.prepare_cached(
        "SELECT COUNT(*), CAST(COALESCE(SUM(resource.deleted), 0) AS BIGINT)
         FROM loss JOIN resource ON resource.id = loss.resource_id
         WHERE loss.set_id = ?1 AND loss.let_go_at >= ?2 AND (resource.deleted = 1 OR EXISTS (
             SELECT 1 FROM task WHERE task.resource_id = loss.resource_id AND task.kind = 'deleted')
           OR (EXISTS (SELECT 1 FROM linked WHERE linked.resource_id = loss.resource_id AND linked.set_id = ?1 AND linked.named = 1)
             AND NOT EXISTS (SELECT 1 FROM linked
                 WHERE linked.resource_id = loss.resource_id AND linked.set_id = ?1 AND linked.named = 1 AND NOT EXISTS (
                     SELECT 1 FROM task WHERE task.resource_id = linked.owner_id AND task.kind = 'deleted'))))",
    )?
    .query_row(params![set, Micros(since)], |row| {
        Ok(RecentDeletions {
            all: row.get::<_, Count>(0)?.0,
            applied: row.get::<_, Count>(1)?.0,
        })
    })
}

/// What an insertion does with the row of a resource that is there.
const REPLACE: &str = "ON CONFLICT (resource_id) DO UPDATE SET set_id = excluded.set_id, let_go_at = excluded.let_go_at,
    unconfirmed = excluded.unconfirmed";

/// Inserts the undecided deletions of resources that the mirror has.
pub(crate) fn insert_undecided(sql: &Connection, set: SetId, now: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(&format!(
        "INSERT INTO loss (resource_id, set_id, let_go_at, unconfirmed)
         SELECT task.resource_id, task.set_id, ?2, task.unconfirmed FROM task JOIN resource ON resource.id = task.resource_id
         WHERE task.set_id = ?1 AND task.state = 'undecided' AND task.kind = 'deleted'
           AND resource.applied_at IS NOT NULL AND resource.deleted = 0
         {REPLACE}"
    ))?
    .execute(params![set, Micros(now)])?;
    Ok(())
}

/// Inserts the files that go with the undecided deletions, now that these are released: what links to them is deleted, or will be.
pub(crate) fn insert_dependent(sql: &Connection, set: SetId, now: DateTime<Utc>) -> Result<()> {
    if !linked::any(sql)? {
        return Ok(());
    }
    let goes = linked::deleted_with_owners("?1", "'undecided', 'ready', 'failed'");
    sql.prepare_cached(&format!(
        "INSERT INTO loss (resource_id, set_id, let_go_at, unconfirmed)
         SELECT linked.resource_id, ?1, ?2, MAX(task.unconfirmed)
         FROM task CROSS JOIN linked ON linked.owner_id = task.resource_id AND linked.set_id = ?1
         CROSS JOIN resource ON resource.id = linked.resource_id
         WHERE task.set_id = ?1 AND task.kind = 'deleted' AND task.state = 'undecided' AND {goes}
         GROUP BY linked.resource_id {REPLACE}"
    ))?
    .execute(params![set, Micros(now)])
    .map(drop)
}

pub(crate) fn delete_of_source(sql: &Connection, source: &str) -> Result<()> {
    sql.prepare_cached(
        "DELETE FROM loss WHERE set_id IN (SELECT id FROM source_set WHERE source = ?1)",
    )?
    .execute([source])?;
    Ok(())
}
