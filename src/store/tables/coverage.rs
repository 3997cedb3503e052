//! `coverage`: the intervals of the Source's time in which every change of a set is known.

use resourcesync::SourceTime;
use resyncd_core::Coverage;

use super::values::{Column, column, interval};
use crate::store::ids::SetId;
use crate::store::sql::{Connection, OptionalExtension, Result, params};

pub(crate) fn of_set(sql: &Connection, set: SetId) -> Result<Coverage> {
    sql.prepare_cached("SELECT from_time, until_time FROM coverage WHERE set_id = ?1")?
        .query_map([set], |row| interval(column(row, 0)?, column(row, 1)?))?
        .collect()
}

/// Replaces the coverage of a set.
pub(crate) fn save(sql: &Connection, set: SetId, coverage: &Coverage) -> Result<()> {
    sql.prepare_cached("DELETE FROM coverage WHERE set_id = ?1")?
        .execute([set])?;
    let mut insert = sql.prepare_cached(
        "INSERT INTO coverage (set_id, from_time, until_time) VALUES (?1, ?2, ?3)",
    )?;
    for interval in coverage.intervals() {
        insert.execute(params![
            set,
            Column(&interval.from()),
            Column(&interval.until())
        ])?;
    }
    Ok(())
}

/// The end of the first interval: every earlier change is known.
pub(crate) fn unbroken_until(sql: &Connection, set: SetId) -> Result<Option<SourceTime>> {
    sql.prepare_cached(
        "SELECT until_time FROM coverage WHERE set_id = ?1 ORDER BY from_time LIMIT 1",
    )?
    .query_row([set], |row| column(row, 0))
    .optional()
}
