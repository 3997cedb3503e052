//! `package_file`: the names of package files that a set still needs.

use std::collections::HashSet;

use crate::store::ids::SetId;
use crate::store::sql::{Connection, Result, params};

pub(crate) fn insert(sql: &Connection, set: SetId, name: &str) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO package_file (set_id, name) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    )?
    .execute(params![set, name])?;
    Ok(())
}

pub(crate) fn has_any(sql: &Connection, set: SetId) -> Result<bool> {
    sql.prepare_cached("SELECT 1 FROM package_file WHERE set_id = ?1")?
        .exists([set])
}

pub(crate) fn delete_all(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM package_file WHERE set_id = ?1")?
        .execute([set])?;
    Ok(())
}

/// The names of the followed sets of a Source.
pub(crate) fn of_source(sql: &Connection, source: &str) -> Result<HashSet<String>> {
    sql.prepare_cached(
        "SELECT name FROM package_file JOIN source_set ON source_set.id = package_file.set_id
         WHERE source_set.source = ?1 AND source_set.ended = 0",
    )?
    .query_map([source], |row| row.get(0))?
    .collect()
}
