//! What an audit reads.

use chrono::{DateTime, Utc};
use resourcesync::{Digest, SourceTime};
use resyncd_core::ResourceUri;
use resyncd_mirror::uris_of_plain_path;

use crate::store::sql::{Connection, OptionalExtension, Result, params};
use crate::store::tables::mirrored_path;
use crate::store::tables::values::{Count, DigestList, Micros, column};

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
    match (uri, path) {
        (Some(uri), _) => find("identity = ?2", &uri.identity()),
        (None, Some(path)) => PathOwners::of(path).find(find),
        (None, None) => Ok(None),
    }
}

/// A path, and the URIs of which it is the plain one.
pub(crate) struct PathOwners<'a> {
    path: &'a str,
    uris: Vec<ResourceUri>,
}

impl<'a> PathOwners<'a> {
    pub(crate) fn of(path: &'a str) -> Self {
        let uris = uris_of_plain_path(path);
        Self { path, uris }
    }

    /// What is found of the resource that has the path. `find`: by a condition, and the value of its second parameter.
    pub(crate) fn find<T>(
        &self,
        find: impl Fn(&str, &str) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(found) = find("path = ?2", self.path)? {
            return Ok(Some(found));
        }
        for uri in &self.uris {
            if let Some(found) = find("identity = ?2 AND path IS NULL", &uri.identity())? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}
