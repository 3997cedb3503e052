//! `hook`: how far the hooks of Sources have come in the feed.

use crate::store::sql::{Connection, OptionalExtension, Result, params};

/// The number of the feed up to which a hook has accepted everything; `None`: it has no row.
pub(crate) fn position(sql: &Connection, source: &str, name: &str) -> Result<Option<i64>> {
    sql.prepare_cached("SELECT position FROM hook WHERE source = ?1 AND name = ?2")?
        .query_row([source, name], |row| row.get(0))
        .optional()
}

/// The lowest position of all hooks; `None`: there is none.
pub(crate) fn lowest(sql: &Connection) -> Result<Option<i64>> {
    sql.prepare_cached("SELECT MIN(position) FROM hook")?
        .query_row([], |row| row.get(0))
}

pub(crate) fn put(sql: &Connection, source: &str, name: &str, position: i64) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO hook (source, name, position) VALUES (?1, ?2, ?3)
         ON CONFLICT (source, name) DO UPDATE SET position = ?3",
    )?
    .execute(params![source, name, position])
    .map(drop)
}

/// All hooks that have a row: their Sources and names.
pub(crate) fn all(sql: &Connection) -> Result<Vec<(String, String)>> {
    sql.prepare_cached("SELECT source, name FROM hook")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

pub(crate) fn delete(sql: &Connection, source: &str, name: &str) -> Result<()> {
    sql.prepare_cached("DELETE FROM hook WHERE source = ?1 AND name = ?2")?
        .execute([source, name])
        .map(drop)
}
