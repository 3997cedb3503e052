//! `linked`: which resources are fetched because the entries of others link to them (sections 14.3 and 14.5).
//!
//! Columns: `owner_id` is the resource whose entry has the link, in the documents of the set; `resource_id` its target; `kind` as what it is
//! linked; `named` 0 where the entry has the link no longer. Such a row stays until it is decided what becomes of the target.

use chrono::{DateTime, Utc};
use resyncd_core::{LinkedAs, ResourceUri};

use super::values::{Count, Micros, column};
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, Result, Row, params};

/// How many owners of a resource are stated.
const MAX_OWNERS: usize = 16;

fn number(linked_as: LinkedAs) -> i64 {
    match linked_as {
        LinkedAs::Alternate => 1,
        LinkedAs::Metadata => 2,
    }
}

fn of_number(number: i64) -> LinkedAs {
    match number {
        1 => LinkedAs::Alternate,
        _ => LinkedAs::Metadata,
    }
}

/// Whether links name any resource.
pub(crate) fn any(sql: &Connection) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM linked LIMIT 1")?
        .exists([])
}

/// A resource that a link names, or named.
pub(crate) struct LinkTarget {
    pub(crate) id: ResourceId,
    pub(crate) uri: ResourceUri,
    /// The set whose entry has, or had, the link.
    pub(crate) set: SetId,
}

impl LinkTarget {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            uri: column(row, 1)?,
            set: row.get(2)?,
        })
    }
}

/// The resources that an owner's entry in a set names.
pub(crate) fn named_by(sql: &Connection, owner: ResourceId, set: SetId) -> Result<Vec<LinkTarget>> {
    sql.prepare_cached(
        "SELECT linked.resource_id, resource.uri, linked.set_id FROM linked CROSS JOIN resource ON resource.id = linked.resource_id
         WHERE owner_id = ?1 AND linked.set_id = ?2 AND named = 1",
    )?
    .query_map(params![owner, set], LinkTarget::from_row)?
    .collect()
}

/// Stores that an owner's entry names a resource; returns whether it did not before.
pub(crate) fn name(
    sql: &Connection,
    owner: ResourceId,
    set: SetId,
    resource: ResourceId,
    linked_as: LinkedAs,
) -> Result<bool> {
    let was_named = sql
        .prepare_cached(
            "SELECT 1 FROM linked WHERE owner_id = ?1 AND set_id = ?2 AND resource_id = ?3 AND named = 1 AND kind = ?4",
        )?
        .exists(params![owner, set, resource, number(linked_as)])?;
    if was_named {
        return Ok(false);
    }
    sql.prepare_cached(
        "INSERT INTO linked (owner_id, set_id, resource_id, kind, named) VALUES (?1, ?2, ?3, ?4, 1)
         ON CONFLICT (owner_id, set_id, resource_id) DO UPDATE SET kind = ?4, named = 1",
    )?
    .execute(params![owner, set, resource, number(linked_as)])?;
    Ok(true)
}

/// Stores that an owner's entry names a resource no longer.
pub(crate) fn end(
    sql: &Connection,
    owner: ResourceId,
    set: SetId,
    resource: ResourceId,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE linked SET named = 0 WHERE owner_id = ?1 AND set_id = ?2 AND resource_id = ?3",
    )?
    .execute(params![owner, set, resource])
    .map(drop)
}

/// Stores that a set names nothing by an owner any more.
pub(crate) fn end_all_of(sql: &Connection, owner: ResourceId, set: SetId) -> Result<()> {
    sql.prepare_cached(
        "UPDATE linked SET named = 0 WHERE owner_id = ?1 AND set_id = ?2 AND named = 1",
    )?
    .execute(params![owner, set])
    .map(drop)
}

/// Stores that an owner, which is deleted, names nothing any more; returns what it named.
pub(crate) fn end_owner(sql: &Connection, owner: ResourceId) -> Result<Vec<LinkTarget>> {
    let targets: Vec<LinkTarget> = sql
        .prepare_cached(
            "SELECT linked.resource_id, resource.uri, linked.set_id FROM linked CROSS JOIN resource ON resource.id = linked.resource_id
             WHERE owner_id = ?1",
        )?
        .query_map([owner], LinkTarget::from_row)?
        .collect::<Result<_>>()?;
    if !targets.is_empty() {
        sql.prepare_cached("UPDATE linked SET named = 0 WHERE owner_id = ?1")?
            .execute([owner])?;
    }
    Ok(targets)
}

/// Whether an entry of any set names a resource.
pub(crate) fn is_named(sql: &Connection, resource: ResourceId) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM linked WHERE resource_id = ?1 AND named = 1")?
        .exists([resource])
}

/// Whether an entry of that set names a resource.
pub(crate) fn is_named_in(sql: &Connection, resource: ResourceId, set: SetId) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM linked WHERE resource_id = ?1 AND set_id = ?2 AND named = 1")?
        .exists(params![resource, set])
}

/// The resources whose entries name one, the first ones, and as what.
pub(crate) fn owners(
    sql: &Connection,
    resource: ResourceId,
) -> Result<Vec<(ResourceUri, LinkedAs)>> {
    // In the order of the index: there may be very many.
    let mut query = sql.prepare_cached(
        "SELECT resource.uri, linked.kind FROM linked INDEXED BY linked_by CROSS JOIN resource ON resource.id = linked.owner_id
         WHERE linked.resource_id = ?1 AND linked.named = 1 LIMIT ?2",
    )?;
    let mut rows = query.query(params![resource, Count::of_rows(MAX_OWNERS)])?;
    let mut owners = Vec::new();
    while let Some(row) = rows.next()?.as_ref() {
        let owner = (column(row, 0)?, of_number(row.get(1)?));
        // Several sets may have it.
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }
    Ok(owners)
}

/// The resources that an entry of a set has named and names no longer, at most so many, without those whose deletion is planned.
pub(crate) fn ended(sql: &Connection, set: SetId, limit: usize) -> Result<Vec<LinkTarget>> {
    sql.prepare_cached(
        "SELECT DISTINCT linked.resource_id, resource.uri, linked.set_id FROM linked INDEXED BY linked_ended
         CROSS JOIN resource ON resource.id = linked.resource_id
         WHERE linked.set_id = ?1 AND named = 0
           AND NOT EXISTS (SELECT 1 FROM task WHERE task.resource_id = linked.resource_id AND task.kind = 'deleted')
         LIMIT ?2",
    )?
    .query_map(params![set, Count::of_rows(limit)], LinkTarget::from_row)?
    .collect()
}

/// Forgets which entries of a set have named a resource.
pub(crate) fn forget_ended(sql: &Connection, resource: ResourceId, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM linked WHERE resource_id = ?1 AND set_id = ?2 AND named = 0")?
        .execute(params![resource, set])
        .map(drop)
}

/// A condition on a row of `linked`, and on `resource`, its target: the mirror has the file, and it goes with the resource that links to
/// it in the set, because all owners are to be deleted, by deletions in one of those states.
pub(super) fn deleted_with_owners(set: &str, states: &str) -> String {
    format!(
        "linked.named = 1 AND resource.applied_at IS NOT NULL AND resource.deleted = 0
           AND EXISTS (SELECT 1 FROM member WHERE member.set_id = {set} AND member.resource_id = linked.resource_id AND member.named_by = 2)
           AND NOT EXISTS (SELECT 1 FROM linked AS other
               WHERE other.resource_id = linked.resource_id AND other.set_id = {set} AND other.named = 1
                 AND NOT EXISTS (SELECT 1 FROM task AS its WHERE its.resource_id = other.owner_id AND its.set_id = {set}
                     AND its.kind = 'deleted' AND its.state IN ({states})))
           AND NOT EXISTS (SELECT 1 FROM task AS own WHERE own.resource_id = linked.resource_id AND own.kind = 'deleted')"
    )
}

/// How many files go with the deletions of a set that are held back or not decided yet: those that no other resource names. Those that
/// count as deletions since a time are left out.
pub(crate) fn count_dependent(sql: &Connection, set: SetId, since: DateTime<Utc>) -> Result<u64> {
    if !any(sql)? {
        return Ok(0);
    }
    // Owners whose deletion was released before are gone, too, or will be.
    let goes = deleted_with_owners("?1", "'undecided', 'held', 'ready', 'failed'");
    sql.prepare_cached(&format!(
        "SELECT COUNT(DISTINCT linked.resource_id) FROM task CROSS JOIN linked ON linked.owner_id = task.resource_id AND linked.set_id = ?1
         CROSS JOIN resource ON resource.id = linked.resource_id
         WHERE task.set_id = ?1 AND task.kind = 'deleted' AND task.state IN ('undecided', 'held') AND {goes}
           AND NOT EXISTS (SELECT 1 FROM loss WHERE loss.resource_id = linked.resource_id AND loss.let_go_at >= ?2)"
    ))?
    .query_row(params![set, Micros(since)], |row| Ok(row.get::<_, Count>(0)?.0))
}
