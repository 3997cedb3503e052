//! Counts and errors of tasks, for the status.

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OptionalExtension, Result};

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

/// How many tasks of a set are in each state.
pub(in crate::store) fn count_by_state(
    sql: &Connection,
    set: SetId,
) -> Result<Vec<(TaskState, u64)>> {
    sql.prepare_cached("SELECT state, COUNT(*) FROM task WHERE set_id = ?1 GROUP BY state")?
        .query_map([set], |row| Ok((row.get(0)?, row.get::<_, Count>(1)?.0)))?
        .collect()
}

/// The error of one task of a set, of a failed one if there is any: code, message with the resource's URI, and when.
pub(in crate::store) fn failure_of_set(
    sql: &Connection,
    set: SetId,
) -> Result<Option<(String, String, DateTime<Utc>)>> {
    for condition in ["task.state = 'failed' AND", ""] {
        let failure = sql
            .prepare_cached(&format!(
                "SELECT task.error_code, resource.uri || ': ' || task.error_message, task.error_at
                 FROM task JOIN resource ON resource.id = task.resource_id
                 WHERE task.set_id = ?1 AND {condition} task.error_code IS NOT NULL LIMIT 1"
            ))?
            .query_row([set], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get::<_, Micros>(2)?.0))
            })
            .optional()?;
        if failure.is_some() {
            return Ok(failure);
        }
    }
    Ok(None)
}
