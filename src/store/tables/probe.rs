//! `probe`: bytes that are written to find out whether they fit on the disk, and then deleted.

use crate::store::sql::{Connection, Result};

/// Writes so many bytes, which no file system can compress.
pub(crate) fn fill(sql: &Connection, bytes: u64) -> Result<()> {
    let mut random = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    fastrand::fill(&mut random);
    sql.execute(
        "INSERT INTO probe (id, bytes) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes",
        [random],
    )
    .map(drop)
}

pub(crate) fn clear(sql: &Connection) -> Result<()> {
    sql.execute("DELETE FROM probe", []).map(drop)
}
