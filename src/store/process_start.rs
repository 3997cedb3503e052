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
    if process::begin(&transaction)? {
        dropped_task::take(&transaction, None)?;
    } else {
        doubt_left(&transaction, unreadable, None)?;
    }
    Ok(transaction.commit()?)
}

/// Puts what a process has left that has not ended in order in doubt: of a Source, or of all. In a transaction.
pub(super) fn doubt_left(
    transaction: &Connection,
    unreadable: &UnreadableRows,
    source: Option<&str>,
) -> Result<(), StoreError> {
    resource::doubt_all_with_tasks(transaction, source)?;
    process::doubt_unrecorded(transaction)?;
    for id in dropped_task::take(transaction, source)? {
        transaction.savepoint()?;
        let tallied = Tallied::new(transaction);
        match doubt(&tallied, id, DateTime::UNIX_EPOCH) {
            Err(error) if unreadable.note("", &error) => transaction.roll_back_to_savepoint()?,
            done => {
                done?;
                tallied.write()?;
            }
        }
        transaction.release()?;
    }
    Ok(())
}
