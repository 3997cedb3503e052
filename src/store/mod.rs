//! SHELL, SQLite: what survives the process. The inbox, the tasks, the resources, the channels, the coverage of each set
//! and the change feed.
//!
//! | place | what stands there |
//! |---|---|
//! | `tables` | SQL, one table a file, and the records that rows become; nothing else but `schema` has SQL |
//! | `tx` | use cases that write, one a file: what happens in one transaction |
//! | `reads` | queries |
//! | `writer` | the thread that commits |
//! | `schema`, `corruption`, `write_health` | migrations; a damaged database; whether writes succeed |
//! | `audit_db` | the temporary database of an audit |
//!
//! Invariants:
//! - What belongs together is one transaction: coverage never moves without the tasks of the changes that it covers.
//! - The database never states more than the files: a resource's row changes after its file was published, never before.
//! - One thread writes, and commits queued jobs as one transaction; a caller gets its answer after the commit. Readers have
//!   connections of their own.
//! - A worker that waits for something is woken by a [`Wake`], sent after the commit that brought it.
//!
//! The room knows values of [`protocol`](crate::protocol) and [`sync`](crate::sync), and neither the network nor the mirror.
//! Callers pass the time, except where it must be that of the write: for leases, and for the first number of a new feed.

mod audit_db;
mod change;
mod corruption;
mod database;
mod error;
mod ids;
mod reads;
mod schema;
mod tables;
mod tx;
mod wake;
mod write_health;
mod writer;

pub use audit_db::{
    AuditDb, Expectation, Finding, FindingKind, FindingOutcome, KnownFiles, PathState, PendingList,
    StatementKind,
};
pub use change::{Change, Origin, Paths};
pub use database::Store;
pub use error::StoreError;
pub use ids::{ChannelId, PartId, ResourceId, SetId};
pub use reads::queue::{PackageTask, TasksInProgress};
pub use reads::statistics::SetStatistics;
pub use tables::channel::ChannelRecord;
pub use tables::document::DocumentRecord;
pub use tables::dump::DumpProgress;
pub use tables::dump_package::PackageRecord;
pub use tables::feed::FeedEntry;
pub use tables::inbox::{Delivery, DeliveryOutcome};
pub use tables::part::{Part, PartEvidence, UnchangedPart};
pub use tables::resource::audit::KnownFile;
pub use tables::resource::{Publication, ResourceView};
pub use tables::source_set::{BaselineState, SetRecord};
pub use tables::task::{Task, TaskFailure};
pub use tx::adopt::Adoption;
pub use tx::complete::TaskResult;
pub use tx::deletion_guard::DeletionRules;
pub use tx::ingest::{BatchCommit, BatchResult, ChangeBatch};
pub use tx::list_entries::{ListProgress, PartEnd, PartStep};
pub use tx::receive::Receipt;
pub use wake::Wake;
pub use writer::Writing;

#[cfg(test)]
mod tests;
