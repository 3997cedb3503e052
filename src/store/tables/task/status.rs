//! Errors of tasks, for the status.

use chrono::{DateTime, Utc};
use resyncd_core::ResourceUri;

use super::TaskState;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Connection, OptionalExtension, Result, params};
use crate::store::tables::identity::Identity;
use crate::store::tables::values::{Column, Micros};

/// The last error of a resource's task, code and message, or else its state; `None`: it has no task.
pub(crate) fn error_of(
    sql: &Connection,
    source: &str,
    uri: &ResourceUri,
) -> Result<Option<(String, String)>> {
    sql.prepare_cached(
        "SELECT COALESCE(error_code, state), COALESCE(error_message, 'it waits to be applied')
         FROM task JOIN resource ON resource.id = task.resource_id
         WHERE resource.source = ?1 AND resource.identity = ?2",
    )?
    .query_row(params![source, Identity(uri)], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })
    .optional()
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

/// The first resource of a set whose task has that state and error code, and the error with the resource's URI.
pub(crate) fn first_failure(
    sql: &Connection,
    set: SetId,
    state: TaskState,
    code: &str,
) -> Result<Option<FirstFailure>> {
    sql.prepare_cached(
        "SELECT task.resource_id, resource.uri || ': ' || task.error_message, task.error_at
         FROM task JOIN resource ON resource.id = task.resource_id
         WHERE task.set_id = ?1 AND task.state = ?2 AND task.error_code = ?3 ORDER BY task.resource_id LIMIT 1",
    )?
    .query_row(params![set, Column(&state), code], |row| {
        Ok(FirstFailure {
            resource: row.get(0)?,
            message: row.get(1)?,
            at: row.get::<_, Micros>(2)?.0,
        })
    })
    .optional()
}

/// An error of the first of several tasks.
pub(crate) struct FirstFailure {
    pub(crate) resource: ResourceId,
    pub(crate) message: String,
    pub(crate) at: DateTime<Utc>,
}
