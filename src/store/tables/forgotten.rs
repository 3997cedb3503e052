//! What is deleted of a Source that is forgotten. It concerns all tables but those of the feed, whose entries stay: their sets keep a
//! row, without content.

use resyncd_core::ResourceUri;

use super::mirrored_path;
use super::values::{Count, column};
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, Result, Row, params};

/// A resource whose row is to be deleted.
#[derive(Clone, Debug)]
pub struct ForgottenResource {
    /// Its row.
    pub id: ResourceId,
    /// Its URI.
    pub uri: ResourceUri,
    /// Its file, relative to the mirror; `None`: it never had one.
    pub path: Option<String>,
    /// The length of the file; `None`: the mirror does not have the resource.
    pub length: Option<u64>,
    /// The set that announced it last.
    pub(crate) set: SetId,
}

impl ForgottenResource {
    fn from_row(row: &Row<'_>) -> Result<Self> {
        let is_live: bool = row.get("live")?;
        let length: Option<Count> = row.get("length")?;
        let uri: ResourceUri = column(row, "uri")?;
        Ok(Self {
            id: row.get("id")?,
            path: mirrored_path::of(row.get("path")?, &uri),
            uri,
            length: is_live.then(|| length.map_or(0, u64::from)),
            set: row.get("set_id")?,
        })
    }
}

/// The next resources of a Source, at most so many.
pub(crate) fn next_resources(
    sql: &Connection,
    source: &str,
    most: usize,
) -> Result<Vec<ForgottenResource>> {
    sql.prepare_cached(
        "SELECT id, uri, path, length, set_id, applied_at IS NOT NULL AND deleted = 0 AS live
         FROM resource WHERE source = ?1 ORDER BY identity LIMIT ?2",
    )?
    .query_map(
        params![source, Count::of_rows(most)],
        ForgottenResource::from_row,
    )?
    .collect()
}

/// The sets of a Source, followed or not.
pub(crate) fn sets(sql: &Connection, source: &str) -> Result<Vec<SetId>> {
    sql.prepare_cached("SELECT id FROM source_set WHERE source = ?1")?
        .query_map([source], |row| row.get(0))?
        .collect()
}

/// Deletes what was read of the documents of a set: it begins with its baseline again, and is published again after that. Its channels and
/// its totals stay.
pub(crate) fn begin_set_anew(sql: &Connection, set: SetId) -> Result<()> {
    for statement in [
        "DELETE FROM coverage WHERE set_id = ?1",
        "DELETE FROM gap WHERE set_id = ?1",
        "DELETE FROM document WHERE set_id = ?1",
        "DELETE FROM part WHERE set_id = ?1",
        "DELETE FROM dump_package WHERE set_id = ?1",
        "DELETE FROM dump WHERE set_id = ?1",
        "DELETE FROM package_file WHERE set_id = ?1",
        "DELETE FROM published_set WHERE set_id = ?1",
        "UPDATE source_set SET baseline = 'missing', list_at = NULL, read_from = NULL, read_until = NULL, open_list = NULL,
             filter = NULL, read_filter = NULL, was_read = 0, reading_at = NULL
         WHERE id = ?1",
    ] {
        sql.prepare_cached(statement)?.execute([set])?;
    }
    Ok(())
}

/// Deletes the channels of a set, with their deliveries, and marks it as no longer followed.
pub(crate) fn end_set(sql: &Connection, set: SetId) -> Result<()> {
    for statement in [
        "DELETE FROM delivered WHERE channel_id IN (SELECT id FROM channel WHERE set_id = ?1)",
        "DELETE FROM inbox WHERE channel_id IN (SELECT id FROM channel WHERE set_id = ?1)",
        "DELETE FROM channel WHERE set_id = ?1",
        "UPDATE source_set SET ended = 1, offers = '[]' WHERE id = ?1",
    ] {
        sql.prepare_cached(statement)?.execute([set])?;
    }
    Ok(())
}

/// Clears the counts of a set that has no resources any more.
pub(crate) fn clear_counts(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached(
        "UPDATE source_set SET resources = 0, bytes = 0, shares = 0, checks_on = 0, checks = 0, held_since = NULL WHERE id = ?1",
    )?
    .execute([set])
    .map(drop)
}

/// What the mirror has of a set.
#[derive(Clone, Debug)]
pub struct SetTotals {
    /// Its row.
    pub id: SetId,
    /// Its Capability List.
    pub capability_list: String,
    /// Whether it is not followed any more.
    pub is_ended: bool,
    /// How many resources.
    pub resources: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What the mirror has of the sets of a Source; sets without resources are left out.
pub(crate) fn set_totals(sql: &Connection, source: &str) -> Result<Vec<SetTotals>> {
    sql.prepare_cached(
        "SELECT id, capability_list, ended, resources, bytes FROM source_set WHERE source = ?1 AND resources > 0 ORDER BY id",
    )?
    .query_map([source], |row| {
        Ok(SetTotals {
            id: row.get(0)?,
            capability_list: row.get(1)?,
            is_ended: row.get(2)?,
            resources: row.get::<_, Count>(3)?.0,
            bytes: row.get::<_, Count>(4)?.0,
        })
    })?
    .collect()
}

/// The next resources of a set, at most so many, that the mirror has and that belong to no other set than `former`: their numbers,
/// as JSON.
pub(crate) fn resources_of_former(
    sql: &Connection,
    set: SetId,
    former: &str,
    after: ResourceId,
    most: usize,
) -> Result<Vec<(ResourceId, ResourceUri)>> {
    sql.prepare_cached(
        "SELECT resource.id, resource.uri FROM member JOIN resource ON resource.id = member.resource_id
         WHERE member.set_id = ?1 AND member.resource_id > ?3 AND applied_at IS NOT NULL AND deleted = 0
           AND NOT EXISTS (SELECT 1 FROM member AS other WHERE other.resource_id = member.resource_id
                           AND CAST(other.set_id AS TEXT) NOT IN (SELECT CAST(value AS TEXT) FROM json_each(CAST(?2 AS TEXT))))
         ORDER BY member.resource_id LIMIT ?4",
    )?
    .query_map(params![set, former, after, Count::of_rows(most)], |row| {
        Ok((row.get(0)?, column(row, 1)?))
    })?
    .collect()
}
