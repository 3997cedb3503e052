//! `removed_resource`: the URIs of resources whose rows were removed, for the entries of the feed that name those rows still.
//! `last` is the last number of the feed at the removal: no later entry names the row.

use crate::store::sql::{Connection, Result};

use super::values::Count;

/// Those that no entry of the feed names any more.
const UNNAMED: &str = "last < COALESCE((SELECT MIN(seq) FROM feed), 9223372036854775807)";

/// Whether there are rows that no entry of the feed names any more.
pub(crate) fn has_unnamed(sql: &Connection) -> Result<bool> {
    sql.prepare_cached(&format!(
        "SELECT EXISTS (SELECT 1 FROM removed_resource WHERE {UNNAMED})"
    ))?
    .query_row([], |row| row.get(0))
}

/// Removes the rows that no entry of the feed names any more, `most` at most; returns how many.
pub(crate) fn trim(sql: &Connection, most: usize) -> Result<usize> {
    sql.prepare_cached(&format!(
        "DELETE FROM removed_resource WHERE id IN (SELECT id FROM removed_resource WHERE {UNNAMED} ORDER BY last LIMIT ?1)"
    ))?
    .execute([Count::of_rows(most)])
}
