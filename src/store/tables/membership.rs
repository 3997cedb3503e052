//! `member`: which resources belong to which sets. (In the code a member is one of a package.)

use std::ops::RangeInclusive;

use resyncd_core::ResourceUri;
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::identity::Identity;
use super::part;
use super::values::{Count, column};
use crate::store::ids::{ResourceId, SetId};

/// How a resource belongs to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    /// The generation of the Resource List in which it was last named.
    pub(crate) generation: i64,
    /// The part of the list that named it, [`part::SEVERAL`], [`part::WHOLE`], [`part::LINKED`] or [`part::CLAIMED`]; `None`: a change has.
    pub(crate) part: Option<i64>,
}

pub(crate) fn insert(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
    membership: Membership,
) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO member (set_id, resource_id, generation, part) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute(params![
        set,
        resource,
        membership.generation,
        membership.part,
    ])?;
    Ok(())
}

pub(crate) fn update(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
    membership: Membership,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE member SET generation = ?3, part = ?4 WHERE set_id = ?1 AND resource_id = ?2",
    )?
    .execute(params![
        set,
        resource,
        membership.generation,
        membership.part,
    ])?;
    Ok(())
}

/// Updates the memberships of those of these resources that belong to the set.
pub(crate) fn update_range(
    sql: &Connection,
    set: SetId,
    resources: RangeInclusive<ResourceId>,
    membership: Membership,
) -> Result<()> {
    sql.prepare_cached(
        "UPDATE member SET generation = ?4, part = ?5
         WHERE set_id = ?1 AND resource_id BETWEEN ?2 AND ?3",
    )?
    .execute(params![
        set,
        resources.start(),
        resources.end(),
        membership.generation,
        membership.part,
    ])?;
    Ok(())
}

impl Membership {
    /// Whether only links of other resources name it.
    pub(crate) fn is_only_linked(self) -> bool {
        self.part == Some(part::LINKED)
    }

    /// Whether a list names it.
    pub(crate) fn is_listed(self) -> bool {
        !matches!(self.part, None | Some(part::LINKED | part::CLAIMED))
    }

    /// Whether no document of the Source names the resource.
    pub(crate) fn is_only_claimed(self) -> bool {
        self.part == Some(part::CLAIMED)
    }
}

/// The membership of a resource in a set.
pub(crate) fn get(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
) -> Result<Option<Membership>> {
    sql.prepare_cached(
        "SELECT generation, part FROM member WHERE set_id = ?1 AND resource_id = ?2",
    )?
    .query_row(params![set, resource], |row| {
        Ok(Membership {
            generation: row.get(0)?,
            part: row.get(1)?,
        })
    })
    .optional()
}

/// Whether a membership is in a part that is unchanged in that generation.
pub(crate) fn is_unchanged(
    sql: &Connection,
    membership: Membership,
    generation: i64,
) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM part WHERE id = ?1 AND unchanged = ?2 AND read <= ?3")?
        .exists(params![membership.part, generation, membership.generation])
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
         WHERE resource.source = ?1 AND resource.identity = ?2 AND member.part IS NOT -2 AND source_set.ended = 0",
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
           AND substr(resource.uri, 1, length(?4)) = ?4 AND (member.part IS NULL OR member.part NOT IN (-1, -2))
         LIMIT 1",
    )?
    .exists(params![source, set, Identity(&of_root), root])
}

/// The last of the next `limit` resources of a set after a resource; `None`: there are no more.
pub(crate) fn last_of_next(
    sql: &Connection,
    set: SetId,
    after: ResourceId,
    limit: i64,
) -> Result<Option<ResourceId>> {
    sql.prepare_cached(
        "SELECT MAX(resource_id) FROM (SELECT resource_id FROM member WHERE set_id = ?1 AND resource_id > ?2
                                       ORDER BY resource_id LIMIT ?3)",
    )?
    .query_row(params![set, after, limit], |row| row.get(0))
}

/// The next resources of a set, at most `limit`, and of each whether it has neither a file nor a change that is pending.
pub(crate) fn next(
    sql: &Connection,
    set: SetId,
    after: ResourceId,
    limit: usize,
) -> Result<Vec<(ResourceId, bool)>> {
    sql.prepare_cached(
        "SELECT resource_id, doubted = 0 AND (applied_at IS NULL OR deleted = 1)
             AND NOT EXISTS (SELECT 1 FROM task WHERE task.resource_id = member.resource_id)
         FROM member CROSS JOIN resource ON resource.id = member.resource_id
         WHERE member.set_id = ?1 AND member.resource_id > ?2 ORDER BY member.resource_id LIMIT ?3",
    )?
    .query_map(params![set, after, Count::of_rows(limit)], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?
    .collect()
}

/// Resources of a set between `after` and `until`, at most `limit` of them, that none of these generations has named, neither itself nor,
/// in the last one, by an unchanged part. Those that only links name are none of them.
pub(crate) fn absent(
    sql: &Connection,
    set: SetId,
    generations: RangeInclusive<i64>,
    after: ResourceId,
    until: ResourceId,
    limit: usize,
) -> Result<Vec<(ResourceId, ResourceUri)>> {
    sql.prepare_cached(&format!(
        "SELECT member.resource_id, resource.uri FROM member JOIN resource ON resource.id = member.resource_id
         WHERE member.set_id = ?1 AND member.generation < ?5 AND member.resource_id > ?3 AND member.resource_id <= ?4
           AND member.part IS NOT -1 AND NOT {}
         ORDER BY member.resource_id LIMIT {limit}",
        part::NAMES_RESOURCE
    ))?
    .query_map(
        params![set, generations.end(), after, until, generations.start()],
        |row| Ok((row.get(0)?, column(row, 1)?)),
    )?
    .collect()
}

/// Whether a set has resources that this generation has not named, neither itself nor by an unchanged part.
pub(crate) fn any_absent(sql: &Connection, set: SetId, generation: i64) -> Result<bool> {
    sql.prepare_cached(&format!(
        "SELECT 1 FROM member WHERE set_id = ?1 AND generation < ?2 AND part IS NOT -1 AND NOT {} LIMIT 1",
        part::NAMES_RESOURCE
    ))?
    .exists(params![set, generation])
}

/// Whether any resource of a set is named by a part that is unchanged in this generation.
pub(crate) fn any_in_unchanged_parts(
    sql: &Connection,
    set: SetId,
    generation: i64,
) -> Result<bool> {
    sql.prepare_cached(&format!(
        "SELECT 1 FROM member WHERE set_id = ?1 AND {} LIMIT 1",
        part::NAMES_RESOURCE
    ))?
    .exists(params![set, generation])
}

/// Whether a set has resources of which this generation does not show whether they are absent: several parts named them, no part
/// that was read in this generation does, and others were skipped as unchanged.
pub(crate) fn any_uncertain(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM source_set WHERE id = ?1
         AND EXISTS (SELECT 1 FROM part WHERE set_id = ?1 AND unchanged = source_set.generation)
         AND EXISTS (SELECT 1 FROM member WHERE set_id = ?1 AND part = ?2 AND generation < source_set.generation)",
    )?
    .exists(params![set, part::SEVERAL])
}
