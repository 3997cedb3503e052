//! The observer of a store: it sees each step, may fail it, and may shorten those of long jobs.

use std::any::Any;

use crate::store::sql::Connection;

/// A step of a store. A query or a job is named by the type of its closure, in which the name of its use case stands.
pub enum Step<'a> {
    /// A query begins.
    Query(&'static str),
    /// A job has made its changes, which are not committed yet.
    Job(&'static str, &'a Connection),
    /// A transaction is on disk.
    Committed(&'a Connection),
}

/// Observes the steps of a store, each on the thread that takes it.
pub trait Observer: Any + Send + Sync {
    /// An error, or a panic, becomes that of the step: a query is not made, a job is undone, and the callers of a transaction get the error
    /// although it is on disk.
    ///
    /// # Errors
    /// What is to be the error of the step.
    fn observe(&self, step: Step<'_>) -> rusqlite::Result<()>;

    /// How many resources or tasks, at least 1, a transaction of a job is for that changes `most` in each unless it is observed.
    fn rows_a_step(&self, most: usize) -> usize {
        most
    }
}

/// Of a store that is not observed.
impl Observer for () {
    fn observe(&self, _: Step<'_>) -> rusqlite::Result<()> {
        Ok(())
    }
}
