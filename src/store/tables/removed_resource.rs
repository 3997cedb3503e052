//! `removed_resource`: the URIs of resources that have a row no longer, while the feed has entries of them. A trigger of `resource` fills
//! it. `last` is the number that the feed had come to by then.

use rusqlite::{Connection, Result};

/// Removes those of which the feed has no entries any more: they were removed up to that number.
pub(in crate::store) fn trim(sql: &Connection, last: i64) -> Result<()> {
    sql.prepare_cached("DELETE FROM removed_resource WHERE last <= ?1")?
        .execute([last])
        .map(drop)
}
