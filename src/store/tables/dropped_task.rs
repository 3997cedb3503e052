//! `dropped_task`: resources whose task was dropped while it may have been executed, and whose result is not known yet.

use chrono::{DateTime, Utc};

use super::values::Micros;
use crate::store::ids::ResourceId;
use crate::store::sql::{Connection, Result, params};

/// Records that the task of a resource is about to be dropped, unless it was given up and is not due: then it is not being executed.
pub(crate) fn insert(sql: &Connection, resource: ResourceId, now: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO dropped_task (resource_id)
         SELECT resource_id FROM task WHERE resource_id = ?1 AND (state NOT IN ('failed', 'unavailable') OR not_before <= ?2)
         ON CONFLICT DO NOTHING",
    )?
    .execute(params![resource, Micros(now)])
    .map(drop)
}

/// Whether there are rows at all: mostly there are none.
pub(crate) fn any(sql: &Connection) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM dropped_task LIMIT 1")?
        .exists([])
}

/// Records that a result of the resource is stored: nothing older is executed any more.
pub(crate) fn delete(sql: &Connection, resource: ResourceId) -> Result<()> {
    sql.prepare_cached("DELETE FROM dropped_task WHERE resource_id = ?1")?
        .execute([resource])
        .map(drop)
}

/// Removes the rows of a Source, or all, and returns their resources.
pub(crate) fn take(sql: &Connection, source: Option<&str>) -> Result<Vec<ResourceId>> {
    sql.prepare_cached(
        "DELETE FROM dropped_task WHERE CAST(?1 AS TEXT) IS NULL OR resource_id IN (SELECT id FROM resource WHERE source = ?1) RETURNING resource_id",
    )?
    .query_map([source], |row| row.get(0))?
    .collect()
}
