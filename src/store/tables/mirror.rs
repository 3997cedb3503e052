//! `mirror`: the id of the mirror that was used last, one a Source.

use crate::store::sql::{Connection, OptionalExtension, Result};

/// The id of a Source's mirror; `None`: none was used yet.
pub(crate) fn id(sql: &Connection, source: &str) -> Result<Option<String>> {
    sql.prepare_cached("SELECT id FROM mirror WHERE source = ?1")?
        .query_row([source], |row| row.get(0))
        .optional()
}

/// The Sources that have used a mirror, each with the id of the last one.
pub(crate) fn all(sql: &Connection) -> Result<Vec<(String, String)>> {
    sql.prepare_cached("SELECT source, id FROM mirror")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// Records the mirror of a Source.
pub(crate) fn set_id(sql: &Connection, source: &str, id: &str) -> Result<()> {
    sql.execute(
        "INSERT INTO mirror (source, id) VALUES (?1, ?2) ON CONFLICT (source) DO UPDATE SET id = ?2",
        [source, id],
    )
    .map(drop)
}

/// Forgets the folders of versions of a Source.
pub(crate) fn remove_versions(sql: &Connection, source: &str) -> Result<()> {
    sql.execute(
        "DELETE FROM mirror WHERE source > ?1 || '/versions:' AND source < ?1 || '/versions;'",
        [source],
    )
    .map(drop)
}

/// Forgets the mirror of a Source.
pub(crate) fn remove(sql: &Connection, source: &str) -> Result<()> {
    sql.execute("DELETE FROM mirror WHERE source = ?1", [source])
        .map(drop)
}
