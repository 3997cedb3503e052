//! `tombstone`: the deletions that sets have stated of resources that other sets state, too. The row of a resource is shared: without the
//! tombstone an older entry of such a set would bring the resource back.

use resourcesync::SourceTime;
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::values::{Column, column};
use crate::store::ids::{ResourceId, SetId};

/// Stores that a set has stated the deletion of a resource at that time, unless it has stated a later one.
pub(crate) fn put(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
    deleted_at: SourceTime,
) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO tombstone (set_id, resource_id, deleted_at) VALUES (?1, ?2, ?3)
         ON CONFLICT (set_id, resource_id) DO UPDATE SET deleted_at = excluded.deleted_at
         WHERE tombstone.deleted_at < excluded.deleted_at",
    )?
    .execute(params![set, resource, Column(&deleted_at)])
    .map(drop)
}

/// When a set has stated last that a resource was deleted.
pub(crate) fn deleted_at(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
) -> Result<Option<SourceTime>> {
    sql.prepare_cached("SELECT deleted_at FROM tombstone WHERE set_id = ?1 AND resource_id = ?2")?
        .query_row(params![set, resource], |row| column(row, 0))
        .optional()
}

pub(crate) fn delete_of_set(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM tombstone WHERE set_id = ?1")?
        .execute([set])
        .map(drop)
}
