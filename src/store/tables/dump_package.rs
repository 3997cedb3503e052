//! `dump_package`: the packages of the current Resource Dump that were read.

use crate::store::sql::{Connection, OptionalExtension, Result, params};

use crate::store::ids::SetId;
use crate::store::named::Named;

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

/// A package that was read, and the resources that it names.
pub(crate) fn get(
    sql: &Connection,
    set: SetId,
    uri: &str,
) -> Result<Option<(PackageRecord, Named)>> {
    sql.prepare_cached(
        "SELECT uri, version, proves, names FROM dump_package WHERE set_id = ?1 AND uri = ?2",
    )?
    .query_row(params![set, uri], |row| {
        let record = PackageRecord {
            uri: row.get(0)?,
            version: row.get(1)?,
            proves: row.get(2)?,
        };
        Ok((record, row.get(3)?))
    })
    .optional()
}

pub(crate) fn save(
    sql: &Connection,
    set: SetId,
    package: &PackageRecord,
    names: &Named,
) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO dump_package (set_id, uri, version, proves, names) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (set_id, uri) DO UPDATE SET version = ?3, proves = ?4, names = ?5",
    )?
    .execute(params![
        set,
        package.uri,
        package.version,
        package.proves,
        names
    ])?;
    Ok(())
}

pub(crate) fn delete_all(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM dump_package WHERE set_id = ?1")?
        .execute([set])?;
    Ok(())
}
