//! `resource_count` and `resource_limit`: how many rows each Source has in `resource`, and how many one may have.

use crate::store::sql::{Connection, OptionalExtension, Result};

use super::values::Count;

/// Stores how many resources a Source may have; `None`: any number.
pub(crate) fn set_limit(sql: &Connection, most: Option<u64>) -> Result<()> {
    sql.execute(
        "UPDATE resource_limit SET most = ?1 WHERE most IS DISTINCT FROM ?1",
        [most.map(Count)],
    )
    .map(drop)
}

/// Counts another resource of a Source; `false`: it has as many as it may have.
pub(crate) fn admit(sql: &Connection, source: &str) -> Result<bool> {
    let counted = sql
        .prepare_cached(
            "INSERT INTO resource_count (source, resources) SELECT ?1, 1 FROM resource_limit WHERE most IS NULL OR most > 0
             ON CONFLICT (source) DO UPDATE SET resources = resource_count.resources + 1
             WHERE resource_count.resources < COALESCE((SELECT most FROM resource_limit), resource_count.resources + 1)",
        )?
        .execute([source])?;
    Ok(counted == 1)
}

/// How many rows a Source has.
pub(crate) fn of_source(sql: &Connection, source: &str) -> Result<u64> {
    let counted = sql
        .prepare_cached("SELECT resources FROM resource_count WHERE source = ?1")?
        .query_row([source], |row| row.get::<_, Count>(0))
        .optional()?;
    Ok(counted.map_or(0, u64::from))
}
