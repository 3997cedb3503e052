//! `dump_package`: the packages of the current Resource Dump that were read.

use rusqlite::{Connection, OptionalExtension, Result, params};

use crate::store::ids::SetId;

/// A package of a Resource Dump that need not be read again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageRecord {
    /// Where the package is.
    pub uri: String,
    /// What the dump states of it. The record is valid for this version only.
    pub version: String,
    /// Whether its manifest was read completely: if not, a resource that it does not name is not proven to be deleted.
    pub proves: bool,
}

pub(crate) fn get(sql: &Connection, set: SetId, uri: &str) -> Result<Option<PackageRecord>> {
    sql.prepare_cached(
        "SELECT uri, version, proves FROM dump_package WHERE set_id = ?1 AND uri = ?2",
    )?
    .query_row(params![set, uri], |row| {
        Ok(PackageRecord {
            uri: row.get(0)?,
            version: row.get(1)?,
            proves: row.get(2)?,
        })
    })
    .optional()
}

pub(crate) fn save(sql: &Connection, set: SetId, package: &PackageRecord) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO dump_package (set_id, uri, version, proves) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (set_id, uri) DO UPDATE SET version = ?3, proves = ?4",
    )?
    .execute(params![set, package.uri, package.version, package.proves])?;
    Ok(())
}

pub(crate) fn delete_all(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM dump_package WHERE set_id = ?1")?
        .execute([set])?;
    Ok(())
}
