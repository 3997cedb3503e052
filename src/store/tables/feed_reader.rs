//! `feed_reader`: the lowest position of the feed that readers have named on each of the last days.

use crate::store::sql::{Connection, Result};

/// Stores a position that was named on that day.
pub(crate) fn lower(sql: &Connection, day: i64, position: i64) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO feed_reader (day, lowest) VALUES (?1, ?2)
         ON CONFLICT (day) DO UPDATE SET lowest = MIN(feed_reader.lowest, excluded.lowest)",
    )?
    .execute([day, position])
    .map(drop)
}

/// Removes the days before that one.
pub(crate) fn delete_before(sql: &Connection, day: i64) -> Result<()> {
    sql.prepare_cached("DELETE FROM feed_reader WHERE day < ?1")?
        .execute([day])
        .map(drop)
}

/// The lowest position that was named on that day or later; `None`: none was.
pub(crate) fn lowest_since(sql: &Connection, day: i64) -> Result<Option<i64>> {
    sql.prepare_cached("SELECT MIN(lowest) FROM feed_reader WHERE day >= ?1")?
        .query_row([day], |row| row.get(0))
}
