//! `known`: a copy of what the state database has of the Source's resources.

use rusqlite::{Connection, OptionalExtension, Result, params};

use crate::store::tables::identity::Identity;
use crate::store::tables::resource::audit::StoredResource;
use crate::store::tables::values::{Column, LinkList};

pub(super) const TABLE: &str = "
    CREATE TABLE known (
        identity TEXT PRIMARY KEY,
        uri TEXT NOT NULL,
        path TEXT,
        length INTEGER,
        media_type TEXT,
        hashes TEXT NOT NULL,
        links TEXT,
        lastmod INTEGER,
        changed_at INTEGER,
        applied INTEGER NOT NULL,
        deleted INTEGER NOT NULL,
        wanted INTEGER NOT NULL,
        unselected INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX known_path ON known (path);
";

/// Copies a row. `wanted`: whether the configuration includes the resource; `is_unselected`: whether it was not selected, as its type
/// was when it was served.
pub(crate) fn insert(
    sql: &Connection,
    row: &StoredResource,
    wanted: bool,
    is_unselected: bool,
) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO known (identity, uri, path, length, media_type, hashes, lastmod, changed_at, applied, deleted, wanted, unselected,
                            links)
         VALUES (?1, ?13, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?
    .execute(params![
        Identity(&row.uri),
        row.path,
        row.length,
        row.media_type,
        row.hashes,
        Column(&row.lastmod),
        Column(&row.changed_at),
        row.applied,
        row.deleted,
        wanted,
        is_unselected,
        LinkList(&row.links),
        Column(&row.uri),
    ])?;
    Ok(())
}

/// The resource that has a path.
pub(crate) struct KnownOwner {
    pub(crate) uri: String,
    pub(crate) wanted: bool,
    pub(crate) live: bool,
}

pub(crate) fn at_path(sql: &Connection, path: &str) -> Result<Option<KnownOwner>> {
    sql.prepare_cached("SELECT uri, wanted, applied AND NOT deleted FROM known WHERE path = ?1")?
        .query_row([path], |row| {
            Ok(KnownOwner {
                uri: row.get(0)?,
                wanted: row.get(1)?,
                live: row.get(2)?,
            })
        })
        .optional()
}
