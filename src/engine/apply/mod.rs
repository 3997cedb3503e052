//! Applies the tasks of a Source to its mirror.
//!
//! ```text
//! executor ── task ──► execute ──► candidates ─┬─► unpack (package member) ──┐
//!                         │                    └─► download (duplicate, URI) ─┤ received and verified
//!                         └─► adoption (file is in place)                     ▼
//!                                                                 publisher ──► mirror, then store
//! ```
//!
//! A file is published before its record is committed: what a crash leaves in between is executed again, and that changes
//! nothing.

mod adoption;
pub(super) mod candidates;
mod coding;
pub(super) mod context;
pub(super) mod download;
mod execute;
pub(super) mod executor;
pub(super) mod members;
mod patching;
mod publisher;
pub(super) mod received;
#[cfg(test)]
pub(super) mod stepping;
pub(super) mod task_error;
pub(super) mod temporary_executor;
mod unpack;
