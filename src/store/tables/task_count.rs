//! `task_count` and `task_error_count`: how many tasks each set has, by state and by error. Triggers on `task` keep both.

use rusqlite::{Connection, OptionalExtension, Result};

use super::task::TaskState;
use super::values::{Count, column};
use crate::store::ids::SetId;

/// How many tasks of a set are in each state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TaskCounts {
    /// To be executed.
    pub(crate) ready: u64,
    /// Of these, those that a list announced, of resources that the mirror has, and that state nothing about the content.
    pub(crate) checks: u64,
    /// Given up for now.
    pub(crate) failed: u64,
    /// Refused or lacked by the Source for a week.
    pub(crate) unavailable: u64,
    /// Deletions that wait for approval.
    pub(crate) held_back: u64,
    /// Deletions whose document has not ended, or was interrupted.
    pub(crate) undecided: u64,
    /// Deletions that a person has rejected.
    pub(crate) rejected: u64,
}

/// Begins to count the tasks of a set, unless they are counted already. A trigger that did so would have SQLite look for references
/// to the set in whole tables.
pub(crate) fn begin(sql: &Connection, set: SetId) -> Result<()> {
    sql.prepare_cached("INSERT OR IGNORE INTO task_count (set_id) VALUES (?1)")?
        .execute([set])
        .map(drop)
}

pub(crate) fn of_set(sql: &Connection, set: SetId) -> Result<TaskCounts> {
    let counts = sql
        .prepare_cached(
            "SELECT ready, checks, failed, held, undecided, rejected, unavailable FROM task_count WHERE set_id = ?1",
        )?
        .query_row([set], |row| {
            let count = |column: usize| -> Result<u64> { Ok(row.get::<_, Count>(column)?.0) };
            Ok(TaskCounts {
                ready: count(0)?,
                checks: count(1)?,
                failed: count(2)?,
                held_back: count(3)?,
                undecided: count(4)?,
                rejected: count(5)?,
                unavailable: count(6)?,
            })
        })
        .optional()?;
    Ok(counts.unwrap_or_default())
}

/// How many tasks of a Source are ready.
pub(crate) fn ready_of_source(sql: &Connection, source: &str) -> Result<u64> {
    sql.prepare_cached(
        "SELECT COALESCE(SUM(task_count.ready), 0) FROM source_set JOIN task_count ON task_count.set_id = source_set.id
         WHERE source_set.source = ?1",
    )?
    .query_row([source], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// How many deletions of the followed sets of a Source are held back.
pub(crate) fn held_back_of_source(sql: &Connection, source: &str) -> Result<u64> {
    sql.prepare_cached(
        "SELECT COALESCE(SUM(task_count.held), 0) FROM source_set JOIN task_count ON task_count.set_id = source_set.id
         WHERE source_set.source = ?1 AND source_set.ended = 0",
    )?
    .query_row([source], |row| Ok(row.get::<_, Count>(0)?.0))
}

/// How many tasks of a set are in that state and have that error.
#[derive(Clone, Debug)]
pub(crate) struct ErrorCount {
    pub(crate) state: TaskState,
    /// The code of the error.
    pub(crate) code: String,
    pub(crate) tasks: u64,
}

/// The errors of a set's tasks. Their number is that of the codes, and does not grow with the tasks.
pub(crate) fn errors_of_set(sql: &Connection, set: SetId) -> Result<Vec<ErrorCount>> {
    sql.prepare_cached(
        "SELECT state, code, tasks FROM task_error_count WHERE set_id = ?1 AND tasks > 0",
    )?
    .query_map([set], |row| {
        Ok(ErrorCount {
            state: column(row, 0)?,
            code: row.get(1)?,
            tasks: row.get::<_, Count>(2)?.0,
        })
    })?
    .collect()
}
