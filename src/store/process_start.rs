//! The beginning of a process's work on the database.

use rusqlite::Connection;

use super::error::StoreError;
use super::tables::{dropped_task, process, resource};
use super::tx::restore::doubt_and_restore;

/// Begins to work on the database. If the process before this one has not ended in order, every resource is in doubt that has a task,
/// or whose task was dropped while it may have been executed, or of which nothing is recorded.
pub(super) fn begin_process(sql: &Connection) -> Result<(), StoreError> {
    let transaction = sql.unchecked_transaction()?;
    let has_ended_in_order = process::begin(&transaction)?;
    let dropped = dropped_task::take_all(&transaction)?;
    if !has_ended_in_order {
        resource::doubt_all_with_tasks(&transaction)?;
        process::doubt_unrecorded(&transaction)?;
        for id in dropped {
            doubt_and_restore(&transaction, id)?;
        }
    }
    Ok(transaction.commit()?)
}
