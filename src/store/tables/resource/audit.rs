//! What an audit reads.

use chrono::{DateTime, Utc};
use resourcesync::{Digest, Link, SourceTime};
use resyncd_core::ResourceUri;
use resyncd_mirror::uris_of_plain_path;
use rusqlite::{Connection, OptionalExtension, Result, params};

use crate::store::error::StoreError;
use crate::store::tables::media_type::MediaType;
use crate::store::tables::mirrored_path;
use crate::store::tables::values::{Count, DigestList, HashAttribute, LinkList, Micros, column};

/// A row as an audit copies it.
pub(crate) struct StoredResource {
    pub(crate) uri: ResourceUri,
    pub(crate) path: Option<String>,
    pub(crate) length: Option<i64>,
    pub(crate) media_type: Option<String>,
    pub(crate) hashes: String,
    pub(crate) lastmod: Option<SourceTime>,
    pub(crate) changed_at: Option<SourceTime>,
    pub(crate) applied: bool,
    pub(crate) deleted: bool,
    pub(crate) links: Vec<Link>,
    /// The type and the links of its task, if that was not selected.
    pub(crate) unselected: Option<(Option<String>, Vec<Link>)>,
}

/// Passes all resources of a Source to `visit`, at most `rows` at a time.
pub(crate) fn visit(
    sql: &Connection,
    source: &str,
    rows: usize,
    mut visit: impl FnMut(Vec<StoredResource>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut query = sql.prepare(
        "SELECT uri, path, resource.length, resource.media_type, resource.hashes, resource.lastmod, resource.changed_at,
             applied_at IS NOT NULL, deleted, task.resource_id IS NOT NULL, task.media_type, task.links, resource.links
         FROM resource LEFT JOIN task ON task.resource_id = resource.id AND task.state = 'rejected' AND task.kind <> 'deleted'
         WHERE resource.source = ?1",
    )?;
    let mut found = query.query_map([source], |row| {
        let uri: ResourceUri = column(row, 0)?;
        Ok(StoredResource {
            path: mirrored_path::of(row.get(1)?, &uri),
            uri,
            length: row.get(2)?,
            media_type: row
                .get::<_, Option<MediaType>>(3)?
                .map(|media_type| media_type.0),
            hashes: row.get::<_, HashAttribute>(4)?.0,
            lastmod: column(row, 5)?,
            changed_at: column(row, 6)?,
            applied: row.get(7)?,
            deleted: row.get(8)?,
            unselected: if row.get(9)? {
                Some((row.get(10)?, row.get::<_, LinkList<_>>(11)?.0))
            } else {
                None
            },
            links: row.get::<_, LinkList<_>>(12)?.0,
        })
    })?;
    loop {
        let batch: Vec<_> = found.by_ref().take(rows).collect::<Result<_>>()?;
        if batch.is_empty() {
            return Ok(());
        }
        visit(batch)?;
    }
}

/// A file as the database describes it.
#[derive(Clone, Debug)]
pub struct KnownFile {
    /// Its path, relative to the mirror.
    pub path: Option<String>,
    /// Its length, in bytes.
    pub length: Option<u64>,
    /// Its digests.
    pub hashes: Vec<Digest>,
    /// When it was last modified.
    pub lastmod: Option<SourceTime>,
    /// When that was applied, on our clock; `None`: never yet.
    pub applied_at: Option<DateTime<Utc>>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Whether it has a task that is ready and has not failed.
    pub pending: bool,
}

/// The file of a resource, by its URI or, without one, by its path.
pub(crate) fn known_file(
    sql: &Connection,
    source: &str,
    uri: Option<&ResourceUri>,
    path: Option<&str>,
) -> Result<Option<KnownFile>> {
    let find = |condition: &str, name: &str| {
        sql.prepare_cached(&format!(
            "SELECT path, length, hashes, lastmod, applied_at, deleted,
                 EXISTS (SELECT 1 FROM task WHERE task.resource_id = resource.id AND task.state = 'ready' AND task.attempts = 0), uri
             FROM resource WHERE source = ?1 AND {condition}"
        ))?
        .query_row(params![source, name], |row| {
            Ok(KnownFile {
                path: mirrored_path::of(row.get(0)?, &column(row, 7)?),
                length: row.get::<_, Option<Count>>(1)?.map(u64::from),
                hashes: row.get::<_, DigestList<_>>(2)?.0,
                lastmod: column(row, 3)?,
                applied_at: row.get::<_, Option<Micros>>(4)?.map(DateTime::from),
                deleted: row.get(5)?,
                pending: row.get(6)?,
            })
        })
        .optional()
    };
    let path = match (uri, path) {
        (Some(uri), _) => return find("identity = ?2", &uri.identity()),
        (None, Some(path)) => path,
        (None, None) => return Ok(None),
    };
    if let Some(found) = find("path = ?2", path)? {
        return Ok(Some(found));
    }
    for uri in uris_of_plain_path(path) {
        if let Some(found) = find("identity = ?2 AND path IS NULL", &uri.identity())? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
