//! `list`: documents that are to be read.

use rusqlite::{Connection, OptionalExtension, Result, params};
use url::Url;

use crate::protocol::{Capability, SourceTime};

pub(super) const TABLE: &str = "
    CREATE TABLE list (
        id INTEGER PRIMARY KEY,
        set_number INTEGER NOT NULL,
        capability TEXT NOT NULL,
        uri TEXT NOT NULL,
        depth INTEGER NOT NULL,
        from_time INTEGER,
        until_time INTEGER,
        UNIQUE (set_number, capability, uri)
    );
";

/// A document that is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingList {
    /// Where it is.
    pub uri: Url,
    /// How many indexes lead to it.
    pub depth: u32,
    /// The begin of its interval as the index states it, or the time of the list.
    pub from: Option<SourceTime>,
    /// The end of its interval as the index states it.
    pub until: Option<SourceTime>,
}

/// Adds a document, unless it is there.
pub(in crate::store::audit_db) fn insert(
    sql: &Connection,
    set: u32,
    capability: &Capability,
    list: &PendingList,
) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO list (set_number, capability, uri, depth, from_time, until_time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT DO NOTHING",
    )?
    .execute(params![
        set, capability, list.uri, list.depth, list.from, list.until,
    ])?;
    Ok(())
}

/// The next document of a set after an id, with its own id.
pub(in crate::store::audit_db) fn next(
    sql: &Connection,
    set: u32,
    capability: &Capability,
    after: i64,
) -> Result<Option<(i64, PendingList)>> {
    sql.prepare_cached(
        "SELECT id, uri, depth, from_time, until_time FROM list
         WHERE id > ?3 AND set_number = ?1 AND capability = ?2 ORDER BY id LIMIT 1",
    )?
    .query_row(params![set, capability, after], |row| {
        let list = PendingList {
            uri: row.get(1)?,
            depth: row.get(2)?,
            from: row.get(3)?,
            until: row.get(4)?,
        };
        Ok((row.get(0)?, list))
    })
    .optional()
}
