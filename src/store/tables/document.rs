//! `document`: the validators of documents that need not be read again while they are unchanged.

use resyncd_core::Validators;

use super::part;
use crate::store::ids::SetId;
use crate::store::sql::{Connection, OptionalExtension, Result, params};

/// A document that was read, by which an unchanged one is recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRecord {
    /// Where it was fetched.
    pub uri: String,
    /// Its validators.
    pub validators: Validators,
    /// The SHA-256 of its bytes.
    pub digest: [u8; 32],
}

pub(crate) fn get(sql: &Connection, set: SetId, uri: &str) -> Result<Option<DocumentRecord>> {
    sql.prepare_cached(
        "SELECT uri, etag, last_modified, digest FROM document WHERE set_id = ?1 AND uri = ?2",
    )?
    .query_row(params![set, uri], |row| {
        Ok(DocumentRecord {
            uri: row.get(0)?,
            validators: Validators {
                etag: row.get(1)?,
                last_modified: row.get(2)?,
            },
            digest: row.get(3)?,
        })
    })
    .optional()
}

pub(crate) fn save(sql: &Connection, set: SetId, document: &DocumentRecord) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO document (set_id, uri, etag, last_modified, digest) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (set_id, uri) DO UPDATE SET etag = ?3, last_modified = ?4, digest = ?5",
    )?
    .execute(params![
        set,
        document.uri,
        document.validators.etag,
        document.validators.last_modified,
        document.digest
    ])?;
    Ok(())
}

pub(crate) fn delete(sql: &Connection, set: SetId, uri: &str) -> Result<()> {
    sql.prepare_cached("DELETE FROM document WHERE set_id = ?1 AND uri = ?2")?
        .execute(params![set, uri])?;
    Ok(())
}

pub(crate) fn delete_all(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM document WHERE set_id = ?1")?
        .execute([set])?;
    Ok(())
}

/// Deletes the documents of the parts that this reading of the Resource List did not name.
pub(crate) fn delete_of_unnamed_parts(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached(&format!(
        "DELETE FROM document WHERE set_id = ?1 AND uri IN (SELECT uri FROM part WHERE {})",
        part::IS_UNNAMED
    ))?
    .execute([set])?;
    Ok(())
}
