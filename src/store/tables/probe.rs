//! `probe`: bytes that are written to find out whether they fit on the disk, and then deleted.

use crate::store::sql::{Connection, Result};

use super::values::Count;

/// Writes so many bytes, which no file system can compress.
pub(crate) fn fill(sql: &Connection, bytes: u64) -> Result<()> {
    sql.execute(
        "INSERT OR REPLACE INTO probe (id, bytes) VALUES (1, randomblob(?1))",
        [Count(bytes)],
    )
    .map(drop)
}

pub(crate) fn clear(sql: &Connection) -> Result<()> {
    sql.execute("DELETE FROM probe", []).map(drop)
}
