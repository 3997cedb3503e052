//! `gap`: the holes in the coverage of a set.

use resyncd_core::Gap;

use super::values::{Column, Micros, column, interval};
use crate::store::ids::SetId;
use crate::store::sql::{Connection, Result, params};

/// Whether a set of a Source has a gap.
pub(crate) fn has_any(sql: &Connection, source: &str) -> Result<bool> {
    sql.prepare_cached(
        "SELECT 1 FROM gap JOIN source_set ON source_set.id = gap.set_id WHERE source_set.source = ?1",
    )?
    .exists([source])
}

/// The gaps of a set, oldest first.
pub(crate) fn of_set(sql: &Connection, set: SetId) -> Result<Vec<Gap>> {
    sql.prepare_cached(
        "SELECT from_time, until_time, reason, since FROM gap WHERE set_id = ?1 ORDER BY from_time",
    )?
    .query_map([set], |row| {
        Ok(Gap {
            interval: interval(column(row, 0)?, column(row, 1)?)?,
            reason: column(row, 2)?,
            since: row.get::<_, Micros>(3)?.0,
        })
    })?
    .collect()
}

/// Replaces the gaps of a set.
pub(crate) fn save(sql: &Connection, set: SetId, gaps: &[Gap]) -> Result<()> {
    sql.prepare_cached("DELETE FROM gap WHERE set_id = ?1")?
        .execute([set])?;
    let mut insert = sql.prepare_cached(
        "INSERT INTO gap (set_id, from_time, until_time, reason, since) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for gap in gaps {
        let (from, until) = (gap.interval.from(), gap.interval.until());
        insert.execute(params![
            set,
            Column(&from),
            Column(&until),
            Column(&gap.reason),
            Micros(gap.since)
        ])?;
    }
    Ok(())
}
