//! The beginning of a process's work on the database.

use chrono::DateTime;

use super::error::StoreError;
use super::tables::tally::Tallied;
use super::tables::{dropped_task, process, resource};
use super::tx::settle::doubt;
use super::unreadable::UnreadableRows;
use crate::store::sql::Connection;

/// Begins to work on the database. If the process before this one has not ended in order, every resource is in doubt that has a task,
/// or whose task was dropped while it may have been executed, or of which nothing is recorded.
pub(super) fn begin_process(
    sql: &Connection,
    unreadable: &UnreadableRows,
) -> Result<(), StoreError> {
    let transaction = sql.transaction()?;
    let has_ended_in_order = process::begin(&transaction)?;
    let dropped = dropped_task::take_all(&transaction)?;
    if !has_ended_in_order {
        resource::doubt_all_with_tasks(&transaction)?;
        process::doubt_unrecorded(&transaction)?;
        for id in dropped {
            transaction.savepoint()?;
            let tallied = Tallied::new(&transaction);
            match doubt(&tallied, id, DateTime::UNIX_EPOCH) {
                Err(error) if unreadable.note("", &error) => {
                    transaction.roll_back_to_savepoint()?
                }
                done => {
                    done?;
                    tallied.write()?;
                }
            }
            transaction.release()?;
        }
    }
    Ok(transaction.commit()?)
}
