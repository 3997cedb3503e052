//! Resources: what the mirror has, which sets they belong to, and the sets' sums of them.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, params};

use super::links::links;
use super::{ResourceId, SetId, Store, StoreError, row};
use crate::protocol::{Link, ResourceUri, SourceTime};

/// What is known of a resource.
#[derive(Clone, Debug)]
pub struct ResourceView {
    /// Its URI.
    pub uri: ResourceUri,
    /// The label of its Source.
    pub source: String,
    /// The Capability List of the set that told of it.
    pub set: String,
    /// Its file, relative to the mirror.
    pub path: Option<String>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// The media type that was told, or served.
    pub media_type: Option<String>,
    /// The digests of the file, as the `hash` attribute has them; empty where the Source tells none.
    pub hashes: String,
    /// When it was last modified.
    pub lastmod: Option<SourceTime>,
    /// When the change happened that was applied last.
    pub changed_at: Option<SourceTime>,
    /// When that was applied, on our clock.
    pub applied_at: Option<DateTime<Utc>>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// What it is related to (section 14).
    pub links: Vec<Link>,
}

impl Store {
    /// What is known of a resource that was applied at least once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn resource(
        self: &Arc<Self>,
        uri: &ResourceUri,
    ) -> Result<Option<ResourceView>, StoreError> {
        let uri = uri.to_string();
        self.read(move |sql| {
            let mut query = sql.prepare_cached(
                "SELECT resource.uri, resource.source, source_set.capability_list, path, length, media_type, hashes, lastmod,
                        changed_at, applied_at, deleted, links
                 FROM resource JOIN source_set ON source_set.id = resource.set_id
                 WHERE resource.source IN (SELECT DISTINCT source FROM source_set) AND uri = ?1 AND applied_at IS NOT NULL
                 ORDER BY deleted, resource.id LIMIT 1",
            )?;
            let mut rows = query.query([uri])?;
            let Some(found) = rows.next()? else { return Ok(None) };
            Ok(Some(ResourceView {
                uri: row::resource_uri(&found.get::<_, String>(0)?)?,
                source: found.get(1)?,
                set: found.get(2)?,
                path: found.get(3)?,
                length: found.get::<_, Option<i64>>(4)?.map(row::unsigned),
                media_type: found.get(5)?,
                hashes: found.get(6)?,
                lastmod: row::source_time(found.get(7)?),
                changed_at: row::source_time(found.get(8)?),
                applied_at: found.get::<_, Option<i64>>(9)?.map(row::datetime),
                deleted: found.get(10)?,
                links: links(found.get::<_, Option<String>>(11)?.as_deref())?,
            }))
        })
        .await
    }
}

/// The length of the resource's file; `None` if the mirror has none.
pub(super) fn live_length(
    sql: &Connection,
    resource: ResourceId,
) -> Result<Option<i64>, StoreError> {
    let mut query = sql.prepare_cached(
        "SELECT COALESCE(length, 0) FROM resource WHERE id = ?1 AND applied_at IS NOT NULL AND deleted = 0",
    )?;
    Ok(query.query_row([resource.0], |row| row.get(0)).optional()?)
}

/// How a resource is a member of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    /// The generation of its Resource List that it was seen in last.
    pub(super) generation: i64,
    /// The part of the list that named it.
    pub(super) part: Option<i64>,
}

/// Makes a resource a member of a set, or notes how it is one now. `before`: how it was one.
pub(super) fn join(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
    before: Option<Membership>,
    now: Membership,
) -> Result<(), StoreError> {
    let values = params![set.0, resource.0, now.generation, now.part];
    match before {
        Some(before) if before == now => {}
        Some(_) => {
            sql.prepare_cached("UPDATE member SET generation = ?3, part = ?4 WHERE set_id = ?1 AND resource_id = ?2")?
                .execute(values)?;
        }
        None => {
            sql.prepare_cached("INSERT INTO member (set_id, resource_id, generation, part) VALUES (?1, ?2, ?3, ?4)")?
                .execute(values)?;
            if let Some(length) = live_length(sql, resource)? {
                sum_up(sql, set, 1, length)?;
            }
        }
    }
    Ok(())
}

/// Ends a resource's membership in a set; answers whether it is still a member of another.
pub(super) fn leave(
    sql: &Connection,
    set: SetId,
    resource: ResourceId,
) -> Result<bool, StoreError> {
    let others = sql
        .prepare_cached("SELECT 1 FROM member WHERE resource_id = ?1 AND set_id <> ?2")?
        .exists(params![resource.0, set.0])?;
    if others {
        sql.prepare_cached("DELETE FROM member WHERE set_id = ?1 AND resource_id = ?2")?
            .execute(params![set.0, resource.0])?;
        if let Some(length) = live_length(sql, resource)? {
            sum_up(sql, set, -1, -length)?;
        }
    }
    Ok(others)
}

/// Adds to the sums of every set that a resource is a member of.
pub(super) fn sum_up_members(
    sql: &Connection,
    resource: ResourceId,
    count: i64,
    bytes: i64,
) -> Result<(), StoreError> {
    sql.prepare_cached(
        "UPDATE source_set SET resources = resources + ?2, bytes = bytes + ?3
         WHERE id IN (SELECT set_id FROM member WHERE resource_id = ?1)",
    )?
    .execute(params![resource.0, count, bytes])?;
    Ok(())
}

fn sum_up(sql: &Connection, set: SetId, count: i64, bytes: i64) -> Result<(), StoreError> {
    sql.prepare_cached(
        "UPDATE source_set SET resources = resources + ?2, bytes = bytes + ?3 WHERE id = ?1",
    )?
    .execute(params![set.0, count, bytes])?;
    Ok(())
}
