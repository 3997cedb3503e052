//! `last_hold`: the number that deletions got which were held back last. It has one row.

use crate::store::sql::{Connection, Result};

use super::values::Count;

/// The number that was given last.
pub(crate) fn get(sql: &Connection) -> Result<u64> {
    sql.prepare_cached("SELECT number FROM last_hold")?
        .query_row([], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// Gives the next number.
pub(crate) fn next(sql: &Connection) -> Result<u64> {
    sql.prepare_cached("UPDATE last_hold SET number = number + 1 RETURNING number")?
        .query_row([], |row| Ok(row.get::<_, Count>(0)?.0))
}
