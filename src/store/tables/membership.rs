//! `member`: which resources belong to which sets. (In the code a member is one of a package.)

use resyncd_core::ResourceUri;
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

use super::identity::Identity;
use super::values::{Count, invalid};
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Result, params};

/// Which kind of statement has made a resource belong to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    /// The newest Resource List or Resource Dump names it.
    Listed = 0,
    /// A change does, or did an older list.
    Changed = 1,
    /// Only links of other resources do.
    Linked = 2,
    /// Only who may not speak for the Source does.
    Claimed = 3,
}

impl ToSql for Membership {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok((*self as i64).into())
    }
}

impl FromSql for Membership {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let all = [Self::Listed, Self::Changed, Self::Linked, Self::Claimed];
        let number = i64::column_result(value)?;
        all.into_iter()
            .find(|it| *it as i64 == number)
            .ok_or_else(|| invalid("a membership"))
    }
}

/// Makes a resource belong to a set, or another statement the one that makes it belong.
pub(crate) fn set(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
    membership: Membership,
) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO member (set_id, resource_id, named_by) VALUES (?1, ?2, ?3)
         ON CONFLICT (set_id, resource_id) DO UPDATE SET named_by = ?3",
    )?
    .execute(params![set, resource, membership])
    .map(drop)
}

/// The first resource of a set after a row.
pub(crate) fn first_after(
    sql: &Connection,
    set: SetId,
    after: ResourceId,
) -> Result<Option<ResourceId>> {
    sql.prepare_cached(
        "SELECT resource_id FROM member WHERE set_id = ?1 AND resource_id > ?2 ORDER BY resource_id LIMIT 1",
    )?
    .query_row(params![set, after], |row| row.get(0))
    .optional()
}

/// The membership of a resource in a set.
pub(crate) fn get(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
) -> Result<Option<Membership>> {
    sql.prepare_cached("SELECT named_by FROM member WHERE set_id = ?1 AND resource_id = ?2")?
        .query_row(params![set, resource], |row| row.get(0))
        .optional()
}

/// Ends a membership; returns whether there was one.
pub(crate) fn delete(sql: &Connection, set: SetId, resource: ResourceId) -> Result<bool> {
    let deleted = sql
        .prepare_cached("DELETE FROM member WHERE set_id = ?1 AND resource_id = ?2")?
        .execute(params![set, resource])?;
    Ok(deleted > 0)
}

/// Whether a resource belongs to another set than this one that is followed.
pub(crate) fn is_in_another_set(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM member JOIN source_set ON source_set.id = member.set_id
         WHERE member.resource_id = ?1 AND member.set_id <> ?2 AND source_set.ended = 0",
    )?
    .exists(params![resource, set])
}

/// The sets that a resource belongs to, also those that are not followed any more.
pub(crate) fn sets_of(sql: &Connection, resource: ResourceId) -> Result<Vec<SetId>> {
    sql.prepare_cached("SELECT set_id FROM member WHERE resource_id = ?1")?
        .query_map([resource], |row| row.get(0))?
        .collect()
}

/// Whether a document of a set that is followed names a resource.
pub(crate) fn is_named_by_source(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM resource JOIN member ON member.resource_id = resource.id
              JOIN source_set ON source_set.id = member.set_id
         WHERE resource.source = ?1 AND resource.identity = ?2 AND member.named_by <> 3 AND source_set.ended = 0",
    )?
    .exists(params![source, Identity(uri)])
}

/// Whether a list or a change of a set names a resource whose URI begins with this origin and `/`. What only links name does not count.
pub(crate) fn is_origin_of_any(
    sql: &Connection,
    source: &str,
    set: SetId,
    origin: &str,
) -> Result<bool> {
    let root = format!("{origin}/");
    let Ok(of_root) = ResourceUri::parse(&root) else {
        return Ok(false);
    };
    // `0` follows `/`. Another scheme is another origin.
    sql.prepare_cached(
        "SELECT 1 FROM resource CROSS JOIN member ON member.set_id = ?2 AND member.resource_id = resource.id
         WHERE resource.source = ?1 AND resource.identity >= ?3 AND resource.identity < rtrim(?3, '/') || '0'
           AND substr(resource.uri, 1, length(?4)) = ?4 AND member.named_by < 2
         LIMIT 1",
    )?
    .exists(params![source, set, Identity(&of_root), root])
}

/// The next resources of a set, at most `limit`, and of each whether it has neither a file nor a change that is pending.
pub(crate) fn next(
    sql: &Connection,
    set: SetId,
    after: ResourceId,
    limit: usize,
) -> Result<Vec<(ResourceId, bool)>> {
    // With a subquery in its place, PostgreSQL would read the tasks of all sets first.
    sql.prepare_cached(
        "SELECT member.resource_id, doubted = 0 AND (applied_at IS NULL OR deleted = 1) AND task.resource_id IS NULL
         FROM member CROSS JOIN resource ON resource.id = member.resource_id
              LEFT JOIN task ON task.resource_id = member.resource_id
         WHERE member.set_id = ?1 AND member.resource_id > ?2 ORDER BY member.resource_id LIMIT ?3",
    )?
    .query_map(params![set, after, Count::of_rows(limit)], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?
    .collect()
}

/// The next resources of a set, at most `limit`, that more names than links, and which statement makes each of them belong to it.
pub(crate) fn next_unlinked(
    sql: &Connection,
    set: SetId,
    after: ResourceId,
    limit: usize,
) -> Result<Vec<(ResourceId, Membership)>> {
    sql.prepare_cached(
        "SELECT resource_id, named_by FROM member WHERE set_id = ?1 AND resource_id > ?2 AND named_by <> 2
         ORDER BY resource_id LIMIT ?3",
    )?
    .query_map(params![set, after, Count::of_rows(limit)], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?
    .collect()
}
