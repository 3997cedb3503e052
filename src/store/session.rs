//! The beginning of a process's work on the database.

use rusqlite::Connection;

use super::error::StoreError;
use super::tables::{resource, session};

/// Begins to work on the database. If the process before this one has not ended in order, every resource that has a task is in
/// doubt.
pub(super) fn begin_session(sql: &Connection) -> Result<(), StoreError> {
    let transaction = sql.unchecked_transaction()?;
    if !session::begin(&transaction)? {
        resource::doubt_all_with_tasks(&transaction)?;
    }
    Ok(transaction.commit()?)
}
