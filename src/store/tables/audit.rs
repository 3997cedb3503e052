//! `audit`: the last audit of each Source, with its result as JSON.

use chrono::{DateTime, Utc};

use super::values::Micros;
use crate::store::sql::{Connection, Result, params};

/// A Source, when its last audit began, or since when the first one is waited for, and the result of it.
pub(crate) type AuditRow = (String, DateTime<Utc>, Option<String>);

pub(crate) fn all(sql: &Connection) -> Result<Vec<AuditRow>> {
    sql.prepare_cached("SELECT source, at, result FROM audit")?
        .query_map([], |row| {
            let at: Micros = row.get(1)?;
            Ok((row.get(0)?, at.into(), row.get(2)?))
        })?
        .collect()
}

pub(crate) fn put(
    sql: &Connection,
    source: &str,
    at: DateTime<Utc>,
    result: Option<&str>,
) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO audit (source, at, result) VALUES (?1, ?2, ?3)
         ON CONFLICT (source) DO UPDATE SET at = ?2, result = ?3",
    )?
    .execute(params![source, Micros(at), result])
    .map(drop)
}

pub(crate) fn delete(sql: &Connection, source: &str) -> Result<()> {
    sql.prepare_cached("DELETE FROM audit WHERE source = ?1")?
        .execute([source])
        .map(drop)
}
