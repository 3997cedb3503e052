//! `uptime`: when the daemon was last known to run; one row.

use chrono::{DateTime, Utc};

use super::values::Micros;
use crate::store::sql::{Connection, OptionalExtension, Result};

pub(crate) fn seen_at(sql: &Connection) -> Result<Option<DateTime<Utc>>> {
    let seen_at = sql
        .prepare_cached("SELECT seen_at FROM uptime")?
        .query_row([], |row| row.get::<_, Micros>(0))
        .optional()?;
    Ok(seen_at.map(DateTime::from))
}

pub(crate) fn set_seen_at(sql: &Connection, now: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO uptime (id, seen_at) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET seen_at = ?1",
    )?
    .execute([Micros(now)])
    .map(drop)
}
