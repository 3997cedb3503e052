//! Applies the tasks of a Source to its mirror.
//!
//! ```text
//! executor ── task ──► execute ──► candidates ─┬─► patching (patch) ──────────┐
//!                         │                    ├─► unpack (package member) ───┤
//!                         │                    └─► download (duplicate, URI) ─┤ received and verified
//!                         └─► adoption (file is in place)                     ▼
//!                                                                 publisher ──► mirror, then store
//! ```
//!
//! A file is published before its record is committed: what a crash leaves in between is executed again, and that changes
//! nothing.
//!
//! | module | what it has |
//! |---|---|
//! | `context` | what the execution of a task needs |
//! | `members` | the package members on offer |
//! | `coding` | content codings: what a digest is of, and decoding |
//! | `received` | a resource that was received and is not published yet |
//! | `task_error` | why a task failed, and when it is tried again |
//! | `temporary_executor` | an executor for a single run or a repair |
//! | `stepping` | for the simulation: one task at a time |

mod adoption;
pub(super) mod candidates;
mod coding;
pub(super) mod context;
pub(super) mod download;
mod execute;
pub(super) mod executor;
mod former_versions;
pub(super) mod members;
pub(super) mod patching;
mod publisher;
pub(super) mod received;
#[cfg(test)]
pub(super) mod stepping;
pub(super) mod task_error;
pub(super) mod temporary_executor;
mod unpack;
