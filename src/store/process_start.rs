//! The beginning of a process's work on the database.

use chrono::DateTime;
use rusqlite::Connection;

use super::error::StoreError;
use super::tables::tally::Tallied;
use super::tables::{dropped_task, process, resource};
use super::tx::settle::doubt;
use super::unreadable::UnreadableRows;

/// Begins to work on the database. If the process before this one has not ended in order, every resource is in doubt that has a task,
/// or whose task was dropped while it may have been executed, or of which nothing is recorded.
pub(super) fn begin_process(
    sql: &mut Connection,
    unreadable: &UnreadableRows,
) -> Result<(), StoreError> {
    let mut transaction = sql.transaction()?;
    let has_ended_in_order = process::begin(&transaction)?;
    let dropped = dropped_task::take_all(&transaction)?;
    if !has_ended_in_order {
        resource::doubt_all_with_tasks(&transaction)?;
        process::doubt_unrecorded(&transaction)?;
        for id in dropped {
            let step = transaction.savepoint()?;
            let tallied = Tallied::new(&step);
            match doubt(&tallied, id, DateTime::UNIX_EPOCH) {
                Err(error) if unreadable.note("", &error) => {}
                done => {
                    done?;
                    tallied.write()?;
                    drop(tallied);
                    step.commit()?;
                }
            }
        }
    }
    Ok(transaction.commit()?)
}
