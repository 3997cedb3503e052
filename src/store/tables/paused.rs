//! `paused`: the Sources that a person has paused, and since when.

use chrono::{DateTime, Utc};

use super::values::Micros;
use crate::store::sql::{Connection, Result, params};

pub(crate) fn all(sql: &Connection) -> Result<Vec<(String, DateTime<Utc>)>> {
    sql.prepare_cached("SELECT source, since FROM paused")?
        .query_map([], |row| {
            let since: Micros = row.get(1)?;
            Ok((row.get(0)?, since.into()))
        })?
        .collect()
}

pub(crate) fn put(sql: &Connection, source: &str, since: DateTime<Utc>) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO paused (source, since) VALUES (?1, ?2) ON CONFLICT (source) DO NOTHING",
    )?
    .execute(params![source, Micros(since)])
    .map(drop)
}

pub(crate) fn delete(sql: &Connection, source: &str) -> Result<()> {
    sql.prepare_cached("DELETE FROM paused WHERE source = ?1")?
        .execute([source])
        .map(drop)
}
