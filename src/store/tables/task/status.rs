//! Counts and errors of tasks, for the status.

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, Result, params};

use super::TaskState;
use crate::store::ids::SetId;
use crate::store::tables::values::{Count, Micros};

/// The last error of a resource's task, code and message, or else its state; `None`: it has no task.
pub(in crate::store) fn error_of(
    sql: &Connection,
    source: &str,
    uri: &str,
) -> Result<Option<(String, String)>> {
    sql.prepare_cached(
        "SELECT COALESCE(error_code, state), COALESCE(error_message, 'it waits to be applied')
         FROM task JOIN resource ON resource.id = task.resource_id
         WHERE resource.source = ?1 AND resource.uri = ?2",
    )?
    .query_row([source, uri], |row| Ok((row.get(0)?, row.get(1)?)))
    .optional()
}

/// How many tasks of a Source are ready.
pub(in crate::store) fn count_ready(sql: &Connection, source: &str) -> Result<u64> {
    sql.prepare_cached("SELECT COUNT(*) FROM task WHERE source = ?1 AND state = 'ready'")?
        .query_row([source], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// How many checks of undated entries of a set are planned: tasks that a list announced, of resources that the mirror has, and
/// that state nothing.
pub(in crate::store) fn count_checks(sql: &Connection, set: SetId) -> Result<u64> {
    sql.prepare_cached(
        "SELECT COUNT(*) FROM task WHERE set_id = ?1 AND state = 'ready' AND origin = 'resource-list' AND kind = 'updated'
         AND lastmod IS NULL AND length IS NULL AND hashes = ''",
    )?
    .query_row([set], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// How many tasks of a set are in each state.
pub(in crate::store) fn count_by_state(
    sql: &Connection,
    set: SetId,
) -> Result<Vec<(TaskState, u64)>> {
    sql.prepare_cached("SELECT state, COUNT(*) FROM task WHERE set_id = ?1 GROUP BY state")?
        .query_map([set], |row| Ok((row.get(0)?, row.get::<_, Count>(1)?.0)))?
        .collect()
}

/// The errors of the tasks of a set that have one code.
#[derive(Clone, Debug)]
pub struct CountedFailure {
    /// The code.
    pub code: String,
    /// The message of one of them, with the resource's URI.
    pub message: String,
    /// When that one occurred.
    pub at: DateTime<Utc>,
    /// How many there are.
    pub count: u64,
}

/// The errors of the failed tasks of a set, the most frequent code first; if none has failed, that of one that is retried. At
/// most `codes` codes.
pub(in crate::store) fn failures_of_set(
    sql: &Connection,
    set: SetId,
    codes: usize,
) -> Result<Vec<CountedFailure>> {
    for (condition, codes) in [("task.state = 'failed' AND", codes), ("", codes.min(1))] {
        let failures: Vec<CountedFailure> = sql
            .prepare_cached(&format!(
                "SELECT task.error_code, resource.uri || ': ' || task.error_message, task.error_at, counted.count
                 FROM (SELECT MIN(resource_id) AS first, COUNT(*) AS count FROM task
                       WHERE task.set_id = ?1 AND {condition} task.error_code IS NOT NULL
                       GROUP BY task.error_code ORDER BY count DESC, first LIMIT ?2) AS counted
                 JOIN task ON task.resource_id = counted.first
                 JOIN resource ON resource.id = task.resource_id
                 ORDER BY counted.count DESC, counted.first"
            ))?
            .query_map(params![set, Count(codes as u64)], |row| {
                Ok(CountedFailure {
                    code: row.get(0)?,
                    message: row.get(1)?,
                    at: row.get::<_, Micros>(2)?.0,
                    count: row.get::<_, Count>(3)?.0,
                })
            })?
            .collect::<Result<_>>()?;
        if !failures.is_empty() {
            return Ok(failures);
        }
    }
    Ok(Vec::new())
}
