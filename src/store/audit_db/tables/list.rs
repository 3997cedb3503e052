//! `list`: documents that were read.

use resourcesync::Capability;
use rusqlite::{Connection, Result, params};
use url::Url;

use crate::store::tables::values::Column;

pub(super) const TABLE: &str = "
    CREATE TABLE list (
        id INTEGER PRIMARY KEY,
        set_number INTEGER NOT NULL,
        capability TEXT NOT NULL,
        uri TEXT NOT NULL,
        UNIQUE (set_number, capability, uri)
    );
";

/// Adds a document and returns its id; `None` if it is there.
pub(crate) fn insert(
    sql: &Connection,
    set: u32,
    capability: &Capability,
    uri: &Url,
) -> Result<Option<i64>> {
    let added = sql
        .prepare_cached(
            "INSERT INTO list (set_number, capability, uri) VALUES (?1, ?2, ?3)
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![set, Column(capability), uri])?;
    Ok((added > 0).then(|| sql.last_insert_rowid()))
}
