//! `dump`: the Resource Dump that is being read, one a set.

use crate::store::sql::{Connection, OptionalExtension, Result, params};

use crate::store::ids::SetId;

/// A Resource Dump that is being read, or was when the process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DumpProgress {
    /// Where its document was fetched.
    pub uri: String,
    /// The SHA-256 of its document.
    pub digest: [u8; 32],
}

/// The dump that is being read: none, if a Resource List has begun a generation of its own since.
pub(crate) fn in_progress(sql: &Connection, set: SetId) -> Result<Option<DumpProgress>> {
    sql.prepare_cached(
        "SELECT dump.uri, dump.digest FROM dump JOIN source_set ON source_set.id = dump.set_id
         WHERE dump.set_id = ?1 AND dump.generation = source_set.generation",
    )?
    .query_row([set], |row| {
        Ok(DumpProgress {
            uri: row.get(0)?,
            digest: row.get(1)?,
        })
    })
    .optional()
}

/// Inserts the dump of the generation that has begun.
pub(crate) fn insert(sql: &Connection, set: SetId, dump: &DumpProgress) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO dump (set_id, uri, digest, generation)
         SELECT id, ?2, ?3, generation FROM source_set WHERE id = ?1",
    )?
    .execute(params![set, dump.uri, dump.digest])?;
    Ok(())
}

/// Deletes the dump. Its packages refer to it, and must be deleted before.
pub(crate) fn delete(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("DELETE FROM dump WHERE set_id = ?1")?
        .execute([set])?;
    Ok(())
}
