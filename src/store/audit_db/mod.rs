//! The database of an audit of one Source: what the Source's documents state now, what the state database knows, and the
//! findings.
//!
//! It is an SQLite database in a temporary file that has no name any more, so that nothing is left of it after a crash and
//! memory does not grow with the set. Every call blocks; those on single pages only briefly.

mod database;
mod findings;
mod known;
mod lists;
mod state;
mod statements;
mod tables;

pub use database::AuditDb;
pub use findings::PathState;
pub use state::KnownFiles;
pub use statements::StatementKind;
pub use tables::expected::Expectation;
pub use tables::finding::{Finding, FindingKind, FindingOutcome};

#[cfg(test)]
mod tests;
